//! Frames drawn at random, of every kind and with numbers of every size.
//!
//! Deliberately nothing that checks; that is each test's own business.

use crate::samples::Sample;
use drumfire_wire::{ChannelId, Delivery, MessageId, Skip, limits};
use proptest::prelude::*;

fn any_ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let steps = prop::collection::vec((0_u64..200, 0_u64..200), 1..=32);
    (any::<u64>(), 0_u32..64, steps).prop_map(|(bits, shift, steps)| {
        let mut top = (bits >> shift).max(32 * 402);
        let mut ranges = Vec::new();
        for (length, gap) in steps {
            ranges.push((top - length, top));
            top -= length + gap + 2;
        }
        ranges
    })
}

/// Modes whose messages may be in pieces, and behind them the one whose messages may not.
const MODES_WITH_PIECES: u8 = 5;

fn any_delivery(modes: u8) -> impl Strategy<Value = Delivery> {
    // Ids close together, so that some follow on from the one before; and ids from all of u64.
    let id = prop_oneof![0_u64..5, (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| bits >> shift)];
    (0..modes, id, prop::option::of(any::<u64>())).prop_map(|(mode, id, back)| {
        let after = back.filter(|_| id > 0).map(|back| MessageId(id - 1 - back % id));
        let id = MessageId(id);
        match mode {
            0 => Delivery::Unreliable,
            1 => Delivery::UnreliableSequenced,
            2 => Delivery::ReliableUnordered { id },
            3 => Delivery::ReliableOrdered { id, after },
            4 => Delivery::ReliableSequenced { id },
            _ => Delivery::ReliableLatest { key: back.unwrap_or(0), version: id.0 },
        }
    })
}

fn any_skip() -> impl Strategy<Value = Skip> {
    let bytes = 0..=limits::MESSAGE_LIMIT_BYTES;
    (any::<u16>(), any::<u64>(), prop::option::of(any::<u64>()), bytes).prop_map(
        |(channel, id, back, bytes)| {
            let after = back.filter(|_| id > 0).map(|back| MessageId(id - 1 - back % id));
            Skip { channel: ChannelId(channel), id: MessageId(id), after, bytes }
        },
    )
}

fn any_fragment() -> impl Strategy<Value = Sample> {
    let delivery = any_delivery(MODES_WITH_PIECES);
    let payload = prop::collection::vec(any::<u8>(), 1..200);
    (any::<u16>(), delivery, any::<u64>(), 0_u32..1 << 23, 0_u32..1 << 22, payload).prop_map(
        |(channel, delivery, number, offset_bytes, more, payload)| {
            let has_id = !matches!(delivery, Delivery::Unreliable | Delivery::UnreliableSequenced);
            let total_bytes = offset_bytes + u32::try_from(payload.len()).unwrap() + more;
            let number = if has_id { 0 } else { number };
            Sample::Fragment { channel, delivery, number, total_bytes, offset_bytes, payload }
        },
    )
}

pub(crate) fn any_sample() -> impl Strategy<Value = Sample> {
    prop_oneof![
        (1_usize..40).prop_map(Sample::Padding),
        Just(Sample::Ping),
        Just(Sample::AckRequest),
        (0_u64..2_000_000, any_ranges())
            .prop_map(|(units, ranges)| Sample::Ack { delay_us: 8 * units, ranges }),
        (any::<u16>(), any_delivery(MODES_WITH_PIECES + 1), prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(channel, delivery, payload)| Sample::Message { channel, delivery, payload }),
        (0_u8..8, any::<u32>(), prop::collection::vec(any::<u8>(), 0..=128))
            .prop_map(|(code, application_code, reason)| Sample::Close { code, application_code, reason }),
        any_skip().prop_map(Sample::Skip),
        any_fragment(),
        any::<u64>().prop_map(Sample::Credit),
        any::<u64>().prop_map(Sample::Timestamp),
        any::<[u8; 8]>().prop_map(Sample::PathChallenge),
        any::<[u8; 8]>().prop_map(Sample::PathResponse),
        (any::<u64>(), any::<[u8; 8]>(), any::<[u8; 16]>()).prop_map(|(sequence, id, reset_token)| {
            Sample::NewConnectionId { sequence, id, reset_token }
        }),
        any::<u64>().prop_map(Sample::RetireConnectionId),
        (any::<u16>(), any::<[u8; 32]>(), prop::collection::vec(any::<u8>(), limits::SEALED_TOKEN_BYTES))
            .prop_map(|(life_seconds, psk, sealed)| Sample::ResumeToken { life_seconds, psk, sealed }),
    ]
}
