//! What this crate asks of the operating system, and nothing else: one contract, kept by one folder per
//! platform. Public code never asks which platform it runs on.
//!
//! The contract:
//!
//! | item | promise |
//! | --- | --- |
//! | `HAS_BATCHES`, `HAS_GROUPS`, `HAS_FINE_SLEEP` | what may be asked for; the rest is refused at set-up |
//! | `RecvHeaders`, `SendHeaders` | memory for batched calls, made once per batch |
//! | `recv_batch`, `send_batch` | one system call; called only with `HAS_BATCHES` |
//! | `share_port`, `attach` | `SO_REUSEPORT` and its filter; called only with `HAS_GROUPS` |
//! | `LocalAddresses` | the numbers of the host's addresses, the same on all sockets that share them |
//! | `enable_gro`, `has_gro`, `has_gso` | false where trains are unknown |
//! | `never_fragment` | false where it cannot be asked for |
//! | `tell_local_address` | false where a socket cannot tell; only then is a datagram's local address `ANY` |
//! | `duplicate`, `queue` | the kernel's account of a socket, or `Unsupported` |
//! | `prepare_thread_for_naps` | this thread's sleeps end within microseconds, as far as the platform can |
//! | `thread_cpu_time` | the calling thread's own, or `None` |
//! | `watch_poll`, `forget_poll` | a poll as one more thing that a poll watches; called only with `HAS_GROUPS` |
//! | `number_of`, `bound_to` | the system's list of the sockets on a port, and a socket's number there, or `Unsupported` |
//! | `fault` | the name of an error |
//!
//! `open`, `recv_one` and `send_one` are the same everywhere and stand here.

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[expect(unsafe_code, reason = "batched calls, filters and kernel accounts have no safe wrapper")]
mod linux;
#[cfg(all(target_os = "linux", not(feature = "portable")))]
pub(crate) use linux::*;

#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
mod portable;
#[cfg(not(all(target_os = "linux", not(feature = "portable"))))]
pub(crate) use portable::*;

use std::io;
use std::net::SocketAddr;

use crate::batch::RecvParts;
use crate::{Fault, LocalAddress, Outgoing};

/// A system that refuses a buffer of this size has none to give.
const BUFFER_LEAST_BYTES: usize = 4_096;

/// What the kernel tells of a receive queue.
pub(crate) struct Queue {
    pub(crate) drops: u32,
    pub(crate) queued_bytes: u32,
    pub(crate) limit_bytes: u32,
}

/// A non-blocking UDP socket of the family of `address`, not yet bound.
pub(crate) fn open(address: SocketAddr) -> io::Result<socket2::Socket> {
    let domain = socket2::Domain::for_address(address);
    let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, Some(socket2::Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Asks for a receive buffer of so many bytes, as for the other one.
pub(crate) fn ask_receive_buffer(socket: &socket2::Socket, bytes: usize) -> io::Result<()> {
    ask_buffer(|bytes| socket.set_recv_buffer_size(bytes), bytes)
}

/// Asks for a send buffer of so many bytes. What is given may be less, on every platform.
pub(crate) fn ask_send_buffer(socket: &socket2::Socket, bytes: usize) -> io::Result<()> {
    ask_buffer(|bytes| socket.set_send_buffer_size(bytes), bytes)
}

/// Some systems refuse what is more than they give, instead of giving what they have: they are asked for half as much.
fn ask_buffer(ask: impl Fn(usize) -> io::Result<()>, mut bytes: usize) -> io::Result<()> {
    loop {
        match ask(bytes) {
            Err(error) if bytes > BUFFER_LEAST_BYTES && fault(&error) == Fault::NoBuffers => bytes /= 2,
            answer => return answer,
        }
    }
}

/// One `recv_from` into the first slot. A datagram that fills the slot may have been cut: the slot is one byte
/// longer than the longest datagram wanted, so it is over-long either way.
pub(crate) fn recv_one(udp: &mio::net::UdpSocket, parts: &mut RecvParts<'_>) -> Result<usize, Fault> {
    let (Some(memory), Some(slot)) = (parts.memory.get_mut(..parts.slot_bytes), parts.slots.first_mut())
    else {
        return Err(Fault::InvalidArgument);
    };
    let (bytes, from) = match udp.recv_from(memory) {
        Ok(received) => received,
        Err(error) => match fault(&error) {
            // Some platforms answer an error instead of a cut datagram, and no address.
            Fault::MessageTooLong => (memory.len(), slot.from),
            fault => return Err(fault),
        },
    };
    slot.from = from;
    slot.local = LocalAddress::ANY;
    slot.bytes = bytes;
    slot.segment_bytes = 0;
    slot.is_truncated = false;
    slot.is_control_truncated = false;
    Ok(1)
}

/// One send of the first datagram.
pub(crate) fn send_one(udp: &mio::net::UdpSocket, outgoing: &Outgoing<'_>) -> Result<usize, Fault> {
    let Some(entry) = outgoing.entries.first() else { return Ok(0) };
    let payload = outgoing.payload(entry);
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
    fn a_system_that_refuses_too_much_is_asked_for_less_until_it_gives() {
        // `ENOBUFS`, wherever this runs.
        let full = [55, 105, 10_055].map(io::Error::from_raw_os_error);
        let number =
            full.iter().find(|error| fault(error) == Fault::NoBuffers).unwrap().raw_os_error().unwrap();
        let asked = RefCell::new(Vec::new());
        let up_to = |most: usize| {
            let asked = &asked;
            move |bytes| {
                asked.borrow_mut().push(bytes);
                if bytes <= most { Ok(()) } else { Err(io::Error::from_raw_os_error(number)) }
            }
        };
        ask_buffer(up_to(8 << 20), 1 << 30).unwrap();
        assert_eq!(asked.take(), (0..=7).map(|halvings| (1 << 30) >> halvings).collect::<Vec<_>>());
        ask_buffer(up_to(8 << 20), 65_536).unwrap();
        assert_eq!(asked.take(), [65_536]);
        let error = ask_buffer(up_to(0), usize::MAX).unwrap_err();
        assert_eq!((error.raw_os_error(), asked.take().len() <= 64), (Some(number), true));
        ask_buffer(|_| Err(io::ErrorKind::PermissionDenied.into()), 65_536).unwrap_err();
    }
}
