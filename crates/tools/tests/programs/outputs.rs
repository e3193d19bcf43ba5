//! The destinations and formats of results, and the counters of a run for Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use drumfire_tools::table;
use prometheus_parse::{Scrape, Value};
use tempfile::tempdir;

use crate::client::Client;
use crate::process::{RECEIVER, file, receiver, waiting_receiver};
use crate::report::{IS_NATIVE, SEVERAL, read_report, report_of};

const RUN: &str = "--with-sender --secs 0.1 --rate 5000 --flows 8";

fn has_table(lines: &[String]) -> bool {
    lines.iter().any(|line| line.starts_with("books "))
        && lines.iter().any(|line| line.contains("= received"))
}

#[test]
fn json_on_standard_output_moves_the_table_to_standard_error() {
    let ended = receiver(&format!("{RUN} --json -")).end().with_code(0);
    report_of(&ended);
    assert!(has_table(&ended.stderr), "{ended:#?}");
    assert!(ended.stderr.iter().any(|line| line.contains("kernel drops")), "the live line too: {ended:#?}");
}

#[test]
fn json_csv_and_plot_go_to_files_and_the_table_stays() {
    let folder = tempdir().unwrap();
    let [json, csv, plot] = ["a.json", "a.csv", "a.svg"].map(|name| file(&folder, name));
    // A file that exists is replaced.
    std::fs::write(&json, "x".repeat(100_000)).unwrap();
    let flags = format!("{RUN} --threads {SEVERAL} --json {json} --csv {csv} --plot {plot}");
    let ended = receiver(&flags).end().with_code(0);
    assert!(has_table(&ended.stdout) && ended.stderr.is_empty(), "{ended:#?}");
    let [json, csv, plot] = [json, csv, plot].map(|path| std::fs::read_to_string(path).unwrap());
    let report = read_report(&json, &ended.what);
    let rates = &report.pps_per_second;
    assert!(!rates.is_empty() && rates.iter().all(|rates| rates.len() == SEVERAL as usize), "{rates:?}");
    assert!(rates.iter().flatten().sum::<u64>() > 0, "{rates:?}");
    assert_eq!(csv, table::csv(rates));
    assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"), "{plot}");
    assert_eq!((&report.flags["rate"], &report.flags["with_sender"]), (&5_000.into(), &"on".into()));
}

#[test]
fn a_run_whose_books_do_not_close_writes_no_rates_anywhere() {
    if !IS_NATIVE {
        // If the kernel's drops are not counted, the missing datagram may be one of them.
        return;
    }
    let folder = tempdir().unwrap();
    let files = ["a.json", "a.csv", "a.svg"].map(|name| file(&folder, name));
    let [json, csv, plot] = &files;
    let (receiver, address) = waiting_receiver(&format!("--json {json} --csv {csv} --plot {plot}"));
    let mut client = Client::begin(address, 1);
    client.send(0, 5);
    // The book of the sender then has one more datagram than it sends.
    client.flows[0].header.sequence += 1;
    assert_eq!(client.finish().books.unexplained(), 1);
    let ended = receiver.end().with_code(1);
    assert!(ended.only_error_line().contains("BOOKS DO NOT CLOSE"), "{ended:#?}");
    assert!(!has_table(&ended.stdout), "{ended:#?}");
    assert_eq!(files.map(|path| std::fs::read_to_string(path).unwrap()), ["", "", ""]);
}

#[test]
fn an_error_line_without_a_reader_is_no_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let flags = ["--bind", "127.0.0.1:0", "--threads", "1", "--secs", "0.01"];
    let mut command = std::process::Command::new(RECEIVER);
    let status = command.args(flags).stdout(std::process::Stdio::null()).stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(1), "no sender connected");
}

#[cfg(target_os = "linux")]
#[test]
fn cpu_time_before_the_start_is_not_in_the_report() {
    const BEFORE: Duration = Duration::from_secs(1);
    let (receiver, address) = waiting_receiver("--threads 1 --wait spin --json -");
    let mut client = Client::begin_after(address, 1, || receiver.wait_for_cpu(BEFORE));
    client.send(0, 5);
    client.finish();
    let report = report_of(&receiver.end().with_code(0));
    // With what it used before the start, it would be more.
    assert!(report.threads[0].cpu_s().unwrap() < BEFORE.as_secs_f64(), "{report:#?}");
}

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
    let line = program.line_with("metrics at http://");
    let address = line.trim_start_matches("metrics at http://").trim_end_matches("/metrics").to_owned();
    assert_eq!(values(&scraped(&address), "drumfire_datagrams_received_total").len(), SEVERAL as usize);
    program.line_with("kernel drops");
    let scrape = scraped(&address);
    let received = values(&scrape, "drumfire_datagrams_received_total");
    assert_eq!(received.len(), SEVERAL as usize);
    if cfg!(target_os = "linux") {
        assert_eq!(values(&scrape, "drumfire_busy_ratio").len(), SEVERAL as usize);
    }
    // Some more is received before it ends.
    program.line_with("   2 s  ");
    program.interrupt();
    let in_all = report_of(&program.end().with_code(0)).books.received as f64;
    let so_far: f64 = received.iter().sum();
    assert!(so_far > 0.0 && so_far < in_all, "{so_far} of {in_all}");
}
