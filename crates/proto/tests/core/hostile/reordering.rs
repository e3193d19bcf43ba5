//! A network that loses nothing and reorders packets, each overtaken by a limited number of others: all arrive once,
//! in their order, and almost nothing is retransmitted.

use crate::harness::{CLEAN, CLIENT, InFlightDatagram, Random, SERVER, World};
use drumfire_proto::{ClientConfig, Config, Congestion, DropReason, PeerId, SendOptions};
use drumfire_tries::tries;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The delay from one end to the other in milliseconds.
const DELAY: usize = 10;
/// The milliseconds in which both ends send, some longer than the reordering.
const ROUNDS: u32 = 600;
/// The modes that guarantee each message, and their channels.
const MODES: [SendOptions; 3] =
    [SendOptions::unreliable(), SendOptions::reliable_unordered(), SendOptions::reliable_ordered()];

/// `DRUMFIRE_SEEDS=10000` runs more.
fn seeds() -> u64 {
    let requested = std::env::var("DRUMFIRE_SEEDS").ok().and_then(|text| text.parse().ok());
    requested.unwrap_or_else(|| tries(200).into())
}

/// Packets in flight to one end.
#[derive(Default)]
struct Shuffled {
    /// By their position among all packets.
    packets: BTreeMap<(u64, u64), InFlightDatagram>,
    /// The number of packets sent.
    count: u64,
    /// The number of packets some milliseconds ago, oldest first.
    counts: VecDeque<u64>,
}

struct Scene {
    world: World,
    peers: [PeerId; 2],
    shuffled: [Shuffled; 2],
    /// The maximum number of packets that overtake another.
    displacement: u64,
    random: Random,
}

impl Scene {
    fn new(seed: u64, displacement: u64) -> Self {
        // A rate that is never a limit, because other tests cover the effect of reordering on windows.
        let fixed = Congestion::Fixed { bytes_per_second: 1 << 27 };
        let config = Config::default().congestion(fixed).in_flight_bytes(1 << 22);
        let mut world = World::with(seed, CLEAN, config, ClientConfig::default());
        let peers = <[_; 2]>::from(world.connected());
        Self { world, peers, shuffled: Default::default(), displacement, random: Random(seed) }
    }

    /// Places a sent packet among those in flight.
    fn shuffle(&mut self) {
        for datagram in std::mem::take(&mut self.world.in_flight).into_values() {
            let shuffled = &mut self.shuffled[datagram.to];
            let place = shuffled.count + self.random.below(self.displacement + 1);
            shuffled.packets.insert((place, shuffled.count), datagram);
            shuffled.count += 1;
        }
    }

    /// Runs another millisecond.
    fn pass(&mut self) {
        self.world.flush();
        self.shuffle();
        self.world.now = self.world.now.after(Duration::from_millis(1));
        for shuffled in &mut self.shuffled {
            shuffled.counts.push_back(shuffled.count);
            let due = if shuffled.counts.len() > DELAY { shuffled.counts.pop_front().unwrap() } else { 0 };
            let later = shuffled.packets.split_off(&(due, 0));
            for datagram in std::mem::replace(&mut shuffled.packets, later).into_values() {
                self.world.deliver(datagram.to, datagram.from, &datagram.bytes);
            }
        }
        let now = self.world.now();
        self.world.ends.iter_mut().for_each(|end| end.handle_timeout(now));
    }

    /// Each end sends a message in each mode, one packet each.
    fn send_in_each_mode(&mut self, number: u32) {
        for end in [CLIENT, SERVER] {
            for (channel, options) in (1..).zip(MODES) {
                self.world.send(end, self.peers[end], channel, &number.to_be_bytes(), options).unwrap();
                self.world.flush();
            }
        }
    }

    /// Delivers all packets in flight, and those that follow.
    fn deliver_all(&mut self) {
        let in_flight = self.shuffled.iter_mut().flat_map(|shuffled| std::mem::take(&mut shuffled.packets));
        for (_, datagram) in in_flight {
            // A connection has its share of a pass.
            self.world.now = self.world.now.after(Duration::from_micros(1));
            self.world.deliver(datagram.to, datagram.from, &datagram.bytes);
        }
        self.world.run(Duration::from_secs(2));
    }

    fn received(&self, end: usize, channel: u16) -> Vec<u32> {
        let of_channel = self.world.messages(end).into_iter().filter(|(on, _)| *on == channel);
        of_channel.map(|(_, bytes)| u32::from_be_bytes(bytes[..].try_into().unwrap())).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.world.ends.iter().map(|end| end.stats().dropped(reason)).sum()
    }
}

/// Sends for a while. Returns the number of packets, and how many of them were declared lost.
fn exchange(seed: u64, displacement: u64) -> (u64, u64) {
    let mut scene = Scene::new(seed, displacement);
    for number in 0..ROUNDS {
        scene.send_in_each_mode(number);
        scene.pass();
    }
    let count = scene.shuffled.iter().map(|shuffled| shuffled.count).sum();
    let lost = scene.world.ends.iter().map(|end| end.stats().packets_lost).sum();
    scene.deliver_all();
    for end in [CLIENT, SERVER] {
        for channel in 1..=3 {
            let mut received = scene.received(end, channel);
            if channel != 3 {
                received.sort_unstable();
            }
            let missing: Vec<_> = (0..ROUNDS).filter(|number| !received.contains(number)).collect();
            let is_whole = received.iter().copied().eq(0..ROUNDS);
            assert!(is_whole, "seed {seed}, {displacement}, channel {channel} at end {end}: not {missing:?}");
        }
    }
    let dropped = [DropReason::TooOld, DropReason::Duplicate, DropReason::Forged];
    assert_eq!(dropped.map(|reason| scene.dropped(reason)), [0; 3], "seed {seed}, {displacement}");
    (count, lost)
}

#[test]
fn packets_overtaken_by_up_to_a_thousand_are_accepted_once() {
    for seed in 0..seeds() {
        let mut random = Random(seed);
        // As far as numbers can be skipped on the way.
        for displacement in [2 + random.below(1_000), 1_015] {
            exchange(seed, displacement);
        }
    }
}

#[test]
fn mild_reordering_causes_almost_no_retransmissions() {
    let (mut packets, mut lost) = (0, 0);
    for seed in 0..seeds() {
        for displacement in [0, 1, 2] {
            let (more_packets, more_lost) = exchange(seed, displacement);
            packets += more_packets;
            lost += more_lost;
        }
    }
    println!("{lost} of {packets} packets were declared lost");
    assert!(lost * 100 <= packets, "{lost} of {packets}");
}
