//! C12, several connections behind one port: the kernel hands over their packets as one train, which went to the worker of the first
//! of them; each packet comes to its own connection all the same.

use std::time::Duration;

use drumfire::ClientConfig;

use super::{Setting, WORKERS};
use crate::crowd::Crowd;
use crate::ledger::MIXED_BYTES;
use crate::marks::Marks;
use crate::mux::Mux;
use crate::process::{Plan, Report, ServerProcess};
use crate::stop::Stop;

/// Each hears what is for the others too.
const PLAYERS: usize = 6;

/// Sixty times a second.
const PERIOD: Duration = Duration::from_micros(16_667);

/// Lessons until all workers see that trains come.
const LESSONS: u32 = 200;

/// Packets that must have been mixed, or nothing is proved.
const MIXED: u64 = 100;

/// What is still under way is there after this time.
const QUIET: Duration = Duration::from_millis(200);

pub(super) fn run(setting: &Setting, marks: &mut Marks) -> Result<(), Stop> {
    let time = Duration::from_secs(setting.size.of(2, 10, 60));
    let mut plan = Plan::new(setting.address, WORKERS)?;
    let mut server = plan.start()?;
    let mux = Mux::start(plan.address())?;
    let mut crowd = Crowd::begun(&plan, 0, PERIOD, &ClientConfig::default())?;
    for player in 0..PLAYERS {
        crowd.begin(&plan.token_at(player, mux.address)?, &ClientConfig::default())?;
    }
    crowd.set_sizes(MIXED_BYTES);
    crowd.until("all are answered", |player| player.ordered.heard > 0)?;
    let untaught = teach(&mux, &mut crowd, &mut server)?;
    crowd.settle()?;
    crowd.rest(QUIET);
    let (before, sent_before) = (server.report()?, mux.sent());
    let lost_before = crowd.sum(|player| player.lossy.missing());
    crowd.go_on(time);
    crowd.settle()?;
    crowd.rest(QUIET);
    let (after, sent) = (server.report()?, mux.sent() - sent_before);
    let more = |path: &str| after.sum(path) - before.sum(path);
    let lost = crowd.sum(|player| player.lossy.missing()).saturating_sub(lost_before);
    marks.equal("one port: workers that were handed no train", untaught, 0);
    marks.at_least("one port: packets behind one of another connection in their train", mux.mixed(), MIXED);
    marks.at_least("one port: packets forwarded to their own worker", more("/protocol/forwarded"), 1);
    let came = after.known_datagrams() - before.known_datagrams();
    // What is forwarded comes once from the kernel, and once from the other worker.
    marks.equal("one port: datagrams sent and not known to the server", sent.abs_diff(came), 0);
    marks.equal("one port: datagrams dropped by the kernel", more("/kernel_dropped"), 0);
    marks.equal("one port: packets that came to another connection", more("/protocol/dropped/forged"), 0);
    let reliable = crowd.sum(|player| player.ordered.missing());
    marks.equal("one port: messages lost", lost + reliable, 0);
    marks.equal("one port: messages twice, out of order or of others", crowd.wrong(), 0);
    let gone = crowd.count(|player| player.gone.is_some() || player.again > 0);
    marks.equal("one port: players gone", gone, 0);
    marks.equal("one port: datagrams in no counter", after.unexplained(), 0);
    marks.note(format_args!(
        "one port: {sent} datagrams in {} messages of the kernel, {} forwarded",
        more("/received/messages"),
        more("/protocol/forwarded"),
    ));
    Ok(())
}

/// Lets trains come until every worker is handed them whole; answers how many are not.
fn teach(mux: &Mux, crowd: &mut Crowd, server: &mut ServerProcess) -> Result<u64, Stop> {
    let mut untaught = u64::MAX;
    for _ in 0..LESSONS {
        mux.teach();
        crowd.until_any("a lesson is over", |_| mux.lessons() == 0)?;
        untaught = without_trains(&server.report()?);
        if untaught == 0 {
            break;
        }
    }
    Ok(untaught)
}

/// Workers that never got two datagrams in one message of the kernel.
pub(super) fn without_trains(report: &Report) -> u64 {
    let (datagrams, messages) =
        (report.by_worker("/received/datagrams"), report.by_worker("/received/messages"));
    datagrams.iter().zip(&messages).map(|(datagrams, messages)| u64::from(datagrams <= messages)).sum()
}
