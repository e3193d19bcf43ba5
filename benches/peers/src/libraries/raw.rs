//! Plain UDP, the floor of all figures: no connections, no encryption, and no promises. `raw mio` calls `recv_from` and `send_to` for
//! each datagram. `raw mmsg` calls `recvmmsg` and `sendmmsg` with the waits of drumfire's workers: notified at the first datagram, and
//! with two gathering times.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use drumfire_benches::roles::print_address;
use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, PER_SOCKET, PlainDatagrams, RECEIVE_BUFFER_BYTES, stop_flag};
use drumfire_socket::{
    DrainEnd, FlushEnd, Gro, GroupConfig, Poller, Receiver, ReceiverConfig, ReuseportGroup, SendBatch,
    SendMode, Sender, Wait, Waiter,
};
use drumfire_tools::clock;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use crate::adapter::{Answers, DATAGRAMS_EACH, LOOK_UP, Library, Served, Setup, gathered, line, version_of};
use crate::relay::socket;

/// More than any message.
const DATAGRAM_BYTES: usize = 2_048;

/// Datagrams received in one pass, as many as a worker of drumfire receives.
const BUDGET: usize = 256;

pub(crate) fn libraries() -> Vec<Library> {
    let raw = |name, serve, gather_us| {
        let base = Library::new(name, "raw", serve, connect);
        Library {
            version: "-".to_owned(),
            setup: Setup { gather_us, ..Setup::default() },
            wait: if gather_us > 0 { gathered(gather_us) } else { base.wait.clone() },
            gro: Some("off"),
            has_reliable: false,
            per_socket: PER_SOCKET,
            loses_only_datagrams: true,
            has_connections: false,
            ..base
        }
    };
    vec![
        Library { version: version_of("mio"), ..raw("raw mio", serve_one_by_one, 0) },
        raw("raw mmsg", serve_in_batches, 0),
        raw("raw mmsg, 250 us", serve_in_batches, 250),
        raw("raw mmsg, 1 ms", serve_in_batches, 1_000),
    ]
}

fn serve_one_by_one(setup: &Setup) -> Result<Counts, String> {
    let (is_over, mut socket, mut poll) = (stop_flag(), socket(None)?, Poll::new().map_err(line)?);
    poll.registry().register(&mut socket, Token(0), Interest::READABLE).map_err(line)?;
    print_address(socket.local_addr().map_err(line)?)?;
    let (mut answers, mut served, mut events) =
        (Answers::new(setup), Served::default(), Events::with_capacity(16));
    while !is_over.load(Ordering::Acquire) {
        match poll.poll(&mut events, Some(LOOK_UP)) {
            Ok(()) => drain(&socket, &mut answers, &mut served)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(line(error)),
        }
    }
    Ok(served.counts())
}

fn drain(socket: &UdpSocket, answers: &mut Answers, served: &mut Served) -> Result<(), String> {
    let mut buffer = [0; DATAGRAM_BYTES];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((length, from)) => {
                served.on_answer(socket.send_to(answers.to(&buffer[..length]), from).is_ok());
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(()),
                // The kernel reports the closed port of a client that has ended.
                ErrorKind::Interrupted | ErrorKind::ConnectionRefused => {}
                _ => return Err(line(error)),
            },
        }
    }
}

fn serve_in_batches(setup: &Setup) -> Result<Counts, String> {
    let config = GroupConfig::new(([127, 0, 0, 1], 0).into()).receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let group = ReuseportGroup::bind(&config).map_err(line)?;
    let (address, is_over) = (group.local_addr(), stop_flag());
    let mut socket = group.into_sockets().pop().ok_or("a group without sockets")?;
    let wait = match setup.gather_us {
        0 => Wait::Notify,
        micros => Wait::Gather(Duration::from_micros(micros)),
    };
    let (mut waiter, mut poller) = (Waiter::new(wait).map_err(line)?, Poller::new().map_err(line)?);
    poller.register(&mut socket, 0).map_err(line)?;
    let mut receiver = Receiver::new(&mut socket, &ReceiverConfig::default().gro(Gro::Off)).map_err(line)?;
    let (mut sender, mut batch) =
        (Sender::new(SendMode::Sendmmsg), SendBatch::new(BUDGET, BUDGET * DATAGRAM_BYTES));
    print_address(address)?;
    let (mut answers, mut served, mut is_more) = (Answers::new(setup), Served::default(), true);
    while !is_over.load(Ordering::Acquire) {
        waiter.wait(&mut poller, Some(LOOK_UP), is_more).map_err(|fault| format!("{fault:?}"))?;
        let before = served.received;
        let end = receiver.drain_mut(&mut socket, BUDGET, |mut datagrams| {
            for datagram in datagrams.datagrams_mut() {
                served.on_answer(batch.push(Some(datagram.from), answers.to(datagram.bytes)));
            }
        });
        waiter.on_pass(clock::now(), served.received - before);
        is_more = matches!(end, DrainEnd::BudgetSpent | DrainEnd::Starved);
        if !batch.is_empty() && sender.flush(&mut socket, &mut batch, |_| {}) != FlushEnd::Sent {
            is_more = true;
        }
    }
    Ok(served.counts())
}

fn connect(server: SocketAddr, _: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    Ok(Box::new(PlainDatagrams::connect(server, DATAGRAMS_EACH)?))
}
