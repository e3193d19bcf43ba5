//! The worker of a client, with its socket. All kinds of clients use it.

use std::sync::Arc;

use drumfire_proto::{Endpoint, SingleWorker};
use drumfire_socket::{SocketGrants, Wait};

use crate::base::clock::SystemClock;
use crate::base::entropy;
use crate::base::error::Error;
use crate::conditioner::Random;
use crate::config::DATAGRAM_START_BYTES;
use crate::config::client::ClientConfig;
use crate::worker::channel::WorkerChannel;
use crate::worker::client_sockets::ClientSockets;
use crate::worker::pass::{Worker, WorkerParts};
use crate::worker::sessions::Sessions;
use crate::worker::sink::Sink;
use crate::worker::transport::Transport;

/// Creates the channel to the worker of a client.
pub(crate) fn channel(config: &ClientConfig) -> Arc<WorkerChannel> {
    Arc::new(WorkerChannel::new(Arc::default(), (&config.core()).into()))
}

/// Creates a client's worker and its socket. Also returns the options that the system granted to the socket.
pub(crate) fn worker(
    config: ClientConfig,
    sink: Box<dyn Sink<SingleWorker>>,
    link: &Arc<WorkerChannel>,
) -> Result<(Box<Worker<SingleWorker>>, SocketGrants), Error> {
    config.check()?;
    let (mut core, kind) = (config.core(), config.core_client());
    core.check()?;
    let (sockets, socket) = ClientSockets::new(config)?;
    let config = &sockets.config;
    let granted = socket.granted();
    // A path that fragments datagrams hides its MTU, so the endpoint must not send larger ones to discover it. Later sockets get the
    // same options on the same platform.
    if !granted.is_never_fragmented {
        core.datagram_max_bytes = DATAGRAM_START_BYTES;
    }
    let random = Random::new(u64::from_le_bytes(entropy::bytes()?));
    let mut transport = Transport::of_socket(socket, Wait::Notify, config.conditioner.as_ref(), link)?;
    if config.has_connected_socket() {
        transport = transport.connected(config.follow_network);
    }
    let worker = Worker::new(WorkerParts {
        index: 0,
        transport,
        clock: Box::new(SystemClock::start()),
        endpoint: Endpoint::client(core.clone(), kind, entropy::secret()?)?,
        make: Box::new(move || Endpoint::client(core.clone(), kind, entropy::secret().ok()?).ok()),
        sink,
        link: Arc::clone(link),
        ring: None,
        sessions: Some(Sessions::new(config, sockets.are_ipv6(), random)),
        sockets: Some(sockets),
    });
    Ok((Box::new(worker), granted))
}
