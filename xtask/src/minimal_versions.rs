//! `cargo xtask minimal-versions`: does `drumfire` build with the oldest versions that `Cargo.toml` allows?
//!
//! A lower bound that nobody builds with is a guess. It works on a copy of the project, so that `Cargo.lock` stays as it is,
//! and looks at direct dependencies alone: what those allow in turn is theirs to keep.

use std::path::Path;

use crate::files;
use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// Below the target folder: the copy, and what is built of it.
const COPY: &str = "minimal-versions/copy";
const BUILT: &str = "minimal-versions/target";
/// What cargo says where no set of versions fits all bounds, which no network mends.
const NO_SET: &str = "failed to select a version";
/// Feature sets that have to build.
const SETS: [&[&str]; 3] = [&[], &["--no-default-features"], &["--all-features"]];

/// Builds.
///
/// # Errors
/// [`Stop::Needs`] without a registry to get those versions from, [`Stop::Failed`] when a bound is too low.
pub(crate) fn run() -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let Some(package) = workspace.package_in("crates/drumfire") else {
        return Err(Stop::failed("crates/drumfire: there is no such package"));
    };
    let copy = workspace.target.join(COPY);
    files::make_equal(&copy, &files::project(&workspace.root)?)?;
    // The option is not stable; what it chooses is built without it.
    let lower =
        CommandLine::new("cargo", &["update", "-Zdirect-minimal-versions"]).env("RUSTC_BOOTSTRAP", "1");
    said(&lower, &copy).map_err(registry_or_bound)?;
    said(&CommandLine::new("cargo", &["fetch", "--locked"]), &copy).map_err(registry_or_bound)?;
    let built = workspace.target.join(BUILT);
    for set in SETS {
        let args = [&["check", "--locked", "--offline", "--quiet", "-p", &package.name], set].concat();
        let check = CommandLine::new("cargo", &args);
        println!("{check}");
        let status = check.env("CARGO_TARGET_DIR", &built.to_string_lossy()).run(&copy, None)?;
        if !status.success() {
            return Err(Stop::failed("a lower bound in Cargo.toml is too low: raise it to what is needed"));
        }
    }
    Ok(())
}

fn said(command: &CommandLine, folder: &Path) -> Result<String, Stop> {
    println!("{command}");
    command.output(folder)
}

/// Bounds that cannot be met together are the project's fault, anything else is the registry's.
fn registry_or_bound(stop: Stop) -> Stop {
    match stop {
        Stop::Failed(why) if !why.contains(NO_SET) => Stop::Needs(format!("a package registry: {why}")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_that_contradict_each_other_fail_and_a_registry_that_is_away_does_not() {
        let of = |why: &str| registry_or_bound(Stop::failed(why));
        assert!(matches!(of("error: failed to select a version for `libc`."), Stop::Failed(_)));
        assert!(matches!(of("error: failed to download from the index"), Stop::Needs(_)));
        assert!(matches!(registry_or_bound(Stop::Interrupted), Stop::Interrupted));
    }
}
