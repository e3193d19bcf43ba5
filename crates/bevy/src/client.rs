//! The client: its plugin, its resource, its events, and the messages to its server.

use std::time::Duration;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use drumfire::{Client, ClientConfig, ConnectOptions, Error, Event, SendError};

use crate::resource::{Exclusive, NetworkResource, register};

/// Polls and flushes the resource [`DrumfireClient`] while it exists.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireClientPlugin;

impl Plugin for DrumfireClientPlugin {
    fn build(&self, app: &mut App) {
        register::<DrumfireClient>(app);
    }
}

/// A client. Removing the resource closes its connection and notifies the server.
///
/// The resource remains after the connection ended, which [`DrumfireClientEvent`] reports. Remove it then, or insert
/// another client in its place.
#[derive(Resource, Debug)]
pub struct DrumfireClient(Exclusive<Client>);

impl DrumfireClient {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Exclusive::new(client))
    }

    /// Starts to connect to a server: `(address, key)`, a [`ConnectToken`](drumfire::ConnectToken), or [`ConnectOptions`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Client::connect`].
    pub fn connect(to: impl Into<ConnectOptions>, config: &ClientConfig) -> Result<Self, Error> {
        Client::connect(to, config).map(Self::new)
    }

    /// Returns the client: to check the result of a send immediately, to close the connection, or to read counters and
    /// the state. Leave `poll` to the plugin: events that the game takes are not written as [`DrumfireClientEvent`].
    pub fn get(&mut self) -> &mut Client {
        self.0.get()
    }

    /// Returns the client.
    #[must_use]
    pub fn into_inner(self) -> Client {
        self.0.into_inner()
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
        self.get().send(message.0)
    }

    fn failed(message: ToServer, error: SendError) -> ToServerFailed {
        ToServerFailed { message, error }
    }

    fn flush(&mut self) {
        self.get().flush();
    }
}
