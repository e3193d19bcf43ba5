//! The server: its resource, what it hears, and what is sent to its peers.

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use drumfire::{BindError, Bytes, ChannelId, Event, PeerId, SendError, SendOptions, Server, ServerConfig};

use crate::DrumfireSystems;
use crate::held::Held;

/// Polls and flushes the resource [`DrumfireServer`], where there is one.
#[derive(Clone, Copy, Debug, Default)]
pub struct DrumfireServerPlugin;

impl Plugin for DrumfireServerPlugin {
    fn build(&self, app: &mut App) {
        app.add_message::<ServerHeard>().add_message::<ToPeer>().add_message::<ToPeerFailed>();
        app.add_systems(PreUpdate, receive.in_set(DrumfireSystems::Receive));
        app.add_systems(PostUpdate, send.in_set(DrumfireSystems::Send));
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

/// A message that was not taken: the peer is gone or does not keep up, or the message is too large.
#[derive(Message, Clone, Debug)]
pub struct ToPeerFailed {
    /// The message.
    pub message: ToPeer,
    /// Why; `Closed` too where there is no server.
    pub error: SendError,
}

fn receive(server: Option<ResMut<DrumfireServer>>, mut heard: MessageWriter<ServerHeard>) {
    if let Some(mut server) = server {
        heard.write_batch(server.bypass_change_detection().get().poll().map(ServerHeard));
    }
}

fn send(
    mut server: Option<ResMut<DrumfireServer>>,
    mut messages: MessageReader<ToPeer>,
    mut failed: MessageWriter<ToPeerFailed>,
) {
    let mut server = server.as_mut().map(|server| server.bypass_change_detection().get());
    for message in messages.read() {
        let ToPeer { peer, channel, bytes, options } = message.clone();
        let sent = server.as_mut().ok_or(SendError::Closed);
        if let Err(error) = sent.and_then(|server| server.send(peer, channel, bytes, options)) {
            failed.write(ToPeerFailed { message: message.clone(), error });
        }
    }
    if let Some(server) = server {
        server.flush();
    }
}
