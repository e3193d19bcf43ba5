//! Counters of what was received, sent, and dropped, each with a stable name.
//!
//! With the feature `serde` they are written in any format that serde supports. They are never read back.

use std::fmt;

use crate::Fault;

/// The number of occurrences of each [`Fault`].
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FaultCounts([u64; Fault::ALL.len()]);

impl fmt::Debug for FaultCounts {
    /// Prints the faults that occurred, by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(fault, count)| (fault.name(), count))).finish()
    }
}

impl FaultCounts {
    /// Counts one occurrence of the fault.
    pub fn add(&mut self, fault: Fault) {
        self.add_many(fault, 1);
    }

    /// Counts `count` occurrences, for example one for each datagram of a train.
    pub fn add_many(&mut self, fault: Fault, count: u64) {
        // The array has one element for each fault, in the order of the discriminants.
        self.0[fault as usize] += count;
    }

    /// Returns the number of occurrences of this fault.
    #[must_use]
    pub fn count(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Returns the faults that occurred at least once, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.into_iter().map(|fault| (fault, self.count(fault))).filter(|&(_, count)| count > 0)
    }

    /// Returns the sum of all counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// The reason why a received message was not handed on. [`crate::DropMeter`] counts the drops of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DropReason {
    /// The datagram has no payload, which is legal in UDP. It costs budget and never means end of file.
    Empty,
    /// The datagram is longer than its slot, and the kernel truncated it.
    Truncated,
    /// The datagram was read completely, but is longer than `max_datagram_bytes`.
    Overlong,
    /// The kernel had no room for the segment size, so the train cannot be split.
    ControlTruncated,
}

impl DropReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Empty, Self::Truncated, Self::Overlong, Self::ControlTruncated];

    /// Returns a stable name for counters and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Truncated => "truncated",
            Self::Overlong => "overlong",
            Self::ControlTruncated => "control_truncated",
        }
    }
}

/// The counters of a [`crate::Receiver`] since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ReceiveCounts {
    /// The number of datagrams that the receiver passed to its caller.
    pub datagrams: u64,
    /// The number of payload bytes that the receiver passed to its caller.
    pub bytes: u64,
    /// The number of messages that the receiver passed to its caller. A train of datagrams counts as one message.
    pub messages: u64,
    /// The number of receive calls, including those that failed.
    pub calls: u64,
    /// The number of failed calls by fault. [`Fault::WouldBlock`] is the normal end of a drain.
    pub faults: FaultCounts,
    #[cfg_attr(feature = "serde", serde(rename = "dropped"))]
    drops: DropCounts,
}

impl ReceiveCounts {
    /// Returns the number of datagrams that were dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// Returns the number of datagrams that were dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops.0.iter().sum()
    }

    pub(crate) fn add_dropped(&mut self, reason: DropReason, datagrams: usize) {
        if let Some(counter) = self.drops.0.get_mut(reason as usize) {
            *counter = counter.saturating_add(datagrams as u64);
        }
    }
}

/// The number of dropped datagrams for each [`DropReason`].
#[derive(Clone, Default, PartialEq, Eq)]
struct DropCounts([u64; DropReason::ALL.len()]);

impl DropCounts {
    /// Returns the names of the reasons that occurred, with their counts.
    fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = DropReason::ALL.iter().map(|reason| reason.name()).zip(self.0);
        counts.filter(|(_, count)| *count > 0)
    }
}

impl fmt::Debug for DropCounts {
    /// Prints the reasons that occurred, by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.named()).finish()
    }
}

/// The counters of a [`crate::Sender`] since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SendCounts {
    /// The number of datagrams that the kernel accepted.
    pub datagrams: u64,
    /// The number of payload bytes that the kernel accepted.
    pub bytes: u64,
    /// The number of send calls, including those that failed.
    pub calls: u64,
    /// The number of failed calls by fault.
    pub faults: FaultCounts,
    /// The number of datagrams that were discarded, by the fault that was the reason.
    pub lost: FaultCounts,
}

#[cfg(feature = "serde")]
mod serialize {
    use serde::ser::{Serialize, Serializer};

    use super::{DropCounts, FaultCounts};

    impl Serialize for FaultCounts {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.iter().map(|(fault, count)| (fault.name(), count)))
        }
    }

    impl Serialize for DropCounts {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.named())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_own_name_and_counter() {
        let mut counts = FaultCounts::default();
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, index);
            counts.add_many(fault, index as u64 + 1);
        }
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(counts.count(fault), index as u64 + 1);
        }
        let names: std::collections::HashSet<_> = Fault::ALL.into_iter().map(Fault::name).collect();
        assert_eq!(names.len(), Fault::ALL.len());
        assert_eq!(counts.total(), (1..=Fault::ALL.len() as u64).sum::<u64>());
    }

    #[cfg(feature = "serde")]
    #[test]
    fn counts_are_written_by_name_without_those_that_are_zero() {
        let mut received = ReceiveCounts { datagrams: 4, ..ReceiveCounts::default() };
        received.faults.add_many(Fault::WouldBlock, 3);
        received.add_dropped(DropReason::Overlong, 2);
        let written = serde_json::to_value(&received).unwrap();
        let expected = serde_json::json!({
            "datagrams": 4, "bytes": 0, "messages": 0, "calls": 0,
            "faults": { "would_block": 3 }, "dropped": { "overlong": 2 },
        });
        assert_eq!(written, expected);
        let mut sent = SendCounts { bytes: 9, ..SendCounts::default() };
        sent.lost.add(Fault::NoBuffers);
        let expected = serde_json::json!({
            "datagrams": 0, "bytes": 9, "calls": 0, "faults": {}, "lost": { "no_buffers": 1 },
        });
        assert_eq!(serde_json::to_value(&sent).unwrap(), expected);
    }
}
