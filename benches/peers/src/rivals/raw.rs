//! The floor: plain UDP with no connection, no encryption and no promise. One by one is `recv_from` and `send_to` through mio;
//! in batches is `recvmmsg` and `sendmmsg` with the waits of drumfire's workers, of which one wakes at the first datagram and two
//! let datagrams gather under load.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire_benches::{Counts, PER_SOCKET, PlainDatagrams};
use drumfire_socket::{
    DrainEnd, FlushEnd, Gro, GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, SendBatch,
    SendMode, Sender, Socket, Wait, Waiter,
};
use drumfire_tools::clock;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Type};

use super::{DATAGRAMS_EACH, NOTIFIED, Rival, Serve, gathered, version_of};
use crate::face::{
    Answers, Client, Ending, LOOK_UP, RECEIVE_BUFFER_BYTES, Served, Server, Setup, Variant, line, serve,
};

/// More than any message of the bench.
const DATAGRAM_BYTES: usize = 2_048;

/// Datagrams taken in one go, at most: a worker's budget.
const BUDGET: usize = 256;

pub(super) fn rivals() -> Vec<Rival> {
    let raw = |name, serve, gather_us| Rival {
        version: "-".to_owned(),
        variant: Variant { gather_us, is_chacha: false },
        wait: if gather_us > 0 { gathered(gather_us) } else { NOTIFIED.to_owned() },
        gro: Some("off"),
        has_reliable: false,
        per_socket: PER_SOCKET,
        loses_only_datagrams: true,
        has_connections: false,
        ..Rival::new(name, "raw", Serve::Here(serve), connect)
    };
    let one_by_one = Rival { version: version_of("mio"), ..raw("raw mio", serve::<OneByOne>, 0) };
    let batches = serve::<Batches>;
    vec![
        one_by_one,
        raw("raw mmsg", batches, 0),
        raw("raw mmsg, 250 us", batches, 250),
        raw("raw mmsg, 1 ms", batches, 1_000),
    ]
}

/// One datagram with each call.
struct OneByOne {
    socket: UdpSocket,
    answers: Answers,
}

impl Server for OneByOne {
    fn bind(setup: &Setup) -> Result<Self, String> {
        let socket = socket2::Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(line)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES).map_err(line)?;
        socket.set_nonblocking(true).map_err(line)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).map_err(line)?;
        Ok(Self { socket: UdpSocket::from_std(socket.into()), answers: Answers::new(setup) })
    }

    fn address(&self) -> Result<SocketAddr, String> {
        self.socket.local_addr().map_err(line)
    }

    fn echo(mut self, ending: &Ending) -> Result<Counts, String> {
        let mut poll = Poll::new().map_err(line)?;
        poll.registry().register(&mut self.socket, Token(0), Interest::READABLE).map_err(line)?;
        let (mut served, mut events) = (Served::default(), Events::with_capacity(16));
        while !ending.is_here() {
            match poll.poll(&mut events, Some(LOOK_UP)) {
                Ok(()) => self.drain(&mut served)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(line(error)),
            }
        }
        Ok(served.counts())
    }
}

impl OneByOne {
    fn drain(&mut self, served: &mut Served) -> Result<(), String> {
        let mut buffer = [0; DATAGRAM_BYTES];
        loop {
            match self.socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let answer = self.answers.to(&buffer[..length]);
                    served.on_answer(self.socket.send_to(answer, from).is_ok());
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    // A client that has ended, said by the kernel.
                    ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {}
                    _ => return Err(line(error)),
                },
            }
        }
    }
}

/// Many datagrams with each call.
struct Batches {
    socket: Socket,
    address: SocketAddr,
    waiter: Waiter,
    answers: Answers,
}

impl Server for Batches {
    fn bind(setup: &Setup) -> Result<Self, String> {
        let config = GroupConfig::new(([127, 0, 0, 1], 0).into()).receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
        let group = ReuseportGroup::bind(&config).map_err(line)?;
        let address = group.local_addr();
        let socket = group.into_sockets().pop().ok_or("a group without sockets")?;
        let wait = match setup.variant.gather_us {
            0 => Wait::Notify,
            micros => Wait::Gather(Duration::from_micros(micros)),
        };
        let waiter = Waiter::new(wait).map_err(line)?;
        Ok(Self { socket, address, waiter, answers: Answers::new(setup) })
    }

    fn address(&self) -> Result<SocketAddr, String> {
        Ok(self.address)
    }

    fn echo(mut self, ending: &Ending) -> Result<Counts, String> {
        let fault = |fault| format!("{fault:?}");
        let mut poller = Poller::new().map_err(line)?;
        poller.register(&mut self.socket, 0).map_err(line)?;
        let config = ReceiverConfig::default().gro(Gro::Off);
        let mut receiver = Receiver::new(&mut self.socket, &config).map_err(line)?;
        let mut sender = Sender::new(SendMode::Sendmmsg);
        let mut batch = SendBatch::new(BUDGET, BUDGET * DATAGRAM_BYTES);
        let Self { socket, waiter, answers, .. } = &mut self;
        let (mut served, mut is_more) = (Served::default(), true);
        while !ending.is_here() {
            waiter.wait(&mut poller, Some(LOOK_UP), is_more).map_err(fault)?;
            let before = served.received;
            let end = receiver.drain_mut(socket, BUDGET, |mut datagrams| {
                for datagram in datagrams.datagrams_mut() {
                    served.on_answer(batch.push(Some(datagram.from), answers.to(datagram.bytes)));
                }
            });
            waiter.on_pass(clock::now(), served.received - before);
            is_more = matches!(end, DrainEnd::BudgetSpent | DrainEnd::Starved);
            if !batch.is_empty() && sender.flush(socket, &mut batch, |_| {}) != FlushEnd::Sent {
                is_more = true;
            }
        }
        Ok(served.counts())
    }
}

fn connect(server: SocketAddr, _: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    Ok(Box::new(PlainDatagrams::connect(server, DATAGRAMS_EACH)?))
}
