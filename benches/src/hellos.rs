//! Hellos in memory that a server refuses at each of its checks.

use std::time::Duration;

use drumfire_proto::{
    Access, ClientConfig, Config, DropReason, Endpoint, Now, PlayerId, Secret, SingleWorker, Token,
    TokenAccess, TokenId, TokenKind, TokenMasterKey,
};

use crate::memory::{
    DATAGRAM_BYTES, at_ms, client, client_address, pass_datagram, server, server_address, take_datagram,
};

/// Offsets in a Hello: the last byte of the token, the cookie, and the last byte of the datagram.
const TOKEN_LAST: usize = 539;
const COOKIE: std::ops::Range<usize> = 540..572;
const LAST: usize = DATAGRAM_BYTES - 1;

/// The offset of the cookie in a Retry.
const RETRY_COOKIE_AT: usize = 9;

/// The reason why a server refuses a Hello, in the order of the server's checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The Hello has no cookie.
    NoCookie,
    /// The cookie was made for another client.
    BadCookie,
    /// The token was not issued.
    BadToken,
    /// The MAC is wrong.
    BadMac,
}

impl Flaw {
    /// The reason under which the server counts the Hello. With `None` the server sends a Retry instead.
    const fn drop_reason(self) -> Option<DropReason> {
        match self {
            Self::NoCookie | Self::BadCookie => None,
            Self::BadToken => Some(DropReason::TokenForeign),
            Self::BadMac => Some(DropReason::BadMac1),
        }
    }
}

/// A server that requires tokens, and a Hello with one flaw.
#[derive(Debug)]
pub struct Refusals {
    server: Endpoint<SingleWorker>,
    flaw: Flaw,
    hello: Vec<u8>,
    count: u64,
}

impl Refusals {
    /// Makes a Hello that is genuine except for the flaw.
    pub fn new(flaw: Flaw) -> Result<Self, String> {
        let token = Token {
            kind: TokenKind::Connect,
            id: TokenId([1; 16]),
            player: PlayerId(1),
            psk: Secret::new([4; 32]),
            audience: 0,
            issued_at: Duration::ZERO,
            expires_at: Duration::from_secs(60),
            session_ends_at: None,
            placement_key: None,
            user_data: Box::default(),
        };
        let key = TokenMasterKey::new(Secret::new([7; 32])).token_key(1, b"bench");
        let key = key.ok_or("no key for tokens")?;
        let issued = key.issue(&token, 0, [1; 24]).map_err(|error| error.to_string())?;
        let access = Access::Token(TokenAccess { keys: vec![key], audience: 0, since: Duration::ZERO });
        let (mut server, identity) = server(Config::default(), access)?;
        let mut client = client(Config::default().has_aes_gcm(true), ClientConfig::default(), 1)?;
        let begins = client.connect(at_ms(0), server_address(), &identity, Some(&issued));
        begins.map_err(|error| error.to_string())?;
        let mut hello = take_datagram(&mut client, at_ms(0)).ok_or("the client sends no Hello")?;
        if flaw == Flaw::BadMac {
            // A cookie is valid for the MAC of the Hello that asked for it.
            hello[LAST] ^= 1;
        }
        pass_datagram(&mut server, at_ms(0), client_address(), &mut hello);
        let retry = take_datagram(&mut server, at_ms(0)).ok_or("the server sends no Retry")?;
        hello[COOKIE].copy_from_slice(&retry[RETRY_COOKIE_AT..RETRY_COOKIE_AT + COOKIE.len()]);
        match flaw {
            Flaw::NoCookie => hello[COOKIE].fill(0),
            Flaw::BadCookie => hello[COOKIE.start] ^= 1,
            Flaw::BadToken => hello[TOKEN_LAST] ^= 1,
            Flaw::BadMac => {}
        }
        Ok(Self { server, flaw, hello, count: 0 })
    }

    /// Passes the Hello to the server once more.
    pub fn pass_hello(&mut self) {
        self.count += 1;
        let now = self.now();
        pass_datagram(&mut self.server, now, client_address(), &mut self.hello);
    }

    /// Takes the server's answers.
    ///
    /// # Panics
    ///
    /// When a Hello cost a key agreement, or was refused for another reason than its flaw.
    pub fn take_answers(&mut self) {
        let now = self.now();
        let mut memory = [0; DATAGRAM_BYTES];
        while self.server.poll_transmit(now, &mut memory).is_some() {}
        let (stats, reason) = (self.server.stats(), self.flaw.drop_reason());
        assert_eq!(stats.handshakes_computed, 0, "a refused Hello cost a key agreement");
        let expected = if reason.is_some() { self.count } else { 0 };
        let named = reason.map_or(0, |reason| stats.dropped(reason));
        assert_eq!((stats.dropped_count(), named), (expected, expected), "{:?}: drops", self.flaw);
    }

    /// The rate of Retries is limited, so a Hello that gets one is passed every millisecond. Otherwise the time does not advance, because a cookie
    /// expires.
    fn now(&self) -> Now {
        at_ms(if self.flaw.drop_reason().is_none() { self.count } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_hello_keeps_its_reason() {
        for flaw in [Flaw::NoCookie, Flaw::BadCookie, Flaw::BadToken, Flaw::BadMac] {
            let mut refusals = Refusals::new(flaw).expect("a Hello");
            for _ in 0..6_000 {
                refusals.pass_hello();
                refusals.take_answers();
            }
        }
    }
}
