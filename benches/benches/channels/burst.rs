//! How soon the last value of every key is there when all datagrams of a while were lost: 500 keys of each player, a tenth of
//! which changes with every update before the burst, in it and after it.
//!
//! Counted from the burst's end, in virtual time: a value that was sent last in the burst, or a newer one, must be there within
//! a round trip and a probe's time. After a burst of more than three probe timeouts that takes two or three round trips more:
//! what was lost is persistent congestion, and the window opens from two packets again (RFC 9002 section 7.6.2). Bursts of more than
//! eight have probes that back off, for forty packets are what eight seconds without a path may cost.

use std::time::Duration;

use drumfire_benches::{Extent, Goal, Results, Spread};
use drumfire_tools::table::{Align, TextTable};

use super::keys::{NAMES, Values};
use super::world::{Path, TICK};

/// Nothing else is lost.
const PATH: Path = Path { delay_ticks: 20, lost_per_mille: 0 };

const BURSTS_MS: [u64; 4] = [50, 200, 500, 1_000];

/// Before the first burst, and between two: round trips are known, and nothing is left of the last.
const CALM_TICKS: u64 = 1_000;

/// A value that takes so long will not come.
const PATIENCE_TICKS: u64 = 10_000;

/// Of one world: the time after the burst's end, and the bound.
struct Recovery {
    took: Vec<Duration>,
    bound: Duration,
}

pub(super) fn measure(extent: Extent, results: &mut Results) -> Result<(), String> {
    let (peers, repeats) = match extent {
        Extent::Quick => (8, 1),
        Extent::Default => (32, 5),
        Extent::Full => (300, 5),
    };
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
            results.figure(name, Some(most), "ms", goal, "a round trip and a probe's time");
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
