//! A server process with its clients: batches that connect, and the books at the end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire::ChannelId;
use drumfire_benches::roles::{EchoConfig, Interface};
use drumfire_benches::traffic::{Generator, Shape, Traffic};
use drumfire_benches::{Child, ClientSettings, ClientSocket, Window, close_server, count};
use drumfire_tools::clock;

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 32;

/// Channels of a connection. Its messages use them in turn.
const CHANNELS: u8 = 4;

/// The reliable one of the channels. In the report most messages are unreliable.
const RELIABLE: ChannelId = ChannelId(3);

/// Messages per client and second.
const PER_SECOND: u64 = 10;

/// Clients per socket. The receive buffer of a socket holds their datagrams while this process has no core.
pub(crate) const PER_SOCKET: usize = 125;

/// Clients that connect at the same time. They fill their sockets.
pub(crate) const BATCH: u32 = 500;

/// Attempts per second: all of a batch begin at the same time.
const AT_ONCE: u64 = 1_000_000;

/// The load runs for this long between two polls of clients that connect.
const CONNECTING: Duration = Duration::from_millis(5);

/// The clients limit a round when more than one message in ten leaves later than this.
const LATE_NS: u64 = 500_000;

/// Room for the datagrams of all clients while the server has no core.
pub(crate) const RECEIVE_BUFFER_BYTES: usize = 8 * 1_024 * 1_024;

/// A server that polls in this interval on its one thread, as the report's does.
pub(crate) fn ticking(interval: Duration, connections: u32) -> EchoConfig {
    EchoConfig {
        interval: Some(interval),
        reliable_channel: Some(RELIABLE.0),
        receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        ..EchoConfig::new(Interface::Inline, connections)
    }
}

/// A server and its clients.
pub(crate) struct Population {
    pub(crate) server: Child,
    address: SocketAddr,
    pub(crate) load: Generator<ClientSocket>,
    clients: u32,
    /// Clients that were refused.
    refused: Vec<ClientSocket>,
}

/// Traffic of this number of connections.
pub(crate) fn traffic(connections: u32) -> Traffic {
    Traffic {
        per_client: PER_SOCKET,
        channels: CHANNELS,
        late_ns: LATE_NS,
        settle: Duration::from_secs(3),
        ..Traffic::echo(Shape::Open { rate: PER_SECOND }, connections as usize, MESSAGE_BYTES)
    }
}

impl Population {
    pub(crate) fn start(config: EchoConfig, core: usize) -> Result<Self, String> {
        let (server, address) = config.start(core)?;
        let load = Generator::over(traffic(0), Vec::new());
        Ok(Self { server, address, load, clients: 0, refused: Vec::new() })
    }

    /// Connects clients in batches until there are as many as this. All of them must be accepted.
    pub(crate) fn connect(&mut self, count: u32) -> Result<(), String> {
        while self.clients < count {
            let failed = self.connect_batch(BATCH.min(count - self.clients))?;
            if !failed.is_empty() {
                return Err(format!("connects failed: {failed:?}"));
            }
        }
        Ok(())
    }

    /// Connects clients at the same time while those of the load send. They join the load if all are accepted. Returns the number of
    /// failed attempts by reason.
    pub(crate) fn connect_batch(&mut self, count: u32) -> Result<BTreeMap<String, u64>, String> {
        self.answer_with(MESSAGE_BYTES)?;
        let settings =
            ClientSettings { reliable_channel: Some(RELIABLE), ..ClientSettings::new(self.address) };
        let mut sockets = ClientSocket::bind_all(&settings, count as usize, PER_SOCKET)?;
        let load = &mut self.load;
        let send = |_| load.run(Window::beginning_at(clock::host_ns(), CONNECTING), |_| Ok(()));
        ClientSocket::attempt(&mut sockets, count as usize, AT_ONCE, send)?;
        self.load.settle()?;
        let failed = ClientSocket::failed(&sockets);
        if !failed.is_empty() {
            self.refused.extend(sockets);
            return Ok(failed);
        }
        let empty = Generator::over(traffic(0), Vec::new());
        let mut clients = std::mem::replace(&mut self.load, empty).into_clients();
        clients.extend(sockets);
        self.clients += count;
        self.load = Generator::over(traffic(self.clients), clients);
        Ok(failed)
    }

    /// Changes the length of answers.
    pub(crate) fn answer_with(&mut self, bytes: usize) -> Result<(), String> {
        self.server.send_line(&bytes.to_string())?;
        self.server.line()?;
        self.load.change(u64::from(self.clients) * PER_SECOND, bytes);
        Ok(())
    }

    /// Ends the server, and closes the books of both directions. Returns the number of clients that were dropped.
    pub(crate) fn close(self) -> Result<u64, String> {
        let mut sockets = self.load.into_clients();
        sockets.extend(self.refused);
        // A server that ends closes its connections.
        let ended: u64 = sockets.iter().map(ClientSocket::ended).sum();
        let served = close_server(self.server, &mut sockets)?;
        match count(&served, "refused") {
            0 => Ok(count(&served, "left") + ended),
            refused => Err(format!("{refused} answers found no room at the server")),
        }
    }
}
