//! `cargo xtask package`: are the crates that go to a registry whole as packages?
//!
//! They are packed together, since each names the next by a version that no registry has before the first release. It
//! uploads nothing, and asks no network: whatever the packages need, the workspace was built with.

use crate::run::{CommandLine, Stop};
use crate::workspace::{Package, Workspace};

/// What every package brings beside its code: what it is, and under which terms.
const FILES: [&str; 2] = ["README.md", "LICENSE-MIT"];

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
    let all = if verify { all } else { all.arg("--no-verify") };
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
    fn packages_are_packed_together() {
        let samples = ["crates/wire", "crates/proto"].map(|folder| samples::package(folder, &[], &[], &[]));
        let workspace = samples::workspace(&samples);
        let packages: Vec<&Package> = workspace.packages.iter().collect();
        let command = pack(&packages).to_string();
        assert_eq!(command, "cargo package --offline --allow-dirty -p drumfire-wire -p drumfire-proto");
    }
}
