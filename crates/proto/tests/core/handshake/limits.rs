//! The limits of admission, each at its last accepted value and at its first refused one.
//!
//! With `DRUMFIRE_FULL=1`, the sizes are the defaults of a server. Other runs use smaller ones.

use crate::handshake::hello_server::{HelloServer, by_token, hello, source};
use crate::handshake::tokens::{key, token};
use crate::harness::server_config;
use drumfire_proto::{DropReason, ServerConfig, Token, TokenId};
use drumfire_tries::tries;
use std::net::SocketAddr;
use std::time::Duration;

const NANO: Duration = Duration::from_nanos(1);

/// Returns a new token.
fn numbered(number: u32) -> Token {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    Token { id: TokenId(id), player: drumfire_proto::PlayerId(number.into()), ..token(1) }
}

/// Returns how many of `count` clients with tokens of one source connect when they start together.
fn connected_by_token(harness: &mut HelloServer, from: SocketAddr, numbers: std::ops::Range<u32>) -> usize {
    numbers
        .filter(|number| {
            let token = key(1).issue(&numbered(*number), 0, [1; 24]).unwrap();
            let hello = harness.proved(from, Some(&token));
            harness.welcomes(from, &hello)
        })
        .count()
}

#[test]
fn the_limits_match_the_specification() {
    let (open, by_token) = (server_config(), by_token());
    let limits = |config: &ServerConfig| {
        let of_server = (config.half_open, config.handshakes_per_second, config.retries_per_second);
        let of_source = (config.source_handshakes_per_second, config.source_handshakes_burst);
        (of_server, config.half_open_per_source, of_source)
    };
    assert_eq!(limits(&open), ((4_096, 2_000, 10_000), 16, (20, 20)));
    assert_eq!(limits(&by_token), ((4_096, 2_000, 10_000), 256, (500, 1_000)));
}

#[test]
fn the_half_open_limit_frees_a_place_after_five_seconds() {
    let mut config = server_config();
    config.half_open = config.half_open.min(tries(12_800));
    let (most, mut harness) = (config.half_open, HelloServer::new(config));
    for number in 0..most {
        assert!(harness.accepts_client(source(number)), "{number}");
        harness.pass(Duration::from_millis(1));
    }
    assert_eq!(harness.server.connection_count(), most as usize);
    assert_eq!(harness.computed_and(DropReason::HalfOpenLimit), (most.into(), 0));
    // Until a nanosecond before the first expires, no client connects, and no key agreement is computed.
    let late = harness.proved(source(most), None);
    assert!(!harness.welcomes(source(most), &late));
    harness.pass(Duration::from_secs(5) - Duration::from_millis(most.into()) - NANO);
    let mut later = harness.proved(source(most + 1), None);
    assert!(!harness.welcomes(source(most + 1), &later));
    assert_eq!(harness.computed_and(DropReason::HalfOpenLimit), (most.into(), 2));
    harness.pass(NANO);
    harness.prove(source(most + 1), &mut later);
    assert!(harness.welcomes(source(most + 1), &later));
    assert!(!harness.accepts_client(source(most + 2)), "one went, one came");
    assert_eq!(harness.server.connection_count(), most as usize);
    assert_eq!(harness.computed_and(DropReason::HalfOpenLimit), (u64::from(most) + 1, 3));
}

#[test]
fn the_burst_of_handshakes_is_one_second() {
    let mut config = server_config();
    config.handshakes_per_second = config.handshakes_per_second.min(tries(10_000));
    let (most, mut harness) = (config.handshakes_per_second, HelloServer::new(config));
    for number in 0..most {
        assert!(harness.accepts_client(source(number)), "{number}");
    }
    assert!(!harness.accepts_client(source(most)));
    let one = Duration::from_secs(1) / most;
    harness.pass(one - NANO);
    assert!(!harness.accepts_client(source(most + 1)));
    assert_eq!(harness.computed_and(DropReason::HandshakeLimit), (most.into(), 2));
    harness.pass(NANO);
    assert!(harness.accepts_client(source(most + 2)));
    assert!(!harness.accepts_client(source(most + 3)));
    // However often they try in the next second, the refill of one second connects.
    let asked = 4 * most;
    for number in 0..asked {
        harness.pass(one / 4);
        harness.accepts_client(source(most + 4 + number));
    }
    assert_eq!(
        harness.computed_and(DropReason::HandshakeLimit),
        (u64::from(2 * most) + 1, u64::from(asked - most) + 3)
    );
}

#[test]
fn a_source_has_a_burst_of_twenty_handshakes() {
    let mut config = server_config();
    config.half_open_per_source = u16::MAX;
    let mut harness = HelloServer::new(config);
    let one = source(1);
    let begun = (0..21).map(|_| harness.accepts_client(one));
    assert!(begun.enumerate().all(|(number, is_begun)| is_begun == (number < 20)));
    harness.pass(Duration::from_millis(50) - NANO);
    assert!(!harness.accepts_client(one));
    harness.pass(NANO);
    assert!(harness.accepts_client(one) && !harness.accepts_client(one));
    assert_eq!(harness.computed_and(DropReason::SourceLimit), (21, 3));
    assert!(harness.accepts_client(source(2)), "another source is not limited");
}

#[test]
fn one_source_has_256_half_open_connections_with_tokens() {
    let mut harness = HelloServer::new(by_token());
    assert_eq!(connected_by_token(&mut harness, source(1), 0..255), 255);
    assert_eq!(connected_by_token(&mut harness, source(1), 255..258), 1);
    assert_eq!(harness.computed_and(DropReason::SourceLimit), (256, 2));
    assert_eq!(connected_by_token(&mut harness, source(2), 258..259), 1);
    // Five seconds later all of them are forgotten.
    harness.pass(Duration::from_secs(5));
    assert_eq!(connected_by_token(&mut harness, source(1), 259..260), 1);
}

#[test]
fn a_source_with_tokens_has_a_burst_of_a_thousand_handshakes() {
    let mut config = by_token();
    config.half_open_per_source = u16::MAX;
    config.source_handshakes_burst = config.source_handshakes_burst.min(tries(10_000));
    let (burst, mut harness) = (config.source_handshakes_burst, HelloServer::new(config));
    assert_eq!(connected_by_token(&mut harness, source(1), 0..burst - 1), burst as usize - 1);
    assert_eq!(connected_by_token(&mut harness, source(1), burst - 1..burst + 2), 1);
    harness.pass(Duration::from_millis(2) - NANO);
    assert_eq!(connected_by_token(&mut harness, source(1), burst + 2..burst + 3), 0);
    harness.pass(NANO);
    assert_eq!(connected_by_token(&mut harness, source(1), burst + 3..burst + 5), 1);
    assert_eq!(harness.computed_and(DropReason::SourceLimit), (u64::from(burst) + 1, 4));
}

#[test]
fn loopback_is_not_limited_as_a_source() {
    let mut harness = HelloServer::new(server_config());
    for from in ["127.0.0.1:9000", "127.8.8.8:9000", "[::1]:9000", "[::ffff:127.0.0.1]:9000"] {
        let from = from.parse().unwrap();
        assert!((0..40).all(|_| harness.accepts_client(from)), "{from}");
    }
    assert_eq!(harness.computed_and(DropReason::SourceLimit), (160, 0));
}

#[test]
fn the_burst_of_retries_is_a_tenth_of_a_second() {
    let mut harness = HelloServer::with_its_retries(server_config());
    let first = hello(harness.now, 1, None);
    let asks = |harness: &mut HelloServer, number: u32| harness.deliver(source(number), &first).is_some();
    assert!((0..1_000).all(|number| asks(&mut harness, number)));
    assert!(!asks(&mut harness, 1_000));
    harness.pass(Duration::from_micros(100) - NANO);
    assert!(!asks(&mut harness, 1_000));
    harness.pass(NANO);
    assert!(asks(&mut harness, 1_000) && !asks(&mut harness, 1_001));
    assert_eq!(harness.computed_and(DropReason::RetryLimit), (0, 3));
}
