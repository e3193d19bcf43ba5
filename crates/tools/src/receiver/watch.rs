//! What a run shows while it goes on: a sample every second, or as often as its plan says.
//!
//! It subtracts counters and formats nothing.

use std::time::{Duration, Instant};

use drumfire_socket::QueueState;

use super::crew::Look;
use crate::csv::Sample;
use crate::host::ThreadSample;

/// One second of a run, or what its plan has instead of seconds.
#[derive(Clone, Debug)]
pub struct Second {
    /// Which second, from 0.
    pub second: u64,
    /// Packets per second by thread.
    pub pps_per_thread: Vec<u64>,
    /// Kernel drops in this second; nothing where the system does not tell.
    pub kernel_drops: Option<u64>,
    /// The threads as they are now, by index.
    pub threads: Vec<ThreadState>,
}

/// One receiver thread, as others see it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ThreadState {
    /// Datagrams received since it was started, whoever sent them.
    pub received: u64,
    /// Its socket's queue; nothing where the system does not tell.
    pub queue: Option<QueueState>,
    /// The share of the time since the last sample for which it was on a core, 0 to 1; nothing where the system does not tell.
    pub busy: Option<f64>,
}

/// The caller's ears and its word to stop.
pub struct Watch<'a> {
    /// Called for each sample while a sender sends.
    pub on_second: &'a mut dyn FnMut(&Second),
    /// Called with a sentence worth telling.
    pub on_note: &'a mut dyn FnMut(&str),
    /// Whether to end now.
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// Turns looks into samples, one for each interval.
pub(super) struct Ticker {
    interval: Duration,
    second: u64,
    since: Instant,
    due: Instant,
    received: Vec<u64>,
    drops: Option<u64>,
    cpu: Vec<Option<ThreadSample>>,
    samples: Vec<Sample>,
}

impl Ticker {
    pub(super) fn new(interval: Duration, now: Instant, look: &Look) -> Self {
        Self {
            interval,
            second: 0,
            since: now,
            due: now + interval,
            received: look.received.clone(),
            drops: look.kernel_drops(),
            cpu: look.cpu.clone(),
            samples: Vec::new(),
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    pub(super) fn tick(&mut self, now: Instant, look: &Look, watch: &mut Watch<'_>) {
        let elapsed = now.saturating_duration_since(self.since).as_secs_f64();
        let drops = look.kernel_drops();
        let before = self.received.iter().chain(std::iter::repeat(&0));
        let news = look.received.iter().zip(before).map(|(now, then)| now.saturating_sub(*then));
        let second = Second {
            second: self.second,
            pps_per_thread: news.map(|count| rate(count, elapsed)).collect(),
            kernel_drops: drops.zip(self.drops).map(|(now, then)| now.saturating_sub(then)),
            threads: self.threads(elapsed, look),
        };
        (watch.on_second)(&second);
        self.samples.push(Sample { run: self.second, pps_per_thread: second.pps_per_thread });
        self.second += 1;
        self.since = now;
        self.due += self.interval;
        self.received.clone_from(&look.received);
        self.drops = drops;
        self.cpu.clone_from(&look.cpu);
    }

    fn threads(&self, elapsed: f64, look: &Look) -> Vec<ThreadState> {
        let queues = look.queues.iter().copied().chain(std::iter::repeat(None));
        let cpu = look.cpu.iter().zip(&self.cpu).map(|(now, then)| now.as_ref().zip(then.as_ref()));
        let busy = cpu.map(|both| both.map(|(now, then)| share(now.since(then).run_ns, elapsed)));
        let threads = look.received.iter().zip(queues).zip(busy.chain(std::iter::repeat(None)));
        threads.map(|((received, queue), busy)| ThreadState { received: *received, queue, busy }).collect()
    }

    /// Takes the last, shorter interval if it is at least half of a whole one, for a rate over less says little; or the
    /// only one.
    pub(super) fn finish(&mut self, now: Instant, look: &Look, watch: &mut Watch<'_>) {
        if self.samples.is_empty() || now.saturating_duration_since(self.since) >= self.interval / 2 {
            self.tick(now, look, watch);
        }
    }

    pub(super) fn into_samples(self) -> Vec<Sample> {
        self.samples
    }
}

/// Which part of the time that is; no time has none.
fn share(nanos: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { (nanos as f64 / 1e9 / seconds).min(1.0) } else { 0.0 }
}

/// A whole rate; a count over no time has none.
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

    /// The rates of a run in which one thread has received so many datagrams by these times, in milliseconds, the last of them
    /// being the run's end.
    fn rates(looks: &[(u64, u64)]) -> Vec<(u64, Vec<u64>)> {
        let look = |received| Look { received: vec![received], queues: Vec::new(), cpu: Vec::new() };
        let start = clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut watch = Watch { on_second: &mut |_| {}, on_note: &mut |_| {}, is_stopped: &|| false };
        let mut ticker = Ticker::new(Duration::from_secs(1), start, &look(0));
        let (end, seconds) = looks.split_last().expect("a run has an end");
        for (millis, received) in seconds {
            assert!(ticker.is_due(at(*millis)));
            ticker.tick(at(*millis), &look(*received), &mut watch);
        }
        ticker.finish(at(end.0), &look(end.1), &mut watch);
        let samples = ticker.into_samples().into_iter();
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
        let look = |received, run_ns| Look {
            received: vec![received, 5],
            queues: vec![Some(queue), None],
            cpu: vec![Some(ThreadSample { run_ns, run_delay_ns: None, user_s: 0.0, sys_s: 0.0 }), None],
        };
        let (start, mut seen) = (clock::now(), Vec::new());
        let mut on_second = |second: &Second| seen.push(second.threads.clone());
        let mut watch = Watch { on_second: &mut on_second, on_note: &mut |_| {}, is_stopped: &|| false };
        let mut ticker = Ticker::new(Duration::from_secs(1), start, &look(10, 1_000));
        ticker.tick(start + Duration::from_secs(2), &look(30, 500_001_000), &mut watch);
        ticker.tick(start + Duration::from_secs(3), &look(40, 9_000_000_000), &mut watch);
        let second = ThreadState { received: 5, queue: None, busy: None };
        let first = |received, busy| ThreadState { received, queue: Some(queue), busy: Some(busy) };
        assert_eq!(seen, [[first(30, 0.25), second], [first(40, 1.0), second]]);
    }

    #[test]
    fn a_run_shorter_than_half_a_second_has_one_rate() {
        assert_eq!(rates(&[(100, 30)]), [(0, vec![300])]);
    }
}
