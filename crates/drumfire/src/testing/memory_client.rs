//! A client on the network of a world instead of a socket.

use drumfire_proto::{Endpoint, SingleWorker};
use drumfire_socket::Wait;

use super::memory::NetworkPort;
use super::secret;
use crate::api::client::Client;
use crate::base::error::Error;
use crate::conditioner::Random;
use crate::config::client::{ClientConfig, Reconnect};
use crate::engine::client_worker;
use crate::worker::direct::Direct;
use crate::worker::live_links::LiveLinks;
use crate::worker::pass::{Worker, WorkerParts};
use crate::worker::sessions::Sessions;
use crate::worker::transport::Transport;

impl Client {
    /// Creates a client at this port of the simulated network. All its secrets come from `random`.
    pub(crate) fn in_memory(
        config: &ClientConfig,
        port: NetworkPort,
        random: &mut Random,
    ) -> Result<Self, Error> {
        config.check()?;
        let core = config.core();
        core.check()?;
        let link = client_worker::channel(config);
        let (kind, endpoint_seed) = (config.core_client(), random.bits());
        let (mut seeds, mut later_seeds) = (Random::new(endpoint_seed), Random::new(!endpoint_seed));
        let mut endpoint = move || Endpoint::client(core.clone(), kind, secret(&mut seeds));
        // A client that does not reconnect needs no random waits. It takes no random number, so that the numbers of other clients stay the
        // same.
        let seed = if config.reconnect == Reconnect::Never { 0 } else { random.bits() };
        let sessions = Sessions::new(config, false, Random::new(seed));
        let port_parts = port.take(Wait::Notify)?;
        let transport = Transport::new(port_parts.socket, port_parts.waiter, port_parts.receiver, false)
            .over(LiveLinks::new(config.conditioner.as_ref(), || Ok(random.bits()))?);
        let worker: Worker<SingleWorker> = Worker::new(WorkerParts {
            index: 0,
            transport: transport.connected(false),
            clock: Box::new(port_parts.clock),
            endpoint: endpoint()?,
            make: Box::new(move || endpoint().ok()),
            sink: Box::new(Direct),
            link,
            ring: None,
            sessions: Some(sessions),
            sockets: None,
        });
        let seed_source = Box::new(move || Ok(secret(&mut later_seeds)));
        Ok(Self { worker: Box::new(worker), granted: None, seed_source })
    }

    /// Runs one pass, and a wait that only determines when the next one is due.
    pub(crate) fn run(&mut self) {
        self.worker.work();
        self.worker.wait(None);
    }
}
