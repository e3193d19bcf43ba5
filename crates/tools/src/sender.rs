//! The sender: one socket per flow, an open-loop schedule, and a book that is compared with the receiver's.
//!
//! [`run`] does one whole run. Printing is left to the caller.

mod flow;
mod messages;
mod thread;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cli::Traffic;
use crate::clock;
use crate::control::{self, Finished, Hello, SenderEnd};
use crate::datagram::RouteId;
use crate::error::Error;
use crate::host;
use crate::limits::{DESCRIPTORS, SEALED_MIN_SIZE};
use crate::report::{Report, ThreadReport};
use crate::table::thousands;
use thread::{SenderRun, SenderThread};

/// How long a receiver may take to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A sender that sent less than this share of its schedule is late.
const ON_TIME_SHARE: f64 = 0.99;

/// Sends this traffic to the first address that accepts, and compares books with the receiver. Returns the report, without a command
/// and flags.
///
/// # Errors
/// [`Error::Usage`] for traffic that this host or the receiver does not support, or [`Error::Run`] if there are no two
/// books to compare.
pub fn run(to: &[SocketAddr], traffic: &Traffic, is_stopped: &dyn Fn() -> bool) -> Result<Report, Error> {
    let has_time = clock::within(RESPONSE_TIMEOUT);
    let hello = Hello {
        version: control::VERSION,
        traffic: Traffic { pin: None, ..traffic.clone() },
        kernel_id: host::kernel_id(),
    };
    let accepted = SenderEnd::connect(to, &hello, || has_time() && !is_stopped());
    let (mut end, welcome) = accepted.map_err(|error| {
        if is_stopped() { Error::run("stopped before anything was sent: start it again") } else { error }
    })?;
    let drops = host::drops();
    let most = welcome.sealed.map(|sealed| sealed.mode.max_size());
    if let Some(most) = most.filter(|most| !(SEALED_MIN_SIZE..=*most).contains(&traffic.load.size)) {
        let range = format!("{SEALED_MIN_SIZE} to {most}");
        let problem = format!("the receiver's stage and mode take packets of {range} bytes");
        return Err(Error::usage("--size", problem, format!("give --size {range}")));
    }
    let _ = host::raise_open_files(DESCRIPTORS);
    let run = Arc::new(SenderRun::new(traffic.clone(), end.peer, welcome.sealed));
    let opened = open_threads(&run, &welcome.ids).and_then(|threads| end.start().map(|()| threads));
    // Threads that wait for a start that does not come end now.
    let _ = run.has_started.set(opened.is_ok());
    let (finished, threads) = join_threads(&run, opened?, &mut end, is_stopped);
    // The books are compared even if the run was stopped.
    let received = end.finish(finished.clone(), clock::within(RESPONSE_TIMEOUT * 2))?;
    Ok(Report { host_drops: host::growth(&drops, host::drops()), ..report(threads, finished, received) })
}

/// Returns the report of a run, which contains both books.
fn report(threads: Vec<ThreadReport>, finished: Finished, received: Report) -> Report {
    let Report { books, foreign, duplicated, reordered, messages, limited_by, offered, .. } = received;
    let refused = finished.errors.iter();
    let notes =
        refused.map(|(name, count)| format!("the kernel refused {} datagrams: {name}", thousands(*count)));
    let report = Report {
        name: "sender".to_owned(),
        machine: host::machine(),
        window_s: Duration::from_nanos(finished.elapsed_ns).as_secs_f64(),
        books,
        threads,
        granted: finished.granted,
        foreign,
        offered,
        duplicated,
        reordered,
        messages,
        limited_by,
        notes: notes.collect(),
        ..Report::default()
    };
    report.derived()
}

/// Starts the threads and waits until all sockets are ready. `ids` has the id of each flow.
fn open_threads(run: &Arc<SenderRun>, ids: &[RouteId]) -> Result<Vec<JoinHandle<()>>, Error> {
    let Traffic { threads: count, pin, .. } = run.traffic;
    // The cores that this process may use, if threads are pinned.
    let cores = pin.and_then(|_| host::allowed_cores()).unwrap_or_default();
    let (ready, answers) = channel();
    let mut threads = Vec::new();
    for index in 0..count {
        let flows = (0_u32..).zip(ids.iter().copied());
        let flows = flows.filter(|(flow, _)| *flow % count.max(1) == index).collect();
        let place = pin.unwrap_or(0) as usize + index as usize;
        let core = cores.get(place % cores.len().max(1)).copied();
        let thread = SenderThread::new(Arc::clone(run), index, flows, core);
        let ready = ready.clone();
        let thread = std::thread::Builder::new()
            .name(format!("sender-{index}"))
            .spawn(move || thread.run(&ready))
            .map_err(|error| Error::run(format!("a thread cannot be started: {error}")))?;
        threads.push(thread);
    }
    // Without this end, a thread that panics before it is ready ends the wait.
    drop(ready);
    answers.iter().take(threads.len()).collect::<Result<(), _>>()?;
    Ok(threads)
}

/// Waits for the threads, which the receiver or the caller may end early. Returns the book and the counters of each thread.
fn join_threads(
    run: &SenderRun,
    threads: Vec<JoinHandle<()>>,
    end: &mut SenderEnd,
    is_stopped: &dyn Fn() -> bool,
) -> (Finished, Vec<ThreadReport>) {
    while !run.is_stopping() && threads.iter().any(|thread| !thread.is_finished()) {
        // The receiver may be gone. Sending the book returns the error.
        if end.is_asked_to_stop().unwrap_or(true) || is_stopped() {
            run.is_stopping.store(true, Ordering::Relaxed);
        }
    }
    threads.into_iter().for_each(|thread| drop(thread.join()));
    let (mut finished, threads) = run.take_totals();
    let done = finished.messages.as_ref().map_or(finished.sent, |messages| messages.sent);
    let offered = finished.messages.as_ref().map_or(finished.offered, |messages| messages.offered);
    finished.late = run.traffic.load.rate > 0 && (done as f64) < offered as f64 * ON_TIME_SHARE;
    (finished, threads)
}

/// Starts a sender on threads of this process, for a receiver at `bound` on this host. Without a receiver it ends on its own.
pub(crate) fn start_local(
    bound: SocketAddr,
    traffic: Traffic,
) -> Result<JoinHandle<Result<Report, Error>>, Error> {
    let run = move || run(&[reachable(bound)], &traffic, &|| false);
    let thread = std::thread::Builder::new().name("sender".to_owned()).spawn(run);
    thread.map_err(|error| Error::run(format!("the sender cannot be started: {error}")))
}

/// Returns the address at which a sender on this host reaches a receiver bound to `bound`.
fn reachable(bound: SocketAddr) -> SocketAddr {
    let mut reachable = bound;
    if bound.ip().is_unspecified() {
        let is_ipv4 = bound.is_ipv4();
        reachable.set_ip(if is_ipv4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    reachable
}
