//! For tests only: a steering program run as the kernel runs it, over a payload in memory.
//!
//! It knows the operations that [`SteeringFilter`](super::SteeringFilter) writes, and no others.

use super::{Instruction, op};

/// What a program answers for this payload, with the kernel's rules: arithmetic modulo 2^32, a load beyond the end of the
/// payload ends with 0. `None` for a program that the kernel would not take: an unknown operation, a jump out of it, a
/// shift by more than there is, a division by zero.
pub(crate) fn run(program: &[Instruction], payload: &[u8]) -> Option<u32> {
    let mut accumulator = 0_u32;
    let mut rest = program.iter();
    while let Some(step) = rest.next() {
        let skip = |holds: bool| usize::from(if holds { step.jump_true } else { step.jump_false });
        let mut skipped = 0;
        match step.code {
            op::LOAD_LENGTH => accumulator = u32::try_from(payload.len()).ok()?,
            op::LOAD_BYTE | op::LOAD_HALF => {
                match load(payload, step.operand, if step.code == op::LOAD_BYTE { 1 } else { 2 }) {
                    Some(value) => accumulator = value,
                    None => return Some(0),
                }
            }
            op::JUMP_AT_LEAST => skipped = skip(accumulator >= step.operand),
            op::JUMP_BITS_SET => skipped = skip(accumulator & step.operand != 0),
            op::MULTIPLY => accumulator = accumulator.wrapping_mul(step.operand),
            op::SHIFT_RIGHT => accumulator = accumulator.checked_shr(step.operand)?,
            op::MODULO => accumulator = accumulator.checked_rem(step.operand)?,
            op::RETURN_ACCUMULATOR => return Some(accumulator),
            op::RETURN_CONSTANT => return Some(step.operand),
            _ => return None,
        }
        rest = rest.as_slice().get(skipped..)?.iter();
    }
    None
}

/// So many bytes of the payload, big-endian.
fn load(payload: &[u8], from: u32, bytes: usize) -> Option<u32> {
    let from = usize::try_from(from).ok()?;
    let loaded = payload.get(from..from.checked_add(bytes)?)?;
    Some(loaded.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}
