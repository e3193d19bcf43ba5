//! Runs: consecutive messages of one channel in one frame, and the frame that gives such messages up (PROTOCOL 8.8, "Run").
//!
//! A run names the id and the predecessor of its first message only. Its bodies are the same for every receiver.

use bytes::BufMut;

use super::kinds::frame_type;
use super::message::{
    ChannelId, Delivery, Message, MessageEncoding, MessageId, order_field, read_channel, read_head,
    read_order, read_payload,
};
use crate::codec::{EncodeError, FrameError, Reader};
use crate::limits::{MESSAGE_LIMIT_BYTES, PACKET_RUN_MESSAGES_MAX};
use crate::varint;

/// Consecutive messages of one channel and one delivery mode.
///
/// The modes "reliable sequenced" and "reliable latest" have no runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run<'a> {
    /// The channel of the messages.
    pub channel: ChannelId,
    /// The delivery mode, with the id and the predecessor of the first message. Each further message has the next id, and an
    /// ordered message follows the one before it in the run.
    pub delivery: Delivery,
    /// The encoded messages, 1 to 512.
    pub bodies: Bodies<'a>,
    /// The length in bytes of the longest payload.
    pub longest_bytes: u32,
}

/// The encoded messages of a run: for each message the length of its payload as a varint, and the payload.
///
/// [`Bodies::parse`] and the decoder of frames validate the bytes. Code that builds the fields itself must keep them consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bodies<'a> {
    /// The encoded messages.
    pub bytes: &'a [u8],
    /// The number of messages.
    pub count: u16,
    /// The sum of the lengths of all payloads, in bytes.
    pub payload_bytes: u32,
}

/// An iterator over the payloads of a run.
#[derive(Debug, Clone)]
pub struct Payloads<'a>(Reader<'a>);

/// Consecutive messages that their sender gave up. The receiver treats each of them like a [`Skip`](super::Skip).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkipRun<'a> {
    /// The channel of the messages.
    pub channel: ChannelId,
    /// The id of the first message. Each further message has the next id.
    pub id: MessageId,
    /// The id of the first message's predecessor, as in [`Delivery::ReliableOrdered`]. Each further message follows the one before
    /// it.
    pub after: Option<MessageId>,
    /// The lengths of the payloads. The credit of the sender was charged for them.
    pub lengths: Lengths<'a>,
}

/// The encoded lengths of the messages of a Skip run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths<'a> {
    /// The length of each message in bytes, as one varint each.
    pub bytes: &'a [u8],
    /// The number of messages.
    pub count: u16,
}

impl<'a> Run<'a> {
    /// Decodes the part after the type byte. Updates `last_id` for the next message of the packet, and `left`, the number of
    /// messages that the runs of the packet may still have.
    pub(super) fn decode(
        byte: u8,
        reader: &mut Reader<'a>,
        last_id: &mut Option<MessageId>,
        left: &mut u16,
    ) -> Result<Self, FrameError> {
        let message_type = byte & !frame_type::RUN;
        if !has_runs(message_type & !frame_type::NEXT_ID) {
            return Err(FrameError::UnknownFrame);
        }
        let head = |channel, delivery: Delivery, reader: &mut Reader<'a>| {
            Ok((channel, delivery, read_count(reader, left)?))
        };
        let (channel, delivery, count) = read_head(message_type, reader, last_id, head)?;
        if let Some(id) = delivery.id() {
            *last_id = Some(last_of_run(id, count).ok_or(FrameError::BadMessageId)?);
        }
        let (bodies, longest_bytes) = Bodies::read(reader, count)?;
        Ok(Self { channel, delivery, bodies, longest_bytes })
    }

    /// Returns the encoding of this run in a packet whose previous message id is `last_id`.
    pub(super) fn encoding(&self, last_id: Option<MessageId>) -> Result<MessageEncoding<'a>, EncodeError> {
        let encoding = self.head_encoding(last_id)?;
        debug_assert_eq!(
            Bodies::parse(self.bodies.bytes),
            Ok((self.bodies, self.longest_bytes)),
            "not the bodies of a run"
        );
        Ok(encoding)
    }

    /// Returns the encoding as [`Self::encoding`] does, for bodies that are not validated or follow separately.
    #[inline]
    pub(super) fn head_encoding(
        &self,
        last_id: Option<MessageId>,
    ) -> Result<MessageEncoding<'a>, EncodeError> {
        let Self { channel, delivery, bodies, .. } = *self;
        let has_ids = delivery.id().is_none_or(|id| last_of_run(id, bodies.count).is_some());
        let is_mode =
            !matches!(delivery, Delivery::ReliableSequenced { .. } | Delivery::ReliableLatest { .. });
        if !has_ids || !is_mode || !is_count(bodies.count) {
            return Err(EncodeError::BadRun);
        }
        let encoding = Message { channel, delivery, payload: bodies.bytes }.encoding(last_id)?;
        Ok(encoding.into_run(bodies.count))
    }

    /// Returns the id of the last message, or `None` if the delivery mode has no ids.
    #[must_use]
    pub fn last_id(&self) -> Option<MessageId> {
        self.delivery.id().and_then(|id| last_of_run(id, self.bodies.count))
    }
}

impl<'a> Bodies<'a> {
    /// Appends the body of a message to the bodies of a run.
    pub fn put(payload: &[u8], out: &mut impl BufMut) {
        varint::put(payload.len() as u64, out);
        out.put_slice(payload);
    }

    /// Returns the length in bytes of the body of a message.
    #[must_use]
    #[inline]
    pub fn encoded_bytes(payload_bytes: usize) -> usize {
        varint::encoded_bytes(payload_bytes as u64).saturating_add(payload_bytes)
    }

    /// Splits the first payload from bodies that were validated. Returns the payload and the other bodies, or `None` if the bytes
    /// have no whole body.
    #[must_use]
    #[inline]
    pub fn split_first(bytes: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let mut reader = Reader::new(bytes);
        let payload = read_payload(&mut reader).ok()?;
        Some((payload, reader.rest()))
    }

    /// Validates bodies that [`Self::put`] wrote. Returns them, and the length in bytes of the longest payload.
    ///
    /// # Errors
    ///
    /// [`FrameError::EmptyRun`] or [`FrameError::TooManyMessages`] if there are none or too many, and the errors of a body.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, u32), FrameError> {
        let (mut walk, mut count) = (Reader::new(bytes), 0_u16);
        while !walk.rest().is_empty() {
            read_payload(&mut walk)?;
            count = count.saturating_add(1);
        }
        match count {
            0 => Err(FrameError::EmptyRun),
            _ if !is_count(count) => Err(FrameError::TooManyMessages),
            _ => Self::read(&mut Reader::new(bytes), count),
        }
    }

    /// Reads and validates `count` bodies. Returns the length in bytes of the longest payload too.
    fn read(reader: &mut Reader<'a>, count: u16) -> Result<(Self, u32), FrameError> {
        let before = *reader;
        let (mut sum, mut longest) = (0_usize, 0_usize);
        for _ in 0..count {
            let bytes = read_payload(reader)?.len();
            sum = sum.saturating_add(bytes);
            longest = longest.max(bytes);
        }
        // A datagram is far shorter than 4 GiB.
        let [payload_bytes, longest_bytes] =
            [sum, longest].map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        Ok((Self { bytes: reader.since(before), count, payload_bytes }, longest_bytes))
    }

    /// Returns an iterator over the payloads, in the order of the messages.
    pub fn payloads(&self) -> Payloads<'a> {
        Payloads(Reader::new(self.bytes))
    }
}

impl<'a> Payloads<'a> {
    /// Returns the bodies that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.0.rest()
    }
}

impl<'a> Iterator for Payloads<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        read_payload(&mut self.0).ok()
    }
}

impl<'a> SkipRun<'a> {
    /// Decodes the part after the type byte. Updates `left`, the number of messages that the runs of the packet may still have.
    pub(super) fn decode(reader: &mut Reader<'a>, left: &mut u16) -> Result<Self, FrameError> {
        let channel = read_channel(reader)?;
        let id = MessageId(reader.varint()?);
        let after = read_order(id, reader)?;
        let count = read_count(reader, left)?;
        last_of_run(id, count).ok_or(FrameError::BadMessageId)?;
        let before = *reader;
        for _ in 0..count {
            if reader.varint()? > MESSAGE_LIMIT_BYTES.into() {
                return Err(FrameError::BadSkip);
            }
        }
        Ok(Self { channel, id, after, lengths: Lengths { bytes: reader.since(before), count } })
    }

    /// Returns the fields between the type byte and the lengths, in the order of the wire.
    pub(super) fn varints(&self) -> Result<[u64; 4], EncodeError> {
        let Self { channel, id, after, lengths: Lengths { count, .. } } = *self;
        if last_of_run(id, count).is_none() || !is_count(count) {
            return Err(EncodeError::BadRun);
        }
        debug_assert_eq!(self.lengths.iter().count(), usize::from(count), "not the lengths of a run");
        Ok([channel.0.into(), id.0, order_field(id, after)?, count.into()])
    }
}

impl<'a> Lengths<'a> {
    /// Iterates over the lengths in bytes.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        core::iter::from_fn(move || u32::try_from(reader.varint().ok()?).ok())
    }
}

/// Returns whether messages of this type can be in runs.
const fn has_runs(message_type: u8) -> bool {
    matches!(
        message_type,
        frame_type::UNRELIABLE
            | frame_type::UNRELIABLE_SEQUENCED
            | frame_type::RELIABLE_UNORDERED
            | frame_type::RELIABLE_ORDERED
    )
}

/// Returns whether one run can have this number of messages.
const fn is_count(count: u16) -> bool {
    0 < count && count <= PACKET_RUN_MESSAGES_MAX
}

/// Reads the number of messages of a run, and subtracts it from the number that the packet may still have.
fn read_count(reader: &mut Reader<'_>, left: &mut u16) -> Result<u16, FrameError> {
    let count = u16::try_from(reader.varint()?).map_err(|_| FrameError::TooManyMessages)?;
    if count == 0 {
        return Err(FrameError::EmptyRun);
    }
    *left = left.checked_sub(count).ok_or(FrameError::TooManyMessages)?;
    Ok(count)
}

/// Returns the id of the last of `count` messages from `id` on, or `None` if it exceeds a `u64`.
fn last_of_run(id: MessageId, count: u16) -> Option<MessageId> {
    id.0.checked_add(count.checked_sub(1)?.into()).map(MessageId)
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

    fn bodies(payloads: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        payloads.iter().for_each(|payload| Bodies::put(payload, &mut bytes));
        bytes
    }

    fn run(delivery: Delivery, bytes: &[u8]) -> Run<'_> {
        let (bodies, longest_bytes) = Bodies::parse(bytes).unwrap();
        Run { channel: ChannelId(7), delivery, bodies, longest_bytes }
    }

    fn unordered(id: u64) -> Delivery {
        Delivery::ReliableUnordered { id: MessageId(id) }
    }

    #[test]
    fn a_run_has_all_its_payloads() {
        let frame = decode_one(&[0xa3, 7, 0xac, 2, 1, 3, 1, 0x61, 0, 3, 0x62, 0x63, 0x64]).unwrap();
        let Frame::Run(run) = frame else { panic!("{frame:?}") };
        let after = Some(MessageId(299));
        assert_eq!(run.delivery, Delivery::ReliableOrdered { id: MessageId(300), after });
        assert_eq!((run.last_id(), run.longest_bytes), (Some(MessageId(302)), 3));
        assert_eq!((run.bodies.count, run.bodies.payload_bytes), (3, 4));
        let mut payloads = run.bodies.payloads();
        assert_eq!((payloads.next(), payloads.rest()), (Some(&b"a"[..]), &[0, 3, 0x62, 0x63, 0x64][..]));
        assert_eq!(payloads.collect::<Vec<_>>(), [&b""[..], b"bcd"]);
    }

    #[test]
    fn the_id_after_a_run_is_that_after_its_last_message() {
        let bytes = [0xa2, 7, 9, 2, 0, 0, 0xb3, 7, 1, 2, 0, 0, 0x93, 7, 1, 0];
        let ids: Vec<_> = Frames::new(&bytes)
            .map(|frame| match frame.unwrap() {
                Frame::Run(run) => run.delivery.id(),
                Frame::Message(message) => message.id(),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, [Some(MessageId(9)), Some(MessageId(11)), Some(MessageId(13))]);
        assert_eq!(decode_one(&[0xb2, 7, 1, 0]), Err(FrameError::BadMessageId));
    }

    #[test]
    fn a_run_has_1_to_512_messages() {
        let run_of = |count: u64| {
            let mut bytes = vec![0xa0, 7];
            varint::put(count, &mut bytes);
            bytes.resize(bytes.len() + usize::try_from(count).unwrap(), 0);
            bytes
        };
        assert_eq!(decode_one(&[0xa0, 7, 0]), Err(FrameError::EmptyRun));
        assert!(decode_one(&run_of(512)).is_ok());
        for count in [513, 70_000] {
            assert_eq!(decode_one(&run_of(count)), Err(FrameError::TooManyMessages));
        }
        // The runs of a packet share the limit.
        let skip = |count: u8| [&[0x0e, 7, 9, 0, count][..], &vec![0; count.into()]].concat();
        for (more, is_allowed) in [(0x7f, true), (0x80, false)] {
            let both = [run_of(385), if more == 0x7f { skip(127) } else { run_of(128) }].concat();
            let last = Frames::new(&both).last().unwrap();
            assert_eq!(last.is_ok(), is_allowed);
            assert!(is_allowed || last == Err(FrameError::TooManyMessages));
        }
    }

    #[test]
    fn all_bodies_must_end_inside_the_packet() {
        assert!(decode_one(&[0xa0, 7, 2, 1, 9, 1, 9]).is_ok());
        for bytes in
            [&[0xa0, 7, 2, 1, 9, 1][..], &[0xa0, 7, 2, 1, 9], &[0xa0, 7, 2, 3, 9], &[0x0e, 7, 9, 0, 2, 5]]
        {
            assert_eq!(decode_one(bytes), Err(FrameError::Truncated), "{bytes:x?}");
        }
        assert_eq!(Bodies::parse(&[1, 9, 2, 9]), Err(FrameError::Truncated));
        assert_eq!(Bodies::parse(&[]), Err(FrameError::EmptyRun));
        assert!(Bodies::parse(&[0; 512]).is_ok());
        assert_eq!(Bodies::parse(&[0; 513]), Err(FrameError::TooManyMessages));
    }

    #[test]
    fn no_message_of_a_run_has_an_id_beyond_the_last() {
        for (byte, tail) in [(0xa2, &[2, 0, 0][..]), (0x0e, &[0, 2, 0, 0])] {
            for (id, is_allowed) in [(u64::MAX - 1, true), (u64::MAX, false)] {
                let mut bytes = vec![byte, 7];
                varint::put(id, &mut bytes);
                bytes.extend(tail);
                let frame = decode_one(&bytes);
                assert_eq!(frame.is_ok(), is_allowed, "{byte:x} {id}");
                assert!(is_allowed || frame == Err(FrameError::BadMessageId));
            }
        }
    }

    #[test]
    fn no_skipped_message_is_longer_than_a_message_can_be() {
        let frame = decode_one(&[0x0e, 7, 9, 1, 2, 5, 0x80, 0x80, 0x80, 8]).unwrap();
        let Frame::SkipRun(skip) = frame else { panic!("{frame:?}") };
        assert_eq!((skip.id, skip.after), (MessageId(9), Some(MessageId(8))));
        assert_eq!(skip.lengths.iter().collect::<Vec<_>>(), [5, MESSAGE_LIMIT_BYTES]);
        assert_eq!(decode_one(&[0x0e, 7, 9, 1, 2, 5, 0x81, 0x80, 0x80, 8]), Err(FrameError::BadSkip));
    }

    #[test]
    fn only_runs_within_the_limits_are_encoded() {
        let (one, most) = (bodies(&[b"x"]), [0; 512]);
        let mut memory = [0; 1_200];
        let mut writer = FrameWriter::new(&mut memory[..]);
        for delivery in [
            Delivery::ReliableSequenced { id: MessageId(1) },
            Delivery::ReliableLatest { key: 1, version: 1 },
        ] {
            assert_eq!(writer.run(&run(delivery, &one)), Err(EncodeError::BadRun));
        }
        assert_eq!(writer.run(&run(unordered(u64::MAX), &most)), Err(EncodeError::BadRun));
        let empty = Bodies { bytes: &[], count: 0, payload_bytes: 0 };
        let no_message = Run { bodies: empty, ..run(unordered(1), &one) };
        assert_eq!(writer.run(&no_message), Err(EncodeError::BadRun));
        let lengths = Lengths { bytes: &[], count: 0 };
        let skip = SkipRun { channel: ChannelId(7), id: MessageId(5), after: None, lengths };
        assert_eq!(writer.skip_run(&skip), Err(EncodeError::BadRun));
        assert_eq!(writer.written_bytes(), 0);
        // The second run would be the 513th message.
        assert_eq!(writer.run_bytes(&run(unordered(300), &most)), Ok(518));
        writer.run(&run(unordered(300), &most)).unwrap();
        assert_eq!(writer.run(&run(unordered(812), &one)), Err(EncodeError::NoRoom { needed_bytes: 5 }));
        let lengths = Lengths { bytes: &[1], count: 1 };
        assert_eq!(
            writer.skip_run(&SkipRun { lengths, ..skip }),
            Err(EncodeError::NoRoom { needed_bytes: 6 })
        );
        assert_eq!(writer.written_bytes(), 518);
    }
    #[test]
    fn bodies_that_are_written_separately_make_the_same_frame() {
        let bytes = bodies(&[b"a", b"", b"bcd"]);
        let whole = run(unordered(300), &bytes);
        let mut memory = [[0; 40]; 2];
        let [first, second] = &mut memory;
        let mut writer = FrameWriter::new(&mut first[..]);
        assert_eq!(writer.run_messages_left(), 512);
        writer.run(&whole).unwrap();
        assert_eq!(writer.run_messages_left(), 509);
        let mut separate = FrameWriter::new(&mut second[..]);
        let too_long = separate.run_with(whole.channel, whole.delivery, 3, 36, |_| unreachable!());
        assert_eq!(too_long, Err(EncodeError::NoRoom { needed_bytes: 41 }));
        separate
            .run_with(whole.channel, whole.delivery, 3, bytes.len(), |out| out.put_slice(&bytes))
            .unwrap();
        assert_eq!(separate.written_bytes(), writer.written_bytes());
        // Both know the last id of the run.
        let next = Message { channel: ChannelId(7), delivery: unordered(303), payload: b"" };
        assert_eq!((separate.message_bytes(&next), writer.message_bytes(&next)), (Ok(3), Ok(3)));
        assert_eq!(memory[0], memory[1]);
    }

    #[test]
    fn a_packet_without_frames_left_has_no_room_for_runs() {
        let mut memory = [0; 100];
        let mut writer = FrameWriter::new(&mut memory[..]);
        (0..39).for_each(|_| writer.ping().unwrap());
        assert_eq!(writer.run_messages_left(), 512);
        writer.ping().unwrap();
        assert_eq!(writer.run_messages_left(), 0);
    }

    #[test]
    fn bodies_are_split_one_by_one() {
        let bytes = bodies(&[b"a", &[7; 200]]);
        let (first, rest) = Bodies::split_first(&bytes).unwrap();
        assert_eq!((first, rest.len()), (&b"a"[..], Bodies::encoded_bytes(200)));
        assert_eq!(Bodies::split_first(rest), Some((&[7; 200][..], &[][..])));
        assert_eq!(Bodies::split_first(&[]), None);
    }
}
