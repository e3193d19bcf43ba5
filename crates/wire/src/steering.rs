//! From routing tag to socket: one multiplication with a secret, the same that the kernel's filter does.
//!
//! Entropy comes in as a closure and the filter itself lives with the sockets; this file is the formula both
//! must agree on, and the two draws that only a server makes.

use core::fmt;
use core::num::NonZeroU16;

use crate::connection_id::RoutingTag;
use crate::limits;

/// How many routing tags there are.
const TAGS: u32 = 1 << 16;

/// A socket's share of the tags may be off by one part in this many.
const BALANCE_PARTS: u32 = 10;

/// The 32-bit odd number that turns routing tags into sockets. Never shown: who knows it can aim at a socket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SteeringSecret(u32);

impl SteeringSecret {
    /// For a server with one socket, which has nothing to hide.
    pub const NONE: Self = Self(1);

    /// A secret with these bits; the lowest is set, because an even factor would lose tags.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits | 1)
    }

    /// The number, for the filter that does this in the kernel.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// Draws secrets until one is balanced for this many sockets.
    ///
    /// # Errors
    ///
    /// [`SteeringError::TooManySockets`] above [`limits::STEERING_SOCKETS_MAX`];
    /// [`SteeringError::BadEntropy`] when [`limits::STEERING_SECRET_DRAWS`] draws gave no balanced secret.
    pub fn draw(sockets: NonZeroU16, mut entropy: impl FnMut() -> u32) -> Result<Self, SteeringError> {
        if sockets.get() > limits::STEERING_SOCKETS_MAX {
            return Err(SteeringError::TooManySockets);
        }
        (0..limits::STEERING_SECRET_DRAWS)
            .map(|_| Self::from_bits(entropy()))
            .find(|secret| secret.is_balanced(sockets))
            .ok_or(SteeringError::BadEntropy)
    }

    /// The socket that receives packets with this tag: `((tag * secret) >> 16) mod sockets`, in 32 bits.
    pub fn socket_for(self, tag: RoutingTag, sockets: NonZeroU16) -> u16 {
        let [high, low, ..] = u32::from(tag.0).wrapping_mul(self.0).to_be_bytes();
        u16::from_be_bytes([high, low]) % sockets
    }

    /// Draws a tag that maps to `socket`.
    ///
    /// # Errors
    ///
    /// [`SteeringError::NoSuchSocket`] when `socket` is not below `sockets`;
    /// [`SteeringError::BadEntropy`] when no tag was found in
    /// [`limits::ROUTING_TAG_DRAWS_PER_SOCKET`] draws for each socket.
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

    /// Whether each socket has its share of the 65,536 tags, to a tenth of that share. Counts every tag, so
    /// it takes some tens of microseconds. No count above [`limits::STEERING_SOCKETS_MAX`] is balanced.
    pub fn is_balanced(self, sockets: NonZeroU16) -> bool {
        let mut counts = [0_u32; limits::STEERING_SOCKETS_MAX as usize];
        let Some(counts) = counts.get_mut(..usize::from(sockets.get())) else {
            return false;
        };
        for tag in 0..=u16::MAX {
            let socket = self.socket_for(RoutingTag(tag), sockets);
            if let Some(count) = counts.get_mut(usize::from(socket)) {
                *count = count.saturating_add(1);
            }
        }
        // count / share is within a tenth of 1, without dividing: share = TAGS / sockets.
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

/// Why no secret or tag could be drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteeringError {
    /// More sockets than tags can be shared out between. Bind fewer.
    TooManySockets,
    /// The socket's index is not below the number of sockets.
    NoSuchSocket,
    /// No draw was fit for use, which does not happen by chance: look at the source of entropy.
    BadEntropy,
}

impl SteeringError {
    /// A stable name for counters and logs.
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
            Self::TooManySockets => "routing tags can be shared out between 1,024 sockets at most",
            Self::NoSuchSocket => "the socket's index is not below the number of sockets",
            Self::BadEntropy => "no draw was fit for use: the source of entropy looks broken",
        })
    }
}

impl core::error::Error for SteeringError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator with a fixed seed; its quality does not matter here.
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
    fn a_drawn_secret_gives_every_socket_its_share_of_all_tags() {
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
    fn the_largest_counts_of_sockets_still_find_a_secret() {
        let mut entropy = entropy(2);
        for sockets in [255, 256, 1_000, 1_023, 1_024].map(|n| NonZeroU16::new(n).unwrap()) {
            assert!(SteeringSecret::draw(sockets, &mut entropy).unwrap().is_balanced(sockets));
        }
        let beyond = NonZeroU16::new(limits::STEERING_SOCKETS_MAX + 1).unwrap();
        assert_eq!(SteeringSecret::draw(beyond, &mut entropy), Err(SteeringError::TooManySockets));
        assert!(!SteeringSecret::from_bits(entropy()).is_balanced(beyond));
    }

    #[test]
    fn balance_ends_exactly_at_a_tenth() {
        // A factor of 1 leaves every tag on socket 0, of 2^16 + 1 shares them out evenly.
        let two = NonZeroU16::new(2).unwrap();
        assert!(!SteeringSecret::from_bits(1).is_balanced(two));
        assert!(SteeringSecret::from_bits(1).is_balanced(NonZeroU16::MIN));
        let even = SteeringSecret::from_bits((1 << 16) | 1);
        assert_eq!(shares(even, two), [32_768, 32_768]);
        assert!(even.is_balanced(two));
        // Judge many secrets over many counts by the definition, good ones and bad ones.
        let (mut entropy, mut balanced) = (entropy(3), 0);
        for round in 0..200_u16 {
            let sockets = NonZeroU16::new(600 + 2 * round).unwrap();
            let secret = SteeringSecret::from_bits(entropy());
            let n = u32::from(sockets.get());
            let wanted =
                shares(secret, sockets).iter().all(|c| (90 * TAGS..=110 * TAGS).contains(&(c * n * 100)));
            assert_eq!(secret.is_balanced(sockets), wanted, "{sockets}");
            balanced += usize::from(wanted);
        }
        assert!((20..180).contains(&balanced), "{balanced} of 200 tell nothing");
    }

    #[test]
    fn a_drawn_tag_maps_to_its_owner() {
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
    fn broken_entropy_ends_in_an_error_after_a_bounded_number_of_draws() {
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
