//! C4: full buffers of the kernel. Datagrams that it drops are counted exactly, datagrams that it refuses are kept in order without
//! spinning, and two players share a link that is too slow for either.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::config::Congestion;
use drumfire_tools::clock::pause;
use rustix::process::Signal;
use serde_json::Value;

use super::{KERNEL_COUNTERS, Setting, Testbed};
use crate::error::{Error, ErrorContext};
use crate::flood::{FloodClass, FloodPlan};
use crate::host::LINK;
use crate::marks::Marks;
use crate::players::{PERIOD, Players};
use crate::process::ServerSpec;
use crate::traffic::MESSAGE_BYTES;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    overflow_receive_buffer(setting, marks)?;
    fill_send_buffer(setting, marks)?;
    share_slow_link(setting, marks)
}

/// The kernel's memory for a receive buffer of half that size.
const RECEIVE_BUFFER: usize = 212_992;

/// Datagrams that exceed the receive buffer of a stopped server.
const STOPPED_COUNT: u64 = 20_000;

fn overflow_receive_buffer(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let mut spec = ServerSpec::local(1)?;
    spec.config = spec.config.receive_buffer_bytes(RECEIVE_BUFFER / 2);
    let mut server = spec.start()?;
    let flood = |count| FloodPlan::counted(FloodClass::Junk, None, count).send(spec.config.address);
    server.signal(Signal::STOP)?;
    let stopped = flood(STOPPED_COUNT)?;
    server.signal(Signal::CONT)?;
    let sent = stopped + flood(setting.size.of(100_000, 1_000_000, 10_000_000))?;
    pause(KERNEL_COUNTERS);
    let report = server.report()?;
    let (received, dropped) = (report.sum("/received/datagrams"), report.sum("/kernel_dropped"));
    marks.equal("bytes of the receive buffer", report.granted("receive_buffer_bytes"), RECEIVE_BUFFER as u64);
    // The kernel counts a dropped train once, so that trains would falsify the sum below.
    let in_trains = received.abs_diff(report.sum("/received/messages"));
    marks.equal("datagrams that followed others in a train", in_trains, 0);
    let unknown = sent.abs_diff(report.known_datagrams());
    marks.equal("datagrams sent and neither received nor dropped", unknown, 0);
    marks.at_least("datagrams that the kernel dropped", dropped, 1);
    // Random bytes may look like a Hello, and receive a Retry.
    let named = report.sum("/protocol/dropped") + report.sum("/protocol/handshakes_received");
    marks.equal("received datagrams not dropped by name", received.abs_diff(named), 0);
    marks.books(&report);
    marks.note(format_args!("{sent} sent, {received} received, {dropped} dropped by the kernel"));
    Ok(())
}

/// Settings of the link's token bucket, see tc-tbf(8).
const BLOCKED: &str = "rate 16kbit burst 2000 limit 10000000";
const OPEN: &str = "rate 1gbit burst 1000000 limit 10000000";

/// The server's CPU time while the link is blocked, in thousandths of a core.
const CPU_GOAL: u64 = 50;

/// A connection's memory for sending, which the run fills until less than two messages fit.
const QUEUE_BYTES: usize = 256 * 1_024;
const FULL_BYTES: u64 = QUEUE_BYTES as u64 - 256;

fn fill_send_buffer(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    const PLAYERS: usize = 20;
    const TIMEOUT: Duration = Duration::from_secs(60);
    let time = setting.size.secs(3, 10, 10);
    let tbf =
        |verb: &str, rate: &str| setting.call_far("tc", &format!("qdisc {verb} dev {LINK} root tbf {rate}"));
    let mut spec = ServerSpec { down: 3, ..setting.far_server(1)? };
    let congestion = Congestion::Fixed { bytes_per_second: 1_000_000_000 };
    spec.config = spec.config.congestion(congestion).timeouts(TIMEOUT, TIMEOUT);
    spec.config.send_memory_bytes = QUEUE_BYTES;
    let players = Players::new(PERIOD, ClientConfig::default().timeouts(TIMEOUT, TIMEOUT));
    let mut bed = Testbed::start(spec, PLAYERS, players)?;
    let memory_bytes = bed.server.memory_bytes()?;
    // Only the server's own messages fill the memory. The echoes of players that send would be refused then.
    bed.players.settle()?;
    bed.players.stop_sending();
    tbf("add", BLOCKED)?;
    let refused = bed.server.report()?.sum("/sent/faults/would_block");
    // Until the kernel's buffer is full.
    bed.players.play(Duration::from_secs(3));
    let refused = bed.server.report()?.sum("/sent/faults/would_block") - refused;
    bed.until("the send memory is full", |report| report.value("/queue_most_bytes") >= FULL_BYTES)?;
    let cpu = bed.play_measured(time)?;
    let growth = bed.server.memory_bytes()?.saturating_sub(memory_bytes);
    tbf("change", OPEN)?;
    bed.players.settle()?;
    let report = bed.server.report()?;
    marks.at_least("sends that the full buffer refused", refused, 1);
    marks.at_most("processor time of the server while blocked, in thousandths", cpu, CPU_GOAL);
    let queue_most_bytes = report.value("/queue_most_bytes");
    marks.at_most("bytes that waited for a player, at most", queue_most_bytes, QUEUE_BYTES as u64);
    marks.unharmed(&bed.players);
    marks.books(&report);
    marks.note(format_args!(
        "blocked for {time:?}; {} messages of the server; {} bytes of memory more per player",
        bed.players.down_received(),
        growth / PLAYERS as u64,
    ));
    Ok(())
}

/// The slow link: its rate, and its queue of a quarter of a second.
const LINK_BYTES_PER_SECOND: u64 = 125_000;
const SLOW: &str = "tbf rate 1mbit burst 2000 limit 32000";

/// The first player's share of the link, in thousandths.
const SHARE_LEAST: u64 = 400;
const SHARE_MOST: u64 = 600;

/// Packets of 100,000 that the link may drop.
const DROPPED_GOAL: u64 = 5_000;

fn share_slow_link(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    /// The server's messages per player and 10 ms: as much as the link carries.
    const DOWN: u64 = LINK_BYTES_PER_SECOND / 100 / MESSAGE_BYTES as u64 + 1;
    let time = setting.size.secs(10, 60, 60);
    let tc = |what: &str| setting.call_far("tc", what);
    let spec = ServerSpec { down: DOWN, ..setting.far_server(1)? };
    let mut bed = Testbed::start(spec, 2, Players::default())?;
    bed.players.settle()?;
    // The link has no room for echoes.
    bed.players.stop_sending();
    tc(&format!("qdisc replace dev {LINK} root {SLOW}"))?;
    // Until both congestion controllers have found their rates.
    bed.players.play(Duration::from_secs(5));
    let received = |bed: &Testbed| [0, 1].map(|index: usize| bed.players.list[index].down.received);
    let queue = || queue_counts(&tc(&format!("-s -j qdisc show dev {LINK}"))?);
    let (before, queue_before) = (received(&bed), queue()?);
    bed.players.play(time);
    let (after, queue_after) = (received(&bed), queue()?);
    bed.server.command("quiet")?;
    let sent = bed.server.report()?.of_players("sent");
    bed.players.until_any("all messages arrived", |players| players.down_received() >= sent)?;
    let report = bed.server.report()?;
    let [first, second] = [0, 1].map(|index| after[index] - before[index]);
    let [packets, dropped] = [0, 1].map(|index| queue_after[index] - queue_before[index]);
    let share = first * 1_000 / (first + second).max(1);
    marks.at_least("the first player's share of the link, in thousandths", share, SHARE_LEAST);
    marks.at_most("the first player's share of the link, in thousandths", share, SHARE_MOST);
    marks.share_below("packets that the link dropped", dropped, dropped + packets, DROPPED_GOAL);
    marks.equal("players gone", bed.players.gone(), 0);
    marks.equal("messages twice or out of order", bed.players.wrong(), 0);
    marks.books(&report);
    let percent = (first + second) * MESSAGE_BYTES as u64 * 100 / (LINK_BYTES_PER_SECOND * time.as_secs());
    marks.note(format_args!(
        "{first} and {second} messages received, {percent} % of the link's rate without headers; {packets} packets, {dropped} dropped"
    ));
    Ok(())
}

/// Returns how many packets a queueing discipline sent, and how many it dropped.
fn queue_counts(text: &str) -> Result<[u64; 2], Error> {
    let queues: Value = serde_json::from_str(text).context("the link's counters")?;
    let count = |name: &str| queues[0][name].as_u64().context("the link's counters");
    Ok([count("packets")?, count("drops")?])
}
