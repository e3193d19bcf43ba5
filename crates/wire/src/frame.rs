//! The frames of an opened packet. A packet is a sequence of frames up to its end.
//!
//! [`Frames`] decodes them and borrows their contents; [`FrameWriter`] encodes them. A packet is decoded without knowledge of
//! other packets. Only the ids of reliable messages refer to each other, within one packet.

mod control;
mod kinds;
mod message;
mod run;
mod writer;

pub use control::{Close, CloseCode, NewConnectionId, PathData, ResumeToken};
pub use kinds::FrameKinds;
pub use message::{ChannelId, Delivery, Fragment, Message, MessageId, Skip};
pub use run::{Bodies, Lengths, Payloads, Run, SkipRun};
pub use writer::FrameWriter;

use core::iter::FusedIterator;

use self::kinds::{frame_type, frame_weight, is_fragment};
use crate::ack::Ack;
use crate::codec::{FrameError, Reader};
use crate::limits::{PACKET_FRAMES_MAX, PACKET_RUN_MESSAGES_MAX};

/// One item of a packet (PROTOCOL 7, "Frames").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Zeros that only increase the length of the packet.
    Padding {
        /// The number of consecutive zeros.
        bytes: usize,
    },
    /// Elicits an ack and has no other effect. Keep-alives are pings.
    Ping,
    /// Elicits an immediate ack, because the sender must not send more without one.
    AckRequest,
    /// Acknowledges the packets that arrived.
    Ack(Ack<'a>),
    /// A message of the application that fits into the packet.
    Message(Message<'a>),
    /// A part of a message.
    Fragment(Fragment<'a>),
    /// Consecutive messages of the application.
    Run(Run<'a>),
    /// Reports that the sender gave up a message.
    Skip(Skip),
    /// Reports that the sender gave up consecutive messages.
    SkipRun(SkipRun<'a>),
    /// The total number of bytes of reliable messages that the peer may send, including charges, since the connection began.
    Credit(u64),
    /// The time on the sender's clock in microseconds.
    Timestamp(u64),
    /// Ends the connection, with the reason.
    Close(Close<'a>),
    /// Asks the receiver to return the data, which validates a path.
    PathChallenge(PathData),
    /// Returns the data of a path challenge.
    PathResponse(PathData),
    /// A spare id for packets to the server.
    NewConnectionId(NewConnectionId),
    /// The sequence number of a connection id that the client will not use again.
    RetireConnectionId(u64),
    /// A token with which the client can connect again.
    ResumeToken(ResumeToken<'a>),
}

impl Frame<'_> {
    /// Returns the kind of the frame as a set of one.
    #[must_use]
    pub const fn kind(&self) -> FrameKinds {
        match self {
            Self::Padding { .. } => FrameKinds::PADDING,
            Self::Ping => FrameKinds::PING,
            Self::AckRequest => FrameKinds::ACK_REQUEST,
            Self::Ack(_) => FrameKinds::ACK,
            Self::Message(_) | Self::Run(_) => FrameKinds::MESSAGE,
            Self::Fragment(_) => FrameKinds::FRAGMENT,
            Self::Skip(_) | Self::SkipRun(_) => FrameKinds::SKIP,
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

    /// Returns whether a packet with this frame must be acknowledged (RFC 9002 section 2).
    pub fn is_ack_eliciting(&self) -> bool {
        match self {
            Self::Ping
            | Self::AckRequest
            | Self::Message(_)
            | Self::Fragment(_)
            | Self::Run(_)
            | Self::Credit(_)
            | Self::Skip(_)
            | Self::SkipRun(_)
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

/// An iterator over the frames of an opened packet, which ends after the first error.
///
/// A packet with an error must be dropped as a whole. A caller that acts on each frame immediately iterates over a clone first,
/// or closes the connection if an error follows.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    reader: Reader<'a>,
    /// The id of the previous reliable message in this packet. The next message may omit its id if it is the successor.
    last_id: Option<MessageId>,
    /// The number of frames that the packet may still have, where a fragment counts as two.
    frames_left: u8,
    /// The number of messages that the runs of the packet may still have.
    run_messages_left: u16,
}

impl<'a> Frames<'a> {
    /// Creates an iterator over the frames in the opened bytes of one packet, without header and tag.
    pub fn new(opened: &'a [u8]) -> Self {
        Self {
            reader: Reader::new(opened),
            last_id: None,
            frames_left: PACKET_FRAMES_MAX,
            run_messages_left: PACKET_RUN_MESSAGES_MAX,
        }
    }

    fn decode_next(&mut self, byte: u8) -> Result<Frame<'a>, FrameError> {
        let weight = frame_weight(is_fragment(byte));
        self.frames_left = self.frames_left.checked_sub(weight).ok_or(FrameError::TooManyFrames)?;
        match byte {
            frame_type::PADDING => Ok(self.padding()),
            frame_type::PING => Ok(Frame::Ping),
            frame_type::ACK_REQUEST => Ok(Frame::AckRequest),
            frame_type::ACK => Ack::decode(&mut self.reader).map(Frame::Ack),
            frame_type::PATH_CHALLENGE => PathData::decode(&mut self.reader).map(Frame::PathChallenge),
            frame_type::PATH_RESPONSE => PathData::decode(&mut self.reader).map(Frame::PathResponse),
            frame_type::NEW_CONNECTION_ID => {
                NewConnectionId::decode(&mut self.reader).map(Frame::NewConnectionId)
            }
            frame_type::RETIRE_CONNECTION_ID => Ok(Frame::RetireConnectionId(self.reader.varint()?)),
            frame_type::RESUME_TOKEN => ResumeToken::decode(&mut self.reader).map(Frame::ResumeToken),
            frame_type::CLOSE => Close::decode(&mut self.reader).map(Frame::Close),
            frame_type::SKIP => Skip::decode(&mut self.reader).map(Frame::Skip),
            frame_type::CREDIT => Ok(Frame::Credit(self.reader.varint()?)),
            frame_type::TIMESTAMP => Ok(Frame::Timestamp(self.reader.varint()?)),
            frame_type::SKIP_RUN => {
                SkipRun::decode(&mut self.reader, &mut self.run_messages_left).map(Frame::SkipRun)
            }
            _ => match byte & (frame_type::FRAGMENT | frame_type::RUN) {
                0 => Message::decode(byte, &mut self.reader, &mut self.last_id).map(Frame::Message),
                frame_type::FRAGMENT => {
                    Fragment::decode(byte, &mut self.reader, &mut self.last_id).map(Frame::Fragment)
                }
                frame_type::RUN => {
                    let (last_id, left) = (&mut self.last_id, &mut self.run_messages_left);
                    Run::decode(byte, &mut self.reader, last_id, left).map(Frame::Run)
                }
                _ => Err(FrameError::UnknownFrame),
            },
        }
    }

    /// Consumes the rest of a run of padding whose first byte was read.
    fn padding(&mut self) -> Frame<'a> {
        let rest = self.reader.rest();
        let more_bytes = rest.iter().position(|&byte| byte != frame_type::PADDING).unwrap_or(rest.len());
        self.reader = Reader::new(rest.get(more_bytes..).unwrap_or_default());
        Frame::Padding { bytes: more_bytes.saturating_add(1) }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let byte = self.reader.u8()?;
        let frame = self.decode_next(byte);
        if frame.is_err() {
            // The end of an invalid frame is unknown, so nothing after it can be decoded.
            self.reader = Reader::new(&[]);
        }
        Some(frame)
    }
}

impl FusedIterator for Frames<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::EncodeError;

    fn frames(bytes: &[u8]) -> Vec<Result<Frame<'_>, FrameError>> {
        Frames::new(bytes).collect()
    }

    #[test]
    fn a_run_of_padding_is_one_frame() {
        assert_eq!(frames(&[0, 0, 0]), [Ok(Frame::Padding { bytes: 3 })]);
        let expected = [Ok(Frame::Padding { bytes: 1 }), Ok(Frame::Ping), Ok(Frame::Padding { bytes: 2 })];
        assert_eq!(frames(&[0, 1, 0, 0]), expected);
        assert!(frames(&[]).is_empty());
    }

    #[test]
    fn a_packet_has_at_most_40_frames() {
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
        let encoded = [0x8a, 0, 0, 9, 0, 1, 7];
        assert!(frames(&encoded.repeat(20)).iter().all(Result::is_ok));
        assert_eq!(frames(&encoded.repeat(21)).last(), Some(&Err(FrameError::TooManyFrames)));
        let delivery = Delivery::ReliableUnordered { id: MessageId(0) };
        let message = Message { channel: ChannelId(0), delivery, payload: &[7] };
        let fragment = Fragment { message, number: 0, total_bytes: 9, offset_bytes: 0 };
        let mut memory = [0; 400];
        let mut writer = FrameWriter::new(&mut memory[..]);
        for _ in 0..20 {
            writer.fragment(&fragment).unwrap();
        }
        assert_eq!(writer.fragment(&fragment), Err(EncodeError::NoRoom { needed_bytes: 7 }));
    }

    #[test]
    fn every_unknown_frame_type_is_an_error() {
        let known = [
            0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x80, 0x81,
            0x82, 0x83, 0x84, 0x85, 0x92, 0x93, 0x94, 0x88, 0x89, 0x8a, 0x8b, 0x8c, 0x9a, 0x9b, 0x9c, 0xa0,
            0xa1, 0xa2, 0xa3, 0xb2, 0xb3,
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
    fn acks_padding_and_close_are_not_ack_eliciting() {
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
