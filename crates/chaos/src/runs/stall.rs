//! C8: the server, and then its players, stand still for a while and go on: after a short while nobody is lost; after a long
//! one all are, and know it, and the server takes new ones at once.

use std::time::Duration;

use drumfire::ClientConfig;
use rustix::process::Signal;

use super::{CROWD, PERIOD, Setting, WORKERS};
use crate::crowd::Crowd;
use crate::marks::{Marks, millis};
use crate::process::{Plan, ServerProcess};
use crate::size::Size;
use crate::stop::Stop;

const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(30);

/// A handshake with a server that goes on takes this long at most.
const HANDSHAKE_GOAL: Duration = Duration::from_secs(2);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let players = setting.size.of(50, CROWD, CROWD);
    let rounds = setting.size.of(1, 3, 10);
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, players, PERIOD, &ClientConfig::default())?;
    for _ in 0..rounds {
        short(&server, &mut crowd)?;
    }
    players_alone(&mut crowd);
    crowd.settle()?;
    let report = server.report()?;
    marks.equal(
        "players lost by 3 s without a server, and without players",
        crowd.count(|p| p.gone.is_some()),
        0,
    );
    marks.equal("reliable messages lost", crowd.sum(|player| player.ordered.missing()), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.equal("connections", report.sum("/connections"), players as u64);
    marks.equal("new connections", report.sum("/protocol/connections_opened"), players as u64);
    if setting.size == Size::Quick {
        marks.not_judged("30 s without a server, and new handshakes after it", "which takes longer");
        return Ok(());
    }
    long(&plan, &mut server, &mut crowd, marks)
}

/// The server stands still, and goes on; all are answered again.
fn short(server: &ServerProcess, crowd: &mut Crowd) -> Result<(), Stop> {
    server.signal(Signal::STOP)?;
    crowd.go_on(SHORT);
    server.signal(Signal::CONT)?;
    let heard: Vec<u64> = crowd.players.iter().map(|player| player.ordered.heard).collect();
    crowd.until_any("all are answered again", |crowd| {
        crowd
            .players
            .iter()
            .zip(&heard)
            .all(|(player, heard)| player.gone.is_some() || player.ordered.heard > *heard)
    })?;
    // Whoever the server lost learns of it by its next packet.
    crowd.go_on(Duration::from_secs(1));
    Ok(())
}

/// Nobody looks after any player for a while, as when their process stands still.
fn players_alone(crowd: &mut Crowd) {
    drumfire_tools::clock::pause(SHORT);
    crowd.go_on(Duration::from_secs(1));
}

fn long(plan: &Plan, server: &mut ServerProcess, crowd: &mut Crowd, marks: &mut Marks) -> Result<(), Stop> {
    let players = crowd.players.len();
    server.signal(Signal::STOP)?;
    crowd.go_on(LONG);
    let knew = crowd.count(|player| player.gone.is_some());
    server.signal(Signal::CONT)?;
    crowd.players.clear();
    let took = {
        let start = drumfire_tools::clock::now();
        crowd.join(plan, players..2 * players, &ClientConfig::default())?;
        drumfire_tools::clock::now().duration_since(start)
    };
    // The server's own connections end by their timers, which stood still too.
    let report = crowd.until_server("the old connections are gone", server, |report| {
        report.sum("/connections") <= players as u64
    })?;
    marks.equal("players that knew of 30 s without a server", knew, players as u64);
    marks.equal("connections after it, the new ones", report.sum("/connections"), players as u64);
    marks.equal("panics", report.sum("/panics") + report.sum("/restarts"), 0);
    marks.within("all new handshakes after it, with an echo", took, HANDSHAKE_GOAL);
    marks.note(format_args!("{players} new handshakes in {}", millis(took)));
    Ok(())
}
