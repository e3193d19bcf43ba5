//! Rules for the top level, the README's commands, the lengths of documents, and references to the standard. No file contains a path of
//! the machine on which it was written.

use std::collections::HashMap;

use super::{File, Violation, line_at};

/// The entries of the top level. Names with a leading dot configure tools, and are free.
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
/// Files without which the project cannot be built, read, or judged.
const REQUIRED: [&str; 5] = ["Cargo.toml", "Cargo.lock", "README.md", "LICENSE-MIT", ".ci/run"];
/// The commands that run the main job and the tests. The README shows both.
const COMMANDS: [&str; 2] = ["cargo run --release --bin receiver -- --with-sender", "cargo test --workspace"];
/// The documents that are read first, with the most lines and words. Longer ones are not read to the end.
const DOCUMENTS: [(&str, usize, usize); 3] =
    [("README.md", 150, 1_100), ("CONTRIBUTING.md", 120, usize::MAX), ("SECURITY.md", 40, usize::MAX)];
/// Folders that exist under this name on one machine only. They are concatenated, so that this file does not contain them.
const PRIVATE: [&str; 2] = [concat!("/ho", "me/"), concat!("/ro", "ot/")];
/// The standard, and its name in references such as `PROTOCOL 8.6, "Fragments"`.
const STANDARD: &str = "crates/wire/PROTOCOL.md";
const NAME: &str = "PROTOCOL";
/// The text after the name in references without a number.
const UNNUMBERED: [&str; 3] = [", \"", " section \"", " (\""];

/// Checks all rules. `checkout` is the path of the root.
pub(super) fn check(files: &[File], paths: &[&str], checkout: &str) -> Vec<Violation> {
    let mut violations = top_level(paths);
    for file in files {
        violations.extend(document(file));
        violations.extend(machine_paths(file, checkout));
    }
    violations.extend(references(files));
    violations
}

fn top_level(paths: &[&str]) -> Vec<Violation> {
    let mut tops: Vec<&str> = paths.iter().filter_map(|path| path.split('/').next()).collect();
    tops.dedup();
    let what =
        "the top level contains only the workspace, its documents, and dotfiles: move it into a package";
    let stray = tops.into_iter().filter(|top| !top.starts_with('.') && !TOP.contains(top));
    let missing = REQUIRED.iter().filter(|required| !paths.contains(required));
    let stray = stray.map(|top| Violation::new(top, 1, what));
    stray.chain(missing.map(|required| Violation::new(required, 1, "is missing"))).collect()
}

/// Checks the commands of the README, and the length of a document that is read first.
fn document(file: &File) -> Vec<Violation> {
    let mut faults = Vec::new();
    if file.path == "README.md" {
        let missing = COMMANDS.iter().filter(|command| !file.text.contains(*command));
        faults.extend(missing.map(|command| format!("show the command `{command}`")));
    }
    for (_, lines_max, words_max) in DOCUMENTS.iter().filter(|(path, ..)| file.path == *path) {
        let lengths = [
            (file.text.lines().count(), lines_max, "lines"),
            (file.text.split_whitespace().count(), words_max, "words"),
        ];
        let long = lengths.into_iter().filter(|(length, most, _)| length > most);
        let remedy = "move details into a document that it links to";
        faults.extend(long.map(|(length, most, unit)| format!("{length} {unit}, at most {most}: {remedy}")));
    }
    faults.into_iter().map(|what| file.violation(1, what)).collect()
}

/// Finds absolute paths of a private folder or of this checkout.
fn machine_paths(file: &File, checkout: &str) -> Vec<Violation> {
    // The path of a checkout directly below the root may have other meanings.
    let own = (checkout.matches('/').count() > 1).then_some(checkout);
    // The middle of a longer path or of an address does not count.
    let starts_path =
        |at: usize| !file.text[..at].ends_with(|c: char| c.is_alphanumeric() || "_-.".contains(c));
    let found = PRIVATE.into_iter().chain(own).flat_map(|path| {
        let places = file.text.match_indices(path).filter(|(at, _)| starts_path(*at));
        places.map(move |(at, _)| {
            file.violation(line_at(&file.text, at), format!("`{path}` is a path of one machine"))
        })
    });
    found.collect()
}

/// Checks that each reference to the standard names an existing section by number and title. A reference may continue on the next line
/// of a comment.
fn references(files: &[File]) -> Vec<Violation> {
    let Some(standard) = files.iter().find(|file| file.path == STANDARD) else { return Vec::new() };
    let heading =
        |line: &'_ str| line.strip_prefix("##").map(|rest| rest.trim_start_matches('#').trim().to_owned());
    let headings: Vec<String> = standard.text.lines().filter_map(heading).collect();
    let sections: HashMap<&str, &str> =
        headings.iter().filter_map(|heading| heading.split_once(' ')).collect();
    let is_checked = |file: &&File| file.path != STANDARD && (file.is_rust() || file.path.ends_with(".md"));
    let mut violations = Vec::new();
    for file in files.iter().filter(is_checked) {
        let mut lines = file.text.lines().zip(1..).peekable();
        while let Some((line, number)) = lines.next() {
            let next =
                lines.peek().map_or("", |(next, _)| next.trim_start().trim_start_matches(['/', '!', ' ']));
            for (place, _) in line.match_indices(NAME) {
                let rest = line.get(place + NAME.len()..).unwrap_or_default();
                let rest = format!("{} {next}", rest.strip_prefix(".md").unwrap_or(rest));
                violations.extend(reference(&rest, &sections).err().map(|what| file.violation(number, what)));
            }
        }
    }
    violations
}

/// Checks the text after the name of the standard.
fn reference(rest: &str, sections: &HashMap<&str, &str>) -> Result<(), String> {
    if UNNUMBERED.iter().any(|unnumbered| rest.starts_with(unnumbered)) {
        return Err("name a section of PROTOCOL by number and title".to_owned());
    }
    let rest = rest.trim_start();
    let number: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(());
    }
    let title = rest.strip_prefix(&number).and_then(|rest| rest.strip_prefix(", \"")?.split('"').next());
    match (sections.get(number.as_str()), title) {
        (Some(section), Some(title)) if *section == title => Ok(()),
        (Some(section), _) => Err(format!("PROTOCOL {number} is \"{section}\"")),
        (None, _) => Err(format!("PROTOCOL has no section {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_level_has_only_known_entries_and_all_required_ones() {
        let found = |extra| {
            let violations = top_level(&[&REQUIRED[..], &[extra]].concat());
            violations.into_iter().map(|violation| violation.path).collect::<Vec<_>>()
        };
        assert_eq!(
            (found(".github/workflows/ci.yml"), found("scripts/run.sh")),
            (vec![], vec!["scripts".to_owned()])
        );
        assert_eq!(top_level(&REQUIRED[1..])[0].to_string(), "Cargo.toml:1: is missing");
    }

    #[test]
    fn documents_have_their_commands_and_lengths() {
        let found = |path, text: String| {
            document(&File::new(path, &text)).into_iter().map(|violation| violation.what).collect::<Vec<_>>()
        };
        let commands = COMMANDS.join("\n");
        assert_eq!(
            (found("README.md", commands.clone()), found("README.md", String::new()).len()),
            (vec![], 2)
        );
        assert_eq!(found("SECURITY.md", "a\n".repeat(40)), [""; 0]);
        let remedy = "move details into a document that it links to";
        assert_eq!(found("SECURITY.md", "a\n".repeat(41)), [format!("41 lines, at most 40: {remedy}")]);
        let wordy = found("README.md", format!("{commands} {}", "a ".repeat(1_100)));
        assert!(wordy[0].ends_with(&format!("words, at most 1100: {remedy}")), "{wordy:?}");
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let found = |text: &str, checkout| machine_paths(&File::new("a.md", text), checkout).len();
        for bad in
            [concat!("see /ho", "me/me/notes"), concat!("\n`/ro", "ot/.cargo`"), "cd /builds/one/crates"]
        {
            assert_eq!(found(bad, "/builds/one"), 1, "{bad}");
        }
        for good in ["cd /builds/other", concat!("https://example.org/ho", "me/"), "$HOME/.cargo"] {
            assert_eq!(found(good, "/builds/one"), 0, "{good}");
        }
        assert_eq!(found("look into /src", "/src"), 0, "a checkout directly below the root");
    }

    #[test]
    fn a_reference_names_a_section_by_number_and_title() {
        // The samples use another name, because this file is checked too.
        let found = |text: &str| {
            let standard = File::new(STANDARD, "# Title\n\n## 8 Messages\n\n### 8.6 Fragments of it\n");
            let violations =
                references(&[standard, File::new("crates/a.rs", &text.replace("STANDARD", NAME))]);
            violations
                .into_iter()
                .map(|violation| violation.what.replace(NAME, "STANDARD"))
                .collect::<Vec<_>>()
        };
        for good in [
            "//! It (STANDARD 8.6, \"Fragments\n//! of it\").\n",
            "//! It (STANDARD\n//! 8, \"Messages\").\n",
            "/// A section of STANDARD.\n/// `STANDARD.md`.\nconst STANDARD: u8 = 1;\n",
        ] {
            assert_eq!(found(good), [""; 0], "{good}");
        }
        assert_eq!(found("/// STANDARD 8.7, \"Skip\"\n"), ["STANDARD has no section 8.7"]);
        assert_eq!(found("/// STANDARD 8.6, \"Pieces\"\n"), ["STANDARD 8.6 is \"Fragments of it\""]);
        assert_eq!(found("/// STANDARD 8\n"), ["STANDARD 8 is \"Messages\""]);
        for text in ["STANDARD, \"Messages\"", "STANDARD section \"Messages\"", "STANDARD (\"Messages\")"] {
            assert_eq!(found(text), ["name a section of STANDARD by number and title"], "{text}");
        }
    }
}
