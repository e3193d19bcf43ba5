//! Searches the heap of this process for pieces of secrets. The process reads its memory as a file, which needs `/proc/self`.
//!
//! The search does not find expanded keys of ring.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::hint::black_box;
use std::io::{Read as _, Seek as _, SeekFrom};

/// The length of a piece in bytes. It is long enough that two equal pieces are copies of each other.
const PIECE_BYTES: usize = 16;

/// Pieces of secrets. They are stored as hashes, so that the search does not find this list.
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

    /// Returns the number of places in the heap that contain a piece, or `None` if the heap cannot be read.
    pub(crate) fn found(&self) -> Option<usize> {
        let maps = fs::read_to_string("/proc/self/maps").ok()?;
        let mut memory = File::open("/proc/self/mem").ok()?;
        // This thread's stack is excluded, because later calls overwrite the copies of moved values on it.
        let stack = u64::try_from((&raw const maps).addr()).expect("an address");
        let mut count = 0;
        for (begin, end) in
            maps.lines().filter_map(heap).filter(|(begin, end)| !(begin..end).contains(&&stack))
        {
            let mut bytes = vec![0; usize::try_from(end - begin).expect("a length")];
            memory.seek(SeekFrom::Start(begin)).expect("a file");
            // The range may have been unmapped since the list was read.
            if memory.read_exact(&mut bytes).is_ok() {
                let pieces = bytes.windows(PIECE_BYTES).filter(|piece| piece[0] != 0 || piece[1] != 0);
                count += pieces.filter(|piece| self.hashes.contains(&self.state.hash_one(piece))).count();
            }
            // The next search must not find this copy.
            black_box(&mut bytes).fill(0);
            black_box(&bytes);
        }
        Some(count)
    }
}

/// Returns the range of a line of the list if it is memory of the allocator: writable, and not of a file.
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
