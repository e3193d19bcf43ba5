//! Frames that own their bytes, and packets of such frames, for tests and fuzz targets to encode and compare.

use drumfire_wire::{
    AckDelay, AckRange, Bodies, ChannelId, Close, CloseCode, ConnectionId, Delivery, EncodeError, Fragment,
    Frame, FrameError, FrameWriter, Frames, Lengths, Message, MessageId, NewConnectionId, PacketNumber,
    PathData, ResumeToken, Run, Skip, SkipRun, varint,
};
use std::time::Duration;

/// A frame that owns its bytes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sample {
    Padding(usize),
    Ping,
    AckRequest,
    Ack {
        delay_us: u64,
        ranges: Vec<(u64, u64)>,
    },
    Message {
        channel: u16,
        delivery: Delivery,
        payload: Vec<u8>,
    },
    Close {
        code: u8,
        application_code: u32,
        reason: Vec<u8>,
    },
    Fragment {
        channel: u16,
        delivery: Delivery,
        number: u64,
        total_bytes: u32,
        offset_bytes: u32,
        payload: Vec<u8>,
    },
    Run {
        channel: u16,
        delivery: Delivery,
        payloads: Vec<Vec<u8>>,
    },
    Skip(Skip),
    SkipRun {
        channel: u16,
        id: u64,
        after: Option<u64>,
        lengths: Vec<u32>,
    },
    Credit(u64),
    Timestamp(u64),
    PathChallenge([u8; 8]),
    PathResponse([u8; 8]),
    NewConnectionId {
        sequence: u64,
        id: [u8; 8],
        reset_token: [u8; 16],
    },
    RetireConnectionId(u64),
    ResumeToken {
        lifetime_seconds: u16,
        psk: [u8; 32],
        sealed: Vec<u8>,
    },
}

impl Sample {
    pub(crate) fn write(&self, writer: &mut FrameWriter<&mut [u8]>) -> Result<(), EncodeError> {
        match self {
            Self::Padding(bytes) => writer.padding(*bytes),
            Self::Ping => writer.ping(),
            Self::AckRequest => writer.ack_request(),
            Self::Ack { delay_us, ranges } => {
                let range = |&(low, high)| AckRange::new(PacketNumber(low), PacketNumber(high)).unwrap();
                writer
                    .ack(AckDelay::from_duration(Duration::from_micros(*delay_us)), ranges.iter().map(range))
            }
            Self::Message { channel, delivery, payload } => {
                writer.message(&Message { channel: ChannelId(*channel), delivery: *delivery, payload })
            }
            Self::Fragment { channel, delivery, number, total_bytes, offset_bytes, payload } => {
                let message = Message { channel: ChannelId(*channel), delivery: *delivery, payload };
                let (number, total_bytes, offset_bytes) = (*number, *total_bytes, *offset_bytes);
                writer.fragment(&Fragment { message, number, total_bytes, offset_bytes })
            }
            Self::Run { channel, delivery, payloads } => {
                let mut bytes = Vec::new();
                payloads.iter().for_each(|payload| Bodies::put(payload, &mut bytes));
                let (bodies, longest_bytes) = Bodies::parse(&bytes).unwrap();
                writer.run(&Run { channel: ChannelId(*channel), delivery: *delivery, bodies, longest_bytes })
            }
            Self::Skip(skip) => writer.skip(skip),
            Self::SkipRun { channel, id, after, lengths } => {
                let mut bytes = Vec::new();
                lengths.iter().for_each(|length| varint::encode((*length).into(), &mut bytes).unwrap());
                let lengths = Lengths { bytes: &bytes, count: u16::try_from(lengths.len()).unwrap() };
                let (channel, id) = (ChannelId(*channel), MessageId(*id));
                writer.skip_run(&SkipRun { channel, id, after: after.map(MessageId), lengths })
            }
            Self::Credit(bytes) => writer.credit(*bytes),
            Self::Timestamp(microseconds) => writer.timestamp(*microseconds),
            Self::PathChallenge(data) => writer.path_challenge(PathData(*data)),
            Self::PathResponse(data) => writer.path_response(PathData(*data)),
            Self::NewConnectionId { sequence, id, reset_token } => {
                writer.new_connection_id(&NewConnectionId {
                    sequence: *sequence,
                    id: ConnectionId::from_bytes(*id),
                    reset_token: *reset_token,
                })
            }
            Self::RetireConnectionId(sequence) => writer.retire_connection_id(*sequence),
            Self::ResumeToken { lifetime_seconds, psk, sealed } => writer.resume_token(&ResumeToken {
                lifetime_seconds: *lifetime_seconds,
                psk,
                sealed: sealed[..].try_into().unwrap(),
            }),
            Self::Close { code, application_code, reason } => writer.close(&Close {
                code: CloseCode::from_byte(*code).unwrap(),
                application_code: *application_code,
                reason,
            }),
        }
    }

    pub(crate) fn of(frame: Frame<'_>) -> Self {
        match frame {
            Frame::Padding { bytes } => Self::Padding(bytes),
            Frame::Ping => Self::Ping,
            Frame::AckRequest => Self::AckRequest,
            Frame::Ack(ack) => Self::Ack {
                delay_us: u64::try_from(ack.delay.to_duration().as_micros()).unwrap(),
                ranges: ack.ranges.iter().map(|range| (range.smallest().0, range.largest().0)).collect(),
            },
            Frame::Message(message) => Self::Message {
                channel: message.channel.0,
                delivery: message.delivery,
                payload: message.payload.to_vec(),
            },
            Frame::Fragment(Fragment { message, number, total_bytes, offset_bytes }) => Self::Fragment {
                channel: message.channel.0,
                delivery: message.delivery,
                number,
                total_bytes,
                offset_bytes,
                payload: message.payload.to_vec(),
            },
            Frame::Run(run) => Self::Run {
                channel: run.channel.0,
                delivery: run.delivery,
                payloads: run.bodies.payloads().map(<[u8]>::to_vec).collect(),
            },
            Frame::Skip(skip) => Self::Skip(skip),
            Frame::SkipRun(skip) => Self::SkipRun {
                channel: skip.channel.0,
                id: skip.id.0,
                after: skip.after.map(|after| after.0),
                lengths: skip.lengths.iter().collect(),
            },
            Frame::Credit(bytes) => Self::Credit(bytes),
            Frame::Timestamp(microseconds) => Self::Timestamp(microseconds),
            Frame::PathChallenge(data) => Self::PathChallenge(data.0),
            Frame::PathResponse(data) => Self::PathResponse(data.0),
            Frame::NewConnectionId(new) => Self::NewConnectionId {
                sequence: new.sequence,
                id: new.id.to_bytes(),
                reset_token: new.reset_token,
            },
            Frame::RetireConnectionId(sequence) => Self::RetireConnectionId(sequence),
            Frame::ResumeToken(token) => Self::ResumeToken {
                lifetime_seconds: token.lifetime_seconds,
                psk: *token.psk,
                sealed: token.sealed.to_vec(),
            },
            Frame::Close(close) => Self::Close {
                code: close.code.to_byte(),
                application_code: close.application_code,
                reason: close.reason.to_vec(),
            },
        }
    }
}

/// Returns the opened bytes of a packet with these frames. Panics if they cannot be encoded.
pub(crate) fn packet(samples: &[Sample]) -> Vec<u8> {
    let mut buffer = vec![0xaa; 65_507];
    let mut writer = FrameWriter::new(&mut buffer[..]);
    for sample in samples {
        sample.write(&mut writer).unwrap();
    }
    let bytes = writer.written_bytes();
    buffer.truncate(bytes);
    buffer
}

/// Returns the frames of a packet up to its end or its first error.
pub(crate) fn walk(opened: &[u8]) -> (Vec<Sample>, Option<FrameError>) {
    let mut samples = Vec::new();
    for frame in Frames::new(opened) {
        match frame {
            Ok(frame) => samples.push(Sample::of(frame)),
            Err(error) => return (samples, Some(error)),
        }
    }
    (samples, None)
}

/// Joins runs of padding as decoding does.
pub(crate) fn with_joined_padding(samples: Vec<Sample>) -> Vec<Sample> {
    let mut joined: Vec<Sample> = Vec::new();
    for sample in samples {
        match (joined.last_mut(), &sample) {
            (Some(Sample::Padding(before)), Sample::Padding(more)) => *before += more,
            _ => joined.push(sample),
        }
    }
    joined
}

/// Returns the mode "reliable ordered" with this id and predecessor, or "unreliable" for `None`.
pub(crate) fn ordered(order: Option<(u64, Option<u64>)>) -> Delivery {
    order.map_or(Delivery::Unreliable, |(id, after)| Delivery::ReliableOrdered {
        id: MessageId(id),
        after: after.map(MessageId),
    })
}
