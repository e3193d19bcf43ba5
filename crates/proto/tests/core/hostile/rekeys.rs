//! Both ends change their keys as often as allowed, also at the same moment, on links that lose, repeat, and reorder
//! far more than any game tolerates. Every packet that arrives can be opened.

use crate::harness::{CLEAN, CLIENT, Link, SERVER, World};
use drumfire_proto::{ClientConfig, Config, DropReason, Endpoint, SendOptions};
use drumfire_tries::tries;
use std::time::Duration;

/// `DRUMFIRE_SEEDS=10000` runs more.
fn seeds() -> u64 {
    let requested = std::env::var("DRUMFIRE_SEEDS").ok().and_then(|text| text.parse().ok());
    requested.unwrap_or_else(|| tries(200).into())
}

/// Runs a minute in which both ends send the same at the same time. Returns how often each initiated a key change.
fn run_minute(seed: u64, is_even: bool) -> [u64; 2] {
    let frequent_rekeys = Config::default().rekey(64, Duration::from_secs(1));
    let mut world = World::with(seed, CLEAN, frequent_rekeys, ClientConfig::default());
    let peers = <[_; 2]>::from(world.connected());
    world.link = Link {
        loss: world.random.below(31),
        duplicate: world.random.below(51),
        corrupt: 0,
        delay: Duration::from_millis(1 + world.random.below(150)),
        jitter: Duration::from_millis(if is_even { 0 } else { world.random.below(300) }),
    };
    let mut sent_count = 0_u32;
    for _ in 0..1_200 {
        for end in [CLIENT, SERVER] {
            for _ in 0..2 {
                world.send(end, peers[end], 1, b"state", SendOptions::unreliable()).unwrap();
                world.flush();
            }
            world.reliable(end, peers[end], &sent_count.to_be_bytes()).unwrap();
        }
        sent_count += 1;
        world.run(Duration::from_millis(50));
        world.sent.clear();
    }
    (world.link.loss, world.link.jitter) = (0, Duration::ZERO);
    world.run(Duration::from_secs(10));
    for end in [CLIENT, SERVER] {
        let messages = world.messages(1 - end).into_iter().filter(|(channel, _)| *channel == 0);
        let is_whole = messages.map(|(_, bytes)| bytes).eq((0..sent_count).map(|n| n.to_be_bytes().to_vec()));
        assert!(is_whole, "seed {seed} at end {end}");
        assert_eq!(world.ends[end].stats().dropped(DropReason::Forged), 0, "seed {seed} at end {end}");
    }
    world.ends.each_ref().map(Endpoint::stats).map(|stats| stats.key_changes)
}

#[test]
fn simultaneous_key_changes_open_every_packet_on_bad_links() {
    for is_even in [true, false] {
        let mut changes = [0; 2];
        for seed in 0..seeds() {
            let of_seed = run_minute(seed, is_even);
            assert!(of_seed.iter().sum::<u64>() >= 20, "seed {seed}: {of_seed:?}");
            (0..2).for_each(|end| changes[end] += of_seed[end]);
        }
        println!("begun by each end: {changes:?}");
        assert!(changes.iter().all(|&begun| begun > 5 * seeds()), "{changes:?}");
    }
}
