//! In steady state neither end allocates memory to receive, acknowledge, or send.
//!
//! Payloads belong to the application. Here they share one static buffer.

use allocation_counter::measure;
use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ClientConfig, Config, Endpoint, Event, Inbound, Message, Mode, Moment, Now, PeerId, Secret,
    SendOptions, ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker,
};
use drumfire_puppet::{Connector, PacketSealer, default_parameters};
use drumfire_wire::SuiteOffer;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

const PAYLOAD: &[u8] = &[7; 128];

const PUPPET: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3)), 3_000);

struct Pair {
    ends: [Endpoint; 2],
    peers: [Option<PeerId>; 2],
    now: Now,
    memory: Box<[[u8; 1_200]; 64]>,
    delivered: usize,
}

impl Pair {
    fn connected() -> Self {
        Self::with_recorder(false)
    }

    fn with_recorder(is_on: bool) -> Self {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        let config = Config::default().flight_recorder(is_on);
        let ends = [
            Endpoint::client(config.clone(), ClientConfig::default(), Secret::new([4; 32])).unwrap(),
            Endpoint::server(config, server, SingleWorker::default(), Secret::new([5; 32])).unwrap(),
        ];
        let now = Now { monotonic: Moment::from_nanos(1), wall: Duration::ZERO };
        let mut pair = Self { ends, peers: [None; 2], now, memory: Box::new([[0; 1_200]; 64]), delivered: 0 };
        pair.ends[0].connect(now, address(1), &identity, None).unwrap();
        for _ in 0..20 {
            pair.step();
        }
        assert!(pair.peers.iter().all(Option::is_some));
        pair
    }

    /// Runs a millisecond: everything sent arrives immediately, in one batch per end.
    fn step(&mut self) {
        for end in [0, 1] {
            let mut lengths = [0; 64];
            let mut count = 0;
            while count < 64
                && let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut self.memory[count])
            {
                lengths[count] = transmit.bytes;
                count += 1;
            }
            let batch = self.memory.iter_mut().zip(lengths).take(count);
            let batch = batch
                .map(|(memory, bytes)| Inbound { from: address(end).into(), bytes: &mut memory[..bytes] });
            self.ends[1 - end].handle_datagrams(self.now, batch);
            while let Some(event) = self.ends[1 - end].poll_event() {
                match event {
                    Event::Connected { peer, .. } => self.peers[1 - end] = Some(peer),
                    Event::Message { payload, .. } => {
                        assert_eq!(payload, PAYLOAD);
                        self.delivered += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        self.now.monotonic = self.now.monotonic.after(Duration::from_millis(1));
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
    }

    /// Connects another client to the server, and returns its sealing half.
    fn puppet(&mut self) -> PacketSealer {
        let key = *ServerKeyPair::from_secret(Secret::new([1; 32])).public();
        let mut puppet =
            Connector::new(&key, [9; 8], [6; 32], &default_parameters(), SuiteOffer::mandatory());
        let mut memory = [0; 1_200];
        let mut sent = Vec::from_iter(puppet.resend());
        while let Some(mut datagram) = sent.pop() {
            let inbound = Inbound { from: PUPPET.into(), bytes: &mut datagram };
            self.ends[1].handle_datagrams(self.now, [inbound]);
            while let Some(transmit) = self.ends[1].poll_transmit(self.now, &mut memory) {
                sent.extend(puppet.on_datagram(memory[..transmit.bytes].to_vec()));
            }
        }
        assert!(puppet.is_confirmed() && matches!(self.ends[1].poll_event(), Some(Event::Connected { .. })));
        puppet.into_sealer().expect("a connection")
    }

    /// Runs a second of traffic in both directions, several messages per millisecond. Messages of one channel are sent as
    /// runs.
    fn second(&mut self, options: SendOptions, channels: [u16; 3]) {
        for _ in 0..1_000 {
            for end in [0, 1] {
                let peer = self.peers[end].unwrap();
                for channel in channels {
                    let payload = Bytes::from_static(PAYLOAD);
                    self.ends[end]
                        .send(self.now, peer, Message::new(ChannelId(channel), payload, options))
                        .unwrap();
                }
            }
            self.step();
        }
    }
}

fn address(end: usize) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], [1_000, 2_000][end]))
}

#[test]
fn steady_traffic_of_every_mode_allocates_nothing_at_either_end() {
    for (options, least) in [
        (SendOptions::unreliable(), 5_990),
        (SendOptions::unreliable_sequenced(), 5_990),
        (SendOptions::reliable_unordered(), 5_990),
        (SendOptions::reliable_ordered(), 5_990),
        // Superseded messages among these are not sent. The others are sent as runs if they are on one channel.
        (SendOptions::reliable_sequenced(), 800),
        (SendOptions::reliable_latest(1), 5_990),
    ] {
        for channels in [[0, 1, 2], [0; 3]] {
            let mut pair = Pair::with_recorder(true);
            pair.second(options, channels);
            pair.second(options, channels);
            let before = pair.delivered;
            let info = measure(|| pair.second(options, channels));
            assert_eq!((info.count_total, info.bytes_total), (0, 0), "{options:?} on {channels:?}");
            let delivered = pair.delivered - before;
            // On one channel there are fewer packets at a time, and newer values replace older ones.
            let is_replaced = matches!(options.mode, Mode::ReliableSequenced | Mode::ReliableLatest);
            let least = if is_replaced && channels == [0; 3] { least / 3 } else { least };
            assert!(delivered >= least, "{options:?}: {delivered}");
            for (end, peer) in pair.ends.iter_mut().zip(pair.peers) {
                let record = end.flight_record(pair.now, peer.unwrap()).unwrap();
                assert_eq!((record.entries.len(), record.overwritten_count > 1_000), (128, true));
            }
        }
    }
}

#[test]
fn datagrams_that_are_dropped_allocate_nothing() {
    let mut pair = Pair::connected();
    let mut junk = vec![[0x09_u8; 60]; 100];
    let mut hellos = vec![[0x55_u8; 1_200]; 100];
    for hello in &mut hellos {
        hello[0] = 0x89;
        hello[1..3].copy_from_slice(&[0, 1]);
    }
    let info = measure(|| {
        for junk in &mut junk {
            pair.ends[1].handle_datagrams(pair.now, [Inbound { from: address(0).into(), bytes: junk }]);
        }
        for hello in &mut hellos {
            pair.ends[1].handle_datagrams(pair.now, [Inbound { from: address(0).into(), bytes: hello }]);
        }
        pair.step();
    });
    assert_eq!(info.count_total, 0);
}

#[test]
fn a_flood_of_unknown_sources_retains_no_memory() {
    let mut pair = Pair::connected();
    let mut hello = [0; 1_200];
    hello[0] = 0x89;
    hello[2] = 1;
    hello[27] = 1;
    let mut flood = |pair: &mut Pair, count: u32| {
        for number in 0..count {
            hello[11..15].copy_from_slice(&number.to_be_bytes());
            let from = SocketAddr::from((number.to_be_bytes(), 7));
            pair.ends[1].handle_datagrams(pair.now, [Inbound { from: from.into(), bytes: &mut hello }]);
            if number % 100 == 0 {
                pair.now.monotonic = pair.now.monotonic.after(Duration::from_millis(1));
                let mut memory = [0; 1_200];
                while pair.ends[1].poll_transmit(pair.now, &mut memory).is_some() {}
            }
        }
    };
    flood(&mut pair, 1_000);
    let info = measure(|| flood(&mut pair, 20_000));
    assert_eq!(info.count_total, 0);
    assert!(pair.ends[1].stats().retry_bytes * 10 <= pair.ends[1].stats().hello_bytes);
}

#[test]
fn packets_of_single_messages_allocate_nothing() {
    let mut pair = Pair::connected();
    let mut sealer = pair.puppet();
    let payload = vec![7; PacketSealer::payload_bytes(200).unwrap()];
    let mut packets = vec![[0; 200]; 4_000];
    for packet in &mut packets {
        sealer.seal(packet, &payload).unwrap();
    }
    let mut memory = [0; 1_200];
    let mut run = |packets: &mut [[u8; 200]]| {
        let mut messages = 0;
        for batch in packets.chunks_mut(32) {
            let batch = batch.iter_mut().map(|bytes| Inbound { from: PUPPET.into(), bytes });
            pair.ends[1].handle_datagrams(pair.now, batch);
            while let Some(event) = pair.ends[1].poll_event() {
                messages += usize::from(matches!(event, Event::Message { .. }));
            }
            while pair.ends[1].poll_transmit(pair.now, &mut memory).is_some() {}
            pair.now.monotonic = pair.now.monotonic.after(Duration::from_millis(1));
            pair.ends[1].handle_timeout(pair.now);
        }
        messages
    };
    let (first, second) = packets.split_at_mut(2_000);
    assert_eq!(run(first), 2_000);
    let mut messages = 0;
    let info = measure(|| messages = run(second));
    assert_eq!((messages, info.count_total), (2_000, 0));
}
