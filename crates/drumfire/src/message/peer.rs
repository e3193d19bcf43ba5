//! The name by which the application knows the other end of a connection.

use std::fmt;
use std::str::FromStr;

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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// As `2.0.10000002a`: worker, its life, and the connection's number among those of the worker.
impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:x}", self.worker, self.life, self.id.to_bits())
    }
}

/// As `PeerId(2.0.10000002a)`.
impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerId({self})")
    }
}

/// The error of parsing a text that does not name a peer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PeerIdTextError;

impl fmt::Display for PeerIdTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the name of a peer, such as 2.0.10000002a")
    }
}

impl std::error::Error for PeerIdTextError {}

drumfire_proto::debug_with_display!(PeerIdTextError);

/// Reads what `Display` wrote. It may name a peer that is gone, or nobody.
impl FromStr for PeerId {
    type Err = PeerIdTextError;

    fn from_str(text: &str) -> Result<Self, PeerIdTextError> {
        let mut parts = text.split('.');
        let (Some(worker), Some(life), Some(id), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(PeerIdTextError);
        };
        let peer = Self {
            worker: worker.parse().map_err(|_| PeerIdTextError)?,
            life: life.parse().map_err(|_| PeerIdTextError)?,
            id: drumfire_proto::PeerId::from_bits(u64::from_str_radix(id, 16).map_err(|_| PeerIdTextError)?),
        };
        // One name has one text.
        if peer.to_string() == text { Ok(peer) } else { Err(PeerIdTextError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_read_back_from_its_text_and_nothing_else_is() {
        for (worker, life, bits) in [(0, 0, 0), (2, 1, 0x1_0000_002a), (u16::MAX, u16::MAX, u64::MAX)] {
            let peer = PeerId::new(worker, life, drumfire_proto::PeerId::from_bits(bits));
            assert_eq!(peer.to_string().parse(), Ok(peer));
            assert_eq!(peer.id().to_bits(), bits);
            assert_eq!(format!("{:?}", Some(peer)), format!("Some(PeerId({peer}))"));
        }
        for bad in
            ["", "1", "1.0", "1.0.", "1.0.2.3", "65536.0.1", "1.0.x", "+1.0.1", "01.0.1", "1.0.0A", "1.-0.1"]
        {
            assert_eq!(bad.parse::<PeerId>(), Err(PeerIdTextError), "{bad}");
        }
    }
}
