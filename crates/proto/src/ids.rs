//! Connection ids of this endpoint: drawn so that they steer to its shard, authenticated when no connection has them,
//! and mapped to connections.
//!
//! The ids of other endpoints are not checked here.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU16;

use drumfire_crypto::{Entropy, IdKeys};
use drumfire_wire::{ConnectionId, RoutingTag, SteeringSecret};

use crate::limits::CONNECTION_ID_DRAWS;
use crate::peer_id::PeerId;

/// The shard of a server that an endpoint serves.
#[derive(Debug, Clone, Copy)]
pub struct Shard {
    /// The socket's index, below `count`.
    pub index: u16,
    /// The number of the server's sockets.
    pub count: NonZeroU16,
    /// The secret that maps routing tags to sockets, the same as in the socket's filter.
    pub steering: SteeringSecret,
}

impl Shard {
    /// The only shard. Nothing is steered.
    pub const ONLY: Self = Self { index: 0, count: NonZeroU16::MIN, steering: SteeringSecret::NONE };
}

/// The origin of the id in a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdVerdict {
    /// This shard issued the id.
    Ours,
    /// The shard with this index of this server issued the id.
    Elsewhere(u16),
    /// This server did not issue the id.
    Forged,
}

/// No id could be drawn that maps to this shard and is not in use. The entropy source is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoConnectionId;

/// Draws and authenticates ids.
#[derive(Debug)]
pub(crate) struct ConnectionIds {
    keys: IdKeys,
    shard: Shard,
}

impl ConnectionIds {
    pub(crate) const fn new(keys: IdKeys, shard: Shard) -> Self {
        Self { keys, shard }
    }

    /// Draws a new id whose tag maps to this shard. An id has at most 40 random bits, so on a full server an id in
    /// use is drawn every few hours, and this draws again.
    pub(crate) fn draw(
        &self,
        entropy: &mut Entropy,
        is_in_use: impl Fn(ConnectionId) -> bool,
    ) -> Result<ConnectionId, NoConnectionId> {
        for _ in 0..CONNECTION_ID_DRAWS {
            let id = self.draw_any(entropy)?;
            if !is_in_use(id) {
                return Ok(id);
            }
        }
        Err(NoConnectionId)
    }

    fn draw_any(&self, entropy: &mut Entropy) -> Result<ConnectionId, NoConnectionId> {
        let Shard { index, count, steering } = self.shard;
        let tag = steering.tag_for(index, count, || u16::from_be_bytes(entropy.bytes()));
        let (tag, random) = (tag.map_err(|_| NoConnectionId)?, entropy.bytes());
        let unchecked = ConnectionId::new(tag, random, [0; 3]);
        Ok(ConnectionId::new(tag, random, self.keys.check(&unchecked.checked_part())))
    }

    pub(crate) fn check(&self, id: ConnectionId) -> IdVerdict {
        if !self.keys.is_valid(&id.checked_part(), id.check()) {
            return IdVerdict::Forged;
        }
        match self.shard_of(id.routing_tag()) {
            shard if shard == self.shard.index => IdVerdict::Ours,
            shard => IdVerdict::Elsewhere(shard),
        }
    }

    pub(crate) const fn shard_index(&self) -> u16 {
        self.shard.index
    }

    pub(crate) fn reset_token(&self, id: ConnectionId) -> [u8; 16] {
        self.keys.reset_token(&id.to_bytes())
    }

    fn shard_of(&self, tag: RoutingTag) -> u16 {
        self.shard.steering.socket_for(tag, self.shard.count)
    }
}

/// Connections by a 64-bit number. The keyed hash protects the map against numbers that an attacker chooses.
pub(crate) type PeerMap = HashMap<u64, PeerId, KeyedBuildHasher>;

/// The digits of the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A constant that no secret equals by intent, and whose complement is no multiplier.
const UNLIKELY: u64 = 0x243f_6a88_85a3_08d3;

/// Builds hashers that multiply by a secret and fold: cheap, and collisions cannot be constructed without the secret.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyedBuildHasher(u64);

impl KeyedBuildHasher {
    pub(crate) const fn new(secret: u64) -> Self {
        // With a secret of zero, or one that cancels a multiplier, the hashes would be the words themselves.
        Self((secret ^ UNLIKELY) | 1)
    }
}

impl BuildHasher for KeyedBuildHasher {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher(self.0)
    }
}

#[derive(Debug)]
pub(crate) struct KeyedHasher(u64);

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let word = chunk.iter().fold(0, |word: u64, byte| (word << 8) | u64::from(*byte));
            self.write_u64(word);
        }
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = fold(word ^ self.0, self.0 ^ SPREAD);
    }

    fn finish(&self) -> u64 {
        // Another round separates numbers that differ by powers of two.
        fold(self.0, SPREAD)
    }
}

/// Folds the two halves of the product.
#[inline]
const fn fold(word: u64, by: u64) -> u64 {
    let product = (word as u128).wrapping_mul(by as u128);
    let [.., a, b, c, d, e, f, g, h] = product.to_be_bytes();
    let [i, j, k, l, m, n, o, p, ..] = product.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) ^ u64::from_be_bytes([i, j, k, l, m, n, o, p])
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_crypto::Secret;

    fn ids(shard: u16, count: u16) -> ConnectionIds {
        let keys = IdKeys::derive(&Secret::new([3; 32]), b"server");
        let count = NonZeroU16::new(count).unwrap();
        ConnectionIds::new(
            keys,
            Shard { index: shard, count, steering: SteeringSecret::from_bits(0x9e37_79b9) },
        )
    }

    #[test]
    fn every_shard_knows_the_owner_of_an_issued_id() {
        let mut entropy = Entropy::from_seed(Secret::new([1; 32]));
        for shard in 0..6 {
            let id = ids(shard, 6).draw(&mut entropy, |_| false).unwrap();
            assert_eq!(ids(shard, 6).check(id), IdVerdict::Ours);
            assert_eq!(ids((shard + 1) % 6, 6).check(id), IdVerdict::Elsewhere(shard));
        }
    }

    #[test]
    fn an_id_in_use_is_drawn_again_and_not_forever() {
        let seeded = || Entropy::from_seed(Secret::new([1; 32]));
        let first = ids(2, 6).draw(&mut seeded(), |_| false).unwrap();
        let second = ids(2, 6).draw(&mut seeded(), |id| id == first).unwrap();
        assert!(second != first && ids(2, 6).check(second) == IdVerdict::Ours);
        let draws = std::cell::Cell::new(0);
        let count = |_| {
            draws.set(draws.get() + 1);
            true
        };
        assert_eq!(ids(2, 6).draw(&mut seeded(), count), Err(NoConnectionId));
        assert_eq!(draws.get(), CONNECTION_ID_DRAWS);
    }

    #[test]
    fn every_changed_bit_of_an_id_is_a_forgery() {
        let mut entropy = Entropy::from_seed(Secret::new([1; 32]));
        let id = ids(0, 1).draw(&mut entropy, |_| false).unwrap().to_bytes();
        for bit in 0..64 {
            let mut changed = id;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ids(0, 1).check(ConnectionId::from_bytes(changed)), IdVerdict::Forged, "bit {bit}");
        }
    }

    #[test]
    fn hashes_of_near_numbers_are_far_apart() {
        let build = KeyedBuildHasher::new(0x1234_5678_9abc_def0);
        let low: std::collections::HashSet<u64> = (0..1_000_u64).map(|n| build.hash_one(n) & 0xfff).collect();
        assert!(low.len() > 800, "{}", low.len());
    }

    #[test]
    fn sequential_keys_do_not_cluster_under_any_secret() {
        const KEYS: u64 = 4_096;
        for secret in [0, 1, UNLIKELY, 0x9e37_79b9_7f4a_7c15, u64::MAX, 0x1234_5678_9abc_def1] {
            for stride in [1, 2, 16, 1 << 12, 1 << 32] {
                let hash = |key: u64| {
                    KeyedBuildHasher::new(secret).hash_one((drumfire_wire::ChannelId(0), stride * key))
                };
                // As the table does: a bucket by the low bits, and a mark in it by the high ones.
                let (mut buckets, mut marks) = (vec![0_u32; 4_096], [0_u32; 128]);
                for key in 0..KEYS {
                    let hash = hash(key);
                    buckets[usize::try_from(hash % KEYS).unwrap()] += 1;
                    marks[usize::try_from(hash >> 57).unwrap()] += 1;
                }
                let (bucket, mark) = (buckets.iter().max(), marks.iter().max());
                assert!(bucket < Some(&12) && mark < Some(&80), "{secret:x}, {stride}: {bucket:?}, {mark:?}");
            }
        }
    }
}
