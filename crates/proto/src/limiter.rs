//! Limits on rates: a token bucket, and buckets per source of handshakes.
//!
//! Sources are told apart by a keyed hash into a table of fixed size; the few that fall together share. So a
//! flood of sources costs no memory, and which sources fall together cannot be aimed. Loopback is exempt.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::ids::FoldBuild;
use crate::limits::SOURCE_BUCKETS;
use crate::time::Moment;

/// So many a second, and so many at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBucket {
    /// What one token costs; the bucket counts in time. Zero: nothing is limited.
    cost: Duration,
    burst: Duration,
    /// When the bucket would be empty of debt.
    settled_at: Moment,
}

impl TokenBucket {
    /// A full bucket.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let cost = Duration::from_secs(1).checked_div(per_second).unwrap_or(Duration::MAX);
        Self { cost, burst: cost.saturating_mul(burst), settled_at: Moment::ORIGIN }
    }

    /// Whether a token is left.
    pub(crate) fn has(&self, now: Moment) -> bool {
        self.settled_at.max(now).after(self.cost).since(now) <= self.burst
    }

    /// Takes a token, if one is left.
    pub(crate) fn take(&mut self, now: Moment) -> bool {
        let is_left = self.has(now);
        if is_left {
            self.settled_at = self.settled_at.max(now).after(self.cost);
        }
        is_left
    }
}

/// What each source of handshakes may do.
#[derive(Debug)]
pub(crate) struct Sources {
    hash: FoldBuild,
    buckets: Box<[SourceBucket]>,
    half_open_max: u16,
}

#[derive(Debug, Clone, Copy)]
struct SourceBucket {
    handshakes: TokenBucket,
    half_open: u16,
}

impl Sources {
    pub(crate) fn new(hash: FoldBuild, per_second: u32, burst: u32, half_open_max: u16) -> Self {
        let bucket = SourceBucket { handshakes: TokenBucket::new(per_second, burst), half_open: 0 };
        Self { hash, buckets: vec![bucket; SOURCE_BUCKETS].into_boxed_slice(), half_open_max }
    }

    /// Whether this source may begin another handshake now.
    pub(crate) fn may_begin(&mut self, now: Moment, source: SocketAddr) -> bool {
        let most = self.half_open_max;
        source.ip().to_canonical().is_loopback()
            || self.bucket(source).is_some_and(|bucket| bucket.half_open < most && bucket.handshakes.has(now))
    }

    /// Counts a handshake that began.
    pub(crate) fn begin(&mut self, now: Moment, source: SocketAddr) {
        if let Some(bucket) = self.bucket(source) {
            bucket.handshakes.take(now);
            bucket.half_open = bucket.half_open.saturating_add(1);
        }
    }

    /// Counts the end of a half-open connection, whatever became of it.
    pub(crate) fn end(&mut self, source: SocketAddr) {
        if let Some(bucket) = self.bucket(source) {
            bucket.half_open = bucket.half_open.saturating_sub(1);
        }
    }

    fn bucket(&mut self, source: SocketAddr) -> Option<&mut SourceBucket> {
        let mut hasher = self.hash.build_hasher();
        match source.ip().to_canonical() {
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => {
                // A home or a server has a /64 to itself.
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                hasher.write(&[a, b, c, d, e, f, g, h]);
            }
        }
        let count = u64::try_from(self.buckets.len()).unwrap_or(1).max(1);
        let index = hasher.finish().checked_rem(count).unwrap_or(0);
        self.buckets.get_mut(usize::try_from(index).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::new(20, 20);
        let taken = (0..30).filter(|_| bucket.take(ms(1_000))).count();
        assert_eq!(taken, 20);
        assert!(!bucket.take(ms(1_049)));
        assert!(bucket.take(ms(1_050)));
        assert!(!bucket.take(ms(1_099)));
        let in_a_second = (1..=1_000).filter(|after| bucket.take(ms(1_050 + after))).count();
        assert_eq!(in_a_second, 20);
    }

    #[test]
    fn a_bucket_of_nothing_gives_nothing() {
        assert!(!TokenBucket::new(0, 0).take(ms(5)));
        assert!(!TokenBucket::new(5, 0).take(ms(5)));
    }

    #[test]
    fn a_source_has_its_half_open_connections_and_its_rate() {
        let mut sources = Sources::new(FoldBuild::new(7), 20, 20, 16);
        let one = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 1));
        let same = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 2));
        let other = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), 1));
        for _ in 0..16 {
            assert!(sources.may_begin(ms(1), one));
            sources.begin(ms(1), one);
        }
        assert!(!sources.may_begin(ms(1), same));
        assert!(sources.may_begin(ms(1), other));
        sources.end(one);
        for begun in 16..20 {
            assert!(sources.may_begin(ms(1), one), "{begun}");
            sources.begin(ms(1), one);
            sources.end(one);
        }
        assert!(!sources.may_begin(ms(1), one), "twenty at once");
        assert!(sources.may_begin(ms(51), one));
    }

    #[test]
    fn loopback_is_exempt() {
        let mut sources = Sources::new(FoldBuild::new(7), 1, 1, 1);
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        for _ in 0..100 {
            assert!(sources.may_begin(ms(1), loopback));
            sources.begin(ms(1), loopback);
        }
    }
}
