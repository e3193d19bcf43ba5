//! The bounds on everything a command line or a peer may ask of the tools, in one place.
//!
//! It holds numbers only; whoever takes a value in compares it with these and words the refusal.

use std::time::Duration;

use crate::datagram;

/// Flows one sender may announce, and so the most entries of any per-flow table; each flow is one socket.
pub const MAX_FLOWS: u32 = 65_536;

/// Threads of one sender or one receiver.
pub const MAX_THREADS: u32 = 1_024;

/// The shortest datagram a sender makes, in bytes; the same as [`datagram::MIN_BYTES`].
pub const MIN_SIZE: u32 = 28;

/// The longest datagram a sender makes, in bytes; the same as [`datagram::MAX_BYTES`].
pub const MAX_SIZE: u32 = 65_507;

const _: () = assert!(MIN_SIZE as usize == datagram::MIN_BYTES && MAX_SIZE as usize == datagram::MAX_BYTES);

/// The shortest packet of the stages with connections, in bytes: a raw datagram inside, sealed.
pub const SEALED_MIN_SIZE: u32 = 60;

/// The longest packet of the stages with connections, in bytes: what a path is taken to carry.
pub const SEALED_MAX_SIZE: u32 = 1_200;

/// The longest packet whose message goes in one piece in any mode of delivery, in bytes.
pub const WHOLE_MAX_SIZE: u32 = 1_178;

/// The longest packet whose message may be the value of a key, in bytes.
pub const VALUE_MAX_SIZE: u32 = 1_057;

/// Packets per second in all that a sender may be asked to offer; above any rate one host reaches.
pub const MAX_RATE: u64 = 1_000_000_000;

/// The shortest run: below it no rate can be measured.
pub const MIN_RUN: Duration = Duration::from_millis(1);

/// The longest run: one week. A receiver without `--secs` runs until it is stopped.
pub const MAX_RUN: Duration = Duration::from_secs(7 * 24 * 3600);

/// The longest gathering, as the engine allows it while only keep-alives flow.
pub const MAX_GATHER: Duration = Duration::from_micros(10_000);

/// Descriptors of one receiver thread: its socket, the drop meter's copy of it, its poll and its waker.
pub const DESCRIPTORS_PER_THREAD: u64 = 4;

/// Descriptors beside those of flows or receiver threads: standard streams, files, control connections.
pub const OTHER_DESCRIPTORS: u64 = 64;

/// The largest receive buffer that can be asked for, in bytes: the kernel doubles the number in an `i32`.
pub const MAX_RECEIVE_BUFFER_BYTES: u32 = 1_073_741_823;

/// The highest core a thread can be pinned to: what a Linux `cpu_set_t` names.
pub const MAX_CORE: u32 = 1_023;
