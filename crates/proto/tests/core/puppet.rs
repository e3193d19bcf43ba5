//! A world with one client that writes its own frames, under the test's control.

use crate::harness::{CLEAN, CLIENT, SERVER, Seen, World, address, config, identity};
use drumfire_proto::{ClientConfig, CloseReason, Config, SendOptions};
use drumfire_puppet::{Connection, Handshake, OpenedPacket};
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, CloseCode, Delivery, EncodeError, FrameWriter, Message, MessageId,
    PacketNumber,
};
use std::time::Duration;

/// A client under the test's own control.
pub(crate) struct Puppet {
    pub(crate) world: World,
    client: Connection,
}

type Writer<'a> = FrameWriter<&'a mut [u8]>;

impl Puppet {
    /// Creates a puppet with a server that has no other client.
    pub(crate) fn connected(seed: u64) -> Self {
        Self::with(seed, config())
    }

    /// Creates a puppet of a server with this configuration.
    pub(crate) fn with(seed: u64, config: Config) -> Self {
        let mut world = World::with(seed, CLEAN, config, ClientConfig::default());
        let client = joined([9; 32], |hello| exchange(&mut world, hello)).unwrap();
        let mut puppet = Self { world, client };
        puppet.send_frames(|writer| writer.ping().and_then(|()| writer.padding(3)));
        assert_eq!(puppet.world.peers(SERVER).len(), 1);
        puppet
    }

    /// Begins the next key epoch, in both directions.
    pub(crate) fn change_keys(&mut self) {
        self.client.change_keys();
    }

    /// Sends one packet with these frames.
    pub(crate) fn send_frames(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Result<(), EncodeError>) {
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        write(&mut writer).unwrap();
        let bytes = writer.written_bytes().max(1);
        self.send_bytes(&frames[..bytes]);
    }

    pub(crate) fn send_bytes(&mut self, frames: &[u8]) {
        let datagram = self.datagram(frames);
        self.world.now = self.world.now.after(Duration::from_micros(10));
        self.world.deliver(SERVER, address(CLIENT), &datagram);
        self.world.flush();
    }

    /// Returns the next packet, with these frames.
    pub(crate) fn datagram(&mut self, frames: &[u8]) -> Vec<u8> {
        self.client.datagram(frames)
    }

    /// Returns the numbers and frames of what the server has sent since the last call.
    pub(crate) fn take_packets(&mut self) -> Vec<(u64, Vec<u8>)> {
        self.packets().into_iter().map(|heard| (heard.number, heard.frames)).collect()
    }

    fn packets(&mut self) -> Vec<OpenedPacket> {
        let sent = std::mem::take(&mut self.world.sent);
        let packets = sent.into_iter().filter(|(_, end, bytes)| *end == SERVER && bytes[0] < 0x80);
        packets.map(|(_, _, bytes)| self.client.open(bytes).expect("a packet of the server")).collect()
    }

    /// Returns the code and reason of each Close that the server has sent since the last call.
    pub(crate) fn closes(&mut self) -> Vec<(CloseCode, String)> {
        self.packets().iter().flat_map(OpenedPacket::closes).collect()
    }

    pub(crate) fn ending(&self) -> Option<CloseReason> {
        self.world.seen[SERVER].iter().find_map(|(_, _, seen)| match seen {
            Seen::Disconnected(reason, _) => Some(*reason),
            _ => None,
        })
    }

    pub(crate) fn ack(&mut self, from: u64, to: u64) {
        let range = AckRange::new(PacketNumber(from), PacketNumber(to)).unwrap();
        self.send_frames(|writer| writer.ack(AckDelay::from_duration(Duration::ZERO), [range].into_iter()));
    }

    pub(crate) fn reliable(&mut self, id: u64, after: Option<u64>) {
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
        let message = Message { channel: ChannelId(0), delivery, payload: &[1; 900] };
        self.send_frames(|writer| writer.message(&message));
    }

    pub(crate) fn server_sends(&mut self, count: usize) {
        let peer = self.world.peers(SERVER)[0];
        for _ in 0..count {
            self.world.send(SERVER, peer, 0, b"tick", SendOptions::unreliable()).unwrap();
            self.world.flush();
        }
    }
}

/// Performs a handshake. `exchange` passes a Hello to the server and returns its response. Returns `None` if the
/// second response is not a Welcome. Two clients need two `ephemeral` secrets.
pub(crate) fn joined(
    ephemeral: [u8; 32],
    mut exchange: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> Option<Connection> {
    let mut handshake = Handshake::begin(&identity().public_key, [7; 8], ephemeral);
    let retry = exchange(&handshake.hello())?;
    handshake.on_retry(&retry).then_some(())?;
    let welcome = exchange(&handshake.hello())?;
    handshake.on_welcome(&welcome)
}

fn exchange(world: &mut World, hello: &[u8]) -> Option<Vec<u8>> {
    world.deliver(SERVER, address(CLIENT), hello);
    world.flush();
    world.in_flight.clear();
    Some(world.sent.pop()?.2)
}
