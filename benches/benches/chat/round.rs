//! One run: the server and the clients in processes of their own, a status line for each interval, and the books of both held
//! against each other.

use std::ffi::OsString;
use std::time::Duration;

use drumfire_benches::{Child, Counts, DropWatch, Fanout, close_fanout, count};
use drumfire_tools::host;
use drumfire_tools::report::{Books, Counted, CpuTime, Flags, Latency, Report, ThreadCount};

use crate::plan::{Arm, Plan, ns};
use crate::server::RECEIVE_BUFFER;
use crate::status::{Sample, Status};
use crate::tell::{AT, CPU, DELAY, LAST};
use crate::{bots, server, tcp};

/// The first argument of the processes.
const SERVER: &str = "--chat-server";
const BOTS: &str = "--chat-bots";

/// A p99 that is longer says that a server does not keep up: it gathers for a fifth of this.
const LATE: Duration = Duration::from_millis(250);

/// What a run found.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// At the start, at both ends of what is measured, and at the last.
    start: Sample,
    opened: Sample,
    closed: Sample,
    pub(crate) last: Sample,
    /// Where every message went, or what is off.
    pub(crate) books: Result<Fanout, String>,
    steal_share: Option<f64>,
    workers: u16,
}

/// Runs the server's or the clients' process, if the arguments ask for it.
pub(crate) fn process(args: &[OsString]) -> Option<Result<(), String>> {
    let [mode, plan, rest] = args else { return None };
    let plan = Plan::from_arg(plan.to_str()?)?;
    match mode.to_str()? {
        SERVER if plan.arm == Arm::Tcp => Some(tcp::run(plan)),
        SERVER => Some(server::run(plan, rest.to_str()?.parse().ok()?)),
        BOTS => Some(bots::run(plan, rest)),
        _ => None,
    }
}

/// Runs it; `show` hears every status line.
///
/// # Errors
///
/// What failed, or that the status lines do not make what the server counted; whether the books close stands in [`Run::books`].
pub(crate) fn run(plan: Plan, workers: u16, mut show: impl FnMut(&str)) -> Result<Run, String> {
    let (dropped, ticks) = (DropWatch::begin(), host::cpu_ticks());
    let arg = plan.to_arg();
    let mut server = Child::start("the server", &[SERVER, &arg, &workers.to_string()])?;
    let address = server.line()?;
    let mut clients = Child::start("the clients", &[BOTS, &arg, &address])?;
    let times = wait_for_clients(&server, &clients, plan)?;
    let mut lines =
        Lines { server: &server, clients: &clients, interval_ns: ns(plan.interval).max(1), ahead: None };
    let mut before = lines.until(count(&times, "start"))?;
    let start = before.clone();
    let mut status = Status::after(Sample { server: start.server.clone(), bots: only_time(&start.bots) });
    let (mut opened, mut closed) = (None, None);
    while before.of_bots(LAST) == 0 {
        let sample = lines.next()?;
        if sample.of_bots(LAST) == 0 {
            show(&status.line(&sample));
        }
        let at = sample.of_bots(AT);
        if opened.is_none() && at >= count(&times, "window") {
            opened = Some(sample.clone());
        }
        if closed.is_none() && at >= count(&times, "end") {
            closed = Some(sample.clone());
        }
        before = sample;
    }
    // Nobody has left yet: these are the server's books.
    server.end();
    let mut counts = server.counts()?;
    while count(&counts, LAST) == 0 {
        counts = server.counts()?;
    }
    // From here on it sends nothing any more.
    drop(server);
    clients.end();
    let last = Sample { server: counts, bots: clients.counts()? };
    show(&status.line(&last));
    let drops = dropped.count();
    let steal_share = host::cpu_ticks().zip(ticks).and_then(|(now, then)| now.steal_share_since(&then));
    let books = close_fanout(&last.server, &last.bots, drops, plan.arm.is_reliable());
    // Where connections ended there is nobody to ask.
    if books.is_ok() {
        status.check(plan.arm.is_reliable())?;
    }
    let (Some(opened), Some(closed)) = (opened, closed) else {
        return Err("the clients' process had no core while it was to be measured".to_owned());
    };
    Ok(Run { plan, start, opened, closed, last, books, steal_share, workers })
}

/// The counts at the start have nothing in them but the time: the first line begins at nothing.
fn only_time(counts: &Counts) -> Counts {
    counts
        .iter()
        .filter(|(name, _)| [AT, CPU].contains(&name.as_str()))
        .map(|(n, c)| (n.clone(), *c))
        .collect()
}

/// Reads lines of the server while the clients connect, so that it can say more.
fn wait_for_clients(server: &Child, clients: &Child, plan: Plan) -> Result<Counts, String> {
    let wait = Duration::from_millis(20);
    loop {
        if let Some(line) = clients.line_within(wait)? {
            let times: Counts =
                serde_json::from_str(&line).map_err(|_| "the clients said no times".to_owned())?;
            return Ok(times);
        }
        while let Some(line) = server.line_within(Duration::ZERO)? {
            let counts: Counts = serde_json::from_str(&line).map_err(|_| "the server's counts".to_owned())?;
            if count(&counts, "members") > u64::from(plan.connections()) {
                return Err("somebody else has connected".to_owned());
            }
        }
    }
}

/// The lines of both processes, those of one interval together.
struct Lines<'a> {
    server: &'a Child,
    clients: &'a Child,
    interval_ns: u64,
    /// The server's line of an interval that the clients have not told of.
    ahead: Option<Counts>,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<Sample, String> {
        let bots = self.clients.counts()?;
        let begin = count(&bots, AT) / self.interval_ns * self.interval_ns;
        let server = loop {
            let server = match self.ahead.take() {
                Some(server) => server,
                None => self.server.counts()?,
            };
            if count(&server, AT) >= begin {
                break server;
            }
        };
        if count(&server, AT) >= begin + self.interval_ns {
            self.ahead = Some(server.clone());
        }
        Ok(Sample { server, bots })
    }

    fn until(&mut self, at_ns: u64) -> Result<Sample, String> {
        loop {
            let sample = self.next()?;
            if sample.of_bots(AT) >= at_ns {
                return Ok(sample);
            }
        }
    }
}

impl Run {
    fn measured(&self, name: &str) -> f64 {
        self.closed.of_bots(name).saturating_sub(self.opened.of_bots(name)) as f64
    }

    fn measured_at_server(&self, name: &str) -> f64 {
        self.closed.of_server(name).saturating_sub(self.opened.of_server(name)) as f64
    }

    /// Deliveries in a second of the window.
    pub(crate) fn deliveries_per_second(&self) -> f64 {
        self.measured("heard") / self.closed.seconds_since(&self.opened)
    }

    /// Deliveries in the window over those that the schedule asked for in it.
    pub(crate) fn share_of_offered(&self) -> f64 {
        let offered = self.measured("offered") * f64::from(self.plan.connections());
        self.measured("heard") / offered.max(1.0)
    }

    /// Deliveries that never came to be; those of the last status line where the books do not close.
    pub(crate) fn dropped(&self) -> u64 {
        let members = self.plan.connections().into();
        self.books.as_ref().map_or_else(|_| self.last.dropped(), |books| books.dropped(members))
    }

    /// Whether the machine disturbed it.
    pub(crate) fn is_void(&self) -> bool {
        self.report().is_ok_and(|report| report.is_void())
    }

    /// Broadcasts in a second of the window.
    pub(crate) fn broadcasts_per_second(&self) -> f64 {
        self.measured_at_server("broadcasts") / self.closed.server_seconds_since(&self.opened)
    }

    /// Messages in a datagram of the server, acks and the like counted too.
    pub(crate) fn deliveries_per_datagram(&self) -> f64 {
        self.measured_at_server("sealed") / self.measured_at_server("sent").max(1.0)
    }

    /// Datagrams of the server in a system call.
    pub(crate) fn datagrams_per_call(&self) -> f64 {
        self.measured_at_server("sent") / self.measured_at_server("send calls").max(1.0)
    }

    /// CPU seconds of the server for a million deliveries, from the first message to the last: a server that is behind has work
    /// in a window that is heard after it.
    pub(crate) fn cpu_s_per_million(&self) -> f64 {
        self.server_cpu_s() * 1e6 / (self.last.of_bots("heard") as f64).max(1.0)
    }

    fn server_cpu_s(&self) -> f64 {
        self.last.of_server(CPU).saturating_sub(self.start.of_server(CPU)) as f64 / 1e9
    }

    /// Cores that the server used.
    pub(crate) fn server_cores(&self) -> f64 {
        self.closed.server_cores_since(&self.opened)
    }

    /// Cores that the clients used.
    pub(crate) fn bots_cores(&self) -> f64 {
        self.closed.bots_cores_since(&self.opened)
    }

    /// From the intended time of a message to an ear.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let of = |name: &str| self.last.of_bots(&format!("latency {name}"));
        let (p50, p90, p99, p999) = (of("p50"), of("p90"), of("p99"), of("p999"));
        let count = of("measured");
        (count > 0).then(|| Latency { p50, p90, p99, p999, max: of("max"), count })
    }

    /// The mean of the client whose messages took longest, in milliseconds.
    pub(crate) fn slowest_mean_ms(&self) -> f64 {
        self.last.of_bots("latency slowest mean") as f64 / 1e6
    }

    /// What gave way first, by its counter; nothing when all that was to be said was heard in time.
    pub(crate) fn broken_by(&self) -> Option<String> {
        let last = &self.last;
        let late = self.latency().filter(|latency| latency.p99 > ns(LATE));
        let counters = [
            ("connections that ended", last.of_bots("left") + last.of_server("server left")),
            ("refused at the clients", last.of_bots("refused")),
            ("skipped at the clients", last.of_bots("skipped")),
            ("not broadcast at the server", last.of_server("not broadcast")),
            ("missed at the server", last.of_server("missed")),
            ("in lost datagrams", self.books.as_ref().map_or(0, |books| books.lost)),
        ];
        let counter = counters.into_iter().find(|(_, count)| *count > 0);
        let counter = counter.map(|(name, count)| format!("{name}: {count}"));
        // Whoever takes all and cannot keep up has a queue that grows.
        counter.or_else(|| late.map(|latency| format!("latency: p99 is {} ms", latency.p99 / 1_000_000)))
    }

    /// For the file: all messages from the first to the last, and the CPU of as long.
    pub(crate) fn report(&self) -> Result<Report, String> {
        let books = self.books.clone()?;
        let window = Duration::from_secs_f64(self.last.seconds_since(&self.start));
        let cpu = CpuTime { user_s: self.server_cpu_s(), sys_s: 0.0 };
        let mut report = Report::of(Counted {
            flags: self.flags(),
            machine: host::machine(),
            window,
            books: Books::new(books.owed, books.heard)
                .dropped("missed", books.missed)
                .dropped("given_up", books.given_up)
                .dropped("in_lost_datagrams", books.lost)
                .dropped("receive_memory", books.overflowed),
            threads: vec![ThreadCount { received: books.heard, cpu: Some(cpu), ..ThreadCount::default() }],
            ..Counted::default()
        });
        report.latency_ns = self.latency();
        report.offered = Some(books.offered);
        // Nothing is said of a stream's.
        let buffer_bytes = Some(self.last.of_server(RECEIVE_BUFFER)).filter(|bytes| *bytes > 0);
        report.granted.receive_buffer_bytes = buffer_bytes;
        report.steal_share = self.steal_share;
        report.run_delay_share = self.run_delay_share();
        report.notes.push("CPU is that of the program and the kernel together".to_owned());
        report.notes.push(format!("said, heard and sent: {books:?}"));
        Ok(report)
    }

    /// The longer wait for a core of both processes. Several threads of one server wait for each other, which is nobody's
    /// disturbance.
    fn run_delay_share(&self) -> Option<f64> {
        let (ends, window) = ((&self.opened, &self.closed), self.closed.seconds_since(&self.opened));
        let bots = ends.1.of_bots(DELAY).saturating_sub(ends.0.of_bots(DELAY));
        let server = ends.1.of_server(DELAY).saturating_sub(ends.0.of_server(DELAY));
        let has_one_thread = self.plan.arm != Arm::Tcp && self.workers == 1;
        let longest = if has_one_thread { bots.max(server) } else { bots };
        Some(longest as f64 / 1e9 / window)
    }

    fn flags(&self) -> Flags {
        Flags::from([
            ("arm".to_owned(), self.plan.arm.name().into()),
            ("clients".to_owned(), u64::from(self.plan.clients).into()),
            ("speed_percent".to_owned(), u64::from(self.plan.speed).into()),
            ("seed".to_owned(), self.plan.seed.into()),
            ("workers".to_owned(), u64::from(self.workers).into()),
            ("stalled".to_owned(), self.plan.has_stalled.into()),
        ])
    }
}
