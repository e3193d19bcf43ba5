//! How long Rust files are before their tests, and that each opens with its module docs.
//!
//! The lengths of functions are clippy's (`too_many_lines`).

use super::ratchet::{Faults, Places};
use super::{File, Violation};
use crate::files::is_tests_alone;

/// Lines before the first top-level `#[cfg(test)]`.
const MOST_LINES: usize = 500;

/// Finds the Rust files that do not open with module docs.
pub(super) fn without_docs(files: &[File]) -> Vec<Violation> {
    let what = "open the file with `//!`: what it does, and what it deliberately does not";
    let undocumented = files.iter().filter(|file| file.is_rust() && !file.text.starts_with("//!"));
    undocumented.map(|file| file.violation(1, what)).collect()
}

/// Returns the files that are too long, with their lengths.
pub(super) fn too_long(files: &[File]) -> Places {
    let mut places = Places::new();
    for file in files.iter().filter(|file| file.is_rust() && !is_tests_alone(&file.path)) {
        let length = length(file);
        if length > MOST_LINES {
            let what =
                format!("{length} lines before its tests, at most {MOST_LINES}: find the missing concept");
            let found = vec![file.violation(length, what)];
            places.insert(file.path.clone(), Faults { count: length, found });
        }
    }
    places
}

fn length(file: &File) -> usize {
    file.code.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(path: &str, text: &str) -> Vec<usize> {
        too_long(&[File::new(path, text)]).values().map(|faults| faults.count).collect()
    }

    #[test]
    fn a_file_may_have_as_many_lines_as_the_limit() {
        let lines = |count| lengths("crates/wire/src/a.rs", &"//!\n".repeat(count));
        assert!(lines(MOST_LINES).is_empty());
        assert_eq!(lines(MOST_LINES + 1), [MOST_LINES + 1]);
    }

    #[test]
    fn lines_from_the_tests_on_are_not_counted() {
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "\n".repeat(MOST_LINES));
        assert!(lengths("a.rs", &format!("//!\n{tests}")).is_empty());
        assert_eq!(lengths("a.rs", &format!("//!\n/* \n{tests}*/")).len(), 1, "in a comment");
        assert!(lengths("crates/sim/tests/loss.rs", &"//!\n".repeat(MOST_LINES + 1)).is_empty());
    }

    #[test]
    fn a_file_opens_with_its_docs() {
        let found = |path, text| without_docs(&[File::new(path, text)]).len();
        assert_eq!(found("a.rs", "//! Does this.\n"), 0);
        assert_eq!(found("a.rs", "\n//! Does this.\n"), 1);
        assert_eq!(found("a.rs", "use std::fs;\n"), 1);
        assert_eq!(found("a.md", "text\n"), 0);
    }
}
