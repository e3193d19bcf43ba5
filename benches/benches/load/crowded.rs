//! What a message costs among many connections over what it costs among few, when all of them together say as much: two servers
//! in turns, window by window, with as many sockets of clients each.

use std::time::Duration;

use drumfire_benches::{Child, Crowd, DropWatch, Extent, Goal, Ramped, Results, Spread, Used, missing};

use crate::echo::{Played, Players};
use crate::server::{Does, key};

/// CPU per message, many over few.
const CPU_RATIO: f64 = 1.25;

const SOCKETS: u32 = 8;

/// Connections begun in a second, for each worker: a server takes 2,000.
const RAMP_PER_SECOND: u64 = 1_600;

/// From taking turns to the window: what waits after the other's window is done.
const WARM_UP: Duration = Duration::from_millis(300);

/// Of each round: so short that none of the many is silent until a keep-alive is due, while the others have their turn.
const WINDOW: Duration = Duration::from_millis(1_200);

/// Until each of the many has said something.
const WARM_UP_ROUNDS: u32 = 3;

/// A server, its clients, and what was found.
struct Side {
    name: String,
    server: Child,
    players: Players,
    ramped: Ramped,
    windows: Vec<Played>,
}

pub(crate) fn measure(
    extent: Extent,
    (workers, core): (u32, Option<usize>),
    results: &mut Results,
) -> Result<(), String> {
    let ([few, many], per_second, windows) = match extent {
        Extent::Quick => ([100, 2_000], 2_000, 1),
        Extent::Default => ([1_000, 100_000], 40_000, 9),
        Extent::Full => ([1_000, 100_000], 40_000, 25),
    };
    let dropped = DropWatch::begin();
    let mut sides = Vec::new();
    for clients in [many, few] {
        sides.push(Side::open(clients, (workers, core), per_second)?);
    }
    let warm_up = if extent == Extent::Quick { 0 } else { WARM_UP_ROUNDS };
    for round in 0..warm_up + windows {
        for _ in 0..2 {
            let [this, other] = sides.as_mut_slice() else { return Ok(()) };
            // What comes to the others meanwhile is taken, or their sockets would run over.
            this.players.window(&this.server, WARM_UP, || other.players.listen())?;
            let played = this.players.window(&this.server, WINDOW, || other.players.listen())?;
            if round >= warm_up {
                this.windows.push(played);
            }
            sides.reverse();
        }
    }
    let cpu = |side: &Side| Spread::of(side.windows.iter().map(Played::cpu_ns));
    for side in &sides {
        let name = format!("crowded: CPU per message, {}", side.name);
        results.figure(name, cpu(side).map(|cpu| cpu.median), "ns", Goal::Shown, "");
        let here: Vec<Used> = side.windows.iter().map(|played| played.here).collect();
        crate::show_own_cpu(&here, results, &format!("crowded, {}", side.name));
    }
    let pairs = sides[0].windows.iter().zip(&sides[1].windows);
    let ratio = Spread::of(pairs.map(|(many, few)| many.cpu_ns() / few.cpu_ns()));
    let note = ratio.map_or_else(String::new, |ratio| format!("{:.2} to {:.2}", ratio.least, ratio.most));
    let name = format!("crowded: CPU per message, {many} connections over {few}, {per_second}/s in all");
    results.figure(name, ratio.map(|ratio| ratio.median), "x", Goal::AtMost(CPU_RATIO), &note);
    let mut drops = dropped.count();
    for mut side in sides {
        side.players.settle();
        let part = format!("crowded, {}", side.name);
        let sent = side.players.datagrams();
        let served = side.players.close(&part, side.server, drops, results)?;
        // What one server missed is no excuse for the next.
        drops = drops.saturating_sub(missing(sent, &served));
        crate::all_connected(&side.ramped)?;
    }
    Ok(())
}

impl Side {
    fn open(clients: u32, (workers, core): (u32, Option<usize>), per_second: u64) -> Result<Self, String> {
        let server = Does::Echo.start(workers, clients, core)?;
        let mut crowd = Crowd::bind(SOCKETS, clients)?;
        let to = (server.address()?, key().public());
        let ramp = RAMP_PER_SECOND * u64::from(workers);
        let ramped = crowd.connect(to, clients.into(), ramp, |_, _| {})?;
        println!(
            "connected {} in {:.1} s, failed: {:?}",
            ramped.connected,
            ramped.took.as_secs_f64(),
            ramped.failed
        );
        let (name, players) = (format!("{clients} connections"), Players::new(crowd, per_second));
        Ok(Self { name, server, players, ramped, windows: Vec::new() })
    }
}
