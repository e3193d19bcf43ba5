//! laminar, not encrypted. Settings: a poll every millisecond, a timeout of several heartbeats, and room for more packets in flight
//! than the loads have. Heartbeats keep a silent connection alive. They are off by default. The receive buffer of its socket is not a
//! setting. A connection is established when both sides have sent, so each begins with a greeting, which the server answers and does not
//! count. Each client has its own socket.
//!
//! Only reliable packets carry acks. A packet is sent again only after the ack of one that was sent more than 32 packets later. A
//! closed loop with fewer outstanding messages would therefore wait forever after one loss. So a client with stuck messages sends its
//! greeting reliably, and the server answers in kind, until messages come again.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire_benches::Counts;
use drumfire_benches::traffic::Client;
use drumfire_tools::clock;
use laminar::{Config, DeliveryGuarantee, Packet, Socket, SocketEvent};

use crate::adapter::{KEEP_ALIVE, Library, Setup, line, serve_in_loop, version_of};

const TICK: Duration = Duration::from_millis(1);

/// The idle timeout of a connection.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Unacknowledged packets of one connection, at most.
const IN_FLIGHT: u16 = 4_096;

/// More than any load has.
const CONNECTIONS: u16 = 4_096;

/// A connection takes more than a mebibyte of memory at each end.
const CONNECTIONS_MAX: usize = 1_000;

/// Shorter than any message.
const GREETING: &[u8] = b"hi";

/// The interval of greetings until one is answered.
const GREETING_NS: u64 = 100_000_000;

/// Outstanding messages are stuck when none came back for this long, which is twice the round trip through the relay.
const STUCK_NS: u64 = 100_000_000;

/// The interval of greetings of a client with stuck messages.
const NUDGE_NS: u64 = 2_000_000;

pub(crate) fn libraries() -> Vec<Library> {
    vec![Library {
        version: version_of("laminar"),
        wait: "tick of 1 ms".to_owned(),
        connections_max: CONNECTIONS_MAX,
        ..Library::new("laminar", "laminar", serve, connect)
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

/// A greeting. One that carries acks is reliable, and unordered, so that it waits for no message.
fn greeting(to: SocketAddr, is_reliable: bool) -> Packet {
    if is_reliable {
        Packet::reliable_unordered(to, GREETING.to_vec())
    } else {
        Packet::unreliable(to, GREETING.to_vec())
    }
}

fn serve(setup: &Setup) -> Result<Counts, String> {
    let mut socket = socket()?;
    let address = socket.local_addr().map_err(line)?;
    serve_in_loop(address, setup, |answers, served| {
        socket.manual_poll(clock::now());
        let mut has_answered = false;
        while let Some(event) = socket.recv() {
            let SocketEvent::Packet(message) = event else { continue };
            has_answered = true;
            if message.payload() == GREETING {
                let is_reliable = message.delivery_guarantee() == DeliveryGuarantee::Reliable;
                socket.send(greeting(message.addr(), is_reliable)).map_err(line)?;
                continue;
            }
            let answer = packet(message.addr(), answers.to(message.payload()), 0, setup.is_reliable);
            served.on_answer(socket.send(answer).is_ok());
        }
        if has_answered {
            // The next poll sends the answers, which do not wait for the tick.
            socket.manual_poll(clock::now());
        }
        clock::pause(TICK);
        Ok(())
    })
}

/// One connection.
struct Connection {
    socket: Socket,
    server: SocketAddr,
    is_reliable: bool,
    is_ready: bool,
    greeted_at: u64,
    /// Reliable messages that are outstanding.
    out: u64,
    /// The time of the last message that came, or that was sent while none was outstanding.
    progress_at: u64,
}

fn connect(server: SocketAddr, _: usize, setup: &Setup) -> Result<Box<dyn Client>, String> {
    let is_reliable = setup.is_reliable;
    let socket = socket()?;
    Ok(Box::new(Connection {
        socket,
        server,
        is_reliable,
        is_ready: false,
        greeted_at: 0,
        out: 0,
        progress_at: 0,
    }))
}

impl Connection {
    /// Sends a greeting when one is due: until the connection is established, or while messages are stuck.
    fn greet(&mut self, now: u64) -> Result<(), String> {
        let is_stuck = self.out > 0 && now >= self.progress_at + STUCK_NS;
        let every = if is_stuck { NUDGE_NS } else { GREETING_NS };
        if (is_stuck || !self.is_ready) && now >= self.greeted_at + every {
            self.greeted_at = now;
            self.socket.send(greeting(self.server, is_stuck)).map_err(line)?;
        }
        Ok(())
    }
}

impl Client for Connection {
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
                    self.progress_at = now;
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
                self.progress_at = now;
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
