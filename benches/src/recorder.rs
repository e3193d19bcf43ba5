//! The counts and latencies of echoed messages over one window, as the client records them and prints them to the bench.
//!
//! Nothing is sent here, and no clock is read. The caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_tools::report::Latency;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::books::{close, count};
use crate::process::Counts;

/// Longer latencies are recorded as this one: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// A closed loop stops waiting for an unreliable message after this time, in nanoseconds.
const GIVEN_UP_NS: u64 = 250_000_000;

/// The time in which messages count, in nanoseconds of the host's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The start of the window, inclusive.
    pub start: u64,
    /// The end of the window, exclusive.
    pub end: u64,
}

impl Window {
    /// A window of this length.
    pub fn beginning_at(start: u64, length: Duration) -> Self {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self { start, end: start.saturating_add(length) }
    }

    /// The length.
    pub fn length(self) -> Duration {
        Duration::from_nanos(self.end.saturating_sub(self.start))
    }

    /// Whether this time is within the window.
    pub fn has(self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }
}

/// Records the messages of one window after the other.
#[derive(Debug)]
pub struct Recorder {
    /// The present window.
    pub window: Window,
    /// The counts of the present window. The latencies are filled in by [`Self::finish`].
    pub counts: EchoCounts,
    latency: Histogram<u64>,
    delay: Histogram<u64>,
}

/// The counts of a [`Recorder`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EchoCounts {
    /// Messages that were outstanding when the window began.
    pub outstanding_at_start: u64,
    /// Messages that returned in earlier windows.
    pub early: u64,
    /// Messages sent within the window.
    pub sent: u64,
    /// Messages that returned within the window.
    pub echoed: u64,
    /// Messages that returned after the window.
    pub late: u64,
    /// Messages that never returned.
    pub lost: u64,
    /// Messages for which the connection had no room.
    pub refused: u64,
    /// Messages of a schedule that were left out because their connection had too many outstanding ones.
    pub no_room: u64,
    /// Messages of a schedule that were left out because the next one of their connection was due. The client had no time.
    pub overdue: u64,
    /// Received messages that were not outstanding: duplicates, and bytes that were never sent. Earlier windows are included.
    pub unexpected: u64,
    /// Polls of a socket within the window.
    pub polls: u64,
    /// Polls that found nothing.
    pub idle_polls: u64,
    /// The time from the intended departure to the return, of messages that were due within the window. It includes late ones.
    pub latency: Option<Latency>,
    /// How late messages of a schedule left.
    pub delay: Option<Latency>,
}

impl Default for Recorder {
    fn default() -> Self {
        let histogram = || match Histogram::new_with_bounds(1, LONGEST_NS, 3) {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("the bounds are valid: {error}"),
        };
        let (window, counts) = (Window::default(), EchoCounts::default());
        Self { window, counts, latency: histogram(), delay: histogram() }
    }
}

impl Recorder {
    /// Begins a window in which this number of messages is outstanding already.
    pub fn begin(&mut self, window: Window, outstanding_at_start: u64) {
        let (early, unexpected) = (self.counts.back_in_all(), self.counts.unexpected);
        self.counts = EchoCounts { outstanding_at_start, early, unexpected, ..EchoCounts::default() };
        self.window = window;
        self.latency.reset();
        self.delay.reset();
    }

    /// Counts a message that returned now. The latency counts from its intended departure.
    pub fn on_echo(&mut self, now: u64, latency_ns: u64) {
        // Messages are selected by their intended departure. The slowest ones return after the window, and without them the tail
        // would end where the window does.
        if self.window.has(now.saturating_sub(latency_ns)) {
            self.latency.saturating_record(latency_ns);
        }
        *(if now < self.window.end { &mut self.counts.echoed } else { &mut self.counts.late }) += 1;
    }

    /// Counts a poll of a socket.
    pub fn on_poll(&mut self, now: u64, is_idle: bool) {
        if now < self.window.end {
            self.counts.polls += 1;
            self.counts.idle_polls += u64::from(is_idle);
        }
    }

    /// Records that a message of a schedule leaves `delay_ns` after its time.
    pub fn on_departure(&mut self, delay_ns: u64) {
        self.delay.saturating_record(delay_ns);
    }

    /// The latencies of messages that were due within the window.
    pub const fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// Returns the counts with the latencies.
    pub fn finish(&self) -> EchoCounts {
        let (latency, delay) = (Latency::of(&self.latency), Latency::of(&self.delay));
        EchoCounts { latency, delay, ..self.counts.clone() }
    }
}

impl EchoCounts {
    /// All messages sent, including those of earlier windows, except those that were given up.
    pub const fn sent_in_all(&self) -> u64 {
        self.outstanding_at_start + self.early + self.sent
    }

    /// All messages that returned, including those of earlier windows.
    pub const fn back_in_all(&self) -> u64 {
        self.early + self.echoed + self.late
    }

    /// All messages of a schedule within the window.
    pub const fn offered(&self) -> u64 {
        self.sent + self.refused + self.no_room + self.overdue
    }

    /// Compares these counts with those of the server, which are `received`, `echoed`, and `refused`. Fails for faults that no named drop
    /// excuses.
    pub fn check(&self, served: &Counts, may_lose: bool) -> Result<(), String> {
        let [received, echoed, refused] = ["received", "echoed", "refused"].map(|name| count(served, name));
        let (sent, back) = (self.sent_in_all(), self.back_in_all());
        close([
            ("messages that were not outstanding", self.unexpected, 0..=0),
            ("unexplained", count(served, "unexplained"), 0..=0),
            ("lost", self.lost, 0..=if may_lose { u64::MAX } else { 0 }),
            ("sent", sent, back + self.lost..=back + self.lost),
            ("received", received, echoed + refused..=echoed + refused),
            ("received", received, 0..=sent),
            ("returned", back, 0..=echoed),
        ])
    }
}

/// The outstanding messages of one connection, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    next: u64,
    /// Messages with smaller numbers are forgotten.
    first: u64,
    /// The number of each message, and when it was due.
    waiting: VecDeque<(u64, u64)>,
}

impl Outstanding {
    /// No message is outstanding, and the first one has this number.
    pub(crate) fn beginning_at(next: u64) -> Self {
        Self { next, first: next, waiting: VecDeque::new() }
    }

    /// The number of the next message.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Adds the next message, which was due at this time.
    pub(crate) fn add(&mut self, due: u64) {
        self.waiting.push_back((self.next, due));
        self.next += 1;
    }

    /// Removes a message that returned and returns when it was due, or `None` when it is not outstanding.
    pub(crate) fn take(&mut self, number: u64) -> Option<u64> {
        let place = self.waiting.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.waiting.remove(place).map(|(_, due)| due)
    }

    /// The number of messages for which a closed loop waits. It does not wait for unreliable messages that were due more than
    /// [`GIVEN_UP_NS`] ago, though they may still return.
    pub(crate) fn awaited(&self, now: u64, may_lose: bool) -> usize {
        let is_awaited = |(_, due): &&(u64, u64)| !may_lose || due.saturating_add(GIVEN_UP_NS) >= now;
        self.waiting.iter().rev().take_while(is_awaited).count()
    }

    /// Removes all outstanding messages.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
        self.first = self.next;
    }

    /// Whether this message may have been outstanding when all were removed.
    pub(crate) const fn is_forgotten(&self, number: u64) -> bool {
        number < self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three messages left before the window, and one of them returned. Three leave in the window, one is late, and one never returns.
    fn recorder() -> Recorder {
        let mut recorder = Recorder::default();
        recorder.begin(Window { start: 0, end: 1_000 }, 0);
        recorder.counts.sent += 3;
        recorder.on_echo(950, 50);
        recorder.begin(Window::beginning_at(1_000, Duration::from_nanos(1_000)), 2);
        recorder.counts.sent += 3;
        for latency in [100, 200, 300] {
            recorder.on_echo(1_999, latency);
        }
        recorder.on_echo(2_000, 5_000);
        recorder.counts.lost = 1;
        recorder
    }

    #[test]
    fn a_message_counts_where_it_left_and_where_it_came_back() {
        let counts = recorder().finish();
        assert_eq!((counts.outstanding_at_start, counts.sent, counts.echoed, counts.late), (2, 3, 3, 1));
        assert_eq!((counts.sent_in_all(), counts.back_in_all()), (6, 5), "with the warm-up");
        let latency = counts.latency.expect("three were measured");
        assert_eq!((latency.count, latency.p50, latency.max), (3, 200, 300), "only those due in the window");
    }

    #[test]
    fn messages_that_come_after_the_window_are_in_the_tail() {
        let mut recorder = Recorder::default();
        recorder.begin(Window::beginning_at(1_000, Duration::from_nanos(1_000)), 1);
        for (due, back) in [(999, 1_700), (1_000, 1_100), (1_999, 3_000), (2_000, 3_900)] {
            recorder.on_echo(back, back - due);
        }
        let counts = recorder.finish();
        assert_eq!((counts.echoed, counts.late), (2, 2), "the counts go by the return");
        let latency = counts.latency.expect("two were measured");
        assert_eq!((latency.count, latency.p50, latency.max), (2, 100, 1_001), "those due in the window");
    }

    #[test]
    fn polls_count_within_the_window_and_departures_always() {
        let mut recorder = recorder();
        for (now, is_idle) in [(1_000, true), (1_999, false), (2_000, true)] {
            recorder.on_poll(now, is_idle);
            recorder.on_departure(now);
        }
        let counts = recorder.finish();
        assert_eq!((counts.polls, counts.idle_polls), (2, 1));
        assert_eq!(counts.delay.map(|delay| delay.count), Some(3));
    }

    #[test]
    fn a_message_comes_back_once_and_in_any_order() {
        let mut out = Outstanding::default();
        for due in [10, 20, 30] {
            out.add(due);
        }
        assert_eq!((out.next(), out.take(1), out.take(1), out.take(3)), (3, Some(20), None, None));
        assert_eq!(out.take(0), Some(10));
        out.forget();
        assert_eq!((out.take(2), out.next()), (None, 3));
        assert!(out.is_forgotten(0) && !out.is_forgotten(3));
    }

    #[test]
    fn a_closed_loop_goes_on_without_lost_unreliable_messages() {
        let mut out = Outstanding::beginning_at(70);
        out.add(0);
        out.add(GIVEN_UP_NS);
        let now = GIVEN_UP_NS + 1;
        assert_eq!((out.awaited(now, true), out.awaited(now, false)), (1, 2));
        assert_eq!((out.take(70), out.take(70), out.next()), (Some(0), None, 72), "it may still return");
        assert_eq!((out.awaited(now, true), out.awaited(now + GIVEN_UP_NS, true)), (1, 0));
    }
}
