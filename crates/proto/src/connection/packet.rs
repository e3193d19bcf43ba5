//! Builds one packet of a connection: what goes in, in which order, sealed in place.
//!
//! When a packet may go is decided here as far as acks, probes and bytes under way say; whose turn it is among
//! connections is the endpoint's business.

use bytes::BufMut;
use drumfire_crypto::{Entropy, TAG_BYTES};
use drumfire_wire::{Close, FrameKinds, FrameWriter, PacketNumber, PacketNumberLength, TransportHeader};

use super::{Connection, Phase};
use crate::acks::Urgency;
use crate::channel::send::Packet;
use crate::limits::{NUMBERS_BEFORE_PING, RANGES_BEFORE_PING};
use crate::loss::SentPacket;
use crate::path::Destination;
use crate::recorder::FlightEvent;
use crate::route::Route;
use crate::stats::{Stats, add};
use crate::time::Moment;

/// A packet with less room left than this is full.
const MTU_SLACK_BYTES: usize = 100;

/// What came of building a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// A datagram of this many bytes stands in the memory given, for this address.
    Datagram(usize, Route),
    /// There is nothing to send now.
    Nothing,
    /// The keys are used up: the connection is over.
    KeyLimit,
}

/// What a packet was filled with.
#[derive(Debug, Clone, Copy, Default)]
struct Content {
    asks_for_ack: bool,
    /// It asks for one by a ping and has nothing else that needs an answer.
    is_ping: bool,
    carried: u32,
    /// Unreliable messages among what is noted in the books of `loss`.
    receipt_count: u32,
    has_ack: bool,
    message_count: u32,
    resent_count: u32,
    is_mtu_probe: bool,
    payload_bytes: usize,
    frames: FrameKinds,
}

impl Connection {
    /// Builds the next datagram, if there is something to send.
    pub(crate) fn build(
        &mut self,
        now: Moment,
        out: &mut [u8],
        entropy: &mut Entropy,
        stats: &mut Stats,
    ) -> Sending {
        if !self.has_to_send(now) {
            return Sending::Nothing;
        }
        if let Some(Phase::Connecting(attempt)) = self.phase.as_deref_mut() {
            let to = self.path.route;
            return attempt
                .write_hello(now, out)
                .map_or(Sending::Nothing, |bytes| Sending::Datagram(bytes, to));
        }
        self.build_packet(now, out, entropy, stats).unwrap_or(Sending::KeyLimit)
    }

    /// `None` when no packet can be sealed any more.
    fn build_packet(
        &mut self,
        now: Moment,
        out: &mut [u8],
        entropy: &mut Entropy,
        stats: &mut Stats,
    ) -> Option<Sending> {
        let session = self.session.as_mut()?;
        if session.is_key_used_up(now, &self.bounds.epochs)
            && self.phase.is_none()
            && session.change_keys(now)
        {
            add(&mut stats.key_changes, 1);
        }
        let key_phase = session.key_phase();
        let (number, skipped) = session.next_number(entropy).ok()?;
        if let Some(skipped) = skipped {
            self.loss.on_skipped(skipped);
            self.liveness.on_grown();
        }
        let length = PacketNumberLength::needed(PacketNumber(number), self.loss.largest_acked())?;
        let header = TransportHeader {
            key_phase,
            connection_id: self.path.remote_id,
            number: PacketNumber(number).truncate(length),
        };
        let to = self.path.destination(now, || self.loss.settling_time());
        let probe_bytes = self.mtu_probe_due(now).map(usize::from).filter(|bytes| *bytes <= out.len());
        let largest = probe_bytes.unwrap_or(usize::from(self.path.datagram_max_bytes));
        let room = out.len().min(largest).min(to.room_bytes.unwrap_or(usize::MAX));
        let (head, rest) = out.get_mut(..room)?.split_at_mut_checked(header.encoded_bytes())?;
        header.encode(&mut &mut *head).ok()?;
        let body_max = rest.len().checked_sub(TAG_BYTES)?;
        let mut writer = FrameWriter::new(rest.get_mut(..body_max)?);
        let mut content = if probe_bytes.is_some() {
            write_mtu_probe(&mut writer)
        } else {
            self.write_frames(now, number, &to, &mut writer, stats)
        };
        if writer.written_bytes() == 0 && !self.has_to_send(now) {
            // All that waited was worth nothing any more.
            return Some(Sending::Nothing);
        }
        let missing = header.min_frames_bytes().saturating_sub(writer.written_bytes());
        writer.padding(missing).ok()?;
        let body_bytes = writer.written_bytes();
        (content.payload_bytes, content.frames) = (body_bytes, writer.kinds());
        let (body, tag) = rest.split_at_mut_checked(body_bytes)?;
        self.session.as_mut()?.seal(head, body, tag.first_chunk_mut::<TAG_BYTES>()?).ok()?;
        let bytes = header.encoded_bytes().saturating_add(body_bytes).saturating_add(TAG_BYTES);
        self.path.on_sent(now, &to, bytes);
        self.on_built(now, number, bytes, content);
        Some(Sending::Datagram(bytes, to.route))
    }

    /// Fills a packet: an ack if one is owed, messages as far as they may go, and what else is due.
    fn write_frames<B: BufMut>(
        &mut self,
        now: Moment,
        number: u64,
        to: &Destination,
        writer: &mut FrameWriter<B>,
        stats: &mut Stats,
    ) -> Content {
        let mut content = Content::default();
        let room_bytes = writer.remaining_bytes();
        // Who looks for a path has likely lost packets, and learns now which, whether they asked for an ack or not.
        let is_answer = self.path.answer.is_some();
        if self.path.has_news() {
            self.write_path(to, writer);
            if to.is_bare {
                return content;
            }
        }
        // And who hears no acks cannot know whether those sent came through. Not in every packet, though: a message that fits
        // one only without an ack would wait for ever.
        if self.acks.is_owed() || is_answer || self.is_probe_due {
            content.has_ack = writer.ack(self.acks.delay(now), self.acks.ranges()).is_ok();
            if content.has_ack
                && let Some(activity) = &mut self.activity
                && activity.meter.takes_stamp(now)
            {
                // Where there is no room, the next one has some.
                let _ = writer.timestamp(now.as_nanos() / 1_000);
            }
        }
        if self.is_probe_due || self.may_send_data(now) {
            if self.must_ask_for_ack(writer.remaining_bytes()) && writer.ack_request().is_ok() {
                self.is_ack_asked = true;
                content.asks_for_ack = true;
            }
            let loss = &mut self.loss;
            let mut control_count = 0;
            if self.control.has_waiting() {
                control_count = self.control.fill(number, writer, |id| loss.carry(id));
            }
            let packet = Packet { number, now, room_bytes };
            let filled = self.sending.fill(packet, writer, |id| loss.carry(id));
            content.asks_for_ack |= filled.has_any() || control_count > 0;
            add(&mut stats.pieces_sent, u64::from(filled.piece_count));
            content.carried = filled.reliable_count.saturating_add(control_count);
            content.receipt_count = filled.receipt_count;
            (content.message_count, content.resent_count) = (filled.message_count, filled.resent_count);
            add(&mut stats.messages_expired, u64::from(filled.expired_count));
            add(&mut stats.messages_copied, u64::from(filled.copied_count));
            add(&mut stats.messages_sent, u64::from(filled.message_count));
            add(&mut stats.messages_resent, u64::from(filled.resent_count));
        }
        let must_ask =
            self.is_probe_due || self.is_ping_due || (content.has_ack && self.needs_answer(number));
        if must_ask && !content.asks_for_ack {
            content.asks_for_ack = writer.ping().is_ok();
            content.is_ping = content.asks_for_ack;
        } else if content.receipt_count > 0 && content.carried == 0 {
            // Somebody waits to hear of unreliable messages, whose ack comes late where nothing else asks for one.
            // Without room for it, it comes late.
            let _ = writer.ping();
        }
        if self.is_probe_due {
            add(&mut stats.probes_sent, 1);
        }
        if let Some(Phase::Closing(closing)) = self.phase.as_deref_mut()
            && !(self.sending.has_sendable() && content.asks_for_ack)
        {
            let close = Close {
                code: closing.code,
                application_code: closing.application_code,
                reason: &closing.text,
            };
            // Without room left, the next packet takes it.
            if writer.close(&close).is_ok() {
                closing.is_due = false;
                self.sending.clear();
            }
        }
        if content.has_ack && !content.asks_for_ack {
            add(&mut stats.acks_sent_alone, 1);
        }
        content
    }

    /// Writes what challenges and answers there are.
    #[cold]
    fn write_path<B: BufMut>(&mut self, to: &Destination, writer: &mut FrameWriter<B>) {
        if let Some(data) = to.challenge {
            // It is the first frame of a packet that has room for it.
            let _ = writer.path_challenge(data);
        }
        if let Some(data) = self.path.answer.filter(|_| !to.is_bare)
            && writer.path_response(data).is_ok()
        {
            self.path.answer = None;
        }
    }

    fn on_built(&mut self, now: Moment, number: u64, bytes: usize, content: Content) {
        if content.asks_for_ack {
            let acks_up_to = self.acks.largest().filter(|_| content.has_ack);
            // Neither can be more in a datagram.
            let packet_bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
            let carried =
                u16::try_from(content.carried.saturating_add(content.receipt_count)).unwrap_or(u16::MAX);
            let urgency = content.urgency();
            // Only messages make a connection busy.
            if content.frames.has_messages() || self.activity.is_some() {
                self.on_data_sent(now, packet_bytes);
            }
            self.loss.on_sent(SentPacket {
                number,
                at: now,
                acks_up_to,
                bytes: packet_bytes,
                carried,
                urgency,
                is_mtu_probe: content.is_mtu_probe,
            });
            self.liveness.on_grown();
            self.is_probe_due = false;
            self.is_ping_due = false;
        }
        let queued_bytes = self.sending.used_bytes();
        if let Some(activity) = &mut self.activity {
            if let Some(recorder) = &mut activity.recorder {
                recorder.push(now, content.sent(number, queued_bytes));
            }
            activity.meter.on_sent(bytes, content.message_count, content.resent_count);
            if content.is_mtu_probe {
                activity.mtu.on_probe_sent();
            } else if bytes.saturating_add(MTU_SLACK_BYTES) > usize::from(self.path.datagram_max_bytes) {
                activity.mtu.on_full();
            }
        }
        if content.has_ack {
            self.acks.on_sent();
        }
        self.liveness.on_sent(now, !content.is_ping);
    }

    /// Whether this packet may be the last before an ack: then the ack had better not wait.
    fn must_ask_for_ack(&self, room_bytes: usize) -> bool {
        let after = self.loss.in_flight_bytes().saturating_add(room_bytes);
        !self.is_ack_asked && self.sending.has_sendable() && after >= self.window_bytes()
    }

    /// Whether an ack that goes alone should ask for one itself: so many ranges, or so many packets without a
    /// word, that something must be forgotten.
    fn needs_answer(&self, number: u64) -> bool {
        let known = self.loss.largest_acked().map_or(0, |acked| acked.0);
        let is_long = number.saturating_sub(known) > NUMBERS_BEFORE_PING;
        !self.loss.has_in_flight() && (is_long || self.acks.range_count() > RANGES_BEFORE_PING)
    }
}

impl Content {
    /// How soon the peer acknowledges it.
    const fn urgency(&self) -> Urgency {
        let asks_soon = FrameKinds::PING.with(FrameKinds::ACK_REQUEST);
        if self.carried > 0 {
            Urgency::High
        } else if self.frames.has(asks_soon) {
            Urgency::Low
        } else {
            Urgency::Late
        }
    }

    /// For the flight recorder.
    fn sent(&self, number: u64, queued_bytes: usize) -> FlightEvent {
        FlightEvent::Sent {
            number,
            payload_bytes: u16::try_from(self.payload_bytes).unwrap_or(u16::MAX),
            frames: self.frames,
            resent_count: u8::try_from(self.resent_count).unwrap_or(u8::MAX),
            queued_kib: u16::try_from(queued_bytes.div_ceil(1_024)).unwrap_or(u16::MAX),
        }
    }
}

/// A packet of the size it has room for, and nothing else.
fn write_mtu_probe<B: BufMut>(writer: &mut FrameWriter<B>) -> Content {
    let asks_for_ack = writer.ping().is_ok() && writer.padding(writer.remaining_bytes()).is_ok();
    Content { asks_for_ack, is_mtu_probe: true, ..Content::default() }
}
