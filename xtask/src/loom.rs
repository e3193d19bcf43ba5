//! `cargo xtask loom`: the models of what crosses threads, in every interleaving.
//!
//! What is modelled is the business of the crate; here it is built for it, apart from everything else, because a flag of the
//! compiler reaches every crate.

use std::time::Duration;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// Below the target folder.
const BUILT: &str = "loom";
/// What the names of models begin with.
const MODELS: &str = "interleavings_";
/// All models together, built before.
const DEADLINE: Duration = Duration::from_secs(300);

/// Builds the models and runs them.
///
/// # Errors
/// [`Stop::Failed`] when one does not hold, takes too long, or when there is none.
pub(crate) fn run() -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let Some(package) = workspace.package_in("crates/drumfire") else {
        return Err(Stop::failed("crates/drumfire: there is no such package"));
    };
    let built = workspace.target.join(BUILT);
    let test = command(&package.name).env("CARGO_TARGET_DIR", &built.to_string_lossy());
    let list = test.clone().arg("--").arg("--list");
    println!("{list}");
    let models = count(&list.output(&workspace.root)?);
    if models == 0 {
        return Err(Stop::failed(format!("there is no model: no test is called {MODELS}...")));
    }
    println!("{models} models\n{test}");
    let status = test.run(&workspace.root, Some(DEADLINE))?;
    if status.success() { Ok(()) } else { Err(Stop::failed(format!("loom: {status}"))) }
}

fn command(package: &str) -> CommandLine {
    let args = ["test", "--release", "--quiet", "-p", package, "--lib", "--no-default-features"];
    let command = CommandLine::new("cargo", &args).env("RUSTFLAGS", "--cfg loom");
    command.arg("--features").arg("tokio").arg(MODELS)
}

/// How many tests this list has.
fn count(list: &str) -> usize {
    list.lines().filter(|line| line.ends_with(": test")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_counted_and_nothing_else() {
        assert_eq!(
            count(
                "sync::interleavings_of_a: test\nsync::interleavings_of_b: test\n\n2 tests, 0 benchmarks\n"
            ),
            2
        );
        assert_eq!(count("0 tests, 0 benchmarks\n"), 0);
    }

    #[test]
    fn models_alone_are_run() {
        let line = command("drumfire").to_string();
        assert!(line.starts_with("RUSTFLAGS='--cfg loom' cargo test") && line.ends_with(MODELS), "{line}");
    }
}
