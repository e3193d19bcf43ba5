//! What the threads of a receiver show, as Prometheus text (exposition format 0.0.4), under the names that a server's workers use.
//!
//! What only servers have is not here: the guide of crate `drumfire` lists all names.

use std::fmt::Write;

use crate::receiver::ThreadState;

/// A metric with one sample per thread.
struct Metric {
    name: &'static str,
    kind: &'static str,
    what: &'static str,
    /// Nothing where the system does not tell.
    of: fn(&ThreadState) -> Option<f64>,
}

// Exact below 2^53.
const METRICS: [Metric; 4] = [
    Metric {
        name: "drumfire_busy_ratio",
        kind: "gauge",
        what: "Share of the last second in passes that did something, 0 to 1",
        of: |thread| thread.busy,
    },
    Metric {
        name: "drumfire_datagrams_received_total",
        kind: "counter",
        what: "Datagrams read from the socket",
        of: |thread| Some(thread.received as f64),
    },
    Metric {
        name: "drumfire_kernel_dropped_total",
        kind: "counter",
        what: "Datagrams dropped in front of the socket",
        of: |thread| thread.queue.map(|queue| queue.drops as f64),
    },
    Metric {
        name: "drumfire_receive_queue_bytes",
        kind: "gauge",
        what: "Kernel memory of datagrams that waited in the socket after a pass",
        of: |thread| thread.queue.map(|queue| f64::from(queue.queued_bytes)),
    },
];

/// The page's text for these threads, by index.
#[must_use]
pub fn render(threads: &[ThreadState]) -> String {
    let mut text = String::new();
    for Metric { name, kind, what, of } in METRICS {
        // Writing to a text cannot fail.
        let _ = writeln!(text, "# HELP {name} {what}.\n# TYPE {name} {kind}");
        for (worker, value) in threads.iter().enumerate().filter_map(|(at, thread)| Some((at, of(thread)?))) {
            let _ = writeln!(text, "{name}{{worker=\"{worker}\"}} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_socket::QueueState;
    use prometheus_parse::{Scrape, Value};

    const LIST: &str = include_str!("../../../drumfire/docs/guide/metrics.md");

    #[test]
    fn names_kinds_and_meanings_are_those_of_the_guide() {
        for Metric { name, kind, what, .. } in METRICS {
            let row = LIST.lines().find(|line| line.starts_with(&format!("| `{name}` | {kind} |")));
            assert!(row.is_some_and(|row| row.ends_with(&format!("| {what} |"))), "{name}: {row:?}");
        }
    }

    #[test]
    fn a_parser_reads_back_what_the_threads_show() {
        let queue = QueueState { drops: 7, queued_bytes: 4_352, limit_bytes: 8_192 };
        let told = ThreadState { received: 1 << 40, queue: Some(queue), busy: Some(0.25) };
        let untold = ThreadState { received: 3, queue: None, busy: None };
        let text = render(&[told, untold]);
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
        let seen: Vec<(&str, &str, f64)> = scrape
            .samples
            .iter()
            .map(|sample| match sample.value {
                Value::Counter(value) | Value::Gauge(value) => {
                    (sample.metric.as_str(), sample.labels.get("worker").unwrap(), value)
                }
                ref other => panic!("{other:?}"),
            })
            .collect();
        let expected = [
            ("drumfire_busy_ratio", "0", 0.25),
            ("drumfire_datagrams_received_total", "0", (1_u64 << 40) as f64),
            ("drumfire_datagrams_received_total", "1", 3.0),
            ("drumfire_kernel_dropped_total", "0", 7.0),
            ("drumfire_receive_queue_bytes", "0", 4_352.0),
        ];
        assert_eq!(seen, expected);
    }
}
