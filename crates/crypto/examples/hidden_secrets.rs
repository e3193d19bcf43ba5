//! The functions of this crate that process secrets, for `cargo xtask secrets`. The task runs each case under valgrind and marks
//! the secrets as undefined memory. Valgrind then reports each branch and each address that depends on a secret.
//!
//! Without arguments, the program prints the names of the cases. With a case and a folder, it prints the address of each secret.
//! Before it uses a secret, it waits until the folder has a file whose name is the number of the secret. The program does not
//! depend on the results of a case. The first case has a fault on purpose.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use drumfire_crypto::cookie::CookieScope;
use drumfire_crypto::{
    Cookies, IdKeys, Initiator, Mac1Key, Opener, RefuseKey, Responder, Sealer, Secret, ServerKeyPair, Suite,
    TAG_BYTES, Token, TokenId, TokenKey, TokenKind,
};

/// The name and the function of a case.
type Case = (&'static str, fn());

const CASES: [Case; 8] = [
    ("a-comparison-that-ends-early", comparison_that_ends_early),
    ("mac1", mac1),
    ("refuse", refuse),
    ("cookie", cookie),
    ("connection-id", connection_id),
    ("token", token),
    ("packets-chacha20-poly1305", || packets(Suite::ChaCha20Poly1305)),
    ("packets-aes-128-gcm", || packets(Suite::Aes128Gcm)),
];

/// The number of secrets so far.
static SECRETS: AtomicU32 = AtomicU32::new(0);

fn main() {
    let Some(asked) = std::env::args().nth(1) else {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        return;
    };
    let case = CASES.iter().find(|(name, _)| *name == asked);
    let (_, run) = case.unwrap_or_else(|| panic!("{asked}: there is no such case"));
    run();
}

/// Returns a secret that valgrind can mark before it is used.
fn hidden() -> Secret<32> {
    let bytes: Box<[u8; 32]> = black_box(Box::new([0x5e; 32]));
    println!("hide {:p} {}", bytes.as_ptr(), bytes.len());
    let number = SECRETS.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::args().nth(2).expect("a folder");
    // Valgrind handles commands only while the program runs.
    while !Path::new(&folder).join(number.to_string()).exists() {
        std::thread::yield_now();
    }
    Secret::new(*black_box(bytes))
}

fn comparison_that_ends_early() {
    let secret = hidden();
    let guess: [u8; 32] = black_box([7; 32]);
    black_box(secret.expose().iter().zip(&guess).position(|(byte, guessed)| byte != guessed));
}

fn mac1() {
    let key = Mac1Key::derive(&[1; 32], &hidden());
    let hello = [&[2; 500][..], &[3; 100]];
    let valid = key.mac(&hello);
    black_box(key.is_valid(&hello, &valid));
    black_box(key.is_valid(&hello, &[0; 16]));
}

fn refuse() {
    let key = RefuseKey::derive(&hidden());
    let valid = key.mac(&[1; 40], &[2; 96]);
    black_box(key.is_valid(&[1; 40], &[2; 96], &valid));
    black_box(key.is_valid(&[1; 40], &[2; 96], &[0; 16]));
}

fn cookie() {
    let mut cookies = Cookies::new(hidden());
    let source = "192.0.2.1:4000".parse().expect("an address");
    let scope = CookieScope { source, client_id: [1; 8], mac1: &[2; 16] };
    let valid = cookies.make(100, &scope);
    black_box(cookies.is_valid(104, &scope, &valid));
    black_box(cookies.is_valid(104, &scope, &[0; 16]));
}

fn connection_id() {
    let keys = IdKeys::derive(&hidden(), b"server");
    let valid = keys.check(&[1; 5]);
    black_box(keys.is_valid(&[1; 5], valid));
    black_box(keys.is_valid(&[1; 5], [0; 3]));
    let reset = keys.reset_token(&[1; 8]);
    black_box(drumfire_crypto::secret::is_equal(&reset, &[0; 16]));
}

/// A forged token. The contents of a valid token are not tested, because the server branches on them.
fn token() {
    let key = TokenKey::new(1, hidden()).expect("a key id that is not reserved");
    let token = Token {
        kind: TokenKind::Connect,
        id: TokenId([1; 16]),
        player: drumfire_crypto::PlayerId(7),
        psk: hidden(),
        audience: 0,
        issued_at: std::time::Duration::from_secs(1_000),
        expires_at: std::time::Duration::from_secs(1_060),
        session_ends_at: None,
        placement_key: None,
        user_data: Box::new([5; 9]),
    };
    let mut sealed = key.seal(&token, 0, [2; 24]).expect("a valid token");
    sealed[100] ^= 1;
    black_box(key.open(&sealed, 0).is_ok());
}

/// A handshake with all its secrets, and valid and forged packets under the keys of the session.
fn packets(suite: Suite) {
    if !suite.is_supported() {
        return;
    }
    let server = ServerKeyPair::from_secret(hidden());
    let psk = hidden();
    let (mut message_1, mut message_2, mut payload) = ([0; 48], [0; 80], [0; 64]);
    let mut client =
        Initiator::new(server.public(), &psk, b"prologue", b"", hidden(), &mut message_1).expect("message 1");
    let ephemeral = hidden();
    let read = Responder::read(&server, &psk, b"prologue", &message_1, &ephemeral, &mut payload);
    let (responder, _) = read.expect("message 1 is valid");
    let (bytes, of_server) = responder.reply(b"welcome", &mut message_2).expect("message 2");
    let (_, of_client) = client.read_reply(&message_2[..bytes], &mut payload).expect("message 2 is valid");
    let (seals, _) = of_client.into_keys(suite).expect("the suite");
    let (_, opens) = of_server.into_keys(suite).expect("the suite");
    let (mut sealer, mut opener) = (Sealer::new(seals), Opener::new(opens));
    for body_bytes in [1, 16, 64, 250, 1_100] {
        for is_forged in [false, true] {
            let mut packet = vec![9; body_bytes + TAG_BYTES];
            let (body, tag) = packet.split_last_chunk_mut().expect("a tag");
            let number = sealer.seal(b"header", body, tag).expect("a packet number");
            packet[0] ^= u8::from(is_forged);
            black_box(opener.open(number, false, b"header", &mut packet).is_ok());
        }
    }
    sealer.step_to_next_epoch();
    opener.step_to_next_epoch();
}
