//! F10, F12, and F13: packet numbers, compared with sets and with their definition.

use std::collections::BTreeSet;
use std::time::Duration;

use drumfire_crypto::{ReplayError, ReplayWindow};
use drumfire_proto::{AckError, CloseReason, ProtocolError};
use drumfire_puppet::encoded;
use drumfire_wire::{
    AckDelay, AckRange, Frame, FrameWriter, Frames, PacketNumber, PacketNumberLength, limits,
};

use self::model::ChangingModel;
use crate::input::Input;
use crate::puppet::Puppet;

// The model of the replay window's own tests.
#[path = "../../crypto/src/replay/tests/model.rs"]
mod model;

/// F10: acks, written and read, or sent to a server by a client with genuine keys.
pub(crate) fn acks(data: &[u8]) {
    let mut input = Input::new(data);
    if input.u8() & 1 == 0 { written_acks(input) } else { sent_acks(input) }
}

/// Writes a set of packet numbers as an ack, and reads it.
fn written_acks(mut input: Input<'_>) {
    let base = [0, u64::MAX - 700, input.u64()][usize::from(input.u8() % 3)].min(u64::MAX - 700);
    let offsets = input.rest().iter().scan(0_u64, |at, step| {
        *at += u64::from(*step % 8);
        (*at < 700).then(|| base + *at)
    });
    let set: BTreeSet<u64> = offsets.collect();
    let mut ranges = ranges_of(&set);
    if ranges.is_empty() {
        return;
    }
    let delay = AckDelay::from_duration(Duration::ZERO);
    let written = encoded(|frames| FrameWriter::new(frames).ack(delay, ranges.iter().copied()));
    let Some(Ok(Frame::Ack(ack))) = Frames::new(&written).next() else {
        panic!("an ack was written");
    };
    ranges.truncate(limits::ACK_RANGES_SENT);
    let oldest = ranges.last().map_or(0, |range| range.smallest().0);
    let read = ack.ranges.iter().flat_map(|range| range.smallest().0..=range.largest().0);
    assert_eq!(read.collect::<BTreeSet<_>>(), set.range(oldest..).copied().collect());
}

/// Returns the ranges of consecutive numbers, newest first.
fn ranges_of(set: &BTreeSet<u64>) -> Vec<AckRange> {
    let numbers: Vec<_> = set.iter().rev().copied().map(PacketNumber).collect();
    let runs = numbers.chunk_by(|newer, older| newer.0 - older.0 == 1);
    runs.filter_map(|run| AckRange::new(*run.last()?, *run.first()?)).collect()
}

/// The number of skipped packet numbers that an end remembers (PROTOCOL 9.1, "Ack").
const SKIPPED_KEPT: usize = 16;

/// Sends acks to a server. An ack of a number that was not sent yet, or that the server skipped to detect false acks, ends the
/// connection, and no other ack does.
fn sent_acks(mut input: Input<'_>) {
    let mut puppet = Puppet::connected(u64::from(input.u8()));
    let mut sent: BTreeSet<u64> = puppet.take_packets().into_iter().map(|(number, _)| number).collect();
    while !input.is_empty() && puppet.ending().is_none() {
        let what = input.u8();
        match what % 4 {
            0 => {
                puppet.server_sends(usize::from(input.u8() % 64));
                sent.extend(puppet.take_packets().into_iter().map(|(number, _)| number));
            }
            1 => {
                puppet.world.run(Duration::from_millis(u64::from(input.u8())));
                sent.extend(puppet.take_packets().into_iter().map(|(number, _)| number));
            }
            _ => {
                let newest = sent.last().copied().unwrap_or(0);
                let set = claimed(newest + u64::from(what >> 2 == 63), &sent, what & 4 != 0, &mut input);
                let (ranges, verdict) = (ranges_of(&set), verdict(&set, &sent));
                if ranges.is_empty() || ranges.len() > limits::ACK_RANGES_SENT {
                    continue;
                }
                let delay = AckDelay::from_duration(Duration::ZERO);
                puppet.send_frames(|writer| writer.ack(delay, ranges.iter().copied()));
                let broken = verdict.map(|error| CloseReason::Protocol(ProtocolError::Ack(error)));
                assert_eq!(puppet.ending(), broken, "{set:?} of {sent:?}");
            }
        }
    }
}

/// Returns numbers to acknowledge, from the newest down. `is_honest` leaves out those that were not sent.
fn claimed(newest: u64, sent: &BTreeSet<u64>, is_honest: bool, input: &mut Input<'_>) -> BTreeSet<u64> {
    let count = usize::from(input.u8() % 16);
    let mut at = newest;
    let mut set = BTreeSet::new();
    for steps in input.bytes(count) {
        let run = at.saturating_sub(u64::from(steps % 16))..=at;
        at = run.start().saturating_sub(2 + u64::from(steps >> 4));
        set.extend(run.filter(|number| !is_honest || sent.contains(number) || *number > newest));
    }
    set
}

/// Returns the error of an ack with these numbers, if it has one.
fn verdict(claimed: &BTreeSet<u64>, sent: &BTreeSet<u64>) -> Option<AckError> {
    let newest = sent.last().copied().unwrap_or(0);
    let first = sent.first().copied().unwrap_or(0);
    let skipped = (first..newest).rev().filter(|number| !sent.contains(number)).take(SKIPPED_KEPT);
    if claimed.last().is_some_and(|number| *number > newest) {
        Some(AckError::Unsent)
    } else {
        skipped.into_iter().any(|number| claimed.contains(&number)).then_some(AckError::Skipped)
    }
}

/// F12: the replay window, narrow and wide, with any numbers in any order.
pub(crate) fn replay(data: &[u8]) {
    let mut input = Input::new(data);
    let size = 64 * (1 + u32::from(input.u8() % 128));
    let mut window = ReplayWindow::narrow(size).expect("a size that is permitted");
    let mut model = ChangingModel::narrow(size);
    while !input.is_empty() {
        let highest = model.highest().unwrap_or(0);
        let number = match input.u8() % 8 {
            0 => {
                window.widen();
                model.widen();
                continue;
            }
            1 => {
                window.shrink();
                model.shrink();
                continue;
            }
            2 => input.u64(),
            3 => highest.saturating_add(u64::from(input.u16())),
            4 => highest.saturating_sub(u64::from(input.u16())),
            5 => highest.saturating_sub(u64::from(size)).saturating_add(u64::from(input.u8() % 4)),
            6 => highest.saturating_add(u64::from(input.u8() % 4)),
            _ => highest.saturating_sub(u64::from(input.u8())),
        };
        let wanted = model.accept(number);
        assert_eq!(window.check(number), wanted, "{number} of at most {highest}");
        assert_eq!(window.accept(number), wanted, "{number} of at most {highest}");
        assert_eq!(window.highest(), model.highest());
    }
}

/// F13: a packet number is expanded from its low bits and any newest number, as RFC 9000 appendix A defines.
pub(crate) fn expansion(data: &[u8]) {
    let mut input = Input::new(data);
    let (number, largest) = (input.u64(), Some(input.u64()).filter(|_| !input.u8().is_multiple_of(8)));
    let expected = largest.map_or(0, |largest| largest.saturating_add(1));
    for (length, bits) in
        [(PacketNumberLength::Two, 16), (PacketNumberLength::Three, 24), (PacketNumberLength::Four, 32)]
    {
        let cut = PacketNumber(number).truncate(length);
        let found = cut.expand(largest.map(PacketNumber)).0;
        let window = 1_u64 << bits;
        assert_eq!(found % window, number % window, "the low bits are the same");
        // The nearest number with these low bits, and of two equally near ones the larger.
        let nearer = [found.checked_sub(window), found.checked_add(window)].into_iter().flatten();
        for other in nearer {
            let (this, that) = (found.abs_diff(expected), other.abs_diff(expected));
            assert!(this < that || (this == that && found > other), "{found} or {other} for {expected}");
        }
        if let Some(needed) = PacketNumberLength::needed(PacketNumber(number), largest.map(PacketNumber)) {
            let is_ahead = largest.is_none_or(|largest| number > largest);
            if is_ahead && length >= needed {
                assert_eq!(found, number, "{length:?} suffices");
            }
        }
    }
}
