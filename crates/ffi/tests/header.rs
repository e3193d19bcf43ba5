//! The header that C programs include is what cbindgen makes of the crate.
//!
//! `WRITE_HEADER=1 cargo test -p drumfire-ffi --test header` writes it anew.

use std::path::Path;

/// The files with types and functions that C programs see.
const SOURCES: [&str; 8] =
    ["connect.rs", "event.rs", "exports.rs", "options.rs", "reason.rs", "stats.rs", "status.rs", "table.rs"];
/// And the one whose functions come last.
const TEXTS: &str = "texts.rs";

fn made() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml");
    let sources = SOURCES.into_iter().chain([TEXTS]).map(|name| folder.join("src").join(name));
    let builder = sources.fold(cbindgen::Builder::new().with_config(config), cbindgen::Builder::with_src);
    let mut made = Vec::new();
    builder.generate().expect("bindings").write(&mut made);
    String::from_utf8(made).expect("a text")
}

#[test]
fn the_header_is_what_cbindgen_makes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/drumfire.h");
    let made = made();
    if std::env::var_os("WRITE_HEADER").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let there = std::fs::read_to_string(&path).expect("include/drumfire.h");
    let differs = there.lines().zip(made.lines()).zip(1..).find(|((there, made), _)| there != made);
    assert!(
        there == made,
        "include/drumfire.h is not what cbindgen makes, see {differs:?}: \
         WRITE_HEADER=1 cargo test -p drumfire-ffi --test header"
    );
}

#[test]
fn every_function_of_the_sources_is_in_the_header() {
    let made = made();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).expect("src") {
        let text = std::fs::read_to_string(entry.expect("a file").path()).expect("a text");
        for name in text.split("extern \"C\" fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
            assert!(made.contains(&format!(" {name}(")) || made.contains(&format!("*{name}(")), "{name}");
            found += 1;
        }
    }
    assert!(found >= 20, "{found} functions");
}

/// The enumerations of the header: name without `Drumfire`, and its numbers by their names as C# writes them.
fn enumerations(header: &str) -> Vec<(&str, Vec<(String, &str)>)> {
    let after = header.split("\nenum Drumfire").skip(1);
    after
        .map(|rest| {
            let (name, rest) = rest.split_once('\n').expect("a line");
            let body = rest.split_once("};").expect("an end").0;
            let own = format!("DRUMFIRE_{}_", screaming(name));
            let lines = body.lines().filter_map(|line| line.trim().strip_prefix(&own)?.split_once(" = "));
            (name, lines.map(|(name, number)| (camel(name), number.trim_end_matches(','))).collect())
        })
        .collect()
}

fn screaming(name: &str) -> String {
    let breaks = |(at, c): (usize, char)| {
        let gap = if at > 0 && c.is_uppercase() { "_" } else { "" };
        format!("{gap}{}", c.to_ascii_uppercase())
    };
    name.char_indices().map(breaks).collect()
}

fn camel(name: &str) -> String {
    let word =
        |word: &str| word.chars().take(1).chain(word.to_lowercase().chars().skip(1)).collect::<String>();
    name.split('_').map(word).collect()
}

#[test]
fn the_c_sharp_file_has_every_number_and_every_function_of_the_header() {
    let sharp = include_str!("../examples/unity/Drumfire.cs");
    let made = made();
    let enumerations = enumerations(&made);
    assert_eq!(enumerations.len(), 8, "{enumerations:?}");
    for (name, numbers) in enumerations {
        let start = sharp.split_once(&format!("public enum {name} : ")).expect(name).1;
        let body = start.split_once('}').expect("an end").0;
        let there: Vec<_> =
            body.lines().filter_map(|line| line.trim().trim_end_matches(',').split_once(" = ")).collect();
        assert!(!numbers.is_empty());
        let wanted: Vec<_> = numbers.iter().map(|(name, number)| (name.as_str(), *number)).collect();
        assert_eq!(there, wanted, "{name}");
    }
    let functions = made
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("drumfire_") && made.contains(&format!("{word}(")));
    for function in functions {
        assert!(sharp.contains(&format!(" {function}(")), "{function}");
    }
    let version = format!("AbiVersion = {};", drumfire_ffi::DRUMFIRE_ABI_VERSION);
    assert!(sharp.contains(&version), "{version}");
}
