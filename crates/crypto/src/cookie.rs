//! The stateless cookie, which proves a client's source address before the server stores state for the client
//! (PROTOCOL 4.4, "Functions of servers and backends").
//!
//! ```text
//! bucket  = seconds / 5          secret = keyed BLAKE2s(process key, "drumfire cookie" || bucket / 12)
//! cookie  = SipHash-2-4-128(secret, address || port || client id || bucket || mac1)
//! ```
//!
//! `bucket / 12` is the minute. Numbers are big-endian, and an address is 16 bytes, where an IPv4 address is mapped to IPv6.
//!
//! The cookie covers mac1 in place of the rest of the Hello. The server verifies mac1 after the cookie, so a cookie is valid for
//! one Hello only. A Hello with an invalid cookie costs the server a hash of 16 bytes instead of hundreds.
//!
//! A cookie is valid in its bucket and in the next one, so it lives more than 5 s and at most 10 s. Only the secrets of the
//! current and the previous minute are needed.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, SocketAddr};

use siphasher::sip128::{Hasher128, SipHasher24};

use crate::hash::keyed_16;
use crate::mac::MAC1_BYTES;
use crate::secret::{Secret, is_equal};

/// The length of a cookie in bytes.
pub const COOKIE_BYTES: usize = 16;
/// The length of a client id in bytes.
pub const CLIENT_ID_BYTES: usize = 8;
/// The length of a bucket in seconds. A cookie is valid for less than two buckets.
pub const BUCKET_SECONDS: u64 = 5;

const BUCKETS_PER_MINUTE: u64 = 12;
const SECRET_LABEL: &[u8] = b"drumfire cookie";

/// The bytes of a cookie.
pub type Cookie = [u8; COOKIE_BYTES];

/// Creates and verifies cookies.
///
/// Every worker of a process has one, with the same process key, so each worker accepts the cookies of the others.
pub struct Cookies {
    process_key: Secret<32>,
    /// The secret that was derived last.
    newer: MinuteSecret,
    /// The secret that was derived before `newer`.
    older: MinuteSecret,
}

/// The values that a cookie is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieScope<'a> {
    /// The source address of the Hello.
    pub source: SocketAddr,
    /// The client id of the Hello.
    pub client_id: [u8; CLIENT_ID_BYTES],
    /// The mac1 of the Hello.
    pub mac1: &'a [u8; MAC1_BYTES],
}

impl Cookies {
    /// Creates cookies under a key, which is drawn once per process and never stored.
    #[must_use]
    pub fn new(process_key: Secret<32>) -> Self {
        let [newer, older] = [1, 0].map(|minute| MinuteSecret::new(&process_key, minute));
        Self { process_key, newer, older }
    }

    /// Returns the cookie for this scope at `now_seconds`, on any clock that all workers share.
    #[must_use]
    pub fn make(&mut self, now_seconds: u64, scope: &CookieScope<'_>) -> Cookie {
        self.cookie_of_bucket(bucket_of(now_seconds), scope)
    }

    /// Returns whether `cookie` was made for this scope in the bucket of `now_seconds` or in the one before.
    ///
    /// The clock is that of [`Cookies::make`]. Compares in constant time.
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

    /// Returns the secret of a minute. Two secrets are kept, because the previous bucket may belong to the previous minute.
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

/// The secret of the cookies of one minute.
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

/// Returns the 16 bytes of an address. An IPv4 address and the same address mapped to IPv6 have the same bytes.
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
    fn a_cookie_expires_with_the_next_bucket() {
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
                assert!(base + 9 - made_at >= BUCKET_SECONDS, "the cookie expired too early");
                for now in [base + 10, base + 11, base + 60, base + 120] {
                    assert!(!checker.is_valid(now, &scope, &cookie), "made {made_at}, now {now}");
                }
            }
        }
    }

    #[test]
    fn siphash_agrees_with_the_published_128_bit_vectors() {
        // The first two entries of vectors_sip128 in the reference implementation: key 00..0f, inputs of 0 and 1 bytes.
        let key = counting();
        let hash = |input: &[u8]| SipHasher24::new_with_key(&key).hash(input).as_bytes();
        assert_eq!(hash(&[]).as_slice(), hex("a3817f04ba25a8e66df67214c7550293"));
        assert_eq!(hash(&[0]).as_slice(), hex("da87c1d86b99af44347659119b22fc45"));
    }

    #[test]
    fn each_minute_has_its_secret_and_two_are_kept() {
        let mut cookies = cookies(1);
        let scope = scope("192.0.2.1:4000");
        let mut minutes_after = |now| {
            let _ = cookies.make(now, &scope);
            (cookies.newer.minute, cookies.older.minute)
        };
        assert_eq!(minutes_after(59), (1, 0));
        assert_eq!(minutes_after(120), (2, 1));
        // The bucket before is in the minute before, whose secret is not derived again.
        assert_eq!(minutes_after(119), (2, 1));
        assert_eq!(minutes_after(600), (10, 2));
    }

    #[test]
    fn a_cookie_of_the_last_second_of_the_clock_is_valid() {
        let scope = scope("192.0.2.1:4000");
        let mut cookies = cookies(1);
        let cookie = cookies.make(u64::MAX, &scope);
        assert!(cookies.is_valid(u64::MAX, &scope, &cookie));
    }

    #[test]
    fn a_cookie_from_a_later_bucket_is_rejected() {
        let scope = scope("192.0.2.1:4000");
        let mut cookies = cookies(1);
        let cookie = cookies.make(105, &scope);
        assert!(!cookies.is_valid(104, &scope, &cookie));
    }

    #[test]
    fn a_cookie_is_valid_only_for_its_scope_and_key() {
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
    fn every_changed_bit_of_a_cookie_is_rejected() {
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
    fn workers_of_one_process_accept_each_others_cookies() {
        let (mut maker, mut checker) = (cookies(1), cookies(1));
        let scope = scope("[2001:db8::1]:4000");
        for now in 0..400 {
            let cookie = maker.make(now, &scope);
            assert!(checker.is_valid(now, &scope, &cookie), "{now}");
        }
        // The clock may step back, and the secrets are derived again.
        let cookie = maker.make(3, &scope);
        assert!(checker.is_valid(3, &scope, &cookie));
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", cookies(0xab)), "Cookies { .. }");
    }

    proptest! {
        #[test]
        fn a_cookie_is_valid_for_its_scope_in_two_buckets(
            own: (IpAddr, u16, [u8; 8], [u8; 16]), other: (IpAddr, u16, [u8; 8], [u8; 16]), changed in 0_u8..16,
            made_at in 0..u64::MAX - 20, later in 0_u64..20,
        ) {
            let source = SocketAddr::new(own.0, own.1);
            let scope = CookieScope { source, client_id: own.2, mac1: &own.3 };
            // In one of 16 cases, the scope is unchanged.
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
        fn canonical_addresses_equal_those_of_the_standard_library(one: IpAddr, other: IpAddr) {
            prop_assert_eq!(canonical(IpAddr::from(canonical(one))), canonical(one));
            prop_assert_eq!(canonical(one.to_canonical()), canonical(one));
            let is_same = one.to_canonical() == other.to_canonical();
            prop_assert_eq!(canonical(one) == canonical(other), is_same);
        }
    }
}
