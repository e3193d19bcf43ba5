//! Looks for pieces of secrets in the heap of this process, which the process reads as a file.
//!
//! It needs `/proc/self`. Expanded keys of ring, and the memory of other threads' stacks, are not looked at.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::hint::black_box;
use std::io::{Read as _, Seek as _, SeekFrom};

/// The length of a piece, which two places share only if one is a copy of the other.
const PIECE_BYTES: usize = 16;

/// Pieces of secrets, as hashes, so that the list itself is not what is found.
#[derive(Default)]
pub(crate) struct Pieces {
    hashes: HashSet<u64>,
    state: RandomState,
}

impl Pieces {
    pub(crate) fn add(&mut self, secret: &[u8]) {
        let hashes = secret.chunks_exact(PIECE_BYTES).map(|piece| self.state.hash_one(piece));
        self.hashes.extend(hashes);
    }

    /// Returns the number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns how many places of the heap hold a piece, or `None` where the heap cannot be read.
    pub(crate) fn found(&self) -> Option<usize> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let mut memory = File::open("/proc/self/mem").ok()?;
        // The next call overwrites what moved over this thread's stack.
        let stack = u64::try_from((&raw const maps).addr()).expect("an address");
        let mut count = 0;
        for (begin, end) in
            maps.lines().filter_map(heap).filter(|(begin, end)| !(begin..end).contains(&&stack))
        {
            let mut bytes = vec![0; usize::try_from(end - begin).expect("a length")];
            memory.seek(SeekFrom::Start(begin)).expect("a file");
            // A range of the list can be gone by now.
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
