//! The connection ids of one connection, and the token with which a client connects again (PROTOCOL 11.2, "Spare connection
//! ids", and PROTOCOL 15.4, "Resume token").
//!
//! A server issues ids to the client, which uses one and keeps the others for a change of its path. The module
//! `control` sends the frames.

use drumfire_crypto::IssuedToken;
use drumfire_crypto::secret::is_equal;
use drumfire_wire::limits::CONNECTION_IDS_ACTIVE;
use drumfire_wire::{ConnectionId, NewConnectionId};

use crate::convert::saturated;
use crate::error::ProtocolError;
use crate::limits::SPARE_IDS;
use crate::time::Moment;

/// The connection ids that one end knows of a connection.
#[derive(Debug)]
pub(crate) enum ConnectionIdState {
    /// The ids are not boxed, because a server has many connections, and reads the ids for each packet.
    Server(IssuedIds),
    Client(Box<ClientIds>),
}

/// The ids of a client's connection.
#[derive(Debug)]
pub(crate) struct ClientIds {
    /// The id by which packets reach the client, if its socket uses ids.
    pub(crate) own: Option<ConnectionId>,
    /// The server's ids, known from the Welcome on.
    pub(crate) known: Option<KnownIds>,
    /// The time at which the id of the previous path is retired.
    pub(crate) retire_at: Option<Moment>,
    /// Whether the peer id stays reserved when the connection is removed.
    pub(crate) keeps_id: bool,
}

impl ConnectionIdState {
    /// Creates the state of a client before its Welcome.
    pub(crate) fn client(own: Option<ConnectionId>, keeps_id: bool) -> Self {
        Self::Client(Box::new(ClientIds { own, known: None, retire_at: None, keeps_id }))
    }

    /// On a client, sets whether the peer id stays reserved when the connection is removed.
    pub(crate) fn set_keeps_id(&mut self, keeps_id: bool) {
        if let Self::Client(ids) = self {
            ids.keeps_id = keeps_id;
        }
    }

    /// Whether the peer id stays reserved when the connection is removed.
    pub(crate) fn keeps_id(&self) -> bool {
        if let Self::Client(ids) = self { ids.keeps_id } else { false }
    }

    /// On a client, the ids that it may use.
    pub(crate) fn known(&self) -> Option<&KnownIds> {
        if let Self::Client(ids) = self { ids.known.as_ref() } else { None }
    }

    /// Whether packets with this id are for this end.
    #[inline]
    pub(crate) fn is_own(&self, id: ConnectionId) -> bool {
        match self {
            Self::Server(issued) => issued.all().any(|issued| issued == id),
            Self::Client(ids) => ids.own == Some(id),
        }
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        match self {
            Self::Server(issued) => issued.assert_invariants(),
            Self::Client(ids) => {
                let known = ids.known.as_ref();
                debug_assert_eq!(
                    ids.retire_at.is_some(),
                    known.is_some_and(|known| known.previous.is_some()),
                    "the id of the previous path and the time of its end do not exist together"
                );
                known.into_iter().for_each(KnownIds::assert_invariants);
            }
        }
    }

    /// On a client, when the id of the previous path is retired.
    pub(crate) fn retire_at(&self) -> Option<Moment> {
        if let Self::Client(ids) = self { ids.retire_at } else { None }
    }
}

/// The ids that a server has issued to a client, and that are not retired.
#[derive(Debug)]
pub(crate) struct IssuedIds {
    issued: [IssuedId; SPARE_IDS + 1],
    /// Below [`RETIRED`]. Only a client that retires ids on purpose for hours uses all sequence numbers.
    next_sequence: u32,
}

/// An entry for an id, as small as possible.
#[derive(Debug, Clone, Copy)]
struct IssuedId {
    id: ConnectionId,
    /// Marked with [`RETIRED`] when the client no longer uses the id and the endpoint must forget it. [`FREE`]
    /// without an id.
    sequence: u32,
}

const RETIRED: u32 = 1 << 31;

const FREE: u32 = u32::MAX;

impl IssuedId {
    fn none() -> Self {
        Self { id: ConnectionId::from_bytes([0; ConnectionId::BYTES]), sequence: FREE }
    }

    const fn is_active(&self) -> bool {
        self.sequence & RETIRED == 0
    }
}

impl IssuedIds {
    /// Creates the state with the first id, which the Welcome carries.
    pub(crate) fn new(id: ConnectionId) -> Self {
        let mut issued = [IssuedId::none(); SPARE_IDS + 1];
        let [first, ..] = &mut issued;
        *first = IssuedId { id, sequence: 0 };
        Self { issued, next_sequence: 1 }
    }

    /// Issues another id. Returns its sequence number, or `None` when there is no room or no further number.
    pub(crate) fn issue(&mut self, id: ConnectionId) -> Option<u64> {
        let sequence = self.next_sequence;
        // The numbers stay below the mark, and the next one must be greater than all.
        let next_sequence = sequence.checked_add(1).filter(|next| *next < RETIRED)?;
        let place = self.issued.iter_mut().find(|place| place.sequence == FREE)?;
        *place = IssuedId { id, sequence };
        self.next_sequence = next_sequence;
        Some(sequence.into())
    }

    /// Registers that the client no longer uses this id.
    pub(crate) fn retire(&mut self, sequence: u64) -> Result<(), ProtocolError> {
        let sequence = saturated(sequence, u32::MAX);
        if sequence >= self.next_sequence {
            return Err(ProtocolError::ConnectionIds);
        }
        let is_last = self.active_count() <= 1;
        let mut active = self.issued.iter_mut().filter(|issued| issued.is_active());
        // A duplicate frame has no effect.
        let Some(issued) = active.find(|issued| issued.sequence == sequence) else { return Ok(()) };
        if is_last {
            return Err(ProtocolError::ConnectionIds);
        }
        issued.sequence |= RETIRED;
        Ok(())
    }

    /// Returns an id that was retired and not forgotten yet.
    pub(crate) fn pop_retired(&mut self) -> Option<ConnectionId> {
        let is_retired = |issued: &&mut IssuedId| !issued.is_active() && issued.sequence != FREE;
        let retired = self.issued.iter_mut().find(is_retired)?;
        Some(std::mem::replace(retired, IssuedId::none()).id)
    }

    pub(crate) fn active(&self) -> impl Iterator<Item = ConnectionId> {
        self.issued.iter().filter(|issued| issued.is_active()).map(|issued| issued.id)
    }

    /// All ids that the endpoint has not forgotten.
    pub(crate) fn all(&self) -> impl Iterator<Item = ConnectionId> {
        self.issued.iter().filter(|issued| issued.sequence != FREE).map(|issued| issued.id)
    }

    pub(crate) fn active_count(&self) -> usize {
        self.active().count()
    }

    /// Asserts what must hold between two calls.
    fn assert_invariants(&self) {
        // A client without an id could send nothing, so `retire` refuses the last one.
        debug_assert!(self.active_count() > 0, "all ids of a connection are retired");
        let sequence = |issued: &IssuedId| issued.sequence & !RETIRED;
        let used = || self.issued.iter().filter(|issued| issued.sequence != FREE);
        debug_assert!(
            used().all(|issued| sequence(issued) < self.next_sequence),
            "an id has a sequence number that was not given"
        );
        let duplicates = |one| used().filter(move |issued| sequence(issued) == sequence(one)).count();
        debug_assert!(used().all(|issued| duplicates(issued) == 1), "two ids share a sequence number");
    }
}

/// The ids that a client may use, and the token for reconnecting.
#[derive(Debug)]
pub(crate) struct KnownIds {
    current: NewConnectionId,
    spare: Vec<NewConnectionId>,
    /// The id of the previous path, until packets in flight on it have arrived.
    previous: Option<NewConnectionId>,
    /// Ids that are no longer used, and that the endpoint has not forgotten yet.
    retired: Vec<ConnectionId>,
    /// The newest resume token, and when it expires.
    pub(crate) resume: Option<(IssuedToken, Moment)>,
}

impl KnownIds {
    /// Creates the state with the id of the Welcome.
    pub(crate) const fn new(id: ConnectionId, reset_token: [u8; 16]) -> Self {
        let current = NewConnectionId { sequence: 0, id, reset_token };
        Self { current, spare: Vec::new(), previous: None, retired: Vec::new(), resume: None }
    }

    /// Adds a spare id. Returns the sequence number of an id that arrived too late to be used and must be retired.
    pub(crate) fn add(&mut self, new: NewConnectionId) -> Result<Option<u64>, ProtocolError> {
        if self.ids().any(|known| known.sequence == new.sequence) {
            return Ok(None);
        }
        if new.sequence < self.current.sequence {
            return Ok(Some(new.sequence));
        }
        if self.ids().count() >= CONNECTION_IDS_ACTIVE {
            return Err(ProtocolError::ConnectionIds);
        }
        self.spare.push(new);
        Ok(None)
    }

    /// Takes a spare id for a new path. Returns the new id, and the sequence number of an id that must be retired
    /// now. `None` without a spare id.
    pub(crate) fn change(&mut self) -> Option<(ConnectionId, Option<u64>)> {
        // The lowest one is taken, so an id with a number at or below the current one was known before.
        let at = (0..self.spare.len()).min_by_key(|at| self.spare.get(*at).map(|spare| spare.sequence))?;
        let next = self.spare.swap_remove(at);
        let retired = self.take_previous();
        self.previous = Some(std::mem::replace(&mut self.current, next));
        Some((next.id, retired))
    }

    /// Returns the sequence number of the id of the previous path, which must be retired now.
    pub(crate) fn take_previous(&mut self) -> Option<u64> {
        let previous = self.previous.take()?;
        self.retired.push(previous.id);
        Some(previous.sequence)
    }

    /// Returns an id that is no longer used and not forgotten yet.
    pub(crate) fn pop_retired(&mut self) -> Option<ConnectionId> {
        self.retired.pop()
    }

    /// Whether a Reset for this id with this token is genuine. Compares in constant time.
    pub(crate) fn is_reset(&self, id: ConnectionId, token: &[u8; 16]) -> bool {
        self.ids().any(|known| known.id == id && is_equal(&known.reset_token, token))
    }

    /// All ids that are in use or may be used.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &NewConnectionId> {
        self.previous.iter().chain(&self.spare).chain([&self.current])
    }

    /// Asserts what must hold between two calls. The ids themselves may repeat, because the server chooses them.
    fn assert_invariants(&self) {
        debug_assert!(self.ids().count() <= CONNECTION_IDS_ACTIVE, "{} ids are known", self.ids().count());
        // Ids are used in the order of their numbers. One that arrives after a later one was used is retired unused.
        let current = self.current.sequence;
        debug_assert!(
            self.spare.iter().all(|spare| spare.sequence > current)
                && self.previous.iter().all(|previous| previous.sequence < current),
            "id {current} was not used in its turn"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> ConnectionId {
        ConnectionId::from_bytes([byte; 8])
    }

    fn new(sequence: u64) -> NewConnectionId {
        let byte = u8::try_from(sequence).unwrap();
        NewConnectionId { sequence, id: id(byte), reset_token: [byte; 16] }
    }

    #[test]
    fn an_issued_id_is_retired_once_and_never_the_last() {
        let mut issued = IssuedIds::new(id(7));
        assert_eq!([issued.issue(id(8)), issued.issue(id(9))], [Some(1), None]);
        assert_eq!(issued.retire(2), Err(ProtocolError::ConnectionIds), "never given");
        assert_eq!((issued.retire(0), issued.retire(0)), (Ok(()), Ok(())));
        assert_eq!(issued.all().collect::<Vec<_>>(), [id(7), id(8)], "it is not forgotten yet");
        assert_eq!((issued.pop_retired(), issued.pop_retired()), (Some(id(7)), None));
        assert_eq!(issued.retire(1), Err(ProtocolError::ConnectionIds), "the last one");
        assert_eq!(issued.active().collect::<Vec<_>>(), [id(8)]);
        assert_eq!(issued.issue(id(9)), Some(2));
        assert_eq!(issued.all().collect::<Vec<_>>(), [id(9), id(8)]);
    }

    #[test]
    fn ids_end_with_their_sequence_numbers() {
        let mut issued = IssuedIds::new(id(7));
        issued.next_sequence = RETIRED - 2;
        assert_eq!(issued.issue(id(8)), Some((RETIRED - 2).into()));
        issued.assert_invariants();
        issued.retire(0).unwrap();
        assert_eq!(issued.pop_retired(), Some(id(7)));
        assert_eq!(issued.issue(id(9)), None);
        issued.assert_invariants();
        assert_eq!(issued.retire((RETIRED - 1).into()), Err(ProtocolError::ConnectionIds), "never given");
        assert_eq!(issued.retire((RETIRED - 2).into()), Err(ProtocolError::ConnectionIds), "the last one");
    }

    #[test]
    fn connection_ids_of_a_server_take_32_bytes() {
        assert_eq!(size_of::<ConnectionIdState>(), 32);
    }

    #[test]
    fn a_client_keeps_four_ids_and_accepts_each_once() {
        let mut known = KnownIds::new(id(0), [0; 16]);
        for sequence in [3, 1, 3, 1, 0] {
            assert_eq!(known.add(new(sequence)), Ok(None));
        }
        assert_eq!(known.add(new(2)), Ok(None), "overtaken by the third");
        assert_eq!(known.add(new(2)), Ok(None));
        assert_eq!(known.add(new(4)), Err(ProtocolError::ConnectionIds), "the fifth");
    }

    #[test]
    fn a_path_change_takes_the_lowest_spare_id() {
        let mut known = KnownIds::new(id(0), [0; 16]);
        assert_eq!(known.change(), None);
        known.add(new(2)).unwrap();
        known.add(new(1)).unwrap();
        assert_eq!(known.change(), Some((id(1), None)));
        assert_eq!(known.change(), Some((id(2), Some(0))), "changed again before");
        assert_eq!((known.take_previous(), known.take_previous()), (Some(1), None));
        let mut retired: Vec<_> = std::iter::from_fn(|| known.pop_retired()).collect();
        retired.sort_by_key(|id| id.to_bytes());
        assert_eq!(retired, [id(0), id(1)]);
        assert_eq!(known.add(new(1)), Ok(Some(1)), "it is of no use any more");
        assert_eq!(known.change(), None);
    }

    #[test]
    fn a_reset_must_match_an_id_in_use_and_its_whole_token() {
        let mut known = KnownIds::new(id(5), [1; 16]);
        known.add(new(1)).unwrap();
        assert!(known.is_reset(id(5), &[1; 16]) && known.is_reset(id(1), &[1; 16]));
        assert!(!known.is_reset(id(6), &[1; 16]));
        for bit in 0..128 {
            let mut token = [1; 16];
            token[bit / 8] ^= 1 << (bit % 8);
            assert!(!known.is_reset(id(5), &token), "bit {bit}");
        }
    }
}
