//! C9: the application panics again and again at what a player said: that player's connection ends, and nobody else notices.

use drumfire::ClientConfig;

use super::{PERIOD, Setting};
use crate::crowd::Crowd;
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::Stop;

const PLAYERS: usize = 20;
const WORKERS: u16 = 2;

/// Players that ask for a fault at the same time.
const VICTIMS: usize = 10;

/// Datagrams of a batch: what others may lose by a panic, and do not.
const BATCH: u64 = 64;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let panics = setting.size.of(50, 1_000, 10_000);
    let config = ClientConfig::default();
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS + VICTIMS, PERIOD, &config)?;
    let (mut next, mut gone) = (PLAYERS + VICTIMS, 0);
    while gone < panics {
        if gone > 0 {
            crowd.join(&plan, next..next + VICTIMS, &config)?;
            next += VICTIMS;
        }
        for victim in crowd.players.iter_mut().skip(PLAYERS) {
            victim.ask_for_a_fault()?;
        }
        // The others come first, and are looked at at the end.
        crowd.until_any("who asked is gone", |crowd| {
            crowd.players.iter().skip(PLAYERS).all(|player| player.gone.is_some())
        })?;
        gone += crowd.players.drain(PLAYERS..).count();
    }
    crowd.settle()?;
    // Connections stay for a while after they ended, for what is still on its way.
    let report = crowd.until_server("the ended connections are gone", &mut server, |report| {
        report.sum("/connections") <= PLAYERS as u64
    })?;
    marks.equal("panics caught", report.sum("/panics"), panics as u64);
    marks.equal("players that asked for one and are gone", gone as u64, panics as u64);
    marks.equal("workers that began anew", report.sum("/restarts"), 0);
    marks.equal("other players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
    marks.equal("reliable messages of others lost", crowd.sum(|player| player.ordered.missing()), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.equal("connections left", report.sum("/connections"), PLAYERS as u64);
    let (said, lost) = (crowd.sum(|player| player.lossy.said), crowd.sum(|player| player.lossy.missing()));
    marks.at_most("unreliable messages of others lost", lost, BATCH);
    marks.note(format_args!("{said} unreliable and as many reliable messages of {PLAYERS} others meanwhile"));
    Ok(())
}
