//! Invariants of the sent reliable messages between two calls.
//!
//! Only builds with debug assertions check them.

use std::collections::VecDeque;

use super::Reliable;
use crate::channel::send::chunks::BodyRange;
use crate::channel::send::sent_run::{RunBodies, RunState, SentRun};
use crate::limits::MESSAGE_IDS_IN_FLIGHT;

impl Reliable {
    /// Asserts what must hold between two calls. Returns the charges in bytes of the messages that have not arrived.
    pub(in crate::channel::send) fn assert_invariants(&self) -> usize {
        debug_assert!(
            self.runs.front().is_none_or(|run| run.state != RunState::Acknowledged),
            "message {} has arrived, and is the oldest in flight",
            self.base()
        );
        debug_assert!(
            self.next_id.saturating_sub(self.base()) <= MESSAGE_IDS_IN_FLIGHT,
            "messages {} to {} are in flight",
            self.base(),
            self.next_id
        );
        // Each id below the next one is in one run, or has arrived.
        debug_assert!(
            self.runs.iter().all(|run| run.ids.count > 0)
                && self.runs.iter().is_sorted_by(|run, next| run.ids.end() <= next.ids.first)
                && self.runs.back().is_none_or(|last| last.ids.end() <= self.next_id),
            "the runs overlap, or are not in order"
        );
        let count_of = |state| self.runs.iter().filter(|run| run.state == state).count();
        debug_assert_eq!(
            self.acknowledged_count,
            count_of(RunState::Acknowledged),
            "the records of messages that have arrived were counted wrong"
        );
        self.check_lost(count_of(RunState::Lost));
        let fragmented = self.runs.iter().filter_map(|run| run.fragments.as_ref());
        fragmented.clone().for_each(|fragments| fragments.assert_invariants());
        debug_assert!(
            self.fragmented_count == fragmented.count()
                && u32::try_from(self.fragmented_count) == Ok(self.fragmented.values().sum::<u32>()),
            "the fragmented messages were counted wrong"
        );
        self.sent_fragments.assert_invariants();
        debug_assert!(
            self.newest.values().all(|id| *id < self.next_id)
                && (self.newest.is_empty() || !self.runs.is_empty()),
            "a channel waits for a message that has arrived with all others"
        );
        let missing = self.runs.iter().filter(|run| run.state != RunState::Acknowledged);
        missing.map(SentRun::charge).sum()
    }

    /// The bodies of all runs.
    pub(in crate::channel::send) fn run_bodies(&self) -> impl Iterator<Item = &BodyRange> {
        self.runs.iter().filter_map(|run| match &run.content {
            RunBodies::Bodies(range) => Some(range),
            _ => None,
        })
    }

    /// Asserts that the lists have all lost runs, whose number is `lost_count`.
    fn check_lost(&self, lost_count: usize) {
        // A first id that is not lost would make the connection build empty packets forever.
        let is_lost = |id: &u64| self.run(*id).is_some_and(|run| run.state == RunState::Lost);
        debug_assert!(
            self.lost.iter().filter_map(VecDeque::front).all(is_lost),
            "a message is to be sent again that is not lost"
        );
        debug_assert!(
            self.lost.iter().all(|lost| lost.iter().is_sorted_by(|id, next| id < next)),
            "the lost messages are not in order"
        );
        // A list may still name messages that have arrived. The count includes them, because it says whether to look.
        let listed_count = self.lost.iter().map(VecDeque::len).sum::<usize>();
        let found_count = self.lost.iter().flatten().filter(|id| is_lost(id)).count();
        debug_assert!(
            lost_count == found_count && listed_count == self.lost_count,
            "{lost_count} messages are lost, {found_count} of {listed_count} are listed, {} counted",
            self.lost_count
        );
    }
}
