//! Checks that a secret is wiped from memory when its owner is dropped. The process reads its own memory for that.
//!
//! The documentation of the crate lists the known gaps: expanded keys of the accelerated provider, and the inner state of the
//! Noise implementation and of the hash functions. On systems without `/proc/self/mem`, the tests print a note and pass.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use drumfire_crypto::{
    Entropy, IdKeys, Initiator, Mac1Key, PlayerId, RefuseKey, Responder, Sealer, Secret, ServerKeyPair,
    SessionSecrets, Suite, Token, TokenId, TokenKey, TokenKind, TokenMasterKey,
};

const WORD: usize = 8;

/// The number of bytes at the start of freed memory that the allocator may overwrite with its own data.
const ALLOCATOR_BYTES: usize = 16;

/// Returns the bytes at this address, even if they are freed, or `None` if they cannot be read.
fn read_memory(address: usize, bytes: usize) -> Option<Vec<u8>> {
    let mut file = File::open("/proc/self/mem").ok()?;
    let mut read = vec![0; bytes];
    file.seek(SeekFrom::Start(u64::try_from(address).unwrap())).unwrap();
    file.read_exact(&mut read).unwrap();
    Some(read)
}

/// Drops a value, and returns whether at least this many of its bytes changed, or `None` if memory cannot be read. Bytes that
/// the allocator may overwrite count as changed.
fn wiped<T>(value: T, secret_bytes: usize) -> Option<bool> {
    let value = Box::new(value);
    let (address, bytes) = ((&raw const *value).addr(), size_of::<T>());
    let Some(before) = read_memory(address, bytes) else {
        println!("this system does not let a process read its memory as a file");
        return None;
    };
    drop(value);
    let after = read_memory(address, bytes)?;
    let words = before.chunks(WORD).zip(after.chunks(WORD)).skip(ALLOCATOR_BYTES / WORD);
    let changed = words.filter(|(before, after)| before != after).count() * WORD;
    Some(changed + ALLOCATOR_BYTES >= secret_bytes)
}

fn is_wiped<T>(value: T, secret_bytes: usize) -> bool {
    wiped(value, secret_bytes).unwrap_or(true)
}

/// A value that is not wiped on drop.
struct NotWiped([u8; 64]);

fn sessions() -> (SessionSecrets, SessionSecrets) {
    let (keys, psk) = (ServerKeyPair::from_secret(Secret::new([0x11; 32])), Secret::zeroed());
    let (mut message_1, mut message_2) = ([0; 48], [0; 48]);
    let mut initiator =
        Initiator::new(keys.public(), &psk, b"", b"", Secret::new([0x22; 32]), &mut message_1).unwrap();
    let (responder, _) =
        Responder::read(&keys, &psk, b"", &message_1, &Secret::new([0x33; 32]), &mut []).unwrap();
    let (_, of_server) = responder.reply(b"", &mut message_2).unwrap();
    let (_, of_client) = initiator.read_reply(&message_2, &mut []).unwrap();
    (of_client, of_server)
}

#[test]
fn the_test_detects_a_value_that_is_not_wiped() {
    let not_wiped = NotWiped([0xa5; 64]);
    assert_eq!(not_wiped.0[5], 0xa5);
    assert_ne!(wiped(not_wiped, 64), Some(true));
}

#[test]
fn secrets_and_their_owners_are_wiped_on_drop() {
    let secret = || Secret::new([0xa5; 32]);
    assert!(is_wiped(Secret::new([0xa5; 64]), 64));
    assert!(is_wiped(ServerKeyPair::from_secret(secret()), 32));
    assert!(is_wiped(TokenMasterKey::new(secret()), 32));
    assert!(is_wiped(TokenKey::new(1, secret()).unwrap(), 32));
    assert!(is_wiped(IdKeys::derive(&secret(), b""), 48));
    assert!(is_wiped(Mac1Key::derive(&[1; 32], &secret()), 32));
    assert!(is_wiped(RefuseKey::derive(&secret()), 32));
    assert!(is_wiped(Entropy::from_seed(secret()), 32));
    let token = Token {
        kind: TokenKind::Connect,
        id: TokenId([1; 16]),
        player: PlayerId(1),
        psk: secret(),
        audience: 0,
        issued_at: Duration::ZERO,
        expires_at: Duration::from_secs(60),
        session_ends_at: None,
        placement_key: None,
        user_data: Box::default(),
    };
    let issued = TokenKey::new(1, secret()).unwrap().issue(&token, 1, [0; 24]).unwrap();
    assert!(is_wiped(token, 32));
    assert!(is_wiped(issued, 32));
}

#[test]
fn session_secrets_and_packet_keys_are_wiped_on_drop() {
    let (of_client, of_server) = sessions();
    assert!(is_wiped(of_client, 64));
    let (seals, opens) = of_server.into_keys(Suite::ChaCha20Poly1305).unwrap();
    assert!(is_wiped(opens, 32));
    assert!(is_wiped(Sealer::new(seals), 32));
}
