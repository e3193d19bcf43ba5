//! `cargo xtask package`: are the crates that go to a registry whole as packages?
//!
//! They are packed together, since each names the next by a version that no registry has before the first release. It
//! uploads nothing, and asks no network: whatever the packages need, the workspace was built with.

use std::fs;
use std::path::PathBuf;

use crate::run::{CommandLine, Stop, word};
use crate::workspace::{Package, Workspace};

/// What every package brings beside its code: what it is, and under which terms.
const FILES: [&str; 2] = ["README.md", "LICENSE-MIT"];

/// Below the target folder: what is built of the packages, and of nothing else.
const ALONE: &str = "alone";

/// Packs all of them; builds each from its package where `verify` is set.
///
/// # Errors
/// [`Stop::Failed`] when a package lacks something, or cannot be packed or built.
pub(crate) fn run(verify: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let published: Vec<&Package> = workspace.packages.iter().filter(|package| package.is_published).collect();
    let mut problems = Vec::new();
    for package in &published {
        let list = pack(&[package]).arg("--list").output(&workspace.root)?;
        problems.extend(lacks(package, &list));
    }
    if !problems.is_empty() {
        return Err(Stop::Failed(problems.join("\n")));
    }
    let all = pack(&published);
    let all = if verify {
        forget_unpacked(&published)?;
        // What was built of an earlier package stands for the new one too, as long as it is the same version.
        let alone = workspace.target.join(ALONE);
        // It fails where there is none.
        drop(fs::remove_dir_all(&alone));
        all.arg("--target-dir").arg(word(&alone))
    } else {
        all.arg("--no-verify")
    };
    println!("{all}");
    match all.run(&workspace.root, None)? {
        status if status.success() => {
            let built = if verify { "each built from its package alone" } else { "none built" };
            println!("{} packages, {built}", published.len());
            Ok(())
        }
        status => Err(Stop::failed(format!("{all}: {status}"))),
    }
}

/// Takes away what cargo unpacked of these the last time. It builds each from the packages of the others, which it takes for
/// the same as long as they have the same version, whatever is in them.
fn forget_unpacked(packages: &[&Package]) -> Result<(), Stop> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let Some(Ok(registries)) = home.map(|home| fs::read_dir(home.join("registry/src"))) else {
        return Ok(());
    };
    for registry in
        registries.flatten().filter(|registry| is_made_here(&registry.file_name().to_string_lossy()))
    {
        for unpacked in fs::read_dir(registry.path()).into_iter().flatten().flatten() {
            let name = unpacked.file_name().to_string_lossy().into_owned();
            if packages.iter().any(|package| is_version_of(&name, &package.name)) {
                let path = unpacked.path();
                fs::remove_dir_all(&path)
                    .map_err(|why| Stop::failed(format!("{}: {why}", path.display())))?;
            }
        }
    }
    Ok(())
}

/// Whether cargo made this registry to build packages together: it has no host, only the hash of its folder.
fn is_made_here(registry: &str) -> bool {
    registry.strip_prefix('-').is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a folder of unpacked code is of this package.
fn is_version_of(folder: &str, package: &str) -> bool {
    let version = folder.strip_prefix(package).and_then(|rest| rest.strip_prefix('-'));
    version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
}

/// The command that packs these; what is not committed yet is packed too.
fn pack(packages: &[&Package]) -> CommandLine {
    let command = CommandLine::new("cargo", &["package", "--offline", "--allow-dirty"]);
    packages.iter().fold(command, |command, package| command.arg("-p").arg(&package.name))
}

/// What a registry shows and this package does not say, and what its list of files leaves out.
fn lacks(package: &Package, list: &str) -> Vec<String> {
    let fields = package.untold.iter().map(|field| format!("its manifest has no `{field}`"));
    let files = FILES.iter().filter(|file| !list.lines().any(|line| line == **file));
    let files = files.map(|file| format!("the package has no {file}"));
    fields.chain(files).map(|what| format!("{}/Cargo.toml: {what}", package.folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples;
    use serde_json::json;

    #[test]
    fn what_a_package_does_not_say_or_bring_is_named() {
        let mut described = samples::package("crates/wire", &[], &[], &[]);
        for field in ["description", "license", "repository", "readme"] {
            described[field] = json!("x");
        }
        described["keywords"] = json!(["x"]);
        described["categories"] = json!([]);
        let workspace = samples::workspace(&[described]);
        let found = lacks(&workspace.packages[0], "Cargo.toml\nREADME.md\ndocs/LICENSE-MIT\n");
        assert_eq!(
            found,
            [
                "crates/wire/Cargo.toml: its manifest has no `categories`",
                "crates/wire/Cargo.toml: the package has no LICENSE-MIT",
            ]
        );
    }

    #[test]
    fn what_was_unpacked_before_is_known_by_its_name_and_by_a_registry_without_a_host() {
        assert!(is_made_here("-2c909553c7e58e84") && !is_made_here("index.crates.io-1949cf8c6b5b557f"));
        assert!(is_version_of("drumfire-0.1.0", "drumfire"));
        assert!(!is_version_of("drumfire-wire-0.1.0", "drumfire") && !is_version_of("drumfire", "drumfire"));
    }

    #[test]
    fn packages_are_packed_together() {
        let samples = ["crates/wire", "crates/proto"].map(|folder| samples::package(folder, &[], &[], &[]));
        let workspace = samples::workspace(&samples);
        let packages: Vec<&Package> = workspace.packages.iter().collect();
        let command = pack(&packages).to_string();
        assert_eq!(command, "cargo package --offline --allow-dirty -p drumfire-wire -p drumfire-proto");
    }
}
