//! The layers of `crates/drumfire`, so that each layer is understood without those above it.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::modules::Crate;
use super::{File, Violation};

const SOURCE: &str = "crates/drumfire/src/";

/// The folders of each layer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layers {
    lowest_first: Vec<Vec<String>>,
}

/// Returns a violation for each file that uses a higher layer, and for each folder without a layer.
pub(super) fn check(layers: &Layers, files: &[File]) -> Vec<Violation> {
    let root = format!("{SOURCE}lib.rs");
    let read = match Crate::read(&root, files) {
        Ok(read) => read,
        Err(violation) => return vec![violation],
    };
    let layer = |folder: &str| {
        layers.lowest_first.iter().position(|folders| folders.iter().any(|known| known == folder))
    };
    let mut violations = BTreeSet::new();
    for (at, module) in read.modules.iter().enumerate() {
        let from = folder(&module.file);
        let Some(own) = layer(from) else {
            let what = format!("{from} has no layer: give it one in xtask/tidy.toml");
            violations.insert(Violation::new(&module.file, 1, what));
            continue;
        };
        for used in read.used_files(at) {
            let to = folder(used);
            if layer(to).is_none_or(|layer| layer <= own) {
                continue;
            }
            let what = format!("uses {used}, and {to} is above {from}: move what both need down");
            violations.insert(Violation::new(&module.file, 1, what));
        }
    }
    violations.into_iter().collect()
}

/// Returns the folder that a file belongs to. The root file of a folder belongs to it.
fn folder(path: &str) -> &str {
    let inside = path.strip_prefix(SOURCE).unwrap_or(path);
    inside.split(['/', '.']).next().unwrap_or(inside)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::HouseRules;
    use super::*;

    /// Returns the violations of a crate in which one file has this text.
    fn found(path: &str, text: &str) -> Vec<String> {
        let mut texts = BTreeMap::from([
            ("lib.rs", "mod base; mod engine; mod other; mod testing; pub use testing::World;"),
            ("base.rs", "pub struct Base;"),
            ("engine.rs", "pub struct Engine;"),
            ("testing.rs", "use crate::engine::Engine; pub struct World;"),
        ]);
        texts.insert(path, text);
        let file = |(path, text)| File::new(&format!("{SOURCE}{path}"), text);
        let files: Vec<File> = texts.into_iter().map(file).collect();
        check(&HouseRules::read().layers, &files).iter().map(|violation| violation.what.clone()).collect()
    }

    #[test]
    fn an_import_from_a_higher_layer_is_a_violation() {
        assert_eq!(found("base.rs", "pub struct Base;"), [""; 0]);
        let upward = found("base.rs", "use crate::engine::Engine;");
        assert!(upward[0].contains("engine is above base"), "{upward:?}");
        let through_the_root = found("base.rs", "use crate::World;");
        assert!(through_the_root[0].contains("testing is above base"), "{through_the_root:?}");
    }

    #[test]
    fn a_folder_without_a_layer_is_a_violation() {
        assert!(found("other.rs", "")[0].contains("other has no layer"));
    }
}
