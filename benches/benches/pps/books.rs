//! Accounting under stress: a receive buffer that overflows, and a flood of empty datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_benches::{BUSY, Bench, Goal};
use drumfire_tools::choices::{SendMode, Stage};
use drumfire_tools::clock;
use drumfire_tools::report::{KERNEL_RECEIVE_QUEUE, Report};
use drumfire_tools::table::thousands;

use super::{Run, Setup};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

/// Empty datagrams per second. One thread receives this rate, so that none has to be dropped.
const FLOOD_RATE: f64 = 200_000.0;

/// The time after which the flood begins. The sender has connected by then.
const FLOOD_AFTER: Duration = Duration::from_millis(300);

/// The number of times that a void run with a flood is repeated. Each takes seconds.
const MAX_REPEATS: u32 = 3;

/// Datagrams per second that no thread receives one by one from a small buffer.
const OVERFLOW_RATE: u64 = 2_000_000;

const SMALL_BUFFER_BYTES: usize = 64 * 1024;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let count = setup.extent.pick(100_000, 1_000_000, 1_000_000);
    overflow(bench, &setup, count)?;
    empties(bench, &setup, count)
}

/// Sends trains faster than one thread receives single datagrams from a small buffer.
fn overflow(bench: &mut Bench, setup: &Setup, count: u64) -> Result<(), String> {
    let mut run = setup.run(FLOWS, SIZE, OVERFLOW_RATE, SendMode::Gso);
    run.receiver.receive_buffer_bytes = Some(SMALL_BUFFER_BYTES);
    run.receiver.stage = Stage::Parse;
    // Twice the wanted number of datagrams, because the sender may be late.
    run.traffic.secs = Duration::from_secs_f64(2.0 * count as f64 / OVERFLOW_RATE as f64);
    let report = run.report()?;
    bench.results.run("books: 64 KiB buffer overflows", &report)?;
    let books = &report.books;
    let (sent, drops) = (thousands(books.sent), books.drops.get(KERNEL_RECEIVE_QUEUE).copied().unwrap_or(0));
    // Without drops the books show nothing.
    let value = (drops > 0).then(|| books.unexplained().unsigned_abs() as f64);
    let note = format!("of {sent} sent, {} dropped by the kernel", thousands(drops));
    let name = format!("books: unexplained of {sent} into a 64 KiB buffer");
    bench.results.figure(name, value, "packets", Goal::AtMost(0.0), &note);
    Ok(())
}

/// Sends empty datagrams from another socket during a run.
fn empties(bench: &mut Bench, setup: &Setup, count: u64) -> Result<(), String> {
    let mut run = setup.run(FLOWS, SIZE, 20_000, SendMode::Single);
    run.receiver.stage = Stage::Parse;
    // The sender goes on for longer than the flood.
    run.traffic.secs = Duration::from_secs(setup.extent.pick(1, 6, 6));
    let is_void = |report: &Report| setup.rounds.may_void && report.is_void();
    let (mut sent, mut report) = flooded(&run, count)?;
    // A receiver without a core for longer than its buffer lasts loses datagrams of both kinds.
    for _ in 0..MAX_REPEATS {
        if is_void(&report) {
            (sent, report) = flooded(&run, count)?;
        }
    }
    bench.results.run("books: empty datagrams beside real traffic", &report)?;
    // The kernel's drops of empty datagrams are counted as well, in front of the socket.
    let named = |name: &str| report.foreign.get(name).copied().unwrap_or(0);
    let (taken, dropped) = (named("empty"), named(KERNEL_RECEIVE_QUEUE));
    let books = &report.books;
    let busy = if is_void(&report) { BUSY } else { "" };
    let note = format!("{} counted, {} dropped by the kernel; {busy}", thousands(taken), thousands(dropped));
    let missing = sent.abs_diff(taken + dropped) as f64;
    let name = format!("books: empty datagrams of {} not counted", thousands(sent));
    bench.results.figure(name, Some(missing), "packets", Goal::AtMost(0.0), note.trim_end_matches("; "));
    let lost = books.sent.abs_diff(books.received) as f64;
    let name = "books: real datagrams lost beside them";
    bench.results.figure(name, Some(lost), "packets", Goal::AtMost(0.0), busy);
    Ok(())
}

/// Runs once with this number of empty datagrams. Returns how many were sent.
fn flooded(run: &Run, count: u64) -> Result<(u64, Report), String> {
    let mut flooded = Ok(0);
    let outcome = std::thread::scope(|scope| {
        let mut flood = None;
        let outcome = run.outcome(|address| {
            flood = Some(scope.spawn(move || send_empties(address, count)));
        });
        if let Some(flood) = flood {
            flooded = flood.join().unwrap_or_else(|_| Err("the flood ended early".to_owned()));
        }
        outcome
    })?;
    Ok((flooded?, outcome.report))
}

/// Sends empty datagrams at a steady rate, after the sender had time to begin.
fn send_empties(to: SocketAddr, count: u64) -> Result<u64, String> {
    let fail = |error: std::io::Error| format!("an empty datagram could not be sent: {error}");
    let socket = UdpSocket::bind("127.0.0.1:0").map_err(fail)?;
    clock::pause(FLOOD_AFTER);
    let start = clock::now();
    for sent in 0..count {
        let due = Duration::from_secs_f64(sent as f64 / FLOOD_RATE);
        while clock::now().saturating_duration_since(start) < due {
            std::hint::spin_loop();
        }
        socket.send_to(&[], to).map_err(fail)?;
    }
    Ok(count)
}
