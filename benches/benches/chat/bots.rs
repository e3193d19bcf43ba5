//! The clients' process: it connects all, lets them say what the schedule asks for, hears what comes, and tells what was counted.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drumfire_benches::{Counts, on_end_of_input, print_counts};
use drumfire_tools::{clock, host};
use hdrhistogram::Histogram;

use crate::datagrams::Datagrams;
use crate::ears::{Span, Tally, latency_counts};
use crate::plan::{Arm, Plan, ns};
use crate::streams::Streams;
use crate::tell::Teller;

/// When nothing more was heard for so long, nothing more will be.
const QUIET: Duration = Duration::from_secs(3);

/// A message that was due at the end is said by then, if ever.
const LAST_TURN: Duration = Duration::from_millis(100);

/// What is still out has so long to come, at most.
const SETTLE_MAX: Duration = Duration::from_secs(60);

/// All are connected within this time, or the run fails.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(60);

/// How long a process rests that has heard nothing.
const REST: Duration = Duration::from_micros(100);

/// Clients, however they are connected.
pub(crate) trait Bots {
    /// Says what is due and hears what came; the one that stops reading is left out where it is `held`. Answers whether anything
    /// came.
    fn work(&mut self, span: &Span, is_held: bool) -> Result<bool, String>;

    /// What was said and heard.
    fn tally(&self) -> Tally;

    /// How long messages took.
    fn latency(&self) -> Result<Histogram<u64>, String>;

    /// The mean of the client whose messages took longest, in nanoseconds.
    fn slowest_mean_ns(&self) -> u64;

    /// What the sockets and the protocol counted.
    fn carried(&self) -> Counts;
}

/// Runs the clients' process.
pub(crate) fn run(plan: Plan, address: &OsStr) -> Result<(), String> {
    if let Some([.., _, core]) = host::allowed_cores().as_deref() {
        host::pin_current_thread(*core).map_err(|error| error.to_string())?;
    }
    let files = u64::from(plan.connections()) + 64;
    if host::raise_open_files(files).is_some_and(|limit| limit < files) {
        return Err("the system does not let so many connections be open".to_owned());
    }
    let address: Option<SocketAddr> = address.to_str().and_then(|text| text.parse().ok());
    let address = address.ok_or("no address")?;
    if plan.arm == Arm::Tcp {
        drive(Streams::connect(plan, address)?, plan)
    } else {
        drive(Datagrams::connect(plan, address)?, plan)
    }
}

fn drive(mut bots: impl Bots, plan: Plan) -> Result<(), String> {
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    on_end_of_input(move || flag.store(true, Ordering::Release));
    let span = Span::soon(plan);
    let times = [("start", span.start_ns), ("window", span.window_ns), ("end", span.end_ns)];
    let times = times.map(|(name, time)| (name.to_owned(), time)).into();
    print_counts(&times).map_err(|error| error.to_string())?;
    let mut teller = Teller::new(plan.interval);
    let (mut heard_ns, quiet_ns) = (span.end_ns, ns(QUIET));
    loop {
        let now = clock::host_ns();
        let is_held = plan.has_stalled && (span.window_ns..span.end_ns).contains(&now);
        if bots.work(&span, is_held)? {
            heard_ns = heard_ns.max(now);
        } else {
            clock::pause(REST);
        }
        teller.look(|| counts(&bots))?;
        let tally = bots.tally();
        // What is lost or missed is waited for in vain.
        let is_all_heard = tally.heard >= tally.said * u64::from(plan.connections());
        let is_quiet = now > heard_ns + quiet_ns || now > span.end_ns + ns(SETTLE_MAX);
        if is_quiet || (is_all_heard && now > span.end_ns + ns(LAST_TURN)) {
            break;
        }
    }
    teller.last(counts(&bots))?;
    // The server makes its books while nobody leaves. Then it is gone, and what it sent last is still to be counted.
    let mut over_ns = None;
    while over_ns.is_none_or(|over_ns| clock::host_ns() < over_ns + ns(LAST_TURN)) {
        if over_ns.is_none() && is_over.load(Ordering::Acquire) {
            over_ns = Some(clock::host_ns());
        }
        bots.work(&span, false)?;
        clock::pause(REST);
    }
    let mut all = counts(&bots);
    all.extend(latency_counts(&bots.latency()?, bots.slowest_mean_ns()));
    teller.last(all)
}

fn counts(bots: &impl Bots) -> Counts {
    let mut counts = bots.tally().counts();
    counts.extend(bots.carried());
    counts
}
