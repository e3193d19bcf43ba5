//! Floods of one class of datagrams from many addresses, at a rate or as fast as possible. A flood counts the datagrams
//! that the system accepted, and reads no answers.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire_tools::clock::{now, pause};
use rustix::process::nice;

use crate::error::{Error, ErrorContext};
use crate::net::{SpoofingSender, v4};
use crate::relay::Samples;

/// The number of source addresses, except for spoofed ones.
const SOURCES: u32 = 256;

/// Byte 0 of a packet of a connection: not a handshake, with a packet number of some length.
pub(crate) const CONNECTION_PACKET: u8 = 0x09;

/// The end of the connection id in a packet, and of the tag in it that selects a worker.
const ID_END: usize = 9;
const TAG_END: usize = 3;

/// Random bytes after a genuine header.
const RANDOM_BYTES: u64 = 91;

/// The number of datagrams between two readings of the clock.
const STRIDE: u64 = 32;

/// A flood that is late by more than this fraction of a second does not catch up, like a sender on a network.
const BURST_PER_SECOND: u64 = 1_000;

/// The time limit of a flood that ends by its count.
const COUNTED_TIME: Duration = Duration::from_secs(600);

/// The contents of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloodClass {
    /// Hellos without a cookie.
    Hellos,
    /// Hellos without a cookie, each from another spoofed address.
    Spoofed,
    /// Random bytes of all lengths.
    Junk,
    /// Packets that the server has already received.
    Replays,
    /// The id of an existing connection, and a body that does not open.
    Forged,
    /// The tag of one worker, and random bytes.
    Aimed,
    /// Random tags and bytes in the form of packets.
    Tagged,
    /// Empty datagrams.
    Empties,
}

impl FloodClass {
    /// The classes that must not affect players.
    pub(crate) const ALL_WITHSTOOD: [Self; 7] =
        [Self::Hellos, Self::Spoofed, Self::Junk, Self::Replays, Self::Forged, Self::Aimed, Self::Empties];

    /// Returns whether all datagrams reach one worker.
    pub(crate) const fn is_aimed(self) -> bool {
        matches!(self, Self::Replays | Self::Forged | Self::Aimed)
    }

    /// Returns whether a requirement names the number of datagrams.
    pub(crate) const fn is_counted(self) -> bool {
        matches!(self, Self::Empties | Self::Spoofed)
    }

    /// Returns the name in marks.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hellos => "Hellos",
            Self::Spoofed => "Hellos from spoofed addresses",
            Self::Junk => "junk",
            Self::Replays => "replays",
            Self::Forged => "forged bodies",
            Self::Aimed => "forged ids for one worker",
            Self::Tagged => "forged ids",
            Self::Empties => "empties",
        }
    }
}

/// A flood and its limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FloodPlan {
    pub(crate) class: FloodClass,
    /// Datagrams per second, or `None` for as many as possible.
    pub(crate) rate: Option<u64>,
    /// The longest duration.
    pub(crate) time: Duration,
    /// The maximum number of datagrams.
    pub(crate) count: u64,
}

impl FloodPlan {
    /// Returns a flood that ends after `count` datagrams.
    pub(crate) const fn counted(class: FloodClass, rate: Option<u64>, count: u64) -> Self {
        Self { class, rate, time: COUNTED_TIME, count }
    }

    /// Starts the flood in its own thread, which returns the number of datagrams that the system accepted.
    pub(crate) fn start(self, server: SocketAddr, samples: Samples) -> Result<JoinHandle<u64>, Error> {
        let server = v4(server)?;
        let sockets = (0..SOURCES).map(|number| {
            let socket = UdpSocket::bind((source(*server.ip(), number), 0))?;
            socket.set_nonblocking(true).map(|()| socket)
        });
        let sockets = sockets.collect::<Result<Vec<_>, _>>().context("the sources of a flood")?;
        let spoofing = (self.class == FloodClass::Spoofed).then(SpoofingSender::new).transpose()?;
        let random = Random::new(u64::from(SOURCES));
        let mut flood = Flood { plan: self, server, samples, sockets, spoofing, random, sent: 0 };
        Ok(std::thread::spawn(move || flood.run()))
    }

    /// Sends the whole flood. Returns the number of datagrams that the system accepted.
    pub(crate) fn send(self, server: SocketAddr) -> Result<u64, Error> {
        join(self.start(server, Samples::default())?)
    }
}

/// Waits for the end of a flood. Returns the number of datagrams that the system accepted.
pub(crate) fn join(flood: JoinHandle<u64>) -> Result<u64, Error> {
    flood.join().map_err(|_| Error::failed("the flood", "its thread panicked"))
}

/// Returns a source address in the server's network.
pub(crate) fn source(server: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(server) + 1 + number * 251)
}

/// Returns an address in the server's network, another one for each of the first four million numbers.
fn spoofed_source(server: SocketAddrV4, number: u64) -> SocketAddrV4 {
    /// The number of addresses in the network, and the number of ports that are used.
    const NETWORK: u32 = 1 << 22;
    const PORTS: u64 = 60_000;
    // The first address is the network's, the second one the server's.
    let host = u32::try_from(number % u64::from(NETWORK - 2)).unwrap_or(0) + 2;
    let network = u32::from(*server.ip()) & !(NETWORK - 1);
    let port = u16::try_from(1_024 + number % PORTS).unwrap_or(1_024);
    SocketAddrV4::new(Ipv4Addr::from(network | host), port)
}

struct Flood {
    plan: FloodPlan,
    server: SocketAddrV4,
    samples: Samples,
    sockets: Vec<UdpSocket>,
    spoofing: Option<SpoofingSender>,
    random: Random,
    sent: u64,
}

impl Flood {
    fn run(&mut self) -> u64 {
        // Players on the same core have priority. Where that is not permitted, their latency includes the flood's work.
        let _ = nice(19);
        let start = now();
        let (mut number, mut skipped) = (0, 0);
        loop {
            let elapsed = now().duration_since(start);
            if elapsed >= self.plan.time || number >= self.plan.count {
                return self.sent;
            }
            let due = self.plan.rate.map_or(u64::MAX, |rate| {
                let due = elapsed.as_micros() * u128::from(rate) / 1_000_000;
                let due = u64::try_from(due).unwrap_or(u64::MAX);
                skipped = skipped.max(due.saturating_sub(number + STRIDE.max(rate / BURST_PER_SECOND)));
                due - skipped
            });
            if number >= due {
                pause(Duration::from_micros(200));
                continue;
            }
            let end = self.plan.count.min(number + STRIDE);
            (number..end).for_each(|number| self.send(number));
            number = end;
        }
    }

    fn send(&mut self, number: u64) {
        let datagram = self.datagram(number);
        let is_sent = if let Some(sender) = &self.spoofing {
            sender.send(spoofed_source(self.server, number), self.server, &datagram)
        } else {
            let index = usize::try_from(number).unwrap_or(0) % self.sockets.len();
            self.sockets[index].send_to(&datagram, self.server).is_ok()
        };
        self.sent += u64::from(is_sent);
    }

    fn datagram(&mut self, number: u64) -> Vec<u8> {
        let packets = &self.samples.packets;
        let packet = || packets.get(usize::try_from(number).unwrap_or(0) % packets.len().max(1));
        let start_of =
            |bytes: usize| packet().map_or(&[][..], |packet| packet.get(..bytes).unwrap_or(packet));
        match self.plan.class {
            FloodClass::Hellos | FloodClass::Spoofed => self.samples.hello.clone(),
            FloodClass::Junk => self.random_bytes(1 + number * 97 % 1_200),
            FloodClass::Replays => packet().cloned().unwrap_or_default(),
            FloodClass::Forged => self.continued(start_of(ID_END).to_vec()),
            FloodClass::Aimed => self.continued(start_of(TAG_END).to_vec()),
            FloodClass::Tagged => self.continued(vec![CONNECTION_PACKET]),
            FloodClass::Empties => Vec::new(),
        }
    }

    fn continued(&mut self, mut start: Vec<u8>) -> Vec<u8> {
        start.extend(self.random_bytes(RANDOM_BYTES));
        start
    }

    fn random_bytes(&mut self, length: u64) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.random.bits().to_le_bytes());
        words.take(usize::try_from(length).unwrap_or(0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spoofed_sources_differ_and_are_never_the_server() {
        let server = SocketAddrV4::new(Ipv4Addr::new(10, 64, 0, 1), 7);
        let sources = [0, 1, 1_000_000, 4_194_301].map(|number| spoofed_source(server, number));
        let expected = [[10, 64, 0, 2], [10, 64, 0, 3], [10, 79, 66, 66], [10, 127, 255, 255]];
        assert_eq!(sources.map(|source| source.ip().octets()), expected);
        assert_eq!((sources[0].port(), sources[1].port()), (1_024, 1_025));
        assert_eq!(spoofed_source(server, 4_194_302).ip(), sources[0].ip());
    }
}
