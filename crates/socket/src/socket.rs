//! One UDP socket: the [`Io`] contract of the receive and send loops, and [`Socket`], which implements it.
//!
//! A server gets its sockets from a [`crate::ReuseportGroup`]. A client connects one to its peer. Tests and the
//! simulator implement [`Io`] with fakes that return any [`Fault`] from any call.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use crate::batch::RecvBatch;
use crate::error::Fault;
use crate::grants::SocketGrants;
use crate::send_batch::{Outgoing, SendMode};
use crate::sys;

/// One UDP socket, as the receive and send loops use it. Every method is at most one system call.
pub trait Io {
    /// Receives into `batch`, at most [`RecvBatch::limit`] messages, in one call.
    ///
    /// On success, at least one message was added to the batch.
    ///
    /// # Errors
    ///
    /// The fault of the call. The batch is then empty.
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault>;

    /// Sends a prefix of `outgoing` in one call and returns how many datagrams the kernel accepted, at least one.
    ///
    /// # Errors
    ///
    /// The fault of the first datagram, or of the first train when segmenting. No datagram was sent.
    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault>;

    /// Returns whether a receive call that fills fewer slots than it was offered proves that the socket is empty.
    ///
    /// Returns `true` only if nothing but would-block ends the call early: on Linux, for an unconnected socket without
    /// `IP_RECVERR`. A pending error of the network also ends `recvmmsg(2)` after the messages that it has received.
    fn is_emptied_by_short_batch(&self) -> bool;

    /// Allows the kernel to coalesce datagrams into trains, and returns whether it will.
    ///
    /// There is no way back: trains that are already queued would be read as one datagram.
    fn enable_gro(&mut self) -> bool;

    /// Returns the state of the socket's receive queue, or `None` if it is unknown.
    fn backlog(&self) -> Option<SocketBacklog> {
        None
    }
}

/// The datagrams that the kernel dropped or still queues at a socket, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketBacklog {
    /// The number of datagrams that were dropped because the receive buffer was full, since the socket was created and
    /// modulo 2^32. With GRO it counts trains.
    pub drops: u32,
    /// The bytes of kernel memory that queued datagrams occupy, which is more than their length. 0 if every datagram was
    /// read.
    pub queued_bytes: u32,
}

/// A non-blocking UDP socket.
pub struct Socket {
    udp: mio::net::UdpSocket,
    is_connected: bool,
    granted: SocketGrants,
    /// The numbers of the host's addresses, if the kernel reports the local address of each datagram.
    locals: Option<sys::LocalAddresses>,

    // Replacement of a descriptor that other code in the process closed by mistake.
    /// A second descriptor of the same socket. It keeps the socket open, so that the socket keeps its index in the
    /// group and its queue. A connected socket has none, because a client can connect another socket.
    reserve: Option<socket2::Socket>,
    /// The inode of the socket, which shows whether a descriptor still refers to it. `None` if the platform has no inodes
    /// for sockets.
    inode: Option<u64>,
}

impl Socket {
    /// Returns a socket that is connected to `peer` and bound to a free port, for clients. `receive_buffer_bytes` is
    /// the receive buffer to request, or `None` for the system's default.
    ///
    /// # Errors
    ///
    /// The error of the system call that failed.
    pub fn connect(peer: SocketAddr, receive_buffer_bytes: Option<usize>) -> io::Result<Self> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = sys::open(any)?;
        if let Some(bytes) = receive_buffer_bytes {
            sys::request_receive_buffer(&socket, bytes)?;
        }
        socket.bind(&any.into())?;
        socket.connect(&peer.into())?;
        Self::from_bound(socket, true, false, receive_buffer_bytes, None)
    }

    pub(crate) fn from_bound(
        socket: socket2::Socket,
        is_connected: bool,
        has_filter: bool,
        receive_buffer_requested_bytes: Option<usize>,
        locals: Option<sys::LocalAddresses>,
    ) -> io::Result<Self> {
        // Read the sizes back, because the kernel may grant more or less than was requested.
        let granted = SocketGrants {
            receive_buffer_requested_bytes,
            receive_buffer_bytes: socket.recv_buffer_size()?,
            send_buffer_bytes: socket.send_buffer_size()?,
            has_gso: sys::has_gso(&socket),
            has_gro: sys::has_gro(&socket),
            has_filter,
            is_never_fragmented: false,
        };
        let reserve = if is_connected { None } else { Some(socket.try_clone()?) };
        let udp = mio::net::UdpSocket::from_std(socket.into());
        // A platform without inodes can still replace a socket. It then never closes the old descriptor.
        let inode = sys::inode_of(&udp).ok();
        Ok(Self { udp, is_connected, granted, locals, reserve, inode })
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Returns the settings and features that the kernel granted.
    #[must_use]
    pub fn granted(&self) -> SocketGrants {
        self.granted
    }

    /// Requests a receive buffer of `min_bytes` if the current one is smaller. The kernel may still grant less.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn raise_receive_buffer(&mut self, min_bytes: usize) -> io::Result<()> {
        if self.granted.receive_buffer_bytes < min_bytes {
            let socket = socket2::SockRef::from(&self.udp);
            sys::request_receive_buffer(&socket, min_bytes)?;
            self.granted.receive_buffer_bytes = socket.recv_buffer_size()?;
        }
        Ok(())
    }

    /// Returns a meter of the datagrams that the kernel drops at this socket from now on. Any thread may read it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the platform has no drop count per socket, else the error of the system call, usually because
    /// no descriptors are left.
    pub fn drop_meter(&self) -> io::Result<DropMeter> {
        sys::duplicate(&self.udp).map(DropMeter::new)
    }

    /// Turns off IP fragmentation. [`SocketGrants::is_never_fragmented`] is whether the platform supports that.
    ///
    /// A datagram that is too long for its path is then dropped instead of fragmented. Path MTU discovery depends on that
    /// to find the limit of the path.
    ///
    /// ```
    /// let mut socket = drumfire_socket::Socket::connect("127.0.0.1:9".parse()?, None)?;
    /// socket.never_fragment();
    /// if !socket.granted().is_never_fragmented {
    ///     println!("path MTU discovery is off: datagrams have at most 1,200 bytes");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn never_fragment(&mut self) {
        let address = self.local_addr();
        self.granted.is_never_fragmented =
            address.is_ok_and(|address| sys::never_fragment(&self.udp, address.is_ipv6()));
    }

    /// Returns the inode under which the system lists the socket.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        sys::inode_of(&self.udp)
    }

    /// Whether the descriptor still refers to this socket. Otherwise other code in the process closed it by mistake, and may
    /// have opened another file with its number.
    fn has_own_descriptor(&self) -> bool {
        self.inode.is_some() && self.inode().ok() == self.inode
    }

    /// Closes the socket, unless its descriptor no longer refers to it. The number can belong to the socket that took its
    /// place, or to a file of other code, which must stay open. A platform without inodes cannot tell, and closes it.
    pub fn close(self) {
        if self.inode.is_some() && !self.has_own_descriptor() {
            std::mem::forget(self.udp);
        }
    }

    /// Returns the event source to register with a poll.
    pub(crate) fn source(&mut self) -> &mut mio::net::UdpSocket {
        &mut self.udp
    }

    /// Replaces the descriptor with another one of the same socket. The queue, the options, and the index in the group
    /// do not change.
    ///
    /// `register` gets the new descriptor before the replacement. `deregister` then gets the old one, if it still
    /// refers to this socket.
    pub(crate) fn reopen(
        &mut self,
        register: impl FnOnce(&mut mio::net::UdpSocket) -> io::Result<()>,
        deregister: impl FnOnce(&mut mio::net::UdpSocket) -> io::Result<()>,
    ) -> io::Result<()> {
        let reserve = self.reserve.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // Check the old descriptor first, because the new one may get the number of a descriptor that was closed.
        let is_own = self.has_own_descriptor();
        let mut new = mio::net::UdpSocket::from_std(reserve.try_clone()?.into());
        register(&mut new)?;
        // From here on the new descriptor is in use. Its registration was the last step that could fail.
        let mut old = std::mem::replace(&mut self.udp, new);
        if is_own {
            // A failure is harmless: at worst the poll reports each datagram twice.
            let _ = deregister(&mut old);
        } else {
            // The number may belong to a file of other code by now, which must stay open.
            std::mem::forget(old);
        }
        Ok(())
    }
}

impl Io for Socket {
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault> {
        let mut parts = batch.parts();
        // `recv_from` is cheaper for one slot, but does not return the local address.
        let filled = if parts.slots.len() == 1 && self.locals.is_none() {
            sys::recv_one(&self.udp, &mut parts)?
        } else {
            sys::recv_batch(&self.udp, &mut parts, &mut self.locals)?
        };
        batch.set_filled(filled);
        Ok(())
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault> {
        let Self { udp, locals, .. } = self;
        match mode {
            // `send_to` cannot set the source address. Without one, a single datagram needs none of the headers of a batch.
            _ if locals.is_none() && (mode == SendMode::Single || outgoing.parts.entries.len() == 1) => {
                sys::send_one(udp, &outgoing.parts)
            }
            SendMode::Single => sys::send_batch(udp, &mut outgoing.first().parts, false, locals),
            SendMode::Sendmmsg => sys::send_batch(udp, &mut outgoing.parts, false, locals),
            SendMode::Gso => sys::send_batch(udp, &mut outgoing.parts, true, locals),
        }
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        // The network reports errors to connected sockets, which can end a batch early.
        sys::HAS_BATCHES && !self.is_connected
    }

    fn backlog(&self) -> Option<SocketBacklog> {
        let queue = sys::receive_queue(&self.udp).ok()?;
        Some(SocketBacklog { drops: queue.drops, queued_bytes: queue.queued_bytes })
    }

    fn enable_gro(&mut self) -> bool {
        sys::enable_gro(&self.udp)
    }
}

/// Extends the kernel's 32-bit drop counter, which wraps, to 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounter {
    last: u32,
    total: u64,
}

impl DropCounter {
    /// Returns a counter that starts at 0 when the kernel's counter is `reading`.
    #[must_use]
    pub fn starting_at(reading: u32) -> Self {
        Self { last: reading, total: 0 }
    }

    /// Adds a new reading and returns the drops since the start. Between two readings, fewer than 2^32 drops may occur.
    pub fn update(&mut self, reading: u32) -> u64 {
        self.total += u64::from(reading.wrapping_sub(self.last));
        self.last = reading;
        self.total
    }
}

/// The state of a socket's receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// The number of datagrams that were dropped since the meter was created. With GRO it counts trains.
    pub drops: u64,
    /// The bytes of kernel memory that the queue occupies. 0 if every datagram was read.
    pub queued_bytes: u32,
    /// The bytes of kernel memory that the queue may occupy.
    pub limit_bytes: u32,
}

/// Reads the state of one socket's receive queue from any thread.
///
/// On Linux it reads `SO_MEMINFO`. Unlike `SO_RXQ_OVFL` (socket(7)), that needs no control message and no later
/// datagram to carry the count.
///
/// The meter has its own descriptor, so the socket stays bound until the meter is dropped.
#[derive(Debug)]
pub struct DropMeter {
    socket: UdpSocket,
    counter: DropCounter,
}

impl DropMeter {
    fn new(socket: UdpSocket) -> Self {
        let reading = sys::receive_queue(&socket).map_or(0, |queue| queue.drops);
        Self { socket, counter: DropCounter::starting_at(reading) }
    }

    /// Returns the current state of the queue.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the platform has no drop count per socket, else the error of the system call.
    pub fn read(&mut self) -> io::Result<QueueState> {
        let queue = sys::receive_queue(&self.socket)?;
        Ok(QueueState {
            drops: self.counter.update(queue.drops),
            queued_bytes: queue.queued_bytes,
            limit_bytes: queue.limit_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_survives_the_wrap_at_32_bits() {
        let start = u32::MAX - 4;
        let mut counter = DropCounter::starting_at(start);
        for step in 0..12_u32 {
            assert_eq!(counter.update(start.wrapping_add(step)), u64::from(step));
        }
        assert_eq!(counter.update(start.wrapping_add(11)), 11);
        assert_eq!(counter.update(start.wrapping_add(10)), 11 + u64::from(u32::MAX));
    }
}
