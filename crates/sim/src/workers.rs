//! Faults of the server's workers: drawn from a seed, and counted as they are injected.

use std::time::Duration;

use drumfire::conditioner::Random;
use drumfire::config::Wait;
use drumfire::control::{Pending, Undelivered};
use drumfire::testing::{Fault, SocketFaults, Sockets, World};

use crate::random::{between, fraction, index, millis, pick};
use crate::stats::Counts;

/// Errors of receive calls after which a worker continues.
pub(crate) const RECEIVE_FAULTS: [Fault; 11] = [
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

/// Errors of send calls after which the connection continues. A full buffer is drawn separately.
pub(crate) const SEND_FAULTS: [Fault; 14] = [
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

/// A message that triggers a panic in the connection that receives it. No other message contains it.
pub(crate) const PANIC_PAYLOAD: &[u8] = b"panic in the code of this connection";

/// The longest stall of a worker that all its connections survive.
pub(crate) const STALL_SURVIVED: Duration = Duration::from_secs(1);

/// The workers of a server, and their faults.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// The number of workers, 1 to 8.
    pub workers: u16,
    /// The kind of the workers' sockets.
    pub sockets: Sockets,
    /// The way in which the workers wait for datagrams.
    pub wait: Wait,
    /// The faults of each worker's socket.
    pub socket_faults: Vec<SocketFaults>,
    /// The faults of workers, each at a tick.
    pub events: Vec<WorkerEvent>,
    /// The number of empty and overlong datagrams per tick.
    pub odd_length_count: u64,
    /// The number of ticks between two bursts from one address that exceed a worker's share for a source. 0 for no bursts.
    pub flood_ticks: u64,
    /// The tick in which the server begins to shut down, and the deadline.
    pub drain: Option<(u64, Duration)>,
}

/// A fault of one worker.
#[derive(Clone, Copy, Debug)]
pub struct WorkerEvent {
    /// The tick of the fault.
    pub tick: u64,
    /// The worker.
    pub worker: usize,
    /// The fault.
    pub fault: WorkerFault,
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug)]
pub enum WorkerFault {
    /// The thread stalls.
    Stall(Duration),
    /// This number of passes panic, outside of the code of a connection.
    Panics(u32),
    /// The thread panics, and the worker restarts under its index.
    Restart,
    /// A peer sends the payload of the panic point, if the core has that point.
    PanicOfPeer,
}

impl WorkerPlan {
    pub(crate) fn draw(random: &mut Random, chaos_ticks: u64) -> Self {
        let workers: u16 = between(random, 1, 8);
        let sockets = Sockets::default()
            .is_steered(random.below(3) > 0)
            .has_gro(random.below(2) == 0)
            .has_gso(random.below(2) == 0)
            // A few datagrams, or as many as a large buffer holds.
            .queue_datagrams(match random.below(3) {
                0 => between(random, 16, 128),
                _ => 4_096,
            });
        let wait = pick(random, &[Wait::Notify, Wait::Gather(Wait::GATHER)]);
        let socket_faults = (0..workers).map(|_| draw_socket_faults(random)).collect();
        let event = |random: &mut Random| WorkerEvent {
            tick: random.below(chaos_ticks),
            worker: index(random, workers.into()),
            fault: WorkerFault::draw(random),
        };
        let events = (0..random.below(5)).map(|_| event(random)).collect();
        let drain = (random.below(12) == 0)
            .then(|| (random.below(chaos_ticks), Duration::from_millis(between(random, 1, 10_000))));
        Self {
            workers,
            sockets,
            wait,
            socket_faults,
            events,
            odd_length_count: random.below(4),
            flood_ticks: if random.below(8) == 0 { between(random, 8, 40) } else { 0 },
            drain,
        }
    }
}

fn draw_socket_faults(random: &mut Random) -> SocketFaults {
    SocketFaults {
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

impl WorkerFault {
    fn draw(random: &mut Random) -> Self {
        match random.below(6) {
            0 => Self::Stall(millis(random, 60_000).max(Duration::from_millis(1))),
            1 | 2 => Self::Stall(millis(random, 999).max(Duration::from_millis(1))),
            3 => Self::Panics(between(random, 1, 5)),
            4 => Self::Restart,
            _ => Self::PanicOfPeer,
        }
    }
}

/// The faults that were injected into one worker.
#[derive(Clone, Debug, Default)]
pub(crate) struct InjectedFaults {
    pub(crate) stalls: u64,
    pub(crate) restarts: u64,
    /// Panics of its passes: three in a row cause a restart.
    pub(crate) panics: u64,
    /// Panics in the code of its connections.
    pub(crate) connection_panics: u64,
    /// Restarts that were reported.
    reported_restarts: u64,
}

/// The faults of a [`WorkerPlan`] that were injected so far.
#[derive(Debug, Default)]
pub(crate) struct WorkerRecords {
    pub(crate) shutdown: Option<Pending<Vec<Undelivered>>>,
    pub(crate) injected: Vec<InjectedFaults>,
    /// When the last stalled thread continues.
    pub(crate) stalled_until: Duration,
}

impl WorkerRecords {
    /// Sets the faults of the sockets, and returns records without other faults.
    pub(crate) fn new(plan: Option<&WorkerPlan>, world: &mut World) -> Self {
        for (worker, faults) in plan.iter().flat_map(|plan| plan.socket_faults.iter().enumerate()) {
            world.set_socket_faults(worker, faults.clone());
        }
        Self { injected: vec![InjectedFaults::default(); world.workers()], ..Self::default() }
    }

    /// Returns the workers that restarted since the last call.
    ///
    /// # Errors
    /// A worker restarted or panicked more often, or less often, than faults were injected.
    pub(crate) fn take_restarted(&mut self, world: &World) -> Result<Vec<usize>, String> {
        let mut restarted = Vec::new();
        for (worker, stats) in world.server.control().stats().workers.iter().enumerate() {
            let injected = &mut self.injected[worker];
            if std::mem::replace(&mut injected.reported_restarts, stats.restarts) < stats.restarts {
                restarted.push(worker);
            }
            let least = injected.restarts;
            let most = least + injected.panics / 3;
            if !(least..=most).contains(&stats.restarts) {
                return Err(format!("worker {worker} restarted {} times, of {most}", stats.restarts));
            }
            let counts = world.socket_counts(worker);
            let least = counts.panics + injected.restarts;
            if !(least..=least + injected.connection_panics).contains(&stats.panics) {
                return Err(format!("worker {worker} caught {} panics, of {least}", stats.panics));
            }
        }
        Ok(restarted)
    }

    /// Checks that a server that shuts down has ended.
    pub(crate) fn check_drain(&mut self) -> Result<(), String> {
        let is_over = self.shutdown.as_mut().is_none_or(|shutdown| shutdown.try_take().is_some());
        if is_over { Ok(()) } else { Err("a server that shuts down did not end".to_owned()) }
    }

    /// Counts what happened, at the end of the run.
    pub(crate) fn count(&self, world: &World, events: &mut Counts) {
        events.add("drains", self.shutdown.is_some().into());
        for (worker, stats) in world.server.control().stats().workers.iter().enumerate() {
            let counts = world.socket_counts(worker);
            let connection_panics = stats.panics - counts.panics - self.injected[worker].restarts;
            for (kind, count) in [
                ("stalls", self.injected[worker].stalls),
                ("wakes", counts.wakeups),
                (Counts::STRANDED, counts.missed_wakeups),
                ("overflow drops", counts.overflowed),
                ("trains", counts.trains),
                ("trains of several ids", counts.mixed_trains),
                ("partial sends", counts.partial_sends),
                ("failed waits", counts.wait_faults),
                ("panics in passes", counts.panics),
                ("forwards", stats.forwarded_in),
                ("restarts", stats.restarts),
                (Counts::CONNECTION_PANICS, connection_panics),
                ("empty or overlong", stats.received.dropped_total()),
            ] {
                events.add(kind, count);
            }
            for fault in Fault::ALL {
                events.add(format!("recv {fault}"), counts.receive_faults.count(fault));
                events.add(format!("send {fault}"), counts.send_faults.count(fault));
            }
        }
    }
}
