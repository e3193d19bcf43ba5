//! The share of the kernel and the ciphers in the CPU time of a server with 2,000 clients.
//!
//! perf samples by the clock of the core, because a guest has no counters. Without perf the figure is missing.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use drumfire_benches::{Bench, Goal};

use crate::world::{HANDLER, PER_SECOND, WARM_UP, World};

/// Samples per second. A prime number follows no tick.
const SAMPLES_PER_SECOND: &str = "997";

/// The share of kernel and ciphers, in percent.
const REST: f64 = 95.0;

/// The prefixes of ciphers' functions in all libraries.
const CIPHERS: [&str; 7] = ["ring_core_", "ring::", "chacha20", "poly1305", "aes_gcm", "gcm_", "poly_hash"];

/// The first digits of addresses of the kernel.
const KERNEL: &str = "ffff";

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (clients, counted) = bench.extent().pick(
        (100, Duration::from_millis(300)),
        (2_000, Duration::from_secs(5)),
        (2_000, Duration::from_secs(20)),
    );
    let cores = bench.pin_load()?;
    let mut world = World::start((HANDLER, 1), clients, Some(cores.server), PER_SECOND)?;
    world.connect(clients)?;
    let file = std::env::temp_dir().join(format!("drumfire-profile-{}", std::process::id()));
    let seconds = (WARM_UP + counted).as_secs_f64().to_string();
    let perf = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "-F", SAMPLES_PER_SECOND, "-o"])
        .arg(&file)
        .args(["-p", &world.server.id().to_string(), "--", "sleep", &seconds])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let (report, _) = world.round(counted, |_| Ok(()))?;
    bench.results.run("profile", &report)?;
    world.close()?;
    let samples = perf.and_then(|mut perf| perf.wait().and_then(|_| samples(&file)));
    let _ = std::fs::remove_file(&file);
    let samples = samples.unwrap_or_default();
    let samples = || samples.lines().filter_map(|line| line.trim().split_once(' '));
    let all = samples().count();
    let percent = |count| 100.0 * count as f64 / all as f64;
    let kernel = percent(samples().filter(|(address, _)| address.starts_with(KERNEL)).count());
    let is_cipher = |name: &str| CIPHERS.iter().any(|cipher| name.starts_with(cipher));
    let ciphers = samples().filter(|(address, name)| !address.starts_with(KERNEL) && is_cipher(name));
    let ciphers = percent(ciphers.count());
    let note = if all == 0 {
        "needs perf, as root or with kernel.perf_event_paranoid at 1".to_owned()
    } else {
        format!("kernel {kernel:.1} %, ciphers {ciphers:.1} %, of {all} samples")
    };
    let name = "profile: kernel and ciphers, of the server's samples";
    bench.results.figure(name, (all > 0).then_some(kernel + ciphers), "%", Goal::AtLeast(REST), &note);
    Ok(())
}

/// Returns a line for each sample: its address and its function.
fn samples(file: &Path) -> std::io::Result<String> {
    let mut script = Command::new("perf");
    let output = script.args(["script", "-F", "ip,sym", "-i"]).arg(file).stderr(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
