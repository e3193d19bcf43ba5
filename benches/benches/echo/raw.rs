//! The floor: plain UDP through mio, one `recv_from` and one `send_to` per message, no connection, no encryption.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use drumfire_benches::RECEIVE_BUFFER_BYTES;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Socket, Type};

use crate::server::{self, Desk, Served, Traffic};

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
        while desk.try_order().is_some() {
            served.traffic = Some(traffic);
            served.say()?;
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
