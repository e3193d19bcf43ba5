//! One window of a load as a report: the books of the messages, the CPU of the server's process, and what a reader must know.

use drumfire_benches::{Child, DropWatch, Usage, UsageWatch};
use drumfire_tools::host::{self, CpuTicks};
use drumfire_tools::report::{
    Books, Counted, CpuTime, Flags, IN_LOST_DATAGRAMS, Latency, Report, ThreadCount,
};

use crate::drive::{Drive, Load, Tally};
use crate::ends::Ends;

/// For which a client's connection had no room.
const NO_ROOM: &str = "no_room";

/// Messages that may be lost with one drop that the kernel counts: a train of up to 64 datagrams to one socket is one drop, and
/// messages share datagrams.
const PER_DROP: u64 = 64 * 4;

/// A schedule whose sends are later than this, for one in ten, is the load's figure.
const LATE_NS: u64 = 500_000;

/// What a round's report is called and of whom it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) who: &'static str,
    pub(crate) slots: u32,
    /// Whether its process has one busy thread: several on one core wait for each other.
    pub(crate) has_one_thread: bool,
}

/// What stands beside a round's report.
pub(crate) struct Beside {
    pub(crate) tally: Tally,
    pub(crate) server: Usage,
    /// Of this process: all clients, on one thread.
    pub(crate) load: Usage,
}

impl Beside {
    /// Percent of a core in the program: the library's code, its ciphers, and the application's.
    pub(crate) fn user_percent(&self) -> f64 {
        self.server.cpu.cpu_time().user_s / self.server.window.as_secs_f64() * 100.0
    }

    /// Percent of a core.
    pub(crate) fn core_percent(&self) -> f64 {
        self.server.core_share() * 100.0
    }

    /// The same of the load, whose thread never rests: where it is less than a whole core, the load had to wait for one.
    pub(crate) fn load_percent(&self) -> f64 {
        self.load.core_share() * 100.0
    }

    /// Datagrams there and back for each message that was said, warm-up included.
    pub(crate) fn datagrams_per_message(&self) -> f64 {
        let carried = self.tally.carried;
        (carried.sent + carried.received) as f64 / self.tally.said.max(1) as f64
    }
}

/// Runs the load once.
///
/// # Errors
///
/// What failed, or which message is nowhere.
pub(crate) fn run<E: Ends>(
    row: Row,
    server: &Child,
    drive: &mut Drive,
    ends: &mut E,
    load: Load,
    beside: impl FnMut() -> Result<(), String>,
) -> Result<(Report, Beside), String> {
    let dropped = DropWatch::begin();
    run_counting(row, server, drive, ends, load, beside, || dropped.count())
}

/// The same, where `kernel_drops` tells what the kernel has dropped so far in front of sockets that carry the load's messages: a
/// message that is lost is held against it.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn run_counting<E: Ends>(
    row: Row,
    server: &Child,
    drive: &mut Drive,
    ends: &mut E,
    load: Load,
    beside: impl FnMut() -> Result<(), String>,
    kernel_drops: impl Fn() -> u64,
) -> Result<(Report, Beside), String> {
    let dropped = kernel_drops();
    let ticks = host::cpu_ticks();
    let strangers = drive.strangers;
    let processes = [server.id(), std::process::id()];
    let watch = || processes.map(UsageWatch::begin);
    let (tally, used) = drive.window(ends, load, watch, |both| both.map(|one| one.used()), beside)?;
    let [Some(server), Some(here)] = used else {
        return Err("the processes' clocks cannot be read".to_owned());
    };
    let steal = host::cpu_ticks()
        .zip(ticks)
        .and_then(|(now, then): (CpuTicks, CpuTicks)| now.steal_share_since(&then));
    let drops = kernel_drops().saturating_sub(dropped);
    if drive.strangers > strangers {
        return Err(format!("{} answers were not on their way", drive.strangers - strangers));
    }
    let mut report = report_of(row, load, &tally, &server, drops);
    let delay_of = |used: &Usage| used.cpu.run_delay_share(used.window);
    let judged = [delay_of(&server).filter(|_| row.has_one_thread), delay_of(&here)];
    report.run_delay_share = judged.into_iter().flatten().reduce(f64::max);
    report.steal_share = steal;
    Ok((report, Beside { tally, server, load: here }))
}

fn report_of(row: Row, load: Load, tally: &Tally, server: &Usage, drops: u64) -> Report {
    // The server was seen a little late: its CPU time is taken for as long as the window is.
    let scale = tally.window.as_secs_f64() / server.window.as_secs_f64();
    let cpu = server.cpu.cpu_time();
    let cpu = CpuTime { user_s: cpu.user_s * scale, sys_s: cpu.sys_s * scale };
    let explained = tally.lost.min(drops.saturating_mul(PER_DROP));
    let offered = tally.sent + tally.refused;
    let mut report = Report::of(Counted {
        flags: Flags::from([
            ("who".to_owned(), row.who.into()),
            ("slots".to_owned(), u64::from(row.slots).into()),
            ("clients".to_owned(), (tally.back_of.len() as u64).into()),
            ("rate".to_owned(), load.per_second.into()),
            ("down".to_owned(), u64::from(load.down_bytes).into()),
        ]),
        machine: host::machine(),
        window: tally.window,
        books: Books::new(offered, tally.back)
            .dropped(NO_ROOM, tally.refused)
            .dropped(IN_LOST_DATAGRAMS, explained),
        threads: vec![ThreadCount { received: tally.back, cpu: Some(cpu), ..ThreadCount::default() }],
        ..Counted::default()
    });
    report.latency_ns = Latency::of(&tally.latency);
    report.offered = Some(offered);
    let late = tally.delay.value_at_quantile(0.9);
    report.limited_by = (late > LATE_NS).then(|| "load".to_owned());
    report.notes.push(format!(
        "nine messages in ten left within {} us of their time; {} answers came after the window",
        late / 1_000,
        tally.late
    ));
    report
}
