//! Whether a server takes new players at all: one switch for all its workers.
//!
//! Who is connected hears nothing of it. Waiting until everybody has left is not done here.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A server's switch for new players. Clones are the same switch, for any thread; a [`Server`](crate::Server) begins with
/// it open.
///
/// ```
/// # use std::time::Duration;
/// # use drumfire::*;
/// # use drumfire::error::*;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = ServerConfig::new("127.0.0.1:0".parse()?, ServerKey::dev(), Access::Open);
/// # let mut server = Server::bind(config)?;
/// let next_server = "192.0.2.8:7777".parse()?;
/// let gate = server.gate();
/// gate.close(Some(next_server));
/// # let mut client = Client::connect_dev(server.local_addr())?;
/// let error = loop {
///     client.poll(Duration::from_millis(1));
///     # server.poll(Duration::ZERO);
///     if let Some(Event::ConnectFailed { error, .. }) = client.next_event() { break error }
/// };
/// let ConnectError::Refused(refusal) = error else { panic!("{error}") };
/// // Clients with tokens hear where, too. In open access nothing proves who said it, so that they are told no address.
/// assert_eq!((refusal.reason, refusal.address), (RefuseReason::TryThere, None));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) admits: bool,
    pub(super) there: Option<SocketAddr>,
}

impl Default for State {
    fn default() -> Self {
        Self { admits: true, there: None }
    }
}

impl Gate {
    /// Takes nobody in from now on: they are told to go there, or else that the server is full. Who was answered before may
    /// still come, for five seconds at most.
    pub fn close(&self, there: Option<SocketAddr>) {
        *self.state() = State { admits: false, there };
    }

    /// Takes new players in again.
    pub fn open(&self) {
        *self.state() = State::default();
    }

    /// Whether it takes new players in.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.state().admits
    }

    /// Where those are sent who are not taken in; `None` while it takes them in, or has no place to name.
    #[must_use]
    pub fn there(&self) -> Option<SocketAddr> {
        self.state().there
    }

    /// Both at one moment.
    pub(super) fn look(&self) -> State {
        *self.state()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
