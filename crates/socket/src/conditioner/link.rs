//! The simulation of one direction of a path: loss, delay, duplicates, reordering, and corruption.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::config::{Delay, LinkConfig, Loss, Rate};
use super::random::Random;
use crate::error::ConfigError;

/// The memory in bytes that a datagram in flight counts for, in addition to its payload.
pub(super) const ITEM_CHARGE_BYTES: usize = 64;

/// The length of the IPv4 and UDP headers in bytes. A bottleneck carries them too.
const HEADER_BYTES: u64 = 28;

/// The maximum number of bytes that a corruption appends to a datagram.
const LONGER_MAX_BYTES: u64 = 64;

/// The maximum number of bits that a corruption flips.
const FLIPS_MAX: u64 = 4;

/// One direction of a simulated path. Each datagram has a tag, usually its addresses, which the link passes on unread.
///
/// All times are durations since a fixed time of the caller's clock, for example its start.
#[derive(Debug)]
pub struct Link<T = ()> {
    config: LinkConfig,
    random: Random,
    is_in_burst: bool,
    bottleneck: Bottleneck,
    /// Datagrams in flight, by arrival time and then by the order in which they were sent.
    in_flight: BTreeMap<(Duration, u64), (T, Vec<u8>)>,
    in_flight_bytes: usize,
    sequence: u64,
    /// The latest arrival of a datagram that was not reordered. Later ones do not arrive before it.
    order: Duration,
    counts: LinkCounts,
}

/// The counters of a link. `pushed + duplicated` equals `delivered + lost + queue_full + too_large` plus the datagrams in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LinkCounts {
    /// The number of datagrams that the sender passed to the link.
    pub pushed: u64,
    /// The number of datagrams that arrived and were returned to the receiver.
    pub delivered: u64,
    /// The number of datagrams that were lost, including those in flight when their socket was replaced.
    pub lost: u64,
    /// The number of datagrams that were corrupted. They still arrive.
    pub corrupted: u64,
    /// The number of duplicates that the link added.
    pub duplicated: u64,
    /// The number of datagrams that did not fit in the queue of the bottleneck or in the memory of the link.
    pub queue_full: u64,
    /// The number of datagrams that were longer than the path supports.
    pub too_large: u64,
}

impl<T: Clone> Link<T> {
    /// Creates an empty link.
    ///
    /// # Errors
    ///
    /// Returns the first field of the configuration that is out of range.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            random: Random::new(seed),
            is_in_burst: false,
            bottleneck: Bottleneck::default(),
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            sequence: 0,
            order: Duration::ZERO,
            counts: LinkCounts::default(),
        })
    }

    /// Replaces the configuration for datagrams that are sent from now on.
    ///
    /// # Errors
    ///
    /// Returns the first field that is out of range. The link keeps its configuration.
    pub fn set_config(&mut self, config: LinkConfig) -> Result<(), ConfigError> {
        config.check()?;
        self.config = config;
        Ok(())
    }

    /// Returns the current configuration.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the counters since the link was created.
    #[must_use]
    pub const fn counts(&self) -> &LinkCounts {
        &self.counts
    }

    /// Returns the number of datagrams in flight.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Sends a copy of the datagram at `now`. `tag` is returned with each copy that arrives. A datagram that is lost is
    /// only counted.
    pub fn push(&mut self, now: Duration, tag: T, datagram: &[u8]) {
        self.counts.pushed += 1;
        // A datagram passes the parts of a path in this order: the MTU, the loss, the queue of the bottleneck, and the delay. One that
        // is lost takes no room in the queue, because most loss of real paths is on a link before the bottleneck.
        if self.config.datagram_max_bytes.is_some_and(|limit| datagram.len() > limit) {
            self.counts.too_large += 1;
            return;
        }
        if self.is_lost() {
            self.counts.lost += 1;
            return;
        }
        // Without memory the link drops the datagram before the bottleneck, so that it delays no other datagram.
        let leaves = if self.has_memory(datagram) {
            self.bottleneck.enter(now, datagram.len(), self.config.rate)
        } else {
            None
        };
        let Some(leaves) = leaves else {
            self.counts.queue_full += 1;
            return;
        };
        let mut at = leaves.saturating_add(self.delay());
        // A reordered datagram does not raise `order`, so later ones do not wait for it. All others keep their order, because the
        // jitter of real paths comes from queues, and a queue does not reorder.
        if self.random.happens(self.config.reorder) {
            at = at.saturating_add(self.random.duration(self.config.reorder_delay));
        } else {
            at = at.max(self.order);
            self.order = at;
        }
        self.launch(at, tag.clone(), datagram);
        if self.random.happens(self.config.duplicate) {
            // The copy is corrupted on its own, and it needs memory of its own: a full link sends only the original.
            let late = self.random.duration(self.config.duplicate_delay);
            if self.has_memory(datagram) {
                self.launch(at.saturating_add(late), tag, datagram);
                self.counts.duplicated += 1;
            }
        }
    }

    /// Takes out the next datagram that has arrived by now.
    pub fn poll(&mut self, now: Duration) -> Option<(T, Vec<u8>)> {
        let first = self.in_flight.first_entry().filter(|entry| entry.key().0 <= now)?;
        let (tag, bytes) = first.remove();
        self.in_flight_bytes -= charge(bytes.len());
        self.counts.delivered += 1;
        Some((tag, bytes))
    }

    /// Returns the time at which the next datagram arrives, or `None` if none is in flight.
    #[must_use]
    pub fn next_at(&self) -> Option<Duration> {
        self.in_flight.first_key_value().map(|((at, _), _)| *at)
    }

    /// Loses all datagrams in flight. Later ones do not wait for them.
    pub fn lose_all(&mut self) {
        self.counts.lost += self.in_flight.len() as u64;
        // The counters and the state of the random generator continue, so that the run stays repeatable.
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.bottleneck = Bottleneck::default();
        self.order = Duration::ZERO;
    }

    fn is_lost(&mut self) -> bool {
        let loss = match self.config.loss {
            Loss::Random(loss) => loss,
            Loss::Bursts { begin, end, inside, outside } => {
                // The state changes before the datagram, so that a burst of length one loses a datagram too.
                let turn = if self.is_in_burst { end } else { begin };
                self.is_in_burst ^= self.random.happens(turn);
                if self.is_in_burst { inside } else { outside }
            }
        };
        self.random.happens(loss)
    }

    /// Whether there is memory for another datagram in flight.
    fn has_memory(&self, datagram: &[u8]) -> bool {
        self.in_flight_bytes + charge(datagram.len()) <= self.config.memory_bytes
    }

    /// Puts a datagram in flight.
    fn launch(&mut self, at: Duration, tag: T, datagram: &[u8]) {
        // A corruption can append bytes. The link then exceeds its memory by them, which is simpler than to check the memory twice.
        let mut bytes = datagram.to_vec();
        if self.random.happens(self.config.corrupt) && !bytes.is_empty() {
            self.corrupt(&mut bytes);
        }
        let in_flight_bytes = self.in_flight_bytes + charge(bytes.len());
        self.sequence += 1;
        self.in_flight.insert((at, self.sequence), (tag, bytes));
        self.in_flight_bytes = in_flight_bytes;
    }

    fn delay(&mut self) -> Duration {
        match self.config.delay {
            Delay::Constant(delay) => delay,
            Delay::Uniform { min, max } => min + self.random.duration(max.saturating_sub(min)),
            Delay::Normal { mean, deviation } => {
                // Twelve uniform numbers have the variance 1 and the mean 6.
                let sum: f64 = (0..12).map(|_| self.random.fraction()).sum();
                let off = deviation.mul_f64((sum - 6.0).abs());
                if sum < 6.0 { mean.saturating_sub(off) } else { mean + off }
            }
        }
    }

    /// Corrupts a datagram: truncates it, appends bytes, or (6 times in 8) flips bits.
    fn corrupt(&mut self, bytes: &mut Vec<u8>) {
        self.counts.corrupted += 1;
        match self.random.below(8) {
            0 => bytes.truncate(usize::try_from(self.random.below(bytes.len() as u64)).unwrap_or(0)),
            1 => {
                let more = 1 + self.random.below(LONGER_MAX_BYTES);
                bytes
                    .extend(self.random.bytes().into_iter().cycle().take(usize::try_from(more).unwrap_or(1)));
            }
            _ => self.flip(bytes),
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let bits = 8 * bytes.len() as u64;
        let mut flipped = Vec::new();
        for _ in 0..=self.random.below(FLIPS_MAX) {
            let bit = self.random.below(bits);
            if flipped.contains(&bit) {
                continue;
            }
            flipped.push(bit);
            let place = usize::try_from(bit / 8).unwrap_or(usize::MAX);
            if let Some(byte) = bytes.get_mut(place) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}

/// The queue before the slowest link of the path.
#[derive(Debug, Default)]
struct Bottleneck {
    /// For each queued datagram, the time at which it leaves, and its bytes.
    queue: VecDeque<(Duration, u64)>,
    queued_bytes: u64,
    /// The time at which the last queued datagram leaves.
    free_at: Duration,
}

impl Bottleneck {
    /// Queues a datagram that arrives now. Returns when it has left, or `None` if the queue is full.
    fn enter(&mut self, now: Duration, payload_bytes: usize, rate: Option<Rate>) -> Option<Duration> {
        // Nothing runs while time passes, so the datagrams that have left by now are removed first.
        while let Some((at, bytes)) = self.queue.front().copied()
            && at <= now
        {
            self.queue.pop_front();
            self.queued_bytes -= bytes;
        }
        let Some(rate) = rate else {
            // Datagrams in the queue of a bottleneck that was removed keep their times, and no later one overtakes them.
            return Some(now);
        };
        let bytes = payload_bytes as u64 + HEADER_BYTES;
        if self.queued_bytes + bytes > rate.queue_bytes {
            return None;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.bytes_per_second.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(now).saturating_add(takes);
        self.queue.push_back((self.free_at, bytes));
        self.queued_bytes += bytes;
        Some(self.free_at)
    }
}

fn charge(payload_bytes: usize) -> usize {
    payload_bytes + ITEM_CHARGE_BYTES
}
