//! C2: a net that loses a fifth of all packets, keeps them for 50 to 150 ms, doubles some and spoils some: what is reliable
//! comes once, and soon.

use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire::{ClientConfig, Reconnect};

use super::{PERIOD, Setting, WORKERS};
use crate::crowd::Crowd;
use crate::link::{Emulator, FAR_V4};
use crate::marks::{Marks, millis};
use crate::process::Plan;
use crate::stop::Stop;

const PLAYERS: usize = 20;
const MTU: u16 = 1_500;

/// Messages of the server for each player in 10 ms.
const DOWN: u64 = 1;

/// A reliable message of the server is there within this time, but for one in a hundred.
const GOAL: Duration = Duration::from_millis(1_500);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let time = Duration::from_secs(setting.size.of(8, 60, 600));
    let delay = Delay::Uniform { least: Duration::from_millis(50), most: Duration::from_millis(150) };
    let bad = LinkConfig::default()
        .loss(Loss::Even(0.2))
        .delay(delay)
        .duplicate(0.05, Duration::from_millis(100))
        .corrupt(0.01);
    let other = setting.other()?;
    let link = Emulator::start(other, &bad, MTU)?;
    let plan = Plan::new((FAR_V4, 0).into(), WORKERS)?.within(&other.name);
    let mut plan = plan.flag("--down", DOWN);
    let mut server = plan.start()?;
    // An attempt may come to nothing where so much is lost; a connection may not.
    let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(30)));
    let mut crowd = Crowd::connect(&plan, PLAYERS, PERIOD, &config)?;
    crowd.forget();
    crowd.go_on(time);
    server.tell("hush")?;
    let report = crowd.until_server("all is acknowledged", &mut server, |report| {
        report.of_players("said") == report.of_players("acknowledged")
    })?;
    crowd.settle()?;
    let counts = link.end()?;
    let heard = crowd.sum(|player| player.down.heard);
    marks.equal("players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
    marks.equal(
        "reliable messages lost on the way up and back",
        crowd.sum(|player| player.ordered.missing()),
        0,
    );
    marks.equal("reliable messages of the server that came", heard, report.of_players("said"));
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.within("p99 of the server's reliable messages, one way", crowd.one_way(99.0), GOAL);
    marks.at_least("packets lost by the link", counts.iter().map(|way| way.lost).sum(), 100);
    marks.at_least("packets spoiled by the link", counts.iter().map(|way| way.corrupted).sum(), 10);
    marks.at_least("packets doubled by the link", counts.iter().map(|way| way.duplicated).sum(), 10);
    marks.equal("datagrams in no counter", report.unexplained(), 0);
    marks.note(format_args!(
        "{heard} messages down, p50 {}, p90 {}, and {} up and back; spoiled ones that the server found: {}; link {counts:?}",
        millis(crowd.one_way(50.0)),
        millis(crowd.one_way(90.0)),
        crowd.sum(|player| player.ordered.heard),
        report.sum("/protocol/dropped/forged"),
    ));
    Ok(())
}
