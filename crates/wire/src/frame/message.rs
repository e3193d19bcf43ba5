//! Message frames, which carry a message of the application or a fragment of one, and skip frames, which give a message up.
//!
//! Reassembly of fragments and the order of delivery are implemented in the `drumfire-proto` crate.

use bytes::BufMut;

use super::kinds::frame_type;
use crate::codec::{EncodeError, FrameError, Reader};
use crate::limits::MESSAGE_LIMIT_BYTES;
use crate::varint;

/// A channel of a connection, 0 to 65,535.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId(pub u16);

/// The id of a reliable message.
///
/// All channels share one counter per connection and direction. It starts at 0, and a message gets its id when it is first
/// transmitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub u64);

impl MessageId {
    /// Returns the id after this one, or `None` at the end of `u64`.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

/// The delivery mode of a message, with the fields that the mode needs on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The message is delivered at most once, in any order.
    Unreliable,
    /// The message is delivered at most once, and never after a newer message.
    UnreliableSequenced,
    /// The message is delivered exactly once, in any order.
    ReliableUnordered {
        /// The id of the message.
        id: MessageId,
    },
    /// The newest message is delivered. Older messages may be lost.
    ReliableSequenced {
        /// The id of the message.
        id: MessageId,
    },
    /// The newest value of each key is delivered. Older values may be lost.
    ReliableLatest {
        /// The key that the message is a value of.
        key: u64,
        /// The version of the value, greater than the versions of all earlier values of all keys.
        version: u64,
    },
    /// The message is delivered exactly once, in order.
    ReliableOrdered {
        /// The id of the message.
        id: MessageId,
        /// The id of the predecessor, which must be delivered first. This is the channel's newest message before this one
        /// that was not acknowledged, or `None` if all of them were.
        after: Option<MessageId>,
    },
}

impl Delivery {
    /// Returns the id, or `None` if the delivery mode has no ids.
    #[must_use]
    pub const fn id(self) -> Option<MessageId> {
        match self {
            Self::Unreliable | Self::UnreliableSequenced | Self::ReliableLatest { .. } => None,
            Self::ReliableUnordered { id }
            | Self::ReliableSequenced { id }
            | Self::ReliableOrdered { id, .. } => Some(id),
        }
    }
}

/// A whole message (PROTOCOL 8.1, "Message frames").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The channel of the message.
    pub channel: ChannelId,
    /// The delivery mode of the message.
    pub delivery: Delivery,
    /// The bytes of the application, which may be empty.
    pub payload: &'a [u8],
}

/// A part of a message that is too long for one packet (PROTOCOL 8.6, "Fragments").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The message, with the bytes of the fragment in place of its payload.
    pub message: Message<'a>,
    /// The number of the packet that carried the first fragment of an unreliable message; 0 if the message has an id.
    pub number: u64,
    /// The length of the whole message in bytes, at most [`MESSAGE_LIMIT_BYTES`].
    pub total_bytes: u32,
    /// The offset of the fragment in the message, in bytes.
    pub offset_bytes: u32,
}

/// A message that its sender gave up (PROTOCOL 8.7, "Skip").
///
/// The receiver delivers nothing, but treats the message as delivered in the order of its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Skip {
    /// The channel of the message.
    pub channel: ChannelId,
    /// The id of the message.
    pub id: MessageId,
    /// The id of the predecessor, as in [`Delivery::ReliableOrdered`].
    pub after: Option<MessageId>,
    /// The length of the payload in bytes, which the sender's credit was charged for.
    pub bytes: u32,
}

impl<'a> Message<'a> {
    /// Decodes the part after the type byte, and updates `last_id` for the next message of the packet.
    pub(super) fn decode(
        byte: u8,
        reader: &mut Reader<'a>,
        last_id: &mut Option<MessageId>,
    ) -> Result<Self, FrameError> {
        read_head(byte, reader, last_id, |channel, delivery, reader| {
            Ok(Self { channel, delivery, payload: read_payload(reader)? })
        })
    }

    /// Returns the encoding of this message in a packet whose previous message id is `last_id`.
    pub(super) fn encoding(&self, last_id: Option<MessageId>) -> Result<MessageEncoding<'a>, EncodeError> {
        self.encoding_with(last_id, None)
    }

    /// Returns the encoding of this message, or of a fragment if there are `fragment` fields.
    fn encoding_with(
        &self,
        last_id: Option<MessageId>,
        fragment: Option<FragmentFields>,
    ) -> Result<MessageEncoding<'a>, EncodeError> {
        let (mode, order) = match self.delivery {
            Delivery::Unreliable => (frame_type::UNRELIABLE, None),
            Delivery::UnreliableSequenced => (frame_type::UNRELIABLE_SEQUENCED, None),
            Delivery::ReliableLatest { .. } => (frame_type::RELIABLE_LATEST, None),
            Delivery::ReliableUnordered { .. } => (frame_type::RELIABLE_UNORDERED, None),
            Delivery::ReliableSequenced { .. } => (frame_type::RELIABLE_SEQUENCED, None),
            Delivery::ReliableOrdered { id, after } => {
                (frame_type::RELIABLE_ORDERED, Some(order_field(id, after)?))
            }
        };
        let id = self.id();
        let is_next = id.is_some() && last_id.and_then(MessageId::next) == id;
        let frame_type = if is_next { mode | frame_type::NEXT_ID } else { mode };
        let written_id = id.filter(|_| !is_next).map(|id| id.0);
        let payload_bytes = Some(self.payload.len() as u64);
        let (first, second) = match self.delivery {
            Delivery::ReliableLatest { key, version } => (Some(key), Some(version)),
            _ => (written_id, order),
        };
        let channel = Some(u64::from(self.channel.0));
        let Some(FragmentFields { number, total_bytes, offset_bytes }) = fragment else {
            let varints = [channel, first, second, payload_bytes, None, None];
            return Ok(MessageEncoding { frame_type, varints, payload: self.payload });
        };
        // A fragment of a message without an id names its message by a packet number. Such a message has no order field either.
        let second = if id.is_none() { Some(number) } else { second };
        let varints =
            [channel, first, second, Some(total_bytes.into()), Some(offset_bytes.into()), payload_bytes];
        Ok(MessageEncoding { frame_type: frame_type | frame_type::FRAGMENT, varints, payload: self.payload })
    }

    /// Returns the id, or `None` if the delivery mode has no ids.
    #[must_use]
    pub fn id(&self) -> Option<MessageId> {
        self.delivery.id()
    }
}

impl<'a> Fragment<'a> {
    /// Decodes the part after the type byte, and updates `last_id` for the next message of the packet.
    pub(super) fn decode(
        byte: u8,
        reader: &mut Reader<'a>,
        last_id: &mut Option<MessageId>,
    ) -> Result<Self, FrameError> {
        if byte == frame_type::RELIABLE_LATEST | frame_type::FRAGMENT {
            return Err(FrameError::UnknownFrame);
        }
        let message_type = byte & !frame_type::FRAGMENT;
        let fragment = read_head(message_type, reader, last_id, |channel, delivery, reader| {
            let number = if delivery.id().is_some() { 0 } else { reader.varint()? };
            let (total_bytes, offset_bytes) = (read_message_size(reader)?, read_message_size(reader)?);
            let message = Message { channel, delivery, payload: read_payload(reader)? };
            Ok(Self { message, number, total_bytes, offset_bytes })
        })?;
        if fragment.is_inside_message() { Ok(fragment) } else { Err(FrameError::BadFragment) }
    }

    /// Returns the encoding of this fragment in a packet whose previous message id is `last_id`.
    pub(super) fn encoding(&self, last_id: Option<MessageId>) -> Result<MessageEncoding<'a>, EncodeError> {
        let is_value = matches!(self.message.delivery, Delivery::ReliableLatest { .. });
        if is_value || self.total_bytes > MESSAGE_LIMIT_BYTES || !self.is_inside_message() {
            return Err(EncodeError::BadFragment);
        }
        let Self { message, number, total_bytes, offset_bytes } = *self;
        message.encoding_with(last_id, Some(FragmentFields { number, total_bytes, offset_bytes }))
    }

    /// Returns the offset in bytes of the fragment's end in the message, or `None` if it exceeds a `u32`.
    #[must_use]
    pub fn end_bytes(&self) -> Option<u32> {
        self.offset_bytes.checked_add(u32::try_from(self.message.payload.len()).ok()?)
    }

    fn is_inside_message(&self) -> bool {
        !self.message.payload.is_empty() && self.end_bytes().is_some_and(|end| end <= self.total_bytes)
    }
}

impl Skip {
    /// Decodes the part after the type byte.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        let channel = read_channel(reader)?;
        let id = MessageId(reader.varint()?);
        let after = read_order(id, reader)?;
        let bytes = u32::try_from(reader.varint()?).ok().filter(|bytes| *bytes <= MESSAGE_LIMIT_BYTES);
        Ok(Self { channel, id, after, bytes: bytes.ok_or(FrameError::BadSkip)? })
    }

    /// Returns the fields after the type byte, in the order of the wire.
    pub(super) fn varints(&self) -> Result<[u64; 4], EncodeError> {
        let order = order_field(self.id, self.after)?;
        Ok([self.channel.0.into(), self.id.0, order, self.bytes.into()])
    }
}

/// The fields that a fragment has in addition to those of a message.
#[derive(Clone, Copy)]
struct FragmentFields {
    number: u64,
    total_bytes: u32,
    offset_bytes: u32,
}

/// The fields of a message or a fragment in the order of the wire. Fields that the frame type does not have are `None`.
pub(super) struct MessageEncoding<'a> {
    frame_type: u8,
    varints: [Option<u64>; 6],
    payload: &'a [u8],
}

impl MessageEncoding<'_> {
    /// Turns the encoding of a message whose payload is the bodies of a run into that of the run.
    pub(super) fn into_run(mut self, count: u16) -> Self {
        self.frame_type |= frame_type::RUN;
        // The number of messages replaces the length of the payload. The lengths are in the bodies.
        let [_, _, _, length, _, _] = &mut self.varints;
        *length = Some(count.into());
        self
    }

    /// Returns the length of the whole frame in bytes.
    pub(super) fn bytes(&self) -> usize {
        let varints = self.varints.iter().flatten();
        let head = varints.fold(1_usize, |sum, &value| sum.saturating_add(varint::encoded_bytes(value)));
        head.saturating_add(self.payload.len())
    }

    /// Writes the frame. The caller has checked that it fits.
    pub(super) fn put(&self, out: &mut impl BufMut) {
        out.put_u8(self.frame_type);
        for &value in self.varints.iter().flatten() {
            varint::put(value, out);
        }
        out.put_slice(self.payload);
    }
}

/// Reads the fields that a message, a fragment, and a run have in common, and then the others with `rest`. `byte` is the type of
/// the message.
///
/// Each frame has a copy of this function, because messages are decoded most often and a call for their first fields costs as much
/// as these.
pub(super) fn read_head<'a, F>(
    byte: u8,
    reader: &mut Reader<'a>,
    last_id: &mut Option<MessageId>,
    rest: impl FnOnce(ChannelId, Delivery, &mut Reader<'a>) -> Result<F, FrameError>,
) -> Result<F, FrameError> {
    let mode = byte & !frame_type::NEXT_ID;
    let has_id = match mode {
        frame_type::UNRELIABLE | frame_type::UNRELIABLE_SEQUENCED | frame_type::RELIABLE_LATEST
            if mode == byte =>
        {
            false
        }
        frame_type::RELIABLE_UNORDERED | frame_type::RELIABLE_ORDERED | frame_type::RELIABLE_SEQUENCED => {
            true
        }
        _ => return Err(FrameError::UnknownFrame),
    };
    let channel = read_channel(reader)?;
    let delivery = if has_id {
        let id = read_id(byte, reader, last_id)?;
        match mode {
            frame_type::RELIABLE_UNORDERED => Delivery::ReliableUnordered { id },
            frame_type::RELIABLE_SEQUENCED => Delivery::ReliableSequenced { id },
            _ => Delivery::ReliableOrdered { id, after: read_order(id, reader)? },
        }
    } else {
        match byte {
            frame_type::UNRELIABLE => Delivery::Unreliable,
            frame_type::UNRELIABLE_SEQUENCED => Delivery::UnreliableSequenced,
            _ => Delivery::ReliableLatest { key: reader.varint()?, version: reader.varint()? },
        }
    };
    rest(channel, delivery, reader)
}

/// Reads a length and as many bytes.
#[inline]
pub(super) fn read_payload<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], FrameError> {
    // A length that exceeds a `usize` also exceeds the packet.
    let bytes = usize::try_from(reader.varint()?).map_err(|_| FrameError::Truncated)?;
    reader.slice(bytes).ok_or(FrameError::Truncated)
}

pub(super) fn read_channel(reader: &mut Reader<'_>) -> Result<ChannelId, FrameError> {
    u16::try_from(reader.varint()?).map(ChannelId).map_err(|_| FrameError::BadChannel)
}

/// Reads the total length or the offset of a fragment.
fn read_message_size(reader: &mut Reader<'_>) -> Result<u32, FrameError> {
    let bytes = u32::try_from(reader.varint()?).map_err(|_| FrameError::BadFragment)?;
    if bytes <= MESSAGE_LIMIT_BYTES { Ok(bytes) } else { Err(FrameError::BadFragment) }
}

/// Reads the id of a message, or computes it from the previous id if the message omits it.
fn read_id(
    byte: u8,
    reader: &mut Reader<'_>,
    last_id: &mut Option<MessageId>,
) -> Result<MessageId, FrameError> {
    let id = if byte & frame_type::NEXT_ID == 0 {
        MessageId(reader.varint()?)
    } else {
        last_id.and_then(MessageId::next).ok_or(FrameError::BadMessageId)?
    };
    *last_id = Some(id);
    Ok(id)
}

/// Reads the id of the predecessor, which is written as its distance from `id`, or 0 if there is no predecessor.
pub(super) fn read_order(id: MessageId, reader: &mut Reader<'_>) -> Result<Option<MessageId>, FrameError> {
    match reader.varint()? {
        0 => Ok(None),
        distance => {
            id.0.checked_sub(distance).map(|after| Some(MessageId(after))).ok_or(FrameError::BadOrder)
        }
    }
}

/// Returns the field that [`read_order`] reads.
pub(super) fn order_field(id: MessageId, after: Option<MessageId>) -> Result<u64, EncodeError> {
    let Some(after) = after else { return Ok(0) };
    let distance = id.0.checked_sub(after.0).filter(|distance| *distance > 0);
    distance.ok_or(EncodeError::OrderNotBefore)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, FrameWriter, Frames};

    fn decode_one(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
        let mut frames = Frames::new(bytes);
        let frame = frames.next().unwrap();
        assert_eq!(frames.next(), None);
        frame
    }

    fn message(bytes: &[u8]) -> Result<Message<'_>, FrameError> {
        decode_one(bytes).map(|frame| match frame {
            Frame::Message(message) => message,
            other => unreachable!("{other:?}"),
        })
    }

    fn fragment(bytes: &[u8]) -> Result<Fragment<'_>, FrameError> {
        decode_one(bytes).map(|frame| match frame {
            Frame::Fragment(fragment) => fragment,
            other => unreachable!("{other:?}"),
        })
    }

    #[test]
    fn channels_end_at_65_535() {
        for (bytes, expected) in [
            ([0x80, 0xfe, 0xff, 0x03, 0], Ok(65_534)),
            ([0x80, 0xff, 0xff, 0x03, 0], Ok(65_535)),
            ([0x80, 0x80, 0x80, 0x04, 0], Err(FrameError::BadChannel)),
        ] {
            assert_eq!(message(&bytes).map(|message| message.channel.0), expected);
        }
    }

    #[test]
    fn a_payload_must_end_inside_the_packet() {
        assert_eq!(message(&[0x80, 0, 2, 7, 8]).unwrap().payload, [7, 8]);
        assert_eq!(message(&[0x80, 0, 3, 7, 8]), Err(FrameError::Truncated));
        let longest = [&[0x80, 0][..], &[0xff; 9], &[1]].concat();
        assert_eq!(message(&longest), Err(FrameError::Truncated));
        assert_eq!(message(&[0x80, 0, 0]).unwrap().payload, [0u8; 0]);
    }

    #[test]
    fn a_predecessor_has_an_id_of_zero_or_above() {
        let after = |back| {
            message(&[0x83, 0, 9, back, 0]).map(|message| match message.delivery {
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
    fn an_omitted_id_needs_a_previous_id_in_the_packet() {
        assert_eq!(message(&[0x93, 0, 0, 0]), Err(FrameError::BadMessageId));
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
    fn the_largest_id_has_no_successor() {
        let mut bytes = vec![0x83, 0];
        varint::put(u64::MAX, &mut bytes);
        bytes.extend([0, 0, 0x93, 0, 0, 0]);
        let last = Frames::new(&bytes).last();
        assert_eq!(last, Some(Err(FrameError::BadMessageId)));
        assert_eq!((MessageId(u64::MAX).next(), MessageId(0).next()), (None, Some(MessageId(1))));
    }

    #[test]
    fn a_fragment_has_bytes_and_lies_inside_its_message() {
        // Channel 1, id 5, 10 bytes in total, 3 bytes from offset 7.
        assert_eq!(fragment(&[0x8a, 1, 5, 10, 7, 3, 1, 2, 3]).unwrap().end_bytes(), Some(10));
        assert_eq!(
            fragment(&[0x8a, 1, 5, 10, 8, 3, 1, 2, 3]),
            Err(FrameError::BadFragment),
            "beyond the end"
        );
        assert_eq!(fragment(&[0x8a, 1, 5, 10, 7, 0]), Err(FrameError::BadFragment), "empty");
        assert_eq!(fragment(&[0x8a, 1, 5, 10, 7, 4, 1, 2, 3]), Err(FrameError::Truncated));
        let longest = [0x80, 0x80, 0x80, 0x08];
        let with_total = |total: [u8; 4]| [&[0x8a, 1, 5][..], &total, &[0, 1, 9]].concat();
        assert_eq!(fragment(&with_total(longest)).unwrap().total_bytes, MESSAGE_LIMIT_BYTES);
        assert_eq!(fragment(&with_total([0x81, 0x80, 0x80, 0x08])), Err(FrameError::BadFragment), "too long");
    }

    #[test]
    fn values_have_no_fragments() {
        assert_eq!(fragment(&[0x8d, 1, 5, 6, 0, 10, 7, 1, 1]), Err(FrameError::UnknownFrame));
        let delivery = Delivery::ReliableLatest { key: 1, version: 2 };
        let message = Message { channel: ChannelId(1), delivery, payload: &[1] };
        let fragment = Fragment { message, number: 0, total_bytes: 2, offset_bytes: 0 };
        let mut memory = [0; 32];
        assert_eq!(FrameWriter::new(&mut memory[..]).fragment(&fragment), Err(EncodeError::BadFragment));
    }

    #[test]
    fn fragments_of_messages_over_the_limit_are_not_encoded() {
        let delivery = Delivery::ReliableUnordered { id: MessageId(1) };
        let message = Message { channel: ChannelId(1), delivery, payload: &[1] };
        let mut memory = [0; 32];
        for total_bytes in [MESSAGE_LIMIT_BYTES + 1, u32::MAX] {
            let fragment = Fragment { message, number: 0, total_bytes, offset_bytes: 0 };
            let result = FrameWriter::new(&mut memory[..]).fragment(&fragment);
            assert_eq!(result, Err(EncodeError::BadFragment), "{total_bytes}");
        }
    }

    #[test]
    fn an_omitted_id_can_follow_a_fragment() {
        let bytes = [0x8b, 0, 9, 0, 4, 0, 1, 7, 0x93, 0, 1, 0];
        let ids: Vec<_> = Frames::new(&bytes)
            .map(|frame| match frame.unwrap() {
                Frame::Fragment(fragment) => fragment.message.id(),
                Frame::Message(message) => message.id(),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, [Some(MessageId(9)), Some(MessageId(10))]);
    }
}
