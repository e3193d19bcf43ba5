//! The workspace as `cargo metadata` describes it: packages by folder, with their features, targets, and dependencies on each other.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::run::{CommandLine, Stop};

/// The arguments with which cargo describes the workspace.
pub(crate) const METADATA: &str = "metadata --format-version 1 --no-deps --offline";

#[derive(Debug, Deserialize)]
pub(crate) struct Workspace {
    #[serde(rename = "workspace_root")]
    pub(crate) root: PathBuf,
    #[serde(rename = "target_directory")]
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// The folder below the root, with `/`: `crates/wire`.
    #[serde(rename = "manifest_path")]
    pub(crate) folder: String,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) targets: Vec<Target>,
    /// `publish = false` is an empty list of registries, and the default is null.
    publish: Option<Vec<String>>,
    dependencies: Vec<Dependency>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// A library, binary, example, bench, or test of a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    kind: Vec<String>,
    /// The first source file below the root, with `/`.
    #[serde(rename = "src_path")]
    pub(crate) source: String,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    /// The folder of a dependency inside the workspace.
    path: Option<String>,
    #[serde(default)]
    features: Vec<String>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self, Stop> {
        Self::from_json(&CommandLine::cargo(METADATA).output()?)
    }

    pub(crate) fn from_json(text: &str) -> Result<Self, Stop> {
        let failed = |why| format!("cargo metadata: {why}");
        let value: Value = serde_json::from_str(text).map_err(failed)?;
        let root = value["workspace_root"].as_str().unwrap_or_default();
        // Every path becomes one below the root.
        let mut workspace: Self =
            serde_json::from_str(&text.replace(&format!("\"{root}/"), "\"")).map_err(failed)?;
        workspace.target = workspace.root.join(&workspace.target);
        for package in &mut workspace.packages {
            package.folder = package.folder.trim_end_matches("/Cargo.toml").to_owned();
        }
        Ok(workspace)
    }

    pub(crate) fn package_in(&self, folder: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.folder == folder)
    }

    /// Returns the default target of the compiler.
    pub(crate) fn host(&self) -> Result<String, Stop> {
        let host = CommandLine::new("rustc", &["--print", "host-tuple"]).output()?;
        Ok(host.trim().to_owned())
    }
}

impl Package {
    pub(crate) fn is_published(&self) -> bool {
        self.publish.as_ref().is_none_or(|registries| !registries.is_empty())
    }

    /// The folders of the members that it depends on, for building, running, or testing.
    pub(crate) fn uses(&self) -> impl Iterator<Item = &str> {
        self.dependencies.iter().filter_map(|dependency| dependency.path.as_deref())
    }

    /// Returns whether the whole workspace has a feature of the package: by default, or because another package enables it.
    pub(crate) fn has(&self, feature: &String, packages: &[Self]) -> bool {
        let users = packages.iter().flat_map(|package| &package.dependencies);
        let users = users.filter(|used| used.path.as_ref() == Some(&self.folder));
        users.map(|used| &used.features).chain(self.features.get("default")).any(|all| all.contains(feature))
    }

    /// Returns another field, by its name in `cargo metadata`.
    pub(crate) fn field(&self, name: &str) -> &Value {
        self.others.get(name).unwrap_or(&Value::Null)
    }

    pub(crate) fn targets_of(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.targets.iter().filter(move |target| target.kind() == kind).map(|target| target.name.as_str())
    }
}

impl Target {
    /// `lib`, `bin`, `example`, `bench`, `test`, and so on.
    pub(crate) fn kind(&self) -> &str {
        self.kind.first().map_or("", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_has_paths_below_the_root() {
        let workspace = Workspace::load().unwrap();
        let package = workspace.package_in("crates/proto").unwrap();
        assert!(package.uses().any(|used| used == "crates/wire"));
        assert_eq!(
            (package.targets[0].kind(), &*package.targets[0].source),
            ("lib", "crates/proto/src/lib.rs")
        );
        assert!(package.is_published() && !workspace.package_in("crates/sim").unwrap().is_published());
        assert!(Workspace::from_json(r#"{ "workspace_root": "/a", "target_directory": "/a/t" }"#).is_err());
    }
}
