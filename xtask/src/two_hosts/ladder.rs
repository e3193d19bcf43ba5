//! The raw ladder: receiver threads by packet sizes, a row for each in one table.
//!
//! A sender with as many threads as the receiver sends as fast as it can. Every cell is a field of the receiver's report.

use std::fmt::Write as _;
use std::thread::available_parallelism;

use serde_json::Value;

const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const SIZES: [usize; 4] = [32, 128, 512, 1_200];

const HEAD: [&str; 9] =
    ["threads", "bytes", "sent", "received", "received/s", "busiest/mean", "CPU ns", "drops", "limited by"];

/// A step of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rung {
    threads: usize,
    size: usize,
}

impl Rung {
    /// Every rung of this machine.
    pub(super) fn all() -> Vec<Self> {
        Self::up_to(available_parallelism().map_or(1, usize::from))
    }

    /// Returns every rung with at most as many threads as cores. More threads would only show that they share cores.
    fn up_to(cores: usize) -> Vec<Self> {
        let threads = THREADS.into_iter().filter(|threads| *threads <= cores);
        threads.flat_map(|threads| SIZES.map(|size| Self { threads, size })).collect()
    }

    pub(super) fn receiver_flags(self) -> Vec<String> {
        let threads = self.threads.to_string();
        ["--stage", "raw", "--threads", &threads].map(str::to_owned).to_vec()
    }

    pub(super) fn sender_flags(self) -> Vec<String> {
        let (threads, size) = (self.threads.to_string(), self.size.to_string());
        ["--threads", &threads, "--size", &size, "--rate", "0"].map(str::to_owned).to_vec()
    }

    /// The cells of its row, from the receiver's report.
    fn cells(self, received: &Value) -> [String; HEAD.len()] {
        let number = |key: &str, digits: usize| {
            received[key].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let drops = received["drops"].as_object().into_iter().flatten();
        let drops: Vec<String> = drops
            .filter(|(_, count)| count.as_u64() != Some(0))
            .map(|(place, count)| format!("{place} {count}"))
            .collect();
        [
            self.threads.to_string(),
            self.size.to_string(),
            number("sent", 0),
            number("received", 0),
            number("pps", 0),
            number("spread_max_over_mean", 2),
            number("cpu_ns_per_packet", 0),
            if drops.is_empty() { "none".to_owned() } else { drops.join(", ") },
            received["limited_by"].as_str().unwrap_or("-").to_owned(),
        ]
    }
}

/// The table of what the receiver reported at each rung.
pub(super) fn table(rows: &[(Rung, Value)]) -> String {
    let mut lines = vec![HEAD.map(str::to_owned)];
    lines.extend(rows.iter().map(|(rung, received)| rung.cells(received)));
    let widths: Vec<usize> =
        (0..HEAD.len()).map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or_default()).collect();
    let mut text = String::new();
    for line in &lines {
        let padded = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", padded.collect::<Vec<_>>().join("  "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_size_has_every_number_of_threads_that_there_are_cores_for() {
        let rungs = Rung::up_to(6);
        assert_eq!(rungs.len(), 3 * SIZES.len());
        assert_eq!(rungs.first(), Some(&Rung { threads: 1, size: 32 }));
        assert_eq!(rungs.last(), Some(&Rung { threads: 4, size: 1_200 }));
        assert_eq!(Rung::up_to(1_000).len(), THREADS.len() * SIZES.len());
    }

    #[test]
    fn both_ends_are_told_the_rung() {
        let rung = Rung { threads: 2, size: 512 };
        assert_eq!(rung.receiver_flags(), ["--stage", "raw", "--threads", "2"]);
        assert_eq!(rung.sender_flags(), ["--threads", "2", "--size", "512", "--rate", "0"]);
    }

    #[test]
    fn a_row_has_what_the_receiver_reported_with_drops_by_name() {
        let received = json!({
            "sent": 30, "received": 20, "pps": 10.4, "spread_max_over_mean": 1.333, "cpu_ns_per_packet": null,
            "drops": { "kernel_receive_queue": 10, "wire_or_nic": 0 }, "limited_by": "sender",
        });
        let text = table(&[(Rung { threads: 2, size: 32 }, received)]);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["2", "32", "30", "20", "10", "1.33", "-", "kernel_receive_queue", "10", "sender"]);
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(widths[0], widths[1]);
    }
}
