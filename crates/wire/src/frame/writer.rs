//! The encoder of frames. It writes each frame as a whole or not at all.
//!
//! The caller chooses the frames of a packet and their order.

use bytes::BufMut;

use super::control::{Close, NewConnectionId, PathData, ResumeToken};
use super::kinds::{FrameKinds, frame_type, frame_weight};
use super::message::{ChannelId, Delivery, Fragment, Message, MessageId, Skip};
use super::run::{Bodies, Run, SkipRun};
use crate::ack::{self, AckDelay, AckRange};
use crate::codec::{EncodeError, check_room};
use crate::limits::{PACKET_FRAMES_MAX, PACKET_RUN_MESSAGES_MAX};
use crate::varint;

/// Writes the frames of one packet into a buffer that has room for the packet's frames, without the tag.
///
/// Use a new writer for each packet, because a message omits its id if it is the successor of the previous id in the packet.
#[derive(Debug)]
pub struct FrameWriter<B> {
    out: B,
    written_bytes: usize,
    /// The number of frames that the packet may still have, where a fragment counts as two.
    frames_left: u8,
    /// The number of messages that the runs of the packet may still have.
    run_messages_left: u16,
    last_id: Option<MessageId>,
    kinds: FrameKinds,
}

impl<B: BufMut> FrameWriter<B> {
    /// Creates a writer for an empty packet.
    pub fn new(out: B) -> Self {
        Self {
            out,
            written_bytes: 0,
            frames_left: PACKET_FRAMES_MAX,
            run_messages_left: PACKET_RUN_MESSAGES_MAX,
            last_id: None,
            kinds: FrameKinds::NONE,
        }
    }

    /// Returns the number of bytes written so far.
    pub fn written_bytes(&self) -> usize {
        self.written_bytes
    }

    /// Returns the kinds of the frames written so far.
    pub fn kinds(&self) -> FrameKinds {
        self.kinds
    }

    /// Returns the number of bytes that still fit.
    pub fn remaining_bytes(&self) -> usize {
        self.out.remaining_mut()
    }

    /// Returns the buffer, which has the remaining room.
    pub fn into_inner(self) -> B {
        self.out
    }

    /// Returns the encoded length in bytes of this message as the next frame.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] if the id of its predecessor is not smaller than its own.
    pub fn message_bytes(&self, message: &Message<'_>) -> Result<usize, EncodeError> {
        message.encoding(self.last_id).map(|encoding| encoding.bytes())
    }

    /// Writes a message.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] if the id of its predecessor is not smaller than its own, [`EncodeError::NoRoom`] if it
    /// does not fit. Nothing is written then.
    pub fn message(&mut self, message: &Message<'_>) -> Result<(), EncodeError> {
        let encoding = message.encoding(self.last_id)?;
        self.reserve(encoding.bytes(), FrameKinds::MESSAGE)?;
        encoding.put(&mut self.out);
        self.last_id = message.id().or(self.last_id);
        Ok(())
    }

    /// Returns the encoded length in bytes of this fragment as the next frame.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] if the id of the predecessor is not smaller than the id of the message.
    /// [`EncodeError::BadFragment`] if the fragment is empty, does not lie inside its message, or belongs to a value of a key.
    pub fn fragment_bytes(&self, fragment: &Fragment<'_>) -> Result<usize, EncodeError> {
        fragment.encoding(self.last_id).map(|encoding| encoding.bytes())
    }

    /// Writes a fragment of a message.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::fragment_bytes`], and [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn fragment(&mut self, fragment: &Fragment<'_>) -> Result<(), EncodeError> {
        let encoding = fragment.encoding(self.last_id)?;
        self.reserve(encoding.bytes(), FrameKinds::FRAGMENT)?;
        encoding.put(&mut self.out);
        self.last_id = fragment.message.id().or(self.last_id);
        Ok(())
    }

    /// Returns the encoded length in bytes of this run as the next frame.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] if the id of the first message's predecessor is not smaller than its own.
    /// [`EncodeError::BadRun`] if the run has no message or too many, or a delivery mode that has no runs.
    pub fn run_bytes(&self, run: &Run<'_>) -> Result<usize, EncodeError> {
        run.encoding(self.last_id).map(|encoding| encoding.bytes())
    }

    /// Writes a run of messages.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::run_bytes`], and [`EncodeError::NoRoom`] if the run does not fit, or if the runs of the packet would
    /// have too many messages. Nothing is written then.
    pub fn run(&mut self, run: &Run<'_>) -> Result<(), EncodeError> {
        let encoding = run.encoding(self.last_id)?;
        self.reserve_run(encoding.bytes(), run.bodies.count, FrameKinds::MESSAGE)?;
        encoding.put(&mut self.out);
        self.last_id = run.last_id().or(self.last_id);
        Ok(())
    }

    /// Writes a run of `count` messages. `put` writes their bodies, which have `body_bytes` bytes, and are not validated here.
    /// `delivery` belongs to the first message.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Self::run`].
    pub fn run_with(
        &mut self,
        channel: ChannelId,
        delivery: Delivery,
        count: u16,
        body_bytes: usize,
        put: impl FnOnce(&mut B),
    ) -> Result<(), EncodeError> {
        let bodies = Bodies { bytes: &[], count, payload_bytes: 0 };
        let run = Run { channel, delivery, bodies, longest_bytes: 0 };
        let head = run.head_encoding(self.last_id)?;
        self.reserve_run(head.bytes().saturating_add(body_bytes), count, FrameKinds::MESSAGE)?;
        head.put(&mut self.out);
        let left_bytes = self.out.remaining_mut().checked_sub(body_bytes);
        put(&mut self.out);
        debug_assert_eq!(Some(self.out.remaining_mut()), left_bytes, "not {body_bytes} bytes of bodies");
        self.last_id = run.last_id().or(self.last_id);
        Ok(())
    }

    /// Returns the number of messages that the runs and Skip runs of this packet may still have, 0 if it may have no frame.
    pub fn run_messages_left(&self) -> u16 {
        if self.frames_left > 0 { self.run_messages_left } else { 0 }
    }

    /// Writes that consecutive messages were given up.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] if the id of the first message's predecessor is not smaller than its own.
    /// [`EncodeError::BadRun`] if the run has no message or too many. [`EncodeError::NoRoom`] if the frame does not fit, or if the
    /// runs of the packet would have too many messages. Nothing is written then.
    pub fn skip_run(&mut self, skip: &SkipRun<'_>) -> Result<(), EncodeError> {
        let varints = skip.varints()?;
        let head = varints.iter().map(|value| varint::encoded_bytes(*value));
        let bytes = head.fold(1_usize, usize::saturating_add).saturating_add(skip.lengths.bytes.len());
        self.reserve_run(bytes, skip.lengths.count, FrameKinds::SKIP)?;
        self.out.put_u8(frame_type::SKIP_RUN);
        varints.into_iter().for_each(|value| varint::put(value, &mut self.out));
        self.out.put_slice(skip.lengths.bytes);
        Ok(())
    }

    /// Writes the total number of bytes of reliable messages that the peer may send.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn credit(&mut self, bytes: u64) -> Result<(), EncodeError> {
        self.varint_frame(frame_type::CREDIT, FrameKinds::CREDIT, bytes)
    }

    /// Writes the time on the sender's clock.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn timestamp(&mut self, microseconds: u64) -> Result<(), EncodeError> {
        self.varint_frame(frame_type::TIMESTAMP, FrameKinds::TIMESTAMP, microseconds)
    }

    /// Writes an ack of the first [`ACK_RANGES_SENT`](crate::limits::ACK_RANGES_SENT) of `ranges`.
    ///
    /// The ranges must be in descending order, with at least one missing packet between two ranges. If the ack does not fit,
    /// pass fewer ranges.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRanges`] or [`EncodeError::RangesOutOfOrder`] if `ranges` violates these rules,
    /// [`EncodeError::NoRoom`] if the ack does not fit. Nothing is written then.
    pub fn ack(
        &mut self,
        delay: AckDelay,
        ranges: impl Iterator<Item = AckRange> + Clone,
    ) -> Result<(), EncodeError> {
        let size = ack::measure_body(delay, ranges.clone())?;
        self.reserve(size.bytes.saturating_add(1), FrameKinds::ACK)?;
        self.out.put_u8(frame_type::ACK);
        ack::put_body(delay, ranges, size, &mut self.out)
    }

    /// Writes that a message was given up.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] if the id of its predecessor is not smaller than its own, [`EncodeError::NoRoom`] if it
    /// does not fit. Nothing is written then.
    pub fn skip(&mut self, skip: &Skip) -> Result<(), EncodeError> {
        let varints = skip.varints()?;
        let bytes = varints.iter().map(|value| varint::encoded_bytes(*value));
        self.reserve(bytes.fold(1_usize, usize::saturating_add), FrameKinds::SKIP)?;
        self.out.put_u8(frame_type::SKIP);
        varints.into_iter().for_each(|value| varint::put(value, &mut self.out));
        Ok(())
    }

    /// Writes a close.
    ///
    /// # Errors
    ///
    /// [`EncodeError::ReasonTooLong`], or [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn close(&mut self, close: &Close<'_>) -> Result<(), EncodeError> {
        self.reserve(close.bytes()?, FrameKinds::CLOSE)?;
        close.put(&mut self.out);
        Ok(())
    }

    /// Writes a ping.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if no byte or no frame is left.
    pub fn ping(&mut self) -> Result<(), EncodeError> {
        self.reserve(1, FrameKinds::PING)?;
        self.out.put_u8(frame_type::PING);
        Ok(())
    }

    /// Writes a request for an immediate ack.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if no byte or no frame is left.
    pub fn ack_request(&mut self) -> Result<(), EncodeError> {
        self.reserve(1, FrameKinds::ACK_REQUEST)?;
        self.out.put_u8(frame_type::ACK_REQUEST);
        Ok(())
    }

    /// Writes a path challenge.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn path_challenge(&mut self, data: PathData) -> Result<(), EncodeError> {
        self.path_data(frame_type::PATH_CHALLENGE, FrameKinds::PATH_CHALLENGE, data)
    }

    /// Writes the response to a path challenge.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn path_response(&mut self, data: PathData) -> Result<(), EncodeError> {
        self.path_data(frame_type::PATH_RESPONSE, FrameKinds::PATH_RESPONSE, data)
    }

    fn path_data(&mut self, byte: u8, kind: FrameKinds, data: PathData) -> Result<(), EncodeError> {
        self.reserve(data.0.len().saturating_add(1), kind)?;
        self.out.put_u8(byte);
        self.out.put_slice(&data.0);
        Ok(())
    }

    /// Writes a spare connection id.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn new_connection_id(&mut self, new: &NewConnectionId) -> Result<(), EncodeError> {
        self.reserve(new.body_bytes().saturating_add(1), FrameKinds::NEW_CONNECTION_ID)?;
        self.out.put_u8(frame_type::NEW_CONNECTION_ID);
        new.put_body(&mut self.out);
        Ok(())
    }

    /// Writes that the client will not use a connection id again.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn retire_connection_id(&mut self, sequence: u64) -> Result<(), EncodeError> {
        self.varint_frame(frame_type::RETIRE_CONNECTION_ID, FrameKinds::RETIRE_CONNECTION_ID, sequence)
    }

    /// Writes a frame with one varint.
    fn varint_frame(&mut self, byte: u8, kind: FrameKinds, value: u64) -> Result<(), EncodeError> {
        self.reserve(varint::encoded_bytes(value).saturating_add(1), kind)?;
        self.out.put_u8(byte);
        varint::put(value, &mut self.out);
        Ok(())
    }

    /// Writes a resume token.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if it does not fit. Nothing is written then.
    pub fn resume_token(&mut self, token: &ResumeToken<'_>) -> Result<(), EncodeError> {
        self.reserve(ResumeToken::BODY_BYTES.saturating_add(1), FrameKinds::RESUME_TOKEN)?;
        self.out.put_u8(frame_type::RESUME_TOKEN);
        token.put_body(&mut self.out);
        Ok(())
    }

    /// Writes `bytes` bytes of padding. Writes no frame if `bytes` is 0.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] if they do not fit. Nothing is written then.
    pub fn padding(&mut self, bytes: usize) -> Result<(), EncodeError> {
        let kind = if bytes == 0 { FrameKinds::NONE } else { FrameKinds::PADDING };
        self.reserve(bytes, kind)?;
        self.out.put_bytes(frame_type::PADDING, bytes);
        Ok(())
    }

    /// Accounts for a run of `count` messages, as [`Self::reserve`] does for every frame.
    fn reserve_run(&mut self, bytes: usize, count: u16, kind: FrameKinds) -> Result<(), EncodeError> {
        let left = self.run_messages_left.checked_sub(count);
        let left = left.ok_or(EncodeError::NoRoom { needed_bytes: bytes })?;
        self.reserve(bytes, kind)?;
        self.run_messages_left = left;
        Ok(())
    }

    /// Accounts for a frame of this kind. Fails if the packet has no room for it, or has the maximum number of frames.
    fn reserve(&mut self, bytes: usize, kind: FrameKinds) -> Result<(), EncodeError> {
        check_room(bytes, self.out.remaining_mut())?;
        let weight = if bytes == 0 { 0 } else { frame_weight(kind == FrameKinds::FRAGMENT) };
        let left = self.frames_left.checked_sub(weight);
        self.frames_left = left.ok_or(EncodeError::NoRoom { needed_bytes: bytes })?;
        self.kinds = self.kinds.with(kind);
        self.written_bytes = self.written_bytes.saturating_add(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::CloseCode;
    use crate::packet_number::PacketNumber;
    use core::time::Duration;

    fn reliable(id: u64, after: Option<u64>, payload: &[u8]) -> Message<'_> {
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
        Message { channel: ChannelId(3), delivery, payload }
    }

    #[test]
    fn a_frame_that_does_not_fit_writes_no_byte() {
        let delay = AckDelay::from_duration(Duration::ZERO);
        let ranges = [AckRange::new(PacketNumber(5), PacketNumber(9)).unwrap()];
        let close = Close { code: CloseCode::Application, application_code: 1, reason: b"bye" };
        let message = reliable(7, None, b"hello");
        let id = crate::ConnectionId::from_bytes([2; 8]);
        let new = NewConnectionId { sequence: 3, id, reset_token: [4; 16] };
        let token = ResumeToken { lifetime_seconds: 600, psk: &[5; 32], sealed: &[6; 512] };
        let write = |room: usize, which: usize| {
            let mut buffer = [0xaa; 600];
            let mut writer = FrameWriter::new(&mut buffer[..room]);
            let result = match which {
                0 => writer.message(&message),
                1 => writer.ack(delay, ranges.iter().copied()),
                2 => writer.close(&close),
                3 => writer.ping(),
                4 => writer.padding(4),
                5 => writer.path_challenge(PathData([1; 8])),
                6 => writer.path_response(PathData([1; 8])),
                7 => writer.retire_connection_id(128),
                8 => writer.new_connection_id(&new),
                9 => writer.skip(&Skip {
                    channel: ChannelId(3),
                    id: MessageId(300),
                    after: Some(MessageId(7)),
                    bytes: 100,
                }),
                _ => writer.resume_token(&token),
            };
            let (written, remaining) = (writer.written_bytes(), writer.remaining_bytes());
            assert_eq!(written + remaining, room);
            assert!(buffer[written..].iter().all(|&byte| byte == 0xaa));
            result.map(|()| written)
        };
        for (which, needed_bytes) in [10, 5, 7, 1, 4, 9, 9, 3, 26, 7, 547].into_iter().enumerate() {
            assert_eq!(write(needed_bytes - 1, which), Err(EncodeError::NoRoom { needed_bytes }));
            assert_eq!(write(needed_bytes, which), Ok(needed_bytes));
            assert_eq!(write(needed_bytes + 1, which), Ok(needed_bytes));
        }
    }

    #[test]
    fn a_message_that_did_not_fit_is_not_the_previous_one() {
        let mut buffer = [0; 12];
        let mut writer = FrameWriter::new(&mut buffer[..]);
        writer.message(&reliable(200, None, b"")).unwrap();
        assert!(writer.message(&reliable(201, None, b"too long")).is_err());
        // 202 is not the successor of 200, so the frame contains it.
        assert_eq!(writer.message_bytes(&reliable(202, None, b"")), Ok(6));
        assert_eq!(writer.message_bytes(&reliable(201, None, b"")), Ok(4));
        writer.message(&reliable(202, None, b"")).unwrap();
        assert_eq!(writer.into_inner().len(), 0);
        assert_eq!(buffer, [0x83, 3, 0xc8, 1, 0, 0, 0x83, 3, 0xca, 1, 0, 0]);
    }

    #[test]
    fn a_predecessor_has_a_smaller_id() {
        let mut buffer = [0; 64];
        let mut writer = FrameWriter::new(&mut buffer[..]);
        assert!(writer.message(&reliable(5, Some(4), b"")).is_ok());
        for after in [5, 6] {
            assert_eq!(writer.message(&reliable(5, Some(after), b"")), Err(EncodeError::OrderNotBefore));
        }
        assert_eq!(writer.written_bytes(), 5);
    }
}
