//! Message frames: one whole message of the application, with what its delivery mode needs.
//!
//! What a piece of a message has beside stands with the fragments.

use bytes::BufMut;

use super::FrameError;
use super::type_byte;
use crate::encode_error::EncodeError;
use crate::limits::MESSAGE_LIMIT_BYTES;
use crate::reader::Reader;
use crate::varint;

/// A channel of a connection, 0 to 65,535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

/// The id of a reliable message: one count per connection and direction, given at first transmission, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

impl MessageId {
    /// The id after this one, or `None` at the end of u64.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

/// What is promised about a message, and what that takes on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// At most once, in any order.
    Unreliable,
    /// At most once, never an older one after a newer.
    UnreliableSequenced,
    /// Exactly once, in any order.
    ReliableUnordered {
        /// The message's id.
        id: MessageId,
    },
    /// The newest arrives.
    ReliableSequenced {
        /// The message's id.
        id: MessageId,
    },
    /// Of each key the newest value arrives.
    ReliableLatest {
        /// Whose value it is.
        key: u64,
        /// Greater than those of all values before, of whatever key.
        version: u64,
    },
    /// Exactly once, in order.
    ReliableOrdered {
        /// The message's id.
        id: MessageId,
        /// The channel's newest unacknowledged message before this one, which must be delivered first; `None`
        /// when all before it were acknowledged.
        after: Option<MessageId>,
    },
}

/// A message that its sender gave up. It keeps its place in the order, and nothing is delivered (PROTOCOL 8.7, "Skip").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// The channel it belonged to.
    pub channel: ChannelId,
    /// Its id.
    pub id: MessageId,
    /// What it would have been delivered after, as in [`Delivery::ReliableOrdered`].
    pub after: Option<MessageId>,
    /// Bytes of its payload, by which its sender's credit was charged.
    pub bytes: u32,
}

impl Skip {
    /// Reads what follows the type byte.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let channel = read_channel(reader)?;
        let id = MessageId(reader.varint()?);
        let after = read_order(id, reader)?;
        let bytes = u32::try_from(reader.varint()?).ok().filter(|bytes| *bytes <= MESSAGE_LIMIT_BYTES);
        Ok(Self { channel, id, after, bytes: bytes.ok_or(FrameError::BadSkip)? })
    }

    /// The fields that follow the type byte, in the order they are written.
    pub(super) fn varints(&self) -> Result<[u64; 4], EncodeError> {
        Ok([self.channel.0.into(), self.id.0, back(self.id, self.after)?, self.bytes.into()])
    }
}

/// A whole message (PROTOCOL 8.1, "Message frames").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The channel it belongs to.
    pub channel: ChannelId,
    /// How it is delivered.
    pub delivery: Delivery,
    /// The application's bytes; there may be none.
    pub payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads what follows the type byte, and remembers the id for the next message of the packet.
    pub(super) fn decode(
        byte: u8,
        reader: &mut Reader<'a>,
        last_id: &mut Option<MessageId>,
    ) -> Result<Self, FrameError> {
        decode_as(byte, reader, last_id, |_, _| Ok(())).map(|(message, ())| message)
    }

    /// How this message, or a piece of it, is written after one with `last_id`.
    pub(super) fn plan(
        &self,
        last_id: Option<MessageId>,
        piece: Option<Piece>,
    ) -> Result<MessagePlan<'a>, EncodeError> {
        let (mode, back) = match self.delivery {
            Delivery::Unreliable => (type_byte::UNRELIABLE, None),
            Delivery::UnreliableSequenced => (type_byte::UNRELIABLE_SEQUENCED, None),
            Delivery::ReliableLatest { .. } => (type_byte::RELIABLE_LATEST, None),
            Delivery::ReliableUnordered { .. } => (type_byte::RELIABLE_UNORDERED, None),
            Delivery::ReliableSequenced { .. } => (type_byte::RELIABLE_SEQUENCED, None),
            Delivery::ReliableOrdered { id, after } => (type_byte::RELIABLE_ORDERED, Some(back(id, after)?)),
        };
        let id = self.id();
        let is_next = id.is_some() && last_id.and_then(MessageId::next) == id;
        let type_byte = if is_next { mode | type_byte::NEXT_ID } else { mode };
        let id = id.filter(|_| !is_next).map(|id| id.0);
        // A slice is never longer than a u64 can say.
        let payload_bytes = u64::try_from(self.payload.len()).unwrap_or(u64::MAX);
        let (key, version) = match self.delivery {
            Delivery::ReliableLatest { key, version } => (Some(key), Some(version)),
            _ => (id, back),
        };
        let channel = Some(u64::from(self.channel.0));
        let Some(Piece { number, total, offset }) = piece else {
            let varints = [channel, key, version, Some(payload_bytes), None, None];
            return Ok(MessagePlan { type_byte, varints, payload: self.payload });
        };
        // Only messages without an id, and so without order, have a number.
        let version = if self.id().is_none() { Some(number) } else { version };
        let varints = [channel, key, version, Some(total.into()), Some(offset.into()), Some(payload_bytes)];
        Ok(MessagePlan { type_byte: type_byte | type_byte::FRAGMENT, varints, payload: self.payload })
    }

    /// The id, in the modes that have one.
    #[must_use]
    pub fn id(&self) -> Option<MessageId> {
        match self.delivery {
            Delivery::Unreliable | Delivery::UnreliableSequenced | Delivery::ReliableLatest { .. } => None,
            Delivery::ReliableUnordered { id }
            | Delivery::ReliableSequenced { id }
            | Delivery::ReliableOrdered { id, .. } => Some(id),
        }
    }
}

/// What a fragment has beside.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) number: u64,
    pub(super) total: u32,
    pub(super) offset: u32,
}

/// Reads a message frame, or the parts of one that a fragment shares with it: `extra` reads what stands before the length,
/// and is told whether there is an id.
pub(super) fn decode_as<'a, X>(
    byte: u8,
    reader: &mut Reader<'a>,
    last_id: &mut Option<MessageId>,
    extra: impl FnOnce(&mut Reader<'a>, bool) -> Result<X, FrameError>,
) -> Result<(Message<'a>, X), FrameError> {
    let mode = byte & !type_byte::NEXT_ID;
    let has_id = match mode {
        type_byte::UNRELIABLE | type_byte::UNRELIABLE_SEQUENCED | type_byte::RELIABLE_LATEST
            if mode == byte =>
        {
            false
        }
        type_byte::RELIABLE_UNORDERED | type_byte::RELIABLE_ORDERED | type_byte::RELIABLE_SEQUENCED => true,
        _ => return Err(FrameError::UnknownFrame),
    };
    let channel = read_channel(reader)?;
    let delivery = if has_id {
        let id = read_id(byte, reader, last_id)?;
        match mode {
            type_byte::RELIABLE_UNORDERED => Delivery::ReliableUnordered { id },
            type_byte::RELIABLE_SEQUENCED => Delivery::ReliableSequenced { id },
            _ => Delivery::ReliableOrdered { id, after: read_order(id, reader)? },
        }
    } else {
        match byte {
            type_byte::UNRELIABLE => Delivery::Unreliable,
            type_byte::UNRELIABLE_SEQUENCED => Delivery::UnreliableSequenced,
            _ => Delivery::ReliableLatest { key: reader.varint()?, version: reader.varint()? },
        }
    };
    let extra = extra(reader, has_id)?;
    // A length beyond the platform's largest is also beyond the end of the packet.
    let bytes = usize::try_from(reader.varint()?).map_err(|_| FrameError::Truncated)?;
    let payload = reader.slice(bytes).ok_or(FrameError::Truncated)?;
    Ok((Message { channel, delivery, payload }, extra))
}

/// The fields of a message frame in the order they are written.
pub(super) struct MessagePlan<'a> {
    type_byte: u8,
    varints: [Option<u64>; 6],
    payload: &'a [u8],
}

impl MessagePlan<'_> {
    /// Bytes of the whole frame.
    pub(super) fn bytes(&self) -> usize {
        let varints = self.varints.iter().flatten();
        let head = varints.fold(1_usize, |sum, &value| sum.saturating_add(varint::encoded_bytes(value)));
        head.saturating_add(self.payload.len())
    }

    /// Writes the frame where the caller has made sure of the room.
    pub(super) fn put(&self, out: &mut impl BufMut) {
        out.put_u8(self.type_byte);
        for &value in self.varints.iter().flatten() {
            varint::put(value, out);
        }
        out.put_slice(self.payload);
    }
}

fn read_channel(reader: &mut Reader<'_>) -> Result<ChannelId, FrameError> {
    u16::try_from(reader.varint()?).map(ChannelId).map_err(|_| FrameError::BadChannel)
}

/// The distance to the message that goes before, 0 for none.
fn back(id: MessageId, after: Option<MessageId>) -> Result<u64, EncodeError> {
    match after {
        None => Ok(0),
        Some(after) if after < id => Ok(id.0.saturating_sub(after.0)),
        Some(_) => Err(EncodeError::OrderNotBefore),
    }
}

/// The id of a message, written or counted from the one before.
fn read_id(
    byte: u8,
    reader: &mut Reader<'_>,
    last_id: &mut Option<MessageId>,
) -> Result<MessageId, FrameError> {
    let id = if byte & type_byte::NEXT_ID == 0 {
        MessageId(reader.varint()?)
    } else {
        last_id.and_then(MessageId::next).ok_or(FrameError::BadMessageId)?
    };
    *last_id = Some(id);
    Ok(id)
}

/// The message that goes before this one, which is written as the distance to it.
fn read_order(id: MessageId, reader: &mut Reader<'_>) -> Result<Option<MessageId>, FrameError> {
    match reader.varint()? {
        0 => Ok(None),
        back => id.0.checked_sub(back).map(|before| Some(MessageId(before))).ok_or(FrameError::BadOrder),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Frames};

    fn only(bytes: &[u8]) -> Result<Message<'_>, FrameError> {
        let mut frames = Frames::new(bytes);
        let frame = frames.next().unwrap();
        assert_eq!(frames.next(), None);
        frame.map(|frame| match frame {
            Frame::Message(message) => message,
            other => unreachable!("{other:?}"),
        })
    }

    #[test]
    fn channels_end_at_65_535() {
        for (bytes, wanted) in [
            ([0x80, 0xfe, 0xff, 0x03, 0], Ok(65_534)),
            ([0x80, 0xff, 0xff, 0x03, 0], Ok(65_535)),
            ([0x80, 0x80, 0x80, 0x04, 0], Err(FrameError::BadChannel)),
        ] {
            assert_eq!(only(&bytes).map(|message| message.channel.0), wanted);
        }
    }

    #[test]
    fn a_payload_must_end_inside_the_packet() {
        assert_eq!(only(&[0x80, 0, 2, 7, 8]).unwrap().payload, [7, 8]);
        assert_eq!(only(&[0x80, 0, 3, 7, 8]), Err(FrameError::Truncated));
        let longest = [&[0x80, 0][..], &[0xff; 9], &[1]].concat();
        assert_eq!(only(&longest), Err(FrameError::Truncated));
        assert_eq!(only(&[0x80, 0, 0]).unwrap().payload, [0u8; 0]);
    }

    #[test]
    fn the_order_reaches_back_to_id_zero_and_not_below() {
        let after = |back| {
            only(&[0x83, 0, 9, back, 0]).map(|message| match message.delivery {
                Delivery::ReliableOrdered { after, .. } => after,
                other => unreachable!("type 0x83 is ordered: {other:?}"),
            })
        };
        assert_eq!(after(0), Ok(None));
        assert_eq!(after(8), Ok(Some(MessageId(1))));
        assert_eq!(after(9), Ok(Some(MessageId(0))));
        assert_eq!(after(10), Err(FrameError::BadOrder));
    }

    #[test]
    fn the_next_id_needs_one_before_it_in_the_same_packet() {
        assert_eq!(only(&[0x93, 0, 0, 0]), Err(FrameError::BadMessageId));
        let bytes = [0x83, 0, 9, 0, 0, 0x80, 1, 0, 0x93, 2, 1, 0];
        let ids: Vec<_> = Frames::new(&bytes)
            .map(|frame| match frame.unwrap() {
                Frame::Message(message) => message.id(),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, [Some(MessageId(9)), None, Some(MessageId(10))]);
    }

    #[test]
    fn no_id_follows_the_largest() {
        let mut bytes = vec![0x83, 0];
        varint::put(u64::MAX, &mut bytes);
        bytes.extend([0, 0, 0x93, 0, 0, 0]);
        let last = Frames::new(&bytes).last();
        assert_eq!(last, Some(Err(FrameError::BadMessageId)));
        assert_eq!((MessageId(u64::MAX).next(), MessageId(0).next()), (None, Some(MessageId(1))));
    }
}
