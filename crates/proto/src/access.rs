//! Access control: who may connect, from the server's configuration.
//!
//! `handshake::admission` applies it to Hellos.

use std::time::Duration;

use drumfire_crypto::TokenKey;

use crate::error::ConfigError;
use crate::limits;

/// The clients that may connect to a server.
#[derive(Debug)]
pub enum Access {
    /// Every client that knows the server's public key.
    Open,
    /// Clients with a token from the game's backend or from the server itself.
    Token(TokenAccess),
}

/// The tokens that a server accepts.
#[derive(Debug)]
pub struct TokenAccess {
    /// The keys that seal the tokens: one, or several during a key rotation. Their ids must differ.
    pub keys: Vec<TokenKey>,
    /// The audience that a token must name, for servers that share token keys.
    pub audience: u64,
    /// The time at which the server started, as time since the Unix epoch. Connect tokens that were issued earlier may
    /// have been used already, and are refused. Resume tokens are accepted.
    pub since: Duration,
}

impl Access {
    /// Returns a copy for another shard.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        match self {
            Self::Open => Self::Open,
            Self::Token(access) => Self::Token(TokenAccess {
                keys: access.keys.iter().map(TokenKey::duplicate).collect(),
                audience: access.audience,
                since: access.since,
            }),
        }
    }

    /// Checks the keys.
    ///
    /// # Errors
    /// The field `access` when there are no keys, more than eight, or two with the same id.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self::Token(TokenAccess { keys, .. }) = self else { return Ok(()) };
        let has_duplicates = keys.iter().enumerate().any(|(at, key)| {
            let others = keys.iter().skip(at.saturating_add(1));
            others.into_iter().any(|other| other.id() == key.id())
        });
        if keys.is_empty() || keys.len() > limits::TOKEN_KEYS || has_duplicates {
            return Err(ConfigError { field: "access", must_be: "1 to 8 token keys with different ids" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_crypto::Secret;

    fn access(ids: impl IntoIterator<Item = u32>) -> Access {
        let keys = ids.into_iter().map(|id| TokenKey::new(id, Secret::new([1; 32])).unwrap()).collect();
        Access::Token(TokenAccess { keys, audience: 0, since: Duration::ZERO })
    }

    #[test]
    fn one_to_eight_keys_with_distinct_ids_are_accepted() {
        for (ids, fits) in [(0..0, false), (1..2, true), (1..9, true), (1..10, false)]
            .map(|(ids, fits)| (ids.collect(), fits))
        {
            let ids: Vec<u32> = ids;
            assert_eq!(access(ids.clone()).check().is_ok(), fits, "{ids:?}");
        }
        assert!(access([1, 2, 1]).check().is_err());
        assert!(Access::Open.check().is_ok());
    }
}
