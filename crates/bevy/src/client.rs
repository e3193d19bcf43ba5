//! The client: its plugin, its resource, its events, and the messages to its server.

use std::time::Duration;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use drumfire::{Client, ClientConfig, ConnectOptions, Error, Event, PeerId, SendError};

use crate::resource::{Exclusive, NetworkResource, register};

/// Polls and flushes the resource [`DrumfireClient`] while it exists.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireClientPlugin;

impl Plugin for DrumfireClientPlugin {
    fn build(&self, app: &mut App) {
        register::<DrumfireClient>(app);
    }
}

/// A client and one of its connections. Removing the resource closes all connections and notifies the servers.
///
/// The resource remains after the connection ended, which [`DrumfireClientEvent`] reports. Remove it then, or insert
/// another client in its place.
#[derive(Resource, Debug)]
pub struct DrumfireClient {
    client: Exclusive<Client>,
    peer: PeerId,
}

impl DrumfireClient {
    /// Wraps a client. [`ToServer`] goes to the server of the connection `peer`.
    #[must_use]
    pub fn new(client: Client, peer: PeerId) -> Self {
        Self { client: Exclusive::new(client), peer }
    }

    /// Starts to connect to a server: `(address, key)`, a [`ConnectToken`](drumfire::ConnectToken), or [`ConnectOptions`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Client::new`] and [`Client::connect`].
    pub fn connect(to: impl Into<ConnectOptions>, config: ClientConfig) -> Result<Self, Error> {
        let mut client = Client::new(config)?;
        let peer = client.connect(to)?;
        Ok(Self::new(client, peer))
    }

    /// Returns the id of the connection.
    #[must_use]
    pub fn peer(&self) -> PeerId {
        self.peer
    }

    /// Returns the client: to check the result of a send immediately, to close the connection, or to read
    /// counters. Leave `poll` to the plugin: events that the game takes are not written as [`DrumfireClientEvent`].
    pub fn get(&mut self) -> &mut Client {
        self.client.get()
    }

    /// Returns the client.
    #[must_use]
    pub fn into_inner(self) -> Client {
        self.client.into_inner()
    }
}

/// An event of the client's connection. Events come in the order in which they happened.
#[derive(Message, Clone, Debug, PartialEq, Eq)]
pub struct DrumfireClientEvent(pub Event);

/// A message to the server, sent at the end of the frame. Clones share the memory of its payload. For a receipt, call
/// [`Client::send_with_receipt`] instead.
#[derive(Message, Clone, Debug)]
pub struct ToServer(pub drumfire::Message);

/// A message that could not be sent: the connection is closed or full, or the message is too large. If the connection
/// was full, [`Event::Writable`] follows when there is room again.
#[derive(Message, Clone, Debug)]
pub struct ToServerFailed {
    /// The message that was not sent.
    pub message: ToServer,
    /// The reason. It is `Closed` if there is no client.
    pub error: SendError,
}

impl NetworkResource for DrumfireClient {
    type Event = DrumfireClientEvent;
    type Outgoing = ToServer;
    type Failed = ToServerFailed;

    fn poll(&mut self) -> impl Iterator<Item = DrumfireClientEvent> {
        self.get().poll(Duration::ZERO);
        self.get().events().map(DrumfireClientEvent)
    }

    fn send(&mut self, message: ToServer) -> Result<(), SendError> {
        let peer = self.peer;
        self.get().send(peer, message.0)
    }

    fn failed(message: ToServer, error: SendError) -> ToServerFailed {
        ToServerFailed { message, error }
    }

    fn flush(&mut self) {
        self.get().flush();
    }
}
