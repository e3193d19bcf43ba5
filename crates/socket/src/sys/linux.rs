//! Linux: `recvmmsg`, `sendmmsg`, segmentation offloads, reuseport groups with a filter, `SO_MEMINFO`.
//!
//! Every `unsafe` block of the crate is in this folder; each hands the kernel pointers into memory that the
//! caller's borrow keeps alive for the length of the call.

mod address;
mod control;
mod local;
#[cfg(test)]
mod lost;
mod receive;
mod table;
mod transmit;

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Poll, Registry, Token};

pub(crate) use local::LocalAddresses;
pub(crate) use receive::{RecvHeaders, recv_batch};
pub(crate) use table::{bound_to, number_of};
pub(crate) use transmit::{SendHeaders, send_batch};

use super::Queue;
use crate::{Fault, Instruction};

pub(crate) const HAS_BATCHES: bool = true;
pub(crate) const HAS_GROUPS: bool = true;
pub(crate) const HAS_FINE_SLEEP: bool = true;

/// Places in the answer to `SO_MEMINFO` (`linux/sock_diag.h`).
mod meminfo {
    pub(super) const RECEIVE_ALLOC: usize = 0;
    pub(super) const RECEIVE_LIMIT: usize = 1;
    pub(super) const DROPS: usize = 8;
    pub(super) const VARS: usize = 9;
}

/// Short sleeps end within this of their time; Linux' default is 50 us.
const TIMER_SLACK_NANOS: libc::c_ulong = 1_000;

pub(crate) fn share_port(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

pub(crate) fn duplicate(udp: &mio::net::UdpSocket) -> io::Result<UdpSocket> {
    udp.as_fd().try_clone_to_owned().map(UdpSocket::from)
}

/// Attaches the program to the group this bound socket belongs to.
pub(crate) fn attach(socket: &socket2::Socket, program: &[Instruction]) -> io::Result<()> {
    let mut steps: Vec<libc::sock_filter> = program
        .iter()
        .map(|step| libc::sock_filter {
            code: step.code,
            jt: step.jump_true,
            jf: step.jump_false,
            k: step.operand,
        })
        .collect();
    let len = u16::try_from(steps.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len, filter: steps.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

pub(crate) fn enable_gro(udp: &mio::net::UdpSocket) -> bool {
    let on: libc::c_int = 1;
    set_option(udp, libc::SOL_UDP, libc::UDP_GRO, &on).is_ok()
}

/// Lets the kernel say of every datagram which of the host's addresses it came to; answers whether it will.
pub(crate) fn tell_local_address(socket: &socket2::Socket, is_v6: bool) -> bool {
    let on: libc::c_int = 1;
    if is_v6 {
        // Of IPv4 datagrams that come to such a socket too.
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &on).is_ok()
    } else {
        set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, &on).is_ok()
    }
}

/// Lets datagrams leave whole or not at all, also those that this host takes for too long; answers whether they will.
pub(crate) fn never_fragment(udp: &mio::net::UdpSocket, is_v6: bool) -> bool {
    let (probe, probe_v6): (libc::c_int, libc::c_int) = (libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE);
    // IPv4 datagrams leave from an IPv6 socket by the first.
    let is_set = set_option(udp, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &probe).is_ok();
    if is_v6 {
        set_option(udp, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &probe_v6).is_ok()
    } else {
        is_set
    }
}

pub(crate) fn has_gso(socket: &socket2::Socket) -> bool {
    let mut segment: libc::c_int = 0;
    read_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &mut segment).is_ok()
}

pub(crate) fn has_gro(socket: &socket2::Socket) -> bool {
    let mut is_on: libc::c_int = 0;
    read_option(socket, libc::SOL_UDP, libc::UDP_GRO, &mut is_on).is_ok()
}

pub(crate) fn queue(udp: &impl AsRawFd) -> io::Result<Queue> {
    let mut info = [0_u32; meminfo::VARS];
    let bytes = read_option(udp, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut info)?;
    if bytes < std::mem::size_of_val(&info) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel keeps no drop count per socket"));
    }
    Ok(Queue {
        drops: info[meminfo::DROPS],
        queued_bytes: info[meminfo::RECEIVE_ALLOC],
        limit_bytes: info[meminfo::RECEIVE_LIMIT],
    })
}

/// Lowers the timer slack of this thread. Best effort: without it a nap is up to 50 us longer.
pub(crate) fn prepare_thread_for_naps() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory of ours.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NANOS, 0, 0, 0) };
}

pub(crate) fn thread_cpu_time() -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is ours until the call is over.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    (answer == 0).then(|| Duration::new(seconds, nanos))
}

/// Watches a poll: every event on what it watches is an event on it.
pub(crate) fn watch_poll(registry: &Registry, poll: &Poll, token: Token) -> io::Result<()> {
    registry.register(&mut SourceFd(&poll.as_raw_fd()), token, Interest::READABLE)
}

pub(crate) fn forget_poll(registry: &Registry, poll: &Poll) -> io::Result<()> {
    registry.deregister(&mut SourceFd(&poll.as_raw_fd()))
}

pub(crate) fn fault(error: &io::Error) -> Fault {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Fault::WouldBlock,
        Some(libc::EINTR) => Fault::Interrupted,
        Some(libc::ECONNREFUSED) => Fault::ConnectionRefused,
        Some(libc::EHOSTUNREACH) => Fault::HostUnreachable,
        Some(libc::ENETUNREACH) => Fault::NetworkUnreachable,
        Some(libc::ECONNRESET) => Fault::ConnectionReset,
        Some(libc::EPROTO) => Fault::Protocol,
        Some(libc::ENOMEM) => Fault::OutOfMemory,
        Some(libc::ENOBUFS) => Fault::NoBuffers,
        Some(libc::EBADF) => Fault::BadDescriptor,
        Some(libc::ENOTSOCK) => Fault::NotSocket,
        Some(libc::EMSGSIZE) => Fault::MessageTooLong,
        Some(libc::EPERM) => Fault::NotPermitted,
        Some(libc::EACCES) => Fault::AccessDenied,
        Some(libc::EIO) => Fault::InputOutput,
        Some(libc::EINVAL) => Fault::InvalidArgument,
        Some(libc::EAFNOSUPPORT) => Fault::AddressFamilyUnsupported,
        Some(libc::EADDRNOTAVAIL) => Fault::AddressNotAvailable,
        _ => Fault::Other,
    }
}

fn set_option<T>(socket: &impl AsRawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let bytes = socklen(std::mem::size_of::<T>())?;
    // SAFETY: `value` is borrowed for the call and `bytes` is its size; the kernel only reads it. A filter's
    // own pointer is to a vector that lives in the caller's frame.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), bytes) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option made of plain integers; answers how many bytes the kernel wrote.
fn read_option<T: Copy>(socket: &impl AsRawFd, level: i32, name: i32, value: &mut T) -> io::Result<usize> {
    let mut bytes = socklen(std::mem::size_of::<T>())?;
    let to = std::ptr::from_mut(value).cast();
    // SAFETY: `value` is borrowed for the call and the kernel writes at most `bytes` bytes, its size; the types
    // it is called with, integers and arrays of them, are valid for every bit pattern.
    let answer = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut bytes) };
    if answer == 0 { Ok(bytes as usize) } else { Err(io::Error::last_os_error()) }
}

fn socklen(bytes: usize) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}
