//! What the client's process counted over one window, and how it tells the bench.

use drumfire_tools::report::Latency;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::load::Window;

/// The longest time that is told apart from longer ones: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// Counts of messages by when they left and came back.
pub(crate) struct Tally {
    pub(crate) window: Window,
    /// On their way when the window began.
    pub(crate) out_at_start: u64,
    /// Sent within the window.
    pub(crate) sent: u64,
    /// Came back within the window.
    pub(crate) echoed: u64,
    /// Came back after the window.
    pub(crate) late: u64,
    /// Never came back.
    pub(crate) lost: u64,
    /// Not taken by the connection, for want of room.
    pub(crate) refused: u64,
    /// Came, and were not on their way: second copies, and bytes that were never sent.
    pub(crate) strangers: u64,
    /// Looks at a socket within the window.
    pub(crate) looks: u64,
    /// Those that found nothing.
    pub(crate) idle_looks: u64,
    latency: Histogram<u64>,
    /// How late messages of a schedule left.
    delay: Histogram<u64>,
}

/// A [`Tally`] as the bench reads it.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) out_at_start: u64,
    pub(crate) sent: u64,
    pub(crate) echoed: u64,
    pub(crate) late: u64,
    pub(crate) lost: u64,
    pub(crate) refused: u64,
    pub(crate) strangers: u64,
    pub(crate) looks: u64,
    pub(crate) idle_looks: u64,
    pub(crate) latency: Option<Latency>,
    pub(crate) delay: Option<Latency>,
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = || match Histogram::new_with_bounds(1, LONGEST_NS, 3) {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("the bounds are good: {error}"),
        };
        Self {
            window: Window { start: 0, end: 0 },
            out_at_start: 0,
            sent: 0,
            echoed: 0,
            late: 0,
            lost: 0,
            refused: 0,
            strangers: 0,
            looks: 0,
            idle_looks: 0,
            latency: histogram(),
            delay: histogram(),
        }
    }
}

impl Tally {
    pub(crate) fn on_sent(&mut self, now: u64) {
        if now < self.window.start {
            self.out_at_start += 1;
        } else {
            self.sent += 1;
        }
    }

    pub(crate) fn on_echo(&mut self, now: u64, latency_ns: u64) {
        if now < self.window.start {
            self.out_at_start -= 1;
        } else if now < self.window.end {
            self.echoed += 1;
            self.latency.saturating_record(latency_ns);
        } else {
            self.late += 1;
        }
    }

    pub(crate) fn on_look(&mut self, now: u64, is_idle: bool) {
        if (self.window.start..self.window.end).contains(&now) {
            self.looks += 1;
            self.idle_looks += u64::from(is_idle);
        }
    }

    pub(crate) fn on_departure(&mut self, now: u64, delay_ns: u64) {
        if now >= self.window.start {
            self.delay.saturating_record(delay_ns);
        }
    }

    pub(crate) fn to_line(&self) -> String {
        json!({
            "out_at_start": self.out_at_start,
            "sent": self.sent,
            "echoed": self.echoed,
            "late": self.late,
            "lost": self.lost,
            "refused": self.refused,
            "strangers": self.strangers,
            "looks": self.looks,
            "idle_looks": self.idle_looks,
            "latency": Latency::of(&self.latency),
            "delay": Latency::of(&self.delay),
        })
        .to_string()
    }
}

impl Told {
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let count = |key: &str| value.get(key)?.as_u64();
        let times = |key: &str| serde_json::from_value(value.get(key)?.clone()).ok()?;
        Some(Self {
            out_at_start: count("out_at_start")?,
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
}
