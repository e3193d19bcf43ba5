//! Project tasks. `cargo xtask --help` lists them.
//!
//! This file maps the outcome of a task to an exit code. The codes are 0 for success, 1 for failure, 2 for bad usage,
//! and 3 if the machine lacks a requirement of the task. Each task is in the module of its name. The exceptions are
//! `bench` in `gate`, and `ci`, `interop`, `ffi`, `bevy`, `loom`, and `sanitize` in `steps`.
#![forbid(unsafe_code)]

mod chaos;
mod example;
mod files;
mod fuzz;
mod gate;
mod guide;
mod ledger;
mod netns;
mod nightly;
mod report;
mod run;
mod secrets;
mod sim;
mod steps;
mod tidy;
mod two_hosts;
mod workspace;

use std::process::ExitCode;

use clap::Parser;
use minijinja::context;
use minijinja::value::Serde;

use crate::files::failed;
use crate::run::Stop;
use crate::workspace::Workspace;

/// Project tasks of drumfire.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Count the instructions of each stage of the packet path; needs valgrind. `cargo bench` runs the other benchmarks.
    Bench(gate::BenchArgs),
    /// Check the Bevy plugin, a workspace of its own: lints, tests, and its example without a window.
    Bevy,
    /// Expose a server over real sockets in network namespaces to faults, floods, and restarts.
    Chaos(chaos::ChaosArgs),
    /// Run exactly what CI runs, up to the first step that fails.
    Ci(steps::CiArgs),
    /// Run the server and the client of an example, with the commands at the head of its file.
    Example(example::ExampleArgs),
    /// Compile the programs next to the C interface, in C and with mono in C#, and run them against the example `echo`.
    Ffi,
    /// Search with libFuzzer for inputs that violate an invariant of a fuzz target.
    Fuzz(fuzz::FuzzArgs),
    /// Copy the guide's programs out of their Markdown into a package of its own, build them, and run them.
    Guide,
    /// Check the test vectors of the protocol, and run sessions with a Python client that was written from PROTOCOL.md alone.
    Interop,
    /// Print the totals of all nightly runs in the ledger.
    Ledger,
    /// Run the models of state that threads share in every interleaving, or in many random ones.
    Loom(steps::LoomArgs),
    /// Run the long forms of all checks that search for bugs, within a budget of minutes.
    Nightly(nightly::NightlyArgs),
    /// Render `target/reports/*.json` as a page, `target/reports/index.html`.
    Report {
        /// Also replace the sections of complete runs in `benches/docs/NUMBERS.md`.
        #[arg(long)]
        bless: bool,
    },
    /// Run the tests of the package with the unsafe system calls under the address sanitizer, if the compiler supports it.
    Sanitize {
        /// Test all packages that a game uses.
        #[arg(long)]
        all: bool,
    },
    /// Run the cryptography under valgrind, and report each branch and each address that depends on a secret.
    Secrets,
    /// Run the simulator's scenarios over a range of seeds, in a copy of the project where every packet is audited.
    Sim(sim::SimArgs),
    /// Check the project's rules about lengths, docs, prose, dependencies between crates, import cycles, and type names. Also
    /// check unsafe, platform code, forbidden words and paths, and the tests that documents name.
    Tidy,
    /// Run sender and receiver in two network namespaces joined by a veth pair, and compare their reports.
    TwoHosts(two_hosts::TwoHostsArgs),
}

impl Task {
    fn run(self, workspace: &Workspace) -> Result<(), Stop> {
        match self {
            Self::Bench(args) => gate::run(workspace, args),
            Self::Bevy => steps::task(workspace, "bevy", context! {}),
            Self::Chaos(args) => chaos::run(workspace, &args),
            Self::Ci(args) => steps::ci(workspace, args),
            Self::Example(args) => example::run(workspace, &args),
            Self::Ffi => steps::task(workspace, "ffi", context! {}),
            Self::Fuzz(args) => fuzz::run(workspace, &args),
            Self::Guide => guide::run(workspace),
            Self::Interop => steps::task(workspace, "interop", context! {}),
            Self::Ledger => ledger::run(workspace),
            Self::Loom(args) => steps::task(workspace, "loom", Serde(args).into()),
            Self::Nightly(args) => nightly::run(workspace, &args),
            Self::Report { bless } => report::run(workspace, bless),
            Self::Sanitize { all } => steps::task(workspace, "sanitize", context! { all }),
            Self::Secrets => secrets::run(workspace),
            Self::Sim(args) => sim::run(workspace, &args),
            Self::Tidy => tidy::run(workspace),
            Self::TwoHosts(args) => two_hosts::run(workspace, &args),
        }
    }
}

fn main() -> ExitCode {
    let task = Task::parse();
    let done = Workspace::load().and_then(|workspace| {
        std::env::set_current_dir(&workspace.root).map_err(|why| failed(&workspace.root, &why))?;
        task.run(&workspace)
    });
    let Err(stop) = done else { return ExitCode::SUCCESS };
    eprintln!("{stop}");
    ExitCode::from(if matches!(stop, Stop::Needs(_)) { run::EXIT_NEEDS } else { 1 })
}
