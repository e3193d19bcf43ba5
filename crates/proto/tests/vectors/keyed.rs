//! MACs, cookies, refusals, ids, and resets: all values that depend on a key and not on a session.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_crypto::cookie::CookieScope;
use drumfire_crypto::{Cookies, IdKeys, Mac1Key, RefuseKey, Secret, ServerKeyPair};
use drumfire_wire::{ClientId, ConnectionId, Refusal, Refuse, RefuseReason, Reset, RoutingTag};
use serde_json::{Value, json};

use crate::{Inputs, check, to_hex};

#[test]
fn macs_match_their_vectors() {
    check("macs.json", |inputs| {
        let (psk, covered) = (Secret::new(inputs.array("psk")), inputs.bytes("covered"));
        let mac = match inputs.text("kind") {
            "mac1" => Mac1Key::derive(&inputs.array("server_public_key"), &psk).mac(&[&covered]),
            "refuse" => RefuseKey::derive(&psk).mac(&covered[..35], &covered[35..]),
            other => panic!("{other} is no kind"),
        };
        Some(json!({ "mac": to_hex(mac) }))
    });
}

#[test]
fn cookies_match_their_vectors() {
    check("cookies.json", |inputs| {
        let source: SocketAddr = inputs.text("address").parse().unwrap();
        let scope = CookieScope { source, client_id: inputs.array("client_id"), mac1: &inputs.array("mac1") };
        let mut cookies = Cookies::new(Secret::new(inputs.array("process_key")));
        Some(json!({ "cookie": to_hex(cookies.make(inputs.number("seconds"), &scope)) }))
    });
}

#[test]
fn refusals_match_their_vectors() {
    check("refusals.json", |inputs| {
        let retry_after = Some(inputs.number("retry_after_s")).filter(|s| *s > 0).map(Duration::from_secs);
        let refusal = Refusal {
            reason: RefuseReason::from_byte(inputs.number("reason")),
            version_min: inputs.number("version_min"),
            version_max: inputs.number("version_max"),
            retry_after,
            address: inputs.0["address"].as_str().map(|text| text.parse().unwrap()),
            is_proved: false,
        };
        let client_id = ClientId(inputs.array("client_id"));
        let mut refuse = Refuse { client_id, refusal, mac: [0; 16] };
        if inputs.0["psk"].is_string() {
            let key = RefuseKey::derive(&Secret::new(inputs.array("psk")));
            refuse.mac = key.mac(&encoded(&refuse)[..35], &inputs.bytes("message_1"));
        }
        let datagram = encoded(&refuse);
        assert_eq!(Refuse::decode(&datagram), Ok(refuse));
        Some(json!({ "refuse": to_hex(datagram) }))
    });
}

fn encoded(refuse: &Refuse) -> Vec<u8> {
    let mut datagram = Vec::new();
    refuse.encode(&mut datagram).unwrap();
    datagram
}

#[test]
fn resets_match_their_vectors() {
    check("resets.json", |inputs| Some(reset(inputs)));
}

fn reset(inputs: &Inputs<'_>) -> Value {
    let persistent = ServerKeyPair::from_secret(Secret::new(inputs.array("server_secret_key"))).persistent();
    let keys = IdKeys::derive(&persistent, &inputs.bytes("server_id"));
    let (tag, random) = (RoutingTag(inputs.number("routing_tag")), inputs.array("random"));
    let check = keys.check(&ConnectionId::new(tag, random, [0; 3]).checked_part());
    let connection_id = ConnectionId::new(tag, random, check);
    let mut datagram = Vec::new();
    Reset { connection_id, token: keys.reset_token(&connection_id.to_bytes()) }
        .encode(&mut datagram)
        .unwrap();
    json!({
        "persistent_secret": to_hex(persistent.expose()),
        "connection_id": to_hex(connection_id.to_bytes()),
        "reset": to_hex(datagram),
    })
}
