//! Rate limits: a token bucket, and buckets for each source of handshakes.
//!
//! Sources are mapped to a table of fixed size by a keyed hash, and the few that collide share a bucket. A flood of
//! sources therefore costs no memory, and an attacker cannot choose which sources collide. Loopback is exempt.

use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::convert::to_u64;
use crate::ids::KeyedBuildHasher;
use crate::limits::SOURCE_BUCKETS;
use crate::time::Moment;

/// A rate limit with a burst.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBucket {
    /// The time that one token costs, since the bucket counts in time. Zero for no limit.
    cost: Duration,
    burst: Duration,
    /// The time at which the bucket is full again, if no more tokens are taken.
    full_at: Moment,
}

impl TokenBucket {
    /// Creates a full bucket.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        let cost = Duration::from_secs(1).checked_div(per_second).unwrap_or(Duration::MAX);
        Self { cost, burst: cost.saturating_mul(burst), full_at: Moment::ORIGIN }
    }

    /// Whether a token is left.
    pub(crate) fn has(&self, now: Moment) -> bool {
        self.full_at.max(now).after(self.cost).since(now) <= self.burst
    }

    /// Takes a token, if one is left.
    pub(crate) fn take(&mut self, now: Moment) -> bool {
        let is_left = self.has(now);
        if is_left {
            self.full_at = self.full_at.max(now).after(self.cost);
        }
        is_left
    }
}

/// Limits the work that each source of Hellos causes on one shard.
///
/// Attempts and key agreements are charged separately, because a Hello may arrive at one shard and be answered by
/// another. With one bucket, a source of many players would be charged twice.
#[derive(Debug)]
pub(crate) struct SourceLimits {
    hash: KeyedBuildHasher,
    buckets: Box<[SourceBucket]>,
    half_open_max: u16,
}

#[derive(Debug, Clone, Copy)]
struct SourceBucket {
    /// Hellos that arrived at this shard and were not answered by it before.
    attempts: TokenBucket,
    /// Key agreements that this shard computed.
    handshakes: TokenBucket,
    half_open: u16,
}

impl SourceLimits {
    pub(crate) fn new(hash: KeyedBuildHasher, per_second: u32, burst: u32, half_open_max: u16) -> Self {
        let rate = TokenBucket::new(per_second, burst);
        let bucket = SourceBucket { attempts: rate, handshakes: rate, half_open: 0 };
        Self { hash, buckets: vec![bucket; SOURCE_BUCKETS].into_boxed_slice(), half_open_max }
    }

    /// Charges an attempt to this source, whatever its outcome. Returns `false` if the source has no attempt left.
    pub(crate) fn take_attempt(&mut self, now: Moment, source: SocketAddr) -> bool {
        self.bucket(source).is_none_or(|bucket| bucket.attempts.take(now))
    }

    /// Returns whether this source may have another key agreement now.
    pub(crate) fn may_begin(&mut self, now: Moment, source: SocketAddr) -> bool {
        let max = self.half_open_max;
        self.bucket(source).is_none_or(|bucket| bucket.half_open < max && bucket.handshakes.has(now))
    }

    /// Charges a key agreement to this source, whatever its outcome.
    pub(crate) fn on_handshake(&mut self, now: Moment, source: SocketAddr) {
        if let Some(bucket) = self.bucket(source) {
            bucket.handshakes.take(now);
        }
    }

    /// Counts a connection that became half-open.
    pub(crate) fn begin(&mut self, source: SocketAddr) {
        if let Some(bucket) = self.bucket(source) {
            bucket.half_open = bucket.half_open.saturating_add(1);
        }
    }

    /// Counts the end of a half-open connection, whatever its outcome.
    pub(crate) fn end(&mut self, source: SocketAddr) {
        if let Some(bucket) = self.bucket(source) {
            bucket.half_open = bucket.half_open.saturating_sub(1);
        }
    }

    /// Returns the bucket of a source, which colliding sources share. `None` for this host itself, so that local
    /// clients use up nothing.
    fn bucket(&mut self, source: SocketAddr) -> Option<&mut SourceBucket> {
        let mut hasher = self.hash.build_hasher();
        match source.ip().to_canonical() {
            address if address.is_loopback() => return None,
            IpAddr::V4(address) => hasher.write(&address.octets()),
            IpAddr::V6(address) => {
                // A household or a server usually has a whole /64.
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                hasher.write(&[a, b, c, d, e, f, g, h]);
            }
        }
        let count = to_u64(self.buckets.len()).max(1);
        let index = hasher.finish().checked_rem(count).unwrap_or(0);
        self.buckets.get_mut(usize::try_from(index).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_tries::tries;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn a_bucket_allows_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::new(20, 20);
        let taken = (0..30).filter(|_| bucket.take(ms(1_000))).count();
        assert_eq!(taken, 20);
        assert!(!bucket.take(ms(1_049)));
        assert!(bucket.take(ms(1_050)));
        assert!(!bucket.take(ms(1_099)));
        let in_a_second = (1..=1_000).filter(|after| bucket.take(ms(1_050 + after))).count();
        assert_eq!(in_a_second, 20);
    }

    /// Four tokens a second, in steps of half a token's time.
    const TOKEN: u64 = 2;
    const STEP: Duration = Duration::from_millis(125);

    /// A sequence of attempts: their times in steps, and whether a token was left.
    struct Attempts {
        bucket: TokenBucket,
        burst: u64,
        attempts: Vec<(u64, bool)>,
        /// The model, while the clock does not go back: the half tokens at the last attempt.
        level: Option<u64>,
    }

    impl Attempts {
        /// Tries every continuation until the sequence has this length. Returns the number of sequences.
        fn try_continuations(&mut self, length: usize) -> u64 {
            if self.attempts.len() == length {
                return 1;
            }
            let last = self.attempts.last().map_or(8, |(at, _)| *at);
            let next = [Some(last), Some(last + 1), Some(last + 2), Some(last + 5), last.checked_sub(3)];
            let (bucket, level) = (self.bucket, self.level);
            let mut count = 0;
            for at in next.into_iter().flatten() {
                self.attempt(last, at);
                count += self.try_continuations(length);
                self.attempts.pop();
                (self.bucket, self.level) = (bucket, level);
            }
            count
        }

        fn attempt(&mut self, last: u64, at: u64) {
            let steps = u32::try_from(at).unwrap();
            let is_given = self.bucket.take(Moment::ORIGIN.after(STEP * steps));
            self.attempts.push((at, is_given));
            let refilled = self.level.zip(at.checked_sub(last));
            self.level = refilled.map(|(level, passed)| (level + passed).min(self.burst * TOKEN));
            if let Some(level) = &mut self.level {
                assert_eq!(is_given, *level >= TOKEN, "{:?}", self.attempts);
                *level -= if is_given { TOKEN } else { 0 };
            }
            // Whatever the clock did: since any attempt at most the burst and the tokens of that time.
            let (mut given, mut first, mut newest) = (0, at, at);
            for &(at, is_given) in self.attempts.iter().rev() {
                (first, newest) = (first.min(at), newest.max(at));
                given += u64::from(is_given);
                assert!(given * TOKEN <= self.burst * TOKEN + (newest - first), "{:?}", self.attempts);
            }
        }
    }

    #[test]
    fn every_sequence_of_seven_attempts_matches_rate_and_burst() {
        for burst in 0..4 {
            let bucket = TokenBucket::new(4, burst);
            let burst = u64::from(burst);
            let mut attempts = Attempts { bucket, burst, attempts: Vec::new(), level: Some(burst * TOKEN) };
            assert!(attempts.try_continuations(7) > 70_000, "five next steps each, but for the origin");
        }
    }

    #[test]
    fn an_empty_bucket_allows_nothing() {
        assert!(!TokenBucket::new(0, 0).take(ms(5)));
        assert!(!TokenBucket::new(5, 0).take(ms(5)));
    }

    #[test]
    fn a_source_is_limited_in_half_open_connections_and_rate() {
        let mut sources = SourceLimits::new(KeyedBuildHasher::new(7), 20, 20, 16);
        let one = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 1));
        let same = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 2));
        let other = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), 1));
        for _ in 0..16 {
            assert!(sources.may_begin(ms(1), one));
            sources.on_handshake(ms(1), one);
            sources.begin(one);
        }
        assert!(!sources.may_begin(ms(1), same));
        assert!(sources.may_begin(ms(1), other));
        sources.end(one);
        for begun in 16..20 {
            assert!(sources.may_begin(ms(1), one), "{begun}");
            sources.on_handshake(ms(1), one);
        }
        assert!(!sources.may_begin(ms(1), one), "twenty in a burst");
        assert!(sources.may_begin(ms(51), one));
    }

    #[test]
    fn attempts_and_key_agreements_are_charged_apart() {
        let mut sources = SourceLimits::new(KeyedBuildHasher::new(7), 20, 20, 16);
        let one = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 1));
        assert!((0..20).all(|_| sources.take_attempt(ms(1), one)));
        assert!(!sources.take_attempt(ms(1), one) && sources.may_begin(ms(1), one));
        // Key agreements for Hellos that arrived at other shards take none of the attempts.
        (0..20).for_each(|_| sources.on_handshake(ms(1), one));
        assert!(!sources.may_begin(ms(1), one));
        assert!(sources.take_attempt(ms(51), one) && sources.may_begin(ms(51), one));
    }

    /// The number of sources that an attacker chooses.
    fn chosen() -> u64 {
        tries(1_000_000).into()
    }

    fn v4(word: u64) -> SocketAddr {
        SocketAddr::from((u32::try_from(word).unwrap().to_be_bytes(), 1))
    }

    /// An address of the /64 with this number.
    fn v6(word: u64) -> SocketAddr {
        SocketAddr::from((std::net::Ipv6Addr::from_bits(u128::from(word) << 64 | 1), 1))
    }

    /// The number by which an odd one must be multiplied for 1.
    fn inverse(odd: u64) -> u64 {
        (0..6).fold(odd, |it, _| it.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(it))))
    }

    fn secrets() -> impl Iterator<Item = u64> {
        (0..8_u64).map(|number| KeyedBuildHasher::new(number << 9).hash_one(!number))
    }

    /// The average number of sources that share a bucket with a source, itself included, and the number in the
    /// fullest bucket. A lookup would visit as many entries if each source had its own.
    fn shared(secret: u64, sources: impl Iterator<Item = SocketAddr>) -> (f64, u16) {
        let mut limiter = SourceLimits::new(KeyedBuildHasher::new(secret), 20, 20, 16);
        let (memory, mut count) = (size_of_val(&*limiter.buckets), 0.0);
        for source in sources {
            limiter.begin(source);
            count += 1.0;
        }
        assert_eq!(size_of_val(&*limiter.buckets), memory);
        let loads = limiter.buckets.iter().map(|bucket| bucket.half_open);
        let visits: f64 = loads.clone().map(|load| f64::from(load).powi(2)).sum();
        (visits / count, loads.max().unwrap())
    }

    #[test]
    fn a_million_sources_crafted_against_unkeyed_hashes_are_spread() {
        // The multipliers of FxHash, in rustc's old and present version, of SplitMix, and of others.
        const FACTORS: [u64; 3] = [0x517c_c1b7_2722_0a95, 0xf135_7aea_2e62_a9c5, 0x9e37_79b9_7f4a_7c15];
        const { assert!(SOURCE_BUCKETS == 1 << 12) };
        for secret in secrets() {
            let random =
                |number: u64| KeyedBuildHasher::new(!secret).hash_one(number) ^ number.rotate_left(40);
            let (visits, fullest) = shared(secret, (0..chosen()).map(|number| v6(random(number))));
            let check = |chosen: &str, (crafted_visits, crafted_fullest): (f64, u16)| {
                assert!(crafted_visits <= 2.0 * visits, "{chosen}: {crafted_visits} for {visits}");
                assert!(crafted_fullest <= 2 * fullest, "{chosen}: {crafted_fullest} for {fullest}");
            };
            // Under any odd factor the last bits are those of the address.
            check("last bits, v4", shared(secret, (0..chosen()).map(|number| v4(number << 12 | 7))));
            check("last bits, v6", shared(secret, (0..chosen()).map(|number| v6(number << 12 | 7))));
            check("first bits, v6", shared(secret, (0..chosen()).map(|number| v6(number << 44))));
            for factor in FACTORS {
                let inverse = inverse(factor);
                let crafted = |number: u64| (0x5a5 << 52 | number).wrapping_mul(inverse);
                assert!((0..9).all(|number| crafted(number).wrapping_mul(factor) >> 52 == 0x5a5));
                check("one factor", shared(secret, (0..chosen()).map(|number| v6(crafted(number)))));
            }
        }
    }

    #[test]
    fn sources_that_collide_under_one_secret_spread_under_another() {
        let guessed = KeyedBuildHasher::new(0x0123_4567_89ab_cdef);
        let budget = |number: &u64| {
            let mut hasher = guessed.build_hasher();
            hasher.write(&number.to_be_bytes());
            hasher.finish().is_multiple_of(4_096)
        };
        let found: Vec<u64> = (0..chosen() * 8).filter(budget).collect();
        let sources = || found.iter().map(|number| v6(*number));
        let fell = u16::try_from(found.len()).unwrap();
        assert_eq!(shared(0x0123_4567_89ab_cdef, sources()), (fell.into(), fell), "they were found well");
        // With random placement, each source shares its bucket with at most one more on average.
        for secret in secrets() {
            let (visits, fullest) = shared(secret, sources());
            assert!(visits < 2.0 && fullest < 10, "{secret:x}: {visits}, {fullest} of {fell}");
        }
    }

    #[test]
    fn loopback_is_exempt_and_uses_no_bucket() {
        let mut sources = SourceLimits::new(KeyedBuildHasher::new(7), 1, 1, 1);
        for loopback in ["127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            let loopback = loopback.parse().unwrap();
            for _ in 0..100 {
                assert!(sources.take_attempt(ms(1), loopback) && sources.may_begin(ms(1), loopback));
                sources.on_handshake(ms(1), loopback);
                sources.begin(loopback);
            }
            sources.end(loopback);
        }
        let is_untouched = |bucket: &SourceBucket| {
            bucket.half_open == 0 && bucket.attempts.has(ms(1)) && bucket.handshakes.has(ms(1))
        };
        assert!(sources.buckets.iter().all(is_untouched));
    }

    proptest! {
        #[test]
        fn every_rate_allows_exactly_its_burst_and_refill(
            (bits, shift) in (any::<u32>(), 0_u32..32), burst in prop_oneof![0_u32..20, any::<u32>()], start in 0_u64..1 << 62,
            gaps in prop::collection::vec(prop_oneof![9 => 0_u64..40, 1 => 0_u64..1 << 20], 1..50),
        ) {
            let mut bucket = TokenBucket::new((bits >> shift).max(1), burst);
            let cost = bucket.cost.as_nanos();
            let full = cost * u128::from(burst);
            // The model: the tokens left, in units of time.
            let (mut level, mut at) = (full, u128::from(start));
            let mut attempts: Vec<(u128, u128)> = Vec::new();
            for gap in gaps {
                // In eighths of the time of a token.
                let passed = (u128::from(gap) * cost / 8).min(1 << 56);
                (level, at) = ((level + passed).min(full), at + passed);
                let is_given = bucket.take(Moment::from_nanos(u64::try_from(at).unwrap()));
                prop_assert!(is_given == (level >= cost), "{bucket:?} with {level} at {at}");
                let spent = if is_given { cost } else { 0 };
                level -= spent;
                attempts.push((at, spent));
                let mut given = 0;
                for (first, spent) in attempts.iter().rev() {
                    given += spent;
                    prop_assert!(given <= full + (at - first), "{given} from {first} to {at}");
                }
            }
        }
    }
}
