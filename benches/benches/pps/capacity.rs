//! Capacity: where the loss goes above it, and that there is none below it.
//!
//! Capacity is what one thread receives of more than it can take. A sender that cannot send more than that shows nothing,
//! and is said to be the limit: then nothing is judged.

use drumfire_benches::{Arm, BUSY, Goal, Measured, Recipe, Results, cell, interleave};
use drumfire_tools::choices::{SendMode, Stage};
use drumfire_tools::report::{KERNEL_RECEIVE_QUEUE, Report};
use drumfire_tools::table::{Align, TextTable, thousands};

use super::{Bench, report, sender_cell};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

/// Shares of capacity that are offered: above all of it, and below nine tenths of it.
const ABOVE: f64 = 1.1;
const BELOW: f64 = 0.85;

/// Packets above capacity that are neither received nor in a named drop.
const UNEXPLAINED_GOAL: Goal = Goal::AtMost(0.0);

/// Loss below capacity, in percent.
const LOSS_GOAL: Goal = Goal::AtMost(0.01);

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let arm = |name: &str, rate: u64| {
        let mut plan = bench.plan();
        plan.stage = Stage::Parse;
        let recipe = Recipe { plan, traffic: bench.traffic(FLOWS, SIZE, rate, SendMode::Gso) };
        Arm::new(name, move || report(&recipe))
    };
    let full = interleave(vec![arm("more than it takes", 0)], bench.warm_up, bench.rounds, bench.may_void())?;
    println!("  {FLOWS} flows, {SIZE} B in trains that the receiver's kernel cuts, one thread, parse stage");
    let capacity = full.first().filter(|full| full.limited_by().is_none()).and_then(Measured::pps);
    let Some(capacity) = capacity.map(|capacity| capacity.median) else {
        println!("{}", table(&full.iter().collect::<Vec<_>>()));
        println!("  the sender sends no more than one thread takes: sender-limited, nothing is shown");
        results.rounds("capacity", &full)?;
        let note = "sender-limited: it sends no more than one thread takes, and so nobody knows its capacity";
        results.figure(ABOVE_NAME, None, "packets", UNEXPLAINED_GOAL, note);
        results.figure(BELOW_NAME, None, "%", LOSS_GOAL, note);
        return Ok(());
    };
    let arms = vec![
        arm("110 % of capacity", share_of(capacity, ABOVE)),
        arm("85 % of capacity", share_of(capacity, BELOW)),
    ];
    let shared = interleave(arms, bench.warm_up, bench.rounds, bench.may_void())?;
    let all: Vec<&Measured> = full.iter().chain(&shared).collect();
    println!("{}", table(&all));
    results.rounds("capacity", all)?;
    let [over, under] = shared.as_slice() else { return Err("two arms were measured".to_owned()) };
    figures(over, under, results);
    Ok(())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is positive, and far from what does not fit"
)]
fn share_of(capacity: f64, share: f64) -> u64 {
    (capacity * share).round() as u64
}

fn dropped(report: &Report) -> u64 {
    report.books.drops.get(KERNEL_RECEIVE_QUEUE).copied().unwrap_or(0)
}

/// What was sent and did not come, in percent.
fn loss(report: &Report) -> Option<f64> {
    let lost = report.books.sent.saturating_sub(report.books.received);
    (report.books.sent > 0).then(|| lost as f64 * 100.0 / report.books.sent as f64)
}

fn table(arms: &[&Measured]) -> String {
    let mut table = TextTable::new(&[
        ("offered", Align::Left),
        ("sent", Align::Right),
        ("received", Align::Right),
        ("dropped by the kernel", Align::Right),
        ("unexplained", Align::Right),
        ("loss %", Align::Right),
        ("waited for a core %", Align::Right),
        ("sender % of a core", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    for arm in arms {
        let sum = |of: fn(&Report) -> u64| thousands(arm.rounds.iter().map(of).sum());
        table.row([
            arm.name.clone(),
            sum(|report| report.books.sent),
            sum(|report| report.books.received),
            sum(dropped),
            sum(|report| report.books.unexplained().unsigned_abs()),
            cell(arm.spread(loss), 4),
            cell(arm.spread(|report| report.run_delay_share.map(|share| share * 100.0)), 2),
            sender_cell(arm),
            arm.void_cell(),
        ]);
    }
    table.render()
}

const ABOVE_NAME: &str = "capacity: unexplained at 110 % of it";
const BELOW_NAME: &str = "capacity: loss at 85 % of it";

fn figures(over: &Measured, under: &Measured, results: &mut Results) {
    let sent: u64 = over.rounds.iter().map(|round| round.books.sent).sum();
    let drops: u64 = over.rounds.iter().map(dropped).sum();
    let unexplained: u64 = over.rounds.iter().map(|round| round.books.unexplained().unsigned_abs()).sum();
    let (value, note) = match drops {
        0 => (None, "nothing was dropped: nothing was shown".to_owned()),
        drops => (
            Some(unexplained as f64),
            format!("of {} sent, {} dropped by the kernel", thousands(sent), thousands(drops)),
        ),
    };
    results.figure(ABOVE_NAME, value, "packets", UNEXPLAINED_GOAL, &note);
    let busy = if under.is_busy { BUSY } else { "" };
    results.spread(BELOW_NAME, under.spread(loss), "%", LOSS_GOAL, busy);
}
