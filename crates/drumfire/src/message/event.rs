//! What the application hears, and the iterator that gives it out.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, CloseReason, ConnectError, FlightRecord, Outcome, PeerId, PeerStats, PlayerId, ReceiptId,
};

/// Something that happened to a peer of a server.
///
/// For each peer in the order it happened: `Connected` first, `Disconnected` last and exactly once. Between
/// peers of different workers no order is promised.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A peer is there: its key is confirmed, messages can be sent.
    Connected {
        /// Who.
        peer: PeerId,
        /// Where it is, an IPv4 address always as such.
        address: SocketAddr,
        /// Which player, as its token says; `None` in open access. Boxed, so that every other event stays small.
        player: Option<Box<Player>>,
    },
    /// A message arrived.
    Message {
        /// From whom.
        peer: PeerId,
        /// On which channel.
        channel: ChannelId,
        /// What. It shares memory with its neighbours: copy what is kept for long.
        bytes: Bytes,
    },
    /// What became of a message sent with a receipt: exactly one for each, before `Disconnected`.
    Receipt {
        /// To whom it was sent.
        peer: PeerId,
        /// What `send` answered.
        receipt: ReceiptId,
        /// What became of it. What nobody knows when the connection ends is `Lost`.
        outcome: Outcome,
    },
    /// Messages that the peer gave up after it had sent them, because their time was over, were left out here.
    Skipped {
        /// By whom.
        peer: PeerId,
        /// On which channel.
        channel: ChannelId,
        /// How many.
        count: u32,
    },
    /// Messages of broadcasts for which the peer had no room: it never hears them. A reliable game sends such a peer its whole
    /// state anew, or closes it.
    Missed {
        /// Who did not keep up.
        peer: PeerId,
        /// On which channel.
        channel: ChannelId,
        /// How many.
        count: u32,
    },
    /// There is room again for messages to a peer to which `send` answered [`Full`](crate::SendError::Full): half of what
    /// may wait for it, or as much as the refused message needs, where that is more. It comes once, however often `send` answered
    /// so; the next one follows the next such answer. For who was never refused it never comes.
    Writable {
        /// To whom.
        peer: PeerId,
    },
    /// What was asked for with `request_stats`.
    Stats {
        /// Of whom.
        peer: PeerId,
        /// The connection and its path, as they were then.
        stats: Box<PeerStats>,
    },
    /// What happened last to a connection that ends in another way than the applications wanted, before its `Disconnected`; also
    /// what was asked for with `request_flight_record`. Print it, or keep its [`to_qlog`](FlightRecord::to_qlog). A connection
    /// that carried no message lately has none.
    FlightRecord {
        /// Whose.
        peer: PeerId,
        /// What happened.
        record: Box<FlightRecord>,
    },
    /// A peer is gone. Its id names nobody any more.
    Disconnected {
        /// Who.
        peer: PeerId,
        /// Why.
        reason: CloseReason,
        /// What the closing side said, for a log: UTF-8 by custom only.
        text: Bytes,
    },
}

/// Who a peer is, as its token says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Player {
    /// By which the game's backend knows the player.
    pub id: PlayerId,
    /// What the backend put into the token, up to 256 bytes.
    pub user_data: Box<[u8]>,
}

/// Something that happened to a client's connection, in the order it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The server is there and proved itself.
    Connected,
    /// There is no connection, and will be none.
    ConnectFailed {
        /// Why.
        error: ConnectError,
    },
    /// A message arrived.
    Message {
        /// On which channel.
        channel: ChannelId,
        /// What. It shares memory with its neighbours: copy what is kept for long.
        bytes: Bytes,
    },
    /// What became of a message sent with a receipt: exactly one for each, before `Disconnected`.
    Receipt {
        /// What `send` answered.
        receipt: ReceiptId,
        /// What became of it. What nobody knows when the connection ends is `Lost`.
        outcome: Outcome,
    },
    /// Messages that the server gave up after it had sent them, because their time was over, were left out here.
    Skipped {
        /// On which channel.
        channel: ChannelId,
        /// How many.
        count: u32,
    },
    /// There is room again for messages, after `send` answered [`Full`](crate::SendError::Full): as
    /// [`Event::Writable`] says. Never before `Connected`, and not for what was refused before a [`ClientEvent::Reconnecting`],
    /// with which all room is new.
    Writable,
    /// What was asked for with `request_stats`.
    Stats {
        /// The connection and its path, as they were then.
        stats: Box<PeerStats>,
    },
    /// The connection ended, or an attempt came to nothing, and the client begins anew by itself: see
    /// [`Reconnect`](crate::Reconnect). Messages that were sent before and not acknowledged are gone, and `send` returns
    /// [`SendError::NotConnected`](crate::SendError::NotConnected) until `Connected` comes again. Another of these may come first,
    /// or `Disconnected`; where there never was a connection `ConnectFailed`.
    Reconnecting {
        /// Why.
        reason: ReconnectReason,
        /// What the server said when it closed, for a log: UTF-8 by custom only.
        text: Bytes,
        /// The number of the attempt that begins, from 1.
        attempt: u32,
        /// How long it waits before.
        wait: Duration,
    },
    /// The last attempt to have the connection back failed, and there is no other; `Disconnected` follows.
    ReconnectFailed {
        /// Why.
        error: ConnectError,
    },
    /// What happened last to a connection that ends in another way than the applications wanted, before its `Disconnected`; also
    /// what was asked for with `request_flight_record`. Print it, or keep its [`to_qlog`](FlightRecord::to_qlog). A connection
    /// that carried no message lately has none.
    FlightRecord {
        /// What happened.
        record: Box<FlightRecord>,
    },
    /// The connection is over.
    Disconnected {
        /// Why.
        reason: CloseReason,
        /// What the closing side said, for a log: UTF-8 by custom only.
        text: Bytes,
    },
}

/// The reason why a client reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconnectReason {
    /// The connection ended.
    Ended(CloseReason),
    /// The last attempt failed.
    Failed(ConnectError),
}

impl fmt::Display for ReconnectReason {
    /// One line for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(reason) => write!(f, "the connection ended: {reason}"),
            Self::Failed(error) => write!(f, "the attempt failed: {error}"),
        }
    }
}

/// The end of a connection.
#[cfg(feature = "tokio")]
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// The reason of the end.
    pub reason: CloseReason,
    /// The text of the side that closed the connection, for a log. It is not always UTF-8.
    pub text: Bytes,
    /// The last events of a connection that broke, if [`ServerConfig::flight_recorder`](crate::ServerConfig::flight_recorder) or
    /// [`ClientConfig::flight_recorder`](crate::ClientConfig::flight_recorder) is on.
    pub flight_record: Option<Arc<FlightRecord>>,
}

#[cfg(feature = "tokio")]
impl Closed {
    pub(crate) const fn new(reason: CloseReason, text: Bytes) -> Self {
        Self { reason, text, flight_record: None }
    }
}

#[cfg(feature = "tokio")]
impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection is over: {}", self.reason)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, " ({:?})", String::from_utf8_lossy(&self.text)) }
    }
}

#[cfg(feature = "tokio")]
impl std::error::Error for Closed {}

#[cfg(feature = "tokio")]
drumfire_proto::debug_with_display!(Closed);

/// Events, oldest first. It borrows nothing, so that events can be answered while it is walked; what is left
/// when it is dropped comes first in the next `poll`. Drop one before asking for the next.
#[derive(Debug)]
pub struct Events<E> {
    batch: VecDeque<E>,
    home: Home<E>,
}

impl<E> Iterator for Events<E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        self.batch.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.batch.len(), Some(self.batch.len()))
    }
}

impl<E> ExactSizeIterator for Events<E> {}

impl<E> Drop for Events<E> {
    fn drop(&mut self) {
        let mut home = self.home.queue();
        // Events of a later poll may already wait there: these are older.
        self.batch.append(&mut home);
        std::mem::swap(&mut self.batch, &mut home);
    }
}

/// Where events are gathered, and where those nobody took come back to.
#[derive(Debug)]
pub(crate) struct Home<E>(Arc<Mutex<VecDeque<E>>>);

impl<E> Home<E> {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue().is_empty()
    }

    pub(crate) fn add(&self, events: impl Iterator<Item = E>) {
        self.queue().extend(events);
    }

    /// Another name of the same home.
    pub(crate) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    pub(crate) fn take(&self) -> Events<E> {
        Events { batch: std::mem::take(&mut *self.queue()), home: self.share() }
    }

    /// The events that wait, to add to; nobody else can meanwhile.
    pub(crate) fn queue(&self) -> MutexGuard<'_, VecDeque<E>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_were_not_taken_come_first_the_next_time() {
        let home = Home::new();
        home.add(1..=4);
        let mut events = home.take();
        assert_eq!((events.len(), events.next()), (4, Some(1)));
        home.add(5..=6);
        drop(events);
        assert_eq!(home.take().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
        assert!(home.is_empty());
    }

    #[test]
    fn the_memory_is_used_again() {
        let home = Home::new();
        home.add(0..100);
        assert_eq!(home.take().count(), 100);
        let before = home.queue().capacity();
        assert!(before >= 100);
        home.add(0..100);
        assert_eq!(home.take().count(), 100);
        assert_eq!(home.queue().capacity(), before);
    }
}
