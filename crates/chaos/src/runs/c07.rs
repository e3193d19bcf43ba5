//! C7: the server shuts down while it sends and its players play. It reports whether each reliable message was
//! acknowledged, and each acknowledged message has arrived once.

use std::time::Duration;

use drumfire_tools::clock::now;
use serde_json::Value;

use super::{Setting, Testbed, WORKERS};
use crate::error::{Error, ErrorContext};
use crate::marks::Marks;
use crate::players::Players;
use crate::process::ServerSpec;
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
    let mut bed = Testbed::start(spec, PLAYERS)?;
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
        let answer = server.answer();
        (answer, server.wait(Duration::from_secs(10)), now())
    });
    players.until("all noticed the end", |player| player.is_paused || player.ended.is_some())?;
    let (answer, status, ended_at) = server.join().map_err(|_| Error::failed("a thread", "it panicked"))?;
    totals.failed += u64::from(!status?.success());
    totals.slowest = totals.slowest.max(ended_at.duration_since(ordered_at));
    totals.wrong += players.wrong();
    totals.add(&answer?, &players)
}

impl DrainTotals {
    /// Adds the server's records, compared with what the players received.
    fn add(&mut self, records: &Value, players: &Players) -> Result<(), Error> {
        for (player, account) in records["players"].as_object().context("accounts")? {
            let count = |name: &str| account[name].as_u64().context(name);
            let index: usize = player.parse().context("a player")?;
            let received = players.list.get(index).context("a player")?.down.received;
            let acknowledged = count("acknowledged")?;
            self.sent += count("sent")?;
            self.acknowledged += acknowledged;
            self.lost += count("lost")?;
            // Messages arrive in order, so the first ones are those that have arrived.
            self.acknowledged_and_missing += acknowledged.saturating_sub(received);
        }
        let bytes = records["undelivered_bytes"].as_array().context("a list")?;
        let bytes: u64 = bytes.iter().filter_map(Value::as_u64).sum();
        self.undelivered += bytes / (MESSAGE_BYTES as u64 + CHARGE_BYTES);
        Ok(())
    }
}
