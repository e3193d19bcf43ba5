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

use std::time::Duration;

use drumfire_proto::{ChannelId, PeerId};

use crate::message::event::Event;
use context::Context;

/// The application's code for one worker. It receives the events of the worker's peers as calls, in the order that [`Event`]
/// describes. Two threads never call it at the same time. If it panics, the connection whose event it processed is closed, and it
/// is called for the next event: keep its state consistent.
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
///     fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, payload: &[u8]) {
///         // A peer that does not take its echo does not get it.
///         let _ = context.send(peer, Message::reliable_ordered(channel, context.copy(payload)));
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// let server = handler::Server::bind(config.workers(Workers::Count(1)), |_worker| Echo)?;
///
/// let mut client = Client::connect_dev(server.local_addr())?;
/// client.send(Message::reliable_ordered(ChannelId(0), "hello"))?;
/// let is_answer = |event| matches!(event, Event::Message { payload, .. } if payload == "hello");
/// while !client.events().any(is_answer) {
///     client.poll(Duration::from_millis(1));
/// }
/// # Ok(())
/// # }
/// ```
pub trait Handler: Send + 'static {
    /// What other threads tell it through a [`Remote`](crate::handler::Remote); `()` where there is nothing to tell.
    type Note: Send + 'static;

    /// A message arrived. The payload is borrowed: copy what is kept.
    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, payload: &[u8]);

    /// Any other event. [`Event::Message`] never comes here.
    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        let _ = (context, event);
    }

    /// What another thread told through a [`Remote`](crate::handler::Remote).
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
