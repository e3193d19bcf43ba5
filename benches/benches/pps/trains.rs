//! Trains: packets per second of a sender and a receiver that are as fast as possible, with and without GSO and GRO.

use drumfire_benches::{ArmTable, Bench, Goal, cell, ratio_note};
use drumfire_tools::choices::{Drain, Gro, SendMode, Steer};

use super::{Setup, mpps_cell, sender_cell};

const FLOWS: u32 = 64;
const SIZE: u32 = 128;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let setup = Setup::of(bench);
    let arm = |name: &str, gro: Gro, send: SendMode| {
        let mut run = setup.run(FLOWS, SIZE, 0, send);
        (run.receiver.drain, run.receiver.gro, run.receiver.steer) = (Drain::Recvmmsg, gro, Steer::Tag);
        run.arm(name)
    };
    let measured = setup.interleave(vec![
        arm("recvmmsg / single", Gro::Off, SendMode::Single),
        arm("recvmmsg / GSO", Gro::Off, SendMode::Gso),
        arm("recvmmsg + GRO / GSO", Gro::On, SendMode::Gso),
    ])?;
    ArmTable::new("drain / send", &measured)
        .column("received Mpps", mpps_cell)
        .column("CPU ns/packet", |arm| cell(arm.cpu_ns(), 0))
        .column("sender %", sender_cell)
        .print_with_limits();
    bench.results.rounds("trains", &measured)?;
    let [single, cut, whole] = &measured[..] else { return Ok(()) };
    for (name, under, goal) in [
        ("trains: packets per second, GSO with GRO over single", single, 25.0),
        ("trains: packets per second, GSO with GRO over GSO without", cut, 7.0),
    ] {
        let ratio = whole.pps().zip(under.pps()).map(|(over, under)| over.median / under.median);
        bench.results.figure(name, ratio, "x", Goal::AtLeast(goal), &ratio_note(&[whole, under]));
    }
    Ok(())
}
