//! C3: floods of each class from many addresses while players play. Players lose almost nothing and wait little longer, timers are
//! on time, and every datagram of a flood is counted by its name.

use std::time::Duration;

use drumfire_tools::host::{self, cpu_ticks};
use drumfire_tools::report::STEAL_LIMIT;

use super::{KERNEL_COUNTERS, Setting, Size, Testbed};
use crate::error::{Error, ErrorContext};
use crate::flood::{self, FloodClass, FloodPlan};
use crate::host::{Priority, call, set_priority};
use crate::marks::Marks;
use crate::players::Players;
use crate::process::{Report, ServerSpec};
use crate::relay::{Relay, Samples};
use crate::traffic::millis;

/// A flood that is aimed at one worker must not affect the other.
const WORKERS: u16 = 2;

/// A network whose addresses are all local, for the server and for the floods.
const NETWORK: &str = "10.64.0.0/10";
const SERVER: &str = "10.64.0.1:0";

/// The longest time that players play without a flood for comparison.
const BASELINE: Duration = Duration::from_secs(5);

/// The time in which the server's capacity is measured.
const PROBE: Duration = Duration::from_secs(1);

/// Unreliable messages of 100,000 that may be lost.
const LOST_GOAL: u64 = 100;
const RISE_GOAL: Duration = Duration::from_millis(5);
const LATE_GOAL: Duration = Duration::from_millis(5);

/// The rise, or fall, of the round trip for players on workers that a flood does not reach.
const ELSEWHERE_GOAL: Duration = Duration::from_millis(1);

/// Attempts at a round in which the host of a virtual machine left it its cores.
const TRIES: u32 = 3;

/// The datagrams of floods that prove something by their number.
const MANY: u64 = 1_000_000;

/// Bytes of answers for 100 bytes of Hellos without a cookie.
const ANSWER_GOAL: u64 = 10;

/// A server with players, one of them behind a relay.
struct Scene {
    bed: Testbed,
    relay: Relay,
    /// Datagrams of all floods.
    flooded: u64,
    /// The worker of the player behind the relay, at which floods are aimed.
    target: u64,
    size: Size,
}

/// The counts at a moment without traffic.
struct Snapshot {
    sent: u64,
    missing: u64,
    round_trip: Duration,
    round_trip_elsewhere: Duration,
    server_bytes: u64,
    report: Report,
}

/// The result of a flood.
struct Round {
    before: Snapshot,
    sent: u64,
    /// How late the ticks of the flooded worker were, p99.9.
    late: Duration,
    /// The share of the time of all cores that the host of a virtual machine took. 0 if the system does not report it.
    stolen: f64,
    after: Snapshot,
}

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    call("ip", &format!("route add local {NETWORK} dev lo"))?;
    let (players, time) = (setting.size.many_players(), setting.size.secs(2, 10, 60));
    // Two threads on one core delay each other by milliseconds. The first core is for the worker that floods are aimed at, and the
    // second for other workers, the players, and the flood, which has the lowest priority.
    let cores = host::allowed_cores().and_then(|cores| cores.first_chunk().copied());
    if let Some([_, others]) = cores {
        // Threads and processes that start later inherit the core.
        host::pin_current_thread(others).context("a core")?;
        set_priority(host::current_thread_id().context("a thread id")?, Priority::Players)?;
    }
    // A worker that shares a core with players would be late because of them. So only aimed floods get a second worker.
    let (aimed, spread): (Vec<_>, Vec<_>) =
        FloodClass::ALL_WITHSTOOD.into_iter().partition(|class| class.is_aimed());
    for (workers, classes) in [(1, spread), (WORKERS, aimed)] {
        let mut scene = Scene::new(players, workers, cores, setting.size)?;
        scene.play_calm(time)?;
        for class in classes {
            scene.flood(class, time, marks)?;
        }
        scene.close_books(marks)?;
    }
    Ok(())
}

impl Scene {
    fn new(players: usize, workers: u16, cores: Option<[usize; 2]>, size: Size) -> Result<Self, Error> {
        let spec = ServerSpec::new(SERVER.parse().context(SERVER)?, workers)?;
        let mut bed = Testbed::start(spec, players, Players::default())?;
        let relay = Relay::start(bed.spec.config.address)?;
        bed.players.add(&bed.spec.token_via(players, relay.address)?)?;
        bed.players.until("the player behind the relay plays", |player| player.ordered.received > 20)?;
        let report = bed.server.report()?;
        let target = report.worker_of(players).context("the worker of the player behind the relay")?;
        for (index, player) in bed.players.list.iter_mut().enumerate() {
            player.is_elsewhere = report.worker_of(index).is_some_and(|worker| worker != target);
        }
        if let Some([flooded, others]) = cores {
            for worker in 0..u64::from(workers) {
                let core = if worker == target { flooded } else { others };
                bed.server.command(&format!("pin {worker} {core}"))?;
            }
        }
        Ok(Self { bed, relay, flooded: 0, target, size })
    }

    /// Plays without a flood.
    fn play_calm(&mut self, time: Duration) -> Result<Snapshot, Error> {
        self.bed.players.reset();
        self.bed.players.play(time);
        self.snapshot()
    }

    /// Waits until no message is on its way, and returns the counts.
    fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let Testbed { players, server, .. } = &mut self.bed;
        let (round_trip, round_trip_elsewhere) =
            (players.times.round_trips.percentile(99.0), players.times.elsewhere.percentile(99.0));
        players.settle()?;
        players.listen(KERNEL_COUNTERS);
        Ok(Snapshot {
            sent: players.sum(|player| player.lossy.sent),
            missing: players.lossy_missing(),
            round_trip,
            round_trip_elsewhere,
            server_bytes: server.memory_bytes()?,
            report: server.report()?,
        })
    }

    /// Plays during a flood. Returns the number of its datagrams.
    fn play_flooded(&mut self, plan: FloodPlan, samples: &Samples) -> Result<u64, Error> {
        let flood = plan.start(self.bed.spec.config.address, samples.clone())?;
        while !flood.is_finished() {
            self.bed.players.step();
        }
        let sent = flood::join(flood)?;
        self.flooded += sent;
        Ok(sent)
    }

    /// Plays without and then with a flood.
    fn play_round(&mut self, plan: FloodPlan, samples: &Samples) -> Result<Round, Error> {
        let ticks = cpu_ticks();
        let before = self.play_calm(BASELINE.min(plan.time))?;
        self.bed.server.command("reset-lateness")?;
        self.bed.players.reset();
        let sent = self.play_flooded(plan, samples)?;
        let late = self.bed.server.report()?.value(&format!("/late_us/{}", self.target));
        let late = Duration::from_micros(late);
        let stolen = cpu_ticks().zip(ticks).and_then(|(now, then)| now.steal_share_since(&then));
        Ok(Round { before, sent, late, stolen: stolen.unwrap_or(0.0), after: self.snapshot()? })
    }

    fn flood(&mut self, class: FloodClass, time: Duration, marks: &mut Marks) -> Result<(), Error> {
        // Samples from before the pause have surely arrived, so that each one is a replay.
        self.relay.relayed().samples.packets.clear();
        let calm = self.play_calm(BASELINE.min(time))?;
        let samples = self.relay.relayed().samples.clone();
        let probe = FloodPlan { class, rate: None, time: PROBE, count: u64::MAX };
        let probed = self.play_flooded(probe, &samples)?;
        let dropped = self.snapshot()?.report.sum("/kernel_dropped") - calm.report.sum("/kernel_dropped");
        // The flood has half the rate that the server processed in the probe.
        let rate = probed.saturating_sub(dropped) / 2;
        let least = if class.is_counted() { self.size.of(0, MANY, MANY) } else { 0 };
        // A flood with a required count ends by its count, because its thread may be late.
        let plan = match least {
            0 => FloodPlan { class, rate: Some(rate), time, count: u64::MAX },
            least => FloodPlan::counted(class, Some(rate), least.max(rate * time.as_secs())),
        };
        marks.section(class.name());
        let mut tries = 1;
        let Round { before, sent, late, after, .. } = loop {
            let round = self.play_round(plan, &samples)?;
            if round.stolen <= STEAL_LIMIT {
                break round;
            }
            let percent = 100.0 * round.stolen;
            if tries == TRIES {
                marks.note(format_args!("judged although the host took {percent:.1} % of all cores"));
                break round;
            }
            marks.note(format_args!("repeated, because the host took {percent:.1} % of all cores"));
            tries += 1;
        };
        marks.note(format_args!(
            "{probed} in a second, {dropped} of them dropped by the kernel; then {sent} at {rate} per second"
        ));
        let lost = after.missing.saturating_sub(before.missing);
        marks.share_below("unreliable messages of players lost", lost, after.sent - before.sent, LOST_GOAL);
        let rise = after.round_trip.saturating_sub(before.round_trip);
        marks.within(&format!("the rise of p99 from {}", millis(before.round_trip)), rise, RISE_GOAL);
        marks.within("timers late, p99.9", late, LATE_GOAL);
        let kernel = after.report.sum("/kernel_dropped") - before.report.sum("/kernel_dropped");
        let named = named(class, &after.report) - named(class, &before.report);
        // Some dropped datagrams may be the players'. The books at the end are exact.
        marks.at_least("counted by name or dropped by the kernel", named + kernel, sent);
        marks.at_least("sent", sent, least.max(1));
        if self.size == Size::Quick && class.is_counted() {
            marks.not_judged(&format!("{MANY} sent"), "which takes longer");
        }
        if class.is_aimed() {
            let elsewhere = self.bed.players.count(|player| player.is_elsewhere);
            marks.at_least("players on other workers", elsewhere, 1);
            let (was, is) = (before.round_trip_elsewhere, after.round_trip_elsewhere);
            let name = format!("off from p99 {} of other workers' players", millis(was));
            marks.within(&name, is.abs_diff(was), ELSEWHERE_GOAL);
        }
        marks.section("");
        match class {
            FloodClass::Empties => marks.at_most("empties counted by name", named, sent),
            FloodClass::Spoofed => spoofed_marks(&before, &after, sent, marks),
            _ => {}
        }
        Ok(())
    }

    /// All datagrams that were sent are those that the server received and the kernel dropped.
    fn close_books(&mut self, marks: &mut Marks) -> Result<(), Error> {
        self.snapshot()?;
        marks.unharmed(&self.bed.players);
        let report = self.bed.server.report()?;
        let direct = self.bed.players.list.iter().take(self.bed.players.list.len() - 1);
        let direct: u64 = direct.map(|player| player.client.stats().sent.datagrams).sum();
        let sent = direct + self.relay.relayed().sent + self.flooded;
        marks.equal("datagrams sent and not known to the server", sent.abs_diff(report.known_datagrams()), 0);
        marks.books(&report);
        marks.note(format_args!("{sent} datagrams in all, {} of them of floods", self.flooded));
        Ok(())
    }
}

/// Spoofed sources receive a small answer, and the server keeps nothing of them.
fn spoofed_marks(before: &Snapshot, after: &Snapshot, sent: u64, marks: &mut Marks) {
    let more = |path: &str| after.report.sum(path) - before.report.sum(path);
    let (asked, answered) = (more("/protocol/hello_bytes"), more("/protocol/retry_bytes"));
    let percent = (answered * 100).div_ceil(asked.max(1));
    marks.at_most("bytes of answers for 100 of Hellos from spoofed addresses", percent, ANSWER_GOAL);
    let connections = after.report.sum("/connections").abs_diff(before.report.sum("/connections"));
    marks.equal("connections more or less after Hellos from spoofed addresses", connections, 0);
    let growth = after.server_bytes.saturating_sub(before.server_bytes);
    marks.at_most("bytes of the server more, of which each source would take more than one", growth, sent);
}

/// Returns the datagrams under the names that a class may be counted by.
fn named(class: FloodClass, report: &Report) -> u64 {
    let dropped = |names: &[&str]| -> u64 {
        names.iter().map(|name| report.sum(&format!("/protocol/dropped/{name}"))).sum()
    };
    let in_packets = dropped(&["duplicate", "too_old", "pass_share", "forged", "connection_closed"]);
    match class {
        // Each is answered by a Retry, up to the limit of Retries.
        FloodClass::Hellos | FloodClass::Spoofed => {
            report.sum("/protocol/handshakes_received") + dropped(&["retry_limit", "forward_full"])
        }
        // Random bytes may look like a Hello.
        FloodClass::Junk => {
            report.sum("/protocol/dropped")
                + report.sum("/received/dropped")
                + report.sum("/protocol/handshakes_received")
        }
        FloodClass::Replays => in_packets,
        FloodClass::Forged => in_packets + dropped(&["fixed_bits", "packet_number_length"]),
        // One of 16 million random ids passes the check.
        FloodClass::Aimed | FloodClass::Tagged => dropped(&["forged_id", "unknown_connection"]),
        FloodClass::Empties => report.sum("/received/dropped/empty"),
    }
}
