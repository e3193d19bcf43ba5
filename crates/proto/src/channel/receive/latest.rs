//! The version of the newest value of each key, so that none is delivered twice and no older one after a newer.
//!
//! A key is remembered for as long as packets are taken that are older than the one that brought its value.

use std::collections::HashMap;

use drumfire_crypto::replay::MAX_WINDOW;
use drumfire_wire::ChannelId;

use crate::ids::FoldBuild;
use crate::limits::{ITEM_CHARGE_BYTES, KEYS_REMEMBERED};

/// Packets between two looks for keys that may be forgotten: a peer that fills the table must not make every packet dear.
const LOOK_PACKETS: u64 = 64;

/// The keys of one connection on their way in.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Boxed, for the many connections that have none.
    known: Option<Box<Known>>,
}

#[derive(Debug)]
struct Known {
    by_key: HashMap<(ChannelId, u64), Seen, FoldBuild>,
    looked_at: u64,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    version: u64,
    packet: u64,
}

impl Keys {
    pub(super) fn is_known(&self, channel: ChannelId, key: u64) -> bool {
        self.known.as_ref().is_some_and(|known| known.by_key.contains_key(&(channel, key)))
    }

    /// Bytes in use, charges included.
    pub(super) fn used_bytes(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.by_key.len().saturating_mul(ITEM_CHARGE_BYTES))
    }

    /// Whether so many more keys can be remembered, when `largest` is the newest packet that was received.
    pub(super) fn has_room(&mut self, new_count: usize, largest: u64) -> bool {
        let Some(known) = &mut self.known else { return new_count <= KEYS_REMEMBERED };
        let fits = |known: &Known| known.by_key.len().saturating_add(new_count) <= KEYS_REMEMBERED;
        if !fits(known) && largest.saturating_sub(known.looked_at) >= LOOK_PACKETS {
            known.looked_at = largest;
            known.by_key.retain(|_, seen| seen.packet.saturating_add(MAX_WINDOW.into()) >= largest);
        }
        fits(known)
    }

    /// Whether a value may be delivered that came with packet `number`; the caller then must.
    pub(super) fn take(&mut self, channel: ChannelId, key: u64, version: u64, number: u64) -> bool {
        let empty = || {
            let by_key = HashMap::with_hasher(FoldBuild::new(0));
            Box::new(Known { by_key, looked_at: 0 })
        };
        let by_key = &mut self.known.get_or_insert_with(empty).by_key;
        let mut is_newer = true;
        let seen = by_key.entry((channel, key)).and_modify(|seen| is_newer = version > seen.version);
        let seen = seen.or_insert(Seen { version, packet: number });
        seen.version = seen.version.max(version);
        seen.packet = seen.packet.max(number);
        is_newer
    }

    /// Forgets all keys, when no packet is taken any more that is older than the newest.
    pub(super) fn shrink(&mut self) {
        self.known = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: ChannelId = ChannelId(1);

    #[test]
    fn a_value_is_delivered_once_and_never_after_a_newer_one() {
        let mut keys = Keys::default();
        for (key, version, is_new) in
            [(1, 5, true), (1, 5, false), (1, 4, false), (2, 4, true), (1, 6, true), (1, 5, false)]
        {
            assert_eq!(keys.take(CHANNEL, key, version, 100), is_new, "{key} {version}");
        }
        assert!(keys.take(ChannelId(2), 1, 1, 100), "of another channel");
        assert_eq!(keys.used_bytes(), 3 * 64);
    }

    #[test]
    fn the_2048th_key_has_room_and_the_2049th_when_others_are_so_old_that_nothing_can_come_for_them() {
        let mut keys = Keys::default();
        assert!(keys.has_room(2_048, 0) && !keys.has_room(2_049, 0));
        for key in 0..2_048 {
            assert!(keys.has_room(1, 100));
            keys.take(CHANNEL, key, 1, 100);
        }
        assert!(!keys.has_room(1, 100 + 8_192));
        assert!(!keys.has_room(1, 101 + 8_192), "it has just looked");
        assert!(keys.has_room(2_048, 100 + 8_192 + 64));
    }
}
