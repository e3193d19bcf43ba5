//! What the client's process counted over one window and in all, and how it tells the bench.

use drumfire_tools::report::Latency;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::load::Window;

/// The longest time that is told apart from longer ones: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// Counts of messages by when they left and came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// On their way when the window began.
    pub(crate) out_at_start: u64,
    /// Sent within the window.
    pub(crate) sent: u64,
    /// Came back within the window.
    pub(crate) echoed: u64,
    /// Came back after the window.
    pub(crate) late: u64,
    /// Never came back, whenever they were sent.
    pub(crate) lost: u64,
    /// Of a schedule, and not taken by the connection for want of room.
    pub(crate) refused: u64,
    /// Came, and were not on their way: second copies, and bytes that were never sent.
    pub(crate) strangers: u64,
    /// Sent in all.
    pub(crate) sent_in_all: u64,
    /// Came back in all.
    pub(crate) back_in_all: u64,
    /// Looks at a socket within the window.
    pub(crate) looks: u64,
    /// Those that found nothing.
    pub(crate) idle_looks: u64,
}

/// Names of the counts, in the order of their fields.
const NAMES: [&str; 11] = [
    "out_at_start",
    "sent",
    "echoed",
    "late",
    "lost",
    "refused",
    "strangers",
    "sent_in_all",
    "back_in_all",
    "looks",
    "idle_looks",
];

/// The counts and the times.
pub(crate) struct Tally {
    pub(crate) window: Window,
    pub(crate) count: Count,
    latency: Histogram<u64>,
    /// How late messages of a schedule left.
    delay: Histogram<u64>,
}

/// A [`Tally`] as the bench reads it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) count: Count,
    pub(crate) latency: Option<Latency>,
    pub(crate) delay: Option<Latency>,
}

impl Tally {
    /// Nothing yet.
    pub(crate) fn new(window: Window) -> Result<Self, String> {
        let histogram = || Histogram::new_with_bounds(1, LONGEST_NS, 3).map_err(|error| error.to_string());
        Ok(Self { window, count: Count::default(), latency: histogram()?, delay: histogram()? })
    }

    pub(crate) fn on_sent(&mut self, now: u64) {
        self.count.sent_in_all += 1;
        if now < self.window.start {
            self.count.out_at_start += 1;
        } else {
            self.count.sent += 1;
        }
    }

    pub(crate) fn on_echo(&mut self, now: u64, latency_ns: u64) {
        self.count.back_in_all += 1;
        if now < self.window.start {
            self.count.out_at_start -= 1;
        } else if now < self.window.end {
            self.count.echoed += 1;
            self.latency.saturating_record(latency_ns);
        } else {
            self.count.late += 1;
        }
    }

    pub(crate) fn on_look(&mut self, now: u64, is_idle: bool) {
        if (self.window.start..self.window.end).contains(&now) {
            self.count.looks += 1;
            self.count.idle_looks += u64::from(is_idle);
        }
    }

    pub(crate) fn on_departure(&mut self, now: u64, delay_ns: u64) {
        if now >= self.window.start {
            self.delay.saturating_record(delay_ns);
        }
    }

    pub(crate) fn to_line(&self) -> String {
        json!({
            "counts": self.count.values(),
            "latency": Latency::of(&self.latency),
            "delay": Latency::of(&self.delay),
        })
        .to_string()
    }
}

impl Count {
    fn values(&self) -> Value {
        let Self { out_at_start, sent, echoed, late, lost, refused, strangers, .. } = *self;
        let first = [out_at_start, sent, echoed, late, lost, refused, strangers];
        let rest = [self.sent_in_all, self.back_in_all, self.looks, self.idle_looks];
        NAMES.into_iter().map(str::to_owned).zip(first.into_iter().chain(rest).map(Value::from)).collect()
    }

    fn of_values(values: &Value) -> Option<Self> {
        let count = |name: &str| values.get(name)?.as_u64();
        Some(Self {
            out_at_start: count("out_at_start")?,
            sent: count("sent")?,
            echoed: count("echoed")?,
            late: count("late")?,
            lost: count("lost")?,
            refused: count("refused")?,
            strangers: count("strangers")?,
            sent_in_all: count("sent_in_all")?,
            back_in_all: count("back_in_all")?,
            looks: count("looks")?,
            idle_looks: count("idle_looks")?,
        })
    }
}

impl Told {
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let times = |key: &str| serde_json::from_value(value.get(key)?.clone()).ok()?;
        Some(Self {
            count: Count::of_values(value.get("counts")?)?,
            latency: times("latency"),
            delay: times("delay"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_sees_what_left_before_it_and_comes_back_after_it() {
        let mut tally = Tally::new(Window { start: 100, end: 200 }).expect("the bounds are good");
        for at in [10, 20, 150] {
            tally.on_sent(at);
        }
        for at in [50, 120, 250] {
            tally.on_echo(at, 30);
        }
        let told = Told::of_line(&tally.to_line()).expect("it can be read");
        assert_eq!(told.count, tally.count);
        let Count { out_at_start, sent, echoed, late, .. } = told.count;
        assert_eq!((out_at_start + sent, echoed + late), (2, 2));
        assert_eq!((told.count.sent_in_all, told.count.back_in_all), (3, 3));
        assert!(told.latency.is_some_and(|latency| latency.p50 == 30));
    }
}
