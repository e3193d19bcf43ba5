//! One run: a server process and its clients, a status line per interval, and the books of both ends.

use std::time::Duration;

use drumfire_benches::roles::key;
use drumfire_benches::traffic::{Client, Generator, Shape, Traffic};
use drumfire_benches::{
    Child, ClientPool, ClientSettings, Cores, Counts, DropWatch, Outcome, PER_SOCKET, RAMP_PER_SECOND,
    UsageWatch, Values, Window, WindowUsage, WindowWatch, close_fanout, count, raise_open_files,
};
use drumfire_tools::clock;
use drumfire_tools::host;
use drumfire_tools::report::{Latency, Report, ThreadReport};

use crate::server::SERVER;
use crate::speakers::Speakers;
use crate::tcp::{BASELINE, Streams};
use crate::{Load, Mode, format};

/// The time within which all clients must be connected.
const CONNECT_MAX: Duration = Duration::from_secs(60);

/// Datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 8;

/// Open files in addition to the connections.
const OTHER_FILES: u64 = 64;

/// The time from the last connection to the first message.
const LEAD_NS: u64 = 100_000_000;

/// When no message came for this long, no more will come.
const QUIET_NS: u64 = 3_000_000_000;

/// The time in which the last messages leave.
const LAST_TURN_NS: u64 = 100_000_000;

/// The time between the beginnings of two passes of the clients, if a pass is not longer. A game polls less often. With more passes, each
/// one finds a datagram or two, and most of the clients' core goes into system calls.
const PASS: Duration = Duration::from_millis(1);

/// A part of the failure of a run in which connections ended.
pub(crate) const ENDED: &str = "connections ended";

/// The counts of both ends since their beginning, at one time, and watches of their CPU time that begin then.
pub(crate) struct Sample {
    at_ns: u64,
    counts: Counts,
    usage: [UsageWatch; 2],
}

impl Sample {
    fn now(server: &Child, counts: Counts) -> Self {
        let usage = [server.id(), std::process::id()].map(UsageWatch::begin);
        Self { at_ns: clock::host_ns(), counts, usage }
    }

    pub(crate) fn of(&self, name: &str) -> u64 {
        count(&self.counts, name)
    }

    /// Deliveries that will never come, as far as is known at this time. The server did not make them, or they are missing between two
    /// messages of a speaker. Only the books have those that are lost at the very end.
    pub(crate) fn dropped(&self) -> u64 {
        let by_server =
            self.of("missed") + self.of("messages given up") + self.of("not broadcast") * self.of("members");
        by_server.max(self.of("gaps").saturating_sub(self.of("behind")))
    }

    pub(crate) fn seconds_since(&self, from: &Self) -> f64 {
        (self.at_ns.saturating_sub(from.at_ns) as f64 / 1e9).max(1e-9)
    }

    /// The rate of a counter since an earlier sample.
    pub(crate) fn rate(&self, from: &Self, name: &str) -> f64 {
        self.of(name).saturating_sub(from.of(name)) as f64 / self.seconds_since(from)
    }

    /// The shares of a core that server and clients used from this sample until now, in percent.
    fn percent_until_now(&self) -> Result<[f64; 2], String> {
        let [server, clients] = self.usage.map(|watch| watch.used());
        Ok([server?.core_share() * 100.0, clients?.core_share() * 100.0])
    }
}

/// Starts the server of a load on its core, and connects all clients.
fn start(load: &Load, cores: Cores) -> Result<(Child, Vec<Box<dyn Client>>), String> {
    raise_open_files(u64::from(load.connections()) + OTHER_FILES)?;
    let connections = load.connections() as usize;
    let role = if load.mode == Mode::Tcp { BASELINE } else { SERVER };
    let server = Child::role(role, Some(cores.server), &(load.mode, connections))?;
    let address = server.address()?;
    if load.mode == Mode::Tcp {
        return Ok((server, vec![Box::new(Streams::connect(address, connections)?)]));
    }
    let to = (address, key().public());
    let settings =
        ClientSettings { options: load.mode.options(), each: DATAGRAMS_EACH, ..ClientSettings::new(to) };
    let traffic = Traffic {
        per_client: PER_SOCKET,
        per_second: Some(RAMP_PER_SECOND),
        patience: CONNECT_MAX,
        ..Traffic::echo(Shape::Idle, connections, 0)
    };
    let clients = Generator::connect(traffic, |count| {
        let client: Box<dyn Client> = Box::new(ClientPool::on_one_socket(&settings, count)?);
        Ok(client)
    })?;
    Ok((server, clients.into_clients()))
}

/// Runs a load. Prints the status lines where `is_shown`.
pub(crate) fn run(load: &Load, cores: Cores, is_shown: bool) -> Result<Outcome, String> {
    let dropped = DropWatch::begin();
    let (server, clients) = start(load, cores)?;
    let start = clock::host_ns() + LEAD_NS;
    let window = Window::beginning_at(start + load.interval_ns, load.window);
    let mut speakers = Speakers::new(load, clients, start, window)?;
    let show = |from: &Sample, to: &Sample, percent| {
        if is_shown {
            println!("  {}", format::status(from, to, percent));
        }
    };
    let (samples, usage) = drive(load, &server, &mut speakers, window, show)?;
    let mut last = Sample::now(&server, Counts::new());
    let at = |time| samples.iter().find(|sample| sample.at_ns >= time);
    let (Some(first), Some(before), Some(from), Some(to)) =
        (samples.first(), samples.last(), at(window.start), at(window.end))
    else {
        return Err("this process had no core in the window".to_owned());
    };
    let (cpu, percent) = (first.usage[0].used()?.cpu.cpu_time(), before.percent_until_now()?);
    // The server counts while all clients are connected. The clients still receive its last datagrams.
    let served = server.finish_counts()?;
    let until = clock::host_ns() + LAST_TURN_NS;
    while clock::host_ns() < until {
        speakers.pass(false);
    }
    last.counts = speakers.add_counts(served.clone());
    show(before, &last, percent);
    match last.of("left") + last.of("server left") {
        0 => {}
        ended => return Err(format!("{ended} {ENDED}")),
    }
    let members = load.connections().into();
    let is_reliable = load.mode != Mode::Unreliable;
    let books = close_fanout(&served, &speakers.counts(), members, dropped.count(), is_reliable)?;
    let not_said = last.of("not said") * members;
    let offered = (to.rate(from, "said") + to.rate(from, "not said")) * members as f64;
    let values = Values::from([
        ("deliveries", to.rate(from, "heard")),
        ("% of offered", to.rate(from, "heard") * 100.0 / offered),
        ("dropped", books.dropped_count().saturating_sub(not_said) as f64),
        ("not said", last.of("not said") as f64),
        ("server %", usage.server.core_share() * 100.0),
        ("clients %", usage.load.core_share() * 100.0),
        ("slowest mean ms", speakers.slowest_mean_ms()),
    ]);
    // A server that is behind works after the window too, so the CPU time is that of all messages.
    let thread = ThreadReport { received: books.received, ..ThreadReport::default() };
    let report = Report {
        machine: host::machine(),
        window_s: last.seconds_since(first),
        books,
        threads: vec![thread.with_cpu(Some(cpu))],
        latency_ns: Latency::of(&speakers.latency),
        ..Report::default()
    };
    let mut report = report.derived();
    // Threads of the server over TCP wait for each other.
    usage.note_in(&mut report, [load.mode != Mode::Tcp, true]);
    Ok((report, values))
}

/// Passes messages until all of them have come. Returns the samples of all intervals, and the usage of the window.
fn drive(
    load: &Load,
    server: &Child,
    speakers: &mut Speakers,
    window: Window,
    show: impl Fn(&Sample, &Sample, [f64; 2]),
) -> Result<(Vec<Sample>, WindowUsage), String> {
    let (mut watch, mut usage) = (WindowWatch::new(server.id(), std::process::id(), window.start), None);
    let (mut samples, mut is_asked, mut next) = (Vec::<Sample>::new(), false, 0);
    let mut heard_at = window.end;
    loop {
        let now = clock::host_ns();
        watch.poll(now);
        if now >= window.end && usage.is_none() {
            usage = Some(watch.finish()?);
        }
        if speakers.pass(window.has(now)) {
            heard_at = heard_at.max(now);
        }
        clock::pause(PASS.saturating_sub(Duration::from_nanos(clock::host_ns() - now)));
        if !is_asked && now >= next {
            server.send_line("counts")?;
            is_asked = true;
            // The first sample is before the first message, and the others are at the ends of intervals.
            next = if samples.is_empty() { window.start } else { next + load.interval_ns };
        }
        if is_asked && let Some(counts) = server.read_within(Duration::ZERO)? {
            is_asked = false;
            let to = Sample::now(server, speakers.add_counts(counts));
            if let Some(from) = samples.last() {
                show(from, &to, from.percent_until_now()?);
            }
            samples.push(to);
        }
        // Messages that were lost or missed are not awaited.
        let is_all_heard = speakers.tally.heard >= speakers.tally.said * u64::from(load.connections());
        if now > heard_at + QUIET_NS || is_all_heard && now > window.end + LAST_TURN_NS {
            break;
        }
    }
    if is_asked {
        server.line()?;
    }
    Ok((samples, usage.ok_or("the window never ended")?))
}
