//! C12, a path that becomes narrower while players play: packets that are too large for it from then on vanish, with the word of a
//! router or without one. Connections find it out, and nothing reliable is lost.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::conditioner::{Delay, LinkConfig};

use super::{Setting, WORKERS};
use crate::crowd::Crowd;
use crate::ledger::MIXED_BYTES;
use crate::link::{Emulator, FAR_V4};
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::Stop;

const PLAYERS: usize = 10;

/// Sixty times a second.
const PERIOD: Duration = Duration::from_micros(16_667);

/// Bytes of an IP packet on the path, first and then, and of the headers in it.
const WIDE: u16 = 1_500;
const NARROW: u16 = 1_280;
const HEADERS: u16 = 28;

/// So many must have found out how wide it is, or nothing is proved.
const WIDE_GOAL: u64 = 5;

const DELAY: Duration = Duration::from_millis(5);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    meet(setting, "a path that narrows, with a word", true, marks)?;
    meet(setting, "a path that narrows, without a word", false, marks)
}

fn meet(setting: &Setting, name: &str, is_told: bool, marks: &mut Marks) -> Result<(), Stop> {
    let time = Duration::from_secs(setting.size.of(3, 10, 60));
    let (other, wide) = (setting.other()?, LinkConfig::default().delay(Delay::Constant(DELAY)));
    let link = Emulator::start(other, &wide, WIDE)?;
    link.router.tell(is_told);
    let mut plan = Plan::new((FAR_V4, 0).into(), WORKERS)?.within(&other.name);
    let mut server = plan.start()?;
    let mut crowd = Crowd::begun(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    crowd.set_sizes(MIXED_BYTES);
    crowd.until("all are answered", |player| player.ordered.heard > 0)?;
    crowd.go_on(time);
    let before = crowd.datagram_max_bytes()?;
    link.change(&wide.datagram_max_bytes(NARROW.into()))?;
    let heard = crowd.sum(|player| player.ordered.heard);
    crowd.go_on(time);
    let after = crowd.datagram_max_bytes()?;
    crowd.settle()?;
    let (report, told) = (server.report()?, link.router.told());
    let vanished = link.end()?.iter().map(|way| way.too_large).sum();
    let wide = before.iter().filter(|bytes| **bytes == WIDE - HEADERS).count();
    marks.at_least(&format!("{name}: players who use all of the path before"), wide as u64, WIDE_GOAL);
    marks.at_least(&format!("{name}: packets that were too large"), vanished, 1);
    if is_told {
        marks.at_least(&format!("{name}: words of the router"), told, 1);
    } else {
        marks.equal(&format!("{name}: words of the router"), told, 0);
    }
    let narrow = after.iter().filter(|bytes| **bytes <= NARROW - HEADERS).count();
    marks.equal(&format!("{name}: players who fit the path after"), narrow as u64, PLAYERS as u64);
    let more = crowd.sum(|player| player.ordered.heard) - heard;
    marks.at_least(&format!("{name}: reliable messages there and back after"), more, PLAYERS as u64 * 10);
    let gone = crowd.count(|player| player.gone.is_some() || player.again > 0);
    marks.equal(&format!("{name}: players gone"), gone, 0);
    let reliable = crowd.sum(|player| player.ordered.missing() + player.ordered.wrong);
    marks.equal(&format!("{name}: reliable messages lost, twice or out of order"), reliable, 0);
    let twice = crowd.sum(|player| player.lossy.wrong);
    marks.equal(&format!("{name}: unreliable messages twice"), twice, 0);
    marks.equal(&format!("{name}: datagrams in no counter"), report.unexplained(), 0);
    marks.note(format_args!(
        "{name}: {vanished} packets were too large, {} unreliable messages lost with them; datagrams before {before:?}, after \
         {after:?}",
        crowd.sum(|player| player.lossy.missing())
    ));
    Ok(())
}
