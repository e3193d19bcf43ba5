//! Randomness from the system: the one place that asks for it.

use std::fmt;

use drumfire_proto::Secret;

/// The system has no randomness to give, so no key can be made.
#[derive(Clone, Copy)]
pub struct EntropyError(getrandom::Error);

impl fmt::Display for EntropyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the system gives no randomness: {}", self.0)
    }
}

impl std::error::Error for EntropyError {}

drumfire_proto::debug_with_display!(EntropyError);

/// 32 secret bytes.
pub(crate) fn secret() -> Result<Secret<32>, EntropyError> {
    Ok(Secret::new(bytes()?))
}

/// `N` random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], EntropyError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(EntropyError)?;
    Ok(bytes)
}

/// 32 random bits.
pub(crate) fn bits() -> Result<u32, EntropyError> {
    getrandom::u32().map_err(EntropyError)
}

/// An error as if the system had no randomness.
#[cfg(all(test, feature = "tokio"))]
pub(crate) const fn failure() -> EntropyError {
    EntropyError(getrandom::Error::UNSUPPORTED)
}
