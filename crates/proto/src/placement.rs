//! Which shard owns a new connection: the one question the core asks its shell.
//!
//! The shell answers from what all shards share; a server with one shard uses [`Alone`].

use std::time::Duration;

use crate::ledger::{ClaimError, TokenClaim, TokenLedger};
use crate::limits::USED_TOKENS;

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
pub struct Claim {
    /// Its name.
    pub hello: HelloHash,
    /// Where the game wants it.
    pub key: Option<PlacementKey>,
    /// What its token says; `None` in open access.
    pub token: Option<TokenClaim>,
}

/// Where a new connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// To this shard.
    Here,
    /// To the shard with this index; the Hello is to be taken there.
    Elsewhere(u16),
    /// Nowhere: there is no room.
    Full,
    /// Nowhere: its token is used.
    Used,
}

/// A session that gives way to a newer one of the same player.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// The shard that owns it.
    pub shard: u16,
    /// The Hello that made it.
    pub hello: HelloHash,
}

/// Decides who owns a new connection, in one step for all shards of a server.
pub trait Placement {
    /// The owner of this Hello; `wall` is the time since 1970. The same Hello gets the same answer until it is
    /// released: it may be repeated, and arrive at any shard. The place is reserved with the answer, and the owner
    /// releases it; a Hello that the shell loses on its way to the owner is the shell's to release.
    fn place(&mut self, wall: Duration, claim: &Claim) -> Placed;

    /// The connection of this Hello, which this shard owns, is confirmed: its token is used. Answers an older session
    /// of the same player.
    fn confirm(&mut self, hello: HelloHash) -> Option<Replaced>;

    /// The connection of this Hello, which this shard owned, is over or never came to be.
    fn release(&mut self, hello: HelloHash);
}

/// The placement of a server with one shard, and of clients: everything is here.
#[derive(Debug)]
pub struct Alone(TokenLedger);

impl Default for Alone {
    fn default() -> Self {
        Self(TokenLedger::new(USED_TOKENS))
    }
}

impl Placement for Alone {
    fn place(&mut self, wall: Duration, claim: &Claim) -> Placed {
        let claimed = claim.token.as_ref().map_or(Ok(()), |token| self.0.claim(wall, token, claim.hello));
        match claimed {
            Ok(()) => Placed::Here,
            Err(ClaimError::Used) => Placed::Used,
            Err(ClaimError::Full) => Placed::Full,
        }
    }

    fn confirm(&mut self, hello: HelloHash) -> Option<Replaced> {
        self.0.confirm(hello).map(|hello| Replaced { shard: 0, hello })
    }

    fn release(&mut self, hello: HelloHash) {
        self.0.release(hello);
    }
}
