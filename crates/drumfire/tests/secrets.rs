//! Keys and tokens leave no copy in freed memory when they are written as text and read back.
//!
//! The process reads its own heap as a file. The caller has to wipe its own text, as this test does. On systems without `/proc/self`,
//! the test prints that there is nothing to read, and passes. It has a process of its own, because it searches all memory.

#[path = "../../crypto/tests/common/heap.rs"]
mod heap;

use drumfire::tokens::{TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{ConnectToken, PlayerId, ServerKey, ServerPublicKey};
use zeroize::Zeroizing;

use heap::Pieces;

/// The number of keys and tokens of each kind.
const ROUNDS: u8 = 100;

/// Adds a text and the bytes that it encodes, parses it as it is and cut, and wipes it.
fn write_and_read<T: std::str::FromStr>(pieces: &mut Pieces, text: String) -> T {
    let text = Zeroizing::new(text);
    let encoded = text.rsplit('_').next().expect("a label");
    pieces.add(encoded.as_bytes());
    assert!(text[..text.len() - 1].parse::<T>().is_err(), "a text without its last character is invalid");
    text.parse().ok().expect("the whole text is valid")
}

#[test]
fn keys_and_tokens_as_text_leave_nothing_in_freed_memory() {
    let mut pieces = Pieces::default();
    // The lists have room for all, because a list that grows leaves copies in freed memory.
    let room = usize::from(ROUNDS);
    let (mut servers, mut tokens) = (Vec::with_capacity(room), Vec::with_capacity(room));
    for round in 0..ROUNDS {
        let server = ServerKey::generate().expect("randomness");
        pieces.add(&*Zeroizing::new(server.to_bytes()));
        servers.push(write_and_read::<ServerKey>(&mut pieces, server.to_text()));
        let secret = Zeroizing::new(ServerKey::generate().expect("randomness").to_bytes());
        pieces.add(&*secret);
        let master = TokenMasterKey::from_bytes(*secret);
        let master: TokenMasterKey = write_and_read(&mut pieces, master.to_text());
        let key = master.token_key(u32::from(round) + 1, "eu-1").expect("an id");
        let key: TokenKey = write_and_read(&mut pieces, key.to_text());
        let public = ServerPublicKey::from_bytes([round; 32]);
        let request = TokenRequest::new(PlayerId(1), "192.0.2.1:1".parse().expect("an address"), public);
        let token = request.issue(&key).expect("a token");
        tokens.push(write_and_read::<ConnectToken>(&mut pieces, token.to_text()));
    }
    let Some(alive) = pieces.found() else {
        println!("this system does not let a process read its memory as a file");
        return;
    };
    assert!(alive >= 2 * room, "{alive} places: the search does not find texts that exist");
    // A block at the top of the heap, so that the allocator does not return the memory below it to the system.
    let lid = Box::new([1_u8; 64]);
    drop((servers, tokens));
    assert_eq!(pieces.found(), Some(0), "none of {} secrets is left in memory", pieces.len());
    drop(lid);
}
