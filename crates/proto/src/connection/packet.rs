//! Builds one packet of a connection: selects the frames, orders them, and seals the packet in place.
//!
//! This module decides when a packet may be sent as far as acks, probes, and bytes in flight are concerned. The
//! endpoint decides which connection sends next.

use bytes::BufMut;
use drumfire_crypto::{Entropy, TAG_BYTES};
use drumfire_wire::{Close, FrameKinds, FrameWriter, PacketNumber, PacketNumberLength, TransportHeader};

use super::{Connection, Phase};
use crate::acks::AckUrgency;
use crate::channel::send::Packet;
use crate::convert::saturated;
use crate::limits::{NUMBERS_BEFORE_PING, RANGES_BEFORE_PING};
use crate::loss::SentPacket;
use crate::path::Destination;
use crate::recorder::FlightEvent;
use crate::route::Route;
use crate::stats::{Stats, add};
use crate::time::Moment;

/// A packet with at most this much room left, in bytes, counts as full.
const MTU_SLACK_BYTES: usize = 100;

/// A packet is padded for a train if the gap is at most its size divided by this number. Padding costs bytes on the
/// path, and the gap in a packet full of small messages is smaller.
const TRAIN_GAP_DIVISOR: usize = 16;

/// The result of building a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketOutcome {
    /// A datagram of this many bytes was written to the output buffer, for this route.
    Datagram(usize, Route),
    /// Nothing can be sent now.
    Nothing,
    /// The keys are used up, and the connection is over.
    KeyLimit,
}

/// The contents of a packet that was built.
#[derive(Debug, Clone, Copy, Default)]
struct PacketContent {
    // Loss detection and acks
    /// The packet counts as in flight until it is acknowledged or lost.
    is_ack_eliciting: bool,
    /// The packet is ack-eliciting only because of a ping.
    is_ping: bool,
    /// The packet only tests a datagram size.
    is_mtu_probe: bool,
    /// The packet carries an ack of all received packets.
    has_ack: bool,
    /// The number of runs of reliable messages, fragments, and Skips that are registered in `loss`.
    reliable_count: u32,
    /// The number of control frames that are registered in `loss`.
    control_count: u32,
    /// The number of unreliable messages in the packet that are registered in `loss` because they have a receipt.
    receipt_count: u32,

    // Statistics
    /// The number of messages, of which a fragmented one counts with its last fragment.
    message_count: u32,
    /// The number of messages among them that are retransmitted.
    resent_count: u32,
    /// The size of all frames in bytes, with padding.
    payload_bytes: usize,
    /// The kinds of all frames.
    frames: FrameKinds,
}

impl Connection {
    /// Builds the next datagram, if there is something to send. `ends_turn` is whether another connection may be next
    /// in any case.
    pub(crate) fn build(
        &mut self,
        now: Moment,
        ends_turn: bool,
        out: &mut [u8],
        entropy: &mut Entropy,
        stats: &mut Stats,
    ) -> PacketOutcome {
        let may_send_data = self.may_send_data(now);
        if !self.has_to_send_if(now, || may_send_data) {
            return PacketOutcome::Nothing;
        }
        if let Some(Phase::Connecting(attempt)) = self.phase.as_deref_mut() {
            let to = self.path.route;
            return attempt
                .write_hello(now, out)
                .map_or(PacketOutcome::Nothing, |bytes| PacketOutcome::Datagram(bytes, to));
        }
        self.build_packet(now, ends_turn, may_send_data, out, entropy, stats)
            .unwrap_or(PacketOutcome::KeyLimit)
    }

    /// Builds a packet. Returns `None` when no packet can be sealed any more.
    fn build_packet(
        &mut self,
        now: Moment,
        ends_turn: bool,
        may_send_data: bool,
        out: &mut [u8],
        entropy: &mut Entropy,
        stats: &mut Stats,
    ) -> Option<PacketOutcome> {
        debug_assert!(self.session.is_some(), "a packet is due before the keys are known");
        let session = self.session.as_mut()?;
        // Keys change only after the handshake is confirmed (RFC 9001 section 6.1), and not during a close.
        if session.is_key_used_up(now, &self.bounds.epochs)
            && self.phase.is_none()
            && session.change_keys(now)
        {
            add(&mut stats.key_changes, 1);
        }
        let key_phase = session.key_phase();
        let (number, skipped) = session.next_number(entropy).ok()?;
        // Skipped numbers expose a peer that acknowledges packets it has not received (RFC 9000 section 21.4).
        if let Some(skipped) = skipped {
            self.loss.on_skipped(skipped);
            self.liveness.on_grown();
        }
        // The header carries as few bytes of the number as the peer needs to restore it (RFC 9000 section 17.1).
        let length = PacketNumberLength::needed(PacketNumber(number), self.loss.largest_acked())?;
        let header = TransportHeader {
            key_phase,
            connection_id: self.path.remote_id,
            number: PacketNumber(number).truncate(length),
        };
        // The destination comes before the frames, because it may limit the size of the packet.
        let to = self.path.destination(now, || self.loss.settling_time());
        let probe_bytes = self.mtu_probe_due(now).map(usize::from).filter(|bytes| *bytes <= out.len());
        let largest = probe_bytes.unwrap_or(usize::from(self.path.datagram_max_bytes));
        let room = out.len().min(largest).min(to.room_bytes.unwrap_or(usize::MAX));
        debug_assert!(
            room > header.encoded_bytes().saturating_add(TAG_BYTES),
            "{room} bytes have no room for a packet"
        );
        let (head, rest) = out.get_mut(..room)?.split_at_mut_checked(header.encoded_bytes())?;
        let encoded = header.encode(&mut &mut *head);
        debug_assert!(encoded.is_ok(), "a header does not fit the bytes that were cut for it: {encoded:?}");
        encoded.ok()?;
        let body_max = rest.len().checked_sub(TAG_BYTES)?;
        let mut writer = FrameWriter::new(rest.get_mut(..body_max)?);
        let mut content = if probe_bytes.is_some() {
            write_mtu_probe(&mut writer)
        } else {
            self.write_frames(now, number, may_send_data, &to, &mut writer, stats)
        };
        if writer.written_bytes() == 0 && !self.has_to_send(now) {
            // All waiting messages had expired, and no packet is needed.
            return Some(PacketOutcome::Nothing);
        }
        // A receiver drops shorter datagrams (PROTOCOL 6.1, "Header").
        let missing = header.min_frames_bytes().saturating_sub(writer.written_bytes());
        let padded = writer.padding(missing);
        debug_assert!(padded.is_ok(), "{missing} bytes of padding do not fit a nearly empty packet");
        padded.ok()?;
        if !ends_turn && self.is_followed(now, &to, room) {
            write_train_padding(&mut writer, room);
        }
        let body_bytes = writer.written_bytes();
        (content.payload_bytes, content.frames) = (body_bytes, writer.kinds());
        // The frames are encrypted where they are. The header is authenticated with them.
        let (body, tag) = rest.split_at_mut_checked(body_bytes)?;
        let sealed = self.session.as_mut()?.seal(head, body, tag.first_chunk_mut::<TAG_BYTES>()?);
        debug_assert_eq!(sealed, Ok(number), "the packet was sealed with a number that is not in its header");
        sealed.ok()?;
        let bytes = header.encoded_bytes().saturating_add(body_bytes).saturating_add(TAG_BYTES);
        self.path.on_sent(now, &to, bytes);
        self.on_built(now, number, bytes, content);
        Some(PacketOutcome::Datagram(bytes, to.route))
    }

    /// Fills a packet: an ack if one is pending, then messages as far as the limits allow, then a ping or a close if one
    /// is due.
    fn write_frames<B: BufMut>(
        &mut self,
        now: Moment,
        number: u64,
        may_send_data: bool,
        to: &Destination,
        writer: &mut FrameWriter<B>,
        stats: &mut Stats,
    ) -> PacketContent {
        let mut content = PacketContent::default();
        let room_bytes = writer.remaining_bytes();
        // A peer that validates a path has likely lost packets. It learns now which, whether or not it asked for an
        // ack.
        let is_answer = self.path.answer.is_some();
        if self.path.has_path_frames() {
            self.write_path(to, writer);
            if to.is_bare {
                return content;
            }
        }
        // A peer that receives no acks cannot know whether its own acks arrived, so a probe carries an ack. Not every
        // packet does: a message that only fits into a packet without an ack would wait forever.
        if self.acks.is_pending() || is_answer || self.is_probe_due {
            content.has_ack = writer.ack(self.acks.delay(now), self.acks.ranges()).is_ok();
            if content.has_ack
                && let Some(active) = &mut self.active
                && active.meter.take_timestamp_due(now)
            {
                // Without room for a timestamp here, a later packet carries one.
                let _ = writer.timestamp(now.as_nanos() / 1_000);
            }
        }
        // The window does not stop a probe, because without one no ack might arrive again (RFC 9002 section 7.5).
        if self.is_probe_due || may_send_data {
            if self.must_request_ack(writer.remaining_bytes()) && writer.ack_request().is_ok() {
                self.is_ack_requested = true;
                content.is_ack_eliciting = true;
            }
            // Messages and control frames have separate queues. `loss` reports the fate of both by their ids.
            let loss = &mut self.loss;
            let mut control_count = 0;
            if self.control.has_waiting() {
                control_count = self.control.fill(number, writer, |id| loss.carry(id));
            }
            let packet = Packet { number, now, room_bytes };
            let filled = self.sending.fill(packet, writer, |id| loss.carry(id));
            content.is_ack_eliciting |= filled.has_any() || control_count > 0;
            add(&mut stats.fragments_sent, u64::from(filled.fragment_count));
            (content.reliable_count, content.control_count) = (filled.reliable_count, control_count);
            content.receipt_count = filled.receipt_count;
            (content.message_count, content.resent_count) = (filled.message_count, filled.resent_count);
            add(&mut stats.messages_expired, u64::from(filled.expired_count));
            add(&mut stats.redundant_copies_sent, u64::from(filled.copied_count));
            add(&mut stats.messages_sent, u64::from(filled.message_count));
            add(&mut stats.messages_resent, u64::from(filled.resent_count));
        }
        // A probe, a keep-alive, and a new path need an ack, whatever else the packet carries.
        let must_elicit =
            self.is_probe_due || self.is_ping_due || (content.has_ack && self.needs_answer(number));
        if must_elicit && !content.is_ack_eliciting {
            content.is_ack_eliciting = writer.ping().is_ok();
            content.is_ping = content.is_ack_eliciting;
        } else if content.receipt_count > 0 && content.repeated_count() == 0 {
            // The application waits for receipts of unreliable messages, and their ack is delayed unless another
            // frame elicits one. The ping is optional: without room for it, the ack is only later.
            let _ = writer.ping();
        }
        if self.is_probe_due {
            add(&mut stats.probes_sent, 1);
        }
        // Data that is still waiting goes first. The last packet of the connection is the one with the close.
        if let Some(Phase::Closing(closing)) = self.phase.as_deref_mut()
            && !(self.sending.has_sendable() && content.is_ack_eliciting)
        {
            let close = Close {
                code: closing.code,
                application_code: closing.application_code,
                reason: &closing.text,
            };
            // Without room in this packet, the next one carries the close.
            if writer.close(&close).is_ok() {
                closing.is_due = false;
                self.sending.clear();
            }
        }
        if content.has_ack && !content.is_ack_eliciting {
            add(&mut stats.ack_only_packets_sent, 1);
        }
        content
    }

    /// Writes the path challenge and the path response that are due.
    #[cold]
    fn write_path<B: BufMut>(&mut self, to: &Destination, writer: &mut FrameWriter<B>) {
        if let Some(data) = to.challenge {
            // The challenge is the first frame of a packet that has room for it, so writing it cannot fail.
            let written = writer.path_challenge(data);
            debug_assert!(written.is_ok(), "no room for a path challenge at the start of a packet");
        }
        if let Some(data) = self.path.answer.filter(|_| !to.is_bare)
            && writer.path_response(data).is_ok()
        {
            self.path.answer = None;
        }
    }

    /// Whether another packet with data to the same address follows a packet of `bytes` bytes immediately.
    fn is_followed(&self, now: Moment, to: &Destination, bytes: usize) -> bool {
        // While the peer may have moved, every byte counts against the allowance of an address without a proof (RFC
        // 9000 section 8.1), and the next packet may go elsewhere.
        let is_settled = to.room_bytes.is_none() && !self.path.is_searching();
        self.has_data() && is_settled && self.is_open() && self.may_send_after(now, bytes)
    }

    /// Registers a packet that was sealed with loss detection, the pacer, and the statistics.
    fn on_built(&mut self, now: Moment, number: u64, bytes: usize, content: PacketContent) {
        // A packet that is not ack-eliciting may never be acknowledged, so it must not carry anything that waits for
        // its fate.
        let repeated_count = content.repeated_count();
        let registered = repeated_count.saturating_add(content.receipt_count);
        debug_assert!(
            content.is_ack_eliciting || registered == 0,
            "a packet with messages is not ack-eliciting"
        );
        if content.is_ack_eliciting {
            let acks_up_to = self.acks.largest().filter(|_| content.has_ack);
            // A datagram holds neither more bytes nor more messages than a `u16` counts.
            debug_assert!(
                bytes <= usize::from(u16::MAX) && registered <= u32::from(u16::MAX),
                "a packet of {bytes} bytes with {registered} messages"
            );
            let packet_bytes = saturated(bytes, u16::MAX);
            let carried = saturated(registered, u16::MAX);
            let urgency = content.urgency();
            // Only messages make a connection busy. Pings of an idle connection must not allocate path estimates.
            if content.frames.has_messages() || self.active.is_some() {
                self.on_data_sent(now, packet_bytes);
            }
            self.loss.on_sent(SentPacket {
                number,
                at: now,
                acks_up_to,
                bytes: packet_bytes,
                carried,
                is_repeated: repeated_count > 0,
                urgency,
                is_mtu_probe: content.is_mtu_probe,
            });
            self.liveness.on_grown();
            self.is_probe_due = false;
            self.is_ping_due = false;
        }
        let queued_bytes = self.sending.used_bytes();
        if let Some(active) = &mut self.active {
            if let Some(recorder) = &mut active.recorder {
                recorder.push(now, content.sent(number, queued_bytes));
            }
            active.meter.on_sent(bytes, content.message_count, content.resent_count);
            if content.is_mtu_probe {
                active.mtu.on_probe_sent(number);
            // A connection that never fills a packet gains nothing from a larger one.
            } else if bytes.saturating_add(MTU_SLACK_BYTES) > usize::from(self.path.datagram_max_bytes) {
                active.mtu.on_full();
            }
        }
        if content.has_ack {
            self.acks.on_sent();
        }
        self.liveness.on_sent(now, !content.is_ping);
    }

    /// Whether this packet may fill the window. The peer's ack must then not be delayed, or the connection would
    /// stall.
    fn must_request_ack(&self, room_bytes: usize) -> bool {
        let after = self.loss.in_flight_bytes().saturating_add(room_bytes);
        !self.is_ack_requested && self.sending.has_sendable() && after >= self.window_bytes()
    }

    /// Whether a packet with only an ack should be ack-eliciting. Without acks of acks, the ranges and the distance to
    /// the last acknowledged number would grow without limit (RFC 9000 section 13.2.4).
    fn needs_answer(&self, number: u64) -> bool {
        let known = self.loss.largest_acked().map_or(0, |acked| acked.0);
        let is_long = number.saturating_sub(known) > NUMBERS_BEFORE_PING;
        !self.loss.has_in_flight() && (is_long || self.acks.range_count() > RANGES_BEFORE_PING)
    }
}

impl PacketContent {
    /// The number of items that are sent again until they arrive.
    const fn repeated_count(&self) -> u32 {
        self.reliable_count.saturating_add(self.control_count)
    }

    /// Returns how soon the peer acknowledges this packet.
    const fn urgency(&self) -> AckUrgency {
        let elicits_soon = FrameKinds::PING.with(FrameKinds::ACK_REQUEST);
        if self.reliable_count > 0 {
            AckUrgency::High
        } else if self.control_count > 0 || self.frames.has(elicits_soon) {
            AckUrgency::Low
        } else {
            AckUrgency::Late
        }
    }

    /// Converts the contents for the flight recorder.
    fn sent(&self, number: u64, queued_bytes: usize) -> FlightEvent {
        FlightEvent::Sent {
            number,
            payload_bytes: saturated(self.payload_bytes, u16::MAX),
            frames: self.frames,
            resent_count: saturated(self.resent_count, u8::MAX),
            queued_kib: saturated(queued_bytes.div_ceil(1_024), u16::MAX),
        }
    }
}

/// Fills a nearly full packet of at most `datagram_bytes` bytes with padding, because another packet follows.
///
/// The kernel sends datagrams of one size to one peer as a train, in one step (`UDP_SEGMENT`). Packets full of small
/// messages differ by a few bytes, and without padding each of them would end its train.
fn write_train_padding<B: BufMut>(writer: &mut FrameWriter<B>, datagram_bytes: usize) {
    let gap_bytes = writer.remaining_bytes();
    if gap_bytes.saturating_mul(TRAIN_GAP_DIVISOR) <= datagram_bytes {
        // Padding is a frame. A packet that has the maximum number of frames already stays shorter.
        let _ = writer.padding(gap_bytes);
    }
}

/// Fills a packet up to its size with a ping and padding, to test whether the path carries it.
fn write_mtu_probe<B: BufMut>(writer: &mut FrameWriter<B>) -> PacketContent {
    let is_ack_eliciting = writer.ping().is_ok() && writer.padding(writer.remaining_bytes()).is_ok();
    PacketContent { is_ack_eliciting, is_mtu_probe: true, ..PacketContent::default() }
}
