//! Books under stress: a receive buffer made to overflow, and a flood of empty datagrams beside real traffic.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_benches::{BUSY, DropWatch, Extent, Goal, Recipe, Results, run_with};
use drumfire_tools::choices::{SendMode, Stage};
use drumfire_tools::clock;
use drumfire_tools::report::{KERNEL_RECEIVE_QUEUE, Report};
use drumfire_tools::table::thousands;

use super::{Bench, report, report_of};

/// Empty datagrams per second: less than one thread takes, so that none has to be dropped.
const FLOOD_RATE: f64 = 200_000.0;

/// When the flood begins: the sender has connected by then.
const FLOOD_AFTER: Duration = Duration::from_millis(300);

/// How often a flood that the machine disturbed is repeated; each takes seconds.
const MAX_REPEATS: u32 = 3;

/// Datagrams per second that no thread takes singly out of a small buffer.
const OVERFLOW_RATE: u64 = 2_000_000;

/// What a small receive buffer asks for.
const SMALL_BUFFER_BYTES: usize = 64 * 1024;

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    overflow(bench, results)?;
    empties(bench, results)
}

fn count(bench: &Bench) -> u64 {
    if bench.extent == Extent::Quick { 100_000 } else { 1_000_000 }
}

/// Trains arrive faster than one thread takes single datagrams out of a small buffer.
fn overflow(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let mut plan = bench.plan();
    plan.receive_buffer_bytes = Some(SMALL_BUFFER_BYTES);
    plan.stage = Stage::Parse;
    let mut traffic = bench.traffic(64, 128, OVERFLOW_RATE, SendMode::Gso);
    // Twice the datagrams that are wanted, for a sender that is late.
    traffic.secs = Duration::from_secs_f64(2.0 * count(bench) as f64 / OVERFLOW_RATE as f64);
    let watch = DropWatch::begin();
    let report = report(&Recipe { plan, traffic })?;
    let by_system = watch.count();
    results.run("books: 64 KiB buffer overflows", &report)?;
    let drops = report.books.drops.get(KERNEL_RECEIVE_QUEUE).copied().unwrap_or(0);
    println!(
        "  64 KiB receive buffer: {} sent = {} received + {} dropped by the kernel + {} unexplained; RcvbufErrors of the whole system \
         meanwhile: {}, where a train may count once",
        thousands(report.books.sent),
        thousands(report.books.received),
        thousands(drops),
        report.books.unexplained(),
        thousands(by_system)
    );
    let unexplained = report.books.unexplained().unsigned_abs() as f64;
    let name = format!("books: unexplained of {} into a 64 KiB buffer", thousands(report.books.sent));
    let (value, note) = match drops {
        0 => (None, "it did not overflow: nothing was shown".to_owned()),
        drops => (Some(unexplained), format!("{} dropped by the kernel", thousands(drops))),
    };
    results.figure(name, value, "packets", Goal::AtMost(0.0), &note);
    Ok(())
}

/// Empty datagrams from a stranger while a sender sends.
fn empties(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let mut plan = bench.plan();
    plan.stage = Stage::Parse;
    let mut traffic = bench.traffic(64, 128, 20_000, SendMode::Single);
    // Longer than the flood needs; the sender is stopped by its own clock.
    traffic.secs = Duration::from_secs(if bench.extent == Extent::Quick { 1 } else { 6 });
    let recipe = Recipe { plan, traffic };
    let (mut sent, mut report) = flooded(&recipe, count(bench))?;
    let mut repeats = 0;
    // A receiver that is kept off its core for longer than its buffer lasts loses both kinds.
    while bench.may_void() && report.is_void() && repeats < MAX_REPEATS {
        (sent, report) = flooded(&recipe, count(bench))?;
        repeats += 1;
    }
    results.run("books: empty datagrams beside real traffic", &report)?;
    let named = |name: &str| report.foreign.get(name).copied().unwrap_or(0);
    // What the kernel drops of them is counted too, in front of the socket.
    let (taken, dropped) = (named("empty"), named(KERNEL_RECEIVE_QUEUE));
    let drops = report.books.dropped_count();
    println!(
        "  empties: {} sent, {} counted, {} dropped by the kernel; real traffic: {} sent, {} received, {} dropped, {} unexplained",
        thousands(sent),
        thousands(taken),
        thousands(dropped),
        thousands(report.books.sent),
        thousands(report.books.received),
        thousands(drops),
        report.books.unexplained()
    );
    let note = if bench.may_void() && report.is_void() { BUSY } else { "" };
    let missing = sent.abs_diff(taken + dropped) as f64;
    let name = format!("books: empty datagrams of {} not counted", thousands(sent));
    results.figure(name, Some(missing), "packets", Goal::AtMost(0.0), note);
    let harmed = report.books.sent.abs_diff(report.books.received) as f64;
    let name = "books: real datagrams lost beside them";
    results.figure(name, Some(harmed), "packets", Goal::AtMost(0.0), note);
    Ok(())
}

/// One run with `count` empty datagrams beside it; answers how many were sent.
fn flooded(recipe: &Recipe, count: u64) -> Result<(u64, Report), String> {
    let mut flooded = Ok(0);
    let outcome = std::thread::scope(|scope| {
        let mut flood = None;
        let outcome = run_with(recipe, |address| {
            flood = Some(scope.spawn(move || send_empties(address, count)));
        });
        if let Some(flood) = flood {
            flooded = flood.join().unwrap_or_else(|_| Err("the flood ended early".to_owned()));
        }
        outcome
    })?;
    Ok((flooded?, report_of(recipe, &outcome)))
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
