//! Batches of newcomers, each of which is announced to all clients. No client may be dropped, and no announcement lost.

use std::time::Duration;

use drumfire_benches::roles::{ANNOUNCE, Announcements, key};
use drumfire_benches::{
    Bench, Child, DropWatch, Goal, Spread, UsageWatch, close_books, close_way_back, count, counts_text,
    missing, settle, usage_of,
};
use drumfire_tools::clock;

use crate::world::{BATCH, bind};

/// Attempts per second: all of a batch begin at the same time.
const AT_ONCE: u64 = 1_000_000;

/// The last announcement has come when none came for this long.
const SILENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (clients, batch): (u32, u32) = bench.extent().pick((400, 200), (2_000, BATCH), (8_000, BATCH));
    let (cores, dropped) = (bench.pin_load()?, DropWatch::begin());
    let server = Child::role(ANNOUNCE, Some(cores.server), &["1", &clients.to_string()])?;
    let to = (server.address()?, key().public());
    let (mut crowd, mut announcements) = (bind(clients)?, Announcements::default());
    let (watch, mut connected, mut failed) = (UsageWatch::begin(server.id()), 0, 0);
    let (mut joined, mut heard) = (Vec::new(), Vec::new());
    for _ in 0..clients / batch {
        let start = clock::now();
        let on_event = |socket, event: &_| announcements.on_event(socket, event);
        let ramped = crowd.connect(to, batch.into(), AT_ONCE, on_event)?;
        joined.push(ramped.took.as_secs_f64() * 1e3);
        connected += ramped.connected;
        failed += ramped.failed_count();
        let (mut last, mut since) = (announcements.heard, clock::now());
        let expected = Announcements::expected(connected);
        while announcements.heard < expected && clock::now().duration_since(since) < SILENCE {
            crowd.look(|socket, event| announcements.on_event(socket, event));
            if announcements.heard > last {
                (last, since) = (announcements.heard, clock::now());
            }
        }
        heard.push(clock::now().duration_since(start).as_secs_f64() * 1e3);
    }
    let [used] = usage_of([watch])?;
    settle();
    let (sent, ended) = (crowd.carried().sent, crowd.ended());
    let served = server.finish_counts()?;
    println!("  books     {}", close_books(sent, &served, dropped.count())?);
    println!("  server    {}", counts_text(&served));
    settle();
    let drops = dropped.count().saturating_sub(missing(sent, &served));
    println!("  books     {}", close_way_back(&served, crowd.drain(), connected, drops)?);

    let [owed, missed, not_announced] = ["owed", "missed", "not announced"].map(|name| count(&served, name));
    let Announcements { heard: all_heard, gaps, strangers, .. } = announcements;
    let lost = owed.saturating_sub(missed).saturating_sub(all_heard);
    let left = ended + count(&served, "left");
    let name = |what| format!("join: {clients} clients, each announced: {what}");
    let results = &mut bench.results;
    for (what, value) in [
        ("connects that failed", failed),
        ("clients that were dropped", left),
        ("announcements lost", lost + missed),
        ("newcomers not announced", not_announced),
    ] {
        results.figure(name(what), Some(value as f64), "", Goal::AtMost(0.0), "");
    }
    results.figure(name("server"), Some(used.core_share() * 100.0), "% of a core", Goal::Shown, "");
    let each = used.cpu_s() * 1e9 / all_heard.max(1) as f64;
    results.figure(name("CPU per announcement heard"), Some(each), "ns", Goal::Shown, "");
    results.spread(name("until a batch was connected"), Spread::of(joined), "ms", Goal::Shown, "");
    results.spread(name("until all had heard of all of it"), Spread::of(heard), "ms", Goal::Shown, "");
    if (left, lost, strangers, failed) != (0, 0, 0, 0) || gaps > missed {
        return Err(format!(
            "{left} clients left, {failed} connects failed, {lost} announcements lost, {strangers} came out of order, {gaps} did \
             not follow the one before"
        ));
    }
    Ok(())
}
