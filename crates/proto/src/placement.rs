//! Which shard owns a new connection: the one question the core asks its shell.
//!
//! The shell answers from what all shards share; a server with one shard uses [`Alone`].

/// Names a Hello: its first MAC, a keyed hash over all of it but the cookie. A Hello that is repeated has the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HelloHash(pub [u8; 16]);

impl HelloHash {
    pub(crate) const fn to_key(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Where the application wants a player; open access has no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlacementKey(pub u64);

/// Where a new connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// To this shard.
    Here,
    /// To the shard with this index; the Hello is to be taken there.
    Elsewhere(u16),
    /// Nowhere: there is no room.
    Full,
}

/// Decides who owns a new connection, in one step for all shards of a server.
pub trait Placement {
    /// The owner of the Hello with this hash. The same hash gets the same answer until it is released: a Hello
    /// may be repeated, and arrive at any shard. The place is reserved with the answer, and the owner releases
    /// it; a Hello that the shell loses on its way to the owner is the shell's to release.
    fn place(&mut self, key: Option<PlacementKey>, hash: HelloHash) -> Placed;

    /// The connection of this Hello, which this shard owned, is over or never came to be.
    fn release(&mut self, hash: HelloHash);
}

/// The placement of a server with one shard, and of clients: everything is here.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Placement for Alone {
    fn place(&mut self, _: Option<PlacementKey>, _: HelloHash) -> Placed {
        Placed::Here
    }

    fn release(&mut self, _: HelloHash) {}
}
