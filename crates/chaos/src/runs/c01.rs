//! C1: players play for a long time over a network that loses 2 %. Nothing goes wrong, and the server does not grow.
//!
//! The server ends by itself, so that the address sanitizer searches it for leaks: a leak makes its exit code an error.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire_tools::clock::now;

use super::{Setting, Testbed, WORKERS};
use crate::error::Error;
use crate::marks::Marks;
use crate::platform::open_files;
use crate::players::Players;

/// Memory is sampled after this time, because pools grow to their size before.
const WARM_UP: Duration = Duration::from_secs(300);

/// The time between two samples.
const SAMPLE_PERIOD: Duration = Duration::from_secs(10);

/// The server's deadline for its shutdown without players, and the time until its process has ended.
const DRAIN: Duration = Duration::from_secs(1);
const END: Duration = Duration::from_secs(60);

/// The growth of the server per minute.
const GROWTH_GOAL_BYTES: u64 = 1_024;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let (players, time) = (setting.size.many_players(), setting.size.secs(10, 180, 7_200));
    let link =
        LinkConfig::default().loss(Loss::Random(0.02)).delay(Delay::Constant(Duration::from_millis(30)));
    let mixed = Players::mixed(ClientConfig::default().conditioner(link));
    let mut bed = Testbed::start(setting.far_server(WORKERS)?, players, mixed)?;
    let warm_up = WARM_UP.min(time / 2);
    bed.players.play(warm_up);
    let (start, mut memory, mut files) = (now(), Vec::new(), Vec::new());
    while now().duration_since(start) < time - warm_up {
        memory.push((now().duration_since(start), bed.server.memory_bytes()?));
        files.push(open_files(bed.server.id())?.count() as u64);
        bed.players.play(SAMPLE_PERIOD.min(time / 10));
    }
    let growth = growth_per_minute(&memory);
    let files = files.iter().max().unwrap_or(&u64::MAX) - files.iter().min().unwrap_or(&0);
    bed.players.settle()?;
    let report = bed.server.report()?;
    let Testbed { mut server, players: mut played, .. } = bed;
    marks.unharmed(&played);
    marks.equal("panics", report.sum("/panics") + report.sum("/restarts"), 0);
    marks.equal("open files of the server, between the fewest and the most", files, 0);
    marks.books(&report);
    let name = "bytes of the server more in a minute";
    if warm_up == WARM_UP {
        marks.at_most(name, growth, GROWTH_GOAL_BYTES);
    } else {
        let secs = WARM_UP.as_secs();
        marks.not_judged(name, format!("pools grow for {secs} s: by {growth} in this run"));
    }
    marks.note(format_args!(
        "{players} players for {} s, {} datagrams received, {} lost by the links, p99 {:?}",
        time.as_secs(),
        report.sum("/received/datagrams"),
        played.sum_of_links(|link| link.lost),
        played.times.round_trips.percentile(99.0),
    ));
    played.list.clear();
    server.command(&format!("drain {}", DRAIN.as_millis()))?;
    server.answer()?;
    let has_failed = !server.wait(END)?.success();
    marks.equal("servers that ended with an error or with a leak", has_failed.into(), 0);
    Ok(())
}

/// Returns the growth per minute: the slope of the line with the least squared distance to all samples. A single sample would show
/// what was in use at that moment. A server that shrinks grows by 0.
fn growth_per_minute(samples: &[(Duration, u64)]) -> u64 {
    let count = samples.len() as i128;
    let point =
        |(at, bytes): &(Duration, u64)| (i128::try_from(at.as_millis()).unwrap_or(0), i128::from(*bytes));
    let sum = |of: fn((i128, i128)) -> i128| samples.iter().map(point).map(of).sum::<i128>();
    let (times, bytes) = (sum(|(at, _)| at), sum(|(_, bytes)| bytes));
    let covariance = count * sum(|(at, bytes)| at * bytes) - times * bytes;
    let variance = count * sum(|(at, _)| at * at) - times * times;
    u64::try_from(covariance * 60_000 / variance.max(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(bytes: &[u64]) -> u64 {
        let samples: Vec<_> = (0..).map(|number| SAMPLE_PERIOD * number).zip(bytes.iter().copied()).collect();
        growth_per_minute(&samples)
    }

    #[test]
    fn only_steady_growth_has_a_slope() {
        assert_eq!(growth(&[1_000_000, 1_001_000, 1_002_000, 1_003_000]), 6_000);
        assert_eq!(growth(&[5_000, 5_000, 5_000]), 0);
        assert_eq!(growth(&[9_000, 8_000, 7_000]), 0, "it shrinks");
        assert_eq!(growth(&[5_000, 9_000, 9_000, 5_000]), 0);
        assert_eq!((growth(&[]), growth(&[7])), (0, 0));
    }

    #[test]
    fn a_peak_at_the_end_is_not_growth() {
        let mut calm = vec![1_000_000; 690];
        calm[689] += 64 * 1_024;
        assert!(growth(&calm) < GROWTH_GOAL_BYTES, "{}", growth(&calm));
        // A little more than the goal, in whole pages.
        let steep: Vec<u64> = (0..690).map(|at| (1_000_000 + at * 180) / 4_096 * 4_096).collect();
        assert!(growth(&steep) > GROWTH_GOAL_BYTES, "{}", growth(&steep));
    }
}
