//! Surveys of the connections of a worker. Each pass visits some connections, until all have been visited.
//!
//! Without surveys there is no cost. A survey has rates if the last one was 0.5 to 10 seconds ago. For them, the worker keeps
//! 56 bytes per connection for 10 seconds.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_proto::Moment;

use super::command::SurveyQuery;
use crate::base::peer_map::PeerMap;
use crate::observe::survey::{PeerSample, sort_peers};

/// The number of slots that one pass visits, including empty ones.
pub(crate) const SLOTS_PER_PASS: usize = 128;

/// The time for which the counts of a survey are kept, so that the next survey has rates.
const MEMORY: Duration = Duration::from_secs(10);

/// The shortest interval for a rate. Over shorter ones, single packets would distort it.
const RATE_TIME_MIN: Duration = Duration::from_millis(500);

/// The largest number of waiting surveys. Further ones are dropped, and their results lack this worker.
const WAITING_MAX: usize = 64;

/// The surveys of one worker.
#[derive(Debug, Default)]
pub(super) struct Surveys {
    /// The surveys in the order of their requests. The first one is in progress.
    waiting: VecDeque<Running>,
    /// The earlier counts of each connection, for rates.
    counted: PeerMap<EarlierCounts>,
    /// The time at which all counts are dropped, unless another survey is requested first.
    forgotten_at: Moment,
}

/// A survey that waits or is in progress.
#[derive(Debug)]
struct Running {
    query: SurveyQuery,
    /// The next slot to visit. All lower slots were visited.
    next: usize,
    /// The number of connections that were examined.
    examined_count: usize,
    /// The best samples so far in the order of the query, and others that will be cut.
    found: Vec<PeerSample>,
}

/// The byte counts and rates of a connection in an earlier survey.
#[derive(Clone, Copy, Debug)]
struct EarlierCounts {
    /// The time of the counts.
    at: Moment,
    /// The bytes sent before `at`, as [`PeerSample`] counts them.
    bytes_sent: u64,
    /// The bytes received before `at`, as [`PeerSample`] counts them.
    bytes_received: u64,
    /// The bytes sent and received per second at `at`. `None` after the first survey of the connection.
    rates: Option<(u64, u64)>,
}

impl Surveys {
    /// Queues a survey. Drops it if too many wait.
    pub(super) fn add(&mut self, now: Moment, query: SurveyQuery) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(Running { query, next: 0, examined_count: 0, found: Vec::new() });
        }
        self.forgotten_at = now.after(MEMORY);
    }

    /// Whether a survey waits or is in progress.
    pub(super) fn is_running(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether the last request is so old that the counts are useless, and the struct can be dropped.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        !self.is_running() && now >= self.forgotten_at
    }

    /// Visits the next slots of `slot_count` for the first survey. `visit` receives the first slot, the number of slots, and a
    /// function that it calls with each sample.
    pub(super) fn step(
        &mut self,
        now: Moment,
        worker: (usize, u8),
        slot_count: usize,
        visit: impl FnOnce(usize, usize, &mut dyn FnMut(PeerSample)),
    ) {
        let Self { waiting, counted, .. } = self;
        let Some(running) = waiting.front_mut() else { return };
        // The table can grow between two passes. Each slot is visited once, so no connection is counted twice.
        let count = slot_count.saturating_sub(running.next).min(SLOTS_PER_PASS);
        visit(running.next, count, &mut |sample| {
            let sample = with_rates(counted, now, sample);
            running.add_sample(sample);
        });
        running.next += count;
        if running.next >= slot_count
            && let Some(running) = waiting.pop_front()
        {
            running.answer(worker);
        }
    }
}

impl Running {
    /// Adds the sample of a connection.
    fn add_sample(&mut self, sample: PeerSample) {
        self.examined_count += 1;
        self.found.push(sample);
        // Sorting only when the list is twice the required length keeps the number of comparisons per sample constant.
        if self.found.len() >= 2 * self.query.limit.max(1) {
            self.cut();
        }
    }

    /// Sorts the samples, and keeps the first ones that the query asks for.
    fn cut(&mut self) {
        sort_peers(&mut self.found, self.query.order);
        self.found.truncate(self.query.limit);
    }

    /// Adds this worker's part to the result of the survey.
    fn answer(mut self, (worker, busy_percent): (usize, u8)) {
        self.cut();
        let Self { query, examined_count, found, .. } = self;
        query.part.update(|survey| {
            survey.add((worker, busy_percent), examined_count, found, (query.order, query.limit));
        });
    }
}

/// Returns the sample with its rates, and stores its counts for the next survey.
fn with_rates(counted: &mut PeerMap<EarlierCounts>, now: Moment, mut sample: PeerSample) -> PeerSample {
    let PeerSample { peer, bytes_sent, bytes_received, .. } = sample;
    let before = counted.get(peer).copied();
    let rates = match before {
        None => None,
        // A survey soon after another one has the same rates as that one.
        Some(before) if now.since(before.at) < RATE_TIME_MIN => before.rates,
        Some(before) if now.since(before.at) >= MEMORY => None,
        Some(before) => {
            let rate = |bytes, then| per_second(bytes, then, now.since(before.at));
            Some((rate(bytes_sent, before.bytes_sent), rate(bytes_received, before.bytes_received)))
        }
    };
    if before.is_none_or(|before| now.since(before.at) >= RATE_TIME_MIN) {
        counted.insert(peer, EarlierCounts { at: now, bytes_sent, bytes_received, rates });
    }
    (sample.sent_per_second, sample.received_per_second) = rates.unzip();
    sample
}

/// Returns the bytes per second. A connection that became idle restarts its counts at 0, so `bytes` can be less than `before`.
fn per_second(bytes: u64, before: u64, elapsed: Duration) -> u64 {
    let increase = bytes.checked_sub(before).unwrap_or(bytes);
    let rate = u128::from(increase).saturating_mul(1_000).checked_div(elapsed.as_millis()).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
