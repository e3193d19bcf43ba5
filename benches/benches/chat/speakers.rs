//! The clients: the messages that each sends and their times, and the counts of the messages that each receives.
//!
//! The times are fixed by a seed and do not depend on answers. Latency counts from them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;

use drumfire::stats::Stats;
use drumfire_benches::numbered::{connection_of, first_number, number_of, write_number};
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, PER_SOCKET, Window, counts_from, counts_of, split_mix};
use drumfire_tools::clock;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::Load;

/// When each client speaks, and how much it says, follows from this seed.
pub(crate) const SEED: u64 = 20_210_221;

/// The shortest time between two messages of a client, in nanoseconds. The longest is twice as long.
const GAP_NS: u64 = 500_000_000;

const MESSAGE_MIN_BYTES: u64 = 15;
const MESSAGE_MAX_BYTES: usize = 58;

/// Messages that are later than this are left out and counted.
const LATE_MAX_NS: u64 = 1_000_000_000;

/// The bounds of latencies: a microsecond to a hundred seconds.
const LATENCY_NS: RangeInclusive<u64> = 1_000..=100_000_000_000;

/// Returns the next random number below this bound.
fn below(state: &mut u64, bound: u64) -> u64 {
    split_mix(state) % bound.max(1)
}

/// The counts of messages at the clients.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Tally {
    /// Messages that were left out because it was too late for them, or because the connection had no room.
    #[serde(rename = "not said")]
    not_said: u64,
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
    unexpected: u64,
    /// Connections that ended.
    left: u64,
}

/// One client: the messages that it sends and receives.
struct Speaker {
    random: u64,
    /// The number of messages from each speaker until the last one that the client received.
    last: Vec<u32>,
    /// The sum of the latencies of the received messages in nanoseconds, and the number of these messages.
    took: (u64, u64),
}

/// All clients. The stalled one, if any, is the last, and alone on the last socket.
pub(crate) struct Speakers {
    clients: Vec<Box<dyn Client>>,
    per_client: usize,
    /// The number of clients that speak.
    speaking: usize,
    speakers: Vec<Speaker>,
    /// The times at which the messages of each speaker were due.
    said: Vec<Vec<u64>>,
    /// The time of the next message of each speaker on the host's clock in nanoseconds, and the speaker.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    gap_ns: u64,
    /// Messages that are due within it are measured. No message leaves after it.
    window: Window,
    pub(crate) tally: Tally,
    /// The latencies of messages that were due within the window, without those of the stalled client.
    pub(crate) latency: Histogram<u64>,
}

impl Speakers {
    /// The clients of a load, which begin to speak at this time.
    pub(crate) fn new(
        load: &Load,
        clients: Vec<Box<dyn Client>>,
        start: u64,
        window: Window,
    ) -> Result<Self, String> {
        let gap_ns = GAP_NS * 100 / u64::from(load.speed.max(1));
        let (speaking, connections) = (load.clients as usize, load.connections() as usize);
        let (mut due, mut speakers) = (BinaryHeap::new(), Vec::new());
        for index in 0..connections {
            let mut random = SEED ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            if index < speaking {
                due.push(Reverse((start + below(&mut random, 2 * gap_ns), index)));
            }
            speakers.push(Speaker { random, last: vec![0; speaking], took: (0, 0) });
        }
        let latency = Histogram::new_with_bounds(*LATENCY_NS.start(), *LATENCY_NS.end(), 3);
        let (latency, tally) = (latency.map_err(|error| error.to_string())?, Tally::default());
        let per_client = if clients.len() == 1 { connections } else { PER_SOCKET };
        let said = vec![Vec::new(); speaking];
        Ok(Self { clients, per_client, speaking, speakers, said, due, gap_ns, window, tally, latency })
    }

    /// Sends the messages that are due and receives what came. A stalled client is left out where `is_held`. Returns whether a message
    /// came.
    pub(crate) fn pass(&mut self, is_held: bool) -> bool {
        let heard = self.tally.heard;
        let has_stalled = self.speakers.len() > self.speaking;
        for client in 0..self.clients.len() - usize::from(has_stalled && is_held) {
            self.speak();
            let first = client * self.per_client;
            let Self { clients, speakers, said, speaking, window, tally, latency, .. } = self;
            let now = clock::host_ns();
            // All messages of a pass were in this process before the first one is passed on. One reading of the clock for all of them
            // leaves the clients' core to more clients.
            let mut received_at = None;
            let received = clients[client].receive(now, &mut |index, message| {
                let index = first.saturating_add(index);
                let heard = speakers.get_mut(index).and_then(|speaker| tally.hear(speaker, said, message));
                if let Some((due_ns, took)) = heard
                    && window.has(due_ns)
                    && index < *speaking
                {
                    let took_ns = received_at.get_or_insert_with(clock::host_ns).saturating_sub(due_ns);
                    latency.saturating_record(took_ns);
                    *took = (took.0 + took_ns, took.1 + 1);
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
        while let Some(&Reverse((due_ns, index))) = self.due.peek()
            && due_ns <= now
            && due_ns < self.window.end
        {
            self.due.pop();
            let (random, said) = (&mut self.speakers[index].random, &mut self.said[index]);
            self.due.push(Reverse((due_ns + self.gap_ns + below(random, self.gap_ns), index)));
            let bytes = MESSAGE_MIN_BYTES + below(random, MESSAGE_MAX_BYTES as u64 - MESSAGE_MIN_BYTES + 1);
            let message = &mut memory[..usize::try_from(bytes).unwrap_or(MESSAGE_MAX_BYTES)];
            write_number(message, first_number(index) + said.len() as u64);
            let client = &mut self.clients[index / self.per_client];
            let is_in_time = now - due_ns <= LATE_MAX_NS;
            if is_in_time && client.send(now, index % self.per_client, 0, message).unwrap_or(false) {
                said.push(due_ns);
                self.tally.said += 1;
                let _ = client.flush(now);
            } else {
                self.tally.not_said += 1;
            }
        }
    }

    /// The counts of all sockets, connections, and messages.
    pub(crate) fn counts(&self) -> Counts {
        let mut stats = Stats::default();
        stats.workers = self.clients.iter().flat_map(Client::stats).collect();
        self.add_counts(counts_of(&stats))
    }

    /// Adds the counts of messages.
    pub(crate) fn add_counts(&self, mut counts: Counts) -> Counts {
        counts.append(&mut counts_from(&self.tally));
        counts
    }

    /// The mean latency of the client with the highest mean, in milliseconds. One client that is delayed does not show among all others.
    pub(crate) fn slowest_mean_ms(&self) -> f64 {
        let means = self.speakers.iter().map(|speaker| speaker.took.0 as f64 / speaker.took.1.max(1) as f64);
        means.fold(0.0, f64::max) / 1e6
    }
}

impl Tally {
    /// Counts a message that came to a speaker. Returns when it was due, and the speaker's latencies.
    fn hear<'a>(
        &mut self,
        speaker: &'a mut Speaker,
        said: &[Vec<u64>],
        message: &[u8],
    ) -> Option<(u64, &'a mut (u64, u64))> {
        let known = number_of(message, message.len()).and_then(|number| {
            let of = connection_of(number);
            let place = usize::try_from(number - first_number(of)).ok()?;
            let count = u32::try_from(place + 1).ok()?;
            Some((*said.get(of)?.get(place)?, count, speaker.last.get_mut(of)?))
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
        Some((due_ns, &mut speaker.took))
    }
}
