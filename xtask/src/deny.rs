//! `cargo xtask deny`: what `.cargo/deny.toml` says of the crates of others, checked by `cargo deny`.
//!
//! Known vulnerabilities are looked up apart from the rest, in the copies of the advisory database that cargo-deny has fetched
//! before: where there is none, that is told as skipped. Nothing is fetched here.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// What needs nothing but the crates themselves.
const CHECKS: [&str; 3] = ["bans", "licenses", "sources"];
/// Where cargo-deny keeps databases, below cargo's own folder.
const DATABASES: &str = "advisory-dbs";

/// Checks the tree of the workspace: licences, sources and unwanted crates, or known vulnerabilities.
///
/// # Errors
/// [`Stop::Needs`] without cargo-deny, or without a database, [`Stop::Failed`] when it finds something.
pub(crate) fn run(is_advisories: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let version = CommandLine::new("cargo", &["deny", "--version"]).output(&workspace.root);
    let version =
        version.map_err(|_| Stop::Needs("cargo-deny: cargo install cargo-deny --locked".to_owned()))?;
    println!("{}", version.trim());
    if !is_advisories {
        return check(&[], &CHECKS).done(&workspace.root);
    }
    let databases = cargo_home().map(|home| home.join(DATABASES));
    if !databases.as_deref().is_some_and(has_entry) {
        return Err(Stop::Needs("a copy of the advisory database: cargo deny fetch db".to_owned()));
    }
    check(&["--offline"], &["advisories"]).done(&workspace.root)
}

fn check(flags: &[&str], which: &[&str]) -> CommandLine {
    let args: [&[&str]; 4] = [&["deny"], flags, &["--workspace", "check", "--hide-inclusion-graph"], which];
    CommandLine::new("cargo", &args.concat())
}

/// Where cargo keeps what it shares between projects.
fn cargo_home() -> Option<PathBuf> {
    let own = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    own.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
}

fn has_entry(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_is_a_command_that_can_be_typed() {
        let line = check(&["--offline"], &["advisories"]).to_string();
        assert_eq!(line, "cargo deny --offline --workspace check --hide-inclusion-graph advisories");
    }

    #[test]
    fn an_empty_folder_and_none_are_no_database() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(has_entry(here));
        assert!(!has_entry(&here.join("no-such-folder")));
        assert!(!has_entry(&here.join("Cargo.toml")));
    }
}
