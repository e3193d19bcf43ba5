//! `cargo xtask sanitize`: the tests of the package whose `unsafe` calls the system, or of all packages that a game runs, under the
//! address sanitizer. `cargo xtask ffi` runs programs in C under sanitizers.
//!
//! A program with a deliberate fault runs first: without a report for it, the sanitizer does not work here. Other sanitizers are not
//! used, because they need a standard library that was built for them.

use std::path::PathBuf;
use std::time::Duration;

use crate::files;
use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// The package whose `unsafe` calls the system.
const ONE: &str = "-p drumfire-socket";
/// Also the packages above it, and the one that passes keys to code in C. The core and the wire format have no `unsafe`, and the tests
/// of these packages run them.
const ALL: &str = "-p drumfire-socket -p drumfire-crypto -p drumfire -p drumfire-ffi";
/// Tests that need what the sanitizer changes: the whole memory of the process as a file, and a client's pace.
const SKIPPED: [&str; 2] = [
    "ten_thousand_sessions_leave_no_key_in_freed_memory",
    "who_floods_with_junk_and_messages_costs_two_hundred_others_next_to_nothing",
];
const FLAG: &str = "-Zsanitizer=address";
/// Reads a byte that was freed.
const FAULTY: &str = "fn main() {
    let address = std::hint::black_box(Box::into_raw(Box::new(7_u8)));
    unsafe { drop(Box::from_raw(address)) };
    std::process::exit(i32::from(unsafe { std::ptr::read_volatile(address) } & 0));
}
";
/// The words of the sanitizer's report about it.
const REPORT: [&str; 2] = ["AddressSanitizer", "use-after-free"];
/// The time for the tests and their build.
const DEADLINE: Duration = Duration::from_secs(900);

/// A sanitizer that has found a deliberate fault.
pub(crate) struct Sanitizer {
    /// The target directory of its programs.
    folder: PathBuf,
    host: String,
}

/// Runs the tests of one package, or of all.
pub(crate) fn run(workspace: &Workspace, is_all: bool) -> Result<(), Stop> {
    let packages = if is_all { ALL } else { ONE };
    let mut test = Sanitizer::find(workspace)?.cargo(&format!("test --lib --tests {packages}"));
    if is_all {
        // A test of the C interface leaks a text on purpose. The soak of `cargo xtask chaos` finds a server that grows.
        test = test.env("ASAN_OPTIONS", "detect_leaks=0").arg("--");
        test = SKIPPED.iter().fold(test, |test, name| test.arg(format!("--skip={name}")));
    }
    test.done_within(DEADLINE)
}

impl Sanitizer {
    /// Checks that the sanitizer finds a deliberate fault. Where the compiler or the machine does not support it, this is a need.
    pub(crate) fn find(workspace: &Workspace) -> Result<Self, Stop> {
        let sanitizer = Self { folder: workspace.target.join("sanitize"), host: workspace.host()? };
        sanitizer.check()?;
        Ok(sanitizer)
    }

    /// Returns a cargo command whose programs run under the sanitizer. Its `--target` excludes build scripts and macros.
    pub(crate) fn cargo(&self, args: &str) -> CommandLine {
        let command = CommandLine::cargo(&format!("{args} --target {}", self.host));
        // The flag is not stable.
        let command = command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAG);
        command.env("CARGO_TARGET_DIR", &self.folder)
    }

    /// Returns the folder that has a folder of programs for each profile.
    pub(crate) fn built(&self) -> PathBuf {
        self.folder.join(&self.host)
    }

    fn check(&self) -> Result<(), Stop> {
        let needs = |why: String| Stop::Needs(format!("a compiler and a machine that support {FLAG}: {why}"));
        files::write(&self.folder.join("faulty.rs"), FAULTY)?;
        let build = CommandLine::new("rustc", &[FLAG, "--target", &self.host, "-o", "faulty", "faulty.rs"]);
        let build = build.env("RUSTC_BOOTSTRAP", "1").in_folder(&self.folder);
        println!("{build}");
        let program = CommandLine::new(self.folder.join("faulty"), &[""; 0]);
        match build.output().and_then(|_| program.output()) {
            Ok(_) => Err(needs("it does not report a read of freed memory".to_owned())),
            Err(why) if REPORT.iter().all(|word| why.to_string().contains(word)) => Ok(()),
            Err(why) => Err(needs(why.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::root;

    #[test]
    fn the_skipped_tests_exist() {
        let sources = ["crates/crypto/src/residue.rs", "crates/drumfire/tests/it/server/abuser.rs"];
        for (name, path) in SKIPPED.iter().zip(sources) {
            assert!(files::text(&root().join(path)).unwrap().contains(&format!("fn {name}(")), "{name}");
        }
    }

    #[test]
    fn an_unsupported_target_is_a_need_and_not_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let sanitizer = Sanitizer { folder: folder.to_owned(), host: "no-such-target".to_owned() };
        assert!(matches!(sanitizer.check(), Err(Stop::Needs(why)) if why.contains(FLAG)));
    }
}
