//! The share of the kernel and the ciphers in the CPU time of a server with 2,000 clients.
//!
//! perf samples by the clock of the core, because a virtual machine may have no counters. Without perf the figure is missing.

use std::process::{Command, Stdio};
use std::time::Duration;

use drumfire_benches::{Bench, Goal};

use crate::world::{PER_SECOND, WARM_UP, World, handler};

/// The least share of kernel and ciphers, in percent.
const REST: f64 = 95.0;

/// The prefixes of the names of all libraries' cipher functions.
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
    let mut world = World::start(handler(1, clients), Some(cores.server), PER_SECOND)?;
    world.connect(clients)?;
    let file =
        std::env::temp_dir().join(format!("drumfire-profile-{}", std::process::id())).display().to_string();
    let (id, seconds) = (world.server.id().to_string(), (WARM_UP + counted).as_secs_f64().to_string());
    // A prime number of samples per second follows no tick.
    let record =
        ["record", "-q", "-e", "cpu-clock", "-F", "997", "-o", &file, "-p", &id, "--", "sleep", &seconds];
    let perf = Command::new("perf")
        .args(record)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    world.round(counted, |_| Ok(()))?;
    world.close()?;
    let script = ["script", "-F", "ip,sym", "-i", &file];
    let samples =
        perf.and_then(|mut perf| perf.wait()).and_then(|_| Command::new("perf").args(script).output());
    let _ = std::fs::remove_file(&file);
    let samples =
        samples.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let (mut all, mut kernel, mut ciphers) = (0_u32, 0_u32, 0_u32);
    for (address, name) in samples.lines().filter_map(|line| line.trim().split_once(' ')) {
        let is_kernel = address.starts_with(KERNEL);
        all += 1;
        kernel += u32::from(is_kernel);
        ciphers += u32::from(!is_kernel && CIPHERS.iter().any(|cipher| name.starts_with(cipher)));
    }
    let percent = |count| 100.0 * f64::from(count) / f64::from(all);
    let note = match all {
        0 => "needs perf, as root or with kernel.perf_event_paranoid at 1".to_owned(),
        _ => format!("kernel {:.1} %, ciphers {:.1} %, of {all} samples", percent(kernel), percent(ciphers)),
    };
    let share = (all > 0).then(|| percent(kernel + ciphers));
    let name = "profile: kernel and ciphers, of the server's samples";
    bench.results.figure(name, share, "%", Goal::AtLeast(REST), &note);
    Ok(())
}
