//! A network that loses nothing and brings packets in another order, each overtaken by so many others at most: all arrive, once
//! each and in the order they should, and next to nothing is sent again for nothing.

use crate::harness::{CLEAN, CLIENT, Flying, Random, SERVER, World};
use drumfire_proto::{ClientConfig, Config, Congestion, DropReason, PeerId, SendOptions};
use drumfire_tries::tries;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Milliseconds from one end to the other.
const DELAY: usize = 10;
/// Milliseconds in which both ends talk, some longer than packets overtake each other in.
const TALK: u32 = 600;
/// The modes that promise each message, and the channels they are tried on.
const MODES: [SendOptions; 3] =
    [SendOptions::unreliable(), SendOptions::reliable_unordered(), SendOptions::reliable_ordered()];

/// `DRUMFIRE_SEEDS=10000` for more.
fn seeds() -> u64 {
    let asked = std::env::var("DRUMFIRE_SEEDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| tries(200).into())
}

/// What is under way to one end.
#[derive(Default)]
struct Shuffled {
    /// By its place among all packets.
    packets: BTreeMap<(u64, u64), Flying>,
    /// How many were sent.
    count: u64,
    /// How many there were some milliseconds ago, oldest first.
    counts: VecDeque<u64>,
}

struct Scene {
    world: World,
    peers: [PeerId; 2],
    shuffled: [Shuffled; 2],
    /// No packet is overtaken by more.
    displacement: u64,
    random: Random,
}

impl Scene {
    fn new(seed: u64, displacement: u64) -> Self {
        // A rate that nothing is ever too much for: what the order does to windows is their tests' business.
        let fixed = Congestion::Fixed { bytes_per_second: 1 << 27 };
        let config = Config::default().congestion(fixed).in_flight_bytes(1 << 22);
        let mut world = World::with(seed, CLEAN, config, ClientConfig::default());
        let peers = <[_; 2]>::from(world.connected());
        Self { world, peers, shuffled: Default::default(), displacement, random: Random(seed) }
    }

    /// What was sent takes its place among what is under way.
    fn shuffle(&mut self) {
        for flying in std::mem::take(&mut self.world.flying).into_values() {
            let shuffled = &mut self.shuffled[flying.to];
            let place = shuffled.count + self.random.below(self.displacement + 1);
            shuffled.packets.insert((place, shuffled.count), flying);
            shuffled.count += 1;
        }
    }

    /// One more millisecond.
    fn pass(&mut self) {
        self.world.flush();
        self.shuffle();
        self.world.now = self.world.now.after(Duration::from_millis(1));
        for shuffled in &mut self.shuffled {
            shuffled.counts.push_back(shuffled.count);
            let due = if shuffled.counts.len() > DELAY { shuffled.counts.pop_front().unwrap() } else { 0 };
            let later = shuffled.packets.split_off(&(due, 0));
            for flying in std::mem::replace(&mut shuffled.packets, later).into_values() {
                self.world.hand(flying.to, flying.from, &flying.bytes);
            }
        }
        let now = self.world.now();
        self.world.ends.iter_mut().for_each(|end| end.handle_timeout(now));
    }

    /// Each end says a message in each mode, a packet each.
    fn talk(&mut self, number: u32) {
        for end in [CLIENT, SERVER] {
            for (channel, options) in (1..).zip(MODES) {
                self.world.send(end, self.peers[end], channel, &number.to_be_bytes(), options).unwrap();
                self.world.flush();
            }
        }
    }

    /// Everything arrives that is under way, and what comes of it.
    fn settle(&mut self) {
        let under_way = self.shuffled.iter_mut().flat_map(|shuffled| std::mem::take(&mut shuffled.packets));
        for (_, flying) in under_way {
            // A connection has its share of a pass.
            self.world.now = self.world.now.after(Duration::from_micros(1));
            self.world.hand(flying.to, flying.from, &flying.bytes);
        }
        self.world.run(Duration::from_secs(2));
    }

    fn got(&self, end: usize, channel: u16) -> Vec<u32> {
        let of_channel = self.world.messages(end).into_iter().filter(|(on, _)| *on == channel);
        of_channel.map(|(_, bytes)| u32::from_be_bytes(bytes[..].try_into().unwrap())).collect()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.world.ends.iter().map(|end| end.stats().dropped(reason)).sum()
    }
}

/// Talks for a while; answers how many packets there were, and how many of them were taken for lost.
fn talk(seed: u64, displacement: u64) -> (u64, u64) {
    let mut scene = Scene::new(seed, displacement);
    for number in 0..TALK {
        scene.talk(number);
        scene.pass();
    }
    let count = scene.shuffled.iter().map(|shuffled| shuffled.count).sum();
    let lost = scene.world.ends.iter().map(|end| end.stats().packets_lost).sum();
    scene.settle();
    for end in [CLIENT, SERVER] {
        for channel in 1..=3 {
            let mut got = scene.got(end, channel);
            if channel != 3 {
                got.sort_unstable();
            }
            let missing: Vec<_> = (0..TALK).filter(|number| !got.contains(number)).collect();
            let is_whole = got.iter().copied().eq(0..TALK);
            assert!(is_whole, "seed {seed}, {displacement}, channel {channel} at end {end}: not {missing:?}");
        }
    }
    let dropped = [DropReason::TooOld, DropReason::Duplicate, DropReason::Forged];
    assert_eq!(dropped.map(|reason| scene.dropped(reason)), [0; 3], "seed {seed}, {displacement}");
    (count, lost)
}

#[test]
fn packets_that_up_to_a_thousand_others_overtake_are_each_taken_once_and_messages_keep_their_order() {
    for seed in 0..seeds() {
        let mut random = Random(seed);
        // As far as numbers go that are skipped on the way.
        for displacement in [2 + random.below(1_000), 1_015] {
            talk(seed, displacement);
        }
    }
}

#[test]
fn next_to_nothing_is_sent_again_for_nothing_where_two_others_overtake_a_packet() {
    let (mut packets, mut lost) = (0, 0);
    for seed in 0..seeds() {
        for displacement in [0, 1, 2] {
            let (more_packets, more_lost) = talk(seed, displacement);
            packets += more_packets;
            lost += more_lost;
        }
    }
    println!("{lost} of {packets} packets were taken for lost");
    assert!(lost * 100 <= packets, "{lost} of {packets}");
}
