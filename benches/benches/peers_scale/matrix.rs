//! The idle matrix: the cost of room for connections, without a client.

use std::time::Duration;

use drumfire_benches::{
    Arm, Bench, Cores, Goal, Outcome, Usage, UsageWatch, Values, busy_note, core_percent, interleave,
    report_of,
};
use drumfire_tools::clock;
use drumfire_tools::report::Accounting;
use drumfire_tools::table::thousands;

use crate::population::ticking;

const SLOTS: [u32; 3] = [64, 8_192, 65_536];

/// Ticks per second.
const RATES: [u32; 2] = [100, 1_000];

/// Rows of [`SLOTS`] that are compared with the first one, by their names.
const OVER_FEW: [(&str, usize); 2] = [("8,192", 1), ("64k", 2)];

/// The goal for the CPU with many slots over that with 64. Even on a quiet machine, the figure spreads this much.
const NOISE: f64 = 1.1;

/// The time after which a new server is measured.
const QUIET: Duration = Duration::from_millis(100);

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let millis = Duration::from_millis;
    let window = bench.extent().pick(millis(200), millis(500), millis(2_000));
    let cores = bench.pin_load()?;
    let mut arms = Vec::new();
    for slots in SLOTS {
        for rate in RATES {
            let name = format!("{} slots, {rate} Hz", thousands(slots.into()));
            arms.push(Arm::new(name, move || without_clients(slots, rate, window, cores)));
        }
    }
    let measured = interleave(arms, bench.plan())?;
    for (place, rate) in RATES.into_iter().enumerate() {
        for (slots, row) in OVER_FEW {
            let [few, many] = [0, row].map(|row| &measured[row * RATES.len() + place]);
            let name = format!("idle: no clients, {rate} Hz: {slots} slots over 64");
            let ratio = many.over(few, core_percent);
            bench.results.figure(name, ratio, "x", Goal::AtMost(NOISE), busy_note([few, many]));
        }
    }
    Ok(())
}

/// Measures a server without clients.
fn without_clients(slots: u32, rate: u32, window: Duration, cores: Cores) -> Result<Outcome, String> {
    let (server, _) = ticking(Duration::from_secs(1) / rate, slots).start(cores.server)?;
    clock::pause(QUIET);
    let watch = UsageWatch::begin(server.id(), std::process::id());
    clock::pause(window);
    let used = watch.used()?;
    server.finish_counts()?;
    let Usage { window, cpu } = used.server;
    let mut report = report_of(cpu.cpu_time(), window, Accounting::default(), None);
    used.note_in(&mut report, [true, false]);
    Ok((report, Values::new()))
}
