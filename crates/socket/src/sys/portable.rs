//! The implementation for all other systems, and for Linux with the feature `portable`: one socket, plain receive and send
//! calls, and waiting by notification. Unsupported features return `false`, `None`, or `Unsupported`.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::{ReceiveQueue, RecvParts, SendParts, first_train};
use crate::error::Fault;
use crate::steering::Instruction;

pub(crate) const HAS_BATCHES: bool = false;
pub(crate) const HAS_GROUPS: bool = false;
pub(crate) const HAS_FINE_SLEEP: bool = false;

/// Empty: plain calls need no headers.
pub(crate) struct RecvHeaders;

impl RecvHeaders {
    pub(crate) fn new(_slots: usize) -> Self {
        Self
    }
}

/// Empty: plain calls need no headers.
pub(crate) struct SendHeaders;

impl SendHeaders {
    pub(crate) fn new(_messages: usize) -> Self {
        Self
    }
}

/// Empty: plain calls do not report local addresses.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses {}

impl LocalAddresses {
    pub(crate) const fn share(&self) -> Self {
        Self {}
    }
}

/// Receives one datagram. Without batched calls, a batch has one slot.
pub(crate) fn recv_batch(
    udp: &mio::net::UdpSocket,
    parts: &mut RecvParts<'_>,
    _locals: &mut Option<LocalAddresses>,
) -> Result<usize, Fault> {
    // The contract has this field for batched calls. The pattern uses it, so that it is not reported as dead code.
    let RecvHeaders = parts.headers;
    debug_assert!(
        parts.limit == 1 && parts.slot_bytes <= parts.stride,
        "a receiver has one slot on this platform"
    );
    super::recv_one(udp, parts)
}

/// Sends one datagram. A train is refused, so that the sender stops requesting segmentation.
pub(crate) fn send_batch(
    udp: &mio::net::UdpSocket,
    parts: &mut SendParts<'_>,
    is_segmented: bool,
    _locals: &mut Option<LocalAddresses>,
) -> Result<usize, Fault> {
    let SendHeaders = parts.headers;
    if is_segmented && first_train(parts.entries) > 1 {
        return Err(Fault::InvalidArgument);
    }
    super::send_one(udp, parts)
}

pub(crate) fn set_reuse_port(_socket: &socket2::Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn attach_filter(_socket: &socket2::Socket, _program: &[Instruction]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn enable_gro(_udp: &mio::net::UdpSocket) -> bool {
    false
}

pub(crate) fn enable_packet_info(_socket: &socket2::Socket, _is_v6: bool) -> bool {
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
    Err(no_drop_count())
}

pub(crate) fn receive_queue<T>(_udp: &T) -> io::Result<ReceiveQueue> {
    Err(no_drop_count())
}

pub(crate) fn lower_timer_slack() {}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock on this platform")]
pub(crate) fn monotonic_time() -> Duration {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let now = Instant::now();
    now.saturating_duration_since(*ORIGIN.get_or_init(|| now))
}

pub(crate) fn thread_cpu_time() -> Option<Duration> {
    None
}

pub(crate) fn register_poll(
    _registry: &mio::Registry,
    _poll: &mio::Poll,
    _token: mio::Token,
) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn deregister_poll(_registry: &mio::Registry, _poll: &mio::Poll) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn inode_of(_udp: &mio::net::UdpSocket) -> io::Result<u64> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn for_each_socket_on(_port: u16, _each: impl FnMut(u64, IpAddr)) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn no_drop_count() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this platform has no drop count per socket")
}

pub(crate) fn fault(error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::WouldBlock => Fault::WouldBlock,
        Kind::Interrupted => Fault::Interrupted,
        Kind::ConnectionRefused => Fault::ConnectionRefused,
        Kind::HostUnreachable => Fault::HostUnreachable,
        // The reaction is the same: the datagram is lost.
        Kind::NetworkUnreachable | Kind::NetworkDown => Fault::NetworkUnreachable,
        Kind::ConnectionReset => Fault::ConnectionReset,
        Kind::OutOfMemory => Fault::OutOfMemory,
        Kind::PermissionDenied => Fault::NotPermitted,
        Kind::InvalidInput => Fault::InvalidArgument,
        Kind::AddrNotAvailable => Fault::AddressNotAvailable,
        _ => fault_of_number(error),
    }
}

/// Returns the fault for errors without a stable `io::ErrorKind`, by the error numbers of Linux, the BSDs, and Winsock. On
/// a UDP socket, none of these numbers has another meaning on another one of these systems.
fn fault_of_number(error: &io::Error) -> Fault {
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
    fn faults_without_a_kind_are_found_by_error_number() {
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
