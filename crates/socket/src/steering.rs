//! Steering: a tag inside each datagram selects the socket of a group. [`SteeringFilter`] is the program for the kernel
//! and the same function in Rust.
//!
//! The program is classic BPF, attached with `SO_ATTACH_REUSEPORT_CBPF` (socket(7)), which needs no privilege. It returns
//! the index of a socket in the order of their binding. If the index is out of range, the kernel selects the socket by
//! its hash of addresses and ports. The caller draws the tags and the secret.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

#[cfg(test)]
#[path = "../tests/common/bpf.rs"]
mod bpf;

use std::num::NonZeroU32;

use crate::error::ConfigError;

/// One classic BPF instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// The operation, a combination of class, size, and mode.
    pub code: u16,
    /// The number of instructions to skip if a test is true.
    pub jump_true: u8,
    /// The number of instructions to skip if a test is false.
    pub jump_false: u8,
    /// The constant operand: a value, an offset in the datagram, or a result.
    pub operand: u32,
}

/// Steers datagrams to the sockets of one group by a 16-bit big-endian tag in their payload:
/// `((tag * secret) >> 16) mod sockets`, the product taken modulo 2^32.
///
/// The kernel's hash applies to datagrams that are shorter than the minimum or have bit 7 of byte 0 set (handshakes).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SteeringFilter {
    /// The offset of the tag in the datagram. The tag lies within the first `min_bytes` bytes.
    tag_offset: u32,
    min_bytes: u32,
    /// An odd multiplier. A client that knows it can choose the socket for a forged tag.
    secret: u32,
    sockets: NonZeroU32,
}

/// The maximum number of sockets in one group.
pub(crate) const MAX_SOCKETS: usize = 1_024;

/// The flag in byte 0 of a handshake datagram, which has no tag.
const HANDSHAKE_FLAG: u8 = 0x80;

/// An index beyond every group, for which the kernel uses its hash.
const OUT_OF_RANGE: u32 = u32::MAX;

impl SteeringFilter {
    /// Returns a filter that reads the tag at `tag_offset` in datagrams of at least `min_bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if a datagram of `min_bytes` does not contain the tag, or `min_bytes` exceeds 65,507. The secret
    /// must be odd, because the product would otherwise lose bits of the tag. The number of sockets must be 1 to 1,024.
    pub fn new(
        tag_offset: usize,
        min_bytes: usize,
        secret: u32,
        sockets: usize,
    ) -> Result<Self, ConfigError> {
        let Some(min_bytes) = u32::try_from(min_bytes).ok().filter(|bytes| *bytes <= 65_507) else {
            return Err(ConfigError::new("min_bytes", "is more than a datagram can have; lower it to 65507"));
        };
        // An offset that does not fit 32 bits fails the next check.
        let tag_offset = u32::try_from(tag_offset).unwrap_or(u32::MAX);
        if tag_offset.saturating_add(2) > min_bytes {
            return Err(ConfigError::new(
                "min_bytes",
                "is too short to hold the tag; raise it to tag_offset + 2",
            ));
        }
        if secret.is_multiple_of(2) {
            return Err(ConfigError::new("secret", "is even; draw an odd one"));
        }
        let count = u32::try_from(sockets).ok().filter(|_| sockets <= MAX_SOCKETS).and_then(NonZeroU32::new);
        let Some(sockets) = count else {
            return Err(ConfigError::new("sockets", "must be 1 to 1024"));
        };
        Ok(Self { tag_offset, min_bytes, secret, sockets })
    }

    /// Returns the index of the socket for `tag`.
    #[must_use]
    pub fn socket_of_tag(&self, tag: u16) -> usize {
        // Multiplicative hashing: the top bit of the product depends on every bit of the tag and of the secret. The low
        // bits depend only on the low bits of both, so a modulo of the whole product would select sockets by few bits.
        let product = u32::from(tag).wrapping_mul(self.secret);
        ((product >> 16) % self.sockets) as usize
    }

    /// Returns the index of the socket for this payload, or `None` if the kernel's hash selects it.
    #[must_use]
    pub fn socket_of(&self, payload: &[u8]) -> Option<usize> {
        if payload.len() < self.min_bytes as usize || payload.first()? & HANDSHAKE_FLAG != 0 {
            return None;
        }
        let offset = self.tag_offset as usize;
        let tag = [*payload.get(offset)?, *payload.get(offset.saturating_add(1))?];
        Some(self.socket_of_tag(u16::from_be_bytes(tag)))
    }

    /// Returns the number of sockets that it selects from.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.sockets.get() as usize
    }

    /// Returns the program for the kernel.
    ///
    /// It tests the length explicitly. A load beyond the end of a datagram ends a classic BPF program with 0, so every short
    /// datagram would go to the first socket.
    #[must_use]
    pub fn program(&self) -> [Instruction; 10] {
        let step = |code, operand| Instruction { code, jump_true: 0, jump_false: 0, operand };
        let test =
            |code, operand, jump_true, jump_false| Instruction { code, jump_true, jump_false, operand };
        [
            // Leave short datagrams and handshakes to the hash: jump to the last instruction. The length of a jump counts
            // from the instruction after it.
            step(op::LOAD_LENGTH, 0),
            test(op::JUMP_AT_LEAST, self.min_bytes, 0, 7),
            step(op::LOAD_BYTE, 0),
            test(op::JUMP_BITS_SET, HANDSHAKE_FLAG.into(), 5, 0),
            // Return ((tag * secret) >> 16) mod sockets.
            step(op::LOAD_HALF, self.tag_offset),
            step(op::MULTIPLY, self.secret),
            step(op::SHIFT_RIGHT, 16),
            step(op::MODULO, self.sockets.get()),
            step(op::RETURN_ACCUMULATOR, 0),
            step(op::RETURN_CONSTANT, OUT_OF_RANGE),
        ]
    }
}

impl std::fmt::Debug for SteeringFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret stays out of logs: a client that knows it could direct its load at one worker.
        f.debug_struct("SteeringFilter")
            .field("tag_offset", &self.tag_offset)
            .field("min_bytes", &self.min_bytes)
            .field("sockets", &self.sockets)
            .finish_non_exhaustive()
    }
}

/// Operations of classic BPF (`linux/bpf_common.h`): class | size | mode.
mod op {
    pub(super) const LOAD_LENGTH: u16 = 0x80;
    pub(super) const LOAD_BYTE: u16 = 0x30;
    pub(super) const LOAD_HALF: u16 = 0x28;
    pub(super) const JUMP_AT_LEAST: u16 = 0x35;
    pub(super) const JUMP_BITS_SET: u16 = 0x45;
    pub(super) const MULTIPLY: u16 = 0x24;
    pub(super) const SHIFT_RIGHT: u16 = 0x74;
    pub(super) const MODULO: u16 = 0x94;
    pub(super) const RETURN_ACCUMULATOR: u16 = 0x16;
    pub(super) const RETURN_CONSTANT: u16 = 0x06;
}

#[cfg(test)]
mod tests {
    use super::bpf::run;
    use super::*;

    fn steered(filter: &SteeringFilter, payload: &[u8]) -> Option<usize> {
        let index = run(&filter.program(), payload).expect("a program that ends") as usize;
        (index < filter.sockets()).then_some(index)
    }

    #[test]
    fn the_program_and_the_function_agree_on_every_tag() {
        for (secret, sockets) in [(1, 1), (0x9E37_79B1, 4), (0xFFFF_FFFF, 6), (0x0001_0001, 16), (3, 1_024)] {
            let filter = SteeringFilter::new(1, 28, secret, sockets).expect("a filter");
            let mut payload = [0x08; 28];
            for tag in 0..=u16::MAX {
                payload[1..3].copy_from_slice(&tag.to_be_bytes());
                assert_eq!(filter.socket_of(&payload), Some(filter.socket_of_tag(tag)));
                assert_eq!(steered(&filter, &payload), filter.socket_of(&payload), "tag {tag}");
            }
        }
    }

    #[test]
    fn short_datagrams_and_handshakes_use_the_hash() {
        let filter = SteeringFilter::new(1, 28, 0x9E37_79B1, 4).expect("a filter");
        for length in 0..64 {
            for first in [0x00, 0x08, 0x7F, 0x80, 0x88, 0xFF] {
                let mut payload = vec![0xA5; length];
                if let Some(byte) = payload.first_mut() {
                    *byte = first;
                }
                let is_steered = length >= 28 && first & 0x80 == 0;
                assert_eq!(filter.socket_of(&payload).is_some(), is_steered, "{length} bytes, {first:#x}");
                assert_eq!(steered(&filter, &payload), filter.socket_of(&payload));
            }
        }
    }

    #[test]
    fn an_invalid_filter_is_refused_with_its_field() {
        let field = |result: Result<SteeringFilter, ConfigError>| result.expect_err("refused").field();
        assert_eq!(field(SteeringFilter::new(27, 28, 1, 4)), "min_bytes");
        assert!(SteeringFilter::new(26, 28, 1, 4).is_ok());
        assert!(SteeringFilter::new(1, 65_507, 1, 4).is_ok());
        assert_eq!(field(SteeringFilter::new(1, 65_508, 1, 4)), "min_bytes");
        assert_eq!(field(SteeringFilter::new(usize::MAX, 28, 1, 4)), "min_bytes");
        assert_eq!(field(SteeringFilter::new(1, 28, 2, 4)), "secret");
        assert_eq!(field(SteeringFilter::new(1, 28, 1, 0)), "sockets");
        assert!(SteeringFilter::new(1, 28, 1, 1_024).is_ok());
        assert_eq!(field(SteeringFilter::new(1, 28, 1, 1_025)), "sockets");
    }

    #[test]
    fn the_secret_is_not_printed() {
        let filter = SteeringFilter::new(1, 28, 0xDEAD_BEEF, 4).expect("a filter");
        let text = format!("{filter:?}").to_lowercase();
        assert!(!text.contains("deadbeef") && !text.contains(&0xDEAD_BEEF_u32.to_string()));
    }
}
