//! The relay: a process between clients and a server that loses two datagrams in a hundred and holds the others for 25 ms, in
//! each direction. What it loses is drawn from a seeded generator, one for each direction, and it looks at no byte of a
//! datagram: it treats all rivals alike. Each client's address has a socket of its own towards the server.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire_benches::{Counts, print_counts, print_line};
use drumfire_tools::clock;
use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Socket, Type};

use crate::face::{Ending, RECEIVE_BUFFER_BYTES, line};

/// Datagrams lost of a thousand, in each direction.
pub(crate) const LOST_PER_MILLE: u64 = 20;

/// How long each datagram is held, in each direction.
pub(crate) const HELD: Duration = Duration::from_millis(HELD_MS);

/// The same in milliseconds.
pub(crate) const HELD_MS: u64 = 25;

/// Where the generators start.
pub(crate) const SEED: u64 = 0x5eed_0f10_55e5;

/// Client addresses that the relay has sockets for.
const CLIENTS_MAX: usize = 4_096;

/// Datagrams held at a time in one direction; more are counted as overflow.
const HELD_MAX: usize = 65_536;

/// The longest datagram that is taken whole.
const DATAGRAM_BYTES: usize = 2_048;

/// How often the relay looks up when it holds nothing.
const LOOK_UP: Duration = Duration::from_millis(20);

/// The socket that clients send to.
const FRONT: Token = Token(usize::MAX);

/// What happened to the datagrams of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Way {
    received: u64,
    forwarded: u64,
    lost: u64,
    overflow: u64,
    refused: u64,
}

/// A datagram on its way, and which client it is of.
struct Held {
    due: u64,
    client: usize,
    bytes: Vec<u8>,
}

/// One direction.
struct Direction {
    way: Way,
    held: VecDeque<Held>,
    random: u64,
}

impl Direction {
    fn new(seed: u64) -> Self {
        Self { way: Way::default(), held: VecDeque::new(), random: seed }
    }

    /// Takes a datagram, or loses it.
    fn take(&mut self, now: u64, client: usize, bytes: &[u8]) {
        self.way.received += 1;
        if self.draw() % 1_000 < LOST_PER_MILLE {
            self.way.lost += 1;
        } else if self.held.len() >= HELD_MAX {
            self.way.overflow += 1;
        } else {
            let held = u64::try_from(HELD.as_nanos()).unwrap_or(u64::MAX);
            self.held.push_back(Held { due: now.saturating_add(held), client, bytes: bytes.to_vec() });
        }
    }

    /// Gives out what was held long enough; `send` says whether it went.
    fn release(&mut self, now: u64, mut send: impl FnMut(usize, &[u8]) -> bool) {
        while let Some(held) = self.held.pop_front_if(|held| held.due <= now) {
            if send(held.client, &held.bytes) {
                self.way.forwarded += 1;
            } else {
                self.way.refused += 1;
            }
        }
    }

    /// The next number of splitmix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn counts(&self, name: &str) -> impl Iterator<Item = (String, u64)> {
        let Way { received, forwarded, lost, overflow, refused } = self.way;
        [
            ("received", received),
            ("forwarded", forwarded),
            ("lost", lost),
            ("overflow", overflow),
            ("refused", refused),
            ("held at the end", self.held.len() as u64),
        ]
        .map(|(what, count)| (format!("{name} {what}"), count))
        .into_iter()
    }
}

/// Whether the relay's own books close in both directions.
pub(crate) fn check(counts: &Counts) -> Result<(), String> {
    let count = |name: String| counts.get(&name).copied().unwrap_or(0);
    for way in WAYS {
        let places = ["forwarded", "lost", "overflow", "refused", "held at the end"];
        let out: u64 = places.iter().map(|place| count(format!("{way} {place}"))).sum();
        let received = count(format!("{way} received"));
        if out != received {
            return Err(format!("the relay's books do not close: {received} {way}, {out} accounted for"));
        }
    }
    Ok(())
}

/// Names of the two directions.
const WAYS: [&str; 2] = ["to server", "to client"];

struct Relay {
    poll: Poll,
    front: UdpSocket,
    server: SocketAddr,
    /// Each client's address and its socket towards the server.
    clients: Vec<(SocketAddr, UdpSocket)>,
    places: HashMap<SocketAddr, usize>,
    inward: Direction,
    outward: Direction,
    /// Datagrams of clients that were one too many.
    turned_away: u64,
}

/// Relays until the standard input ends.
pub(crate) fn run(server: SocketAddr) -> Result<(), String> {
    let ending = Ending::of_input();
    let poll = Poll::new().map_err(line)?;
    let mut front = socket(None)?;
    poll.registry().register(&mut front, FRONT, Interest::READABLE).map_err(line)?;
    let mut relay = Relay {
        poll,
        front,
        server,
        clients: Vec::new(),
        places: HashMap::new(),
        inward: Direction::new(SEED),
        outward: Direction::new(!SEED),
        turned_away: 0,
    };
    print_line(&relay.front.local_addr().map_err(line)?.to_string()).map_err(line)?;
    let mut events = Events::with_capacity(1_024);
    while !ending.is_here() {
        relay.pass(&mut events)?;
    }
    let mut counts: Counts = relay.inward.counts(WAYS[0]).chain(relay.outward.counts(WAYS[1])).collect();
    counts.insert("turned away".to_owned(), relay.turned_away);
    print_counts(&counts).map_err(line)
}

impl Relay {
    fn pass(&mut self, events: &mut Events) -> Result<(), String> {
        let now = clock::host_ns();
        let due = [&self.inward, &self.outward]
            .into_iter()
            .filter_map(|way| way.held.front())
            .map(|held| held.due)
            .min();
        let wait = due.map_or(LOOK_UP, |due| Duration::from_nanos(due.saturating_sub(now)).min(LOOK_UP));
        match self.poll.poll(events, Some(wait)) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        let now = clock::host_ns();
        for event in &*events {
            match event.token() {
                FRONT => self.drain_front(now)?,
                Token(client) => self.drain_back(now, client),
            }
        }
        let Self { front, clients, inward, outward, .. } = self;
        inward.release(now, |client, bytes| clients[client].1.send(bytes).is_ok());
        outward.release(now, |client, bytes| front.send_to(bytes, clients[client].0).is_ok());
        Ok(())
    }

    fn drain_front(&mut self, now: u64) -> Result<(), String> {
        let mut buffer = [0; DATAGRAM_BYTES];
        loop {
            match self.front.recv_from(&mut buffer) {
                Ok((length, from)) => match self.place_of(from)? {
                    Some(client) => self.inward.take(now, client, &buffer[..length]),
                    None => self.turned_away += 1,
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A client that has ended, said by the kernel.
                Err(_) => {}
            }
        }
    }

    fn drain_back(&mut self, now: u64, client: usize) {
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
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).map_err(line)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES).map_err(line)?;
    socket.set_nonblocking(true).map_err(line)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).map_err(line)?;
    if let Some(peer) = peer {
        socket.connect(&peer.into()).map_err(line)?;
    }
    Ok(UdpSocket::from_std(socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_loses_its_share_holds_the_rest_and_its_books_close() {
        let mut way = Direction::new(SEED);
        (0..10_000).for_each(|_| way.take(0, 7, b"x"));
        assert!((150..250).contains(&way.way.lost), "{:?}", way.way);
        way.release(24_999_999, |_, _| true);
        assert_eq!(way.way.forwarded, 0);
        let mut given = 0;
        way.release(25_000_000, |client, bytes| {
            given += 1;
            client == 7 && bytes == b"x" && given > 5
        });
        assert_eq!((way.way.refused, way.way.forwarded), (5, 10_000 - 5 - way.way.lost));
        let mut counts: Counts = way.counts("to server").collect();
        assert_eq!(check(&counts), Ok(()));
        counts.insert("to server lost".to_owned(), 0);
        assert!(check(&counts).is_err());
    }

    #[test]
    fn the_same_seed_loses_the_same_datagrams() {
        let lost = |seed| {
            let mut way = Direction::new(seed);
            (0..1_000)
                .map(|_| {
                    way.take(0, 0, &[]);
                    way.way.lost
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(lost(SEED), lost(SEED));
        assert_ne!(lost(SEED), lost(!SEED));
    }
}
