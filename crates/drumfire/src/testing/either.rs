//! A worker on a real socket or in memory, so that a server and a client are one type in both.
//!
//! It exists in builds with the feature `testing` alone: production has no such choice to make.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{CloseCode, ConnectError, IssuedToken, Moment, PeerId, Placement, ServerIdentity};
use drumfire_socket::{Hub, Poller, Socket};

use super::memory::MemoryWorker;
use crate::base::clock::SystemClock;
use crate::worker::credit::Credit;
use crate::worker::pass::{Parts, Worker};

/// A worker on a real socket or in memory.
pub(crate) enum EitherWorker<P> {
    Socket(Worker<P, Socket, Poller, SystemClock>),
    Memory(MemoryWorker<P>),
}

impl<P: Placement> EitherWorker<P> {
    pub(crate) fn new(parts: Parts<P, Socket, Poller, SystemClock>) -> Self {
        Self::Socket(Worker::new(parts))
    }

    pub(crate) const fn is_in_memory(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::Socket(worker) => worker.is_over(),
            Self::Memory(worker) => worker.is_over(),
        }
    }

    pub(crate) fn wait(&mut self, at_most: Option<Duration>) {
        match self {
            Self::Socket(worker) => worker.wait(at_most),
            Self::Memory(worker) => worker.wait(at_most),
        }
    }

    pub(crate) fn work(&mut self) {
        match self {
            Self::Socket(worker) => worker.work(),
            Self::Memory(worker) => worker.pass(),
        }
    }

    pub(crate) fn send(&mut self) {
        match self {
            Self::Socket(worker) => worker.send(),
            Self::Memory(worker) => worker.send(),
        }
    }

    /// In memory the world wakes a worker.
    pub(crate) fn enter(&self, hub: &Hub) -> std::io::Result<()> {
        match self {
            Self::Socket(worker) => worker.enter(hub),
            Self::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn leave(&self, hub: &Hub) -> std::io::Result<()> {
        match self {
            Self::Socket(worker) => worker.leave(hub),
            Self::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn hear(&mut self, is_ready: bool) {
        match self {
            Self::Socket(worker) => worker.hear(is_ready),
            Self::Memory(worker) => worker.hear(is_ready),
        }
    }

    pub(crate) fn hear_nothing(&mut self) {
        match self {
            Self::Socket(worker) => worker.hear_nothing(),
            Self::Memory(worker) => worker.hear_nothing(),
        }
    }

    pub(crate) fn due(&mut self) -> Option<Moment> {
        match self {
            Self::Socket(worker) => worker.due(),
            Self::Memory(worker) => worker.due(),
        }
    }

    pub(crate) fn arrivals(&self) -> u64 {
        match self {
            Self::Socket(worker) => worker.arrivals(),
            Self::Memory(worker) => worker.arrivals(),
        }
    }

    pub(crate) fn start_over(&mut self) {
        match self {
            Self::Socket(worker) => worker.start_over(),
            Self::Memory(worker) => worker.start_over(),
        }
    }

    pub(crate) fn finish(&mut self, code: CloseCode, application_code: u32) {
        match self {
            Self::Socket(worker) => worker.finish(code, application_code),
            Self::Memory(worker) => worker.finish(code, application_code),
        }
    }

    pub(crate) fn connect(
        &mut self,
        server: SocketAddr,
        identity: &ServerIdentity,
        token: Option<&IssuedToken>,
        wait: Duration,
    ) -> Result<(PeerId, Arc<Credit>), ConnectError> {
        match self {
            Self::Socket(worker) => worker.connect(server, identity, token, wait),
            Self::Memory(worker) => worker.connect(server, identity, token, wait),
        }
    }

    pub(crate) fn resume_token(&self, peer: PeerId) -> Option<(&IssuedToken, Duration)> {
        match self {
            Self::Socket(worker) => worker.resume_token(peer),
            Self::Memory(worker) => worker.resume_token(peer),
        }
    }

    pub(crate) fn time(&mut self) -> Moment {
        match self {
            Self::Socket(worker) => worker.time(),
            Self::Memory(worker) => worker.time(),
        }
    }

    /// In memory the world moves the client.
    pub(crate) fn replace_socket(&mut self, socket: Socket) -> std::io::Result<()> {
        match self {
            Self::Socket(worker) => worker.replace_socket(socket),
            Self::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn change_path(&mut self, peer: PeerId) {
        match self {
            Self::Socket(worker) => worker.change_path(peer),
            Self::Memory(worker) => worker.change_path(peer),
        }
    }
}
