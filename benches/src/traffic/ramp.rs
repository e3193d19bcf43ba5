//! How connections are made before traffic begins: some at a time.

use std::time::Duration;

use drumfire_tools::clock;

use super::{Client, PAUSE, Polling, Traffic};

/// Connections that are being made at a time. They fit the receive buffer of any server.
const CONNECTING_MAX: usize = 64;

/// The time within which all connections must be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval in which established connections are polled while others connect.
const READY_POLL_NS: u64 = 100_000_000;

impl Traffic {
    /// Makes all connections. `client` begins the given number of connections that belong to one client.
    pub fn connect<C: Client>(
        &self,
        mut client: impl FnMut(usize) -> Result<C, String>,
    ) -> Result<Vec<C>, String> {
        let Self { connections, per_client, .. } = *self;
        let is_in_time = clock::within(CONNECT_TIMEOUT);
        let mut clients = Vec::<C>::new();
        let (mut begun, mut ready, mut next_ready_poll) = (0, 0, clock::host_ns());
        while begun < connections || ready < clients.len() {
            let now = clock::host_ns();
            let has_room = clients.len() - ready < CONNECTING_MAX.div_ceil(per_client);
            if begun < connections && has_room {
                let some = per_client.min(connections - begun);
                clients.push(client(some)?);
                begun += some;
            }
            let from = if now >= next_ready_poll { 0 } else { ready };
            if from == 0 {
                next_ready_poll = now + READY_POLL_NS;
            }
            for client in &mut clients[from..] {
                let now = clock::host_ns();
                client.receive(now, &mut |_, _| {})?;
                client.flush(now)?;
            }
            ready += clients[ready..].iter().take_while(|client| client.is_ready()).count();
            if !is_in_time() {
                return Err(format!("{connections} connections were not made in time"));
            }
            if self.polling == Polling::Paused {
                clock::pause(PAUSE);
            }
        }
        Ok(clients)
    }
}
