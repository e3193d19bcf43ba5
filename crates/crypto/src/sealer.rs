//! The sealing half of a connection. It owns the packet numbers and the keys, so a nonce cannot be used twice.
//!
//! The caller asks for the next number, encodes it into the header, which is the associated data, and then seals the packet. The
//! caller also decides when the next epoch begins.

use std::fmt;

use crate::keys::{ExpandedKey, PacketNumbers, SealKeys};
use crate::suite::{AeadError, PacketKey, Suite, TAG_BYTES};

/// Seals packets, each under its own number.
///
/// A sealer cannot be copied:
///
/// ```compile_fail
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<drumfire_crypto::Sealer>();
/// ```
///
/// It cannot be shared between threads:
///
/// ```compile_fail
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<drumfire_crypto::Sealer>();
/// ```
///
/// It can move to another thread with its connection:
///
/// ```
/// fn needs_send<T: Send>() {}
/// needs_send::<drumfire_crypto::Sealer>();
/// ```
pub struct Sealer {
    keys: SealKeys,
    numbers: PacketNumbers,
    /// The expanded key of a busy connection. It is boxed because most connections are idle.
    expanded: Option<Box<ExpandedKey>>,
}

impl Sealer {
    /// Loads the parts that a packet needs into the cache, as [`Opener::prefetch`](crate::Opener::prefetch) does.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(expanded) = &self.expanded {
            expanded.prefetch();
        }
    }

    /// Creates a sealer whose first packet has number 0.
    #[must_use]
    pub const fn new(keys: SealKeys) -> Self {
        Self { keys, numbers: PacketNumbers::new(), expanded: None }
    }

    #[cfg(test)]
    pub(crate) const fn starting_at(keys: SealKeys, next: u64) -> Self {
        Self { keys, numbers: PacketNumbers::starting_at(next), expanded: None }
    }

    /// Returns the number of the next packet, for its header.
    ///
    /// # Errors
    /// [`SealError::Exhausted`] if no number is left.
    pub fn next_number(&self) -> Result<u64, SealError> {
        self.numbers.peek().ok_or(SealError::Exhausted)
    }

    /// Encrypts `body` in place under the next packet number, writes the tag over `aad` and `body` to `tag`, and returns the
    /// number.
    ///
    /// The number is used up even if sealing fails, so no number is sealed twice. Expands the key for this packet unless
    /// [`Sealer::keep_expanded`] was called.
    ///
    /// # Errors
    /// [`SealError::Exhausted`] from number 2^61 on, [`SealError::Refused`] if the provider rejects the input as too long. `body`
    /// and `tag` must not be sent then.
    pub fn seal(&mut self, aad: &[u8], body: &mut [u8], tag: &mut [u8; TAG_BYTES]) -> Result<u64, SealError> {
        let number = self.numbers.take().ok_or(SealError::Exhausted)?;
        let keys = self.keys.epoch_keys();
        let mut seal = |key: &ExpandedKey| key.provider.seal_in_place(key.nonce(number), aad, body, tag);
        let sealed = match &self.expanded {
            Some(key) => seal(key),
            None => keys.expand().and_then(|key| seal(&key)),
        };
        sealed.map_err(|AeadError| SealError::Refused)?;
        Ok(number)
    }

    /// Uses up the next number without a packet, and returns it.
    ///
    /// A peer that acknowledges this number acknowledges packets that it did not receive (RFC 9000 section 21.4).
    ///
    /// # Errors
    /// [`SealError::Exhausted`] if no number is left.
    pub fn skip(&mut self) -> Result<u64, SealError> {
        self.numbers.take().ok_or(SealError::Exhausted)
    }

    /// Switches to the keys of the next epoch and drops an expanded key. Packet numbers continue.
    pub fn step_to_next_epoch(&mut self) {
        self.expanded = None;
        self.keys.step_to_next_epoch();
    }

    /// Expands the key and keeps it, for a connection that seals several packets in a row. It takes about 550 bytes of heap.
    pub fn keep_expanded(&mut self) {
        if self.expanded.is_none() {
            let expanded = self.keys.epoch_keys().expand();
            debug_assert!(expanded.is_ok(), "keys exist only for suites that this build supports");
            self.expanded = expanded.ok().map(Box::new);
        }
    }

    /// Drops the expanded key. The key that it was expanded from stays.
    pub fn drop_expanded(&mut self) {
        self.expanded = None;
    }

    /// Returns the suite of the keys.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.keys.suite()
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("suite", &self.suite()).finish_non_exhaustive()
    }
}

/// The reason why a packet was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// The packet numbers are used up, because number 2^61 was reached. The connection must close.
    Exhausted,
    /// The provider rejected the input as too long.
    Refused,
}

impl fmt::Display for SealError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exhausted => "no packet number is left, close the connection",
            Self::Refused => "the packet is too long to seal",
        })
    }
}

impl std::error::Error for SealError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SEAL_LIMIT;
    use crate::secret::Secret;

    fn keys() -> SealKeys {
        SealKeys::first(&Secret::new([7; 32]), Suite::ChaCha20Poly1305).unwrap()
    }

    fn seal(sealer: &mut Sealer, body: &[u8]) -> (Result<u64, SealError>, Vec<u8>) {
        // Several sealers have the same keys in these tests, so that their output can be compared.
        let (mut body, mut tag) = (body.to_vec(), [0; TAG_BYTES]);
        let number = sealer.seal(b"header", &mut body, &mut tag);
        body.extend(tag);
        (number, body)
    }

    #[test]
    fn each_packet_has_the_number_that_was_announced() {
        let mut sealer = Sealer::new(keys());
        let mut seen = std::collections::HashSet::new();
        for expected in 0..100 {
            assert_eq!(sealer.next_number(), Ok(expected));
            let (number, sealed) = seal(&mut sealer, b"the same body");
            assert_eq!(number, Ok(expected));
            assert!(seen.insert(sealed), "two packets with equal bytes");
        }
    }

    #[test]
    fn a_skipped_number_is_never_sealed() {
        let mut sealer = Sealer::new(keys());
        assert_eq!(seal(&mut sealer, b"a").0, Ok(0));
        assert_eq!(sealer.skip(), Ok(1));
        assert_eq!(seal(&mut sealer, b"b").0, Ok(2));
    }

    #[test]
    fn sealing_stops_at_the_limit_and_not_before() {
        let mut sealer = Sealer::starting_at(keys(), SEAL_LIMIT - 1);
        assert_eq!(seal(&mut sealer, b"last").0, Ok(SEAL_LIMIT - 1));
        assert_eq!(seal(&mut sealer, b"none").0, Err(SealError::Exhausted));
        for next in [SEAL_LIMIT, SEAL_LIMIT + 1] {
            let mut sealer = Sealer::starting_at(keys(), next);
            assert_eq!(sealer.next_number(), Err(SealError::Exhausted));
            assert_eq!(sealer.skip(), Err(SealError::Exhausted));
            let (number, body) = seal(&mut sealer, b"none");
            assert_eq!(number, Err(SealError::Exhausted));
            assert_eq!(body[..4], *b"none", "a rejected body does not change");
        }
    }

    #[test]
    fn an_expanded_key_changes_no_byte() {
        let mut expanding = Sealer::new(keys());
        let first = seal(&mut expanding, b"body");
        let mut keeping = Sealer::new(keys());
        keeping.keep_expanded();
        keeping.keep_expanded();
        assert_eq!(seal(&mut keeping, b"body"), first);
        keeping.drop_expanded();
        assert_eq!(seal(&mut keeping, b"body"), seal(&mut expanding, b"body"));
    }

    #[test]
    fn numbers_go_on_in_the_next_epoch_under_another_key() {
        let (mut stepped, mut stayed) = (Sealer::new(keys()), Sealer::new(keys()));
        stepped.keep_expanded();
        assert_eq!(seal(&mut stepped, b"x"), seal(&mut stayed, b"x"));
        stepped.step_to_next_epoch();
        let (number, sealed) = seal(&mut stepped, b"x");
        assert_eq!(number, Ok(1));
        assert_ne!(sealed, seal(&mut stayed, b"x").1);
    }

    #[test]
    fn debug_shows_the_suite_only() {
        let text = format!("{:?}", Sealer::new(keys()));
        assert_eq!(text, "Sealer { suite: ChaCha20Poly1305, .. }");
    }

    #[test]
    fn an_idle_sealer_takes_at_most_104_bytes() {
        assert!(size_of::<Sealer>() <= 104, "{} bytes", size_of::<Sealer>());
    }
}
