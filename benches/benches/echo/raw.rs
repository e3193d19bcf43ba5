//! The floor: plain UDP through mio, one `recv_from` and one `send_to` per message, no connection, no encryption.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use drumfire_benches::say;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Socket, Type};

use crate::load::{Carried, Crowd};
use crate::server::{self, Desk, RECEIVE_BUFFER_BYTES, Served, Traffic};
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
    let at_desk = Arc::clone(&waker);
    let desk = Desk::open(move || {
        // Without it the process is ended from outside.
        let _ = at_desk.wake();
    });
    server::announce(socket.local_addr()?)?;

    let mut served = Served::default();
    let mut traffic = Traffic::default();
    let mut events = Events::with_capacity(16);
    let mut buffer = [0; BUFFER_BYTES];
    while !desk.is_over() {
        match poll.poll(&mut events, None) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        drain(&socket, &mut buffer, &mut served, &mut traffic)?;
        while desk.order().is_some() {
            served.traffic = Some(traffic);
            say(&served.to_line())?;
        }
    }
    served.traffic = Some(traffic);
    Ok(served)
}

fn drain(
    socket: &UdpSocket,
    buffer: &mut [u8],
    served: &mut Served,
    traffic: &mut Traffic,
) -> io::Result<()> {
    loop {
        traffic.calls += 1;
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
        traffic.datagrams_received += 1;
        traffic.bytes += length as u64;
        traffic.calls += 1;
        match socket.send_to(&buffer[..length], from) {
            Ok(_) => {
                served.echoed += 1;
                traffic.datagrams_sent += 1;
                traffic.bytes += length as u64;
            }
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

    fn carried(&self) -> Carried {
        self.0.carried()
    }
}
