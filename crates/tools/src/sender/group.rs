//! Clients that share one poller.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{Parker, Poller, Socket};

use super::client::{Client, HandshakeError, SocketBuffers};
use crate::clock;
use crate::control::Sealed;

/// The number of clients of one group: as many as a poller supports.
pub(super) const GROUP: usize = 64;

/// A handshake times out after five seconds. The confirmation takes one more round trip.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest wait in a handshake before its timeouts are checked.
const STEP: Duration = Duration::from_millis(50);

/// Up to [`GROUP`] clients.
pub(super) struct ClientGroup {
    pub(super) poller: Poller,
    pub(super) clients: Vec<Client>,
}

impl ClientGroup {
    /// Connects a client on each of at most [`GROUP`] sockets, and waits until the receiver has confirmed each connection.
    pub(super) fn connect(
        sockets: Vec<Socket>,
        to: SocketAddr,
        sealed: &Sealed,
        buffers: &mut SocketBuffers,
    ) -> Result<Self, HandshakeError> {
        let mut group = Self { poller: Poller::new()?, clients: Vec::with_capacity(sockets.len()) };
        for (index, mut socket) in sockets.into_iter().enumerate() {
            group.poller.register(&mut socket, index)?;
            group.clients.push(Client::begin(socket, to, sealed)?);
            // Handshakes run one after the other, because both ends compute. Confirmations are awaited together.
            while !group.clients.last().is_none_or(Client::is_connected) {
                group.step(buffers)?;
            }
        }
        let deadline = clock::now() + PATIENCE;
        while !group.clients.iter().all(Client::is_confirmed) {
            if clock::now() >= deadline {
                let line = "the receiver does not confirm the connection".to_owned();
                return Err(HandshakeError::Failed(line));
            }
            group.step(buffers)?;
        }
        Ok(group)
    }

    /// Waits for datagrams or a timeout, and handles them.
    fn step(&mut self, buffers: &mut SocketBuffers) -> Result<(), HandshakeError> {
        let now_ns = clock::host_ns();
        let due = self.clients.iter().map(|client| client.due_in(now_ns)).min().unwrap_or(STEP);
        self.look(buffers, due.min(STEP), |_| {});
        self.clients.iter().try_for_each(Client::check)
    }

    /// Waits up to `timeout` for datagrams, and runs every client that received some or has a timeout due. `before` is called for
    /// each client that received some, before that client sends.
    pub(super) fn look(
        &mut self,
        buffers: &mut SocketBuffers,
        timeout: Duration,
        mut before: impl FnMut((usize, &mut Client)),
    ) {
        let Self { poller, clients } = self;
        // A wait that fails ends immediately. Timeouts are handled in any case.
        let ready = poller.poll(Some(timeout)).unwrap_or_default();
        let now_ns = clock::host_ns();
        for (index, client) in clients.iter_mut().enumerate() {
            let has_come = ready.readable & (1 << index) != 0;
            if has_come {
                client.receive(buffers);
                before((index, client));
            }
            if has_come || client.is_due(now_ns) {
                client.run(buffers, poller);
            }
        }
    }
}
