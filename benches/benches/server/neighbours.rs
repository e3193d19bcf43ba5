//! Latency and loss of well-behaved players next to a misbehaving client.
//!
//! 200 players each send 60 messages per second at fixed times to an async server with a task per connection, and get them back. The
//! arms differ in the neighbor, which is one more connection:
//!
//! - `quiet`: there is none.
//! - `stalled`: it sends 100,000 reliable messages per second to a task that never receives. There is an arm for each policy of a full
//!   queue. The bytes that both ends keep for it have a limit, and the policy must count its actions.
//! - `abuser`: it sends 100,000 packets per second to a task that receives them. The bench `counts` limits the cost of each packet.
//!
//! Players and neighbor share one thread, so the neighbor's own cost raises the players' latency. The figures are therefore no lower than
//! the truth.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire::WhenFull;
use drumfire_benches::roles::{EchoConfig, Interface};
use drumfire_benches::traffic::{Shape, Traffic};
use drumfire_benches::{
    Arm, Bench, Cores, FIRST_RECEIVED, FLOOD_MEMORY_BYTES, FLOOD_PER_SECOND, Flood, Goal, Measured, Outcome,
    Pick, Results, count, interleave, ratio_note, receive_first,
};

use crate::round::{Round, load};

const PLAYERS: Traffic = load(Shape::Open { rate: 60 }, 200);

/// More than the players and the neighbor.
const CONNECTIONS_MAX: u32 = 256;

/// The value of the datagrams that a neighbor sent in a second.
const RATE: &str = "neighbor's datagrams/s";

/// By how much the players' 99th percentile may rise, in milliseconds.
const P99_MS: f64 = 2.0;

/// The bytes that an end keeps for a connection over the connection's memory.
const MEMORY_RATIO: f64 = 1.10;

/// The share of messages that the players may lose next to an abuser, in percent.
const LOST_PERCENT: f64 = 0.1;

/// The share of its packets that the abuser must reach. A weaker flood proves nothing.
const RATE_SHARE: f64 = 0.95;

/// The neighbor of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Neighbor {
    Quiet,
    Stalled(WhenFull),
    Abuser,
}

/// The arms by name. The section of an arm is its name up to the comma. The other arms are compared with the first one.
const ARMS: [(&str, Neighbor); 6] = [
    ("quiet", Neighbor::Quiet),
    ("stalled, block", Neighbor::Stalled(WhenFull::Block)),
    ("stalled, drop oldest", Neighbor::Stalled(WhenFull::DropOldest)),
    ("stalled, drop newest", Neighbor::Stalled(WhenFull::DropNewest)),
    ("stalled, disconnect", Neighbor::Stalled(WhenFull::Disconnect)),
    ("abuser", Neighbor::Abuser),
];

impl Neighbor {
    /// Connects it to a server, if there is one.
    fn connect(self, address: SocketAddr) -> Result<Option<Flood>, String> {
        let when_full = match self {
            Self::Quiet => return Ok(None),
            Self::Stalled(when_full) => Some(when_full),
            Self::Abuser => None,
        };
        Flood::connect(address, when_full).map(Some)
    }
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let seconds = Duration::from_secs;
    let counted = bench.extent().pick(Duration::from_millis(300), seconds(2), seconds(5));
    let cores = bench.pin_load()?;
    let is_wanted =
        |name: &str| name == "quiet" || name.split(',').next().is_some_and(|name| bench.wants(name));
    let wanted: Vec<_> = ARMS.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    let arm = |(name, neighbor)| Arm::new(name, move || round(cores, counted, neighbor));
    let measured = interleave(wanted.iter().copied().map(arm).collect(), bench.plan())?;
    bench.show_echoes("neighbours", &measured, &[(RATE, 0)])?;
    let results = &mut bench.results;
    let Some((quiet, others)) = measured.split_first() else { return Ok(()) };
    results.figure("quiet: players' p99", quiet.millis(P99), "ms", Goal::Shown, &ratio_note(&[quiet]));
    for (arm, (_, neighbor)) in others.iter().zip(&wanted[1..]) {
        figures(results, quiet, arm, *neighbor);
    }
    Ok(())
}

fn round(cores: Cores, counted: Duration, neighbor: Neighbor) -> Result<Outcome, String> {
    let config = EchoConfig::new(Interface::Async, CONNECTIONS_MAX);
    let is_first_silent = neighbor != Neighbor::Quiet;
    let config = EchoConfig { is_first_silent, memory_bytes: Some(FLOOD_MEMORY_BYTES), ..config };
    let (server, address) = config.start(cores.server)?;
    // The neighbor connects before the players: the server takes the first connection for it.
    let mut flood = neighbor.connect(address)?;
    if neighbor == Neighbor::Abuser {
        receive_first(&server)?;
    }
    let mut round = Round::run(PLAYERS, counted, (&server, address), |window, now| {
        flood.as_mut().map_or(Ok(()), |flood| flood.poll(window, now))
    })?;
    let (counts, mut values) = (&round.echo.counts, round.echo.values());
    // All messages of the players, and those that did not return or found no room.
    values.insert("sent", (counts.sent_in_all() + counts.refused) as f64);
    values.insert("lost", (counts.lost + counts.refused) as f64);
    let is_stalled = matches!(neighbor, Neighbor::Stalled(_));
    if let Some(flood) = flood.as_mut().filter(|_| is_stalled) {
        values.insert("kept bytes", receive_first(&server)? as f64);
        flood.settle();
    }
    let (report, served) = round.finish(server, flood.as_ref().map_or(0, Flood::sent), false)?;
    if let Some(flood) = &mut flood {
        values.insert(RATE, flood.sent_in_window() as f64 / counted.as_secs_f64());
        values.insert("memory bytes", flood.memory_max_bytes() as f64);
        if is_stalled {
            flood.close(count(&served, FIRST_RECEIVED))?;
        } else if flood.is_over() {
            return Err("the abuser was dropped".to_owned());
        }
    }
    Ok((report, values))
}

const P99: Pick = |latency| latency.p99;

/// The share of the players' messages that were lost in all rounds, warm-up and void rounds included.
fn lost_percent(arm: &Measured) -> f64 {
    arm.sum("lost") / arm.sum("sent").max(1.0) * 100.0
}

/// Adds the figures of an arm.
fn figures(results: &mut Results, quiet: &Measured, arm: &Measured, neighbor: Neighbor) {
    let rise = arm.millis(P99).zip(quiet.millis(P99)).map(|(arm, quiet)| arm.median - quiet.median);
    let name = format!("{}: players' p99 over that of quiet", arm.name);
    results.figure(name, rise, "ms", Goal::AtMost(P99_MS), &ratio_note(&[quiet, arm]));
    let goal = if neighbor == Neighbor::Abuser { Goal::AtMost(LOST_PERCENT) } else { Goal::Shown };
    let name = format!("{}: players' messages lost", arm.name);
    results.figure(name, Some(lost_percent(arm)), "%", goal, "of all rounds");
    if let Neighbor::Stalled(_) = neighbor {
        let over = |name| arm.value(name).map(|bytes| bytes.max / FLOOD_MEMORY_BYTES as f64);
        for (end, ratio) in [("the server", over("kept bytes")), ("its sender", over("memory bytes"))] {
            let name = format!("{}: bytes that {end} kept, over its memory", arm.name);
            results.figure(name, ratio, "x", Goal::AtMost(MEMORY_RATIO), "the maximum of all rounds");
        }
    } else {
        let name = format!("{}: packets in a second", arm.name);
        let goal = Goal::AtLeast(FLOOD_PER_SECOND as f64 * RATE_SHARE);
        results.figure(name, arm.value(RATE), "", goal, "that its sender reached");
    }
}
