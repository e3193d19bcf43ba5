//! `cargo xtask sanitize`: the tests of the package whose `unsafe` speaks to the system, under the address sanitizer. The one that
//! speaks to C is called by a program under sanitizers: `cargo xtask ffi`.
//!
//! Other sanitizers need a standard library that was built for them, and are not run. A program with a fault on purpose is
//! run first: a sanitizer that does not see it is none.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// Below the target folder.
const BUILT: &str = "sanitize";
const FLAG: &str = "-Zsanitizer=address";
/// Reads one byte that was given back.
const FAULTY: &str = "fn main() {
    let address = std::hint::black_box(Box::into_raw(Box::new(7_u8)));
    unsafe { drop(Box::from_raw(address)) };
    std::process::exit(i32::from(unsafe { std::ptr::read_volatile(address) } & 0));
}
";
/// What the sanitizer calls itself when it ends a program.
const NAME: &str = "AddressSanitizer";
/// The package's tests, and the build before them.
const DEADLINE: Duration = Duration::from_secs(900);

/// Runs the tests.
///
/// # Errors
/// [`Stop::Needs`] where the compiler or the machine refuses the sanitizer, [`Stop::Failed`] when a test fails under it.
pub(crate) fn run() -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let Some(package) = workspace.package_in("crates/socket") else {
        return Err(Stop::failed("crates/socket: there is no such package"));
    };
    let built = workspace.target.join(BUILT);
    let rustc = CommandLine::new("rustc", &["-vV"]).output(&workspace.root)?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| Stop::failed("rustc -vV names no host"))?;
    see_a_fault(&built, host)?;
    // With a target, so that build scripts and macros stay as they are.
    let args = ["test", "-p", &package.name, "--lib", "--tests", "--target", host];
    let test = sanitized("cargo", &args).env("RUSTFLAGS", FLAG);
    let test = test.env("CARGO_TARGET_DIR", &built.to_string_lossy());
    println!("{test}");
    let status = test.run(&workspace.root, Some(DEADLINE))?;
    if status.success() { Ok(()) } else { Err(Stop::failed(format!("sanitize: {status}"))) }
}

/// Builds a program with a fault, and has the sanitizer find it.
fn see_a_fault(folder: &Path, host: &str) -> Result<(), Stop> {
    let needs = |why: String| Stop::Needs(format!("a compiler and a machine that take {FLAG}: {why}"));
    let failed = |why: std::io::Error| Stop::failed(format!("{}: {why}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(folder.join("faulty.rs"), FAULTY).map_err(failed)?;
    let build = sanitized("rustc", &[FLAG, "--target", host, "-o", "faulty", "faulty.rs"]);
    println!("{build}");
    build.output(folder).map_err(|stop| needs(said(stop)))?;
    let program = folder.join("faulty");
    match CommandLine::new(&program.to_string_lossy(), &[""; 0]).output(folder) {
        Ok(_) => Err(needs("it does not find a read of memory that was given back".to_owned())),
        Err(stop) => {
            let why = said(stop);
            if why.contains(NAME) && why.contains("use-after-free") { Ok(()) } else { Err(needs(why)) }
        }
    }
}

/// The option is not stable.
fn sanitized(program: &str, args: &[&str]) -> CommandLine {
    CommandLine::new(program, args).env("RUSTC_BOOTSTRAP", "1")
}

fn said(stop: Stop) -> String {
    match stop {
        Stop::Failed(why) | Stop::Needs(why) => why,
        Stop::Interrupted => "interrupted".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_that_knows_no_such_target_is_a_need_and_not_a_failure() {
        let folder = std::env::temp_dir().join(format!("drumfire-sanitize-{}", std::process::id()));
        let outcome = see_a_fault(&folder, "no-such-target");
        fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(outcome, Err(Stop::Needs(why)) if why.contains(FLAG)));
    }
}
