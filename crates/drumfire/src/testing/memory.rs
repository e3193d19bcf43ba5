//! The replacements for the socket, the wait, and the clock of a worker in a world.
//!
//! They keep the contracts of the production types. The network moves the datagrams.

use std::net::SocketAddr;
use std::panic::resume_unwind;
use std::time::Duration;

use drumfire_proto::{Moment, Now};
use drumfire_socket::{
    Fault, Gro, Io, Outgoing, Parker, Ready, Receiver, ReceiverConfig, RecvBatch, SendMode, SocketBacklog,
    SteeringFilter, Wait, Waiter,
};

use super::network::{MemoryWaker, SharedNetwork};
use crate::base::clock::Clock;
use crate::base::error::Error;
use crate::worker::worker_socket::WorkerSocket;

/// The maximum number of messages per receive call with GRO, where each message may be a train.
const TRAINS_PER_CALL: usize = 4;

/// The port of one endpoint in the network.
#[derive(Debug)]
pub(crate) struct NetworkPort {
    network: SharedNetwork,
    port: usize,
}

/// The parts of a worker that depend on the network.
pub(crate) struct PortParts {
    pub(crate) socket: Box<MemorySocket>,
    pub(crate) clock: VirtualClock,
    pub(crate) waiter: Waiter,
    pub(crate) receiver: Receiver,
    pub(crate) waker: MemoryWaker,
    pub(crate) has_gso: bool,
}

impl NetworkPort {
    pub(crate) fn new(network: SharedNetwork, port: usize) -> Self {
        Self { network, port }
    }

    /// Sets the filter that selects the worker of a packet, for all ports of the server.
    pub(crate) fn set_filter(&self, filter: Option<SteeringFilter>) {
        self.network.lock().set_filter(filter);
    }

    /// Returns a function that reads the clock of this port.
    pub(crate) fn now(&self) -> Box<dyn Fn() -> Moment + Send + Sync> {
        let (network, port) = (self.network.clone(), self.port);
        Box::new(move || network.lock().clocks_of(port).monotonic)
    }

    /// Creates the parts of the worker at this port.
    ///
    /// # Errors
    /// [`Error`] if `wait` is invalid or the receiver cannot be created.
    pub(crate) fn take(self, wait: Wait) -> Result<PortParts, Error> {
        let Self { network, port } = self;
        let mut socket = Box::new(MemorySocket { network: network.clone(), port });
        let (sockets, is_server) = {
            let network = network.lock();
            (network.sockets(), network.client_of(port).is_none())
        };
        let config = if sockets.has_gro && is_server {
            ReceiverConfig::default().gro(Gro::On).max_batch(TRAINS_PER_CALL)
        } else {
            ReceiverConfig::default().gro(Gro::Off)
        };
        let receiver = Receiver::new(&mut *socket, &config)?;
        Ok(PortParts {
            has_gso: sockets.has_gso && is_server,
            waker: MemoryWaker { network: network.clone(), port },
            socket,
            clock: VirtualClock { network, port },
            waiter: Waiter::new(wait)?,
            receiver,
        })
    }
}

/// A socket on the simulated network. Its wait returns immediately and registers its deadline with the network. `end_wait` returns the
/// result in the next turn.
pub(crate) struct MemorySocket {
    network: SharedNetwork,
    port: usize,
}

impl Io for MemorySocket {
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault> {
        let mut network = self.network.lock();
        if network.should_panic(self.port) {
            drop(network);
            // Unlike `panic!`, this does not call the panic hook, so nothing is printed.
            resume_unwind(Box::new("a panic that the world injected"));
        }
        if let Some(fault) = network.receive_fault(self.port) {
            return Err(fault);
        }
        while batch.filled() < batch.limit()
            && let Some(message) = network.receive(self.port)
        {
            batch.put(message.from, &message.bytes, message.segment_bytes);
        }
        if batch.filled() == 0 { Err(Fault::WouldBlock) } else { Ok(()) }
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault> {
        let offered = match mode {
            SendMode::Single => 1,
            SendMode::Sendmmsg => outgoing.datagrams().count(),
            SendMode::Gso => outgoing.first_train(),
        };
        let mut network = self.network.lock();
        let taken = network.sends(self.port, offered, mode)?;
        for (to, bytes) in outgoing.datagrams().take(taken) {
            network.send(self.port, to.map(canonical), bytes);
        }
        Ok(taken)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        true
    }

    fn enable_gro(&mut self) -> bool {
        self.network.lock().sockets().has_gro
    }

    fn backlog(&self) -> Option<SocketBacklog> {
        let network = self.network.lock();
        // The counter of the kernel wraps at 2^32 too.
        let drops = u32::try_from(network.overflowed(self.port) & u64::from(u32::MAX)).ok()?;
        let queued_bytes = u32::try_from(network.queued_bytes(self.port)).unwrap_or(u32::MAX);
        Some(SocketBacklog { drops, queued_bytes })
    }
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Parker for MemorySocket {
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
        let mut network = self.network.lock();
        if network.wait_fault(self.port) {
            return Err(Fault::Other);
        }
        network.wake_after(self.port, timeout);
        Ok(Ready::default())
    }

    fn sleep(&mut self, duration: Duration) {
        self.network.lock().wake_after(self.port, Some(duration));
    }
}

impl WorkerSocket for MemorySocket {
    fn io(&mut self) -> &mut dyn Io {
        self
    }

    fn parker(&mut self) -> &mut dyn Parker {
        self
    }

    fn watch_writable(&mut self, is_blocked: bool) {
        self.network.lock().watch_room(self.port, is_blocked);
    }

    fn end_wait(&mut self) -> Option<bool> {
        Some(self.network.lock().begin_turn(self.port))
    }

    fn reopen(&mut self) -> bool {
        // Only sockets of workers have faults, so this port belongs to a worker.
        self.network.lock().worker(self.port).reopen();
        true
    }
}

/// The clock of one endpoint, which may be wrong.
pub(crate) struct VirtualClock {
    network: SharedNetwork,
    port: usize,
}

impl Clock for VirtualClock {
    fn read(&mut self) -> Now {
        self.network.lock().clocks_of(self.port)
    }

    fn thread_cpu_time(&mut self) -> Option<Duration> {
        // In a world, code takes no time.
        None
    }
}
