//! An interpreter for steering programs. It runs classic BPF over a payload in memory, as the kernel does.
//!
//! It knows only the operations that `SteeringFilter` uses. The file is included by path, and the parent module has
//! `Instruction` in scope.

use super::Instruction;

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

/// Returns the result of the program for this payload, or `None` for a program that the kernel refuses.
///
/// The rules are those of the kernel. Arithmetic is modulo 2^32, and a load beyond the end of the payload ends the
/// program with 0. A program is refused for an unknown operation, a jump out of the program, a shift by 32 or more, or a
/// division by zero.
pub(crate) fn run(program: &[Instruction], payload: &[u8]) -> Option<u32> {
    let mut accumulator = 0_u32;
    let mut rest = program.iter();
    while let Some(step) = rest.next() {
        let skip = |is_true: bool| usize::from(if is_true { step.jump_true } else { step.jump_false });
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

/// Returns `bytes` bytes of the payload at `offset` as a big-endian number.
fn load(payload: &[u8], offset: u32, bytes: usize) -> Option<u32> {
    let offset = usize::try_from(offset).ok()?;
    let loaded = payload.get(offset..offset.checked_add(bytes)?)?;
    Some(loaded.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}
