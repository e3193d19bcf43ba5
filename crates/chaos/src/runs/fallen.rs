//! C9, a panic that nothing of a worker catches, so that its thread falls, again and again: the worker is back at once, in its place
//! and with its socket; its players come again, and those of other workers do not notice.
//!
//! The thread itself is no other one: what falls through to its end begins there anew, with the worker that was at hand.

use std::time::Duration;

use drumfire::{ClientConfig, Reconnect};

use super::{CROWD, PERIOD, Setting, WORKERS};
use crate::crowd::{Crowd, Player};
use crate::marks::{Marks, millis};
use crate::process::{Plan, Report, ServerProcess};
use crate::stop::{Stop, Tried};

/// Datagrams of a batch: what players of other workers may lose by a fall, and do not.
const BATCH: u64 = 64;

/// The worker ticks again within this time.
const BACK_GOAL: Duration = Duration::from_millis(100);

/// What became of all falls.
#[derive(Default)]
struct Sums {
    falls: u64,
    /// Times that workers began anew that had not fallen, and that one had not that had.
    elsewhere: u64,
    /// Players of the workers that fell, who came again.
    came_again: u64,
    /// Players of other workers that had to come again.
    disturbed: u64,
    /// Unreliable messages that others lost by one fall, at most.
    lost: u64,
    /// Players who are gone, and reliable messages lost, twice or out of order.
    gone: u64,
    wrong: u64,
    /// Until everybody was back.
    slowest: Duration,
}

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let (rounds, players) = (setting.size.of(1, 10, 100), setting.size.of(50, CROWD, CROWD));
    let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(30)));
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let (before, mut sums) = (server.sockets()?, Sums::default());
    for _ in 0..rounds {
        // Others each time: who was just away waits longer the next time.
        let mut crowd = Crowd::connect(&plan, players, PERIOD, &config)?;
        crowd.until("all can come back", |player| player.client.resume_token().is_some())?;
        for worker in 0..WORKERS {
            fall_once(&mut server, &mut crowd, worker.into(), &mut sums)?;
        }
        sums.gone += crowd.count(|player| player.gone.is_some());
        sums.wrong += crowd.wrong() + crowd.sum(|player| player.ordered.missing());
    }
    let (report, after) = (server.report()?, server.sockets()?);
    let (back, away) = report.came_back();
    let name = |what: &str| format!("threads that fell: {what}");
    marks.equal(&name("workers that are back"), back, sums.falls);
    marks.within(&name("the longest that a worker was away"), away, BACK_GOAL);
    marks.equal(
        &name("workers that began anew and had not fallen, or the other way round"),
        sums.elsewhere,
        0,
    );
    marks.equal(&name("workers that are driven"), report.driven_workers(), WORKERS.into());
    let changed = before.iter().filter(|(file, leads_to)| after.get(*file) != Some(leads_to)).count();
    marks.equal(&name("descriptors of sockets that lead elsewhere than before"), changed as u64, 0);
    marks.at_least(&name("players of theirs who came again"), sums.came_again, sums.falls);
    marks.equal(&name("players of others who did"), sums.disturbed, 0);
    marks.at_most(&name("unreliable messages that others lost by one"), sums.lost, BATCH);
    marks.equal(&name("players gone"), sums.gone, 0);
    marks.equal(&name("reliable messages lost, any twice or out of order"), sums.wrong, 0);
    marks.note(format_args!(
        "{} falls beside {players} players; all were back after {} at most",
        sums.falls,
        millis(sums.slowest)
    ));
    Ok(())
}

/// The thread of this worker falls, and everybody goes on.
fn fall_once(
    server: &mut ServerProcess,
    crowd: &mut Crowd,
    worker: u64,
    sums: &mut Sums,
) -> Result<(), Stop> {
    // What is under way is not lost.
    crowd.settle()?;
    let before = server.report()?;
    let is_of_it = |at: usize| before.worker_of(at) == Some(worker);
    let again: Vec<u64> = crowd.players.iter().map(|player| player.again).collect();
    let lost = lost_by_others(crowd, is_of_it);
    let player = (0..again.len()).find(|at| is_of_it(*at)).tried("a player of each worker")?;
    crowd.players[player].ask_for_a_fault("thread")?;
    let is_back = |player: &Player, again: u64| player.again > again && player.ordered.heard > 0;
    let took = crowd.until_any("all are back", |crowd| {
        let mut players = crowd.players.iter().zip(&again).enumerate();
        players.all(|(at, (player, again))| !is_of_it(at) || player.gone.is_some() || is_back(player, *again))
    })?;
    crowd.settle()?;
    sums.falls += 1;
    sums.slowest = sums.slowest.max(took);
    sums.lost = sums.lost.max(lost_by_others(crowd, is_of_it).saturating_sub(lost));
    sums.elsewhere += elsewhere(&before, &server.report()?, worker);
    let came_again = |(at, again): (usize, &u64)| (crowd.players[at].again > *again).then_some(at);
    let (of_it, others): (Vec<_>, Vec<_>) =
        again.iter().enumerate().filter_map(came_again).partition(|at| is_of_it(*at));
    sums.came_again += of_it.len() as u64;
    sums.disturbed += others.len() as u64;
    Ok(())
}

/// Unreliable messages that did not come back to players of other workers.
fn lost_by_others(crowd: &Crowd, is_of_it: impl Fn(usize) -> bool) -> u64 {
    let others = crowd.players.iter().enumerate().filter(|(at, _)| !is_of_it(*at));
    others.map(|(_, player)| player.lossy.missing()).sum()
}

/// How many workers began anew that should not have, or the other way round: this one should, once.
fn elsewhere(before: &Report, after: &Report, fallen: u64) -> u64 {
    let restarts = |report: &Report| report.by_worker("/restarts");
    let workers = (0..).zip(restarts(before).into_iter().zip(restarts(after)));
    workers.map(|(worker, (before, after))| (after - before).abs_diff(u64::from(worker == fallen))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_worker_that_fell_begins_anew_and_does_so_once() {
        let of = |restarts: [u64; 3]| {
            Report(json!({ "stats": { "workers": restarts.map(|count| json!({ "restarts": count })) } }))
        };
        let seen = |after, fallen| elsewhere(&of([1, 0, 2]), &of(after), fallen);
        assert_eq!(seen([1, 1, 2], 1), 0);
        assert_eq!(seen([1, 0, 2], 1), 1, "it did not");
        assert_eq!(seen([2, 0, 2], 1), 2, "another did instead");
        assert_eq!(seen([1, 2, 2], 1), 1, "it did twice");
    }
}
