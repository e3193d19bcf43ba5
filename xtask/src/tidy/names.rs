//! Names of types that a crate has more than once. A reader who finds the name in a signature would have to look for the
//! right type.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::{Crate, Module};
use super::ratchet::Faults;
use super::{File, Violation, line_at, words_of};

/// Returns how many types of these crates have a name that another type of the same crate has.
pub(super) fn check(crates: &[Crate], files: &[File]) -> Faults {
    let mut faults = Faults::default();
    let mut known = BTreeSet::new();
    for of in crates {
        let mut defined: BTreeMap<&str, Vec<&Module>> = BTreeMap::new();
        for module in &of.modules {
            module.types.iter().for_each(|name| defined.entry(name).or_default().push(module));
        }
        for (name, modules) in defined {
            let paths: BTreeSet<&str> = modules
                .iter()
                .filter(|module| !is_alternative(module, &modules))
                .map(|module| module.file.as_str())
                .collect();
            let paths: Vec<&str> = paths.into_iter().collect();
            // A module that two programs of a package share is one module.
            if paths.len() > 1 && known.insert((name, paths.clone())) {
                faults.count += paths.len() - 1;
                faults.found.extend(paths.iter().map(|path| violation(name, path, &paths, files)));
            }
        }
    }
    faults
}

/// Whether the module is only built where another one of these is not. A build then has only one of their types.
fn is_alternative(module: &Module, modules: &[&Module]) -> bool {
    let Some(own) = module.condition.as_ref().filter(|own| own.is_negated) else { return false };
    let conditions = modules.iter().filter_map(|other| other.condition.as_ref());
    conditions.into_iter().any(|other| !other.is_negated && other.asked == own.asked)
}

/// The definition in the file at `path`, with the others.
fn violation(name: &str, path: &str, paths: &[&str], files: &[File]) -> Violation {
    let code = files.iter().find(|file| file.path == path).map_or("", |file| file.code.as_str());
    let kinds = ["struct", "enum", "trait", "type", "union"];
    let is_definition = |at: &usize| kinds.iter().any(|kind| code[..*at].trim_end().ends_with(kind));
    let line = words_of(code, name).find(is_definition).map_or(1, |at| line_at(code, at));
    let others: Vec<&str> = paths.iter().copied().filter(|other| *other != path).collect();
    let what = format!("{name} is also a type in {}: rename all but one", others.join(" "));
    Violation { path: path.to_owned(), line, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(root: &str, a: &str, b: &str) -> (usize, Vec<String>) {
        let texts = [("src/lib.rs", root), ("src/a.rs", a), ("src/b.rs", b)];
        let files = texts.map(|(path, text)| File::new(path, text));
        let faults = check(&[Crate::read("src/lib.rs", &files).unwrap()], &files);
        (faults.count, faults.found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_type_name_exists_once_in_a_crate() {
        let twice = [
            "src/a.rs:1: State is also a type in src/b.rs: rename all but one",
            "src/b.rs:2: State is also a type in src/a.rs: rename all but one",
        ];
        assert_eq!(
            found("mod a; mod b;", "struct State;", "// State\nenum State {}"),
            (1, twice.map(str::to_owned).to_vec())
        );
        assert_eq!(found("mod a; mod b; type T = u8;", "trait T {}", "union T { a: u8 }").0, 2);
        assert_eq!(found("mod a; mod b;", "struct State;", "fn State() { struct State; }").0, 0);
    }

    #[test]
    fn tests_and_opposite_conditions_may_have_the_same_name() {
        assert_eq!(found("mod a; mod b;", "struct S;", "#[cfg(test)] struct S;").0, 0);
        assert_eq!(found("mod a; #[cfg(test)] mod b;", "struct S;", "struct S;").0, 0);
        assert_eq!(found("#[cfg(unix)] mod a; #[cfg(not(unix))] mod b;", "struct S;", "struct S;").0, 0);
        assert_eq!(found("#[cfg(unix)] mod a; #[cfg(windows)] mod b;", "struct S;", "struct S;").0, 1);
        assert_eq!(found("#[cfg(unix)] mod a; #[cfg(unix)] mod b;", "struct S;", "struct S;").0, 1);
    }
}
