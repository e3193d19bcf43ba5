//! The books of messages that come back, over one window: counted by the client, printed to the bench, and made into a report.
//!
//! Nothing is sent here, and no clock is read. The caller passes the time.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_tools::host;
use drumfire_tools::report::{Books, Counted, Flags, Latency, Report, ThreadCount};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::books::count;
use crate::host::WindowUsage;
use crate::process::Counts;
use crate::traffic::{Polling, Shape, Traffic, Turns};

/// The name of messages that came back after the window.
const OUTSTANDING: &str = "outstanding";

/// Longer latencies are recorded as this one: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// A closed loop stops waiting for an unreliable message after this time, in nanoseconds.
const GIVEN_UP_NS: u64 = 250_000_000;

/// The share of the server's core that a closed loop must use. Below it the client was the limit.
const SATURATED: f64 = 0.9;

/// The share of the client's polls that must find nothing. Below it the client itself is the limit: a server that waits for the
/// client still looks busy, with a few datagrams per wake-up.
const IDLE_LEAST: f64 = 0.05;

/// The client limits a schedule with turns when it leaves out more than one turn in this many.
const LATE_TURNS: u64 = 100;

/// A client that shares its core limits a schedule when it sends less of it than this.
const SENT_LEAST: f64 = 0.99;

/// The time in which messages count, in nanoseconds of the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The start, which belongs to the window.
    pub start: u64,
    /// The end, which does not.
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

    fn has(self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }

    /// The window as one line for another process.
    pub fn to_line(self) -> String {
        format!("{} {}", self.start, self.end)
    }

    /// Reads a line that [`Self::to_line`] wrote.
    pub fn of_line(line: &str) -> Option<Self> {
        let (start, end) = line.split_once(' ')?;
        Some(Self { start: start.parse().ok()?, end: end.parse().ok()? })
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
    /// Messages that came and were not outstanding: duplicates, and bytes that were never sent.
    pub strangers: u64,
    /// Polls of a socket within the window.
    pub looks: u64,
    /// Polls that found nothing.
    pub idle_looks: u64,
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
    pub fn on_look(&mut self, now: u64, is_idle: bool) {
        if self.window.has(now) {
            self.counts.looks += 1;
            self.counts.idle_looks += u64::from(is_idle);
        }
    }

    /// Counts a message of a schedule that leaves now, `delay_ns` after its time.
    pub fn on_departure(&mut self, now: u64, delay_ns: u64) {
        if now >= self.window.start {
            self.delay.saturating_record(delay_ns);
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

    /// The counts as one line for another process.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a line that [`Self::to_line`] wrote.
    pub fn of_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Compares these counts with those of the server, which are `received`, `echoed`, and `refused`. Fails for faults that no named drop
    /// excuses.
    pub fn check(&self, served: &Counts, may_lose: bool) -> Result<(), String> {
        let [received, echoed, refused] = ["received", "echoed", "refused"].map(|name| count(served, name));
        let (sent, back) = (self.sent_in_all(), self.back_in_all());
        for (count, what) in [
            (self.strangers, "messages came back that were not outstanding"),
            (count(served, "unexplained"), "datagrams are in no counter of the server"),
            (if may_lose { 0 } else { self.lost }, "reliable messages never came back"),
            (sent.abs_diff(back + self.lost), "messages are in no counter of the client"),
            (received.abs_diff(echoed + refused), "messages are in no counter of the server"),
            (received.saturating_sub(sent), "messages reached the server that were never sent"),
            (back.saturating_sub(echoed), "answers came that were never sent"),
        ] {
            if count > 0 {
                return Err(format!("BOOKS DO NOT CLOSE: {count} {what}"));
            }
        }
        Ok(())
    }

    /// Describes how late the messages of a schedule left.
    fn delay_note(&self) -> Option<String> {
        let Latency { p50, p99, .. } = self.delay?;
        Some(format!(
            "sends left {} us after their time at half of them, {} us at 99 %",
            p50 / 1_000,
            p99 / 1_000
        ))
    }
}

/// One window of traffic: its books, and the usage of both ends.
#[derive(Clone, Debug)]
pub struct EchoRound {
    /// The traffic.
    pub traffic: Traffic,
    /// The number of messages offered per second, if there was a schedule.
    pub rate: Option<u64>,
    /// The window.
    pub window: Window,
    /// The counts of the client.
    pub counts: EchoCounts,
    /// What became of the turns of a schedule, with [`Polling::Turns`].
    pub turns: Option<Turns>,
    /// The usage of the server's process and of the client's.
    pub usage: WindowUsage,
}

impl EchoRound {
    /// Makes the report of the server. `lost` names the places at which messages were lost. Server and client are judged by their
    /// waiting for a core where they have one busy thread.
    pub fn report(&self, flags: Flags, has_one_thread: [bool; 2], lost: &[(&str, u64)]) -> Report {
        let Self { counts, window, .. } = self;
        let books = Books::new(counts.out_at_start + counts.sent, counts.echoed);
        let books = books.dropped(OUTSTANDING, counts.late);
        let cpu = Some(self.usage.server.cpu_over(window.length()));
        let mut report = Report::of(Counted {
            flags,
            machine: host::machine(),
            window: window.length(),
            books: lost.iter().fold(books, |books, (name, count)| books.dropped(name, *count)),
            threads: vec![ThreadCount { received: counts.echoed, cpu, ..ThreadCount::default() }],
            ..Counted::default()
        });
        report.latency_ns = counts.latency;
        let millis = u64::try_from(window.length().as_millis()).unwrap_or(u64::MAX);
        let offered = self.rate.map(|rate| rate.saturating_mul(millis) / 1_000);
        report.offered = self.turns.map(|turns| turns.offered).or(offered);
        report.limited_by = self.is_client_limit().then(|| "client".to_owned());
        self.usage.note_in(&mut report, has_one_thread);
        report.notes.push(format!("{:.0} % of the client's polls found nothing", self.idle_share() * 100.0));
        report.notes.push(format!("{} messages found no room at the client", counts.refused));
        report.notes.extend(counts.delay_note());
        report.notes.extend(self.turns.map(|turns| format!("{turns:?}")));
        report
    }

    fn idle_share(&self) -> f64 {
        self.counts.idle_looks as f64 / self.counts.looks.max(1) as f64
    }

    /// Whether the client was the limit.
    fn is_client_limit(&self) -> bool {
        let Self { traffic, counts, .. } = self;
        let is_full = self.usage.server.core_share() >= SATURATED;
        match (traffic.shape, traffic.polling) {
            (Shape::Idle, _) => false,
            (Shape::Open { .. }, Polling::Turns) => {
                self.turns.is_some_and(|turns| turns.late * LATE_TURNS > turns.offered)
            }
            // It sends late, and still sends the whole schedule.
            (Shape::Open { .. }, Polling::Rest) => {
                let offered = self.rate.unwrap_or(0) as f64 * self.window.length().as_secs_f64();
                ((counts.sent + counts.refused) as f64) < offered * SENT_LEAST
            }
            (Shape::Open { .. }, _) => counts.delay.is_some_and(|delay| delay.p90 > traffic.late_ns),
            // Its path has delays and losses, which limit a closed loop.
            (Shape::Closed { .. }, Polling::Rest) => false,
            (Shape::Closed { .. }, Polling::Single) => !is_full || self.idle_share() < IDLE_LEAST,
            (Shape::Closed { .. }, _) => !is_full,
        }
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
    #[must_use]
    pub(crate) const fn is_forgotten(&self, number: u64) -> bool {
        number < self.first
    }
}

#[cfg(test)]
mod tests {
    use drumfire_tools::host::ThreadSample;

    use super::*;
    use crate::host::Usage;

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
            tally.on_look(now, is_idle);
            tally.on_departure(now, now);
        }
        let counts = tally.finish();
        assert_eq!((counts.looks, counts.idle_looks), (2, 1));
        assert_eq!(counts.delay.map(|delay| delay.count), Some(3), "all that leave after the start");
    }

    fn round(counts: EchoCounts, traffic: Traffic, core_share: f64) -> EchoRound {
        let window = Window::beginning_at(1_000, Duration::from_nanos(1_000));
        let run = Duration::from_secs_f64(core_share).as_nanos();
        let cpu = ThreadSample { run_ns: u64::try_from(run).expect("a second"), ..ThreadSample::default() };
        let server = Usage { window: Duration::from_secs(1), cpu };
        let usage = WindowUsage { server, load: server, steal_share: None };
        EchoRound { traffic, rate: Some(5), window, counts, turns: None, usage }
    }

    #[test]
    fn the_books_of_a_report_close_only_with_every_loss_named() {
        let round = round(tally().finish(), Traffic::echo(Shape::Open { rate: 5 }, 1, 64), 1.0);
        let report = |lost| round.report(Flags::default(), [true; 2], &[("lost", lost)]);
        assert!(report(1).check().is_ok());
        assert!(report(0).check().is_err() && report(2).check().is_err());
        assert_eq!((report(1).pps, report(1).offered), (3e6, Some(0)));
    }

    #[test]
    fn a_closed_loop_is_limited_by_a_client_that_is_never_idle() {
        let single = |shape| Traffic { polling: Polling::Single, ..Traffic::echo(shape, 1, 64) };
        let is_limited = |shape, idle_looks, core_share| {
            let counts = EchoCounts { looks: 100, idle_looks, ..EchoCounts::default() };
            round(counts, single(shape), core_share).is_client_limit()
        };
        let closed = Shape::Closed { outstanding: 1 };
        assert!(!is_limited(closed, 5, 0.9) && is_limited(closed, 5, 0.89) && is_limited(closed, 4, 1.0));
        assert!(!is_limited(Shape::Idle, 0, 0.0));
    }

    #[test]
    fn a_schedule_is_limited_by_a_client_that_sends_late() {
        let traffic = Traffic::echo(Shape::Open { rate: 60 }, 1, 64);
        let of = |delay_ns| {
            let mut tally = Tally::default();
            tally.on_departure(0, delay_ns);
            round(tally.finish(), traffic, 0.0)
        };
        assert!(!of(traffic.late_ns / 2).is_client_limit() && of(2 * traffic.late_ns).is_client_limit());
        assert!(of(7_000).counts.delay_note().is_some_and(|note| note.contains("7 us at 99 %")));
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
