//! `cargo xtask guide`: copies the programs of the guide out of their Markdown into a package of its own, as a reader on GitHub does,
//! builds all of them, and runs them.
//!
//! Doc tests compile the same programs as rustdoc sees them. This task also proves that a copy needs no hidden line and no feature
//! beyond the defaults, and that the first page's server and client talk to each other.

use std::path::Path;
use std::time::Duration;

use regex::Captures;

use crate::example;
use crate::files::{self, Files, regex};
use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

const PAGES: &str = "crates/drumfire/docs/guide";
/// The page whose first two programs are a server and its client.
const FIRST_PAGE: &str = "first_server";
/// The address in the programs that run until they are ended.
const ADDRESS: &str = "127.0.0.1:7777";
/// The package without its path to the library.
const MANIFEST: &str = "[package]
name = \"guide\"
edition = \"2024\"

[workspace]

[dependencies]
tokio = { version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }
";
/// Each program that ends by itself takes less than a second on an idle machine.
const END_DEADLINE: Duration = Duration::from_secs(60);
/// The output of the first page's client.
const OUTPUT: &str = "connected\nthe server says \"hello\"\n";

struct Program {
    /// The page and the number of the program on it: `first_server_1`.
    name: String,
    text: String,
    /// Whether it ends by itself, so that it can be run alone.
    has_end: bool,
}

pub(crate) fn run(workspace: &Workspace) -> Result<(), Stop> {
    let pages = workspace.root.join(PAGES);
    let mut programs = Vec::new();
    for name in files::names(&pages)? {
        programs.extend(programs_of(name.trim_end_matches(".md"), &files::text(&pages.join(&name))?));
    }
    let folder = workspace.target.join("guide");
    write_package(workspace, &folder, &programs)?;
    // External crates with the same features are shared with the workspace.
    let target = &workspace.target;
    CommandLine::cargo("build --quiet").env("CARGO_TARGET_DIR", target).in_folder(&folder).done()?;

    let built = |name: &str| CommandLine::new(target.join("debug").join(name), &[""; 0]);
    for program in programs.iter().filter(|program| program.has_end) {
        built(&program.name).done_within(END_DEADLINE)?;
    }
    let [server, client] = ["1", "2"].map(|number| built(&format!("{FIRST_PAGE}_{number}")));
    let output = example::run_both(server, client, END_DEADLINE)?;
    if output != OUTPUT {
        return Err(Stop::failed(format!("{FIRST_PAGE}: the client printed {output:?}, not {OUTPUT:?}")));
    }
    println!("{} programs built, {FIRST_PAGE} says hello", programs.len());
    Ok(())
}

/// Returns the blocks of Rust of a page that are complete programs.
fn programs_of(page: &str, text: &str) -> Vec<Program> {
    let block = regex(r"(?ms)^```rust(?<attributes>[^\n]*)\n(?<code>.*?)^```");
    let programs = block.captures_iter(text).filter(|block| block["code"].contains("fn main()")).zip(1..);
    let program = |(block, number): (Captures<'_>, u32)| Program {
        name: format!("{page}_{number}"),
        text: block["code"].to_owned(),
        has_end: !block["attributes"].contains("no_run"),
    };
    programs.map(program).collect()
}

/// Writes the package. A free address replaces the one in the pages, which may be in use.
fn write_package(workspace: &Workspace, folder: &Path, programs: &[Program]) -> Result<(), Stop> {
    let address = example::free_address()?.to_string();
    let library = toml::Value::from(workspace.root.join("crates/drumfire").display().to_string());
    let mut package = Files::from([
        ("Cargo.toml".to_owned(), format!("{MANIFEST}drumfire = {{ path = {library} }}\n").into_bytes()),
        // The versions of the workspace, so that nothing is downloaded.
        ("Cargo.lock".to_owned(), files::read(&workspace.root.join("Cargo.lock"))?),
    ]);
    let source = |program: &Program| {
        (format!("src/bin/{}.rs", program.name), program.text.replace(ADDRESS, &address).into_bytes())
    };
    package.extend(programs.iter().map(source));
    files::make_equal(folder, &package)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_programs_are_found_with_their_attributes() {
        let page = "a\n```rust\nfn main() {}\n```\nb\n```sh\nls\n```\n```rust,no_run\nfn main() { loop {} }\n```\n\
                    ```rust\nfn part() {}\n```\n";
        let programs = programs_of("page", page);
        let found: Vec<_> = programs.iter().map(|one| (&*one.name, &*one.text, one.has_end)).collect();
        assert_eq!(found, [("page_1", "fn main() {}\n", true), ("page_2", "fn main() { loop {} }\n", false)]);
    }
}
