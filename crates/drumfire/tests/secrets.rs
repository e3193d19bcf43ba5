//! Keys and tokens leave no copy in freed memory when they are written as text and read back.
//!
//! The process reads its own heap as a file. The caller's own text is the caller's to wipe, as this test does. Systems without
//! `/proc/self` have nothing to read; the test says so and passes. It is alone in its process: other tests' memory is not looked at.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::hint::black_box;
use std::io::{Read as _, Seek as _, SeekFrom};

use drumfire::{ConnectToken, PlayerId, ServerKey, ServerPublicKey, TokenKey, TokenMasterKey, TokenRequest};
use zeroize::Zeroizing;

/// Keys and tokens of each kind.
const ROUNDS: u8 = 100;

/// The length of a piece, which two places share only if one is a copy of the other.
const PIECE_BYTES: usize = 16;

/// Pieces of secrets, as hashes, so that the list itself is not what is found.
#[derive(Default)]
struct Pieces {
    hashes: HashSet<u64>,
    state: RandomState,
}

impl Pieces {
    fn add(&mut self, secret: &[u8]) {
        let hashes = secret.chunks_exact(PIECE_BYTES).map(|piece| self.state.hash_one(piece));
        self.hashes.extend(hashes);
    }

    /// Returns how many places of the heap hold a piece, or `None` where the heap cannot be read.
    fn found(&self) -> Option<usize> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let mut memory = File::open("/proc/self/mem").ok()?;
        // What moved over this thread's stack is overwritten by the next call.
        let stack = u64::try_from((&raw const maps).addr()).expect("an address");
        let mut count = 0;
        for (begin, end) in
            maps.lines().filter_map(heap).filter(|(begin, end)| !(begin..end).contains(&&stack))
        {
            let mut bytes = vec![0; usize::try_from(end - begin).expect("a length")];
            memory.seek(SeekFrom::Start(begin)).expect("a file");
            if memory.read_exact(&mut bytes).is_ok() {
                let pieces = bytes.windows(PIECE_BYTES).filter(|piece| piece[0] != 0 || piece[1] != 0);
                count += pieces.filter(|piece| self.hashes.contains(&self.state.hash_one(piece))).count();
            }
            // This copy must not be what the next look finds.
            black_box(&mut bytes).fill(0);
            black_box(&bytes);
        }
        Some(count)
    }
}

/// Returns the range of a line that is memory of the allocator: writable, and of no file.
fn heap(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (range, access) = (words.next()?, words.next()?);
    let name = words.nth(3);
    if !access.starts_with("rw") || name.is_some_and(|name| name != "[heap]") {
        return None;
    }
    let (begin, end) = range.split_once('-')?;
    Some((u64::from_str_radix(begin, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// Adds a text and the bytes that it encodes, parses it as it is and cut, and wipes it.
fn write_and_read<T: std::str::FromStr>(pieces: &mut Pieces, text: String) -> T {
    let text = Zeroizing::new(text);
    let encoded = text.rsplit('_').next().expect("a label");
    pieces.add(encoded.as_bytes());
    assert!(text[..text.len() - 1].parse::<T>().is_err(), "a text that was cut");
    text.parse().ok().expect("what was written")
}

#[test]
fn keys_and_tokens_as_text_leave_nothing_in_freed_memory() {
    let mut pieces = Pieces::default();
    // With room for all, because a list that grows leaves copies behind.
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
    assert!(alive >= 2 * room, "{alive} places: the look at memory does not see what is there");
    // The highest block, so that the allocator keeps what lies below it.
    let lid = Box::new([1_u8; 64]);
    drop((servers, tokens));
    assert_eq!(pieces.found(), Some(0), "of {} pieces", pieces.hashes.len());
    drop(lid);
}
