//! The workspace as `cargo metadata` describes it, reduced to what the tasks ask: packages by folder, their features,
//! targets and dependencies on each other.
//!
//! It reads no `Cargo.toml` itself and resolves no dependency outside the workspace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run::{CommandLine, Stop};

/// The fields of a package that a registry shows, by their names in `cargo metadata`.
const REGISTRY_FIELDS: [&str; 7] =
    ["description", "license", "repository", "readme", "keywords", "categories", "rust_version"];

/// The workspace around the current folder.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// Folder of the top-level `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// Where cargo puts what it builds.
    pub(crate) target: PathBuf,
    /// Members, in cargo's order.
    pub(crate) packages: Vec<Package>,
}

/// One member.
#[derive(Debug)]
pub(crate) struct Package {
    /// Name in its `Cargo.toml`.
    pub(crate) name: String,
    /// Folder below the root, with `/`: `crates/wire`.
    pub(crate) folder: String,
    /// `rust-version`, when it has one.
    pub(crate) rust_version: Option<String>,
    /// Whether it may go to a registry.
    pub(crate) is_published: bool,
    /// Fields of its manifest that a registry shows and that it leaves out.
    pub(crate) missing_fields: Vec<&'static str>,
    /// Names of its features, `default` included.
    pub(crate) features: Vec<String>,
    /// Libraries, binaries, examples, benches, tests.
    pub(crate) targets: Vec<Target>,
    /// Folders below the root of the workspace members it depends on, in whatever way.
    pub(crate) uses: Vec<String>,
    /// `package.metadata.smoke`: arguments of a bench's short run, by bench name.
    pub(crate) smoke: BTreeMap<String, Vec<String>>,
}

/// One thing cargo builds from a package.
#[derive(Debug)]
pub(crate) struct Target {
    /// Its name.
    pub(crate) name: String,
    /// `lib`, `bin`, `example`, `bench`, `test`, ...
    pub(crate) kind: String,
    /// Its first source file, below the root, with `/`.
    pub(crate) source: String,
}

impl Workspace {
    /// Asks cargo about the workspace of the current folder.
    ///
    /// # Errors
    /// [`Stop::Failed`] when cargo fails or its output is not what it documents.
    pub(crate) fn load() -> Result<Self, Stop> {
        let ask = CommandLine::new("cargo", &["metadata", "--format-version", "1", "--no-deps", "--offline"]);
        Self::from_json(&ask.output(Path::new("."))?)
    }

    /// The package in this folder below the root.
    pub(crate) fn package_in(&self, folder: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.folder == folder)
    }

    /// The flags that select the packages that go to a registry: `-p drumfire-wire -p drumfire-crypto ...`.
    pub(crate) fn published(&self) -> String {
        let published = self.packages.iter().filter(|package| package.is_published);
        published.map(|package| format!("-p {}", package.name)).collect::<Vec<_>>().join(" ")
    }

    /// Asks the compiler for the target that it builds for by default.
    ///
    /// # Errors
    /// [`Stop::Failed`] when it does not name one.
    pub(crate) fn host(&self) -> Result<String, Stop> {
        let version = CommandLine::new("rustc", &["-vV"]).output(&self.root)?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        host.map(str::to_owned).ok_or_else(|| Stop::failed("rustc -vV names no host"))
    }

    fn from_json(text: &str) -> Result<Self, Stop> {
        let unreadable = |what: &str| Stop::failed(format!("cargo metadata: {what}"));
        let json: Value = serde_json::from_str(text).map_err(|why| unreadable(&why.to_string()))?;
        let root = json["workspace_root"].as_str().ok_or_else(|| unreadable("no workspace_root"))?;
        let target = json["target_directory"].as_str().ok_or_else(|| unreadable("no target_directory"))?;
        let listed = json["packages"].as_array().ok_or_else(|| unreadable("no packages"))?;
        let packages = listed
            .iter()
            .map(|package| Package::from_json(package, Path::new(root)))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| unreadable("a package without name, manifest_path or targets"))?;
        Ok(Self { root: root.into(), target: target.into(), packages })
    }
}

impl Package {
    /// Names of the targets of one kind.
    pub(crate) fn targets_of(&self, kind: &str) -> impl Iterator<Item = &str> {
        self.targets(kind).map(|target| target.name.as_str())
    }

    /// The targets of one kind.
    pub(crate) fn targets(&self, kind: &str) -> impl Iterator<Item = &Target> {
        self.targets.iter().filter(move |target| target.kind == kind)
    }

    fn from_json(json: &Value, root: &Path) -> Option<Self> {
        let manifest = Path::new(json["manifest_path"].as_str()?);
        let dependencies = json["dependencies"].as_array()?;
        let smoke = json["metadata"]["smoke"].as_object();
        Some(Self {
            name: json["name"].as_str()?.to_owned(),
            folder: below(root, manifest.parent()?)?,
            rust_version: json["rust_version"].as_str().map(str::to_owned),
            // `publish = false` arrives as an empty list of registries, the default as null.
            is_published: json["publish"].as_array().is_none_or(|registries| !registries.is_empty()),
            missing_fields: REGISTRY_FIELDS.into_iter().filter(|field| is_empty(&json[*field])).collect(),
            features: json["features"].as_object()?.keys().cloned().collect(),
            targets: json["targets"]
                .as_array()?
                .iter()
                .map(|target| Target::from_json(target, root))
                .collect::<Option<_>>()?,
            uses: dependencies.iter().filter_map(|d| below(root, Path::new(d["path"].as_str()?))).collect(),
            smoke: smoke.into_iter().flatten().map(|(name, args)| (name.clone(), strings(args))).collect(),
        })
    }
}

impl Target {
    fn from_json(json: &Value, root: &Path) -> Option<Self> {
        Some(Self {
            name: json["name"].as_str()?.to_owned(),
            kind: json["kind"][0].as_str()?.to_owned(),
            source: below(root, Path::new(json["src_path"].as_str()?))?,
        })
    }
}

/// The path below the root with `/` on every system; `None` when it lies elsewhere.
fn below(root: &Path, path: &Path) -> Option<String> {
    let rest = path.strip_prefix(root).ok()?;
    Some(rest.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/"))
}

/// Returns whether a field is left out or an empty list.
fn is_empty(field: &Value) -> bool {
    field.is_null() || field.as_array().is_some_and(Vec::is_empty)
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Builds descriptions of workspaces for the tests of other modules.
#[cfg(test)]
pub(crate) mod samples {
    use super::Workspace;
    use serde_json::{Value, json};

    /// A workspace of these packages under `/somewhere`.
    pub(crate) fn workspace(packages: &[Value]) -> Workspace {
        let text = json!({ "workspace_root": "/somewhere", "target_directory": "/somewhere/target", "packages": packages });
        Workspace::from_json(&text.to_string()).unwrap()
    }

    /// A package `drumfire-<folder's last part>` with these features, targets (kind, name) and used folders.
    pub(crate) fn package(folder: &str, features: &[&str], targets: &[(&str, &str)], uses: &[&str]) -> Value {
        let last = folder.rsplit('/').next().unwrap();
        json!({
            "name": format!("drumfire-{last}"),
            "manifest_path": format!("/somewhere/{folder}/Cargo.toml"),
            "rust_version": "1.95",
            "publish": null,
            "features": features.iter().map(|name| ((*name).to_owned(), json!([]))).collect::<serde_json::Map<_, _>>(),
            "targets": targets.iter().map(|(kind, name)| json!({
                "name": name, "kind": [kind], "src_path": format!("/somewhere/{folder}/src/{name}.rs"),
            })).collect::<Vec<_>>(),
            "dependencies": uses.iter().map(|used| json!({
                "name": used, "kind": null, "path": format!("/somewhere/{used}"),
            })).chain([json!({ "name": "bytes", "kind": null })]).collect::<Vec<_>>(),
            "metadata": null,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_package_is_known_by_its_folder_and_what_it_uses() {
        let mut described =
            samples::package("crates/proto", &["default", "fast"], &[("lib", "lib")], &["crates/wire"]);
        described["publish"] = json!([]);
        described["metadata"] = json!({ "smoke": { "seal": ["--test"] } });
        let workspace = samples::workspace(&[described]);
        let package = workspace.package_in("crates/proto").unwrap();
        assert_eq!(package.name, "drumfire-proto");
        assert_eq!(package.uses, ["crates/wire"]);
        assert_eq!(package.features, ["default", "fast"]);
        assert_eq!(package.targets[0].source, "crates/proto/src/lib.rs");
        assert_eq!(package.smoke["seal"], ["--test"]);
        assert!(!package.is_published);
        assert!(workspace.package_in("crates/wire").is_none());
    }

    #[test]
    fn a_description_without_packages_is_refused() {
        assert!(Workspace::from_json(r#"{ "workspace_root": "/a", "target_directory": "/a/t" }"#).is_err());
        assert!(Workspace::from_json("not json").is_err());
    }
}
