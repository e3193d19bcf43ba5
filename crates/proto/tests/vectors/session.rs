//! Whole sessions: the four datagrams of a handshake, and packets in several key epochs.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_crypto::cookie::CookieScope;
use drumfire_crypto::{
    Cookies, IdKeys, Initiator, Mac1Key, Opener, Responder, Sealer, Secret, ServerKeyPair, SessionSecrets,
    Suite,
};
use drumfire_wire::{
    ClientId, ClientParameters, ConnectionId, Frames, Hello, HelloDraft, HelloFields, PacketNumber,
    PacketNumberLength, Retry, RoutingTag, ServerParameters, SharedParameters, TransportHeader, Welcome,
};
use serde_json::{Value, json};

use crate::{Inputs, check, to_hex};

#[test]
fn sessions_match_their_vectors() {
    check("sessions.json", |inputs| {
        // One entry uses a suite that not every build has.
        Suite::from_id(inputs.number("suite")).unwrap().is_supported().then(|| outputs(inputs))
    });
}

fn outputs(inputs: &Inputs<'_>) -> Value {
    let server = ServerKeyPair::from_secret(Secret::new(inputs.array("server_secret_key")));
    let psk = Secret::new(inputs.array("psk"));
    let (draft, mut initiator, message_1) = hello(inputs, &server, &psk);
    let source: SocketAddr = inputs.text("client_address").parse().unwrap();
    let client_id = inputs.array("client_id");
    let datagram = encoded(&draft);
    let mac1 = Hello::decode(&datagram).unwrap().mac1;
    let made = Cookies::new(Secret::new(inputs.array("server_process_key")))
        .make(inputs.number("cookie_seconds"), &CookieScope { source, client_id, mac1 });
    let mut cookie = [0; 32];
    cookie[..made.len()].copy_from_slice(&made);
    let mut retry = Vec::new();
    Retry { client_id: ClientId(client_id), cookie: &cookie }.encode(&mut retry).unwrap();

    let connection_id = connection_id(inputs, &server);
    let (message_2, of_server) = reply(inputs, &server, &psk, &draft, &message_1, connection_id);
    let mut welcome = Vec::new();
    Welcome { client_id: ClientId(client_id), noise_message: &message_2 }.encode(&mut welcome).unwrap();
    let (_, of_client) = initiator.read_reply(&message_2, &mut [0; 64]).unwrap();
    let packets = packets(inputs, connection_id, of_client, of_server);

    let mut with_cookie = draft.clone();
    with_cookie.set_cookie(cookie);
    json!({
        "server_public_key": to_hex(server.public()),
        "hello": to_hex(encoded(&draft)),
        "retry": to_hex(retry),
        "hello_with_cookie": to_hex(encoded(&with_cookie)),
        "connection_id": to_hex(connection_id.to_bytes()),
        "welcome": to_hex(welcome),
        "packets": packets,
    })
}

fn hello(inputs: &Inputs<'_>, server: &ServerKeyPair, psk: &Secret<32>) -> (HelloDraft, Initiator, Vec<u8>) {
    let fields = HelloFields {
        version: inputs.number("version"),
        protocol_id: inputs.number("protocol_id"),
        client_id: ClientId(inputs.array("client_id")),
        server_key_id: inputs.number("server_key_id"),
        token_key_id: inputs.number("token_key_id"),
        suite_bits: inputs.number("offered_suites"),
    };
    let mut draft = HelloDraft::new(&fields, &inputs.array("sealed_token"));
    let payload = ClientParameters {
        connection_id: client_connection_id(inputs),
        shared: parameters(inputs, "client"),
        hello: &inputs.bytes("application_hello"),
    }
    .encode();
    let (prologue, ephemeral) = (draft.prologue().concat(), Secret::new(inputs.array("client_ephemeral")));
    let message_1 = draft.noise_message_mut();
    let initiator = Initiator::new(server.public(), psk, &prologue, &payload, ephemeral, message_1).unwrap();
    let message_1 = message_1.to_vec();
    draft.set_mac1(Mac1Key::derive(server.public(), psk).mac(&draft.mac1_input()));
    (draft, initiator, message_1)
}

/// The id in packets to the client, if its socket uses ids.
fn client_connection_id(inputs: &Inputs<'_>) -> Option<ConnectionId> {
    let has_ids = inputs.0["client_connection_id"].is_string();
    has_ids.then(|| ConnectionId::from_bytes(inputs.array("client_connection_id")))
}

fn encoded(draft: &HelloDraft) -> Vec<u8> {
    let mut datagram = Vec::new();
    draft.encode(&mut datagram).unwrap();
    datagram
}

fn parameters(inputs: &Inputs<'_>, side: &str) -> SharedParameters {
    let milliseconds = |name: &str| Duration::from_millis(inputs.number(&format!("{side}_{name}_ms")));
    SharedParameters {
        datagram_max_bytes: inputs.number(&format!("{side}_datagram_max_bytes")),
        idle_timeout: milliseconds("idle_timeout"),
        unacknowledged_timeout: milliseconds("unacknowledged_timeout"),
        message_max_bytes: inputs.number(&format!("{side}_message_max_bytes")),
        credit_bytes: inputs.number(&format!("{side}_credit_bytes")),
    }
}

fn connection_id(inputs: &Inputs<'_>, server: &ServerKeyPair) -> ConnectionId {
    let keys = IdKeys::derive(&server.persistent(), &inputs.bytes("server_id"));
    let (tag, random) = (RoutingTag(inputs.number("routing_tag")), inputs.array("connection_id_random"));
    let unchecked = ConnectionId::new(tag, random, [0; 3]);
    ConnectionId::new(tag, random, keys.check(&unchecked.checked_part()))
}

fn reply(
    inputs: &Inputs<'_>,
    server: &ServerKeyPair,
    psk: &Secret<32>,
    draft: &HelloDraft,
    message_1: &[u8],
    connection_id: ConnectionId,
) -> (Vec<u8>, SessionSecrets) {
    let (prologue, ephemeral) = (draft.prologue().concat(), Secret::new(inputs.array("server_ephemeral")));
    let (responder, _) =
        Responder::read(server, psk, &prologue, message_1, &ephemeral, &mut [0; 600]).unwrap();
    let reset_token = IdKeys::derive(&server.persistent(), &inputs.bytes("server_id"))
        .reset_token(&connection_id.to_bytes());
    let suite = drumfire_wire::Suite::from_id(inputs.number("suite")).unwrap();
    let mut payload = Vec::new();
    ServerParameters { connection_id, reset_token, suite, shared: parameters(inputs, "server") }
        .encode(&mut payload)
        .unwrap();
    let mut message_2 = vec![0; payload.len() + 48];
    let (length, secrets) = responder.reply(&payload, &mut message_2).unwrap();
    assert_eq!(length, message_2.len());
    (message_2, secrets)
}

/// Seals the packets of the list in order, each under its number and in its epoch, and opens them again.
fn packets(
    inputs: &Inputs<'_>,
    id: ConnectionId,
    of_client: SessionSecrets,
    of_server: SessionSecrets,
) -> Value {
    let suite = Suite::from_id(inputs.number("suite")).unwrap();
    let (client_seals, client_opens) = of_client.into_keys(suite).unwrap();
    let (server_seals, server_opens) = of_server.into_keys(suite).unwrap();
    let mut to_server = Direction::new(Sealer::new(client_seals), Opener::new(server_opens), Some(id));
    let client_id = client_connection_id(inputs);
    let mut to_client = Direction::new(Sealer::new(server_seals), Opener::new(client_opens), client_id);
    let datagrams = inputs.0["packets"].as_array().unwrap().iter().map(|packet| {
        let packet = Inputs(packet);
        let direction = if packet.text("from") == "client" { &mut to_server } else { &mut to_client };
        to_hex(direction.datagram(packet.number("epoch"), packet.number("number"), &packet.bytes("frames")))
    });
    datagrams.collect()
}

struct Direction {
    sealer: Sealer,
    opener: Opener,
    epoch: u64,
    id: Option<ConnectionId>,
}

impl Direction {
    fn new(sealer: Sealer, opener: Opener, id: Option<ConnectionId>) -> Self {
        Self { sealer, opener, epoch: 0, id }
    }

    fn datagram(&mut self, epoch: u64, number: u64, frames: &[u8]) -> Vec<u8> {
        assert!(Frames::new(frames).all(|frame| frame.is_ok()), "{frames:02x?}");
        while self.epoch < epoch {
            self.sealer.step_to_next_epoch();
            self.epoch += 1;
        }
        while self.sealer.next_number().unwrap() < number {
            self.sealer.skip().unwrap();
        }
        let length = PacketNumberLength::needed(PacketNumber(number), None).unwrap();
        let key_phase = epoch % 2 == 1;
        let header = TransportHeader {
            key_phase,
            connection_id: self.id,
            number: PacketNumber(number).truncate(length),
        };
        let mut datagram = Vec::new();
        header.encode(&mut datagram).unwrap();
        let (aad, mut body, mut tag) = (datagram.clone(), frames.to_vec(), [0; 16]);
        assert_eq!(self.sealer.seal(&aad, &mut body, &mut tag).unwrap(), number);
        let mut sealed = [body.as_slice(), &tag].concat();
        datagram.extend(&sealed);
        let opened = self.opener.open(number, key_phase, &aad, &mut sealed).unwrap();
        assert_eq!(opened.body, frames);
        datagram
    }
}
