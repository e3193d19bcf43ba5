//! The packet with the newest message of each sequenced channel, so that no older message is delivered after it.
//!
//! A forgotten channel loses messages that are late, but never delivers an older message after a newer one (PROTOCOL 8.3,
//! "Unreliable messages").

use std::collections::HashMap;

use drumfire_wire::ChannelId;

use super::latest::LatestKeys;
use crate::ids::KeyedBuildHasher;
use crate::limits::SEQUENCED_CHANNELS;

/// The received sequenced channels of one connection, and the keys that share their memory.
#[derive(Debug)]
pub(super) struct SequencedChannels {
    /// The keyed hash for tables whose keys the peer controls.
    hash: KeyedBuildHasher,
    /// Boxed, because many connections have neither.
    tables: Option<Box<Tables>>,
    /// Packets with a smaller number are ignored for unknown channels and keys. 0 until something was forgotten.
    floor: u64,
}

#[derive(Debug)]
struct Tables {
    /// The number of the newest packet with a message, by channel.
    channels: HashMap<ChannelId, u64, KeyedBuildHasher>,
    /// The newest version of each key.
    keys: LatestKeys,
}

impl SequencedChannels {
    pub(super) const fn new(hash: KeyedBuildHasher) -> Self {
        Self { hash, tables: None, floor: 0 }
    }

    fn tables(&mut self) -> &mut Tables {
        let hash = self.hash;
        let empty = || Tables { channels: HashMap::with_hasher(hash), keys: LatestKeys::new(hash) };
        self.tables.get_or_insert_with(|| Box::new(empty()))
    }

    /// The known keys, if there were any since the connection was last idle.
    pub(super) fn keys(&self) -> Option<&LatestKeys> {
        self.tables.as_ref().map(|tables| &tables.keys)
    }

    pub(super) fn keys_mut(&mut self) -> &mut LatestKeys {
        &mut self.tables().keys
    }

    /// Forgets one key. `largest` is the largest packet number received.
    pub(super) fn forget_key(&mut self, channel: ChannelId, key: u64, largest: u64) {
        if self.tables.as_mut().is_some_and(|tables| tables.keys.forget_one(channel, key)) {
            self.floor = self.floor.max(largest);
        }
    }

    /// Forgets all keys. `largest` is the largest packet number received. Returns whether there were any keys.
    pub(super) fn forget_keys(&mut self, largest: u64) -> bool {
        let had_any = self.tables.as_mut().is_some_and(|tables| tables.keys.forget());
        if had_any {
            self.floor = self.floor.max(largest);
        }
        had_any
    }

    /// Whether a message of this channel from packet `number` may be delivered, in which case the caller must deliver
    /// it. `largest` is the largest packet number received.
    pub(super) fn take(&mut self, channel: ChannelId, number: u64, largest: u64) -> bool {
        // The packet number is the order. Messages of one packet are in the order of the packet, so an equal number is
        // fresh.
        let floor = self.floor;
        let by_channel = &mut self.tables().channels;
        if let Some(newest) = by_channel.get_mut(&channel) {
            let is_fresh = number >= *newest;
            *newest = number.max(*newest);
            return is_fresh;
        }
        // The channel may have been forgotten. Below the floor the message may be older than one that was delivered.
        if number < floor {
            return false;
        }
        // The peer controls how many channels there are. Forgetting all of them bounds the memory, and the floor
        // keeps the order.
        if by_channel.len() >= SEQUENCED_CHANNELS {
            by_channel.clear();
            self.floor = floor.max(largest);
            if number < largest {
                return false;
            }
        }
        self.tables().channels.insert(channel, number);
        true
    }

    /// Asserts what must hold between two calls.
    pub(super) fn assert_invariants(&self) {
        let Some(tables) = &self.tables else { return };
        let channel_count = tables.channels.len();
        debug_assert!(channel_count <= SEQUENCED_CHANNELS, "{channel_count} channels are remembered");
        tables.keys.assert_invariants();
    }

    /// Whether a packet may bring messages for an unknown channel or key.
    pub(super) const fn is_after_floor(&self, number: u64) -> bool {
        number >= self.floor
    }

    /// Forgets all channels, and the keys unless `keeps_keys`.
    pub(super) fn shrink(&mut self, largest: u64, keeps_keys: bool) {
        // Packets below `largest` are late by seconds, so the higher floor loses little.
        match &mut self.tables {
            None => return,
            Some(tables) if keeps_keys => {
                tables.channels = HashMap::with_hasher(self.hash);
                tables.keys.shrink();
            }
            Some(_) => self.tables = None,
        }
        self.floor = self.floor.max(largest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Moment;

    fn take(newest: &mut SequencedChannels, channel: u16, number: u64) -> bool {
        newest.take(ChannelId(channel), number, 1_000_000)
    }

    #[test]
    fn older_messages_are_dropped_per_channel() {
        let mut newest = SequencedChannels::new(KeyedBuildHasher::new(7));
        for (channel, number, is_fresh) in [
            (1, 5, true),
            (1, 5, true),
            (1, 4, false),
            (2, 4, true),
            (1, 6, true),
            (1, 5, false),
            (2, 3, false),
        ] {
            assert_eq!(take(&mut newest, channel, number), is_fresh, "{channel} {number}");
        }
    }

    #[test]
    fn a_forgotten_channel_accepts_nothing_older_than_the_floor() {
        let mut newest = SequencedChannels::new(KeyedBuildHasher::new(7));
        assert!(take(&mut newest, 1, 5));
        newest.shrink(9, false);
        for channel in [1, 2] {
            assert!(!take(&mut newest, channel, 8));
            assert!(take(&mut newest, channel, 9));
        }
    }

    #[test]
    fn retained_keys_outlast_their_channels() {
        let (channel, now) = (ChannelId(1), Moment::from_nanos(7));
        let mut newest = SequencedChannels::new(KeyedBuildHasher::new(7));
        assert!(take(&mut newest, 1, 5) && newest.keys_mut().accept(now, channel, 3, 5));
        newest.shrink(9, true);
        assert!(!take(&mut newest, 1, 8), "the channel is forgotten");
        assert!(!newest.keys_mut().accept(now, channel, 3, 5), "the key is not");
        newest.shrink(9, false);
        assert!(newest.keys().is_none() && !newest.is_after_floor(8));
    }

    #[test]
    fn the_1025th_channel_evicts_another() {
        let mut newest = SequencedChannels::new(KeyedBuildHasher::new(7));
        for channel in 0..1_024 {
            assert!(newest.take(ChannelId(channel), 7, 7));
        }
        assert!(!newest.take(ChannelId(0), 6, 7), "all are remembered");
        assert!(newest.take(ChannelId(2_000), 8, 8));
        assert!(!newest.take(ChannelId(0), 7, 8), "forgotten, and older than the newest");
        assert!(newest.take(ChannelId(0), 8, 8));
    }
}
