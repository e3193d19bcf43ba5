//! Packet numbers that are handed out once, and the nonces made from them.
//!
//! A nonce is the direction's 12-byte IV xor the 64-bit packet number (RFC 9001 section 5.3). Numbers are
//! `u64` on every platform. Whether a number on the wire is new is the business of [`crate::ReplayWindow`].

use std::cell::Cell;
use std::marker::PhantomData;

use crate::suite::NONCE_BYTES;

/// No packet is ever sealed with this number or a higher one (PROTOCOL 6.2, "Packet numbers").
pub const SEAL_LIMIT: u64 = 1 << 61;

/// The nonce of packet `number`.
pub(crate) fn nonce(iv: &[u8; NONCE_BYTES], number: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = *iv;
    for (byte, number_byte) in nonce.iter_mut().rev().zip(number.to_le_bytes()) {
        *byte ^= number_byte;
    }
    nonce
}

/// The numbers of one direction, each taken once, in ascending order.
///
/// Neither `Clone` nor `Sync`: there is one owner, on one thread at a time.
pub(crate) struct PacketNumbers {
    next: u64,
    not_sync: PhantomData<Cell<()>>,
}

impl PacketNumbers {
    pub(crate) const fn new() -> Self {
        Self::starting_at(0)
    }

    pub(crate) const fn starting_at(next: u64) -> Self {
        Self { next, not_sync: PhantomData }
    }

    /// The number that the next `take` gives, or `None` at the limit.
    pub(crate) fn peek(&self) -> Option<u64> {
        (self.next < SEAL_LIMIT).then_some(self.next)
    }

    /// Gives the next number away for good, or `None` at the limit.
    pub(crate) fn take(&mut self) -> Option<u64> {
        let number = self.peek()?;
        self.next = number.saturating_add(1);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nonce_is_the_iv_xor_the_number_in_its_last_eight_bytes() {
        let iv = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xf0];
        assert_eq!(nonce(&iv, 0), iv);
        assert_eq!(nonce(&iv, 0x0102_0304_0506_0708), [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 5, 6, 7, 0xf8]);
        assert_eq!(nonce(&[0; 12], u64::MAX), [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    }

    #[test]
    fn numbers_start_at_zero_and_ascend_by_one() {
        let mut numbers = PacketNumbers::new();
        for expected in 0..1000 {
            assert_eq!(numbers.peek(), Some(expected));
            assert_eq!(numbers.take(), Some(expected));
        }
    }

    #[test]
    fn the_last_number_is_the_one_before_the_limit() {
        let mut numbers = PacketNumbers::starting_at(SEAL_LIMIT - 2);
        assert_eq!(numbers.take(), Some(SEAL_LIMIT - 2));
        assert_eq!(numbers.take(), Some(SEAL_LIMIT - 1));
        for _ in 0..3 {
            assert_eq!(numbers.peek(), None);
            assert_eq!(numbers.take(), None);
        }
        for beyond in [SEAL_LIMIT, SEAL_LIMIT + 1, u64::MAX] {
            assert_eq!(PacketNumbers::starting_at(beyond).take(), None, "{beyond}");
        }
    }
}
