//! What a worker of a world has instead of a socket, a wait and a clock.
//!
//! It keeps the contracts of the real ones; what it moves is the network's business.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drumfire_socket::{
    Fault, Gro, Io, Outgoing, Parker, Ready, Receiver, ReceiverConfig, RecvBatch, SendMode, Wait, Waiter,
};

use super::network::SharedNetwork;
use crate::clock;
use crate::config::BindError;
use crate::worker::{Clock, Park, Reading, Worker};

/// What the wall clock of a world begins with, since 1970: a day of 2001.
pub(crate) const WALL_ORIGIN: Duration = Duration::from_secs(1_000_000_000);

/// The worker of an end in memory.
pub(crate) type MemoryWorker<P> = Worker<P, MemoryIo, MemoryParker, VirtualClock>;

/// An end's place in the network.
#[derive(Debug)]
pub(crate) struct Seat {
    network: SharedNetwork,
    port: usize,
}

/// All of a worker's parts that know of the network.
pub(crate) struct Parts {
    pub(crate) io: MemoryIo,
    pub(crate) parker: MemoryParker,
    pub(crate) clock: VirtualClock,
    pub(crate) waiter: Waiter,
    pub(crate) receiver: Receiver,
}

impl Seat {
    pub(crate) fn new(network: SharedNetwork, port: usize) -> Self {
        Self { network, port }
    }

    /// Takes the place.
    pub(crate) fn take(self) -> Result<Parts, BindError> {
        let Self { network, port } = self;
        let mut io = MemoryIo { network: network.clone(), port };
        let receiver = Receiver::new(&mut io, &ReceiverConfig::default().gro(Gro::Off))?;
        Ok(Parts {
            io,
            parker: MemoryParker { network: network.clone(), port },
            clock: VirtualClock { network, port, origin: clock::instant() },
            waiter: Waiter::new(Wait::Notify)?,
            receiver,
        })
    }
}

/// A socket without a kernel.
pub(crate) struct MemoryIo {
    network: SharedNetwork,
    port: usize,
}

impl Io for MemoryIo {
    fn recv(&mut self, batch: &mut RecvBatch) -> Result<(), Fault> {
        let mut network = self.network.lock();
        while batch.filled() < batch.limit()
            && let Some(datagram) = network.receive(self.port)
        {
            batch.put(datagram.from, &datagram.bytes, None);
        }
        if batch.filled() == 0 { Err(Fault::WouldBlock) } else { Ok(()) }
    }

    fn send(&mut self, outgoing: &mut Outgoing<'_>, mode: SendMode) -> Result<usize, Fault> {
        let most = if mode == SendMode::Single { 1 } else { usize::MAX };
        let mut network = self.network.lock();
        let mut taken = 0;
        for (to, bytes) in outgoing.datagrams().take(most) {
            network.send(self.port, to.map(canonical), bytes);
            taken += 1;
        }
        Ok(taken)
    }

    fn is_emptied_by_short_batch(&self) -> bool {
        true
    }

    fn enable_gro(&mut self) -> bool {
        false
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Never waits: it says when it wants to be woken, and returns.
pub(crate) struct MemoryParker {
    network: SharedNetwork,
    port: usize,
}

impl Parker for MemoryParker {
    fn poll(&mut self, timeout: Option<Duration>) -> Result<Ready, Fault> {
        self.network.lock().wake_after(self.port, timeout);
        // What ends the wait is known only when time has passed.
        Ok(Ready { readable: 1, ..Ready::default() })
    }

    fn nap(&mut self, duration: Duration) {
        self.network.lock().wake_after(self.port, Some(duration));
    }
}

impl Park<MemoryIo> for MemoryParker {
    fn watch_writable(&mut self, _: &mut MemoryIo, _: bool) {
        // A socket without a kernel is never blocked.
    }
}

/// Shows what its end takes for the time of the world.
pub(crate) struct VirtualClock {
    network: SharedNetwork,
    port: usize,
    /// Some instant: only differences between readings matter.
    origin: Instant,
}

impl Clock for VirtualClock {
    fn read(&mut self) -> Reading {
        let now = self.network.lock().clocks_of(self.port);
        Reading { instant: self.origin + Duration::from_nanos(now.monotonic.as_nanos()), now }
    }

    fn thread_cpu_time(&mut self) -> Option<Duration> {
        // In a world nothing takes time.
        None
    }
}
