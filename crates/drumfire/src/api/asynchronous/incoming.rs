//! What tasks get out of a connection: what it brings, what became of messages, and its end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use drumfire_proto::{ChannelId, Outcome};
use tokio::sync::oneshot;

/// Something that a connection brought, in the order it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Incoming {
    /// A message arrived.
    Message {
        /// On which channel.
        channel: ChannelId,
        /// What. It shares memory with its neighbours: copy what is kept for long.
        bytes: Bytes,
    },
    /// Messages that the peer gave up after it had sent them, because their time was over, were left out here.
    Skipped {
        /// On which channel.
        channel: ChannelId,
        /// How many.
        count: u32,
    },
    /// Messages of broadcasts for which the peer had no room: it never hears them. A reliable game sends such a peer its whole
    /// state anew, or closes it. At a server only.
    Missed {
        /// On which channel.
        channel: ChannelId,
        /// How many.
        count: u32,
    },
}

/// What becomes of a message that was sent with a receipt: a future, to be awaited once.
///
/// It is there until it is answered, whatever happens to the connection's handles: what nobody knows when the connection ends is
/// [`Outcome::Lost`]. Awaiting `&mut receipt` is cancel-safe. Dropping it changes nothing for the message.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Outcome>);

impl Receipt {
    pub(super) const fn new(answer: oneshot::Receiver<Outcome>) -> Self {
        Self(answer)
    }
}

impl Future for Receipt {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        Pin::new(&mut self.0).poll(context).map(|outcome| outcome.unwrap_or(Outcome::Lost))
    }
}
