//! The clients: what each says and when, and the count of what each hears.
//!
//! The times are fixed by a seed and do not depend on answers. Latency counts from them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;

use drumfire::stats::Stats;
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, Window, counts_from, counts_of, split_mix};
use drumfire_tools::clock;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::plan::Plan;

/// The shortest time between two messages of a client, in nanoseconds. The longest is twice as long.
const GAP_NS: u64 = 500_000_000;

const MESSAGE_BYTES: RangeInclusive<u64> = 15..=58;

const MESSAGE_MAX_BYTES: usize = 58;

/// Messages that are later than this are left out and counted.
const LATE_MAX_NS: u64 = 1_000_000_000;

/// The bounds of latencies: a microsecond to a hundred seconds.
const LATENCY_NS: RangeInclusive<u64> = 1_000..=100_000_000_000;

/// When messages leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The time of the first message, on the host's clock in nanoseconds.
    pub(crate) start: u64,
    /// Messages that are due within it are measured. No message leaves after it.
    pub(crate) window: Window,
}

/// Returns the next random number below this bound.
fn below(state: &mut u64, bound: u64) -> u64 {
    split_mix(state) % bound.max(1)
}

/// The header of a message. The rest of the message is filled with `~`.
#[derive(Clone, Copy)]
struct Stamp {
    /// The time at which it was due, on the host's clock.
    due_ns: u64,
    speaker: u16,
    /// The number of the message among those of its speaker, from 1.
    number: u32,
}

impl Stamp {
    fn write(self, memory: &mut [u8; MESSAGE_MAX_BYTES]) {
        memory.fill(b'~');
        memory[..8].copy_from_slice(&self.due_ns.to_be_bytes());
        memory[8..10].copy_from_slice(&self.speaker.to_be_bytes());
        memory[10..14].copy_from_slice(&self.number.to_be_bytes());
    }

    fn read(message: &[u8]) -> Option<Self> {
        let (due, rest) = message.split_first_chunk()?;
        let (speaker, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let is_whole = message.len() <= MESSAGE_MAX_BYTES && rest.iter().all(|byte| *byte == b'~');
        is_whole.then(|| Self {
            due_ns: u64::from_be_bytes(*due),
            speaker: u16::from_be_bytes(*speaker),
            number: u32::from_be_bytes(*number),
        })
    }
}

/// The counts of messages at the clients.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Tally {
    /// Messages that the schedule asked for.
    offered: u64,
    /// Messages that were left out because it was too late for them.
    skipped: u64,
    /// Messages for which the connection had no room.
    refused: u64,
    /// Messages that the connection accepted.
    pub(crate) said: u64,
    pub(crate) heard: u64,
    #[serde(rename = "heard bytes")]
    heard_bytes: u64,
    /// Messages that are missing between two of a speaker.
    gaps: u64,
    /// Messages that came after a later one of their speaker, or twice.
    behind: u64,
    /// Messages that were never sent.
    strangers: u64,
    /// Connections that ended.
    left: u64,
}

/// One client: the messages that it sends and hears.
struct Speaker {
    random: u64,
    said: u32,
    /// The number of the last message of each speaker.
    last: Vec<u32>,
    /// The latencies of the messages that it heard, summed in nanoseconds, and their number.
    took: (u64, u64),
}

/// All clients. The stalled one, if any, is the last, with a socket of its own.
pub(crate) struct Speakers<C> {
    clients: Vec<C>,
    per_client: usize,
    /// The number of clients that speak.
    speaking: usize,
    speakers: Vec<Speaker>,
    /// The time of the next message of each speaker since the start, and the speaker.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    gap_ns: u64,
    pub(crate) tally: Tally,
    /// The latencies of messages that were due within the window, without those of the stalled client.
    pub(crate) latency: Histogram<u64>,
}

impl<C: Client> Speakers<C> {
    pub(crate) fn new(plan: &Plan, clients: Vec<C>, per_client: usize) -> Result<Self, String> {
        let gap_ns = GAP_NS * 100 / u64::from(plan.speed.max(1));
        let (speaking, mut due) = (plan.clients as usize, BinaryHeap::new());
        let mut speakers = Vec::new();
        for index in 0..plan.connections() as usize {
            let mut random = plan.seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if index < speaking {
                due.push(Reverse((below(&mut random, 2 * gap_ns), index)));
            }
            speakers.push(Speaker { random, said: 0, last: vec![0; speaking], took: (0, 0) });
        }
        let latency = Histogram::new_with_bounds(*LATENCY_NS.start(), *LATENCY_NS.end(), 3);
        let (latency, tally) = (latency.map_err(|error| error.to_string())?, Tally::default());
        Ok(Self { clients, per_client, speaking, speakers, due, gap_ns, tally, latency })
    }

    /// Sends the messages that are due and receives what came. The stalled client is left out where `is_held`. Returns whether a
    /// message came.
    pub(crate) fn pass(&mut self, times: &Times, is_held: bool) -> Result<bool, String> {
        let (heard, stalled) = (self.tally.heard, self.speaking.div_ceil(self.per_client));
        for client in 0..if is_held { stalled } else { self.clients.len() } {
            self.speak(times)?;
            let first = if client == stalled { self.speaking } else { client * self.per_client };
            let window = (client < stalled).then_some(times.window);
            let Self { clients, speakers, tally, latency, .. } = self;
            let now = clock::host_ns();
            let received = clients[client].receive(now, &mut |index, message| {
                hear(speakers, first.saturating_add(index), message, window, (tally, latency));
            });
            // Each connection that ends is one error.
            tally.left += u64::from(received.is_err());
            flush(&mut clients[client], now);
        }
        Ok(self.tally.heard > heard)
    }

    fn speak(&mut self, times: &Times) -> Result<(), String> {
        let (now, mut memory) = (clock::host_ns(), [0; MESSAGE_MAX_BYTES]);
        while let Some(&Reverse((at_ns, index))) = self.due.peek() {
            let due_ns = times.start + at_ns;
            if due_ns > now || due_ns >= times.window.end {
                break;
            }
            self.due.pop();
            let speaker = &mut self.speakers[index];
            self.due.push(Reverse((at_ns + self.gap_ns + below(&mut speaker.random, self.gap_ns), index)));
            let length = MESSAGE_BYTES.start()
                + below(&mut speaker.random, MESSAGE_BYTES.end() - MESSAGE_BYTES.start() + 1);
            let id = u16::try_from(index).map_err(|_| "too many clients")?;
            self.tally.offered += 1;
            if now - due_ns > LATE_MAX_NS {
                self.tally.skipped += 1;
                continue;
            }
            Stamp { due_ns, speaker: id, number: speaker.said + 1 }.write(&mut memory);
            let message = &memory[..usize::try_from(length).unwrap_or(MESSAGE_MAX_BYTES)];
            let client = &mut self.clients[index / self.per_client];
            if client.send(now, index % self.per_client, 0, message).unwrap_or(false) {
                speaker.said += 1;
                self.tally.said += 1;
                flush(client, now);
            } else {
                self.tally.refused += 1;
            }
        }
        Ok(())
    }

    /// The counts of all messages, and of all sockets and connections.
    pub(crate) fn counts(&self) -> Counts {
        let mut stats = Stats::default();
        stats.workers = self.clients.iter().flat_map(Client::stats).collect();
        let mut counts = counts_of(&stats);
        counts.append(&mut counts_from(&self.tally));
        counts
    }

    /// The mean latency of the client with the highest mean, in milliseconds. One client that is delayed does not show among all others.
    pub(crate) fn slowest_mean_ms(&self) -> f64 {
        let means = self.speakers.iter().map(|speaker| speaker.took.0 as f64 / speaker.took.1.max(1) as f64);
        means.fold(0.0, f64::max) / 1e6
    }
}

/// Sends what a client has queued. Datagrams that an overloaded socket does not accept wait for a later flush.
fn flush(client: &mut impl Client, now: u64) {
    let _ = client.flush(now);
}

/// Counts a message that came to the speaker with this index. It is measured if it was due within the window.
fn hear(
    speakers: &mut [Speaker],
    index: usize,
    message: &[u8],
    window: Option<Window>,
    (tally, latency): (&mut Tally, &mut Histogram<u64>),
) {
    let known = Stamp::read(message).zip(speakers.get_mut(index));
    let last = known.and_then(|(stamp, Speaker { last, took, .. })| {
        Some((stamp, last.get_mut(usize::from(stamp.speaker))?, took))
    });
    let Some((stamp, last, took)) = last else {
        tally.strangers += 1;
        return;
    };
    tally.heard += 1;
    tally.heard_bytes += message.len() as u64;
    if stamp.number > *last {
        tally.gaps += u64::from(stamp.number - *last - 1);
        *last = stamp.number;
    } else {
        tally.behind += 1;
    }
    if window.is_some_and(|window| window.has(stamp.due_ns)) {
        let took_ns = clock::host_ns().saturating_sub(stamp.due_ns);
        latency.saturating_record(took_ns);
        *took = (took.0 + took_ns, took.1 + 1);
    }
}
