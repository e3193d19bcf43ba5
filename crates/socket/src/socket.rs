//! One UDP socket: the real keeper of the [`Io`] contract.
//!
//! Made by a [`crate::ReuseportGroup`] for servers or connected to one peer for clients.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::batch::RecvBatch;
use crate::{Backlog, DropMeter, Fault, Io, Outgoing, SendMode, sys};

/// What the kernel really gave, read back after it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Receive buffer in bytes of kernel memory. Linux doubles what was asked, up to twice `net.core.rmem_max`.
    pub receive_buffer_bytes: usize,
    /// Send buffer in bytes of kernel memory.
    pub send_buffer_bytes: usize,
    /// Whether the kernel segments trains on sending.
    pub has_gso: bool,
    /// Whether the kernel can hand over trains whole; a [`crate::Receiver`] decides whether it does.
    pub has_gro: bool,
    /// Whether a steering filter is attached to the group.
    pub has_filter: bool,
}

/// A non-blocking UDP socket.
pub struct Socket {
    udp: mio::net::UdpSocket,
    is_connected: bool,
    granted: Granted,
    /// Where every datagram says which of the host's addresses it came to.
    locals: Option<sys::LocalAddresses>,
    /// Another descriptor of the same socket, for the day when the one in use is lost: a socket of a group that closed would
    /// take its place in the group along.
    reserve: Option<socket2::Socket>,
    /// Its number in the system's list, where there is a reserve and the platform tells.
    number: Option<u64>,
}

impl Socket {
    /// A socket connected to `peer`, on a free port: for clients. `receive_buffer_bytes` is what to ask for; `None` = the
    /// system's default.
    ///
    /// # Errors
    ///
    /// What the system answers, with the step that failed.
    pub fn connect(peer: SocketAddr, receive_buffer_bytes: Option<usize>) -> io::Result<Self> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = sys::open(any)?;
        if let Some(bytes) = receive_buffer_bytes {
            sys::ask_receive_buffer(&socket, bytes)?;
        }
        socket.bind(&any.into())?;
        socket.connect(&peer.into())?;
        Self::from_bound(socket, true, false, None)
    }

    pub(crate) fn from_bound(
        socket: socket2::Socket,
        is_connected: bool,
        has_filter: bool,
        locals: Option<sys::LocalAddresses>,
    ) -> io::Result<Self> {
        let granted = Granted {
            receive_buffer_bytes: socket.recv_buffer_size()?,
            send_buffer_bytes: socket.send_buffer_size()?,
            has_gso: sys::has_gso(&socket),
            has_gro: sys::has_gro(&socket),
            has_filter,
        };
        let reserve = if is_connected { None } else { Some(socket.try_clone()?) };
        let udp = mio::net::UdpSocket::from_std(socket.into());
        let number = reserve.as_ref().and_then(|_| sys::number_of(&udp).ok());
        Ok(Self { udp, is_connected, granted, locals, reserve, number })
    }

    /// The address it is bound to.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// What the kernel gave.
    #[must_use]
    pub fn granted(&self) -> Granted {
        self.granted
    }

    /// Asks for more receive buffer where there is less than `least_bytes`; what is given may still be less.
    ///
    /// # Errors
    ///
    /// What the system answers.
    pub fn raise_receive_buffer(&mut self, least_bytes: usize) -> io::Result<()> {
        if self.granted.receive_buffer_bytes < least_bytes {
            let socket = socket2::SockRef::from(&self.udp);
            sys::ask_receive_buffer(&socket, least_bytes)?;
            self.granted.receive_buffer_bytes = socket.recv_buffer_size()?;
        }
        Ok(())
    }

    /// A meter of what the kernel drops in front of this socket from now on, readable on any thread.
    ///
    /// # Errors
    ///
    /// `Unsupported` where the platform has no such account, else what the system answers, usually that no
    /// descriptors are left.
    pub fn drop_meter(&self) -> io::Result<DropMeter> {
        sys::duplicate(&self.udp).map(DropMeter::new)
    }

    /// Lets datagrams leave whole or not at all: too long ones vanish on the way instead of being cut, and whoever looks for
    /// what a path carries learns it. Answers whether the platform can.
    ///
    /// ```
    /// let socket = drumfire_socket::Socket::connect("127.0.0.1:9".parse()?, None)?;
    /// if !socket.never_fragment() {
    ///     println!("nothing above 1,200 bytes, then");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn never_fragment(&self) -> bool {
        self.local_addr().is_ok_and(|address| sys::never_fragment(&self.udp, address.is_ipv6()))
    }

    /// Its number in the system's list.
    pub(crate) fn number(&self) -> io::Result<u64> {
        sys::number_of(&self.udp)
    }

    pub(crate) fn source(&mut self) -> &mut mio::net::UdpSocket {
        &mut self.udp
    }

    /// Goes on with another descriptor of the same socket: what waits in it, its options and its place in the group are as they
    /// were. `watch` is told of the new one before the change, and then of the old one to forget, where that is still this
    /// socket's.
    pub(crate) fn reopen(
        &mut self,
        watch: impl FnOnce(&mut mio::net::UdpSocket) -> io::Result<()>,
        forget: impl FnOnce(&mut mio::net::UdpSocket) -> io::Result<()>,
    ) -> io::Result<()> {
        let reserve = self.reserve.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        // Asked first, because the fresh descriptor may well be given the number of one that was closed.
        let is_own = self.number.is_some() && self.number().ok() == self.number;
        let mut fresh = mio::net::UdpSocket::from_std(reserve.try_clone()?.into());
        watch(&mut fresh)?;
        let mut lost = std::mem::replace(&mut self.udp, fresh);
        if is_own {
            // At worst it is told of twice.
            let _ = forget(&mut lost);
        } else {
            // Whoever has its number now, it is not ours to close.
            std::mem::forget(lost);
        }
        Ok(())
    }
}

impl Io for Socket {
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault> {
        let mut parts = batch.parts();
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
            SendMode::Single if locals.is_none() => sys::send_one(udp, outgoing),
            SendMode::Single => sys::send_batch(udp, &mut outgoing.first(), false, locals),
            SendMode::Sendmmsg => sys::send_batch(udp, outgoing, false, locals),
            SendMode::Gso => sys::send_batch(udp, outgoing, true, locals),
        }
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        sys::HAS_BATCHES && !self.is_connected
    }

    fn backlog(&self) -> Option<Backlog> {
        let queue = sys::queue(&self.udp).ok()?;
        Some(Backlog { drops: queue.drops, queued_bytes: queue.queued_bytes })
    }

    fn enable_gro(&mut self) -> bool {
        sys::enable_gro(&self.udp)
    }
}
