//! Messages per CPU second by the interface that a server uses.
//!
//! Five servers echo the same load on one core. In the first, a handler answers on the worker. In the second, the application polls
//! next to one worker thread, and in the third without one. In the fourth, tasks answer next to one worker thread. In the fifth, a handler
//! passes each message to another thread, as servers are often written first.
//! In `steady`, 64 connections send 40,000 messages per second in all at fixed times. In `full`, 500 connections send one message each as
//! fast as they return.

use std::time::Duration;

use drumfire_benches::roles::{EchoConfig, Interface};
use drumfire_benches::traffic::Shape;
use drumfire_benches::{Arm, Bench, Cores, Goal, Outcome, busy_note, interleave};
use drumfire_tools::report::Report;

use crate::round::{Round, load};

/// The number of connections of each load.
const LOADS: [(&str, Shape, u32); 2] =
    [("steady", Shape::Open { rate: 625 }, 64), ("full", Shape::Closed { outstanding: 1 }, 500)];

/// The goal for the messages per CPU time of a handler over those of the thread hop: at least this.
const HANDLER_OVER_HOP: f64 = 2.0;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let counted =
        bench.extent().pick(Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3));
    let (cores, plan) = (bench.pin_load()?, bench.plan());
    for (load_name, shape, connections) in LOADS {
        if !bench.wants(load_name) {
            continue;
        }
        let load = (shape, connections);
        let arm =
            |interface: Interface| Arm::new(interface.name(), move || round(cores, counted, interface, load));
        let measured = interleave(Interface::ALL.map(arm).into(), plan)?;
        let per_cpu_second = |report: &Report| report.cpu_ns_per_packet.map(|nanos| 1e9 / nanos);
        bench.show_echoes(load_name, &measured, &[])?;
        let Some((hop, others)) = measured.split_last() else { continue };
        for arm in others {
            let is_handler = arm.name == Interface::Handler.name();
            let goal = if is_handler { Goal::AtLeast(HANDLER_OVER_HOP) } else { Goal::Shown };
            let both = arm.spread(per_cpu_second).zip(hop.spread(per_cpu_second));
            let ratio = both.map(|(arm, hop)| arm.median / hop.median);
            let name = format!("{load_name}: messages per CPU second, {} over {}", arm.name, hop.name);
            bench.results.figure(name, ratio, "x", goal, busy_note([arm, hop]));
        }
    }
    Ok(())
}

fn round(
    cores: Cores,
    counted: Duration,
    interface: Interface,
    (shape, connections): (Shape, u32),
) -> Result<Outcome, String> {
    let (server, address) = EchoConfig::new(interface, connections).start(cores.server)?;
    let mut round =
        Round::run(load(shape, connections as usize), counted, (&server, address), |_, _| Ok(()))?;
    let has_one_thread = matches!(interface, Interface::Handler | Interface::Inline);
    let (report, _) = round.finish(server, 0, has_one_thread)?;
    Ok((report, round.echo.values()))
}
