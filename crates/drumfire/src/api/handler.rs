//! The handler: the code of the application, called on the worker that received the message.
//!
//! This interface has the least overhead: no other thread is involved, the payload is borrowed from the receive buffer, and replies are
//! sent with the same flush. A slow handler delays the players of its worker, and no others.

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
///         // A peer whose connection is full misses its echo.
///         let _ = context.send(peer, Message::reliable_ordered(channel, context.copy(payload)));
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// let server = handler::Server::bind(config.workers(Workers::Count(1)), |_worker| Echo)?;
///
/// let mut client = Client::new(ClientConfig::default())?;
/// let peer = client.connect((server.local_addr(), ServerKey::dev().public()))?;
/// client.send(peer, Message::reliable_ordered(ChannelId(0), "hello"))?;
/// let is_answer = |event| matches!(event, Event::Message { payload, .. } if payload == "hello");
/// while !client.events().any(is_answer) {
///     client.poll(Duration::from_millis(1));
/// }
/// # Ok(())
/// # }
/// ```
pub trait Handler: Send + 'static {
    /// The notes that other threads send through a [`Remote`](crate::handler::Remote), or `()` for none.
    type Note: Send + 'static;

    /// Handles a message. The payload is borrowed for the call: copy it to keep it.
    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, payload: &[u8]);

    /// Handles any other event. [`Event::Message`] is never passed to this method.
    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        let _ = (context, event);
    }

    /// Handles a note that another thread sent through a [`Remote`](crate::handler::Remote).
    fn on_note(&mut self, context: &mut Context<'_>, note: Self::Note) {
        let _ = (context, note);
    }

    /// Returns the interval between calls of [`Handler::on_tick`], at least 1 ms. `None`, the default, means no calls. This method is
    /// called once.
    fn tick_period(&self) -> Option<Duration> {
        None
    }

    /// Handles a tick: the interval of [`Handler::tick_period`] has passed. A worker that is late makes one call for all intervals that
    /// have passed.
    fn on_tick(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }
}
