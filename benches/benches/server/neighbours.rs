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
use drumfire_benches::roles::{self, key};
use drumfire_benches::{
    Arm, ArmTable, Bench, Child, Cores, Counts, Flood, FloodConfig, Goal, Measured, Plan, Spender, Spread,
    Values, busy_note, cell, close_books, count, interleave, median_cell,
};
use drumfire_tools::report::{Latency, Report};

use crate::round::{Load, Round};

const PLAYERS: Load = Load { connections: 200, rate: Some(60) };

/// Packets per second of abuser and spender.
const ABUSE_PER_SECOND: u32 = 100_000;

/// Memory of each connection at either end, for sending and for receiving.
const MEMORY_BYTES: usize = 256 * 1_024;

/// The size of a guest's message. Each fills a packet of its own.
const MESSAGE_BYTES: usize = 1_000;

/// Messages per second of the stalled guest. Both memories are full within a hundredth of a second.
const STALLED_PER_SECOND: u64 = 100_000;

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

impl Guest {
    const ALL: [Self; 7] = [
        Self::Quiet,
        Self::Stalled(WhenFull::Block),
        Self::Stalled(WhenFull::DropOldest),
        Self::Stalled(WhenFull::DropNewest),
        Self::Stalled(WhenFull::Disconnect),
        Self::Abuser,
        Self::Spender,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Stalled(WhenFull::Block) => "stalled, block",
            Self::Stalled(WhenFull::DropOldest) => "stalled, drop oldest",
            Self::Stalled(WhenFull::DropNewest) => "stalled, drop newest",
            Self::Stalled(WhenFull::Disconnect) => "stalled, disconnect",
            Self::Abuser => "abuser",
            Self::Spender => "spender",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether the arm runs. The quiet arm always does, because the others are compared with it.
    fn is_wanted(self, bench: &Bench) -> bool {
        match self {
            Self::Quiet => true,
            Self::Stalled(_) => bench.wants("stalled"),
            Self::Abuser => bench.wants("abuser"),
            Self::Spender => bench.wants("spender"),
        }
    }

    /// The flood that the guest sends, if it is one.
    const fn flood(self, abuse_per_second: u64) -> Option<FloodConfig> {
        let (per_second, is_reliable, when_full) = match self {
            Self::Quiet | Self::Spender => return None,
            Self::Stalled(when_full) => (STALLED_PER_SECOND, true, when_full),
            Self::Abuser => (abuse_per_second, false, WhenFull::Block),
        };
        let (message_bytes, memory_bytes) = (MESSAGE_BYTES, MEMORY_BYTES);
        Some(FloodConfig { per_second, message_bytes, is_reliable, when_full, memory_bytes })
    }
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let seconds = |seconds: u32| Duration::from_secs(seconds.into());
    let (plan, counted) = match bench.number("--seconds") {
        Some(length) => (Plan { warm_up: 0, rounds: 1, may_void: bench.plan().may_void }, seconds(length)),
        None => (bench.plan(), bench.extent().pick(Duration::from_millis(300), seconds(2), seconds(5))),
    };
    let abuse_per_second = bench.number("--rate").unwrap_or(ABUSE_PER_SECOND);
    let cores = bench.pin_load()?;
    bench.print_plan(plan, counted);
    let guests: Vec<Guest> = Guest::ALL.into_iter().filter(|guest| guest.is_wanted(bench)).collect();
    let arm = |guest: &Guest| {
        let guest = *guest;
        Arm::with_values(guest.name(), move || round(cores, counted, guest, abuse_per_second.into()))
    };
    let arms = guests.iter().map(arm).collect();
    let measured = interleave(arms, plan.warm_up, plan.rounds, plan.may_void)?;
    println!("  {}", PLAYERS.words());
    ArmTable::new("guest", &measured)
        .column("p50 ms", |arm| median_cell(arm.spread(|report| millis(report, |latency| latency.p50)), 3))
        .column("p99 ms", |arm| cell(p99(arm), 3))
        .column("p99.9 ms", |arm| cell(arm.spread(|report| millis(report, |latency| latency.p999)), 3))
        .column("late by, p99 ms", |arm| median_cell(arm.value("late ms"), 3))
        .column("lost %", |arm| format!("{:.4}", lost_percent(arm)))
        .column("core %", |arm| median_cell(arm.value("core %"), 0))
        .column("load's core %", |arm| median_cell(arm.value("load's core %"), 0))
        .column("guest's datagrams/s", |arm| median_cell(arm.value("guest's datagrams/s"), 0))
        .column("received of it", |arm| median_cell(arm.value("heard"), 0))
        .column("policy acted", |arm| median_cell(arm.value("acted"), 0))
        .print_with_limits();
    bench.results.rounds("neighbours", &measured)?;
    figures(bench, &guests, &measured, abuse_per_second.into());
    Ok(())
}

fn round(
    cores: Cores,
    counted: Duration,
    guest: Guest,
    abuse_per_second: u64,
) -> Result<(Report, Values), String> {
    let server = Child::role(server::ASYNC, Some(cores.server), &[guest.name()])?;
    let to = (server.address()?, key().public());
    // The guest connects before the players: the server takes the first connection for it.
    let mut flood = guest.flood(abuse_per_second).map(|config| Flood::connect(to, config)).transpose()?;
    let is_spender = guest == Guest::Spender;
    let mut spender = is_spender.then(|| Spender::connect(to, abuse_per_second)).transpose()?;
    let round = Round::run(PLAYERS, counted, (&server, to), |window, now| {
        flood.as_mut().map_or(Ok(()), |flood| flood.poll(window, now))?;
        spender.as_mut().map_or(Ok(()), |spender| spender.poll(window, now))
    })?;
    let counts = &round.counts;
    let mut values = Values::from([
        // All messages of the players, and those that did not come back or found no room.
        ("sent", (counts.sent_in_all() + counts.refused) as f64),
        ("lost", (counts.lost + counts.refused) as f64),
        ("core %", round.server.core_share() * 100.0),
        ("load's core %", round.here.core_share() * 100.0),
    ]);
    values.extend(counts.delay.map(|delay| ("late ms", delay.p99 as f64 / 1e6)));
    if let (Some(flood), Guest::Stalled(_)) = (&mut flood, guest) {
        values.insert("kept bytes", server::take(&server)? as f64);
        flood.settle();
    }
    roles::settle();
    let datagrams = round.crowd.carried().sent
        + flood.as_ref().map_or(0, Flood::sent)
        + spender.as_ref().map_or(0, Spender::sent);
    let drops = round.drops();
    let served = server.finish_counts()?;
    round.check(&served)?;
    close_books(datagrams, &served, drops)?;
    let sent = flood.as_ref().map(Flood::sent_in_window).or(spender.as_ref().map(Spender::sent_in_window));
    let per_second = sent.map(|sent| sent as f64 / round.window.length().as_secs_f64());
    values.extend(per_second.map(|rate| ("guest's datagrams/s", rate)));
    if guest != Guest::Quiet {
        values.insert("heard", count(&served, server::HEARD) as f64);
    }
    if let Some(flood) = &flood {
        values.insert("memory bytes", flood.memory_most_bytes() as f64);
        values.insert("acted", policy_actions(flood, guest, &served)? as f64);
    }
    let mut report = round.report(&served, drops, false);
    report.flags.insert("beside".to_owned(), guest.name().into());
    Ok((report, values))
}

/// Closes the books of the guest, and returns the number of times that its policy acted.
fn policy_actions(flood: &Flood, guest: Guest, served: &Counts) -> Result<u64, String> {
    match guest {
        Guest::Stalled(policy) => {
            let books = flood.books(count(served, server::HEARD));
            books.close(policy)?;
            Ok(books.acted(policy))
        }
        _ if flood.is_over() => Err("the abuser was dropped".to_owned()),
        _ => Ok(0),
    }
}

/// One percentile of a round, in milliseconds.
fn millis(report: &Report, of: impl Fn(Latency) -> u64) -> Option<f64> {
    Some(of(report.latency_ns?) as f64 / 1e6)
}

fn p99(arm: &Measured) -> Option<Spread> {
    arm.spread(|report| millis(report, |latency| latency.p99))
}

/// The share of the players' messages that were lost in all rounds, warm-up and void rounds included.
fn lost_percent(arm: &Measured) -> f64 {
    arm.sum("lost") / arm.sum("sent").max(1.0) * 100.0
}

fn figures(bench: &mut Bench, guests: &[Guest], measured: &[Measured], abuse_per_second: f64) {
    let Some(quiet) = measured.first() else { return };
    let results = &mut bench.results;
    let of_quiet = |of: fn(Latency) -> u64| quiet.spread(|report| millis(report, of));
    for (name, spread) in [
        ("p50", of_quiet(|latency| latency.p50)),
        ("p99", of_quiet(|latency| latency.p99)),
        ("p99.9", of_quiet(|latency| latency.p999)),
    ] {
        results.spread(format!("quiet: players' {name}"), spread, "ms", Goal::Shown, note(&[quiet]));
    }
    for (guest, arm) in guests.iter().zip(measured).skip(1) {
        let rise = p99(arm).zip(p99(quiet)).map(|(arm, quiet)| arm.median - quiet.median);
        let name = format!("{}: players' p99 over that of quiet", arm.name);
        results.figure(name, rise, "ms", Goal::AtMost(P99_MS), note(&[quiet, arm]));
        let goal = match guest {
            Guest::Abuser => Goal::AtMost(LOST_PERCENT),
            Guest::Spender => Goal::AtMost(0.0),
            Guest::Quiet | Guest::Stalled(_) => Goal::Shown,
        };
        let name = format!("{}: players' messages lost", arm.name);
        results.figure(name, Some(lost_percent(arm)), "%", goal, "of all rounds");
        if let Guest::Stalled(_) = guest {
            let over = |name| arm.value(name).map(|bytes| bytes.most / MEMORY_BYTES as f64);
            let ends = [
                (
                    "the server",
                    over("kept bytes"),
                    "the most of all rounds; reliable messages may take half of it",
                ),
                ("its sender", over("memory bytes"), "the most of all rounds"),
            ];
            for (end, ratio, note) in ends {
                let name = format!("{}: bytes that {end} kept, over its memory", arm.name);
                results.figure(name, ratio, "x", Goal::AtMost(MEMORY_RATIO), note);
            }
            let name = format!("{}: times that the policy acted", arm.name);
            let note = "the policy's counter, which equals that of the receipts";
            results.spread(name, arm.value("acted"), "", Goal::Shown, note);
        } else {
            let name = format!("{}: packets in a second", arm.name);
            let goal = Goal::AtLeast(abuse_per_second * RATE_SHARE);
            results.spread(name, arm.value("guest's datagrams/s"), "", goal, "that its sender reached");
        }
    }
}

/// The note next to a figure of these arms.
fn note(arms: &[&Measured]) -> &'static str {
    let busy = arms.iter().map(|arm| busy_note(std::slice::from_ref(*arm))).find(|note| !note.is_empty());
    match busy {
        Some(note) => note,
        None if arms.iter().any(|arm| arm.limited_by().is_some()) => "the load's own thread was late",
        None => "",
    }
}
