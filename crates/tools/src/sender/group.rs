//! Clients that one poller watches: connected together, and looked at together.
//!
//! What they say once they are connected is not its business.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{Parker, Poller, Socket};

use super::client::{Client, Hands, HandshakeError};
use crate::clock;
use crate::control::Sealed;

/// Clients of one group: as many as a poller watches.
pub(super) const GROUP: usize = 64;

/// A handshake gives up by itself after five seconds; what follows it is one round trip.
const PATIENCE: Duration = Duration::from_secs(8);

/// The longest wait between two looks at a handshake.
const STEP: Duration = Duration::from_millis(50);

/// Up to [`GROUP`] clients.
pub(super) struct Group {
    pub(super) poller: Poller,
    pub(super) clients: Vec<Client>,
}

impl Group {
    /// Connects a client on each of these sockets, of which there are at most [`GROUP`], and waits until the
    /// receiver has opened a packet of each and said so.
    pub(super) fn connect(
        sockets: Vec<Socket>,
        to: SocketAddr,
        sealed: &Sealed,
        hands: &mut Hands,
    ) -> Result<Self, HandshakeError> {
        let mut group = Self { poller: Poller::new()?, clients: Vec::with_capacity(sockets.len()) };
        for (index, mut socket) in sockets.into_iter().enumerate() {
            group.poller.register(&mut socket, index)?;
            group.clients.push(Client::begin(socket, to, sealed)?);
            // One after the other as far as both ends compute; what is left is waiting.
            while !group.clients.last().is_none_or(Client::is_connected) {
                group.step(hands)?;
            }
        }
        let deadline = clock::now() + PATIENCE;
        while !group.clients.iter().all(Client::is_confirmed) {
            if clock::now() >= deadline {
                let line = "the receiver does not confirm the connection".to_owned();
                return Err(HandshakeError::Failed(line));
            }
            group.step(hands)?;
        }
        Ok(group)
    }

    /// One step of connecting: waits for what comes or is due, and answers it.
    fn step(&mut self, hands: &mut Hands) -> Result<(), HandshakeError> {
        let now_ns = clock::host_ns();
        let due = self.clients.iter().map(|client| client.due_in(now_ns)).min().unwrap_or(STEP);
        self.look(hands, due.min(STEP), |_| {});
        self.clients.iter().try_for_each(Client::check)
    }

    /// Waits so long for something to come, takes it in, and runs every client to which something came or for which
    /// something is due. `before` hears which of them had something come, before it sends.
    pub(super) fn look(
        &mut self,
        hands: &mut Hands,
        timeout: Duration,
        mut before: impl FnMut((usize, &mut Client)),
    ) {
        let Self { poller, clients } = self;
        // A wait that fails ends at once; what is due is done all the same.
        let ready = poller.poll(Some(timeout)).unwrap_or_default();
        let now_ns = clock::host_ns();
        for (index, client) in clients.iter_mut().enumerate() {
            let has_come = ready.readable & (1 << index) != 0;
            if has_come {
                client.receive(hands);
                before((index, client));
            }
            if has_come || client.is_due(now_ns) {
                client.run(hands, poller);
            }
        }
    }
}
