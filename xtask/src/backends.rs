//! `cargo xtask backends`: the tests of the ciphers with each back end of the portable ones, forced by flags of their crates.
//!
//! What is compared is the business of the tests: a million packets of each suite against another implementation. That one is
//! the same in every build, so back ends that agree with it agree with each other. The accelerated provider chooses by the
//! processor alone, and cannot be forced.

use std::fs;
use std::time::Duration;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// Below the target folder, one folder for each.
const BUILT: &str = "backends";
/// What the names of the tests begin with.
const TESTS: &str = "suite::";
/// The tests, and the build of everything under other flags before them.
const DEADLINE: Duration = Duration::from_secs(900);

/// A back end, and what forces it.
struct Backend {
    name: &'static str,
    flags: &'static str,
    /// The feature of an x86 processor that it needs.
    needs: Option<&'static str>,
}

const BACKENDS: [Backend; 3] = [
    Backend {
        name: "soft",
        flags: "--cfg chacha20_force_soft --cfg poly1305_force_soft --cfg aes_force_soft --cfg polyval_force_soft",
        needs: None,
    },
    Backend { name: "sse2", flags: "--cfg chacha20_force_sse2", needs: Some("sse2") },
    // Its crate takes it only where the whole program may have the instructions.
    Backend { name: "avx2", flags: "--cfg chacha20_force_avx2 -C target-feature=+avx2", needs: Some("avx2") },
];

/// Runs the tests with each back end that the processor has.
///
/// # Errors
/// [`Stop::Failed`] when a test fails with one, [`Stop::Needs`] when the processor lacks what one needs; the others have run then.
pub(crate) fn run() -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let Some(package) = workspace.package_in("crates/crypto") else {
        return Err(Stop::failed("crates/crypto: there is no such package"));
    };
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let (able, unable): (Vec<_>, Vec<_>) = BACKENDS.iter().partition(|backend| backend.runs_on(&processor));
    for backend in able {
        let built = workspace.target.join(BUILT).join(backend.name);
        let test = backend.test(&package.name).env("CARGO_TARGET_DIR", &built.to_string_lossy());
        println!("{}: {test}", backend.name);
        let status = test.run(&workspace.root, Some(DEADLINE))?;
        if !status.success() {
            return Err(Stop::Failed(format!("{}: {status}", backend.name)));
        }
    }
    match unable.first() {
        None => Ok(()),
        Some(backend) => Err(Stop::Needs(format!("a processor with {}", backend.name))),
    }
}

impl Backend {
    /// Whether a processor described so has what it needs.
    fn runs_on(&self, processor: &str) -> bool {
        let flags = processor.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
        self.needs.is_none_or(|feature| flags.split_whitespace().any(|flag| flag == feature))
    }

    fn test(&self, package: &str) -> CommandLine {
        let args = ["test", "--release", "--quiet", "-p", package, "--lib", TESTS];
        CommandLine::new("cargo", &args).env("RUSTFLAGS", self.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_has_the_back_ends_whose_instructions_it_names() {
        let able = |processor: &str| {
            let able = BACKENDS.iter().filter(|backend| backend.runs_on(processor));
            able.map(|backend| backend.name).collect::<Vec<_>>()
        };
        assert_eq!(able("model name : x\nflags\t\t: fpu sse2 avx avx2\n"), ["soft", "sse2", "avx2"]);
        assert_eq!(able("flags\t\t: fpu sse2 avx2_like\n"), ["soft", "sse2"]);
        assert_eq!(able("Features\t: fp asimd aes\n"), ["soft"]);
        assert_eq!(able(""), ["soft"]);
    }

    #[test]
    fn each_back_end_is_forced_by_its_flags_alone() {
        for backend in &BACKENDS {
            let line = backend.test("x").to_string();
            assert!(
                line.contains(&format!("chacha20_force_{}", backend.name)) && line.ends_with(TESTS),
                "{line}"
            );
        }
    }
}
