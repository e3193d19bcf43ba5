//! The sealing half of a connection: it owns the packet numbers and the keys, so a nonce cannot be built
//! twice.
//!
//! It writes no header: the caller asks for the next number, encodes it into the header that becomes the
//! associated data, and seals. When to step to the next epoch is the caller's decision.

use std::fmt;

use crate::keys::{SealKeys, Working};
use crate::nonce::{PacketNumbers, nonce};
use crate::suite::{AeadError, PacketKey, Suite, TAG_BYTES};

/// Seals packets, each with a number of its own.
///
/// A sealer cannot be copied:
///
/// ```compile_fail
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<drumfire_crypto::Sealer>();
/// ```
///
/// and it cannot be shared between threads, only moved with its connection:
///
/// ```compile_fail
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<drumfire_crypto::Sealer>();
/// ```
///
/// ```
/// fn needs_send<T: Send>() {}
/// needs_send::<drumfire_crypto::Sealer>();
/// ```
pub struct Sealer {
    keys: SealKeys,
    numbers: PacketNumbers,
    /// The expanded key, boxed because an idle connection has none.
    working: Option<Box<Working>>,
}

impl Sealer {
    /// As [`Opener::fetch`](crate::Opener::fetch).
    #[inline]
    pub fn fetch(&self) {
        if let Some(working) = &self.working {
            working.fetch();
        }
    }

    /// A sealer whose first packet has number 0.
    #[must_use]
    pub const fn new(keys: SealKeys) -> Self {
        Self { keys, numbers: PacketNumbers::new(), working: None }
    }

    #[cfg(test)]
    pub(crate) const fn starting_at(keys: SealKeys, next: u64) -> Self {
        Self { keys, numbers: PacketNumbers::starting_at(next), working: None }
    }

    /// The number that the next packet will have, for its header.
    ///
    /// # Errors
    /// [`SealError::Exhausted`] when no number is left.
    pub fn next_number(&self) -> Result<u64, SealError> {
        self.numbers.peek().ok_or(SealError::Exhausted)
    }

    /// Encrypts `body` in place under the next packet number, writes the tag over `aad` and `body` to `tag`,
    /// and returns the number, which is used up whatever happens. Expands the key for this one packet unless
    /// [`Sealer::keep_expanded`] was called.
    ///
    /// # Errors
    /// [`SealError::Exhausted`] from number 2^61 on, [`SealError::Refused`] if the provider refuses the input
    /// as too long; `body` and `tag` must then not be sent.
    pub fn seal(&mut self, aad: &[u8], body: &mut [u8], tag: &mut [u8; TAG_BYTES]) -> Result<u64, SealError> {
        let number = self.numbers.take().ok_or(SealError::Exhausted)?;
        let keys = self.keys.epoch_keys();
        let mut seal =
            |working: &Working| working.provider.seal_in_place(nonce(working.iv(), number), aad, body, tag);
        let sealed = match &self.working {
            Some(working) => seal(working),
            None => keys.expand().and_then(|working| seal(&working)),
        };
        sealed.map_err(|AeadError| SealError::Refused)?;
        Ok(number)
    }

    /// Uses up the next number without sealing anything, and returns it. A peer that acknowledges it is
    /// lying.
    ///
    /// # Errors
    /// [`SealError::Exhausted`] when no number is left.
    pub fn skip(&mut self) -> Result<u64, SealError> {
        self.numbers.take().ok_or(SealError::Exhausted)
    }

    /// Steps to the keys of the next epoch. Packet numbers go on; an expanded key is dropped.
    pub fn step_to_next_epoch(&mut self) {
        self.working = None;
        self.keys.step_to_next_epoch();
    }

    /// Expands the key now and keeps it (550 bytes or so on the heap), for a connection with several packets
    /// to seal in a row.
    pub fn keep_expanded(&mut self) {
        if self.working.is_none() {
            self.working = self.keys.epoch_keys().expand().ok().map(Box::new);
        }
    }

    /// Drops the expanded key; what it is derived from stays.
    pub fn drop_expanded(&mut self) {
        self.working = None;
    }

    /// The suite in use.
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

/// Why a packet was not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealError {
    /// Number 2^61 was reached: the connection must close.
    Exhausted,
    /// The provider refused the input as too long.
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
    use crate::nonce::SEAL_LIMIT;
    use crate::secret::Secret;

    fn keys() -> SealKeys {
        SealKeys::first(&Secret::new([7; 32]), Suite::ChaCha20Poly1305).unwrap()
    }

    fn seal(sealer: &mut Sealer, body: &[u8]) -> (Result<u64, SealError>, Vec<u8>) {
        // These tests give several sealers the same keys on purpose.
        let (mut body, mut tag) = (body.to_vec(), [0; TAG_BYTES]);
        let number = sealer.seal(b"header", &mut body, &mut tag);
        body.extend(tag);
        (number, body)
    }

    #[test]
    fn each_packet_takes_the_number_that_was_announced() {
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
            assert_eq!(body[..4], *b"none", "a refused body stays as it was");
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
    fn an_idle_sealer_stays_small() {
        assert!(size_of::<Sealer>() <= 104, "{} bytes", size_of::<Sealer>());
    }
}
