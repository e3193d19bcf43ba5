//! Fragment frames: a piece of a message that is too long for one packet.
//!
//! It only says where the piece lies; who puts pieces together, and how many at a time, is not decided here.

use super::FrameError;
use super::message::{Delivery, Message, MessageId, MessagePlan, Piece, decode_as};
use super::type_byte;
use crate::encode_error::EncodeError;
use crate::limits::MESSAGE_LIMIT_BYTES;
use crate::reader::Reader;

/// A piece of a message (PROTOCOL 8.6, "Fragments").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The message, with the piece in place of its payload.
    pub piece: Message<'a>,
    /// The number of the packet with the first piece of an unreliable message; 0 where the message has an id.
    pub number: u64,
    /// Bytes of the whole message, at most [`MESSAGE_LIMIT_BYTES`].
    pub total_bytes: u32,
    /// Where in the message the piece begins.
    pub offset_bytes: u32,
}

impl<'a> Fragment<'a> {
    /// Reads what follows the type byte, and remembers the id for the next message of the packet.
    pub(super) fn decode(
        byte: u8,
        reader: &mut Reader<'a>,
        last_id: &mut Option<MessageId>,
    ) -> Result<Self, FrameError> {
        if byte == type_byte::RELIABLE_LATEST | type_byte::FRAGMENT {
            return Err(FrameError::UnknownFrame);
        }
        let decoded = decode_as(byte & !type_byte::FRAGMENT, reader, last_id, |reader, has_id| {
            let number = if has_id { 0 } else { reader.varint()? };
            Ok((number, bounded(reader)?, bounded(reader)?))
        })?;
        let (piece, (number, total_bytes, offset_bytes)) = decoded;
        let fragment = Self { piece, number, total_bytes, offset_bytes };
        let is_right =
            !piece.payload.is_empty() && fragment.end_bytes().is_some_and(|end| end <= total_bytes);
        if is_right { Ok(fragment) } else { Err(FrameError::BadFragment) }
    }

    /// How this piece is written after a message with `last_id`.
    pub(super) fn plan(&self, last_id: Option<MessageId>) -> Result<MessagePlan<'a>, EncodeError> {
        let is_right = self.total_bytes <= MESSAGE_LIMIT_BYTES
            && !self.piece.payload.is_empty()
            && self.end_bytes().is_some_and(|end| end <= self.total_bytes);
        if !is_right || matches!(self.piece.delivery, Delivery::ReliableLatest { .. }) {
            return Err(EncodeError::BadFragment);
        }
        let piece = Piece { number: self.number, total: self.total_bytes, offset: self.offset_bytes };
        self.piece.plan(last_id, Some(piece))
    }

    /// Where the piece ends in the message; `None` beyond what there can be.
    #[must_use]
    pub fn end_bytes(&self) -> Option<u32> {
        self.offset_bytes.checked_add(u32::try_from(self.piece.payload.len()).ok()?)
    }
}

fn bounded(reader: &mut Reader<'_>) -> Result<u32, FrameError> {
    let bytes = u32::try_from(reader.varint()?).map_err(|_| FrameError::BadFragment)?;
    if bytes <= MESSAGE_LIMIT_BYTES { Ok(bytes) } else { Err(FrameError::BadFragment) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{ChannelId, Frame, FrameWriter, Frames};

    fn only(bytes: &[u8]) -> Result<Fragment<'_>, FrameError> {
        let mut frames = Frames::new(bytes);
        let frame = frames.next().unwrap();
        assert_eq!(frames.next(), None);
        frame.map(|frame| match frame {
            Frame::Fragment(fragment) => fragment,
            other => unreachable!("{other:?}"),
        })
    }

    #[test]
    fn a_piece_must_lie_inside_its_message_and_have_bytes() {
        // Channel 1, id 5, 10 bytes in all, from byte 7 on.
        assert_eq!(only(&[0x8a, 1, 5, 10, 7, 3, 1, 2, 3]).unwrap().end_bytes(), Some(10));
        assert_eq!(only(&[0x8a, 1, 5, 10, 8, 3, 1, 2, 3]), Err(FrameError::BadFragment), "beyond the end");
        assert_eq!(only(&[0x8a, 1, 5, 10, 7, 0]), Err(FrameError::BadFragment), "empty");
        assert_eq!(only(&[0x8a, 1, 5, 10, 7, 4, 1, 2, 3]), Err(FrameError::Truncated));
        let longest = [0x80, 0x80, 0x80, 0x08];
        let of = |total: [u8; 4]| [&[0x8a, 1, 5][..], &total, &[0, 1, 9]].concat();
        assert_eq!(only(&of(longest)).unwrap().total_bytes, MESSAGE_LIMIT_BYTES);
        assert_eq!(only(&of([0x81, 0x80, 0x80, 0x08])), Err(FrameError::BadFragment), "too long");
    }

    #[test]
    fn values_have_no_pieces() {
        assert_eq!(only(&[0x8d, 1, 5, 6, 0, 10, 7, 1, 1]), Err(FrameError::UnknownFrame));
        let delivery = Delivery::ReliableLatest { key: 1, version: 2 };
        let piece = Message { channel: ChannelId(1), delivery, payload: &[1] };
        let fragment = Fragment { piece, number: 0, total_bytes: 2, offset_bytes: 0 };
        let mut memory = [0; 32];
        assert_eq!(FrameWriter::new(&mut memory[..]).fragment(&fragment), Err(EncodeError::BadFragment));
    }

    #[test]
    fn the_next_id_is_counted_from_a_piece_too() {
        let bytes = [0x8b, 0, 9, 0, 4, 0, 1, 7, 0x93, 0, 1, 0];
        let ids: Vec<_> = Frames::new(&bytes)
            .map(|frame| match frame.unwrap() {
                Frame::Fragment(fragment) => fragment.piece.id(),
                Frame::Message(message) => message.id(),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, [Some(MessageId(9)), Some(MessageId(10))]);
    }
}
