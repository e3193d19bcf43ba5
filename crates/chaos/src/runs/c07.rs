//! C7: the server shuts down while it sends and its players play. It reports whether each reliable message was
//! acknowledged, and each acknowledged message has arrived once.

use std::time::Duration;

use drumfire_tools::clock::now;

use super::{Setting, Testbed, WORKERS};
use crate::error::Error;
use crate::marks::Marks;
use crate::players::Players;
use crate::process::{Report, ServerSpec};
use crate::traffic::{MESSAGE_BYTES, millis};

const PLAYERS: usize = 20;

/// Players that do not receive during the shutdown, so that some messages stay undelivered.
const PAUSED: usize = 2;

/// The server's messages per player and 10 ms.
const DOWN: u64 = 8;

/// The deadline of the shutdown, and the time that it may take beyond it.
const DEADLINE: Duration = Duration::from_millis(500);
const SLACK: Duration = Duration::from_millis(100);

/// Bytes that a queued message is charged on top of its own.
const CHARGE_BYTES: u64 = 64;

/// The sums over all shutdowns.
#[derive(Default)]
struct DrainTotals {
    sent: u64,
    acknowledged: u64,
    lost: u64,
    undelivered: u64,
    acknowledged_and_missing: u64,
    wrong: u64,
    failed: u64,
    slowest: Duration,
}

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let rounds = setting.size.of(3, 100, 1_000);
    let mut totals = DrainTotals::default();
    for _ in 0..rounds {
        drain(&mut totals)?;
    }
    marks.at_least("reliable messages sent", totals.sent, rounds * 100);
    marks.equal("acknowledged or reported", totals.acknowledged + totals.lost, totals.sent);
    marks.equal("undelivered by the server's list", totals.undelivered, totals.lost);
    marks.at_least("undelivered to paused players", totals.undelivered, rounds);
    marks.equal("acknowledged and not received", totals.acknowledged_and_missing, 0);
    marks.equal("messages twice or out of order", totals.wrong, 0);
    marks.equal("servers that ended with an error", totals.failed, 0);
    marks.within("the slowest shutdown", totals.slowest, DEADLINE + SLACK);
    let (deadline, acknowledged) = (millis(DEADLINE), totals.acknowledged);
    marks.note(format_args!("{rounds} ends, deadline {deadline}, {acknowledged} acknowledged"));
    Ok(())
}

fn drain(totals: &mut DrainTotals) -> Result<(), Error> {
    let spec = ServerSpec { down: DOWN, ..ServerSpec::local(WORKERS)? };
    let mut bed = Testbed::start(spec, PLAYERS, Players::default())?;
    bed.players.play(Duration::from_millis(100));
    // Paused players must have acknowledged their echoes, so that the server's own messages alone stay undelivered.
    bed.players.settle()?;
    bed.players.listen(Duration::from_millis(100));
    for player in bed.players.list.iter_mut().take(PAUSED) {
        player.is_paused = true;
    }
    bed.players.play(Duration::from_millis(50));
    let Testbed { mut server, mut players, .. } = bed;
    let ordered_at = now();
    server.command(&format!("drain {}", DEADLINE.as_millis()))?;
    let server = std::thread::spawn(move || {
        let records = server.answer().map(Report);
        (records, server.wait(Duration::from_secs(10)), now())
    });
    players.until("all noticed the end", |player| player.is_paused || player.ended.is_some())?;
    let (records, status, ended_at) = server.join().map_err(|_| Error::failed("a thread", "it panicked"))?;
    totals.failed += u64::from(!status?.success());
    totals.slowest = totals.slowest.max(ended_at.duration_since(ordered_at));
    totals.wrong += players.wrong();
    let records = records?;
    totals.sent += records.of_players("sent");
    totals.acknowledged += records.of_players("acknowledged");
    totals.lost += records.of_players("lost");
    for (index, player) in players.list.iter().enumerate() {
        // Messages arrive in order, so the first ones are those that have arrived.
        let acknowledged = records.total(&format!("/players/{index}/acknowledged"));
        totals.acknowledged_and_missing += acknowledged.saturating_sub(player.down.received);
    }
    totals.undelivered += records.total("/undelivered_bytes") / (MESSAGE_BYTES as u64 + CHARGE_BYTES);
    Ok(())
}
