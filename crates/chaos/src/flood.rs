//! A flood of one class of datagrams from many addresses, at a rate or as fast as it goes, for a time.
//!
//! It counts what the system took from it, and hears no answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire_tools::clock::{now, pause};
use rustix::process::nice;

use crate::forged::{Forger, v4};
use crate::stop::{Stop, Tried};
use crate::tap::Samples;

/// Addresses the flood comes from, where it is not from everywhere.
const SOURCES: u32 = 256;

/// Addresses of the network of a server that is flooded from everywhere, and the ports there.
const NETWORK: u32 = 1 << 22;
const PORTS: u64 = 60_000;

/// Byte 0 of a packet of a connection: not of a handshake, and with a packet number of some length.
pub(crate) const PACKET: u8 = 0x09;

/// Datagrams between two looks at the clock.
const STRIDE: u64 = 32;

/// What it sends at once after it stood still, as a part of a second: no sender on a wire makes good for lost time.
const BURST: u64 = 1_000;

/// How long it rests when it is ahead of its rate.
const REST: Duration = Duration::from_micros(200);

/// Bytes of a header before the packet's number: a byte and the connection's id.
const ID_END: usize = 9;

/// Bytes of a header up to the end of the tag that leads to a worker.
const TAG_END: usize = 3;

/// Bytes of noise behind what is no noise.
const NOISE_BYTES: u64 = 91;

/// The most that a thread can give way.
const GIVES_WAY: i32 = 19;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The beginnings of connections, each from one of some addresses, without a cookie.
    Hellos,
    /// The same, each from an address of its own that is nobody's.
    Spoofed,
    /// Noise of all lengths.
    Junk,
    /// Packets that the server had already.
    Replays,
    /// The id of a connection there is, and a body that nobody sealed.
    Forged,
    /// The tag that leads to one worker, and noise.
    Aimed,
    /// Tags that lead to any worker, and noise.
    Tagged,
    /// Nothing.
    Empties,
}

impl Class {
    /// Those that players have to bear, one after the other.
    pub(crate) const FLOODS: [Self; 7] =
        [Self::Hellos, Self::Spoofed, Self::Junk, Self::Replays, Self::Forged, Self::Aimed, Self::Empties];

    /// Whether it reaches one worker alone.
    pub(crate) const fn is_aimed(self) -> bool {
        matches!(self, Self::Replays | Self::Forged | Self::Aimed)
    }

    /// Whether it proves something by how many there are.
    pub(crate) const fn is_counted(self) -> bool {
        matches!(self, Self::Empties | Self::Spoofed)
    }

    /// What it is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hellos => "Hellos",
            Self::Spoofed => "Hellos from everywhere",
            Self::Junk => "junk",
            Self::Replays => "replays",
            Self::Forged => "forged bodies",
            Self::Aimed => "forged ids for one worker",
            Self::Tagged => "forged ids",
            Self::Empties => "empties",
        }
    }
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dose {
    pub(crate) class: Class,
    /// Datagrams in a second; `None` for as many as go.
    pub(crate) rate: Option<u64>,
    /// For so long at most.
    pub(crate) time: Duration,
    /// So many at most.
    pub(crate) count: u64,
}

/// Sends it from a thread of its own; that answers how many datagrams the system took.
pub(crate) fn start(dose: Dose, server: SocketAddr, samples: Samples) -> Result<JoinHandle<u64>, Stop> {
    let sockets = (0..SOURCES).map(|number| {
        let socket = UdpSocket::bind((source(server.ip(), number), 0))?;
        socket.set_nonblocking(true).map(|()| socket)
    });
    let sockets = sockets.collect::<Result<Vec<_>, _>>().tried("the sources of a flood")?;
    let forger = match dose.class {
        Class::Spoofed => Some((Forger::new()?, v4(server)?)),
        _ => None,
    };
    let random = Random::new(u64::from(SOURCES));
    let mut flood = Flood { dose, server, samples, sockets, forger, random, sent: 0 };
    Ok(std::thread::spawn(move || flood.run()))
}

/// Waits for the end of it.
pub(crate) fn join(flood: JoinHandle<u64>) -> Result<u64, Stop> {
    flood.join().map_err(|_| Stop::failed("the flood", "its thread panicked"))
}

/// The address with this number, of the network of the server.
fn source(server: IpAddr, number: u32) -> IpAddr {
    match server {
        IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) + 1 + number * 251).into(),
        IpAddr::V6(_) => server,
    }
}

/// Another address for each of the first four million numbers, of the network of the server, and a port there.
fn anywhere(server: SocketAddrV4, number: u64) -> SocketAddrV4 {
    // The first address is the network's, the next one the server's.
    let host = u32::try_from(number % u64::from(NETWORK - 2)).unwrap_or(0) + 2;
    let network = u32::from(*server.ip()) & !(NETWORK - 1);
    let port = u16::try_from(1_024 + number % PORTS).unwrap_or(1_024);
    SocketAddrV4::new(Ipv4Addr::from(network | host), port)
}

struct Flood {
    dose: Dose,
    server: SocketAddr,
    samples: Samples,
    sockets: Vec<UdpSocket>,
    /// For what comes from everywhere, and where to.
    forger: Option<(Forger, SocketAddrV4)>,
    random: Random,
    sent: u64,
}

impl Flood {
    fn run(&mut self) -> u64 {
        // Players who share its core go first. Where it may not give way, they wait.
        let _ = nice(GIVES_WAY);
        let start = now();
        let (mut number, mut missed) = (0, 0);
        loop {
            let passed = now().duration_since(start);
            if passed >= self.dose.time || number >= self.dose.count {
                return self.sent;
            }
            let due = self.dose.rate.map_or(u64::MAX, |rate| {
                let all = passed.as_micros() * u128::from(rate) / 1_000_000;
                let all = u64::try_from(all).unwrap_or(u64::MAX);
                missed = missed.max(all.saturating_sub(number + STRIDE.max(rate / BURST)));
                all - missed
            });
            if number >= due {
                pause(REST);
                continue;
            }
            let end = self.dose.count.min(number + STRIDE);
            (number..end).for_each(|number| self.send(number));
            number = end;
        }
    }

    fn send(&mut self, number: u64) {
        let datagram = self.datagram(number);
        let is_taken = if let Some((forger, server)) = &self.forger {
            forger.send(anywhere(*server, number), *server, &datagram)
        } else {
            let at = usize::try_from(number).unwrap_or(0) % self.sockets.len();
            self.sockets[at].send_to(&datagram, self.server).is_ok()
        };
        // What the system does not take was not sent.
        self.sent += u64::from(is_taken);
    }

    fn datagram(&mut self, number: u64) -> Vec<u8> {
        let packets = &self.samples.packets;
        let packet = || packets.get(usize::try_from(number).unwrap_or(0) % packets.len().max(1));
        let begin_of =
            |bytes: usize| packet().map_or(&[][..], |packet| packet.get(..bytes).unwrap_or(packet));
        match self.dose.class {
            Class::Hellos | Class::Spoofed => self.samples.hello.clone(),
            Class::Junk => {
                let length = 1 + number * 97 % 1_200;
                self.noise(length)
            }
            Class::Replays => packet().cloned().unwrap_or_default(),
            Class::Forged => self.with_noise(begin_of(ID_END).to_vec()),
            Class::Aimed => self.with_noise(begin_of(TAG_END).to_vec()),
            Class::Tagged => self.with_noise(vec![PACKET]),
            Class::Empties => Vec::new(),
        }
    }

    fn with_noise(&mut self, mut begin: Vec<u8>) -> Vec<u8> {
        begin.extend(self.noise(NOISE_BYTES));
        begin
    }

    fn noise(&mut self, length: u64) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.random.bits().to_le_bytes());
        words.take(usize::try_from(length).unwrap_or(0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everywhere_is_another_place_each_time_and_never_the_server() {
        let server = SocketAddrV4::new(Ipv4Addr::new(10, 64, 0, 1), 7);
        let places = [0, 1, 1_000_000, 4_194_301].map(|number| anywhere(server, number));
        let ip = |at: usize| *places[at].ip();
        assert_eq!([ip(0), ip(1)], [Ipv4Addr::new(10, 64, 0, 2), Ipv4Addr::new(10, 64, 0, 3)]);
        assert_eq!([ip(2), ip(3)], [Ipv4Addr::new(10, 79, 66, 66), Ipv4Addr::new(10, 127, 255, 255)]);
        assert_eq!((places[0].port(), places[1].port()), (1_024, 1_025));
        assert_eq!(anywhere(server, 4_194_302).ip(), &ip(0));
    }
}
