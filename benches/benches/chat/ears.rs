//! What the clients of one socket say and hear: every message is counted, and its number held against the one before of the same
//! speaker.

use drumfire_benches::Counts;
use drumfire_tools::clock;
use drumfire_tools::report::Latency;
use hdrhistogram::Histogram;

use crate::plan::{Plan, ns};
use crate::schedule::Stamp;

/// When messages are said, and which of them are measured, by the host's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start_ns: u64,
    /// Those that are due from here on.
    pub(crate) window_ns: u64,
    pub(crate) end_ns: u64,
}

impl Span {
    /// Beginning with an interval that has not begun.
    pub(crate) fn soon(plan: Plan) -> Self {
        let interval_ns = ns(plan.interval).max(1);
        let start_ns = (clock::host_ns() / interval_ns + 2) * interval_ns;
        let window_ns = start_ns + interval_ns;
        Self { start_ns, window_ns, end_ns: window_ns + ns(plan.window) }
    }
}

/// What was said and heard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Messages that the schedule asked for.
    pub(crate) offered: u64,
    /// Of those, left out because it was too late for them.
    pub(crate) skipped: u64,
    /// Of those, not taken, because there was no room.
    pub(crate) refused: u64,
    /// Of those, taken.
    pub(crate) said: u64,
    pub(crate) heard: u64,
    pub(crate) heard_bytes: u64,
    /// Messages that were left out between two of a speaker.
    pub(crate) gaps: u64,
    /// Messages that came after a later one of their speaker, or twice.
    pub(crate) behind: u64,
    /// Messages that nobody said.
    pub(crate) strangers: u64,
    /// Connections that ended.
    pub(crate) left: u64,
}

impl Tally {
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            skipped: self.skipped + other.skipped,
            refused: self.refused + other.refused,
            said: self.said + other.said,
            heard: self.heard + other.heard,
            heard_bytes: self.heard_bytes + other.heard_bytes,
            gaps: self.gaps + other.gaps,
            behind: self.behind + other.behind,
            strangers: self.strangers + other.strangers,
            left: self.left + other.left,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let counts = [
            ("offered", self.offered),
            ("skipped", self.skipped),
            ("refused", self.refused),
            ("said", self.said),
            ("heard", self.heard),
            ("heard bytes", self.heard_bytes),
            ("gaps", self.gaps),
            ("behind", self.behind),
            ("strangers", self.strangers),
            ("left", self.left),
        ];
        counts.map(|(name, count)| (name.to_owned(), count)).into()
    }
}

/// The ears of some clients.
#[derive(Debug)]
pub(crate) struct Ears {
    pub(crate) tally: Tally,
    pub(crate) latency: Histogram<u64>,
    speakers: usize,
    /// By client and speaker, the number that came last.
    last: Vec<u32>,
    /// By client, how long measured messages took together, in nanoseconds, and how many there were.
    took: Vec<(u64, u32)>,
    /// Whether what these hear is measured.
    is_measured: bool,
}

impl Ears {
    /// Of so many clients.
    pub(crate) fn new(plan: Plan, clients: u32, is_measured: bool) -> Result<Self, String> {
        let speakers = plan.clients as usize;
        let latency = histogram()?;
        let last = vec![0; speakers * clients as usize];
        let took = vec![(0, 0); clients as usize];
        Ok(Self { tally: Tally::default(), latency, speakers, last, took, is_measured })
    }

    /// A message came to the client at this place.
    pub(crate) fn hear(&mut self, place: usize, message: &[u8], span: &Span) {
        let stamp = Stamp::read(message).filter(|stamp| usize::from(stamp.speaker) < self.speakers);
        let last = stamp.and_then(|stamp| {
            self.last.get_mut(place * self.speakers + usize::from(stamp.speaker)).map(|last| (stamp, last))
        });
        let Some((stamp, last)) = last else {
            self.tally.strangers += 1;
            return;
        };
        self.tally.heard += 1;
        self.tally.heard_bytes += message.len() as u64;
        if stamp.number > *last {
            self.tally.gaps += u64::from(stamp.number - *last - 1);
            *last = stamp.number;
        } else {
            self.tally.behind += 1;
        }
        if self.is_measured && stamp.due_ns >= span.window_ns && stamp.due_ns < span.end_ns {
            let took_ns = clock::host_ns().saturating_sub(stamp.due_ns);
            self.latency.saturating_record(took_ns);
            if let Some((sum_ns, count)) = self.took.get_mut(place) {
                *sum_ns = sum_ns.saturating_add(took_ns);
                *count = count.saturating_add(1);
            }
        }
    }

    /// The mean of the client whose messages took longest, in nanoseconds: one that is held up does not hide among all others.
    pub(crate) fn slowest_mean_ns(&self) -> u64 {
        let means = self.took.iter().filter_map(|(sum_ns, count)| sum_ns.checked_div(u64::from(*count)));
        means.max().unwrap_or(0)
    }
}

/// For latencies of a microsecond to a hundred seconds.
pub(crate) fn histogram() -> Result<Histogram<u64>, String> {
    Histogram::new_with_bounds(1_000, 100_000_000_000, 3).map_err(|error| error.to_string())
}

/// The latencies as counts, in nanoseconds, with the mean of the slowest client.
pub(crate) fn latency_counts(latency: &Histogram<u64>, slowest_mean_ns: u64) -> Counts {
    let Some(latency) = Latency::of(latency) else { return Counts::new() };
    let counts = [
        ("p50", latency.p50),
        ("p90", latency.p90),
        ("p99", latency.p99),
        ("p999", latency.p999),
        ("max", latency.max),
        ("measured", latency.count),
        ("slowest mean", slowest_mean_ns),
    ];
    counts.map(|(name, count)| (format!("latency {name}"), count)).into()
}
