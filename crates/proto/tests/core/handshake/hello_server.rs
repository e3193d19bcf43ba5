//! A server, and Hellos that are valid until a test invalidates them.
//!
//! Clients here never respond to a Welcome.

use crate::handshake::tokens::{NOW, key};
use crate::harness::{SERVER, address, identity, server_config};
use drumfire_crypto::Mac1Key;
use drumfire_proto::{
    Access, ClientConfig, Config, DropReason, Endpoint, Inbound, IssuedToken, Moment, Now, Placement, Secret,
    ServerConfig, SingleWorker, TokenAccess,
};
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) const HELLO_BYTES: usize = 1_200;
/// The offset of the cookie in a Retry, and in a Hello.
const COOKIE_OF_RETRY: std::ops::Range<usize> = 9..41;
pub(crate) const COOKIE: std::ops::Range<usize> = 540..572;
pub(crate) const NOISE: std::ops::Range<usize> = 572..HELLO_BYTES - 16;
pub(crate) const MAC1: std::ops::Range<usize> = HELLO_BYTES - 16..HELLO_BYTES;

const RETRY: u8 = 0x8a;
const WELCOME: u8 = 0x8c;

pub(crate) type Hello = [u8; HELLO_BYTES];

/// Returns a Hello of a new client, without a cookie.
pub(crate) fn hello(now: Now, number: u32, token: Option<&IssuedToken>) -> Hello {
    let mut seed = [0x1d; 32];
    seed[..4].copy_from_slice(&number.to_be_bytes());
    let mut client = Endpoint::client(Config::default(), ClientConfig::default(), Secret::new(seed)).unwrap();
    client.connect(now, address(SERVER), &identity(), token).unwrap();
    let mut bytes = [0; HELLO_BYTES];
    assert_eq!(client.poll_transmit(now, &mut bytes).unwrap().bytes, HELLO_BYTES);
    bytes
}

/// Computes the first MAC of a Hello again, after a test changed the covered bytes.
pub(crate) fn seal(hello: &mut Hello, token: Option<&IssuedToken>) {
    let psk = token.map_or(Secret::zeroed(), |token| token.psk.duplicate());
    let parts = drumfire_wire::Hello::decode(hello).unwrap().mac1_input();
    let mac = Mac1Key::derive(&identity().public_key, &psk).mac(&parts);
    hello[MAC1].copy_from_slice(&mac);
}

/// A loopback address, which no source limit covers.
pub(crate) fn exempt() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7_000))
}

/// An address of a separate source.
pub(crate) fn source(number: u32) -> SocketAddr {
    SocketAddr::from(((0x0a00_0000 + number).to_be_bytes(), 7_000))
}

/// The configuration of a server that requires tokens.
pub(crate) fn by_token() -> ServerConfig {
    let since = NOW - Duration::from_secs(10);
    server_config().access(Access::Token(TokenAccess { keys: vec![key(1)], audience: 3, since }))
}

/// A server, and the counters of its handshakes.
pub(crate) struct HelloServer<P = SingleWorker> {
    pub(crate) server: Endpoint<P>,
    pub(crate) now: Now,
    /// The number of Hellos made so far.
    made: u32,
}

impl HelloServer {
    /// Creates a server without a limit of Retries.
    pub(crate) fn new(config: ServerConfig) -> Self {
        Self::with_placement(config, SingleWorker::default())
    }

    pub(crate) fn with_its_retries(config: ServerConfig) -> Self {
        Self::with(config, SingleWorker::default())
    }
}

impl<P: Placement> HelloServer<P> {
    /// Creates a server without a limit of Retries, and with this placement.
    pub(crate) fn with_placement(mut config: ServerConfig, placement: P) -> Self {
        config.retries_per_second = 1_000_000;
        Self::with(config, placement)
    }

    fn with(config: ServerConfig, placement: P) -> Self {
        let server = Endpoint::server(Config::default(), config, placement, Secret::new([8; 32]));
        let now = Now { monotonic: Moment::from_nanos(60_000_000_000), wall: NOW };
        Self { server: server.unwrap(), now, made: 0 }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now = Now { monotonic: self.now.monotonic.after(time), wall: self.now.wall + time };
        self.server.handle_timeout(self.now);
    }

    /// Passes a datagram to the server, and returns its responses.
    pub(crate) fn deliver(&mut self, from: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
        let (now, mut bytes, mut memory) = (self.now, datagram.to_vec(), [0; HELLO_BYTES]);
        self.server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut bytes }]);
        let answer = self.server.poll_transmit(now, &mut memory)?;
        assert_eq!(answer.to.peer, from);
        assert!(self.server.poll_transmit(now, &mut []).is_none(), "one answer at most");
        Some(memory[..answer.bytes].to_vec())
    }

    /// Writes the present cookie of this address into a Hello.
    pub(crate) fn prove(&mut self, from: SocketAddr, hello: &mut Hello) {
        hello[COOKIE].fill(0);
        let retry = self.deliver(from, hello).expect("a Retry");
        assert_eq!(retry[0], RETRY);
        hello[COOKIE].copy_from_slice(&retry[COOKIE_OF_RETRY]);
    }

    /// Returns a new Hello with its cookie.
    pub(crate) fn proved(&mut self, from: SocketAddr, token: Option<&IssuedToken>) -> Hello {
        self.made += 1;
        let mut hello = hello(self.now, self.made, token);
        self.prove(from, &mut hello);
        hello
    }

    /// Whether this Hello gets a Welcome now.
    pub(crate) fn welcomes(&mut self, from: SocketAddr, hello: &Hello) -> bool {
        self.deliver(from, hello).is_some_and(|answer| answer[0] == WELCOME)
    }

    /// Whether a new client gets a Welcome from here now.
    pub(crate) fn accepts_client(&mut self, from: SocketAddr) -> bool {
        let hello = self.proved(from, None);
        self.welcomes(from, &hello)
    }

    /// The number of key agreements, and of Hellos dropped for this reason.
    pub(crate) fn computed_and(&self, reason: DropReason) -> (u64, u64) {
        let stats = self.server.stats();
        assert_eq!(stats.unexplained(), 0);
        (stats.handshakes_computed, stats.dropped(reason))
    }
}
