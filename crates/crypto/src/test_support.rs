//! Helpers of the unit tests: hexadecimal data, files of vectors, and a deterministic random number generator.

use std::collections::HashMap;

/// Decodes hexadecimal text.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd number of digits");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Decodes hexadecimal text of exactly `N` bytes.
pub(crate) fn hex_array<const N: usize>(text: &str) -> [u8; N] {
    hex(text).try_into().unwrap()
}

/// Returns the bytes 0, 1, 2, and so on, which published vectors often use.
pub(crate) fn counting<const N: usize>() -> [u8; N] {
    std::array::from_fn(|at| u8::try_from(at).unwrap())
}

/// Returns the vectors of a file of "name = hex" lines with a blank line between vectors. A line that starts with `#` is a
/// comment.
pub(crate) fn vectors(file: &str) -> Vec<HashMap<&str, Vec<u8>>> {
    let blocks = file.split("\n\n").map(|block| {
        let lines = block.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| line.split_once(" ="));
        pairs.map(|(name, value)| (name, hex(value.trim()))).collect::<HashMap<_, _>>()
    });
    blocks.filter(|vector| !vector.is_empty()).collect()
}

/// The random number generator SplitMix64, which is deterministic and not suitable for secrets.
pub(crate) struct TestRandom(pub(crate) u64);

impl TestRandom {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.next().to_le_bytes()[0])
    }

    pub(crate) fn vec(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
