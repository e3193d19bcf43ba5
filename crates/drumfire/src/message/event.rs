//! The events that the application receives.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, CloseReason, ConnectError, FlightRecord, Outcome, PeerId, PeerStats, PlayerId, ReceiptId,
};

/// An event of one peer, at a server or a client.
///
/// The events of a peer come in the order in which they happened. `Connected` or `ConnectFailed` is the first, and
/// `Disconnected` is the last and comes exactly once. A client that reconnects has `Reconnecting` before each further attempt, and
/// `Connected` for each connection. There is no order between peers of different workers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is open. At a server, the client has proved that it holds its keys.
    Connected {
        /// The id of the connection.
        peer: PeerId,
        /// The address and the identity of the peer.
        info: Box<PeerInfo>,
    },
    /// Client only: there is no connection to the server, and there will be none.
    ConnectFailed {
        /// The id of the attempt, which is stale now.
        peer: PeerId,
        /// The reason for the failure.
        error: ConnectError,
    },
    /// A message arrived.
    Message {
        /// The sender.
        peer: PeerId,
        /// The channel of the message.
        channel: ChannelId,
        /// The payload. It is a slice of a larger buffer, which stays in memory as long as any slice of it: copy a payload that is kept for
        /// long.
        payload: Bytes,
    },
    /// The outcome of a message sent with a receipt. There is exactly one event for each such message, before `Disconnected` or
    /// `Reconnecting`.
    Receipt {
        /// The receiver of the message.
        peer: PeerId,
        /// The id that `send_with_receipt` returned.
        receipt: ReceiptId,
        /// The outcome. A message whose outcome is unknown when the connection ends is `Lost`.
        outcome: Outcome,
    },
    /// The peer gave up messages after it had sent them, because their lifetime was over. They are missing at this point.
    Skipped {
        /// The sender of the messages.
        peer: PeerId,
        /// The channel of the messages.
        channel: ChannelId,
        /// The number of missing messages, at least 1.
        count: u32,
    },
    /// Server only: the peer had no room for broadcasts and never receives them. Send such a peer the whole state again, or close
    /// its connection.
    Missed {
        /// The peer that did not keep up.
        peer: PeerId,
        /// The channel of the messages.
        channel: ChannelId,
        /// The number of missed messages, at least 1.
        count: u32,
    },
    /// There is room for messages to a peer for which `send` returned [`Full`](crate::SendError::Full): half of the send memory, or the
    /// size of the refused message if that is more. It comes once, however many calls returned `Full` before. At a client it never comes
    /// before `Connected`, and not for a message that was refused before `Reconnecting`.
    Writable {
        /// The id of the peer.
        peer: PeerId,
    },
    /// The answer to `request_stats`.
    Stats {
        /// The id of the peer.
        peer: PeerId,
        /// The state of the connection and its path at the time of the request.
        stats: Box<PeerStats>,
    },
    /// The last packets and decisions of a connection: before the `Disconnected` of one that ended abnormally, or as the answer to
    /// `request_flight_record`. Print it, or store its [`to_qlog`](FlightRecord::to_qlog). A connection without recent traffic has
    /// none.
    FlightRecord {
        /// The id of the peer.
        peer: PeerId,
        /// The events and the state of the connection.
        record: Box<FlightRecord>,
    },
    /// One end of the connection has another address. Nothing is lost, and nothing needs to be done.
    ///
    /// At a server, it is the address of the peer, which has proved that it receives there: its NAT chose another port, or the device
    /// changed its network. At a client, it is the client's own local address, after [`rebind`](crate::Client::rebind) or because
    /// [`follow_network`](crate::ClientConfig::follow_network) replaced the socket. The client does not notice that a NAT changed its
    /// public address.
    PathChanged {
        /// The id of the peer.
        peer: PeerId,
        /// The new address of the peer at a server, and the new local address at a client. A socket that is not connected to one server
        /// may have an unspecified IP address.
        address: SocketAddr,
    },
    /// Client only: the connection ended, or an attempt failed, and the client tries again by itself: see
    /// [`Reconnect`](crate::Reconnect). Messages that the server has not acknowledged are lost. `send` returns
    /// [`NotConnected`](crate::SendError::NotConnected) until the next `Connected`. If the last attempt fails too, `Disconnected`
    /// follows, or `ConnectFailed` if there never was a connection.
    Reconnecting {
        /// The id of the connection, which stays the same.
        peer: PeerId,
        /// The reason for the attempt.
        reason: ReconnectReason,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The time before the attempt starts.
        delay: Duration,
    },
    /// The connection is over. The [reason](Closed::reason) is [`CloseReason::Local`] if this end closed it, so that a client that quits
    /// does not report its own close as an error.
    Disconnected {
        /// The id of the connection, which is stale now and is never used again.
        peer: PeerId,
        /// The reason.
        closed: Box<Closed>,
    },
}

// Each event waits in a queue.
const _: () = assert!(size_of::<Event>() <= 56, "an event has more than 56 bytes");

impl Event {
    /// Returns the peer of the event.
    #[must_use]
    pub const fn peer(&self) -> PeerId {
        match self {
            Self::Connected { peer, .. }
            | Self::ConnectFailed { peer, .. }
            | Self::Message { peer, .. }
            | Self::Receipt { peer, .. }
            | Self::Skipped { peer, .. }
            | Self::Missed { peer, .. }
            | Self::Writable { peer }
            | Self::Stats { peer, .. }
            | Self::FlightRecord { peer, .. }
            | Self::PathChanged { peer, .. }
            | Self::Reconnecting { peer, .. }
            | Self::Disconnected { peer, .. } => *peer,
        }
    }

    /// Converts an event of the protocol core. Returns `None` for a variant that this crate does not know. `copy` copies the payload of a
    /// message.
    pub(crate) fn from_core(
        event: drumfire_proto::Event<'_>,
        copy: impl FnOnce(&[u8]) -> Bytes,
    ) -> Option<Self> {
        use drumfire_proto::Event as Core;
        Some(match event {
            Core::Connected { peer, address, player, user_data, hello } => {
                let (user_data, hello) = (Bytes::copy_from_slice(user_data), Bytes::copy_from_slice(hello));
                let info = PeerInfo { address, player, user_data, hello };
                Self::Connected { peer, info: Box::new(info) }
            }
            Core::ConnectFailed { peer, error } => Self::ConnectFailed { peer, error: error.clone() },
            Core::Message { peer, channel, payload } => {
                Self::Message { peer, channel, payload: copy(payload) }
            }
            Core::Receipt { peer, receipt, outcome } => Self::Receipt { peer, receipt, outcome },
            Core::Skipped { peer, channel, count } => Self::Skipped { peer, channel, count },
            Core::Writable { peer } => Self::Writable { peer },
            Core::PathChanged { peer, address } => Self::PathChanged { peer, address },
            Core::FlightRecord { peer, record } => {
                Self::FlightRecord { peer, record: Box::new(record.clone()) }
            }
            Core::Disconnected { peer, reason, text } => {
                Self::disconnected(peer, Closed::new(reason, Bytes::copy_from_slice(text)))
            }
            _ => return None,
        })
    }

    pub(crate) fn disconnected(peer: PeerId, closed: Closed) -> Self {
        Self::Disconnected { peer, closed: Box::new(closed) }
    }
}

/// The address and the identity of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerInfo {
    /// The address of the peer. An IPv4 address is never mapped to IPv6.
    pub address: SocketAddr,
    /// The player that the token names. `None` with [`Access::Open`](crate::Access::Open), and at a client.
    pub player: Option<PlayerId>,
    /// The data that the game's backend put into the token: at most 256 bytes, and empty without a token.
    pub user_data: Bytes,
    /// The hello of the client: at most 256 bytes, and empty at a client. The server cannot verify it: see
    /// [`ConnectOptions::hello`](crate::ConnectOptions::hello).
    pub hello: Bytes,
}

impl PeerInfo {
    /// Creates the information about a peer without a token and a hello.
    #[must_use]
    pub const fn new(address: SocketAddr) -> Self {
        Self { address, player: None, user_data: Bytes::new(), hello: Bytes::new() }
    }
}

/// The reason why a client reconnects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReconnectReason {
    /// The connection ended.
    Ended(Box<Closed>),
    /// The last attempt failed.
    Failed(ConnectError),
}

impl fmt::Display for ReconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(closed) => closed.fmt(f),
            Self::Failed(error) => write!(f, "the attempt failed: {error}"),
        }
    }
}

/// The end of a connection.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// The reason of the end.
    pub reason: CloseReason,
    /// The text of the side that closed the connection, for a log. It is not always UTF-8.
    pub text: Bytes,
    /// The error of the last attempt, if a client tried to reconnect and gave up.
    pub reconnect_error: Option<ConnectError>,
}

impl Closed {
    /// Creates the end of a connection that did not try to reconnect.
    #[must_use]
    pub const fn new(reason: CloseReason, text: Bytes) -> Self {
        Self { reason, text, reconnect_error: None }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the connection is over: {}", self.reason)?;
        if !self.text.is_empty() {
            write!(f, " ({:?})", String::from_utf8_lossy(&self.text))?;
        }
        self.reconnect_error.iter().try_for_each(|error| write!(f, "; reconnecting failed: {error}"))
    }
}

impl std::error::Error for Closed {}

drumfire_proto::debug_with_display!(Closed);
