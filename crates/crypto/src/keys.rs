//! What a session's keys are derived from, per direction and epoch, and the ratchet from one epoch to the next.
//!
//! An epoch's keys are derived with the Noise HKDF over BLAKE2s. The chain starts with the direction's half
//! of the handshake's split, and each step is
//!
//! ```text
//! (next chain, key, iv block) = HKDF3(chain, "drumfire epoch" || suite id)
//! iv = first 12 bytes of the iv block
//! ```
//!
//! so that no key of one suite says anything about a key of the other, and an epoch's chain says nothing
//! about earlier ones. Key, IV and next chain live here (80 bytes per direction): an idle connection keeps nothing
//! else. The key is expanded, to more than 500 bytes, when [`crate::Sealer`] and [`crate::Opener`] need it; it is not
//! derived each time, which took 2 us of every keep-alive and of its answer. Seal keys and open keys are different types, neither can be copied, and neither gives
//! its bytes away.

use std::fmt;
use std::hint::black_box;

use crate::hash::hkdf3;
use crate::secret::Secret;
use crate::suite::{AeadError, KEY_BYTES, NONCE_BYTES, PacketKey, Provider, Suite};

const EPOCH_LABEL: &[u8] = b"drumfire epoch";

/// The keys that protect what this end sends, in one epoch.
#[derive(Debug)]
pub struct SealKeys(EpochKeys);

/// The keys that protect what this end receives, in one epoch.
#[derive(Debug)]
pub struct OpenKeys(EpochKeys);

impl SealKeys {
    /// The first epoch of a direction. `None` if this build does not have the suite.
    pub(crate) fn first(chain: &Secret<32>, suite: Suite) -> Option<Self> {
        suite.is_supported().then(|| Self(EpochKeys::derive(chain, suite)))
    }

    /// Steps to the next epoch; the keys of the current one are wiped. Consuming, so that no epoch's keys
    /// exist twice.
    #[must_use]
    pub fn into_next_epoch(self) -> Self {
        Self(self.0.next_epoch())
    }

    /// The suite these keys are for.
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
    /// The first epoch of a direction. `None` if this build does not have the suite.
    pub(crate) fn first(chain: &Secret<32>, suite: Suite) -> Option<Self> {
        suite.is_supported().then(|| Self(EpochKeys::derive(chain, suite)))
    }

    /// The keys of the next epoch, while the current ones stay in use.
    #[must_use]
    pub fn next_epoch(&self) -> Self {
        Self(self.0.next_epoch())
    }

    /// The suite these keys are for.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.0.suite
    }

    pub(crate) const fn epoch_keys(&self) -> &EpochKeys {
        &self.0
    }
}

/// What is derived from the chain of one direction in one epoch: its key, its IV and the next epoch's chain. It is all that a
/// connection keeps while it is idle.
pub(crate) struct EpochKeys {
    key: Secret<KEY_BYTES>,
    next_chain: Secret<32>,
    iv: Secret<NONCE_BYTES>,
    suite: Suite,
}

/// What packets are sealed or opened with, derived and expanded.
pub(crate) struct Working {
    pub(crate) provider: Provider,
    iv: Secret<NONCE_BYTES>,
}

impl Working {
    /// Reads a little of it, and hands nothing out.
    pub(crate) fn fetch(&self) {
        black_box(self.iv.expose()[0]);
    }

    pub(crate) const fn iv(&self) -> &[u8; NONCE_BYTES] {
        self.iv.expose()
    }
}

impl EpochKeys {
    /// Those of the epoch with this chain, derived in 2 us or so.
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

    /// Makes what packets are sealed or opened with.
    pub(crate) fn expand(&self) -> Result<Working, AeadError> {
        Ok(Working { provider: Provider::new(self.suite, self.key.expose())?, iv: self.iv.duplicate() })
    }

    /// All that nobody may find.
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
    fn an_epoch_is_derived_as_the_standard_says() {
        // Expected values: Python 3.11, hmac with hashlib.blake2s.
        let first = epoch(&chain(), CHACHA);
        assert_eq!(
            first.key.expose().as_slice(),
            hex("af3053d7e5b0bc2301df33a35f62fdc626264d470885f2f0ab344b3f1b7bacc0")
        );
        assert_eq!(first.expand().unwrap().iv().as_slice(), hex("14468a116665f0c194270d59"));
        let second = first.next_epoch();
        assert_eq!(
            second.key.expose().as_slice(),
            hex("e6efb16ae5da0d60af533bae3ca5bc638972984208acb4a958a8679b1e425a7f")
        );
        assert_eq!(second.expand().unwrap().iv().as_slice(), hex("db0da536c4e2e9ad6a42ea86"));
    }

    #[test]
    fn seal_keys_and_open_keys_of_one_chain_stay_equal_over_epochs() {
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
    fn raw_keys_of_an_idle_direction_stay_small() {
        assert!(size_of::<SealKeys>() <= 80, "{} bytes", size_of::<SealKeys>());
    }
}
