//! C10: the system answers the calls of one worker with an error, each error in its turn: no worker ends that should not, each error
//! is counted by its name, no processor spins, and the players of the other workers notice nothing. Then the same of all workers, by routes and
//! firewalls.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire_tools::clock::now;

use super::{PERIOD, Setting, refused};
use crate::crowd::{Crowd, Player};
use crate::marks::Marks;
use crate::process::{Plan, Report, ServerProcess};
use crate::stop::{Stop, Tried};

const PLAYERS: usize = 20;
const WORKERS: u16 = 2;

/// The calls by which a worker sends, and those by which it receives.
pub(super) const SEND: &str = "sendmsg sendmmsg sendto";
pub(super) const RECEIVE: &str = "recvmsg recvmmsg recvfrom";

/// Errors of the table in the threats: their numbers on Linux, see errno(3), and the names of their counters.
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

/// Errors of sends that say that the peer cannot be reached by this socket, ever: they end the connection.
const ENDING: [&str; 2] = ["address_family_unsupported", "address_not_available"];

/// What says that a socket is gone.
pub(super) const BAD_DESCRIPTOR: i32 = 9;
const GONE: [(i32, &str); 2] = [(BAD_DESCRIPTOR, "bad_descriptor"), (88, "not_socket")];

/// Errors of sends after which datagrams wait for the next one, and how many wait at most.
const WAITING: [&str; 3] = ["would_block", "out_of_memory", "no_buffers"];
const BATCH: u64 = 128;

/// Of one processor, in thousands, while calls are refused.
pub(super) const PROCESSOR_GOAL: u64 = 250;

/// Players that come when one worker has ended.
const NEWCOMERS: usize = 8;

/// One error that one worker meets.
#[derive(Clone, Copy)]
struct Case {
    errno: i32,
    counter: &'static str,
    calls: &'static str,
    /// Where the error is counted.
    place: &'static str,
}

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let time = Duration::from_secs(setting.size.of(1, 3, 5));
    let of = |(errno, counter), calls, place| Case { errno, counter, calls, place };
    let sends = SEND_ERRORS.map(|error| of(error, SEND, "sent"));
    let receives = RECEIVE_ERRORS.map(|error| of(error, RECEIVE, "received"));
    for case in sends.iter().chain(&receives) {
        meet(setting, *case, time, marks)?;
    }
    for (errno, counter) in GONE {
        lose_a_socket(setting, errno, counter, marks)?;
    }
    refused::run(setting, marks)
}

/// A worker's socket is gone, as far as the worker can see, and whatever other descriptor of it there is: the worker ends, and
/// nobody else notices.
fn lose_a_socket(setting: &Setting, errno: i32, counter: &str, marks: &mut Marks) -> Result<(), Stop> {
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    let worker = refuse(&mut server, &mut crowd, errno, "all", RECEIVE)?;
    crowd.settle()?;
    let lost = crowd.players.iter().filter(|player| player.is_asleep).count();
    crowd.players.retain(|player| !player.is_asleep);
    for player in PLAYERS..PLAYERS + NEWCOMERS {
        crowd.begin(&plan.token(player)?, &ClientConfig::default())?;
    }
    crowd
        .until("newcomers are answered or not", |player| player.gone.is_some() || player.ordered.heard > 0)?;
    crowd.settle()?;
    let report = server.report()?;
    let old = crowd.players.len() - NEWCOMERS;
    let is_well =
        |player: &Player| player.gone.is_none() && player.again == 0 && player.ordered.missing() == 0;
    let (old, new) = crowd.players.split_at(old);
    let count = |players: &[Player]| players.iter().filter(|player| is_well(player)).count() as u64;
    let name = format!("a lost socket, by {counter}");
    // The first time it goes on with another descriptor.
    let counted = report.of_worker(worker, &format!("/received/faults/{counter}"));
    marks.equal(&format!("{name}: counted by its name"), counted, 2);
    let reopened = report.of_worker(worker, "/sockets_reopened");
    marks.equal(&format!("{name}: other descriptors of it that were tried"), reopened, 1);
    marks.equal(&format!("{name}: workers that ended"), report.ends(WORKERS), 1);
    marks.equal(&format!("{name}: other workers' players that play on"), count(old), old.len() as u64);
    marks.note(format_args!(
        "{name}: worker {worker} ended with {lost} players; {} of {NEWCOMERS} newcomers were answered after it",
        count(new)
    ));
    Ok(())
}

/// Lets the system refuse calls to the worker of the first player; that worker's players are left alone. Answers which it is.
pub(super) fn refuse(
    server: &mut ServerProcess,
    crowd: &mut Crowd,
    errno: i32,
    sockets: &str,
    calls: &str,
) -> Result<u64, Stop> {
    let before = server.report()?;
    let worker = before.worker_of(0).tried("the worker of the first player")?;
    crowd.players[0].ask_for_errors(errno, sockets, calls)?;
    let met = crowd.until_server("the filter", server, |report| !report.0["refusal"].is_null())?;
    if let Some(why) = met.0["refusal"]["Err"].as_str() {
        return Err(Stop::Needs(format!("seccomp filters: {why}")));
    }
    for (at, player) in crowd.players.iter_mut().enumerate() {
        player.is_asleep = before.worker_of(at) == Some(worker);
    }
    Ok(worker)
}

fn meet(setting: &Setting, case: Case, time: Duration, marks: &mut Marks) -> Result<(), Stop> {
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    let worker = refuse(&mut server, &mut crowd, case.errno, "all", case.calls)?;
    // They go on all the same: a worker that meets errors has work to do.
    let of_worker: Vec<bool> =
        crowd.players.iter_mut().map(|player| std::mem::take(&mut player.is_asleep)).collect();
    let faults = format!("/{}/faults/{}", case.place, case.counter);
    let known = server.report()?.of_worker(worker, &faults);
    // Who has seen one more since the filter was there meets nothing else.
    let before = crowd
        .until_server("the first error", &mut server, |report| report.of_worker(worker, &faults) > known)?;
    let (used, start) = (server.processor_time()?, now());
    crowd.go_on(time);
    let (used, passed) = (server.processor_time()? - used, now().duration_since(start));
    // Those of the worker without a system wait in vain.
    for (player, is_asleep) in crowd.players.iter_mut().zip(of_worker) {
        player.is_asleep = is_asleep;
    }
    crowd.settle()?;
    let report = server.report()?;
    let name = format!("{} {}", case.place, case.counter);
    books(&name, case, worker, [&before, &report], marks);
    marks.equal(&format!("{name}: workers that ended or began anew"), report.ends(WORKERS), 0);
    let others = |player: &Player| !player.is_asleep;
    let gone = crowd.count(|player| others(player) && (player.gone.is_some() || player.again > 0));
    let missing = crowd.sum(|player| if others(player) { player.ordered.missing() } else { 0 });
    marks.equal(
        &format!("{name}: other workers' players gone, messages lost or wrong"),
        gone + missing + crowd.wrong(),
        0,
    );
    marks.at_least(&format!("{name}: players of other workers"), crowd.count(others), 1);
    let closed = report.of_worker(worker, "/protocol/connections_closed");
    let goal = if ENDING.contains(&case.counter) { PLAYERS as u64 - crowd.count(others) } else { 0 };
    marks.equal(&format!("{name}: connections of the worker closed"), closed, goal);
    let thousandths = u64::try_from(used.as_millis() * 1_000 / passed.as_millis().max(1)).unwrap_or(u64::MAX);
    let processor = format!("{name}: processor time of the server, in thousandths");
    marks.at_most(&processor, thousandths, PROCESSOR_GOAL);
    Ok(())
}

/// Every call between these two looks was refused: it is counted by its name and no other, and so is each datagram that it cost.
/// How many calls there were is the worker's own word, from before it makes them: a filter counts nothing.
fn books(name: &str, case: Case, worker: u64, [before, after]: [&Report; 2], marks: &mut Marks) {
    let Case { place, counter, .. } = case;
    let more = |path: &str| after.of_worker(worker, path) - before.of_worker(worker, path);
    let faults = format!("/{place}/faults/{counter}");
    let (calls, counted) = (more(&format!("/{place}/calls")), more(&faults));
    marks.at_least(&format!("{name}: counted by its name"), after.of_worker(worker, &faults), 1);
    marks.equal(&format!("{name}: calls meanwhile that are not counted by it"), calls.abs_diff(counted), 0);
    let through = more(&format!("/{place}/datagrams"));
    marks.equal(&format!("{name}: datagrams counted as through all the same"), through, 0);
    let mut lost = 0;
    if case.calls == SEND {
        lost = more(&format!("/sent/lost/{counter}"));
        let written = more("/protocol/datagrams_sent");
        let goal = if WAITING.contains(&counter) { BATCH } else { 0 };
        let unaccounted = format!("{name}: datagrams written and not counted as lost by it");
        marks.at_most(&unaccounted, written.abs_diff(lost), goal);
    }
    marks.note(format_args!("{name}: {calls} calls meanwhile, {lost} datagrams lost by them"));
}
