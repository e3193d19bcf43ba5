//! Bounds on values from a command line or a peer.

use std::time::Duration;

use crate::datagram;

/// The maximum number of flows of one sender. Each flow takes one socket at the sender and one row of each per-flow table.
pub(crate) const MAX_FLOWS: u32 = 65_536;

/// The maximum number of threads of one sender or one receiver.
pub(crate) const MAX_THREADS: u32 = 1_024;

/// The length of the shortest datagram, in bytes: [`datagram::MIN_BYTES`].
pub(crate) const MIN_SIZE: u32 = 28;

/// The length of the longest datagram, in bytes: [`datagram::MAX_BYTES`].
pub(crate) const MAX_SIZE: u32 = 65_507;

const _: () = assert!(MIN_SIZE as usize == datagram::MIN_BYTES && MAX_SIZE as usize == datagram::MAX_BYTES);

/// The length of the shortest packet in the stages with connections, in bytes: the shortest datagram, sealed.
pub(crate) const SEALED_MIN_SIZE: u32 = 60;

/// The length of the longest packet in the stages with connections, in bytes. Every path is assumed to carry it.
pub(crate) const SEALED_MAX_SIZE: u32 = 1_200;

/// The length of the longest packet whose message is not split in any delivery mode, in bytes.
pub(crate) const WHOLE_MAX_SIZE: u32 = 1_178;

/// The length of the longest packet whose message can be the value of a key, in bytes.
pub(crate) const VALUE_MAX_SIZE: u32 = 1_057;

/// The highest rate of a sender, in packets per second. No single host reaches it.
pub(crate) const MAX_RATE: u64 = 1_000_000_000;

/// The shortest run. No rate can be measured in less.
pub(crate) const MIN_RUN: Duration = Duration::from_millis(1);

/// The longest run of a sender: one week.
pub(crate) const MAX_RUN: Duration = Duration::from_secs(7 * 24 * 3600);

/// The longest gathering wait, which the engine uses while only keep-alives arrive.
pub(crate) const MAX_GATHER: Duration = Duration::from_micros(10_000);

/// The descriptors of one receiver thread: its socket, the drop meter's copy of it, its poll, and its waker.
pub(crate) const DESCRIPTORS_PER_THREAD: u64 = 4;

/// The limit of open files that a program asks for: more than its sockets and pollers take with the most flows and threads. If the
/// system allows less, opening them fails with an error that names the flag.
pub(crate) const DESCRIPTORS: u64 = 131_072;

/// The descriptors of everything else: standard streams, files, and control connections.
pub(crate) const OTHER_DESCRIPTORS: u64 = 64;

/// The largest receive buffer that can be requested, in bytes. The kernel doubles the number in an `i32`.
pub(crate) const MAX_RECEIVE_BUFFER_BYTES: usize = 1_073_741_823;

/// The highest core that a thread can be pinned to: the last one in a `cpu_set_t` of Linux.
pub(crate) const MAX_CORE: u32 = 1_023;
