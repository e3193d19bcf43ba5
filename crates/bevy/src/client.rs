//! The client: its resource, what it hears, and what is sent to its server.

use std::net::SocketAddr;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use drumfire::{
    BindError, Bytes, ChannelId, Client, ClientConfig, ClientEvent, ConnectToken, SendError, SendOptions,
    ServerPublicKey,
};

use crate::side::{Held, Side, plug};

/// Polls and flushes the resource [`DrumfireClient`], where there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireClientPlugin;

impl Plugin for DrumfireClientPlugin {
    fn build(&self, app: &mut App) {
        plug::<DrumfireClient>(app);
    }
}

/// A client. Removing the resource closes its connection and tells the server.
///
/// It stays when the connection is over, which [`ClientHeard`] tells: remove it then, or insert another in its place.
#[derive(Resource, Debug)]
pub struct DrumfireClient(Held<Client>);

impl DrumfireClient {
    /// Of a client that was made.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(Held::new(client))
    }

    /// Begins to connect to the server at this address with this key.
    ///
    /// # Errors
    ///
    /// [`BindError`], as [`Client::connect`] says.
    pub fn connect(
        server: SocketAddr,
        key: ServerPublicKey,
        config: &ClientConfig,
    ) -> Result<Self, BindError> {
        Client::connect(server, key, config).map(Self::new)
    }

    /// Begins to connect to the server that the token names.
    ///
    /// # Errors
    ///
    /// [`BindError`], as [`Client::connect_with_token`] says.
    pub fn connect_with_token(token: &ConnectToken, config: &ClientConfig) -> Result<Self, BindError> {
        Client::connect_with_token(token, config).map(Self::new)
    }

    /// The client itself: to send with an answer at once, close, or ask for counts and its state. Leave `poll` to the plugin, or
    /// what it answers is not written as [`ClientHeard`].
    pub fn get(&mut self) -> &mut Client {
        self.0.get()
    }

    /// The client itself.
    #[must_use]
    pub fn into_inner(self) -> Client {
        self.0.into_inner()
    }
}

/// Something that happened to the client's connection, in the order it happened.
#[derive(Message, Clone, Debug, PartialEq, Eq)]
pub struct ClientHeard(pub ClientEvent);

/// A message to the server, sent at the end of the frame.
#[derive(Message, Clone, Debug)]
pub struct ToServer {
    /// On which channel.
    pub channel: ChannelId,
    /// What. Copies of it share their memory.
    pub bytes: Bytes,
    /// What is promised. A receipt that is asked for comes, but its number is only told by [`Client::send`].
    pub options: SendOptions,
}

impl ToServer {
    /// With all that a message needs.
    #[must_use]
    pub fn new(channel: ChannelId, bytes: impl Into<Bytes>, options: SendOptions) -> Self {
        Self { channel, bytes: bytes.into(), options }
    }
}

/// A message that was not taken: the connection is over or does not keep up, or the message is too large. When it did not keep
/// up, [`ClientEvent::Writable`] tells when there is room for it again.
#[derive(Message, Clone, Debug)]
pub struct ToServerFailed {
    /// The message.
    pub message: ToServer,
    /// Why; `Closed` too where there is no client.
    pub error: SendError,
}

impl Side for DrumfireClient {
    type Heard = ClientHeard;
    type Sent = ToServer;
    type Failed = ToServerFailed;

    fn poll(&mut self) -> impl Iterator<Item = ClientHeard> {
        self.get().poll().map(ClientHeard)
    }

    fn send(&mut self, message: ToServer) -> Result<(), SendError> {
        let ToServer { channel, bytes, options } = message;
        self.get().send(channel, bytes, options).map(drop)
    }

    fn failed(message: ToServer, error: SendError) -> ToServerFailed {
        ToServerFailed { message, error }
    }

    fn flush(&mut self) {
        self.get().flush();
    }
}
