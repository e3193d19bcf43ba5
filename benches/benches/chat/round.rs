//! One run: a server process and its clients, a status line per interval, and the books of both ends.

use std::time::Duration;

use drumfire_benches::roles::key;
use drumfire_benches::traffic::{Client, Ramp};
use drumfire_benches::{Child, Counts, Crowd, DropWatch, Fanout, Joining, PER_SOCKET, Values, close_fanout};
use drumfire_tools::clock;
use drumfire_tools::host::{self, ThreadSample};
use drumfire_tools::report::{Accounting, Counted, Flags, Latency, Report, ThreadCount};

use crate::plan::{Arm, Plan, Times, ns};
use crate::server::{COUNTING_DELAY, RECEIVE_BUFFER, SERVER};
use crate::speakers::Speakers;
use crate::status::Sample;
use crate::tcp::{BASELINE, Streams, raise_open_files};

/// Connections begun per second. A server accepts 2,000.
const RAMP_PER_SECOND: u64 = 1_600;

/// The time within which all clients must be connected.
const CONNECT_MAX: Duration = Duration::from_secs(60);

/// Datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 8;

/// The time from the last connection to the first message.
const LEAD: Duration = Duration::from_millis(100);

/// When no message came for this long, no more will come.
const QUIET: Duration = Duration::from_secs(3);

/// The time in which the last messages leave.
const LAST_TURN: Duration = Duration::from_millis(100);

/// The longest time after the window in which messages may come.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// The time within which the server must print its counts.
const ANSWER_MAX: Duration = Duration::from_secs(30);

const NO_COUNTS: &str = "the server does not print its counts";

/// The pause after a pass in which no message came.
const REST: Duration = Duration::from_micros(100);

/// A server with a longer p99 does not keep up. It gathers for a fifth of this time.
const LATE: Duration = Duration::from_millis(250);

/// Starts the server of a plan.
fn start_server(plan: &Plan) -> Result<Child, String> {
    let connections = plan.connections().to_string();
    if plan.arm == Arm::Tcp {
        return Child::role(BASELINE, None, &[&connections]);
    }
    let core = host::allowed_cores().filter(|cores| cores.len() > 1);
    Child::role(SERVER, core.and_then(|cores| cores.first().copied()), &[plan.arm.name(), &connections])
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) plan: Plan,
    /// The sample before the first message.
    start: Sample,
    /// The samples at both ends of the window.
    opened: Sample,
    closed: Sample,
    pub(crate) last: Sample,
    /// Where all messages went, or the counter that is off.
    pub(crate) books: Result<Fanout, String>,
    steal_share: Option<f64>,
    pub(crate) latency: Option<Latency>,
    slowest_mean_ms: f64,
}

/// Runs a plan and shows the status lines. The clients have a thread of their own on the last core.
///
/// # Errors
///
/// One line, when a process failed. Open books are in [`Run::books`].
pub(crate) fn run(plan: Plan, show: impl FnMut(&str) + Send) -> Result<Run, String> {
    raise_open_files(plan.connections())?;
    // A process inherits the cores of the thread that starts it, so this thread is not pinned.
    let server = start_server(&plan)?;
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
    let count = plan.clients as usize;
    if plan.arm == Arm::Tcp {
        let clients = vec![Streams::connect(address, count)?];
        return drive(plan, (server, dropped), clients, count, show);
    }
    let joining = Joining {
        options: plan.arm.options(),
        each: DATAGRAMS_EACH,
        ..Joining::new((address, key().public()))
    };
    let ramp = Ramp {
        connections: count,
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
    drive(plan, (server, dropped), clients, PER_SOCKET, show)
}

fn drive<C: Client>(
    plan: Plan,
    (server, dropped): (Child, DropWatch),
    clients: Vec<C>,
    per_client: usize,
    mut show: impl FnMut(&str),
) -> Result<Run, String> {
    let ticks = host::cpu_ticks();
    let mut speakers = Speakers::new(&plan, clients, per_client)?;
    let mut next = clock::host_ns();
    let start = next + ns(LEAD);
    let window = start + ns(plan.interval);
    let times = Times { start, window, end: window + ns(plan.window) };
    let (mut samples, mut is_asked) = (Vec::<Sample>::new(), false);
    let mut heard_at = times.end;
    loop {
        let now = clock::host_ns();
        if speakers.pass(&times, (times.window..times.end).contains(&now))? {
            heard_at = heard_at.max(now);
        } else {
            clock::pause(REST);
        }
        if !is_asked && now >= next {
            server.send_line("counts")?;
            is_asked = true;
            // The first sample is before the first message, and the others are at the ends of intervals.
            next = if samples.is_empty() { times.window } else { next + ns(plan.interval) };
        }
        if is_asked && let Some(counts) = counts_now(&server)? {
            is_asked = false;
            let sample = Sample::now(&server, counts, speakers.counts())?;
            if let Some(before) = samples.last() {
                show(&sample.line(before));
            }
            samples.push(sample);
        }
        // Messages that were lost or missed are not awaited.
        let is_all_heard = speakers.tally.heard >= speakers.tally.said * u64::from(plan.connections());
        let is_over = now > heard_at + ns(QUIET)
            || now > times.end + ns(SETTLE_MAX)
            || is_all_heard && now > times.end + ns(LAST_TURN);
        if is_over && !is_asked {
            break;
        }
        if now > times.end + ns(SETTLE_MAX + ANSWER_MAX) {
            return Err(NO_COUNTS.to_owned());
        }
    }
    let last = finish(&mut speakers, server, &times)?;
    if let Some(before) = samples.last() {
        show(&last.line(before));
    }
    let books = close_fanout(&last.server, &last.clients, dropped.count(), plan.arm.is_reliable());
    let at = |time| samples.iter().find(|sample| sample.at_ns >= time).cloned();
    let (Some(start), Some(opened), Some(closed)) =
        (samples.first().cloned(), at(times.window), at(times.end))
    else {
        return Err("this process had no core in the window".to_owned());
    };
    let (latency, slowest_mean_ms) = (Latency::of(&speakers.latency), speakers.slowest_mean_ms());
    let steal_share = host::cpu_ticks().zip(ticks).and_then(|(now, then)| now.steal_share_since(&then));
    Ok(Run { plan, start, opened, closed, last, books, steal_share, latency, slowest_mean_ms })
}

/// Ends the server and returns the last sample.
fn finish<C: Client>(speakers: &mut Speakers<C>, mut server: Child, times: &Times) -> Result<Sample, String> {
    let mut last = Sample::now(&server, Counts::new(), Counts::new())?;
    server.end();
    // The server counts while all clients are connected. The clients still receive its last datagrams.
    let mut until = clock::host_ns() + ns(ANSWER_MAX);
    let mut is_over = false;
    while clock::host_ns() < until {
        speakers.pass(times, false)?;
        if !is_over && let Some(served) = counts_now(&server)? {
            (last.server, is_over) = (served, true);
            until = clock::host_ns() + ns(LAST_TURN);
        }
    }
    last.clients = speakers.counts();
    if is_over { Ok(last) } else { Err(NO_COUNTS.to_owned()) }
}

/// Returns the counts that the server printed, if there are any.
fn counts_now(server: &Child) -> Result<Option<Counts>, String> {
    let line = server.line_within(Duration::ZERO)?;
    let read = |line: String| serde_json::from_str(&line).map_err(|_| format!("the server's counts: {line}"));
    line.map(read).transpose()
}

impl Run {
    fn counted(&self, name: &str) -> f64 {
        self.closed.counted_since(&self.opened, name)
    }

    fn served(&self, name: &str) -> f64 {
        self.closed.served_since(&self.opened, name)
    }

    /// Deliveries per second of the window.
    pub(crate) fn deliveries_per_second(&self) -> f64 {
        self.counted("heard") / self.closed.seconds_since(&self.opened)
    }

    /// Messages per datagram of the server. Datagrams without messages count too.
    pub(crate) fn deliveries_per_datagram(&self) -> f64 {
        self.served("messages sealed") / self.served("socket sent").max(1.0)
    }

    /// The cores that the server and the clients used in the window.
    pub(crate) fn cores(&self) -> [f64; 2] {
        self.closed.cores_since(&self.opened)
    }

    /// CPU time of the server from the first message to the last. A server that is behind works after the window too.
    fn server_cpu(&self) -> ThreadSample {
        self.last.server_cpu.since(&self.start.server_cpu)
    }

    pub(crate) fn is_void(&self) -> bool {
        self.report().is_ok_and(|report| report.is_void())
    }

    /// The further values of the tables.
    pub(crate) fn values(&self) -> Values {
        let seconds = self.closed.seconds_since(&self.opened);
        let offered = self.counted("offered") * f64::from(self.plan.connections());
        let members = self.plan.connections().into();
        let dropped =
            self.books.as_ref().map_or_else(|_| self.last.dropped(), |books| books.dropped(members));
        let [server, clients] = self.cores();
        let refused = self.last.of_clients("skipped") + self.last.of_clients("refused");
        Values::from([
            ("deliveries", self.deliveries_per_second()),
            ("% of offered", self.counted("heard") / offered.max(1.0) * 100.0),
            ("broadcasts", self.served("broadcasts") / seconds),
            ("dropped", dropped as f64),
            ("refused", refused as f64),
            ("missed", self.last.of_server("missed") as f64),
            ("per datagram", self.deliveries_per_datagram()),
            ("datagrams per call", self.served("socket sent") / self.served("send calls").max(1.0)),
            ("server %", server * 100.0),
            ("clients %", clients * 100.0),
            ("slowest mean ms", self.slowest_mean_ms),
        ])
    }

    /// The first counter that shows that a message was not heard in time, if any.
    pub(crate) fn broken_by(&self) -> Option<String> {
        let last = &self.last;
        let counters = [
            ("connections that ended", self.connections_ended()),
            ("refused at the clients", last.of_clients("refused")),
            ("skipped at the clients", last.of_clients("skipped")),
            ("not broadcast at the server", last.of_server("not broadcast")),
            ("missed at the server", last.of_server("missed")),
            ("in lost datagrams", self.books.as_ref().map_or(0, |books| books.lost)),
        ];
        let counter = counters.into_iter().find(|(_, count)| *count > 0);
        let late = self.latency.filter(|latency| latency.p99 > ns(LATE));
        let late = late.map(|latency| format!("latency: p99 is {} ms", latency.p99 / 1_000_000));
        counter.map(|(name, count)| format!("{name}: {count}")).or(late)
    }

    pub(crate) fn connections_ended(&self) -> u64 {
        self.last.of_clients("left") + self.last.of_server("server left")
    }

    /// The report of all messages from the first to the last, with the CPU time of the same period.
    pub(crate) fn report(&self) -> Result<Report, String> {
        let books = self.books.clone()?;
        let plan = &self.plan;
        let cpu = Some(self.server_cpu().cpu_time());
        let mut report = Report::of(Counted {
            flags: Flags::from([
                ("arm".to_owned(), plan.arm.name().into()),
                ("clients".to_owned(), plan.clients.into()),
                ("speed_percent".to_owned(), plan.speed.into()),
                ("seed".to_owned(), plan.seed.into()),
                ("stalled".to_owned(), plan.has_stalled.into()),
            ]),
            machine: host::machine(),
            window: Duration::from_secs_f64(self.last.seconds_since(&self.start)),
            books: Accounting::new(books.owed, books.heard)
                .dropped("missed", books.missed)
                .dropped("given_up", books.given_up)
                .dropped("in_lost_datagrams", books.lost)
                .dropped("receive_memory", books.overflowed),
            threads: vec![ThreadCount { received: books.heard, cpu, ..ThreadCount::default() }],
            ..Counted::default()
        });
        report.latency_ns = self.latency;
        report.offered = Some(books.offered);
        report.granted.receive_buffer_bytes = self.last.server.get(RECEIVE_BUFFER).copied();
        report.steal_share = self.steal_share;
        report.run_delay_share = Some(self.run_delay_share());
        report.notes.push(format!("said, heard, and sent: {books:?}"));
        Ok(report)
    }

    /// The longer wait for a core of both processes. Several threads of one server wait for each other, and its counting thread waits
    /// for the worker, which are no disturbances.
    fn run_delay_share(&self) -> f64 {
        let [opened, closed] = [&self.opened, &self.closed];
        let delay =
            |cpu: fn(&Sample) -> ThreadSample| cpu(closed).since(&cpu(opened)).run_delay_ns.unwrap_or(0);
        let clients = delay(|sample| sample.clients_cpu);
        let counting = self.served(COUNTING_DELAY);
        let has_one_thread = self.plan.arm != Arm::Tcp;
        let server = if has_one_thread { delay(|sample| sample.server_cpu) as f64 - counting } else { 0.0 };
        server.max(clients as f64) / 1e9 / closed.seconds_since(opened)
    }
}
