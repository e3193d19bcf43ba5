//! The names of errors in counters, and their texts in logs. Which bytes cause which error is tested with each decoder.

use std::collections::BTreeSet;
use std::fmt::Display;

use drumfire_wire::{
    DatagramError, EncodeError, FrameError, SteeringError, Welcome, limits, varint::VarintError,
};

const VARINT: [VarintError; 3] = [VarintError::Truncated, VarintError::Overlong, VarintError::TooLarge];

const ENCODE: [EncodeError; 8] = [
    EncodeError::NoRoom { needed_bytes: 1_234 },
    EncodeError::NoRanges,
    EncodeError::RangesOutOfOrder,
    EncodeError::ReasonTooLong,
    EncodeError::OrderNotBefore,
    EncodeError::BadFragment,
    EncodeError::BadRun,
    EncodeError::NoiseMessageLength,
];

const FRAME: [FrameError; 15] = [
    FrameError::Truncated,
    FrameError::BadVarint,
    FrameError::UnknownFrame,
    FrameError::BadChannel,
    FrameError::BadMessageId,
    FrameError::BadOrder,
    FrameError::BadFragment,
    FrameError::BadSkip,
    FrameError::TooManyAckRanges,
    FrameError::BadAckRange,
    FrameError::BadAckDelay,
    FrameError::BadClose,
    FrameError::TooManyFrames,
    FrameError::EmptyRun,
    FrameError::TooManyMessages,
];

const DATAGRAM: [DatagramError; 6] = [
    DatagramError::Empty,
    DatagramError::FixedBits,
    DatagramError::UnknownKind,
    DatagramError::WrongKind,
    DatagramError::WrongLength,
    DatagramError::PacketNumberLength,
];

const STEERING: [SteeringError; 3] =
    [SteeringError::TooManySockets, SteeringError::NoSuchSocket, SteeringError::BadEntropy];

fn assert_distinct<E: Display + Copy>(errors: &[E], name: impl Fn(E) -> &'static str) {
    let names: BTreeSet<_> = errors.iter().map(|error| name(*error)).collect();
    let texts: BTreeSet<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!((names.len(), texts.len()), (errors.len(), errors.len()), "{names:?}, {texts:?}");
    let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    assert!(names.iter().all(is_name), "{names:?}");
    assert!(texts.iter().all(|text| text.lines().count() == 1 && text.contains(' ')), "{texts:?}");
}

#[test]
fn every_error_has_its_own_name_and_its_own_line_of_text() {
    assert_distinct(&VARINT, VarintError::name);
    assert_distinct(&ENCODE, EncodeError::name);
    assert_distinct(&FRAME, FrameError::name);
    assert_distinct(&DATAGRAM, DatagramError::name);
    assert_distinct(&STEERING, SteeringError::name);
}

#[test]
fn error_texts_name_the_limits_of_the_code() {
    let noise = (limits::NOISE_MESSAGE_2_MIN_BYTES, Welcome::NOISE_MESSAGE_MAX_BYTES);
    let largest_channel = limits::CHANNELS - 1;
    let sockets = limits::STEERING_SOCKETS_MAX;
    for (text, bound) in [
        (ENCODE[0].to_string(), "1234 bytes".to_owned()),
        (EncodeError::ReasonTooLong.to_string(), format!("{} bytes", limits::CLOSE_REASON_MAX_BYTES)),
        (EncodeError::NoiseMessageLength.to_string(), format!("{} to {} bytes", noise.0, noise.1)),
        (EncodeError::BadRun.to_string(), format!("{} messages", limits::PACKET_RUN_MESSAGES_MAX)),
        (FrameError::TooManyMessages.to_string(), format!("{} messages", limits::PACKET_RUN_MESSAGES_MAX)),
        (FrameError::BadChannel.to_string(), largest_channel.to_string()),
        (FrameError::TooManyAckRanges.to_string(), format!("{} ranges", limits::ACK_RANGES_SENT)),
        (SteeringError::TooManySockets.to_string(), format!("{sockets} sockets")),
    ] {
        assert!(text.replace(',', "").contains(&bound), "{text:?} names {bound}");
    }
}
