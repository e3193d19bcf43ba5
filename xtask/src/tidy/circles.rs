//! Circles of imports: files of a crate that use each other's items, directly or through others. Two files may. In a larger
//! circle no file can be read, tested, or moved without all others.
//!
//! A re-export is followed to the file that defines the item. `mod` and `pub use` alone are no imports, and a module may use its
//! parent.

use std::collections::{BTreeMap, BTreeSet};

use super::Violation;
use super::modules::Crate;
use super::ratchet::Faults;

/// The most files in a circle.
const FILES_MAX: usize = 2;

/// Returns the files in the largest circle of any of these crates, with a violation for each circle of that size. Two files are
/// no fault.
pub(super) fn check(crates: &[Crate]) -> Faults {
    let circles: BTreeSet<BTreeSet<&str>> = crates.iter().flat_map(circles).collect();
    let largest = circles.iter().map(BTreeSet::len).max().unwrap_or(0);
    if largest <= FILES_MAX {
        return Faults::default();
    }
    let mut faults = Faults { count: largest, found: Vec::new() };
    for circle in circles.iter().filter(|circle| circle.len() == largest) {
        let files: Vec<&str> = circle.iter().copied().collect();
        let what = format!(
            "{largest} files import each other, at most {FILES_MAX} may: move what they share into a module of its own: {}",
            files.join(" ")
        );
        faults.found.push(Violation { path: files[0].to_owned(), line: 1, what });
    }
    faults
}

/// The sets of files from each of which all others of the set are reached.
fn circles<'a>(of: &'a Crate) -> BTreeSet<BTreeSet<&'a str>> {
    let mut imports: BTreeMap<&'a str, BTreeSet<&'a str>> = BTreeMap::new();
    for (at, module) in of.modules.iter().enumerate() {
        imports.entry(&module.file).or_default().extend(of.used_files(at));
    }
    let reached: BTreeMap<&str, BTreeSet<&'a str>> =
        imports.keys().map(|file| (*file, reached(file, &imports))).collect();
    let circle = |file: &&str, to: &BTreeSet<&'a str>| {
        to.iter().copied().filter(|other| reached[other].contains(file)).collect::<BTreeSet<_>>()
    };
    reached.iter().map(|(file, to)| circle(file, to)).filter(|circle| circle.len() > 1).collect()
}

/// The files that a file imports, directly or through others.
fn reached<'a>(file: &'a str, imports: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![file];
    while let Some(file) = next.pop() {
        next.extend(imports[file].iter().copied().filter(|other| reached.insert(*other)));
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::File;

    fn found(texts: &[(&str, &str)]) -> (usize, Vec<String>) {
        let files: Vec<File> = texts.iter().map(|(path, text)| File::new(path, text)).collect();
        let faults = check(&[Crate::read("src/lib.rs", &files).unwrap()]);
        (faults.count, faults.found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn more_than_two_files_may_not_import_each_other() {
        let root = ("src/lib.rs", "mod a; mod b; mod c; pub use a::A;");
        let (a, b) =
            (("src/a.rs", "use crate::b::B; pub struct A;"), ("src/b.rs", "use crate::c::C; pub struct B;"));
        assert_eq!(found(&[root, a, b, ("src/c.rs", "pub struct C;")]).0, 0);
        assert_eq!(found(&[root, a, b, ("src/c.rs", "use crate::b::B; pub struct C;")]).0, 0);
        let circle = found(&[root, a, b, ("src/c.rs", "use crate::A; pub struct C;")]);
        let what = "src/a.rs:1: 3 files import each other, at most 2 may: move what they share into a module of its own: src/a.rs src/b.rs src/c.rs";
        assert_eq!(circle, (3, vec![what.to_owned()]));
    }

    #[test]
    fn a_circle_may_pass_through_a_parent() {
        let root = ("src/lib.rs", "mod a; mod b;");
        let a = ("src/a.rs", "mod inner; use inner::I; pub struct A;");
        let inner = ("src/a/inner.rs", "use super::A; use crate::b::B; pub struct I;");
        assert_eq!(found(&[root, a, inner, ("src/b.rs", "pub struct B;")]).0, 0);
        assert_eq!(found(&[root, a, inner, ("src/b.rs", "use crate::a::A; pub struct B;")]).0, 3);
    }
}
