//! A million Hellos from a million addresses leave no memory behind on the server, as counted by the allocator.
//!
//! `DRUMFIRE_FULL=1` sends a million, and other runs a hundredth of them.

use allocation_counter::measure;
use drumfire_proto::{
    Access, ClientConfig, Config, DropReason, Endpoint, Inbound, IssuedToken, Moment, Now, PlayerId, Secret,
    ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker, Token, TokenAccess, TokenId, TokenKey,
    TokenKind, TokenMasterKey,
};
use drumfire_tries::tries;
use std::net::{Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

const HELLO_BYTES: usize = 1_200;
const COOKIE: Range<usize> = 540..572;
const COOKIE_OF_RETRY: Range<usize> = 9..41;
const WALL: Duration = Duration::from_secs(1_700_000_000);

fn hellos() -> u32 {
    tries(1_000_000)
}

fn keys() -> ServerKeyPair {
    ServerKeyPair::from_secret(Secret::new([1; 32]))
}

struct Server {
    server: Endpoint,
    now: Now,
    memory: Box<[u8; HELLO_BYTES]>,
}

impl Server {
    fn new(access: Access) -> Self {
        let mut config = ServerConfig::new(keys(), Secret::new([2; 32]), Secret::new([3; 32])).access(access);
        config.retries_per_second = 1_000_000;
        let server =
            Endpoint::server(Config::default(), config, SingleWorker::default(), Secret::new([5; 32]));
        let now = Now { monotonic: Moment::from_nanos(60_000_000_000), wall: WALL };
        Self { server: server.unwrap(), now, memory: Box::new([0; HELLO_BYTES]) }
    }

    /// Passes a Hello to the server and takes its responses, ten microseconds later.
    fn deliver(&mut self, from: SocketAddr, hello: &[u8; HELLO_BYTES]) {
        self.now.monotonic = self.now.monotonic.after(Duration::from_micros(10));
        *self.memory = *hello;
        let inbound = Inbound { from: from.into(), bytes: &mut self.memory[..] };
        self.server.handle_datagrams(self.now, [inbound]);
        while self.server.poll_transmit(self.now, &mut self.memory[..]).is_some() {}
    }

    /// Returns the cookie of this address for this Hello.
    fn cookie(&mut self, from: SocketAddr, hello: &[u8; HELLO_BYTES]) -> [u8; 32] {
        let mut first = *hello;
        first[COOKIE].fill(0);
        self.deliver(from, &first);
        assert_eq!(self.memory[0], 0x8a, "a Retry");
        self.memory[COOKIE_OF_RETRY].try_into().unwrap()
    }
}

fn hello(token: Option<&IssuedToken>) -> [u8; HELLO_BYTES] {
    let identity = ServerIdentity { public_key: *keys().public(), key_id: 0 };
    let mut client =
        Endpoint::client(Config::default(), ClientConfig::default(), Secret::new([4; 32])).unwrap();
    let now = Now { monotonic: Moment::from_nanos(1), wall: WALL };
    client.connect(now, SocketAddr::from(([198, 51, 100, 1], 7)), &identity, token).unwrap();
    let mut bytes = [0; HELLO_BYTES];
    assert_eq!(client.poll_transmit(now, &mut bytes).unwrap().bytes, HELLO_BYTES);
    bytes
}

/// Each address is a source of its own: alternately an IPv4 address and an IPv6 /64.
fn address(number: u32) -> SocketAddr {
    let mixed = number.wrapping_mul(0x9e37_79b1);
    if number.is_multiple_of(2) {
        let [_, b, c, d] = mixed.to_be_bytes();
        return SocketAddr::from(([10, b, c, d], 7));
    }
    let home = 0x2001_0db8_u128 << 96 | u128::from(mixed) << 64;
    SocketAddr::from((Ipv6Addr::from_bits(home | 1), 7))
}

#[test]
fn a_million_hellos_from_unproved_addresses_allocate_nothing() {
    let (mut harness, good) = (Server::new(Access::Open), hello(None));
    // A third has no cookie, a third a cookie of another client, and a third a random one.
    let of_another = harness.cookie(address(0), &good);
    let mut flood = |numbers: Range<u32>| {
        for number in numbers {
            let mut hello = good;
            match number % 3 {
                0 => hello[COOKIE].fill(0),
                1 => hello[COOKIE].copy_from_slice(&of_another),
                _ => hello[COOKIE].fill(number.to_le_bytes()[1]),
            }
            harness.deliver(address(number), &hello);
        }
    };
    flood(1..1_000);
    let info = measure(|| flood(1_000..hellos()));
    assert_eq!((info.count_total, info.bytes_current), (0, 0));
    let stats = harness.server.stats();
    assert_eq!(
        (harness.server.connection_count(), stats.handshakes_computed, stats.unexplained()),
        (0, 0, 0)
    );
    assert_eq!(harness.server.poll_timeout(), None);
}

/// The same number of otherwise invalid Hellos with valid cookies, each from its own address.
fn grown_by_proved(
    harness: &mut Server,
    good: &[u8; HELLO_BYTES],
    count: u32,
    counted_as: DropReason,
) -> i64 {
    let mut flood = |numbers: Range<u32>| {
        for number in numbers {
            let mut hello = *good;
            // A cookie is valid for the MAC with which it was requested.
            hello[HELLO_BYTES - 4..].copy_from_slice(&number.to_be_bytes());
            let cookie = harness.cookie(address(number), &hello);
            hello[COOKIE].copy_from_slice(&cookie);
            harness.deliver(address(number), &hello);
        }
    };
    flood(1..1_000);
    let info = measure(|| flood(1_000..count));
    assert_eq!(harness.server.stats().dropped(counted_as), u64::from(count) - 1);
    assert_eq!((harness.server.connection_count(), harness.server.stats().handshakes_computed), (0, 0));
    info.bytes_current
}

#[test]
fn invalid_hellos_from_proved_addresses_retain_no_memory() {
    let mut open = Server::new(Access::Open);
    assert_eq!(grown_by_proved(&mut open, &hello(None), hellos() / 2, DropReason::BadMac1), 0);
    let key = || -> TokenKey { TokenMasterKey::new(Secret::new([7; 32])).token_key(1, b"eu-1").unwrap() };
    let token = Token {
        kind: TokenKind::Connect,
        id: TokenId([1; 16]),
        player: PlayerId(1),
        psk: Secret::new([1; 32]),
        audience: 3,
        issued_at: WALL,
        expires_at: WALL + Duration::from_secs(60),
        session_ends_at: None,
        placement_key: None,
        user_data: vec![1; 50].into(),
    };
    let issued = key().issue(&token, 0, [1; 24]).unwrap();
    let access = || Access::Token(TokenAccess { keys: vec![key()], audience: 3, since: Duration::ZERO });
    let mut by_token = Server::new(access());
    assert_eq!(grown_by_proved(&mut by_token, &hello(Some(&issued)), hellos() / 10, DropReason::BadMac1), 0);
    let mut late = Server::new(access());
    late.now.wall += Duration::from_secs(100);
    assert_eq!(grown_by_proved(&mut late, &hello(Some(&issued)), hellos() / 10, DropReason::TokenExpired), 0);
}
