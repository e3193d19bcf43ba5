//! A full server: `cargo bench --bench load`.
//!
//! `echo`: 8,192 clients (`--clients` says otherwise) connect to a server that has room for so many, each says something ten
//! times a second and hears it back; then one more client comes, and is told politely that the server is full. `join`: they come
//! again, and each one who comes is announced to all who are there: nobody may be dropped for it, and everybody hears of
//! everybody. `crowded`: 100,000 clients on one server and 1,000 on another, which send as many messages in all, window by window
//! in turns: what a message costs more among so many. The server runs in a process of its own on one core; the clients share
//! sockets in this one, on another. With more `--workers` than one nobody is pinned. Printed are connects that failed, messages that
//! were lost or missed by the place where it happened, and the CPU of both processes over one window. The bench fails when a client
//! was disconnected, a reliable message is nowhere, or the books do not close, both ways. `--quick` is a smoke run.
#![forbid(unsafe_code)]

mod crowded;
mod echo;
mod join;
mod server;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_benches::{
    Child, Cores, Counts, Crowd, Extent, Goal, Options, Ramped, Results, Spread, Used, close_way_back,
    ending, missing, print_machine, run_bench, take_number,
};
use drumfire_tools::{clock, host};

const PARTS: [&str; 3] = ["echo", "join", "crowded"];

/// What is on its way has so long to be taken.
const SETTLE: Duration = Duration::from_millis(300);

/// Connections that share a socket: so few that its receive buffer holds what comes while this process has no core.
const PER_SOCKET: u32 = 128;

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some(served) = server::main(&args) {
        return ending(served);
    }
    let flags = take_number(&mut args, "--clients").and_then(|clients| {
        let workers = take_number(&mut args, "--workers")?;
        Ok((clients, workers.unwrap_or(1)))
    });
    match flags {
        Ok((clients, workers)) => run_bench(args, &PARTS, |options| bench(options, clients, workers)),
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::from(2)
        }
    }
}

fn bench(options: &Options, clients: Option<u32>, workers: u32) -> Result<(), String> {
    let some = if options.extent == Extent::Quick { 256 } else { 8_192 };
    let clients = clients.unwrap_or(some);
    print_machine();
    println!("extent    {}: {clients} clients, {workers} worker(s)", options.extent.name());
    let mut results = Results::new("load", options);
    // Several workers and their load need all cores there are.
    let cores = if workers == 1 { Some(Cores::of_this_process()?) } else { None };
    if let Some(cores) = cores {
        results.pinned(cores);
        host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    }
    let core = cores.map(|cores| cores.server);
    let mut outcome = Ok(());
    if options.wants("echo") {
        println!("\necho");
        outcome = echo::measure(options.extent, clients, (workers, core), &mut results);
    }
    if options.wants("join") {
        println!("\njoin");
        outcome = outcome.and(join::measure(options.extent, clients, (workers, core), &mut results));
    }
    if options.wants("crowded") {
        println!("\ncrowded");
        outcome = outcome.and(crowded::measure(options.extent, (workers, core), &mut results));
    }
    // What was found is shown, whatever failed.
    println!("\n{}", results.table());
    println!("written to {}", results.write()?.display());
    outcome
}

/// Sockets for so many clients, and for one more.
fn crowd(clients: u32) -> Result<Crowd, String> {
    let sockets = clients.div_ceil(PER_SOCKET);
    Crowd::bind(sockets, clients + sockets)
}

/// Prints how a ramp went.
fn show_ramp(ramped: &Ramped, results: &mut Results, part: &str) {
    let seconds = ramped.took.as_secs_f64();
    println!(
        "connected {} in {seconds:.1} s ({:.0}/s), failed: {:?}",
        ramped.connected,
        ramped.connected as f64 / seconds,
        ramped.failed
    );
    let failed = ramped.failed_count();
    let goal = Goal::AtMost(0.0);
    results.figure(format!("{part}: connects that failed"), Some(failed as f64), "", goal, "");
    results.figure(format!("{part}: until all were connected"), Some(seconds), "s", Goal::Shown, "");
}

/// Refuses a ramp with failures, after all else was printed.
fn all_connected(ramped: &Ramped) -> Result<(), String> {
    let failed = ramped.failed_count();
    if failed == 0 { Ok(()) } else { Err(format!("{failed} connects failed: {:?}", ramped.failed)) }
}

/// What this process used over a window, as a figure.
fn show_own_cpu(here: &[Used], results: &mut Results, part: &str) {
    let share = Spread::of(here.iter().map(|used| used.core_share() * 100.0)).map(|share| share.median);
    results.figure(
        format!("{part}: clients"),
        share,
        "% of a core",
        Goal::Shown,
        "all of them, in one process",
    );
}

/// Ends the server and holds what it sent until then against what the clients' sockets took: answers its counts, and prints a line.
fn end(server: Child, crowds: &mut [&mut Crowd], sent: u64, drops: u64) -> Result<Counts, String> {
    let served = server.finish_counts()?;
    clock::pause(SETTLE);
    let farewells = crowds.iter().map(|crowd| crowd.peers().len() as u64).sum();
    let received = crowds.iter_mut().map(|crowd| crowd.drain()).sum();
    let drops = drops.saturating_sub(missing(sent, &served));
    println!("books     {}", close_way_back(&served, received, farewells, drops)?);
    Ok(served)
}
