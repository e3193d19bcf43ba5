//! The protocol in memory, without sockets: `cargo bench --bench pipeline`.
//!
//! | part | what is measured |
//! | --- | --- |
//! | `find` | the steps of a server before a packet is opened: header, look-up, and replay window |
//! | `pipeline` | the receiving side of a server per packet of 128 B, and own code as the difference to an open alone |
//!
//! `find` receives copies of packets that were opened before, which the server drops as duplicates. `pipeline` covers parsing,
//! opening, frames, ack bookkeeping, timers, taking the event, and the acks that follow. One thread does all work, pinned to a core.
//! The work of the other end is not timed. Each round has new connections.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::memory::{
    BATCH, Datagrams, Group, SealedPeers, UNLIMITED, client_address, server_address, take_messages,
};
use drumfire_benches::{
    Arm, ArmTable, Bench, Extent, Goal, OpenAlone, Program, Rounds, Spread, cell, median_cell, part,
};
use drumfire_crypto::Suite;
use drumfire_proto::{ChannelId, Config, DropReason, Endpoint, Inbound, Message, Now, SendOptions};
use drumfire_puppet::PacketSealer;
use drumfire_tools::clock;

/// Rounds that count.
const ROUNDS: u32 = 9;
const DATAGRAM_BYTES: usize = 128;
/// The virtual time between two batches. It gives a million packets per second.
const BATCH_INTERVAL: Duration = Duration::from_micros(32);
/// Packets made before the server receives the first of them. More may be in flight.
const PREPARED: usize = 8 * BATCH;
/// The virtual time within which an end may send again, in milliseconds.
const MAY_SEND_WITHIN_MS: u32 = 1_000;
/// The goal for the steps before the open, in nanoseconds.
const FIND_NS: f64 = 40.0;
/// The goal for own code over one ChaCha20-Poly1305 open.
const OWN_OVER_OPEN: f64 = 0.6;

fn main() -> ExitCode {
    let parts = [part("find", find), part("pipeline", pipeline)];
    let prepare = |bench: &mut Bench| bench.results.pinned_as("the one thread to the last core");
    Program { prepare, ..Program::new("pipeline", &parts) }.main()
}

/// A packet with room for one that is longer than usual.
#[derive(Clone)]
struct PreparedPacket {
    from: SocketAddr,
    memory: [u8; DATAGRAM_BYTES + 64],
    bytes: usize,
}

impl PreparedPacket {
    fn none() -> Self {
        Self { from: client_address(), memory: [0; DATAGRAM_BYTES + 64], bytes: 0 }
    }

    /// Seals a packet with one unreliable message. The peers take turns.
    fn seal(&mut self, sealed: &mut SealedPeers) {
        let length = PacketSealer::payload_bytes(DATAGRAM_BYTES).expect("room for a message");
        sealed.peers.rotate_left(1);
        let peer = &mut sealed.peers[0];
        let datagram = &mut self.memory[..DATAGRAM_BYTES];
        peer.sealer.seal(datagram, &[7; DATAGRAM_BYTES][..length]).expect("numbers are left");
        (self.from, self.bytes) = (peer.address, DATAGRAM_BYTES);
    }

    fn inbound(&mut self) -> Inbound<'_> {
        Inbound { from: self.from.into(), bytes: &mut self.memory[..self.bytes] }
    }
}

/// Measures the steps before the open, with one connection and with 200.
fn find(bench: &mut Bench) -> Result<(), String> {
    let count = bench.extent().pick(1_024, 200_000, 200_000);
    let arm = |connections: u8| {
        let name = format!("header, look-up, and replay window, connections: {connections}");
        Arm::new(name, move || Ok(find_copies(connections, count)))
    };
    let arms = bench.interleave_work(ROUNDS, vec![arm(1), arm(200)])?;
    for arm in &arms {
        let ns = arm.spread(|ns| Some(*ns));
        bench.results.spread(arm.name.as_str(), ns, "ns", Goal::AtMost(FIND_NS), arm.busy_or(""));
    }
    Ok(())
}

/// Returns the nanoseconds that the server takes for each of at least `count` copies.
fn find_copies(connections: u8, count: usize) -> f64 {
    let config = Config::default().has_aes_gcm(true);
    let mut sealed = SealedPeers::of_server(config, connections, None).expect("connections");
    let make = |sealed: &mut SealedPeers, count: usize| {
        let mut packets = vec![PreparedPacket::none(); count];
        packets.iter_mut().for_each(|packet| packet.seal(sealed));
        packets
    };
    // The replay window of a new connection is narrow. It must remember all copies, or they are too old instead of duplicates.
    let copies = make(&mut sealed, BATCH * usize::from(connections).min(16));
    receive_all(&mut sealed, &mut copies.clone());
    // After newer packets, no copy is of a connection's newest packet, which could start a migration.
    let mut newer = make(&mut sealed, connections.into());
    receive_all(&mut sealed, &mut newer);
    let (mut took, mut received) = (Duration::ZERO, 0);
    while received < count {
        took += receive_all(&mut sealed, &mut copies.clone());
        received += copies.len();
    }
    let duplicates = sealed.endpoint.stats().dropped(DropReason::Duplicate);
    assert_eq!(duplicates, received as u64, "every copy is counted as a duplicate");
    took.as_nanos() as f64 / received as f64
}

/// Passes batches to the server. Returns the time that it took to receive them.
fn receive_all(sealed: &mut SealedPeers, packets: &mut [PreparedPacket]) -> Duration {
    let mut took = Duration::ZERO;
    for batch in packets.chunks_mut(BATCH) {
        sealed.pass(BATCH_INTERVAL);
        let start = clock::now();
        sealed.endpoint.handle_datagrams(sealed.now, batch.iter_mut().map(PreparedPacket::inbound));
        took += start.elapsed();
        take_messages(&mut sealed.endpoint);
    }
    took
}

/// The cipher, the kind of message, and the number of connections that send in turn.
#[derive(Clone, Copy, Debug)]
struct Case {
    suite: Suite,
    is_reliable: bool,
    connections: u8,
}

const CHACHA: Case = Case { suite: Suite::ChaCha20Poly1305, is_reliable: false, connections: 1 };
const AES: Case = Case { suite: Suite::Aes128Gcm, ..CHACHA };
const CASES: [Case; 5] = [
    CHACHA,
    AES,
    Case { is_reliable: true, ..CHACHA },
    Case { is_reliable: true, ..AES },
    Case { connections: 200, ..CHACHA },
];

impl Case {
    fn name(self) -> String {
        let source = if self.is_reliable { "ReliableOrdered" } else { "Unreliable" };
        let plural = if self.connections == 1 { "" } else { "s" };
        format!("{source}, {}, {} connection{plural}", self.suite_name(), self.connections)
    }

    const fn suite_name(self) -> &'static str {
        match self.suite {
            Suite::ChaCha20Poly1305 => "ChaCha20-Poly1305",
            Suite::Aes128Gcm => "AES-128-GCM",
        }
    }

    fn connect(self) -> Ends {
        let config = Config::default().has_aes_gcm(self.suite == Suite::Aes128Gcm);
        if self.is_reliable {
            let group = Group::connect(1, &config.congestion(UNLIMITED)).expect("a connection");
            return Ends::Real { group: Box::new(group), payload_bytes: 97, sent: 0 };
        }
        let sealed = SealedPeers::of_server(config, self.connections, None).expect("connections");
        Ends::Sealed(Box::new(sealed))
    }
}

/// A server and its clients.
enum Ends {
    /// Sealers send packets of one unreliable message each.
    Sealed(Box<SealedPeers>),
    /// A client endpoint sends packets of one reliable message each, and receives the acks.
    Real { group: Box<Group>, payload_bytes: usize, sent: u64 },
}

impl Ends {
    fn server(&mut self) -> (&mut Endpoint, &mut Now) {
        match self {
            Self::Sealed(sealed) => (&mut sealed.endpoint, &mut sealed.now),
            Self::Real { group, .. } => (&mut group.server, &mut group.now),
        }
    }

    /// Makes the next packet. Returns false when the client must wait.
    fn make(&mut self, packet: &mut PreparedPacket) -> bool {
        match self {
            Self::Sealed(sealed) => {
                packet.seal(sealed);
                true
            }
            Self::Real { group, payload_bytes, sent } => {
                let is_made = send_one(group, *payload_bytes, sent, packet);
                // Message ids grow longer. A packet that carries an ack is an exception.
                if is_made && packet.bytes.abs_diff(DATAGRAM_BYTES) <= 3 {
                    *payload_bytes = *payload_bytes + DATAGRAM_BYTES - packet.bytes;
                }
                is_made
            }
        }
    }

    /// Passes the server's datagrams to the client.
    fn pass_answers(&mut self, answers: &mut Datagrams) {
        if let Self::Real { group, .. } = self {
            group.client.handle_datagrams(group.now, answers.inbound(server_address()));
            group.client.handle_timeout(group.now);
            while group.client.poll_event().is_some() {}
        }
        answers.clear();
    }
}

/// Writes the next packet of a client, usually with one message. Returns false when the client must wait.
fn send_one(group: &mut Group, payload_bytes: usize, sent: &mut u64, packet: &mut PreparedPacket) -> bool {
    const PAYLOAD: &[u8] = &[7; 2 * DATAGRAM_BYTES];
    let Group { client, links, now, .. } = group;
    // The client sends a waiting message before it gets the next one.
    if client.stats().messages_sent == *sent {
        let payload = Bytes::from_static(&PAYLOAD[..payload_bytes]);
        let options = SendOptions::reliable_ordered();
        if client.send(*now, links[0].server, Message::new(ChannelId(0), payload, options)).is_err() {
            return false;
        }
    }
    let mut datagram = [0; 1_200];
    let Some(transmit) = client.poll_transmit(*now, &mut datagram) else { return false };
    *sent = client.stats().messages_sent;
    (packet.from, packet.bytes) = (client_address(), transmit.bytes);
    packet.memory[..transmit.bytes].copy_from_slice(&datagram[..transmit.bytes]);
    true
}

/// Nanoseconds, acks, and bytes per packet of a round.
type PerPacket = [f64; 3];

/// Passes `count` packets to a new server.
fn receive(case: Case, count: usize) -> PerPacket {
    let (mut ends, mut answers) = (case.connect(), Datagrams::default());
    answers.reserve(2 * BATCH);
    let mut packets = vec![PreparedPacket::none(); PREPARED];
    let (mut took, mut received, mut delivered) = (Duration::ZERO, 0, 0);
    let (mut acks, mut bytes, mut waited) = (0, 0, 0);
    while received < count {
        let (mut made, wanted) = (0, PREPARED.min(count - received));
        while made < wanted && ends.make(&mut packets[made]) {
            made += 1;
        }
        if made == 0 {
            assert!(waited < MAY_SEND_WITHIN_MS, "{}: the client may not send", case.name());
            waited += 1;
            let (server, now) = ends.server();
            now.monotonic = now.monotonic.after(Duration::from_millis(1));
            server.handle_timeout(*now);
            answers.take_all_from(server, *now);
        } else {
            waited = 0;
        }
        for batch in packets[..made].chunks_mut(BATCH) {
            bytes += batch.iter().map(|packet| packet.bytes).sum::<usize>();
            let (server, now) = ends.server();
            now.monotonic = now.monotonic.after(BATCH_INTERVAL);
            let (before, start) = (answers.count(), clock::now());
            server.handle_datagrams(*now, batch.iter_mut().map(PreparedPacket::inbound));
            server.handle_timeout(*now);
            delivered += take_messages(server);
            answers.take_all_from(server, *now);
            took += start.elapsed();
            acks += answers.count() - before;
        }
        ends.pass_answers(&mut answers);
        received += made;
    }
    let sent = if let Ends::Real { sent, .. } = &ends { *sent } else { count as u64 };
    let dropped = ends.server().0.stats().dropped_count();
    assert_eq!((delivered, dropped), (sent, 0), "{}: delivered and dropped", case.name());
    [took.as_nanos() as f64, acks as f64, bytes as f64].map(|sum| sum / count as f64)
}

/// Measures both ciphers alone and every case.
fn pipeline(bench: &mut Bench) -> Result<(), String> {
    let count = bench.extent().pick(1_024, 200_000, 200_000);
    let mut arms = Vec::new();
    for cipher in [CHACHA, AES] {
        let mut open = OpenAlone::new(cipher.suite);
        arms.push(Arm::new(format!("open alone, {}", cipher.suite_name()), move || {
            let ns = open.time(count as u64).as_nanos() as f64 / count as f64;
            Ok([ns, 0.0, DATAGRAM_BYTES as f64])
        }));
    }
    arms.extend(CASES.map(|case| Arm::new(case.name(), move || Ok(receive(case, count)))));
    let arms = bench.interleave_work(ROUNDS, arms)?;
    let [chacha, aes, pipelines @ ..] = &arms[..] else { return Err("there were no rounds".to_owned()) };
    let of = |arm: &Rounds<PerPacket>, at: usize| arm.spread(|round| Some(round[at]));
    // Both sides are of the same round, so that a change of the machine's speed affects both.
    let own_over_open = |arm: &Rounds<PerPacket>| {
        let case = CASES.iter().find(|case| case.name() == arm.name)?;
        let open = if case.suite == Suite::Aes128Gcm { aes } else { chacha };
        let rounds = arm.rounds.iter().zip(&open.rounds).zip(&chacha.rounds);
        Spread::of(rounds.map(|((whole, open), chacha)| (whole[0] - open[0]) / chacha[0]))
    };
    ArmTable::new("per packet of 128 B", &arms)
        .column("ns", |arm| cell(of(arm, 0), 1))
        .column("acks", |arm| median_cell(of(arm, 1), 3))
        .column("own over one ChaCha20-Poly1305 open", |arm| median_cell(own_over_open(arm), 2))
        .print();
    for arm in &arms {
        let note = arm.busy_or("");
        bench.results.spread(format!("{}, per packet", arm.name), of(arm, 0), "ns", Goal::Shown, note);
    }
    for arm in pipelines {
        let name = format!("{}, own code over one ChaCha20-Poly1305 open", arm.name);
        let goal = Goal::AtMost(OWN_OVER_OPEN);
        bench.results.spread(name, own_over_open(arm), "", goal, arm.busy_or(""));
        let bytes = of(arm, 2).ok_or("there were no rounds")?.median;
        if bench.extent() != Extent::Quick && (bytes - DATAGRAM_BYTES as f64).abs() > 0.5 {
            return Err(format!("{}: packets of {bytes:.1} B", arm.name));
        }
    }
    Ok(())
}
