//! Rules for the structure of a crate: circles of imports, names of types that exist more than once, and for the facade its layers and
//! the names at its root.
//!
//! Two files may import each other. In a larger circle, no file can be read, tested, or moved without all others. A reader who finds a
//! repeated name in a signature has to search for the right type. A layer is understood without those above it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::modules::{Crate, Module};
use super::ratchet::Faults;
use super::{File, Violation, matches, regex};

/// The most files in a circle.
const FILES_MAX: usize = 2;
/// The root file of the facade, and the most names that it may export.
pub(super) const FACADE: &str = "crates/drumfire/src/lib.rs";
const ROOT_NAMES_MAX: usize = 45;
/// The types that each interface of the facade has, in a module of its own.
const OF_EACH_INTERFACE: [&str; 2] = ["Client", "Server"];
const INTERFACES: &str = "crates/drumfire/src/api/";

/// The folders of each layer of the facade.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layers {
    lowest_first: Vec<Vec<String>>,
}

/// Returns the number of files in the largest circle of these crates, with a violation for each circle of that size.
pub(super) fn circles(crates: &[Crate]) -> Faults {
    let circles: BTreeSet<BTreeSet<&str>> = crates.iter().flat_map(circles_of).collect();
    let largest = circles.iter().map(BTreeSet::len).max().unwrap_or(0);
    if largest <= FILES_MAX {
        return Faults::default();
    }
    let found = circles.iter().filter(|circle| circle.len() == largest).map(|circle| {
        let files: Vec<&str> = circle.iter().copied().collect();
        let remedy = "move what they share into a module of its own";
        let what = format!(
            "{largest} files import each other, at most {FILES_MAX} may: {remedy}: {}",
            files.join(" ")
        );
        Violation::new(files[0], 1, what)
    });
    Faults { count: largest, found: found.collect() }
}

/// Returns the sets of files in which each file reaches all others.
fn circles_of<'a>(of: &'a Crate) -> BTreeSet<BTreeSet<&'a str>> {
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
    let circle = |(file, to): (&&str, &BTreeSet<_>)| {
        to.iter().copied().filter(|other: &&str| reached[other].contains(file)).collect::<BTreeSet<_>>()
    };
    reached.iter().map(circle).filter(|circle| circle.len() > 1).collect()
}

/// Returns the number of names that the facade exports at its root. A user meets all of them at the same time, so those for special
/// tasks belong into modules.
pub(super) fn root_names(facade: &Crate) -> Faults {
    let count = facade.modules.first().map_or(0, |root| root.exported);
    if count <= ROOT_NAMES_MAX {
        return Faults::default();
    }
    let what = format!("exports {count} names, at most {ROOT_NAMES_MAX} may be: move some into a module");
    Faults { count, found: vec![Violation::new(FACADE, 1, what)] }
}

/// Returns the number of types with a name that another type of the same crate has.
pub(super) fn repeated_names(crates: &[Crate], files: &[File]) -> Faults {
    let mut faults = Faults::default();
    let mut known = BTreeSet::new();
    for of in crates {
        let mut defined: BTreeMap<&str, Vec<&Module>> = BTreeMap::new();
        // A build has only one of two alternatives.
        for module in of.modules.iter().filter(|module| !module.is_alternative) {
            module.types.iter().for_each(|name| defined.entry(name).or_default().push(module));
        }
        for (name, modules) in defined {
            let mut paths: BTreeSet<&str> = modules.iter().map(|module| module.file.as_str()).collect();
            if OF_EACH_INTERFACE.contains(&name) {
                paths.retain(|path| !path.starts_with(INTERFACES));
            }
            // A module that two programs of a package share counts once.
            if paths.len() > 1 && known.insert((name, paths.clone())) {
                faults.count += paths.len() - 1;
                faults.found.extend(paths.iter().map(|path| repeated(name, path, &paths, files)));
            }
        }
    }
    faults
}

/// Returns the violation at a definition, which names the files of the others.
fn repeated(name: &str, path: &str, paths: &BTreeSet<&str>, files: &[File]) -> Violation {
    let definition = regex(&format!(r"\b(struct|enum|trait|type|union)\s+{name}\b"));
    let file = files.iter().find(|file| file.path == path);
    let line = file.and_then(|file| Some(matches(&definition, &file.code).next()?.0)).unwrap_or(1);
    let others: Vec<&str> = paths.iter().copied().filter(|other| *other != path).collect();
    Violation::new(path, line, format!("{name} is also a type in {}: rename all but one", others.join(" ")))
}

/// Returns a violation for each file of the facade that uses a higher layer, and for each folder without a layer.
pub(super) fn upward_uses(layers: &Layers, facade: &Crate) -> BTreeSet<Violation> {
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

#[cfg(test)]
mod tests {
    use super::super::HouseRules;
    use super::*;

    type Check = fn(&[Crate], &[File]) -> Faults;

    fn found(texts: &[(&str, &str)], check: Check) -> (usize, Vec<String>) {
        let files: Vec<File> = texts.iter().map(|(path, text)| File::new(path, text)).collect();
        let faults = check(&[Crate::read("src/lib.rs", &files).unwrap()], &files);
        (faults.count, faults.found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn more_than_two_files_may_not_import_each_other() {
        let found = |texts: &[(&str, &str)]| found(texts, |crates, _| circles(crates));
        let root = ("src/lib.rs", "mod a; mod b; mod c; pub use a::A;");
        let a = ("src/a.rs", "use crate::b::B; pub struct A;");
        let b = ("src/b.rs", "use crate::c::C; pub struct B;");
        assert_eq!(found(&[root, a, b, ("src/c.rs", "pub struct C;")]).0, 0);
        assert_eq!(found(&[root, a, b, ("src/c.rs", "use crate::b::B; pub struct C;")]).0, 0);
        let circle = found(&[root, a, b, ("src/c.rs", "use crate::A; pub struct C;")]);
        let what = "src/a.rs:1: 3 files import each other, at most 2 may: move what they share into a module of its own: src/a.rs src/b.rs src/c.rs";
        assert_eq!(circle, (3, vec![what.to_owned()]));
        let root = ("src/lib.rs", "mod a; mod b;");
        let a = ("src/a.rs", "mod inner; use inner::I; pub struct A;");
        let inner = ("src/a/inner.rs", "use super::A; use crate::b::B; pub struct I;");
        assert_eq!(found(&[root, a, inner, ("src/b.rs", "pub struct B;")]).0, 0);
        assert_eq!(found(&[root, a, inner, ("src/b.rs", "use crate::a::A; pub struct B;")]).0, 3);
    }

    #[test]
    fn the_facade_exports_a_limited_number_of_names() {
        let names = |count| (0..count).map(|number| format!("N{number}")).collect::<Vec<_>>().join(", ");
        let found = |text: &str| found(&[("src/lib.rs", text)], |crates, _| root_names(&crates[0])).0;
        assert_eq!(found(&format!("pub use a::{{b::{{{}}}, C}}; use d::D;", names(ROOT_NAMES_MAX - 1))), 0);
        let more = format!("pub use a::{{{}}}; pub use b::B;", names(ROOT_NAMES_MAX));
        assert_eq!(found(&more), ROOT_NAMES_MAX + 1);
    }

    #[test]
    fn an_import_from_a_higher_layer_is_a_violation() {
        let found = |path: &str, text: &str| {
            let mut texts = BTreeMap::from([
                ("lib.rs", "mod base; mod engine; mod other; mod testing; pub use testing::World;"),
                ("engine.rs", "pub struct Engine;"),
                ("testing.rs", "use crate::engine::Engine; pub struct World;"),
            ]);
            texts.insert(path, text);
            let path = |path| FACADE.replace("lib.rs", path);
            let files: Vec<File> = texts.iter().map(|(name, text)| File::new(&path(name), text)).collect();
            let facade = Crate::read(FACADE, &files).unwrap();
            upward_uses(&HouseRules::read().layers, &facade)
                .into_iter()
                .map(|one| one.what)
                .collect::<String>()
        };
        assert_eq!(found("base.rs", "pub struct Base;"), "");
        assert!(found("base.rs", "use crate::engine::Engine;").contains("engine is above base"));
        let through_the_root = found("base.rs", "use crate::World;");
        assert!(through_the_root.contains("testing is above base"), "{through_the_root}");
        assert!(found("other.rs", "").contains("other has no layer"));
    }

    #[test]
    fn a_type_name_exists_once_in_a_crate() {
        let found =
            |root, a, b| found(&[("src/lib.rs", root), ("src/a.rs", a), ("src/b.rs", b)], repeated_names);
        let twice = [
            "src/a.rs:1: State is also a type in src/b.rs: rename all but one",
            "src/b.rs:2: State is also a type in src/a.rs: rename all but one",
        ];
        let (count, lines) = found("mod a; mod b;", "struct State;", "// State\nenum State {}");
        assert_eq!((count, &lines[..]), (1, &twice.map(str::to_owned)[..]));
        assert_eq!(found("mod a; mod b; type T = u8;", "trait T {}", "union T { a: u8 }").0, 2);
        for (root, b) in [
            ("mod a; mod b;", "fn S() { struct S; }"),
            ("mod a; mod b;", "#[cfg(test)] struct S;"),
            ("mod a; #[cfg(test)] mod b;", "struct S;"),
            ("#[cfg(unix)] mod a; #[cfg(not(unix))] mod b;", "struct S;"),
        ] {
            assert_eq!(found(root, "struct S;", b).0, 0, "{root} {b}");
        }
        assert_eq!(found("#[cfg(unix)] mod a; #[cfg(unix)] mod b;", "struct S;", "struct S;").0, 1);
    }

    #[test]
    fn each_interface_of_the_facade_has_a_server_and_a_client() {
        let count = |name: &str| {
            let files = ["lib.rs", "api.rs", "api/a.rs", "api/b.rs"].map(|path| {
                let text = match path {
                    "lib.rs" => "mod api;".to_owned(),
                    "api.rs" => "mod a; mod b;".to_owned(),
                    _ => format!("struct {name};"),
                };
                File::new(&format!("crates/drumfire/src/{path}"), &text)
            });
            repeated_names(&[Crate::read(FACADE, &files).unwrap()], &files).count
        };
        assert_eq!(["Server", "Client", "Clients"].map(count), [0, 0, 1]);
    }
}
