//! The ladder: first more clients, then a higher rate, until a counter shows that the server no longer keeps up.
//!
//! Each step runs once, because a ladder takes long. A step that other work on the machine disturbed is marked.

use drumfire_benches::{Bench, Extent, Goal, Measured, Plan, Results, busy_note, median_cell};

use crate::round::ENDED;
use crate::{Load, Mode, format, measure};

const CLIENTS: [u32; 5] = [256, 512, 1_024, 2_048, 4_096];

/// Rates in percent of the journal's.
const SPEEDS: [u32; 6] = [150, 200, 300, 400, 600, 800];

/// The goal for deliveries per second at the last step: at least this.
const DELIVERIES: f64 = 10e6;

/// A server with a longer p99 does not keep up. It gathers for a fifth of this time.
const LATE_MS: f64 = 250.0;

pub(crate) fn climb(bench: &mut Bench) -> Result<(), String> {
    let is_quick = bench.extent() == Extent::Quick;
    let (clients, speeds) = if is_quick { (&[16, 32][..], &[200][..]) } else { (&CLIENTS[..], &SPEEDS[..]) };
    let modes: &[Mode] = if is_quick { &[Mode::Ordered] } else { &[Mode::Ordered, Mode::Unreliable] };
    let cores = bench.pin_load()?;
    for mode in modes {
        let load = Load::of(bench, *mode);
        let more: Vec<Load> = clients.iter().map(|clients| Load { clients: *clients, ..load }).collect();
        let faster = speeds.iter().map(|speed| Load { speed: *speed, ..load }).collect();
        for (direction, loads) in [("clients up", more), ("rate up", faster)] {
            let name = format!("ladder: {}: {direction}", mode.name());
            println!("  {name}");
            let mut steps = Vec::new();
            for load in loads {
                let place = format!("{} clients, {} %", load.clients, load.speed);
                steps.extend(measure(cores, Plan::once(), [(place, load)]));
                if steps.last().and_then(broken_by).is_some() {
                    break;
                }
            }
            let broken = steps.last().and_then(broken_by);
            // A server that loses connections no longer keeps up. Any other failure is one of the bench.
            steps.iter_mut().for_each(|step| drop(step.failure.take_if(|line| line.contains(ENDED))));
            format::show(bench, &name, &steps)?;
            figures(&name, &steps, broken, &mut bench.results);
        }
    }
    Ok(())
}

/// Returns the first counter that shows that a message was not heard in time, if any.
fn broken_by(step: &Measured) -> Option<String> {
    let Some(report) = step.rounds.first() else { return step.failure.clone() };
    let dropped = report.books.drops.iter().find(|(_, count)| **count > 0);
    let late = step.millis(|latency| latency.p99).filter(|p99| p99.median > LATE_MS);
    let late = late.map(|p99| format!("latency: p99 is {:.0} ms", p99.median));
    dropped.map(|(name, count)| format!("{name}: {count}")).or(late)
}

fn figures(name: &str, steps: &[Measured], broken: Option<String>, results: &mut Results) {
    let mut figure = |what: &str, value, goal, note: &str| {
        let note = [note, busy_note(steps)].into_iter().filter(|words| !words.is_empty());
        let note = note.collect::<Vec<_>>().join("; ");
        results.figure(format!("{name}: {what}, deliveries"), value, "/s", goal, &note);
    };
    let deliveries = |step: &Measured| Some(step.value("deliveries")?.median);
    let held = steps.iter().rfind(|step| broken_by(step).is_none() && !step.rounds.is_empty());
    let place = held.map_or("none", |step| step.name.as_str());
    figure("the last that held", held.and_then(deliveries), Goal::Shown, place);
    let most = steps.iter().filter_map(deliveries).reduce(f64::max);
    // Where nothing broke, the last step is not the end of the ladder.
    let (goal, note) = match steps.last().zip(broken) {
        None => (Goal::Shown, "nothing gave way".to_owned()),
        Some((step, counter)) => {
            let clients = median_cell(step.value("clients %"), 0);
            let note = format!("{}: {counter}; the clients' process at {clients} %", step.name);
            (Goal::AtLeast(DELIVERIES), note)
        }
    };
    figure("at the break", most, goal, &note);
}
