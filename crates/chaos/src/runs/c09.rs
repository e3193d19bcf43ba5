//! C9: the application panics repeatedly: in a message, in a receipt, and in ticks, which belong to no player. The
//! player's connection ends, the workers continue, and other players do not notice. Then panics that no worker catches
//! end the threads.

use std::time::Duration;

use drumfire::error::CloseCode;
use drumfire::{ClientConfig, CloseReason};

use super::{BATCH, Setting, Size, Testbed, WORKERS};
use crate::error::{Error, ErrorContext};
use crate::marks::Marks;
use crate::platform::open_sockets;
use crate::players::{Player, Players};
use crate::process::{Report, ServerSpec, THREADS};
use crate::server::FAULT;
use crate::traffic::millis;

const PLAYERS: usize = 20;

/// Players that request a panic at the same time, in turn for each of these calls.
const VICTIMS: usize = 10;
const CALLS: [&str; 2] = ["message", "receipt"];

/// Panics that end a connection for each panic in a tick.
const PANICS_PER_TICK_PANIC: usize = 10;

/// A worker continues within this time, so that an echo takes no longer.
const BACK_GOAL: Duration = Duration::from_millis(100);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    panic_in_calls(setting, marks)?;
    end_threads(setting, marks)
}

fn panic_in_calls(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let panics = setting.size.of(50, 1_000, 10_000);
    let mut bed = Testbed::start(ServerSpec::local(2)?, PLAYERS + VICTIMS, Players::default())?;
    bed.players.reset();
    let (mut ended, mut closed) = (0, 0);
    let by_panic = CloseReason::Remote { code: CloseCode::Internal, application_code: 0 };
    while ended < panics {
        if ended > 0 {
            let next = PLAYERS + ended;
            bed.players.add_all(&bed.spec, next..next + VICTIMS)?;
            bed.players.until_answered()?;
        }
        for (index, victim) in bed.players.list.iter_mut().skip(PLAYERS).enumerate() {
            victim.request_fault(FAULT, CALLS[index % CALLS.len()])?;
        }
        bed.players.until_any("the connections of the requesting players end", |players| {
            players.list.iter().skip(PLAYERS).all(|player| player.ended.is_some())
        })?;
        let victims = bed.players.list.drain(PLAYERS..);
        ended += victims.len();
        closed += victims.filter(|victim| victim.lost_by == Some(by_panic)).count();
    }
    let in_ticks = panics / PANICS_PER_TICK_PANIC;
    for number in 1..=in_ticks {
        bed.players.list[number % PLAYERS].request_fault(FAULT, "tick")?;
        bed.until("a tick panics", |report| report.sum("/panics") >= (panics + number) as u64)?;
    }
    bed.players.settle()?;
    // Ended connections stay for a while, for packets that are still on their way.
    let report =
        bed.until("the ended connections are gone", |report| report.sum("/connections") <= PLAYERS as u64)?;
    let players = &bed.players;
    marks.equal("panics caught", report.sum("/panics"), (panics + in_ticks) as u64);
    marks.equal("players that requested a panic and received the close for it", closed as u64, panics as u64);
    marks.equal("workers that restarted", report.sum("/restarts"), 0);
    marks.equal("other players gone", players.gone(), 0);
    marks.equal("reliable messages of others lost", players.reliable_missing(), 0);
    marks.equal("messages twice or out of order", players.wrong(), 0);
    marks.equal("connections left", report.sum("/connections"), PLAYERS as u64);
    marks.at_most("unreliable messages of others lost", players.lossy_missing(), BATCH);
    let (name, echoes) = ("echoes, p99.9", players.times.round_trips.percentile(99.9));
    if setting.size == Size::Quick {
        let reason = "the 99.9th percentile of few echoes is one that the machine delayed";
        marks.not_judged(name, format_args!("{reason}: {}", millis(echoes)));
    } else {
        marks.within(name, echoes, BACK_GOAL);
    }
    marks.note(format_args!(
        "{} unreliable and as many reliable messages of {PLAYERS} others; {in_ticks} panics in ticks; the slowest echo {}",
        players.sum(|player| player.lossy.sent),
        millis(players.times.round_trips.percentile(100.0)),
    ));
    Ok(())
}

/// The sums over all threads that ended.
#[derive(Default)]
struct ThreadTotals {
    ends: u64,
    /// Restarts of other workers, and missing or repeated restarts of the workers whose thread ended.
    wrong_restarts: u64,
    /// Players of the restarted workers that reconnected.
    reconnected: u64,
    /// Players of other workers that reconnected.
    disturbed: u64,
    /// The most unreliable messages that players of other workers lost by one restart.
    lost: u64,
    /// Players whose connection ended for good.
    ended: u64,
    /// Reliable messages lost, twice, or out of order.
    wrong: u64,
    /// The longest time until all players were back.
    slowest: Duration,
}

fn end_threads(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let (rounds, count) = (setting.size.of(1, 10, 100), setting.size.many_players());
    let mut bed = Testbed::start(ServerSpec::local(WORKERS)?, 0, Players::default())?;
    let (before, mut totals) = (open_sockets(bed.server.id())?, ThreadTotals::default());
    for _ in 0..rounds {
        // New players each time, because one that has just reconnected waits longer before the next attempt.
        bed.players = Players::reconnecting(ClientConfig::default());
        bed.players.add_all(&bed.spec, 0..count)?;
        bed.players.until_answered()?;
        bed.players.until("all can resume", |player| player.client.resume_token(player.peer).is_some())?;
        for worker in 0..WORKERS {
            end_thread(&mut bed, worker.into(), &mut totals)?;
        }
        totals.ended += bed.players.count(|player| player.ended.is_some());
        totals.wrong += bed.players.wrong() + bed.players.reliable_missing();
    }
    let (report, after) = (bed.server.report()?, open_sockets(bed.server.id())?);
    let absence = Duration::from_micros(report.value("/longest_absence_us"));
    let changed = before.iter().filter(|(descriptor, target)| after.get(*descriptor) != Some(target)).count();
    marks.section("ended threads");
    marks.equal("workers that restarted", report.value("/absences"), totals.ends);
    marks.within("the longest absence of a worker", absence, BACK_GOAL);
    let name = "workers that restarted without an ended thread, or the reverse";
    marks.equal(name, totals.wrong_restarts, 0);
    marks.equal("workers that are driven", report.total(THREADS), WORKERS.into());
    marks.equal("descriptors that refer to other sockets than before", changed as u64, 0);
    marks.at_least("players of these workers that reconnected", totals.reconnected, totals.ends);
    marks.equal("players of other workers that reconnected", totals.disturbed, 0);
    marks.at_most("unreliable messages that other players lost in one restart", totals.lost, BATCH);
    marks.equal("players gone", totals.ended, 0);
    marks.equal("reliable messages lost, any twice or out of order", totals.wrong, 0);
    let (ends, slowest) = (totals.ends, millis(totals.slowest));
    marks.note(format_args!("{ends} threads ended, {count} players; all were back after {slowest} at most"));
    Ok(())
}

/// Ends the thread of a worker. Its panic reaches the end of the thread, which starts the worker again.
fn end_thread(bed: &mut Testbed, worker: u64, totals: &mut ThreadTotals) -> Result<(), Error> {
    // Messages on their way would be lost.
    bed.players.settle()?;
    bed.players.reset();
    let before = bed.server.report()?;
    let is_of_worker = |player: usize| before.worker_of(player) == Some(worker);
    let lost_elsewhere = |players: &Players| -> u64 {
        let others = players.list.iter().enumerate().filter(|(index, _)| !is_of_worker(*index));
        others.map(|(_, player)| player.lossy.missing()).sum()
    };
    let lost = lost_elsewhere(&bed.players);
    let player = (0..bed.players.list.len()).find(|index| is_of_worker(*index));
    let player = player.context("a player of each worker")?;
    bed.players.list[player].request_fault(FAULT, "thread")?;
    let elapsed = bed.players.until_any("all are back", |players| {
        let is_back = |player: &Player| player.reconnects > 0 && player.ordered.received > 0;
        let mut players = players.list.iter().enumerate();
        players.all(|(index, player)| !is_of_worker(index) || player.ended.is_some() || is_back(player))
    })?;
    bed.players.settle()?;
    totals.ends += 1;
    totals.slowest = totals.slowest.max(elapsed);
    totals.lost = totals.lost.max(lost_elsewhere(&bed.players).saturating_sub(lost));
    totals.wrong_restarts += wrong_restarts(&before, &bed.server.report()?, worker);
    for (index, player) in bed.players.list.iter().enumerate() {
        let count = if is_of_worker(index) { &mut totals.reconnected } else { &mut totals.disturbed };
        *count += u64::from(player.reconnects > 0);
    }
    Ok(())
}

/// Returns by how many restarts the workers differ from one restart of `worker` and none of the others.
fn wrong_restarts(before: &Report, after: &Report, worker: u64) -> u64 {
    let restarts = |report: &Report| report.by_worker("/restarts");
    let workers = (0..).zip(restarts(before).into_iter().zip(restarts(after)));
    workers.map(|(other, (before, after))| (after - before).abs_diff(u64::from(other == worker))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_one_restart_of_the_right_worker_is_right() {
        let report = |restarts: [u64; 3]| {
            Report(json!({ "stats": { "workers": restarts.map(|count| json!({ "restarts": count })) } }))
        };
        let wrong = |after| wrong_restarts(&report([1, 0, 2]), &report(after), 1);
        assert_eq!(wrong([1, 1, 2]), 0);
        assert_eq!(wrong([1, 0, 2]), 1, "it did not restart");
        assert_eq!(wrong([2, 0, 2]), 2, "another worker did instead");
        assert_eq!(wrong([1, 2, 2]), 1, "it did twice");
    }
}
