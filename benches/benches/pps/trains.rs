//! Trains: single datagrams, trains cut by the kernel, and trains taken whole, as fast as they go.

use drumfire_benches::{Arm, Goal, Measured, Recipe, Results, cell, interleave};
use drumfire_tools::choices::{Gro, SendMode};
use drumfire_tools::table::{Align, TextTable};

use super::{Bench, rates_note, report, sender_cell};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

pub(super) fn measure(bench: &Bench, results: &mut Results) -> Result<(), String> {
    let arm = |name: &str, send: SendMode, gro: Gro| {
        let mut plan = bench.plan();
        plan.gro = gro;
        let recipe = Recipe { plan, traffic: bench.traffic(FLOWS, SIZE, 0, send) };
        Arm::new(name, move || report(&recipe))
    };
    let arms = vec![
        arm("single", SendMode::Single, Gro::Off),
        arm("GSO, GRO off", SendMode::Gso, Gro::Off),
        arm("GSO, GRO on", SendMode::Gso, Gro::On),
    ];
    let measured = interleave(arms, bench.warm_up, bench.rounds, bench.may_void())?;
    println!("  {FLOWS} flows, {SIZE} B, as fast as it goes, one thread, raw stage");
    let mut table = TextTable::new(&[
        ("send and receive", Align::Left),
        ("received Mpps", Align::Right),
        ("sent Mpps", Align::Right),
        ("CPU ns/packet", Align::Right),
        ("sender % of a core", Align::Right),
        ("void", Align::Right),
    ])
    .indented(2);
    for arm in &measured {
        let sent = arm.spread(|report| Some(report.books.sent as f64 / report.window_s / 1e6));
        table.row([
            arm.name.clone(),
            arm.rate_cell(),
            cell(sent, 2),
            cell(arm.cpu_ns(), 0),
            sender_cell(arm),
            arm.void_cell(),
        ]);
    }
    results.rounds("trains", &measured)?;
    println!("{}", table.render());
    let ratio = |over: &Measured, under: &Measured| Some(over.pps()?.median / under.pps()?.median);
    if let [single, cut, whole] = measured.as_slice() {
        let name = "trains: packets per second, GSO with GRO over single";
        results.figure(name, ratio(whole, single), "x", Goal::AtLeast(25.0), &rates_note(whole, single));
        let name = "trains: packets per second, GSO with GRO over GSO without";
        results.figure(name, ratio(whole, cut), "x", Goal::AtLeast(7.0), &rates_note(whole, cut));
    }
    Ok(())
}
