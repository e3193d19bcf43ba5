//! Batched calls: `recvmmsg(2)` and `sendmmsg(2)`, with their headers and addresses.
//!
//! The headers are allocated once. Each call writes their pointers again, and the kernel uses them during the call only.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::AsRawFd;

use super::control::{ControlBuffer, LocalAddresses};
use super::fault;
use crate::error::Fault;
use crate::sys::{LocalAddress, RecvParts, SendParts, first_train};

/// The headers, addresses, and control messages of one receive call.
pub(crate) struct RecvHeaders {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    addresses: Box<[RawAddress]>,
    controls: Box<[ControlBuffer]>,
}

// SAFETY: the raw pointers inside are written before each call and not read between calls, so they may move to another
// thread.
unsafe impl Send for RecvHeaders {}

impl RecvHeaders {
    pub(crate) fn new(slots: usize) -> Self {
        // SAFETY: msghdr and iovec consist of integers and pointers, for which all zeros is a valid value.
        let (message, vector) =
            unsafe { (std::mem::zeroed::<libc::mmsghdr>(), std::mem::zeroed::<libc::iovec>()) };
        Self {
            messages: vec![message; slots].into_boxed_slice(),
            vectors: vec![vector; slots].into_boxed_slice(),
            addresses: vec![RawAddress::EMPTY; slots].into_boxed_slice(),
            controls: vec![ControlBuffer::EMPTY; slots].into_boxed_slice(),
        }
    }
}

/// Receives up to `parts.limit` messages and returns their number.
pub(crate) fn recv_batch(
    udp: &mio::net::UdpSocket,
    parts: &mut RecvParts<'_>,
    locals: &mut Option<LocalAddresses>,
) -> Result<usize, Fault> {
    // Point a header at each offered slot. The kernel overwrites the lengths, so set them before every call.
    let RecvHeaders { messages, vectors, addresses, controls } = &mut *parts.headers;
    let mut offered: libc::c_uint = 0;
    for ((((message, vector), address), control), slot) in messages
        .iter_mut()
        .zip(vectors.iter_mut())
        .zip(addresses.iter_mut())
        .zip(controls.iter_mut())
        .zip(parts.memory.chunks_mut(parts.stride))
        .take(parts.limit)
    {
        *vector =
            libc::iovec { iov_base: slot.as_mut_ptr().cast(), iov_len: parts.slot_bytes.min(slot.len()) };
        let header = &mut message.msg_hdr;
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header.msg_name = std::ptr::from_mut(address).cast();
        header.msg_namelen = RawAddress::BYTES;
        header.msg_control = std::ptr::from_mut(control).cast();
        header.msg_controllen = size_of::<ControlBuffer>() as _;
        offered += 1;
    }

    // The timeout of recvmmsg(2) does not work as intended (see BUGS there). `MSG_DONTWAIT` makes it unnecessary.
    // SAFETY: the first `offered` headers point at memory, addresses, and control buffers with the stated lengths. This
    // function's borrows keep them alive and unaliased for the call. `offered` is at most `messages.len()`.
    let received = unsafe {
        libc::recvmmsg(
            udp.as_raw_fd(),
            messages.as_mut_ptr(),
            offered,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    let Ok(received) = usize::try_from(received) else {
        return Err(fault(&std::io::Error::last_os_error()));
    };

    // Copy the metadata of the received messages to their slots.
    let filled = messages.iter().zip(addresses.iter()).zip(controls.iter()).zip(parts.slots.iter_mut());
    for (((message, address), control), slot) in filled.take(received) {
        let flags = message.msg_hdr.msg_flags;
        slot.from = address.get();
        slot.bytes = (message.msg_len as usize).min(parts.slot_bytes);
        slot.is_truncated = flags & libc::MSG_TRUNC != 0;
        slot.is_control_truncated = flags & libc::MSG_CTRUNC != 0;
        let control = control.read(message.msg_hdr.msg_controllen as _);
        slot.segment_bytes = control.segment_bytes;
        slot.local = match (&mut *locals, control.local) {
            (Some(locals), Some(address)) => LocalAddress::from_number(locals.number_of(address)),
            _ => LocalAddress::ANY,
        };
    }
    Ok(received)
}

/// The headers, addresses, and control messages of one send call.
pub(crate) struct SendHeaders {
    messages: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    addresses: Box<[RawAddress]>,
    controls: Box<[ControlBuffer]>,
    /// The number of datagrams in each message.
    counts: Box<[usize]>,
}

// SAFETY: the raw pointers inside are written before each call and not read between calls, so they may move to another
// thread.
unsafe impl Send for SendHeaders {}

impl SendHeaders {
    pub(crate) fn new(messages: usize) -> Self {
        // SAFETY: msghdr and iovec consist of integers and pointers, for which all zeros is a valid value.
        let (message, vector) =
            unsafe { (std::mem::zeroed::<libc::mmsghdr>(), std::mem::zeroed::<libc::iovec>()) };
        Self {
            messages: vec![message; messages].into_boxed_slice(),
            vectors: vec![vector; messages].into_boxed_slice(),
            addresses: vec![RawAddress::EMPTY; messages].into_boxed_slice(),
            controls: vec![ControlBuffer::EMPTY; messages].into_boxed_slice(),
            counts: vec![0; messages].into_boxed_slice(),
        }
    }
}

/// Sends as many messages as there are headers, and returns how many datagrams the kernel accepted. A message is one
/// datagram or, if `is_segmented`, one train.
pub(crate) fn send_batch(
    udp: &mio::net::UdpSocket,
    parts: &mut SendParts<'_>,
    is_segmented: bool,
    locals: &mut Option<LocalAddresses>,
) -> Result<usize, Fault> {
    // Fill a header for each message, until either the headers or the datagrams are used up.
    let SendHeaders { messages, vectors, addresses, controls, counts } = &mut *parts.headers;
    let mut rest = parts.entries;
    let mut offered: libc::c_uint = 0;
    for ((((message, vector), address), control), count) in messages
        .iter_mut()
        .zip(vectors.iter_mut())
        .zip(addresses.iter_mut())
        .zip(controls.iter_mut())
        .zip(counts.iter_mut())
    {
        let Some(first) = rest.first() else { break };
        *count = if is_segmented { first_train(rest) } else { 1 };
        let (train, after) = rest.split_at(*count);
        rest = after;
        // The payloads of a train are adjacent, so one vector covers them.
        let bytes = train.iter().map(|entry| entry.bytes).sum::<usize>();
        let payload = &parts.memory[first.offset..first.offset + bytes];
        *vector = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
        let header = &mut message.msg_hdr;
        header.msg_iov = vector;
        header.msg_iovlen = 1;
        header.msg_namelen = first.to.map_or(0, |to| address.set(to));
        header.msg_name =
            if first.to.is_some() { std::ptr::from_mut(address).cast() } else { std::ptr::null_mut() };
        header.msg_control = std::ptr::null_mut();
        header.msg_controllen = 0;
        let segment_bytes = if *count > 1 { u16::try_from(first.bytes).ok() } else { None };
        let local = locals.as_mut().and_then(|locals| locals.address_of(first.local.to_number()));
        let control_bytes = control.write(segment_bytes, local);
        if control_bytes > 0 {
            header.msg_control = std::ptr::from_mut(control).cast();
            header.msg_controllen = control_bytes as _;
        }
        offered += 1;
    }

    // SAFETY: the first `offered` headers point at payloads, addresses, and control buffers with the stated lengths.
    // This function's borrows keep them alive for the call. The kernel only reads the payloads.
    let sent = unsafe {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        libc::sendmmsg(udp.as_raw_fd(), messages.as_mut_ptr(), offered, flags as _)
    };
    // An error concerns the first message: later ones are reported by a smaller count (sendmmsg(2)).
    match usize::try_from(sent) {
        Ok(sent) => Ok(counts.iter().take(sent).sum()),
        Err(_) => Err(fault(&std::io::Error::last_os_error())),
    }
}

/// A socket address of either family in the kernel's representation.
#[derive(Clone, Copy)]
#[repr(C)]
union RawAddress {
    family: libc::sa_family_t,
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

#[expect(clippy::cast_possible_truncation, reason = "sizes and families are small constants")]
impl RawAddress {
    /// The number of bytes that the kernel may write.
    const BYTES: u32 = size_of::<Self>() as u32;
    const V4_BYTES: u32 = size_of::<libc::sockaddr_in>() as u32;
    const V6_BYTES: u32 = size_of::<libc::sockaddr_in6>() as u32;

    const EMPTY: Self = Self {
        v6: libc::sockaddr_in6 {
            sin6_family: 0,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
            sin6_scope_id: 0,
        },
    };

    /// Writes an address and returns its length for the kernel.
    fn set(&mut self, address: SocketAddr) -> u32 {
        match address {
            SocketAddr::V4(address) => {
                self.v4 = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                Self::V4_BYTES
            }
            SocketAddr::V6(address) => {
                self.v6 = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                Self::V6_BYTES
            }
        }
    }

    /// Returns the address that the kernel wrote, or `0.0.0.0:0` for a family other than IPv4 and IPv6.
    fn get(&self) -> SocketAddr {
        // SAFETY: every variant starts with the family. The whole union was initialized by `EMPTY` and then written by
        // `set` or the kernel. All fields are integers, which are valid for every bit pattern.
        match i32::from(unsafe { self.family }) {
            libc::AF_INET => {
                // SAFETY: as above. The family shows that this variant was written last.
                let address = unsafe { self.v4 };
                let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
                SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(address.sin_port)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let address = unsafe { self.v6 };
                let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
                let port = u16::from_be(address.sin6_port);
                SocketAddr::V6(SocketAddrV6::new(ip, port, address.sin6_flowinfo, address.sin6_scope_id))
            }
            _ => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_conversion_and_back() {
        for text in ["0.0.0.0:0", "127.0.0.1:1", "255.1.2.3:65535", "[::]:0", "[2001:db8::7]:443"] {
            let address: SocketAddr = text.parse().expect("an address");
            let mut raw = RawAddress::EMPTY;
            raw.set(address);
            assert_eq!(raw.get(), address);
        }
        let scoped = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 9, 5, 3));
        let mut raw = RawAddress::EMPTY;
        assert_eq!(raw.set(scoped), RawAddress::V6_BYTES);
        assert_eq!(raw.get(), scoped);
    }

    #[test]
    fn an_unknown_family_is_an_unspecified_address() {
        assert!(RawAddress::EMPTY.get().ip().is_unspecified());
    }
}
