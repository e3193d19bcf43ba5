//! Where the CPU time of a server with 2,000 clients goes: a flame graph, and the share of the kernel and the ciphers.
//!
//! perf samples by the clock of the core, because a guest has no counters. It follows frame pointers, which the kernel and the
//! standard library keep and optimized code does not. So callers are reliable inside the kernel only, and the function that runs is
//! reliable everywhere. Without perf the part is skipped.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use drumfire_benches::{Bench, Goal};
use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use inferno::flamegraph;

use crate::world::{HANDLER, PER_SECOND, Round, WARM_UP, World};

const NAME: &str = "profile: kernel and ciphers, of the server's samples";

/// Samples per second. A prime number follows no tick.
const SAMPLES_PER_SECOND: &str = "997";

/// The share of kernel and ciphers, in percent.
const REST: f64 = 95.0;

/// The prefixes of ciphers' functions in all libraries.
const CIPHERS: [&str; 7] = ["ring_core_", "ring::", "chacha20", "poly1305", "aes_gcm", "gcm_", "poly_hash"];

/// inferno appends this to functions of the kernel.
const KERNEL: &str = "_[k]";

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (clients, counted) = bench.extent().pick(
        (100, Duration::from_millis(300)),
        (2_000, Duration::from_secs(5)),
        (2_000, Duration::from_secs(20)),
    );
    if quiet(Command::new("perf").arg("--version")).status().is_err() {
        println!("  skipped: needs perf on the PATH: apt-get install linux-perf");
        bench.results.figure(NAME, None, "%", Goal::AtLeast(REST), "needs perf");
        return Ok(());
    }
    let cores = bench.pin_load()?;
    let mut world = World::start((HANDLER, 1), clients, Some(cores.server), PER_SECOND)?;
    world.connect(clients)?;
    let file = std::env::temp_dir().join(format!("drumfire-profile-{}", std::process::id()));
    let seconds = (WARM_UP + counted).as_secs_f64().to_string();
    let mut perf = quiet(
        Command::new("perf")
            .args(["record", "-q", "-e", "cpu-clock", "-F", SAMPLES_PER_SECOND, "-g", "-o"])
            .arg(&file)
            .args(["-p", &world.server.id().to_string(), "--", "sleep", &seconds]),
    )
    .spawn()
    .map_err(|error| format!("perf record: {error}"))?;
    let round = Round { counted, has_one_thread: true };
    let (report, _) = round.run(&world.server, &mut world.load, || Some(0), |_| Ok(()))?;
    perf.wait().map_err(|error| format!("perf record: {error}"))?;
    let folded = folded(&file).unwrap_or_default();
    let _ = std::fs::remove_file(&file);
    bench.results.run("profile", &report)?;
    world.close()?;
    if folded.is_empty() {
        println!("  skipped: perf may not sample here; it needs root, or kernel.perf_event_paranoid at 1");
        bench.results.figure(NAME, None, "%", Goal::AtLeast(REST), "perf may not sample here");
        return Ok(());
    }
    add_figure(bench, &folded);
    let mut options = flamegraph::Options::default();
    options.title = format!("drumfire's server: {clients} clients, {PER_SECOND} messages a second each");
    let mut picture = Vec::new();
    let drawn = flamegraph::from_lines(&mut options, folded.lines(), &mut picture);
    drawn.map_err(|error| format!("flame graph: {error}"))?;
    bench.results.file("flame.svg", picture);
    Ok(())
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// Returns the samples as one line per stack: its frames, outermost first, and its time in nanoseconds.
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

/// Adds the figure.
fn add_figure(bench: &mut Bench, folded: &str) {
    let mut functions = BTreeMap::<&str, u64>::new();
    for (stack, nanos) in folded.lines().filter_map(|line| line.rsplit_once(' ')) {
        let function = stack.rsplit(';').next().unwrap_or(stack);
        *functions.entry(function).or_default() += nanos.parse::<u64>().unwrap_or(0);
    }
    let total: u64 = functions.values().sum();
    let percent = |nanos: u64| 100.0 * nanos as f64 / total.max(1) as f64;
    let share_of = |is_meant: &dyn Fn(&str) -> bool| {
        let meant = functions.iter().filter(|(name, _)| is_meant(name));
        percent(meant.map(|(_, nanos)| nanos).sum())
    };
    let kernel = share_of(&|name| name.ends_with(KERNEL));
    let ciphers =
        share_of(&|name| !name.ends_with(KERNEL) && CIPHERS.iter().any(|cipher| name.starts_with(cipher)));
    let note = format!("kernel {kernel:.1} %, ciphers {ciphers:.1} %, of {:.2} s", total as f64 / 1e9);
    let share = (total > 0).then_some(kernel + ciphers);
    bench.results.figure(NAME, share, "%", Goal::AtLeast(REST), &note);
}
