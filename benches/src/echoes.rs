//! The books of messages that are to come back, over one window: counted by the end that sends them, told to the bench, and
//! made into a report.
//!
//! Nothing is sent here, and no clock is read: whoever counts says when it is.

use std::time::Duration;

use drumfire_tools::host;
use drumfire_tools::report::{Books, Counted, CpuTime, Flags, Latency, Report, ThreadCount};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Sent and not back when the window ended; they came later.
pub const OUTSTANDING: &str = "outstanding";

/// The longest time that is told apart from longer ones: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// When messages count, in nanoseconds of the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From here on.
    pub start: u64,
    /// To here.
    pub end: u64,
}

impl Window {
    /// A window of this length.
    #[must_use]
    pub fn beginning_at(start: u64, length: Duration) -> Self {
        let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        Self { start, end: start.saturating_add(length) }
    }

    /// How long it is.
    #[must_use]
    pub fn length(self) -> Duration {
        Duration::from_nanos(self.end.saturating_sub(self.start))
    }

    fn has(self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }

    /// As one process tells it to another.
    #[must_use]
    pub fn to_line(self) -> String {
        format!("{} {}", self.start, self.end)
    }

    /// What [`Self::to_line`] wrote.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        let (start, end) = line.split_once(' ')?;
        Some(Self { start: start.parse().ok()?, end: end.parse().ok()? })
    }
}

/// Counts of messages by when they left and came back.
#[derive(Debug)]
pub struct Tally {
    /// When messages count.
    pub window: Window,
    /// The counts; its times stay empty until [`Self::told`].
    pub counts: Told,
    latency: Histogram<u64>,
    delay: Histogram<u64>,
}

/// A [`Tally`] as the bench reads it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// On their way when the window began.
    pub out_at_start: u64,
    /// Came back before the window.
    pub early: u64,
    /// Sent within the window.
    pub sent: u64,
    /// Came back within the window.
    pub echoed: u64,
    /// Came back after the window.
    pub late: u64,
    /// Never came back.
    pub lost: u64,
    /// Not taken by the connection, for want of room.
    pub refused: u64,
    /// Came, and were not on their way: second copies, and bytes that were never sent.
    pub strangers: u64,
    /// Looks at a socket within the window.
    pub looks: u64,
    /// Those that found nothing.
    pub idle_looks: u64,
    /// From when a message was to leave to when it was back, of those that were to leave within the window, late ones too.
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
    /// Nothing yet.
    #[must_use]
    pub fn new(window: Window) -> Self {
        let histogram = || match Histogram::new_with_bounds(1, LONGEST_NS, 3) {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("the bounds are good: {error}"),
        };
        Self { window, counts: Told::default(), latency: histogram(), delay: histogram() }
    }

    /// A message left now.
    pub fn on_sent(&mut self, now: u64) {
        if now < self.window.start {
            self.counts.out_at_start += 1;
        } else {
            self.counts.sent += 1;
        }
    }

    /// A message that had left is back now, so long after it was to leave.
    pub fn on_echo(&mut self, now: u64, latency_ns: u64) {
        // By when it was to leave, for those that take longest come after the window: without them a tail would end where the
        // window does.
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

    /// A socket was looked at.
    pub fn on_look(&mut self, now: u64, is_idle: bool) {
        if self.window.has(now) {
            self.counts.looks += 1;
            self.counts.idle_looks += u64::from(is_idle);
        }
    }

    /// A message of a schedule leaves now, so much after its time.
    pub fn on_departure(&mut self, now: u64, delay_ns: u64) {
        if now >= self.window.start {
            self.delay.saturating_record(delay_ns);
        }
    }

    /// From when each message was to leave to when it was back, of those that were to leave within the window.
    #[must_use]
    pub const fn latency(&self) -> &Histogram<u64> {
        &self.latency
    }

    /// What the bench reads.
    #[must_use]
    pub fn told(&self) -> Told {
        let (latency, delay) = (Latency::of(&self.latency), Latency::of(&self.delay));
        Told { latency, delay, ..self.counts.clone() }
    }
}

impl Told {
    /// Sent in all, before the window too.
    #[must_use]
    pub const fn sent_in_all(&self) -> u64 {
        self.out_at_start + self.early + self.sent
    }

    /// Came back in all, before the window and after it too.
    #[must_use]
    pub const fn back_in_all(&self) -> u64 {
        self.early + self.echoed + self.late
    }

    /// As one process tells it to another.
    #[must_use]
    pub fn to_line(&self) -> String {
        json!({
            "out_at_start": self.out_at_start,
            "early": self.early,
            "sent": self.sent,
            "echoed": self.echoed,
            "late": self.late,
            "lost": self.lost,
            "refused": self.refused,
            "strangers": self.strangers,
            "looks": self.looks,
            "idle_looks": self.idle_looks,
            "latency": self.latency,
            "delay": self.delay,
        })
        .to_string()
    }

    /// What [`Self::to_line`] wrote.
    #[must_use]
    pub fn of_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let count = |key: &str| value.get(key)?.as_u64();
        let times = |key: &str| serde_json::from_value(value.get(key)?.clone()).ok()?;
        Some(Self {
            out_at_start: count("out_at_start")?,
            early: count("early")?,
            sent: count("sent")?,
            echoed: count("echoed")?,
            late: count("late")?,
            lost: count("lost")?,
            refused: count("refused")?,
            strangers: count("strangers")?,
            looks: count("looks")?,
            idle_looks: count("idle_looks")?,
            latency: times("latency"),
            delay: times("delay"),
        })
    }

    /// The report of a server that answered these messages in this window with this CPU time. `rate` is what was offered in
    /// a second, where there was a schedule; `drops` are where messages went that did not come back at all.
    #[must_use]
    pub fn report(
        &self,
        window: Window,
        rate: Option<u64>,
        flags: Flags,
        cpu: Option<CpuTime>,
        drops: &[(&str, u64)],
    ) -> Report {
        let books = Books::new(self.out_at_start + self.sent, self.echoed).dropped(OUTSTANDING, self.late);
        let mut report = Report::of(Counted {
            flags,
            machine: host::machine(),
            window: window.length(),
            books: drops.iter().fold(books, |books, (name, count)| books.dropped(name, *count)),
            threads: vec![ThreadCount { received: self.echoed, cpu, ..ThreadCount::default() }],
            ..Counted::default()
        });
        report.latency_ns = self.latency;
        let millis = u64::try_from(window.length().as_millis()).unwrap_or(u64::MAX);
        report.offered = rate.map(|rate| rate.saturating_mul(millis) / 1_000);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two messages are out when the window begins, three leave in it, one is late and one never comes.
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
        let told = tally().told();
        assert_eq!((told.out_at_start, told.sent, told.echoed, told.late), (2, 3, 3, 1));
        assert_eq!((told.sent_in_all(), told.back_in_all()), (6, 5), "the warm-up's too");
        let latency = told.latency.expect("three were measured");
        assert_eq!(
            (latency.count, latency.p50, latency.max),
            (3, 200, 300),
            "not those due before the window"
        );
    }

    #[test]
    fn the_slowest_come_after_the_window_and_are_in_the_tail_all_the_same() {
        let mut tally = Tally::new(Window::beginning_at(1_000, Duration::from_nanos(1_000)));
        let due_and_back = [(999, 1_700), (1_000, 1_100), (1_999, 3_000), (2_000, 3_900)];
        for (due, _) in due_and_back {
            tally.on_sent(due);
        }
        for (due, back) in due_and_back {
            tally.on_echo(back, back - due);
        }
        let told = tally.told();
        assert_eq!((told.echoed, told.late), (2, 2), "the books go by when they came back");
        let latency = told.latency.expect("two were measured");
        assert_eq!((latency.count, latency.p50, latency.max), (2, 100, 1_001), "those due within the window");
    }

    #[test]
    fn a_closed_loop_counts_each_message_in_the_one_window_in_which_it_left() {
        // The window of so many echoes has no end until they are back, and no beginning until it is warm.
        let mut tally = Tally::new(Window { start: u64::MAX, end: u64::MAX });
        tally.on_sent(100);
        tally.on_echo(200, 100);
        tally.on_sent(200);
        tally.window.start = 250;
        tally.on_echo(300, 100);
        tally.on_sent(300);
        tally.on_echo(350, 50);
        tally.on_sent(350);
        tally.window.end = 400;
        tally.on_echo(420, 70);
        let told = tally.told();
        assert_eq!((told.early, told.out_at_start, told.echoed, told.late), (1, 1, 2, 1));
        assert_eq!(told.latency.map(|latency| (latency.count, latency.max)), Some((2, 70)));
    }

    #[test]
    fn looks_and_departures_count_within_the_window() {
        let mut tally = tally();
        for (now, is_idle) in [(999, true), (1_000, true), (1_999, false), (2_000, true)] {
            tally.on_look(now, is_idle);
            tally.on_departure(now, now);
        }
        let told = tally.told();
        assert_eq!((told.looks, told.idle_looks), (2, 1));
        assert_eq!(told.delay.map(|delay| delay.count), Some(3), "all that leave once it has begun");
    }

    #[test]
    fn what_is_told_is_read_as_it_was() {
        let told = tally().told();
        assert_eq!(Told::of_line(&told.to_line()), Some(told));
        assert_eq!(Told::of_line("{}"), None);
        let window = Window { start: 3, end: 9 };
        assert_eq!((Window::of_line(&window.to_line()), Window::of_line("3")), (Some(window), None));
    }

    #[test]
    fn the_books_of_a_report_close_only_with_every_loss_named() {
        let tally = tally();
        let report =
            |lost| tally.told().report(tally.window, Some(5), Flags::default(), None, &[("lost", lost)]);
        assert!(report(1).check().is_ok());
        assert!(report(0).check().is_err() && report(2).check().is_err());
        assert_eq!((report(1).pps, report(1).offered), (3e6, Some(0)));
    }
}
