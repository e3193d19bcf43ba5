//! Datagrams on their way in and out, as the shell hands them over.
//!
//! Memory is always the caller's: packets are opened and sealed where they lie.

use crate::handshake::half_open::Asker;
use crate::placement::HelloHash;
use crate::route::Route;
use crate::slab::PeerId;

/// A datagram that arrived. Its bytes are opened in place, so their content afterwards is unspecified.
#[derive(Debug)]
pub struct Inbound<'a> {
    /// Where it came from.
    pub from: Route,
    /// All of it, and nothing else.
    pub bytes: &'a mut [u8],
}

/// A datagram that was written to the front of the memory given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Where it goes.
    pub to: Route,
    /// How many bytes it has.
    pub bytes: usize,
    /// Whose connection it is of; `None` for an answer to somebody who has none. With it the endpoint is told when the system does
    /// not send it: [`Endpoint::handle_too_large`](crate::Endpoint::handle_too_large),
    /// [`Endpoint::handle_unreachable`](crate::Endpoint::handle_unreachable).
    pub peer: Option<PeerId>,
}

/// Something that belongs to another shard of the same server. Only an endpoint makes one: its checks were
/// passed, so the other endpoint does not repeat them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forwarded {
    pub(crate) shard: u16,
    pub(crate) errand: Errand,
}

/// What another shard is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Take in this Hello.
    Hello {
        /// Who sent it.
        asker: Asker,
        /// All of it.
        bytes: Box<[u8]>,
    },
    /// Take in this packet.
    Packet {
        /// Where it came from.
        from: Route,
        /// All of it.
        bytes: Box<[u8]>,
    },
    /// Close the connection that this Hello made: its player has a newer one.
    Replace(HelloHash),
}

impl Forwarded {
    /// The index of the shard it must be taken to.
    #[must_use]
    pub const fn shard(&self) -> u16 {
        self.shard
    }
}
