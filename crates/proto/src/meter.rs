//! Measurements of a busy connection's path for the application: the distribution of round trips, the losses in each
//! direction, and the offset of the peer's clock.
//!
//! The measurements influence nothing, and are dropped when the connection becomes idle.

use std::time::Duration;

use crate::convert::{saturated, to_u64, to_usize};
use crate::limits::{
    CLOCK_DRIFT_PPM, CLOCK_SAMPLE_LIFETIME, SKIP_MIN_PACKETS, SKIP_SPREAD_PACKETS, TIMESTAMP_INTERVAL,
    TRANSPORT_MIN_BYTES,
};
use crate::stats::add;
use crate::time::{Moment, part};

/// Round trips are counted in eighths of an octave, from 2^6 to 2^22 microseconds.
const FIRST_OCTAVE: u32 = 6;
const STEPS: u32 = 8;
const BUCKETS: usize = 128;

/// The measurements of one connection.
#[derive(Debug)]
pub(crate) struct Meter {
    round_trips: RoundTrips,
    received: ReceivedNumbers,
    clock: Option<ClockOffset>,
    measured_at: Moment,
    /// The time at which this end last sent its clock.
    timestamp_sent_at: Option<Moment>,
    counts: Counts,
}

/// The traffic on the path.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Ack-eliciting packets.
    pub(crate) packets_sent: u64,
    pub(crate) packets_lost: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) messages_sent: u64,
    pub(crate) messages_resent: u64,
}

impl Counts {
    const NONE: Self = Self {
        packets_sent: 0,
        packets_lost: 0,
        bytes_sent: 0,
        bytes_received: 0,
        messages_sent: 0,
        messages_resent: 0,
    };
}

/// A histogram of round trips.
#[derive(Debug)]
struct RoundTrips {
    counts: [u16; BUCKETS],
    total: u32,
    min: Duration,
}

/// Packet numbers that arrived since the measurements began.
#[derive(Debug, Default)]
struct ReceivedNumbers {
    first: Option<u64>,
    largest: u64,
    count: u64,
}

/// The offset of a peer's clock: it shows the time of this end's clock plus `nanos`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClockOffset {
    /// The nanoseconds by which the peer's clock is ahead. Negative for a clock that is behind.
    pub nanos: i64,
    /// The largest error of the offset, if neither clock drifts by more than 200 ppm.
    pub error: Duration,
}

/// Four readings of two clocks, taken when the peer's ack of a packet arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockSample {
    /// The time at which the packet was sent.
    pub(crate) sent_at: Moment,
    /// The delay of the peer's ack.
    pub(crate) ack_delay: Duration,
    /// The peer's clock when it sent the ack, in microseconds.
    pub(crate) peer_micros: u64,
    /// The time at which the ack arrived.
    pub(crate) now: Moment,
}

impl Meter {
    pub(crate) const fn new() -> Self {
        let round_trips = RoundTrips { counts: [0; BUCKETS], total: 0, min: Duration::MAX };
        Self {
            round_trips,
            received: ReceivedNumbers { first: None, largest: 0, count: 0 },
            clock: None,
            measured_at: Moment::ORIGIN,
            timestamp_sent_at: None,
            counts: Counts::NONE,
        }
    }

    /// Reads a field of each part, for `Connection::prefetch_parts`.
    #[inline]
    pub(crate) const fn prefetch(&self) -> impl Copy + use<> {
        (self.round_trips.total, self.received.largest, self.measured_at, self.counts.bytes_sent)
    }

    pub(crate) fn on_round_trip(&mut self, round_trip: Duration) {
        self.round_trips.add(round_trip);
    }

    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Counts a packet that was built, and the messages in it.
    pub(crate) fn on_sent(&mut self, bytes: usize, messages: u32, resent: u32) {
        let counts = &mut self.counts;
        add(&mut counts.bytes_sent, to_u64(bytes));
        add(&mut counts.messages_sent, messages.into());
        add(&mut counts.messages_resent, resent.into());
    }

    /// Counts an ack-eliciting packet.
    pub(crate) const fn on_ack_eliciting_sent(&mut self) {
        add(&mut self.counts.packets_sent, 1);
    }

    pub(crate) const fn on_lost(&mut self, count: u64) {
        add(&mut self.counts.packets_lost, count);
    }

    /// Counts a packet that was opened, with `frames_bytes` of frames.
    pub(crate) fn on_received(&mut self, number: u64, frames_bytes: usize) {
        let bytes = frames_bytes.saturating_add(TRANSPORT_MIN_BYTES).saturating_sub(1);
        add(&mut self.counts.bytes_received, to_u64(bytes));
        let received = &mut self.received;
        let first = *received.first.get_or_insert(number);
        if number >= first {
            received.count = received.count.saturating_add(1);
            received.largest = received.largest.max(number);
        }
    }

    /// Whether the next ack should carry this end's clock, in which case the caller must add it.
    pub(crate) fn take_timestamp_due(&mut self, now: Moment) -> bool {
        let is_due = self.timestamp_sent_at.is_none_or(|at| now.since(at) >= TIMESTAMP_INTERVAL);
        if is_due {
            self.timestamp_sent_at = Some(now);
        }
        is_due
    }

    /// Updates the offset of the peer's clock.
    pub(crate) fn on_clock_sample(&mut self, times: &ClockSample) {
        let Some(newer) = ClockOffset::measure(times) else { return };
        let is_better = self.clock.is_none_or(|known| {
            let age = times.now.since(self.measured_at);
            age >= CLOCK_SAMPLE_LIFETIME || newer.error <= known.error.saturating_add(drift(age))
        });
        if is_better {
            (self.clock, self.measured_at) = (Some(newer), times.now);
        }
    }

    /// The offset of the peer's clock at present, if it was ever measured.
    pub(crate) fn clock_offset(&self, now: Moment) -> Option<ClockOffset> {
        let mut offset = self.clock?;
        offset.error = offset.error.saturating_add(drift(now.since(self.measured_at)));
        Some(offset)
    }

    /// The round trip that `percent` of the samples do not exceed; `None` before the first sample.
    pub(crate) fn percentile(&self, percent: u32) -> Option<Duration> {
        self.round_trips.percentile(percent)
    }

    pub(crate) fn min_round_trip(&self) -> Option<Duration> {
        (self.round_trips.total > 0).then_some(self.round_trips.min)
    }

    /// The number of packets that arrived, and of missing packet numbers. The expected number of intentionally
    /// skipped ones is subtracted.
    pub(crate) fn received(&self) -> (u64, u64) {
        let ReceivedNumbers { first, largest, count } = self.received;
        let span = first.map_or(0, |first| largest.saturating_sub(first).saturating_add(1));
        let between_skips = SKIP_MIN_PACKETS.saturating_add(SKIP_SPREAD_PACKETS / 2);
        let skipped = span.checked_div(between_skips).unwrap_or(0).saturating_add(1);
        (count, span.saturating_sub(count).saturating_sub(skipped))
    }
}

impl RoundTrips {
    fn add(&mut self, round_trip: Duration) {
        self.min = self.min.min(round_trip);
        let Some(count) = self.counts.get_mut(bucket(round_trip)) else { return };
        *count = count.saturating_add(1);
        self.total = self.total.saturating_add(1);
        if *count == u16::MAX {
            // Older samples count half.
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.total = self.counts.iter().fold(0, |sum, count| sum.saturating_add(u32::from(*count)));
        }
    }

    fn percentile(&self, percent: u32) -> Option<Duration> {
        let wanted = u64::from(self.total).saturating_mul(percent.into()).div_ceil(100);
        let mut seen = 0_u64;
        let at = self.counts.iter().position(|count| {
            seen = seen.saturating_add(u64::from(*count));
            seen >= wanted && *count > 0
        })?;
        Some(upper_end(at))
    }
}

impl ClockOffset {
    /// Computes the offset from four timestamps (RFC 5905 section 8). The only unknown is the difference between the
    /// delays of the two directions.
    fn measure(times: &ClockSample) -> Option<Self> {
        let ClockSample { sent_at, ack_delay, peer_micros, now } = *times;
        let peer_sent = i128::from(peer_micros).checked_mul(1_000)?;
        let peer_received = peer_sent.checked_sub(i128::try_from(ack_delay.as_nanos()).ok()?)?;
        let forward = peer_received.checked_sub(sent_at.as_nanos().into())?;
        let backward = peer_sent.checked_sub(now.as_nanos().into())?;
        let nanos = i64::try_from(forward.checked_add(backward)?.checked_div(2)?).ok()?;
        // Delays are in units of 8 us, and timestamps in whole microseconds.
        let unknown = part(now.since(sent_at).saturating_sub(ack_delay), 2);
        Some(Self { nanos, error: unknown.saturating_add(Duration::from_micros(9)) })
    }
}

fn drift(age: Duration) -> Duration {
    part(age.saturating_mul(CLOCK_DRIFT_PPM), 1_000_000)
}

fn bucket(round_trip: Duration) -> usize {
    let micros = saturated(round_trip.as_micros(), u32::MAX).max(1 << FIRST_OCTAVE);
    let octave = micros.ilog2();
    let step = micros.checked_shr(octave.saturating_sub(3)).unwrap_or(0).saturating_sub(STEPS);
    let at = octave.saturating_sub(FIRST_OCTAVE).saturating_mul(STEPS).saturating_add(step);
    to_usize(at).min(BUCKETS.saturating_sub(1))
}

/// The longest round trip in this bucket.
fn upper_end(at: usize) -> Duration {
    let at = saturated(at, u32::MAX);
    let (octave, step) = (at / STEPS, at % STEPS);
    let first = STEPS.saturating_add(step).saturating_add(1);
    Duration::from_micros(
        u64::from(first).checked_shl(octave.saturating_add(FIRST_OCTAVE - 3)).unwrap_or(u64::MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn percentiles_are_no_more_than_an_eighth_too_long() {
        let mut meter = Meter::new();
        assert_eq!((meter.percentile(50), meter.min_round_trip()), (None, None));
        for round_trip in 1..=1_000 {
            meter.on_round_trip(micros(100 * round_trip));
        }
        assert_eq!(meter.min_round_trip(), Some(micros(100)));
        for percent in [1, 50, 95, 99, 100] {
            let (exact, found) = (micros(1_000 * u64::from(percent)), meter.percentile(percent).unwrap());
            assert!(found >= exact && found <= exact * 9 / 8 + micros(1), "{percent}: {found:?}");
        }
    }

    #[test]
    fn every_round_trip_has_a_bucket_that_holds_it() {
        for round_trip in (0..22).flat_map(|octave| [1, 2, 3].map(|add| (1_u64 << octave) + add)) {
            let at = bucket(micros(round_trip));
            assert!(upper_end(at) >= micros(round_trip), "{round_trip}");
            assert!(at == 0 || upper_end(at - 1) <= micros(round_trip), "{round_trip}");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn old_round_trips_count_half_when_there_are_many() {
        let mut meter = Meter::new();
        (0..60_000).for_each(|_| meter.on_round_trip(micros(1_000)));
        (0..70_000).for_each(|_| meter.on_round_trip(micros(50_000)));
        assert!(meter.percentile(60).unwrap() >= micros(50_000));
    }

    #[test]
    fn missing_packets_are_counted_and_skipped_numbers_are_not() {
        let mut meter = Meter::new();
        for number in (1_000..11_000_u64).filter(|number| number % 10 != 0 && number % 250 != 1) {
            meter.on_received(number, 50);
        }
        let (came, lost) = meter.received();
        assert_eq!(came, 10_000 - 1_000 - 40);
        assert!((980..=1_020).contains(&lost), "{lost}");
        meter.on_received(5, 50);
        assert_eq!(meter.received().0, came, "older than the first");
    }

    fn times(sent: u64, forward: u64, ack_delay: u64, backward: u64, offset: i64) -> ClockSample {
        let peer_sent = (sent + forward + ack_delay).cast_signed() + offset;
        ClockSample {
            sent_at: Moment::from_nanos(sent * 1_000),
            ack_delay: micros(ack_delay),
            peer_micros: peer_sent.cast_unsigned(),
            now: Moment::from_nanos((sent + forward + ack_delay + backward) * 1_000),
        }
    }

    #[test]
    fn the_clock_offset_is_within_its_error_on_uneven_paths() {
        for (forward, backward) in [(25_000, 25_000), (1_000, 90_000), (90_000, 1_000), (0, 0)] {
            for offset in [-3_000_000, 0, 7_000_000_000] {
                let mut meter = Meter::new();
                let four = times(5_000_000, forward, 5_000, backward, offset);
                meter.on_clock_sample(&four);
                let found = meter.clock_offset(four.now).unwrap();
                let off = Duration::from_nanos((found.nanos - offset * 1_000).unsigned_abs());
                assert!(
                    off <= found.error && found.error <= micros((forward + backward) / 2 + 9),
                    "{found:?}"
                );
            }
        }
    }

    #[test]
    fn a_better_measurement_stays_until_it_is_old() {
        let mut meter = Meter::new();
        let offset = |meter: &Meter, at: &ClockSample| meter.clock_offset(at.now).unwrap();
        let good = times(1_000_000, 1_000, 0, 1_000, 500);
        meter.on_clock_sample(&good);
        let bad = times(2_000_000, 1_000, 0, 60_000, 500);
        meter.on_clock_sample(&bad);
        assert_eq!(offset(&meter, &bad).nanos, 500_000);
        assert!(offset(&meter, &bad).error > offset(&meter, &good).error, "it gets less certain");
        let later = times(40_000_000, 1_000, 0, 60_000, 500);
        meter.on_clock_sample(&later);
        assert_eq!(offset(&meter, &later).nanos, 500_000 - 29_500_000);
    }

    #[test]
    fn impossible_timestamps_are_ignored() {
        let mut meter = Meter::new();
        for peer_micros in [0, u64::MAX, u64::MAX / 1_000] {
            let ack_delay = Duration::MAX;
            meter.on_clock_sample(&ClockSample {
                sent_at: Moment::LAST,
                ack_delay,
                peer_micros,
                now: Moment::ORIGIN,
            });
            meter.on_clock_sample(&ClockSample {
                sent_at: Moment::ORIGIN,
                ack_delay,
                peer_micros,
                now: Moment::LAST,
            });
        }
    }
}
