//! C5: source ports change under load, as those of devices that change their network, and then addresses, by a router that forgets
//! who is behind it; nobody reconnects and nothing is lost. Copies of packets from somebody else's address change nothing.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::conditioner::{Delay, LinkConfig};

use super::{Setting, WORKERS};
use crate::crowd::Crowd;
use crate::link::{Emulator, FAR_V4};
use crate::marks::Marks;
use crate::process::{Plan, Report};
use crate::stop::{Stop, Tried};

const PLAYERS: usize = 20;

/// Between two turns of a player, so that there is always something on its way.
const PERIOD: Duration = Duration::from_millis(2);

/// Echoes each player has to hear from a port before it takes the next.
const ECHOES: u64 = 4;

/// Between a player and the router.
const DELAY: Duration = Duration::from_millis(2);
const MTU: u16 = 1_500;

/// Players move in two halves.
const HALVES: u64 = 2;

/// Copies of packets that somebody sends from elsewhere.
const COPIES: u64 = 1_000;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    change_ports(setting, marks)?;
    let outcome = behind_a_router(setting, marks);
    marks.part("addresses behind a router", outcome)
}

fn change_ports(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
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
            all_go_on(&mut crowd)?;
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

/// Plays on until everybody was answered some times more.
fn all_go_on(crowd: &mut Crowd) -> Result<(), Stop> {
    let goals: Vec<u64> = crowd.players.iter().map(|player| player.ordered.heard + ECHOES).collect();
    let are_there =
        |crowd: &Crowd| crowd.players.iter().zip(&goals).all(|(player, goal)| player.ordered.heard >= *goal);
    crowd.until_any("all go on from where they are now", are_there).map(drop)
}

/// The players keep their sockets, and know nothing of it.
fn behind_a_router(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let moves: u64 = setting.size.of(10, 100, 1_000);
    let other = setting.other()?;
    let link = Emulator::start(other, &LinkConfig::default().delay(Delay::Constant(DELAY)), MTU)?;
    let mut plan = Plan::new((FAR_V4, 0).into(), WORKERS)?.within(&other.name);
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    for _ in 0..moves * HALVES {
        link.router.move_half();
        all_go_on(&mut crowd)?;
    }
    crowd.settle()?;
    let (moved, lost) = (server.report()?, link.router.forgotten());
    link.router.copy(true);
    crowd.until_any("somebody copies", |_| link.router.copied() >= COPIES)?;
    link.router.copy(false);
    crowd.settle()?;
    let after = server.report()?;
    let paths = |report: &Report| report.sum("/protocol/paths_moved");
    let duplicates = after.sum("/protocol/dropped/duplicate") - moved.sum("/protocol/dropped/duplicate");
    marks.at_least("changes of addresses by a router followed", paths(&moved), moves * PLAYERS as u64);
    marks.at_least("packets for addresses that the router forgot", lost, 1);
    marks.at_least("copies from elsewhere dropped as such", duplicates, COPIES);
    marks.equal("paths that moved by them", paths(&after) - paths(&moved), 0);
    marks.equal("packets that went to who copied", link.router.forgotten() - lost, 0);
    let gone = crowd.count(|player| player.again > 0 || player.gone.is_some());
    marks.equal("players behind a router that reconnected or are gone", gone, 0);
    let missing = crowd.sum(|player| player.ordered.missing());
    marks.equal("their reliable messages lost, twice or out of order", missing + crowd.wrong(), 0);
    marks.equal("their new connections", after.sum("/protocol/connections_opened"), PLAYERS as u64);
    marks.equal("datagrams in no counter", after.unexplained(), 0);
    Ok(())
}
