//! One run: a server process and its clients, a status line per interval, and the books of both ends.

use std::time::Duration;

use drumfire_benches::roles::key;
use drumfire_benches::traffic::{Client, Ramp};
use drumfire_benches::{
    Child, Counts, Crowd, DropWatch, Joining, PER_SOCKET, Values, Window, close_fanout, count,
    raise_open_files,
};
use drumfire_tools::clock;
use drumfire_tools::host::{self, ProcessClock, ThreadSample};
use drumfire_tools::report::{Accounting, Latency, Report, ThreadReport};

use crate::format;
use crate::plan::{Arm, Plan};
use crate::server::{COUNTING_DELAY, SERVER};
use crate::speakers::{Speakers, Times};
use crate::tcp::{BASELINE, Streams};

/// Connections begun per second. A server accepts 2,000.
const RAMP_PER_SECOND: u64 = 1_600;

/// The time within which all clients must be connected.
const CONNECT_MAX: Duration = Duration::from_secs(60);

/// Datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 8;

/// The time from the last connection to the first message.
const LEAD_NS: u64 = 100_000_000;

/// When no message came for this long, no more will come.
const QUIET_NS: u64 = 3_000_000_000;

/// The time in which the last messages leave.
const LAST_TURN_NS: u64 = 100_000_000;

/// The longest time after the window in which messages may come.
const SETTLE_MAX_NS: u64 = 60_000_000_000;

/// The time within which the server must print its counts.
const ANSWER_MAX_NS: u64 = 30_000_000_000;

const NO_COUNTS: &str = "the server does not print its counts";

/// The pause after a pass in which no message came.
const REST: Duration = Duration::from_micros(100);

/// A server with a longer p99 does not keep up. It gathers for a fifth of this time.
const LATE_NS: u64 = 250_000_000;

/// One of the two processes of a run.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Server,
    Clients,
}

/// The counts and the CPU time of both ends at one time, since their beginning.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    at_ns: u64,
    counts: [Counts; 2],
    cpu: [ThreadSample; 2],
}

impl Sample {
    fn now(server: &Child, counts: [Counts; 2]) -> Result<Self, String> {
        let cpu = |process| ProcessClock::sample(process).ok_or("the CPU time of a process cannot be read");
        let cpu = [cpu(server.id())?, cpu(std::process::id())?];
        Ok(Self { at_ns: clock::host_ns(), counts, cpu })
    }

    pub(crate) fn of(&self, end: End, name: &str) -> u64 {
        count(&self.counts[end as usize], name)
    }

    /// Messages that the clients left out or could not send.
    pub(crate) fn not_said(&self) -> u64 {
        self.of(End::Clients, "skipped") + self.of(End::Clients, "refused")
    }

    /// Deliveries that will never come, as far as is known at this time. The server did not make them, or they are missing between two
    /// messages of a speaker. Only the books have those that are lost at the very end.
    pub(crate) fn dropped(&self) -> u64 {
        let of = |name| self.of(End::Server, name);
        let by_server = of("missed") + of("messages given up") + of("not broadcast") * of("members");
        by_server.max(self.of(End::Clients, "gaps").saturating_sub(self.of(End::Clients, "behind")))
    }
}

/// The time between two samples.
pub(crate) struct Interval<'a> {
    pub(crate) from: &'a Sample,
    pub(crate) to: &'a Sample,
}

impl Interval<'_> {
    pub(crate) fn seconds(&self) -> f64 {
        (self.to.at_ns.saturating_sub(self.from.at_ns) as f64 / 1e9).max(1e-9)
    }

    fn count(&self, end: End, name: &str) -> f64 {
        self.to.of(end, name).saturating_sub(self.from.of(end, name)) as f64
    }

    pub(crate) fn rate(&self, end: End, name: &str) -> f64 {
        self.count(end, name) / self.seconds()
    }

    /// The CPU time of the server and of the clients.
    fn cpu(&self) -> [ThreadSample; 2] {
        [0, 1].map(|end| self.to.cpu[end].since(&self.from.cpu[end]))
    }

    /// The CPU time of the server and of the clients, in cores.
    pub(crate) fn cores(&self) -> [f64; 2] {
        self.cpu().map(|cpu| cpu.run_ns as f64 / 1e9 / self.seconds())
    }

    /// The longer wait for a core of both processes. Several threads of one server wait for each other, and its counting thread waits
    /// for the worker, which are no disturbances.
    fn run_delay_share(&self, arm: Arm) -> f64 {
        let [server, clients] = self.cpu().map(|cpu| cpu.run_delay_ns.unwrap_or(0) as f64);
        let has_one_thread = !arm.is_tcp;
        let server = if has_one_thread { server - self.count(End::Server, COUNTING_DELAY) } else { 0.0 };
        server.max(clients) / 1e9 / self.seconds()
    }
}

/// The outcome of a run.
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// The report of all messages from the first to the last, with the CPU time of the same period, or the counter that is off.
    pub(crate) report: Result<Report, String>,
    /// The further values of the tables, which are those of the window.
    pub(crate) values: Values,
    /// The first counter that shows that a message was not heard in time, if any.
    pub(crate) broken_by: Option<String>,
    pub(crate) connections_ended: u64,
}

/// Runs a plan and shows the status lines. The clients have a thread of their own on the last core.
///
/// # Errors
///
/// One line, when a process failed. Open books are in [`Run::report`].
pub(crate) fn run(plan: Plan, show: impl FnMut(&str) + Send) -> Result<Run, String> {
    raise_open_files(u64::from(plan.connections()) + 64)?;
    let connections = plan.connections().to_string();
    // A process inherits the cores of the thread that starts it, so this thread is not pinned.
    let server = if plan.arm.is_tcp {
        Child::role(BASELINE, None, &[&connections])?
    } else {
        let core = host::allowed_cores().filter(|cores| cores.len() > 1);
        Child::role(SERVER, core.and_then(|cores| cores.first().copied()), &[plan.arm.name, &connections])?
    };
    let clients = move || {
        if let Some([.., _, core]) = host::allowed_cores().as_deref() {
            host::pin_current_thread(*core).map_err(|error| error.to_string())?;
        }
        run_clients(plan, server, show)
    };
    let outcome = std::thread::scope(|scope| scope.spawn(clients).join());
    outcome.unwrap_or_else(|_| Err("the clients' thread panicked".to_owned()))
}

fn run_clients(plan: Plan, server: Child, show: impl FnMut(&str)) -> Result<Run, String> {
    let (dropped, address) = (DropWatch::begin(), server.address()?);
    let connections = plan.clients as usize;
    if plan.arm.is_tcp {
        let clients = vec![Streams::connect(address, connections)?];
        return drive(plan, server, dropped, Speakers::new(&plan, clients, connections)?, show);
    }
    let to = (address, key().public());
    let joining = Joining { options: plan.arm.options(), each: DATAGRAMS_EACH, ..Joining::new(to) };
    let ramp = Ramp {
        connections,
        per_client: PER_SOCKET,
        per_second: Some(RAMP_PER_SECOND),
        patience: CONNECT_MAX,
        has_pauses: false,
    };
    let mut clients = ramp.connect(|count| Crowd::on_one_socket(&joining, count))?.clients;
    if plan.has_stalled {
        let ramp = Ramp { connections: 1, ..ramp };
        clients.extend(ramp.connect(|count| Crowd::on_one_socket(&joining, count))?.clients);
    }
    drive(plan, server, dropped, Speakers::new(&plan, clients, PER_SOCKET)?, show)
}

fn drive<C: Client>(
    plan: Plan,
    server: Child,
    dropped: DropWatch,
    mut speakers: Speakers<C>,
    mut show: impl FnMut(&str),
) -> Result<Run, String> {
    let ticks = host::cpu_ticks();
    let mut next = clock::host_ns();
    let start = next + LEAD_NS;
    let times = Times { start, window: Window::beginning_at(start + plan.interval_ns, plan.window) };
    let window = times.window;
    let (mut samples, mut is_asked) = (Vec::<Sample>::new(), false);
    let mut heard_at = window.end;
    loop {
        let now = clock::host_ns();
        if speakers.pass(&times, window.has(now))? {
            heard_at = heard_at.max(now);
        } else {
            clock::pause(REST);
        }
        if !is_asked && now >= next {
            server.send_line("counts")?;
            is_asked = true;
            // The first sample is before the first message, and the others are at the ends of intervals.
            next = if samples.is_empty() { window.start } else { next + plan.interval_ns };
        }
        if is_asked && let Some(counts) = server.read_within(Duration::ZERO)? {
            is_asked = false;
            let to = Sample::now(&server, [counts, speakers.counts()])?;
            if let Some(from) = samples.last() {
                show(&format::status(&Interval { from, to: &to }));
            }
            samples.push(to);
        }
        // Messages that were lost or missed are not awaited.
        let is_all_heard = speakers.tally.heard >= speakers.tally.said * u64::from(plan.connections());
        let is_over = now > heard_at + QUIET_NS
            || now > window.end + SETTLE_MAX_NS
            || is_all_heard && now > window.end + LAST_TURN_NS;
        if is_over && !is_asked {
            break;
        }
        if now > window.end + SETTLE_MAX_NS + ANSWER_MAX_NS {
            return Err(NO_COUNTS.to_owned());
        }
    }
    let last = finish(&mut speakers, server, &times)?;
    let at = |time| samples.iter().find(|sample| sample.at_ns >= time);
    let (Some(first), Some(before), Some(from), Some(to)) =
        (samples.first(), samples.last(), at(window.start), at(window.end))
    else {
        return Err("this process had no core in the window".to_owned());
    };
    show(&format::status(&Interval { from: before, to: &last }));
    let steal_share = host::cpu_ticks().zip(ticks).and_then(|(now, then)| now.steal_share_since(&then));
    let all = Interval { from: first, to: &last };
    Ok(outcome(plan, &all, &Interval { from, to }, (dropped.count(), steal_share), &speakers))
}

/// Ends the server and returns the last sample.
fn finish<C: Client>(speakers: &mut Speakers<C>, mut server: Child, times: &Times) -> Result<Sample, String> {
    let mut last = Sample::now(&server, [Counts::new(), Counts::new()])?;
    server.end();
    // The server counts while all clients are connected. The clients still receive its last datagrams.
    let mut until = clock::host_ns() + ANSWER_MAX_NS;
    let mut served: Option<Counts> = None;
    while clock::host_ns() < until {
        speakers.pass(times, false)?;
        if served.is_none() {
            served = server.read_within(Duration::ZERO)?;
            until = if served.is_some() { clock::host_ns() + LAST_TURN_NS } else { until };
        }
    }
    last.counts = [served.ok_or(NO_COUNTS)?, speakers.counts()];
    Ok(last)
}

/// Closes the books of a run and makes its report.
fn outcome<C: Client>(
    plan: Plan,
    all: &Interval<'_>,
    window: &Interval<'_>,
    (kernel_drops, steal_share): (u64, Option<f64>),
    speakers: &Speakers<C>,
) -> Run {
    let last = all.to;
    let [server, clients] = &last.counts;
    let books = close_fanout(server, clients, kernel_drops, plan.arm.is_reliable);
    let latency = Latency::of(&speakers.latency);
    let heard = window.count(End::Clients, "heard");
    let offered = window.count(End::Clients, "offered") * f64::from(plan.connections());
    let (sealed, datagrams) =
        (window.count(End::Server, "messages sealed"), window.count(End::Server, "socket sent"));
    let dropped =
        books.as_ref().map_or_else(|_| last.dropped(), |books| books.dropped(plan.connections().into()));
    let cores = window.cores();
    let mut values = Values::from([
        ("deliveries", heard / window.seconds()),
        ("% of offered", heard / offered.max(1.0) * 100.0),
        ("broadcasts", window.rate(End::Server, "broadcasts")),
        ("dropped", dropped as f64),
        ("refused", last.not_said() as f64),
        ("missed", last.of(End::Server, "missed") as f64),
        ("server %", cores[0] * 100.0),
        ("clients %", cores[1] * 100.0),
        ("slowest mean ms", speakers.slowest_mean_ms()),
    ]);
    if !plan.arm.is_tcp {
        // Datagrams without messages count too.
        values.insert("per datagram", sealed / datagrams.max(1.0));
    }
    let connections_ended = last.of(End::Clients, "left") + last.of(End::Server, "server left");
    let counters = [
        ("connections that ended", connections_ended),
        ("refused at the clients", last.of(End::Clients, "refused")),
        ("skipped at the clients", last.of(End::Clients, "skipped")),
        ("not broadcast at the server", last.of(End::Server, "not broadcast")),
        ("missed at the server", last.of(End::Server, "missed")),
        ("in lost datagrams", books.as_ref().map_or(0, |books| books.lost)),
    ];
    let counter = counters.into_iter().find(|(_, count)| *count > 0);
    let late = latency.filter(|latency| latency.p99 > LATE_NS);
    let late = late.map(|latency| format!("latency: p99 is {} ms", latency.p99 / 1_000_000));
    let broken_by = counter.map(|(name, count)| format!("{name}: {count}")).or(late);
    let report = books.map(|books| {
        // A server that is behind works after the window too.
        let cpu = Some(all.cpu()[0].cpu_time());
        let thread = ThreadReport { received: books.heard, ..ThreadReport::default() };
        let report = Report {
            machine: host::machine(),
            window_s: all.seconds(),
            books: Accounting::new(books.owed, books.heard)
                .dropped("missed", books.missed)
                .dropped("given_up", books.given_up)
                .dropped("in_lost_datagrams", books.lost)
                .dropped("receive_memory", books.overflowed),
            threads: vec![thread.with_cpu(cpu)],
            latency_ns: latency,
            steal_share,
            run_delay_share: Some(window.run_delay_share(plan.arm)),
            notes: vec![format!("said, heard, and sent: {books:?}")],
            ..Report::default()
        };
        report.derived()
    });
    Run { plan, report, values, broken_by, connections_ended }
}
