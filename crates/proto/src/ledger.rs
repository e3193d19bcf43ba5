//! Which tokens are used, and which session is whose: what makes a token open one session, and a player have one.
//!
//! One ledger serves all shards of a server. A token is claimed by its first Hello, free again when nothing comes of
//! that, and consumed for good when the connection is confirmed. Nothing of a consumed token is forgotten before it
//! has expired; what was forgotten is refused by its expiry, whatever the clocks do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drumfire_crypto::plant::{self, Plant};
use drumfire_crypto::token::TOKEN_CLOCK_SKEW;
use drumfire_crypto::{PlayerId, TokenId};

use crate::placement::HelloHash;

/// What a Hello with a good token asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenClaim {
    /// The token.
    pub token: TokenId,
    /// Whom it admits.
    pub player: PlayerId,
    /// When it stops to be good, since 1970.
    pub expires_at: Duration,
}

/// Why a claim fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimError {
    /// Another Hello has the token, or its session is over.
    Used,
    /// There are too many tokens to keep in mind.
    Full,
}

/// The tokens and sessions of one server.
#[derive(Debug)]
pub struct TokenLedger {
    tokens: BTreeMap<TokenId, Use>,
    /// Consumed tokens by their expiry, in seconds since 1970.
    consumed: BTreeSet<(u64, TokenId)>,
    sessions: BTreeMap<HelloHash, Session>,
    players: BTreeMap<PlayerId, HelloHash>,
    token_count_max: usize,
    /// The latest expiry of a token that was forgotten.
    forgotten_until: u64,
}

#[derive(Debug)]
struct Use {
    /// The Hello that has it; none once its session is over.
    hello: Option<HelloHash>,
    expires_at: u64,
    is_consumed: bool,
}

#[derive(Debug)]
struct Session {
    token: TokenId,
    player: PlayerId,
}

impl TokenLedger {
    /// An empty ledger for so many tokens at once.
    #[must_use]
    pub const fn new(token_count_max: usize) -> Self {
        Self {
            tokens: BTreeMap::new(),
            consumed: BTreeSet::new(),
            sessions: BTreeMap::new(),
            players: BTreeMap::new(),
            token_count_max,
            forgotten_until: 0,
        }
    }

    /// Claims a token for a Hello at this time since 1970. The same Hello may claim it again.
    ///
    /// # Errors
    /// [`ClaimError`]; nothing has changed then.
    pub fn claim(&mut self, wall: Duration, claim: &TokenClaim, hello: HelloHash) -> Result<(), ClaimError> {
        self.forget_expired(wall);
        let expires_at = claim.expires_at.as_secs();
        if let Some(used) = self.tokens.get(&claim.token) {
            let is_owner = used.hello == Some(hello) || plant::is(Plant::TokenTwice);
            return if is_owner { Ok(()) } else { Err(ClaimError::Used) };
        }
        if expires_at <= self.forgotten_until {
            return Err(ClaimError::Used);
        }
        if self.tokens.len() >= self.token_count_max {
            return Err(ClaimError::Full);
        }
        self.tokens.insert(claim.token, Use { hello: Some(hello), expires_at, is_consumed: false });
        self.sessions.insert(hello, Session { token: claim.token, player: claim.player });
        Ok(())
    }

    /// The connection of this Hello is confirmed: its token is consumed. Answers the Hello of an older session of the
    /// same player, which is to be closed.
    pub fn confirm(&mut self, hello: HelloHash) -> Option<HelloHash> {
        let session = self.sessions.get(&hello)?;
        if let Some(used) = self.tokens.get_mut(&session.token) {
            used.is_consumed = true;
            self.consumed.insert((used.expires_at, session.token));
        }
        self.players.insert(session.player, hello).filter(|older| *older != hello)
    }

    /// The connection of this Hello is over, or never came to be.
    pub fn release(&mut self, hello: HelloHash) {
        let Some(session) = self.sessions.remove(&hello) else { return };
        if self.players.get(&session.player) == Some(&hello) {
            self.players.remove(&session.player);
        }
        match self.tokens.get_mut(&session.token) {
            Some(used) if used.is_consumed => used.hello = None,
            _ => {
                self.tokens.remove(&session.token);
            }
        }
    }

    /// Whom the token of this Hello admits, while it is claimed.
    #[must_use]
    pub fn player(&self, hello: HelloHash) -> Option<PlayerId> {
        self.sessions.get(&hello).map(|session| session.player)
    }

    /// Tokens that are kept in mind.
    #[must_use]
    pub fn token_count(&self) -> usize {
        self.tokens.len()
    }

    fn forget_expired(&mut self, wall: Duration) {
        while let Some((expires_at, token)) = self.consumed.first().copied()
            && Duration::from_secs(expires_at).saturating_add(TOKEN_CLOCK_SKEW) < wall
        {
            self.consumed.pop_first();
            self.tokens.remove(&token);
            self.forgotten_until = self.forgotten_until.max(expires_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(number: u8) -> HelloHash {
        HelloHash([number; 16])
    }

    fn claim(token: u8, player: u128) -> TokenClaim {
        let (token, player) = (TokenId([token; 16]), PlayerId(player));
        TokenClaim { token, player, expires_at: Duration::from_secs(100) }
    }

    const NOW: Duration = Duration::from_secs(50);

    #[test]
    fn a_token_is_its_first_hellos_until_that_comes_to_nothing() {
        let mut ledger = TokenLedger::new(10);
        assert_eq!(ledger.claim(NOW, &claim(1, 1), hello(1)), Ok(()));
        assert_eq!(ledger.claim(NOW, &claim(1, 1), hello(1)), Ok(()), "the same Hello again");
        assert_eq!(ledger.claim(NOW, &claim(1, 1), hello(2)), Err(ClaimError::Used));
        assert_eq!((ledger.player(hello(1)), ledger.player(hello(2))), (Some(PlayerId(1)), None));
        ledger.release(hello(1));
        assert_eq!(ledger.claim(NOW, &claim(1, 1), hello(2)), Ok(()));
        assert_eq!(ledger.token_count(), 1);
    }

    #[test]
    fn a_consumed_token_opens_nothing_more_not_even_for_its_own_hello() {
        let mut ledger = TokenLedger::new(10);
        ledger.claim(NOW, &claim(1, 1), hello(1)).unwrap();
        assert_eq!(ledger.confirm(hello(1)), None);
        assert_eq!(ledger.claim(NOW, &claim(1, 1), hello(1)), Ok(()), "its owner says what is repeated");
        ledger.release(hello(1));
        for number in 1..=2 {
            assert_eq!(ledger.claim(NOW, &claim(1, 1), hello(number)), Err(ClaimError::Used));
        }
    }

    #[test]
    fn a_full_ledger_refuses_and_expired_tokens_make_room_five_seconds_later() {
        let mut ledger = TokenLedger::new(2);
        for number in 1..=2 {
            ledger.claim(NOW, &claim(number, number.into()), hello(number)).unwrap();
            ledger.confirm(hello(number));
            ledger.release(hello(number));
        }
        let late = TokenClaim { expires_at: Duration::from_secs(200), ..claim(3, 3) };
        assert_eq!(ledger.claim(NOW, &late, hello(3)), Err(ClaimError::Full));
        assert_eq!(ledger.claim(Duration::from_secs(105), &late, hello(3)), Err(ClaimError::Full));
        assert_eq!(ledger.claim(Duration::from_secs(106), &late, hello(3)), Ok(()));
        assert_eq!(ledger.token_count(), 1);
    }

    #[test]
    fn a_clock_that_went_forward_and_back_opens_no_forgotten_token() {
        let mut ledger = TokenLedger::new(2);
        ledger.claim(NOW, &claim(1, 1), hello(1)).unwrap();
        ledger.confirm(hello(1));
        ledger.release(hello(1));
        let later = TokenClaim { expires_at: Duration::from_secs(4_000), ..claim(2, 2) };
        ledger.claim(Duration::from_secs(3_700), &later, hello(2)).unwrap();
        assert_eq!(ledger.claim(NOW, &claim(1, 1), hello(1)), Err(ClaimError::Used));
        let fresh = TokenClaim { expires_at: Duration::from_secs(101), ..claim(3, 3) };
        assert_eq!(
            ledger.claim(NOW, &fresh, hello(3)),
            Ok(()),
            "only what may have been forgotten is refused"
        );
    }

    #[test]
    fn a_player_who_comes_again_replaces_the_older_session_once() {
        let mut ledger = TokenLedger::new(10);
        for number in 1..=3 {
            ledger.claim(NOW, &claim(number, 7), hello(number)).unwrap();
        }
        assert_eq!(ledger.confirm(hello(1)), None);
        assert_eq!(ledger.confirm(hello(2)), Some(hello(1)));
        ledger.release(hello(1));
        assert_eq!(ledger.confirm(hello(3)), Some(hello(2)));
        ledger.release(hello(3));
        assert_eq!(ledger.confirm(hello(2)), None, "nobody else is there");
    }

    #[test]
    fn what_was_never_claimed_can_be_released_and_confirmed_without_harm() {
        let mut ledger = TokenLedger::new(1);
        ledger.release(hello(1));
        assert_eq!((ledger.confirm(hello(1)), ledger.token_count()), (None, 0));
    }
}
