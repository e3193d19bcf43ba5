//! Rates, which are what two snapshots differ by.

use drumfire::control::{Snapshot, WorkerRow};

/// Below this percentage of a core, a time per datagram would be mostly rounding.
const BUSY_MIN_PERCENT: u64 = 5;

/// The rates of one worker between two snapshots. `None` before there are two, and after a restart of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    pub(super) received: Option<u64>,
    pub(super) sent: Option<u64>,
    pub(super) dropped: Option<u64>,
    pub(super) kernel_dropped: Option<u64>,
    /// CPU time per datagram received or sent.
    pub(super) nanos_per_datagram: Option<u64>,
}

/// By worker.
pub(super) fn figures(before: Option<&Snapshot>, now: &Snapshot) -> Vec<Figures> {
    let elapsed = before.map_or(0, |before| now.taken_at_nanos.saturating_sub(before.taken_at_nanos));
    let rows = now.workers.iter().enumerate();
    let of = |(index, row): (usize, &WorkerRow)| {
        let before = before.and_then(|before| before.workers.get(index));
        before.map_or_else(Figures::default, |before| between(before, row, elapsed))
    };
    rows.map(of).collect()
}

fn between(before: &WorkerRow, now: &WorkerRow, elapsed: u64) -> Figures {
    let rate = |now: u64, before: u64| per_second(now, before, elapsed);
    let (received, sent) = (rate(now.received, before.received), rate(now.sent, before.sent));
    let kernel = now.kernel_dropped.zip(before.kernel_dropped);
    Figures {
        received,
        sent,
        dropped: rate(dropped(now), dropped(before)),
        kernel_dropped: kernel.and_then(|(now, before)| rate(now, before)),
        nanos_per_datagram: received.zip(sent).and_then(|(received, sent)| {
            let busy = now.busy_percent.filter(|busy| *busy >= BUSY_MIN_PERCENT)?;
            // A hundredth of a second is ten million nanoseconds.
            busy.saturating_mul(10_000_000).checked_div(received.saturating_add(sent))
        }),
    }
}

/// All that a worker dropped itself.
pub(super) fn dropped(row: &WorkerRow) -> u64 {
    row.dropped.values().fold(0, |sum, count| sum.saturating_add(*count))
}

pub(super) fn per_second(now: u64, before: u64, elapsed_nanos: u64) -> Option<u64> {
    let news = u128::from(now.checked_sub(before)?);
    u64::try_from(news.saturating_mul(1_000_000_000).checked_div(u128::from(elapsed_nanos))?).ok()
}
