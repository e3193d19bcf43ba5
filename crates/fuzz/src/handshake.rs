//! F4, F5, and F6: the content of a sealed token, and the datagrams that a client receives while it connects.
//!
//! Datagrams of a sender without the server's keys do not stop the genuine handshake. For datagrams of a sender with the keys, the client
//! connects or gives up with a reason.

use std::time::Duration;

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use drumfire_proto::{
    Access, ClientConfig, Config, Endpoint, IssuedToken, Refusal, RefuseReason, Secret, SendOptions,
    SingleWorker, Token, TokenAccess, TokenError, TokenKey, TokenKind,
};
use drumfire_puppet::{accept_hello, encoded, server_parameters};
use drumfire_wire::{ClientId, ConnectionId, Hello, Refuse, Reset, Retry, Welcome, limits};

use crate::harness::{CLEAN, CLIENT, SERVER, World, address, server_config, server_keys};
use crate::input::Input;

const KEY_ID: u32 = 1;
const KEY: [u8; 32] = [7; 32];
const NONCE: [u8; 24] = [1; 24];
/// The wall clock of the server, since 1970.
const NOW: Duration = Duration::from_secs(1_700_000_000);
/// The time since the server's start. It refuses older tokens.
const UP: Duration = Duration::from_secs(1_000);

/// The bytes of a token before it is sealed (PROTOCOL 15.1, "Sealed tokens").
const BODY_BYTES: usize = limits::SEALED_TOKEN_BYTES - 24 - limits::TAG_BYTES;

fn key() -> TokenKey {
    TokenKey::new(KEY_ID, Secret::new(KEY)).expect("a valid id")
}

/// Seals any bytes in the way a backend seals a token.
fn sealed(mut body: [u8; BODY_BYTES]) -> [u8; limits::SEALED_TOKEN_BYTES] {
    let associated = [&b"drumfire token"[..], &KEY_ID.to_be_bytes(), &0_u64.to_be_bytes()].concat();
    let cipher = XChaCha20Poly1305::new(&KEY.into());
    let tag = cipher.encrypt_in_place_detached(&NONCE.into(), &associated, &mut body).expect("it is short");
    let all = [&NONCE[..], &body, &tag].concat();
    all.try_into().expect("the parts of a token")
}

/// F4: the body of a token that opens. It is malformed, or a token that can be sealed again and means the same. A server accepts the
/// player exactly if the token is valid.
pub(crate) fn token(data: &[u8]) {
    let mut body = [0; BODY_BYTES];
    let given = &data[..data.len().min(BODY_BYTES)];
    body[..given.len()].copy_from_slice(given);
    let sealed = sealed(body);
    let token = match key().open(&sealed, 0) {
        Ok(token) => token,
        Err(error) => return assert_eq!(error, TokenError::Malformed),
    };
    assert!(token.user_data.len() <= 256 && token.issued_at < token.expires_at);
    let again = key().seal(&token, 0, NONCE).expect("a token can be sealed");
    assert_eq!(key().open(&again, 0).as_ref(), Ok(&token));
    assert_eq!(is_accepted(&token, sealed), is_valid(&token), "{token:?}");
}

/// Returns whether a server must accept the token, as PROTOCOL specifies.
fn is_valid(token: &Token) -> bool {
    let is_over = token.session_ends_at.is_some_and(|ends| ends <= NOW);
    let is_in_time = token.check(NOW, token.audience).is_ok() && token.issued_at >= NOW - UP && !is_over;
    token.kind == TokenKind::Connect && is_in_time
}

fn is_accepted(token: &Token, sealed: [u8; limits::SEALED_TOKEN_BYTES]) -> bool {
    let mut world = World::with(1, CLEAN, Config::default(), ClientConfig::many());
    world.wall = NOW;
    let access = TokenAccess { keys: vec![key()], audience: token.audience, since: NOW - UP };
    let server = server_config().access(Access::Token(access));
    world.ends[SERVER] =
        Endpoint::server(Config::default(), server, SingleWorker::default(), Secret::new([8; 32]))
            .expect("a server");
    let issued = IssuedToken { key_id: KEY_ID, sealed, psk: token.psk.duplicate() };
    let now = world.now();
    let identity = crate::harness::identity();
    world.ends[CLIENT].connect(now, address(SERVER), &identity, Some(&issued)).expect("an attempt");
    world.run(Duration::from_millis(200));
    !world.peers(SERVER).is_empty()
}

/// Returns a world whose client has sent a Hello, and the Hello.
fn connecting_world() -> (World, Vec<u8>) {
    let mut world = World::new(1, CLEAN);
    world.connect();
    world.flush();
    let hello = world.sent[0].2.clone();
    (world, hello)
}

/// F5: a Welcome. Without the keys, it changes nothing. With the keys and any parameters, it makes a connection or none, and the
/// connection ends by itself.
pub(crate) fn welcome(data: &[u8]) {
    let mut input = Input::new(data);
    let is_genuine = input.u8() & 1 != 0;
    let (mut world, hello) = connecting_world();
    let hello = Hello::decode(&hello).expect("a Hello");
    let datagram = if is_genuine {
        world.in_flight.clear();
        let (usual, ephemeral) = (server_parameters([0; 8]), Secret::new([8; 32]));
        let answer = accept_hello(&server_keys(), &hello, &usual, &ephemeral, |parameters| {
            *parameters = input.bytes(1_000).into();
        });
        answer.expect("a genuine Hello").1
    } else {
        let mut message = input.bytes(Welcome::NOISE_MESSAGE_MAX_BYTES).to_vec();
        message.resize(message.len().max(limits::NOISE_MESSAGE_2_MIN_BYTES), 0);
        let welcome = Welcome { client_id: hello.fields.client_id, noise_message: &message };
        encoded(|datagram| welcome.encode(datagram))
    };
    world.deliver(CLIENT, address(SERVER), &datagram);
    if is_genuine {
        // The world's server does not have the keys of this connection, so that the client times out.
        world.run(Duration::from_secs(45));
        assert_eq!(world.ends[CLIENT].connection_count(), 0);
    } else {
        world.run(Duration::from_millis(500));
        assert_eq!(world.peers(CLIENT).len(), 1, "a forged Welcome does not stop the genuine one");
    }
}

/// The maximum number of forged Retries. After more of them, a client may ignore the genuine one.
const RETRIES_MAX: u32 = 7;

/// F6: forged Retries, Refuses, and Resets of an attacker that sees the client's datagrams. They change nothing for a client that
/// connects or is connected.
pub(crate) fn answers(data: &[u8]) {
    let mut input = Input::new(data);
    let is_connected = input.u8() & 1 != 0;
    let mut world = World::new(1, CLEAN);
    if is_connected {
        world.connected();
    } else {
        world.connect();
        world.flush();
    }
    let client_id = Hello::decode(&world.sent[0].2).expect("a Hello").fields.client_id;
    let mut retries = 0;
    while !input.is_empty() {
        let what = input.u8();
        let datagram = answer(what, client_id, &mut input);
        retries += u32::from(datagram.first() == Some(&0x8a));
        if retries <= RETRIES_MAX {
            world.deliver(CLIENT, address(SERVER), &datagram);
        }
        if what & 0x80 != 0 {
            world.run(Duration::from_millis(10));
        }
    }
    world.run(Duration::from_secs(1));
    let [client, server] = [CLIENT, SERVER].map(|end| world.peers(end));
    assert_eq!((client.len(), server.len()), (1, 1));
    for (end, peer) in [(CLIENT, client[0]), (SERVER, server[0])] {
        world.send(end, peer, 0, b"still there", SendOptions::reliable_ordered()).expect("it is connected");
    }
    world.run(Duration::from_secs(1));
    for end in [CLIENT, SERVER] {
        assert_eq!(world.messages(end), [(0, b"still there".to_vec())]);
    }
}

/// Returns a forged answer to a client.
fn answer(what: u8, client_id: ClientId, input: &mut Input<'_>) -> Vec<u8> {
    encoded(|datagram| match what % 4 {
        0 => Retry { client_id, cookie: &input.array() }.encode(datagram),
        1 => {
            let refusal = Refusal {
                reason: RefuseReason::from_byte(input.u8()),
                version_min: input.u16(),
                version_max: input.u16(),
                retry_after: None,
                address: None,
                is_proved: false,
            };
            Refuse { client_id, refusal, mac: input.array() }.encode(datagram)
        }
        2 => Reset { connection_id: ConnectionId::from_bytes(input.array()), token: input.array() }
            .encode(datagram),
        _ => {
            datagram.push(0x88 | input.u8());
            datagram.extend(client_id.0);
            let bytes = usize::from(input.u8());
            datagram.extend(input.bytes(bytes));
            Ok(())
        }
    })
}
