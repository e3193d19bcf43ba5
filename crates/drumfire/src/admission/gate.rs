//! The gate: whether a server accepts new connections at all. All its workers share it.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The gate of a server. It is open at first.
#[derive(Debug, Default)]
pub(crate) struct Gate(Mutex<GateState>);

/// Whether the gate is closed, and where refused clients are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GateState {
    pub(super) is_closed: bool,
    /// The address to which clients are redirected while the gate is closed.
    pub(super) redirect: Option<SocketAddr>,
}

impl Gate {
    /// Refuses new connections from now on. A refused client is redirected to `redirect`, or receives the reason "full" if there is
    /// no redirect.
    pub(crate) fn close(&self, redirect: Option<SocketAddr>) {
        *self.state() = GateState { is_closed: true, redirect };
    }

    /// Accepts new connections again.
    pub(crate) fn open(&self) {
        *self.state() = GateState::default();
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.state().is_closed
    }

    /// Returns the address to which clients are redirected, if there is one.
    pub(crate) fn redirect(&self) -> Option<SocketAddr> {
        self.state().redirect
    }

    /// Returns the state under one lock.
    pub(super) fn snapshot(&self) -> GateState {
        *self.state()
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
