//! What ten thousand sessions leave behind in memory that was given back: none of their keys.
//!
//! The process reads its own heap as a file. Expanded keys of the accelerated provider, and what the Noise implementation and
//! hash functions hold, are known gaps and not looked for. Systems without `/proc/self` have nothing to read; the test says so
//! and passes.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Seek as _, SeekFrom};

use crate::keys::{EpochKeys, OpenKeys, SealKeys};
use crate::opener::Opener;
use crate::sealer::Sealer;
use crate::secret::Secret;
use crate::suite::Suite;
use crate::test_support::TestRandom;

const SESSIONS: usize = 10_000;
/// What two places have in common only if one was copied from the other.
const MARK_BYTES: usize = 16;

/// Pieces of keys, as hashes: the list itself must not be what is found.
struct Marks {
    hashes: HashSet<u64>,
    state: RandomState,
}

impl Marks {
    fn add(&mut self, secret: &[u8]) {
        for piece in secret.chunks_exact(MARK_BYTES) {
            self.hashes.insert(self.hash(piece));
        }
    }

    fn add_epoch(&mut self, keys: &EpochKeys) {
        keys.secrets().into_iter().for_each(|secret| self.add(secret));
    }

    fn hash(&self, piece: &[u8]) -> u64 {
        self.state.hash_one(piece)
    }

    /// How many places of the heap hold one of them; nothing where it cannot be read.
    fn found(&self) -> Option<usize> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let mut memory = File::open("/proc/self/mem").ok()?;
        // What moved over this thread's stack is overwritten by whatever is called next, and nobody's to wipe.
        let stack = u64::try_from((&raw const maps).addr()).unwrap();
        let mut count = 0;
        for (begin, end) in
            maps.lines().filter_map(heap).filter(|(begin, end)| !(begin..end).contains(&&stack))
        {
            let mut bytes = vec![0; usize::try_from(end - begin).unwrap()];
            memory.seek(SeekFrom::Start(begin)).unwrap();
            // What the list of pages names may be gone by now.
            if memory.read_exact(&mut bytes).is_ok() {
                let places = bytes.windows(MARK_BYTES).filter(|piece| piece[0] != 0 || piece[1] != 0);
                count += places.filter(|piece| self.hashes.contains(&self.hash(piece))).count();
            }
            // This copy must not be what the next look finds.
            std::hint::black_box(&mut bytes).fill(0);
            std::hint::black_box(&bytes);
        }
        Some(count)
    }
}

/// The range of a line that is memory of the allocator: written to, and of no file.
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

#[test]
fn ten_thousand_sessions_leave_no_key_in_memory_that_was_given_back() {
    let mut marks = Marks { hashes: HashSet::new(), state: RandomState::new() };
    let mut random = TestRandom(17);
    let mut sessions = Vec::with_capacity(SESSIONS);
    for _ in 0..SESSIONS {
        let chain = Secret::new(random.bytes());
        marks.add(chain.expose());
        let seals = SealKeys::first(&chain, Suite::ChaCha20Poly1305).unwrap();
        let opens = OpenKeys::first(&chain, Suite::ChaCha20Poly1305).unwrap();
        marks.add_epoch(opens.epoch_keys());
        let next = opens.next_epoch();
        marks.add_epoch(next.epoch_keys());
        let mut session = Box::new((Sealer::new(seals), Opener::new(opens), next));
        session.0.step_to_next_epoch();
        session.1.step_to_next_epoch();
        sessions.push(session);
    }
    let Some(alive) = marks.found() else {
        println!("this system does not let a process read its memory as a file");
        return;
    };
    // The keys of both epochs of the opening half, and one epoch each of the sealing half and of the one beside them.
    assert!(alive >= SESSIONS * 4, "{alive} places: the look at memory does not see what is there");
    // The highest block, so that the allocator keeps what lies below it.
    let lid = Box::new([1_u8; 64]);
    drop(sessions);
    assert_eq!(marks.found(), Some(0), "of {} pieces", marks.hashes.len());
    drop(lid);
}
