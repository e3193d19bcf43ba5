//! A drawn frame, which a test writes into a packet. It owns its fields, so that a failure can print them.

use std::time::Duration;

use drumfire_wire::{
    AckDelay, AckRange, Bodies, ChannelId, Close, CloseCode, ConnectionId, Delivery, EncodeError, Fragment,
    FrameWriter, Lengths, Message, MessageId, NewConnectionId, PacketNumber, PathData, ResumeToken, Run,
    Skip, SkipRun, varint,
};
use strum::{IntoStaticStr, VariantNames};

/// The payload of every drawn message is a part of this.
static PAYLOAD: [u8; 1_472] = [0x5a; 1_472];

/// One frame with its fields. Payloads are given by their length alone.
#[derive(Clone, Debug, PartialEq, Eq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum DrawnFrame {
    /// A run of zeros.
    Padding {
        /// The length of the run.
        bytes: usize,
    },
    /// A ping.
    Ping,
    /// A request for an ack.
    AckRequest,
    /// An ack.
    Ack {
        /// The delay that the ack claims.
        delay: Duration,
        /// The packets that the ack claims, newest first.
        ranges: Vec<AckRange>,
    },
    /// A whole message.
    Message {
        /// The channel.
        channel: ChannelId,
        /// The mode, with the id, the key, or the order.
        delivery: Delivery,
        /// The length of the payload.
        bytes: usize,
    },
    /// A fragment of a message.
    Fragment {
        /// The channel.
        channel: ChannelId,
        /// The mode, with the id or the order.
        delivery: Delivery,
        /// The packet number that names an unreliable message.
        number: u64,
        /// The length of the whole message.
        total: u32,
        /// The offset of the fragment.
        offset: u32,
        /// The length of the fragment.
        bytes: usize,
    },
    /// A run of messages of equal length.
    Run {
        /// The channel.
        channel: ChannelId,
        /// The mode, with the id and the order of the first message.
        delivery: Delivery,
        /// The number of messages.
        count: u16,
        /// The length of each payload.
        bytes: usize,
    },
    /// A notice that a message will not be sent.
    Skip(Skip),
    /// A notice that consecutive messages will not be sent.
    SkipRun {
        /// The Skip of the first message. All messages have its length.
        first: Skip,
        /// The number of messages.
        count: u16,
    },
    /// Credit for the server.
    Credit(u64),
    /// The clock of the client.
    Timestamp(u64),
    /// The end of the connection.
    Close {
        /// The length of the reason.
        reason_bytes: usize,
    },
    /// A path challenge.
    PathChallenge(u64),
    /// The answer to a path challenge.
    PathResponse(u64),
    /// A frame that only a server may send.
    NewConnectionId(u64),
    /// The retirement of a connection id.
    RetireConnectionId(u64),
    /// A frame that only a server may send.
    ResumeToken,
}

impl DrawnFrame {
    /// The names of all kinds.
    pub const KINDS: &[&str] = <Self as VariantNames>::VARIANTS;

    /// Returns the name of the frame's kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.into()
    }

    /// Returns the id of the first reliable message that the frame is about.
    #[must_use]
    pub fn id(&self) -> Option<MessageId> {
        match self {
            Self::Message { delivery, .. } | Self::Fragment { delivery, .. } | Self::Run { delivery, .. } => {
                delivery.id()
            }
            Self::Skip(skip) | Self::SkipRun { first: skip, .. } => Some(skip.id),
            _ => None,
        }
    }

    /// Returns the ids of all reliable messages that the frame is about.
    pub fn ids(&self) -> impl Iterator<Item = u64> + use<> {
        let count = match *self {
            Self::Run { count, .. } | Self::SkipRun { count, .. } => count,
            _ => 1,
        };
        let ids = self.id().map(|first| first.0..first.0.saturating_add(count.into()));
        ids.into_iter().flatten()
    }

    /// Writes the frame.
    ///
    /// # Errors
    ///
    /// The error of the [`FrameWriter`]; nothing is written then.
    pub fn write(&self, writer: &mut FrameWriter<&mut [u8]>) -> Result<(), EncodeError> {
        match self {
            Self::Padding { bytes } => writer.padding(*bytes),
            Self::Ping => writer.ping(),
            Self::AckRequest => writer.ack_request(),
            Self::Ack { delay, ranges } => {
                writer.ack(AckDelay::from_duration(*delay), ranges.iter().copied())
            }
            Self::Message { channel, delivery, bytes } => {
                writer.message(&message(*channel, *delivery, *bytes))
            }
            Self::Fragment { channel, delivery, number, total, offset, bytes } => {
                writer.fragment(&Fragment {
                    message: message(*channel, *delivery, *bytes),
                    number: *number,
                    total_bytes: *total,
                    offset_bytes: *offset,
                })
            }
            Self::Run { channel, delivery, count, bytes } => {
                let mut encoded = Vec::new();
                (0..*count).for_each(|_| Bodies::put(payload(*bytes), &mut encoded));
                let (bodies, longest_bytes) = Bodies::parse(&encoded).map_err(|_| EncodeError::BadRun)?;
                writer.run(&Run { channel: *channel, delivery: *delivery, bodies, longest_bytes })
            }
            Self::Skip(skip) => writer.skip(skip),
            Self::SkipRun { first: Skip { channel, id, after, bytes }, count } => {
                let mut encoded = Vec::new();
                for _ in 0..*count {
                    varint::encode((*bytes).into(), &mut encoded)?;
                }
                let lengths = Lengths { bytes: &encoded, count: *count };
                writer.skip_run(&SkipRun { channel: *channel, id: *id, after: *after, lengths })
            }
            Self::Credit(edge) => writer.credit(*edge),
            Self::Timestamp(micros) => writer.timestamp(*micros),
            Self::Close { reason_bytes } => writer.close(&Close {
                code: CloseCode::Application,
                application_code: 7,
                reason: &PAYLOAD[..*reason_bytes],
            }),
            Self::PathChallenge(data) => writer.path_challenge(PathData(data.to_be_bytes())),
            Self::PathResponse(data) => writer.path_response(PathData(data.to_be_bytes())),
            Self::NewConnectionId(sequence) => writer.new_connection_id(&NewConnectionId {
                sequence: *sequence,
                id: ConnectionId::from_bytes([3; 8]),
                reset_token: [4; 16],
            }),
            Self::RetireConnectionId(sequence) => writer.retire_connection_id(*sequence),
            Self::ResumeToken => {
                writer.resume_token(&ResumeToken { lifetime_seconds: 600, psk: &[5; 32], sealed: &[6; 512] })
            }
        }
    }
}

/// Returns the bytes that `encode` writes into a vector, which always has room.
///
/// # Panics
///
/// Panics if `encode` fails for another reason.
pub fn encoded(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes).expect("a vector has room");
    bytes
}

/// Returns the range of these packet numbers, in either order.
pub(crate) fn range(one: u64, other: u64) -> AckRange {
    let (smallest, largest) = (PacketNumber(one.min(other)), PacketNumber(one.max(other)));
    AckRange::new(smallest, largest).expect("in order")
}

fn message(channel: ChannelId, delivery: Delivery, bytes: usize) -> Message<'static> {
    Message { channel, delivery, payload: payload(bytes) }
}

fn payload(bytes: usize) -> &'static [u8] {
    &PAYLOAD[..bytes.min(PAYLOAD.len())]
}
