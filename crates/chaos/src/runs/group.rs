//! C11: another process joins the port of the server: an alarm tells of it, and it gets nothing of connections that there are.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire_tools::clock::now;

use super::{PERIOD, Setting};
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

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
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
