//! Everybody who comes is announced to all who are there: the busiest moment of a game that does so is when all come at once.

use std::time::Duration;

use drumfire_benches::{
    DropWatch, Ears, Extent, Goal, Results, Watch, announcements, close_books, count, counts_text,
};
use drumfire_tools::clock;

use crate::server::{Does, key};

/// Connections begun in a second: each costs an announcement to all.
const RAMP_PER_SECOND: u64 = 100;

/// When nothing more is heard for so long, nothing more will be.
const SILENCE: Duration = Duration::from_secs(5);

/// What is on its way when the last announcement was heard.
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) fn measure(
    extent: Extent,
    clients: u32,
    (workers, core): (u32, Option<usize>),
    results: &mut Results,
) -> Result<(), String> {
    let per_second = if extent == Extent::Quick { 2 * RAMP_PER_SECOND } else { RAMP_PER_SECOND };
    let dropped = DropWatch::begin();
    let server = Does::Announce.start(workers, clients, core)?;
    let address = server.address()?;
    let mut crowd = crate::crowd(clients)?;
    let (mut ears, watch) = (Ears::default(), [server.id(), std::process::id()].map(Watch::begin));
    let to = (address, key().public());
    let ramped = crowd.connect(to, clients.into(), per_second, |socket, event| ears.hear(socket, event))?;
    crate::show_ramp(&ramped, results, "join");
    let goal = announcements(ramped.connected);
    let (mut heard, mut since) = (ears.heard, clock::now());
    while ears.heard < goal && clock::now().duration_since(since) < SILENCE {
        crowd.look(|socket, event| ears.hear(socket, event));
        if ears.heard > heard {
            (heard, since) = (ears.heard, clock::now());
        }
    }
    let [Some(used), Some(here)] = watch.map(|watch| watch.used()) else {
        return Err("the processes' clocks cannot be read".to_owned());
    };
    // They go on, or the server would repeat what nobody acknowledges.
    let until = clock::now() + SETTLE;
    while clock::now() < until {
        crowd.look(|socket, event| ears.hear(socket, event));
    }
    let (sent, ended) = (crowd.carried().sent, crowd.ended());
    let drops = dropped.count();
    let served = crate::end(server, &mut [&mut crowd], sent, drops)?;

    let [owed, missed, not_announced] = ["owed", "missed", "not announced"].map(|name| count(&served, name));
    let lost = owed.saturating_sub(missed).saturating_sub(ears.heard);
    println!(
        "announced {} times to {owed} ears: heard {}, missed for want of room {missed}, not announced {not_announced}, lost \
         {lost}",
        count(&served, "announced"),
        ears.heard
    );
    println!("books     {}", close_books(sent, &served, drops)?);
    println!("server    {}", counts_text(&served));
    let left = ended + count(&served, "left");
    results.figure("join: clients that were dropped", Some(left as f64), "", Goal::AtMost(0.0), "");
    results.figure("join: announcements lost", Some(lost as f64), "", Goal::AtMost(0.0), "");
    results.figure(
        "join: announcements missed",
        Some(missed as f64),
        "",
        Goal::AtMost(0.0),
        "for want of room",
    );
    results.figure("join: announcements heard", Some(ears.heard as f64), "", Goal::Shown, "");
    results.figure(
        "join: server",
        Some(used.core_share() * 100.0),
        "% of a core",
        Goal::Shown,
        "while all came",
    );
    crate::show_own_cpu(&[here], results, "join");
    let each = used.cpu_s() * 1e9 / ears.heard.max(1) as f64;
    results.figure("join: CPU per announcement heard", Some(each), "ns", Goal::Shown, "");
    if (left, lost, ears.strangers) != (0, 0, 0) || ears.gaps > missed {
        return Err(format!(
            "{left} clients left, {lost} announcements are nowhere, {} came that were not next, {} left some out",
            ears.strangers, ears.gaps
        ));
    }
    crate::all_connected(&ramped)
}
