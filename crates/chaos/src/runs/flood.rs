//! C3: floods of each class from many addresses while players play: they lose next to nothing and wait little longer, timers
//! keep their time, and every datagram of the flood is counted by its name.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire_tools::host;

use super::{CROWD, PERIOD, Setting};
use crate::crowd::Crowd;
use crate::flood::{self, Class, Dose};
use crate::marks::{Marks, millis};
use crate::process::{Plan, Report, ServerProcess};
use crate::serve::TICK;
use crate::size::Size;
use crate::still::{Stillness, Witness};
use crate::stop::{Stop, Tried};
use crate::system::{self, Precedence};
use crate::tap::{Samples, Tap};

/// A flood that is aimed at one worker leaves others.
const WORKERS: u16 = 2;

/// Addresses that are all this host's, for a server and those who flood it.
const NETWORK: &str = "10.64.0.0/10";
const SERVER: &str = "10.64.0.1:0";

/// How long the players have it as it is without a flood, in a run that is longer.
const REST: Duration = Duration::from_secs(5);

/// How long the capacity is measured.
const PROBE: Duration = Duration::from_secs(1);

/// The counters of the kernel are read once in this time.
const KERNEL_COUNTERS: Duration = Duration::from_millis(1_500);

/// Of 100,000 unreliable messages fewer than so many may be lost.
const LOST_GOAL: u64 = 100;
const RISE_GOAL: Duration = Duration::from_millis(5);
const LATE_GOAL: Duration = Duration::from_millis(5);

/// A round of which the machine took too much is void, and is played again, so many times in all.
const TRIES: u32 = 3;

/// Where a flood is for one worker alone, players on the others wait so much more or less.
const APART_GOAL: Duration = Duration::from_millis(1);

/// Of empty datagrams, which all have to be counted, and of Hellos each from another address, there are so many.
const MANY: u64 = 1_000_000;

/// For a flood that ends by its count.
const LONG: Duration = Duration::from_secs(600);

/// Of 100 bytes of Hellos without a cookie so many may be answered.
const ANSWER_GOAL: u64 = 10;

/// A server with players, and one more behind a tap.
struct Scene {
    server: ServerProcess,
    plan: Plan,
    crowd: Crowd,
    tap: Tap,
    /// Datagrams of all floods so far.
    flooded: u64,
    /// The worker of the one behind the tap, which floods are aimed at.
    target: u64,
    cores: Option<Cores>,
    size: Size,
}

/// What was counted at a moment without traffic.
struct Moment {
    said: u64,
    missing: u64,
    round_trip: Duration,
    /// Of players on other workers than the one behind the tap.
    apart: Duration,
    /// Memory of the server.
    bytes: u64,
    report: Report,
}

/// What came of a flood.
struct Round {
    before: Moment,
    sent: u64,
    /// How late ticks of the flooded worker were, p99.9.
    late: Duration,
    /// What the machine took meanwhile; not known where it shares the only core.
    still: Stillness,
    after: Moment,
}

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    setting.other()?;
    system::call("ip", &format!("route add local {NETWORK} dev lo"))?;
    let (players, time) =
        (setting.size.of(50, CROWD, CROWD), Duration::from_secs(setting.size.of(2, 10, 60)));
    let cores = Cores::find();
    if let Some(Cores { others, .. }) = cores {
        // All that is started from here on stays there too, until it is told otherwise.
        host::pin_current_thread(others).tried("a core")?;
        system::put_first(host::current_thread_id().tried("the name of a thread")?, Precedence::Players)?;
    }
    // A worker that shares a core with players is late because of them: it is there for floods that do not reach it.
    let (aimed, spread): (Vec<_>, Vec<_>) = Class::FLOODS.into_iter().partition(|class| class.is_aimed());
    for (workers, classes) in [(1, spread), (WORKERS, aimed)] {
        let mut scene = Scene::new(players, workers, cores, setting.size)?;
        scene.rest(time)?;
        for class in classes {
            scene.flood(class, time, marks)?;
        }
        scene.close_the_books(marks)?;
    }
    Ok(())
}

/// The cores of a run: where two threads share one, they wait for each other for milliseconds at a time. What else the machine
/// runs there waits for workers and players ([`Precedence`]).
#[derive(Clone, Copy)]
struct Cores {
    /// Of the worker that floods are aimed at.
    alone: usize,
    /// Of all the rest: other workers, players, and the flood, which gives way to them.
    others: usize,
}

impl Cores {
    /// `None` where there is but one, or nobody may say who runs where.
    fn find() -> Option<Self> {
        match host::allowed_cores().as_deref() {
            Some(&[alone, others, ..]) => Some(Self { alone, others }),
            _ => None,
        }
    }

    /// Keeps the workers of a server where they belong.
    fn part(self, server: &mut ServerProcess, workers: u16, target: u64) -> Result<(), Stop> {
        for worker in 0..u64::from(workers) {
            let core = if worker == target { self.alone } else { self.others };
            server.tell(&format!("pin {worker} {core}"))?;
        }
        Ok(())
    }
}

impl Scene {
    fn new(players: usize, workers: u16, cores: Option<Cores>, size: Size) -> Result<Self, Stop> {
        let address = SERVER.parse().map_err(|why| Stop::failed(SERVER, why))?;
        let mut plan = Plan::new(address, workers)?;
        let mut server = plan.start()?;
        let mut crowd = Crowd::connect(&plan, players, PERIOD, &ClientConfig::default())?;
        let tap = Tap::start(plan.address())?;
        crowd.begin(&plan.token_at(players, tap.address)?, &ClientConfig::default())?;
        crowd.until("the one behind the tap plays too", |player| player.ordered.heard > 20)?;
        let report = server.report()?;
        let target = report.worker_of(players).tried("the worker of the one behind the tap")?;
        for (at, player) in crowd.players.iter_mut().enumerate() {
            player.is_apart = report.worker_of(at).is_some_and(|worker| worker != target);
        }
        if let Some(cores) = cores {
            cores.part(&mut server, workers, target)?;
        }
        Ok(Self { server, plan, crowd, tap, flooded: 0, target, cores, size })
    }

    /// Plays without a flood for so long.
    fn rest(&mut self, time: Duration) -> Result<Moment, Stop> {
        self.crowd.forget();
        self.crowd.go_on(time);
        self.look()
    }

    /// Waits until nothing is under way, and looks.
    fn look(&mut self) -> Result<Moment, Stop> {
        let (round_trip, apart) = (self.crowd.round_trip(99.0), self.crowd.apart.percentile(99.0));
        self.crowd.settle()?;
        self.crowd.rest(KERNEL_COUNTERS);
        Ok(Moment {
            said: self.crowd.sum(|player| player.lossy.said),
            missing: self.crowd.sum(|player| player.lossy.missing()),
            round_trip,
            apart,
            bytes: self.server.holds()?.bytes,
            report: self.server.report()?,
        })
    }

    /// Plays while this is sent; answers how many datagrams that were.
    fn play_under(&mut self, dose: Dose, samples: &Samples) -> Result<u64, Stop> {
        let flood = flood::start(dose, self.plan.address(), samples.clone())?;
        while !flood.is_finished() {
            self.crowd.step();
        }
        let sent = flood::join(flood)?;
        self.flooded += sent;
        Ok(sent)
    }

    /// Plays without it, then while this is sent, with an eye on the core.
    fn play_round(&mut self, dose: Dose, samples: &Samples) -> Result<Round, Stop> {
        let witness = self.cores.map(|cores| Witness::start(cores.alone, TICK)).transpose()?;
        let before = self.rest(REST.min(dose.time))?;
        self.server.tell("forget")?;
        self.crowd.forget();
        let sent = self.play_under(dose, samples)?;
        let late = self.server.report()?.late(self.target);
        let still = witness.map_or(Ok(Stillness::default()), Witness::end)?;
        Ok(Round { before, sent, late, still, after: self.look()? })
    }

    fn flood(&mut self, class: Class, time: Duration, marks: &mut Marks) -> Result<(), Stop> {
        // What is sent once more has come before, which nobody knows of what is under way in a flood.
        self.tap.forget_packets();
        let idle = self.rest(REST.min(time))?;
        let samples = self.tap.samples();
        let probe = Dose { class, rate: None, time: PROBE, count: u64::MAX };
        let probed = self.play_under(probe, &samples)?;
        let dropped = self.look()?.report.sum("/kernel_dropped") - idle.report.sum("/kernel_dropped");
        // What it took in a second, of what it could be sent.
        let capacity = probed.saturating_sub(dropped);
        let (name, dose) = (class.name(), self.dose(class, capacity / 2, time));
        let mut round = self.play_round(dose, &samples)?;
        for _ in 1..TRIES {
            if !round.still.is_too_much() {
                break;
            }
            marks.note(format_args!("{name}: void, for {}; again", round.still));
            round = self.play_round(dose, &samples)?;
        }
        if round.still.is_too_much() {
            marks
                .note(format_args!("{name}: judged although {}; repeat it on a calmer machine", round.still));
        }
        let Round { ref before, sent, ref after, .. } = round;
        let (said, lost) = (after.said - before.said, after.missing.saturating_sub(before.missing));
        marks.note(format_args!(
            "{name}: {probed} in a second, {dropped} of them dropped by the kernel; then {sent} at {} per second",
            capacity / 2
        ));
        marks.share_below(&format!("{name}: unreliable messages of players lost"), lost, said, LOST_GOAL);
        let rise = after.round_trip.saturating_sub(before.round_trip);
        marks.within(&format!("{name}: the rise of p99 from {}", millis(before.round_trip)), rise, RISE_GOAL);
        marks.within(&format!("{name}: timers late, p99.9"), round.late, LATE_GOAL);
        let kernel = after.report.sum("/kernel_dropped") - before.report.sum("/kernel_dropped");
        let named = named(class, &after.report) - named(class, &before.report);
        // Some of what was dropped may be the players': the books at the end are exact.
        marks.at_least(&format!("{name}: counted by name or dropped by the kernel"), named + kernel, sent);
        marks.at_least(&format!("{name}: sent"), sent, self.least(class).max(1));
        if self.size == Size::Quick && class.is_counted() {
            marks.not_judged(&format!("{name}: {MANY} sent"), "which takes longer");
        }
        match class {
            Class::Empties => {
                marks.at_most("empties counted by name", named, sent);
            }
            Class::Spoofed => answers(before, after, sent, marks),
            _ if class.is_aimed() => self.others(before, after, name, marks),
            _ => {}
        }
        Ok(())
    }

    /// As much of it as fits the time. Where there has to be so much it ends by its count, for a sender is late now and then.
    fn dose(&self, class: Class, rate: u64, time: Duration) -> Dose {
        let (time, count) = match self.least(class) {
            0 => (time, u64::MAX),
            least => (LONG, least.max(rate * time.as_secs())),
        };
        Dose { class, rate: Some(rate), time, count }
    }

    /// So many datagrams of it there have to be.
    fn least(&self, class: Class) -> u64 {
        if class.is_counted() { self.size.of(0, MANY, MANY) } else { 0 }
    }

    /// What players have of it whose workers it does not reach.
    fn others(&self, before: &Moment, after: &Moment, name: &str, marks: &mut Marks) {
        let players = self.crowd.count(|player| player.is_apart);
        marks.at_least(&format!("{name}: players on other workers"), players, 1);
        let rise = format!("{name}: off from p99 {} of other workers' players", millis(before.apart));
        marks.within(&rise, after.apart.abs_diff(before.apart), APART_GOAL);
    }

    /// What everybody sent is what the server had and what the kernel dropped, and no player is the worse for any of it.
    fn close_the_books(&mut self, marks: &mut Marks) -> Result<(), Stop> {
        self.look()?;
        let crowd = &self.crowd;
        marks.equal("players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
        marks.equal("messages twice or out of order", crowd.wrong(), 0);
        marks.equal("reliable messages lost", crowd.sum(|player| player.ordered.missing()), 0);
        let report = self.server.report()?;
        let players = self.crowd.players.len() - 1;
        let of_players = self.crowd.players.iter().take(players);
        let of_players: u64 = of_players.map(|player| player.client.stats().sent.datagrams).sum();
        let sent = of_players + self.tap.to_server() + self.flooded;
        marks.equal("datagrams sent and not known to the server", sent.abs_diff(report.known_datagrams()), 0);
        marks.equal("datagrams in no counter", report.unexplained(), 0);
        marks.note(format_args!("{sent} datagrams in all, {} of them of floods", self.flooded));
        Ok(())
    }
}

/// What those who may not exist get of the server, and what it keeps of them: an answer far smaller than the question, and nothing.
fn answers(calm: &Moment, after: &Moment, sent: u64, marks: &mut Marks) {
    let more = |path: &str| after.report.sum(path) - calm.report.sum(path);
    let (asked, answered) = (more("/protocol/hello_bytes"), more("/protocol/retry_bytes"));
    let hundredths = (answered * 100).div_ceil(asked.max(1));
    marks.at_most("bytes of answers for 100 of Hellos from everywhere", hundredths, ANSWER_GOAL);
    let connections = after.report.sum("/connections").abs_diff(calm.report.sum("/connections"));
    marks.equal("connections more or less after Hellos from everywhere", connections, 0);
    let grown = after.bytes.saturating_sub(calm.bytes);
    marks.at_most("bytes of the server more, of which each source would take more than one", grown, sent);
}

/// Datagrams of the class under the names that it may be counted by.
fn named(class: Class, report: &Report) -> u64 {
    let dropped = |names: &[&str]| -> u64 {
        names.iter().map(|name| report.sum(&format!("/protocol/dropped/{name}"))).sum()
    };
    let in_packets = dropped(&["duplicate", "too_old", "pass_share", "forged", "connection_closed"]);
    match class {
        // Each is asked for a cookie, or not, where that would be too many.
        Class::Hellos | Class::Spoofed => {
            report.sum("/protocol/handshakes_received") + dropped(&["retry_limit", "forward_full"])
        }
        // Noise that looks like a Hello is asked for a cookie too.
        Class::Junk => {
            report.sum_of_map("/protocol/dropped")
                + report.sum_of_map("/received/dropped")
                + report.sum("/protocol/handshakes_received")
        }
        Class::Replays => in_packets,
        Class::Forged => in_packets + dropped(&["fixed_bits", "packet_number_length"]),
        // One in 16 million is an id that the server would make.
        Class::Aimed | Class::Tagged => dropped(&["forged_id", "unknown_connection"]),
        Class::Empties => report.sum("/received/dropped/empty"),
    }
}
