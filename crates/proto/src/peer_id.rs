//! The id of a connection of one worker. No other connection has the id, unless a client has reserved it.
//!
//! An id is not secret and never leaves the process: on the wire, connections have other ids (`ids`).

use std::fmt;
use std::str::FromStr;

/// The number of bits of [`PeerId::slot`].
const SLOT_BITS: u32 = 22;

/// The largest number of connections of one endpoint.
pub const CONNECTIONS_MAX: u32 = 1 << SLOT_BITS;

/// Identifies a peer as long as its connection exists. Copy it, store it, and use it as the key of a map.
///
/// The id names the worker, the slot of the connection at this worker, and the connection's number among all
/// connections that the worker has ever had. After the end of its connection the id stays stale: the slot may be used
/// again, or the worker may restart, but no later connection has the same number. A client can reserve the id, and then
/// uses it for each connection to the same server, one after another (see
/// [`ConnectRequest::keeps_id`](crate::ConnectRequest::keeps_id)).
///
/// Numbers have 32 bits, so a number repeats after four billion connections of one worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    /// The worker, and in the lower [`SLOT_BITS`] the slot.
    worker_and_slot: u32,
    number: u32,
}

impl PeerId {
    /// Returns the index of the worker that owns the connection. 0 on a client, and on a server with one worker.
    #[must_use]
    pub const fn worker(self) -> usize {
        // At most 10 bits are left.
        (self.worker_and_slot >> SLOT_BITS) as usize
    }

    /// Returns the slot among the connections of the worker, below the largest number of connections that it has had at a
    /// time. Slots are reused: store the whole id with data that is kept per slot.
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.worker_and_slot & (CONNECTIONS_MAX - 1)
    }

    /// The number among all connections that the worker has had.
    #[inline]
    pub(crate) const fn number(self) -> u32 {
        self.number
    }
}

/// Draws the ids of one worker.
#[derive(Debug)]
pub(crate) struct PeerIds {
    /// The worker as in [`PeerId::place`], with slot 0.
    worker_bits: u32,
    /// The number of the next connection.
    next_number: u32,
}

impl PeerIds {
    /// Creates the ids of a worker. Its index is below 1,024.
    pub(crate) fn new(worker: u16) -> Self {
        debug_assert!(u32::from(worker) < 1 << (u32::BITS - SLOT_BITS), "worker {worker}");
        Self { worker_bits: u32::from(worker) << SLOT_BITS, next_number: 0 }
    }

    /// Continues the numbering of `earlier`, so that all its ids are stale.
    pub(crate) const fn continue_after(&mut self, earlier: &Self) {
        self.next_number = earlier.next_number;
    }

    /// Returns a new id for a connection in this slot.
    pub(crate) const fn draw(&mut self, slot: u32) -> PeerId {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.id(slot, number)
    }

    /// Returns the id of the connection with this number, in this slot.
    #[inline]
    pub(crate) const fn id(&self, slot: u32, number: u32) -> PeerId {
        PeerId { worker_and_slot: self.worker_bits | slot, number }
    }

    /// Returns the slot of an id. For an id of another worker, this is a number that no slot has.
    #[inline]
    pub(crate) const fn slot(&self, id: PeerId) -> u32 {
        id.worker_and_slot ^ self.worker_bits
    }
}

/// Writes the worker, the slot, and the number: `2.17.4711`.
impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.worker(), self.slot(), self.number)
    }
}

/// Writes `PeerId(2.17.4711)`.
impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerId({self})")
    }
}

/// The error of parsing a text that is no [`PeerId`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerIdTextError;

impl fmt::Display for PeerIdTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the id of a peer, such as 2.17.4711")
    }
}

impl std::error::Error for PeerIdTextError {}

crate::debug_with_display!(PeerIdTextError);

/// Parses the output of `Display`. The id may be stale, or name no connection at all.
impl FromStr for PeerId {
    type Err = PeerIdTextError;

    fn from_str(text: &str) -> Result<Self, PeerIdTextError> {
        let mut parts = text.split('.').map(|part| part.parse().map_err(|_| PeerIdTextError));
        let mut next = || parts.next().unwrap_or(Err(PeerIdTextError));
        let (worker, slot, number): (u32, u32, u32) = (next()?, next()?, next()?);
        let worker_and_slot = worker.checked_mul(CONNECTIONS_MAX).ok_or(PeerIdTextError)?;
        if slot >= CONNECTIONS_MAX {
            return Err(PeerIdTextError);
        }
        let id = Self { worker_and_slot: worker_and_slot | slot, number };
        // Each id has one text: no signs, no leading zeros, and no fourth part.
        if id.to_string() == text { Ok(id) } else { Err(PeerIdTextError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_eight_bytes() {
        assert_eq!(size_of::<PeerId>(), 8);
    }

    #[test]
    fn an_id_is_parsed_only_from_its_own_text() {
        let last = CONNECTIONS_MAX - 1;
        for (worker, slot, number) in [(0, 0, 0), (2, 17, 4_711), (1_023, last, u32::MAX)] {
            let mut ids = PeerIds { next_number: number, ..PeerIds::new(worker) };
            let id = ids.draw(slot);
            assert_eq!((id.worker(), id.slot(), ids.slot(id)), (usize::from(worker), slot, slot));
            assert_eq!(id.to_string(), format!("{worker}.{slot}.{number}"));
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(format!("{:?}", Some(id)), format!("Some(PeerId({id}))"));
        }
        let beyond = format!("0.{CONNECTIONS_MAX}.0");
        for bad in ["", "1", "1.0", "1.0.", "1.0.2.3", "1024.0.1", "1.0.x", "+1.0.1", "01.0.1", &beyond] {
            assert_eq!(bad.parse::<PeerId>(), Err(PeerIdTextError), "{bad}");
        }
    }

    #[test]
    fn numbers_continue_after_a_restart_and_wrap_last() {
        let mut earlier = PeerIds { next_number: u32::MAX, ..PeerIds::new(3) };
        let last = earlier.draw(5);
        let mut later = PeerIds::new(3);
        later.continue_after(&earlier);
        assert_eq!((last.to_string(), later.draw(5).to_string()), ("3.5.4294967295".into(), "3.5.0".into()));
    }

    #[test]
    fn an_id_of_another_worker_has_no_slot() {
        let (mut own, mut other) = (PeerIds::new(3), PeerIds::new(4));
        assert!(own.slot(other.draw(0)) >= CONNECTIONS_MAX);
        assert!(other.slot(own.draw(7)) >= CONNECTIONS_MAX);
    }
}
