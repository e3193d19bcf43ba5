//! Books per flow: arrivals, duplicates, reordering, and, with the sender's totals, losses.
//!
//! A [`FlowTable`] belongs to one receiver thread and allocates only when it is made. [`FlowTotals`] adds up the tables of all
//! threads after the run. A flow that moved between threads is complete in the totals, but neither table detects a duplicate or
//! a swap across the move. The reason of a loss is found elsewhere, from the kernel's counters.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::datagram::{DropReason, Header, RouteId};
use crate::limits::MAX_FLOWS;

mod window;

pub use window::WINDOW;
use window::Window;

/// The flows as one receiver thread saw them.
///
/// It takes at most 11 MB: 40 bytes and a window of 128 bytes for each flow.
#[derive(Debug)]
pub struct FlowTable {
    ids: Arc<[RouteId]>,
    counts: Vec<FlowCount>,
    windows: Vec<Window>,
}

/// The arrivals of one flow, or of several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowCount {
    /// Every datagram of the flow, including the ones below.
    pub received: u64,
    /// Arrived before already.
    pub duplicated: u64,
    /// New, but behind a later one.
    pub reordered: u64,
    /// More than [`WINDOW`] behind the latest. Duplicates cannot be detected there, so the datagram is dropped under this name.
    pub too_old: u64,
    /// One past the highest sequence seen; 0 when there was none.
    pub seen_to: u64,
}

/// The position of a datagram in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The latest so far; sequences may have been skipped.
    Newest,
    /// New, but behind a later one.
    Reordered,
    /// Arrived before already.
    Duplicate,
    /// Behind the window.
    TooOld,
}

impl FlowTable {
    /// A table for the flows whose ids these are, flow 0 first.
    ///
    /// # Errors
    ///
    /// [`TooManyFlows`] above [`MAX_FLOWS`].
    pub fn new(ids: Arc<[RouteId]>) -> Result<Self, TooManyFlows> {
        if ids.len() > MAX_FLOWS as usize {
            return Err(TooManyFlows);
        }
        let counts = vec![FlowCount::default(); ids.len()];
        let windows = vec![Window::default(); ids.len()];
        Ok(Self { ids, counts, windows })
    }

    /// Enters one datagram.
    ///
    /// # Errors
    ///
    /// [`DropReason::UnknownFlow`] or [`DropReason::WrongId`]: it belongs to no flow and is in no count here.
    #[inline]
    pub fn on_datagram(&mut self, header: &Header) -> Result<Arrival, DropReason> {
        let (count, window) = self.flow(header)?;
        Ok(count.on_sequence(window, header.sequence))
    }

    /// Enters a train in one step, given the headers of its first and last datagram. Returns true if that was possible.
    ///
    /// Returns false and enters nothing unless the two are the ends of `datagram_count` consecutive sequences of one flow, all
    /// newer than any before. The caller then enters the datagrams one by one. The datagrams between the ends are not read,
    /// because the kernel merges only trains of one sending socket.
    #[inline]
    #[must_use]
    pub fn on_train(&mut self, first: &Header, last: &Header, datagram_count: usize) -> bool {
        let Ok(length) = u64::try_from(datagram_count) else { return false };
        let end = first.sequence.checked_add(length);
        if length == 0
            || end != last.sequence.checked_add(1)
            || (first.flow, first.id) != (last.flow, last.id)
        {
            return false;
        }
        match self.flow(first) {
            Ok((count, window)) if first.sequence >= count.seen_to => {
                count.received = count.received.saturating_add(length);
                count.on_newest(window, first.sequence, length);
                true
            }
            _ => false,
        }
    }

    /// The arrivals of each flow, flow 0 first.
    #[must_use]
    pub fn counts(&self) -> &[FlowCount] {
        &self.counts
    }

    #[inline]
    fn flow(&mut self, header: &Header) -> Result<(&mut FlowCount, &mut Window), DropReason> {
        let flow = header.flow as usize;
        let id = self.ids.get(flow).ok_or(DropReason::UnknownFlow)?;
        if *id != header.id {
            return Err(DropReason::WrongId);
        }
        self.counts.get_mut(flow).zip(self.windows.get_mut(flow)).ok_or(DropReason::UnknownFlow)
    }
}

impl FlowCount {
    /// Datagrams that arrived for the first time, as far as the window can tell.
    #[must_use]
    pub const fn unique(&self) -> u64 {
        self.received.saturating_sub(self.duplicated).saturating_sub(self.too_old)
    }

    /// Compares with what the sender says it sent.
    #[must_use]
    pub fn loss(&self, sent: u64) -> Loss {
        let unique = self.unique();
        let lost = sent.saturating_sub(unique);
        let tail = sent.saturating_sub(self.seen_to).min(lost);
        Loss { lost, interior: lost.saturating_sub(tail), tail, surplus: unique.saturating_sub(sent) }
    }

    #[inline]
    fn on_sequence(&mut self, window: &mut Window, sequence: u64) -> Arrival {
        self.received = self.received.saturating_add(1);
        if sequence >= self.seen_to {
            self.on_newest(window, sequence, 1);
            return Arrival::Newest;
        }
        if self.seen_to.saturating_sub(sequence) > WINDOW {
            self.too_old = self.too_old.saturating_add(1);
            Arrival::TooOld
        } else if window.holds(sequence) {
            self.duplicated = self.duplicated.saturating_add(1);
            Arrival::Duplicate
        } else {
            window.mark(sequence, 1);
            self.reordered = self.reordered.saturating_add(1);
            Arrival::Reordered
        }
    }

    /// Moves the window to the end of `length` consecutive sequences from `first`, which is not below
    /// `seen_to`.
    #[inline]
    fn on_newest(&mut self, window: &mut Window, first: u64, length: u64) {
        window.clear(self.seen_to, first.saturating_sub(self.seen_to));
        window.mark(first, length);
        self.seen_to = first.saturating_add(length);
    }

    fn add(&mut self, other: &Self) {
        self.received = self.received.saturating_add(other.received);
        self.duplicated = self.duplicated.saturating_add(other.duplicated);
        self.reordered = self.reordered.saturating_add(other.reordered);
        self.too_old = self.too_old.saturating_add(other.too_old);
        self.seen_to = self.seen_to.max(other.seen_to);
    }
}

/// The flows as all threads together saw them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowTotals {
    counts: Vec<FlowCount>,
}

/// Datagrams that the sender sent and no thread received as new: `lost` = `interior` + `tail`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// Sent minus unique, for whatever cause; datagrams that arrived too old to tell are among them.
    pub lost: u64,
    /// Missing below the highest sequence that arrived.
    pub interior: u64,
    /// Missing after it: the end of the run was cut off.
    pub tail: u64,
    /// Received as new but never sent. If it is not 0, the two books belong to different runs.
    pub surplus: u64,
}

impl FlowTotals {
    /// Totals of nothing yet, for as many flows as were announced.
    #[must_use]
    pub fn new(flow_count: usize) -> Self {
        Self { counts: vec![FlowCount::default(); flow_count] }
    }

    /// Adds the counts of one thread, flow by flow; the result depends on no order.
    pub fn add(&mut self, counts: &[FlowCount]) {
        if counts.len() > self.counts.len() {
            self.counts.resize(counts.len(), FlowCount::default());
        }
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            sum.add(count);
        }
    }

    /// The arrivals of each flow, flow 0 first.
    #[must_use]
    pub fn counts(&self) -> &[FlowCount] {
        &self.counts
    }

    /// All flows added up; its `seen_to` is the highest of any flow and bounds no loss.
    #[must_use]
    pub fn sum(&self) -> FlowCount {
        self.counts.iter().fold(FlowCount::default(), |mut sum, count| {
            sum.add(count);
            sum
        })
    }

    /// The loss of each flow, given what the sender says it sent of each; a flow it does not name was never
    /// sent.
    pub fn losses<'a>(&'a self, sent_per_flow: &'a [u64]) -> impl Iterator<Item = Loss> + 'a {
        let flow_count = self.counts.len().max(sent_per_flow.len());
        (0..flow_count).map(move |flow| {
            let count = self.counts.get(flow).copied().unwrap_or_default();
            count.loss(sent_per_flow.get(flow).copied().unwrap_or_default())
        })
    }

    /// The losses of all flows added up; one flow's surplus never hides another's loss.
    #[must_use]
    pub fn loss(&self, sent_per_flow: &[u64]) -> Loss {
        self.losses(sent_per_flow).fold(Loss::default(), |sum, loss| Loss {
            lost: sum.lost.saturating_add(loss.lost),
            interior: sum.interior.saturating_add(loss.interior),
            tail: sum.tail.saturating_add(loss.tail),
            surplus: sum.surplus.saturating_add(loss.surplus),
        })
    }
}

/// More flows than [`MAX_FLOWS`] were announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyFlows;

impl fmt::Display for TooManyFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_FLOWS} flows have room in a flow table")
    }
}

impl Error for TooManyFlows {}

#[cfg(test)]
mod tests;
