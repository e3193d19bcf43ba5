//! Every other system, and Linux with the feature `portable`: one socket, plain receive and send, waiting by
//! notification. What is missing says so.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use super::Queue;
use crate::batch::RecvParts;
use crate::{Fault, Instruction, Outgoing};

pub(crate) const HAS_BATCHES: bool = false;
pub(crate) const HAS_GROUPS: bool = false;
pub(crate) const HAS_FINE_SLEEP: bool = false;

/// Plain calls need no headers.
pub(crate) struct RecvHeaders;

impl RecvHeaders {
    pub(crate) fn new(_slots: usize) -> Self {
        Self
    }
}

/// Plain calls need no headers.
pub(crate) struct SendHeaders;

impl SendHeaders {
    pub(crate) fn new(_messages: usize) -> Self {
        Self
    }
}

/// Without a word of the kernel there is nothing to number.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses {}

impl LocalAddresses {
    pub(crate) const fn share(&self) -> Self {
        Self {}
    }
}

/// Without batches a batch is one datagram.
pub(crate) fn recv_batch(
    udp: &mio::net::UdpSocket,
    parts: &mut RecvParts<'_>,
    _locals: &mut Option<LocalAddresses>,
) -> Result<usize, Fault> {
    let RecvHeaders = parts.headers;
    debug_assert!(
        parts.limit == 1 && parts.slot_bytes <= parts.stride,
        "a receiver without batches has one slot"
    );
    super::recv_one(udp, parts)
}

/// Without batches a batch is sent one by one; a train is refused, which makes the sender give trains up.
pub(crate) fn send_batch(
    udp: &mio::net::UdpSocket,
    outgoing: &mut Outgoing<'_>,
    is_segmented: bool,
    _locals: &mut Option<LocalAddresses>,
) -> Result<usize, Fault> {
    let SendHeaders = outgoing.headers;
    if is_segmented && outgoing.first_train() > 1 {
        return Err(Fault::InvalidArgument);
    }
    super::send_one(udp, outgoing)
}

pub(crate) fn share_port(_socket: &socket2::Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn attach(_socket: &socket2::Socket, _program: &[Instruction]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn enable_gro(_udp: &mio::net::UdpSocket) -> bool {
    false
}

pub(crate) fn tell_local_address(_socket: &socket2::Socket, _is_v6: bool) -> bool {
    false
}

pub(crate) fn never_fragment(_udp: &mio::net::UdpSocket, _is_v6: bool) -> bool {
    false
}

pub(crate) fn has_gso(_socket: &socket2::Socket) -> bool {
    false
}

pub(crate) fn has_gro(_socket: &socket2::Socket) -> bool {
    false
}

pub(crate) fn duplicate(_udp: &mio::net::UdpSocket) -> io::Result<UdpSocket> {
    Err(no_account())
}

pub(crate) fn queue<T>(_udp: &T) -> io::Result<Queue> {
    Err(no_account())
}

pub(crate) fn prepare_thread_for_naps() {}

pub(crate) fn thread_cpu_time() -> Option<Duration> {
    None
}

pub(crate) fn watch_poll(_registry: &mio::Registry, _poll: &mio::Poll, _token: mio::Token) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn forget_poll(_registry: &mio::Registry, _poll: &mio::Poll) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn number_of(_udp: &mio::net::UdpSocket) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn bound_to(_port: u16, _each: impl FnMut(u64, IpAddr)) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn no_account() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this platform keeps no drop count per socket")
}

pub(crate) fn fault(error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::WouldBlock => Fault::WouldBlock,
        Kind::Interrupted => Fault::Interrupted,
        Kind::ConnectionRefused => Fault::ConnectionRefused,
        Kind::HostUnreachable => Fault::HostUnreachable,
        Kind::NetworkUnreachable | Kind::NetworkDown => Fault::NetworkUnreachable,
        Kind::ConnectionReset => Fault::ConnectionReset,
        Kind::OutOfMemory => Fault::OutOfMemory,
        Kind::PermissionDenied => Fault::NotPermitted,
        Kind::InvalidInput => Fault::InvalidArgument,
        Kind::AddrNotAvailable => Fault::AddressNotAvailable,
        _ => named_by_number(error),
    }
}

/// Errors for which the standard library has no kind of its own, by the numbers of Linux, the BSDs and Winsock;
/// none of them means another thing on a UDP socket elsewhere.
fn named_by_number(error: &io::Error) -> Fault {
    match error.raw_os_error() {
        Some(9 | 10_009) => Fault::BadDescriptor,
        Some(38 | 88 | 10_038) => Fault::NotSocket,
        Some(40 | 90 | 10_040) => Fault::MessageTooLong,
        Some(47 | 97 | 10_047) => Fault::AddressFamilyUnsupported,
        Some(55 | 105 | 10_055) => Fault::NoBuffers,
        _ => Fault::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_without_a_kind_are_told_by_the_numbers_of_every_system() {
        for (numbers, expected) in [
            ([38, 88, 10_038], Fault::NotSocket),
            ([40, 90, 10_040], Fault::MessageTooLong),
            ([47, 97, 10_047], Fault::AddressFamilyUnsupported),
            ([55, 105, 10_055], Fault::NoBuffers),
        ] {
            for number in numbers {
                assert_eq!(fault(&io::Error::from_raw_os_error(number)), expected, "{number}");
            }
        }
    }
}
