//! The counters of receiver threads for Prometheus (text exposition format 0.0.4), under the names of a server's workers.
//!
//! The page is served over plain HTTP, one request at a time, `GET /metrics` only, without encryption. It belongs into a trusted
//! network. Four metrics with one label need no recorder, so this file writes the text itself.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock;
use crate::receiver::ThreadState;

/// How long a client may take for each part of its request, and to read the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

const REQUEST_MAX_BYTES: usize = 4_096;
const REQUEST_MAX_READS: usize = 8;

/// The delay after a connection could not be accepted.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A metric with one sample per thread.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// `None` if the system does not show the value.
    value: fn(&ThreadState) -> Option<f64>,
}

// The counters are exact below 2^53.
const METRICS: [Metric; 4] = [
    Metric {
        name: "drumfire_busy_ratio",
        kind: "gauge",
        help: "Share of the last second in passes that did something, 0 to 1",
        value: |thread| thread.busy,
    },
    Metric {
        name: "drumfire_datagrams_received_total",
        kind: "counter",
        help: "Datagrams read from the socket",
        value: |thread| Some(thread.received as f64),
    },
    Metric {
        name: "drumfire_kernel_dropped_total",
        kind: "counter",
        help: "Datagrams dropped in front of the socket",
        value: |thread| thread.queue.map(|queue| queue.drops as f64),
    },
    Metric {
        name: "drumfire_receive_queue_bytes",
        kind: "gauge",
        help: "Kernel memory of datagrams that waited in the socket after a pass",
        value: |thread| thread.queue.map(|queue| f64::from(queue.queued_bytes)),
    },
];

/// The text for these threads, by index.
fn render(threads: &[ThreadState]) -> String {
    let mut text = String::new();
    for Metric { name, kind, help, value } in METRICS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
        for (worker, value) in
            threads.iter().enumerate().filter_map(|(at, thread)| Some((at, value(thread)?)))
        {
            let _ = writeln!(text, "{name}{{worker=\"{worker}\"}} {value}");
        }
    }
    text
}

/// The metrics page, which is served until the process ends.
#[derive(Clone, Debug)]
pub struct MetricsPage {
    text: Arc<Mutex<String>>,
    address: SocketAddr,
}

impl MetricsPage {
    /// Serves the page of these threads at `address` from a thread of its own. Port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// The error of the system if the address cannot be bound, or the thread cannot be started.
    pub fn serve(address: SocketAddr, threads: &[ThreadState]) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let page = Self { text: Arc::default(), address: listener.local_addr()? };
        page.set(threads);
        let served = page.clone();
        let serve = move || {
            for client in listener.incoming() {
                match client {
                    // A client that closes the connection or sends nothing gets no response.
                    Ok(client) => drop(served.respond(client)),
                    Err(_) => clock::pause(RETRY_AFTER),
                }
            }
        };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(serve)?;
        Ok(page)
    }

    /// The address of the page, with its port resolved.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the values of the page.
    pub fn set(&self, threads: &[ThreadState]) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = render(threads);
    }

    fn respond(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
        client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
        let request = read_request(&mut client)?;
        let (status, body) = if is_for_metrics(&request) {
            ("200 OK", self.text.lock().unwrap_or_else(PoisonError::into_inner).clone())
        } else {
            ("404 Not Found", "ask for /metrics\n".to_owned())
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        client.write_all(head.as_bytes())?;
        client.write_all(body.as_bytes())
    }
}

/// Reads up to the empty line that ends the head. A `GET` consists of a head only.
fn read_request(client: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    for _ in 0..REQUEST_MAX_READS {
        let mut bytes = [0; REQUEST_MAX_BYTES];
        let length = client.read(&mut bytes)?;
        request.extend(bytes.iter().take(length));
        let is_whole = request.windows(4).any(|end| end == b"\r\n\r\n");
        if is_whole || length == 0 || request.len() > REQUEST_MAX_BYTES {
            break;
        }
    }
    Ok(request)
}

/// Returns whether the request line asks for the page, with any query.
fn is_for_metrics(request: &[u8]) -> bool {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let path = (words.next() == Some(b"GET")).then(|| words.next()).flatten();
    path.and_then(|path| path.split(|byte| *byte == b'?').next()) == Some(b"/metrics")
}

#[cfg(test)]
mod tests {
    use drumfire_socket::QueueState;
    use prometheus_parse::{Scrape, Value};

    use super::*;

    const GUIDE: &str = include_str!("../../drumfire/docs/guide/metrics.md");

    fn page() -> MetricsPage {
        MetricsPage::serve("127.0.0.1:0".parse().unwrap(), &[]).unwrap()
    }

    /// Sends a request in parts and returns the response.
    fn ask(page: &MetricsPage, parts: &[&str]) -> String {
        let mut client = TcpStream::connect(page.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        for part in parts {
            client.write_all(part.as_bytes()).unwrap();
        }
        let mut response = String::new();
        client.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn names_kinds_and_meanings_are_those_of_the_guide() {
        for Metric { name, kind, help, .. } in METRICS {
            let row = GUIDE.lines().find(|line| line.starts_with(&format!("| `{name}` | {kind} |")));
            assert!(row.is_some_and(|row| row.ends_with(&format!("| {help} |"))), "{name}: {row:?}");
        }
    }

    #[test]
    fn a_parser_reads_the_state_of_the_threads_back() {
        let queue = QueueState { drops: 7, queued_bytes: 4_352, limit_bytes: 8_192 };
        let known = ThreadState { received: 1 << 40, queue: Some(queue), busy: Some(0.25) };
        let text = render(&[known, ThreadState { received: 3, ..ThreadState::default() }]);
        let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
        let samples = scrape.samples.iter().map(|sample| match sample.value {
            Value::Counter(value) | Value::Gauge(value) => {
                (sample.metric.as_str(), sample.labels.get("worker").unwrap(), value)
            }
            ref other => panic!("{other:?}"),
        });
        let expected = [
            ("drumfire_busy_ratio", "0", 0.25),
            ("drumfire_datagrams_received_total", "0", (1_u64 << 40) as f64),
            ("drumfire_datagrams_received_total", "1", 3.0),
            ("drumfire_kernel_dropped_total", "0", 7.0),
            ("drumfire_receive_queue_bytes", "0", 4_352.0),
        ];
        assert_eq!(samples.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_get_metrics_receives_the_page() {
        let page = page();
        page.set(&[ThreadState { received: 5, ..ThreadState::default() }]);
        drop(TcpStream::connect(page.address()).unwrap());
        let mut endless = TcpStream::connect(page.address()).unwrap();
        // The page may close the connection before it has read everything.
        let _ = endless.write_all(&[b'a'; 4 * REQUEST_MAX_BYTES]);
        let response = ask(&page, &["GET /metrics HT", "TP/1.1\r\nHost: a\r\n", "\r\n"]);
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.contains("\ndrumfire_datagrams_received_total{worker=\"0\"} 5\n"), "{response}");
        assert!(ask(&page, &["GET /metrics?x HTTP/1.1\r\n\r\n"]).starts_with("HTTP/1.1 200 OK\r\n"));
        for other in ["GET / HTTP/1.1\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "\r\n\r\n"] {
            assert!(ask(&page, &[other]).starts_with("HTTP/1.1 404 Not Found\r\n"), "{other}");
        }
    }
}
