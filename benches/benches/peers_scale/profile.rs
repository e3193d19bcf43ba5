//! Where the server's time goes while 2,000 clients play: a flame graph, the functions on top, and how much of it is the kernel's
//! and the ciphers'.
//!
//! perf samples the server's process by the clock of its core, since a guest has no counters. Stacks are walked by frame pointers, which
//! the standard library and the kernel have and optimized code of ours has not: who called whom is true within the kernel, and the function that
//! ran is true everywhere. Handshakes are over before it begins. Without perf nothing is measured here, and a line says so.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, Stdio};
use std::time::Duration;

use drumfire_benches::{Extent, Goal, Results};
use drumfire_tools::table::{Align, TextTable};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use inferno::flamegraph;

use crate::Plan;
use crate::books;
use crate::drive::{Drive, Load};
use crate::ends::Players;
use crate::round::{self, Row};
use crate::server::Does;

const PER_SECOND: u64 = 10;
const DOWN_BYTES: u16 = 64;

/// Samples in a second: a prime, so that it beats in no tick.
const SAMPLES_PER_SECOND: &str = "997";

/// Functions of the table.
const TOP: usize = 15;

/// Of the samples, in the kernel and in ciphers together.
const REST: f64 = 95.0;

/// What the names of functions begin with that are a cipher's, by whichever library.
const CIPHERS: [&str; 7] = ["ring_core_", "ring::", "chacha20", "poly1305", "aes_gcm", "gcm_", "poly_hash"];

/// What inferno puts behind the names of the kernel's functions.
const KERNEL: &str = "_[k]";

pub(crate) fn measure(plan: &Plan, results: &mut Results) -> Result<(), String> {
    let Plan { extent, cores, .. } = *plan;
    let (clients, counted) = match extent {
        Extent::Quick => (100, Duration::from_millis(300)),
        Extent::Default => (2_000, Duration::from_secs(5)),
        Extent::Full => (2_000, Duration::from_secs(20)),
    };
    let name = "profile: kernel and ciphers, of the server's samples";
    if Command::new("perf").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        println!(
            "  skipped: needs perf on the PATH, which samples where the server is: apt-get install linux-perf"
        );
        results.figure(name, None, "%", Goal::AtLeast(REST), "needs perf");
        return Ok(());
    }
    let (server, address) = Does::Handle(1).start(clients, Some(cores.server))?;
    let mut players = Players::bind(address, clients)?;
    crate::fair::connect(&mut players, clients)?;
    let file = std::env::temp_dir().join(format!("drumfire-profile-{}", std::process::id()));
    let sampler = Sampler::begin(server.id(), file)?;
    let load = Load { per_second: PER_SECOND, down_bytes: DOWN_BYTES, counted };
    let row = Row { who: "drumfire", slots: clients, has_one_thread: true };
    let (report, _) = round::run(row, &server, &mut Drive::default(), &mut players, load, || Ok(()))?;
    let folded = sampler.end().unwrap_or_default();
    results.run("profile", &report)?;
    players.check()?;
    println!("  {clients} clients, {PER_SECOND}/s each, {DOWN_BYTES} B back, {counted:?}");
    books::close(server, &mut [&mut players.crowd])?;
    if folded.is_empty() {
        println!("  skipped: perf may not sample here; it needs root, or kernel.perf_event_paranoid at 1");
        results.figure(name, None, "%", Goal::AtLeast(REST), "perf may not sample here");
        return Ok(());
    }
    let profile = Profile::of(&folded);
    println!("{}", profile.table());
    let note = format!(
        "kernel {:.1} %, ciphers {:.1} %, of {:.2} s",
        profile.kernel,
        profile.ciphers,
        profile.nanos as f64 / 1e9
    );
    let share = (profile.nanos > 0).then_some(profile.kernel + profile.ciphers);
    results.figure(name, share, "%", Goal::AtLeast(REST), &note);
    results.picture("flame.svg", flame_graph(&folded, clients)?);
    Ok(())
}

/// perf, while it samples a process.
struct Sampler {
    perf: Process,
    file: PathBuf,
}

impl Sampler {
    fn begin(process: u32, file: PathBuf) -> Result<Self, String> {
        let perf = Command::new("perf")
            .args([
                "record",
                "-q",
                "-e",
                "cpu-clock",
                "-F",
                SAMPLES_PER_SECOND,
                "-g",
                "-p",
                &process.to_string(),
                "-o",
            ])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("perf record: {error}"))?;
        Ok(Self { perf, file })
    }

    /// Ends it and answers its samples, a line for each stack.
    fn end(mut self) -> Result<String, String> {
        let process = self.perf.id().to_string();
        // What it has is written when it is interrupted, and not when it is killed.
        let told = Command::new("kill").args(["-INT", &process]).status();
        told.map_err(|error| format!("kill: {error}"))?;
        self.perf.wait().map_err(|error| format!("perf record: {error}"))?;
        let folded = folded(&self.file);
        let _ = std::fs::remove_file(&self.file);
        folded
    }
}

fn folded(file: &Path) -> Result<String, String> {
    let script = Command::new("perf").args(["script", "-i"]).arg(file).stderr(Stdio::null()).output();
    let script = script.map_err(|error| format!("perf script: {error}"))?;
    let mut options = Options::default();
    options.annotate_kernel = true;
    let mut folded = Vec::new();
    let collapsed = Folder::from(options).collapse(BufReader::new(&script.stdout[..]), &mut folded);
    collapsed.map_err(|error| format!("perf script: {error}"))?;
    String::from_utf8(folded).map_err(|error| format!("perf script: {error}"))
}

fn flame_graph(folded: &str, clients: u32) -> Result<Vec<u8>, String> {
    let mut options = flamegraph::Options::default();
    options.title = format!("drumfire's server: {clients} clients, {PER_SECOND} messages a second each");
    let mut picture = Vec::new();
    let drawn = flamegraph::from_lines(&mut options, folded.lines(), &mut picture);
    drawn.map_err(|error| format!("flame graph: {error}"))?;
    Ok(picture)
}

/// What stacks say.
struct Profile {
    /// Time that was sampled.
    nanos: u64,
    /// Shares, in percent.
    kernel: f64,
    ciphers: f64,
    /// Functions that ran, and how long each, the longest first.
    functions: Vec<(String, u64)>,
}

impl Profile {
    /// From lines of frames, the outermost first, with how long each stack was there behind them.
    fn of(folded: &str) -> Self {
        let (mut nanos, mut kernel, mut ciphers) = (0, 0, 0);
        let mut functions = BTreeMap::<&str, u64>::new();
        for (stack, seen) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
            let seen: u64 = seen.parse().unwrap_or(0);
            let ran = stack.rsplit(';').next().unwrap_or(stack);
            nanos += seen;
            if ran.ends_with(KERNEL) {
                kernel += seen;
            } else if CIPHERS.iter().any(|cipher| ran.starts_with(cipher)) {
                ciphers += seen;
            }
            *functions.entry(ran).or_default() += seen;
        }
        let share = |part: u64| 100.0 * part as f64 / nanos.max(1) as f64;
        let mut functions: Vec<_> =
            functions.into_iter().map(|(name, seen)| (name.to_owned(), seen)).collect();
        functions.sort_by_key(|(_, seen)| std::cmp::Reverse(*seen));
        Self { nanos, kernel: share(kernel), ciphers: share(ciphers), functions }
    }

    fn table(&self) -> String {
        let mut table = TextTable::new(&[("function", Align::Left), ("%", Align::Right)]).indented(2);
        for (name, seen) in self.functions.iter().take(TOP) {
            let share = 100.0 * *seen as f64 / self.nanos.max(1) as f64;
            table.row([name.chars().take(100).collect(), format!("{share:.1}")]);
        }
        table.render()
    }
}
