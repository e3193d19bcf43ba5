//! Fairness: latency and throughput of the others while one peer floods.
//!
//! The flood is sent by the thread of the other clients, in trains between two polls. The arm that it is compared with sends as many
//! trains to a socket that is never read, so that this thread is equally busy. Silent connections show that keep-alives are answered,
//! and the reliable quarter of the messages shows that lost ones are sent again.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::time::Duration;

use drumfire::config::Congestion;
use drumfire_benches::traffic::Client;
use drumfire_benches::{
    Arm, Bench, Crowd, Goal, Joining, Measured, Outcome, PER_SOCKET, Plan, Wire, interleave, micros,
    ratio_note,
};
use drumfire_socket::{DropMeter, GroupConfig, ReuseportGroup};

use crate::virtual_time;
use crate::world::{CHANNELS, HANDLER, Round, WARM_UP, World, bind};

/// Messages per second of each of the others.
const PER_SECOND: u64 = 20;

const SLOTS: u32 = 1_024;

/// Silent connections.
const SILENT: u32 = 16;

/// A message of the flood fills a datagram.
const FLOOD_BYTES: usize = 1_000;

/// Messages of the flood between two polls of the others.
const TRAIN: usize = 32;

/// A datagram with a message of the flood: header, message, and tag.
const DATAGRAM_BYTES: usize = FLOOD_BYTES + 32;

/// A rate that no path here reaches.
const LINE_RATE: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// p99 of the others, with a flood over without one.
const P99_RATIO: f64 = 1.05;

/// Jain's index of the others' throughput: 1 when all have the same (Jain, Chiu and Hawe 1984).
const JAIN_LEAST: f64 = 0.99;

/// The destination of a flood.
enum Flood {
    None,
    /// A socket that is never read.
    Sink(Box<Sink>),
    /// The server, by this connection.
    Server(Box<Crowd>),
}

struct Sink {
    wire: Wire,
    sent: u64,
    /// Counts the drops in front of the socket that is never read, and keeps it open.
    unread: DropMeter,
}

impl Sink {
    fn bind() -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("the unread socket: {error}");
        let group = ReuseportGroup::bind(&GroupConfig::new((Ipv4Addr::LOCALHOST, 0).into())).map_err(fail)?;
        let wire = Wire::connect_for_trains(group.local_addr(), TRAIN.div_ceil(PER_SOCKET))?;
        let socket = group.into_sockets().pop().ok_or("a group without sockets")?;
        Ok(Self { wire, sent: 0, unread: socket.drop_meter().map_err(fail)? })
    }
}

impl Flood {
    fn connect(world: &World, congestion: Congestion) -> Result<Self, String> {
        let joining = Joining::new(world.to);
        let joining = Joining { config: joining.config.clone().congestion(congestion), ..joining };
        let mut crowd = Crowd::bind(joining, 1, 1)?;
        crowd.connect(1, 1, |_, _| {})?.check()?;
        Ok(Self::Server(Box::new(crowd)))
    }

    fn send_train(&mut self, now: u64) -> Result<(), String> {
        match self {
            Self::None => Ok(()),
            Self::Sink(sink) => {
                let is_pushed = |_: &usize| sink.wire.push(&[0x5a; DATAGRAM_BYTES]);
                sink.sent += (0..TRAIN).filter(is_pushed).count() as u64;
                sink.wire.flush()
            }
            Self::Server(crowd) => {
                for _ in 0..TRAIN {
                    // The server answers no messages on this channel. A message without room is left out.
                    crowd.send(now, 0, CHANNELS, &[0x5a; FLOOD_BYTES])?;
                }
                Client::flush(crowd.as_mut(), now)?;
                crowd.receive(now, &mut |_, _| {})
            }
        }
    }

    /// Drops in front of a socket that does not belong to the server.
    fn drops_elsewhere(&mut self) -> Option<u64> {
        let Self::Sink(sink) = self else { return Some(0) };
        Some(sink.unread.read().ok()?.drops)
    }

    fn sent(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Sink(sink) => sink.sent,
            Self::Server(crowd) => crowd.carried().sent,
        }
    }
}

/// The server, its clients, and all floods.
struct Arena {
    world: World,
    silent: Crowd,
    floods: [(&'static str, Flood); 4],
}

impl Arena {
    /// Runs one round with this flood.
    fn round(&mut self, arm: usize, round: &Round) -> Result<Outcome, String> {
        let Self { world, silent, floods } = self;
        silent.look(|_, _| {});
        for (_, flood) in &mut *floods {
            if let Flood::Server(crowd) = flood {
                crowd.look(|_, _| {});
            }
        }
        let flood = RefCell::new(&mut floods[arm].1);
        let (sent, back) = (flood.borrow().sent(), world.load.back_by_connection().to_vec());
        let elsewhere = || flood.borrow_mut().drops_elsewhere();
        let poll = |now| flood.borrow_mut().send_train(now);
        let (report, mut values) = round.run(&world.server, &mut world.load, elsewhere, poll)?;
        let counts = world.load.back_by_connection().iter().zip(back);
        values.insert("jain", jain(counts.map(|(now, before)| (now - before) as f64)));
        values.insert(
            "flood/s",
            (flood.borrow().sent() - sent) as f64 / (round.counted + WARM_UP).as_secs_f64(),
        );
        Ok((report, values))
    }
}

/// Returns Jain's index of the others' throughput.
fn jain(counts: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) = counts.fold((0.0, 0.0, 0.0), |(count, sum, squares), next| {
        (count + 1.0, sum + next, squares + next * next)
    });
    if squares > 0.0 { sum * sum / (count * squares) } else { 0.0 }
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (others, counted) = bench.extent().pick(
        (100, Duration::from_millis(300)),
        (200, Duration::from_secs(1)),
        (200, Duration::from_secs(3)),
    );
    let (cores, plan) = (bench.pin_load()?, bench.plan());
    let mut world = World::start((HANDLER, 1), SLOTS, Some(cores.server), PER_SECOND)?;
    world.connect(others)?;
    let mut silent = bind(world.to, SILENT)?;
    silent.connect(SILENT.into(), SILENT.into(), |_, _| {})?.check()?;
    let sink = Sink::bind()?;
    let floods = [
        ("nobody floods", Flood::None),
        ("trains to nobody", Flood::Sink(Box::new(sink))),
        ("floods as its controller lets it", Flood::connect(&world, Congestion::default())?),
        ("floods at line rate", Flood::connect(&world, LINE_RATE)?),
    ];
    let names = [0, 1, 2, 3].map(|arm| floods[arm].0);
    let arena = RefCell::new(Arena { world, silent, floods });
    let round = Round { counted, has_one_thread: true };
    let arena_ref = &arena;
    let arm = |(arm, name)| Arm::new(name, move || arena_ref.borrow_mut().round(arm, &round));
    let arms = names.into_iter().enumerate().map(arm).collect();
    // A flood keeps the core busy that the others wait for, so no round is void.
    let measured = interleave(arms, Plan { may_void: false, ..plan })?;
    show(bench, &measured)?;

    let Arena { mut world, silent, floods, .. } = arena.into_inner();
    let ended = silent.ended() + world.load.clients().iter().map(Crowd::ended).sum::<u64>();
    world.others.push(silent);
    for (_, flood) in floods {
        if let Flood::Server(crowd) = flood {
            world.others.push(*crowd);
        }
    }
    world.close()?;
    bench.results.none_of("fair: connections that ended", ended);
    virtual_time::run(bench)
}

fn show(bench: &mut Bench, measured: &[Measured]) -> Result<(), String> {
    bench.show_echoes("fair", measured, &[])?;
    for arm in measured {
        let rate = arm.value("flood/s").map_or(0.0, |rate| rate.median);
        println!("  {}: {rate:.0} datagrams of the flood per second", arm.name);
        let name = format!("fair: {}: Jain index of others' throughput", arm.name);
        let least = arm.value("jain").map(|jain| jain.least);
        bench.results.figure(name, least, "", Goal::AtLeast(JAIN_LEAST), "the least of all rounds");
    }
    let [_, sink, _, line_rate] = measured else { return Ok(()) };
    let ratio = line_rate.over(sink, |report| micros(report, |latency| latency.p99));
    let name = format!("fair: others' p99, {} over {}", line_rate.name, sink.name);
    bench.results.spread(name, ratio, "x", Goal::AtMost(P99_RATIO), &ratio_note(&[line_rate, sink]));
    Ok(())
}
