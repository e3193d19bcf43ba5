//! The keys of each direction and epoch, the packet numbers that are used once under a key, and the nonces made from them.
//!
//! The keys of an epoch are derived with the Noise HKDF over BLAKE2s from a chain key. The first chain key of a direction is
//! one half of the handshake's split (Noise revision 34, section 5.2). Each step is
//!
//! ```text
//! (next chain, key, iv block) = HKDF3(chain, "drumfire epoch" || suite id)
//! iv = first 12 bytes of the iv block
//! ```
//!
//! A key of one suite therefore reveals nothing about a key of another suite, and a chain key reveals nothing about earlier
//! epochs. A nonce is the direction's IV XOR the packet number (RFC 9001 section 5.3).
//!
//! An idle connection keeps key, IV, and next chain key: 80 bytes per direction. [`crate::Sealer`] and [`crate::Opener`] expand
//! the key to more than 500 bytes when they need it. Derivation from the chain key takes about 2 us, so it is not repeated for
//! each packet. Seal keys and open keys are different types. They cannot be copied, and their bytes cannot be read.

use std::cell::Cell;
use std::fmt;
use std::hint::black_box;
use std::marker::PhantomData;

use crate::hash::hkdf3;
use crate::secret::Secret;
use crate::suite::{AeadError, KEY_BYTES, NONCE_BYTES, PacketKey, Provider, Suite};

/// No packet is sealed with this number or a higher one (PROTOCOL 6.2, "Packet numbers").
pub const SEAL_LIMIT: u64 = 1 << 61;

const EPOCH_LABEL: &[u8] = b"drumfire epoch";

/// The keys of one epoch that protect the packets that this peer sends.
#[derive(Debug)]
pub struct SealKeys(EpochKeys);

/// The keys of one epoch that protect the packets that this peer receives.
#[derive(Debug)]
pub struct OpenKeys(EpochKeys);

impl SealKeys {
    /// Returns the keys of the first epoch of a direction, or `None` if this build does not support the suite.
    pub(crate) fn first(chain: &Secret<32>, suite: Suite) -> Option<Self> {
        suite.is_supported().then(|| Self(EpochKeys::derive(chain, suite)))
    }

    /// Returns the keys of the next epoch and wipes these. It takes `self`, so that the keys of an epoch exist once.
    #[must_use]
    pub fn into_next_epoch(self) -> Self {
        Self(self.0.next_epoch())
    }

    /// Returns the suite of these keys.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.0.suite
    }

    pub(crate) const fn epoch_keys(&self) -> &EpochKeys {
        &self.0
    }

    pub(crate) fn step_to_next_epoch(&mut self) {
        self.0 = self.0.next_epoch();
    }
}

impl OpenKeys {
    /// Returns the keys of the first epoch of a direction, or `None` if this build does not support the suite.
    pub(crate) fn first(chain: &Secret<32>, suite: Suite) -> Option<Self> {
        suite.is_supported().then(|| Self(EpochKeys::derive(chain, suite)))
    }

    /// Returns the keys of the next epoch. The current keys stay in use.
    #[must_use]
    pub fn next_epoch(&self) -> Self {
        Self(self.0.next_epoch())
    }

    /// Returns the suite of these keys.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.0.suite
    }

    pub(crate) const fn epoch_keys(&self) -> &EpochKeys {
        &self.0
    }
}

/// The secrets of one direction in one epoch. An idle connection keeps no other keys.
pub(crate) struct EpochKeys {
    key: Secret<KEY_BYTES>,
    /// The chain key that the next epoch is derived from.
    next_chain: Secret<32>,
    iv: Secret<NONCE_BYTES>,
    suite: Suite,
}

/// The expanded key of an epoch, and its IV.
pub(crate) struct ExpandedKey {
    pub(crate) provider: Provider,
    iv: Secret<NONCE_BYTES>,
}

impl ExpandedKey {
    /// Loads a cache line of this key before a packet needs it.
    pub(crate) fn prefetch(&self) {
        black_box(self.iv.expose()[0]);
    }

    /// Returns the nonce of packet `number` (RFC 9001 section 5.3).
    pub(crate) fn nonce(&self, number: u64) -> [u8; NONCE_BYTES] {
        nonce(self.iv.expose(), number)
    }
}

impl EpochKeys {
    /// Derives the keys of the epoch with this chain key, which takes about 2 us.
    fn derive(chain: &Secret<32>, suite: Suite) -> Self {
        let [next_chain, key, block] = hkdf3(chain, &[EPOCH_LABEL, &[suite.id()]]);
        let mut iv = Secret::zeroed();
        for (byte, derived) in iv.expose_mut().iter_mut().zip(block.expose()) {
            *byte = *derived;
        }
        Self { key, next_chain, iv, suite }
    }

    fn next_epoch(&self) -> Self {
        Self::derive(&self.next_chain, self.suite)
    }

    /// Expands the key. Fails only if this build does not support the suite.
    pub(crate) fn expand(&self) -> Result<ExpandedKey, AeadError> {
        Ok(ExpandedKey { provider: Provider::new(self.suite, self.key.expose())?, iv: self.iv.duplicate() })
    }

    /// Returns the secrets that must not be found in memory after a drop.
    #[cfg(test)]
    pub(crate) const fn secrets(&self) -> [&[u8]; 2] {
        [self.key.expose(), self.next_chain.expose()]
    }
}

impl fmt::Debug for EpochKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochKeys").field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// Returns the nonce of packet `number`: the IV XOR the number in the last eight bytes.
fn nonce(iv: &[u8; NONCE_BYTES], number: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = *iv;
    for (byte, number_byte) in nonce.iter_mut().rev().zip(number.to_le_bytes()) {
        *byte ^= number_byte;
    }
    nonce
}

/// The packet numbers of one direction, each of which is taken once, in ascending order.
///
/// The type is neither `Clone` nor `Sync`. Two owners would seal two packets with the same nonce.
pub(crate) struct PacketNumbers {
    next: u64,
    not_sync: PhantomData<Cell<()>>,
}

impl PacketNumbers {
    pub(crate) const fn new() -> Self {
        Self::starting_at(0)
    }

    pub(crate) const fn starting_at(next: u64) -> Self {
        Self { next, not_sync: PhantomData }
    }

    /// Returns the number that the next [`take`](Self::take) returns, or `None` at [`SEAL_LIMIT`].
    pub(crate) fn peek(&self) -> Option<u64> {
        (self.next < SEAL_LIMIT).then_some(self.next)
    }

    /// Takes the next number, or returns `None` at [`SEAL_LIMIT`].
    pub(crate) fn take(&mut self) -> Option<u64> {
        let number = self.peek()?;
        self.next = number.saturating_add(1);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{counting, hex};

    const CHACHA: Suite = Suite::ChaCha20Poly1305;

    fn chain() -> Secret<32> {
        Secret::new(counting())
    }

    fn epoch(chain: &Secret<32>, suite: Suite) -> EpochKeys {
        EpochKeys::derive(chain, suite)
    }

    #[test]
    fn the_keys_of_an_epoch_have_known_values() {
        // Computed with Python 3.11, hmac and hashlib.blake2s.
        let first = epoch(&chain(), CHACHA);
        assert_eq!(
            first.key.expose().as_slice(),
            hex("af3053d7e5b0bc2301df33a35f62fdc626264d470885f2f0ab344b3f1b7bacc0")
        );
        assert_eq!(first.iv.expose().as_slice(), hex("14468a116665f0c194270d59"));
        let second = first.next_epoch();
        assert_eq!(
            second.key.expose().as_slice(),
            hex("e6efb16ae5da0d60af533bae3ca5bc638972984208acb4a958a8679b1e425a7f")
        );
        assert_eq!(second.iv.expose().as_slice(), hex("db0da536c4e2e9ad6a42ea86"));
    }

    #[test]
    fn seal_keys_and_open_keys_stay_equal_over_epochs() {
        let mut sealing = SealKeys::first(&chain(), CHACHA).unwrap();
        let mut opening = OpenKeys::first(&chain(), CHACHA).unwrap();
        for _ in 0..5 {
            assert!(sealing.0.key == opening.0.key && sealing.0.iv == opening.0.iv);
            let next = opening.next_epoch();
            sealing = sealing.into_next_epoch();
            assert!(next.0.key != opening.0.key && next.0.iv != opening.0.iv);
            assert!(next.0.next_chain != opening.0.next_chain);
            opening = next;
        }
    }

    #[test]
    fn suites_share_no_key_material() {
        let (chacha, aes) = (epoch(&chain(), CHACHA), epoch(&chain(), Suite::Aes128Gcm));
        assert!(chacha.key != aes.key && chacha.iv != aes.iv && chacha.next_chain != aes.next_chain);
    }

    #[test]
    fn an_unsupported_suite_has_no_keys() {
        let supported = cfg!(feature = "accel");
        assert_eq!(SealKeys::first(&chain(), Suite::Aes128Gcm).is_some(), supported);
        assert_eq!(OpenKeys::first(&chain(), Suite::Aes128Gcm).is_some(), supported);
    }

    #[test]
    fn debug_shows_no_key_byte() {
        let text = format!(
            "{:?} {:?}",
            SealKeys::first(&chain(), CHACHA).unwrap(),
            OpenKeys::first(&chain(), CHACHA).unwrap()
        );
        let suite = "EpochKeys { suite: ChaCha20Poly1305, .. }";
        assert_eq!(text, format!("SealKeys({suite}) OpenKeys({suite})"));
    }

    #[test]
    fn the_keys_of_an_idle_direction_take_80_bytes() {
        assert!(size_of::<SealKeys>() <= 80, "{} bytes", size_of::<SealKeys>());
    }

    #[test]
    fn the_nonce_is_the_iv_xor_the_number() {
        let iv = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xf0];
        assert_eq!(nonce(&iv, 0), iv);
        assert_eq!(nonce(&iv, 0x0102_0304_0506_0708), [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 0xf8]);
        assert_eq!(nonce(&[0; 12], u64::MAX), [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn numbers_start_at_zero_and_ascend_by_one() {
        let mut numbers = PacketNumbers::new();
        for expected in 0..1000 {
            assert_eq!(numbers.peek(), Some(expected));
            assert_eq!(numbers.take(), Some(expected));
        }
    }

    #[test]
    fn the_last_number_is_the_one_before_the_limit() {
        let mut numbers = PacketNumbers::starting_at(SEAL_LIMIT - 2);
        assert_eq!(numbers.take(), Some(SEAL_LIMIT - 2));
        assert_eq!(numbers.take(), Some(SEAL_LIMIT - 1));
        for _ in 0..3 {
            assert_eq!(numbers.peek(), None);
            assert_eq!(numbers.take(), None);
        }
        for beyond in [SEAL_LIMIT, SEAL_LIMIT + 1, u64::MAX] {
            assert_eq!(PacketNumbers::starting_at(beyond).take(), None, "{beyond}");
        }
    }
}
