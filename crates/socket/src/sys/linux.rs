//! Linux: `recvmmsg`, `sendmmsg`, segmentation offloads, reuseport groups with a filter, and `SO_MEMINFO`.
//!
//! This folder contains every `unsafe` block of the crate. Each of them passes the kernel pointers into memory that the
//! caller's borrow keeps alive for the call.

mod control;
mod mmsg;
mod proc_net;

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Poll, Registry, Token};

pub(crate) use control::LocalAddresses;
pub(crate) use mmsg::{RecvHeaders, SendHeaders, recv_batch, send_batch};
pub(crate) use proc_net::{for_each_socket_on, inode_of};

use super::ReceiveQueue;
use crate::error::Fault;
use crate::steering::Instruction;

pub(crate) const HAS_BATCHES: bool = true;
pub(crate) const HAS_GROUPS: bool = true;
pub(crate) const HAS_FINE_SLEEP: bool = true;

/// Indices into the result of `SO_MEMINFO`, the `SK_MEMINFO_*` constants of `linux/sock_diag.h`.
mod meminfo {
    pub(super) const RECEIVE_ALLOC: usize = 0;
    pub(super) const RECEIVE_LIMIT: usize = 1;
    pub(super) const DROPS: usize = 8;
    pub(super) const COUNT: usize = 9;
}

/// The maximum delay of the end of a short sleep (`PR_SET_TIMERSLACK`, prctl(2)). The default of Linux is 50 us.
const TIMER_SLACK_NANOS: libc::c_ulong = 1_000;

pub(crate) fn set_reuse_port(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

pub(crate) fn duplicate(udp: &mio::net::UdpSocket) -> io::Result<UdpSocket> {
    udp.as_fd().try_clone_to_owned().map(UdpSocket::from)
}

/// Attaches the program to the group of this bound socket (`SO_ATTACH_REUSEPORT_CBPF`, socket(7)).
pub(crate) fn attach_filter(socket: &socket2::Socket, program: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|instruction| libc::sock_filter {
            code: instruction.code,
            jt: instruction.jump_true,
            jf: instruction.jump_false,
            k: instruction.operand,
        })
        .collect();
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // `program` has a pointer into `filter`, which lives until the call returned. The kernel keeps a copy.
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// Allows the kernel to coalesce datagrams into trains, and returns whether it will (`UDP_GRO`, udp(7)).
pub(crate) fn enable_gro(udp: &mio::net::UdpSocket) -> bool {
    let on: libc::c_int = 1;
    set_option(udp, libc::SOL_UDP, libc::UDP_GRO, &on).is_ok()
}

/// Enables a control message with the local address of each datagram, and returns whether the kernel supports it.
pub(crate) fn enable_packet_info(socket: &socket2::Socket, is_v6: bool) -> bool {
    let on: libc::c_int = 1;
    if is_v6 {
        // This also covers IPv4 datagrams to an IPv6 socket. Their address is then an IPv4-mapped one.
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, &on).is_ok()
    } else {
        set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, &on).is_ok()
    }
}

/// Turns off IP fragmentation, and returns whether the kernel supports that.
///
/// `IP_PMTUDISC_PROBE` (ip(7)) sets the DF flag and ignores the path MTU that this host has cached. Probes of path MTU
/// discovery may exceed it.
pub(crate) fn never_fragment(udp: &mio::net::UdpSocket, is_v6: bool) -> bool {
    let (probe, probe_v6): (libc::c_int, libc::c_int) = (libc::IP_PMTUDISC_PROBE, libc::IPV6_PMTUDISC_PROBE);
    // An IPv6 socket needs both: IPv4 datagrams to IPv4-mapped addresses use the first one.
    let is_set = set_option(udp, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &probe).is_ok();
    if is_v6 {
        set_option(udp, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, &probe_v6).is_ok()
    } else {
        is_set
    }
}

pub(crate) fn has_gso(socket: &socket2::Socket) -> bool {
    // Reading the option shows whether the kernel knows it, without changing the socket.
    let mut segment: libc::c_int = 0;
    read_option(socket, libc::SOL_UDP, libc::UDP_SEGMENT, &mut segment).is_ok()
}

pub(crate) fn has_gro(socket: &socket2::Socket) -> bool {
    let mut is_on: libc::c_int = 0;
    read_option(socket, libc::SOL_UDP, libc::UDP_GRO, &mut is_on).is_ok()
}

/// Returns the state of the receive queue (`SO_MEMINFO`, `linux/sock_diag.h`).
pub(crate) fn receive_queue(udp: &impl AsRawFd) -> io::Result<ReceiveQueue> {
    let mut info = [0_u32; meminfo::COUNT];
    let bytes = read_option(udp, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut info)?;
    // A shorter array has no drop count.
    if bytes < std::mem::size_of_val(&info) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel has no drop count per socket"));
    }
    Ok(ReceiveQueue {
        drops: info[meminfo::DROPS],
        queued_bytes: info[meminfo::RECEIVE_ALLOC],
        limit_bytes: info[meminfo::RECEIVE_LIMIT],
    })
}

/// Lowers the timer slack of this thread. A failure is ignored: a sleep is then up to 50 us longer.
pub(crate) fn lower_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and accesses no memory of this process.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NANOS, 0, 0, 0) };
}

pub(crate) fn monotonic_time() -> Duration {
    // The system has this clock, and its time is never negative.
    read_clock(libc::CLOCK_MONOTONIC).unwrap_or_default()
}

pub(crate) fn thread_cpu_time() -> Option<Duration> {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_clock(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is borrowed for the call.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u32::try_from(time.tv_nsec).ok()?;
    (result == 0).then(|| Duration::new(seconds, nanos))
}

/// Registers a poll with another one. An event of its sources is then an event of the poll itself (epoll(7)).
pub(crate) fn register_poll(registry: &Registry, poll: &Poll, token: Token) -> io::Result<()> {
    registry.register(&mut SourceFd(&poll.as_raw_fd()), token, Interest::READABLE)
}

pub(crate) fn deregister_poll(registry: &Registry, poll: &Poll) -> io::Result<()> {
    registry.deregister(&mut SourceFd(&poll.as_raw_fd()))
}

pub(crate) fn fault(error: &io::Error) -> Fault {
    match error.raw_os_error() {
        // `EWOULDBLOCK` is the same number on Linux.
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
    // SAFETY: `value` is borrowed for the call, and `bytes` is its size. The kernel only reads it. The pointer inside a
    // filter refers to a vector that the caller keeps alive.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), bytes) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option that consists of integers, and returns how many bytes the kernel wrote.
fn read_option<T: Copy>(socket: &impl AsRawFd, level: i32, name: i32, value: &mut T) -> io::Result<usize> {
    let mut bytes = socklen(std::mem::size_of::<T>())?;
    let target = std::ptr::from_mut(value).cast();
    // SAFETY: `value` is borrowed for the call, and the kernel writes at most `bytes` bytes, its size. All callers pass
    // integers or arrays of integers, which are valid for every bit pattern.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, target, &raw mut bytes) };
    if result == 0 { Ok(bytes as usize) } else { Err(io::Error::last_os_error()) }
}

fn socklen(bytes: usize) -> io::Result<libc::socklen_t> {
    libc::socklen_t::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use crate::{
        Drain, DrainEnd, Fault, GroupConfig, Parker, Poller, Receiver, ReceiverConfig, ReuseportGroup, Socket,
    };

    /// Closes the descriptor of a socket, as other code does that mistakes the number for one of its own.
    fn close_descriptor(udp: &mio::net::UdpSocket) {
        // SAFETY: no memory is accessed. Later calls on the socket return an error, which the test expects.
        assert_eq!(unsafe { libc::close(udp.as_raw_fd()) }, 0);
    }

    const NAME: &str = "sys::linux::tests::a_closed_descriptor_is_replaced_and_no_other_is_closed";

    /// An environment variable that is set in a process that runs only this test. In a shared process, another test
    /// could get the descriptor number that this test closes.
    const IS_ALONE: &str = "DRUMFIRE_TEST_ALONE";

    #[test]
    fn a_closed_descriptor_is_replaced_and_no_other_is_closed() {
        if std::env::var_os(IS_ALONE).is_some() {
            close_and_reopen();
            return close_and_replace();
        }
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let output = alone.args(["--exact", NAME, "--test-threads=1"]).env(IS_ALONE, "1").output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
    }

    fn close_and_reopen() {
        let config = GroupConfig::new("127.0.0.1:0".parse().unwrap()).sockets(2);
        let group = ReuseportGroup::bind(&config).unwrap();
        let (address, mut sockets) = (group.local_addr(), group.into_sockets());
        // Close the second socket, so that every datagram arrives at the first one.
        drop(sockets.pop());
        let socket = &mut sockets[0];
        let mut poller = Poller::new().unwrap();
        poller.register(socket, 0).unwrap();
        let config = ReceiverConfig::default().drain(Drain::Recvmmsg);
        let mut receiver = Receiver::new(socket, &config).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for round in 1..=10 {
            sender.send_to(b"before", address).unwrap();
            close_descriptor(socket.source());
            // In every second round another file gets the number. It has to stay open.
            let other = (round % 2 == 0).then(|| std::fs::File::open("/proc/self/status").unwrap());
            let end = receiver.drain(socket, 16, |_| {});
            assert!(matches!(end, DrainEnd::Closed(Fault::BadDescriptor | Fault::NotSocket)), "{end:?}");
            poller.reopen(socket, 0).unwrap();
            sender.send_to(b"after", address).unwrap();
            while receiver.counts().datagrams < 2 * round {
                let ready = poller.poll(Some(std::time::Duration::from_secs(60))).unwrap();
                assert_eq!(ready.readable, 1);
                receiver.drain(socket, 16, |_| {});
            }
            assert!(other.is_none_or(|file| file.metadata().is_ok()));
        }
    }

    /// A connected socket has no descriptor in reserve. Another socket takes its place, and gets its number.
    fn close_and_replace() {
        let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let connect = || Socket::connect(peer.local_addr().unwrap(), None).unwrap();
        let mut old = connect();
        let number = old.source().as_raw_fd();
        close_descriptor(old.source());
        let mut new = connect();
        assert_eq!(new.source().as_raw_fd(), number);
        old.close();
        assert!(new.local_addr().is_ok(), "the new socket is open");
    }
}
