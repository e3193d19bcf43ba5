//! The relay: a process between clients and a server that loses 2 % of the datagrams and delays the others by 25 ms, in each
//! direction. A seeded generator per direction selects the lost ones. The relay reads no byte of a datagram, so it treats all
//! libraries alike. Each client address has its own socket towards the server.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::roles::print_address;
use drumfire_benches::{
    Counts, InputLines, RECEIVE_BUFFER_BYTES, arguments, bind_mio, close, count, split_mix,
};
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

/// Datagrams that are delayed at a time in one direction, at most. Further ones are counted as overflow.
const DELAYED_MAX: usize = 65_536;

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

struct Delayed {
    due: u64,
    client: usize,
    bytes: Vec<u8>,
}

/// One direction. All its counts are of datagrams.
#[derive(Default)]
struct Direction {
    delayed: VecDeque<Delayed>,
    random: u64,
    received: u64,
    forwarded: u64,
    lost: u64,
    overflow: u64,
    /// Datagrams that the system did not send.
    refused: u64,
}

impl Direction {
    fn new(seed: u64) -> Self {
        Self { random: seed, ..Self::default() }
    }

    /// Delays a datagram, or loses it.
    fn take(&mut self, now: u64, client: usize, bytes: &[u8]) {
        self.received += 1;
        if split_mix(&mut self.random) % 1_000 < LOST_PER_MILLE {
            self.lost += 1;
        } else if self.delayed.len() >= DELAYED_MAX {
            self.overflow += 1;
        } else {
            self.delayed.push_back(Delayed {
                due: now + DELAY_MS * 1_000_000,
                client,
                bytes: bytes.to_vec(),
            });
        }
    }

    /// Passes on the datagrams that are due. `send` returns whether the system took one.
    fn release(&mut self, now: u64, mut send: impl FnMut(usize, &[u8]) -> bool) {
        while let Some(delayed) = self.delayed.pop_front_if(|delayed| delayed.due <= now) {
            let is_sent = send(delayed.client, &delayed.bytes);
            *(if is_sent { &mut self.forwarded } else { &mut self.refused }) += 1;
        }
    }

    fn counts(&self, direction: &str) -> Counts {
        let Self { delayed, received, forwarded, lost, overflow, refused, .. } = self;
        let counts = [*forwarded, *lost, *overflow, *refused, delayed.len() as u64];
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
    /// Datagrams of clients beyond [`CLIENTS_MAX`].
    turned_away: u64,
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
    let (inward, outward) = (Direction::new(SEED), Direction::new(!SEED));
    let mut relay = Relay { poll, front, server, clients, places, inward, outward, turned_away: 0 };
    let mut events = Events::with_capacity(1_024);
    while !input.has_ended() {
        relay.pass(&mut events)?;
    }
    let mut counts = relay.inward.counts(DIRECTIONS[0]);
    counts.extend(relay.outward.counts(DIRECTIONS[1]));
    counts.insert("turned away".to_owned(), relay.turned_away);
    Ok(counts)
}

impl Relay {
    fn pass(&mut self, events: &mut Events) -> Result<(), String> {
        let now = clock::host_ns();
        let due =
            [&self.inward, &self.outward].into_iter().filter_map(|way| Some(way.delayed.front()?.due)).min();
        let wait = due
            .map_or(CHECK_INTERVAL, |due| Duration::from_nanos(due.saturating_sub(now)).min(CHECK_INTERVAL));
        match self.poll.poll(events, Some(wait)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(line(error)),
            Err(_) => return Ok(()),
            Ok(()) => {}
        }
        let now = clock::host_ns();
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

    fn receive_from_clients(&mut self, now: u64) -> Result<(), String> {
        let mut buffer = [0; DATAGRAM_BYTES];
        loop {
            match self.front.recv_from(&mut buffer) {
                Ok((length, from)) => match self.place_of(from)? {
                    Some(client) => self.inward.take(now, client, &buffer[..length]),
                    None => self.turned_away += 1,
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The kernel reports the closed port of a client that has ended.
                Err(_) => {}
            }
        }
    }

    fn receive_from_server(&mut self, now: u64, client: usize) {
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

    fn place_of(&mut self, from: SocketAddr) -> Result<Option<usize>, String> {
        if let Some(place) = self.places.get(&from) {
            return Ok(Some(*place));
        }
        let place = self.clients.len();
        if place >= CLIENTS_MAX {
            return Ok(None);
        }
        let mut back = socket(Some(self.server))?;
        self.poll.registry().register(&mut back, Token(place), Interest::READABLE).map_err(line)?;
        self.clients.push((from, back));
        self.places.insert(from, place);
        Ok(Some(place))
    }
}

fn socket(peer: Option<SocketAddr>) -> Result<UdpSocket, String> {
    bind_mio(peer, RECEIVE_BUFFER_BYTES).map_err(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_delays_are_as_promised_and_the_books_close() {
        let mut way = Direction::new(SEED);
        (0..10_000).for_each(|_| way.take(0, 7, b"x"));
        assert!((150..250).contains(&way.lost), "{}", way.lost);
        way.release(24_999_999, |_, _| true);
        assert_eq!(way.forwarded, 0);
        let mut given = 0;
        way.release(25_000_000, |client, bytes| {
            given += 1;
            client == 7 && bytes == b"x" && given > 5
        });
        assert_eq!((way.refused, way.forwarded), (5, 10_000 - 5 - way.lost));
        let mut counts = way.counts("to server");
        assert_eq!(check(&counts), Ok(()));
        counts.insert("to server lost".to_owned(), 0);
        assert!(check(&counts).is_err());
    }
}
