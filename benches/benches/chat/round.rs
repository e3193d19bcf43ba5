//! One run: a server process and its clients, a status line per interval, and the books of both ends.
//!
//! The times at which clients send messages are fixed by a seed and do not depend on answers. Latency counts from them.

use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire::stats::Stats;
use drumfire_benches::numbered::{connection_of, first_number, number_of, write_number};
use drumfire_benches::traffic::{Client, Shape, Traffic, boxed};
use drumfire_benches::{
    Child, ClientSettings, ClientSocket, Cores, Counts, DropWatch, Outcome, PER_SOCKET, UsageWatch, Values,
    Window, WindowUsage, WindowWatch, close_fanout, count, counts_from, counts_of, report_of,
};
use drumfire_tools::report::Latency;
use drumfire_tools::{clock, host};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::server::{SERVER, connect_tcp};
use crate::{Load, Mode, OTHER_FILES, format};

/// Datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 8;

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

/// The counts of all clients at one time.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    at_ns: u64,
    pub(crate) tally: Tally,
}

impl Sample {
    /// The rate of a counter since an earlier sample.
    pub(crate) fn rate(&self, from: &Self, of: impl Fn(&Tally) -> u64) -> f64 {
        (of(&self.tally) - of(&from.tally)) as f64 * 1e9 / (self.at_ns - from.at_ns).max(1) as f64
    }
}

/// Connects all clients of a load.
fn connect(load: &Load, server: &Child) -> Result<Vec<Box<dyn Client>>, String> {
    let (address, connections) = (server.address()?, load.connections() as usize);
    let settings = ClientSettings::new(address);
    let settings = ClientSettings { options: load.mode.options(), each: DATAGRAMS_EACH, ..settings };
    if load.mode == Mode::Tcp {
        let traffic = Traffic::echo(Shape::IDLE, connections, 0);
        return traffic.connect(|count| Ok(boxed(connect_tcp(address, count)?)));
    }
    let sockets = ClientSocket::connect_all(&settings, connections, PER_SOCKET)?;
    Ok(sockets.into_iter().map(boxed).collect())
}

/// Runs a load. Prints the status lines where `is_shown`.
pub(crate) fn run(load: &Load, cores: Cores, is_shown: bool) -> Result<Outcome, String> {
    // Where this is not permitted, connecting fails with the reason.
    let _ = host::raise_open_files(u64::from(load.connections()) + OTHER_FILES);
    let dropped = DropWatch::begin();
    let server = Child::role(SERVER, Some(cores.server), &(load.mode, load.connections()))?;
    let clients = connect(load, &server)?;
    let start = clock::host_ns() + LEAD_NS;
    let window = Window::beginning_at(start + load.interval_ns, load.window);
    let mut clients = ChatClients::new(load, clients, start, window)?;
    let cpu = UsageWatch::begin(server.id());
    let (samples, usage) = drive(load, &server, &mut clients, window, is_shown)?;
    let used = cpu.used()?;
    // The server counts while all clients are connected. The clients still receive its last datagrams.
    let served = server.finish_counts()?;
    let until = clock::host_ns() + LAST_TURN_NS;
    while clock::host_ns() < until {
        clients.pass(false);
    }
    let last = clients.tally;
    match last.ended + count(&served, "server ended") {
        0 => {}
        ended => return Err(format!("{ended} {ENDED}")),
    }
    let members = load.connections().into();
    let is_reliable = load.mode != Mode::Unreliable;
    let books = close_fanout(&served, &clients.counts(), members, dropped.count(), is_reliable)?;
    let at = |time| samples.iter().find(|sample| sample.at_ns >= time);
    let both = at(window.start).zip(at(window.end));
    let (from, to) = both.ok_or("this process had no core in the window")?;
    let deliveries = to.rate(from, |tally| tally.received);
    let offered = to.rate(from, |tally| tally.sent + tally.skipped) * members as f64;
    let values = Values::from([
        ("deliveries", deliveries),
        ("% of offered", deliveries * 100.0 / offered),
        ("dropped", books.dropped_count().saturating_sub(last.skipped * members) as f64),
        ("skipped", last.skipped as f64),
        ("server %", usage.server.core_share() * 100.0),
        ("clients %", usage.load.core_share() * 100.0),
    ]);
    // A server that is behind works after the window too, so the CPU time is that of all messages.
    let mut report = report_of(used.cpu.cpu_time(), used.window, books, Latency::of(&clients.latency));
    // Threads of the server over TCP wait for each other.
    usage.note_in(&mut report, [load.mode != Mode::Tcp, true]);
    Ok((report, values))
}

/// Passes messages until all of them have come. Returns the samples at the beginning, at the ends of intervals, and at the end, and the
/// usage of the window.
fn drive(
    load: &Load,
    server: &Child,
    clients: &mut ChatClients,
    window: Window,
    is_shown: bool,
) -> Result<(Vec<Sample>, WindowUsage), String> {
    let (mut watch, mut usage) = (WindowWatch::new(server.id(), std::process::id(), window.start), None);
    let mut samples = vec![Sample { at_ns: clock::host_ns(), tally: clients.tally }];
    let (mut next, mut received_at_ns) = (window.start, window.end);
    loop {
        let now = clock::host_ns();
        watch.poll(now);
        if now >= window.end && usage.is_none() {
            usage = Some(watch.finish()?);
        }
        if clients.pass(window.has(now)) {
            received_at_ns = received_at_ns.max(now);
        }
        clock::pause(PASS.saturating_sub(Duration::from_nanos(clock::host_ns() - now)));
        // Messages that were lost or missed are not awaited.
        let is_all_received = clients.tally.received >= clients.tally.sent * u64::from(load.connections());
        let is_over = now > received_at_ns + QUIET_NS || is_all_received && now > window.end + LAST_TURN_NS;
        if now >= next || is_over {
            let sample = Sample { at_ns: clock::host_ns(), tally: clients.tally };
            if let Some(from) = samples.last().filter(|_| is_shown) {
                println!("  {}", format::status(load.connections(), from, &sample));
            }
            samples.push(sample);
            next += load.interval_ns;
        }
        if is_over {
            return Ok((samples, usage.ok_or("the window never ended")?));
        }
    }
}

/// The times and lengths of all messages follow from this seed.
pub(crate) const SEED: u64 = 20_210_221;

/// The shortest time between two messages of a client, in nanoseconds. The longest is twice as long.
const GAP_NS: u64 = 500_000_000;

const MESSAGE_MIN_BYTES: usize = 15;
const MESSAGE_MAX_BYTES: usize = 58;

/// Messages that are later than this are left out and counted.
const LATE_MAX_NS: u64 = 1_000_000_000;

/// Longer latencies are recorded as this one: a hundred seconds.
const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// The counts of messages at the clients.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Tally {
    /// Messages that were left out because it was too late for them, or because the connection had no room.
    #[serde(rename = "messages skipped")]
    skipped: u64,
    /// Messages that the connection accepted.
    #[serde(rename = "messages sent")]
    pub(crate) sent: u64,
    #[serde(rename = "messages received")]
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// Messages that are missing between two of their sender.
    pub(crate) gaps: u64,
    /// Messages that came twice, or after a later one of their sender.
    reordered: u64,
    /// Messages that were never sent.
    unexpected: u64,
    /// Connections that ended.
    ended: u64,
}

/// All clients. The stalled one, if any, is the last, and alone on the last socket.
struct ChatClients {
    clients: Vec<Box<dyn Client>>,
    per_client: usize,
    has_stalled: bool,
    /// The messages that are not sent yet, the next one last: the time on the host's clock in nanoseconds, the sender, and the length.
    schedule: Vec<(u64, usize, usize)>,
    /// Messages that are due within it are measured.
    window: Window,
    /// The times at which the messages of each sender were due.
    due: Vec<Vec<u64>>,
    /// By client, the number of messages from each sender until the last one that came.
    last: Vec<Vec<u32>>,
    tally: Tally,
    /// The latencies of messages that were due within the window, without those of the stalled client.
    latency: Histogram<u64>,
}

impl ChatClients {
    /// The clients of a load, which begin to send at this time.
    fn new(load: &Load, clients: Vec<Box<dyn Client>>, start: u64, window: Window) -> Result<Self, String> {
        let gap_ns = GAP_NS * 100 / u64::from(load.speed.max(1));
        let (mut schedule, mut random) = (Vec::new(), Random::new(SEED));
        for sender in 0..load.clients as usize {
            let mut due_ns = start + random.below(2 * gap_ns);
            // No message leaves after the window.
            while due_ns < window.end {
                let more = usize::try_from(random.below(1 + (MESSAGE_MAX_BYTES - MESSAGE_MIN_BYTES) as u64));
                schedule.push((due_ns, sender, MESSAGE_MIN_BYTES + more.unwrap_or(0)));
                due_ns += gap_ns + random.below(gap_ns);
            }
        }
        schedule.sort_unstable();
        schedule.reverse();
        let latency = Histogram::new_with_bounds(1_000, LATENCY_MAX_NS, 3);
        Ok(Self {
            per_client: if clients.len() == 1 { usize::MAX } else { PER_SOCKET },
            has_stalled: load.has_stalled,
            clients,
            schedule,
            window,
            due: vec![Vec::new(); load.clients as usize],
            last: vec![vec![0; load.clients as usize]; load.connections() as usize],
            tally: Tally::default(),
            latency: latency.map_err(|error| error.to_string())?,
        })
    }

    /// Sends the messages that are due and receives what came. A stalled client is left out where `is_held`. Returns whether a message
    /// came.
    fn pass(&mut self, is_held: bool) -> bool {
        let before = self.tally.received;
        for client in 0..self.clients.len() - usize::from(self.has_stalled && is_held) {
            self.send_due();
            let first = client.saturating_mul(self.per_client);
            let Self { clients, last, due, window, tally, latency, .. } = self;
            let now = clock::host_ns();
            // All messages of a pass were in this process before the first one is passed on. One reading of the clock for all of them
            // leaves the clients' core to more clients.
            let mut received_at = None;
            let received = clients[client].receive(now, &mut |index, message| {
                let index = first.saturating_add(index);
                let due_ns = last.get_mut(index).and_then(|last| tally.on_message(last, due, message));
                if let Some(due_ns) = due_ns.filter(|due_ns| window.has(*due_ns) && index < due.len()) {
                    let received_at = *received_at.get_or_insert_with(clock::host_ns);
                    latency.saturating_record(received_at.saturating_sub(due_ns));
                }
            });
            // A client whose connections end returns an error, at least once.
            tally.ended += u64::from(received.is_err());
            // Datagrams that an overloaded socket does not accept wait for a later flush.
            let _ = clients[client].flush(now);
        }
        self.tally.received > before
    }

    fn send_due(&mut self) {
        let (now, mut memory) = (clock::host_ns(), [0; MESSAGE_MAX_BYTES]);
        while let Some((due_ns, sender, bytes)) = self.schedule.pop_if(|(due_ns, ..)| *due_ns <= now) {
            let (due, message) = (&mut self.due[sender], &mut memory[..bytes]);
            write_number(message, first_number(sender) + due.len() as u64);
            let client = &mut self.clients[sender / self.per_client];
            let is_in_time = now - due_ns <= LATE_MAX_NS;
            if is_in_time && client.send(now, sender % self.per_client, 0, message).unwrap_or(false) {
                due.push(due_ns);
                self.tally.sent += 1;
                let _ = client.flush(now);
            } else {
                self.tally.skipped += 1;
            }
        }
    }

    /// The counts of all sockets, connections, and messages.
    fn counts(&self) -> Counts {
        let mut stats = Stats::default();
        stats.workers = self.clients.iter().flat_map(Client::stats).collect();
        let mut counts = counts_of(&stats);
        counts.append(&mut counts_from(&self.tally));
        counts
    }
}

impl Tally {
    /// Counts a message that came to a client. Returns when it was due.
    fn on_message(&mut self, last: &mut [u32], due: &[Vec<u64>], message: &[u8]) -> Option<u64> {
        let known = number_of(message, message.len()).and_then(|number| {
            let of = connection_of(number);
            let place = usize::try_from(number - first_number(of)).ok()?;
            Some((*due.get(of)?.get(place)?, u32::try_from(place + 1).ok()?, last.get_mut(of)?))
        });
        let Some((due_ns, count, last)) = known else {
            self.unexpected += 1;
            return None;
        };
        self.received += 1;
        self.received_bytes += message.len() as u64;
        if count > *last {
            self.gaps += u64::from(count - *last - 1);
            *last = count;
        } else {
            self.reordered += 1;
        }
        Some(due_ns)
    }
}
