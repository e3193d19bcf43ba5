//! F4, F5 and F6: what is sealed in a token, and what a client hears while it connects.
//!
//! Whatever comes from somebody without the server's keys, the genuine handshake succeeds; whatever comes from somebody with
//! them, the client connects or gives up by name.

use std::time::Duration;

use chacha20poly1305::aead::AeadInPlace;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};
use drumfire_crypto::Responder;
use drumfire_proto::{
    Access, Alone, ClientConfig, Config, Endpoint, IssuedToken, Refusal, RefuseReason, Secret, SendOptions,
    Token, TokenAccess, TokenError, TokenKey, TokenKind,
};
use drumfire_wire::{ClientId, ConnectionId, Hello, Refuse, Reset, Retry, Welcome, limits};

use crate::harness::{CLEAN, CLIENT, SERVER, World, address, server_config, server_keys};
use crate::input::Input;

const KEY_ID: u32 = 1;
const KEY: [u8; 32] = [7; 32];
const NONCE: [u8; 24] = [1; 24];
/// When the server of a token's holder runs, since 1970.
const NOW: Duration = Duration::from_secs(1_700_000_000);
/// How long before it was started: older tokens are not taken.
const UP: Duration = Duration::from_secs(1_000);

/// Bytes of a token before it is sealed (PROTOCOL 15.1, "Sealed tokens").
const BODY_BYTES: usize = limits::SEALED_TOKEN_BYTES - 24 - limits::TAG_BYTES;

fn key() -> TokenKey {
    TokenKey::new(KEY_ID, Secret::new(KEY)).expect("an id that is free")
}

/// Seals any bytes as a backend seals a token.
fn sealed(mut body: [u8; BODY_BYTES]) -> [u8; limits::SEALED_TOKEN_BYTES] {
    let associated = [&b"drumfire token"[..], &KEY_ID.to_be_bytes(), &0_u64.to_be_bytes()].concat();
    let cipher = XChaCha20Poly1305::new(&KEY.into());
    let tag = cipher.encrypt_in_place_detached(&NONCE.into(), &associated, &mut body).expect("it is short");
    let all = [&NONCE[..], &body, &tag].concat();
    all.try_into().expect("the parts of a token")
}

/// F4: the body of a token that opens. It means a token that can be sealed again and means the same, or it is malformed; and
/// a server lets its player in exactly when it is good.
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
    let again = key().seal(&token, 0, NONCE).expect("what was read can be written");
    assert_eq!(key().open(&again, 0).as_ref(), Ok(&token));
    assert_eq!(is_let_in(&token, sealed), is_good(&token), "{token:?}");
}

/// Whether a server takes it, as the standard says.
fn is_good(token: &Token) -> bool {
    let is_over = token.session_ends_at.is_some_and(|ends| ends <= NOW);
    let is_in_time = token.check(NOW, token.audience).is_ok() && token.issued_at >= NOW - UP && !is_over;
    token.kind == TokenKind::Connect && is_in_time
}

fn is_let_in(token: &Token, sealed: [u8; limits::SEALED_TOKEN_BYTES]) -> bool {
    let mut world = World::with(1, CLEAN, Config::default(), ClientConfig::many());
    world.wall = NOW;
    let access = TokenAccess { keys: vec![key()], audience: token.audience, since: NOW - UP };
    let server = server_config().access(Access::Token(access));
    world.ends[SERVER] = Endpoint::server(Config::default(), server, Alone::default(), Secret::new([8; 32]))
        .expect("a server");
    let issued = IssuedToken { key_id: KEY_ID, sealed, psk: token.psk.duplicate() };
    let now = world.now();
    let identity = crate::harness::identity();
    world.ends[CLIENT].connect(now, address(SERVER), &identity, Some(&issued)).expect("an attempt");
    world.run(Duration::from_millis(200));
    !world.peers(SERVER).is_empty()
}

/// A client that has asked, and what it asked.
fn asking() -> (World, Vec<u8>) {
    let mut world = World::new(1, CLEAN);
    world.connect();
    world.flush();
    let hello = world.sent[0].2.clone();
    (world, hello)
}

/// F5: a Welcome. From a stranger it changes nothing; from a server with genuine keys, with any parameters in it, it makes
/// a connection or none, and either ends by itself.
pub(crate) fn welcome(data: &[u8]) {
    let mut input = Input::new(data);
    let is_genuine = input.u8() & 1 != 0;
    let (mut world, hello) = asking();
    let hello = Hello::decode(&hello).expect("a Hello");
    let mut message = [0; Welcome::NOISE_MESSAGE_MAX_BYTES];
    let bytes = if is_genuine {
        world.flying.clear();
        let (mut asked, prologue) = ([0; 1_200], hello.prologue().concat());
        let (psk, ephemeral) = (Secret::zeroed(), Secret::new([3; 32]));
        let read =
            Responder::read(&server_keys(), &psk, &prologue, hello.noise_message, &ephemeral, &mut asked);
        let (responder, _) = read.expect("a genuine Hello");
        responder.reply(input.bytes(1_000), &mut message).expect("it fits").0
    } else {
        let given = input.bytes(message.len());
        message[..given.len()].copy_from_slice(given);
        given.len().max(limits::NOISE_MESSAGE_2_MIN_BYTES)
    };
    let mut datagram = Vec::new();
    let welcome = Welcome { client_id: hello.fields.client_id, noise_message: &message[..bytes] };
    welcome.encode(&mut datagram).expect("a Welcome that is long enough");
    world.hand(CLIENT, address(SERVER), &datagram);
    if is_genuine {
        // The server that is there does not know the keys: sooner or later the client finds out.
        world.run(Duration::from_secs(45));
        assert_eq!(world.ends[CLIENT].connection_count(), 0);
    } else {
        world.run(Duration::from_millis(500));
        assert_eq!(world.peers(CLIENT).len(), 1, "a stranger's Welcome does not hold up the genuine one");
    }
}

/// Retries that are forged: of one more, which may be all that a client keeps, nothing is promised.
const RETRIES_MAX: u32 = 7;

/// F6: Retries, Refuses and Resets of somebody who sees what the client sends. They change nothing, for one who connects and
/// for one who is connected.
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
            world.hand(CLIENT, address(SERVER), &datagram);
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

/// One forged answer to this client.
fn answer(what: u8, client_id: ClientId, input: &mut Input<'_>) -> Vec<u8> {
    let mut datagram = Vec::new();
    let encoded = match what % 4 {
        0 => Retry { client_id, cookie: &input.array() }.encode(&mut datagram),
        1 => {
            let refusal = Refusal {
                reason: RefuseReason::from_byte(input.u8()),
                version_min: input.u16(),
                version_max: input.u16(),
                retry_after: None,
                address: None,
            };
            Refuse { client_id, refusal, mac: input.array() }.encode(&mut datagram)
        }
        2 => Reset { connection_id: ConnectionId::from_bytes(input.array()), token: input.array() }
            .encode(&mut datagram),
        _ => {
            datagram.push(0x88 | input.u8());
            datagram.extend(client_id.0);
            let bytes = usize::from(input.u8());
            datagram.extend(input.bytes(bytes));
            Ok(())
        }
    };
    encoded.expect("a vector has room");
    datagram
}
