//! The rate limit for Resets, which answer packets of unknown connections.
//!
//! The limit is a total rate, and an interval for each id, so that packets with an old id cannot cause a flood of
//! Resets. Ids are mapped to a table of fixed size.

use std::hash::{BuildHasher, Hasher};

use drumfire_wire::ConnectionId;

use crate::convert::to_u64;
use crate::ids::KeyedBuildHasher;
use crate::limiter::TokenBucket;
use crate::limits::{RESET_BUCKETS, RESET_INTERVAL, RESETS_PER_SECOND};
use crate::time::Moment;

/// The Reset limits of one endpoint.
#[derive(Debug)]
pub(crate) struct Resets {
    hash: KeyedBuildHasher,
    bucket: TokenBucket,
    /// The time from which the ids of each entry may be answered again.
    free_at: Box<[Moment]>,
}

impl Resets {
    pub(crate) fn new(hash: KeyedBuildHasher) -> Self {
        Self {
            hash,
            bucket: TokenBucket::new(RESETS_PER_SECOND, RESETS_PER_SECOND.div_ceil(10)),
            free_at: vec![Moment::ORIGIN; RESET_BUCKETS].into_boxed_slice(),
        }
    }

    /// Whether a packet with this id may be answered, in which case the caller must send the Reset.
    pub(crate) fn take(&mut self, now: Moment, id: ConnectionId) -> bool {
        let mut hasher = self.hash.build_hasher();
        hasher.write_u64(u64::from_be_bytes(id.to_bytes()));
        let count = to_u64(self.free_at.len()).max(1);
        let index = usize::try_from(hasher.finish().checked_rem(count).unwrap_or(0)).unwrap_or(0);
        let Some(free_at) = self.free_at.get_mut(index).filter(|free_at| **free_at <= now) else {
            return false;
        };
        if !self.bucket.take(now) {
            return false;
        }
        *free_at = now.after(RESET_INTERVAL);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resets_are_limited_per_id_and_to_5000_per_second() {
        let mut resets = Resets::new(KeyedBuildHasher::new(0x1234_5678_9abc_def1));
        let id = |number: u64| ConnectionId::from_bytes(number.to_be_bytes());
        let ms = |milliseconds: u64| Moment::from_nanos(milliseconds * 1_000_000);
        for (at, is_answered) in [(0, true), (0, false), (99, false), (100, true), (200, true)] {
            assert_eq!(resets.take(ms(at), id(7)), is_answered, "{at} ms");
        }
        let mut answered = 0_u64;
        for at in 1_000..3_000 {
            for number in 0..100 {
                answered += u64::from(resets.take(ms(at), id(at * 100 + number)));
            }
        }
        assert!((9_000..=10_600).contains(&answered), "{answered} in two seconds");
    }

    #[test]
    fn the_burst_of_resets_is_a_tenth_of_a_second() {
        let hash = KeyedBuildHasher::new(0x1234_5678_9abc_def1);
        let mut resets = Resets::new(hash);
        // Each id has its own entry.
        let mut taken = [false; RESET_BUCKETS];
        let mut ids = (0_u64..).filter(|number| {
            let mut hasher = hash.build_hasher();
            hasher.write_u64(*number);
            let place = hasher.finish() % u64::try_from(RESET_BUCKETS).unwrap();
            let place = usize::try_from(place).unwrap();
            !std::mem::replace(&mut taken[place], true)
        });
        let mut take = |nanoseconds: u64| {
            let id = ConnectionId::from_bytes(ids.next().unwrap().to_be_bytes());
            resets.take(Moment::from_nanos(1_000_000_000 + nanoseconds), id)
        };
        assert!((0..500).all(|_| take(0)));
        assert_eq!([take(0), take(199_999), take(200_000), take(200_000)], [false, false, true, false]);
        assert_eq!([take(399_999), take(400_000)], [false, true]);
    }
}
