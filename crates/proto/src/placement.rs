//! Placement: whether a new connection is accepted, and which shard owns it. It is the only question that the core
//! asks its shell.
//!
//! The shell answers from the state that all shards share. A server with one shard uses [`SingleWorker`]. The answer costs
//! no key agreement, and a client with an unproved address only learns that it must prove the address.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_wire::RefuseReason;

use crate::limits::{CONNECTIONS, FULL_RETRY_AFTER};
use crate::stats::DropReason;
use crate::time::Now;
use crate::used_tokens::{ClaimError, TokenClaim, UsedTokens};

/// Identifies a Hello: its first MAC, a keyed hash over everything except the cookie. A repeated Hello has the same
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HelloHash(pub [u8; 16]);

impl HelloHash {
    pub(crate) const fn to_key(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// A hint from the token about where the game wants a player. Open access has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlacementKey(pub u64);

/// A Hello that passed every check and asks for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// The hash that identifies the Hello, however often it arrives.
    pub hello: HelloHash,
    /// The source of the Hello. An IPv4 address is never mapped to IPv6.
    pub address: SocketAddr,
    /// Whether a cookie proved that the source receives datagrams. If not, the address may be forged, and nothing may
    /// be counted against it before the connection is confirmed.
    pub is_address_proved: bool,
    /// The hint from the token about where the game wants the player; `None` without one.
    pub key: Option<PlacementKey>,
    /// The claim of the token; `None` in open access.
    pub token: Option<TokenClaim>,
    /// The data that the game's backend put into the token; empty in open access.
    pub user_data: &'a [u8],
}

/// The decision about a Hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementDecision {
    /// This shard owns the connection.
    Local,
    /// The shard with this index owns the connection, and the Hello must be forwarded there.
    Forward(u16),
    /// No shard has room for the connection, and the client is refused.
    Full {
        /// The time after which the client may try again. `None` for never.
        retry_after: Option<Duration>,
    },
    /// The token was used before.
    Used,
    /// The shell rejects the Hello.
    Rejected(Rejection),
    /// Another shard is deciding about the same Hello. This shard drops it, and the client repeats it.
    Undecided,
}

/// The reason why a Hello is rejected, and the notice to its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// The counter for the rejection.
    pub counted_as: DropReason,
    /// The reason that is sent to the client.
    pub reason: RefuseReason,
    /// The time after which the client may try again; `None` for never. Sent in whole seconds, rounded up, at most
    /// 65,535.
    pub retry_after: Option<Duration>,
    /// The address of another server that the client may try; `None` without one.
    pub address: Option<SocketAddr>,
}

/// A session that is replaced by a newer one of the same player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplacedConnection {
    /// The index of the shard that owns the session.
    pub shard: u16,
    /// The Hello that made the session.
    pub hello: HelloHash,
}

/// The decision about a connection that is confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfirmDecision {
    /// The connection is open.
    Confirmed,
    /// The connection is open, and an older session of the same player must be closed.
    Replaces(ReplacedConnection),
    /// The connection must be closed: it was accepted, and a later ban or another decision of the shell rejects it.
    Rejected,
}

/// Decides which shard owns a new connection, in one step for all shards of a server.
pub trait Placement {
    /// Returns the owner of this Hello, and reserves a place there. The owner stays the same until it releases the
    /// Hello, which may be repeated and arrive at any shard. The owner of a Hello that was placed elsewhere must
    /// first [`take`](Self::take) it. If the shell loses a Hello on the way there, the shell must release it. A
    /// rejected Hello may come again, and is decided again.
    fn place(&mut self, now: Now, claim: &Claim<'_>) -> PlacementDecision;

    /// Takes the place that was reserved on this shard for a Hello from another shard. Returns `false` if there is
    /// none, because one of the two shards restarted. The Hello is then dropped, and placed again when the client
    /// repeats it.
    fn take(&mut self, hello: HelloHash) -> bool;

    /// Sets the maximum number of connections of one shard, and of all shards together. A shell without such limits need not
    /// implement it, because every shard keeps its own limit.
    fn set_limits(&mut self, connections: u32, total: u32) {
        let _ = (connections, total);
    }

    /// Confirms the connection of this Hello, which this shard owns: its token is used, and its address is proved.
    fn confirm(&mut self, now: Now, hello: HelloHash) -> ConfirmDecision;

    /// Releases the place of this Hello. Its connection, which this shard owned, ended or was never made, or the
    /// Hello was lost on its way to the shard that this one placed it on. A place that another shard owns is
    /// unaffected.
    fn release(&mut self, hello: HelloHash);
}

/// The placement of a server with one shard, and of clients: every connection is placed here.
#[derive(Debug)]
pub struct SingleWorker(UsedTokens);

impl Default for SingleWorker {
    fn default() -> Self {
        Self(UsedTokens::new(CONNECTIONS))
    }
}

impl Placement for SingleWorker {
    fn place(&mut self, now: Now, claim: &Claim<'_>) -> PlacementDecision {
        let claimed = claim.token.as_ref().map_or(Ok(()), |token| self.0.claim(now.wall, token, claim.hello));
        match claimed {
            Ok(()) => PlacementDecision::Local,
            Err(ClaimError::Used) => PlacementDecision::Used,
            Err(ClaimError::Full) => PlacementDecision::Full { retry_after: Some(FULL_RETRY_AFTER) },
        }
    }

    fn take(&mut self, _: HelloHash) -> bool {
        // No other shard forwards Hellos.
        false
    }

    fn set_limits(&mut self, _: u32, total: u32) {
        self.0.set_connections(total);
    }

    fn confirm(&mut self, now: Now, hello: HelloHash) -> ConfirmDecision {
        let older = self.0.confirm(now.wall, hello).map(|hello| ReplacedConnection { shard: 0, hello });
        older.map_or(ConfirmDecision::Confirmed, ConfirmDecision::Replaces)
    }

    fn release(&mut self, hello: HelloHash) {
        self.0.release(hello);
    }
}
