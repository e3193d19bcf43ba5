//! `cargo xtask guide`: copies the programs of the guide out of their Markdown into a package of its own, as a reader on GitHub
//! does, builds all of them, and runs them.
//!
//! Doc tests compile the same programs as rustdoc sees them. This task also proves that a copy needs no hidden line and no
//! feature beyond the defaults, and that the first page's server and client talk to each other.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::example;
use crate::run::{CommandLine, Interrupt, Running, Stop, word};
use crate::workspace::Workspace;

/// Where the pages are, below the root.
const PAGES: &str = "crates/drumfire/docs/guide";
/// The page whose first two programs are a server and its client.
const FIRST_PAGE: &str = "first_server";
/// The address in the programs that do not end by themselves.
const ADDRESS: &str = "127.0.0.1:7777";
/// Each program that ends by itself needs less than a second on an idle machine.
const END_DEADLINE: Duration = Duration::from_secs(60);

/// A program of a page.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    /// The page and the number of the program on it: `first_server_1`.
    name: String,
    text: String,
    /// Whether it ends by itself, so that it can be run alone.
    has_end: bool,
}

/// Copies, builds, and runs all programs.
///
/// # Errors
/// [`Stop::Failed`] when a page has no readable file, or a program does not build or does not do what its page says;
/// [`Stop::Interrupted`] on Ctrl-C.
pub(crate) fn run() -> Result<(), Stop> {
    let interrupt = Interrupt::on_ctrl_c()?;
    let workspace = Workspace::load()?;
    let programs = read_pages(&workspace.root.join(PAGES))?;
    let folder = workspace.target.join("guide");
    let address = example::free_address()?.to_string();
    write_package(&workspace, &folder, &programs, &address)?;
    let target = word(&folder.join("target"));
    CommandLine::new("cargo", &["build", "--quiet"]).env("CARGO_TARGET_DIR", &target).done(&folder)?;

    let built = |name: &str| word(&folder.join("target/debug").join(name));
    for program in programs.iter().filter(|program| program.has_end) {
        let command = CommandLine::new(&built(&program.name), &[""; 0]);
        println!("{}", program.name);
        if !command.run(&folder, Some(END_DEADLINE))?.success() {
            return Err(Stop::failed(format!("{} failed", program.name)));
        }
    }
    let [server, client] = [1, 2].map(|number| built(&format!("{FIRST_PAGE}_{number}")));
    let mut server = Running::start("server", &CommandLine::new(&server, &[""; 0]))?;
    let mut client = Running::start("client", &CommandLine::new(&client, &[""; 0]))?;
    example::wait_for_client(&mut client, &mut server, END_DEADLINE, &interrupt)?;
    let output = client.output();
    let expected = "connected\nthe server says \"hello\"\n";
    if output != expected {
        return Err(Stop::failed(format!("{FIRST_PAGE}: the client printed {output:?}, not {expected:?}")));
    }
    println!("{} programs built, {FIRST_PAGE} says hello", programs.len());
    Ok(())
}

fn read_pages(folder: &Path) -> Result<Vec<Program>, Stop> {
    let failed = |why: std::io::Error| Stop::failed(format!("{}: {why}", folder.display()));
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    let mut programs = Vec::new();
    for path in paths {
        let page = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        programs.extend(programs_of(&page, &fs::read_to_string(&path).map_err(failed)?));
    }
    Ok(programs)
}

/// The blocks of Rust of a page that are whole programs.
fn programs_of(page: &str, text: &str) -> Vec<Program> {
    let blocks = text.split("\n```rust").skip(1).filter_map(|rest| {
        let (attributes, rest) = rest.split_once('\n')?;
        let (code, _) = rest.split_once("\n```")?;
        Some((attributes.contains("no_run"), format!("{code}\n")))
    });
    let programs = blocks.filter(|(_, code)| code.contains("fn main()"));
    let named = programs.zip(1..).map(|((runs_on, text), number)| Program {
        name: format!("{page}_{number}"),
        text,
        has_end: !runs_on,
    });
    named.collect()
}

/// Writes the package, with another address in place of the one that may be taken here.
fn write_package(
    workspace: &Workspace,
    folder: &Path,
    programs: &[Program],
    address: &str,
) -> Result<(), Stop> {
    let failed = |why: std::io::Error| Stop::failed(format!("{}: {why}", folder.display()));
    let bins = folder.join("src/bin");
    if bins.exists() {
        // Programs that left their page must not be built.
        fs::remove_dir_all(&bins).map_err(failed)?;
    }
    fs::create_dir_all(&bins).map_err(failed)?;
    let library = toml::Value::from(word(&workspace.root.join("crates/drumfire")));
    let manifest = format!(
        "[package]\nname = \"guide\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\ndrumfire = {{ path = {library} }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).map_err(failed)?;
    // The versions of the workspace, so that nothing new is downloaded.
    fs::copy(workspace.root.join("Cargo.lock"), folder.join("Cargo.lock")).map_err(failed)?;
    for program in programs {
        let path = bins.join(format!("{}.rs", program.name));
        fs::write(path, program.text.replace(ADDRESS, address)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_programs_are_found_with_their_attributes() {
        let page = "a\n```rust\nfn main() {}\n```\nb\n```sh\nls\n```\n```rust,no_run\nfn main() { loop {} }\n```\n\
                    ```rust\nfn part() {}\n```\n";
        let program = |number: u32, text: &str, has_end| Program {
            name: format!("page_{number}"),
            text: text.to_owned(),
            has_end,
        };
        let expected = [program(1, "fn main() {}\n", true), program(2, "fn main() { loop {} }\n", false)];
        assert_eq!(programs_of("page", page), expected);
    }
}
