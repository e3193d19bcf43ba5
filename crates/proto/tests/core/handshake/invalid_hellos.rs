//! Floods of invalid Hellos, one class per test: none of them costs a key agreement.

use crate::handshake::hello_server::{COOKIE, Hello, HelloServer, MAC1, by_token, exempt, source};
use crate::handshake::tokens::{NOW, issued, key, token};
use crate::harness::{Random, server_config};
use drumfire_proto::{DropReason, IssuedToken, Secret, Token, TokenMasterKey};
use drumfire_tries::tries;
use std::ops::Range;
use std::time::Duration;

const KEY_ID: Range<usize> = 19..23;
const TOKEN_KEY_ID: Range<usize> = 23..27;
const SUITES: usize = 27;
const TOKEN: Range<usize> = 28..540;

type Corrupt = fn(&mut Hello, &mut Random);

fn fill(bytes: &mut [u8], random: &mut Random) {
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&random.bits().to_be_bytes()[..chunk.len()]);
    }
}

/// Sends `tries` different Hellos of one class from a proved address that no source limit covers.
fn flood(
    harness: &mut HelloServer,
    tries: u32,
    token: Option<&IssuedToken>,
    corrupt: Corrupt,
    counted_as: DropReason,
) {
    let (mut random, from) = (Random(tries.into()), exempt());
    let mut good = harness.proved(from, token);
    let (computed, dropped) = harness.computed_and(counted_as);
    for number in 1..=tries {
        let mut hello = good;
        corrupt(&mut hello, &mut random);
        assert_ne!(hello, good);
        if hello[MAC1] != good[MAC1] {
            // A cookie is valid for the MAC with which it was requested, and 10,000 are available per second.
            harness.pass(Duration::from_micros(100));
            harness.prove(from, &mut hello);
        }
        harness.deliver(from, &hello);
        if number % 1_000 == 0 {
            harness.pass(Duration::from_millis(10));
            harness.prove(from, &mut good);
        }
    }
    let dropped = dropped + u64::from(tries);
    assert_eq!(harness.computed_and(counted_as), (computed, dropped), "{counted_as:?}");
    assert_eq!(harness.server.connection_count(), 0, "{counted_as:?}");
    assert_eq!(harness.server.poll_timeout(), None, "{counted_as:?}: nothing is kept");
}

#[test]
fn a_million_hellos_without_a_valid_cookie_cost_no_agreement() {
    let mut harness = HelloServer::new(server_config());
    let (mut random, good) = (Random(1), harness.proved(source(1), None));
    for number in 0..tries(2_000_000) {
        let (from, mut hello) = (source(number), good);
        if number % 2 == 0 {
            hello[COOKIE].fill(0);
        } else {
            fill(&mut hello[COOKIE.start..COOKIE.start + 16], &mut random);
        }
        let answer = harness.deliver(from, &hello);
        assert!(answer.is_some_and(|answer| answer[0] == 0x8a), "a Retry");
        if number % 1_000 == 0 {
            harness.pass(Duration::from_millis(10));
        }
    }
    // A cookie for one address and another port is not valid here.
    for from in [source(2), std::net::SocketAddr::new(source(1).ip(), 7_001)] {
        assert!(!harness.welcomes(from, &good));
    }
    assert_eq!((harness.server.stats().handshakes_computed, harness.server.connection_count()), (0, 0));
    assert!(harness.accepts_client(source(3)));
}

#[test]
fn a_million_hellos_with_a_bad_mac_cost_no_key_agreement() {
    let mut harness = HelloServer::new(server_config());
    // Each is sent twice, the first time for its cookie.
    flood(
        &mut harness,
        tries(500_000),
        None,
        |hello, random| fill(&mut hello[MAC1], random),
        DropReason::BadMac1,
    );
    let others: [(Corrupt, DropReason); 5] = [
        (|hello, random| hello[1] = 1 + random.below(255) as u8, DropReason::WrongVersion),
        (|hello, random| fill(&mut hello[3..11], random), DropReason::WrongProtocol),
        (|hello, random| fill(&mut hello[KEY_ID], random), DropReason::UnknownServerKey),
        (|hello, random| hello[SUITES] = 2 * random.below(128) as u8, DropReason::BadOffer),
        (
            |hello, random| hello[TOKEN_KEY_ID.start] = 1 + random.below(255) as u8,
            DropReason::UnexpectedToken,
        ),
    ];
    for (corrupt, counted_as) in others {
        flood(&mut harness, tries(10_000), None, corrupt, counted_as);
    }
    assert!(harness.accepts_client(source(1)));
}

#[test]
fn a_million_hellos_with_bad_tokens_cost_no_key_agreement() {
    let mut harness = HelloServer::new(by_token());
    let good = issued(&token(1));
    let bad_mac1: Corrupt = |hello, random| fill(&mut hello[MAC1], random);
    let bad_token: Corrupt = |hello, random| fill(&mut hello[TOKEN], random);
    flood(&mut harness, tries(1_000_000), Some(&good), bad_token, DropReason::TokenForeign);
    flood(&mut harness, tries(500_000), Some(&good), bad_mac1, DropReason::BadMac1);
    let expired = Token {
        issued_at: NOW - Duration::from_secs(9),
        expires_at: NOW - Duration::from_secs(6),
        ..token(2)
    };
    // The flood took its time.
    let wall = harness.now.wall;
    let fresh =
        |number| Token { issued_at: wall, expires_at: wall + Duration::from_secs(60), ..token(number) };
    let of_others = TokenMasterKey::new(Secret::new([7; 32])).token_key(1, b"eu-2").unwrap();
    let others = [
        (issued(&expired), DropReason::TokenExpired),
        (issued(&Token { audience: 4, ..token(3) }), DropReason::TokenForeign),
        (of_others.issue(&token(4), 0, [1; 24]).unwrap(), DropReason::TokenForeign),
        (key(3).issue(&token(5), 0, [1; 24]).unwrap(), DropReason::TokenForeign),
        (IssuedToken { psk: Secret::new([0; 32]), ..issued(&fresh(6)) }, DropReason::BadMac1),
    ];
    for (token, counted_as) in others {
        flood(&mut harness, tries(10_000), Some(&token), bad_mac1, counted_as);
    }
    let without: Corrupt = |hello, random| {
        hello[TOKEN_KEY_ID].fill(0);
        hello[TOKEN].fill(0);
        fill(&mut hello[MAC1], random);
    };
    flood(&mut harness, tries(10_000), Some(&good), without, DropReason::TokenMissing);
    let unnamed: Corrupt = |hello, random| {
        hello[TOKEN_KEY_ID].fill(0);
        fill(&mut hello[TOKEN], random);
    };
    flood(&mut harness, tries(10_000), Some(&good), unnamed, DropReason::TokenMalformed);
    // The token has expired by now, and its secret is not one that an attacker learned.
    let hello = harness.proved(source(1), Some(&issued(&fresh(1))));
    assert!(harness.welcomes(source(1), &hello));
}
