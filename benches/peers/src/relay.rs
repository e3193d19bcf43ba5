//! The relay: a process between clients and a server that loses 2 % of the datagrams and delays the others by 25 ms, in each
//! direction. The relay reads no byte of a datagram, so it treats all libraries alike. Each client address has its own socket towards
//! the server.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire::conditioner::{Delay, Link, LinkConfig, Loss};
use drumfire_benches::roles::print_address;
use drumfire_benches::{Counts, InputLines, RECEIVE_BUFFER_BYTES, arguments, bind_mio, close, count};
use drumfire_tools::{clock, host};
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};

use crate::adapter::line;

/// The role of the relay.
pub(crate) const RELAY: &str = "relay";

/// Datagrams of a thousand that are lost in each direction.
pub(crate) const LOST_PER_MILLE: u64 = 20;

/// The delay of each datagram in each direction.
pub(crate) const DELAY_MS: u64 = 25;

/// The seed of the losses.
pub(crate) const SEED: u64 = 0x5eed_0f10_55e5;

/// Open files of a process that has a socket for each connection.
pub(crate) const OPEN_FILES: u64 = 8_192;

/// Client addresses at most.
const CLIENTS_MAX: usize = 4_096;

/// Memory of the datagrams that are delayed at a time in one direction. Further ones are counted as overflow.
const DELAYED_MAX_BYTES: usize = 128 << 20;

/// Longer than any datagram.
const DATAGRAM_BYTES: usize = 2_048;

/// The longest wait. Then the relay checks whether it has to stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The socket of the clients.
const FRONT: Token = Token(usize::MAX);

/// The names of both directions.
const DIRECTIONS: [&str; 2] = ["to server", "to client"];

/// The places of a datagram that was received.
const PLACES: [&str; 5] = ["forwarded", "lost", "overflow", "refused", "delayed at the end"];

/// One direction. All its counts are of datagrams.
struct Direction {
    /// The datagrams that are delayed, each with the index of its client.
    link: Link<usize>,
    received: u64,
    forwarded: u64,
    /// Datagrams that the system did not send.
    refused: u64,
}

impl Direction {
    fn new(seed: u64) -> Result<Self, String> {
        let config = LinkConfig::default()
            .loss(Loss::Random(LOST_PER_MILLE as f64 / 1_000.0))
            .delay(Delay::Constant(Duration::from_millis(DELAY_MS)))
            .memory_bytes(DELAYED_MAX_BYTES);
        Ok(Self { link: Link::new(config, seed).map_err(line)?, received: 0, forwarded: 0, refused: 0 })
    }

    /// Delays a datagram, or loses it.
    fn take(&mut self, now: Duration, client: usize, bytes: &[u8]) {
        self.received += 1;
        self.link.push(now, client, bytes);
    }

    /// Passes on the datagrams that are due. `send` returns whether the system took one.
    fn release(&mut self, now: Duration, mut send: impl FnMut(usize, &[u8]) -> bool) {
        while let Some((client, bytes)) = self.link.poll(now) {
            *(if send(client, &bytes) { &mut self.forwarded } else { &mut self.refused }) += 1;
        }
    }

    fn counts(&self, direction: &str) -> Counts {
        let Self { link, received, forwarded, refused } = self;
        let (counts, delayed) = (link.counts(), link.in_flight_count() as u64);
        let counts = [*forwarded, counts.lost, counts.queue_full, *refused, delayed];
        let counts = PLACES.into_iter().zip(counts).chain([("received", *received)]);
        counts.map(|(place, count)| (format!("{direction} {place}"), count)).collect()
    }
}

/// Fails unless each datagram has a place in both directions.
pub(crate) fn check(counts: &Counts) -> Result<(), String> {
    for direction in DIRECTIONS {
        let placed: u64 = PLACES.iter().map(|place| count(counts, &format!("{direction} {place}"))).sum();
        let received = count(counts, &format!("{direction} received"));
        close([("datagrams with a place at the relay", placed, received..=received)])?;
    }
    Ok(())
}

struct Relay {
    poll: Poll,
    front: UdpSocket,
    server: SocketAddr,
    /// Each client address, and its socket towards the server.
    clients: Vec<(SocketAddr, UdpSocket)>,
    places: HashMap<SocketAddr, usize>,
    inward: Direction,
    outward: Direction,
}

/// Relays to the server with this address until the standard input ends.
pub(crate) fn run(args: &str) -> Result<Counts, String> {
    let server = arguments(args)?;
    // Where the system allows fewer files, the socket that cannot be opened reports it.
    let _ = host::raise_open_files(OPEN_FILES);
    let input = InputLines::read();
    let (poll, mut front) = (Poll::new().map_err(line)?, socket(None)?);
    poll.registry().register(&mut front, FRONT, Interest::READABLE).map_err(line)?;
    print_address(front.local_addr().map_err(line)?)?;
    let (clients, places) = (Vec::new(), HashMap::new());
    let (inward, outward) = (Direction::new(SEED)?, Direction::new(!SEED)?);
    let mut relay = Relay { poll, front, server, clients, places, inward, outward };
    let mut events = Events::with_capacity(1_024);
    while !input.has_ended() {
        relay.pass(&mut events)?;
    }
    let mut counts = relay.inward.counts(DIRECTIONS[0]);
    counts.extend(relay.outward.counts(DIRECTIONS[1]));
    Ok(counts)
}

impl Relay {
    fn pass(&mut self, events: &mut Events) -> Result<(), String> {
        let due = [&self.inward, &self.outward].into_iter().filter_map(|way| way.link.next_at()).min();
        let wait = due.map_or(CHECK_INTERVAL, |due| due.saturating_sub(now()).min(CHECK_INTERVAL));
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(line(error)),
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        let now = now();
        for event in &*events {
            match event.token() {
                FRONT => self.receive_from_clients(now)?,
                Token(client) => self.receive_from_server(now, client),
            }
        }
        let Self { front, clients, inward, outward, .. } = self;
        inward.release(now, |client, bytes| clients[client].1.send(bytes).is_ok());
        outward.release(now, |client, bytes| front.send_to(bytes, clients[client].0).is_ok());
        Ok(())
    }

    fn receive_from_clients(&mut self, now: Duration) -> Result<(), String> {
        let mut buffer = [0; DATAGRAM_BYTES];
        loop {
            match self.front.recv_from(&mut buffer) {
                Ok((length, from)) => {
                    let client = self.place_of(from)?;
                    self.inward.take(now, client, &buffer[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The kernel reports the closed port of a client that has ended.
                Err(_) => {}
            }
        }
    }

    fn receive_from_server(&mut self, now: Duration, client: usize) {
        let mut buffer = [0; DATAGRAM_BYTES];
        let Some((_, socket)) = self.clients.get(client) else { return };
        loop {
            match socket.recv(&mut buffer) {
                Ok(length) => self.outward.take(now, client, &buffer[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(_) => return,
            }
        }
    }

    fn place_of(&mut self, from: SocketAddr) -> Result<usize, String> {
        if let Some(place) = self.places.get(&from) {
            return Ok(*place);
        }
        let place = self.clients.len();
        if place >= CLIENTS_MAX {
            return Err(format!("more than {CLIENTS_MAX} clients"));
        }
        let mut back = socket(Some(self.server))?;
        self.poll.registry().register(&mut back, Token(place), Interest::READABLE).map_err(line)?;
        self.clients.push((from, back));
        self.places.insert(from, place);
        Ok(place)
    }
}

fn now() -> Duration {
    Duration::from_nanos(clock::host_ns())
}

fn socket(peer: Option<SocketAddr>) -> Result<UdpSocket, String> {
    bind_mio(peer, RECEIVE_BUFFER_BYTES).map_err(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_delays_are_as_promised_and_the_books_close() {
        let mut way = Direction::new(SEED).expect("a link");
        (0..10_000).for_each(|_| way.take(Duration::ZERO, 7, b"x"));
        let lost = way.link.counts().lost;
        assert!((150..250).contains(&lost), "{lost}");
        way.release(Duration::from_nanos(24_999_999), |_, _| true);
        assert_eq!(way.forwarded, 0);
        let mut given = 0;
        way.release(Duration::from_millis(25), |client, bytes| {
            given += 1;
            client == 7 && bytes == b"x" && given > 5
        });
        assert_eq!((way.refused, way.forwarded), (5, 10_000 - 5 - lost));
        let mut counts = way.counts("to server");
        assert_eq!(check(&counts), Ok(()));
        counts.insert("to server lost".to_owned(), 0);
        assert!(check(&counts).is_err());
    }
}
