//! What strangers and hostile peers can make a server do with one datagram: what is refused, and the worst that an ack can ask.

use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::group::{BATCH, UNLIMITED};
use drumfire_benches::hellos::{Flaw, Refusals};
use drumfire_benches::pair::Crowd;
use drumfire_proto::{ChannelId, Config, DropReason, Inbound, SendOptions};
use drumfire_wire::{
    ConnectionId, PacketNumber, PacketNumberLength, TransportHeader, limits::ACK_RANGES_SENT,
};

use crate::counted_part;
use crate::send::{number, ranges};

/// Length of a packet with a forged id.
const PACKET_BYTES: usize = 128;
/// Room for as many ranges as are parsed, and for what is around an ack.
const ACK_BYTES: usize = 512;
/// More than are ever under way.
const KEYS: u64 = 1 << 14;
/// Between two packets, in virtual time.
const INTERVAL: Duration = Duration::from_micros(1);
/// How long a server may have to wait until it may send.
const PATIENCE_MS: u32 = 1_000;

/// A Hello that is refused by that.
pub(crate) fn no_cookie(count: u64) {
    refuse(Flaw::NoCookie, count);
}

/// A Hello that is refused by that.
pub(crate) fn bad_cookie(count: u64) {
    refuse(Flaw::BadCookie, count);
}

/// A Hello that is refused by that.
pub(crate) fn bad_token(count: u64) {
    refuse(Flaw::BadToken, count);
}

/// A Hello that is refused by that.
pub(crate) fn bad_mac(count: u64) {
    refuse(Flaw::BadMac, count);
}

/// Making the answer counts, taking it out to be sent does not.
fn refuse(flaw: Flaw, count: u64) {
    let mut refusals = Refusals::new(flaw);
    for _ in 0..count {
        counted_part(|| refusals.hand_in());
        refusals.take_answers();
    }
}

/// Packets whose connection id nobody made.
pub(crate) fn forged_id(count: u64) {
    let mut crowd = Crowd::connect(1, false).expect("a connection");
    let (from, _) = *crowd.sealers.first().expect("a connection");
    let mut packets: Vec<Vec<u8>> = (0..count)
        .map(|at| {
            let mut packet = Vec::new();
            let connection_id =
                Some(ConnectionId::from_bytes(at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()));
            let number = PacketNumber(77_777).truncate(PacketNumberLength::Four);
            let header = TransportHeader { key_phase: false, connection_id, number };
            header.encode(&mut packet).expect("room");
            packet.resize(PACKET_BYTES, 7);
            packet
        })
        .collect();
    for batch in packets.chunks_mut(BATCH) {
        let batch = batch.iter_mut().map(|bytes| Inbound { from: from.into(), bytes });
        let (server, now) = (&mut crowd.server, crowd.now);
        counted_part(|| server.handle_datagrams(now, batch));
    }
    assert_eq!(crowd.server.stats().dropped(DropReason::ForgedId), count, "every one ends under its name");
}

/// An ack of as many ranges as are read, a new packet in each, and one between them that is found lost.
pub(crate) fn widest_ack<const IN_FLIGHT: usize>(count: u64) {
    acks::<IN_FLIGHT>(count, |numbers| numbers.iter().copied().step_by(2).take(ACK_RANGES_SENT).collect());
}

/// The same with the newest packet among them: all else that is under way is found lost at once.
pub(crate) fn ack_with_losses<const IN_FLIGHT: usize>(count: u64) {
    acks::<IN_FLIGHT>(count, |numbers| {
        let spread = numbers.iter().rev().step_by(IN_FLIGHT / ACK_RANGES_SENT).take(ACK_RANGES_SENT);
        spread.rev().copied().collect()
    });
}

/// Acks of what `pick` picks from the numbers under way, which rise; each on a connection of its own, since what was found lost
/// goes with what is sent next.
fn acks<const IN_FLIGHT: usize>(count: u64, pick: impl Fn(&[PacketNumber]) -> Vec<PacketNumber>) {
    let settings =
        Config::default().congestion(UNLIMITED).memory_bytes(4 << 20, 4 << 20).in_flight_bytes(64 << 20);
    for _ in 0..count {
        let crowd = Crowd::connect_to(settings.clone(), 1, false).expect("a connection");
        let mut sender = Sender { crowd, key: 0, newest: None };
        let numbers = sender.send(IN_FLIGHT);
        let picked = pick(&numbers);
        let mut ack = sender.ack(&picked);
        counted_part(|| sender.hear(&mut ack));
        let named = numbers.iter().take_while(|number| Some(number) <= picked.last().as_ref()).count();
        let lost = sender.crowd.server.stats().packets_lost;
        let between = (named - picked.len()) as u64;
        // Those just below the newest may still come.
        assert!((between.saturating_sub(4)..=between).contains(&lost), "{lost} of {between} were found lost");
    }
}

/// A server with packets under way, each with the value of a key, whose fate is followed: of reliable messages with ids there
/// is not credit for as many.
struct Sender {
    crowd: Crowd,
    key: u64,
    newest: Option<PacketNumber>,
}

impl Sender {
    /// Sends so many packets; answers their numbers.
    fn send(&mut self, count: usize) -> Vec<PacketNumber> {
        let (mut numbers, mut memory, mut waited_ms) = (Vec::new(), [0; 1_200], 0);
        let Crowd { server, peers, now, .. } = &mut self.crowd;
        while numbers.len() < count {
            self.key = (self.key + 1) % KEYS;
            let (payload, options) = (Bytes::from_static(&[7; 8]), SendOptions::reliable_latest(self.key));
            server.send(*now, peers[0], ChannelId(0), payload, options).expect("room for a message");
            let sent = loop {
                now.monotonic = now.monotonic.after(INTERVAL);
                if let Some(sent) = server.poll_transmit(*now, &mut memory) {
                    break sent;
                }
                waited_ms += 1;
                assert!(waited_ms < PATIENCE_MS, "{} packets may be under way", numbers.len());
            };
            self.newest = number(&memory[..sent.bytes], self.newest);
            numbers.extend(self.newest);
        }
        numbers
    }

    /// A packet of the client with an ack of these.
    fn ack(&mut self, numbers: &[PacketNumber]) -> Vec<u8> {
        let mut datagram = vec![0; ACK_BYTES];
        let (_, sealer) = &mut self.crowd.sealers[0];
        let sealed = sealer.seal_ack(&mut datagram, Duration::ZERO, ranges(numbers).into_iter());
        datagram.truncate(sealed.expect("numbers and room are left"));
        datagram
    }

    fn hear(&mut self, bytes: &mut [u8]) {
        let Crowd { server, sealers, now, .. } = &mut self.crowd;
        server.handle_datagrams(*now, [Inbound { from: sealers[0].0.into(), bytes }]);
    }
}
