//! C1: players play for long over a net that loses a fiftieth: nothing goes wrong, and the server needs no more in the end than
//! in the beginning.

use std::time::Duration;

use drumfire::ClientConfig;
use drumfire::conditioner::{Delay, LinkConfig, Loss};
use drumfire_tools::clock::now;

use super::{CROWD, Setting, WORKERS};
use crate::crowd::Crowd;
use crate::ledger::MIXED_BYTES;
use crate::link::{Emulator, FAR_V4};
use crate::marks::Marks;
use crate::process::Plan;
use crate::stop::Stop;

/// Sixty times a second.
const PERIOD: Duration = Duration::from_micros(16_667);
const MTU: u16 = 1_500;

/// Memory is looked at after this time: pools grow to their size before.
const WARM_UP: Duration = Duration::from_secs(300);

/// The server may grow by so much in a minute.
const SLOPE_GOAL_BYTES: u64 = 1_024;

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let players = setting.size.of(50, CROWD, CROWD);
    let time = Duration::from_secs(setting.size.of(10, 180, 7_200));
    let link = LinkConfig::default().loss(Loss::Even(0.02)).delay(Delay::Constant(Duration::from_millis(30)));
    let other = setting.other()?;
    let link = Emulator::start(other, &link, MTU)?;
    let mut plan = Plan::new((FAR_V4, 0).into(), WORKERS)?.within(&other.name);
    let mut server = plan.start()?;
    let mut crowd = Crowd::begun(&plan, players, PERIOD, &ClientConfig::default())?;
    crowd.set_sizes(MIXED_BYTES);
    let warm_up = WARM_UP.min(time / 2);
    crowd.go_on(warm_up);
    let (before, start) = (server.holds()?, now());
    crowd.go_on(time - warm_up);
    let (after, passed) = (server.holds()?, now().duration_since(start));
    crowd.settle()?;
    let report = server.report()?;
    let counts = link.end()?;
    marks.equal("players gone", crowd.count(|player| player.gone.is_some() || player.again > 0), 0);
    marks.equal("reliable messages lost", crowd.sum(|player| player.ordered.missing()), 0);
    marks.equal("messages twice or out of order", crowd.wrong(), 0);
    marks.equal("panics", report.sum("/panics") + report.sum("/restarts"), 0);
    marks.equal("open files of the server more than before", after.files.abs_diff(before.files), 0);
    marks.equal("datagrams in no counter", report.unexplained(), 0);
    let grown = after.bytes.saturating_sub(before.bytes);
    let slope = grown * 60 / passed.as_secs().max(1);
    if warm_up == WARM_UP {
        marks.at_most("bytes of the server more in a minute", slope, SLOPE_GOAL_BYTES);
    } else {
        marks
            .note(format_args!("too short to judge memory: {} bytes, {slope} more in a minute", after.bytes));
    }
    marks.note(format_args!(
        "{players} players for {} s, {} datagrams received, p99 {:?}; link {counts:?}",
        time.as_secs(),
        report.sum("/received/datagrams"),
        crowd.round_trip(99.0),
    ));
    Ok(())
}
