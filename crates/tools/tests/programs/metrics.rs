//! `--metrics-address`: Prometheus reads the counters of a run.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use prometheus_parse::{Scrape, Value};

use crate::process::receiver;
use crate::report::{Report, SEVERAL};

/// The page at this address, without its head.
fn scraped(address: &str) -> Scrape {
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client.write_all(format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    Scrape::parse(page.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

/// The values of a metric by thread.
fn values(scrape: &Scrape, name: &str) -> Vec<f64> {
    let samples = scrape.samples.iter().filter(|sample| sample.metric == name);
    samples
        .map(|sample| match sample.value {
            Value::Counter(value) | Value::Gauge(value) => value,
            ref other => panic!("{name}: {other:?}"),
        })
        .collect()
}

#[test]
fn a_scrape_shows_part_of_a_run() {
    let flags = format!("--threads {SEVERAL} --secs 3600 --rate 2000 --flows 8 --json -");
    let mut program = receiver(&format!("--with-sender --metrics-address 127.0.0.1:0 {flags}"));
    let line = program.error_line_with("metrics at http://");
    let address = line.trim_start_matches("metrics at http://").trim_end_matches("/metrics").to_owned();
    assert_eq!(values(&scraped(&address), "drumfire_datagrams_received_total").len(), SEVERAL as usize);
    program.error_line_with("kernel drops");
    let scrape = scraped(&address);
    let received = values(&scrape, "drumfire_datagrams_received_total");
    assert_eq!(received.len(), SEVERAL as usize);
    if cfg!(target_os = "linux") {
        assert_eq!(values(&scrape, "drumfire_busy_ratio").len(), SEVERAL as usize);
    }
    // Some more is received before it ends.
    program.error_line_with("   2 s  ");
    program.interrupt_group();
    let report = Report::of(&program.end().with_code(0));
    let in_all = report.number("/received") as f64;
    let so_far: f64 = received.iter().sum();
    assert!(so_far > 0.0 && so_far < in_all, "{so_far} of {in_all}");
}
