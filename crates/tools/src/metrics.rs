//! The counters of receiver threads for Prometheus (text exposition format 0.0.4), under the names of a server's workers.
//!
//! The page is served over plain HTTP, one request at a time, `GET /metrics` only, without encryption. It belongs into a trusted
//! network. Four metrics with one label need no recorder, so this file writes the text itself.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use drumfire_control::WorkerRow;

use crate::clock;

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
    value: fn(&WorkerRow) -> Option<f64>,
}

// The counters are exact below 2^53.
const METRICS: [Metric; 4] = [
    Metric {
        name: "drumfire_busy_ratio",
        kind: "gauge",
        help: "Share of the last second in passes with work, 0 to 1",
        value: |thread| Some(thread.busy_percent? as f64 / 100.0),
    },
    Metric {
        name: "drumfire_datagrams_received_total",
        kind: "counter",
        help: "Datagrams read from the socket",
        value: |thread| Some(thread.received as f64),
    },
    Metric {
        name: "drumfire_datagrams_kernel_dropped_total",
        kind: "counter",
        help: "Datagrams that the kernel dropped: receive buffer full",
        value: |thread| thread.kernel_dropped.map(|count| count as f64),
    },
    Metric {
        name: "drumfire_receive_queue_bytes",
        kind: "gauge",
        help: "Kernel memory of datagrams that waited in the socket after a pass",
        value: |thread| thread.kernel_dropped.map(|_| thread.waiting as f64),
    },
];

/// The text for these threads, by index.
fn render(threads: &[WorkerRow]) -> String {
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

/// Serves a page with these threads at `address` from a thread of its own, until the process ends. Returns the address, with its
/// port resolved. `threads` is called for each request.
pub(crate) fn serve(
    address: SocketAddr,
    mut threads: impl FnMut() -> Vec<WorkerRow> + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let serve = move || {
        for client in listener.incoming() {
            match client {
                // A client that closes the connection or sends nothing gets no response.
                Ok(mut client) => drop(respond(&mut client, &mut threads)),
                Err(_) => clock::pause(RETRY_AFTER),
            }
        }
    };
    std::thread::Builder::new().name("metrics".to_owned()).spawn(serve)?;
    Ok(address)
}

fn respond(client: &mut TcpStream, threads: impl FnOnce() -> Vec<WorkerRow>) -> io::Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let request = read_request(client)?;
    // The path may have a query.
    let path = request.strip_prefix("GET ").and_then(|rest| rest.split([' ', '\r', '?']).next());
    let (status, body) = if path == Some("/metrics") {
        ("200 OK", render(&threads()))
    } else {
        ("404 Not Found", "ask for /metrics\n".to_owned())
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all((head + &body).as_bytes())
}

/// Reads up to the empty line that ends the head. A `GET` consists of a head only.
fn read_request(client: &mut impl Read) -> io::Result<String> {
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
    Ok(String::from_utf8_lossy(&request).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: &str = include_str!("../../drumfire/docs/guide/metrics.md");

    /// Sends a request in parts and returns the response.
    fn ask(page: SocketAddr, parts: &[&str]) -> String {
        let mut client = TcpStream::connect(page).unwrap();
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
    fn only_get_metrics_receives_the_page() {
        let threads = || vec![WorkerRow { received: 5, ..WorkerRow::default() }];
        let page = serve("127.0.0.1:0".parse().unwrap(), threads).unwrap();
        drop(TcpStream::connect(page).unwrap());
        let mut endless = TcpStream::connect(page).unwrap();
        // The page may close the connection before it has read everything.
        let _ = endless.write_all(&[b'a'; 16_384]);
        let response = ask(page, &["GET /metrics HT", "TP/1.1\r\nHost: a\r\n", "\r\n"]);
        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
        assert!(response.contains("\ndrumfire_datagrams_received_total{worker=\"0\"} 5\n"), "{response}");
        assert!(ask(page, &["GET /metrics?x HTTP/1.1\r\n\r\n"]).starts_with("HTTP/1.1 200 OK\r\n"));
        for other in ["GET / HTTP/1.1\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "\r\n\r\n"] {
            assert!(ask(page, &[other]).starts_with("HTTP/1.1 404 Not Found\r\n"), "{other}");
        }
    }
}
