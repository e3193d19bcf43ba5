//! C8: the server, and then its players, stop running for a while. After a short stop no connection has ended. After a
//! long stop all connections have ended, the players have noticed, and the server accepts new players.

use std::time::Duration;

use drumfire_tools::clock::{now, pause};
use rustix::process::Signal;

use super::{Setting, Size, Testbed, WORKERS};
use crate::error::Error;
use crate::marks::Marks;
use crate::players::Players;
use crate::process::ServerSpec;
use crate::traffic::millis;

const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(30);

/// All new players connect within this time after the server continues.
const HANDSHAKE_GOAL: Duration = Duration::from_secs(2);

/// A player learns within this time that the server has forgotten its connection.
const NOTICE: Duration = Duration::from_secs(1);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let (count, rounds) = (setting.size.many_players(), setting.size.of(1, 3, 10));
    let mut bed = Testbed::start(ServerSpec::local(WORKERS)?, count, Players::default())?;
    for _ in 0..rounds {
        bed.server.signal(Signal::STOP)?;
        bed.players.play(SHORT);
        bed.server.signal(Signal::CONT)?;
        bed.until_more_echoes(1)?;
        bed.players.play(NOTICE);
    }
    // The players' process stops, as far as the server can see.
    pause(SHORT);
    bed.players.play(NOTICE);
    bed.players.settle()?;
    let (players, report) = (&bed.players, bed.server.report()?);
    let lost = players.count(|player| player.ended.is_some());
    marks.equal("players lost by 3 s without a server, and without players", lost, 0);
    marks.equal("reliable messages lost", players.reliable_missing(), 0);
    marks.equal("messages twice or out of order", players.wrong(), 0);
    marks.equal("connections", report.sum("/connections"), count as u64);
    marks.equal("new connections", report.sum("/protocol/connections_opened"), count as u64);
    if setting.size == Size::Quick {
        marks.not_judged("30 s without a server, and new handshakes after it", "which takes longer");
        return Ok(());
    }
    stop_for_long(bed, marks)
}

fn stop_for_long(mut bed: Testbed, marks: &mut Marks) -> Result<(), Error> {
    let count = bed.players.list.len();
    bed.server.signal(Signal::STOP)?;
    bed.players.play(LONG);
    let knew = bed.players.count(|player| player.ended.is_some());
    bed.server.signal(Signal::CONT)?;
    bed.players.list.clear();
    let start = now();
    bed.players.add_all(&bed.spec, count..2 * count)?;
    bed.players.until_answered()?;
    let elapsed = now().duration_since(start);
    // The server's timers stopped too, so its old connections end later than the players'.
    let report =
        bed.until("the old connections are gone", |report| report.sum("/connections") <= count as u64)?;
    marks.equal("players that noticed 30 s without a server", knew, count as u64);
    marks.equal("connections after it, which are the new ones", report.sum("/connections"), count as u64);
    marks.equal("panics", report.sum("/panics") + report.sum("/restarts"), 0);
    marks.within("all new handshakes after it, with an echo", elapsed, HANDSHAKE_GOAL);
    marks.note(format_args!("{count} new handshakes in {}", millis(elapsed)));
    Ok(())
}
