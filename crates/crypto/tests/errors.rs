//! The texts of all errors of this crate. Which input causes which error is tested with the code.

use std::collections::BTreeSet;

use drumfire_crypto::{HandshakeError, OpenError, PlayerId, ReplayError, SealError, TokenError};

#[test]
fn every_error_has_its_own_line_of_text() {
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
fn the_text_of_a_malformed_token_names_the_limits() {
    let text = TokenError::Malformed.to_string();
    let minutes = drumfire_crypto::token::TOKEN_LIFETIME_MAX.as_secs() / 60;
    assert!(text.contains(&format!("1 s to {minutes} min")), "{text}");
    assert!(text.contains(&format!("{} bytes", drumfire_crypto::token::USER_DATA_MAX_BYTES)), "{text}");
}

#[test]
fn a_player_id_is_displayed_as_a_number() {
    assert_eq!(PlayerId(u128::MAX).to_string(), u128::MAX.to_string());
}
