//! The server: its resource, what it hears, and what is sent to its peers.

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use drumfire::{BindError, Bytes, ChannelId, Event, PeerId, SendError, SendOptions, Server, ServerConfig};

use crate::side::{Held, Side, plug};

/// Polls and flushes the resource [`DrumfireServer`], where there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireServerPlugin;

impl Plugin for DrumfireServerPlugin {
    fn build(&self, app: &mut App) {
        plug::<DrumfireServer>(app);
    }
}

/// A server. Removing the resource closes all connections and tells the peers.
#[derive(Resource, Debug)]
pub struct DrumfireServer(Held<Server>);

impl DrumfireServer {
    /// Of a server that was bound.
    #[must_use]
    pub fn new(server: Server) -> Self {
        Self(Held::new(server))
    }

    /// Binds one.
    ///
    /// # Errors
    ///
    /// [`BindError`], as [`Server::bind`] says.
    pub fn bind(config: ServerConfig) -> Result<Self, BindError> {
        Server::bind(config).map(Self::new)
    }

    /// The server itself: to send with an answer at once, close, ban, broadcast, or ask for counts. Leave `poll` to the plugin,
    /// or what it answers is not written as [`ServerHeard`].
    pub fn get(&mut self) -> &mut Server {
        self.0.get()
    }

    /// The server itself, for an orderly end with [`Server::shut_down`].
    #[must_use]
    pub fn into_inner(self) -> Server {
        self.0.into_inner()
    }
}

/// Something that happened to a peer of the server, in the order it happened.
#[derive(Message, Clone, Debug, PartialEq, Eq)]
pub struct ServerHeard(pub Event);

/// A message to a peer, sent at the end of the frame.
#[derive(Message, Clone, Debug)]
pub struct ToPeer {
    /// To whom.
    pub peer: PeerId,
    /// On which channel.
    pub channel: ChannelId,
    /// What. Copies of it share their memory.
    pub bytes: Bytes,
    /// What is promised. A receipt that is asked for comes, but its number is only told by [`Server::send`].
    pub options: SendOptions,
}

impl ToPeer {
    /// With all that a message needs.
    #[must_use]
    pub fn new(peer: PeerId, channel: ChannelId, bytes: impl Into<Bytes>, options: SendOptions) -> Self {
        Self { peer, channel, bytes: bytes.into(), options }
    }
}

/// A message that was not taken: the peer is gone or does not keep up, or the message is too large. When it did not keep up,
/// [`Event::Writable`] tells when there is room for it again.
#[derive(Message, Clone, Debug)]
pub struct ToPeerFailed {
    /// The message.
    pub message: ToPeer,
    /// Why; `Closed` too where there is no server.
    pub error: SendError,
}

impl Side for DrumfireServer {
    type Heard = ServerHeard;
    type Sent = ToPeer;
    type Failed = ToPeerFailed;

    fn poll(&mut self) -> impl Iterator<Item = ServerHeard> {
        self.get().poll().map(ServerHeard)
    }

    fn send(&mut self, message: ToPeer) -> Result<(), SendError> {
        let ToPeer { peer, channel, bytes, options } = message;
        self.get().send(peer, channel, bytes, options).map(drop)
    }

    fn failed(message: ToPeer, error: SendError) -> ToPeerFailed {
        ToPeerFailed { message, error }
    }

    fn flush(&mut self) {
        self.get().flush();
    }
}
