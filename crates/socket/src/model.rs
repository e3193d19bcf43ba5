//! For tests only (feature `model`): what the kernel does and writes, in memory.
//!
//! Real sockets and the real kernel are tested beside it.

use std::net::IpAddr;

use crate::Instruction;

/// What a program answers for this payload, with the kernel's rules: arithmetic modulo 2^32, a load beyond the end of the
/// payload ends with 0. `None` for a program that the kernel would not take, or with operations that no
/// [`SteeringFilter`](crate::SteeringFilter) writes.
#[must_use]
pub fn run_program(program: &[Instruction], payload: &[u8]) -> Option<u32> {
    crate::steering::run(program, payload)
}

/// The stride of a train and the host's address that these control messages name, laid out as the kernel writes them for one
/// received message; 0 and `None` where they name none. What is longer than the room that a receiver gives the kernel is not
/// read. `None` on a platform without control messages.
#[must_use]
pub fn said_by_control_messages(control: &[u8]) -> Option<(usize, Option<IpAddr>)> {
    crate::sys::said_by(control)
}
