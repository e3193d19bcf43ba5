//! Batches with any number of bad datagrams of every kind at any position: the others are processed as if they had
//! come alone.

use crate::harness::{CLEAN, CLIENT, Random, SERVER, address};
use crate::puppet::Puppet;
use drumfire_proto::{DropReason, Inbound, PeerId, SendOptions};
use drumfire_wire::{Close, CloseCode, FrameWriter};
use std::collections::BTreeSet;
use std::time::Duration;

const BATCH: u64 = 64;
const HELLO: u8 = 0x89;
/// The offset of the server key id in a Hello.
const KEY_ID: usize = 19;
const SUITES: usize = 27;
/// The offset of the number in a packet to a server, the higher byte first.
const NUMBER: usize = 9;

/// The source of a bad datagram.
struct CorruptionSources<'a> {
    /// A client that may violate the rules.
    puppet: &'a mut Puppet,
    /// A packet of the other client that was accepted.
    taken: &'a [u8],
    hello: &'a [u8],
}

type Corrupt = fn(CorruptionSources<'_>) -> Vec<u8>;

fn changed(bytes: &[u8], at: usize, by: u8) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at] = bytes[at].wrapping_add(by);
    bytes
}

const KINDS: [(DropReason, Corrupt); 13] = [
    (DropReason::Empty, |_| Vec::new()),
    (DropReason::FixedBits, |_| vec![0; 40]),
    (DropReason::UnknownKind, |_| vec![0x8f; 1_200]),
    (DropReason::WrongLength, |parts| parts.hello[..1_199].to_vec()),
    (DropReason::PacketNumberLength, |parts| changed(parts.taken, 0, 0xff)),
    (DropReason::UnexpectedKind, |_| vec![0x8a; 64]),
    (DropReason::ForgedId, |parts| changed(parts.taken, 1, 1)),
    (DropReason::Duplicate, |parts| parts.taken.to_vec()),
    (DropReason::Forged, |parts| changed(parts.taken, NUMBER, 0x20)),
    (DropReason::UnknownServerKey, |parts| changed(parts.hello, KEY_ID, 1)),
    (DropReason::BadOffer, |parts| changed(parts.hello, SUITES, 1)),
    // The first of these closes its connection.
    (DropReason::Protocol, |parts| parts.puppet.datagram(&[0x7f; 30])),
    (DropReason::ConnectionClosed, |parts| {
        let mut close = [0; 30];
        FrameWriter::new(&mut close[..])
            .close(&Close { code: CloseCode::Application, application_code: 0, reason: b"" })
            .unwrap();
        parts.puppet.datagram(&close)
    }),
];

/// An honest client, a hostile one, and what each sends.
struct Scene {
    puppet: Puppet,
    client: PeerId,
    sent_count: u64,
    taken: Vec<u8>,
    hello: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let mut puppet = Puppet::connected(1);
        puppet.world.link = CLEAN;
        puppet.world.sent.clear();
        let (client, _) = puppet.world.connected();
        let of_client =
            |kind: u8| move |(_, end, bytes): &&(_, usize, Vec<u8>)| *end == CLIENT && bytes[0] == kind;
        let hello = puppet.world.sent.iter().find(of_client(HELLO)).unwrap().2.clone();
        let mut scene = Self { puppet, client, sent_count: 0, taken: Vec::new(), hello };
        scene.taken = scene.next_packet();
        scene.puppet.world.deliver(SERVER, address(CLIENT), &scene.taken);
        scene.puppet.world.run(Duration::from_millis(50));
        scene
    }

    /// Returns the next packet with a message.
    fn next_packet(&mut self) -> Vec<u8> {
        let world = &mut self.puppet.world;
        world
            .send(CLIENT, self.client, 0, &self.sent_count.to_be_bytes(), SendOptions::unreliable())
            .unwrap();
        self.sent_count += 1;
        let (now, mut memory) = (world.now(), [0; 1_200]);
        let transmit = world.ends[CLIENT].poll_transmit(now, &mut memory).unwrap();
        memory[..transmit.bytes].to_vec()
    }

    /// Sends a batch with bad datagrams at these positions. Returns how many were dropped for this reason.
    fn deliver(&mut self, bad: &BTreeSet<u64>, reason: DropReason, corrupt: Corrupt) -> u64 {
        let mut batch = Vec::new();
        for place in 0..BATCH {
            let datagram = if bad.contains(&place) {
                corrupt(CorruptionSources {
                    puppet: &mut self.puppet,
                    taken: &self.taken,
                    hello: &self.hello,
                })
            } else {
                self.next_packet()
            };
            batch.push(datagram);
        }
        let next_packet = (0..BATCH).find(|place| !bad.contains(place)).unwrap();
        self.taken.clone_from(&batch[next_packet as usize]);
        let before = self.dropped(reason);
        let world = &mut self.puppet.world;
        world.seen[SERVER].clear();
        let now = world.now();
        let datagrams = batch.iter_mut().map(|bytes| Inbound { from: address(CLIENT).into(), bytes });
        world.ends[SERVER].handle_datagrams(now, datagrams);
        world.run(Duration::from_millis(50));
        self.dropped(reason) - before
    }

    /// Datagrams of a closed connection soon belong to no connection.
    fn dropped(&self, reason: DropReason) -> u64 {
        let stats = self.puppet.world.ends[SERVER].stats();
        let is_closed = reason == DropReason::ConnectionClosed;
        stats.dropped(reason) + if is_closed { stats.dropped(DropReason::UnknownConnection) } else { 0 }
    }
}

/// Sends one batch with this many bad datagrams of a kind.
fn try_batch(scene: &mut Scene, bad: &BTreeSet<u64>, reason: DropReason, corrupt: Corrupt) {
    let first = scene.sent_count;
    let dropped = scene.deliver(bad, reason, corrupt);
    let expected = match reason {
        DropReason::Protocol => 1,
        DropReason::ConnectionClosed => bad.len() as u64 - 1,
        _ => bad.len() as u64,
    };
    assert_eq!(dropped, expected, "{reason:?} at {bad:?}");
    let got = scene.puppet.world.messages(SERVER);
    let all = (first..scene.sent_count).map(|number| (0, number.to_be_bytes().to_vec()));
    assert!(got.into_iter().eq(all), "{reason:?} at {bad:?}");
}

/// Bad datagrams at every eighth position, shifted each time.
#[test]
fn bad_datagrams_anywhere_in_a_batch_skip_no_other() {
    let mut random = Random(1);
    let step: u64 = 8;
    for (reason, corrupt) in KINDS {
        let ends_a_connection = matches!(reason, DropReason::Protocol | DropReason::ConnectionClosed);
        let mut scene = Scene::new();
        for count in [1, 2, 7, 32, 63] {
            for place in (0..BATCH).step_by(step as usize) {
                let first = place + random.below(step);
                // An odd stride reaches every position.
                let stride = 1 + 2 * random.below(BATCH / 2);
                let bad = (0..count).map(|number| (first + number * stride) % BATCH).collect();
                if ends_a_connection {
                    scene = Scene::new();
                }
                try_batch(&mut scene, &bad, reason, corrupt);
            }
        }
    }
}
