//! Plain UDP without connections, encryption, and reliable delivery: servers, and their clients. No library costs less.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire::stats::WorkerStats;
use drumfire_socket::{
    DrainEnd, FlushEnd, Gro, GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, SendBatch,
    SendMode, Sender, Wait, Waiter, monotonic_time,
};
use drumfire_tools::clock;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};

use crate::answers::{Answers, Served};
use crate::batch_socket::{BatchSocket, DATAGRAM_BYTES};
use crate::client::Client;
use crate::numbered::connection_of;
use crate::process::{CHECK_INTERVAL, Counts, InputLines, LAST_WAIT, arguments, print_line};

/// The size of the largest datagram.
pub const PLAIN_BYTES_MAX: usize = 1_472;

/// A datagram that asks begins with the length of its answer in two bytes.
const ASK_BYTES: usize = 2;

/// Datagrams received in one pass, at most, as many as a worker of drumfire receives.
const BUDGET: usize = 256;

/// How a server receives and sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// Through mio, with one `recv_from` and one `send_to` per datagram.
    OneByOne,
    /// With `recvmmsg` and `sendmmsg`, and the wait of drumfire's workers that gathers for this time, or else the default wait.
    Batches(Option<Duration>),
    /// The same, once per interval, like a game with ticks.
    Every(Duration),
}

/// The answer to a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// The datagram, repeated up to this length, or once if it is 0.
    Repeated(usize),
    /// As many bytes as the datagram asks for. 0 asks for no answer.
    Asked,
}

/// Returns the length of the answer that this datagram asks for. 0 asks for none.
fn asked_bytes(datagram: &[u8]) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(*datagram.first_chunk::<ASK_BYTES>()?)))
}

/// The answers of a server and their counts.
struct PlainEcho {
    reply: Reply,
    answers: Answers,
    served: Served,
}

impl PlainEcho {
    /// Counts a datagram and its answer, if it has one. `send` returns whether there was room.
    fn on_datagram(&mut self, datagram: &[u8], send: impl FnOnce(&[u8]) -> bool) {
        self.served.on_received();
        let bytes = match self.reply {
            Reply::Repeated(bytes) => bytes,
            Reply::Asked => match asked_bytes(datagram) {
                Some(bytes @ 1..=PLAIN_BYTES_MAX) => bytes,
                _ => return,
            },
        };
        self.served.on_answer(send(self.answers.to(datagram, bytes)));
    }
}

/// The role of [`plain`].
pub const PLAIN: &str = "plain-server";

/// Runs a plain server. The arguments are those of [`serve_plain`].
pub fn plain(args: &str) -> Result<Counts, String> {
    let (pace, reply, receive_buffer_bytes) = arguments(args)?;
    serve_plain(pace, reply, receive_buffer_bytes)
}

/// Runs a server with a receive buffer of this size until the end of its input. It prints its address, and returns its counts.
pub fn serve_plain(pace: Pace, reply: Reply, receive_buffer_bytes: usize) -> Result<Counts, String> {
    let fail = |error: io::Error| format!("the plain server: {error}");
    let input = InputLines::read();
    let mut echo = PlainEcho { reply, answers: Answers::default(), served: Served::default() };
    match pace {
        Pace::OneByOne => serve_one_by_one(receive_buffer_bytes, &input, &mut echo),
        Pace::Batches(_) | Pace::Every(_) => serve_in_batches(pace, receive_buffer_bytes, &input, &mut echo),
    }
    .map_err(fail)?;
    let mut counts = echo.served.counts();
    counts.insert("socket received".to_owned(), echo.served.received());
    Ok(counts)
}

fn serve_one_by_one(receive_buffer_bytes: usize, input: &InputLines, echo: &mut PlainEcho) -> io::Result<()> {
    let (mut socket, mut poll) = (bind_mio(None, receive_buffer_bytes)?, Poll::new()?);
    poll.registry().register(&mut socket, Token(0), Interest::READABLE)?;
    let mut events = Events::with_capacity(16);
    print_line(&socket.local_addr()?.to_string()).map_err(io::Error::other)?;
    let mut serve = |time| {
        match poll.poll(&mut events, Some(time)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let mut buffer = [0; PLAIN_BYTES_MAX];
        loop {
            match socket.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    echo.on_datagram(&buffer[..length], |answer| socket.send_to(answer, from).is_ok());
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(()),
                    // The kernel reports the closed port of a client that has ended.
                    ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {}
                    _ => return Err(error),
                },
            }
        }
    };
    while !input.has_ended() {
        serve(CHECK_INTERVAL)?;
    }
    serve(LAST_WAIT)
}

fn serve_in_batches(
    pace: Pace,
    receive_buffer_bytes: usize,
    input: &InputLines,
    echo: &mut PlainEcho,
) -> io::Result<()> {
    let other = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let config = GroupConfig::new((Ipv4Addr::LOCALHOST, 0).into()).receive_buffer_bytes(receive_buffer_bytes);
    let group = ReuseportGroup::bind(&config)?;
    print_line(&group.local_addr().to_string()).map_err(io::Error::other)?;
    let mut socket = group.into_sockets().pop().ok_or(ErrorKind::NotFound)?;
    let mut poller = Poller::new()?;
    poller.register(&mut socket, 0)?;
    let config = ReceiverConfig::default().gro(Gro::Off);
    let mut receiver = Receiver::new(&mut socket, &config).map_err(|error| other(&error))?;
    let (mut sender, mut batch) =
        (Sender::new(SendMode::Sendmmsg), SendBatch::new(BUDGET, BUDGET * PLAIN_BYTES_MAX));
    // Returns whether there is more to do without waiting.
    let mut pass = |echo: &mut PlainEcho| {
        let end = receiver.drain_mut(&mut socket, BUDGET, |mut datagrams| {
            for datagram in datagrams.datagrams_mut() {
                let from = datagram.from;
                echo.on_datagram(datagram.bytes, |answer| batch.push(Some(from), answer));
            }
        });
        let is_sent = batch.is_empty() || sender.flush(&mut socket, &mut batch, |_| {}) == FlushEnd::Sent;
        matches!(end, DrainEnd::BudgetSpent | DrainEnd::Starved) || !is_sent
    };
    let (wait, interval) = match pace {
        Pace::Every(time) => (Wait::Notify, Some(time)),
        Pace::Batches(gather) => (gather.map_or_else(Wait::best, Wait::Gather), None),
        Pace::OneByOne => (Wait::Notify, None),
    };
    let mut waiter = Waiter::new(wait).map_err(|error| other(&error))?;
    let (mut is_more, mut next) = (true, clock::now());
    while !input.has_ended() {
        if let Some(time) = interval {
            while pass(echo) {}
            next += time;
            let now = clock::now();
            clock::pause(next.saturating_duration_since(now));
            next = next.max(now);
        } else {
            let waited = waiter.wait(&mut poller, Some(CHECK_INTERVAL), is_more);
            waited.map_err(|fault| io::Error::other(format!("{fault:?}")))?;
            let before = echo.served.received();
            is_more = pass(echo);
            waiter.on_pass(monotonic_time(), echo.served.received() - before);
        }
    }
    Ok(())
}

/// Binds a non-blocking socket of mio with a receive buffer of this size on the loopback.
pub fn bind_mio(peer: Option<SocketAddr>, receive_buffer_bytes: usize) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    socket.set_recv_buffer_size(receive_buffer_bytes)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    if let Some(peer) = peer {
        socket.connect(&peer.into())?;
    }
    Ok(UdpSocket::from_std(socket.into()))
}

/// Messages as plain datagrams, on a socket like that of drumfire's clients. The number of a message has its connection.
pub struct PlainDatagrams {
    wire: BatchSocket,
    per_socket: usize,
    /// The length of datagrams and of the answers that they ask for. With `None` a datagram is the message itself, which is echoed.
    asked: Option<(usize, u16)>,
}

impl PlainDatagrams {
    /// Connects a socket of this number of connections, with room for `each` datagrams of each of [`crate::PER_SOCKET`] connections per pass and
    /// direction.
    pub fn connect(server: SocketAddr, per_socket: usize, each: usize) -> Result<Self, String> {
        let wire = BatchSocket::connect(server, each, Gro::Off, SendMode::Sendmmsg)?;
        Ok(Self { wire, per_socket, asked: None })
    }

    /// Sends datagrams of this length, which ask for answers of that length, from now on.
    pub fn ask(&mut self, up_bytes: usize, down_bytes: u16) {
        self.asked = Some((up_bytes, down_bytes));
    }
}

impl Client for PlainDatagrams {
    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        let Self { wire, per_socket, asked } = self;
        wire.receive(|mut received| {
            for datagram in received.datagrams_mut() {
                let message = match asked {
                    None => Some(&*datagram.bytes),
                    Some((_, down_bytes)) => asked_message(datagram.bytes, *down_bytes),
                };
                let number = message.and_then(<[u8]>::first_chunk).map(|bytes| u64::from_be_bytes(*bytes));
                let connection = number.map_or(usize::MAX, |number| connection_of(number) % *per_socket);
                take(connection, message.unwrap_or_default());
            }
        });
        Ok(())
    }

    fn send(&mut self, _: u64, _: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        let Some((up_bytes, down_bytes)) = self.asked else { return Ok(self.wire.push(message)) };
        let mut datagram = [0; DATAGRAM_BYTES];
        datagram[..ASK_BYTES].copy_from_slice(&down_bytes.to_be_bytes());
        datagram[ASK_BYTES..][..message.len()].copy_from_slice(message);
        Ok(self.wire.push(&datagram[..up_bytes]))
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.wire.flush()
    }

    fn stats(&mut self) -> WorkerStats {
        self.wire.stats()
    }
}

/// Returns the number of a message in an answer of this length, or `None` when the answer has another one.
fn asked_message(datagram: &[u8], down_bytes: u16) -> Option<&[u8]> {
    let bytes = asked_bytes(datagram).filter(|bytes| *bytes == usize::from(down_bytes))?;
    datagram.get(ASK_BYTES..ASK_BYTES + 8).filter(|_| datagram.len() == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_the_datagram_asks() {
        let mut echo =
            PlainEcho { reply: Reply::Asked, answers: Answers::default(), served: Served::default() };
        let mut sent = Vec::new();
        for datagram in [&[0, 5, 1][..], &[0, 0], &[9], &[255, 255]] {
            echo.on_datagram(datagram, |answer| {
                sent.push(answer.to_vec());
                true
            });
        }
        assert_eq!((sent, echo.served.received()), (vec![vec![0, 5, 1, 0, 5]], 4));
    }
}
