//! Packets of an on-path attacker without keys end no connection, and keep none alive.
//!
//! `DRUMFIRE_FULL=1` sends the full numbers, and other runs a hundredth of them.

use crate::harness::{CLEAN, CLIENT, Random, SERVER, Seen, World, address};
use drumfire_proto::{Close, CloseCode, CloseReason, DropReason, Moment, PeerId};
use drumfire_tries::tries;
use std::net::SocketAddr;
use std::time::Duration;

const CLIENT_ID: std::ops::Range<usize> = 11..19;
/// The connection id in packets to the server. Packets to a client have none.
const CONNECTION_ID: std::ops::Range<usize> = 1..9;
const SECOND: Duration = Duration::from_secs(1);

fn fill(bytes: &mut [u8], random: &mut Random) {
    bytes.iter_mut().for_each(|byte| *byte = random.bits().to_le_bytes()[0]);
}

/// All packets that arrived at this end so far.
fn arrived(world: &World, end: usize) -> Vec<Vec<u8>> {
    let of_peer = world.sent.iter().filter(|(_, from, bytes)| *from != end && bytes[0] < 0x80);
    of_peer.map(|(.., bytes)| bytes.clone()).collect()
}

/// Forges packets to one end of a connection.
struct Forger {
    end: usize,
    client_id: Vec<u8>,
    server_id: Vec<u8>,
    /// Genuine packets, each of which has arrived.
    recorded: Vec<Vec<u8>>,
    /// The packet with which another connection was closed.
    close_of_another: Vec<u8>,
    random: Random,
    sent: u32,
}

impl Forger {
    /// Creates a forger that has seen all datagrams of both ends of this world.
    fn new(world: &World, end: usize) -> Self {
        let mut other = World::new(77, CLEAN);
        let peers: [PeerId; 2] = other.connected().into();
        let bye = Close { code: CloseCode::Application, application_code: 1, reason: b"forged" };
        let now = other.now();
        other.ends[1 - end].close(now, peers[1 - end], &bye).unwrap();
        other.flush();
        let close_of_another = arrived(&other, end).pop().unwrap();
        let client_id = world.sent[0].2[CLIENT_ID].to_vec();
        let server_id = arrived(world, SERVER)[0][CONNECTION_ID].to_vec();
        let recorded = arrived(world, end);
        Self { end, client_id, server_id, recorded, close_of_another, random: Random(end as u64), sent: 0 }
    }

    /// Writes the header of the newest packet, with a number that was not used yet.
    fn write_header(&mut self, packet: &mut [u8]) {
        let header_bytes = if self.end == SERVER { 11 } else { 3 };
        let newest = self.recorded.last().unwrap();
        packet[..header_bytes].copy_from_slice(&newest[..header_bytes]);
        let number = &mut packet[header_bytes - 1];
        *number = number.wrapping_add(1 + self.random.below(60) as u8);
    }

    fn genuine(&mut self) -> Vec<u8> {
        self.recorded[self.random.below(self.recorded.len() as u64) as usize].clone()
    }

    fn next(&mut self) -> (SocketAddr, Vec<u8>) {
        self.sent += 1;
        let bytes = match self.sent % 6 {
            0 => {
                let mut reset = vec![0x8d; 25];
                reset[CONNECTION_ID].copy_from_slice(&self.server_id);
                fill(&mut reset[9..], &mut self.random);
                reset
            }
            1 => {
                let mut packet = vec![0; 30 + self.random.below(20) as usize];
                fill(&mut packet, &mut self.random);
                self.write_header(&mut packet);
                packet
            }
            2 => {
                let mut close = self.close_of_another.clone();
                self.write_header(&mut close);
                close
            }
            3 => self.genuine(),
            4 => {
                let mut changed = self.genuine();
                let bit = self.random.below(8 * changed.len() as u64) as usize;
                changed[bit / 8] ^= 1 << (bit % 8);
                changed
            }
            _ => {
                let kinds = [(0x8a, 64), (0x8b, 51), (0x8c, 92)];
                let (kind, bytes) = kinds[self.random.below(3) as usize];
                let mut answer = vec![kind; bytes];
                fill(&mut answer[9..], &mut self.random);
                answer[1..9].copy_from_slice(&self.client_id);
                answer
            }
        };
        let from_elsewhere = self.sent.is_multiple_of(5);
        (if from_elsewhere { "203.0.113.66:6666".parse().unwrap() } else { address(1 - self.end) }, bytes)
    }
}

/// Returns when and why the connection on this end was over.
fn ended(world: &World, end: usize) -> Option<(Moment, CloseReason)> {
    world.seen[end].iter().find_map(|(at, _, seen)| match seen {
        Seen::Disconnected(reason, _) => Some((*at, *reason)),
        _ => None,
    })
}

/// Lets both ends send, until nothing is in flight.
fn exchanged(seed: u64) -> (World, [PeerId; 2]) {
    let mut world = World::new(seed, CLEAN);
    let peers: [PeerId; 2] = world.connected().into();
    for _ in 0..20 {
        for end in [CLIENT, SERVER] {
            world.reliable(end, peers[end], &[7; 100]).unwrap();
        }
        world.run(Duration::from_millis(30));
    }
    world.run(SECOND);
    assert!(world.in_flight.is_empty());
    (world, peers)
}

#[test]
fn a_million_forged_closes_resets_and_replays_close_nothing() {
    let (mut world, peers) = exchanged(1);
    let tries = tries(1_000_000);
    for end in [CLIENT, SERVER] {
        let mut forger = Forger::new(&world, end);
        let before = world.ends[end].stats().dropped_count();
        for number in 0..tries {
            let (from, bytes) = forger.next();
            world.deliver(end, from, &bytes);
            // More of them in one pass would not be opened.
            if number % 32 == 0 {
                world.now = world.now.after(Duration::from_micros(1));
            }
        }
        world.flush();
        assert_eq!(world.ends[end].stats().dropped_count() - before, u64::from(tries), "each is dropped");
        let stats = world.ends[end].stats();
        let resets = [DropReason::BadReset, DropReason::UnexpectedKind][end];
        for reason in [DropReason::Forged, DropReason::Duplicate, resets] {
            assert!(stats.dropped(reason) > u64::from(tries) / 10, "end {end}: {reason:?}");
        }
        assert_eq!(stats.dropped(DropReason::PassShare), 0);
    }
    let before = [CLIENT, SERVER].map(|end| world.messages(end).len());
    for end in [CLIENT, SERVER] {
        world.reliable(end, peers[end], b"still here").unwrap();
    }
    world.run(SECOND);
    assert_eq!([CLIENT, SERVER].map(|end| world.messages(end).len()), before.map(|before| before + 1));
    assert_eq!([CLIENT, SERVER].map(|end| ended(&world, end)), [None, None]);
}

/// Cuts one end off from its peer, and lets a forger send at an even rate for this long, as if it were the peer.
fn run_with_forger(world: &mut World, end: usize, duration: Duration) {
    let mut forger = Forger::new(world, end);
    world.link.loss = 100;
    world.in_flight.clear();
    let tries = tries(100_000);
    for _ in 0..tries {
        let (from, bytes) = forger.next();
        world.deliver(end, from, &bytes);
        world.run(duration / tries);
    }
}

#[test]
fn a_hundred_thousand_forgeries_do_not_delay_the_ack_timeout() {
    for end in [CLIENT, SERVER] {
        let (mut world, peers) = exchanged(2);
        world.link.loss = 100;
        world.reliable(end, peers[end], b"anybody?").unwrap();
        world.flush();
        let due_at = world.now.after(10 * SECOND);
        run_with_forger(&mut world, end, 12 * SECOND);
        assert_eq!(ended(&world, end), Some((due_at, CloseReason::Unacknowledged)), "end {end}");
    }
}

#[test]
fn a_hundred_thousand_forgeries_do_not_delay_idle_timeouts() {
    let (mut world, peers) = exchanged(3);
    world.reliable(CLIENT, peers[CLIENT], b"last").unwrap();
    world.run(Duration::from_millis(10));
    let (heard_at, _, seen) = world.last(SERVER).unwrap().clone();
    assert_eq!(seen, Seen::Message(0, b"last".to_vec()));
    run_with_forger(&mut world, SERVER, 32 * SECOND);
    assert_eq!(ended(&world, SERVER), Some((heard_at.after(30 * SECOND), CloseReason::IdleTimeout)));
}
