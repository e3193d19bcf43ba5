//! Frames: what a packet holds once it was opened, one after the other to its end.
//!
//! [`Frames`] walks over them and borrows everything; [`FrameWriter`] fills a packet. Deliberately without
//! memory of other packets: only the ids of reliable messages lean on each other, inside one packet.

mod close;
mod control;
mod error;
mod fragment;
mod kinds;
mod message;
mod type_byte;
mod writer;

pub use close::{Close, CloseCode};
pub use control::{NewConnectionId, PathData, ResumeToken};
pub use error::FrameError;
pub use fragment::Fragment;
pub use kinds::FrameKinds;
pub use message::{ChannelId, Delivery, Message, MessageId, Skip};
pub use writer::FrameWriter;

use core::iter::FusedIterator;

use crate::ack::Ack;
use crate::limits::PACKET_FRAMES_MAX;
use crate::reader::Reader;

/// One item of a packet (PROTOCOL 7, "Frames").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Zeros that only make the packet longer.
    Padding {
        /// How many there are in a row.
        bytes: usize,
    },
    /// Asks for an ack and nothing else: keep-alives and probes.
    Ping,
    /// Asks for an ack at once: the sender may send no more without one.
    AckRequest,
    /// Says which packets arrived.
    Ack(Ack<'a>),
    /// A whole message of the application.
    Message(Message<'a>),
    /// A piece of a message.
    Fragment(Fragment<'a>),
    /// Says that a message will not come.
    Skip(Skip),
    /// How many bytes of reliable messages, with their charges, the peer may have sent in all.
    Credit(u64),
    /// What the sender's clock showed, in microseconds.
    Timestamp(u64),
    /// Ends the connection.
    Close(Close<'a>),
    /// Asks whoever reads it to give the data back.
    PathChallenge(PathData),
    /// Gives it back.
    PathResponse(PathData),
    /// One more id for packets to the server.
    NewConnectionId(NewConnectionId),
    /// The client will not use the id with this sequence number any more.
    RetireConnectionId(u64),
    /// What the client needs to come back.
    ResumeToken(ResumeToken<'a>),
}

impl Frame<'_> {
    /// Its kind, for a record.
    #[must_use]
    pub const fn kind(&self) -> FrameKinds {
        match self {
            Self::Padding { .. } => FrameKinds::PADDING,
            Self::Ping => FrameKinds::PING,
            Self::AckRequest => FrameKinds::ACK_REQUEST,
            Self::Ack(_) => FrameKinds::ACK,
            Self::Message(_) => FrameKinds::MESSAGE,
            Self::Fragment(_) => FrameKinds::FRAGMENT,
            Self::Skip(_) => FrameKinds::SKIP,
            Self::Credit(_) => FrameKinds::CREDIT,
            Self::Timestamp(_) => FrameKinds::TIMESTAMP,
            Self::Close(_) => FrameKinds::CLOSE,
            Self::PathChallenge(_) => FrameKinds::PATH_CHALLENGE,
            Self::PathResponse(_) => FrameKinds::PATH_RESPONSE,
            Self::NewConnectionId(_) => FrameKinds::NEW_CONNECTION_ID,
            Self::RetireConnectionId(_) => FrameKinds::RETIRE_CONNECTION_ID,
            Self::ResumeToken(_) => FrameKinds::RESUME_TOKEN,
        }
    }

    /// Whether a packet with this frame must be acknowledged.
    pub fn is_ack_eliciting(&self) -> bool {
        match self {
            Self::Ping
            | Self::AckRequest
            | Self::Message(_)
            | Self::Fragment(_)
            | Self::Credit(_)
            | Self::Skip(_)
            | Self::NewConnectionId(_)
            | Self::RetireConnectionId(_)
            | Self::ResumeToken(_) => true,
            Self::Padding { .. }
            | Self::Ack(_)
            | Self::Close(_)
            | Self::Timestamp(_)
            | Self::PathChallenge(_)
            | Self::PathResponse(_) => false,
        }
    }
}

/// Walks over the frames of an opened packet and stops at the first error.
///
/// A packet with an error is dropped as a whole: a caller that acts on frames one by one walks over them once
/// before, on a clone, or is ready to close the connection in the middle.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    reader: Reader<'a>,
    /// The id of the last reliable message in this packet, from which the next may be counted.
    last_id: Option<MessageId>,
    /// How many more frames the packet may have.
    left: u8,
}

impl<'a> Frames<'a> {
    /// The frames in the opened bytes of one packet, without header and tag.
    pub fn new(opened: &'a [u8]) -> Self {
        Self { reader: Reader::new(opened), last_id: None, left: PACKET_FRAMES_MAX }
    }

    fn decode_next(&mut self, byte: u8) -> Result<Frame<'a>, FrameError> {
        let weight = frame_weight(is_fragment(byte));
        self.left = self.left.checked_sub(weight).ok_or(FrameError::TooManyFrames)?;
        match byte {
            type_byte::PADDING => Ok(self.padding()),
            type_byte::PING => Ok(Frame::Ping),
            type_byte::ACK_REQUEST => Ok(Frame::AckRequest),
            type_byte::ACK => Ack::decode(&mut self.reader).map(Frame::Ack),
            type_byte::PATH_CHALLENGE => PathData::decode(&mut self.reader).map(Frame::PathChallenge),
            type_byte::PATH_RESPONSE => PathData::decode(&mut self.reader).map(Frame::PathResponse),
            type_byte::NEW_CONNECTION_ID => {
                NewConnectionId::decode(&mut self.reader).map(Frame::NewConnectionId)
            }
            type_byte::RETIRE_CONNECTION_ID => Ok(Frame::RetireConnectionId(self.reader.varint()?)),
            type_byte::RESUME_TOKEN => ResumeToken::decode(&mut self.reader).map(Frame::ResumeToken),
            type_byte::CLOSE => Close::decode(&mut self.reader).map(Frame::Close),
            type_byte::SKIP => Skip::decode(&mut self.reader).map(Frame::Skip),
            type_byte::CREDIT => Ok(Frame::Credit(self.reader.varint()?)),
            type_byte::TIMESTAMP => Ok(Frame::Timestamp(self.reader.varint()?)),
            _ if is_fragment(byte) => {
                Fragment::decode(byte, &mut self.reader, &mut self.last_id).map(Frame::Fragment)
            }
            _ => Message::decode(byte, &mut self.reader, &mut self.last_id).map(Frame::Message),
        }
    }

    /// The rest of a run of padding whose first byte was read.
    fn padding(&mut self) -> Frame<'a> {
        let rest = self.reader.rest();
        let more = rest.iter().position(|&byte| byte != type_byte::PADDING).unwrap_or(rest.len());
        self.reader = Reader::new(rest.get(more..).unwrap_or_default());
        Frame::Padding { bytes: more.saturating_add(1) }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let byte = self.reader.u8()?;
        let frame = self.decode_next(byte);
        if frame.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(frame)
    }
}

impl FusedIterator for Frames<'_> {}

const fn is_fragment(byte: u8) -> bool {
    byte & type_byte::FRAGMENT != 0 && byte & type_byte::MESSAGE != 0
}

/// How much of [`PACKET_FRAMES_MAX`] a frame takes: a piece costs its receiver twice what another frame does.
const fn frame_weight(is_fragment: bool) -> u8 {
    if is_fragment { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode_error::EncodeError;

    fn frames(bytes: &[u8]) -> Vec<Result<Frame<'_>, FrameError>> {
        Frames::new(bytes).collect()
    }

    #[test]
    fn a_run_of_padding_is_one_frame() {
        assert_eq!(frames(&[0, 0, 0]), [Ok(Frame::Padding { bytes: 3 })]);
        let wanted = [Ok(Frame::Padding { bytes: 1 }), Ok(Frame::Ping), Ok(Frame::Padding { bytes: 2 })];
        assert_eq!(frames(&[0, 1, 0, 0]), wanted);
        assert!(frames(&[]).is_empty());
    }

    #[test]
    fn a_packet_has_40_frames_at_most_and_a_run_of_padding_is_one() {
        let pings = |count: usize| [1_u8, 0].repeat(count / 2);
        assert!(frames(&pings(40)).iter().all(Result::is_ok));
        let bytes = pings(42);
        let too_many = frames(&bytes);
        assert_eq!((too_many.len(), too_many.last()), (41, Some(&Err(FrameError::TooManyFrames))));
        let mut memory = [0; 200];
        let mut writer = FrameWriter::new(&mut memory[..]);
        for _ in 0..40 {
            writer.ping().unwrap();
        }
        assert_eq!(writer.ping(), Err(EncodeError::NoRoom { needed_bytes: 1 }));
        assert_eq!((writer.padding(0), writer.written_bytes()), (Ok(()), 40));
    }

    #[test]
    fn a_fragment_counts_as_two_frames() {
        let piece = [0x8a, 0, 0, 9, 0, 1, 7];
        assert!(frames(&piece.repeat(20)).iter().all(Result::is_ok));
        assert_eq!(frames(&piece.repeat(21)).last(), Some(&Err(FrameError::TooManyFrames)));
        let delivery = Delivery::ReliableUnordered { id: MessageId(0) };
        let piece = Message { channel: ChannelId(0), delivery, payload: &[7] };
        let fragment = Fragment { piece, number: 0, total_bytes: 9, offset_bytes: 0 };
        let mut memory = [0; 400];
        let mut writer = FrameWriter::new(&mut memory[..]);
        for _ in 0..20 {
            writer.fragment(&fragment).unwrap();
        }
        assert_eq!(writer.fragment(&fragment), Err(EncodeError::NoRoom { needed_bytes: 7 }));
    }

    #[test]
    fn every_type_this_version_does_not_know_is_an_error() {
        let known = [
            0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x80, 0x81, 0x82,
            0x83, 0x84, 0x85, 0x92, 0x93, 0x94, 0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x9a, 0x9b, 0x9c,
        ];
        for byte in 0..=u8::MAX {
            let is_unknown = frames(&[byte, 0, 0, 0, 0, 0]).contains(&Err(FrameError::UnknownFrame));
            assert_eq!(is_unknown, !known.contains(&byte), "{byte:#x}");
        }
    }

    #[test]
    fn nothing_follows_an_error() {
        let mut walk = Frames::new(&[0x01, 0x7f, 0x01, 0x01]);
        assert_eq!(walk.next(), Some(Ok(Frame::Ping)));
        assert_eq!(walk.next(), Some(Err(FrameError::UnknownFrame)));
        assert_eq!((walk.next(), walk.next()), (None, None));
    }

    #[test]
    fn acks_padding_and_close_ask_for_no_ack() {
        let bytes = [&[0x00][..], &[0x02, 5, 0, 0, 0], &[0x03, 0, 0, 0]].concat();
        let found = frames(&bytes);
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|frame| !frame.unwrap().is_ack_eliciting()));
        let bytes = [&[0x01, 0x0c][..], &[0x80, 0, 0], &[0x83, 0, 9, 0, 0]].concat();
        let found = frames(&bytes);
        assert_eq!(found.len(), 4);
        assert!(found.iter().all(|frame| frame.unwrap().is_ack_eliciting()));
    }
}
