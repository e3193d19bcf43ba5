//! A running receiver as others see it: samples once per interval of its plan, and the source of a live view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use drumfire::SurveyOrder;
use drumfire::control::{Snapshot, Source, WorkerRow};

use super::state::{GroupSample, Meters, Shared, WorkerState};
use crate::clock;

/// One second of a run, or one interval of its plan.
#[derive(Clone, Debug)]
pub struct Second {
    /// Which second, from 0.
    pub second: u64,
    /// Packets per second by thread.
    pub pps_per_thread: Vec<u64>,
    /// Kernel drops in this second; `None` if the system does not count them.
    pub kernel_drops: Option<u64>,
}

/// Callbacks of the caller.
pub struct Observer<'a> {
    /// Receives each sample.
    pub on_second: &'a mut dyn FnMut(&Second),
    /// Receives a line about a connection that was refused.
    pub on_note: &'a mut dyn FnMut(&str),
    /// Returns whether the run should end now.
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// Makes samples from the counters of all threads, one for each interval.
pub(super) struct RateSampler {
    interval: Duration,
    since: Instant,
    due: Instant,
    received: Vec<u64>,
    drops: Option<u64>,
    rates: Vec<Vec<u64>>,
}

impl RateSampler {
    pub(super) fn new(interval: Duration, now: Instant, sample: &GroupSample) -> Self {
        Self {
            interval,
            since: now,
            due: now + interval,
            received: sample.received.clone(),
            drops: sample.kernel_drops(),
            rates: Vec::new(),
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    pub(super) fn take(&mut self, now: Instant, sample: &GroupSample, observer: &mut Observer<'_>) {
        let elapsed = now.saturating_duration_since(self.since).as_secs_f64();
        let drops = sample.kernel_drops();
        let before = self.received.iter().chain(std::iter::repeat(&0));
        let news = sample.received.iter().zip(before).map(|(now, then)| now.saturating_sub(*then));
        let second = Second {
            second: self.rates.len() as u64,
            pps_per_thread: news.map(|count| rate(count, elapsed)).collect(),
            kernel_drops: drops.zip(self.drops).map(|(now, then)| now.saturating_sub(then)),
        };
        (observer.on_second)(&second);
        self.rates.push(second.pps_per_thread);
        self.since = now;
        self.due += self.interval;
        self.received.clone_from(&sample.received);
        self.drops = drops;
    }

    /// Adds the last, shorter interval if it is at least half of a whole one, or the only one. A rate over less says little.
    pub(super) fn finish(&mut self, now: Instant, sample: &GroupSample, observer: &mut Observer<'_>) {
        if self.rates.is_empty() || now.saturating_duration_since(self.since) >= self.interval / 2 {
            self.take(now, sample, observer);
        }
    }

    /// Packets per second by thread, for each interval.
    pub(super) fn into_rates(self) -> Vec<Vec<u64>> {
        self.rates
    }
}

/// A rate per second; 0 over no time.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float casts saturate; rates are positive"
)]
fn rate(count: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { (count as f64 / seconds).round() as u64 } else { 0 }
}

/// The error for commands about connections.
const NO_PEERS: &str = "a receiver has flows of a sender and no players";

/// A running receiver as the source of a control socket or a live view, which shows its threads. Flows are not listed, closed, or
/// traced.
pub struct ReceiverSource {
    shared: Arc<Shared>,
    meters: Meters,
    /// The time of the last snapshot, and the CPU time of each thread at that time in seconds.
    before: Option<(Instant, Vec<Option<f64>>)>,
}

impl ReceiverSource {
    pub(super) const fn new(shared: Arc<Shared>, meters: Meters) -> Self {
        Self { shared, meters, before: None }
    }

    /// The share of a core that each thread used since the last snapshot. `None` in the first snapshot, and where the system does
    /// not show the time of a thread.
    fn busy_percents(&mut self) -> Vec<Option<u64>> {
        let now = clock::now();
        let seconds = |state: &WorkerState| {
            let time = state.cpu()?.cpu_time();
            Some(time.user_s + time.sys_s)
        };
        let used: Vec<Option<f64>> = self.shared.states.iter().map(|state| seconds(state)).collect();
        let before = self.before.replace((now, used.clone()));
        let Some((then, before)) = before else { return vec![None; used.len()] };
        let elapsed = now.saturating_duration_since(then).as_secs_f64();
        let share = |(used, before)| busy_percent(used, before, elapsed);
        used.into_iter().zip(before).map(share).collect()
    }
}

/// Returns the share of a core, from the CPU times of a thread in seconds. A thread without a time in the last snapshot had not
/// started then, so it used all of its time since.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float casts saturate; shares are positive"
)]
fn busy_percent(used: Option<f64>, before: Option<f64>, elapsed: f64) -> Option<u64> {
    let since = used? - before.unwrap_or(0.0);
    (elapsed > 0.0).then(|| (100.0 * since / elapsed).round() as u64)
}

impl Source for ReceiverSource {
    fn snapshot(&mut self, _: SurveyOrder, _: usize) -> Snapshot {
        let busy = self.busy_percents();
        let states = self.shared.states.iter();
        let rows = states.zip(self.meters.read()).zip(busy).map(|((state, queue), busy_percent)| WorkerRow {
            received: state.received.load(Ordering::Relaxed),
            sent: 0,
            busy_percent,
            connections: 0,
            waiting: queue.map_or(0, |queue| queue.queued_bytes.into()),
            kernel_dropped: queue.map(|queue| queue.drops),
            dropped: BTreeMap::new(),
        });
        Snapshot { what: "receiver".to_owned(), workers: rows.collect(), ..Snapshot::default() }
    }

    fn close(&mut self, _: &str, _: &str) -> Result<String, String> {
        Err(NO_PEERS.to_owned())
    }

    fn ban(&mut self, _: &str, _: Duration) -> Result<String, String> {
        Err(NO_PEERS.to_owned())
    }

    fn trace(&mut self, _: &str) -> Result<String, String> {
        Err(NO_PEERS.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates of a run with one thread. Each pair is a time in milliseconds and the datagrams received until then. The last
    /// time is the end of the run.
    fn rates(looks: &[(u64, u64)]) -> Vec<Vec<u64>> {
        let sample = |received| GroupSample { received: vec![received], queues: Vec::new(), cpu: Vec::new() };
        let start = clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut observer = Observer { on_second: &mut |_| {}, on_note: &mut |_| {}, is_stopped: &|| false };
        let mut sampler = RateSampler::new(Duration::from_secs(1), start, &sample(0));
        let (end, seconds) = looks.split_last().expect("a run has an end");
        for (millis, received) in seconds {
            assert!(sampler.is_due(at(*millis)));
            sampler.take(at(*millis), &sample(*received), &mut observer);
        }
        sampler.finish(at(end.0), &sample(end.1), &mut observer);
        sampler.into_rates()
    }

    #[test]
    fn a_last_part_counts_as_a_rate_from_half_a_second_on() {
        let two = [vec![700], vec![900]];
        assert_eq!(rates(&[(1_000, 700), (2_000, 1_600), (2_499, 1_999)]), two, "too short to say much");
        let three = rates(&[(1_000, 700), (2_000, 1_600), (2_500, 1_900)]);
        assert_eq!(three.last(), Some(&vec![600]), "300 datagrams in half a second");
    }

    #[test]
    fn a_run_shorter_than_half_a_second_has_one_rate() {
        assert_eq!(rates(&[(100, 30)]), [vec![300]]);
    }

    #[test]
    fn a_thread_that_started_between_two_snapshots_has_a_share() {
        assert_eq!(busy_percent(Some(1.5), Some(1.0), 2.0), Some(25));
        assert_eq!(busy_percent(Some(0.5), None, 2.0), Some(25));
        assert_eq!(busy_percent(None, None, 2.0), None, "the system shows no times");
    }
}
