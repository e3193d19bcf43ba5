//! Hellos as a server gets them: genuine ones with and without a cookie, and ones that it refuses at each step.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{
    Access, Alone, Config, DropReason, Endpoint, Inbound, IssuedToken, Now, PlayerId, Secret, ServerIdentity,
    Token, TokenAccess, TokenId, TokenKind, TokenMasterKey,
};

use crate::pair::{at_ms, client, server_address, server_with};

/// Where a Hello has its protocol id, the last byte of its token, its cookie and its last byte.
const PROTOCOL_ID_AT: usize = 3;
const TOKEN_LAST: usize = 539;
const COOKIE_AT: usize = 540;
const COOKIE_END: usize = 572;
/// Where a Retry has its cookie.
const RETRY_COOKIE_AT: usize = 9;
const LAST: usize = 1_199;

/// Where the client is.
#[must_use]
pub fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 50_000))
}

/// What an endpoint wants to send next.
pub fn take(endpoint: &mut Endpoint<Alone>, now: Now) -> Option<Vec<u8>> {
    let mut memory = vec![0; 1_200];
    let transmit = endpoint.poll_transmit(now, &mut memory)?;
    memory.truncate(transmit.bytes);
    Some(memory)
}

/// Hands an endpoint one datagram.
pub fn hand(endpoint: &mut Endpoint<Alone>, now: Now, from: SocketAddr, bytes: &mut [u8]) {
    endpoint.handle_datagrams(now, [Inbound { from: from.into(), bytes }]);
}

/// A client and its first Hello.
///
/// # Panics
/// Never: the server's key is a good one.
#[must_use]
pub fn first_hello(identity: &ServerIdentity) -> (Endpoint<Alone>, Vec<u8>) {
    begin(identity, None)
}

/// The same with a token, where the server wants one.
fn begin(identity: &ServerIdentity, token: Option<&IssuedToken>) -> (Endpoint<Alone>, Vec<u8>) {
    let mut client = client(1, true);
    let begun = client.connect(at_ms(0), server_address(), identity, token).ok();
    match begun.and_then(|_| take(&mut client, at_ms(0))) {
        Some(hello) => (client, hello),
        None => panic!("a client says Hello"),
    }
}

/// A client that has its cookie, and its Hello with it.
///
/// # Panics
/// When the server gives no cookie.
pub fn with_cookie(server: &mut Endpoint<Alone>, identity: &ServerIdentity) -> (Endpoint<Alone>, Vec<u8>) {
    let (mut client, mut hello) = first_hello(identity);
    hand(server, at_ms(0), address(), &mut hello);
    let Some(mut retry) = take(server, at_ms(0)) else { panic!("a server answers with a Retry") };
    hand(&mut client, at_ms(0), server_address(), &mut retry);
    match take(&mut client, at_ms(0)) {
        Some(hello) => (client, hello),
        None => panic!("a client uses its cookie"),
    }
}

fn flip(hello: &mut [u8], at: usize) {
    hello.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
}

/// By what a Hello is refused, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It is a byte short.
    Short,
    /// It is of another protocol id.
    OtherProtocol,
    /// It has no cookie.
    NoCookie,
    /// It has a cookie of somebody else's.
    BadCookie,
    /// It has a good cookie and a token that nobody issued.
    BadToken,
    /// It has a good cookie, a good token and a bad MAC.
    BadMac,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Short, Self::OtherProtocol, Self::NoCookie, Self::BadCookie, Self::BadToken, Self::BadMac];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "a byte short",
            Self::OtherProtocol => "of another protocol id",
            Self::NoCookie => "without a cookie",
            Self::BadCookie => "with a cookie of somebody else's",
            Self::BadToken => "with a good cookie and a bad token",
            Self::BadMac => "with a good cookie, a good token and a bad MAC",
        }
    }

    /// Gives it to a Hello with a good cookie.
    fn put_into(self, hello: &mut Vec<u8>) {
        match self {
            Self::Short => hello.truncate(LAST),
            Self::OtherProtocol => flip(hello, PROTOCOL_ID_AT),
            Self::NoCookie => {
                hello.iter_mut().take(COOKIE_END).skip(COOKIE_AT).for_each(|byte| *byte = 0);
            }
            Self::BadCookie => flip(hello, COOKIE_AT),
            Self::BadToken => flip(hello, TOKEN_LAST),
            Self::BadMac => {}
        }
    }

    /// The name under which a server counts it; `None` where it answers with a Retry.
    const fn dropped_as(self) -> Option<DropReason> {
        match self {
            Self::Short => Some(DropReason::WrongLength),
            Self::OtherProtocol => Some(DropReason::WrongProtocol),
            Self::NoCookie | Self::BadCookie => None,
            Self::BadToken => Some(DropReason::TokenForeign),
            Self::BadMac => Some(DropReason::BadMac1),
        }
    }
}

/// A server that wants tokens, and a Hello that gets no further than a certain step of its checks.
#[derive(Debug)]
pub struct Refusals {
    server: Endpoint<Alone>,
    flaw: Flaw,
    hello: Vec<u8>,
    count: u64,
}

impl Refusals {
    /// A server that has heard one genuine client.
    ///
    /// # Panics
    /// Never: keys, token and settings are good ones.
    #[must_use]
    pub fn new(flaw: Flaw) -> Self {
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
        let issued = key.as_ref().and_then(|key| key.issue(&token, 0, [1; 24]).ok());
        let (Some(key), Some(issued)) = (key, issued) else { panic!("a token can be issued") };
        let access = Access::Token(TokenAccess { keys: vec![key], audience: 0, since: Duration::ZERO });
        let (mut server, identity) = server_with(Config::default(), access);
        let (_, mut hello) = begin(&identity, Some(&issued));
        if flaw == Flaw::BadMac {
            // A cookie is good for the MAC with which it was asked for.
            flip(&mut hello, LAST);
        }
        hand(&mut server, at_ms(0), address(), &mut hello);
        let retry = take(&mut server, at_ms(0)).unwrap_or_default();
        let cookie = retry.iter().skip(RETRY_COOKIE_AT);
        hello.iter_mut().take(COOKIE_END).skip(COOKIE_AT).zip(cookie).for_each(|(byte, made)| *byte = *made);
        flaw.put_into(&mut hello);
        Self { server, flaw, hello, count: 0 }
    }

    /// Hands in one more.
    pub fn hand_in(&mut self) {
        self.count += 1;
        let now = self.now();
        hand(&mut self.server, now, address(), &mut self.hello);
    }

    /// Takes out the answers.
    ///
    /// # Panics
    /// When a Hello cost a key agreement, or was refused by something else than its flaw.
    pub fn take_answers(&mut self) {
        let (mut memory, now) = ([0; 1_200], self.now());
        while self.server.poll_transmit(now, &mut memory).is_some() {}
        let stats = self.server.stats();
        assert_eq!(stats.handshakes_computed, 0, "a refused Hello cost a key agreement");
        let expected = if self.flaw.dropped_as().is_some() { self.count } else { 0 };
        assert_eq!(stats.dropped_count(), expected, "{}: drops", self.flaw.name());
        let named = self.flaw.dropped_as().map_or(0, |reason| stats.dropped(reason));
        assert_eq!(named, expected, "{}: drops under its name", self.flaw.name());
    }

    /// What is answered comes each millisecond, so that answers are never short; else time stands still, so that the cookie stays good.
    fn now(&self) -> Now {
        at_ms(if self.flaw.dropped_as().is_none() { self.count } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_refused_for_the_same_reason_however_often_it_is_handed_in() {
        for flaw in Flaw::ALL {
            let mut refusals = Refusals::new(flaw);
            for _ in 0..6_000 {
                refusals.hand_in();
                refusals.take_answers();
            }
        }
    }
}
