//! Everything that this crate requires from the operating system: one contract, with one implementation per platform.
//! The code outside of this module does not depend on the platform.
//!
//! The contract:
//!
//! | item | promise |
//! | --- | --- |
//! | `HAS_BATCHES`, `HAS_GROUPS`, `HAS_FINE_SLEEP` | the supported features; settings that need another one are refused |
//! | `RecvHeaders`, `SendHeaders` | the memory of batched calls, allocated once for each batch |
//! | `recv_batch`, `send_batch` | one system call; without `HAS_BATCHES`, for one datagram |
//! | `set_reuse_port`, `attach_filter` | `SO_REUSEPORT` and its filter; requires `HAS_GROUPS` |
//! | `LocalAddresses` | the numbers of the host's addresses, equal on all sockets that share them |
//! | `enable_gro`, `has_gro`, `has_gso` | `false` if the platform does not support trains |
//! | `never_fragment` | `false` if the platform cannot turn off fragmentation |
//! | `enable_packet_info` | `false` if the platform cannot report local addresses; each is then `ANY` |
//! | `duplicate`, `receive_queue` | the kernel's account of the receive queue, or `Unsupported` |
//! | `lower_timer_slack` | short sleeps of this thread end within microseconds, as far as the platform can |
//! | `monotonic_time` | the time of a clock that never goes back |
//! | `thread_cpu_time` | the CPU time of the calling thread, or `None` |
//! | `register_poll`, `deregister_poll` | a poll as an event source of another poll; requires `HAS_GROUPS` |
//! | `inode_of`, `for_each_socket_on` | the system's list of the sockets on a port, or `Unsupported` |
//! | `fault` | the [`Fault`] for a system error |
//!
//! The types that cross the contract, and the calls that are the same on every platform, are in this file.

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[expect(unsafe_code, reason = "batched calls, filters, and socket memory info have no safe wrapper")]
mod linux;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) use linux::*;

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
pub(crate) use portable::*;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use crate::error::Fault;

/// The maximum number of datagrams in a train: `UDP_MAX_SEGMENTS` of the first kernels with `UDP_SEGMENT`.
const MAX_TRAIN: usize = 64;

/// The maximum number of bytes in a train: 65,535 minus the headers of IPv6 and UDP.
const MAX_TRAIN_BYTES: usize = 65_487;

/// A buffer size that every system can grant. A system that refuses even this has no buffers left.
const MIN_BUFFER_BYTES: usize = 4_096;

/// One of the addresses of a socket's host, as a [`crate::ReuseportGroup`] numbers them.
///
/// A reply has to leave from the address that the request was sent to. Otherwise firewalls and connected clients reject
/// it. A host has few addresses, so each one has a number. Only sockets bound to an unspecified address use the
/// numbers. With a specific address, the kernel has no choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalAddress(u16);

impl LocalAddress {
    /// No specific address: the kernel selects it.
    pub const ANY: Self = Self(0);

    /// Returns the address with this number, from [`Self::to_number`].
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        Self(number)
    }

    /// Returns the number of the address, 0 for [`Self::ANY`].
    #[must_use]
    pub const fn to_number(self) -> u16 {
        self.0
    }
}

/// The metadata of one received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecvSlot {
    pub(crate) from: SocketAddr,
    /// The local address that the message was sent to, `ANY` unless packet info is enabled.
    pub(crate) local: LocalAddress,
    pub(crate) bytes: usize,
    /// The segment size of a train, 0 if the kernel did not report one.
    pub(crate) segment_bytes: usize,
    pub(crate) is_truncated: bool,
    pub(crate) is_control_truncated: bool,
}

impl RecvSlot {
    pub(crate) const EMPTY: Self = Self {
        from: SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        local: LocalAddress::ANY,
        bytes: 0,
        segment_bytes: 0,
        is_truncated: false,
        is_control_truncated: false,
    };
}

/// The parts of a receive batch that a receive call fills.
pub(crate) struct RecvParts<'a> {
    /// The payloads. Slot `n` starts at `n * stride` and offers `slot_bytes`.
    pub(crate) memory: &'a mut [u8],
    pub(crate) stride: usize,
    pub(crate) slot_bytes: usize,
    /// The maximum number of messages to receive.
    pub(crate) limit: usize,
    pub(crate) slots: &'a mut [RecvSlot],
    pub(crate) headers: &'a mut RecvHeaders,
}

/// One datagram of a send batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEntry {
    /// The destination, or `None` on a connected socket.
    pub(crate) to: Option<SocketAddr>,
    /// The source address.
    pub(crate) local: LocalAddress,
    /// The position of the payload in the memory of the batch.
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    /// Whether the datagram cannot continue the train before it.
    pub(crate) starts_train: bool,
}

/// The parts of a send batch that a send call uses.
pub(crate) struct SendParts<'a> {
    pub(crate) memory: &'a [u8],
    pub(crate) entries: &'a [SendEntry],
    pub(crate) headers: &'a mut SendHeaders,
}

impl SendParts<'_> {
    pub(crate) fn payload(&self, entry: &SendEntry) -> &[u8] {
        // Only `SendBatch` creates entries, and it has written each payload into this memory.
        &self.memory[entry.offset..entry.offset + entry.bytes]
    }
}

/// Returns how many of the first `entries` form one train. As `UDP_SEGMENT` requires, they have the same addresses and
/// the same length, except that the last datagram may be shorter. A single datagram is a train of one.
pub(crate) fn first_train(entries: &[SendEntry]) -> usize {
    let Some(first) = entries.first() else { return 0 };
    let mut total_bytes = first.bytes;
    let mut count = 1;
    for entry in entries.iter().take(MAX_TRAIN).skip(1) {
        total_bytes += entry.bytes;
        let has_same_addresses = entry.to == first.to && entry.local == first.local;
        // The kernel cannot segment a message into an empty datagram.
        let has_valid_length = entry.bytes <= first.bytes && entry.bytes > 0;
        let continues_train = has_same_addresses && has_valid_length && !entry.starts_train;
        if !continues_train || total_bytes > MAX_TRAIN_BYTES {
            break;
        }
        count += 1;
        // A shorter datagram is the last one of its train.
        if entry.bytes < first.bytes {
            break;
        }
    }
    count
}

/// The kernel's account of a receive queue.
pub(crate) struct ReceiveQueue {
    /// Dropped datagrams since the socket was created, modulo 2^32. With GRO it counts trains.
    pub(crate) drops: u32,
    pub(crate) queued_bytes: u32,
    pub(crate) limit_bytes: u32,
}

/// Returns a non-blocking UDP socket for the address family of `address`, not yet bound.
pub(crate) fn open(address: SocketAddr) -> io::Result<socket2::Socket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
    // Drains and flushes end with would-block, and mio requires non-blocking sockets.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Requests a receive buffer of this size. Every platform may grant less.
pub(crate) fn request_receive_buffer(socket: &socket2::Socket, bytes: usize) -> io::Result<()> {
    request_buffer(|bytes| socket.set_recv_buffer_size(bytes), bytes)
}

/// Requests a send buffer of this size. Every platform may grant less.
pub(crate) fn request_send_buffer(socket: &socket2::Socket, bytes: usize) -> io::Result<()> {
    request_buffer(|bytes| socket.set_send_buffer_size(bytes), bytes)
}

/// Requests a buffer, and half the size again while the system refuses it. Linux reduces a large request to its limit,
/// but other systems refuse it with `ENOBUFS`.
fn request_buffer(request: impl Fn(usize) -> io::Result<()>, mut bytes: usize) -> io::Result<()> {
    loop {
        match request(bytes) {
            Err(error) if bytes > MIN_BUFFER_BYTES && fault(&error) == Fault::NoBuffers => bytes /= 2,
            result => return result,
        }
    }
}

/// Receives one datagram into the first slot with `recv_from`.
///
/// The call does not report truncation. The slot is one byte longer than the maximum datagram, so a datagram that fills
/// it is overlong, truncated or not.
pub(crate) fn recv_one(udp: &mio::net::UdpSocket, parts: &mut RecvParts<'_>) -> Result<usize, Fault> {
    let (Some(memory), Some(slot)) = (parts.memory.get_mut(..parts.slot_bytes), parts.slots.first_mut())
    else {
        // Not reached: a batch has at least one slot, and its memory has room for it.
        return Err(Fault::InvalidArgument);
    };
    let (bytes, from) = match udp.recv_from(memory) {
        Ok(received) => received,
        Err(error) => match fault(&error) {
            // Some platforms return an error for a truncated datagram, without an address.
            Fault::MessageTooLong => (memory.len(), slot.from),
            fault => return Err(fault),
        },
    };
    *slot = RecvSlot { from, bytes, ..RecvSlot::EMPTY };
    Ok(1)
}

/// Sends the first datagram with `send_to`, or with `send` on a connected socket.
pub(crate) fn send_one(udp: &mio::net::UdpSocket, parts: &SendParts<'_>) -> Result<usize, Fault> {
    let Some(entry) = parts.entries.first() else { return Ok(0) };
    let payload = parts.payload(entry);
    let sent = match entry.to {
        Some(to) => udp.send_to(payload, to),
        None => udp.send(payload),
    };
    sent.map(|_| 1).map_err(|error| fault(&error))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_refused_buffer_size_is_halved_until_granted() {
        // The error number of `ENOBUFS` differs between systems.
        let errors = [55, 105, 10_055].map(io::Error::from_raw_os_error);
        let number =
            errors.iter().find(|error| fault(error) == Fault::NoBuffers).unwrap().raw_os_error().unwrap();
        let requests = RefCell::new(Vec::new());
        let up_to = |max: usize| {
            let requests = &requests;
            move |bytes| {
                requests.borrow_mut().push(bytes);
                if bytes <= max { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) }
            }
        };
        request_buffer(up_to(8 << 20), 1 << 30).unwrap();
        assert_eq!(requests.take(), (0..=7).map(|halvings| (1 << 30) >> halvings).collect::<Vec<_>>());
        request_buffer(up_to(8 << 20), 65_536).unwrap();
        assert_eq!(requests.take(), [65_536]);
        let error = request_buffer(up_to(0), usize::MAX).unwrap_err();
        assert_eq!((error.raw_os_error(), requests.take().len() <= 64), (Some(number), true));
        request_buffer(|_| Err(io::ErrorKind::PermissionDenied.into()), 65_536).unwrap_err();
    }
}
