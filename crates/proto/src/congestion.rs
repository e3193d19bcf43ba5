//! How much a connection may have under way and how fast it may send: one [`Rate`] for each busy connection.
//!
//! A [`Controller`] turns acks and losses into a window; the pacer spreads what the window allows over time; the
//! bandwidth estimate says what the path was seen to carry. It keeps no list of packets and finds no losses, which is
//! `loss`'s business, sets no timer, and uses no ECN. What it knows of a path is a handful of numbers, meant to be
//! dropped when a connection falls idle and learnt anew.

mod bandwidth;
mod cubic;
mod delay;
mod fixed;
mod pacer;
#[cfg(test)]
mod tests;

use std::fmt::Debug;
use std::time::Duration;

use bandwidth::Bandwidth;
use cubic::Cubic;
use delay::Delay;
use fixed::Fixed;
use pacer::Pacer;

use crate::limits::{LUMP_INTERVAL, ROUND_TRIP_INITIAL};
use crate::time::{Micros, Moment};

/// How a connection finds out how fast it may send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Congestion {
    /// Keeps queues short: it slows down when packets begin to wait at a router for more than 10 to 25 ms, long before
    /// any are lost, and takes no notice of the odd packet lost by radio. Made for small frequent packets on home and
    /// mobile links, where a full queue is felt as lag. Beside a download by TCP it gets less than half, but never
    /// backs off below what a player's input needs. (After Copa, NSDI 2018, and Swift, SIGCOMM 2020.)
    #[default]
    Delay,
    /// CUBIC, as TCP (RFC 9438): fills the queue until packets are lost, and gets its share beside TCP. For transfers of
    /// many bytes that nobody waits for.
    Cubic,
    /// This rate and never more, whatever gets lost. For LANs and links whose rate is known; on any other it can drown
    /// everybody, itself included.
    Fixed {
        /// Bytes of datagrams per second, at least 1,200.
        bytes_per_second: u64,
    },
}

/// Bytes that windows are counted in, where an algorithm counts packets.
const SEGMENT_BYTES: u64 = 1_200;

/// No window is below this (RFC 9002 section 7.2).
const WINDOW_MIN_BYTES: u64 = 2 * SEGMENT_BYTES;

/// The window of a new path: ten packets (RFC 9002 section 7.2).
const WINDOW_START_BYTES: u64 = 10 * SEGMENT_BYTES;

/// No window is above this: 1 Gbit/s at half a second.
const WINDOW_MAX_BYTES: u64 = 1 << 26;

/// What an ack brought, once for each ack that newly acknowledged something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acked {
    /// When it came.
    pub(crate) now: Moment,
    /// Bytes it newly acknowledged.
    pub(crate) bytes: u64,
    /// When the newest packet it newly acknowledged was sent.
    pub(crate) sent_at: Moment,
    /// From then until now, without what the peer says it waited.
    pub(crate) round_trip: Duration,
    /// The smoothed round trip.
    pub(crate) smoothed: Duration,
    /// The application had nothing more to send: neither window nor pacer held anything back.
    pub(crate) is_app_limited: bool,
}

impl Acked {
    /// This and a later one as one.
    fn with(self, later: &Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(later.bytes),
            sent_at: self.sent_at.max(later.sent_at),
            round_trip: self.round_trip.min(later.round_trip),
            ..*later
        }
    }
}

/// Packets that were found lost at once; after the ack that showed it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost {
    /// When that was found out.
    pub(crate) now: Moment,
    /// Bytes of all of them.
    pub(crate) bytes: u64,
    /// When the newest of them was sent.
    pub(crate) sent_at: Moment,
    /// Everything over several probe timeouts was lost (RFC 9002 section 7.6).
    pub(crate) is_persistent: bool,
}

/// An algorithm that decides how many bytes may be under way.
pub(crate) trait Controller: Debug + Send {
    /// Something arrived.
    fn on_acked(&mut self, ack: &Acked);

    /// Something did not.
    fn on_lost(&mut self, loss: &Lost);

    /// Bytes that may be under way.
    fn window_bytes(&self) -> u64;

    /// Bytes per second at which to spread them, when the smoothed round trip is this.
    fn pacing_rate(&self, smoothed: Duration) -> u64;

    /// Forgets everything: another path is another network.
    fn on_path_changed(&mut self);
}

/// The controller, pacer and bandwidth estimate of one connection.
#[derive(Debug)]
pub(crate) struct Rate {
    controller: Algorithm,
    pacer: Pacer,
    bandwidth: Bandwidth,
    smoothed: Micros,
    /// What was sent earlier tells of another path.
    path_from: Moment,
    /// What acks brought while the application had nothing more to send, and the controller was not told: it would do
    /// nothing with it but note the round trip.
    held: Option<Acked>,
    told_at: Moment,
}

/// In place and not boxed: a [`Rate`] is in a box already.
#[derive(Debug)]
enum Algorithm {
    Delay(Delay),
    Cubic(Cubic),
    Fixed(Fixed),
}

impl Rate {
    /// A rate that knows nothing of its path yet.
    pub(crate) fn new(choice: Congestion) -> Self {
        let controller = match choice {
            Congestion::Delay => Algorithm::Delay(Delay::default()),
            Congestion::Cubic => Algorithm::Cubic(Cubic::default()),
            Congestion::Fixed { bytes_per_second } => Algorithm::Fixed(Fixed::new(bytes_per_second)),
        };
        let pacer = Pacer::new(controller.get().pacing_rate(ROUND_TRIP_INITIAL));
        Self {
            controller,
            pacer,
            bandwidth: Bandwidth::default(),
            smoothed: Micros::new(ROUND_TRIP_INITIAL),
            path_from: Moment::ORIGIN,
            held: None,
            told_at: Moment::ORIGIN,
        }
    }

    /// Something of each part of it, for `Connection::fetch_parts`.
    #[inline]
    pub(crate) fn fetch(&self) -> impl Copy + use<> {
        (self.controller.get().window_bytes(), self.path_from, self.told_at)
    }

    /// Notes a packet that counts as under way.
    pub(crate) fn on_sent(&mut self, now: Moment, bytes: u64) {
        self.pacer.on_sent(now, bytes);
    }

    /// Takes in what an ack brought.
    pub(crate) fn on_acked(&mut self, ack: &Acked) {
        if ack.sent_at < self.path_from {
            return;
        }
        let ack = self.held.take().map_or(*ack, |held| held.with(ack));
        if ack.is_app_limited && ack.now.since(self.told_at) < LUMP_INTERVAL {
            self.held = Some(ack);
            return;
        }
        self.told_at = ack.now;
        self.smoothed = Micros::new(ack.smoothed);
        self.bandwidth.on_acked(&ack);
        self.controller.get_mut().on_acked(&ack);
        self.set_pace(ack.now);
    }

    /// Takes in a loss.
    pub(crate) fn on_lost(&mut self, loss: &Lost) {
        if loss.sent_at < self.path_from {
            return;
        }
        self.controller.get_mut().on_lost(loss);
        self.set_pace(loss.now);
    }

    /// Begins anew on another path. What is still told of packets sent before now is ignored.
    pub(crate) fn on_path_changed(&mut self, now: Moment) {
        self.controller.get_mut().on_path_changed();
        self.bandwidth = Bandwidth::default();
        self.smoothed = Micros::new(ROUND_TRIP_INITIAL);
        self.path_from = now;
        self.held = None;
        self.set_pace(now);
    }

    /// Whether the pacer lets another packet go now. Probes and acks go without asking.
    pub(crate) fn may_send(&self, now: Moment) -> bool {
        self.pacer.may_send(now)
    }

    /// When the pacer lets the next packet go; nothing when it lets one go now, whatever the window says.
    pub(crate) fn next_at(&self, now: Moment) -> Option<Moment> {
        self.pacer.next_at(now)
    }

    /// Bytes that may be under way.
    pub(crate) fn window_bytes(&self) -> u64 {
        self.controller.get().window_bytes()
    }

    /// What the path was seen to deliver lately, in bytes per second; 0 before the first measurement. Of a connection
    /// that sends little it says little: at least so much.
    pub(crate) const fn estimate_bytes_per_second(&self) -> u64 {
        self.bandwidth.bytes_per_second()
    }

    fn set_pace(&mut self, now: Moment) {
        let rate = self.controller.get().pacing_rate(self.smoothed.to_duration());
        self.pacer.set_rate(now, rate);
    }
}

impl Algorithm {
    fn get(&self) -> &dyn Controller {
        match self {
            Self::Delay(delay) => delay,
            Self::Cubic(cubic) => cubic,
            Self::Fixed(fixed) => fixed,
        }
    }

    fn get_mut(&mut self) -> &mut dyn Controller {
        match self {
            Self::Delay(delay) => delay,
            Self::Cubic(cubic) => cubic,
            Self::Fixed(fixed) => fixed,
        }
    }
}

/// A window within its bounds, counted in 65,536ths of a byte so that many small acks add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Window(u64);

impl Window {
    const PARTS: u64 = 1 << 16;

    fn new(bytes: u64) -> Self {
        Self(bytes.clamp(WINDOW_MIN_BYTES, WINDOW_MAX_BYTES).saturating_mul(Self::PARTS))
    }

    const fn bytes(self) -> u64 {
        self.0 / Self::PARTS
    }

    /// Adds `step` x `acked` / `of` bytes: `step` for each time that `of` bytes are acknowledged.
    fn grow(&mut self, step: u64, acked: u64, of: u64) {
        let added = scale(step.min(WINDOW_MAX_BYTES).saturating_mul(Self::PARTS), acked, of);
        self.0 = self.0.saturating_add(added).min(WINDOW_MAX_BYTES.saturating_mul(Self::PARTS));
    }
}

/// The pacing rate of a window: it all in a round trip and a quarter more, so that pacing is not what limits; twice
/// as fast while the window doubles every round trip (RFC 9002 section 7.7).
fn pace(window_bytes: u64, smoothed: Duration, is_starting: bool) -> u64 {
    let quarters = if is_starting { 8 } else { 5 };
    scale(window_bytes.saturating_mul(quarters), NANOS_PER_SECOND / 4, nanos(smoothed))
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `value` x `times` / `of`, rounded down; the most there is when it does not fit or `of` is nothing.
fn scale(value: u64, times: u64, of: u64) -> u64 {
    let product = u128::from(value).saturating_mul(times.into());
    product.checked_div(of.into()).and_then(|result| u64::try_from(result).ok()).unwrap_or(u64::MAX)
}
