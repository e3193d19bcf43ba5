//! The flight recorder of a busy connection: its last events, in a ring of fixed size.
//!
//! It stores numbers, sizes, and kinds, and deliberately no payloads, keys, or addresses. `record` formats it when a
//! connection ends.

mod qlog;
mod record;

use drumfire_wire::FrameKinds;

use crate::convert::to_u64;
use crate::limits::FLIGHT_ENTRIES;
use crate::stats::DropReason;
use crate::time::Moment;

pub use record::FlightRecord;
pub(crate) use record::{FlightState, is_abnormal};

/// An event of a connection, and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlightEntry {
    /// The time of the event, on the clock of the endpoint.
    pub at: Moment,
    /// The event itself.
    pub event: FlightEvent,
}

/// An event of a connection. Packets are identified by number. A payload is the frames of a packet, without header
/// and tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlightEvent {
    /// A packet was built to be sent.
    Sent {
        /// The packet number.
        number: u64,
        /// The size of the frames in bytes.
        payload_bytes: u16,
        /// The kinds of frames in the packet.
        frames: FrameKinds,
        /// Retransmitted messages in the packet, at most 255.
        resent_count: u8,
        /// Messages that waited or were in flight after the packet, in KiB including charges, rounded up.
        queued_kib: u16,
    },
    /// A packet was opened and processed.
    Received {
        /// The packet number.
        number: u64,
        /// The size of the frames in bytes.
        payload_bytes: u16,
        /// The kinds of frames in the packet.
        frames: FrameKinds,
    },
    /// A packet was opened and dropped.
    Dropped {
        /// The packet number.
        number: u64,
        /// The size of the frames in bytes.
        payload_bytes: u16,
        /// The reason for which it was dropped.
        reason: DropReason,
    },
    /// An ack was processed.
    Acked {
        /// The largest packet number in the ack.
        largest: u64,
        /// The number of newly acknowledged packets.
        count: u16,
        /// The round trip that the ack measured, in microseconds; 0 if it measured none.
        round_trip_us: u32,
    },
    /// Packets were declared lost.
    Lost {
        /// The smallest number among them.
        first: u64,
        /// The difference between the largest and the smallest number.
        span: u32,
        /// The number of lost packets.
        count: u16,
    },
    /// No ack came in time, and a probe is due.
    ProbeTimeout {
        /// The number of consecutive timeouts.
        count: u32,
    },
    /// Packets to the peer are sent to another address from now on.
    PathMigrated {
        /// Whether only the port changed.
        is_same_host: bool,
    },
    /// Datagrams of another size may be sent from now on.
    PathSize {
        /// The size of the largest datagram in bytes.
        datagram_max_bytes: u16,
    },
    /// A client uses another connection id from now on.
    IdChanged,
}

/// The ring of events.
#[derive(Debug)]
pub(crate) struct Recorder {
    entries: Box<[FlightEntry]>,
    /// The number of events that were ever written.
    count: u64,
}

/// The content of unused entries, which are never reported.
const BLANK: FlightEntry = FlightEntry { at: Moment::ORIGIN, event: FlightEvent::IdChanged };

impl Recorder {
    /// Reads the entries of the next two events, for `Connection::prefetch_parts`.
    #[inline]
    pub(crate) fn prefetch(&self) -> impl Copy + use<> {
        let count = usize::try_from(self.count).unwrap_or(0);
        let at = |ahead| self.entries.get(count.saturating_add(ahead) % FLIGHT_ENTRIES).map(|entry| entry.at);
        (at(0), at(1))
    }

    /// Allocates all memory that the recorder will use.
    #[cold]
    pub(crate) fn new() -> Self {
        Self { entries: vec![BLANK; FLIGHT_ENTRIES].into_boxed_slice(), count: 0 }
    }

    /// Overwrites the oldest event.
    #[inline]
    pub(crate) fn push(&mut self, at: Moment, event: FlightEvent) {
        let place = self.place();
        if let Some(oldest) = self.entries.get_mut(place) {
            *oldest = FlightEntry { at, event };
            self.count = self.count.saturating_add(1);
        }
    }

    /// Returns the events, oldest first, and the number of events before them.
    fn entries(&self) -> (Vec<FlightEntry>, u64) {
        let length = to_u64(self.entries.len());
        let earlier = self.count.saturating_sub(length);
        let (newer, older) = self.entries.split_at_checked(self.place()).unwrap_or_default();
        let older = if earlier > 0 || self.count == length { older } else { &[] };
        ([older, newer].concat(), earlier)
    }

    /// The index of the next entry.
    const fn place(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
        let low = self.count as usize;
        low & (FLIGHT_ENTRIES - 1)
    }
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
    fn the_ring_returns_the_last_entries_in_order() {
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
