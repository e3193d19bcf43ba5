//! The server: its plugin, its resource, its events, and the messages to its peers.

use std::time::Duration;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use drumfire::{Error, Event, PeerId, SendError, Server, ServerConfig};

use crate::resource::{Exclusive, NetworkResource, register};

/// Polls and flushes the resource [`DrumfireServer`] while it exists.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireServerPlugin;

impl Plugin for DrumfireServerPlugin {
    fn build(&self, app: &mut App) {
        register::<DrumfireServer>(app);
    }
}

/// A server. Removing the resource closes all connections and notifies the peers.
#[derive(Resource, Debug)]
pub struct DrumfireServer(Exclusive<Server>);

impl DrumfireServer {
    /// Wraps a server.
    #[must_use]
    pub fn new(server: Server) -> Self {
        Self(Exclusive::new(server))
    }

    /// Binds a server.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Server::bind`].
    pub fn bind(config: ServerConfig) -> Result<Self, Error> {
        Server::bind(config).map(Self::new)
    }

    /// Returns the server: to check the result of a send immediately, to close a connection, to ban, to broadcast, or
    /// to read counters. Leave `poll` to the plugin: events that the game takes are not written as
    /// [`DrumfireServerEvent`].
    pub fn get(&mut self) -> &mut Server {
        self.0.get()
    }

    /// Returns the server, for example to shut it down with [`Server::control`].
    #[must_use]
    pub fn into_inner(self) -> Server {
        self.0.into_inner()
    }
}

/// An event of a peer. Events of a peer come in the order in which they happened.
#[derive(Message, Clone, Debug, PartialEq, Eq)]
pub struct DrumfireServerEvent(pub Event);

/// A message to a peer, sent at the end of the frame.
#[derive(Message, Clone, Debug)]
pub struct ToPeer {
    /// The receiver.
    pub peer: PeerId,
    /// The message. Clones share the memory of its payload. For a receipt, call [`Server::send_with_receipt`] instead.
    pub message: drumfire::Message,
}

/// A message that could not be sent: the peer is gone or its connection is full, or the message is too large. If the
/// connection was full, [`Event::Writable`] follows when there is room again.
#[derive(Message, Clone, Debug)]
pub struct ToPeerFailed {
    /// The message that was not sent.
    pub message: ToPeer,
    /// The reason. It is `Closed` if there is no server.
    pub error: SendError,
}

impl NetworkResource for DrumfireServer {
    type Event = DrumfireServerEvent;
    type Outgoing = ToPeer;
    type Failed = ToPeerFailed;

    fn poll(&mut self) -> impl Iterator<Item = DrumfireServerEvent> {
        self.get().poll(Duration::ZERO);
        self.get().events().map(DrumfireServerEvent)
    }

    fn send(&mut self, message: ToPeer) -> Result<(), SendError> {
        let ToPeer { peer, message } = message;
        self.get().send(peer, message)
    }

    fn failed(message: ToPeer, error: SendError) -> ToPeerFailed {
        ToPeerFailed { message, error }
    }

    fn flush(&mut self) {
        self.get().flush();
    }
}
