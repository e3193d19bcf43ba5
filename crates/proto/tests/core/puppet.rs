//! A client that the test plays by itself: it does its side of the handshake and writes its own frames.

use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World, address, identity};
use drumfire_crypto::{Initiator, Mac1Key, Opener, Sealer, Secret, Suite, TAG_BYTES};
use drumfire_proto::{CloseReason, SendOptions};
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, ClientId, ClientParameters, CloseCode, ConnectionId, Delivery,
    EncodeError, Frame, FrameWriter, Frames, HelloDraft, HelloFields, Message, MessageId, PacketNumber,
    PacketNumberLength, Retry, ServerParameters, SharedParameters, SuiteOffer, TransportHeader, VERSION,
    Welcome,
};
use std::time::Duration;

/// A client under the test's own control.
pub(crate) struct Puppet {
    pub(crate) world: World,
    player: Player,
}

/// Its keys, whoever carries its datagrams.
pub(crate) struct Player {
    sealer: Sealer,
    opener: Opener,
    server_id: ConnectionId,
    key_phase: bool,
}

type Writer<'a> = FrameWriter<&'a mut [u8]>;

impl Player {
    /// Does its side of the handshake as PROTOCOL.md says, with nothing of the core: `exchange` takes a Hello to the server
    /// and brings its answer. `None` where the second one is no Welcome. Two with other `ephemeral` bytes are two clients.
    pub(crate) fn joined(
        ephemeral: [u8; 32],
        mut exchange: impl FnMut(&HelloDraft) -> Option<Vec<u8>>,
    ) -> Option<Self> {
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
            message_max_bytes: 65_536,
            credit_bytes: 196_608,
        };
        let payload = ClientParameters { connection_id: None, shared }.encode();
        let (prologue, key) = (hello.prologue().concat(), identity().public_key);
        let (psk, ephemeral) = (Secret::zeroed(), Secret::new(ephemeral));
        let message_1 = hello.noise_message_mut();
        let mut initiator = Initiator::new(&key, &psk, &prologue, &payload, ephemeral, message_1).unwrap();
        hello.set_mac1(Mac1Key::derive(&key, &psk).mac(&hello.mac1_input()));
        let retry = exchange(&hello)?;
        hello.set_cookie(*Retry::decode(&retry).ok()?.cookie);
        let welcome = exchange(&hello)?;
        let mut payload = [0; 1_200];
        let message_2 = Welcome::decode(&welcome).ok()?.noise_message;
        let (bytes, secrets) = initiator.read_reply(message_2, &mut payload).unwrap();
        let server_id = ServerParameters::decode(&payload[..bytes]).unwrap().connection_id;
        let (seals, opens) = secrets.into_keys(Suite::ChaCha20Poly1305).unwrap();
        Some(Self { sealer: Sealer::new(seals), opener: Opener::new(opens), server_id, key_phase: false })
    }

    /// The next packet, with these frames.
    pub(crate) fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        let number = PacketNumber(self.sealer.next_number().unwrap());
        let header = TransportHeader {
            key_phase: self.key_phase,
            connection_id: Some(self.server_id),
            number: number.truncate(PacketNumberLength::Four),
        };
        let mut datagram = Vec::new();
        header.encode(&mut datagram).unwrap();
        let (mut body, mut tag) = (frames.to_vec(), [0; TAG_BYTES]);
        self.sealer.seal(&datagram, &mut body, &mut tag).unwrap();
        datagram.extend(body);
        datagram.extend(tag);
        datagram
    }
}

impl Puppet {
    /// Alone with its server.
    pub(crate) fn connected(seed: u64) -> Self {
        let mut world = World::new(seed, CLEAN);
        let player = Player::joined([9; 32], |hello| exchange(&mut world, hello)).unwrap();
        let mut puppet = Self { world, player };
        puppet.say(|writer| writer.ping().and_then(|()| writer.padding(3)));
        assert_eq!(puppet.world.peers(SERVER).len(), 1);
        puppet
    }

    /// Begins the next key epoch, in both directions.
    pub(crate) fn change_keys(&mut self) {
        self.player.sealer.step_to_next_epoch();
        self.player.opener.step_to_next_epoch();
        self.player.key_phase = !self.player.key_phase;
    }

    /// Sends one packet with these frames.
    pub(crate) fn say(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>) {
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        write(&mut writer).unwrap();
        let bytes = writer.written_bytes().max(1);
        self.say_bytes(&frames[..bytes]);
    }

    pub(crate) fn say_bytes(&mut self, frames: &[u8]) {
        let datagram = self.datagram(frames);
        self.world.now = self.world.now.after(Duration::from_micros(10));
        self.world.hand(SERVER, address(CLIENT), &datagram);
        self.world.flush();
    }

    /// The next packet, with these frames.
    pub(crate) fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        self.player.datagram(frames)
    }

    /// The numbers and frames of what the server has sent since it was last asked.
    pub(crate) fn hear(&mut self) -> Vec<(u64, Vec<u8>)> {
        let sent = std::mem::take(&mut self.world.sent);
        let packets = sent.into_iter().filter(|(_, end, bytes)| *end == SERVER && bytes[0] < 0x80);
        let mut heard: Vec<(u64, Vec<u8>)> = Vec::new();
        for (_, _, mut bytes) in packets {
            let header = TransportHeader::decode(&bytes, drumfire_wire::ConnectionIdLength::Zero).unwrap();
            let largest = heard.last().map(|(number, _)| PacketNumber(*number));
            let number = header.number.expand(largest).0;
            let (aad, sealed) = bytes.split_at_mut(header.encoded_bytes());
            let opened =
                self.player.opener.open(number, header.key_phase, aad, sealed).unwrap().body.to_vec();
            heard.push((number, opened));
        }
        heard
    }

    /// The code and reason of each Close that the server has sent since it was last heard.
    pub(crate) fn closes(&mut self) -> Vec<(CloseCode, String)> {
        let heard = self.hear();
        let frames = heard.iter().flat_map(|(_, frames)| Frames::new(frames));
        let closes = frames.filter_map(|frame| match frame.unwrap() {
            Frame::Close(close) => Some((close.code, String::from_utf8_lossy(close.reason).into_owned())),
            _ => None,
        });
        closes.collect()
    }

    pub(crate) fn ending(&self) -> Option<CloseReason> {
        self.world.seen[SERVER].iter().find_map(|(_, _, seen)| match seen {
            Seen::Disconnected(reason, _) => Some(*reason),
            _ => None,
        })
    }

    pub(crate) fn ack(&mut self, from: u64, to: u64) {
        let range = AckRange::new(PacketNumber(from), PacketNumber(to)).unwrap();
        self.say(|writer| writer.ack(AckDelay::from_duration(Duration::ZERO), [range].into_iter()));
    }

    pub(crate) fn reliable(&mut self, id: u64, after: Option<u64>) {
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
        let message = Message { channel: ChannelId(0), delivery, payload: &[1; 900] };
        self.say(|writer| writer.message(&message));
    }

    pub(crate) fn server_sends(&mut self, count: usize) {
        let peer = self.world.peers(SERVER)[0];
        for _ in 0..count {
            self.world.send(SERVER, peer, 0, b"tick", SendOptions::unreliable()).unwrap();
            self.world.flush();
        }
    }
}

fn exchange(world: &mut World, hello: &HelloDraft) -> Option<Vec<u8>> {
    let mut datagram = Vec::new();
    hello.encode(&mut datagram).unwrap();
    world.hand(SERVER, address(CLIENT), &datagram);
    world.flush();
    world.flying.clear();
    Some(world.sent.pop()?.2)
}
