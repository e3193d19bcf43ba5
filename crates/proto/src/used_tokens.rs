//! Used tokens and sessions of players: a token opens one session, and a player has one session.
//!
//! One `UsedTokens` serves all shards of a server. A Hello claims its token. The token becomes free again if no
//! connection results, and is used permanently once the connection is confirmed.
//!
//! There is one record of limited size per player, however often the player connects. The id of a resume token is the
//! Hello of the session that sent it. Once a resume token has opened a session, only resume tokens of the newest
//! session are valid, so no list of used ones is needed. Of connect tokens the record holds the last few, and all that
//! were issued before those are refused.
//!
//! A record is kept until everything in it has expired. A forgotten token is refused by its expiry, even if the clock
//! moves back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drumfire_crypto::token::TOKEN_CLOCK_SKEW;
use drumfire_crypto::{PlayerId, TokenId, TokenKind};

use crate::convert::to_usize;
use crate::limits::{
    PLAYERS_PER_CONNECTION, PLAYERS_REMEMBERED_MIN, RESUME_LIFETIME, USED_TOKENS_PER_PLAYER,
};
use crate::placement::HelloHash;

/// The claim of a Hello with a valid token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenClaim {
    /// Whether a backend or the server issued the token.
    pub kind: TokenKind,
    /// The id of the token. All resume tokens of one session share it.
    pub token: TokenId,
    /// The player that the token admits.
    pub player: PlayerId,
    /// The time at which the token was issued, as time since the Unix epoch.
    pub issued_at: Duration,
    /// The time at which the token expires, as time since the Unix epoch.
    pub expires_at: Duration,
}

/// The reason why a claim fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimError {
    /// Another Hello has the token, or it opened a session before.
    Used,
    /// There are too many players to remember.
    Full,
}

/// The tokens and sessions of one server.
#[derive(Debug)]
pub struct UsedTokens {
    /// The claim of each Hello whose connection is half-open or open.
    claims: BTreeMap<HelloHash, TokenClaim>,
    /// The Hello that holds a token, as long as its claim lasts.
    holders: BTreeMap<TokenId, HelloHash>,
    /// The newest confirmed session of each player.
    sessions: BTreeMap<PlayerId, HelloHash>,
    players: BTreeMap<PlayerId, Player>,
    /// All of `players`, by the time when they may be forgotten.
    expiries: BTreeSet<(u64, PlayerId)>,
    player_count_max: usize,
    /// The latest expiry of a forgotten record.
    forgotten_until: u64,
}

/// The record of one player's tokens. Times are in seconds since the Unix epoch.
#[derive(Debug, Default)]
struct Player {
    /// At most [`USED_TOKENS_PER_PLAYER`] connect tokens.
    used: Vec<UsedToken>,
    /// Connect tokens that were issued at this time or before may have been removed from `used`.
    forgotten_until: Option<u64>,
    /// The session whose resume tokens are valid. `None` while no resume token was used, when all are valid.
    resumable: Option<HelloHash>,
    /// The time at which all tokens of this record have expired.
    expires_at: u64,
}

/// A connect token that opened a session.
#[derive(Debug, Clone, Copy)]
struct UsedToken {
    token: TokenId,
    issued_at: u64,
}

impl Player {
    /// Returns whether this token of the player has opened no session yet.
    fn admits(&self, claim: &TokenClaim) -> bool {
        match claim.kind {
            TokenKind::Resume => self.resumable.is_none_or(|session| session.0 == claim.token.0),
            TokenKind::Connect => {
                let is_used = self.used.iter().any(|used| used.token == claim.token);
                !is_used && self.forgotten_until.is_none_or(|until| until < claim.issued_at.as_secs())
            }
        }
    }

    /// Registers that this token opened the session of this Hello.
    fn on_used(&mut self, wall: Duration, claim: &TokenClaim, hello: HelloHash) {
        self.expires_at = self.expires_at.max(claim.expires_at.as_secs());
        match claim.kind {
            TokenKind::Resume => self.resumable = Some(hello),
            TokenKind::Connect => {
                self.resumable = self.resumable.map(|_| hello);
                self.remember(UsedToken { token: claim.token, issued_at: claim.issued_at.as_secs() });
            }
        }
        if self.resumable.is_some() {
            // Older sessions issue no tokens after this moment.
            self.expires_at = self.expires_at.max(wall.saturating_add(RESUME_LIFETIME).as_secs());
        }
    }

    /// Remembers a connect token. When there are too many, it replaces the one that was issued first.
    fn remember(&mut self, used: UsedToken) {
        if self.used.len() < USED_TOKENS_PER_PLAYER {
            return self.used.push(used);
        }
        let oldest = self.used.iter_mut().min_by_key(|used| used.issued_at);
        let forgotten = oldest.map(|place| std::mem::replace(place, used));
        self.forgotten_until = self.forgotten_until.max(forgotten.map(|used| used.issued_at));
    }
}

impl UsedTokens {
    /// Creates the empty state for a server with this many connections.
    #[must_use]
    pub fn new(connections: u32) -> Self {
        let mut tokens = Self {
            claims: BTreeMap::new(),
            holders: BTreeMap::new(),
            sessions: BTreeMap::new(),
            players: BTreeMap::new(),
            expiries: BTreeSet::new(),
            player_count_max: 0,
            forgotten_until: 0,
        };
        tokens.set_connections(connections);
        tokens
    }

    /// Sets how many connections the server may have. Twice as many players are remembered, and at least
    /// [`PLAYERS_REMEMBERED_MIN`]. Existing records beyond that are kept.
    pub fn set_connections(&mut self, connections: u32) {
        let players = to_usize(connections).saturating_mul(PLAYERS_PER_CONNECTION);
        self.player_count_max = players.max(PLAYERS_REMEMBERED_MIN);
    }

    /// Claims a token for a Hello at the time `wall` since the Unix epoch. The same Hello may claim it again.
    ///
    /// # Errors
    /// [`ClaimError`]. Nothing has changed then.
    pub fn claim(&mut self, wall: Duration, claim: &TokenClaim, hello: HelloHash) -> Result<(), ClaimError> {
        self.forget_expired(wall);
        if let Some(holder) = self.holders.get(&claim.token) {
            return if *holder == hello { Ok(()) } else { Err(ClaimError::Used) };
        }
        let is_free = match self.players.get(&claim.player) {
            Some(player) => player.admits(claim),
            None => claim.expires_at.as_secs() > self.forgotten_until,
        };
        if !is_free {
            return Err(ClaimError::Used);
        }
        // Half-open connections may add a few more players, whose tokens were claimed while there was room.
        if self.players.len() >= self.player_count_max && !self.players.contains_key(&claim.player) {
            return Err(ClaimError::Full);
        }
        self.holders.insert(claim.token, hello);
        self.claims.insert(hello, *claim);
        Ok(())
    }

    /// Marks the token of this Hello as used, because its connection was confirmed at the time `wall` since the Unix
    /// epoch. Returns the Hello of an older session of the same player, which must be closed.
    pub fn confirm(&mut self, wall: Duration, hello: HelloHash) -> Option<HelloHash> {
        let claim = self.claims.get(&hello)?;
        let player = self.players.entry(claim.player).or_default();
        self.expiries.remove(&(player.expires_at, claim.player));
        player.on_used(wall, claim, hello);
        self.expiries.insert((player.expires_at, claim.player));
        self.sessions.insert(claim.player, hello).filter(|older| *older != hello)
    }

    /// Releases the claim of a Hello whose connection ended or was never made.
    pub fn release(&mut self, hello: HelloHash) {
        let Some(claim) = self.claims.remove(&hello) else { return };
        self.holders.remove(&claim.token);
        if self.sessions.get(&claim.player) == Some(&hello) {
            self.sessions.remove(&claim.player);
        }
    }

    /// Returns the player whom the token of this Hello admits, while it is claimed.
    #[must_use]
    pub fn player(&self, hello: HelloHash) -> Option<PlayerId> {
        self.claims.get(&hello).map(|claim| claim.player)
    }

    /// Returns the number of claimed tokens, and of remembered players.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.holders.len(), self.players.len())
    }

    fn forget_expired(&mut self, wall: Duration) {
        while let Some((expires_at, player)) = self.expiries.first().copied()
            && Duration::from_secs(expires_at).saturating_add(TOKEN_CLOCK_SKEW) < wall
        {
            self.expiries.pop_first();
            self.players.remove(&player);
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
        let mut id = [0xcc; 16];
        id[0] = token;
        TokenClaim {
            kind: TokenKind::Connect,
            token: TokenId(id),
            player: PlayerId(player),
            issued_at: Duration::from_secs(40),
            expires_at: Duration::from_secs(100),
        }
    }

    /// A resume token of the session of this Hello, issued at this second.
    fn resume(session: u8, player: u128, issued_at: u64) -> TokenClaim {
        let issued_at = Duration::from_secs(issued_at);
        let (token, player) = (TokenId(hello(session).0), PlayerId(player));
        TokenClaim {
            kind: TokenKind::Resume,
            token,
            player,
            issued_at,
            expires_at: issued_at + RESUME_LIFETIME,
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const NOW: Duration = Duration::from_secs(50);

    /// Opens the session of this Hello with this token.
    fn open(
        tokens: &mut UsedTokens,
        now: Duration,
        claim: &TokenClaim,
        number: u8,
    ) -> Result<(), ClaimError> {
        tokens.claim(now, claim, hello(number))?;
        tokens.confirm(now, hello(number));
        Ok(())
    }

    #[test]
    fn a_token_belongs_to_its_first_hello_until_that_fails() {
        let mut tokens = UsedTokens::new(10);
        assert_eq!(tokens.claim(NOW, &claim(1, 1), hello(1)), Ok(()));
        assert_eq!(tokens.claim(NOW, &claim(1, 1), hello(1)), Ok(()), "the same Hello again");
        assert_eq!(tokens.claim(NOW, &claim(1, 1), hello(2)), Err(ClaimError::Used));
        assert_eq!((tokens.player(hello(1)), tokens.player(hello(2))), (Some(PlayerId(1)), None));
        tokens.release(hello(1));
        assert_eq!(tokens.claim(NOW, &claim(1, 1), hello(2)), Ok(()));
        assert_eq!(tokens.counts(), (1, 0));
    }

    #[test]
    fn a_used_token_is_refused_even_for_its_own_hello() {
        let mut tokens = UsedTokens::new(10);
        tokens.claim(NOW, &claim(1, 1), hello(1)).unwrap();
        assert_eq!(tokens.confirm(NOW, hello(1)), None);
        assert_eq!(tokens.claim(NOW, &claim(1, 1), hello(1)), Ok(()), "its owner says what is repeated");
        tokens.release(hello(1));
        for number in 1..=2 {
            assert_eq!(tokens.claim(NOW, &claim(1, 1), hello(number)), Err(ClaimError::Used));
        }
    }

    #[test]
    fn resume_tokens_of_a_session_open_one_session_together() {
        let mut tokens = UsedTokens::new(10);
        open(&mut tokens, NOW, &claim(1, 7), 1).unwrap();
        assert_eq!(tokens.claim(NOW, &resume(1, 7, 50), hello(2)), Ok(()));
        // The token that was sent at half its lifetime belongs to the same session.
        let later = resume(1, 7, 350);
        assert_eq!(
            tokens.claim(seconds(350), &later, hello(3)),
            Err(ClaimError::Used),
            "while it is pending"
        );
        assert_eq!(tokens.confirm(seconds(350), hello(2)), Some(hello(1)));
        tokens.release(hello(1));
        tokens.release(hello(2));
        for used in [resume(1, 7, 50), later] {
            assert_eq!(tokens.claim(seconds(355), &used, hello(3)), Err(ClaimError::Used));
        }
        assert_eq!(open(&mut tokens, seconds(355), &resume(2, 7, 350), 4), Ok(()), "the newest session's");
        assert_eq!(open(&mut tokens, seconds(355), &resume(2, 7, 350), 5), Err(ClaimError::Used));
    }

    #[test]
    fn a_used_resume_token_is_refused_until_it_expires() {
        // Refused once by a record, and once after the record was forgotten.
        let mut tokens = UsedTokens::new(10);
        open(&mut tokens, NOW, &resume(9, 7, 50), 1).unwrap();
        tokens.release(hello(1));
        for now in [51, 300, 655, 656, 10_000] {
            assert_eq!(
                tokens.claim(seconds(now), &resume(9, 7, 50), hello(2)),
                Err(ClaimError::Used),
                "{now}"
            );
        }
        assert_eq!(tokens.counts(), (0, 0));
    }

    #[test]
    fn a_resume_token_without_a_record_is_accepted_once() {
        let mut tokens = UsedTokens::new(10);
        assert_eq!(open(&mut tokens, NOW, &resume(9, 7, 20), 1), Ok(()), "the server was restarted");
        tokens.release(hello(1));
        for of_former_life in [resume(9, 7, 20), resume(8, 7, 30)] {
            assert_eq!(tokens.claim(NOW, &of_former_life, hello(2)), Err(ClaimError::Used));
        }
    }

    #[test]
    fn a_new_connect_token_invalidates_older_resume_tokens() {
        let mut tokens = UsedTokens::new(10);
        open(&mut tokens, NOW, &resume(9, 7, 20), 1).unwrap();
        open(&mut tokens, NOW, &claim(2, 7), 2).unwrap();
        assert_eq!(tokens.claim(NOW, &resume(1, 7, 50), hello(3)), Err(ClaimError::Used));
        assert_eq!(tokens.claim(NOW, &resume(2, 7, 50), hello(3)), Ok(()));
    }

    #[test]
    fn the_newest_connect_tokens_of_a_player_are_remembered() {
        let mut tokens = UsedTokens::new(10);
        let issued = |second: u8| TokenClaim { issued_at: seconds(second.into()), ..claim(second, 7) };
        let newest = 2 * u8::try_from(USED_TOKENS_PER_PLAYER).unwrap() + 1;
        for second in (1..=newest).step_by(2) {
            assert_eq!(open(&mut tokens, NOW, &issued(second), second), Ok(()));
            tokens.release(hello(second));
        }
        // The first token is forgotten, and with it all that are as old.
        let tries = [
            (1, false),
            (newest, false),
            (3, false),
            (2, true),
            (3, false),
            (newest - 1, true),
            (2, false),
            (5, false),
        ];
        for (second, is_taken) in tries {
            assert_eq!(open(&mut tokens, NOW, &issued(second), 100 + second).is_ok(), is_taken, "{second}");
            tokens.release(hello(100 + second));
        }
        assert_eq!(tokens.counts(), (0, 1), "one record, whatever the player does");
    }

    #[test]
    fn other_players_are_refused_until_a_record_expires() {
        let mut tokens = UsedTokens { player_count_max: 2, ..UsedTokens::new(1) };
        for number in 1..=2 {
            open(&mut tokens, NOW, &claim(number, number.into()), number).unwrap();
            tokens.release(hello(number));
        }
        let late = |token, player| TokenClaim { expires_at: seconds(200), ..claim(token, player) };
        assert_eq!(tokens.claim(NOW, &late(3, 3), hello(3)), Err(ClaimError::Full));
        assert_eq!(tokens.claim(NOW, &claim(4, 2), hello(4)), Ok(()), "a player who has a record");
        assert_eq!(tokens.claim(seconds(105), &late(3, 3), hello(3)), Err(ClaimError::Full));
        assert_eq!(tokens.claim(seconds(106), &late(3, 3), hello(3)), Ok(()));
        assert_eq!(tokens.counts(), (2, 0));
    }

    #[test]
    fn twice_as_many_players_as_connections_are_remembered() {
        let max = |connections| UsedTokens::new(connections).player_count_max;
        let (few, usual) = (max(1), max(crate::limits::CONNECTIONS));
        assert_eq!((few, usual, max(200_000)), (32_768, 131_072, 400_000));
        // The maximum memory of a player, without that of the maps.
        assert!(size_of::<Player>() + USED_TOKENS_PER_PLAYER * size_of::<UsedToken>() <= 500);
    }

    #[test]
    fn a_clock_that_jumps_back_reopens_no_forgotten_token() {
        let mut tokens = UsedTokens::new(2);
        open(&mut tokens, NOW, &claim(1, 1), 1).unwrap();
        tokens.release(hello(1));
        let later = TokenClaim { expires_at: seconds(4_000), ..claim(2, 2) };
        tokens.claim(seconds(3_700), &later, hello(2)).unwrap();
        assert_eq!(tokens.claim(NOW, &claim(1, 1), hello(1)), Err(ClaimError::Used));
        let fresh = TokenClaim { expires_at: seconds(101), ..claim(3, 3) };
        assert_eq!(
            tokens.claim(NOW, &fresh, hello(3)),
            Ok(()),
            "only what may have been forgotten is refused"
        );
    }

    #[test]
    fn a_returning_player_replaces_the_older_session_once() {
        let mut tokens = UsedTokens::new(10);
        for number in 1..=3 {
            tokens.claim(NOW, &claim(number, 7), hello(number)).unwrap();
        }
        assert_eq!(tokens.confirm(NOW, hello(1)), None);
        assert_eq!(tokens.confirm(NOW, hello(2)), Some(hello(1)));
        tokens.release(hello(1));
        assert_eq!(tokens.confirm(NOW, hello(3)), Some(hello(2)));
        tokens.release(hello(3));
        assert_eq!(tokens.confirm(NOW, hello(2)), None, "there is no older session");
    }

    #[test]
    fn releasing_or_confirming_an_unclaimed_hello_is_harmless() {
        let mut tokens = UsedTokens::new(1);
        tokens.release(hello(1));
        assert_eq!((tokens.confirm(NOW, hello(1)), tokens.counts()), (None, (0, 0)));
    }
}
