//! C9: the application panics again and again, at what a player said, at a receipt, and in ticks that are nobody's: the player's
//! connection ends where there is one, the workers go on, and nobody else notices. Then panics that no worker catches, so that threads
//! fall.

use std::time::Duration;

use drumfire::ClientConfig;

use super::{PERIOD, Setting, fallen};
use crate::crowd::Crowd;
use crate::marks::{Marks, millis};
use crate::process::{Plan, ServerProcess};
use crate::size::Size;
use crate::stop::Stop;

const PLAYERS: usize = 20;
const WORKERS: u16 = 2;

/// Players that ask for a fault at the same time, in turn for one of these calls.
const VICTIMS: usize = 10;
const CALLS: [&str; 2] = ["message", "receipt"];

/// Of so many panics that end a connection there is one more in a tick, which ends none.
const TICK_IN: usize = 10;

/// Datagrams of a batch: what others may lose by a panic, and do not.
const BATCH: u64 = 64;

/// A worker is back within this time: so long at most an echo takes that a panic got in the way of.
const BACK_GOAL: Duration = Duration::from_millis(100);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let panics = setting.size.of(50, 1_000, 10_000);
    let config = ClientConfig::default();
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS + VICTIMS, PERIOD, &config)?;
    crowd.forget();
    let (mut next, mut gone) = (PLAYERS + VICTIMS, 0);
    while gone < panics {
        if gone > 0 {
            crowd.join(&plan, next..next + VICTIMS, &config)?;
            next += VICTIMS;
        }
        for (at, victim) in crowd.players.iter_mut().skip(PLAYERS).enumerate() {
            victim.ask_for_a_fault(CALLS[at % CALLS.len()])?;
        }
        // The others come first, and are looked at at the end.
        crowd.until_any("who asked is gone", |crowd| {
            crowd.players.iter().skip(PLAYERS).all(|player| player.gone.is_some())
        })?;
        gone += crowd.players.drain(PLAYERS..).count();
    }
    let in_ticks = panic_in_ticks(&mut crowd, &mut server, panics)?;
    crowd.settle()?;
    // Connections stay for a while after they ended, for what is still on its way.
    let report = crowd.until_server("the ended connections are gone", &mut server, |report| {
        report.sum("/connections") <= PLAYERS as u64
    })?;
    marks.equal("panics caught", report.sum("/panics"), (panics + in_ticks) as u64);
    marks.equal("players that asked for one of their own and are gone", gone as u64, panics as u64);
    marks.equal("workers that began anew", report.sum("/restarts"), 0);
    marks.equal("other players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
    marks.equal("reliable messages of others lost", crowd.sum(|player| player.ordered.missing()), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.equal("connections left", report.sum("/connections"), PLAYERS as u64);
    let (said, lost) = (crowd.sum(|player| player.lossy.said), crowd.sum(|player| player.lossy.missing()));
    marks.at_most("unreliable messages of others lost", lost, BATCH);
    let name = "echoes, p99.9";
    if setting.size == Size::Quick {
        let why = "among few echoes one that the machine held up would stand for all";
        marks.not_judged(name, format_args!("{why}: {}", millis(crowd.round_trip(99.9))));
    } else {
        marks.within(name, crowd.round_trip(99.9), BACK_GOAL);
    }
    marks.note(format_args!(
        "{said} unreliable and as many reliable messages of {PLAYERS} others meanwhile; {in_ticks} panics in ticks; \
         the slowest echo {}",
        millis(crowd.round_trip(100.0)),
    ));
    fallen::run(setting, marks)
}

/// One tick after the other panics, at a worker of a player that stays; answers how many did, after as many panics as that.
fn panic_in_ticks(crowd: &mut Crowd, server: &mut ServerProcess, panics: usize) -> Result<usize, Stop> {
    let in_ticks = panics / TICK_IN;
    for number in 1..=in_ticks {
        crowd.players[number % PLAYERS].ask_for_a_fault("tick")?;
        crowd.until_server("a tick that panics", server, |report| {
            report.sum("/panics") >= (panics + number) as u64
        })?;
    }
    Ok(in_ticks)
}
