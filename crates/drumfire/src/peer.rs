//! The name by which the application knows the other end of a connection.

/// Names a peer of one server for as long as its connection exists.
///
/// Copy it, store it, use it as a key. Once its connection is over it names nobody: using it answers
/// `UnknownPeer`, and it never comes to mean another peer.
///
/// ```
/// # use std::time::Duration;
/// # use drumfire::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config)?;
/// # let mut client = Client::connect_dev(server.local_addr())?;
/// let mut gone = None;
/// while gone.is_none() {
///     server.wait(Duration::from_millis(1));
///     for event in server.poll() {
///         match event {
///             Event::Connected { peer, .. } => server.close(peer, 1, "no room tonight")?,
///             Event::Disconnected { peer, .. } => gone = Some(peer),
///             _ => {}
///         }
///     }
///     client.poll();
/// }
/// let stale = gone.ok_or("nobody left")?;
/// let sent = server.send(stale, ChannelId(0), "hello?", SendOptions::unreliable());
/// assert_eq!(sent, Err(SendError::UnknownPeer));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    worker: u16,
    /// How often the worker had to begin anew.
    life: u16,
    id: drumfire_proto::PeerId,
}

impl PeerId {
    pub(crate) const fn new(worker: u16, life: u16, id: drumfire_proto::PeerId) -> Self {
        Self { worker, life, id }
    }

    /// The index of the worker that owns the connection: its place in [`crate::Stats::workers`].
    #[must_use]
    pub const fn worker(self) -> usize {
        self.worker as usize
    }

    pub(crate) const fn life(self) -> u16 {
        self.life
    }

    pub(crate) const fn id(self) -> drumfire_proto::PeerId {
        self.id
    }
}
