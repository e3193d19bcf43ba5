//! The counters of one thread's connections, and the books of messages of all threads. Pure arithmetic.

use std::collections::BTreeMap;

use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{DropReason, Stats};
use drumfire_puppet::PacketSealer;

use super::book::StageTotals;
use super::promise::Promise;
use crate::choices::Mode;
use crate::control::{Finished, Hello};
use crate::flows::FlowTotals;
use crate::report::{
    Books, GIVEN_UP, IN_LOST_DATAGRAMS, Messages, OVERTAKEN, RECEIVE_MEMORY, SUPERSEDED, Scope,
};

/// Reasons to drop a packet that opened. Only the sender can have sealed it, so it belongs to the books.
pub(super) const OF_ITS_OWNER: [DropReason; 3] =
    [DropReason::ReceiveMemory, DropReason::PiecesDisagree, DropReason::Protocol];

/// The counters of a thread's connections in a session.
pub(super) struct Delivery {
    pub(super) mode: Mode,
    /// Packets that opened and whose messages were taken.
    pub(super) packets: u64,
    /// Packets that opened and were dropped, by name.
    pub(super) drops: BTreeMap<String, u64>,
    overtaken: u64,
    without_memory: u64,
    answers: u64,
    acks_alone: u64,
    promise: Promise,
}

impl Delivery {
    /// The difference between two readings of the statistics of an endpoint.
    pub(super) fn between(before: &Stats, now: &Stats, mode: Mode, promise: Promise) -> Self {
        let drops = OF_ITS_OWNER.map(|reason| (reason, now.dropped(reason) - before.dropped(reason)));
        let drops = drops.into_iter().filter(|(_, count)| *count > 0);
        Self {
            mode,
            packets: now.packets_received - before.packets_received,
            drops: drops.map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
            overtaken: now.sequenced_late - before.sequenced_late,
            without_memory: now.unreliable_overflows - before.unreliable_overflows,
            answers: now.datagrams_sent - before.datagrams_sent,
            acks_alone: now.acks_sent_alone - before.acks_sent_alone,
            promise,
        }
    }
}

/// Makes the books of messages; `None` if the mode delivers none. `received` is the number of the sender's datagrams that were
/// received.
pub(super) fn messages(
    hello: &Hello,
    finished: &Finished,
    scope: Scope,
    received: u64,
    flows: &FlowTotals,
    stages: &[&StageTotals],
) -> Option<Messages> {
    let sent = finished.messages.as_ref()?;
    let deliveries: Vec<&Delivery> = stages.iter().filter_map(|stages| stages.delivery.as_ref()).collect();
    let mode = deliveries.first()?.mode;
    let sum = |count: fn(&Delivery) -> u64| deliveries.iter().map(|delivery| count(delivery)).sum::<u64>();
    let mut books = Books::new(sent.sent, stages.iter().map(|stages| stages.ours).sum());
    let named = [
        (OVERTAKEN, sum(|delivery| delivery.overtaken)),
        (RECEIVE_MEMORY, sum(|delivery| delivery.without_memory)),
        (GIVEN_UP, sent.given_up),
        (SUPERSEDED, if is_newest_only(mode) { sent.unsent - sent.given_up } else { 0 }),
    ];
    for (name, count) in named.into_iter().filter(|(_, count)| *count > 0) {
        books = books.dropped(name, count);
    }
    if let Some(name) = lost_name(mode) {
        let lost = u64::try_from(books.unexplained()).unwrap_or(0);
        books = books.dropped(name, lost.min(most_lost(hello, finished, scope, received, mode)));
    }
    let mut promise = Promise::new(mode, flows.counts().len());
    deliveries.iter().for_each(|delivery| promise.add(&delivery.promise));
    Some(Messages {
        offered: (hello.rate > 0).then_some(sent.offered),
        out_of_promise: promise.broken(flows, &sent.sent_per_flow),
        books,
        resent: sent.resent,
        packets_lost: sent.packets_lost,
        blocked: sent.blocked,
        answers: sum(|delivery| delivery.answers),
        acks_alone: sum(|delivery| delivery.acks_alone),
        ..Messages::none(mode)
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
fn most_lost(hello: &Hello, finished: &Finished, scope: Scope, received: u64, mode: Mode) -> u64 {
    if mode == Mode::ReliableLatest && scope == Scope::TwoHosts {
        // A value that a newer one overtook on the way is dropped without a count.
        return u64::MAX;
    }
    let refused: u64 = finished.errors.values().sum();
    let datagrams = finished.sent.saturating_sub(received).saturating_add(refused);
    let bytes = PacketSealer::payload_bytes(hello.size as usize).unwrap_or(1).max(1);
    datagrams.saturating_mul((DATAGRAM_SENT_MAX_BYTES / bytes) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::choices::SendMode;
    use crate::control;

    fn most(size: u32, refused: u64, received: u64, scope: Scope, mode: Mode) -> u64 {
        let hello = Hello {
            version: control::VERSION,
            flows: 1,
            threads: 1,
            size,
            rate: 0,
            send: SendMode::Single,
            secs: 1.0,
            kernel_id: String::new(),
        };
        let finished = Finished {
            sent_per_flow: vec![100],
            sent: 100,
            sent_bytes: 0,
            offered: 0,
            errors: BTreeMap::from([("would_block".to_owned(), refused)]),
            elapsed_ns: 1,
            cpu_ns: 0,
            late: false,
            granted: serde_json::Map::new(),
            messages: None,
        };
        most_lost(&hello, &finished, scope, received, mode)
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
