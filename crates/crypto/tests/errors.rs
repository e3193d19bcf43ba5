//! Errors of the ciphers, the handshake and tokens as a log shows them: each says in one line of its own what is amiss.
//!
//! What leads to which is tested beside the code.

use std::collections::BTreeSet;

use drumfire_crypto::{HandshakeError, OpenError, PlayerId, ReplayError, SealError, TokenError};

#[test]
fn every_error_says_in_one_line_of_its_own_what_is_amiss() {
    let handshake = [
        HandshakeError::Length,
        HandshakeError::BufferTooSmall,
        HandshakeError::Rejected,
        HandshakeError::Finished,
    ]
    .map(|error| error.to_string());
    let open =
        [OpenError::TooShort, OpenError::Forged, OpenError::LimitReached].map(|error| error.to_string());
    let replay = [ReplayError::Duplicate, ReplayError::TooOld].map(|error| error.to_string());
    let seal = [SealError::Exhausted, SealError::Refused].map(|error| error.to_string());
    let token =
        [TokenError::Foreign, TokenError::Expired, TokenError::Malformed].map(|error| error.to_string());
    let all = [&handshake[..], &open, &replay, &seal, &token].concat();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{all:#?}");
    for text in &all {
        assert!(text.lines().count() == 1 && text.contains(' ') && !text.ends_with('.'), "{text:?}");
    }
}

#[test]
fn the_text_of_a_token_that_cannot_be_names_the_bounds_that_hold() {
    let text = TokenError::Malformed.to_string();
    let minutes = drumfire_crypto::token::TOKEN_LIFE_MAX.as_secs() / 60;
    assert!(text.contains(&format!("1 s to {minutes} min")), "{text}");
    assert!(text.contains(&format!("{} bytes", drumfire_crypto::token::USER_DATA_MAX_BYTES)), "{text}");
}

#[test]
fn a_player_is_shown_by_its_number() {
    assert_eq!(PlayerId(u128::MAX).to_string(), u128::MAX.to_string());
}
