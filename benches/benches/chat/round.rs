//! One run: a server process and its clients, a status line per interval, and the books of both ends.
//!
//! The times at which clients send messages are fixed by a seed and do not depend on answers. Latency counts from them.

use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire_benches::numbered::{connection_of, first_number, number_of, write_number};
use drumfire_benches::traffic::{Client, Shape, Traffic, boxed, client_counts};
use drumfire_benches::{
    Child, ClientSettings, ClientSocket, Cores, DropWatch, Outcome, PER_SOCKET, Recorder, UsageWatch, Values,
    Window, close_fanout, counts_from, report_of,
};
use drumfire_tools::{clock, host};
use serde::Serialize;

use crate::server::{SERVER, connect_tcp};
use crate::{Load, Mode, OTHER_FILES, format};

/// The number of datagrams of each connection that clients receive or send in one pass.
const DATAGRAMS_EACH: usize = 8;

/// The time from the last connection to the first message.
const LEAD_NS: u64 = 100_000_000;

/// The time without a message after which the rest counts as lost.
const QUIET_NS: u64 = 3_000_000_000;

/// The time in which the last messages leave.
const LAST_TURN_NS: u64 = 100_000_000;

/// The time between the beginnings of two passes of the clients, if a pass is not longer. A game polls less often. With more passes, each
/// one finds a datagram or two, and most of the clients' core goes into system calls.
const PASS: Duration = Duration::from_millis(1);

/// Connects all clients of a load.
fn connect(load: &Load, server: &Child) -> Result<Vec<Box<dyn Client>>, String> {
    let (address, connections) = (server.address()?, load.connections() as usize);
    if load.mode == Mode::Tcp {
        let traffic = Traffic::echo(Shape::IDLE, connections, 0);
        return traffic.connect(|count| Ok(boxed(connect_tcp(address, count)?)));
    }
    let settings = ClientSettings::new(address);
    let settings = ClientSettings { options: load.mode.options(), each: DATAGRAMS_EACH, ..settings };
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
    let mut clients = ChatClients::new(load, clients, start, window);
    let watch = || UsageWatch::begin(server.id(), std::process::id());
    let interval = |clients: &mut ChatClients, before: MessageCounts, end: u64| {
        clients.run_until(end, usize::from(load.has_stalled && end > window.start));
        let sample = clients.sample();
        if is_shown {
            println!("  {}", format::status(load.connections(), &before, &sample));
        }
        sample
    };
    let (whole, first, members) = (watch(), clients.sample(), u64::from(load.connections()));
    let from = interval(&mut clients, first, window.start);
    let (in_window, mut last) = (watch(), from);
    while last.at_ns < window.end {
        last = interval(&mut clients, last, window.end.min(last.at_ns + load.interval_ns));
    }
    let usage = in_window.used()?;
    clients.run_until_received(members);
    let used = whole.used()?.server;
    // The server counts while all clients are connected. The clients still receive its last datagrams.
    let served = server.finish_counts()?;
    clients.run_until(clock::host_ns() + LAST_TURN_NS, 0);
    let total = clients.counts;
    let mut counts = client_counts(&mut clients.clients);
    counts.append(&mut counts_from(&total));
    let is_reliable = load.mode != Mode::Unreliable;
    let books = close_fanout(&served, &counts, members, dropped.count(), is_reliable)?;
    let deliveries = last.rate(&from, |counts| counts.received);
    let offered = last.rate(&from, |counts| counts.sent + counts.skipped) * members as f64;
    let values = Values::from([
        ("deliveries", deliveries),
        ("% of offered", deliveries * 100.0 / offered),
        ("dropped", books.dropped_count().saturating_sub(total.skipped * members) as f64),
        ("skipped", total.skipped as f64),
        ("server %", usage.server.core_share() * 100.0),
        ("clients %", usage.load.core_share() * 100.0),
    ]);
    // A server that is behind works after the window too, so the CPU time is that of all messages.
    let mut report = report_of(used.cpu.cpu_time(), used.window, books, clients.recorder.finish().latency);
    // Threads of the server over TCP wait for each other.
    usage.note_in(&mut report, [load.mode != Mode::Tcp, true]);
    Ok((report, values))
}

/// The times and lengths of all messages follow from this seed.
pub(crate) const SEED: u64 = 20_210_221;

/// The shortest time between two messages of a client, in nanoseconds. The longest is twice as long.
const GAP_NS: u64 = 500_000_000;

const MESSAGE_MIN_BYTES: usize = 15;
const MESSAGE_MAX_BYTES: usize = 58;

/// Messages that are later than this are left out and counted.
const LATE_MAX_NS: u64 = 1_000_000_000;

/// The counts of messages at the clients.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct MessageCounts {
    /// The time of a sample.
    at_ns: u64,
    /// Messages that were left out because it was too late for them, or because the connection had no room.
    skipped: u64,
    /// Messages that the connection accepted.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    /// Messages that are missing between two of their sender.
    pub(crate) gaps: u64,
    /// Messages that arrived twice, or after a later one of their sender.
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
    /// The messages that are not sent yet, the next one last: the time on the host's clock in nanoseconds, the sender, and the length.
    schedule: Vec<(u64, usize, usize)>,
    /// The times at which the messages of each sender were due.
    due: Vec<Vec<u64>>,
    /// By client, the number of messages from each sender until the last received one.
    last: Vec<Vec<u32>>,
    counts: MessageCounts,
    /// Records the latencies of messages that were due within the window, without those of the stalled client.
    recorder: Recorder,
}

impl ChatClients {
    /// The clients of a load, which begin to send at this time.
    fn new(load: &Load, clients: Vec<Box<dyn Client>>, start: u64, window: Window) -> Self {
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
        let mut recorder = Recorder::default();
        recorder.begin(window, 0);
        Self {
            per_client: if clients.len() == 1 { usize::MAX } else { PER_SOCKET },
            clients,
            schedule,
            due: vec![Vec::new(); load.clients as usize],
            last: vec![vec![0; load.clients as usize]; load.connections() as usize],
            counts: MessageCounts::default(),
            recorder,
        }
    }

    /// The counts now.
    fn sample(&self) -> MessageCounts {
        MessageCounts { at_ns: clock::host_ns(), ..self.counts }
    }

    /// Passes messages until this time, but none to the last `held` clients.
    fn run_until(&mut self, end: u64, held: usize) {
        while clock::host_ns() < end {
            self.pass(held);
        }
    }

    /// Passes messages until all members have received all of them. Messages that were lost or missed are not awaited.
    fn run_until_received(&mut self, members: u64) {
        self.run_until(clock::host_ns() + LAST_TURN_NS, 0);
        let mut last = clock::host_ns();
        while self.counts.received < self.counts.sent * members && clock::host_ns() < last + QUIET_NS {
            if self.pass(0) {
                last = clock::host_ns();
            }
        }
    }

    /// Sends the messages that are due, receives, and waits for the next pass. The last `held` clients are left out. Returns
    /// whether a message arrived.
    fn pass(&mut self, held: usize) -> bool {
        let (start, before) = (clock::now(), self.counts.received);
        for client in 0..self.clients.len() - held {
            self.send_due();
            let first = client.saturating_mul(self.per_client);
            let Self { clients, last, due, counts, recorder, .. } = self;
            let now = clock::host_ns();
            // All messages of a pass were in this process before the first one is passed on. One reading of the clock for all of them
            // leaves the clients' core to more clients.
            let mut received_at = None;
            let received = clients[client].receive(now, &mut |index, message| {
                let index = first.saturating_add(index);
                let due_ns = last.get_mut(index).and_then(|last| counts.on_message(last, due, message));
                if let Some(due_ns) = due_ns.filter(|_| index < due.len()) {
                    let received_at = *received_at.get_or_insert_with(clock::host_ns);
                    recorder.on_echo(received_at, received_at.saturating_sub(due_ns));
                }
            });
            // A client whose connections end returns an error, at least once.
            counts.ended += u64::from(received.is_err());
            // Datagrams that an overloaded socket does not accept wait for a later flush.
            let _ = clients[client].flush(now);
        }
        clock::pause(PASS.saturating_sub(start.elapsed()));
        self.counts.received > before
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
                self.counts.sent += 1;
                let _ = client.flush(now);
            } else {
                self.counts.skipped += 1;
            }
        }
    }
}

impl MessageCounts {
    /// The rate of a counter since an earlier sample.
    pub(crate) fn rate(&self, from: &Self, of: fn(&Self) -> u64) -> f64 {
        (of(self) - of(from)) as f64 * 1e9 / (self.at_ns - from.at_ns).max(1) as f64
    }

    /// Counts a message that a client received. Returns when it was due.
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
