//! Compares the C header and the C# file with the Rust source.
//!
//! `WRITE_HEADER=1 cargo test -p drumfire-ffi --test header` generates the header.

use std::path::Path;

/// The source files of exported types and functions, in the order of the header.
const SOURCES: [&str; 8] =
    ["connect.rs", "event.rs", "exports.rs", "options.rs", "reason.rs", "stats.rs", "status.rs", "table.rs"];
/// The source file whose functions come last in the header.
const TEXTS: &str = "texts.rs";

fn generated_header() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml");
    let sources = SOURCES.into_iter().chain([TEXTS]).map(|name| folder.join("src").join(name));
    let builder = sources.fold(cbindgen::Builder::new().with_config(config), cbindgen::Builder::with_src);
    let mut header = Vec::new();
    builder.generate().expect("bindings").write(&mut header);
    String::from_utf8(header).expect("UTF-8")
}

#[test]
fn the_header_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/drumfire.h");
    let generated = generated_header();
    if std::env::var_os("WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).expect("write");
    }
    let written = std::fs::read_to_string(&path).expect("include/drumfire.h");
    let difference = written
        .lines()
        .zip(generated.lines())
        .zip(1..)
        .find(|((written, generated), _)| written != generated);
    assert!(
        written == generated,
        "include/drumfire.h differs from the source, see {difference:?}: run \
         WRITE_HEADER=1 cargo test -p drumfire-ffi --test header"
    );
}

#[test]
fn every_function_of_the_sources_is_in_the_header() {
    let generated = generated_header();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).expect("src") {
        let text = std::fs::read_to_string(entry.expect("file").path()).expect("UTF-8");
        for name in text.split("extern \"C\" fn ").skip(1).filter_map(|rest| rest.split('(').next()) {
            assert!(
                generated.contains(&format!(" {name}(")) || generated.contains(&format!("*{name}(")),
                "{name}"
            );
            found += 1;
        }
    }
    assert!(found >= 20, "{found} functions");
}

/// Returns the enumerations of the header: their names without `Drumfire`, and their values with names in C# style.
fn enumerations(header: &str) -> Vec<(&str, Vec<(String, &str)>)> {
    let after = header.split("\nenum Drumfire").skip(1);
    after
        .map(|rest| {
            let (name, rest) = rest.split_once('\n').expect("line");
            let body = rest.split_once("};").expect("end").0;
            let own = format!("DRUMFIRE_{}_", screaming_case(name));
            let lines = body.lines().filter_map(|line| line.trim().strip_prefix(&own)?.split_once(" = "));
            (name, lines.map(|(name, number)| (camel_case(name), number.trim_end_matches(','))).collect())
        })
        .collect()
}

fn screaming_case(name: &str) -> String {
    let breaks = |(at, c): (usize, char)| {
        let gap = if at > 0 && c.is_uppercase() { "_" } else { "" };
        format!("{gap}{}", c.to_ascii_uppercase())
    };
    name.char_indices().map(breaks).collect()
}

fn camel_case(name: &str) -> String {
    let word =
        |word: &str| word.chars().take(1).chain(word.to_lowercase().chars().skip(1)).collect::<String>();
    name.split('_').map(word).collect()
}

#[test]
fn the_c_sharp_file_has_every_value_and_function() {
    let c_sharp = include_str!("../examples/unity/Drumfire.cs");
    let generated = generated_header();
    let enumerations = enumerations(&generated);
    assert_eq!(enumerations.len(), 8, "{enumerations:?}");
    for (name, numbers) in enumerations {
        let start = c_sharp.split_once(&format!("public enum {name} : ")).expect(name).1;
        let body = start.split_once('}').expect("end").0;
        let actual: Vec<_> =
            body.lines().filter_map(|line| line.trim().trim_end_matches(',').split_once(" = ")).collect();
        assert!(!numbers.is_empty());
        let expected: Vec<_> = numbers.iter().map(|(name, number)| (name.as_str(), *number)).collect();
        assert_eq!(actual, expected, "{name}");
    }
    let functions = generated
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("drumfire_") && generated.contains(&format!("{word}(")));
    for function in functions {
        assert!(c_sharp.contains(&format!(" {function}(")), "{function}");
    }
    let version = format!("AbiVersion = {};", drumfire_ffi::DRUMFIRE_ABI_VERSION);
    assert!(c_sharp.contains(&version), "{version}");
}
