//! Project tasks. `cargo xtask --help` lists them.
//!
//! This file only reads the command line and turns the outcome into an exit code: 0 done, 1 failed, 2 bad usage, 3 the machine lacks
//! something that the task needs, 130 ended by Ctrl-C. The tasks are in modules: `bench` in `gate`, `interop`, `ffi`, `bevy`, and
//! `agones` in `checks`, each other task in a module of its name.
#![forbid(unsafe_code)]

mod chaos;
mod checks;
mod ci;
mod example;
mod files;
mod flaky;
mod fuzz;
mod gate;
mod guide;
mod hostile;
mod ledger;
mod loom;
mod netns;
mod nightly;
mod report;
mod run;
mod sanitize;
mod secrets;
mod sim;
mod steps;
mod tidy;
mod two_hosts;
mod workspace;

use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;

use crate::run::Stop;

/// Project tasks of drumfire.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Play a round with the example `agones` next to Agones' SDK server, if that is on the PATH.
    Agones,
    /// Count the instructions of each stage of the packet path; needs valgrind. `cargo bench` runs the other benchmarks.
    Bench {
        /// Fail when a stage grew by more than 2 % over `benches/counts.toml`.
        #[arg(long, group = "what", required_unless_present = "bless")]
        gate: bool,
        /// Write the counts to `benches/counts.toml`.
        #[arg(long, group = "what")]
        bless: bool,
    },
    /// Check the Bevy plugin, a workspace of its own: lints, tests, and its example without a window.
    Bevy,
    /// Put faults, floods, and restarts to a server over real sockets in network namespaces.
    Chaos(chaos::ChaosArgs),
    /// Run exactly what CI runs, stopping at the first step that fails.
    Ci {
        /// Print the steps and their commands, run nothing.
        #[arg(long)]
        list: bool,
        /// Leave out `cargo test --workspace` in debug, for a caller that has just run it.
        #[arg(long)]
        skip_debug_tests: bool,
    },
    /// Run the server and the client of an example, with the commands from the head of its file.
    Example {
        /// The example's name.
        name: String,
        /// In two network namespaces joined by a veth pair, instead of on the loopback.
        #[arg(long)]
        two_hosts: bool,
    },
    /// Compile the programs next to the C interface, in C and with mono in C#, and run them against the example `echo`.
    Ffi,
    /// Repeat the tests while other threads keep the processor busy, and list every test that failed.
    Flaky(flaky::FlakyArgs),
    /// Let libFuzzer look for inputs that break what must hold, target after target, and print a line on each.
    Fuzz(fuzz::FuzzArgs),
    /// Copy the guide's programs out of their Markdown into a package of its own, build them, and run them.
    Guide,
    /// Send hostile traffic drawn at random to an endpoint, in release, and count what its packets cost; needs valgrind.
    Hostile {
        /// From the first up to, and without, the second.
        #[arg(long, value_name = "A..B", value_parser = sim::seeds, default_value = "0..2000")]
        seeds: Range<u64>,
        /// How many of the seeds are counted under valgrind too.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(0..=10_000))]
        counted: u32,
    },
    /// Check the standard's vectors and hold sessions with a client in Python that is written from the standard alone.
    Interop {
        /// How many sessions.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        sessions: u32,
    },
    /// Print the sums of all nights in the ledger.
    Ledger,
    /// Try every interleaving of the models of what crosses threads, or many at random.
    Loom(loom::LoomArgs),
    /// Run the long form of all that looks for faults, as far as the time goes: planted bugs, models, sanitizer, chaos,
    /// simulator, fuzzer.
    Nightly(nightly::NightlyArgs),
    /// Render `target/reports/*.json` as a page, `target/reports/index.html`.
    Report {
        /// Also replace the sections of complete runs in `benches/docs/NUMBERS.md`.
        #[arg(long)]
        bless: bool,
    },
    /// Run the tests of the package whose `unsafe` speaks to the system under the address sanitizer, where the compiler takes it.
    Sanitize {
        /// Test all packages that a game runs.
        #[arg(long)]
        all: bool,
    },
    /// Run what meets a secret in the cryptography under valgrind, and find each branch and address that depends on one.
    Secrets,
    /// Run the simulator's scenarios over a range of seeds, in a copy of the project where every packet is audited.
    Sim {
        /// The seeds, from A up to and without B. A planted bug has seeds of its own.
        #[arg(long, value_name = "A..B", value_parser = sim::seeds, required_unless_present_any = ["plant", "tests", "refresh"])]
        seeds: Option<Range<u64>>,
        /// Run scenarios with several workers, whose sockets, threads, and code fail too.
        #[arg(long, conflicts_with = "plant")]
        worker: bool,
        /// Run scenarios with many clients who come and go, for an hour of virtual time each.
        #[arg(long, conflicts_with_all = ["plant", "worker"])]
        long: bool,
        /// Plant the bug of this number, which must be found; `all` plants one after the other.
        #[arg(long, value_name = "N", value_parser = sim::plant)]
        plant: Option<sim::Plant>,
        /// Run the tests that need the copy instead: the core's tests with every packet audited.
        #[arg(long, conflicts_with_all = ["seeds", "plant", "worker", "long"])]
        tests: bool,
        /// Renew the patch of this name, such as 07-junk-keeps-alive, after a change of the lines around it.
        #[arg(long, value_name = "NAME", conflicts_with_all = ["seeds", "plant", "worker", "long", "tests"])]
        refresh: Option<String>,
        /// Add the figures to the ledger.
        #[arg(long, conflicts_with_all = ["tests", "refresh"])]
        ledger: bool,
    },
    /// Check what the compiler does not: lengths, module docs, prose, crate arrows, import circles, type names, unsafe, platform
    /// code, stray words and paths, proofs.
    Tidy {
        /// Lower the numbers in `xtask/tidy-ratchet.toml` to the faults that are left.
        #[arg(long)]
        bless: bool,
    },
    /// Run sender and receiver in two network namespaces joined by a veth pair and compare their books.
    TwoHosts(two_hosts::TwoHostsArgs),
}

impl Task {
    fn run(self) -> Result<(), Stop> {
        match self {
            Task::Agones => checks::agones(),
            Task::Bench { gate: _, bless } => gate::run(bless),
            Task::Bevy => checks::bevy(),
            Task::Chaos(args) => chaos::run(&args),
            Task::Ci { list, skip_debug_tests } => ci::run(list, skip_debug_tests),
            Task::Example { name, two_hosts } => example::run(&name, two_hosts),
            Task::Ffi => checks::ffi(),
            Task::Flaky(args) => flaky::run(&args),
            Task::Fuzz(args) => fuzz::run(&args),
            Task::Guide => guide::run(),
            Task::Hostile { seeds, counted } => hostile::run(&seeds, counted),
            Task::Interop { sessions } => checks::interop(sessions),
            Task::Ledger => ledger::run(),
            Task::Loom(args) => loom::run(&args),
            Task::Nightly(args) => nightly::run(&args),
            Task::Report { bless } => report::run(bless),
            Task::Sanitize { all } => sanitize::run(all),
            Task::Secrets => secrets::run(),
            Task::Sim { seeds, worker, long, plant, tests, refresh, ledger: keeps } => {
                let kind = match (worker, long) {
                    (true, _) => sim::Kind::Workers,
                    (_, true) => sim::Kind::Long,
                    _ => sim::Kind::Short,
                };
                sim::run(&match (&refresh, plant, &seeds) {
                    (Some(name), ..) => sim::Ask::Refresh(name),
                    (_, Some(plant), _) => sim::Ask::Plant { plant, seeds: seeds.as_ref(), keeps },
                    (_, _, Some(seeds)) if !tests => sim::Ask::Seeds { seeds, kind, keeps },
                    _ => sim::Ask::Tests,
                })
            }
            Task::Tidy { bless } => tidy::run(bless),
            Task::TwoHosts(args) => two_hosts::run(&args),
        }
    }
}

fn main() -> ExitCode {
    match Task::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Failed(why)) => {
            eprintln!("{why}");
            ExitCode::from(1)
        }
        Err(Stop::Needs(what)) => {
            eprintln!("skipped: needs {what}");
            ExitCode::from(run::EXIT_NEEDS)
        }
        Err(Stop::Interrupted) => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
    }
}
