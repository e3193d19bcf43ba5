//! The ladder: first more clients, then a higher rate, until a counter shows that the server no longer keeps up.
//!
//! Each step runs once, because a ladder takes long. A step that other work on the machine disturbed is marked.

use drumfire_benches::{BUSY, Bench, Extent, Goal, Measured, Results};
use drumfire_tools::report::Report;

use crate::format;
use crate::plan::{Arm, ORDERED, Plan, UNRELIABLE};
use crate::round::{Run, run};

const CLIENTS: [u32; 5] = [256, 512, 1_024, 2_048, 4_096];

/// Rates in percent of the journal's.
const SPEEDS: [u32; 6] = [150, 200, 300, 400, 600, 800];

/// Deliveries per second at the last step, at least.
const DELIVERIES: f64 = 10e6;

pub(crate) fn climb(bench: &mut Bench) -> Result<(), String> {
    let is_quick = bench.extent() == Extent::Quick;
    let (clients, speeds) = if is_quick { (&[16, 32][..], &[200][..]) } else { (&CLIENTS[..], &SPEEDS[..]) };
    let arms: &[Arm] = if is_quick { &[ORDERED] } else { &[ORDERED, UNRELIABLE] };
    for arm in arms {
        let plan = crate::plan(bench, *arm)?;
        let more = clients.iter().map(|clients| Plan { clients: *clients, ..plan }).collect();
        let faster = speeds.iter().map(|speed| Plan { speed: *speed, ..plan }).collect();
        for (direction, plans) in [("clients up", more), ("rate up", faster)] {
            let name = format!("ladder: {}: {direction}", arm.name);
            let steps = steps(plans)?;
            let measured: Vec<Measured> = steps.iter().map(measured).collect();
            bench.results.rounds(&name, &measured)?;
            println!("{name}");
            format::table(&measured);
            figures(&name, &steps, &mut bench.results);
        }
    }
    Ok(())
}

/// Runs the plans until a counter shows a break. Open books are an error, unless connections ended.
fn steps(plans: Vec<Plan>) -> Result<Vec<Run>, String> {
    let mut steps = Vec::new();
    for plan in plans {
        let step = run(plan, |_| {})?;
        let is_broken = step.broken_by.is_some();
        if let Err(line) = &step.report
            && step.connections_ended == 0
        {
            return Err(format!("{}, {}: {line}", plan.arm.name, place(&step)));
        }
        steps.push(step);
        if is_broken {
            break;
        }
    }
    Ok(steps)
}

/// The step as an arm with one round. Where connections ended, there is no report.
fn measured(step: &Run) -> Measured {
    Measured {
        rounds: step.report.iter().cloned().collect(),
        values: vec![step.values.clone()],
        is_busy: is_void(step),
        ..Measured::named(place(step))
    }
}

fn is_void(step: &Run) -> bool {
    step.report.as_ref().is_ok_and(Report::is_void)
}

/// The step in words.
fn place(step: &Run) -> String {
    format!("{} clients, {} %", step.plan.clients, step.plan.speed)
}

fn figures(name: &str, steps: &[Run], results: &mut Results) {
    let held = steps.iter().rfind(|step| step.broken_by.is_none());
    let busy = if steps.iter().any(is_void) { format!("; {BUSY}") } else { String::new() };
    let note = format!("{}{busy}", held.map_or_else(|| "none".to_owned(), place));
    let deliveries = |step: &Run| step.values["deliveries"];
    let value = held.map(deliveries);
    results.figure(format!("{name}: the last that held, deliveries"), value, "/s", Goal::Shown, &note);
    let broken = steps.last().and_then(|step| Some((step, step.broken_by.as_ref()?)));
    // Where nothing broke, the last step is not the end of the ladder.
    let (goal, note) = match broken {
        None => (Goal::Shown, "nothing gave way".to_owned()),
        Some((step, counter)) => {
            let clients = step.values["clients %"];
            let note = format!("{}: {counter}; the clients' process at {clients:.0} %", place(step));
            (Goal::AtLeast(DELIVERIES), note)
        }
    };
    let closed = steps.iter().filter(|step| step.report.is_ok());
    let most = closed.map(deliveries).reduce(f64::max);
    results.figure(format!("{name}: at the break, deliveries"), most, "/s", goal, &format!("{note}{busy}"));
}
