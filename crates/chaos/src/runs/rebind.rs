//! C5: source ports change under load, as they do behind routers that forget; nobody reconnects and nothing is lost.

use std::time::Duration;

use drumfire::ClientConfig;

use super::{Setting, WORKERS};
use crate::crowd::Crowd;
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::{Stop, Tried};

const PLAYERS: usize = 20;

/// Between two turns of a player, so that there is always something on its way.
const PERIOD: Duration = Duration::from_millis(2);

/// Echoes each player has to hear from a port before it takes the next.
const ECHOES: u64 = 4;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let rebinds = setting.size.of(100, 1_000, 10_000);
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    let before = server.report()?;
    for _ in 0..rebinds / PLAYERS {
        // Half of them at a time, so that somebody always moves while somebody talks.
        for half in 0..2 {
            for player in crowd.players.iter_mut().skip(half).step_by(2) {
                player.client.rebind().tried("another socket")?;
            }
            let goals: Vec<u64> = crowd.players.iter().map(|player| player.ordered.heard + ECHOES).collect();
            crowd.until_any("all go on from their new ports", |crowd| {
                crowd.players.iter().zip(&goals).all(|(player, goal)| player.ordered.heard >= *goal)
            })?;
        }
    }
    crowd.settle()?;
    let after = server.report()?;
    let moved = after.sum("/protocol/paths_moved") - before.sum("/protocol/paths_moved");
    marks.equal("players that reconnected or are gone", crowd.count(|p| p.again > 0 || p.gone.is_some()), 0);
    marks.equal("reliable messages lost", crowd.sum(|player| player.ordered.missing()), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.at_least("changes of the source port followed", moved, rebinds as u64);
    marks.equal("connections", after.sum("/connections"), PLAYERS as u64);
    marks.equal("new connections", after.sum("/protocol/connections_opened"), PLAYERS as u64);
    marks.equal("echoes without room", after.refused(), 0);
    marks.equal("datagrams in no counter", after.unexplained(), 0);
    marks.note(format_args!(
        "{rebinds} changes of {PLAYERS} players; {} reliable messages there and back, p99 {:?}",
        crowd.sum(|player| player.ordered.heard),
        crowd.round_trip(99.0),
    ));
    Ok(())
}
