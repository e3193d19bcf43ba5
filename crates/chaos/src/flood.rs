//! A flood of one class of datagrams from many addresses, at a rate or as fast as it goes, for a time.
//!
//! It counts what the system took from it, and hears no answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire_tools::clock::{now, pause};

use crate::stop::{Stop, Tried};
use crate::tap::Samples;

/// Addresses the flood comes from.
const SOURCES: u32 = 256;

/// Datagrams between two looks at the clock.
const STRIDE: u64 = 32;

/// What it sends at once after it stood still, as a part of a second: no sender on a wire makes good for lost time.
const BURST: u64 = 1_000;

/// How long it rests when it is ahead of its rate.
const REST: Duration = Duration::from_micros(200);

/// Bytes of a header before the packet's number: a byte and the connection's id.
const ID_END: usize = 9;

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The beginnings of connections, each from another address, without a cookie.
    Hellos,
    /// Noise of all lengths.
    Junk,
    /// Packets that the server had already.
    Replays,
    /// The id of a connection there is, and a body that nobody sealed.
    Forged,
    /// Nothing.
    Empties,
}

impl Class {
    pub(crate) const ALL: [Self; 5] = [Self::Hellos, Self::Junk, Self::Replays, Self::Forged, Self::Empties];

    /// What it is called.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Hellos => "Hellos",
            Self::Junk => "junk",
            Self::Replays => "replays",
            Self::Forged => "forged bodies",
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
    let random = Random::new(u64::from(SOURCES));
    let mut flood = Flood { dose, server, samples, sockets, random, sent: 0 };
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

struct Flood {
    dose: Dose,
    server: SocketAddr,
    samples: Samples,
    sockets: Vec<UdpSocket>,
    random: Random,
    sent: u64,
}

impl Flood {
    fn run(&mut self) -> u64 {
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
        let at = usize::try_from(number).unwrap_or(0) % self.sockets.len();
        // What the system does not take was not sent.
        self.sent += u64::from(self.sockets[at].send_to(&datagram, self.server).is_ok());
    }

    fn datagram(&mut self, number: u64) -> Vec<u8> {
        let packets = &self.samples.packets;
        let packet = || packets.get(usize::try_from(number).unwrap_or(0) % packets.len().max(1));
        match self.dose.class {
            Class::Hellos => self.samples.hello.clone(),
            Class::Junk => {
                let length = 1 + number * 97 % 1_200;
                self.noise(length)
            }
            Class::Replays => packet().cloned().unwrap_or_default(),
            Class::Forged => {
                let mut header =
                    packet().map_or(&[][..], |packet| packet.get(..ID_END).unwrap_or(packet)).to_vec();
                header.extend(self.noise(91));
                header
            }
            Class::Empties => Vec::new(),
        }
    }

    fn noise(&mut self, length: u64) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|_| self.random.bits().to_le_bytes());
        words.take(usize::try_from(length).unwrap_or(0)).collect()
    }
}
