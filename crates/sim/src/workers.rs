//! What goes wrong with the server's workers: drawn from a seed, done tick by tick, and counted, so that a kind that never
//! happened is seen.
//!
//! What must hold in spite of it is the run's and the books' affair.

use std::net::SocketAddr;
use std::ops::AddAssign;
use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire::testing::{Draining, Fault, Sockets, Trouble, World};
use drumfire::{PeerId, Wait};

use crate::dice::{between, fraction, millis};
use crate::ledger::Class;

/// Errors of receive calls after which a worker goes on.
const RECEIVE_FAULTS: [Fault; 11] = [
    Fault::Interrupted,
    Fault::ConnectionRefused,
    Fault::HostUnreachable,
    Fault::NetworkUnreachable,
    Fault::ConnectionReset,
    Fault::Protocol,
    Fault::OutOfMemory,
    Fault::NoBuffers,
    Fault::BadDescriptor,
    Fault::NotSocket,
    Fault::Other,
];

/// Errors of send calls after which the connection goes on. A full buffer is drawn apart.
const SEND_FAULTS: [Fault; 14] = [
    Fault::Interrupted,
    Fault::MessageTooLong,
    Fault::NoBuffers,
    Fault::OutOfMemory,
    Fault::NotPermitted,
    Fault::AccessDenied,
    Fault::InputOutput,
    Fault::InvalidArgument,
    Fault::ConnectionRefused,
    Fault::HostUnreachable,
    Fault::NetworkUnreachable,
    Fault::BadDescriptor,
    Fault::NotSocket,
    Fault::Other,
];

/// Whether the core panics when it opens a packet with [`PANIC_PAYLOAD`]. It does in the copy of the project that `cargo xtask sim`
/// builds, where a patch changes this line too.
pub(crate) const HAS_PANIC_POINT: bool = false;

/// A message that stands for a fault in the code of the connection that receives it. No other message contains it.
pub(crate) const PANIC_PAYLOAD: &[u8] = b"panic in the code of this connection";

/// A worker that stands still for longer may lose connections: what their ends wait for is late by so much.
const STALL_SURVIVED: Duration = Duration::from_secs(1);

/// What is wrong with a server's workers during the chaos.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// How many there are, 1 to 8.
    pub workers: u16,
    /// What they have for sockets.
    pub sockets: Sockets,
    /// How they wait.
    pub wait: Wait,
    /// What goes wrong at the sockets, by worker.
    pub troubles: Vec<Trouble>,
    /// What happens in some ticks.
    pub mishaps: Vec<Mishap>,
    /// Datagrams of no bytes, and of too many, per tick.
    pub odd: u64,
    /// In one of how many ticks more comes from one address than a pass takes; 0 for never.
    pub flood_ticks: u64,
    /// When the server begins to end without haste, and how long that may take.
    pub drain: Option<(u64, Duration)>,
}

/// Something that happens once to one worker.
#[derive(Clone, Copy, Debug)]
pub struct Mishap {
    /// In this tick.
    pub tick: u64,
    /// To this worker.
    pub worker: usize,
    /// What.
    pub what: What,
}

/// What happens to a worker.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// Its thread stands still for so long.
    Stall(Duration),
    /// So many of its passes panic, in no connection's code.
    Panics(u32),
    /// Its thread panics, and it begins anew under its index.
    Restart,
    /// One of its peers sends the payload of the panic point, if the core has that point.
    PanicOfPeer,
}

impl Swarm {
    pub(crate) fn draw(random: &mut Random, chaos_ticks: u64) -> Self {
        let workers = between(random, 1, 8);
        let sockets = Sockets::default()
            .is_steered(random.below(3) > 0)
            .has_gro(random.below(2) == 0)
            .has_gso(random.below(2) == 0)
            .queue_datagrams(usize::try_from(draw_queue(random)).unwrap_or(4_096));
        let wait = if random.below(2) == 0 { Wait::Notify } else { Wait::Gather(Wait::GATHER) };
        let troubles = (0..workers).map(|_| draw_trouble(random)).collect();
        let mishap = |random: &mut Random| Mishap {
            tick: random.below(chaos_ticks),
            worker: usize::try_from(random.below(workers)).unwrap_or(0),
            what: What::draw(random),
        };
        let mishaps = (0..random.below(5)).map(|_| mishap(random)).collect();
        let drain = (random.below(12) == 0)
            .then(|| (random.below(chaos_ticks), Duration::from_millis(between(random, 1, 10_000))));
        Self {
            workers: u16::try_from(workers).unwrap_or(1),
            sockets,
            wait,
            troubles,
            mishaps,
            odd: random.below(4),
            flood_ticks: if random.below(8) == 0 { between(random, 8, 40) } else { 0 },
            drain,
        }
    }
}

/// From a few datagrams to as many as a large buffer holds.
fn draw_queue(random: &mut Random) -> u64 {
    match random.below(3) {
        0 => between(random, 16, 128),
        _ => 4_096,
    }
}

fn draw_trouble(random: &mut Random) -> Trouble {
    Trouble {
        receive: fraction(random, 0.2),
        receive_faults: RECEIVE_FAULTS.to_vec(),
        send: fraction(random, 0.2),
        send_faults: SEND_FAULTS.to_vec(),
        partial: fraction(random, 0.5),
        blocked: fraction(random, 0.1),
        blocked_for: millis(random, 200),
        wait: fraction(random, 0.1),
    }
}

impl What {
    fn draw(random: &mut Random) -> Self {
        match random.below(6) {
            0 => Self::Stall(millis(random, 60_000).max(Duration::from_millis(1))),
            1 | 2 => Self::Stall(millis(random, 999).max(Duration::from_millis(1))),
            3 => Self::Panics(u32::try_from(between(random, 1, 5)).unwrap_or(1)),
            4 => Self::Restart,
            _ => Self::PanicOfPeer,
        }
    }
}

/// Whose connections may end, because of what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excused {
    /// Of this worker, and who is not connected yet.
    Worker(usize),
    /// That of the client at this place, which sends [`PANIC_PAYLOAD`] now.
    Panics(usize),
    Everybody,
}

/// Carries a swarm out.
#[derive(Debug, Default)]
pub(crate) struct Doer {
    draining: Option<Draining>,
    pub(crate) covered: Covered,
    /// Times that each worker began anew, as far as is known.
    restarts: Vec<u64>,
    /// Times that each worker was made to, outside of a pass,
    made_anew: Vec<u64>,
    /// or in three passes in a row.
    panics_planted: Vec<u64>,
    /// Panics planted in the code of a worker's connections.
    peer_panics: Vec<u64>,
    /// When the last thread that stands still goes on.
    pub(crate) stalled_until: Duration,
}

impl Doer {
    pub(crate) fn new(swarm: Option<&Swarm>, world: &mut World) -> Self {
        let workers = world.workers();
        for (worker, trouble) in swarm.iter().flat_map(|swarm| swarm.troubles.iter().enumerate()) {
            world.set_trouble(worker, trouble.clone());
        }
        let none = || vec![0; workers];
        Self {
            restarts: none(),
            made_anew: none(),
            panics_planted: none(),
            peer_panics: none(),
            ..Self::default()
        }
    }

    /// Does what is due in this tick; answers whose connections may end of it.
    pub(crate) fn act(
        &mut self,
        swarm: &Swarm,
        tick: u64,
        world: &mut World,
        random: &mut Random,
        peers: &[(usize, PeerId)],
    ) -> Vec<Excused> {
        let mut excused = Vec::new();
        for mishap in swarm.mishaps.iter().filter(|mishap| mishap.tick == tick) {
            excused.extend(self.happen(*mishap, swarm.sockets.is_steered, world, random, peers));
        }
        if let Some((_, deadline)) = swarm.drain.filter(|(begin, _)| *begin == tick) {
            self.draining = Some(world.begin_drain(deadline));
            self.covered.drains += 1;
            excused.push(Excused::Everybody);
        }
        let to = world.server.local_addr();
        for _ in 0..swarm.odd {
            let bytes = if random.below(2) == 0 { 0 } else { between(random, 1_501, 9_000) };
            let bytes = vec![0x80; usize::try_from(bytes).unwrap_or(0)];
            world.inject(Class::Junk.address(random), to, bytes);
        }
        if swarm.flood_ticks > 0 && tick.is_multiple_of(swarm.flood_ticks) {
            let from = Class::Junk.address(random);
            (0..between(random, 1_000, 2_100)).for_each(|_| flood(world, from, to));
        }
        excused
    }

    fn happen(
        &mut self,
        Mishap { worker, what, .. }: Mishap,
        is_steered: bool,
        world: &mut World,
        random: &mut Random,
        peers: &[(usize, PeerId)],
    ) -> Option<Excused> {
        match what {
            What::Stall(duration) => {
                world.stall_worker(worker, duration);
                self.stalled_until = self.stalled_until.max(world.elapsed() + duration);
                self.covered.stalls += 1;
                // Where nothing steers, packets of all connections wait for it.
                let excused = if is_steered { Excused::Worker(worker) } else { Excused::Everybody };
                (duration > STALL_SURVIVED).then_some(excused)
            }
            What::Panics(panics) => {
                world.plant_panics(worker, panics);
                self.panics_planted[worker] += u64::from(panics);
                None
            }
            What::Restart => {
                world.restart_worker(worker);
                self.made_anew[worker] += 1;
                None
            }
            What::PanicOfPeer if !HAS_PANIC_POINT => None,
            What::PanicOfPeer => {
                let most = u64::try_from(peers.len()).unwrap_or(0);
                let (at, peer) = *peers.get(usize::try_from(random.below(most)).unwrap_or(0))?;
                self.peer_panics[peer.worker()] += 1;
                Some(Excused::Panics(at))
            }
        }
    }

    /// Workers that began anew since this was asked last, and what is wrong with that.
    pub(crate) fn began_anew(&mut self, world: &World) -> Result<Vec<usize>, String> {
        let mut anew = Vec::new();
        for (worker, stats) in world.server.stats().workers.iter().enumerate() {
            if std::mem::replace(&mut self.restarts[worker], stats.restarts) < stats.restarts {
                anew.push(worker);
            }
            let in_passes = self.panics_planted[worker] / 3;
            let most = self.made_anew[worker] + in_passes;
            if !(self.made_anew[worker]..=most).contains(&stats.restarts) {
                return Err(format!("worker {worker} began anew {} times, of {most}", stats.restarts));
            }
            let counts = world.socket_counts(worker);
            let least = counts.panics + self.made_anew[worker];
            if !(least..=least + self.peer_panics[worker]).contains(&stats.panics) {
                return Err(format!("worker {worker} caught {} panics, of {least}", stats.panics));
            }
        }
        Ok(anew)
    }

    /// Whether a server that ends is through: nothing to say against one that was not asked to.
    pub(crate) fn judge(&self) -> Result<(), String> {
        let is_through = self.draining.as_ref().is_none_or(|draining| draining.poll().is_some());
        if is_through { Ok(()) } else { Err("a server that ends never does".to_owned()) }
    }

    /// What happened, at the end of the run.
    pub(crate) fn covered(&self, world: &World) -> Covered {
        let mut covered = self.covered;
        for (worker, stats) in world.server.stats().workers.iter().enumerate() {
            let counts = world.socket_counts(worker);
            covered.wakes += counts.turns;
            covered.stranded += counts.stranded;
            covered.overflowed += counts.overflowed;
            covered.trains += counts.trains;
            covered.mixed_trains += counts.mixed_trains;
            covered.partial_sends += counts.partial_sends;
            covered.wait_faults += counts.wait_faults;
            covered.panics += counts.panics;
            covered.forwards += stats.forwarded_in;
            covered.restarts += stats.restarts;
            covered.peer_panics += stats.panics - counts.panics - self.made_anew[worker];
            covered.odd += stats.received.dropped_in_all();
            for (at, fault) in Fault::ALL.into_iter().enumerate() {
                covered.receive_faults[at] += counts.receive_faults.count(fault);
                covered.send_faults[at] += counts.send_faults.count(fault);
            }
        }
        covered
    }
}

fn flood(world: &mut World, from: SocketAddr, to: SocketAddr) {
    world.inject(from, to, vec![0x80; 40]);
}

/// How often each kind of fault happened, and what workers did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Covered {
    /// Times that workers woke up.
    pub wakes: u64,
    /// Moments at which a worker had datagrams that it knew nothing of: 0, or the run failed.
    pub stranded: u64,
    /// Datagrams that went from one worker to another.
    pub forwards: u64,
    /// Datagrams that found a receive queue full.
    pub overflowed: u64,
    /// Datagrams of no bytes, or of too many.
    pub odd: u64,
    /// Trains that were read whole,
    pub trains: u64,
    /// and those with packets of several connections.
    pub mixed_trains: u64,
    /// Send calls that took a part.
    pub partial_sends: u64,
    /// Waits that failed.
    pub wait_faults: u64,
    /// Panics in passes,
    pub panics: u64,
    /// and in the code of connections.
    pub peer_panics: u64,
    /// Workers that began anew.
    pub restarts: u64,
    /// Threads that stood still.
    pub stalls: u64,
    /// Servers that were told to end.
    pub drains: u64,
    /// Ticks in which the application took no events.
    pub unpolled: u64,
    /// Messages that were refused because a queue was full,
    pub refused: u64,
    /// those that clients dropped instead, the oldest,
    pub dropped_oldest: u64,
    /// or the newest,
    pub dropped_newest: u64,
    /// and connections that were closed.
    pub overflows: u64,
    /// Messages to groups,
    pub said_to_groups: u64,
    /// and how often a member missed one for want of room.
    pub missed: u64,
    /// Clocks that jumped by more than a connection outlives.
    pub jumps: u64,
    /// Failed receive calls, by place in [`Fault::ALL`].
    pub receive_faults: [u64; Fault::ALL.len()],
    /// Failed send calls, by place in [`Fault::ALL`].
    pub send_faults: [u64; Fault::ALL.len()],
}

impl Covered {
    /// Every kind that should happen, by name, and how often it did.
    pub fn kinds(&self) -> impl Iterator<Item = (String, u64)> + use<> {
        let named = [
            ("wakes", self.wakes),
            ("forwards", self.forwards),
            ("overflow drops", self.overflowed),
            ("empty or overlong", self.odd),
            ("trains", self.trains),
            ("trains of several ids", self.mixed_trains),
            ("partial sends", self.partial_sends),
            ("failed waits", self.wait_faults),
            ("panics in passes", self.panics),
            ("restarts", self.restarts),
            ("stalls", self.stalls),
            ("drains", self.drains),
            ("ticks without a poll", self.unpolled),
            ("refused for want of room", self.refused),
            ("dropped as the oldest", self.dropped_oldest),
            ("dropped as the newest", self.dropped_newest),
            ("closed for want of room", self.overflows),
            ("said to groups", self.said_to_groups),
            ("missed for want of room", self.missed),
            ("jumps by a year", self.jumps),
        ];
        let peer_panics = HAS_PANIC_POINT.then_some(("panics of connections", self.peer_panics));
        let named = named.into_iter().chain(peer_panics).map(|(name, count)| (name.to_owned(), count));
        let of = |call, faults: &[Fault], counts: [u64; Fault::ALL.len()]| {
            let all = Fault::ALL.into_iter().zip(counts);
            let wanted = all.filter(|(fault, _)| faults.contains(fault));
            wanted.map(|(fault, count)| (format!("{call} {fault}"), count)).collect::<Vec<_>>()
        };
        let sent = [SEND_FAULTS.as_slice(), &[Fault::WouldBlock]].concat();
        named.chain(of("recv", &RECEIVE_FAULTS, self.receive_faults)).chain(of(
            "send",
            &sent,
            self.send_faults,
        ))
    }
}

impl AddAssign<&Self> for Covered {
    fn add_assign(&mut self, other: &Self) {
        let pairs = [
            (&mut self.wakes, other.wakes),
            (&mut self.stranded, other.stranded),
            (&mut self.forwards, other.forwards),
            (&mut self.overflowed, other.overflowed),
            (&mut self.odd, other.odd),
            (&mut self.trains, other.trains),
            (&mut self.mixed_trains, other.mixed_trains),
            (&mut self.partial_sends, other.partial_sends),
            (&mut self.wait_faults, other.wait_faults),
            (&mut self.panics, other.panics),
            (&mut self.peer_panics, other.peer_panics),
            (&mut self.restarts, other.restarts),
            (&mut self.stalls, other.stalls),
            (&mut self.drains, other.drains),
            (&mut self.unpolled, other.unpolled),
            (&mut self.refused, other.refused),
            (&mut self.dropped_oldest, other.dropped_oldest),
            (&mut self.dropped_newest, other.dropped_newest),
            (&mut self.overflows, other.overflows),
            (&mut self.said_to_groups, other.said_to_groups),
            (&mut self.missed, other.missed),
            (&mut self.jumps, other.jumps),
        ];
        let faults = self.receive_faults.iter_mut().zip(other.receive_faults);
        let faults = faults.chain(self.send_faults.iter_mut().zip(other.send_faults));
        for (sum, more) in pairs.into_iter().chain(faults) {
            *sum += more;
        }
    }
}
