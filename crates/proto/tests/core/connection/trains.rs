//! The sizes of the datagrams that a connection sends in one turn: equal where another datagram follows, so that the
//! kernel can send them as a train.

use crate::harness::{CLEAN, CLIENT, SERVER, World};
use drumfire_proto::limits::SEND_TURN_DATAGRAMS;
use drumfire_proto::{
    ClientConfig, Config, Congestion, FlightEvent, FrameKinds, Mode, Moment, PeerId, SendOptions,
};
use std::time::Duration;

/// The size of a datagram on a path that was not probed.
const FULL_BYTES: usize = 1_200;

/// The largest gap that is padded, in bytes.
const GAP_BYTES: usize = FULL_BYTES / 16;

/// A datagram with data that the server sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Moment,
    bytes: usize,
    is_padded: bool,
}

fn connected(config: Config) -> (World, PeerId) {
    let mut world = World::with(1, CLEAN, config.flight_recorder(true), ClientConfig::default());
    let (_, server) = world.connected();
    (world, server)
}

/// A connection without pacing, so that only the turns and the bytes in flight end a train.
fn unpaced() -> (World, PeerId) {
    connected(Config::default().congestion(Congestion::Fixed { bytes_per_second: 1_000_000_000 }))
}

fn queue(world: &mut World, peer: PeerId, lengths: impl IntoIterator<Item = usize>, options: SendOptions) {
    for bytes in lengths {
        world.send(SERVER, peer, 1, &vec![7; bytes], options).unwrap();
    }
}

fn chat(world: &mut World, count: usize) -> Vec<usize> {
    (0..count).map(|_| 15 + world.random.below(44) as usize).collect()
}

/// Runs for this long. Returns the datagrams with messages that the server sent.
fn run(world: &mut World, peer: PeerId, duration: Duration) -> Vec<Sent> {
    let (begin, now) = (world.sent.len(), world.now());
    let before = world.ends[SERVER]
        .flight_record(now, peer)
        .map_or(0, |record| record.overwritten_count + record.entries.len() as u64);
    world.run(duration);
    let now = world.now();
    let record = world.ends[SERVER].flight_record(now, peer).unwrap();
    assert!(record.overwritten_count <= before, "the recorder was too short");
    let new = record.entries.iter().skip((before - record.overwritten_count) as usize);
    let packets = new.filter_map(|entry| match entry.event {
        FlightEvent::Sent { frames, .. } => Some((entry.at, frames)),
        _ => None,
    });
    let datagrams = world.sent[begin..].iter().filter(|(_, end, _)| *end == SERVER);
    let all: Vec<_> = packets.zip(datagrams).collect();
    let with_messages = all.iter().filter(|((_, frames), _)| frames.has_messages());
    with_messages
        .map(|((at, frames), (_, _, bytes))| Sent {
            at: *at,
            bytes: bytes.len(),
            is_padded: frames.has(FrameKinds::PADDING),
        })
        .collect()
}

/// Asserts that another datagram follows each padded one immediately, and that padding makes datagrams full.
fn check(sent: &[Sent]) {
    for (place, one) in sent.iter().enumerate().filter(|(_, one)| one.is_padded) {
        assert_eq!(one.bytes, FULL_BYTES, "{place} of {sent:?}");
        assert_eq!(sent.get(place + 1).map(|next| next.at), Some(one.at), "{place} of {sent:?}");
    }
}

fn sizes(sent: &[Sent]) -> Vec<usize> {
    sent.iter().map(|one| one.bytes).collect()
}

#[test]
fn the_datagrams_of_a_burst_have_one_size() {
    let modes = [Mode::Unreliable, Mode::ReliableUnordered, Mode::ReliableOrdered];
    for mode in modes {
        let (mut world, peer) = connected(Config::default());
        let lengths = chat(&mut world, 250);
        queue(&mut world, peer, lengths.iter().copied(), SendOptions::new(mode));
        let sent = run(&mut world, peer, Duration::from_millis(100));
        check(&sent);
        let mut full = sizes(&sent);
        let last = full.pop().unwrap();
        assert!(full.len() >= 7 && full.iter().all(|bytes| *bytes == FULL_BYTES), "{mode:?} {full:?}");
        assert!(last < FULL_BYTES && sent.iter().filter(|one| one.is_padded).count() >= 6, "{sent:?}");
        let arrived = world.messages(CLIENT).into_iter().map(|(_, bytes)| bytes.len());
        assert!(arrived.eq(lengths), "{mode:?}");
        assert_eq!(world.ends[SERVER].undelivered_bytes(peer), 0, "{mode:?}");
    }
}

#[test]
fn only_a_gap_of_a_sixteenth_or_less_is_padded() {
    for bytes in 1_050..=1_160 {
        let (mut world, peer) = connected(Config::default());
        queue(&mut world, peer, [bytes; 2], SendOptions::unreliable());
        let sent = run(&mut world, peer, Duration::from_millis(100));
        check(&sent);
        // Nothing follows the second packet, so its size shows the size of the first one without padding.
        let [first, plain] = sizes(&sent)[..] else { panic!("{sent:?}") };
        let is_padded = FULL_BYTES - plain <= GAP_BYTES;
        assert_eq!(first, if is_padded { FULL_BYTES } else { plain }, "messages of {bytes} B");
        assert!(!sent[1].is_padded, "the last packet of messages of {bytes} B is padded");
    }
}

#[test]
fn a_packet_that_nothing_follows_is_not_padded() {
    let (mut world, peer) = connected(Config::default());
    for bytes in [1_100, 1_140, 1_150] {
        queue(&mut world, peer, [bytes], SendOptions::reliable_ordered());
        let sent = run(&mut world, peer, Duration::from_millis(100));
        assert!(sent.len() == 1 && !sent[0].is_padded && sent[0].bytes < bytes + 48, "{sent:?}");
    }
}

#[test]
fn the_last_datagram_of_a_burst_is_not_padded() {
    let (mut world, peer) = unpaced();
    let lengths = chat(&mut world, 40 * 29);
    queue(&mut world, peer, lengths, SendOptions::unreliable());
    let sent = run(&mut world, peer, Duration::from_millis(1));
    check(&sent);
    let turn = SEND_TURN_DATAGRAMS as usize;
    assert!(sent.len() > 2 * turn && sent.iter().all(|one| one.at == sent[0].at), "{}", sent.len());
    for (place, one) in sent.iter().enumerate().take(2 * turn) {
        let is_last = (place + 1) % turn == 0;
        assert_eq!(one.bytes < FULL_BYTES, is_last, "{place}: {one:?}");
        assert!(!is_last || !one.is_padded, "{place}: {one:?}");
    }
}

#[test]
fn a_datagram_that_exhausts_a_limit_is_not_padded() {
    for step in 0..20 {
        let in_flight = Config::default().in_flight_bytes(20_000 + 100 * step);
        let fixed = in_flight.congestion(Congestion::Fixed { bytes_per_second: 1_000_000_000 });
        for (config, names) in [(fixed, "bytes in flight"), (Config::default(), "pacer")] {
            let (mut world, peer) = connected(config);
            let lengths = chat(&mut world, 1_600);
            queue(&mut world, peer, lengths, SendOptions::reliable_ordered());
            let sent = run(&mut world, peer, Duration::from_millis(15));
            check(&sent);
            let mut burst = sent.iter().filter(|one| one.at == sent[0].at);
            assert!(burst.clone().filter(|one| one.is_padded).count() >= 5, "{names}: {sent:?}");
            let last = burst.next_back().unwrap();
            assert!(!last.is_padded && last.bytes <= FULL_BYTES, "{names}: {sent:?}");
        }
    }
}

#[test]
fn an_unproved_address_gets_no_padding() {
    let (mut world, peer) = connected(Config::default());
    let client = world.peers(CLIENT)[0];
    world.client_address = "192.0.2.9:5000".parse().unwrap();
    // Much data from the new address, so that the server may send several full datagrams there.
    for _ in 0..6 {
        world.send(CLIENT, client, 1, &[7; 1_100], SendOptions::unreliable()).unwrap();
    }
    world.run(Duration::from_millis(11));
    let known = world.ends[SERVER].address(peer);
    assert_ne!(known, Some(world.client_address), "the path was proved too early for this test");
    let lengths = chat(&mut world, 250);
    queue(&mut world, peer, lengths, SendOptions::unreliable());
    // The response to the path challenge takes a round trip of 20 ms.
    let sent = run(&mut world, peer, Duration::from_millis(10));
    assert_eq!(world.ends[SERVER].address(peer), known, "the path was proved too early for this test");
    assert!(sent.len() >= 3 && sent.iter().all(|one| !one.is_padded), "{sent:?}");
    world.run(Duration::from_millis(500));
    assert_eq!(world.ends[SERVER].address(peer), Some(world.client_address));
    let lengths = chat(&mut world, 250);
    queue(&mut world, peer, lengths, SendOptions::unreliable());
    let sent = run(&mut world, peer, Duration::from_millis(100));
    check(&sent);
    assert!(sent.iter().filter(|one| one.is_padded).count() >= 6, "{sent:?}");
}

#[test]
fn a_packet_with_the_most_frames_is_not_padded() {
    let (mut world, peer) = connected(Config::default());
    // 40 messages of 25 B take 1,120 B as frames, so the gap alone would be padded. Messages of one mode after the other
    // cannot be in runs.
    for options in [SendOptions::unreliable(), SendOptions::unreliable_sequenced()].repeat(60) {
        queue(&mut world, peer, [25], options);
    }
    let sent = run(&mut world, peer, Duration::from_millis(100));
    assert!(sent.len() == 3 && sent.iter().all(|one| !one.is_padded), "{sent:?}");
    assert!(
        sizes(&sent).iter().all(|bytes| (FULL_BYTES - GAP_BYTES..FULL_BYTES).contains(bytes)),
        "{sent:?}"
    );
    assert_eq!(world.messages(CLIENT).len(), 120);
}
