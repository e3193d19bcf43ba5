//! The books of messages that come back, over one window: counted by the client, and printed to the bench.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Counts messages by the time at which they left and came back.
#[derive(Debug)]
pub struct Tally {
    /// The time in which messages count.
    pub window: Window,
    /// The counts. The latencies are filled in by [`Self::finish`].
    pub counts: EchoCounts,
    latency: Histogram<u64>,
    delay: Histogram<u64>,
}

/// The counts of a [`Tally`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EchoCounts {
    /// Messages that were outstanding when the window began.
    pub out_at_start: u64,
    /// Messages that came back before the window.
    pub early: u64,
    /// Messages sent within the window.
    pub sent: u64,
    /// Messages that came back within the window.
    pub echoed: u64,
    /// Messages that came back after the window.
    pub late: u64,
    /// Messages that never came back.
    pub lost: u64,
    /// Messages for which the connection had no room.
    pub refused: u64,
    /// Messages of a schedule that were left out because their connection had too many outstanding ones.
    pub no_room: u64,
    /// Messages of a schedule that were left out because the next one of their connection was due. The client had no time.
    pub overdue: u64,
    /// Messages that came and were not outstanding: duplicates, and bytes that were never sent.
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

impl Default for Tally {
    fn default() -> Self {
        Self::new(Window { start: 0, end: 0 })
    }
}

impl Tally {
    /// A tally without counts.
    pub fn new(window: Window) -> Self {
        let histogram = || match Histogram::new_with_bounds(1, LONGEST_NS, 3) {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("the bounds are valid: {error}"),
        };
        Self { window, counts: EchoCounts::default(), latency: histogram(), delay: histogram() }
    }

    /// Counts a message that leaves now.
    pub fn on_sent(&mut self, now: u64) {
        if now < self.window.start {
            self.counts.out_at_start += 1;
        } else {
            self.counts.sent += 1;
        }
    }

    /// Counts a message that came back now. The latency counts from its intended departure.
    pub fn on_echo(&mut self, now: u64, latency_ns: u64) {
        // Messages are selected by their intended departure. The slowest ones come back after the window, and without them the tail
        // would end where the window does.
        if self.window.has(now.saturating_sub(latency_ns)) {
            self.latency.saturating_record(latency_ns);
        }
        if now < self.window.start {
            self.counts.out_at_start -= 1;
            self.counts.early += 1;
        } else if now < self.window.end {
            self.counts.echoed += 1;
        } else {
            self.counts.late += 1;
        }
    }

    /// Counts a poll of a socket.
    pub fn on_poll(&mut self, now: u64, is_idle: bool) {
        if self.window.has(now) {
            self.counts.polls += 1;
            self.counts.idle_polls += u64::from(is_idle);
        }
    }

    /// Counts a message of a schedule that leaves now, `delay_ns` after its time.
    pub fn on_departure(&mut self, now: u64, delay_ns: u64) {
        if now >= self.window.start {
            self.delay.saturating_record(delay_ns);
        }
    }

    /// Counts a message of a schedule that is left out because its connection has too many outstanding ones.
    pub fn on_no_room(&mut self, now: u64) {
        self.counts.no_room += u64::from(now >= self.window.start);
    }

    /// Counts messages of a schedule that are left out because the next ones of their connections are due.
    pub fn on_overdue(&mut self, now: u64, count: u64) {
        if now >= self.window.start {
            self.counts.overdue += count;
        }
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
    /// All messages sent, including those before the window.
    pub const fn sent_in_all(&self) -> u64 {
        self.out_at_start + self.early + self.sent
    }

    /// All messages that came back, including those before and after the window.
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
            ("came back", back, 0..=echoed),
        ])
    }
}

/// The outstanding messages of one connection, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    next: u64,
    /// Messages with smaller numbers are forgotten.
    first: u64,
    waiting: VecDeque<Sent>,
}

/// A message that is outstanding: its number, when it left, and when it was due.
#[derive(Debug)]
struct Sent {
    number: u64,
    at: u64,
    due: u64,
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

    /// Adds the next message, which left at `at` and was due at `due`.
    pub(crate) fn sent_at(&mut self, at: u64, due: u64) {
        self.waiting.push_back(Sent { number: self.next, at, due });
        self.next += 1;
    }

    /// Removes a message that came back and returns when it was due, or `None` when it is not outstanding.
    pub(crate) fn take(&mut self, number: u64) -> Option<u64> {
        let place = self.waiting.binary_search_by_key(&number, |sent| sent.number).ok()?;
        self.waiting.remove(place).map(|sent| sent.due)
    }

    /// The number of messages for which a closed loop waits. It does not wait for unreliable messages that left more than
    /// [`GIVEN_UP_NS`] ago, though they may still come back.
    pub(crate) fn awaited(&self, now: u64, may_lose: bool) -> usize {
        let is_awaited = |sent: &&Sent| !may_lose || sent.at.saturating_add(GIVEN_UP_NS) >= now;
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

    /// Two messages are out when the window begins, three leave in it, one is late, and one never comes.
    fn tally() -> Tally {
        let mut tally = Tally::new(Window::beginning_at(1_000, Duration::from_nanos(1_000)));
        (0..3).for_each(|_| tally.on_sent(900));
        tally.on_echo(950, 50);
        (0..3).for_each(|_| tally.on_sent(1_000));
        for latency in [100, 200, 300] {
            tally.on_echo(1_999, latency);
        }
        tally.on_echo(2_000, 5_000);
        tally.counts.lost = 1;
        tally
    }

    #[test]
    fn a_message_counts_where_it_left_and_where_it_came_back() {
        let counts = tally().finish();
        assert_eq!((counts.out_at_start, counts.sent, counts.echoed, counts.late), (2, 3, 3, 1));
        assert_eq!((counts.sent_in_all(), counts.back_in_all()), (6, 5), "with the warm-up");
        let latency = counts.latency.expect("three were measured");
        assert_eq!((latency.count, latency.p50, latency.max), (3, 200, 300), "only those due in the window");
    }

    #[test]
    fn messages_that_come_after_the_window_are_in_the_tail() {
        let mut tally = Tally::new(Window::beginning_at(1_000, Duration::from_nanos(1_000)));
        let due_and_back = [(999, 1_700), (1_000, 1_100), (1_999, 3_000), (2_000, 3_900)];
        for (due, _) in due_and_back {
            tally.on_sent(due);
        }
        for (due, back) in due_and_back {
            tally.on_echo(back, back - due);
        }
        let counts = tally.finish();
        assert_eq!((counts.echoed, counts.late), (2, 2), "the books go by the return");
        let latency = counts.latency.expect("two were measured");
        assert_eq!((latency.count, latency.p50, latency.max), (2, 100, 1_001), "those due in the window");
    }

    #[test]
    fn polls_and_departures_count_within_the_window() {
        let mut tally = tally();
        for (now, is_idle) in [(999, true), (1_000, true), (1_999, false), (2_000, true)] {
            tally.on_poll(now, is_idle);
            tally.on_departure(now, now);
        }
        let counts = tally.finish();
        assert_eq!((counts.polls, counts.idle_polls), (2, 1));
        assert_eq!(counts.delay.map(|delay| delay.count), Some(3), "all that leave after the start");
    }

    #[test]
    fn a_message_comes_back_once_and_in_any_order() {
        let mut out = Outstanding::default();
        for due in [10, 20, 30] {
            out.sent_at(due, due);
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
        out.sent_at(0, 0);
        // The second message was due long ago and leaves now.
        out.sent_at(GIVEN_UP_NS, 0);
        let now = GIVEN_UP_NS + 1;
        assert_eq!((out.awaited(now, true), out.awaited(now, false)), (1, 2));
        assert_eq!((out.take(70), out.take(70), out.next()), (Some(0), None, 72), "it may still come");
        assert_eq!((out.awaited(now, true), out.awaited(now + GIVEN_UP_NS, true)), (1, 0));
    }
}
