//! What is printed: the rates around each change, and the dips.

use std::time::Duration;

use drumfire_benches::{BUSY, Goal, Results, Spread};
use drumfire_tools::table::{Align, TextTable};

use super::players::{MESSAGES_PER_SECOND, STEP, Tally};
use super::{Change, Outcome, STAGES};

/// Steps in a tenth of a second.
const TENTH: usize = 10;

/// Tenths that are printed before a change and after it.
const PRINTED: (usize, usize) = (5, 10);

/// Tenths in which a dip is looked for.
const TENTHS: usize = 10;

/// Messages per second in each tenth around one change.
struct Around {
    change: Change,
    before: Vec<f64>,
    after: Vec<f64>,
    /// The players left turns out.
    is_void: bool,
}

impl Around {
    fn new(change: Change, tally: &Tally) -> Self {
        let at = usize::try_from(change.at.as_nanos() / STEP.as_nanos()).unwrap_or(usize::MAX);
        let tenths = |from: usize| -> Vec<f64> {
            let steps = tally.arrivals.get(from..).unwrap_or_default();
            steps
                .chunks_exact(TENTH)
                .take(TENTHS)
                .map(|steps| f64::from(steps.iter().sum::<u32>()) * 10.0)
                .collect()
        };
        let from = at.saturating_sub(TENTHS * TENTH);
        let window = from..at.saturating_add(TENTHS * TENTH);
        let is_void = tally.late.iter().any(|step| window.contains(step));
        Self { change, before: tenths(from), after: tenths(at), is_void }
    }

    fn rate(&self) -> f64 {
        self.before.iter().sum::<f64>() / self.before.len().max(1) as f64
    }

    /// How far the lowest of these tenths lies below the rate before the change, in percent of it.
    fn dip(&self, tenths: &[f64]) -> f64 {
        let least = tenths.iter().copied().fold(f64::INFINITY, f64::min);
        (1.0 - least / self.rate()).max(0.0) * 100.0
    }

    fn line(&self) -> String {
        let list = |tenths: &[f64]| tenths.iter().map(|rate| format!("{rate:>6.0}")).collect::<String>();
        let from = self.before.len().saturating_sub(PRINTED.0);
        let after = &self.after[..PRINTED.1.min(self.after.len())];
        let Change { from: before, to, .. } = self.change;
        let void = if self.is_void { "  void" } else { "" };
        format!("  {before} -> {to}  {} |{}{void}", list(&self.before[from..]), list(after))
    }
}

pub(super) fn show(players: usize, outcome: &Outcome, results: &mut Results) {
    let Outcome { changes, tally, forwarded } = outcome;
    let around: Vec<Around> = changes.iter().map(|change| Around::new(*change, tally)).collect();
    println!("\nmessages heard per second, in tenths of a second, before a change | and after it");
    around.iter().for_each(|around| println!("{}", around.line()));
    let mut table = TextTable::new(&[
        ("threads", Align::Left),
        ("messages/s before", Align::Right),
        ("dip after, %: median", Align::Right),
        ("deepest", Align::Right),
        ("without a change: median", Align::Right),
        ("deepest", Align::Right),
        ("ms until all moved: median", Align::Right),
        ("most", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1_000.0;
    for (from, to) in STAGES.into_iter().zip(STAGES.into_iter().skip(1)) {
        let all = || around.iter().filter(|around| (around.change.from, around.change.to) == (from, to));
        let void = all().filter(|around| around.is_void).count();
        // Where the machine disturbed all of them, they are shown and do not count.
        let is_void = void == all().count();
        let all = || all().filter(|around| is_void || !around.is_void);
        let (Some(rate), Some(after), Some(before), Some(moved)) = (
            Spread::of(all().map(Around::rate)),
            Spread::of(all().map(|around| around.dip(&around.after))),
            Spread::of(all().map(|around| around.dip(&around.before))),
            Spread::of(all().map(|around| milliseconds(around.change.moved))),
        ) else {
            continue;
        };
        table.row([
            format!("{from} -> {to}"),
            format!("{:.0}", rate.median),
            format!("{:.1}", after.median),
            format!("{:.1}", after.most),
            format!("{:.1}", before.median),
            format!("{:.1}", before.most),
            format!("{:.2}", moved.median),
            format!("{:.2}", moved.most),
            format!("{void}{}", if is_void { " busy" } else { "" }),
        ]);
        let name = format!("{players} players, {from} -> {to} threads");
        let busy = if is_void { BUSY } else { "" };
        let besides = format!("{:.1} % in a second without a change", before.most);
        let note = if is_void { format!("{besides}; {busy}") } else { besides };
        results.figure(format!("{name}: deepest dip of 100 ms"), Some(after.most), "%", Goal::Shown, &note);
        results.figure(format!("{name}: until all moved"), Some(moved.median), "ms", Goal::Shown, busy);
    }
    println!("\n{}", table.render());
    println!(
        "  {players} players, {MESSAGES_PER_SECOND} messages per second each; {} sent, {} lost; {} connections ended; {forwarded} packets forwarded; {} turns left out",
        tally.sent,
        tally.lost,
        tally.ended,
        tally.late.len()
    );
    let name = format!("{players} players while threads come and go");
    results.figure(format!("{name}: connections ended"), Some(tally.ended as f64), "", Goal::AtMost(0.0), "");
    results.figure(format!("{name}: messages lost"), Some(tally.lost as f64), "", Goal::AtMost(0.0), "");
}
