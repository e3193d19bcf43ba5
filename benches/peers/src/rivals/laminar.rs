//! laminar, which protects nothing. Settings: the library's own way to run, a poll each millisecond; heartbeats, which are off by
//! default and keep a silent connection alive, and a timeout that several of them fit into; room for more packets in flight than
//! the loads have. It has no way to enlarge its socket's buffer. A connection stands when both sides have sent: each begins with a
//! greeting, which is answered and not counted. Each client has a socket of its own.
//!
//! Its acks ride on reliable packets only, its heartbeats carry none, and it sends a packet again only when one that was sent more
//! than 32 packets later was acked. So whoever sends less than that and then waits, as a closed loop does, waits for ever once
//! a datagram is lost. An application has to keep reliable packets coming: a client whose reliable messages stay out says its
//! greeting reliably, and the server answers in kind, until messages come again.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire_benches::Counts;
use drumfire_tools::clock;
use laminar::{Config, DeliveryGuarantee, Packet, Socket, SocketEvent};

use super::{Rival, Serve, version_of};
use crate::face::{Answers, Client, Ending, KEEP_ALIVE, Served, Server, Setup, line, serve};

const TICK: Duration = Duration::from_millis(1);

/// A connection of which nothing was heard for so long is gone.
const TIMEOUT: Duration = Duration::from_secs(30);

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

/// Messages that are out are stuck when none came for this long, twice the time through the relay and back.
const STUCK_NS: u64 = 100_000_000;

/// How often a client with stuck messages says its greeting.
const NUDGE_NS: u64 = 2_000_000;

pub(super) fn rivals() -> Vec<Rival> {
    vec![Rival {
        version: version_of("laminar"),
        wait: "tick of 1 ms".to_owned(),
        connections_max: CONNECTIONS_MAX,
        ..Rival::new("laminar", "laminar", Serve::Here(serve::<Polled>), connect)
    }]
}

fn socket() -> Result<Socket, String> {
    let config = Config {
        heartbeat_interval: Some(KEEP_ALIVE),
        idle_connection_timeout: TIMEOUT,
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

/// A greeting: one that is to bring acks is reliable itself, in no order with the messages.
fn greeting(to: SocketAddr, is_reliable: bool) -> Packet {
    if is_reliable {
        Packet::reliable_unordered(to, GREETING.to_vec())
    } else {
        Packet::unreliable(to, GREETING.to_vec())
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
                    let is_reliable = message.delivery_guarantee() == DeliveryGuarantee::Reliable;
                    self.socket.send(greeting(message.addr(), is_reliable)).map_err(line)?;
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
    /// Reliable messages that did not come back.
    out: u64,
    /// When a message came, or was sent while none was out.
    moved: u64,
}

fn connect(server: SocketAddr, _: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let is_reliable = setup.is_reliable;
    let socket = socket()?;
    Ok(Box::new(Player { socket, server, is_reliable, is_ready: false, greeted: 0, out: 0, moved: 0 }))
}

impl Player {
    /// Says a greeting when one is due: to begin, or to bring what is stuck on its way again.
    fn greet(&mut self, now: u64) -> Result<(), String> {
        let is_stuck = self.out > 0 && now >= self.moved + STUCK_NS;
        let every = if is_stuck { NUDGE_NS } else { GREETING_NS };
        if (is_stuck || !self.is_ready) && now >= self.greeted + every {
            self.greeted = now;
            self.socket.send(greeting(self.server, is_stuck)).map_err(line)?;
        }
        Ok(())
    }
}

impl Client for Player {
    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.greet(now)?;
        self.socket.manual_poll(clock::now());
        while let Some(event) = self.socket.recv() {
            match event {
                SocketEvent::Packet(message) if message.payload() == GREETING => self.is_ready = true,
                SocketEvent::Packet(message) => {
                    self.out = self.out.saturating_sub(1);
                    self.moved = now;
                    take(0, message.payload());
                }
                SocketEvent::Timeout(_) | SocketEvent::Disconnect(_) => {
                    return Err("a client lost its connection".to_owned());
                }
                SocketEvent::Connect(_) => {}
            }
        }
        Ok(())
    }

    fn send(&mut self, now: u64, _: usize, channel: u8, message: &[u8]) -> Result<bool, String> {
        let is_taken = self.socket.send(packet(self.server, message, channel, self.is_reliable)).is_ok();
        if is_taken && self.is_reliable {
            if self.out == 0 {
                self.moved = now;
            }
            self.out += 1;
        }
        Ok(is_taken)
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        self.socket.manual_poll(clock::now());
        Ok(())
    }
}
