//! One run: a server process and its clients, a status line per interval, and the books of both ends.
//!
//! The times at which clients send messages are fixed by a seed and do not depend on answers. Latency counts from them.

use std::time::Duration;

use drumfire::stats::Stats;
use drumfire_benches::numbered::{connection_of, first_number, number_of, write_number};
use drumfire_benches::roles::key;
use drumfire_benches::traffic::{Client, Shape, Traffic};
use drumfire_benches::{
    Child, ClientPool, ClientSettings, Cores, Counts, DropWatch, Outcome, PER_SOCKET, RAMP_PER_SECOND,
    UsageWatch, Values, Window, WindowUsage, WindowWatch, close_fanout, count, counts_from, counts_of,
    raise_open_files, report_of, split_mix,
};
use drumfire_tools::clock;
use drumfire_tools::report::Latency;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::server::{SERVER, Streams};
use crate::{Load, Mode, format};

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

/// The counts of all clients at one time.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    at_ns: u64,
    pub(crate) tally: Tally,
}

impl Sample {
    /// The rate of a counter since an earlier sample.
    pub(crate) fn rate(&self, from: &Self, of: impl Fn(&Tally) -> u64) -> f64 {
        (of(&self.tally) - of(&from.tally)) as f64 / self.since(from).as_secs_f64()
    }

    fn since(&self, from: &Self) -> Duration {
        Duration::from_nanos((self.at_ns - from.at_ns).max(1))
    }
}

/// Connects all clients of a load.
fn connect(load: &Load, server: &Child) -> Result<Vec<Box<dyn Client>>, String> {
    let (address, connections) = (server.address()?, load.connections() as usize);
    if load.mode == Mode::Tcp {
        return Ok(vec![Box::new(Streams::connect(address, connections)?)]);
    }
    let settings = ClientSettings::new((address, key().public()));
    let settings = ClientSettings { options: load.mode.options(), each: DATAGRAMS_EACH, ..settings };
    let traffic = Traffic {
        per_client: PER_SOCKET,
        per_second: Some(RAMP_PER_SECOND),
        patience: Duration::from_secs(60),
        ..Traffic::echo(Shape::Idle, connections, 0)
    };
    traffic.connect(|count| Ok(Box::new(ClientPool::on_one_socket(&settings, count)?) as Box<dyn Client>))
}

/// Runs a load. Prints the status lines where `is_shown`.
pub(crate) fn run(load: &Load, cores: Cores, is_shown: bool) -> Result<Outcome, String> {
    raise_open_files(u64::from(load.connections()) + OTHER_FILES)?;
    let dropped = DropWatch::begin();
    let server = Child::role(SERVER, Some(cores.server), &(load.mode, load.connections()))?;
    let clients = connect(load, &server)?;
    let start = clock::host_ns() + LEAD_NS;
    let window = Window::beginning_at(start + load.interval_ns, load.window);
    let mut speakers = Speakers::new(load, clients, start, window)?;
    let cpu = UsageWatch::begin(server.id());
    let show = |from: &Sample, to: &Sample| {
        if is_shown {
            println!("  {}", format::status(load.connections(), from, to));
        }
    };
    let (samples, usage) = drive(load, &server, &mut speakers, window, show)?;
    let cpu = cpu.used()?.cpu.cpu_time();
    // The server counts while all clients are connected. The clients still receive its last datagrams.
    let served = server.finish_counts()?;
    let until = clock::host_ns() + LAST_TURN_NS;
    while clock::host_ns() < until {
        speakers.pass(false);
    }
    let last = speakers.tally;
    match last.left + count(&served, "server left") {
        0 => {}
        ended => return Err(format!("{ended} {ENDED}")),
    }
    let members = load.connections().into();
    let is_reliable = load.mode != Mode::Unreliable;
    let books = close_fanout(&served, &speakers.counts(), members, dropped.count(), is_reliable)?;
    let at = |time| samples.iter().find(|sample| sample.at_ns >= time);
    let (Some(first), Some(from), Some(to), Some(end)) =
        (samples.first(), at(window.start), at(window.end), samples.last())
    else {
        return Err("this process had no core in the window".to_owned());
    };
    let deliveries = to.rate(from, |tally| tally.heard);
    let offered = to.rate(from, |tally| tally.said + tally.not_said) * members as f64;
    let values = Values::from([
        ("deliveries", deliveries),
        ("% of offered", deliveries * 100.0 / offered),
        ("dropped", books.dropped_count().saturating_sub(last.not_said * members) as f64),
        ("not said", last.not_said as f64),
        ("server %", usage.server.core_share() * 100.0),
        ("clients %", usage.load.core_share() * 100.0),
    ]);
    // A server that is behind works after the window too, so the CPU time is that of all messages.
    let mut report = report_of(cpu, end.since(first), books, Latency::of(&speakers.latency));
    // Threads of the server over TCP wait for each other.
    usage.note_in(&mut report, [load.mode != Mode::Tcp, true]);
    Ok((report, values))
}

/// Passes messages until all of them have come. Returns the samples at the beginning, at the ends of intervals, and at the end, and the
/// usage of the window.
fn drive(
    load: &Load,
    server: &Child,
    speakers: &mut Speakers,
    window: Window,
    show: impl Fn(&Sample, &Sample),
) -> Result<(Vec<Sample>, WindowUsage), String> {
    let (mut watch, mut usage) = (WindowWatch::new(server.id(), std::process::id(), window.start), None);
    let mut samples = vec![Sample { at_ns: clock::host_ns(), tally: speakers.tally }];
    let (mut next, mut heard_at) = (window.start, window.end);
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
        // Messages that were lost or missed are not awaited.
        let is_all_heard = speakers.tally.heard >= speakers.tally.said * u64::from(load.connections());
        let is_over = now > heard_at + QUIET_NS || is_all_heard && now > window.end + LAST_TURN_NS;
        if now >= next || is_over {
            let sample = Sample { at_ns: clock::host_ns(), tally: speakers.tally };
            show(&samples[samples.len() - 1], &sample);
            samples.push(sample);
            next += load.interval_ns;
        }
        if is_over {
            return Ok((samples, usage.ok_or("the window never ended")?));
        }
    }
}

/// When each client speaks, and how much it says, follows from this seed.
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
    #[serde(rename = "not said")]
    not_said: u64,
    /// Messages that the connection accepted.
    pub(crate) said: u64,
    pub(crate) heard: u64,
    pub(crate) heard_bytes: u64,
    /// Messages that are missing between two of their speaker.
    pub(crate) gaps: u64,
    /// Messages that came twice, or after a later one of their speaker.
    behind: u64,
    /// Messages that were never sent.
    unexpected: u64,
    /// Connections that ended.
    left: u64,
}

/// All clients. The stalled one, if any, is the last, and alone on the last socket.
struct Speakers {
    clients: Vec<Box<dyn Client>>,
    per_client: usize,
    has_stalled: bool,
    /// The messages that are not sent yet, the next one last: the time on the host's clock in nanoseconds, the speaker, and the length.
    schedule: Vec<(u64, usize, usize)>,
    /// Messages that are due within it are measured.
    window: Window,
    /// The times at which the messages of each speaker were due.
    said: Vec<Vec<u64>>,
    /// By client, the number of messages from each speaker until the last one that came.
    last: Vec<Vec<u32>>,
    tally: Tally,
    /// The latencies of messages that were due within the window, without those of the stalled client.
    latency: Histogram<u64>,
}

impl Speakers {
    /// The clients of a load, which begin to speak at this time.
    fn new(load: &Load, clients: Vec<Box<dyn Client>>, start: u64, window: Window) -> Result<Self, String> {
        let gap_ns = GAP_NS * 100 / u64::from(load.speed.max(1));
        let (mut schedule, mut random) = (Vec::new(), SEED);
        let mut below = |bound: u64| split_mix(&mut random) % bound;
        for speaker in 0..load.clients as usize {
            let mut due_ns = start + below(2 * gap_ns);
            // No message leaves after the window.
            while due_ns < window.end {
                let more = usize::try_from(below(1 + (MESSAGE_MAX_BYTES - MESSAGE_MIN_BYTES) as u64));
                schedule.push((due_ns, speaker, MESSAGE_MIN_BYTES + more.unwrap_or(0)));
                due_ns += gap_ns + below(gap_ns);
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
            said: vec![Vec::new(); load.clients as usize],
            last: vec![vec![0; load.clients as usize]; load.connections() as usize],
            tally: Tally::default(),
            latency: latency.map_err(|error| error.to_string())?,
        })
    }

    /// Sends the messages that are due and receives what came. A stalled client is left out where `is_held`. Returns whether a message
    /// came.
    fn pass(&mut self, is_held: bool) -> bool {
        let heard = self.tally.heard;
        for client in 0..self.clients.len() - usize::from(self.has_stalled && is_held) {
            self.speak();
            let first = client.saturating_mul(self.per_client);
            let Self { clients, last, said, window, tally, latency, .. } = self;
            let now = clock::host_ns();
            // All messages of a pass were in this process before the first one is passed on. One reading of the clock for all of them
            // leaves the clients' core to more clients.
            let mut received_at = None;
            let received = clients[client].receive(now, &mut |index, message| {
                let index = first.saturating_add(index);
                let due_ns = last.get_mut(index).and_then(|last| tally.hear(last, said, message));
                if let Some(due_ns) = due_ns.filter(|due_ns| window.has(*due_ns) && index < said.len()) {
                    let received_at = *received_at.get_or_insert_with(clock::host_ns);
                    latency.saturating_record(received_at.saturating_sub(due_ns));
                }
            });
            // A client whose connections end returns an error, at least once.
            tally.left += u64::from(received.is_err());
            // Datagrams that an overloaded socket does not accept wait for a later flush.
            let _ = clients[client].flush(now);
        }
        self.tally.heard > heard
    }

    fn speak(&mut self) {
        let (now, mut memory) = (clock::host_ns(), [0; MESSAGE_MAX_BYTES]);
        while let Some((due_ns, speaker, bytes)) = self.schedule.pop_if(|(due_ns, ..)| *due_ns <= now) {
            let (said, message) = (&mut self.said[speaker], &mut memory[..bytes]);
            write_number(message, first_number(speaker) + said.len() as u64);
            let client = &mut self.clients[speaker / self.per_client];
            let is_in_time = now - due_ns <= LATE_MAX_NS;
            if is_in_time && client.send(now, speaker % self.per_client, 0, message).unwrap_or(false) {
                said.push(due_ns);
                self.tally.said += 1;
                let _ = client.flush(now);
            } else {
                self.tally.not_said += 1;
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
    fn hear(&mut self, last: &mut [u32], said: &[Vec<u64>], message: &[u8]) -> Option<u64> {
        let known = number_of(message, message.len()).and_then(|number| {
            let of = connection_of(number);
            let place = usize::try_from(number - first_number(of)).ok()?;
            Some((*said.get(of)?.get(place)?, u32::try_from(place + 1).ok()?, last.get_mut(of)?))
        });
        let Some((due_ns, count, last)) = known else {
            self.unexpected += 1;
            return None;
        };
        self.heard += 1;
        self.heard_bytes += message.len() as u64;
        if count > *last {
            self.gaps += u64::from(count - *last - 1);
            *last = count;
        } else {
            self.behind += 1;
        }
        Some(due_ns)
    }
}
