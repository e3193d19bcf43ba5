//! The handler: the application's code on the worker that received the message. It borrows the bytes, answers in place, and the
//! answer leaves with the same flush.
//!
//! It is the way with the least work: nothing is handed to another thread, nobody is woken, and the bytes are lent from where
//! the worker put them when it opened the packet. A handler that is slow holds up the players of its worker, and nobody else.

pub(crate) mod client;
pub(crate) mod context;
pub(crate) mod remote;
pub(crate) mod server;
mod sink;

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{
    ChannelId, CloseReason, ConnectError, FlightRecord, Outcome, PeerId, PeerStats, PlayerId, ReceiptId,
};

use context::Context;

/// The application of one worker: its peers' events, as calls. Made once per worker, and never called by two threads at a time.
///
/// What is promised of [`Event`](crate::Event)s holds here too: per peer in the order it happened, `on_connect` first,
/// `on_disconnect` last and exactly once. A handler that panics costs the connection whose event it was looking at, and goes
/// on with the next: see that its state is whole then.
///
/// ```
/// # use std::time::Duration;
/// use drumfire::*;
///
/// struct Echo;
///
/// impl Handler for Echo {
///     type Note = ();
///
///     fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
///         // A peer that does not take its echo does not get it.
///         let _ = context.send(peer, Message::reliable_ordered(channel, context.copy(bytes)));
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// let server = serve(config.workers(Workers::Count(1)), |_worker| Echo)?;
///
/// let mut client = Client::connect_dev(server.local_addr())?;
/// client.send(Message::reliable_ordered(ChannelId(0), "hello"))?;
/// let is_answer = |event| matches!(event, ClientEvent::Message { bytes, .. } if bytes == "hello");
/// while !client.poll().any(is_answer) {
///     client.wait(Duration::from_millis(1));
/// }
/// # Ok(())
/// # }
/// ```
pub trait Handler: Send + 'static {
    /// What other threads tell it through a [`Remote`](crate::Remote); `()` where there is nothing to tell.
    type Note: Send + 'static;

    /// A message arrived. Its bytes are lent for this call: copy what is kept.
    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]);

    /// A peer is there: its key is confirmed, messages can be sent.
    fn on_connect(&mut self, context: &mut Context<'_>, peer: PeerId, arrival: &Arrival<'_>) {
        let _ = (context, peer, arrival);
    }

    /// At a client: an attempt came to nothing; its id names nobody any more.
    fn on_connect_failed(&mut self, context: &mut Context<'_>, peer: PeerId, error: ConnectError) {
        let _ = (context, peer, error);
    }

    /// What became of a message sent with a receipt: exactly one call for each, before `on_disconnect`.
    fn on_receipt(&mut self, context: &mut Context<'_>, peer: PeerId, receipt: ReceiptId, outcome: Outcome) {
        let _ = (context, peer, receipt, outcome);
    }

    /// Messages that the peer gave up after it had sent them were left out here.
    fn on_skipped(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, count: u32) {
        let _ = (context, peer, channel, count);
    }

    /// Messages of broadcasts for which the peer had no room, so that it never hears them.
    fn on_missed(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, count: u32) {
        let _ = (context, peer, channel, count);
    }

    /// There is room again for messages to a peer to which [`Context::send`] answered `Full`, as
    /// [`Event::Writable`](crate::Event::Writable) says.
    fn on_writable(&mut self, context: &mut Context<'_>, peer: PeerId) {
        let _ = (context, peer);
    }

    /// What was asked for with [`Context::request_stats`].
    fn on_stats(&mut self, context: &mut Context<'_>, peer: PeerId, stats: &PeerStats) {
        let _ = (context, peer, stats);
    }

    /// What happened last to a connection that ends in another way than the applications wanted, before `on_disconnect`; also
    /// what was asked for with [`Context::request_flight_record`].
    fn on_flight_record(&mut self, context: &mut Context<'_>, peer: PeerId, record: &FlightRecord) {
        let _ = (context, peer, record);
    }

    /// A peer is gone; its id names nobody any more. The text is what the closing side said, for a log: UTF-8 by custom only.
    fn on_disconnect(&mut self, context: &mut Context<'_>, peer: PeerId, reason: CloseReason, text: &[u8]) {
        let _ = (context, peer, reason, text);
    }

    /// What another thread told through a [`Remote`](crate::Remote).
    fn on_note(&mut self, context: &mut Context<'_>, note: Self::Note) {
        let _ = (context, note);
    }

    /// How often [`Handler::on_tick`] is called; asked once. `None`, the default: never.
    fn tick_period(&self) -> Option<Duration> {
        None
    }

    /// A period is over. Where a worker comes late, periods that are over already are one call.
    fn on_tick(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }
}

/// A peer that has just connected.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Arrival<'a> {
    /// Where it is.
    pub address: SocketAddr,
    /// Which player, as its token says; `None` in open access.
    pub player: Option<PlayerId>,
    /// What the backend put into the token, up to 256 bytes.
    pub user_data: &'a [u8],
}
