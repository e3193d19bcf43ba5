//! The commands of the application to a worker, and the questions of an operator.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ChannelOptions, FlightRecord, LiveConfig, Message, PeerId, ReceiptId, Secret, SendError,
};

use super::send_edge::check_length;
use super::shutdown::ShutdownOrder;
use crate::admission::AdmissionControl;
use crate::admission::bans::Ban;
use crate::base::error::Error;
use crate::base::sync::PendingPart;
use crate::config::CLOSE_TEXT_MAX_BYTES;
use crate::message::group::{Audience, GroupId};
use crate::observe::survey::{Survey, SurveyOrder};

/// A command of the application to a worker.
#[derive(Debug)]
pub(crate) enum Command {
    /// A message that was admitted by the [`SendAccount`](super::send_edge::SendAccount) of the peer.
    Send {
        peer: PeerId,
        message: Message,
        receipt: Option<ReceiptId>,
    },
    Close {
        peer: PeerId,
        code: u32,
        text: Bytes,
    },
    Options {
        peer: PeerId,
        channel: ChannelId,
        options: ChannelOptions,
    },
    Measure {
        peer: PeerId,
    },
    Record {
        peer: PeerId,
    },
    Forget {
        peer: PeerId,
        channel: ChannelId,
        key: u64,
    },
    Join {
        peer: PeerId,
        group: GroupId,
    },
    Leave {
        peer: PeerId,
        group: GroupId,
    },
    Broadcast(Broadcast),
    /// Closes each connection when its peer has acknowledged everything.
    ShutDown(ShutdownOrder),
    Reconfigure(Arc<LiveConfig>),
    /// Ends all sessions without sending a close, because a copy of this process may have the same keys. From then on, the endpoint takes
    /// its randomness from the seed.
    InvalidateKeys {
        seed: Box<Secret<32>>,
        part: PendingPart<Result<(), Error>>,
    },
    /// A message from a sender that knows only the id of the peer, and not its send memory.
    Post {
        peer: PeerId,
        message: Message,
    },
    /// Changes the simulated links of the worker's socket. The configuration was checked, and there are links.
    Condition(Arc<crate::conditioner::LinkConfig>),
    /// Replaces the socket of a client.
    #[cfg(feature = "tokio")]
    Rebind(PendingPart<Result<(), Error>>),
    /// A query of an operator or a task. The result goes to the caller, and is no event.
    Query(Box<Query>),
}

impl Command {
    /// Returns the command that closes the connection of a peer. Cuts the text to [`CLOSE_TEXT_MAX_BYTES`].
    pub(crate) fn close(peer: PeerId, code: u32, text: &str) -> Self {
        // The cut is at the end of a character, so that the peer receives valid UTF-8.
        let text = &text[..text.floor_char_boundary(CLOSE_TEXT_MAX_BYTES)];
        Self::Close { peer, code, text: Bytes::copy_from_slice(text.as_bytes()) }
    }

    /// Returns the bytes of a message that is charged to the memory of the channel, which all peers share, or `None` for other commands.
    pub(crate) fn shared_bytes(&self) -> Option<usize> {
        match self {
            Self::Broadcast(broadcast) => Some(broadcast.message.payload.len()),
            Self::Post { message, .. } => Some(message.payload.len()),
            _ => None,
        }
    }
}

/// A message to many peers.
#[derive(Clone, Debug)]
pub(crate) struct Broadcast {
    pub(crate) audience: Audience,
    pub(crate) message: Message,
}

impl Broadcast {
    /// Checks the length, which does not depend on a peer.
    pub(crate) fn check(&self, message_max_bytes: usize) -> Result<(), SendError> {
        // A peer can accept less than this limit. It then misses the broadcast, which the worker reports.
        check_length(self.message.payload.len(), self.message.options.mode, message_max_bytes)
    }
}

/// A query of an operator or a task, with the part of the result that the worker completes.
#[derive(Debug)]
pub(crate) enum Query {
    Survey(SurveyQuery),
    FlightRecord {
        peer: PeerId,
        part: PendingPart<Option<Box<FlightRecord>>>,
    },
    CloseAndBan(BanOrder),
    /// The newest resume token of a client.
    #[cfg(feature = "tokio")]
    ResumeToken {
        peer: PeerId,
        part: PendingPart<Option<crate::credentials::connect_token::ConnectToken>>,
    },
}

/// A request for the first connections of a worker in an order.
#[derive(Debug)]
pub(crate) struct SurveyQuery {
    pub(crate) order: SurveyOrder,
    pub(crate) limit: usize,
    pub(crate) part: PendingPart<Survey>,
}

/// A request to ban a peer and close its connection. The worker adds the ban, because it knows the address, the player, and the time.
#[derive(Debug)]
pub(crate) struct BanOrder {
    pub(crate) peer: PeerId,
    pub(crate) duration: Duration,
    pub(crate) admission: Arc<AdmissionControl>,
    /// The command that closes the connection.
    pub(crate) close: Command,
    pub(crate) part: PendingPart<Result<Ban, Error>>,
}
