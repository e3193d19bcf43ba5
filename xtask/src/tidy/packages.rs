//! Rules for packages: which crate may depend on which, names, fields for a registry, the compiler's version, and the number of external
//! crates that `drumfire` brings.
//!
//! Dependencies of every kind count, those of tests and build scripts too, so that a layer cannot leak.

use std::collections::BTreeSet;
use std::path::Path;

use super::Violation;
use crate::run::{CommandLine, Stop};
use crate::workspace::Package;

/// The extent of tests, which every crate may use.
const TRIES: &str = "crates/tries";
/// The crates below the tools, which the tools and the fuzzer use.
const LAYERS: &[&str] =
    &["crates/wire", "crates/crypto", "crates/socket", "crates/puppet", "crates/proto", "crates/drumfire"];
/// Each crate's folder and the folders that it may use. Other crates may not exist.
const CRATES: [(&str, &[&str]); 12] = [
    (TRIES, &[]),
    ("crates/wire", &[]),
    ("crates/crypto", &[]),
    ("crates/socket", &[]),
    // A client for tests. It must not share a mistake with the core.
    ("crates/puppet", &["crates/wire", "crates/crypto"]),
    ("crates/proto", &["crates/wire", "crates/crypto", "crates/puppet"]),
    ("crates/drumfire", &["crates/proto", "crates/socket"]),
    ("crates/ffi", &["crates/drumfire"]),
    ("crates/sim", &["crates/drumfire", "crates/proto", "crates/puppet"]),
    ("crates/fuzz", LAYERS),
    ("crates/tools", LAYERS),
    ("crates/chaos", &["crates/socket", "crates/drumfire", "crates/tools"]),
];
/// Packages that may use any crate.
const FREE: [&str; 3] = ["benches", "examples", "xtask"];
/// Crates that are only for this workspace.
const UNPUBLISHED: [&str; 6] =
    ["crates/chaos", "crates/fuzz", "crates/puppet", "crates/sim", "crates/tools", TRIES];
/// The file that every published package has next to its code. Cargo itself looks for the README.
const LICENSE: &str = "LICENSE-MIT";
/// The flags of a dependency tree, and the most external crates in it.
const TREES: [(&str, usize); 2] = [("", 50), (" --no-default-features", 36)];

/// Checks all packages.
pub(super) fn check(root: &Path, packages: &[Package], paths: &[&str]) -> Result<Vec<Violation>, Stop> {
    let rustc = CommandLine::new("rustc", &["--version"]).output(root)?;
    Ok(packages.iter().flat_map(|package| check_package(package, paths, &rustc)).collect())
}

fn check_package(package: &Package, paths: &[&str], rustc: &str) -> Vec<Violation> {
    let mut faults = dependencies(package);
    // Neither more nor less than what CI compiles with.
    let running = rustc.split_whitespace().nth(1).map_or("", major_minor);
    if package.rust_version.as_deref().map(major_minor) != Some(running) {
        let named = package.rust_version.as_deref().unwrap_or("missing");
        faults.push(format!("rust-version is {named}, the toolchain is {running}: make them equal"));
    }
    if package.is_published() {
        faults.extend(package.missing_fields().map(|field| format!("has no `{field}`")));
        if !paths.contains(&format!("{}/{LICENSE}", package.folder).as_str()) {
            faults.push(format!("the package has no {LICENSE}"));
        }
    }
    let path = format!("{}/Cargo.toml", package.folder);
    faults.into_iter().map(|what| Violation::new(&path, 1, what)).collect()
}

fn dependencies(package: &Package) -> Vec<String> {
    let folder = package.folder.as_str();
    if FREE.contains(&folder) {
        return Vec::new();
    }
    let Some((_, allowed)) = CRATES.iter().find(|(known, _)| *known == folder) else {
        return vec!["the architecture has no such package".to_owned()];
    };
    let stray = package.uses().filter(|used| *used != TRIES && !allowed.contains(used));
    let mut faults: Vec<String> = stray.map(|used| format!("may not use {used}")).collect();
    let name = match folder.trim_start_matches("crates/") {
        "drumfire" => "drumfire".to_owned(),
        other => format!("drumfire-{other}"),
    };
    if package.name != name {
        faults.push(format!("the package is named {}, by its folder it is {name}", package.name));
    }
    if UNPUBLISHED.contains(&folder) && package.is_published() {
        faults.push("is for this workspace only: write `publish = false`".to_owned());
    }
    faults
}

fn major_minor(version: &str) -> &str {
    let second_dot = version.match_indices('.').nth(1);
    second_dot.map_or(version, |(at, _)| &version[..at])
}

/// Counts the external crates in both trees of `drumfire`, including those of build scripts, without those of tests and tools.
pub(super) fn check_weight(root: &Path, packages: &[Package]) -> Result<(Vec<usize>, Vec<Violation>), Stop> {
    let (mut counts, mut violations) = (Vec::new(), Vec::new());
    for (flags, most) in TREES {
        let tree = format!("tree --offline -p drumfire -e normal,build --prefix none --no-dedupe{flags}");
        let found = external_crates(&CommandLine::cargo(&tree).output(root)?, packages);
        if found.len() > most {
            let what = format!("{} external crates{flags}, at most {most}: {found:?}", found.len());
            violations.push(Violation::new("crates/drumfire/Cargo.toml", 1, what));
        }
        counts.push(found.len());
    }
    Ok((counts, violations))
}

/// Returns the names and versions in a tree, without the members of the workspace.
fn external_crates(tree: &str, packages: &[Package]) -> BTreeSet<String> {
    let is_own = |line: &str| packages.iter().any(|own| line.split(' ').next() == Some(own.name.as_str()));
    let name = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    tree.lines().filter(|line| !line.is_empty() && !is_own(line)).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples;
    use serde_json::{Value, json};

    fn found(package: Value, rustc: &str) -> Vec<String> {
        let workspace = samples::workspace(&[package]);
        let violations = check_package(&workspace.packages[0], &["crates/proto/LICENSE-MIT"], rustc);
        violations.into_iter().map(|violation| violation.what).collect()
    }

    /// A package that is complete except for its dependencies.
    fn package(folder: &str, uses: &[&str]) -> Value {
        let mut package = samples::package(folder, &[], uses);
        if folder == "crates/drumfire" {
            package["name"] = json!("drumfire");
        }
        package["publish"] = json!([]);
        package
    }

    fn arrows(folder: &str, uses: &[&str]) -> Vec<String> {
        found(package(folder, uses), "rustc 1.95.3")
    }

    #[test]
    fn only_arrows_of_the_architecture_are_allowed() {
        for (folder, allowed) in CRATES {
            assert_eq!(arrows(folder, allowed), [""; 0], "{folder}");
        }
        assert_eq!(arrows("benches", &["crates/sim"]), [""; 0]);
        for (folder, used) in [
            ("crates/wire", "crates/crypto"),
            ("crates/proto", "crates/socket"),
            ("crates/sim", "crates/socket"),
        ] {
            assert_eq!(arrows(folder, &[used]), [format!("may not use {used}")], "{folder}");
        }
        assert_eq!(arrows("crates/util", &[]), ["the architecture has no such package"]);
        let mut misnamed = package("crates/wire", &[]);
        misnamed["name"] = json!("wire");
        assert_eq!(found(misnamed, "rustc 1.95.3").len(), 1);
    }

    #[test]
    fn a_published_package_has_all_fields_and_the_license() {
        let mut sample = samples::package("crates/proto", &[], &[]);
        for field in ["description", "license", "repository", "readme"] {
            sample[field] = json!("x");
        }
        sample["keywords"] = json!(["x"]);
        assert_eq!(found(sample.clone(), "rustc 1.95.3"), ["has no `categories`"]);
        sample["manifest_path"] = json!("/somewhere/crates/wire/Cargo.toml");
        sample["name"] = json!("drumfire-wire");
        sample["categories"] = json!(["x"]);
        assert_eq!(found(sample, "rustc 1.95.3"), ["the package has no LICENSE-MIT"]);
        let published = found(samples::package("crates/sim", &[], &[]), "rustc 1.95.3");
        assert!(published[0].contains("publish = false"), "{published:?}");
    }

    #[test]
    fn the_toolchain_is_the_one_that_is_named() {
        let faults = |rustc| found(package("crates/wire", &[]), rustc).len();
        assert_eq!(["rustc 1.95.0 (0123 2026-04-14)", "rustc 1.95.3"].map(faults), [0, 0]);
        assert_eq!(["rustc 1.96.0", "rustc 1.9.5", ""].map(faults), [1, 1, 1]);
    }

    #[test]
    fn a_tree_counts_each_version_of_each_external_crate_once() {
        let own = samples::workspace(&[package("crates/drumfire", &[])]).packages;
        let tree = "drumfire v0.1.0 (/x)\nbytes v1.0.0\nmio v1.0.0\nbytes v1.0.0\nbytes v2.0.0 (*)\n\nsyn v2.0.0 (proc-macro)\n";
        let found = Vec::from_iter(external_crates(tree, &own));
        assert_eq!(found, ["bytes v1.0.0", "bytes v2.0.0", "mio v1.0.0", "syn v2.0.0"]);
    }
}
