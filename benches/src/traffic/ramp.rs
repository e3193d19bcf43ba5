//! How connections are made before traffic begins: some at a time, and at a rate that the server accepts.

use std::time::Duration;

use drumfire_tools::clock;

use super::{Client, Polling, REST, Traffic};

/// Connections that are being made at a time. They fit the receive buffer of any server.
const CONNECTING_MAX: usize = 64;

/// The interval in which established connections are polled while others connect.
const UPKEEP_NS: u64 = 100_000_000;

impl Traffic {
    /// Makes all connections. `client` begins the given number of connections that belong to one client.
    pub fn connect<C: Client>(
        &self,
        mut client: impl FnMut(usize) -> Result<C, String>,
    ) -> Result<Vec<C>, String> {
        let Self { connections, per_client, per_second, patience, .. } = *self;
        let ramp = Duration::from_secs(per_second.map_or(0, |rate| connections as u64 / rate.max(1)));
        let deadline = clock::now() + ramp + patience;
        let interval = per_second.map_or(0, |rate| per_client as u64 * 1_000_000_000 / rate.max(1));
        let mut clients = Vec::<C>::new();
        let (mut begun, mut ready, mut due, mut upkeep) = (0, 0, 0, clock::host_ns());
        while begun < connections || ready < clients.len() {
            let now = clock::host_ns();
            let has_room = clients.len() - ready < CONNECTING_MAX.div_ceil(per_client);
            if begun < connections && has_room && now >= due {
                let some = per_client.min(connections - begun);
                clients.push(client(some)?);
                begun += some;
                // Lost time is not made up for, because a server refuses connections that come too fast.
                due = now + interval;
            }
            let from = if now >= upkeep { 0 } else { ready };
            if from == 0 {
                upkeep = now + UPKEEP_NS;
            }
            for client in &mut clients[from..] {
                let now = clock::host_ns();
                client.receive(now, &mut |_, _| {})?;
                client.flush(now)?;
            }
            ready += clients[ready..].iter().take_while(|client| client.is_ready()).count();
            if clock::now() > deadline {
                return Err(format!("{connections} connections were not made in time"));
            }
            if self.polling == Polling::Rest {
                clock::pause(REST);
            }
        }
        Ok(clients)
    }
}
