//! One round: a server process, its connections, one window of traffic, the books, and the report.

use std::path::Path;
use std::time::Duration;

use drumfire_benches::traffic::{Client, Connected, Generator, Polling, Ramp, Shape, Traffic, Turns};
use drumfire_benches::{
    Child, Cores, Counts, DropWatch, EchoCounts, PER_SOCKET, SATURATED, StealWatch, Tally, Usage, UsageWatch,
    Values, Window, close_books, count, counts_text, memory, usage_of,
};
use drumfire_tools::clock;
use drumfire_tools::report::{Flags, KERNEL_RECEIVE_QUEUE, Report};

use crate::subject::Subject;

/// Connections begun per second where there is a handshake. A server accepts 2,000.
pub(crate) const RAMP_PER_SECOND: u64 = 1_700;

/// The time within which all connections must be established, in addition to the ramp.
const PATIENCE: Duration = Duration::from_secs(20);

/// Messages that are not back this long after the window count as undelivered.
const SETTLE: Duration = Duration::from_secs(1);

/// Messages that no drop explains are awaited for this long after the window.
const LAST_PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of the headers of UDP and IPv4.
const HEADERS_BYTES: u64 = 28;

/// Bytes of the headers of a WebSocket message of 126 to 65,535 bytes and of its answer. The client masks its message (RFC 6455, section
/// 5.2).
const FRAMES_BYTES: u64 = 8 + 4;

/// The client limits a schedule with turns when it leaves out more than one turn in this many.
const LATE_LEAST: u64 = 100;

const MIB: f64 = 1_048_576.0;

/// The quantiles of the times in which connections were made, by the names of their values.
pub(crate) const CONNECT_TIMES: [(&str, f64); 7] = [
    ("connect Min", 0.0),
    ("connect TP50", 0.5),
    ("connect TP75", 0.75),
    ("connect TP90", 0.9),
    ("connect TP95", 0.95),
    ("connect TP99", 0.99),
    ("connect Max", 1.0),
];

/// The quantiles of the times of messages, by the names of their values.
const TIMES: [(&str, f64); 8] = [
    ("Min", 0.0),
    ("TP50", 0.5),
    ("TP75", 0.75),
    ("TP90", 0.9),
    ("TP95", 0.95),
    ("TP99", 0.99),
    ("TP99.9", 0.999),
    ("Max", 1.0),
];

/// The traffic of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) name: &'static str,
    pub(crate) connections: usize,
    pub(crate) bytes: usize,
    pub(crate) shape: Shape,
    /// Whether at most one message leaves between two polls of a client. The outstanding messages of the 10,000 connections
    /// of nbio's benchmark would not fit the server's receive buffer.
    pub(crate) has_turns: bool,
}

impl Load {
    fn traffic(self, subject: Subject) -> Traffic {
        Traffic {
            shape: self.shape,
            connections: self.connections,
            per_client: PER_SOCKET,
            bytes: self.bytes,
            answer_bytes: self.bytes,
            channels: 1,
            // A late reliable message of the small loads is in the books, and does not stop its connection.
            may_lose: subject.may_lose() || !self.has_turns,
            may_refuse: false,
            polling: Polling::Single,
            patience: PATIENCE,
            settle: Duration::ZERO,
        }
    }

    fn connect(self, subject: Subject, server: &Child) -> Result<Connected<Box<dyn Client>>, String> {
        let address = server.address()?;
        let per_second =
            matches!(subject, Subject::Drumfire(_)).then_some(RAMP_PER_SECOND).filter(|_| self.has_turns);
        let connections = self.connections;
        let patience = PATIENCE + Duration::from_secs(2 * connections as u64 / RAMP_PER_SECOND);
        let ramp = Ramp { connections, per_client: PER_SOCKET, per_second, patience, has_pauses: false };
        ramp.connect(|count| subject.connect(address, count))
    }

    fn flags(self, subject: Subject) -> Flags {
        let mut flags = Flags::from([
            ("peer".to_owned(), subject.row().into()),
            ("load".to_owned(), self.name.into()),
            ("connections".to_owned(), self.connections.into()),
            ("size".to_owned(), self.bytes.into()),
        ]);
        if let Shape::Open { rate } = self.shape {
            flags.insert("send_rate".to_owned(), rate.into());
            flags.insert("rate".to_owned(), (rate * self.connections as u64).into());
        }
        flags
    }
}

/// Samples both processes at the ends of a window, and the server once per second.
struct Sampler<'a> {
    server: &'a Child,
    window: Window,
    watches: Option<[UsageWatch; 2]>,
    steal: StealWatch,
    /// The end of the present second, and the usage of the server in it.
    second: Option<(u64, UsageWatch)>,
    /// The server's share of a core in each second, in percent.
    cpu_percent: Vec<f64>,
    /// The server's memory at each sample, in MiB.
    memory_mib: Vec<f64>,
}

impl<'a> Sampler<'a> {
    fn new(server: &'a Child, window: Window) -> Self {
        let (cpu_percent, memory_mib) = (Vec::new(), Vec::new());
        let steal = StealWatch::begin();
        Self { server, window, watches: None, steal, second: None, cpu_percent, memory_mib }
    }

    fn sample(&mut self, now: u64) -> Result<(), String> {
        if now < self.window.start || self.second.is_some_and(|(end, _)| now < end) {
            return Ok(());
        }
        match self.second {
            Some((_, watch)) => self.cpu_percent.extend(watch.used().map(|used| used.core_share() * 100.0)),
            None => {
                // The counts that the server prints are read after the window.
                self.server.send_line("counts")?;
                self.steal = StealWatch::begin();
                self.watches = Some([self.server.id(), std::process::id()].map(UsageWatch::begin));
            }
        }
        self.second = Some((now + 1_000_000_000, UsageWatch::begin(self.server.id())));
        self.sample_memory();
        Ok(())
    }

    fn sample_memory(&mut self) {
        self.memory_mib.extend(memory(self.server.id()).map(|memory| memory.resident_bytes as f64 / MIB));
    }

    /// Ends the window.
    fn finish(mut self) -> Result<Sampled, String> {
        // A client that had no core in a short window never came to its start.
        if self.watches.is_none() {
            self.sample(self.window.start)?;
        }
        let [server, client] = usage_of(self.watches.ok_or("the window never began")?)?;
        let steal_share = self.steal.share();
        self.server.send_line("counts")?;
        self.sample_memory();
        let Self { mut cpu_percent, memory_mib, .. } = self;
        if cpu_percent.is_empty() {
            cpu_percent.push(server.core_share() * 100.0);
        }
        Ok(Sampled { server, client, steal_share, counts: Default::default(), cpu_percent, memory_mib })
    }
}

/// The samples of a window.
struct Sampled {
    server: Usage,
    client: Usage,
    steal_share: Option<f64>,
    /// The counts of the server at both ends.
    counts: [Counts; 2],
    cpu_percent: Vec<f64>,
    memory_mib: Vec<f64>,
}

impl Sampled {
    /// The sum of these counts of the server within the window.
    fn count(&self, names: &[&str]) -> u64 {
        let [start, end] = &self.counts;
        names.iter().map(|name| count(end, name).saturating_sub(count(start, name))).sum()
    }
}

/// Runs a round and returns its report with the further values that its tables show.
pub(crate) fn run(
    load: Load,
    subject: Subject,
    (warm_up, counted): (Duration, Duration),
    cores: Cores,
    nbio: Option<&Path>,
) -> Result<(Report, Values), String> {
    let dropped = DropWatch::begin();
    let server = subject.start(load.connections, cores, nbio)?;
    let Connected { clients, times } = load.connect(subject, &server)?;
    let mut generator = Generator::over(load.traffic(subject), clients);
    let window = Window::beginning_at(clock::host_ns() + nanos(warm_up), counted);
    let mut sampler = Sampler::new(&server, window);
    let turns = if load.has_turns {
        generator.run_in_turns(window, |now| sampler.sample(now))?
    } else {
        generator.run(window, |now| sampler.sample(now))?;
        None
    };
    let mut sampled = sampler.finish()?;
    let undelivered = generator.await_outstanding(SETTLE)?;
    // A message that the kernel did not drop may be late on a busy machine, and is not lost.
    if !subject.may_lose() || dropped.count() == 0 {
        generator.await_outstanding(LAST_PATIENCE)?;
    }
    let tally = generator.settle()?;
    // Reading them earlier would delay messages that are still outstanding at the end of the window.
    sampled.counts = [server.counts()?, server.counts()?];
    let served = server.finish_counts()?;
    let (counts, drops) = (tally.finish(), dropped.count());
    close(subject, &counts, turns, &served)?;
    if served.contains_key("socket received") {
        let sent = generator.clients().iter().map(Client::datagrams_sent).sum();
        close_books(sent, &served, drops)?;
    }
    let round = Round { load, subject, window, turns, tally, counts, sampled, undelivered, served };
    let mut values = round.values();
    values.extend(connect_values(load.connections, &times));
    Ok((round.report(drops), values))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Fails for faults that no named drop excuses.
fn close(subject: Subject, counts: &EchoCounts, turns: Option<Turns>, served: &Counts) -> Result<(), String> {
    turns.map_or(Ok(()), |turns| turns.check())?;
    let [received, echoed, refused] = ["received", "echoed", "refused"].map(|name| count(served, name));
    let (sent, back) = (counts.sent_in_all(), counts.back_in_all());
    for (count, what) in [
        (counts.strangers, "messages came back that were not outstanding"),
        (counts.refused, "messages found no room at the client"),
        (refused, "messages found no room at the server"),
        (if subject.may_lose() { 0 } else { counts.lost }, "reliable messages never came back"),
        (sent.abs_diff(back + counts.lost), "messages are in no counter of the client"),
        (received.abs_diff(echoed + refused), "messages are in no counter of the server"),
        (received.saturating_sub(sent), "messages reached the server that were never sent"),
        (back.saturating_sub(echoed), "answers came that were never sent"),
    ] {
        if count > 0 {
            return Err(format!("BOOKS DO NOT CLOSE: {count} {what}"));
        }
    }
    Ok(())
}

/// The rate and the times in which connections were made. A time is that of all connections of a socket.
fn connect_values(connections: usize, times: &[(u64, u64)]) -> Values {
    let begun = times.iter().map(|(begun, _)| *begun).min().unwrap_or(0);
    let end = times.iter().map(|(_, established)| *established).max().unwrap_or(begun);
    let seconds = (end.saturating_sub(begun) as f64 / 1e9).max(1e-9);
    let mut tally = Tally::new(Window { start: 0, end: u64::MAX });
    for (begun, established) in times {
        tally.on_echo(*established, established - begun);
    }
    let latency = tally.latency();
    let mut values = Values::from([
        ("connect TPS", connections as f64 / seconds),
        ("connect Avg", latency.mean() / 1e6),
        ("connect Usage", seconds),
    ]);
    values.extend(CONNECT_TIMES.map(|(name, share)| (name, latency.value_at_quantile(share) as f64 / 1e6)));
    values
}

/// A round whose books close.
struct Round {
    load: Load,
    subject: Subject,
    window: Window,
    turns: Option<Turns>,
    tally: Tally,
    counts: EchoCounts,
    sampled: Sampled,
    undelivered: u64,
    served: Counts,
}

impl Round {
    fn report(&self, drops: u64) -> Report {
        let Self { load, window, counts, sampled, .. } = self;
        let cpu = sampled.server.cpu_over(window.length());
        let lost = [(KERNEL_RECEIVE_QUEUE, counts.lost.min(drops))];
        let rate = load.shape.rate(load.connections);
        let mut report = counts.report(*window, rate, load.flags(self.subject), Some(cpu), &lost);
        report.offered = self.turns.map(|turns| turns.offered).or(report.offered);
        let server_delay = sampled.server.run_delay_share().filter(|_| self.subject.has_one_thread());
        let delays = [server_delay, sampled.client.run_delay_share()];
        report.run_delay_share = delays.into_iter().flatten().reduce(f64::max);
        report.steal_share = sampled.steal_share;
        report.limited_by = self.is_client_limit().then(|| "client".to_owned());
        report
            .notes
            .push(format!("{:.0} % of the client's polls found nothing", counts.idle_share() * 100.0));
        report.notes.extend(counts.delay_note());
        report.notes.push(format!("{} messages were not back after a second", self.undelivered));
        report.notes.extend(self.turns.map(|turns| format!("{turns:?}")));
        report
            .notes
            .push(format!("the server from its first datagram to its last: {}", counts_text(&self.served)));
        report
    }

    fn is_client_limit(&self) -> bool {
        let core_share = self.sampled.server.core_share();
        match self.turns {
            Some(turns) => turns.late * LATE_LEAST > turns.offered,
            // A client with turns is never idle.
            None if self.load.has_turns => core_share < SATURATED,
            None => self.counts.is_client_limit(self.load.shape, core_share),
        }
    }

    /// The columns of the tables. Times are in microseconds, memory is in MiB, and CPU is in percent of a core.
    fn values(&self) -> Values {
        let Self { load, counts, sampled, tally, .. } = self;
        let seconds = self.window.length().as_secs_f64();
        let (tps, cpu) = (counts.echoed as f64 / seconds, sampled.server.core_share() * 100.0);
        let least = |samples: &[f64]| samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
        let memory = &sampled.memory_mib;
        let mut values = Values::from([
            ("TPS", tps),
            ("EER", tps / cpu),
            ("Avg", tally.latency().mean() / 1e3),
            ("EchoEER", tps / cpu),
            ("per CPU second", tps / cpu * 100.0),
            ("Recv/s", tps),
            ("Usage", seconds),
            ("Duration", seconds),
            ("Total", (counts.echoed + counts.lost) as f64),
            ("Success", counts.echoed as f64),
            ("Packet Recv", counts.echoed as f64),
            ("Failed", counts.lost as f64),
            ("Conns", load.connections as f64),
            ("Concurrency", load.connections as f64),
            ("Payload", load.bytes as f64),
            ("CPU Min", least(&sampled.cpu_percent)),
            ("CPU Avg", cpu),
            ("CPU Max", most(&sampled.cpu_percent)),
            ("MEM Min", least(memory)),
            ("MEM Avg", memory.iter().sum::<f64>() / memory.len().max(1) as f64),
            ("MEM Max", most(memory)),
            ("client's CPU", sampled.client.core_share() * 100.0),
            ("undelivered", self.undelivered as f64),
            ("Packet Sent", counts.sent as f64),
            ("Bytes Sent", (counts.sent * load.bytes as u64) as f64 / MIB),
            ("Bytes Recv", (counts.echoed * load.bytes as u64) as f64 / MIB),
        ]);
        let latency = tally.latency();
        values.extend(TIMES.map(|(name, share)| (name, latency.value_at_quantile(share) as f64 / 1e3)));
        if let Some(turns) = self.turns {
            let answered = turns.sent.saturating_sub(self.undelivered) as f64;
            values.extend([
                ("Offered", turns.offered as f64),
                ("skipped for want of room", (turns.no_room + turns.refused) as f64),
                ("skipped because late", turns.late as f64),
                ("answered", answered / turns.offered.max(1) as f64),
            ]);
        }
        if let Shape::Open { rate } = load.shape {
            values.insert("SendRate", rate as f64);
        }
        let packets = sampled.count(&["socket received", "socket sent"]);
        if packets > 0 {
            let calls = sampled.count(&["receive calls", "send calls"]) as f64 / packets as f64;
            let bytes = sampled.count(&["bytes received", "bytes sent"]) + HEADERS_BYTES * packets;
            let per_echo = bytes as f64 / counts.echoed.max(1) as f64;
            values.extend([
                ("calls per packet", calls),
                ("packets per call", 1.0 / calls),
                ("bytes per echo", per_echo),
            ]);
        } else {
            values.insert("bytes per echo", (2 * load.bytes as u64 + FRAMES_BYTES) as f64);
        }
        values
    }
}
