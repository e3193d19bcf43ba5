//! Events for the application, in the order in which they occurred, with their payloads in one buffer.
//!
//! The queue is bounded: callers check for room before they add a message. It knows nothing of connections except
//! their ids.

mod message_run;

use std::collections::VecDeque;
use std::net::SocketAddr;

use drumfire_crypto::PlayerId;
use drumfire_wire::{Bodies, ChannelId};

use self::message_run::run_of;
use crate::channel::receipt::{Outcome, ReceiptId};
use crate::convert::{saturated, to_usize};
use crate::error::{CloseReason, ConnectError};
use crate::handshake::admission::TokenGrant;
use crate::limits::{FLIGHT_RECORDS_WAITING, ITEM_CHARGE_BYTES};
use crate::peer_id::PeerId;
use crate::recorder::FlightRecord;

pub use self::message_run::MessageRun;

/// An event of one peer. `Connected` comes first and `Disconnected` last, each at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The connection is open, and messages can be exchanged.
    Connected {
        /// The id of the new connection.
        peer: PeerId,
        /// The address of the peer. An IPv4 address is never mapped to IPv6.
        address: SocketAddr,
        /// The player that the token names; `None` in open access and on a client.
        player: Option<PlayerId>,
        /// The data that the game's backend put into the token.
        user_data: &'a [u8],
        /// The application hello of the client, at most 256 bytes. Nothing proves it. Empty on a client.
        hello: &'a [u8],
    },
    /// A client's attempt to connect failed. Its id is stale.
    ConnectFailed {
        /// The id of the attempt.
        peer: PeerId,
        /// The reason for the failure.
        error: &'a ConnectError,
    },
    /// A message arrived.
    Message {
        /// The sender of the message.
        peer: PeerId,
        /// The channel of the message.
        channel: ChannelId,
        /// The payload of the message.
        payload: &'a [u8],
    },
    /// The fate of a message that this end sent.
    Receipt {
        /// The receiver of the message.
        peer: PeerId,
        /// The receipt id that the sender chose.
        receipt: ReceiptId,
        /// The fate of the message.
        outcome: Outcome,
    },
    /// The peer gave up messages after it had sent them, and they are missing at this point.
    Skipped {
        /// The sender of the messages.
        peer: PeerId,
        /// The channel of the messages.
        channel: ChannelId,
        /// The number of missing messages.
        count: u32,
    },
    /// The connection has room for messages again, after [`SendError::Full`](crate::SendError::Full). It comes once, however
    /// many messages were refused, when half of the memory is free and the largest of them fits.
    Writable {
        /// The receiver of the messages.
        peer: PeerId,
    },
    /// The peer has another address, and has proved that it receives datagrams there. Only servers report it.
    PathChanged {
        /// The peer that moved.
        peer: PeerId,
        /// The new address. An IPv4 address is never mapped to IPv6.
        address: SocketAddr,
    },
    /// The last events of a connection that ends abnormally. Its `Disconnected` event is next. Not every such
    /// connection has a record: see [`Config::flight_recorder`](crate::Config::flight_recorder) and
    /// [`FLIGHT_RECORDS_WAITING`](crate::limits::FLIGHT_RECORDS_WAITING). The record of a connection is discarded
    /// after five silent seconds.
    FlightRecord {
        /// The peer whose connection ends.
        peer: PeerId,
        /// The recorded events.
        record: &'a FlightRecord,
    },
    /// The connection has ended.
    Disconnected {
        /// The id of the connection, which is stale now.
        peer: PeerId,
        /// The reason for the end.
        reason: CloseReason,
        /// The text that the closing end sent, for logs. UTF-8 by convention only.
        text: &'a [u8],
    },
}

impl Event<'_> {
    /// Returns the peer whose receive memory this event holds, and the bytes to give back with
    /// [`Endpoint::release`](crate::Endpoint::release). `None` for an event that holds none.
    #[must_use]
    pub const fn held(&self) -> Option<(PeerId, usize)> {
        match self {
            Self::Message { peer, payload, .. } => Some((*peer, payload.len())),
            Self::Skipped { peer, .. } => Some((*peer, 0)),
            _ => None,
        }
    }
}

/// The number of waiting events up to which [`Events::assert_invariants`] examines all of them.
const CHECKED_EVENTS_MAX: usize = 64;

/// A payload buffer below this size may double.
const SMALL_BYTES: usize = 16 * 1_024;

/// Events with their payloads in one buffer, oldest first. `Endpoint::take_events` fills it, so that the endpoint can
/// process datagrams while the application reads events. Its memory is reused.
#[derive(Debug, Default)]
pub struct EventBatch {
    queue: VecDeque<QueuedEvent>,
    /// Payloads of the queued events, oldest first. Bytes before `start` were taken.
    bytes: Vec<u8>,
    start: usize,
    /// The memory that the queued events are charged, in bytes.
    used_bytes: usize,
    /// The state changes in the queue, oldest first.
    changes: VecDeque<StateChange>,
    /// The flight records in the queue, oldest first.
    records: VecDeque<FlightRecord>,
    /// The state change and the flight record that were taken last, so that their events can borrow them.
    taken_change: Option<StateChange>,
    taken_record: Option<FlightRecord>,
}

/// Events that wait for the application.
#[derive(Debug)]
pub(crate) struct Events {
    waiting: EventBatch,
    limit_bytes: usize,
}

/// Half of the charge of a message, so that a queue that has just doubled its capacity takes no more than what is
/// charged. Rare and larger data is stored in separate queues.
#[derive(Debug, Clone, Copy)]
struct QueuedEvent {
    peer: PeerId,
    bytes: u32,
    kind: EventKind,
}

const _: () =
    assert!(2 * size_of::<QueuedEvent>() <= ITEM_CHARGE_BYTES, "a message takes more than it is charged");

impl QueuedEvent {
    fn payload_bytes(self) -> usize {
        to_usize(self.bytes)
    }

    /// The memory that the event is charged, in bytes.
    fn charge(self) -> usize {
        match self.kind {
            EventKind::Run(_, count, payload_bytes) => charge_all(count, to_usize(payload_bytes)),
            _ => charge(self.payload_bytes()),
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum EventKind {
    State,
    Message(ChannelId),
    /// The channel of a run, the number of its messages, and the sum of the lengths of their payloads.
    Run(ChannelId, u16, u32),
    Receipt(ReceiptId, Outcome),
    Skipped(ChannelId, u32),
    Writable,
    FlightRecord,
}

/// A rare event about the connection itself. Its contents are larger than a queued event.
#[derive(Debug, Clone)]
enum StateChange {
    /// The address, whether the payload begins with a player id, and the length of the hello at the end of the payload.
    Connected(SocketAddr, bool, usize),
    Failed(ConnectError),
    Moved(SocketAddr),
    Disconnected(CloseReason),
}

impl EventBatch {
    /// Returns whether all events were taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Removes and returns the oldest event; `None` when the batch is empty.
    pub fn pop(&mut self) -> Option<Event<'_>> {
        let entry = self.queue.pop_front()?;
        let QueuedEvent { peer, kind, .. } = entry;
        let start = self.start;
        let end = start.saturating_add(entry.payload_bytes());
        self.start = end;
        let payload = self.bytes.get(start..end).unwrap_or_default();
        let mut charge_bytes = charge(payload.len());
        let event = match kind {
            EventKind::State => {
                // A missing change would end the queue early and hide all later events.
                self.taken_change = self.changes.pop_front();
                debug_assert!(self.taken_change.is_some(), "the event of a state change without the change");
                match self.taken_change.as_ref()? {
                    &StateChange::Connected(address, has_player, hello_bytes) => {
                        let (payload, hello) = payload.split_at(payload.len().saturating_sub(hello_bytes));
                        let split = if has_player { payload.split_first_chunk() } else { None };
                        let player = split.map(|(id, _)| PlayerId(u128::from_be_bytes(*id)));
                        let user_data = split.map_or(payload, |(_, user_data)| user_data);
                        Event::Connected { peer, address, player, user_data, hello }
                    }
                    StateChange::Failed(error) => Event::ConnectFailed { peer, error },
                    &StateChange::Moved(address) => Event::PathChanged { peer, address },
                    &StateChange::Disconnected(reason) => Event::Disconnected { peer, reason, text: payload },
                }
            }
            EventKind::Message(channel) => Event::Message { peer, channel, payload },
            EventKind::Run(channel, count, payload_bytes) => {
                let mut payloads = run_of(payload, count, payload_bytes).payloads();
                let first = payloads.next();
                debug_assert!(first.is_some(), "a run of {count} messages in {} bytes", payload.len());
                let first = first.unwrap_or_default();
                charge_bytes = charge(first.len());
                // The rest of the run stays the oldest event.
                if let Some(count) = count.checked_sub(1).filter(|count| *count > 0) {
                    let rest = payloads.rest().len();
                    self.start = end.saturating_sub(rest);
                    let payload_bytes = payload_bytes.saturating_sub(saturated(first.len(), u32::MAX));
                    let (bytes, kind) =
                        (saturated(rest, u32::MAX), EventKind::Run(channel, count, payload_bytes));
                    self.queue.push_front(QueuedEvent { peer, bytes, kind });
                }
                Event::Message { peer, channel, payload: first }
            }
            EventKind::Receipt(receipt, outcome) => Event::Receipt { peer, receipt, outcome },
            EventKind::Skipped(channel, count) => Event::Skipped { peer, channel, count },
            EventKind::Writable => Event::Writable { peer },
            EventKind::FlightRecord => {
                self.taken_record = self.records.pop_front();
                debug_assert!(self.taken_record.is_some(), "the event of a flight record without the record");
                Event::FlightRecord { peer, record: self.taken_record.as_ref()? }
            }
        };
        self.used_bytes = self.used_bytes.saturating_sub(charge_bytes);
        Some(event)
    }

    /// Removes and returns the oldest event if it is a run of messages, or the rest of a run after calls of
    /// [`Self::pop`]. Returns `None` for any other event, which stays for [`Self::pop`].
    pub fn pop_run(&mut self) -> Option<MessageRun<'_>> {
        let event = *self.queue.front().filter(|event| matches!(event.kind, EventKind::Run(..)))?;
        self.queue.pop_front();
        self.used_bytes = self.used_bytes.saturating_sub(event.charge());
        let start = self.start;
        self.start = start.saturating_add(event.payload_bytes());
        self.run_at(start, event)
    }

    /// Returns the run that [`Self::pop_run`] takes next, and leaves it here. A caller that is interrupted in a run takes the
    /// messages before that with [`Self::pop`].
    #[must_use]
    pub fn front_run(&self) -> Option<MessageRun<'_>> {
        self.run_at(self.start, *self.queue.front()?)
    }

    /// Returns the run of an event whose payload begins at `start`. `None` for any other event.
    fn run_at(&self, start: usize, event: QueuedEvent) -> Option<MessageRun<'_>> {
        let QueuedEvent { peer, kind: EventKind::Run(channel, count, payload_bytes), .. } = event else {
            return None;
        };
        let bytes = self.bytes.get(start..start.saturating_add(event.payload_bytes())).unwrap_or_default();
        Some(MessageRun { peer, channel, bodies: run_of(bytes, count, payload_bytes) })
    }

    fn push(&mut self, peer: PeerId, kind: EventKind, payload: &[u8]) {
        self.reclaim();
        if self.bytes.capacity().saturating_sub(self.bytes.len()) < payload.len() {
            self.grow(payload.len());
        }
        self.bytes.extend_from_slice(payload);
        // No message is longer than 16 MiB.
        debug_assert!(u32::try_from(payload.len()).is_ok(), "an event with {} bytes", payload.len());
        let bytes = saturated(payload.len(), u32::MAX);
        let event = QueuedEvent { peer, bytes, kind };
        self.used_bytes = self.used_bytes.saturating_add(event.charge());
        self.queue.push_back(event);
    }

    /// Grows the buffer for a payload: doubles it while it is small, and adds a tenth from then on, because the
    /// buffer counts against the limits of connections and workers.
    #[cold]
    fn grow(&mut self, payload_bytes: usize) {
        let now = self.bytes.len();
        let more = if now < SMALL_BYTES { now } else { now / 10 };
        self.bytes.reserve_exact(more.max(payload_bytes));
    }

    /// Reuses the memory of payloads that were taken, when the queue is empty or when they are the larger half. Each
    /// byte is then moved at most once.
    fn reclaim(&mut self) {
        if self.queue.is_empty() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 && self.bytes.len() == self.bytes.capacity() {
            let start = self.start.min(self.bytes.len());
            self.bytes.copy_within(start.., 0);
            self.bytes.truncate(self.bytes.len().saturating_sub(start));
            self.start = 0;
        }
    }
}

impl Events {
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self { waiting: EventBatch::default(), limit_bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Moves all events into a batch. A batch that is not empty must be read to its end first.
    pub(crate) fn take(&mut self, into: &mut EventBatch) {
        if into.is_empty() {
            std::mem::swap(&mut self.waiting, into);
        }
    }

    /// Whether messages with this charge fit.
    pub(crate) const fn has_room(&self, charge_bytes: usize) -> bool {
        self.waiting.used_bytes.saturating_add(charge_bytes) <= self.limit_bytes
    }

    pub(crate) fn connected(
        &mut self,
        peer: PeerId,
        address: SocketAddr,
        grant: Option<&TokenGrant>,
        hello: &[u8],
    ) {
        let change = StateChange::Connected(address, grant.is_some(), hello.len());
        let Some(grant) = grant else { return self.changed(peer, change, hello) };
        let payload = [&grant.player.0.to_be_bytes(), &grant.user_data[..], hello].concat();
        self.changed(peer, change, &payload);
    }

    pub(crate) fn connect_failed(&mut self, peer: PeerId, error: ConnectError) {
        self.changed(peer, StateChange::Failed(error), &[]);
    }

    pub(crate) fn path_changed(&mut self, peer: PeerId, address: SocketAddr) {
        self.changed(peer, StateChange::Moved(address), &[]);
    }

    fn changed(&mut self, peer: PeerId, change: StateChange, payload: &[u8]) {
        self.waiting.changes.push_back(change);
        self.push(peer, EventKind::State, payload);
    }

    pub(crate) fn message(&mut self, peer: PeerId, channel: ChannelId, payload: &[u8]) {
        self.push(peer, EventKind::Message(channel), payload);
    }

    pub(crate) fn receipt(&mut self, peer: PeerId, receipt: ReceiptId, outcome: Outcome) {
        self.push(peer, EventKind::Receipt(receipt, outcome), &[]);
    }

    /// Queues the messages of a run as one event.
    pub(crate) fn run(&mut self, peer: PeerId, channel: ChannelId, bodies: Bodies<'_>) {
        let Bodies { bytes, count, payload_bytes } = bodies;
        self.waiting.push(peer, EventKind::Run(channel, count, payload_bytes), bytes);
    }

    /// Counts messages that the peer skipped. Skips in a row are one event. Returns whether the event is new.
    pub(crate) fn skipped(&mut self, peer: PeerId, channel: ChannelId, skipped_count: u16) -> bool {
        if let Some(QueuedEvent { peer: last_peer, kind: EventKind::Skipped(last_channel, count), .. }) =
            self.waiting.queue.back_mut()
            && (*last_peer, *last_channel) == (peer, channel)
        {
            *count = count.saturating_add(skipped_count.into());
            return false;
        }
        self.push(peer, EventKind::Skipped(channel, skipped_count.into()), &[]);
        true
    }

    pub(crate) fn writable(&mut self, peer: PeerId) {
        self.push(peer, EventKind::Writable, &[]);
    }

    /// Queues a flight record. Returns whether there was room for it.
    pub(crate) fn flight_record(&mut self, peer: PeerId, record: FlightRecord) -> bool {
        let has_room = self.waiting.records.len() < FLIGHT_RECORDS_WAITING;
        if has_room {
            self.waiting.records.push_back(record);
            self.push(peer, EventKind::FlightRecord, &[]);
        }
        has_room
    }

    pub(crate) fn disconnected(&mut self, peer: PeerId, reason: CloseReason, text: &[u8]) {
        self.changed(peer, StateChange::Disconnected(reason), text);
    }

    /// Returns the oldest event.
    pub(crate) fn pop(&mut self) -> Option<Event<'_>> {
        self.waiting.pop()
    }

    /// See [`EventBatch::pop_run`].
    pub(crate) fn pop_run(&mut self) -> Option<MessageRun<'_>> {
        self.waiting.pop_run()
    }

    /// Whether an event waits that begins, moves, or ends a connection, or ends an attempt.
    pub(crate) fn has_lifecycle_events(&self) -> bool {
        !self.waiting.changes.is_empty()
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        let EventBatch { queue, bytes, start, used_bytes, changes, records, .. } = &self.waiting;
        // A walk through a long queue would cost more than the call after which it is made.
        if queue.len() > CHECKED_EVENTS_MAX {
            return;
        }
        let payloads = || queue.iter().map(|event| event.payload_bytes());
        debug_assert_eq!(
            *used_bytes,
            queue.iter().map(|event| event.charge()).sum::<usize>(),
            "the memory of waiting events was counted wrong"
        );
        debug_assert_eq!(
            bytes.len().saturating_sub(*start),
            payloads().sum::<usize>(),
            "the payloads do not belong to the events that wait"
        );
        // An event without its change or its record would hide all later events.
        let count =
            |is_kind: fn(&EventKind) -> bool| queue.iter().filter(|event| is_kind(&event.kind)).count();
        debug_assert_eq!(
            (changes.len(), records.len()),
            (
                count(|kind| matches!(kind, EventKind::State)),
                count(|kind| matches!(kind, EventKind::FlightRecord))
            ),
            "the state changes, or the flight records, do not match their events"
        );
    }

    fn push(&mut self, peer: PeerId, kind: EventKind, payload: &[u8]) {
        self.waiting.push(peer, kind, payload);
    }
}

/// Returns the charge of a message, in bytes.
pub(crate) fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}

/// Returns the charge of `count` messages whose payloads have `payload_bytes` together.
pub(crate) fn charge_all(count: u16, payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(usize::from(count).saturating_mul(ITEM_CHARGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    fn peer() -> PeerId {
        Slab::new(0, 1).insert(()).unwrap()
    }

    #[test]
    fn events_are_in_order_and_carry_their_bytes() {
        let (mut events, peer) = (Events::new(1_000), peer());
        events.connected(peer, "192.0.2.1:9".parse().unwrap(), None, b"");
        events.message(peer, ChannelId(3), b"one");
        events.message(peer, ChannelId(4), b"");
        assert!(events.has_lifecycle_events());
        let moved_to = "192.0.2.1:10".parse().unwrap();
        events.path_changed(peer, moved_to);
        events.disconnected(peer, CloseReason::IdleTimeout, b"bye");
        events.assert_invariants();
        let address = "192.0.2.1:9".parse().unwrap();
        assert_eq!(
            events.pop(),
            Some(Event::Connected { peer, address, player: None, user_data: b"", hello: b"" })
        );
        assert_eq!(events.pop(), Some(Event::Message { peer, channel: ChannelId(3), payload: b"one" }));
        assert_eq!(events.pop(), Some(Event::Message { peer, channel: ChannelId(4), payload: b"" }));
        assert_eq!(events.pop(), Some(Event::PathChanged { peer, address: moved_to }));
        let last = Event::Disconnected { peer, reason: CloseReason::IdleTimeout, text: b"bye" };
        assert_eq!(events.pop(), Some(last));
        assert_eq!(events.pop(), None);
        assert_eq!((events.waiting.used_bytes, events.has_lifecycle_events()), (0, false));
    }

    #[test]
    fn a_batch_takes_all_events_and_new_ones_wait() {
        let (mut events, mut batch, peer) = (Events::new(1_000), EventBatch::default(), peer());
        events.message(peer, ChannelId(1), b"one");
        events.message(peer, ChannelId(2), b"two");
        events.take(&mut batch);
        assert_eq!((events.is_empty(), events.waiting.used_bytes), (true, 0));
        assert_eq!(batch.pop(), Some(Event::Message { peer, channel: ChannelId(1), payload: b"one" }));
        events.message(peer, ChannelId(3), b"three");
        events.take(&mut batch);
        assert_eq!(batch.pop(), Some(Event::Message { peer, channel: ChannelId(2), payload: b"two" }));
        assert_eq!(batch.pop(), None, "it was taken to its end first");
        events.take(&mut batch);
        assert_eq!(batch.pop(), Some(Event::Message { peer, channel: ChannelId(3), payload: b"three" }));
        assert!(events.is_empty() && batch.is_empty());
    }

    #[test]
    fn messages_of_a_run_are_taken_singly_or_together() {
        let (mut events, peer, mut bytes) = (Events::new(1_000), peer(), Vec::new());
        [&b"one"[..], b"", b"three"].iter().for_each(|payload| Bodies::put(payload, &mut bytes));
        let (bodies, _) = Bodies::parse(&bytes).unwrap();
        let message = |channel, payload| Some(Event::Message { peer, channel: ChannelId(channel), payload });
        events.run(peer, ChannelId(1), bodies);
        events.message(peer, ChannelId(2), b"two");
        events.run(peer, ChannelId(3), bodies);
        assert_eq!(events.waiting.used_bytes, 7 * 64 + 2 * 8 + 3);
        events.assert_invariants();
        for payload in [&b"one"[..], b""] {
            assert_eq!(events.pop(), message(1, payload));
            events.assert_invariants();
        }
        // A message between the two is no run.
        let mut batch = EventBatch::default();
        events.take(&mut batch);
        assert_eq!(batch.front_run().map(|run| run.count()), Some(1));
        let rest = batch.pop_run().unwrap();
        assert_eq!((rest.count(), rest.payload_bytes(), rest.payloads().next()), (1, 5, Some(&b"three"[..])));
        assert!(batch.front_run().is_none() && batch.pop_run().is_none());
        assert_eq!(batch.pop(), message(2, b"two"));
        assert_eq!(batch.pop_run().unwrap().bodies, bodies);
        assert!(batch.is_empty() && batch.pop().is_none());
    }

    #[test]
    fn a_full_event_queue_has_no_room() {
        let mut events = Events::new(200);
        events.message(peer(), ChannelId(0), &[0; 36]);
        for (charge, fits) in [(99, true), (100, true), (101, false)] {
            assert_eq!(events.has_room(charge), fits);
        }
    }

    #[test]
    fn memory_is_constant_while_events_are_taken_promptly() {
        let (mut events, peer) = (Events::new(usize::MAX), peer());
        for _ in 0..20 {
            events.message(peer, ChannelId(0), &[1; 100]);
        }
        for round in 0..10_000 {
            events.message(peer, ChannelId(0), &[2; 100]);
            let Some(Event::Message { payload, .. }) = events.pop() else { panic!("a message") };
            assert_eq!(payload, [if round < 20 { 1 } else { 2 }; 100]);
        }
        assert!(events.waiting.bytes.capacity() <= 8_192, "{}", events.waiting.bytes.capacity());
    }

    #[test]
    fn events_take_at_most_a_tenth_more_than_their_charge() {
        let peer = peer();
        for payload_bytes in [0, 1, 20, 1_000, 65_536] {
            let mut events = Events::new(usize::MAX);
            // The queue has then just doubled its capacity.
            while events.waiting.used_bytes < 4 * 1_024 * 1_024
                || !events.waiting.queue.len().is_power_of_two()
            {
                events.message(peer, ChannelId(0), &vec![1; payload_bytes]);
            }
            events.message(peer, ChannelId(0), &vec![1; payload_bytes]);
            let batch = &events.waiting;
            let taken_bytes = batch.queue.capacity() * size_of::<QueuedEvent>() + batch.bytes.capacity();
            let (most, length) = (batch.used_bytes * 11 / 10, batch.queue.len());
            assert!(taken_bytes <= most, "{length} of {payload_bytes} B: {taken_bytes} of {most} B");
        }
    }
}
