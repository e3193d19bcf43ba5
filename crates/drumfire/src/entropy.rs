//! Randomness from the system: the one place that asks for it.

use std::fmt;

use drumfire_proto::Secret;

/// The system has no randomness to give, so no key can be made.
#[derive(Clone, Copy, Debug)]
pub struct EntropyError(getrandom::Error);

impl fmt::Display for EntropyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the system gives no randomness: {}", self.0)
    }
}

impl std::error::Error for EntropyError {}

/// 32 secret bytes.
pub(crate) fn secret() -> Result<Secret<32>, EntropyError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(EntropyError)?;
    Ok(Secret::new(bytes))
}

/// 32 random bits.
pub(crate) fn bits() -> Result<u32, EntropyError> {
    getrandom::u32().map_err(EntropyError)
}
