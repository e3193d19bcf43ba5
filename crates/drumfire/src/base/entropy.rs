//! The only module that requests randomness from the system.

use drumfire_proto::Secret;

/// The system has no randomness.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntropyError(pub(super) getrandom::Error);

/// Returns 32 secret bytes.
pub(crate) fn secret() -> Result<Secret<32>, EntropyError> {
    Ok(Secret::new(bytes()?))
}

/// Returns `N` random bytes.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], EntropyError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(EntropyError)?;
    Ok(bytes)
}

/// Returns 32 random bits.
pub(crate) fn bits() -> Result<u32, EntropyError> {
    getrandom::u32().map_err(EntropyError)
}
