//! C4, two players on a link that is too slow for either: each gets its half, and the link's queue drops little.

use std::time::Duration;

use drumfire::ClientConfig;
use serde_json::Value;

use super::{Other, PERIOD, Setting};
use crate::crowd::Crowd;
use crate::ledger::MESSAGE_BYTES;
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::{Stop, Tried};
use crate::system::{LINK, call};

/// The link, and how many bytes wait for it at most: for a quarter of a second.
const LINK_BYTES_PER_SECOND: u64 = 125_000;
const TBF: &str = "tbf rate 1mbit burst 2000 limit 32000";

/// Messages of the server for each player in 10 ms: as much as the link carries.
const DOWN: u64 = LINK_BYTES_PER_SECOND / 100 / MESSAGE_BYTES as u64 + 1;

/// By then each has found what it may send.
const BEGINNING: Duration = Duration::from_secs(5);

/// Of a thousand.
const SHARE: [u64; 2] = [400, 600];

/// Packets of 100,000 that may be dropped.
const DROPPED_GOAL: u64 = 5_000;

/// Row 23 of the threats.
pub(super) fn run(setting: &Setting, other: &Other, marks: &mut Marks) -> Result<(), Stop> {
    let time = Duration::from_secs(setting.size.of(10, 60, 60));
    let tc = |what: &str| call("ip", &format!("netns exec {} tc {what}", other.name));
    let mut plan = Plan::new((other.address, 0).into(), 1)?.within(&other.name).flag("--down", DOWN);
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, 2, PERIOD, &ClientConfig::default())?;
    crowd.settle()?;
    // For echoes there would be no room.
    crowd.hush();
    tc(&format!("qdisc replace dev {LINK} root {TBF}"))?;
    crowd.go_on(BEGINNING);
    let heard = |crowd: &Crowd| [0, 1].map(|at: usize| crowd.players[at].down.heard);
    let queue = || Queue::read(&tc(&format!("-s -j qdisc show dev {LINK}"))?);
    let (before, queue_before) = (heard(&crowd), queue()?);
    crowd.go_on(time);
    let (after, queue_after) = (heard(&crowd), queue()?);
    server.tell("hush")?;
    let said = server.report()?.of_players("said");
    crowd.until_any("all that was said was heard", |crowd| crowd.sum(|player| player.down.heard) >= said)?;
    let report = server.report()?;
    let [first, second] = [0, 1].map(|at| after[at] - before[at]);
    let (dropped, packets) =
        (queue_after.dropped - queue_before.dropped, queue_after.sent - queue_before.sent);
    let share = first * 1_000 / (first + second).max(1);
    marks.at_least("the first player's share of the link, in thousandths", share, SHARE[0]);
    marks.at_most("the first player's share of the link, in thousandths", share, SHARE[1]);
    marks.share_below("packets that the link dropped", dropped, dropped + packets, DROPPED_GOAL);
    marks.equal("players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.equal("datagrams in no counter", report.unexplained(), 0);
    let percent = (first + second) * MESSAGE_BYTES as u64 * 100 / (LINK_BYTES_PER_SECOND * time.as_secs());
    marks.note(format_args!(
        "{first} and {second} messages heard, {percent} % of the link's rate without their headers; {packets} packets, {dropped} dropped"
    ));
    Ok(())
}

/// What the link's queue counted.
struct Queue {
    sent: u64,
    dropped: u64,
}

impl Queue {
    fn read(text: &str) -> Result<Self, Stop> {
        let queues: Value = serde_json::from_str(text).tried("the link's counters")?;
        let of = |name: &str| queues[0][name].as_u64().tried("the link's counters");
        Ok(Self { sent: of("packets")?, dropped: of("drops")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_link_counts_is_found_by_its_names() {
        let queue = Queue::read(r#"[{"kind":"tbf","packets":7,"drops":2}]"#).expect("counters");
        assert_eq!((queue.sent, queue.dropped), (7, 2));
        assert!(Queue::read("[]").is_err() && Queue::read("tbf").is_err());
    }
}
