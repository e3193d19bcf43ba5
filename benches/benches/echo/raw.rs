//! The floor: plain UDP through mio, one `recv_from` and one `send_to` per message, no connection, no encryption.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Socket, Type};

use crate::load::Crowd;
use crate::server::{self, RECEIVE_BUFFER_BYTES, Served};
use crate::wire::Wire;

const SOCKET: Token = Token(0);

const WAKER: Token = Token(1);

/// More than any message of the bench.
const BUFFER_BYTES: usize = 2_048;

/// Echoes until the standard input ends.
pub(crate) fn serve() -> io::Result<Served> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    let mut socket = UdpSocket::from_std(socket.into());
    let mut poll = Poll::new()?;
    poll.registry().register(&mut socket, SOCKET, Interest::READABLE)?;
    // Held here: one that is dropped takes its wake-up with it.
    let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
    let is_over = Arc::new(AtomicBool::new(false));
    let (flag, at_end) = (Arc::clone(&is_over), Arc::clone(&waker));
    drumfire_benches::at_end_of_input(move || {
        flag.store(true, Ordering::Release);
        // Without it the process is ended from outside.
        let _ = at_end.wake();
    });
    server::announce(socket.local_addr()?)?;

    let mut served = Served::default();
    let mut events = Events::with_capacity(16);
    let mut buffer = [0; BUFFER_BYTES];
    while !is_over.load(Ordering::Acquire) {
        match poll.poll(&mut events, None) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        drain(&socket, &mut buffer, &mut served)?;
    }
    Ok(served)
}

fn drain(socket: &UdpSocket, buffer: &mut [u8], served: &mut Served) -> io::Result<()> {
    loop {
        let (length, from) = match socket.recv_from(buffer) {
            Ok(received) => received,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(()),
                // A client that has ended, said by the kernel.
                ErrorKind::Interrupted | ErrorKind::ConnectionRefused => continue,
                _ => return Err(error),
            },
        };
        served.received += 1;
        match socket.send_to(&buffer[..length], from) {
            Ok(_) => served.echoed += 1,
            Err(_) => served.refused += 1,
        }
    }
}

/// The messages of several connections, on one socket as those of drumfire's clients are.
pub(crate) struct RawCrowd(Wire);

impl RawCrowd {
    pub(crate) fn connect(server: SocketAddr) -> Result<Self, String> {
        Wire::connect(server).map(Self)
    }
}

impl Crowd for RawCrowd {
    fn is_ready(&self) -> bool {
        true
    }

    fn receive(&mut self, _: u64, mut take: impl FnMut(&[u8])) -> Result<(), String> {
        self.0.receive(|mut received| {
            for datagram in received.datagrams_mut() {
                take(datagram.bytes);
            }
        });
        Ok(())
    }

    fn send(&mut self, _: u64, _: usize, message: &[u8]) -> Result<bool, String> {
        self.0.push(message).map(|()| true)
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.0.flush()
    }
}
