//! The flight recorder of a busy connection: the last things that happened to it, in a ring that never grows.
//!
//! It keeps numbers, sizes and kinds, and deliberately no payload, no key and no address. What is made of it when a
//! connection ends is `record`'s business.

mod qlog;
mod record;

use drumfire_wire::FrameKinds;

use crate::limits::FLIGHT_ENTRIES;
use crate::stats::DropReason;
use crate::time::Moment;

pub use record::FlightRecord;
pub(crate) use record::{FlightState, is_abnormal};

/// One thing that happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightEntry {
    /// When.
    pub at: Moment,
    /// What.
    pub event: FlightEvent,
}

/// What happened to a connection. Packets are those of the protocol, by number; a payload is frames, without header and tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlightEvent {
    /// A packet was built to be sent.
    Sent {
        /// Its number.
        number: u64,
        /// Bytes of its frames.
        payload_bytes: u16,
        /// What it holds.
        frames: FrameKinds,
        /// Messages in it that were sent before, at most 255.
        resent_count: u8,
        /// KiB of messages, charges included, that waited or were under way after it, rounded up.
        queued_kib: u16,
    },
    /// A packet was opened and taken in.
    Received {
        /// Its number.
        number: u64,
        /// Bytes of its frames.
        payload_bytes: u16,
        /// What it holds.
        frames: FrameKinds,
    },
    /// A packet was opened and not taken in.
    Dropped {
        /// Its number.
        number: u64,
        /// Bytes of its frames.
        payload_bytes: u16,
        /// Why.
        reason: DropReason,
    },
    /// An ack was taken in.
    Acked {
        /// The largest packet number it names.
        largest: u64,
        /// Packets it was the first to acknowledge.
        count: u16,
        /// The round trip it measured, in microseconds; 0 where it measured none.
        round_trip_us: u32,
    },
    /// Packets were found lost.
    Lost {
        /// The number of the oldest.
        first: u64,
        /// How much larger the number of the newest is.
        span: u32,
        /// How many.
        count: u16,
    },
    /// No ack came in time, and a probe is due.
    ProbeTimeout {
        /// How many in a row there were by now.
        count: u32,
    },
    /// Packets to the peer go to another address from now on.
    PathMoved {
        /// It is another port of the same host.
        is_same_host: bool,
    },
    /// Datagrams of another size may be sent from now on.
    PathSize {
        /// Bytes of the largest.
        datagram_max_bytes: u16,
    },
    /// A client uses another connection id from now on.
    IdChanged,
}

/// The ring.
#[derive(Debug)]
pub(crate) struct Recorder {
    entries: Box<[FlightEntry]>,
    /// How many there ever were.
    count: u64,
}

/// What stands where nothing was written yet; nobody sees it.
const BLANK: FlightEntry = FlightEntry { at: Moment::ORIGIN, event: FlightEvent::IdChanged };

impl Recorder {
    /// Where the next two events come, for `Connection::fetch_parts`.
    #[inline]
    pub(crate) fn fetch(&self) -> impl Copy + use<> {
        let count = usize::try_from(self.count).unwrap_or(0);
        let at = |ahead| self.entries.get(count.saturating_add(ahead) % FLIGHT_ENTRIES).map(|entry| entry.at);
        (at(0), at(1))
    }

    /// All memory it will ever have.
    #[cold]
    pub(crate) fn new() -> Self {
        Self { entries: vec![BLANK; FLIGHT_ENTRIES].into_boxed_slice(), count: 0 }
    }

    /// Writes over what is oldest.
    #[inline]
    pub(crate) fn push(&mut self, at: Moment, event: FlightEvent) {
        let place = self.place();
        if let Some(oldest) = self.entries.get_mut(place) {
            *oldest = FlightEntry { at, event };
            self.count = self.count.saturating_add(1);
        }
    }

    /// What it holds, oldest first, and how many came before.
    fn entries(&self) -> (Vec<FlightEntry>, u64) {
        let length = u64::try_from(self.entries.len()).unwrap_or(u64::MAX);
        let earlier = self.count.saturating_sub(length);
        let (newer, older) = self.entries.split_at_checked(self.place()).unwrap_or_default();
        let older = if earlier > 0 || self.count == length { older } else { &[] };
        ([older, newer].concat(), earlier)
    }

    /// Where the next entry goes.
    const fn place(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
        let low = self.count as usize;
        low & (FLIGHT_ENTRIES - 1)
    }
}

/// What stands for a count in an entry.
pub(crate) fn small<T: TryFrom<u64>>(count: u64, most: T) -> T {
    T::try_from(count).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_no_more_than_24_bytes() {
        assert!(FLIGHT_ENTRIES.is_power_of_two());
        assert_eq!(size_of::<FlightEntry>(), 24);
    }

    #[test]
    fn the_ring_gives_back_the_last_entries_in_order_however_often_it_was_filled() {
        let entries = FLIGHT_ENTRIES as u64;
        for count in [0, 1, entries - 1, entries, entries + 1, 2 * entries, 5 * entries + 7] {
            let mut recorder = Recorder::new();
            for number in 0..count {
                let event = FlightEvent::ProbeTimeout { count: u32::try_from(number).unwrap() };
                recorder.push(Moment::from_nanos(number), event);
            }
            let (kept, earlier) = recorder.entries();
            assert_eq!(earlier, count.saturating_sub(entries));
            let moments: Vec<u64> = kept.iter().map(|entry| entry.at.as_nanos()).collect();
            assert_eq!(moments, (earlier..count).collect::<Vec<_>>());
        }
    }
}
