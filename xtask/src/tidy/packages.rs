//! Rules for packages: which crate may depend on which, names, fields for a registry, the compiler's version, and the number of external
//! crates that `drumfire` brings.
//!
//! Dependencies of every kind count, those of tests and build scripts too, so that a layer cannot leak.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::{File, Violation};
use crate::run::{CommandLine, Stop};
use crate::workspace::{Package, Workspace};

/// The extent of tests, which every crate may use.
const TRIES: &str = "crates/tries";
/// The file that every published package has next to its code. Cargo itself looks for the README.
const LICENSE: &str = "LICENSE-MIT";

/// The architecture: which package may use which.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DependencyRules {
    /// The folders that a crate may use, by its folder.
    uses: BTreeMap<String, Vec<String>>,
    free: Vec<String>,
    published: Vec<String>,
    fields: Vec<String>,
    /// The maximum number of external crates of `drumfire`, with its default features and without features.
    weight: [usize; 2],
}

pub(super) fn check(
    rules: &DependencyRules,
    workspace: &Workspace,
    files: &[File],
) -> Result<Vec<Violation>, Stop> {
    let (rustc, packages) = (CommandLine::new("rustc", &["--version"]).output()?, &workspace.packages);
    let mut violations: Vec<Violation> =
        packages.iter().flat_map(|package| rules.violations(package, files, &rustc)).collect();
    for (flags, max) in ["", " --no-default-features"].into_iter().zip(rules.weight) {
        // Crates of build scripts count, and those of tests and tools do not.
        let tree = format!("tree --offline -p drumfire -e normal,build --prefix none --no-dedupe{flags}");
        let found = external_crates(&CommandLine::cargo(&tree).output()?, packages);
        if found.len() > max {
            let what = format!("{} external crates{flags}, at most {max}: {found:?}", found.len());
            violations.push(Violation::new("crates/drumfire/Cargo.toml", 1, what));
        }
    }
    Ok(violations)
}

impl DependencyRules {
    fn violations(&self, package: &Package, files: &[File], rustc: &str) -> Vec<Violation> {
        let mut faults = self.dependencies(package);
        // Neither more nor less than what CI compiles with.
        let running = rustc.split_whitespace().nth(1).map_or("", major_minor);
        if package.field("rust_version").as_str().map(major_minor) != Some(running) {
            faults.push(format!("rust-version must be {running}, the version of the toolchain"));
        }
        if package.is_published() != self.published.contains(&package.folder) {
            faults.push("`publish` differs from the list in xtask/tidy.toml".to_owned());
        }
        if package.is_published() {
            let is_empty = |field: &&String| match package.field(field) {
                Value::Array(items) => items.is_empty(),
                value => value.is_null(),
            };
            let empty = self.fields.iter().filter(is_empty);
            faults.extend(empty.map(|field| format!("has no `{field}`")));
            let license = format!("{}/{LICENSE}", package.folder);
            if !files.iter().any(|file| file.path == license) {
                faults.push(format!("the package has no {LICENSE}"));
            }
        }
        let path = format!("{}/Cargo.toml", package.folder);
        faults.into_iter().map(|what| Violation::new(&path, 1, what)).collect()
    }

    fn dependencies(&self, package: &Package) -> Vec<String> {
        let folder = &package.folder;
        if self.free.contains(folder) {
            return Vec::new();
        }
        let Some(allowed) = self.uses.get(folder) else {
            return vec!["the package is not listed in xtask/tidy.toml".to_owned()];
        };
        let stray = package.uses().filter(|used| *used != TRIES && !allowed.iter().any(|one| one == used));
        let mut faults: Vec<String> = stray.map(|used| format!("may not use {used}")).collect();
        let name = match folder.trim_start_matches("crates/") {
            "drumfire" => "drumfire".to_owned(),
            other => format!("drumfire-{other}"),
        };
        if package.name != name {
            faults.push(format!("the package is named {}, by its folder it is {name}", package.name));
        }
        faults
    }
}

fn major_minor(version: &str) -> &str {
    let second_dot = version.match_indices('.').nth(1);
    second_dot.map_or(version, |(at, _)| &version[..at])
}

/// Returns the names and versions in a tree, without the members of the workspace.
fn external_crates(tree: &str, packages: &[Package]) -> BTreeSet<String> {
    let is_own = |line: &str| packages.iter().any(|own| line.split(' ').next() == Some(own.name.as_str()));
    let name = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    tree.lines().filter(|line| !line.is_empty() && !is_own(line)).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::super::ProjectRules;
    use super::*;
    use crate::files;
    use crate::workspace::METADATA;
    use serde_json::json;

    /// Returns the faults of a package of the project with another value of a field.
    fn found(folder: &str, rustc: &str, field: &str, value: &Value) -> Vec<String> {
        let mut metadata: Value =
            serde_json::from_str(&CommandLine::cargo(METADATA).output().unwrap()).unwrap();
        let manifest = json!(files::root().join(folder).join("Cargo.toml"));
        let packages = metadata["packages"].as_array_mut().unwrap();
        let at = packages.iter().position(|package| package["manifest_path"] == manifest).unwrap();
        packages[at][field] = value.clone();
        let package = &Workspace::from_json(&metadata.to_string()).unwrap().packages[at];
        let license = File::new(&format!("{folder}/{LICENSE}"), "");
        let violations = ProjectRules::read().packages.violations(package, &[license], rustc);
        violations.into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn each_fault_of_a_package_is_found() {
        let uses = |folder: &str| json!([{ "path": files::root().join(folder) }]);
        let name = "the package is named core, by its folder it is drumfire-proto";
        for (folder, field, value, faults) in [
            ("crates/proto", "dependencies", uses("crates/crypto"), &[][..]),
            ("crates/wire", "dependencies", uses("crates/tries"), &[]),
            ("benches", "dependencies", uses("crates/sim"), &[]),
            ("crates/wire", "dependencies", uses("crates/crypto"), &["may not use crates/crypto"]),
            ("crates/proto", "dependencies", uses("crates/socket"), &["may not use crates/socket"]),
            ("crates/sim", "dependencies", uses("crates/socket"), &["may not use crates/socket"]),
            ("crates/proto", "name", json!("drumfire-proto"), &[]),
            ("crates/proto", "name", json!("core"), &[name]),
            ("crates/proto", "categories", json!([]), &["has no `categories`"]),
            ("crates/proto", "readme", json!(null), &["has no `readme`"]),
            ("crates/proto", "publish", json!([]), &["`publish` differs from the list in xtask/tidy.toml"]),
        ] {
            assert_eq!(found(folder, "rustc 1.95.3", field, &value), faults, "{folder} {field} {value}");
        }
        let manifest = json!(files::root().join("crates/util/Cargo.toml"));
        let moved = found("crates/proto", "rustc 1.95.3", "manifest_path", &manifest);
        assert_eq!(moved[0], "the package is not listed in xtask/tidy.toml");
        assert_eq!(moved.last().unwrap(), "the package has no LICENSE-MIT");
        for rustc in ["rustc 1.96.0", "rustc 1.9.5", ""] {
            assert_eq!(found("crates/proto", rustc, "readme", &json!("README.md")).len(), 1, "{rustc}");
        }
    }

    #[test]
    fn a_tree_counts_each_version_of_each_external_crate_once() {
        let own = Workspace::load().unwrap().packages;
        let tree = "drumfire-wire v0.1.0 (/x)\nbytes v1.0.0\nbytes v1.0.0\nbytes v2.0.0 (*)\n\nsyn v2.0.0 (proc-macro)\n";
        let found = Vec::from_iter(external_crates(tree, &own));
        assert_eq!(found, ["bytes v1.0.0", "bytes v2.0.0", "syn v2.0.0"]);
    }
}
