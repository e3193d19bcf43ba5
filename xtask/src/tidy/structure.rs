//! Rules for the structure of a crate: circles of imports, names of types that exist more than once, and names at the root.
//!
//! Two files may import each other. In a larger circle, no file can be read, tested, or moved without all others. A reader who finds a
//! repeated name in a signature has to search for the right type.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, UseTree, Visibility};

use super::modules::{Crate, Module};
use super::ratchet::Faults;
use super::{File, Violation, line_at, positions_of};

/// The most files in a circle.
const FILES_MAX: usize = 2;
/// The root file of the facade, and the most names that it may export.
const FACADE: &str = "crates/drumfire/src/lib.rs";
const ROOT_NAMES_MAX: usize = 45;
/// The types that each interface of the facade has, in a module of its own.
const OF_EACH_INTERFACE: [&str; 2] = ["Client", "Server"];
const INTERFACES: &str = "crates/drumfire/src/api/";

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
pub(super) fn root_names(files: &[File]) -> Faults {
    let root = files.iter().find(|file| file.path == FACADE);
    let items = root.and_then(|root| syn::parse_file(&root.text).ok()).map_or(Vec::new(), |root| root.items);
    let exported = items.iter().map(|item| match item {
        Item::Use(import) if matches!(import.vis, Visibility::Public(_)) => leaves(&import.tree),
        _ => 0,
    });
    let count = exported.sum();
    if count <= ROOT_NAMES_MAX {
        return Faults::default();
    }
    let what = format!("exports {count} names, at most {ROOT_NAMES_MAX} may be: move some into a module");
    Faults { count, found: vec![Violation::new(FACADE, 1, what)] }
}

fn leaves(tree: &UseTree) -> usize {
    match tree {
        UseTree::Path(path) => leaves(&path.tree),
        UseTree::Group(group) => group.items.iter().map(leaves).sum(),
        _ => 1,
    }
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
    let code = files.iter().find(|file| file.path == path).map_or("", |file| file.code.as_str());
    let kinds = ["struct", "enum", "trait", "type", "union"];
    let is_definition = |at: &usize| kinds.iter().any(|kind| code[..*at].trim_end().ends_with(kind));
    let line = positions_of(code, name).find(is_definition).map_or(1, |at| line_at(code, at));
    let others: Vec<&str> = paths.iter().copied().filter(|other| *other != path).collect();
    Violation::new(path, line, format!("{name} is also a type in {}: rename all but one", others.join(" ")))
}

#[cfg(test)]
mod tests {
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
        let found = |text: &str| root_names(&[File::new(FACADE, text)]).count;
        assert_eq!(found(&format!("pub use a::{{b::{{{}}}, C}}; use d::D;", names(ROOT_NAMES_MAX - 1))), 0);
        assert_eq!(
            found(&format!("pub use a::{{{}}}; pub use b::B;", names(ROOT_NAMES_MAX))),
            ROOT_NAMES_MAX + 1
        );
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
