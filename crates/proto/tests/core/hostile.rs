//! Peers that hold the keys and break the rules, and strangers that do not.
//!
//! The peer is played by the test: it does the client's side of the handshake by itself and writes its own
//! frames.

use crate::harness::{CLEAN, CLIENT, Random, SERVER, Seen, World, address, identity};
use drumfire_crypto::{Initiator, Mac1Key, Opener, Sealer, Secret, Suite, TAG_BYTES};
use drumfire_proto::{AckError, CloseReason, DropReason, ProtocolError, SendOptions};
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, ClientId, ClientParameters, ConnectionId, Delivery, EncodeError, Frame,
    FrameWriter, Frames, HelloDraft, HelloFields, Message, MessageId, PacketNumber, PacketNumberLength,
    Retry, ServerParameters, SharedParameters, SuiteOffer, TransportHeader, VERSION, Welcome,
};
use std::time::Duration;

/// A client under the test's own control.
struct Puppet {
    world: World,
    sealer: Sealer,
    opener: Opener,
    server_id: ConnectionId,
}

type Writer<'a> = FrameWriter<&'a mut [u8]>;

impl Puppet {
    /// Connects as PROTOCOL.md says, with nothing of the core.
    fn connected(seed: u64) -> Self {
        let mut world = World::new(seed, CLEAN);
        let fields = HelloFields {
            version: VERSION,
            protocol_id: 0,
            client_id: ClientId([7; 8]),
            server_key_id: 0,
            token_key_id: 0,
            suite_bits: SuiteOffer::mandatory().to_bits(),
        };
        let mut hello = HelloDraft::new(&fields, &[0; 512]);
        let shared = SharedParameters {
            datagram_max_bytes: 1_200,
            silent_timeout: Duration::from_secs(30),
            unacknowledged_timeout: Duration::from_secs(10),
        };
        let payload = ClientParameters { connection_id: None, shared }.encode();
        let (prologue, key) = (hello.prologue().concat(), identity().public_key);
        let (psk, ephemeral) = (Secret::zeroed(), Secret::new([9; 32]));
        let message_1 = hello.noise_message_mut();
        let mut initiator = Initiator::new(&key, &psk, &prologue, &payload, ephemeral, message_1).unwrap();
        hello.set_mac1(Mac1Key::derive(&key, &psk).mac(&hello.mac1_input()));
        let retry = exchange(&mut world, &hello);
        hello.set_cookie(*Retry::decode(&retry).unwrap().cookie);
        let welcome = exchange(&mut world, &hello);
        let mut payload = [0; 1_200];
        let message_2 = Welcome::decode(&welcome).unwrap().noise_message;
        let (bytes, secrets) = initiator.read_reply(message_2, &mut payload).unwrap();
        let server_id = ServerParameters::decode(&payload[..bytes]).unwrap().connection_id;
        let (seals, opens) = secrets.into_keys(Suite::ChaCha20Poly1305).unwrap();
        let mut puppet = Self { world, sealer: Sealer::new(seals), opener: Opener::new(opens), server_id };
        puppet.say(|writer| writer.ping().and_then(|()| writer.padding(3)));
        assert_eq!(puppet.world.peers(SERVER).len(), 1);
        puppet
    }

    /// Sends one packet with these frames.
    fn say(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>) {
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        write(&mut writer).unwrap();
        let bytes = writer.written_bytes().max(1);
        self.say_bytes(&frames[..bytes]);
    }

    fn say_bytes(&mut self, frames: &[u8]) {
        let number = PacketNumber(self.sealer.next_number().unwrap());
        let header = TransportHeader {
            key_phase: false,
            connection_id: Some(self.server_id),
            number: number.truncate(PacketNumberLength::Four),
        };
        let mut datagram = Vec::new();
        header.encode(&mut datagram).unwrap();
        let (mut body, mut tag) = (frames.to_vec(), [0; TAG_BYTES]);
        self.sealer.seal(&datagram, &mut body, &mut tag).unwrap();
        datagram.extend(body);
        datagram.extend(tag);
        self.world.now = self.world.now.after(Duration::from_micros(10));
        self.world.hand(SERVER, address(CLIENT), &datagram);
        self.world.flush();
    }

    /// The numbers and frames of what the server has sent since it was last asked.
    fn hear(&mut self) -> Vec<(u64, Vec<u8>)> {
        let sent = std::mem::take(&mut self.world.sent);
        let packets = sent.into_iter().filter(|(_, end, bytes)| *end == SERVER && bytes[0] < 0x80);
        let mut heard: Vec<(u64, Vec<u8>)> = Vec::new();
        for (_, _, mut bytes) in packets {
            let header = TransportHeader::decode(&bytes, drumfire_wire::ConnectionIdLength::Zero).unwrap();
            let largest = heard.last().map(|(number, _)| PacketNumber(*number));
            let number = header.number.expand(largest).0;
            let (aad, sealed) = bytes.split_at_mut(header.encoded_bytes());
            let opened = self.opener.open(number, aad, sealed).unwrap().to_vec();
            heard.push((number, opened));
        }
        heard
    }

    fn ending(&self) -> Option<CloseReason> {
        self.world.seen[SERVER].iter().find_map(|(_, _, seen)| match seen {
            Seen::Disconnected(reason, _) => Some(*reason),
            _ => None,
        })
    }

    fn ack(&mut self, from: u64, to: u64) {
        let range = AckRange::new(PacketNumber(from), PacketNumber(to)).unwrap();
        self.say(|writer| writer.ack(AckDelay::from_duration(Duration::ZERO), [range].into_iter()));
    }

    fn reliable(&mut self, id: u64, after: Option<u64>) {
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
        let message = Message { channel: ChannelId(0), delivery, payload: &[1; 900] };
        self.say(|writer| writer.message(&message));
    }

    fn server_sends(&mut self, count: usize) {
        let peer = self.world.peers(SERVER)[0];
        for _ in 0..count {
            self.world.send(SERVER, peer, 0, b"tick", SendOptions::unreliable()).unwrap();
            self.world.flush();
        }
    }
}

fn exchange(world: &mut World, hello: &HelloDraft) -> Vec<u8> {
    let mut datagram = Vec::new();
    hello.encode(&mut datagram).unwrap();
    world.hand(SERVER, address(CLIENT), &datagram);
    world.flush();
    world.flying.clear();
    world.sent.pop().unwrap().2
}

#[test]
fn a_client_written_from_the_standard_alone_connects_and_talks() {
    let mut puppet = Puppet::connected(1);
    puppet.reliable(0, None);
    assert_eq!(puppet.world.messages(SERVER), [(0, vec![1; 900])]);
    puppet.server_sends(1);
    let heard = puppet.hear();
    let frames: Vec<_> = heard.iter().flat_map(|(_, frames)| Frames::new(frames)).collect();
    assert!(
        frames.iter().any(|frame| matches!(frame, Ok(Frame::Message(message)) if message.payload == b"tick"))
    );
    assert!(frames.iter().any(|frame| matches!(frame, Ok(Frame::Ack(_)))));
}

#[test]
fn an_ack_of_a_packet_never_sent_closes() {
    let mut puppet = Puppet::connected(2);
    puppet.server_sends(3);
    let newest = puppet.hear().last().unwrap().0;
    puppet.ack(0, newest);
    assert_eq!(puppet.ending(), None);
    puppet.ack(0, newest + 1);
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::Ack(AckError::Unsent))));
    let told = puppet.hear();
    assert!(
        told.iter().any(|(_, frames)| Frames::new(frames).any(|frame| matches!(frame, Ok(Frame::Close(_)))))
    );
}

#[test]
fn an_optimistic_peer_is_caught_within_512_packets() {
    for seed in 0..50 {
        let mut puppet = Puppet::connected(seed);
        let mut sent = 0;
        while puppet.ending().is_none() {
            puppet.server_sends(8);
            sent += 8;
            assert!(sent <= 512, "seed {seed}");
            // It acknowledges everything up to the newest, seen or not.
            let newest = puppet.hear().last().map_or(0, |(number, _)| *number);
            puppet.ack(0, newest);
            puppet.world.now = puppet.world.now.after(Duration::from_millis(20));
        }
        assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::Ack(AckError::Skipped))));
    }
}

#[test]
fn frames_that_are_none_close_and_nothing_of_their_packet_counts() {
    for bad in [&[0x7f][..], &[0x80, 0, 9, 1], &[0x02, 5, 0, 0, 6], &[0x03, 99, 0, 0], &[0x83, 0, 1, 2, 0]] {
        let mut puppet = Puppet::connected(3);
        let packet = [&[0x80, 0, 1, b'x'], bad].concat();
        puppet.say_bytes(&packet);
        assert!(matches!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::Frame(_)))), "{bad:?}");
        assert_eq!(puppet.world.messages(SERVER), []);
        assert_eq!(puppet.world.ends[SERVER].stats().dropped(DropReason::Protocol), 1);
    }
}

#[test]
fn a_message_4096_ids_ahead_is_kept_and_one_further_closes() {
    let mut puppet = Puppet::connected(4);
    puppet.reliable(4_095, Some(0));
    puppet.reliable(4_096, Some(0));
    assert_eq!(puppet.ending(), None);
    puppet.reliable(4_097, Some(0));
    assert_eq!(puppet.ending(), Some(CloseReason::Protocol(ProtocolError::MessageTooFarAhead)));
}

#[test]
fn messages_that_wait_fill_the_memory_and_the_one_they_wait_for_still_gets_in() {
    let mut puppet = Puppet::connected(5);
    for id in 1..400 {
        puppet.reliable(id, Some(id - 1));
    }
    let kept = 399 - puppet.world.ends[SERVER].stats().dropped(DropReason::ReceiveMemory);
    assert!((250..=272).contains(&kept), "{kept}");
    assert_eq!(puppet.world.messages(SERVER), []);
    puppet.reliable(0, None);
    assert_eq!(puppet.world.messages(SERVER).len() as u64, kept + 1);
}

#[test]
fn a_packet_is_taken_once_however_often_it_comes() {
    let mut world = World::new(6, CLEAN);
    let (client, _) = world.connected();
    world.send(CLIENT, client, 0, b"once", SendOptions::unreliable()).unwrap();
    world.flush();
    let (_, _, packet) = world.sent.last().unwrap().clone();
    for _ in 0..1_000 {
        world.hand(SERVER, address(CLIENT), &packet);
    }
    world.flush();
    assert_eq!(world.messages(SERVER).len(), 1);
    let stats = world.ends[SERVER].stats();
    let (twice, share) = (stats.dropped(DropReason::Duplicate), stats.dropped(DropReason::PassShare));
    assert_eq!((twice, share), (63, 936));
}

#[test]
fn any_bytes_of_any_length_end_under_a_name() {
    let mut world = World::new(7, CLEAN);
    world.connected();
    let mut random = Random(77);
    let recorded: Vec<Vec<u8>> = world.sent.iter().map(|(_, _, bytes)| bytes.clone()).collect();
    for round in 0..30_000_u64 {
        let mut bytes = if round % 3 == 0 {
            recorded[(random.next() % recorded.len() as u64) as usize].clone()
        } else {
            let length = if round % 100 == 1 { random.below(65_508) } else { random.below(120) };
            (0..length).map(|_| random.next().to_le_bytes()[0]).collect()
        };
        if round % 3 == 0 {
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
        } else if let Some(first) = bytes.first_mut() {
            *first = (*first & 0x87) | 0x08;
        }
        world.hand((round % 2) as usize, address(((round + 1) % 2) as usize), &bytes);
        if round % 1_000 == 0 {
            world.now = world.now.after(Duration::from_millis(1));
            world.flush();
        }
    }
    world.flush();
    assert!(world.ends.iter().all(|end| end.connection_count() == 1));
}
