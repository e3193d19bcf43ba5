//! Surveys of the connections of a worker. Each pass looks at some connections, until all were seen.
//!
//! Without surveys there is no cost. A survey within ten seconds of the last one has rates, for which the worker keeps 40 bytes per
//! connection.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_proto::Moment;

use super::command::SurveyQuery;
use crate::base::peer_map::PeerMap;
use crate::observe::survey::{PeerSample, put_in_order};

/// The number of slots that one pass visits, including empty ones.
pub(crate) const SLOTS_PER_PASS: usize = 128;

/// What was counted of a connection is kept so long for the next survey.
const MEMORY: Duration = Duration::from_secs(10);

/// A rate is taken over so much time at least.
const RATE_TIME_MIN: Duration = Duration::from_millis(500);

/// The largest number of surveys that wait. Further ones have no result.
const WAITING_MAX: usize = 64;

/// The surveys of one worker.
#[derive(Debug)]
pub(super) struct Surveys {
    /// The first one is under way.
    waiting: VecDeque<Running>,
    counted: PeerMap<Counted>,
    forgotten_at: Moment,
}

#[derive(Debug)]
struct Running {
    query: SurveyQuery,
    /// The next slot to visit. All lower slots were visited.
    next: usize,
    seen_count: usize,
    found: Vec<PeerSample>,
}

/// What a connection had exchanged when it was looked at before, and at what rate.
#[derive(Clone, Copy, Debug)]
struct Counted {
    at: Moment,
    bytes_sent: u64,
    bytes_received: u64,
    /// `None` before there are two looks.
    rates: Option<(u64, u64)>,
}

impl Default for Surveys {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), counted: PeerMap::default(), forgotten_at: Moment::ORIGIN }
    }
}

impl Surveys {
    pub(super) fn add(&mut self, now: Moment, query: SurveyQuery) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back(Running { query, next: 0, seen_count: 0, found: Vec::new() });
        }
        self.forgotten_at = now.after(MEMORY);
    }

    /// Whether there is more to look at.
    pub(super) fn is_running(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether nobody asked for so long that nothing of this is needed.
    pub(super) fn is_over(&self, now: Moment) -> bool {
        !self.is_running() && now >= self.forgotten_at
    }

    /// Visits the next of `slot_count` slots. `look` passes on what it finds in a range of slots.
    pub(super) fn step(
        &mut self,
        now: Moment,
        worker: (usize, u8),
        slot_count: usize,
        look: impl FnOnce(usize, usize, &mut dyn FnMut(PeerSample)),
    ) {
        let Self { waiting, counted, .. } = self;
        let Some(running) = waiting.front_mut() else { return };
        let count = slot_count.saturating_sub(running.next).min(SLOTS_PER_PASS);
        look(running.next, count, &mut |sample| {
            let sample = rated(counted, now, sample);
            running.find(sample);
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
    fn find(&mut self, sample: PeerSample) {
        self.seen_count += 1;
        self.found.push(sample);
        // Cut in half when it is twice as long as need be, so that each is compared a few times only.
        if self.found.len() >= 2 * self.query.most.max(1) {
            self.cut();
        }
    }

    fn cut(&mut self) {
        put_in_order(&mut self.found, self.query.order);
        self.found.truncate(self.query.most);
    }

    fn answer(mut self, (worker, busy_percent): (usize, u8)) {
        self.cut();
        let Self { query, seen_count, found, .. } = self;
        query.part.update(|survey| {
            survey.add((worker, busy_percent), seen_count, found, (query.order, query.most));
        });
    }
}

/// The sample with its rates, which are noted for the next look.
fn rated(counted: &mut PeerMap<Counted>, now: Moment, mut sample: PeerSample) -> PeerSample {
    let PeerSample { peer, bytes_sent, bytes_received, .. } = sample;
    let before = counted.get(peer).copied();
    let rates = match before {
        None => None,
        Some(before) if now.since(before.at) < RATE_TIME_MIN => before.rates,
        Some(before) if now.since(before.at) >= MEMORY => None,
        Some(before) => {
            let rate = |bytes, then| per_second(bytes, then, now.since(before.at));
            Some((rate(bytes_sent, before.bytes_sent), rate(bytes_received, before.bytes_received)))
        }
    };
    if before.is_none_or(|before| now.since(before.at) >= RATE_TIME_MIN) {
        counted.insert(peer, Counted { at: now, bytes_sent, bytes_received, rates });
    }
    (sample.sent_per_second, sample.received_per_second) = rates.unzip();
    sample
}

/// A connection that was idle meanwhile counts anew from 0.
fn per_second(bytes: u64, before: u64, elapsed: Duration) -> u64 {
    let news = bytes.checked_sub(before).unwrap_or(bytes);
    let rate = u128::from(news).saturating_mul(1_000).checked_div(elapsed.as_millis()).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
