//! One client floods the server with junk under its own connection id, and with messages. All other players share its worker, and
//! lose almost nothing.
//!
//! The server drains its socket before a client sends again. So losses in a full receive queue, which depend on the speed of the
//! machine, do not affect the result.

use drumfire_tries::tries;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::world::{config, now};
use drumfire::config::Congestion;
use drumfire::stats::DropReason;
use drumfire::{
    ChannelId, Client, ClientConfig, Event, Message, PeerId, SendError, SendOptions, Server, ServerKey,
    Workers,
};

use crate::single::{Single as _, connect};

/// Returns the number of junk datagrams, and also the number of messages of the abuser.
fn abuse() -> u64 {
    tries(1_000_000).into()
}

/// The number of junk datagrams, and also of messages of the abuser, in each turn.
const ABUSE_PER_TURN: u64 = 100;

const PLAYERS: usize = 200;

/// The number of players that send in each turn. All players send once in ten turns.
const SPEAKERS_PER_TURN: usize = 20;

/// The time after which an awaited condition counts as failed.
const PATIENCE: Duration = Duration::from_secs(120);

const UNRELIABLE: ChannelId = ChannelId(1);
const RELIABLE: ChannelId = ChannelId(2);

/// The header bytes before the packet number: the first byte and the connection id.
const ID_END: usize = 9;

/// A relay between the abuser and the server. It records a packet of the abuser, and sends junk with the same header.
struct Relay {
    socket: UdpSocket,
    server: SocketAddr,
    /// The abuser. `None` before its first datagram.
    client: Option<SocketAddr>,
    /// The newest packet from the abuser to the server. Handshake datagrams do not count.
    packet: Option<Vec<u8>>,
    junk_count: u64,
}

impl Relay {
    fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_nonblocking(true).expect("a socket that does not wait");
        Self { socket, server, client: None, packet: None, junk_count: 0 }
    }

    /// Forwards all datagrams that have arrived from either side.
    fn carry(&mut self) {
        let mut bytes = [0; 2_048];
        loop {
            let (length, from) = match self.socket.recv_from(&mut bytes) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            };
            let datagram = &bytes[..length];
            let to = if from == self.server {
                self.client.expect("the abuser sends first")
            } else {
                self.client = Some(from);
                // Handshake datagrams have the highest bit set.
                if datagram[0] & 0x80 == 0 {
                    self.packet = Some(datagram.to_vec());
                }
                self.server
            };
            self.socket.send_to(datagram, to).expect("room on the loopback");
        }
    }

    /// Sends a packet with the header of the newest packet and a random body. Every other packet has a random packet number too.
    fn send_junk(&mut self) {
        let mut junk = self.packet.clone().expect("a packet was seen");
        junk.resize(100, 0);
        let from = if self.junk_count.is_multiple_of(2) { ID_END } else { ID_END + 4 };
        // Xorshift64, with a seed that is never 0.
        let mut noise = self.junk_count.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for byte in &mut junk[from..] {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            *byte = noise.to_le_bytes()[0];
        }
        self.socket.send_to(&junk, self.server).expect("room on the loopback");
        self.junk_count += 1;
    }
}

/// The messages of one channel: sent by the players, received by the server, and echoed back to the players.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    said: u64,
    heard: u64,
    back: u64,
}

struct Scene {
    server: Server,
    players: Client,
    peers: Vec<PeerId>,
    /// The number of messages that the players have sent per channel. It selects the next sender.
    turn: usize,
    unreliable: Counts,
    reliable: Counts,
    abuser: Client,
    relay: Relay,
    abuser_said: u64,
    abuser_heard: u64,
}

impl Scene {
    fn new() -> Self {
        // The junk uses up the abuser's share of many passes, so its own packets may stay unacknowledged for long.
        let server = Server::bind(config(Workers::Inline).timeouts(PATIENCE, PATIENCE)).expect("a server");
        let address = server.local_addr();
        let local = "127.0.0.1:0".parse().expect("an address");
        let mut players =
            Client::new(ClientConfig::default().connections(200).address(local)).expect("a socket");
        for _ in 0..PLAYERS {
            players.connect((address, ServerKey::dev().public())).expect("a place");
        }
        let relay = Relay::new(address);
        // A fixed rate ignores losses on the path. In the default memory, all messages of a short run could wait until its end.
        let config = ClientConfig::default()
            .memory_bytes(256 * 1_024, 256 * 1_024)
            .congestion(Congestion::Fixed { bytes_per_second: 1_000_000_000 })
            .timeouts(PATIENCE, PATIENCE);
        let at = relay.socket.local_addr().expect("bound");
        let abuser = connect((at, ServerKey::dev().public()), &config).expect("a client");
        let mut scene = Self {
            server,
            players,
            peers: Vec::new(),
            turn: 0,
            unreliable: Counts::default(),
            reliable: Counts::default(),
            abuser,
            relay,
            abuser_said: 0,
            abuser_heard: 0,
        };
        scene.until("all are connected", |scene| {
            let is_ready = scene.abuser.is_up() && scene.relay.packet.is_some();
            scene.peers.len() == PLAYERS && is_ready
        });
        scene
    }

    fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let deadline = now() + PATIENCE;
        while !is_true(self) {
            assert!(now() < deadline, "not in time: {what}; {self:?}");
            self.server.poll(Duration::from_millis(1));
            self.step();
        }
    }

    /// Lets the relay, the server, the abuser, and the players process all that has arrived.
    fn step(&mut self) {
        self.relay.carry();
        self.serve();
        self.relay.carry();
        self.abuser.poll(Duration::ZERO);
        while let Some(event) = self.abuser.next_event() {
            match event {
                Event::Connected { .. } | Event::Message { .. } | Event::Writable { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        self.players.poll(Duration::ZERO);
        while let Some(event) = self.players.next_event() {
            match event {
                Event::Connected { peer, .. } => self.peers.push(peer),
                Event::Message { channel: UNRELIABLE, .. } => self.unreliable.back += 1,
                Event::Message { channel: RELIABLE, .. } => self.reliable.back += 1,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Polls the server until its socket is empty. The server echoes every message.
    fn serve(&mut self) {
        let mut taken = 0;
        loop {
            self.server.poll(Duration::ZERO);
            while let Some(event) = self.server.next_event() {
                match event {
                    Event::Message { peer, channel, payload } if payload[0] == b'a' => {
                        self.abuser_heard += 1;
                        // The send memory of the abuser may be full. Then the echo is dropped.
                        let _ = self.server.send(peer, Message::unreliable(channel, payload));
                    }
                    Event::Message { peer, channel, payload } => {
                        let (counts, options) = match channel {
                            RELIABLE => (&mut self.reliable, SendOptions::reliable_ordered()),
                            _ => (&mut self.unreliable, SendOptions::unreliable()),
                        };
                        counts.heard += 1;
                        self.server.send(peer, Message::new(channel, payload, options)).expect("room");
                    }
                    Event::Connected { .. } | Event::Writable { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            self.server.flush();
            let before = std::mem::replace(&mut taken, self.taken());
            if taken == before {
                return;
            }
        }
    }

    /// Returns the number of datagrams that the server has received.
    fn taken(&self) -> u64 {
        self.server.control().stats().workers[0].received.datagrams
    }

    /// Sends junk, then messages of the abuser while there is room, and then messages of a few players.
    fn play(&mut self) {
        for _ in 0..ABUSE_PER_TURN.min(abuse() - self.relay.junk_count) {
            self.relay.send_junk();
        }
        for _ in 0..ABUSE_PER_TURN.min(abuse() - self.abuser_said) {
            match self.abuser.send_up(Message::unreliable(UNRELIABLE, vec![b'a'; 64])) {
                Ok(_) => self.abuser_said += 1,
                Err(SendError::Full) => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.abuser.flush();
        for _ in 0..SPEAKERS_PER_TURN {
            let peer = self.peers[self.turn % PLAYERS];
            self.turn += 1;
            for (channel, options, counts) in [
                (UNRELIABLE, SendOptions::unreliable(), &mut self.unreliable),
                (RELIABLE, SendOptions::reliable_ordered(), &mut self.reliable),
            ] {
                self.players.send(peer, Message::new(channel, vec![b'p'; 40], options)).expect("room");
                counts.said += 1;
            }
        }
        self.players.flush();
        self.step();
    }
}

impl std::fmt::Debug for Scene {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { unreliable, reliable, abuser_said, abuser_heard, .. } = self;
        write!(f, "players: unreliable {unreliable:?}, reliable {reliable:?}; ")?;
        write!(f, "abuser: {abuser_heard} of {abuser_said} messages, {} junk", self.relay.junk_count)
    }
}

#[test]
fn a_flood_by_one_client_costs_the_others_almost_nothing() {
    let mut scene = Scene::new();
    let deadline = now() + PATIENCE;
    while scene.relay.junk_count < abuse() || scene.abuser_said < abuse() {
        assert!(now() < deadline, "not in time: {scene:?}");
        scene.play();
    }
    scene.until("all that is reliable came back", |scene| scene.reliable.back == scene.reliable.said);
    let stats = scene.server.control().stats();
    let (forged, beyond_share) = (stats.dropped(DropReason::Forged), stats.dropped(DropReason::PassShare));
    println!("{scene:?}; {forged} did not open, {beyond_share} beyond the share of a pass");
    let Counts { said, heard, back } = scene.unreliable;
    assert!(said > 1_000, "the players sent too few messages during the flood");
    assert!((said - back) * 1_000 < said, "{said} said, {heard} heard, {back} came back");
    assert_eq!(scene.reliable.heard, scene.reliable.said, "each reliable message arrives once");
    // The server decrypted no junk. Junk with the packet number of an earlier packet is dropped before decryption.
    let known = stats.dropped(DropReason::Duplicate) + stats.dropped(DropReason::TooOld);
    let kernel = stats.workers[0].kernel_dropped;
    let refused = forged + beyond_share + known + kernel;
    assert!(forged <= abuse() && refused >= abuse(), "{forged} {beyond_share} {known} {kernel}");
    assert!(beyond_share > 0, "a turn of the abuser exceeds its share of a pass");
    assert!(scene.abuser_heard > 0, "the abuser's own messages arrive too");
    assert_eq!((stats.connections(), stats.unexplained()), (PLAYERS + 1, 0));
}
