//! The books of messages, and the checks that messages were delivered as their mode promises. Each message carries its
//! number.
//!
//! The flow tables count duplicates and reordering. [`Promise`] adds the checks that they cannot make. Nothing is
//! allocated after a session began.

use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{DropReason, Stats};
use drumfire_puppet::{PacketSealer, Random};

use crate::choices::Mode;
use crate::cli::Traffic;
use crate::control::Finished;
use crate::datagram::Header;
use crate::flows::FlowCount;
use crate::report::{
    Accounting, GIVEN_UP, IN_LOST_DATAGRAMS, Messages, OVERTAKEN, RECEIVE_MEMORY, SUPERSEDED, Scope,
};

/// The state of the checks on one thread.
pub(super) struct Promise {
    mode: Mode,
    /// In `reliable-unordered` a checksum over the messages of each flow; in `reliable-latest` one past the newest message of each
    /// key of each flow; empty in other modes.
    marks: Vec<u64>,
    /// Older values after newer ones.
    broken: u64,
}

impl Promise {
    /// Makes the state of a thread before its first message.
    pub(super) fn new(mode: Mode, flows: usize) -> Self {
        let marks = match mode {
            Mode::ReliableUnordered => flows,
            Mode::ReliableLatest => place(flows, 0),
            _ => 0,
        };
        Self { mode, marks: vec![0; marks], broken: 0 }
    }

    /// Records a delivered message of a known flow.
    pub(super) fn on_message(&mut self, header: &Header) {
        match self.mode {
            Mode::ReliableUnordered => {
                if let Some(sum) = self.marks.get_mut(header.flow as usize) {
                    *sum = sum.wrapping_add(scattered(header.sequence));
                }
            }
            Mode::ReliableLatest => {
                let Some(newest) = self.marks.get_mut(place(header.flow as usize, header.sequence)) else {
                    return;
                };
                if header.sequence < *newest {
                    self.broken += 1;
                } else {
                    *newest = header.sequence + 1;
                }
            }
            _ => {}
        }
    }

    /// Adds the state of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        for (mark, more) in self.marks.iter_mut().zip(&other.marks) {
            *mark = match self.mode {
                Mode::ReliableUnordered => mark.wrapping_add(*more),
                _ => (*mark).max(*more),
            };
        }
        self.broken += other.broken;
    }

    /// The number of broken promises, given the number of messages that were sent of each flow.
    pub(super) fn broken(&self, flows: &[FlowCount], sent_per_flow: &[u64]) -> u64 {
        let of_flows = flows.iter().zip(sent_per_flow).enumerate();
        of_flows.map(|(flow, (count, sent))| self.broken_in(flow, count, *sent)).sum::<u64>() + self.broken
    }

    fn broken_in(&self, flow: usize, count: &FlowCount, sent: u64) -> u64 {
        let out_of_order = count.duplicated + count.reordered + count.too_old;
        match self.mode {
            // A duplicate behind the window cannot be detected. No mode delivers a message that late, so it counts as broken.
            Mode::Packets | Mode::Unreliable => count.duplicated + count.too_old,
            Mode::UnreliableSequenced => out_of_order,
            Mode::ReliableUnordered => {
                let whole = (0..sent).fold(0_u64, |sum, sequence| sum.wrapping_add(scattered(sequence)));
                let is_whole = self.marks.get(flow).is_some_and(|sum| *sum == whole);
                count.received.abs_diff(sent).max(u64::from(!is_whole))
            }
            Mode::ReliableOrdered => out_of_order + count.received.abs_diff(sent),
            Mode::ReliableSequenced => out_of_order + u64::from(count.seen_to != sent),
            Mode::ReliableLatest => {
                let newest = sent.saturating_sub(Mode::KEYS)..sent;
                let is_missing =
                    |sequence: &u64| self.marks.get(place(flow, *sequence)) != Some(&(*sequence + 1));
                newest.filter(is_missing).count() as u64
            }
        }
    }
}

/// The index in `marks` of the key of a message.
#[expect(clippy::cast_possible_truncation, reason = "a handful of keys")]
const fn place(flow: usize, sequence: u64) -> usize {
    flow * Mode::KEYS as usize + (sequence % Mode::KEYS) as usize
}

/// Scatters a number, so that different sets of numbers are unlikely to have the same sum.
fn scattered(number: u64) -> u64 {
    Random(number).bits()
}

/// The reasons to drop a packet after it was opened. Only the sender can have sealed such a packet, so the packet
/// belongs to the books.
pub(super) const OPENED_DROPS: [DropReason; 3] =
    [DropReason::ReceiveMemory, DropReason::FragmentMismatch, DropReason::Protocol];

/// The connections of a thread in a session.
pub(super) struct Delivery {
    pub(super) promise: Promise,
    /// The statistics of the endpoint when the session began, and when it ended.
    pub(super) before: Stats,
    pub(super) now: Stats,
}

impl Delivery {
    /// Packets that were opened and whose messages were accepted.
    pub(super) fn packets(&self) -> u64 {
        self.now.packets_received - self.before.packets_received
    }

    /// Packets that opened and were dropped, by name.
    pub(super) fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OPENED_DROPS
            .map(|reason| (reason.name(), self.now.dropped(reason) - self.before.dropped(reason)))
            .into_iter()
    }
}

/// Makes the books of messages; `None` if the mode delivers none. `received` is the number of the sender's datagrams that were
/// received, and `delivered` the number of messages.
pub(super) fn messages(
    traffic: &Traffic,
    finished: &Finished,
    scope: Scope,
    received: u64,
    delivered: u64,
    flows: &[FlowCount],
    deliveries: &[&Delivery],
) -> Option<Messages> {
    let sent = finished.messages.as_ref()?;
    let mode = deliveries.first()?.promise.mode;
    let sum = |count: fn(&Stats) -> u64| {
        deliveries.iter().map(|delivery| count(&delivery.now) - count(&delivery.before)).sum::<u64>()
    };
    let mut books = Accounting::new(sent.sent, delivered);
    let named = [
        (OVERTAKEN, sum(|stats| stats.sequenced_late)),
        (RECEIVE_MEMORY, sum(|stats| stats.unreliable_overflows)),
        (GIVEN_UP, sent.given_up),
        (SUPERSEDED, if is_newest_only(mode) { sent.unsent - sent.given_up } else { 0 }),
    ];
    for (name, count) in named.into_iter().filter(|(_, count)| *count > 0) {
        books = books.dropped(name, count);
    }
    if let Some(name) = lost_name(mode) {
        let lost = u64::try_from(books.unexplained()).unwrap_or(0);
        books = books.dropped(name, lost.min(most_lost(traffic.load.size, finished, scope, received, mode)));
    }
    let mut promise = Promise::new(mode, flows.len());
    deliveries.iter().for_each(|delivery| promise.add(&delivery.promise));
    Some(Messages {
        mode,
        offered: (traffic.load.rate > 0).then_some(sent.offered),
        out_of_promise: promise.broken(flows, &sent.sent_per_flow),
        books,
        resent: sent.resent,
        packets_lost: sent.packets_lost,
        blocked: sent.blocked,
        answers: sum(|stats| stats.datagrams_sent),
        acks_alone: sum(|stats| stats.ack_only_packets_sent),
    })
}

/// Returns whether a message can supersede earlier ones.
const fn is_newest_only(mode: Mode) -> bool {
    matches!(mode, Mode::ReliableSequenced | Mode::ReliableLatest)
}

/// The name of messages that were lost with their datagram, in the modes that do not resend them.
const fn lost_name(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Unreliable | Mode::UnreliableSequenced => Some(IN_LOST_DATAGRAMS),
        // A newer value arrived before the older one was resent.
        Mode::ReliableLatest => Some(SUPERSEDED),
        _ => None,
    }
}

/// The maximum number of messages in the lost datagrams.
fn most_lost(size: u32, finished: &Finished, scope: Scope, received: u64, mode: Mode) -> u64 {
    if mode == Mode::ReliableLatest && scope == Scope::TwoHosts {
        // A value that a newer one overtook on the way is dropped without a count.
        return u64::MAX;
    }
    let refused: u64 = finished.errors.values().sum();
    let datagrams = finished.sent.saturating_sub(received).saturating_add(refused);
    let bytes = PacketSealer::payload_bytes(size as usize).unwrap_or(1).max(1);
    datagrams.saturating_mul((DATAGRAM_SENT_MAX_BYTES / bytes) as u64)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::datagram::RouteId;
    use crate::flows::{self, FlowTable};

    /// The number of promises that two threads break with these messages of one flow, of which `sent` were sent.
    fn broken_by(mode: Mode, threads: [&[u64]; 2], sent: u64) -> u64 {
        let ids = [RouteId::default()];
        let mut totals = [FlowCount::default()];
        let mut whole = Promise::new(mode, 1);
        for delivered in threads {
            let mut table = FlowTable::new(ids.as_slice().into());
            let mut promise = Promise::new(mode, 1);
            for &sequence in delivered {
                let header = Header { id: ids[0], flow: 0, sequence, stamp: None };
                table.on_datagram(&header).unwrap();
                promise.on_message(&header);
            }
            flows::add(&mut totals, table.counts());
            whole.add(&promise);
        }
        whole.broken(&totals, &[sent])
    }

    fn broken(mode: Mode, delivered: &[u64], sent: u64) -> u64 {
        broken_by(mode, [delivered, &[]], sent)
    }

    #[test]
    fn each_mode_allows_what_it_says() {
        for (mode, delivered, sent, expected) in [
            (Mode::Unreliable, &[][..], 3, 0),
            (Mode::Unreliable, &[2, 0], 3, 0),
            (Mode::Unreliable, &[2, 0, 2], 3, 1),
            (Mode::UnreliableSequenced, &[0, 2], 3, 0),
            (Mode::UnreliableSequenced, &[2, 0], 3, 1),
            (Mode::UnreliableSequenced, &[0, 0], 3, 1),
            (Mode::ReliableSequenced, &[0, 5, 9], 10, 0),
            (Mode::ReliableSequenced, &[0, 5, 8], 10, 1),
            (Mode::ReliableSequenced, &[0, 9, 5], 10, 1),
        ] {
            assert_eq!(broken(mode, delivered, sent), expected, "{mode}: {delivered:?} of {sent}");
        }
    }

    #[test]
    fn reliable_messages_come_once_and_in_the_promised_order() {
        for mode in [Mode::ReliableUnordered, Mode::ReliableOrdered] {
            assert_eq!(broken(mode, &[0, 1, 2], 3), 0);
            assert_eq!(broken(mode, &[0, 1], 3), 1, "{mode}: one is missing");
            assert_eq!(broken(mode, &[0, 1, 2, 3], 3), 1, "{mode}: one was never sent");
            assert!(broken(mode, &[0, 1, 1], 3) > 0, "{mode}: one came in place of another");
            assert!(broken(mode, &[0, 1, 2, 2], 3) > 0, "{mode}: one came twice");
        }
        assert_eq!(broken(Mode::ReliableUnordered, &[2, 0, 1], 3), 0);
        assert_eq!(broken_by(Mode::ReliableUnordered, [&[2], &[0, 1]], 3), 0);
        assert!(broken(Mode::ReliableOrdered, &[0, 2, 1], 3) > 0);
    }

    #[test]
    fn the_newest_of_every_key_comes_last() {
        let all: Vec<u64> = (0..20).collect();
        assert_eq!(broken(Mode::ReliableLatest, &all, 20), 0);
        assert_eq!(broken(Mode::ReliableLatest, &all[12..], 20), 0, "older values may be missing");
        assert_eq!(broken(Mode::ReliableLatest, &[19, 18, 17, 16, 15, 14, 13, 12], 20), 0, "keys are apart");
        assert_eq!(broken(Mode::ReliableLatest, &all[13..], 20), 1, "the newest of a key is missing");
        let mut backwards = all[12..].to_vec();
        backwards.push(4);
        assert_eq!(broken(Mode::ReliableLatest, &backwards, 20), 1, "an older one of the key of 12");
        assert_eq!(broken_by(Mode::ReliableLatest, [&all[12..16], &all[16..]], 20), 0);
        assert_eq!(broken(Mode::ReliableLatest, &[0, 1, 2], 3), 0, "fewer than there are keys");
        assert_eq!(broken(Mode::ReliableLatest, &[0, 2], 3), 1);
    }

    fn most(size: u32, refused: u64, received: u64, scope: Scope, mode: Mode) -> u64 {
        let errors = BTreeMap::from([("would_block".to_owned(), refused)]);
        most_lost(size, &Finished { sent: 100, errors, ..Finished::default() }, scope, received, mode)
    }

    #[test]
    fn no_more_messages_are_lost_than_the_lost_datagrams_hold() {
        // Of 128 bytes, 96 are the message: at most 12 such fill 1,200 bytes.
        assert_eq!(most(128, 0, 100, Scope::OneHost, Mode::Unreliable), 0);
        assert_eq!(most(128, 0, 99, Scope::OneHost, Mode::Unreliable), 12);
        assert_eq!(most(128, 2, 99, Scope::OneHost, Mode::Unreliable), 36);
        assert_eq!(most(1_178, 0, 98, Scope::OneHost, Mode::Unreliable), 2);
        assert_eq!(most(128, 0, 101, Scope::OneHost, Mode::ReliableLatest), 0);
        assert_eq!(most(128, 0, 100, Scope::TwoHosts, Mode::ReliableLatest), u64::MAX);
        assert_eq!(most(128, 0, 100, Scope::TwoHosts, Mode::UnreliableSequenced), 0);
    }
}
