//! `cargo xtask bevy`: the Bevy plugin, which is a workspace of its own: its format, lints and tests, and its example, run to the
//! end.
//!
//! It is not part of `cargo xtask ci`: Bevy's crates take minutes to build.

use std::time::Duration;

use crate::run::{CommandLine, Stop, word};
use crate::workspace::Workspace;

/// Below the target folder, so that `target` of its own folder does not come to be.
const BUILT: &str = "bevy";
const EXAMPLE: &str = "headless";
/// The example ends after two thousand frames of 10 ms at most.
const EXAMPLE_DEADLINE: Duration = Duration::from_secs(120);

/// Checks, tests, and runs the example.
///
/// # Errors
/// [`Stop::Needs`] without a registry to get Bevy's crates from, [`Stop::Failed`] when a step fails.
pub(crate) fn run() -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    let (manifest, target) =
        (word(&root.join("crates/bevy/Cargo.toml")), word(&workspace.target.join(BUILT)));
    let cargo = |before: &[&str], after: &[&str]| {
        let args = [before, &["--manifest-path", &manifest], after].concat();
        CommandLine::new("cargo", &args).env("CARGO_TARGET_DIR", &target)
    };
    cargo(&["fetch", "--locked"], &[]).needed(root, "a package registry for Bevy's crates")?;
    let checked = ["--locked", "--offline"];
    cargo(&["fmt"], &["--check"]).done(root)?;
    let lints = [&checked[..], &["--all-targets", "--all-features", "--", "-D", "warnings"]].concat();
    cargo(&["clippy"], &lints).done(root)?;
    cargo(&["clippy"], &[&checked[..], &["--no-default-features", "--", "-D", "warnings"]].concat())
        .done(root)?;
    cargo(&["test"], &checked).done(root)?;
    let docs = cargo(&["doc"], &[&checked[..], &["--no-deps"]].concat()).env("RUSTDOCFLAGS", "-D warnings");
    docs.done(root)?;
    cargo(&["build"], &[&checked[..], &["--example", EXAMPLE]].concat()).done(root)?;
    let example = cargo(&["run", "--quiet"], &[&checked[..], &["--example", EXAMPLE]].concat());
    println!("{example}");
    match example.run(root, Some(EXAMPLE_DEADLINE))? {
        status if status.success() => Ok(()),
        status => Err(Stop::failed(format!("{example}: {status}"))),
    }
}
