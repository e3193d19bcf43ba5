//! `cargo xtask sanitize`: the tests of the package whose `unsafe` speaks to the system, under the address sanitizer, or of all
//! packages that a game runs. Programs in C under sanitizers are another task's: `cargo xtask ffi`.
//!
//! Other sanitizers need a standard library that was built for them, and are not run. A program with a fault on purpose is
//! run first: a sanitizer that does not see it is none.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// The package whose `unsafe` calls the system.
const ONE: [&str; 2] = ["-p", "drumfire-socket"];
/// That package, the packages above it, and the one that passes keys to code in C. The core and the wire format have no `unsafe`, and
/// the tests of these packages run them.
const ALL: [&str; 8] =
    ["-p", "drumfire-socket", "-p", "drumfire-crypto", "-p", "drumfire", "-p", "drumfire-ffi"];
/// Tests that ask for what the sanitizer takes away: all memory of the process as a file, and a client's pace.
const NOT_UNDER_IT: [&str; 2] = [
    "--skip=ten_thousand_sessions_leave_no_key_in_freed_memory",
    "--skip=who_floods_with_junk_and_messages_costs_two_hundred_others_next_to_nothing",
];

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
/// The name of the sanitizer in its report.
const NAME: &str = "AddressSanitizer";
/// The tests, and the build before them.
const DEADLINE: Duration = Duration::from_secs(900);
/// A test of an upper package leaves a text behind on purpose; a server that grows is the soak's to find.
const KEEP_LEAKS: (&str, &str) = ("ASAN_OPTIONS", "detect_leaks=0");

/// A sanitizer that was seen to find a fault.
pub(crate) struct Sanitizer {
    folder: PathBuf,
    host: String,
}

/// Runs the tests of the one package, or of all.
///
/// # Errors
/// [`Stop::Needs`] where the compiler or the machine refuses the sanitizer, [`Stop::Failed`] when a test fails under it.
pub(crate) fn run(is_all: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let packages = if is_all { &ALL[..] } else { &ONE[..] };
    let args = [&["test", "--lib", "--tests"], packages].concat();
    let mut test = Sanitizer::find(&workspace)?.cargo(&args);
    if is_all {
        let test_args = ["--"].into_iter().chain(NOT_UNDER_IT);
        test = test_args.fold(test.env(KEEP_LEAKS.0, KEEP_LEAKS.1), CommandLine::arg);
    }
    test.done_within(&workspace.root, DEADLINE)
}

impl Sanitizer {
    /// Looks whether there is one, and whether it finds a fault.
    ///
    /// # Errors
    /// [`Stop::Needs`] where the compiler or the machine refuses it.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self, Stop> {
        let folder = workspace.target.join(BUILT);
        let host = workspace.host()?;
        see_a_fault(&folder, &host)?;
        Ok(Self { folder, host })
    }

    /// Cargo with these arguments, for programs under the sanitizer: with a target, so that build scripts and macros stay as they
    /// are.
    pub(crate) fn cargo(&self, args: &[&str]) -> CommandLine {
        let command = sanitized("cargo", &[args, &["--target", &self.host]].concat()).env("RUSTFLAGS", FLAG);
        command.env("CARGO_TARGET_DIR", &self.folder.to_string_lossy())
    }

    /// Where its programs are, in a folder for each profile.
    pub(crate) fn built(&self) -> PathBuf {
        self.folder.join(&self.host)
    }
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
    fn the_tests_that_are_left_out_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let sources = ["crates/crypto/src/residue.rs", "crates/drumfire/tests/it/server/abuser.rs"];
        for (flag, path) in NOT_UNDER_IT.iter().zip(sources) {
            let name = flag.strip_prefix("--skip=").unwrap();
            assert!(fs::read_to_string(root.join(path)).unwrap().contains(&format!("fn {name}(")), "{name}");
        }
    }

    #[test]
    fn what_is_built_is_found_where_it_is_built() {
        let sanitizer = Sanitizer { folder: PathBuf::from("t"), host: "h".to_owned() };
        let line = sanitizer.cargo(&["test", "-p", "x"]).to_string();
        assert!(line.ends_with("CARGO_TARGET_DIR=t cargo test -p x --target h"), "{line}");
        assert!(line.contains(&format!("RUSTFLAGS={FLAG}")), "{line}");
        assert_eq!(sanitizer.built(), Path::new("t/h"));
    }

    #[test]
    fn a_compiler_that_knows_no_such_target_is_a_need_and_not_a_failure() {
        let folder = std::env::temp_dir().join(format!("drumfire-sanitize-{}", std::process::id()));
        let outcome = see_a_fault(&folder, "no-such-target");
        fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(outcome, Err(Stop::Needs(why)) if why.contains(FLAG)));
    }
}
