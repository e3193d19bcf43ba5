//! The project as a stranger finds it: what the top level holds, the commands the README promises, the lengths of the
//! documents, the toolchain, and paths of the machine that a file was written on.
//!
//! It runs none of the commands; `cargo xtask ci` does.

use super::{File, Violation, line_at};
use crate::workspace::Package;

/// Everything at the top level; names with a leading dot are tool configuration and free.
const TOP: [&str; 12] = [
    "Cargo.toml",
    "Cargo.lock",
    "README.md",
    "LICENSE-MIT",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "crates",
    "benches",
    "examples",
    "xtask",
];
/// Without these the project cannot be built, read, or judged.
const REQUIRED: [&str; 5] = ["Cargo.toml", "Cargo.lock", "README.md", "LICENSE-MIT", ".ci/run"];
/// The one command that runs the main job, and the one that runs the tests.
const COMMANDS: [&str; 2] = ["cargo run --release --bin receiver -- --with-sender", "cargo test --workspace"];
/// The documents that are read first, each with the most lines and words that it may have. A longer one is not read to its end.
const DOCUMENTS: [(&str, usize, usize); 3] =
    [("README.md", 150, 1_100), ("CONTRIBUTING.md", 120, usize::MAX), ("SECURITY.md", 40, usize::MAX)];
/// The file that every published package has next to its code. Cargo looks for the README itself.
const LICENSE: &str = "LICENSE-MIT";
/// Folders that exist under this name on one machine only. Joined, so that this file does not name them itself.
const PRIVATE: [&str; 2] = [concat!("/ho", "me/"), concat!("/ro", "ot/")];

pub(super) fn top_level(paths: &[String]) -> Vec<Violation> {
    let at = |path: &str, what: &str| Violation { path: path.to_owned(), line: 1, what: what.to_owned() };
    let mut tops: Vec<&str> = paths.iter().filter_map(|path| path.split('/').next()).collect();
    tops.dedup();
    let stray = tops.into_iter().filter(|top| !top.starts_with('.') && !TOP.contains(top));
    let missing = REQUIRED.iter().filter(|required| !paths.iter().any(|path| path == *required));
    stray
        .map(|top| {
            at(
                top,
                "the top level holds the workspace, its documents and dotfiles only: move it into a package",
            )
        })
        .chain(missing.map(|required| at(required, "is missing")))
        .collect()
}

pub(super) fn documents(files: &[File]) -> Vec<Violation> {
    let readme = files.iter().filter(|file| file.path == "README.md");
    let lacking = |file: &File| {
        let commands = COMMANDS.iter().filter(|command| !file.text.contains(*command));
        commands.map(|command| file.violation(1, format!("show the command `{command}`"))).collect::<Vec<_>>()
    };
    readme.flat_map(lacking).collect()
}

/// Compares the documents that are read first with the lengths that they may have.
pub(super) fn document_lengths(files: &[File]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, lines_max, words_max) in DOCUMENTS {
        for file in files.iter().filter(|file| file.path == path) {
            let lengths = [
                (file.text.lines().count(), lines_max, "lines"),
                (file.text.split_whitespace().count(), words_max, "words"),
            ];
            for (length, most, unit) in lengths.into_iter().filter(|(length, most, _)| length > most) {
                let what =
                    format!("{length} {unit}, at most {most}: move details into a document that it links to");
                violations.push(file.violation(1, what));
            }
        }
    }
    violations
}

/// `rust-version` is what really runs, so that it promises neither more nor less.
pub(super) fn rust_version(packages: &[Package], rustc: &str) -> Vec<Violation> {
    let running = rustc.split_whitespace().nth(1).map_or("", major_minor);
    let differs =
        packages.iter().filter(|package| package.rust_version.as_deref().map(major_minor) != Some(running));
    differs
        .map(|package| {
            let named = package.rust_version.as_deref().unwrap_or("missing");
            let what =
                format!("rust-version is {named}, the toolchain that runs is {running}: make them equal");
            Violation { path: format!("{}/Cargo.toml", package.folder), line: 1, what }
        })
        .collect()
}

/// Checks that the packages for a registry have all that it shows of them: fields of the manifest, and the license.
pub(super) fn published(packages: &[Package], paths: &[String]) -> Vec<Violation> {
    let lacks = |package: &Package| {
        let license = format!("{}/{LICENSE}", package.folder);
        let fields = package.missing_fields.iter().map(|field| format!("has no `{field}`"));
        let license = (!paths.contains(&license)).then(|| format!("the package has no {LICENSE}"));
        let path = format!("{}/Cargo.toml", package.folder);
        let violation = |what| Violation { path: path.clone(), line: 1, what };
        fields.chain(license).map(violation).collect::<Vec<_>>()
    };
    packages.iter().filter(|package| package.is_published).flat_map(lacks).collect()
}

/// Absolute paths of a private folder or of this very checkout.
pub(super) fn machine_paths(files: &[File], checkout: &str) -> Vec<Violation> {
    // A checkout directly below the root has a path that other texts use for something else.
    let own = (checkout.matches('/').count() > 1).then_some(checkout);
    let mut violations = Vec::new();
    for file in files {
        for path in PRIVATE.into_iter().chain(own) {
            let found = file.text.match_indices(path).filter(|(at, _)| starts_path(&file.text[..*at]));
            violations.extend(found.map(|(at, _)| {
                file.violation(line_at(&file.text, at), format!("`{path}` is a path of one machine"))
            }));
        }
    }
    violations
}

/// Whether what follows this text is not the middle of a longer path or address.
fn starts_path(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "_-.".contains(c))
}

fn major_minor(version: &str) -> &str {
    let second_dot = version.match_indices('.').nth(1);
    second_dot.map_or(version, |(at, _)| &version[..at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples;

    fn top(extra: &str) -> Vec<String> {
        let paths: Vec<String> = REQUIRED.iter().chain([&extra]).map(|path| (*path).to_owned()).collect();
        top_level(&paths).iter().map(|violation| violation.path.clone()).collect()
    }

    #[test]
    fn the_top_level_holds_what_it_may() {
        for good in ["crates/wire/src/lib.rs", "xtask/Cargo.toml", ".github/workflows/ci.yml", "CHANGELOG.md"]
        {
            assert_eq!(top(good), [""; 0], "{good}");
        }
        assert_eq!(top("notes.txt"), ["notes.txt"]);
        assert_eq!(top("scripts/run.sh"), ["scripts"]);
    }

    #[test]
    fn what_must_be_there_is_missed() {
        let paths: Vec<String> = REQUIRED[1..].iter().map(|path| (*path).to_owned()).collect();
        assert_eq!(top_level(&paths)[0].to_string(), "Cargo.toml:1: is missing");
    }

    #[test]
    fn the_readme_shows_both_commands() {
        let with = |text: &str| documents(&[File::new("README.md", text)]).len();
        assert_eq!(with(&COMMANDS.join("\n")), 0);
        assert_eq!(with(COMMANDS[0]), 1);
        assert_eq!(with(COMMANDS[1]), 1);
        assert_eq!(with(""), 2);
    }

    #[test]
    fn a_document_has_at_most_its_lines_and_words() {
        let found = |path, text: String| {
            let violations = document_lengths(&[File::new(path, &text)]);
            violations.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let details = "move details into a document that it links to";
        assert_eq!(found("SECURITY.md", "a\n".repeat(40)), [""; 0]);
        let long = format!("SECURITY.md:1: 41 lines, at most 40: {details}");
        assert_eq!(found("SECURITY.md", "a\n".repeat(41)), [long]);
        assert_eq!(found("README.md", "a ".repeat(1_100)), [""; 0]);
        let wordy = format!("README.md:1: 1101 words, at most 1100: {details}");
        assert_eq!(found("README.md", "a ".repeat(1_101)), [wordy]);
        assert_eq!(found("crates/wire/README.md", "a\n".repeat(200)), [""; 0]);
    }

    #[test]
    fn a_published_package_has_what_a_registry_shows() {
        let mut sample = samples::package("crates/wire", &[], &[], &[]);
        for field in ["description", "license", "repository", "readme"] {
            sample[field] = "x".into();
        }
        sample["keywords"] = vec!["x"].into();
        let workspace = samples::workspace(&[sample]);
        let found: Vec<_> = published(&workspace.packages, &["LICENSE-MIT".to_owned()])
            .iter()
            .map(ToString::to_string)
            .collect();
        let expected = ["has no `categories`", "the package has no LICENSE-MIT"];
        assert_eq!(found, expected.map(|what| format!("crates/wire/Cargo.toml:1: {what}")));
    }

    #[test]
    fn the_toolchain_is_the_one_named() {
        let workspace = samples::workspace(&[samples::package("crates/wire", &[], &[], &[])]);
        let against = |rustc| rust_version(&workspace.packages, rustc).len();
        assert_eq!(against("rustc 1.95.0 (0123 2026-04-14)"), 0);
        assert_eq!(against("rustc 1.95.3"), 0);
        assert_eq!(against("rustc 1.96.0"), 1);
        assert_eq!(against("rustc 1.9.5"), 1);
        assert_eq!(against(""), 1);
    }

    #[test]
    fn a_path_of_one_machine_is_found() {
        let found = |text: &str| machine_paths(&[File::new("a.md", text)], "/builds/one").len();
        assert_eq!(found(concat!("see /ho", "me/me/notes")), 1);
        assert_eq!(found(concat!("\n`/ro", "ot/.cargo`")), 1);
        assert_eq!(found("cd /builds/one/crates"), 1);
        assert_eq!(found("cd /builds/other"), 0);
        assert_eq!(found(concat!("https://example.org/ho", "me/")), 0);
        assert_eq!(found("$HOME/.cargo"), 0);
    }

    #[test]
    fn a_checkout_directly_below_the_root_hides_nothing_else() {
        assert_eq!(machine_paths(&[File::new("a.md", "look into /src")], "/src").len(), 0);
    }
}
