//! Samples of a running receiver: one per second, or per interval of its plan.

use std::time::{Duration, Instant};

use drumfire_socket::QueueState;

use super::group::GroupSample;
use crate::csv::Sample;
use crate::host::ThreadSample;

/// One second of a run, or one interval of its plan.
#[derive(Clone, Debug)]
pub struct Second {
    /// Which second, from 0.
    pub second: u64,
    /// Packets per second by thread.
    pub pps_per_thread: Vec<u64>,
    /// Kernel drops in this second; `None` if the system does not count them.
    pub kernel_drops: Option<u64>,
    /// The state of the threads, by index.
    pub threads: Vec<ThreadState>,
}

/// The state of one receiver thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadState {
    /// Datagrams received since it was started, from any address.
    pub received: u64,
    /// The queue of its socket; `None` if the system does not show it.
    pub queue: Option<QueueState>,
    /// The share of the time since the last sample that it spent on a core, 0 to 1; `None` if the system does not show it.
    pub busy: Option<f64>,
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
    second: u64,
    since: Instant,
    due: Instant,
    received: Vec<u64>,
    drops: Option<u64>,
    cpu: Vec<Option<ThreadSample>>,
    samples: Vec<Sample>,
}

impl RateSampler {
    pub(super) fn new(interval: Duration, now: Instant, sample: &GroupSample) -> Self {
        Self {
            interval,
            second: 0,
            since: now,
            due: now + interval,
            received: sample.received.clone(),
            drops: sample.kernel_drops(),
            cpu: sample.cpu.clone(),
            samples: Vec::new(),
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
            second: self.second,
            pps_per_thread: news.map(|count| rate(count, elapsed)).collect(),
            kernel_drops: drops.zip(self.drops).map(|(now, then)| now.saturating_sub(then)),
            threads: self.threads(elapsed, sample),
        };
        (observer.on_second)(&second);
        self.samples.push(Sample { run: self.second, pps_per_thread: second.pps_per_thread });
        self.second += 1;
        self.since = now;
        self.due += self.interval;
        self.received.clone_from(&sample.received);
        self.drops = drops;
        self.cpu.clone_from(&sample.cpu);
    }

    fn threads(&self, elapsed: f64, sample: &GroupSample) -> Vec<ThreadState> {
        let queues = sample.queues.iter().copied().chain(std::iter::repeat(None));
        let cpu = sample.cpu.iter().zip(&self.cpu).map(|(now, then)| now.as_ref().zip(then.as_ref()));
        let busy = cpu.map(|both| both.map(|(now, then)| share(now.since(then).run_ns, elapsed)));
        let threads = sample.received.iter().zip(queues).zip(busy.chain(std::iter::repeat(None)));
        threads.map(|((received, queue), busy)| ThreadState { received: *received, queue, busy }).collect()
    }

    /// Adds the last, shorter interval if it is at least half of a whole one, or the only one. A rate over less says little.
    pub(super) fn finish(&mut self, now: Instant, sample: &GroupSample, observer: &mut Observer<'_>) {
        if self.samples.is_empty() || now.saturating_duration_since(self.since) >= self.interval / 2 {
            self.take(now, sample, observer);
        }
    }

    pub(super) fn into_samples(self) -> Vec<Sample> {
        self.samples
    }
}

/// The share of a time span; 0 of an empty one.
fn share(nanos: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { (nanos as f64 / 1e9 / seconds).min(1.0) } else { 0.0 }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    /// The rates of a run with one thread. Each pair is a time in milliseconds and the datagrams received until then. The last
    /// time is the end of the run.
    fn rates(looks: &[(u64, u64)]) -> Vec<(u64, Vec<u64>)> {
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
        let samples = sampler.into_samples().into_iter();
        samples.map(|sample| (sample.run, sample.pps_per_thread)).collect()
    }

    #[test]
    fn a_last_part_counts_as_a_rate_from_half_a_second_on() {
        let two = [(0, vec![700]), (1, vec![900])];
        assert_eq!(rates(&[(1_000, 700), (2_000, 1_600), (2_499, 1_999)]), two, "too short to say much");
        let three = rates(&[(1_000, 700), (2_000, 1_600), (2_500, 1_900)]);
        assert_eq!(three.last(), Some(&(2, vec![600])), "300 datagrams in half a second");
    }

    #[test]
    fn threads_are_shown_with_their_queue_and_their_share_of_the_time_since_the_last_sample() {
        let queue = QueueState { drops: 2, queued_bytes: 768, limit_bytes: 9_000 };
        let sample = |received, run_ns| GroupSample {
            received: vec![received, 5],
            queues: vec![Some(queue), None],
            cpu: vec![Some(ThreadSample { run_ns, run_delay_ns: None, user_s: 0.0, sys_s: 0.0 }), None],
        };
        let (start, mut seen) = (clock::now(), Vec::new());
        let mut on_second = |second: &Second| seen.push(second.threads.clone());
        let mut observer =
            Observer { on_second: &mut on_second, on_note: &mut |_| {}, is_stopped: &|| false };
        let mut sampler = RateSampler::new(Duration::from_secs(1), start, &sample(10, 1_000));
        sampler.take(start + Duration::from_secs(2), &sample(30, 500_001_000), &mut observer);
        sampler.take(start + Duration::from_secs(3), &sample(40, 9_000_000_000), &mut observer);
        let second = ThreadState { received: 5, queue: None, busy: None };
        let first = |received, busy| ThreadState { received, queue: Some(queue), busy: Some(busy) };
        assert_eq!(seen, [[first(30, 0.25), second], [first(40, 1.0), second]]);
    }

    #[test]
    fn a_run_shorter_than_half_a_second_has_one_rate() {
        assert_eq!(rates(&[(100, 30)]), [(0, vec![300])]);
    }
}
