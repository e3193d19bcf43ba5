//! Rules for the structure of a crate: import cycles, names of types that exist more than once, and for the facade its
//! layers and the names at its root.
//!
//! Two files may import each other. In a larger cycle, no file can be read, tested, or moved without all others. A
//! reader who finds a repeated name in a signature has to search for the right type. A layer is understood without
//! those above it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::modules::Crate;
use super::{File, ProjectRules, Violation, matches};
use crate::files::regex;

const FILES_MAX: usize = 2;
/// The root file of the facade, and the maximum number of names that it may export.
const FACADE: &str = "crates/drumfire/src/lib.rs";
const ROOT_NAMES_MAX: usize = 42;
/// The types that each interface of the facade has, in a module of its own.
const OF_EACH_INTERFACE: [&str; 2] = ["Client", "Server"];
const INTERFACES: &str = "crates/drumfire/src/api/";

/// The folders of each layer of the facade.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layers {
    lowest_first: Vec<Vec<String>>,
}

pub(super) fn check(rules: &ProjectRules, crates: &[Crate], files: &[File]) -> Vec<Violation> {
    let mut violations = cycles(crates);
    violations.extend(repeated_names(crates, files));
    let facade = crates.iter().find(|one| one.modules.first().is_some_and(|root| root.file == FACADE));
    violations.extend(facade.and_then(root_names));
    violations.extend(facade.into_iter().flat_map(|facade| upward_uses(&rules.layers, facade)));
    violations
}

/// Returns a violation for each file of each cycle with too many files.
fn cycles(crates: &[Crate]) -> Vec<Violation> {
    let cycles: BTreeSet<BTreeSet<&str>> = crates.iter().flat_map(cycles_of).collect();
    let mut violations = Vec::new();
    for cycle in cycles.iter().filter(|cycle| cycle.len() > FILES_MAX) {
        let (length, files) = (cycle.len(), cycle.iter().copied().collect::<Vec<_>>().join(" "));
        let remedy = "move what they share into a module of its own";
        let what = format!("{length} files import each other, at most {FILES_MAX} may: {remedy}: {files}");
        violations.extend(cycle.iter().map(|file| Violation::new(file, 1, &*what)));
    }
    violations
}

/// Returns the sets of files in which each file reaches all others.
fn cycles_of<'a>(of: &'a Crate) -> BTreeSet<BTreeSet<&'a str>> {
    let mut imports: BTreeMap<&'a str, BTreeSet<&'a str>> = BTreeMap::new();
    for (at, module) in of.modules.iter().enumerate() {
        imports.entry(&module.file).or_default().extend(of.used_files(at));
    }
    let reached = |file: &'a str| {
        let mut reached = BTreeSet::new();
        let mut next = vec![file];
        while let Some(file) = next.pop() {
            next.extend(imports[file].iter().copied().filter(|other| reached.insert(*other)));
        }
        reached
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = imports.keys().map(|file| (*file, reached(file))).collect();
    let cycle = |(file, to): (&&str, &BTreeSet<_>)| {
        to.iter().copied().filter(|other: &&str| reached[other].contains(file)).collect::<BTreeSet<_>>()
    };
    reached.iter().map(cycle).filter(|cycle| cycle.len() > 1).collect()
}

/// Returns a violation if there are too many names at the root of the facade. A user meets all of them at the same time, so those for
/// special tasks belong into modules.
fn root_names(facade: &Crate) -> Option<Violation> {
    let count = facade.modules.first()?.exported_names;
    let what = format!("{count} names at the root, at most {ROOT_NAMES_MAX} may be: move some into a module");
    (count > ROOT_NAMES_MAX).then(|| Violation::new(FACADE, 1, what))
}

/// Returns a violation for each type with a name that a type in an earlier file of the same crate has.
fn repeated_names(crates: &[Crate], files: &[File]) -> BTreeSet<Violation> {
    let mut violations = BTreeSet::new();
    for of in crates {
        let mut defined: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        // A build has only one of two alternatives.
        for module in of.modules.iter().filter(|module| !module.is_alternative) {
            for name in &module.types {
                defined.entry(name).or_default().insert(&module.file);
            }
        }
        for (name, mut paths) in defined {
            if OF_EACH_INTERFACE.contains(&name) {
                paths.retain(|path| !path.starts_with(INTERFACES));
            }
            let definition = || regex(&format!(r"\b(struct|enum|trait|type|union)\s+{name}\b"));
            for path in paths.iter().skip(1) {
                let file = files.iter().find(|file| file.path == *path);
                let line = file.and_then(|file| Some(matches(&definition(), &file.code).next()?.0));
                let others: Vec<&str> = paths.iter().copied().filter(|other| other != path).collect();
                let what = format!("{name} is also a type in {}: rename all but one", others.join(" "));
                violations.insert(Violation::new(path, line.unwrap_or(1), what));
            }
        }
    }
    violations
}

/// Returns a violation for each file of the facade that uses a higher layer, and for each folder without a layer.
fn upward_uses(layers: &Layers, facade: &Crate) -> BTreeSet<Violation> {
    let layer = |folder: &str| {
        layers.lowest_first.iter().position(|folders| folders.iter().any(|known| known == folder))
    };
    let mut violations = BTreeSet::new();
    for (at, module) in facade.modules.iter().enumerate() {
        let from = folder(&module.file);
        let Some(own) = layer(from) else {
            let what = format!("{from} has no layer: give it one in xtask/tidy.toml");
            violations.insert(Violation::new(&module.file, 1, what));
            continue;
        };
        for used in facade.used_files(at) {
            let to = folder(used);
            if layer(to).is_some_and(|layer| layer > own) {
                let what = format!("uses {used}, and {to} is above {from}: move what both need down");
                violations.insert(Violation::new(&module.file, 1, what));
            }
        }
    }
    violations
}

/// Returns the folder of the facade that a file belongs to. The root file of a folder belongs to it.
fn folder(path: &str) -> &str {
    let inside = path.strip_prefix(FACADE.trim_end_matches("lib.rs")).unwrap_or(path);
    inside.split(['/', '.']).next().unwrap_or(inside)
}
