//! C1: players play for long over a net that loses a fiftieth: nothing goes wrong, and the server needs no more in the end than
//! in the beginning.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire_tools::clock::now;

use super::{CROWD, Setting, WORKERS};
use crate::crowd::Crowd;
use crate::ledger::MIXED_BYTES;
use crate::link::{Emulator, FAR_V4};
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::Stop;

/// Sixty times a second.
const PERIOD: Duration = Duration::from_micros(16_667);
const MTU: u16 = 1_500;

/// Memory is looked at after this time: pools grow to their size before.
const WARM_UP: Duration = Duration::from_secs(300);

/// How often it is looked at from then on.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The server may grow by so much in a minute.
const SLOPE_GOAL_BYTES: u64 = 1_024;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let players = setting.size.of(50, CROWD, CROWD);
    let time = Duration::from_secs(setting.size.of(10, 180, 7_200));
    let link = LinkConfig::default().loss(Loss::Even(0.02)).delay(Delay::Constant(Duration::from_millis(30)));
    let other = setting.other()?;
    let link = Emulator::start(other, &link, MTU)?;
    let mut plan = Plan::new((FAR_V4, 0).into(), WORKERS)?.within(&other.name);
    let mut server = plan.start()?;
    let mut crowd = Crowd::begun(&plan, players, PERIOD, &ClientConfig::default())?;
    crowd.set_sizes(MIXED_BYTES);
    let warm_up = WARM_UP.min(time / 2);
    crowd.go_on(warm_up);
    let (start, mut looks) = (now(), Vec::new());
    while now().duration_since(start) < time - warm_up {
        looks.push((now().duration_since(start), server.holds()?));
        crowd.go_on(LOOK_EVERY.min(time / 10));
    }
    let files = looks.iter().map(|(_, holds)| holds.files);
    let (least, most) = (files.clone().min().unwrap_or(0), files.max().unwrap_or(u64::MAX));
    let bytes: Vec<_> = looks.iter().map(|(at, holds)| (*at, holds.bytes)).collect();
    let slope = growth_per_minute(&bytes);
    crowd.settle()?;
    let report = server.report()?;
    let counts = link.end()?;
    marks.equal("players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
    marks.equal("reliable messages lost", crowd.sum(|player| player.ordered.missing()), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.equal("panics", report.sum("/panics") + report.sum("/restarts"), 0);
    marks.equal("open files of the server, between the fewest and the most", most - least, 0);
    marks.equal("datagrams in no counter", report.unexplained(), 0);
    let name = "bytes of the server more in a minute";
    if warm_up == WARM_UP {
        marks.at_most(name, slope, SLOPE_GOAL_BYTES);
    } else {
        let why = format!("it grows for {} s anyway: by {slope} in this run", WARM_UP.as_secs());
        marks.not_judged(name, why);
    }
    marks.note(format_args!(
        "{players} players for {} s, {} datagrams received, p99 {:?}; link {counts:?}",
        time.as_secs(),
        report.sum("/received/datagrams"),
        crowd.round_trip(99.0),
    ));
    Ok(())
}

/// By how much memory grows in a minute, as the straight line says that is nearest to all looks at it: one look alone says what
/// just then was in use. Nothing where it shrinks.
fn growth_per_minute(looks: &[(Duration, u64)]) -> u64 {
    let millis = |at: &Duration| i128::try_from(at.as_millis()).unwrap_or(0);
    let count = looks.len() as i128;
    let points = || looks.iter().map(|(at, bytes)| (millis(at), i128::from(*bytes)));
    let sum = |of: fn((i128, i128)) -> i128| points().map(of).sum::<i128>();
    let (times, bytes) = (sum(|(at, _)| at), sum(|(_, bytes)| bytes));
    let together = count * sum(|(at, bytes)| at * bytes) - times * bytes;
    let spread = count * sum(|(at, _)| at * at) - times * times;
    u64::try_from(together * 60_000 / spread.max(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growth(bytes: &[u64]) -> u64 {
        let looks =
            bytes.iter().enumerate().map(|(at, bytes)| (LOOK_EVERY * u32::try_from(at).unwrap(), *bytes));
        growth_per_minute(&looks.collect::<Vec<_>>())
    }

    #[test]
    fn memory_that_grows_evenly_has_its_slope_and_what_comes_and_goes_has_none() {
        assert_eq!(growth(&[1_000_000, 1_001_000, 1_002_000, 1_003_000]), 6_000);
        assert_eq!(growth(&[5_000, 5_000, 5_000]), 0);
        assert_eq!(growth(&[9_000, 8_000, 7_000]), 0, "it shrinks");
        assert_eq!(growth(&[5_000, 9_000, 9_000, 5_000]), 0);
        assert_eq!((growth(&[]), growth(&[7])), (0, 0));
    }

    #[test]
    fn a_look_at_a_peak_in_the_end_does_not_make_a_slope_of_its_own() {
        let (mut calm, mut steep) = (vec![1_000_000; 690], vec![0; 690]);
        calm[689] += 64 * 1_024;
        assert!(growth(&calm) < SLOPE_GOAL_BYTES, "{}", growth(&calm));
        // A little more than it may be, in pages.
        (0..690).for_each(|at| steep[at] = (1_000_000 + at as u64 * 180) / 4_096 * 4_096);
        assert!(growth(&steep) > SLOPE_GOAL_BYTES, "{}", growth(&steep));
    }
}
