//! Who is let in, and which shard owns the connection: the one question the core asks its shell.
//!
//! The shell answers from what all shards share; a server with one shard uses [`Alone`]. Whatever the answer, it costs
//! no Diffie-Hellman, and who has not proved its address is told nothing but to prove it.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_wire::RefuseReason;

use crate::ledger::{ClaimError, TokenClaim, TokenLedger};
use crate::limits::{CONNECTIONS, FULL_RETRY_AFTER};
use crate::stats::DropReason;
use crate::time::Now;

/// Names a Hello: its first MAC, a keyed hash over all of it but the cookie. A Hello that is repeated has the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HelloHash(pub [u8; 16]);

impl HelloHash {
    pub(crate) const fn to_key(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Where the game wants a player, as the token says; open access has no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlacementKey(pub u64);

/// A Hello that passed every check and wants a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Its name.
    pub hello: HelloHash,
    /// Where it comes from, an IPv4 address always as such.
    pub address: SocketAddr,
    /// Whether a cookie proved that somebody is there. Where it did not, anybody may have written the address: nothing
    /// is to be counted against it before the connection is confirmed.
    pub is_address_proved: bool,
    /// Where the game wants it.
    pub key: Option<PlacementKey>,
    /// What its token says; `None` in open access.
    pub token: Option<TokenClaim>,
    /// What the game's backend put into the token; empty in open access.
    pub user_data: &'a [u8],
}

/// Where a new connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// To this shard.
    Here,
    /// To the shard with this index; the Hello is to be taken there.
    Elsewhere(u16),
    /// Nowhere: there is no room.
    Full {
        /// When to try again; `None` for not at all.
        retry_after: Option<Duration>,
    },
    /// Nowhere: its token is used.
    Used,
    /// Nowhere, for a reason of the shell's.
    Rejected(Rejection),
    /// Nowhere yet: another shard is deciding about the same Hello, which is dropped here and comes again.
    Undecided,
}

/// Why a Hello is not taken, and what its client is told. Durations leave in whole seconds, rounded up, of at most
/// 65,535.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// Under which name it is counted.
    pub counted_as: DropReason,
    /// What the client is told.
    pub reason: RefuseReason,
    /// When it may try again; `None` for not at all.
    pub retry_after: Option<Duration>,
    /// Where it may try instead.
    pub address: Option<SocketAddr>,
}

/// A session that gives way to a newer one of the same player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// The shard that owns it.
    pub shard: u16,
    /// The Hello that made it.
    pub hello: HelloHash,
}

/// What becomes of a connection that is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// It is there.
    Alone,
    /// It is there, and an older session of the same player is to be closed.
    Replaces(Replaced),
    /// It is closed: nobody wants it any more since it was let in.
    Unwelcome,
}

/// Decides who owns a new connection, in one step for all shards of a server.
pub trait Placement {
    /// The owner of this Hello. One that has an owner keeps it until it is released: it may be repeated, and arrive at
    /// any shard. The place is reserved with the answer, and the owner releases it. One that is elsewhere its owner takes
    /// first; a Hello that the shell loses on its way there is the shell's to release. One that is rejected may come
    /// again, and is asked about again.
    fn place(&mut self, now: Now, claim: &Claim<'_>) -> Placed;

    /// This shard takes the place that was reserved here for a Hello which another shard forwards. `false` where none is, since
    /// one of the two began anew meanwhile: then the Hello is dropped, and one that is repeated is placed again.
    fn take(&mut self, hello: HelloHash) -> bool;

    /// From now on a shard takes so many connections at most, and all together so many. A shell that keeps no such limits
    /// needs none: every shard keeps its own.
    fn set_limits(&mut self, connections: u32, in_all: u32) {
        let _ = (connections, in_all);
    }

    /// The connection of this Hello, which this shard owns, is confirmed: its token is used, and its address is proved.
    fn confirm(&mut self, now: Now, hello: HelloHash) -> Confirmed;

    /// Gives up the place of this Hello: its connection, which this shard owned, is over or never came to be, or the Hello was
    /// lost on its way to the shard that this one promised the place. A place that another shard owns stays as it is.
    fn release(&mut self, hello: HelloHash);
}

/// The placement of a server with one shard, and of clients: everything is here.
#[derive(Debug)]
pub struct Alone(TokenLedger);

impl Default for Alone {
    fn default() -> Self {
        Self(TokenLedger::new(CONNECTIONS))
    }
}

impl Placement for Alone {
    fn place(&mut self, now: Now, claim: &Claim<'_>) -> Placed {
        let claimed = claim.token.as_ref().map_or(Ok(()), |token| self.0.claim(now.wall, token, claim.hello));
        match claimed {
            Ok(()) => Placed::Here,
            Err(ClaimError::Used) => Placed::Used,
            Err(ClaimError::Full) => Placed::Full { retry_after: Some(FULL_RETRY_AFTER) },
        }
    }

    fn take(&mut self, _: HelloHash) -> bool {
        // Nobody is there who forwards.
        false
    }

    fn set_limits(&mut self, _: u32, in_all: u32) {
        self.0.set_connections(in_all);
    }

    fn confirm(&mut self, now: Now, hello: HelloHash) -> Confirmed {
        let older = self.0.confirm(now.wall, hello).map(|hello| Replaced { shard: 0, hello });
        older.map_or(Confirmed::Alone, Confirmed::Replaces)
    }

    fn release(&mut self, hello: HelloHash) {
        self.0.release(hello);
    }
}
