//! Simulated links: one direction of a network path that loses, delays, doubles, reorders and spoils datagrams,
//! all from one seed, and says what it did.
//!
//! It owns no socket and reads no clock: datagrams and time go in, datagrams and the time of the next one come
//! out. Same seed, same configuration and same inputs give the same outputs.
//!
//! ```
//! use drumfire::conditioner::{Link, LinkConfig, Loss, Moment};
//!
//! let mut link = Link::new(LinkConfig::default().loss(Loss::Even(0.25)), 7)?;
//! let (from, to) = ("192.0.2.1:1".parse()?, "192.0.2.2:2".parse()?);
//! for _ in 0..1_000 {
//!     link.push(Moment::ORIGIN, from, to, b"input");
//! }
//! while link.poll(Moment::ORIGIN).is_some() {}
//! let counts = link.counts();
//! assert_eq!(counts.pushed, counts.delivered + counts.lost);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod config;
mod random;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

pub use config::{Delay, LinkConfig, LinkConfigError, Loss, Rate};
pub use drumfire_proto::Moment;
pub use random::Random;

/// Bytes a datagram under way is charged beside its payload.
const ITEM_CHARGE_BYTES: usize = 64;

/// Bytes of IPv4 and UDP headers, which a bottleneck carries too.
const HEADER_BYTES: u64 = 28;

/// Bytes that are put behind a datagram, at most.
const LONGER_MAX_BYTES: u64 = 64;

/// Bits flipped in a spoiled datagram, at most.
const FLIPS_MAX: u64 = 4;

/// One direction of a simulated path.
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    random: Random,
    is_in_burst: bool,
    source: Option<SocketAddr>,
    bottleneck: Bottleneck,
    /// By arrival, and where that is equal in the order of setting out.
    flying: BTreeMap<(Moment, u64), Datagram>,
    flying_bytes: usize,
    sequence: u64,
    /// No datagram that keeps its place arrives before this.
    order: Moment,
    counts: LinkCounts,
}

/// A datagram that came through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where it claims to come from.
    pub from: SocketAddr,
    /// Where it goes.
    pub to: SocketAddr,
    /// Its UDP payload.
    pub bytes: Vec<u8>,
}

/// What a link did so far. `pushed + duplicated` is `delivered + lost + queue_full + too_large` and what is
/// under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkCounts {
    /// Datagrams put in.
    pub pushed: u64,
    /// Datagrams taken out.
    pub delivered: u64,
    /// Datagrams that vanished.
    pub lost: u64,
    /// Datagrams of which bits were flipped; they arrive all the same.
    pub corrupted: u64,
    /// Copies of datagrams that were made.
    pub duplicated: u64,
    /// Datagrams for which the bottleneck's queue, or the link's memory, had no room.
    pub queue_full: u64,
    /// Datagrams longer than the path takes.
    pub too_large: u64,
}

impl Link {
    /// A link with nothing on it. The same seed does the same to the same datagrams at the same times.
    ///
    /// # Errors
    /// The first field of the configuration that is not what it must be.
    pub fn new(config: LinkConfig, seed: u64) -> Result<Self, LinkConfigError> {
        config.check()?;
        Ok(Self {
            config,
            random: Random::new(seed),
            is_in_burst: false,
            source: None,
            bottleneck: Bottleneck::default(),
            flying: BTreeMap::new(),
            flying_bytes: 0,
            sequence: 0,
            order: Moment::ORIGIN,
            counts: LinkCounts::default(),
        })
    }

    /// What it does to datagrams that set out from now on.
    ///
    /// # Errors
    /// The first field that is not what it must be; the link stays as it was.
    pub fn set_config(&mut self, config: LinkConfig) -> Result<(), LinkConfigError> {
        config.check()?;
        self.config = config;
        Ok(())
    }

    /// What it does.
    #[must_use]
    pub const fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// What it did.
    #[must_use]
    pub const fn counts(&self) -> &LinkCounts {
        &self.counts
    }

    /// Datagrams under way.
    #[must_use]
    pub fn flying_count(&self) -> usize {
        self.flying.len()
    }

    /// From now on datagrams seem to come from `source`, as behind a NAT that forgot who they are; `None` for
    /// where they do come from. What is under way keeps its address.
    pub fn rebind(&mut self, source: Option<SocketAddr>) {
        self.source = source;
    }

    /// Puts a datagram in.
    pub fn push(&mut self, now: Moment, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        self.counts.pushed += 1;
        if self.config.datagram_max_bytes.is_some_and(|limit| datagram.len() > limit) {
            self.counts.too_large += 1;
            return;
        }
        if self.is_lost() {
            self.counts.lost += 1;
            return;
        }
        let from = self.source.unwrap_or(from);
        let Some(leaves) = self.bottleneck.enter(now, datagram.len(), self.config.rate) else {
            self.counts.queue_full += 1;
            return;
        };
        let mut at = leaves.after(self.delay());
        if self.random.happens(self.config.reorder) {
            at = at.after(self.random.duration(self.config.reorder_late));
        } else {
            at = at.max(self.order);
            self.order = at;
        }
        if !self.launch(at, from, to, datagram) {
            self.counts.queue_full += 1;
        } else if self.random.happens(self.config.duplicate) {
            let late = self.random.duration(self.config.duplicate_late);
            self.counts.duplicated += u64::from(self.launch(at.after(late), from, to, datagram));
        }
    }

    /// Takes out the next datagram that has arrived by now.
    pub fn poll(&mut self, now: Moment) -> Option<Datagram> {
        let first = self.flying.first_entry().filter(|entry| entry.key().0 <= now)?;
        let datagram = first.remove();
        self.flying_bytes -= charge(datagram.bytes.len());
        self.counts.delivered += 1;
        Some(datagram)
    }

    /// When the next datagram arrives; `None` when nothing is under way.
    #[must_use]
    pub fn next_at(&self) -> Option<Moment> {
        self.flying.first_key_value().map(|((at, _), _)| *at)
    }

    fn is_lost(&mut self) -> bool {
        let loss = match self.config.loss {
            Loss::Even(loss) => loss,
            Loss::Bursts { begin, end, inside, outside } => {
                let turn = if self.is_in_burst { end } else { begin };
                self.is_in_burst ^= self.random.happens(turn);
                if self.is_in_burst { inside } else { outside }
            }
        };
        self.random.happens(loss)
    }

    /// Sends a datagram on its way; false when there is no memory for it.
    fn launch(&mut self, at: Moment, from: SocketAddr, to: SocketAddr, datagram: &[u8]) -> bool {
        if self.flying_bytes + charge(datagram.len()) > self.config.memory_bytes {
            return false;
        }
        let mut bytes = datagram.to_vec();
        if self.random.happens(self.config.corrupt) && !bytes.is_empty() {
            self.spoil(&mut bytes);
        }
        let flying_bytes = self.flying_bytes + charge(bytes.len());
        self.sequence += 1;
        self.flying.insert((at, self.sequence), Datagram { from, to, bytes });
        self.flying_bytes = flying_bytes;
        true
    }

    fn delay(&mut self) -> Duration {
        match self.config.delay {
            Delay::Constant(delay) => delay,
            Delay::Uniform { least, most } => least + self.random.duration(most.saturating_sub(least)),
            Delay::Normal { mean, deviation } => {
                // Twelve uniform numbers have the variance 1 and the mean 6.
                let sum: f64 = (0..12).map(|_| self.random.fraction()).sum();
                let off = deviation.mul_f64((sum - 6.0).abs());
                if sum < 6.0 { mean.saturating_sub(off) } else { mean + off }
            }
        }
    }

    /// Makes another datagram of it: cuts it off, puts bytes behind it, or mostly flips bits.
    fn spoil(&mut self, bytes: &mut Vec<u8>) {
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

/// The queue in front of the slowest place of the path.
#[derive(Debug, Default)]
struct Bottleneck {
    /// What waits or is leaving: when it has left, and its bytes.
    queue: VecDeque<(Moment, u64)>,
    queued_bytes: u64,
    /// When the last of them has left.
    free_at: Moment,
}

impl Bottleneck {
    /// When a datagram that comes now has left; `None` when the queue is full.
    fn enter(&mut self, now: Moment, payload_bytes: usize, rate: Option<Rate>) -> Option<Moment> {
        while let Some((at, bytes)) = self.queue.front().copied()
            && at <= now
        {
            self.queue.pop_front();
            self.queued_bytes -= bytes;
        }
        let Some(rate) = rate else {
            // What still waits at a bottleneck that is gone keeps its time, and nothing overtakes it.
            return Some(now);
        };
        let bytes = payload_bytes as u64 + HEADER_BYTES;
        if self.queued_bytes + bytes > rate.queue_bytes {
            return None;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.bytes_per_second.max(1));
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = self.free_at.max(now).after(takes);
        self.queue.push_back((self.free_at, bytes));
        self.queued_bytes += bytes;
        Some(self.free_at)
    }
}

fn charge(payload_bytes: usize) -> usize {
    payload_bytes + ITEM_CHARGE_BYTES
}

#[cfg(test)]
mod tests;
