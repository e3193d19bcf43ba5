//! C4: the kernel's buffers are full. What it drops of what comes is counted to the last datagram; what it does not take is
//! kept, in order, without a processor that spins. And two players share a link that is too slow for either.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire_tools::clock::{now, pause};
use rustix::process::Signal;

use super::{Other, PERIOD, Setting, share};
use crate::crowd::Crowd;
use crate::flood::{self, Class, Dose};
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::Stop;
use crate::system::{LINK, call};
use crate::tap::Samples;

/// Datagrams that come while the server takes none: more than its buffer holds.
const MORE_THAN_ENOUGH: u64 = 20_000;

/// For a flood that ends by its count.
const LONG: Duration = Duration::from_secs(600);

/// The counters of the kernel are read once in this time.
const KERNEL_COUNTERS: Duration = Duration::from_millis(1_500);

const PLAYERS: usize = 20;

/// Messages of the server for each player in 10 ms.
const DOWN: u64 = 2;

/// What the link carries when it is slow, and when it is not.
const SLOW: &str = "rate 16kbit burst 2000 limit 10000000";
const FAST: &str = "rate 1gbit burst 1000000 limit 10000000";

/// Of one processor, in thousands, while the server has nothing to do but wait.
const PROCESSOR_GOAL: u64 = 50;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    receive(setting, marks)?;
    let other = setting.other()?;
    send(setting, other, marks)?;
    share::run(setting, other, marks)
}

/// Bytes of the kernel's memory for what waits in a socket, when half of it is asked for.
const RECEIVE_BUFFER: u64 = 212_992;

/// A connection's memory for what is to be sent; and what has to wait there, or nothing is proved.
const QUEUE_GOAL: u64 = 256 * 1_024;
const QUEUE_LEAST: u64 = 64 * 1_024;

/// Row 35 of the threats: sent is received and what the kernel dropped.
fn receive(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let mut plan = Plan::new(setting.address, 1)?.flag("--receive-buffer", RECEIVE_BUFFER / 2);
    let mut server = plan.start()?;
    let flood = |count| {
        let dose = Dose { class: Class::Junk, rate: None, time: LONG, count };
        flood::join(flood::start(dose, plan.address(), Samples::default())?)
    };
    server.signal(Signal::STOP)?;
    let stopped = flood(MORE_THAN_ENOUGH)?;
    server.signal(Signal::CONT)?;
    let sent = stopped + flood(setting.size.of(100_000, 1_000_000, 10_000_000))?;
    pause(KERNEL_COUNTERS);
    let report = server.report()?;
    let (received, dropped) = (report.sum("/received/datagrams"), report.sum("/kernel_dropped"));
    let granted = report.granted("receive_buffer_bytes");
    marks.equal("bytes of the receive buffer", granted, RECEIVE_BUFFER);
    // Of trains the kernel would count one for all that it drops of each.
    let trains = received.abs_diff(report.sum("/received/messages"));
    marks.equal("datagrams that came behind others in a train", trains, 0);
    marks.equal(
        "datagrams sent and neither received nor dropped",
        sent.abs_diff(report.known_datagrams()),
        0,
    );
    marks.at_least("datagrams that the kernel dropped", dropped, 1);
    // Noise may look like a Hello, and is asked for a cookie.
    let named = report.sum_of_map("/protocol/dropped") + report.sum("/protocol/handshakes_received");
    marks.equal("received datagrams not dropped by name", received.abs_diff(named), 0);
    marks.equal("datagrams in no counter", report.unexplained(), 0);
    marks.note(format_args!("{sent} sent, {received} received, {dropped} dropped by the kernel"));
    Ok(())
}

/// Row 36: the link takes next to nothing for a while.
fn send(setting: &Setting, other: &Other, marks: &mut Marks) -> Result<(), Stop> {
    let blocked = Duration::from_secs(setting.size.of(3, 10, 10));
    let qdisc = |verb: &str, rate: &str| {
        call("ip", &format!("netns exec {} tc qdisc {verb} dev {LINK} root tbf {rate}", other.name))
    };
    let mut plan = Plan::new((other.address, 0).into(), 1)?
        .within(&other.name)
        .flag("--down", DOWN)
        .flag("--fixed-rate", 1_000_000_000)
        .flag("--timeout-secs", 60);
    let mut server = plan.start()?;
    let second = Duration::from_secs(60);
    let config = ClientConfig::default().timeouts(second, second);
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &config)?;
    let bytes = server.holds()?.bytes;
    qdisc("add", SLOW)?;
    // Until the kernel's buffer is full.
    let mut calls = server.report()?.sum("/sent/faults/would_block");
    crowd.go_on(Duration::from_secs(3));
    calls = server.report()?.sum("/sent/faults/would_block") - calls;
    let (used, start) = (server.processor_time()?, now());
    crowd.go_on(blocked);
    let (used, passed) = (server.processor_time()? - used, now().duration_since(start));
    let grown = server.holds()?.bytes.saturating_sub(bytes);
    qdisc("change", FAST)?;
    crowd.settle()?;
    let report = server.report()?;
    let thousandths = u64::try_from(used.as_millis() * 1_000 / passed.as_millis().max(1)).unwrap_or(u64::MAX);
    marks.at_least("sends that the full buffer refused", calls, 1);
    marks.at_most("processor time of the server meanwhile, in thousandths", thousandths, PROCESSOR_GOAL);
    marks.at_least("bytes that waited for a player, at most", report.queue_most_bytes(), QUEUE_LEAST);
    marks.at_most("bytes that waited for a player, at most", report.queue_most_bytes(), QUEUE_GOAL);
    marks.equal("players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
    marks.equal("reliable messages lost", crowd.sum(|player| player.ordered.missing()), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.equal("datagrams in no counter", report.unexplained(), 0);
    marks.note(format_args!(
        "blocked for {passed:.1?}, processor time {used:.1?}; {} messages of the server; {} bytes of memory more for each player",
        crowd.sum(|p| p.down.heard),
        grown / PLAYERS as u64,
    ));
    Ok(())
}
