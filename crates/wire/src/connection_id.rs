//! Connection ids: 8 bytes that route a packet to a socket, and then to its connection.
//!
//! The routing tag selects the socket by one multiplication with the server's secret. The kernel filter of the
//! `drumfire-socket` crate computes the same formula. The check is a keyed function, so its computation is left to the
//! crate that has the keys.

use core::fmt;
use core::num::NonZeroU16;

use crate::limits;

/// The number of routing tags.
const TAGS: u32 = 1 << 16;

/// The permitted deviation of a socket's share of the tags, as the denominator of a fraction: one tenth of the share.
const BALANCE_PARTS: u32 = 10;

/// The id of a connection, issued by the server that receives it (PROTOCOL 11.1, "Connection ids").
///
/// ```text
///  0        2           5           8
///  +--------+-----------+-----------+
///  |  tag   |  random   |   check   |
///  +--------+-----------+-----------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId([u8; 8]);

impl ConnectionId {
    /// The length of an id in bytes.
    pub const BYTES: usize = 8;

    /// The length in bytes of the tag and the random part, which the check is computed over.
    pub const CHECKED_BYTES: usize = 5;

    /// Creates an id from its parts. `check` is the first 24 bits of a keyed function of [`Self::checked_part`].
    pub fn new(tag: RoutingTag, random: [u8; 3], check: [u8; 3]) -> Self {
        let [t0, t1] = tag.0.to_be_bytes();
        let ([r0, r1, r2], [c0, c1, c2]) = (random, check);
        Self([t0, t1, r0, r1, r2, c0, c1, c2])
    }

    /// Creates an id from its wire form without verifying its check.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// Returns the wire form of the id.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// Returns the tag that selects the socket.
    pub fn routing_tag(self) -> RoutingTag {
        let [t0, t1, ..] = self.0;
        RoutingTag(u16::from_be_bytes([t0, t1]))
    }

    /// Returns the bytes that the check is computed over.
    #[inline]
    pub fn checked_part(self) -> [u8; Self::CHECKED_BYTES] {
        let [t0, t1, r0, r1, r2, ..] = self.0;
        [t0, t1, r0, r1, r2]
    }

    /// Returns the check that the id carries.
    #[inline]
    pub fn check(self) -> [u8; 3] {
        let [.., c0, c1, c2] = self.0;
        [c0, c1, c2]
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({:016x})", u64::from_be_bytes(self.0))
    }
}

/// The first 16 bits of a connection id.
///
/// A tag names a socket only together with the server's secret, so an outsider cannot choose a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutingTag(pub u16);

/// The 32-bit odd number that maps routing tags to sockets.
///
/// It must stay secret: an attacker that knows it can send all traffic to one socket. `Debug` does not print it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SteeringSecret(u32);

impl SteeringSecret {
    /// The secret of a server with one socket, which needs none.
    pub const NONE: Self = Self(1);

    /// Creates a secret from these bits. Sets the lowest bit, because a secret must be odd (PROTOCOL 11.1, "Connection ids").
    pub fn from_bits(bits: u32) -> Self {
        Self(bits | 1)
    }

    /// Returns the number, for the kernel filter.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// Draws secrets until one is balanced for this number of sockets.
    ///
    /// # Errors
    ///
    /// [`SteeringError::TooManySockets`] above [`limits::STEERING_SOCKETS_MAX`];
    /// [`SteeringError::BadEntropy`] if [`limits::STEERING_SECRET_DRAWS`] draws gave no balanced secret.
    pub fn draw(sockets: NonZeroU16, mut entropy: impl FnMut() -> u32) -> Result<Self, SteeringError> {
        if sockets.get() > limits::STEERING_SOCKETS_MAX {
            return Err(SteeringError::TooManySockets);
        }
        (0..limits::STEERING_SECRET_DRAWS)
            .map(|_| Self::from_bits(entropy()))
            .find(|secret| secret.is_balanced(sockets))
            .ok_or(SteeringError::BadEntropy)
    }

    /// Returns the index of the socket that receives packets with this tag: `((tag * secret) >> 16) mod sockets`, in
    /// 32-bit arithmetic.
    pub fn socket_for(self, tag: RoutingTag, sockets: NonZeroU16) -> u16 {
        let [high, low, ..] = u32::from(tag.0).wrapping_mul(self.0).to_be_bytes();
        u16::from_be_bytes([high, low]) % sockets
    }

    /// Draws a tag that maps to `socket`.
    ///
    /// # Errors
    ///
    /// [`SteeringError::NoSuchSocket`] if `socket` is not below `sockets`;
    /// [`SteeringError::BadEntropy`] if [`limits::ROUTING_TAG_DRAWS_PER_SOCKET`] draws for each socket gave no tag.
    pub fn tag_for(
        self,
        socket: u16,
        sockets: NonZeroU16,
        mut entropy: impl FnMut() -> u16,
    ) -> Result<RoutingTag, SteeringError> {
        if socket >= sockets.get() {
            return Err(SteeringError::NoSuchSocket);
        }
        let draws = u32::from(sockets.get()).saturating_mul(limits::ROUTING_TAG_DRAWS_PER_SOCKET);
        (0..draws)
            .map(|_| RoutingTag(entropy()))
            .find(|&tag| self.socket_for(tag, sockets) == socket)
            .ok_or(SteeringError::BadEntropy)
    }

    /// Returns whether each socket's number of tags deviates from an equal share by at most a tenth.
    ///
    /// Visits all 65,536 tags, which takes some tens of microseconds. Returns `false` for more than
    /// [`limits::STEERING_SOCKETS_MAX`] sockets.
    pub fn is_balanced(self, sockets: NonZeroU16) -> bool {
        let mut counts = [0_u32; limits::STEERING_SOCKETS_MAX as usize];
        let Some(counts) = counts.get_mut(..usize::from(sockets.get())) else {
            return false;
        };
        for tag in 0..=u16::MAX {
            let socket = self.socket_for(RoutingTag(tag), sockets);
            debug_assert!(socket < sockets.get(), "a socket's index is a remainder");
            if let Some(count) = counts.get_mut(usize::from(socket)) {
                *count = count.saturating_add(1);
            }
        }
        // The share of a socket is TAGS / sockets. Both sides are multiplied by `sockets`, so no division rounds.
        counts.iter().all(|count| {
            let scaled = count.saturating_mul(u32::from(sockets.get()));
            scaled.abs_diff(TAGS).saturating_mul(BALANCE_PARTS) <= TAGS
        })
    }
}

impl fmt::Debug for SteeringSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SteeringSecret(..)")
    }
}

/// The reason why no secret or tag could be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteeringError {
    /// The server has more sockets than [`limits::STEERING_SOCKETS_MAX`]. Bind fewer.
    TooManySockets,
    /// The index of the socket is not below the number of sockets.
    NoSuchSocket,
    /// No draw gave a usable value. The source of entropy is broken, because chance alone makes this practically
    /// impossible.
    BadEntropy,
}

impl SteeringError {
    /// Returns a stable name for counters and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooManySockets => "too_many_sockets",
            Self::NoSuchSocket => "no_such_socket",
            Self::BadEntropy => "bad_entropy",
        }
    }
}

impl fmt::Display for SteeringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManySockets => "routing tags can select among at most 1,024 sockets",
            Self::NoSuchSocket => "the socket's index is not below the number of sockets",
            Self::BadEntropy => "no draw gave a usable value: the source of entropy looks broken",
        })
    }
}

impl core::error::Error for SteeringError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_id_are_at_their_offsets() {
        let id = ConnectionId::new(RoutingTag(0x0102), [3, 4, 5], [6, 7, 8]);
        assert_eq!(id.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(ConnectionId::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]), id);
        assert_eq!(id.routing_tag(), RoutingTag(0x0102));
        assert_eq!(id.checked_part(), [1, 2, 3, 4, 5]);
        assert_eq!(id.check(), [6, 7, 8]);
        assert_eq!(format!("{id:?}"), "ConnectionId(0102030405060708)");
    }

    /// A linear congruential generator with a fixed seed. Its quality does not matter here.
    fn entropy(seed: u64) -> impl FnMut() -> u32 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        }
    }

    fn shares(secret: SteeringSecret, sockets: NonZeroU16) -> Vec<u32> {
        let mut shares = vec![0; usize::from(sockets.get())];
        for tag in 0..=u16::MAX {
            let product = u64::from(tag) * u64::from(secret.to_bits()) % (1 << 32);
            let socket = (product >> 16) % u64::from(sockets.get());
            assert_eq!(u64::from(secret.socket_for(RoutingTag(tag), sockets)), socket);
            shares[usize::try_from(socket).unwrap()] += 1;
        }
        shares
    }

    #[test]
    fn a_drawn_secret_is_balanced() {
        let mut entropy = entropy(1);
        for sockets in (1..=64).map(|n| NonZeroU16::new(n).unwrap()) {
            let secret = SteeringSecret::draw(sockets, &mut entropy).unwrap();
            assert_eq!(secret.to_bits() % 2, 1);
            let share = 65_536.0 / f64::from(sockets.get());
            for count in shares(secret, sockets) {
                assert!((f64::from(count) - share).abs() <= share / 10.0, "{sockets} sockets, {count}");
            }
        }
    }

    #[test]
    fn the_largest_numbers_of_sockets_have_a_secret() {
        let mut entropy = entropy(2);
        for sockets in [255, 256, 1_000, 1_023, 1_024].map(|n| NonZeroU16::new(n).unwrap()) {
            assert!(SteeringSecret::draw(sockets, &mut entropy).unwrap().is_balanced(sockets));
        }
        let beyond = NonZeroU16::new(limits::STEERING_SOCKETS_MAX + 1).unwrap();
        assert_eq!(SteeringSecret::draw(beyond, &mut entropy), Err(SteeringError::TooManySockets));
        assert!(!SteeringSecret::from_bits(entropy()).is_balanced(beyond));
    }

    #[test]
    fn a_share_may_deviate_by_a_tenth_and_no_more() {
        // A factor of 1 maps every tag to socket 0. A factor of 2^16 + 1 distributes the tags evenly.
        let two = NonZeroU16::new(2).unwrap();
        assert!(!SteeringSecret::from_bits(1).is_balanced(two));
        assert!(SteeringSecret::from_bits(1).is_balanced(NonZeroU16::MIN));
        let even = SteeringSecret::from_bits((1 << 16) | 1);
        assert_eq!(shares(even, two), [32_768, 32_768]);
        assert!(even.is_balanced(two));
        // Compare with the definition, for balanced and unbalanced secrets.
        let (mut entropy, mut balanced) = (entropy(3), 0);
        for round in 0..200_u16 {
            let sockets = NonZeroU16::new(600 + 2 * round).unwrap();
            let secret = SteeringSecret::from_bits(entropy());
            let n = u32::from(sockets.get());
            let expected =
                shares(secret, sockets).iter().all(|c| (90 * TAGS..=110 * TAGS).contains(&(c * n * 100)));
            assert_eq!(secret.is_balanced(sockets), expected, "{sockets}");
            balanced += usize::from(expected);
        }
        assert!((20..180).contains(&balanced), "only {balanced} of 200 secrets are balanced, or nearly all");
    }

    #[test]
    fn a_drawn_tag_maps_to_its_socket() {
        let mut entropy = entropy(4);
        for sockets in [1, 2, 3, 16, 64].map(|n| NonZeroU16::new(n).unwrap()) {
            let secret = SteeringSecret::draw(sockets, &mut entropy).unwrap();
            for socket in 0..sockets.get() {
                let tag = secret.tag_for(socket, sockets, || (entropy() >> 16) as u16).unwrap();
                assert_eq!(secret.socket_for(tag, sockets), socket);
            }
            let beyond = secret.tag_for(sockets.get(), sockets, || 0);
            assert_eq!(beyond, Err(SteeringError::NoSuchSocket));
        }
    }

    #[test]
    fn broken_entropy_fails_after_a_bounded_number_of_draws() {
        let two = NonZeroU16::new(2).unwrap();
        let mut draws = 0;
        let stuck = SteeringSecret::draw(two, || {
            draws += 1;
            0
        });
        assert_eq!((stuck, draws), (Err(SteeringError::BadEntropy), limits::STEERING_SECRET_DRAWS));
        let secret = SteeringSecret::from_bits((1 << 16) | 1);
        let mut draws = 0;
        let stuck = secret.tag_for(1, two, || {
            draws += 1;
            0
        });
        assert_eq!(
            (stuck, draws),
            (Err(SteeringError::BadEntropy), 2 * limits::ROUTING_TAG_DRAWS_PER_SOCKET)
        );
    }

    #[test]
    fn a_secret_does_not_print_itself() {
        assert_eq!(format!("{:?}", SteeringSecret::from_bits(0x1234_5677)), "SteeringSecret(..)");
    }
}
