//! References to the written standard: each names a section by its number and title, and the section exists.
//!
//! A reference is `PROTOCOL 8.6, "Fragments"`. It may continue on the next line of a comment.

use std::collections::HashMap;

use super::{File, Violation};

const STANDARD: &str = "crates/wire/PROTOCOL.md";
const NAME: &str = "PROTOCOL";
/// How references without a number go on after the name.
const UNNUMBERED: [&str; 3] = [", \"", " section \"", " (\""];

pub(super) fn check(files: &[File]) -> Vec<Violation> {
    let Some(standard) = files.iter().find(|file| file.path == STANDARD) else { return Vec::new() };
    let sections: HashMap<&str, &str> = standard.text.lines().filter_map(heading).collect();
    let is_checked = |file: &&File| file.path != STANDARD && (file.is_rust() || file.path.ends_with(".md"));
    files.iter().filter(is_checked).flat_map(|file| of_file(file, &sections)).collect()
}

/// The number and title of a heading.
fn heading(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("##")?.trim_start_matches('#').trim().split_once(' ')
}

fn of_file(file: &File, sections: &HashMap<&str, &str>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut lines = file.text.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let next = lines.peek().map_or("", |(_, next)| next.trim_start().trim_start_matches(['/', '!', ' ']));
        for (place, _) in line.match_indices(NAME) {
            let rest = line.get(place + NAME.len()..).unwrap_or_default();
            let rest = format!("{} {next}", rest.strip_prefix(".md").unwrap_or(rest));
            if let Err(what) = reference(&rest, sections) {
                violations.push(file.violation(at + 1, what));
            }
        }
    }
    violations
}

/// Checks what follows the standard's name.
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

    fn found(text: &str) -> Vec<String> {
        let standard = File::new(STANDARD, "# Title\n\n## 8 Messages\n\n### 8.6 Fragments of it\n");
        let files = [standard, File::new("crates/a.rs", text)];
        check(&files).into_iter().map(|violation| violation.what).collect()
    }

    #[test]
    fn a_reference_names_a_section_by_number_and_title() {
        // The samples have another name, because this file is checked too.
        let rename = |what: String| what.replace(NAME, "STANDARD");
        let found = |text: &str| -> Vec<String> {
            found(&text.replace("STANDARD", NAME)).into_iter().map(rename).collect()
        };
        assert_eq!(found("/// It (STANDARD 8.6, \"Fragments of it\").\n"), [""; 0]);
        assert_eq!(found("//! It (STANDARD 8.6, \"Fragments\n//! of it\").\n"), [""; 0]);
        assert_eq!(found("//! It (STANDARD\n//! 8, \"Messages\").\n"), [""; 0]);
        assert_eq!(
            found("/// A section of STANDARD.\n/// `STANDARD.md`.\nconst STANDARD: u8 = 1;\n"),
            [""; 0]
        );
        assert_eq!(found("/// STANDARD 8.7, \"Skip\"\n"), ["STANDARD has no section 8.7"]);
        assert_eq!(found("/// STANDARD 8.6, \"Pieces\"\n"), ["STANDARD 8.6 is \"Fragments of it\""]);
        assert_eq!(found("/// STANDARD 8\n"), ["STANDARD 8 is \"Messages\""]);
        let unnumbered = "name a section of STANDARD by number and title";
        for text in ["STANDARD, \"Messages\"", "STANDARD section \"Messages\"", "STANDARD (\"Messages\")"] {
            assert_eq!(found(&format!("/// {text}\n")), [unnumbered]);
        }
    }
}
