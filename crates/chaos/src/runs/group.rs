//! C11: another process joins the port of the server: an alarm tells of it, and it gets nothing of connections that there are.
//! Then the descriptor of a worker's socket is lost: the worker goes on with another one, and nobody notices. Then tags: where
//! the kernel's program leads them.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire_tools::clock::now;

use super::errno::{self, BAD_DESCRIPTOR, RECEIVE, SEND};
use super::{PERIOD, Setting, tags};
use crate::crowd::Crowd;
use crate::flood::{self, Class, Dose};
use crate::foreign::Foreign;
use crate::marks::Marks;
use crate::process::{Plan, Report, ServerProcess};
use crate::stop::Stop;
use crate::tap::Samples;

const PLAYERS: usize = 20;
const WORKERS: u16 = 2;

/// The alarm comes within this time.
const GOAL: Duration = Duration::from_secs(10);

/// Datagrams of strangers that prove that the other process is on the port.
const STRANGERS: u64 = 10_000;

/// Players that come after a socket was lost.
const NEWCOMERS: usize = 8;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    share_the_port(setting, marks)?;
    lose_descriptors(setting, RECEIVE, marks)?;
    lose_descriptors(setting, SEND, marks)?;
    tags::run(setting, marks)
}

/// The system says to one worker that all sockets that are open now are none, in these calls.
fn lose_descriptors(setting: &Setting, calls: &str, marks: &mut Marks) -> Result<(), Stop> {
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    let worker = errno::refuse(&mut server, &mut crowd, BAD_DESCRIPTOR, "open", calls)?;
    // They go on: this is about them.
    let of_it: usize =
        crowd.players.iter_mut().map(|player| usize::from(std::mem::take(&mut player.is_asleep))).sum();
    crowd.go_on(setting.size.of(Duration::from_secs(2), GOAL, 6 * GOAL));
    for player in PLAYERS..PLAYERS + NEWCOMERS {
        crowd.begin(&plan.token(player)?, &ClientConfig::default())?;
    }
    crowd.until("newcomers are answered", |player| player.gone.is_some() || player.ordered.heard > 0)?;
    crowd.settle()?;
    let report = server.report()?;
    let name = if calls == SEND { "a socket lost in a send" } else { "a socket lost in a receive" };
    let reopened = report.by_worker("/sockets_reopened");
    let here = usize::try_from(worker).ok().and_then(|worker| reopened.get(worker)).copied();
    marks.equal(&format!("{name}: times its worker went on"), here.unwrap_or(0), 1);
    marks.equal(&format!("{name}: times that any did"), reopened.iter().sum(), 1);
    marks.equal(&format!("{name}: workers that ended or began anew"), report.ends(WORKERS), 0);
    let gone = crowd.count(|player| player.gone.is_some() || player.again > 0);
    marks.equal(&format!("{name}: players gone"), gone, 0);
    let lost = crowd.sum(|player| player.ordered.missing());
    marks.equal(&format!("{name}: reliable messages lost, twice or out of order"), lost + crowd.wrong(), 0);
    marks.equal(&format!("{name}: datagrams in no counter"), report.unexplained(), 0);
    marks.note(format_args!(
        "{name}: worker {worker} had {of_it} of {PLAYERS} players, {NEWCOMERS} came to both after it"
    ));
    Ok(())
}

fn share_the_port(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &ClientConfig::default())?;
    until_others(&mut crowd, &mut server, 0)?;

    let came_at = now();
    let mut foreign = Foreign::start(plan.address())?;
    until_others(&mut crowd, &mut server, 1)?;
    let alarm = now().duration_since(came_at);
    crowd.go_on(setting.size.of(Duration::from_secs(2), GOAL, 6 * GOAL));
    crowd.settle()?;
    let of_players = foreign.count()?;

    let dose = Dose { class: Class::Junk, rate: None, time: GOAL, count: STRANGERS };
    let flood = flood::start(dose, plan.address(), Samples::default())?;
    let of_strangers = flood::join(flood)?;
    let taken = foreign.count()? - of_players;
    drop(foreign);
    let report = until_others(&mut crowd, &mut server, 0)?;
    marks.within("the alarm", alarm, GOAL);
    marks.equal("datagrams of players that the other process got", of_players, 0);
    marks.at_least("datagrams of strangers that it got, so that it was there", taken, 1);
    marks.equal("players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
    marks.equal("reliable messages lost", crowd.sum(|player| player.ordered.missing()), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.equal("datagrams in no counter", report.unexplained(), 0);
    marks.note(format_args!("it got {taken} of {of_strangers} datagrams of strangers"));
    Ok(())
}

/// Plays on until the server knows of so many sockets of others.
fn until_others(crowd: &mut Crowd, server: &mut ServerProcess, others: u64) -> Result<Report, Stop> {
    let what = format!("{others} sockets of others");
    crowd.until_server(&what, server, |report| report.0["stats"]["foreign_sockets"] == others)
}
