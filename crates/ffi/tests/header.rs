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
