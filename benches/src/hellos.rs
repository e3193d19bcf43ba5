//! Hellos as a server gets them: genuine ones with and without a cookie, and ones that it refuses at each step.

use std::net::SocketAddr;

use drumfire_proto::{Alone, Endpoint, Inbound, Now, ServerIdentity};

use crate::pair::{at_ms, client, server, server_address};

/// Where a Hello has its protocol id, its cookie, its Noise message and its last byte.
const PROTOCOL_ID_AT: usize = 3;
const COOKIE_AT: usize = 540;
const COOKIE_END: usize = 572;
const LAST: usize = 1_199;

/// A cookie is good for so long at least.
const COOKIE_LIFE_MS: u64 = 4_000;

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
    let mut client = client(1, true);
    let begun = client.connect(at_ms(0), server_address(), identity, None).ok();
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

/// A server, and Hellos that get no further than a certain step of its checks.
#[derive(Debug)]
pub struct Refusals {
    server: Endpoint<Alone>,
    /// By what they are refused.
    pub classes: [(&'static str, Vec<u8>); 5],
    milliseconds: u64,
}

impl Refusals {
    /// A server that has seen one genuine client.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it makes keys and a handshake")]
    pub fn new() -> Self {
        let (mut server, identity) = server();
        let (_, genuine) = with_cookie(&mut server, &identity);
        let changed = |at: usize| {
            let mut hello = genuine.clone();
            hello.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
            hello
        };
        let mut without = genuine.clone();
        without.iter_mut().take(COOKIE_END).skip(COOKIE_AT).for_each(|byte| *byte = 0);
        let classes = [
            ("a byte short", genuine.iter().copied().take(LAST).collect()),
            ("of another protocol id", changed(PROTOCOL_ID_AT)),
            ("without a cookie", without),
            ("with a cookie of somebody else's", changed(COOKIE_AT)),
            ("with a good cookie and a bad MAC", changed(LAST)),
        ];
        Self { server, classes, milliseconds: 0 }
    }

    /// Hands in one of this class, a millisecond after the one before, and takes out the answer.
    ///
    /// # Panics
    /// When it cost the server a key agreement.
    pub fn hand_in(&mut self, class: usize) {
        self.milliseconds += 1;
        let now = at_ms(self.milliseconds % COOKIE_LIFE_MS);
        let Some((_, hello)) = self.classes.get_mut(class) else { return };
        hand(&mut self.server, now, address(), hello);
        let mut memory = [0; 1_200];
        while self.server.poll_transmit(now, &mut memory).is_some() {}
        assert_eq!(self.server.stats().handshakes_computed, 0, "a refused Hello cost a key agreement");
    }
}
