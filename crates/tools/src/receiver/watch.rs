//! Samples of a running receiver, one for each interval of its plan.

use std::time::{Duration, Instant};

use super::state::GroupSample;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// The rates of a run with one thread. Each pair is a time in milliseconds and the datagrams received until then. The last
    /// time is the end of the run.
    fn rates(looks: &[(u64, u64)]) -> Vec<Vec<u64>> {
        let sample = |received| GroupSample { received: vec![received], queues: Vec::new(), cpu: Vec::new() };
        let start = crate::clock::now();
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
}
