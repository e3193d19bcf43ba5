//! C10: system calls of one worker fail with each error in turn. Only a worker without a socket ends, each error is
//! counted by its name, no core spins, and the players of the other workers do not notice. Then routes and firewalls
//! make the calls of all workers fail.

use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use drumfire_socket::Fault;

use super::{NEWCOMERS, Setting, Testbed};
use crate::error::{Error, ErrorContext};
use crate::host::{LINK, call};
use crate::marks::Marks;
use crate::players::{Player, Players};
use crate::process::{Report, ServerSpec};

const PLAYERS: usize = 20;
const WORKERS: u16 = 2;

/// The calls by which a worker sends and receives.
pub(super) const SEND: &str = "sendmsg sendmmsg sendto";
pub(super) const RECEIVE: &str = "recvmsg recvmmsg recvfrom";

/// Errors by their numbers on Linux, see errno(3), and the names of their counters.
const SEND_ERRORS: [(i32, &str); 14] = [
    (1, "not_permitted"),
    (4, "interrupted"),
    (5, "input_output"),
    (11, "would_block"),
    (12, "out_of_memory"),
    (13, "access_denied"),
    (22, "invalid_argument"),
    (90, "message_too_long"),
    (97, "address_family_unsupported"),
    (99, "address_not_available"),
    (101, "network_unreachable"),
    (105, "no_buffers"),
    (111, "connection_refused"),
    (113, "host_unreachable"),
];
const RECEIVE_ERRORS: [(i32, &str); 9] = [
    (4, "interrupted"),
    (11, "would_block"),
    (12, "out_of_memory"),
    (71, "protocol_error"),
    (101, "network_unreachable"),
    (104, "connection_reset"),
    (105, "no_buffers"),
    (111, "connection_refused"),
    (113, "host_unreachable"),
];

/// Errors of a socket that is gone.
pub(super) const BAD_DESCRIPTOR: i32 = 9;
const LOST_SOCKET_ERRORS: [(i32, &str); 2] = [(BAD_DESCRIPTOR, "bad_descriptor"), (88, "not_socket")];

/// Errors by which the socket can never reach the peer. They end the connection.
const ENDING: [&str; 2] = ["address_family_unsupported", "address_not_available"];

/// Errors after which a worker keeps its datagrams, and how many it keeps.
const KEEPING: [&str; 3] = ["would_block", "out_of_memory", "no_buffers"];
const KEPT_MAX: u64 = 128;

/// The server's CPU time while calls fail, in thousandths of a core.
const CPU_GOAL: u64 = 250;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Error> {
    let time = setting.size.secs(1, 3, 5);
    for (errno, counter) in SEND_ERRORS {
        fail_calls(CallError { errno, counter, calls: SEND, group: "sent" }, time, marks)?;
    }
    for (errno, counter) in RECEIVE_ERRORS {
        fail_calls(CallError { errno, counter, calls: RECEIVE, group: "received" }, time, marks)?;
    }
    for (errno, counter) in LOST_SOCKET_ERRORS {
        lose_socket(errno, counter, marks)?;
    }
    let disturb_all = |obstacles: &[Obstacle], marks: &mut Marks| {
        obstacles.iter().try_for_each(|obstacle| obstruct(setting, *obstacle, time, marks))
    };
    marks.part("routes without a destination", |marks| disturb_all(&ROUTES, marks))?;
    marks.part("a firewall that drops and rejects", |marks| {
        call("nft", "--version")?;
        disturb_all(&FIREWALLS, marks)
    })
}

/// An error of one worker's calls.
#[derive(Clone, Copy)]
struct CallError {
    errno: i32,
    counter: &'static str,
    calls: &'static str,
    /// The group of the counter in the statistics.
    group: &'static str,
}

fn fail_calls(error: CallError, time: Duration, marks: &mut Marks) -> Result<(), Error> {
    let CallError { errno, counter, calls, group } = error;
    let mut bed = Testbed::start(ServerSpec::local(WORKERS)?, PLAYERS, Players::default())?;
    let worker = bed.fail_calls(errno, "all", calls)?;
    // The worker's players continue for now, so that the worker has reasons to send and receive.
    let faults = format!("/{group}/faults/{counter}");
    let known = bed.server.report()?.of_worker(worker, &faults);
    // After one more error, every call fails.
    let before = bed.until("the first error", |report| report.of_worker(worker, &faults) > known)?;
    let cpu = bed.play_measured(time)?;
    // The worker's players would wait for echoes that cannot come.
    bed.pause_players_of(worker)?;
    bed.players.settle()?;
    let (players, report) = (&bed.players, bed.server.report()?);
    marks.section(&format!("{group} {counter}"));
    call_marks(error, worker, [&before, &report], marks);
    marks.equal("workers that ended or restarted", report.disruptions(WORKERS), 0);
    let is_other = |player: &Player| !player.is_paused;
    let gone = players.count(|player| is_other(player) && player.is_gone());
    let missing = players.sum(|player| if is_other(player) { player.ordered.missing() } else { 0 });
    let harmed = gone + missing + players.wrong();
    marks.equal("other workers' players gone, messages lost or wrong", harmed, 0);
    marks.at_least("players of other workers", players.count(is_other), 1);
    let closed = report.of_worker(worker, "/protocol/connections_closed");
    let goal = if ENDING.contains(&counter) { PLAYERS as u64 - players.count(is_other) } else { 0 };
    marks.equal("connections of the worker closed", closed, goal);
    marks.at_most("processor time of the server, in thousandths", cpu, CPU_GOAL);
    Ok(())
}

/// Each call between two reports failed, is counted by its name and no other, and so is each datagram that was lost by it. The
/// number of calls is the worker's own, from before each call, because a filter counts nothing.
fn call_marks(error: CallError, worker: u64, [before, after]: [&Report; 2], marks: &mut Marks) {
    let CallError { counter, calls, group, .. } = error;
    let more = |path: &str| after.of_worker(worker, path) - before.of_worker(worker, path);
    let faults = format!("/{group}/faults/{counter}");
    let (made, counted) = (more(&format!("/{group}/calls")), more(&faults));
    marks.at_least("counted by its name", after.of_worker(worker, &faults), 1);
    marks.equal("failed calls that are not counted by it", made.abs_diff(counted), 0);
    let through = more(&format!("/{group}/datagrams"));
    marks.equal("datagrams counted as sent nevertheless", through, 0);
    let mut lost = 0;
    if calls == SEND {
        lost = more(&format!("/sent/lost/{counter}"));
        let unaccounted = more("/protocol/datagrams_sent").abs_diff(lost);
        let goal = if KEEPING.contains(&counter) { KEPT_MAX } else { 0 };
        marks.at_most("datagrams written and not counted as lost by it", unaccounted, goal);
    }
    marks.note(format_args!("{made} calls, {lost} datagrams lost by them"));
}

/// Every descriptor of a worker's socket becomes invalid. The worker ends, and the other workers are unaffected.
fn lose_socket(errno: i32, counter: &str, marks: &mut Marks) -> Result<(), Error> {
    let mut bed = Testbed::start(ServerSpec::local(WORKERS)?, PLAYERS, Players::default())?;
    let worker = bed.fail_calls(errno, "all", RECEIVE)?;
    bed.pause_players_of(worker)?;
    bed.players.settle()?;
    let lost = bed.players.count(|player| player.is_paused);
    bed.players.list.retain(|player| !player.is_paused);
    let old = bed.players.list.len();
    bed.add_newcomers(PLAYERS)?;
    let report = bed.server.report()?;
    let is_well = |player: &&Player| !player.is_gone() && player.ordered.missing() == 0;
    let (old, new) = bed.players.list.split_at(old);
    let well = |players: &[Player]| players.iter().filter(is_well).count() as u64;
    marks.section(&format!("a lost socket, by {counter}"));
    // After the first error the worker tries a second descriptor.
    let counted = report.of_worker(worker, &format!("/received/faults/{counter}"));
    marks.equal("counted by its name", counted, 2);
    let reopened = report.of_worker(worker, "/sockets_reopened");
    marks.equal("second descriptors of the socket that were tried", reopened, 1);
    marks.equal("workers that ended", report.disruptions(WORKERS), 1);
    marks.equal("players of other workers that continue", well(old), old.len() as u64);
    marks.note(format_args!(
        "worker {worker} ended with {lost} players; {} of {NEWCOMERS} newcomers were answered after it",
        well(new)
    ));
    Ok(())
}

/// An obstacle for the whole server: its name, its kind, and the counter of the server's errors, where it receives any.
type Obstacle = (&'static str, ObstacleKind, Option<&'static str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObstacleKind {
    /// A route to the players of this type, see ip-route(8).
    Route(&'static str),
    /// The link is down.
    LinkDown,
    /// The server's firewall drops what it sends.
    Dropped,
    /// The server's firewall rejects what it receives, and the players receive the error.
    RejectedAtServer,
    /// The players' firewall rejects what they receive, and the server receives the error.
    RejectedAtPlayers,
}

const ROUTES: [Obstacle; 4] = [
    ("a prohibit route", ObstacleKind::Route("prohibit"), Some("access_denied")),
    ("a blackhole route", ObstacleKind::Route("blackhole"), Some("invalid_argument")),
    ("an unreachable route", ObstacleKind::Route("unreachable"), Some("host_unreachable")),
    ("a link that is down", ObstacleKind::LinkDown, Some("network_unreachable")),
];
const FIREWALLS: [Obstacle; 3] = [
    ("a firewall that drops", ObstacleKind::Dropped, Some("not_permitted")),
    ("a firewall at the server that rejects", ObstacleKind::RejectedAtServer, None),
    ("a firewall at the players that rejects", ObstacleKind::RejectedAtPlayers, None),
];

impl ObstacleKind {
    /// Makes or removes the obstacle. The removal returns how many packets the rule of a firewall has matched, and all else 0.
    fn set(self, setting: &Setting, port: u16, begins: bool) -> Result<u64, Error> {
        let (is_far, hook, rule) = match self {
            Self::Route(kind) => {
                let (verb, players) = (if begins { "add" } else { "delete" }, near_address(setting)?);
                return setting.call_far("ip", &format!("route {verb} {kind} {players}/32")).map(|_| 0);
            }
            Self::LinkDown => {
                let state = if begins { "down" } else { "up" };
                return setting.call_far("ip", &format!("link set {LINK} {state}")).map(|_| 0);
            }
            Self::Dropped => (true, "output", format!("udp sport {port} counter drop")),
            Self::RejectedAtServer => (true, "input", format!("udp dport {port} counter reject")),
            Self::RejectedAtPlayers => (false, "input", format!("udp sport {port} counter reject")),
        };
        let nft = |arguments: &str| {
            if is_far { setting.call_far("nft", arguments) } else { call("nft", arguments) }
        };
        if !begins {
            let matched = matched_packets(&nft("list table ip chaos")?);
            return nft("delete table ip chaos").and(matched);
        }
        let commands = [
            "add table ip chaos".to_owned(),
            format!("add chain ip chaos here {{ type filter hook {hook} priority 0 ; }}"),
            format!("add rule ip chaos here {rule}"),
        ];
        commands.iter().try_for_each(|command| nft(command).map(drop)).map(|()| 0)
    }
}

/// Returns the counter of the only rule in a table, as `nft list` prints it.
fn matched_packets(table: &str) -> Result<u64, Error> {
    let count = table.split_once("counter packets ").and_then(|(_, rest)| rest.split_whitespace().next());
    count.context("the counter of the firewall's rule")?.parse().context("the counter of the firewall's rule")
}

/// Returns the address of this end of the link.
fn near_address(setting: &Setting) -> Result<IpAddr, Error> {
    const DISCARD: u16 = 9;
    let socket = UdpSocket::bind(("0.0.0.0", 0)).context("a socket")?;
    // Connecting sends nothing. It selects the route and with it the source address.
    socket.connect((setting.other_address, DISCARD)).context("a route to the other namespace")?;
    socket.local_addr().map(|address| address.ip()).context("this end's address")
}

fn obstruct(
    setting: &Setting,
    (name, kind, counter): Obstacle,
    time: Duration,
    marks: &mut Marks,
) -> Result<(), Error> {
    let spec = ServerSpec { down: 1, ..setting.far_server(WORKERS)? };
    let mut bed = Testbed::start(spec, PLAYERS, Players::default())?;
    let refused_before = refused(&bed.players);
    let port = bed.spec.config.address.port();
    kind.set(setting, port, true)?;
    let cpu = bed.play_measured(time)?;
    let refused = refused(&bed.players) - refused_before;
    let matched = kind.set(setting, port, false)?;
    let report = bed.until_acknowledged()?;
    bed.players.settle()?;
    let players = &bed.players;
    marks.section(name);
    marks.at_most("processor time of the server, in thousandths", cpu, CPU_GOAL);
    if let Some(counter) = counter {
        let counted = report.sum(&format!("/sent/faults/{counter}"));
        marks.at_least(&format!("sends refused, counted as {counter}"), counted, 1);
    }
    if FIREWALLS.iter().any(|(_, firewall, _)| *firewall == kind) {
        marks.at_least("packets that the rule matched", matched, 1);
    }
    if kind == ObstacleKind::RejectedAtServer {
        marks.at_least("errors that the players received", refused, 1);
    }
    marks.equal("workers that ended or restarted", report.disruptions(WORKERS), 0);
    marks.equal("players gone", players.gone(), 0);
    let undelivered = report.of_players("sent").abs_diff(players.down_received());
    let harmed = players.reliable_missing() + undelivered + players.wrong();
    marks.equal("reliable messages lost, twice or out of order", harmed, 0);
    marks.books(&report);
    Ok(())
}

/// Returns how often the players' sockets returned "connection refused".
fn refused(players: &Players) -> u64 {
    players.sum(|player| {
        let stats = player.client.stats();
        [&stats.sent.faults, &stats.received.faults]
            .map(|faults| faults.count(Fault::ConnectionRefused))
            .iter()
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_of_a_rule_is_read() {
        let table = |rule: &str| {
            let hook = "type filter hook input priority filter; policy accept;";
            format!("table ip chaos {{\n\tchain here {{\n\t\t{hook}\n\t\t{rule}\n\t}}\n}}\n")
        };
        let matched = |rule| matched_packets(&table(rule)).ok();
        assert_eq!(matched("udp sport 7777 counter packets 12 bytes 348 reject"), Some(12));
        assert_eq!(matched("udp sport 7777 counter packets 0 bytes 0 drop"), Some(0));
        assert_eq!(matched("udp sport 7777 reject"), None);
    }
}
