//! Fairness: latency and throughput of the other clients while one peer floods.
//!
//! The flood is sent by the thread of the other clients, in trains between two polls. The arm that it is compared with sends as many
//! trains to a socket that is never read, so that this thread is equally busy. The reliable quarter of the messages shows that lost ones
//! are sent again.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::time::Duration;

use drumfire::config::Congestion;
use drumfire_benches::traffic::Client;
use drumfire_benches::{
    Arm, BatchSocket, Bench, ClientPool, ClientSettings, Goal, Outcome, PER_SOCKET, Plan, SocketCounters,
    interleave, micros, ratio_note,
};
use drumfire_socket::{GroupConfig, ReuseportGroup};

use crate::world::{CHANNELS, PER_DROP, WARM_UP, World, handler};

/// Messages per second of each of the others.
const PER_SECOND: u64 = 20;

const SLOTS: u32 = 1_024;

/// A message of the flood fills a datagram.
const FLOOD_BYTES: usize = 1_000;

/// Messages of the flood between two polls of the others.
const TRAIN: usize = 32;

/// A datagram with a message of the flood: header, message, and tag.
const DATAGRAM_BYTES: usize = FLOOD_BYTES + 32;

/// A rate that no path here reaches.
const LINE_RATE: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// The goal for the p99 latency of the other clients with a flood over that without one.
const P99_RATIO: f64 = 1.05;

/// Jain's index of the others' throughput: 1 when all have the same (Jain, Chiu and Hawe 1984).
const JAIN_LEAST: f64 = 0.99;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (others, counted) = bench.extent().pick(
        (100, Duration::from_millis(300)),
        (200, Duration::from_secs(1)),
        (200, Duration::from_secs(3)),
    );
    let (cores, plan) = (bench.pin_load()?, bench.plan());
    let mut world = World::start(handler(1, SLOTS), Some(cores.server), PER_SECOND)?;
    world.connect(others)?;
    let settings = ClientSettings::new(world.to);
    let settings = ClientSettings { config: settings.config.clone().congestion(LINE_RATE), ..settings };
    let mut flooder = ClientPool::bind(settings, 1, 1)?;
    flooder.connect(1, 1, |_, _| {})?.check()?;
    let unread = ReuseportGroup::bind(&GroupConfig::new((Ipv4Addr::LOCALHOST, 0).into()));
    let unread = unread.map_err(|error| format!("the unread socket: {error}"))?;
    let mut sink = BatchSocket::connect_for_trains(unread.local_addr(), TRAIN.div_ceil(PER_SOCKET))?;

    let (world, flooder) = (RefCell::new(world), RefCell::new(flooder));
    let to_nobody = || {
        flooder.borrow_mut().poll(|_, _| {});
        let before = sink.counters();
        // The unread socket overflows, which explains no loss of the others.
        let outcome = round_of_others(&mut world.borrow_mut(), counted, 0, |_| {
            // A datagram without room is left out, as at the server.
            while sink.push(&[0x5a; DATAGRAM_BYTES]) {}
            sink.flush()
        })?;
        Ok(with_flood(outcome, sink.counters().since(before), counted))
    };
    let to_server = || {
        let flooder = &mut *flooder.borrow_mut();
        let before = flooder.counters();
        let outcome = round_of_others(&mut world.borrow_mut(), counted, PER_DROP, |now| {
            for _ in 0..TRAIN {
                // The server answers no messages on this channel. A message without room is left out.
                flooder.send(now, 0, CHANNELS, &[0x5a; FLOOD_BYTES])?;
            }
            flooder.flush(now)?;
            flooder.receive(now, &mut |_, _| {})
        })?;
        Ok(with_flood(outcome, flooder.counters().since(before), counted))
    };
    let arms = vec![Arm::new("trains to nobody", to_nobody), Arm::new("floods at line rate", to_server)];
    // A flood keeps the core busy that the others wait for, so no round is void.
    let measured = interleave(arms, Plan { may_void: false, ..plan })?;
    bench.show_echoes("fair", &measured, &[("flood/s", 0)])?;
    for arm in &measured {
        let name = format!("fair: {}: Jain index of others' throughput", arm.name);
        let least = arm.value("jain").map(|jain| jain.least);
        bench.results.figure(name, least, "", Goal::AtLeast(JAIN_LEAST), "the least of all rounds");
    }
    if let [sink, line_rate] = measured.as_slice() {
        let ratio = line_rate.over(sink, |report| micros(report, |latency| latency.p99));
        let name = format!("fair: others' p99, {} over {}", line_rate.name, sink.name);
        bench.results.spread(name, ratio, "x", Goal::AtMost(P99_RATIO), &ratio_note(&[line_rate, sink]));
    }
    let (mut world, flooder) = (world.into_inner(), flooder.into_inner());
    let ended = world.ended() + flooder.ended();
    world.others.push(flooder);
    world.close()?;
    bench.results.none_of("fair: connections that ended", ended);
    Ok(())
}

/// Runs a round, and adds the index of the others' throughput to its values.
fn round_of_others(
    world: &mut World,
    counted: Duration,
    per_drop: u64,
    poll: impl FnMut(u64) -> Result<(), String>,
) -> Result<Outcome, String> {
    let before = world.load.back_by_connection().to_vec();
    let (report, mut values) =
        world.load.measure(&world.server, (WARM_UP, counted), (true, per_drop), poll)?;
    let counts = world.load.back_by_connection().iter().zip(before);
    values.insert("jain", jain(counts.map(|(now, before)| (now - before) as f64)));
    Ok((report, values))
}

/// Adds the rate of the flood to the values of a round.
fn with_flood((report, mut values): Outcome, flood: SocketCounters, counted: Duration) -> Outcome {
    values.insert("flood/s", flood.sent as f64 / (counted + WARM_UP).as_secs_f64());
    (report, values)
}

/// Returns Jain's index of these throughputs.
fn jain(counts: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) = counts.fold((0.0, 0.0, 0.0), |(count, sum, squares), next| {
        (count + 1.0, sum + next, squares + next * next)
    });
    if squares > 0.0 { sum * sum / (count * squares) } else { 0.0 }
}
