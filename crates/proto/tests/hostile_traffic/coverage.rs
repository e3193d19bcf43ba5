//! Counters of a run: packets, frames of each kind, reasons for ended connections and dropped datagrams.

use std::collections::BTreeMap;
use std::fmt;

use drumfire_proto::{CloseReason, DropReason, Stats};
use drumfire_puppet::DrawnFrame;

/// The counters of all seeds together.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) seeds: u64,
    pub(crate) packets: u64,
    pub(crate) connections: u64,
    pub(crate) honest_messages: u64,
    frames: BTreeMap<&'static str, u64>,
    closed: BTreeMap<String, u64>,
    dropped: BTreeMap<&'static str, u64>,
    counters: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(crate) fn on_frames<'a>(&mut self, frames: impl Iterator<Item = &'a DrawnFrame>) {
        self.packets += 1;
        for frame in frames {
            *self.frames.entry(frame.kind()).or_default() += 1;
        }
    }

    pub(crate) fn on_closed(&mut self, reason: CloseReason) {
        let name = match reason {
            CloseReason::Protocol(error) => error.name().to_owned(),
            other => format!("{other}"),
        };
        *self.closed.entry(name).or_default() += 1;
    }

    /// Adds the totals of a server.
    pub(crate) fn on_stats(&mut self, stats: &Stats) {
        self.seeds += 1;
        for reason in DropReason::ALL.into_iter().filter(|reason| stats.dropped(*reason) > 0) {
            *self.dropped.entry(reason.name()).or_default() += stats.dropped(reason);
        }
        for (name, count) in [
            ("messages delivered", stats.messages_delivered),
            ("messages skipped", stats.messages_skipped),
            ("unreliable overflows", stats.unreliable_overflows),
            ("packets lost", stats.packets_lost),
            ("path migrations", stats.path_migrations),
            ("key agreements", stats.handshakes_computed),
        ] {
            *self.counters.entry(name).or_default() += count;
        }
    }

    /// Adds the counters of another run.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.packets += other.packets;
        self.connections += other.connections;
        self.honest_messages += other.honest_messages;
        for (mine, theirs) in [
            (&mut self.frames, &other.frames),
            (&mut self.dropped, &other.dropped),
            (&mut self.counters, &other.counters),
        ] {
            for (name, count) in theirs {
                *mine.entry(name).or_default() += count;
            }
        }
        for (name, count) in &other.closed {
            *self.closed.entry(name.clone()).or_default() += count;
        }
    }

    /// Counts a Hello of this kind.
    pub(crate) fn count(&mut self, name: &'static str) {
        *self.counters.entry(name).or_default() += 1;
    }

    /// Returns the counters of these names that are zero.
    pub(crate) fn missing_counters(&self, names: &[&'static str]) -> Vec<&'static str> {
        names.iter().copied().filter(|name| !self.counters.contains_key(name)).collect()
    }

    /// Returns the required events that never happened, so that no invariant holds only for lack of traffic.
    pub(crate) fn missing(&self) -> Vec<String> {
        let kinds = DrawnFrame::KINDS.iter().copied().filter(|kind| !self.frames.contains_key(kind));
        let drops = ["receive_memory", "fragment_mismatch", "protocol", "duplicate", "forged"];
        let drops = drops.into_iter().filter(|reason| !self.dropped.contains_key(reason));
        let closes = ["credit_exceeded", "message_too_far_ahead", "too_many_fragmented", "fragment_mismatch"];
        let closes = closes.into_iter().filter(|reason| !self.closed.contains_key(*reason));
        kinds.chain(drops).chain(closes).map(str::to_owned).collect()
    }
}

impl fmt::Display for Coverage {
    /// Prints the counters of a test. A flood of Hellos has no packets and no frames.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, packets, connections, honest_messages, .. } = self;
        writeln!(f, "{seeds} seeds")?;
        if *packets > 0 {
            writeln!(
                f,
                "{packets} hostile packets, {connections} hostile connections, {honest_messages} honest messages"
            )?;
            writeln!(f, "frames: {:?}", self.frames)?;
            writeln!(f, "closed: {:?}", self.closed)?;
        }
        writeln!(f, "dropped: {:?}", self.dropped)?;
        write!(f, "counters: {:?}", self.counters)
    }
}
