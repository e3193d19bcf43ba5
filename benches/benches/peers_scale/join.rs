//! Every join causes a broadcast: batches of newcomers, each of whom is announced to all who are there, and nobody is dropped.

use std::time::Duration;

use drumfire_benches::roles::Announcements;
use drumfire_benches::{Crowd, Extent, Goal, Results, Spread, UsageWatch, count};
use drumfire_tools::clock;

use crate::Plan;
use crate::books::{self, Closed};
use crate::ends::PER_SOCKET;
use crate::server::{Does, key};

/// How many come at once.
const BATCH: u32 = 500;

/// Begun without a pause.
const AT_ONCE: u64 = 1_000_000;

/// When nothing more is heard for so long, nothing more will be.
const SILENCE: Duration = Duration::from_secs(5);

pub(crate) fn measure(plan: &Plan, results: &mut Results) -> Result<(), String> {
    let Plan { extent, cores, .. } = *plan;
    let (clients, batch): (u32, u32) = match extent {
        Extent::Quick => (400, 200),
        Extent::Default => (2_000, BATCH),
        Extent::Full => (8_000, BATCH),
    };
    let (server, address) = Does::Announce.start(clients, Some(cores.server))?;
    let sockets = clients.div_ceil(u32::try_from(PER_SOCKET).unwrap_or(1));
    let mut crowd = Crowd::bind(sockets, clients + sockets)?;
    let (mut ears, watch, mut connected, mut failed) =
        (Announcements::default(), UsageWatch::begin(server.id()), 0, 0);
    let (mut joined, mut heard) = (Vec::new(), Vec::new());
    for _ in 0..clients / batch {
        let start = clock::now();
        let to = (address, key().public());
        let ramped =
            crowd.connect(to, batch.into(), AT_ONCE, |socket, event| ears.on_event(socket, event))?;
        joined.push(ramped.took.as_secs_f64() * 1e3);
        connected += ramped.connected;
        failed += ramped.failed_count();
        let (mut last, mut since) = (ears.heard, clock::now());
        while ears.heard < Announcements::expected(connected) && clock::now().duration_since(since) < SILENCE
        {
            crowd.look(|socket, event| ears.on_event(socket, event));
            if ears.heard > last {
                (last, since) = (ears.heard, clock::now());
            }
        }
        heard.push(clock::now().duration_since(start).as_secs_f64() * 1e3);
    }
    let used = watch.used().ok_or("the server's clock cannot be read")?;
    let ended = crowd.ended();
    let Closed { served, .. } = books::close(server, &mut [&mut crowd])?;

    let [owed, missed, not_announced] = ["owed", "missed", "not announced"].map(|name| count(&served, name));
    let lost = owed.saturating_sub(missed).saturating_sub(ears.heard);
    println!(
        "  {clients} clients in batches of {batch}: {owed} ears, {} heard, {missed} missed, {lost} lost; {not_announced} not announced",
        ears.heard
    );
    let left = ended + count(&served, "left");
    let name = |what: &str| format!("join: {clients} clients, each announced: {what}");
    let mut figure = |what: &str, value: Option<f64>, unit, goal| {
        results.figure(name(what), value, unit, goal, "");
    };
    let none = Goal::AtMost(0.0);
    figure("connects that failed", Some(failed as f64), "", none);
    figure("clients that were dropped", Some(left as f64), "", none);
    figure("announcements lost", Some((lost + missed) as f64), "", none);
    figure("newcomers not announced", Some(not_announced as f64), "", none);
    figure("server", Some(used.core_share() * 100.0), "% of a core", Goal::Shown);
    let each = used.cpu_s() * 1e9 / ears.heard.max(1) as f64;
    figure("CPU per announcement heard", Some(each), "ns", Goal::Shown);
    let until = [("until a batch was connected", joined), ("until all had heard of all of it", heard)];
    for (what, times) in until {
        results.spread(name(what), Spread::of(times), "ms", Goal::Shown, "");
    }
    if (left, lost, ears.strangers, failed) != (0, 0, 0, 0) || ears.gaps > missed {
        return Err(format!(
            "{left} clients left, {failed} connects failed, {lost} announcements are nowhere, {} came that were not next, {} \
             left some out",
            ears.strangers, ears.gaps
        ));
    }
    Ok(())
}
