//! The last 1,024 sequences of one flow, one bit each, in a ring that never shifts.
//!
//! The caller knows the position of the flow and which sequences are inside the window.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// The number of sequences in the window, up to and including the highest.
pub const WINDOW: u64 = 1_024;

const WORD_BITS: u64 = 64;
const WORD_COUNT: usize = 16;

/// A ring of bits; the bit of a sequence is its remainder by [`WINDOW`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window([u64; WORD_COUNT]);

impl Window {
    #[inline]
    pub(super) fn holds(&self, sequence: u64) -> bool {
        let (word, bit) = place(sequence);
        self.0.get(word).is_some_and(|bits| bits.wrapping_shr(bit) & 1 == 1)
    }

    /// Sets the bits of `length` sequences from `first`; of more than a ring full, the last of each place
    /// counts.
    #[inline]
    pub(super) fn mark(&mut self, first: u64, length: u64) {
        self.each_word(first, length, |bits, mask| *bits |= mask);
    }

    /// Clears the bits of `length` sequences from `first`.
    #[inline]
    pub(super) fn clear(&mut self, first: u64, length: u64) {
        self.each_word(first, length, |bits, mask| *bits &= !mask);
    }

    #[inline]
    fn each_word(&mut self, first: u64, length: u64, change: impl Fn(&mut u64, u64)) {
        let mut at = first;
        let mut left = length.min(WINDOW);
        // A range that starts inside a word touches that word's other end once more: one word beyond the ring
        // at most.
        for _ in 0..=WORD_COUNT {
            if left == 0 {
                return;
            }
            let (word, bit) = place(at);
            let taken = WORD_BITS.saturating_sub(u64::from(bit)).min(left);
            let mask = lowest(taken).wrapping_shl(bit);
            if let Some(bits) = self.0.get_mut(word) {
                change(bits, mask);
            }
            at = at.wrapping_add(taken);
            left = left.saturating_sub(taken);
        }
    }
}

#[inline]
fn place(sequence: u64) -> (usize, u32) {
    let at = sequence % WINDOW;
    ((at / WORD_BITS) as usize, (at % WORD_BITS) as u32)
}

/// A mask of the lowest `count` bits, 1 to 64 of them.
#[inline]
fn lowest(count: u64) -> u64 {
    let unused = WORD_BITS.saturating_sub(count);
    u64::MAX.checked_shr(u32::try_from(unused).unwrap_or(0)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_marked_and_cleared_bit_by_bit() {
        for first in [0, 1, 63, 64, 1_000, 1_023, u64::MAX - 2_000] {
            for length in [0, 1, 2, 63, 64, 65, 128, 1_000, 1_023, 1_024] {
                let mut window = Window::default();
                window.mark(first, length);
                for offset in 0..WINDOW {
                    assert_eq!(window.holds(first + offset), offset < length, "{first} {length} {offset}");
                }
                window = Window([u64::MAX; WORD_COUNT]);
                window.clear(first, length);
                for offset in 0..WINDOW {
                    assert_eq!(window.holds(first + offset), offset >= length, "{first} {length} {offset}");
                }
            }
        }
    }

    #[test]
    fn more_than_a_ring_full_fills_the_ring() {
        let mut window = Window::default();
        window.mark(5, 1_025);
        assert!((0..WINDOW).all(|sequence| window.holds(sequence)));
        window.clear(5, u64::MAX);
        assert!(!(0..WINDOW).any(|sequence| window.holds(sequence)));
    }
}
