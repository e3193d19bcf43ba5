//! Fills a packet with frames: each is written whole or not at all.
//!
//! It deliberately decides nothing: which frames go into a packet, and in what order, is the caller's plan.

use bytes::BufMut;

use super::control::{NewConnectionId, PathData, ResumeToken};
use super::message::MessageId;
use super::{Close, Fragment, FrameKinds, Message, Skip, frame_weight, type_byte};
use crate::ack::{self, AckDelay, AckRange};
use crate::encode_error::{EncodeError, check_room};
use crate::limits::PACKET_FRAMES_MAX;
use crate::varint;

/// Writes the frames of one packet into a buffer that ends where the packet must end, tag excluded.
///
/// Use one writer per packet: ids of reliable messages are counted from the one before in the same packet.
#[derive(Debug)]
pub struct FrameWriter<B> {
    out: B,
    written_bytes: usize,
    /// How many more frames the packet may have.
    left: u8,
    last_id: Option<MessageId>,
    kinds: FrameKinds,
}

impl<B: BufMut> FrameWriter<B> {
    /// A writer at the first frame of a packet.
    pub fn new(out: B) -> Self {
        Self { out, written_bytes: 0, left: PACKET_FRAMES_MAX, last_id: None, kinds: FrameKinds::NONE }
    }

    /// Bytes of frames written so far.
    pub fn written_bytes(&self) -> usize {
        self.written_bytes
    }

    /// The kinds of the frames written so far.
    pub fn kinds(&self) -> FrameKinds {
        self.kinds
    }

    /// Bytes that still fit.
    pub fn remaining_bytes(&self) -> usize {
        self.out.remaining_mut()
    }

    /// The buffer, with what is left of it.
    pub fn into_inner(self) -> B {
        self.out
    }

    /// Bytes this message would take as the next frame.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] when it comes after itself or a later one.
    pub fn message_bytes(&self, message: &Message<'_>) -> Result<usize, EncodeError> {
        message.plan(self.last_id, None).map(|plan| plan.bytes())
    }

    /// Writes a message.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] when it comes after itself or a later one, [`EncodeError::NoRoom`] when
    /// it does not fit; then nothing is written.
    pub fn message(&mut self, message: &Message<'_>) -> Result<(), EncodeError> {
        let plan = message.plan(self.last_id, None)?;
        self.take(plan.bytes(), FrameKinds::MESSAGE)?;
        plan.put(&mut self.out);
        self.last_id = message.id().or(self.last_id);
        Ok(())
    }

    /// Bytes this piece would take as the next frame.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] when its message comes after itself or a later one, [`EncodeError::BadFragment`] when
    /// it has no bytes, does not lie inside its message, or is of a value.
    pub fn fragment_bytes(&self, fragment: &Fragment<'_>) -> Result<usize, EncodeError> {
        fragment.plan(self.last_id).map(|plan| plan.bytes())
    }

    /// Writes a piece of a message.
    ///
    /// # Errors
    ///
    /// Those of [`Self::fragment_bytes`], and [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn fragment(&mut self, fragment: &Fragment<'_>) -> Result<(), EncodeError> {
        let plan = fragment.plan(self.last_id)?;
        self.take(plan.bytes(), FrameKinds::FRAGMENT)?;
        plan.put(&mut self.out);
        self.last_id = fragment.piece.id().or(self.last_id);
        Ok(())
    }

    /// Writes how far the peer may go with reliable messages.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn credit(&mut self, bytes: u64) -> Result<(), EncodeError> {
        self.number(type_byte::CREDIT, FrameKinds::CREDIT, bytes)
    }

    /// Writes what the sender's clock shows.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn timestamp(&mut self, microseconds: u64) -> Result<(), EncodeError> {
        self.number(type_byte::TIMESTAMP, FrameKinds::TIMESTAMP, microseconds)
    }

    /// Writes an ack of the newest [`ACK_RANGES_SENT`](crate::limits::ACK_RANGES_SENT) ranges; `ranges` gives
    /// them newest first and at least one packet apart. Where they do not all fit, `take` fewer.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRanges`] or [`EncodeError::RangesOutOfOrder`] when `ranges` breaks these rules,
    /// [`EncodeError::NoRoom`] when the ack does not fit; then nothing is written.
    pub fn ack(
        &mut self,
        delay: AckDelay,
        ranges: impl Iterator<Item = AckRange> + Clone,
    ) -> Result<(), EncodeError> {
        let body_bytes = ack::body_bytes(delay, ranges.clone())?;
        self.take(body_bytes.saturating_add(1), FrameKinds::ACK)?;
        self.out.put_u8(type_byte::ACK);
        ack::put_body(delay, ranges, &mut self.out)
    }

    /// Writes that a message will not come.
    ///
    /// # Errors
    ///
    /// [`EncodeError::OrderNotBefore`] when it would come after itself or a later one, [`EncodeError::NoRoom`] when it does
    /// not fit; then nothing is written.
    pub fn skip(&mut self, skip: &Skip) -> Result<(), EncodeError> {
        let varints = skip.varints()?;
        let bytes = varints.iter().map(|value| varint::encoded_bytes(*value));
        self.take(bytes.fold(1_usize, usize::saturating_add), FrameKinds::SKIP)?;
        self.out.put_u8(type_byte::SKIP);
        varints.into_iter().for_each(|value| varint::put(value, &mut self.out));
        Ok(())
    }

    /// Writes a close.
    ///
    /// # Errors
    ///
    /// [`EncodeError::ReasonTooLong`], or [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn close(&mut self, close: &Close<'_>) -> Result<(), EncodeError> {
        self.take(close.bytes()?, FrameKinds::CLOSE)?;
        close.put(&mut self.out);
        Ok(())
    }

    /// Writes a ping.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when not even one byte is left.
    pub fn ping(&mut self) -> Result<(), EncodeError> {
        self.take(1, FrameKinds::PING)?;
        self.out.put_u8(type_byte::PING);
        Ok(())
    }

    /// Writes a request for an ack at once.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when not even one byte is left.
    pub fn ack_request(&mut self) -> Result<(), EncodeError> {
        self.take(1, FrameKinds::ACK_REQUEST)?;
        self.out.put_u8(type_byte::ACK_REQUEST);
        Ok(())
    }

    /// Writes a path challenge.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn path_challenge(&mut self, data: PathData) -> Result<(), EncodeError> {
        self.path_data(type_byte::PATH_CHALLENGE, FrameKinds::PATH_CHALLENGE, data)
    }

    /// Writes the answer to a path challenge.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn path_response(&mut self, data: PathData) -> Result<(), EncodeError> {
        self.path_data(type_byte::PATH_RESPONSE, FrameKinds::PATH_RESPONSE, data)
    }

    fn path_data(&mut self, byte: u8, kind: FrameKinds, data: PathData) -> Result<(), EncodeError> {
        self.take(data.0.len().saturating_add(1), kind)?;
        self.out.put_u8(byte);
        self.out.put_slice(&data.0);
        Ok(())
    }

    /// Writes one more connection id.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn new_connection_id(&mut self, new: &NewConnectionId) -> Result<(), EncodeError> {
        self.take(new.body_bytes().saturating_add(1), FrameKinds::NEW_CONNECTION_ID)?;
        self.out.put_u8(type_byte::NEW_CONNECTION_ID);
        new.put_body(&mut self.out);
        Ok(())
    }

    /// Writes that an id will not be used any more.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn retire_connection_id(&mut self, sequence: u64) -> Result<(), EncodeError> {
        self.number(type_byte::RETIRE_CONNECTION_ID, FrameKinds::RETIRE_CONNECTION_ID, sequence)
    }

    /// Writes a frame that is one number.
    fn number(&mut self, byte: u8, kind: FrameKinds, number: u64) -> Result<(), EncodeError> {
        self.take(varint::encoded_bytes(number).saturating_add(1), kind)?;
        self.out.put_u8(byte);
        varint::put(number, &mut self.out);
        Ok(())
    }

    /// Writes a resume token.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when it does not fit; then nothing is written.
    pub fn resume_token(&mut self, token: &ResumeToken<'_>) -> Result<(), EncodeError> {
        self.take(ResumeToken::BODY_BYTES.saturating_add(1), FrameKinds::RESUME_TOKEN)?;
        self.out.put_u8(type_byte::RESUME_TOKEN);
        token.put_body(&mut self.out);
        Ok(())
    }

    /// Writes this many bytes of padding.
    ///
    /// # Errors
    ///
    /// [`EncodeError::NoRoom`] when they do not all fit; then nothing is written.
    pub fn padding(&mut self, bytes: usize) -> Result<(), EncodeError> {
        let kind = if bytes == 0 { FrameKinds::NONE } else { FrameKinds::PADDING };
        self.take(bytes, kind)?;
        self.out.put_bytes(type_byte::PADDING, bytes);
        Ok(())
    }

    /// Makes sure that a frame of this kind fits: there is no room either where the packet has all the frames it may have.
    fn take(&mut self, bytes: usize, kind: FrameKinds) -> Result<(), EncodeError> {
        check_room(bytes, self.out.remaining_mut())?;
        let weight = if bytes == 0 { 0 } else { frame_weight(kind == FrameKinds::FRAGMENT) };
        let left = self.left.checked_sub(weight).ok_or(EncodeError::NoRoom { needed_bytes: bytes })?;
        self.left = left;
        self.kinds = self.kinds.with(kind);
        self.written_bytes = self.written_bytes.saturating_add(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{ChannelId, CloseCode, Delivery};
    use crate::packet_number::PacketNumber;
    use core::time::Duration;

    fn reliable(id: u64, after: Option<u64>, payload: &[u8]) -> Message<'_> {
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) };
        Message { channel: ChannelId(3), delivery, payload }
    }

    #[test]
    fn a_frame_that_does_not_fit_leaves_no_byte_behind() {
        let delay = AckDelay::from_duration(Duration::ZERO);
        let ranges = [AckRange::new(PacketNumber(5), PacketNumber(9)).unwrap()];
        let close = Close { code: CloseCode::Application, application_code: 1, reason: b"bye" };
        let message = reliable(7, None, b"hello");
        let id = crate::ConnectionId::from_bytes([2; 8]);
        let new = NewConnectionId { sequence: 3, id, reset_token: [4; 16] };
        let token = ResumeToken { life_seconds: 600, psk: &[5; 32], sealed: &[6; 512] };
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
    fn a_message_that_did_not_fit_is_not_counted_from() {
        let mut buffer = [0; 12];
        let mut writer = FrameWriter::new(&mut buffer[..]);
        writer.message(&reliable(200, None, b"")).unwrap();
        assert!(writer.message(&reliable(201, None, b"too long")).is_err());
        // 202 is not the next of 200, so it is written out.
        assert_eq!(writer.message_bytes(&reliable(202, None, b"")), Ok(6));
        assert_eq!(writer.message_bytes(&reliable(201, None, b"")), Ok(4));
        writer.message(&reliable(202, None, b"")).unwrap();
        assert_eq!(writer.into_inner().len(), 0);
        assert_eq!(buffer, [0x83, 3, 0xc8, 1, 0, 0, 0x83, 3, 0xca, 1, 0, 0]);
    }

    #[test]
    fn a_message_cannot_come_after_itself_or_a_later_one() {
        let mut buffer = [0; 64];
        let mut writer = FrameWriter::new(&mut buffer[..]);
        assert!(writer.message(&reliable(5, Some(4), b"")).is_ok());
        for after in [5, 6] {
            assert_eq!(writer.message(&reliable(5, Some(after), b"")), Err(EncodeError::OrderNotBefore));
        }
        assert_eq!(writer.written_bytes(), 5);
    }
}
