//! The stateless cookie that proves a source address before the server keeps state for it (PROTOCOL 4.4, "Functions of servers
//! and backends").
//!
//! ```text
//! bucket  = seconds / 5          secret = keyed BLAKE2s(process key, "drumfire cookie" || bucket / 12)
//! cookie  = SipHash-2-4-128(secret, address || port || client id || bucket || mac1)
//! ```
//!
//! The Hello's mac1 stands for the rest of it: it is checked after the cookie and before any Diffie-Hellman, so that a cookie is
//! good for one Hello alone, at the price of sixteen bytes instead of hundreds for whoever sends a bad one.
//!
//! The address is in its canonical form (16 bytes, IPv4 as IPv4-mapped IPv6), numbers are big-endian, `bucket
//! / 12` is the minute. A cookie is good in the bucket it was made in and in the next one, so it lives more
//! than 5 s and at most 10 s, and of the secrets only the current and the previous minute's are ever needed.
//! Where datagrams carry the cookie, and how often one may be sent, is decided elsewhere.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::hash::keyed_16;
use crate::mac1::MAC1_BYTES;
use crate::secret::{Secret, is_equal};

/// Length of a cookie in bytes.
pub const COOKIE_BYTES: usize = 16;
/// Length of a client id in bytes.
pub const CLIENT_ID_BYTES: usize = 8;
/// Width of a bucket in seconds; a cookie is good for less than two of them.
pub const BUCKET_SECONDS: u64 = 5;

const BUCKETS_PER_MINUTE: u64 = 12;
const SECRET_LABEL: &[u8] = b"drumfire cookie";

/// A cookie.
pub type Cookie = [u8; COOKIE_BYTES];

/// Makes and checks cookies. Every worker of a process has one, made from the same process key.
pub struct Cookies {
    process_key: Secret<32>,
    newer: MinuteSecret,
    older: MinuteSecret,
}

/// What a cookie vouches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieScope<'a> {
    /// Where the Hello came from.
    pub source: SocketAddr,
    /// The client id of the Hello.
    pub client_id: [u8; CLIENT_ID_BYTES],
    /// The mac1 of the Hello.
    pub mac1: &'a [u8; MAC1_BYTES],
}

impl Cookies {
    /// Cookies under a key that is drawn once per process and never stored.
    #[must_use]
    pub fn new(process_key: Secret<32>) -> Self {
        let [newer, older] = [1, 0].map(|minute| MinuteSecret::new(&process_key, minute));
        Self { process_key, newer, older }
    }

    /// The cookie for this scope at `now` (seconds of any clock that all workers share).
    #[must_use]
    pub fn make(&mut self, now_seconds: u64, scope: &CookieScope<'_>) -> Cookie {
        self.cookie_of_bucket(bucket_of(now_seconds), scope)
    }

    /// Whether `cookie` was made for this scope at most 10 s before `now` (the clock of [`Cookies::make`]).
    /// Compares in constant time.
    #[must_use]
    pub fn is_valid(&mut self, now_seconds: u64, scope: &CookieScope<'_>, cookie: &Cookie) -> bool {
        let current = bucket_of(now_seconds);
        let is_current = is_equal(&self.cookie_of_bucket(current, scope), cookie);
        let is_previous = current
            .checked_sub(1)
            .is_some_and(|previous| is_equal(&self.cookie_of_bucket(previous, scope), cookie));
        is_current | is_previous
    }

    fn cookie_of_bucket(&mut self, bucket: u64, scope: &CookieScope<'_>) -> Cookie {
        let secret = self.secret_of_minute(bucket / BUCKETS_PER_MINUTE);
        let mut hasher = SipHasher24::new_with_key(secret);
        hasher.write(&canonical(scope.source.ip()));
        hasher.write(&scope.source.port().to_be_bytes());
        hasher.write(&scope.client_id);
        hasher.write(&bucket.to_be_bytes());
        hasher.write(scope.mac1);
        hasher.finish128().as_bytes()
    }

    /// Two secrets are kept, since the bucket before the current one may belong to the minute before.
    fn secret_of_minute(&mut self, minute: u64) -> &[u8; 16] {
        if self.newer.minute != minute && self.older.minute != minute {
            let fresh = MinuteSecret::new(&self.process_key, minute);
            self.older = std::mem::replace(&mut self.newer, fresh);
        }
        let kept = if self.newer.minute == minute { &self.newer } else { &self.older };
        kept.secret.expose()
    }
}

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookies").finish_non_exhaustive()
    }
}

struct MinuteSecret {
    minute: u64,
    secret: Secret<16>,
}

impl MinuteSecret {
    fn new(process_key: &Secret<32>, minute: u64) -> Self {
        let secret = keyed_16(process_key, &[SECRET_LABEL, &minute.to_be_bytes()]);
        Self { minute, secret: Secret::new(secret) }
    }
}

const fn bucket_of(seconds: u64) -> u64 {
    seconds / BUCKET_SECONDS
}

/// An IPv4 address and the same address mapped into IPv6 are one source.
const fn canonical(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{counting, hex};
    use proptest::prelude::*;

    fn cookies(key: u8) -> Cookies {
        Cookies::new(Secret::new([key; 32]))
    }

    fn scope(source: &str) -> CookieScope<'static> {
        CookieScope { source: source.parse().unwrap(), client_id: *b"client-1", mac1: b"this Hello, mac1" }
    }

    #[test]
    fn a_cookie_lives_to_the_end_of_the_next_bucket_and_never_ten_seconds() {
        // The last two bases cross from one minute's secret into the next.
        for base in [0, 100, 55, 60, 115, u64::MAX / 10 * 5] {
            for made_after in 0..BUCKET_SECONDS {
                let made_at = base + made_after;
                let scope = scope("192.0.2.1:4000");
                let cookie = cookies(1).make(made_at, &scope);
                let mut checker = cookies(1);
                for now in made_at..=base + 9 {
                    assert!(checker.is_valid(now, &scope, &cookie), "made {made_at}, now {now}");
                }
                assert!(base + 9 - made_at >= BUCKET_SECONDS, "too short a life");
                for now in [base + 10, base + 11, base + 60, base + 120] {
                    assert!(!checker.is_valid(now, &scope, &cookie), "made {made_at}, now {now}");
                }
            }
        }
    }

    #[test]
    fn siphash_gives_the_published_128_bit_vectors() {
        // The first two entries of vectors_sip128 in the reference implementation: key 00..0f, input of 0 and 1 bytes.
        let key = counting();
        let hash = |input: &[u8]| SipHasher24::new_with_key(&key).hash(input).as_bytes();
        assert_eq!(hash(&[]).as_slice(), hex("a3817f04ba25a8e66df67214c7550293"));
        assert_eq!(hash(&[0]).as_slice(), hex("da87c1d86b99af44347659119b22fc45"));
    }

    #[test]
    fn a_cookie_made_in_the_last_second_of_time_is_valid() {
        let scope = scope("192.0.2.1:4000");
        let mut cookies = cookies(1);
        let cookie = cookies.make(u64::MAX, &scope);
        assert!(cookies.is_valid(u64::MAX, &scope, &cookie));
    }

    #[test]
    fn a_cookie_from_a_later_bucket_is_refused() {
        let scope = scope("192.0.2.1:4000");
        let mut cookies = cookies(1);
        let cookie = cookies.make(105, &scope);
        assert!(!cookies.is_valid(104, &scope, &cookie));
    }

    #[test]
    fn a_cookie_is_good_for_nothing_but_its_scope_and_key() {
        let good = scope("192.0.2.1:4000");
        let cookie = cookies(1).make(100, &good);
        assert!(cookies(1).is_valid(100, &good, &cookie));
        let others = [
            scope("192.0.2.2:4000"),
            scope("192.0.2.1:4001"),
            scope("[2001:db8::1]:4000"),
            CookieScope { client_id: *b"client-2", ..good },
            CookieScope { mac1: b"that Hello, mac1", ..good },
        ];
        for other in others {
            assert!(!cookies(1).is_valid(100, &other, &cookie), "{other:?}");
        }
        assert!(!cookies(2).is_valid(100, &good, &cookie));
    }

    #[test]
    fn every_changed_bit_of_a_cookie_is_refused() {
        let scope = scope("192.0.2.1:4000");
        let mut cookies = cookies(1);
        let cookie = cookies.make(100, &scope);
        for bit in 0..COOKIE_BYTES * 8 {
            let mut changed = cookie;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!cookies.is_valid(100, &scope, &changed), "bit {bit}");
        }
        assert!(!cookies.is_valid(100, &scope, &[0; COOKIE_BYTES]));
    }

    #[test]
    fn an_ipv4_source_and_its_mapped_form_are_the_same() {
        let mut cookies = cookies(1);
        let cookie = cookies.make(100, &scope("192.0.2.1:4000"));
        assert!(cookies.is_valid(100, &scope("[::ffff:192.0.2.1]:4000"), &cookie));
    }

    #[test]
    fn workers_of_one_process_accept_each_others_cookies_over_minutes() {
        let (mut maker, mut checker) = (cookies(1), cookies(1));
        let scope = scope("[2001:db8::1]:4000");
        for now in 0..400 {
            let cookie = maker.make(now, &scope);
            assert!(checker.is_valid(now, &scope, &cookie), "{now}");
        }
        // The clock may step back; the kept secrets follow.
        let cookie = maker.make(3, &scope);
        assert!(checker.is_valid(3, &scope, &cookie));
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", cookies(0xab)), "Cookies { .. }");
    }

    proptest! {
        #[test]
        fn a_cookie_is_good_for_its_own_scope_in_two_buckets_and_for_nothing_else(
            own: (IpAddr, u16, [u8; 8], [u8; 16]), other: (IpAddr, u16, [u8; 8], [u8; 16]), changed in 0_u8..16,
            made_at in 0..u64::MAX - 20, later in 0_u64..20,
        ) {
            let source = SocketAddr::new(own.0, own.1);
            let scope = CookieScope { source, client_id: own.2, mac1: &own.3 };
            // One in sixteen shows the scope as it was.
            let is_changed = |part: u8| changed >> part & 1 == 1;
            let ip = if is_changed(0) { other.0 } else { own.0 };
            let port = if is_changed(1) { other.1 } else { own.1 };
            let client_id = if is_changed(2) { other.2 } else { own.2 };
            let mac1 = if is_changed(3) { &other.3 } else { &own.3 };
            let shown = CookieScope { source: SocketAddr::new(ip, port), client_id, mac1 };
            let is_same = (ip.to_canonical(), port, client_id, mac1)
                == (own.0.to_canonical(), own.1, own.2, &own.3);
            let is_in_time = bucket_of(made_at + later) - bucket_of(made_at) <= 1;
            let cookie = cookies(1).make(made_at, &scope);
            let is_valid = cookies(1).is_valid(made_at + later, &shown, &cookie);
            prop_assert_eq!(is_valid, is_same && is_in_time);
        }

        #[test]
        fn the_canonical_form_of_an_address_is_that_of_its_canonical_form(one: IpAddr, other: IpAddr) {
            prop_assert_eq!(canonical(IpAddr::from(canonical(one))), canonical(one));
            prop_assert_eq!(canonical(one.to_canonical()), canonical(one));
            let is_same = one.to_canonical() == other.to_canonical();
            prop_assert_eq!(canonical(one) == canonical(other), is_same);
        }
    }
}
