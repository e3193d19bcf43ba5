//! laminar, which protects nothing. Settings: the library's own way to run, a poll each millisecond; a heartbeat each 50 ms,
//! without which the last packets of a burst are never acknowledged; room for more packets in flight than the loads have. It has
//! no way to enlarge its socket's buffer. A connection stands when both sides have sent: each begins with a greeting, which is
//! answered and not counted. Each client has a socket of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire_benches::Counts;
use drumfire_tools::clock;
use laminar::{Config, Packet, Socket, SocketEvent};

use super::{Rival, Serve, version_of};
use crate::face::{Answers, Client, Ending, Served, Server, Setup, line, serve};

const TICK: Duration = Duration::from_millis(1);

const HEARTBEAT: Duration = Duration::from_millis(50);

/// Packets of one connection that are not acknowledged, at most.
const IN_FLIGHT: u16 = 4_096;

/// More than any load has.
const CONNECTIONS: u16 = 4_096;

/// A connection takes more than a mebibyte of the server, and the same of the client.
const CONNECTIONS_MAX: usize = 1_000;

/// Shorter than any message of the bench.
const GREETING: &[u8] = b"hi";

/// A greeting may be lost: it is said again after this long.
const GREETING_NS: u64 = 100_000_000;

pub(super) fn rivals() -> Vec<Rival> {
    vec![Rival {
        version: version_of("laminar"),
        connections_max: CONNECTIONS_MAX,
        ..Rival::new("laminar", "laminar", Serve::Here(serve::<Polled>), connect)
    }]
}

fn socket() -> Result<Socket, String> {
    let config = Config {
        heartbeat_interval: Some(HEARTBEAT),
        max_packets_in_flight: IN_FLIGHT,
        max_unestablished_connections: CONNECTIONS,
        ..Config::default()
    };
    Socket::bind_with_config((Ipv4Addr::LOCALHOST, 0), config).map_err(line)
}

fn packet(to: SocketAddr, message: &[u8], channel: u8, is_reliable: bool) -> Packet {
    if is_reliable {
        Packet::reliable_ordered(to, message.to_vec(), Some(channel))
    } else {
        Packet::unreliable(to, message.to_vec())
    }
}

struct Polled {
    socket: Socket,
    is_reliable: bool,
    answers: Answers,
}

impl Server for Polled {
    fn bind(setup: &Setup) -> Result<Self, String> {
        Ok(Self { socket: socket()?, is_reliable: setup.is_reliable, answers: Answers::new(setup) })
    }

    fn address(&self) -> Result<SocketAddr, String> {
        self.socket.local_addr().map_err(line)
    }

    fn echo(mut self, ending: &Ending) -> Result<Counts, String> {
        let mut served = Served::default();
        while !ending.is_here() {
            self.socket.manual_poll(clock::now());
            let mut came = false;
            while let Some(event) = self.socket.recv() {
                let SocketEvent::Packet(message) = event else { continue };
                came = true;
                if message.payload() == GREETING {
                    self.socket.send(Packet::unreliable(message.addr(), GREETING.to_vec())).map_err(line)?;
                    continue;
                }
                let answer = self.answers.to(message.payload());
                let answer = packet(message.addr(), answer, 0, self.is_reliable);
                served.on_answer(self.socket.send(answer).is_ok());
            }
            if came {
                // What was answered leaves with the next poll: it does not wait for the tick.
                self.socket.manual_poll(clock::now());
            }
            clock::pause(TICK);
        }
        Ok(served.counts())
    }
}

/// One connection.
struct Player {
    socket: Socket,
    server: SocketAddr,
    is_reliable: bool,
    is_ready: bool,
    greeted: u64,
}

fn connect(server: SocketAddr, _: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let is_reliable = setup.is_reliable;
    Ok(Box::new(Player { socket: socket()?, server, is_reliable, is_ready: false, greeted: 0 }))
}

impl Client for Player {
    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        if !self.is_ready && now >= self.greeted + GREETING_NS {
            self.greeted = now;
            self.socket.send(Packet::unreliable(self.server, GREETING.to_vec())).map_err(line)?;
        }
        self.socket.manual_poll(clock::now());
        while let Some(event) = self.socket.recv() {
            match event {
                SocketEvent::Packet(message) if message.payload() == GREETING => self.is_ready = true,
                SocketEvent::Packet(message) => take(0, message.payload()),
                SocketEvent::Timeout(_) | SocketEvent::Disconnect(_) => {
                    return Err("a client lost its connection".to_owned());
                }
                SocketEvent::Connect(_) => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, _: u64, _: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        Ok(self.socket.send(packet(self.server, message, channel, self.is_reliable)).is_ok())
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.socket.manual_poll(clock::now());
        Ok(())
    }
}
