//! Latency and loss of well-behaved players next to a client that is not.
//!
//! 200 players each send 60 messages per second at fixed times to an async server with a task per connection, and get them back. The
//! arms differ in the guest, which is one more connection:
//!
//! - `quiet`: there is none.
//! - `stalled`: it sends 100,000 reliable messages per second to a task that never receives. There is an arm for each policy of a full
//!   queue. The bytes that both ends keep for it have a limit, and the policy must count its actions.
//! - `abuser`: it sends 100,000 packets per second to a task that receives them.
//! - `spender`: it sends as many of the most expensive packets that the protocol permits.
//!
//! Players and guest share one thread, so the guest's own cost raises the players' latency. The figures are therefore no lower than
//! the truth.

pub(crate) mod server;

use std::time::Duration;

use drumfire::WhenFull;
use drumfire_benches::traffic::{Shape, Traffic};
use drumfire_benches::{
    Arm, Bench, Child, Cores, Flood, FloodConfig, Goal, Measured, Outcome, Pick, Spender, count, interleave,
    ratio_note,
};

use crate::round::{Round, load};

const PLAYERS: Traffic = load(Shape::Open { rate: 60 }, 200);

/// Messages or packets per second of a guest. Both memories of a stalled one are full within a hundredth of a second.
const PER_SECOND: u64 = 100_000;

/// Memory of each connection at either end, for sending and for receiving.
const MEMORY_BYTES: usize = 256 * 1_024;

/// The size of a guest's message. Each fills a packet of its own.
const MESSAGE_BYTES: usize = 1_000;

/// By how much the players' 99th percentile may rise, in milliseconds.
const P99_MS: f64 = 2.0;

/// The bytes that an end keeps for a connection over the connection's memory.
const MEMORY_RATIO: f64 = 1.10;

/// The share of messages that the players may lose next to an abuser, in percent.
const LOST_PERCENT: f64 = 0.1;

/// The share of its packets that the abuser must reach. A weaker flood proves nothing.
const RATE_SHARE: f64 = 0.95;

/// The guest of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    Quiet,
    Stalled(WhenFull),
    Abuser,
    Spender,
}

/// The arms by name. The section of an arm is its name up to the comma.
const ARMS: [(&str, Guest); 7] = [
    ("quiet", Guest::Quiet),
    ("stalled, block", Guest::Stalled(WhenFull::Block)),
    ("stalled, drop oldest", Guest::Stalled(WhenFull::DropOldest)),
    ("stalled, drop newest", Guest::Stalled(WhenFull::DropNewest)),
    ("stalled, disconnect", Guest::Stalled(WhenFull::Disconnect)),
    ("abuser", Guest::Abuser),
    ("spender", Guest::Spender),
];

impl Guest {
    fn named(name: &str) -> Option<Self> {
        ARMS.into_iter().find(|(known, _)| *known == name).map(|(_, guest)| guest)
    }

    /// The flood that the guest sends, if it is one.
    const fn flood(self) -> Option<FloodConfig> {
        let (is_reliable, when_full) = match self {
            Self::Quiet | Self::Spender => return None,
            Self::Stalled(when_full) => (true, when_full),
            Self::Abuser => (false, WhenFull::Block),
        };
        let (message_bytes, memory_bytes) = (MESSAGE_BYTES, MEMORY_BYTES);
        Some(FloodConfig { per_second: PER_SECOND, message_bytes, is_reliable, when_full, memory_bytes })
    }
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let seconds = Duration::from_secs;
    let counted = bench.extent().pick(Duration::from_millis(300), seconds(2), seconds(5));
    let cores = bench.pin_load()?;
    // The other arms are compared with the quiet one, which always runs.
    let is_wanted =
        |name: &str| name == "quiet" || name.split(',').next().is_some_and(|name| bench.wants(name));
    let arms = ARMS.into_iter().filter(|(name, _)| is_wanted(name));
    let arm = |(name, guest)| Arm::new(name, move || round(cores, counted, name, guest));
    let measured = interleave(arms.map(arm).collect(), bench.plan())?;
    bench.show_echoes("neighbours", &measured, &[("guest's datagrams/s", 0)])?;
    figures(bench, &measured);
    Ok(())
}

fn round(cores: Cores, counted: Duration, name: &str, guest: Guest) -> Result<Outcome, String> {
    let (server, to) = Child::server(server::ASYNC, Some(cores.server), &name)?;
    // The guest connects before the players: the server takes the first connection for it.
    let mut flood = guest.flood().map(|config| Flood::connect(to, config)).transpose()?;
    let mut spender = (guest == Guest::Spender).then(|| Spender::connect(to, PER_SECOND)).transpose()?;
    let round = Round::run(PLAYERS, counted, (&server, to), |window, now| {
        flood.as_mut().map_or(Ok(()), |flood| flood.poll(window, now))?;
        spender.as_mut().map_or(Ok(()), |spender| spender.poll(window, now))
    })?;
    let (counts, mut values) = (&round.echo.counts, round.echo.values());
    // All messages of the players, and those that did not come back or found no room.
    values.insert("sent", (counts.sent_in_all() + counts.refused) as f64);
    values.insert("lost", (counts.lost + counts.refused) as f64);
    if let (Some(flood), Guest::Stalled(_)) = (&mut flood, guest) {
        values.insert("kept bytes", server::take(&server)? as f64);
        flood.settle();
    }
    let sent = flood.as_ref().map(Flood::sent).or(spender.as_ref().map(Spender::sent));
    let in_window =
        flood.as_ref().map(Flood::sent_in_window).or(spender.as_ref().map(Spender::sent_in_window));
    let (report, served) = round.finish(server, sent.unwrap_or(0), false)?;
    if let Some(sent) = in_window {
        values.insert("guest's datagrams/s", sent as f64 / counted.as_secs_f64());
    }
    if let Some(flood) = &flood {
        values.insert("memory bytes", flood.memory_most_bytes() as f64);
        match guest {
            Guest::Stalled(_) => flood.close(count(&served, server::HEARD))?,
            _ if flood.is_over() => return Err("the abuser was dropped".to_owned()),
            _ => {}
        }
    }
    Ok((report, values))
}

const P99: Pick = |latency| latency.p99;

/// The share of the players' messages that were lost in all rounds, warm-up and void rounds included.
fn lost_percent(arm: &Measured) -> f64 {
    arm.sum("lost") / arm.sum("sent").max(1.0) * 100.0
}

fn figures(bench: &mut Bench, measured: &[Measured]) {
    let Some(quiet) = measured.first() else { return };
    let results = &mut bench.results;
    results.spread("quiet: players' p99", quiet.millis(P99), "ms", Goal::Shown, &ratio_note(&[quiet]));
    for arm in measured.iter().skip(1) {
        let guest = Guest::named(&arm.name);
        let rise = arm.millis(P99).zip(quiet.millis(P99)).map(|(arm, quiet)| arm.median - quiet.median);
        let name = format!("{}: players' p99 over that of quiet", arm.name);
        results.figure(name, rise, "ms", Goal::AtMost(P99_MS), &ratio_note(&[quiet, arm]));
        let goal = match guest {
            Some(Guest::Abuser) => Goal::AtMost(LOST_PERCENT),
            Some(Guest::Spender) => Goal::AtMost(0.0),
            _ => Goal::Shown,
        };
        let name = format!("{}: players' messages lost", arm.name);
        results.figure(name, Some(lost_percent(arm)), "%", goal, "of all rounds");
        if let Some(Guest::Stalled(_)) = guest {
            let over = |name| arm.value(name).map(|bytes| bytes.most / MEMORY_BYTES as f64);
            for (end, ratio) in [("the server", over("kept bytes")), ("its sender", over("memory bytes"))] {
                let name = format!("{}: bytes that {end} kept, over its memory", arm.name);
                results.figure(name, ratio, "x", Goal::AtMost(MEMORY_RATIO), "the most of all rounds");
            }
        } else {
            let name = format!("{}: packets in a second", arm.name);
            let goal = Goal::AtLeast(PER_SECOND as f64 * RATE_SHARE);
            results.spread(name, arm.value("guest's datagrams/s"), "", goal, "that its sender reached");
        }
    }
}
