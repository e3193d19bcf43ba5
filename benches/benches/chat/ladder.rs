//! The ladder: more clients, then faster ones, until something gives way, and which counter it was.
//!
//! Each rung is taken once, for want of time: one that the machine disturbed is not repeated, and is said to be one.

use drumfire_benches::{BUSY, Extent, Goal, Results};
use drumfire_tools::table::{Align, TextTable};

use crate::Amount;
use crate::plan::{Arm, Plan};
use crate::round::{self, Run};

const CLIENTS: [u32; 5] = [256, 512, 1_024, 2_048, 4_096];

/// In percent of the journal's.
const SPEEDS: [u32; 6] = [150, 200, 300, 400, 600, 800];

/// What the whole library is to reach.
const GOAL_PER_SECOND: f64 = 10e6;

/// Climbs with our server in both modes and with the baseline.
pub(crate) fn climb(extent: Extent, amount: Amount, results: &mut Results) -> Result<(), String> {
    println!("\nladder");
    let mut table = TextTable::new(&[
        ("server", Align::Left),
        ("clients", Align::Right),
        ("rate", Align::Right),
        ("offered/s", Align::Right),
        ("heard/s", Align::Right),
        ("p99 ms", Align::Right),
        ("per datagram", Align::Right),
        ("server", Align::Right),
        ("clients", Align::Right),
        ("broken by", Align::Left),
        ("void", Align::Left),
    ]);
    let arms: &[Arm] =
        if extent == Extent::Quick { &[Arm::Ordered] } else { &[Arm::Ordered, Arm::Unreliable, Arm::Tcp] };
    let mut outcome = Ok(());
    for arm in arms {
        let plan = amount.plan(*arm);
        // A smoke run climbs far below.
        let (clients, speeds) =
            if extent == Extent::Quick { (&[16, 32][..], &[200][..]) } else { (&CLIENTS[..], &SPEEDS[..]) };
        let by_clients = clients.iter().map(|clients| Plan { clients: *clients, ..plan });
        let by_speed = speeds.iter().map(|speed| Plan { speed: *speed, ..plan });
        let more = rungs(by_clients, amount, &mut table);
        let faster = rungs(by_speed, amount, &mut table);
        let (more, faster) = match (more, faster) {
            (Ok(more), Ok(faster)) => (more, faster),
            (Err(line), _) | (_, Err(line)) => {
                outcome = Err(line);
                break;
            }
        };
        for (name, rungs) in [("clients up", more), ("rate up", faster)] {
            for run in &rungs {
                // Where connections ended there are no books, and so no report.
                if let Ok(report) = run.report() {
                    results.run(&format!("ladder: {}, {}", arm.name(), place(run)), &report)?;
                }
            }
            figures(&format!("ladder: {}: {name}", arm.name()), &rungs, results);
        }
    }
    println!("{}", table.render());
    outcome
}

/// Climbs until something gives way. Books that do not close fail, unless connections ended: then there is nobody to ask.
fn rungs(
    plans: impl Iterator<Item = Plan>,
    amount: Amount,
    table: &mut TextTable,
) -> Result<Vec<Run>, String> {
    let mut runs = Vec::new();
    for plan in plans {
        let run = round::run(plan, amount.workers, |_| {})?;
        let broken_by = run.broken_by();
        // Where connections ended there are no books: what broke is told, and no figure.
        let closed = run.books.is_ok().then_some(&run);
        let cell = |of: fn(&Run) -> String| closed.map_or_else(|| "-".to_owned(), of);
        table.row([
            plan.arm.name().to_owned(),
            plan.clients.to_string(),
            format!("{} %", plan.speed),
            format!("{:.0}", plan.deliveries_per_second()),
            cell(|run| format!("{:.0}", run.deliveries_per_second())),
            cell(|run| {
                run.latency().map_or_else(String::new, |latency| format!("{:.1}", latency.p99 as f64 / 1e6))
            }),
            cell(|run| format!("{:.1}", run.deliveries_per_datagram())),
            cell(|run| format!("{:.0} %", run.server_cores() * 100.0)),
            cell(|run| format!("{:.0} %", run.bots_cores() * 100.0)),
            broken_by.clone().unwrap_or_default(),
            if run.is_void() { "busy" } else { "" }.to_owned(),
        ]);
        let has_lost_some = run.last.of_bots("left") + run.last.of_server("server left") > 0;
        if let Err(line) = &run.books
            && !has_lost_some
        {
            return Err(format!("{}, {} clients, {} %: {line}", plan.arm.name(), plan.clients, plan.speed));
        }
        runs.push(run);
        if broken_by.is_some() {
            break;
        }
    }
    Ok(runs)
}

/// Which step it is.
fn place(run: &Run) -> String {
    format!("{} clients, {} %", run.plan.clients, run.plan.speed)
}

fn figures(name: &str, rungs: &[Run], results: &mut Results) {
    let whole = rungs.iter().rfind(|run| run.broken_by().is_none());
    let note = whole.map_or_else(|| "none".to_owned(), place);
    let busy = if rungs.iter().any(Run::is_void) { format!("; {BUSY}") } else { String::new() };
    let note = format!("{note}{busy}");
    results.figure(
        format!("{name}: the last that held, deliveries"),
        whole.map(Run::deliveries_per_second),
        "/s",
        Goal::Shown,
        &note,
    );
    let broken = rungs.last().and_then(|run| Some((run, run.broken_by()?)));
    let goal = match rungs.last() {
        Some(run) if run.plan.arm != Arm::Tcp && broken.is_some() => Goal::AtLeast(GOAL_PER_SECOND),
        _ => Goal::Shown,
    };
    // Nothing gave way: the last one is not where it ends.
    let note = broken.as_ref().map_or_else(
        || "nothing gave way".to_owned(),
        |(run, counter)| {
            format!("{}: {counter}; the clients' process at {:.0} %", place(run), run.bots_cores() * 100.0)
        },
    );
    let note = format!("{note}{busy}");
    let closed = rungs.iter().filter(|run| run.books.is_ok());
    let most = closed.map(Run::deliveries_per_second).reduce(f64::max);
    results.figure(format!("{name}: at the break, deliveries"), most, "/s", goal, &note);
}
