//! Keys of tokens, and sealed tokens.

use std::time::Duration;

use drumfire_crypto::{PlayerId, Secret, ServerKeyPair, Token, TokenId, TokenKey, TokenKind, TokenMasterKey};
use serde_json::{Value, json};

use crate::{Inputs, check, to_hex};

#[test]
fn tokens_match_their_vectors() {
    check("tokens.json", |inputs| Some(outputs(inputs)));
}

fn outputs(inputs: &Inputs<'_>) -> Value {
    let server_id = inputs.bytes("server_id");
    let kind = match inputs.text("kind") {
        "connect" => TokenKind::Connect,
        "resume" => TokenKind::Resume,
        other => panic!("{other} is no kind"),
    };
    let key = match kind {
        TokenKind::Connect => TokenMasterKey::new(Secret::new(inputs.array("master_key")))
            .token_key(inputs.number("token_key_id"), &server_id)
            .unwrap(),
        TokenKind::Resume => {
            let server = ServerKeyPair::from_secret(Secret::new(inputs.array("server_secret_key")));
            TokenKey::resume(&server.persistent(), &server_id)
        }
    };
    assert_eq!(key.id(), inputs.number::<u32>("token_key_id"));
    let seconds =
        |name: &str| Some(inputs.number::<u64>(name)).filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let token = Token {
        kind,
        id: TokenId(inputs.array("token_id")),
        player: PlayerId(u128::from_be_bytes(inputs.array("player"))),
        psk: Secret::new(inputs.array("psk")),
        audience: inputs.number("audience"),
        issued_at: seconds("issued_at").unwrap(),
        expires_at: seconds("expires_at").unwrap(),
        session_ends_at: seconds("session_ends_at"),
        placement_key: inputs.0["placement_key"].as_u64(),
        user_data: inputs.bytes("user_data").into(),
    };
    let protocol_id = inputs.number("protocol_id");
    let sealed = key.seal(&token, protocol_id, inputs.array("nonce")).unwrap();
    assert_eq!(key.open(&sealed, protocol_id).unwrap(), token);
    json!({ "token_key": to_hex(key.secret().expose()), "sealed_token": to_hex(sealed) })
}
