//! C12: IPv4 and IPv6, links with small, usual, and large packets, with and without trains on the way and at the server's sockets. No
//! message is lost where the network loses none. Then datagrams of every length, several connections behind one port, and a path
//! that becomes narrower.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::conditioner::{Delay, LinkConfig};
use drumfire_tools::clock::within;
use procfs::FromBufRead as _;
use procfs::net::Snmp;

use super::{Setting, Testbed, WORKERS};
use crate::error::{Error, ErrorContext};
use crate::host::{LINK, call};
use crate::marks::Marks;
use crate::net::{SpoofingSender, v4};
use crate::players::{Player, Players};
use crate::process::{Report, ServerSpec};
use crate::relay::{Relay, TrainSender};

/// Datagrams on their way arrive within this time.
const QUIET: Duration = Duration::from_millis(200);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    sweep(setting, marks)?;
    marks.part("datagrams of every length", |marks| send_all_lengths(setting, marks))?;
    marks.part("several connections behind one port", |marks| share_port(setting, marks))?;
    marks.part("a path that narrows", |marks| {
        narrow_path(setting, "a path that narrows, with an ICMP message", true, marks)?;
        narrow_path(setting, "a path that narrows, without an ICMP message", false, marks)
    })
}

const MTUS: [u16; 3] = [1_280, 1_500, 9_000];

/// The segments of a train that the device takes, and whether the server's kernel segments and coalesces trains.
const SEGMENTS: [(u32, bool); 3] = [(1, true), (65_535, true), (65_535, false)];

/// The IPv6 addresses of the link.
const NEAR_V6: &str = "fd00:213::1/126";
const FAR_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0x213, 0, 0, 0, 0, 0, 2));

fn sweep(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let time = setting.size.secs(1, 5, 60);
    call("ip", &format!("address add {NEAR_V6} dev {LINK} nodad"))?;
    setting.call_far("ip", &format!("address add {FAR_V6}/126 dev {LINK} nodad"))?;
    for mtu in MTUS {
        for (segments, has_trains) in SEGMENTS {
            set_link(setting, &format!("mtu {mtu} gso_max_segs {segments}"))?;
            for address in [setting.other_address, FAR_V6] {
                let family = if address.is_ipv4() { "v4" } else { "v6" };
                let server = if has_trains { "" } else { " and none at the server" };
                marks.section(&format!("{family}, MTU {mtu}, trains of {segments}{server}"));
                play_without_loss(setting, address, has_trains, time, marks)?;
            }
        }
    }
    Ok(())
}

/// Changes both ends of the link.
fn set_link(setting: &Setting, settings: &str) -> Result<(), Error> {
    call("ip", &format!("link set dev {LINK} {settings}"))?;
    setting.call_far("ip", &format!("link set dev {LINK} {settings}")).map(drop)
}

fn play_without_loss(
    setting: &Setting,
    address: IpAddr,
    has_trains: bool,
    time: Duration,
    marks: &mut Marks,
) -> Result<(), Error> {
    let spec = ServerSpec { has_trains, ..ServerSpec::within(setting.other, address, 2)? };
    // So few players that the kernel's buffers hold what all send at the same time.
    let mut bed = Testbed::start(spec, 10, Players::mixed(ClientConfig::default()))?;
    bed.players.play(time);
    bed.players.settle()?;
    bed.players.listen(QUIET);
    let (players, report) = (&bed.players, bed.server.report()?);
    let received = players.sum(|player| player.ordered.received + player.lossy.received);
    let datagrams = players.sum(|player| player.client.stats().sent.datagrams);
    marks.at_least("messages there and back", received, 100);
    marks.equal("messages lost", players.reliable_missing() + players.lossy_missing(), 0);
    marks.equal("players gone, messages twice or out of order", players.wrong() + players.gone(), 0);
    let unknown = datagrams.abs_diff(report.known_datagrams());
    marks.equal("datagrams sent and not known to the server", unknown, 0);
    marks.books(&report);
    if !has_trains {
        let granted = report.granted("has_gro") + report.granted("has_gso");
        marks.equal("sockets of the server with GSO or GRO", granted, 0);
        let in_trains = report.sum("/received/datagrams") - report.sum("/received/messages");
        marks.equal("datagrams that followed others in a train", in_trains, 0);
    }
    let (refused, dropped) = (report.value("/refused"), report.sum("/kernel_dropped"));
    if refused + dropped > 0 {
        marks.note(format_args!("{refused} echoes refused, {dropped} datagrams dropped by the kernel"));
    }
    Ok(())
}

/// The longest UDP datagram over IPv4.
const LONGEST: usize = 65_507;

/// The difference between two lengths.
const LENGTH_STEP: usize = 97;

/// The longest datagram that the protocol reads.
const READ_MAX: usize = 1_500;

fn send_all_lengths(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let step = setting.size.of(8 * LENGTH_STEP, LENGTH_STEP, LENGTH_STEP);
    let lengths: Vec<usize> = (0..LONGEST).step_by(step).chain([LONGEST]).collect();
    send_singly(setting, &lengths, marks)?;
    send_in_trains(&lengths, marks)
}

/// A server with a few players that receives datagrams of many lengths.
struct LengthTest {
    bed: Testbed,
    before: Report,
    /// The length of each datagram that was sent.
    sent: Vec<usize>,
}

/// Sends from this namespace to the other one, so that long datagrams arrive in IP fragments.
fn send_singly(setting: &Setting, lengths: &[usize], marks: &mut Marks) -> Result<(), Error> {
    const MTU: usize = 1_500;
    const UNFRAGMENTED_MAX: usize = MTU - 28;
    set_link(setting, &format!("mtu {MTU}"))?;
    let fragments = || {
        let counts = Snmp::from_buf_read(setting.call_far("cat", "/proc/net/snmp")?.as_bytes());
        Ok::<_, Error>(counts.context("the kernel's counts")?.ip_reasm_oks)
    };
    let before = fragments()?;
    let mut test = LengthTest::new(setting.far_server(1)?)?;
    let socket = UdpSocket::bind(("0.0.0.0", 0)).context("a socket")?;
    socket.connect(test.bed.spec.config.address).context("a socket")?;
    // Two at a time: the smallest receive buffer holds two of the longest.
    for pair in lengths.chunks(2) {
        for length in pair {
            // A first byte of zero is no packet of this protocol.
            socket.send(&vec![0; *length]).context("a datagram")?;
            test.sent.push(*length);
        }
        test.until_counted()?;
    }
    let fragmented = lengths.iter().filter(|length| **length > UNFRAGMENTED_MAX).count() as u64;
    marks.section("lengths");
    marks.at_least("datagrams that arrived in fragments", fragments()? - before, fragmented);
    test.judge(marks)
}

/// Sends from this namespace, up to three datagrams of one length as a train, to a server that receives trains.
fn send_in_trains(lengths: &[usize], marks: &mut Marks) -> Result<(), Error> {
    const TRAIN_BYTES: usize = 65_487;
    let mut test = LengthTest::new(ServerSpec::local(1)?)?;
    let to = test.bed.spec.config.address;
    let mut trains = TrainSender::new(to)?;
    marks.section("lengths in trains");
    warm_up(&mut test.bed, &mut trains, marks)?;
    test.bed.players.listen(QUIET);
    test.before = test.bed.server.report()?;
    for length in lengths.iter().filter(|length| **length > 0) {
        let datagram = vec![0; *length];
        let count = (TRAIN_BYTES / length).clamp(1, 3);
        trains.send(to, std::iter::repeat_n(&datagram[..], count));
        test.sent.extend(std::iter::repeat_n(*length, count));
        test.until_counted()?;
    }
    test.judge(marks)
}

/// The maximum number of warm-ups until every worker receives whole trains. A receiver enables GRO only after some
/// batches with trains.
const WARM_UP_ROUNDS: u32 = 200;

/// Sends trains until every worker of the server receives whole ones.
fn warm_up(bed: &mut Testbed, trains: &mut TrainSender, marks: &mut Marks) -> Result<(), Error> {
    let mut without_trains = u64::MAX;
    for _ in 0..WARM_UP_ROUNDS {
        trains.warm_up(bed.spec.config.address);
        bed.players.step();
        let report = bed.server.report()?;
        let messages = report.by_worker("/received/messages");
        let datagrams = report.by_worker("/received/datagrams");
        let pairs = datagrams.iter().zip(&messages);
        without_trains = pairs.filter(|(datagrams, messages)| datagrams <= messages).count() as u64;
        if without_trains == 0 {
            break;
        }
    }
    marks.equal("workers that received no train", without_trains, 0);
    Ok(())
}

impl LengthTest {
    fn new(spec: ServerSpec) -> Result<Self, Error> {
        let mut bed = Testbed::start(spec, 4, Players::default())?;
        let before = bed.server.report()?;
        Ok(Self { bed, before, sent: Vec::new() })
    }

    /// Plays until every datagram is counted under some name.
    fn until_counted(&mut self) -> Result<(), Error> {
        let counted = |report: &Report| {
            let dropped = report.sum("/received/dropped") + report.sum("/protocol/dropped");
            dropped + report.sum("/kernel_dropped")
        };
        let goal = counted(&self.before) + self.sent.len() as u64;
        self.bed.until("all lengths are counted", |report| counted(report) >= goal).map(drop)
    }

    fn judge(mut self, marks: &mut Marks) -> Result<(), Error> {
        self.bed.players.settle()?;
        let (players, after) = (&self.bed.players, self.bed.server.report()?);
        let more = |path: &str| after.sum(path) - self.before.sum(path);
        let dropped = after.sum("/protocol/dropped") - self.before.sum("/protocol/dropped");
        let too_long = more("/received/dropped/truncated") + more("/received/dropped/overlong");
        let sent = |is: fn(usize) -> bool| self.sent.iter().filter(|length| is(**length)).count() as u64;
        marks.at_least("datagrams sent", sent(|_| true), 50);
        marks.equal("empty", more("/received/dropped/empty"), sent(|length| length == 0));
        marks.equal("longer than any packet, dropped unread", too_long, sent(|length| length > READ_MAX));
        marks.equal("others, dropped by name", dropped, sent(|length| (1..=READ_MAX).contains(&length)));
        marks.equal("dropped by the kernel", more("/kernel_dropped"), 0);
        marks.equal("panics", after.sum("/panics") + after.sum("/restarts"), 0);
        let lost = players.reliable_missing() + players.lossy_missing();
        let harmed = players.gone() + lost + players.wrong();
        marks.equal("players gone, messages lost or wrong", harmed, 0);
        marks.books(&after);
        Ok(())
    }
}

/// Packets that must follow one of another connection in their train.
const MIXED_GOAL: u64 = 100;

/// The kernel hands a whole train to the worker of its first packet. Each packet reaches its own connection all the same.
fn share_port(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let time = setting.size.secs(2, 10, 60);
    let spec = ServerSpec::local(WORKERS)?;
    let mut bed = Testbed::start(spec, 0, Players::mixed(ClientConfig::default()))?;
    let port = Relay::start_mixing(bed.spec.config.address)?;
    // Each player receives the datagrams of all.
    for player in 0..6 {
        bed.players.add(&bed.spec.token_via(player, port.address)?)?;
    }
    bed.players.until_answered()?;
    marks.section("one port");
    let mut trains = TrainSender::new(bed.spec.config.address)?;
    warm_up(&mut bed, &mut trains, marks)?;
    bed.players.settle()?;
    bed.players.listen(QUIET);
    let (before, sent_before) = (bed.server.report()?, port.relayed().sent);
    let lost_before = bed.players.lossy_missing();
    bed.players.play(time);
    bed.players.settle()?;
    bed.players.listen(QUIET);
    let (players, after, sent) = (&bed.players, bed.server.report()?, port.relayed().sent - sent_before);
    let more = |path: &str| after.sum(path) - before.sum(path);
    marks.at_least(
        "packets that follow a packet of another connection in their train",
        port.relayed().mixed,
        MIXED_GOAL,
    );
    marks.at_least("packets forwarded to their own worker", more("/protocol/forwarded"), 1);
    let known = after.known_datagrams() - before.known_datagrams();
    marks.equal("datagrams sent and not known to the server", sent.abs_diff(known), 0);
    marks.equal("datagrams dropped by the kernel", more("/kernel_dropped"), 0);
    marks.equal("packets that reached another connection", more("/protocol/dropped/forged"), 0);
    let lost = players.lossy_missing().saturating_sub(lost_before);
    marks.equal("messages lost", lost + players.reliable_missing(), 0);
    marks.equal("messages twice, out of order or of others", players.wrong(), 0);
    marks.equal("players gone", players.gone(), 0);
    marks.books(&after);
    marks.note(format_args!(
        "{sent} datagrams in {} messages of the kernel, {} forwarded",
        more("/received/messages"),
        more("/protocol/forwarded"),
    ));
    Ok(())
}

/// The path MTU decreases during play. Packets that are too large are lost, with or without an ICMP message, and the
/// connections must adapt.
fn narrow_path(setting: &Setting, name: &str, is_reported: bool, marks: &mut Marks) -> Result<(), Error> {
    const PLAYERS: usize = 10;
    /// The largest IP packet on the path, before and after, and the headers in it.
    const WIDE: u16 = 1_500;
    const NARROW: u16 = 1_280;
    const HEADERS: u16 = 28;
    /// Players that must have found the width of the path before.
    const WIDE_GOAL: u64 = 5;
    let time = setting.size.secs(3, 10, 60);
    let router = is_reported.then(SpoofingSender::new).transpose()?;
    let wide = LinkConfig::default()
        .delay(Delay::Constant(Duration::from_millis(5)))
        .datagram_max_bytes((WIDE - HEADERS).into());
    let players = Players::mixed(ClientConfig::default().conditioner(wide.clone()));
    let mut bed = Testbed::start(ServerSpec::local(WORKERS)?, PLAYERS, players)?;
    bed.players.play(time);
    let before = bed.players.datagram_max_bytes()?;
    bed.players.set_conditioner(&wide.datagram_max_bytes((NARROW - HEADERS).into()))?;
    let received = bed.players.reliable_received();
    let (is_within, mut known, mut reported) = (within(time), [[0; 2]; PLAYERS], 0);
    while is_within() {
        bed.players.step();
        for (player, known) in bed.players.list.iter().zip(&mut known) {
            if let Some(router) = &router {
                reported += report_too_large(router, NARROW, player, bed.spec.config.address, known)?;
            }
        }
    }
    let after = bed.players.datagram_max_bytes()?;
    bed.players.settle()?;
    let (players, report) = (&bed.players, bed.server.report()?);
    let too_large = players.sum_of_links(|link| link.too_large);
    let wide = before.iter().filter(|bytes| **bytes == WIDE - HEADERS).count() as u64;
    let narrow = after.iter().filter(|bytes| **bytes <= NARROW - HEADERS).count() as u64;
    marks.section(name);
    marks.at_least("players that use the whole path before", wide, WIDE_GOAL);
    marks.at_least("packets that were too large", too_large, 1);
    if is_reported {
        marks.at_least("ICMP messages of the router", reported, 1);
    } else {
        marks.equal("ICMP messages of the router", reported, 0);
    }
    marks.equal("players that fit the path after", narrow, PLAYERS as u64);
    let more = players.reliable_received() - received;
    marks.at_least("reliable messages there and back after", more, 10 * PLAYERS as u64);
    marks.equal("players gone", players.gone(), 0);
    let harmed = players.sum(|player| player.ordered.missing() + player.ordered.wrong);
    marks.equal("reliable messages lost, twice or out of order", harmed, 0);
    marks.equal("unreliable messages twice", players.sum(|player| player.lossy.wrong), 0);
    marks.books(&report);
    let lost = players.lossy_missing();
    marks.note(format_args!(
        "{too_large} packets were too large, {lost} unreliable messages lost with them; datagrams before {before:?}, after {after:?}"
    ));
    Ok(())
}

/// Lets the router report the datagrams of a player and of the server that the link between them dropped as too large. `known` counts those
/// that were reported before, by direction. Returns the number of reports.
fn report_too_large(
    router: &SpoofingSender,
    mtu: u16,
    player: &Player,
    server: SocketAddr,
    known: &mut [u64; 2],
) -> Result<u64, Error> {
    let stats = player.client.stats();
    let (player, server) = (v4(player.client.local_addr().context("a socket")?)?, v4(server)?);
    let dropped = [stats.outbound_link.too_large, stats.inbound_link.too_large];
    let mut reported = 0;
    for (at, (from, to)) in [(player, server), (server, player)].into_iter().enumerate() {
        let count = dropped[at] - known[at];
        reported += (0..count).filter(|_| router.report_too_large(from, to, mtu)).count() as u64;
    }
    *known = dropped;
    Ok(reported)
}
