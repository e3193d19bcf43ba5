//! The time until the last value of every key arrives after a burst of losses. Each player has 500 keys, a tenth of which changes with
//! every update before, during, and after the burst.
//!
//! The time counts from the end of the burst, in virtual time. The last value sent in the burst, or a newer one, must arrive within a
//! round trip and a probe timeout. After more than three probe timeouts it takes two or three round trips longer, because the losses
//! are persistent congestion and the window opens from two packets again (RFC 9002 section 7.6.2). After more than eight, probes back
//! off, because eight seconds without a path may cost forty packets at most.

use std::time::Duration;

use drumfire_benches::{Bench, Goal, Spread};
use drumfire_tools::table::{Align, TextTable};

use super::keys::{NAMES, Values};
use super::world::{Path, TICK};

/// The path outside of bursts. It loses no datagrams.
const PATH: Path = Path { delay_ticks: 20, lost_per_mille: 0 };

const BURSTS_MS: [u64; 4] = [50, 200, 500, 1_000];

/// Ticks before each burst. Round trips are known by then, and the burst before has no more effect.
const CALM_TICKS: u64 = 1_000;

/// A value that takes this long does not arrive.
const PATIENCE_TICKS: u64 = 10_000;

/// The times of one world after the end of each burst, and their bound.
struct Recovery {
    took: Vec<Duration>,
    bound: Duration,
}

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    super::pin(bench);
    let (peers, repeats) = bench.extent().pick((8, 1), (32, 5), (300, 5));
    let mut table = TextTable::new(&[
        ("after a burst of losses", Align::Left),
        ("ms", Align::Right),
        ("ms until every last value is there", Align::Right),
        ("least-most", Align::Right),
        ("RTT + PTO", Align::Right),
    ])
    .indented(2);
    for (name, is_latest) in NAMES {
        for burst in BURSTS_MS {
            let mut values = Values::new(peers, is_latest, PATH)?;
            let recovery = recoveries(&mut values, burst, repeats)?;
            let times = recovery.took.iter().map(|took| took.as_secs_f64() * 1e3);
            let Some(Spread { median, least, most }) = Spread::of(times) else { continue };
            let bound = recovery.bound.as_secs_f64() * 1e3;
            table.row([
                name.to_owned(),
                burst.to_string(),
                format!("{median:.0}"),
                format!("{least:.0}-{most:.0}"),
                format!("{bound:.0}"),
            ]);
            let name = format!("{peers} peers, {name}: last values after {burst} ms of losses, slowest");
            let goal = if is_latest { Goal::AtMost(bound) } else { Goal::Shown };
            bench.results.figure(name, Some(most), "ms", goal, "a round trip and a probe's time");
        }
    }
    println!("{}", table.render());
    Ok(())
}

fn recoveries(values: &mut Values, burst: u64, repeats: u64) -> Result<Recovery, String> {
    let (mut took, mut bound) = (Vec::new(), Duration::ZERO);
    let mut tick = 0;
    let mut play = |values: &mut Values, ticks: u64| {
        for _ in 0..ticks {
            values.play(tick);
            tick += 1;
        }
    };
    for _ in 0..repeats {
        play(values, CALM_TICKS);
        bound = bound.max(values.world.round_trip_and_probe());
        values.world.lose(1_000);
        play(values, burst);
        values.world.lose(0);
        let owed = values.sent.clone();
        let is_there = |values: &Values| values.heard.iter().zip(&owed).all(|(heard, owed)| heard >= owed);
        let mut ticks = 0;
        while !is_there(values) {
            play(values, 1);
            ticks += 1;
            if ticks == PATIENCE_TICKS {
                return Err(format!(
                    "values that were lost in {burst} ms are not there after {PATIENCE_TICKS} ms"
                ));
            }
        }
        took.push(TICK.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)));
    }
    values.settle()?;
    Ok(Recovery { took, bound })
}
