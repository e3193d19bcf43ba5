//! A server process with its clients: batches that connect, one round of messages, and the books at the end.

use std::time::Duration;

use drumfire::ChannelId;
use drumfire_benches::roles::{EchoConfig, Interface};
use drumfire_benches::traffic::{Generator, Shape, Traffic};
use drumfire_benches::{
    Child, ClientPool, ClientSettings, ConnectOutcomes, Counts, Measured, Outcome, PLAIN, Pace, Reply,
    SocketCounters, Target, Window, close_server, count,
};
use drumfire_tools::clock;
use drumfire_tools::report::ThreadReport;

/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: usize = 32;

/// Bytes of an answer, where a part has one length.
pub(crate) const ANSWER_BYTES: usize = 64;

/// Channels of a connection. Its messages use them in turn.
pub(crate) const CHANNELS: u8 = 4;

/// The reliable one of the channels. In the report most messages are unreliable.
pub(crate) const RELIABLE: ChannelId = ChannelId(3);

/// Messages per client and second.
pub(crate) const PER_SECOND: u64 = 10;

/// Clients that connect at the same time.
pub(crate) const BATCH: u32 = 500;

/// Clients per socket. The receive buffer of a socket holds what comes for them while this process has no core.
const PER_SOCKET: u32 = 128;

/// Attempts per second: all of a batch begin at the same time.
pub(crate) const AT_ONCE: u64 = 1_000_000;

/// The load runs for this long between two polls of clients that connect.
const CONNECTING: Duration = Duration::from_millis(5);

/// The load runs this long before it is counted.
pub(crate) const WARM_UP: Duration = Duration::from_millis(200);

/// Messages that are lost with one drop of the kernel, at most: a train of 64 datagrams with several messages each.
pub(crate) const PER_DROP: u64 = 64 * 4;

/// The clients limit a round when more than one message in ten leaves later than this.
const LATE_NS: u64 = 500_000;

/// Room for what all clients send while the server has no core.
const RECEIVE_BUFFER_BYTES: usize = 8 * 1_024 * 1_024;

/// A server that polls once per tick on its one thread, as the report's does.
pub(crate) fn ticking(rate: u32, connections: u32) -> EchoConfig {
    EchoConfig { interval: Some(interval(rate)), ..server(Interface::Inline, connections) }
}

/// A server whose workers answer.
pub(crate) fn handler(workers: u16, connections: u32) -> EchoConfig {
    EchoConfig { workers, ..server(Interface::Handler, connections) }
}

/// Messages on further channels are a flood, and have no answer.
fn server(interface: Interface, connections: u32) -> EchoConfig {
    EchoConfig {
        channels: CHANNELS.into(),
        reliable_channel: Some(RELIABLE.0),
        receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        ..EchoConfig::new(interface, connections)
    }
}

/// Starts a plain UDP server that polls at this rate.
pub(crate) fn start_plain(rate: u32, core: usize) -> Result<Child, String> {
    Child::role(PLAIN, Some(core), &(Pace::Every(interval(rate)), Reply::Asked, RECEIVE_BUFFER_BYTES))
}

/// The time between two ticks at this rate per second.
fn interval(rate: u32) -> Duration {
    Duration::from_secs(1) / rate.max(1)
}

/// A server and its clients.
pub(crate) struct World {
    pub(crate) server: Child,
    pub(crate) to: Target,
    /// Batches of clients, all of [`BATCH`] clients except for the last one.
    pub(crate) load: Generator<ClientPool>,
    /// Further clients, which do not belong to the load.
    pub(crate) others: Vec<ClientPool>,
    per_second: u64,
}

/// Traffic of connections with this number per client. Without connections or messages, clients only poll.
pub(crate) fn traffic(
    connections: usize,
    per_client: usize,
    per_second: u64,
    answer_bytes: usize,
) -> Traffic {
    let is_idle = connections == 0 || per_second == 0;
    let shape = if is_idle { Shape::Idle } else { Shape::Open { rate: per_second } };
    Traffic {
        per_client,
        answer_bytes,
        channels: CHANNELS,
        late_ns: LATE_NS,
        settle: Duration::from_secs(3),
        ..Traffic::echo(shape, connections, MESSAGE_BYTES)
    }
}

impl World {
    /// Starts a server. Its clients send `per_second` messages each.
    pub(crate) fn start(config: EchoConfig, core: Option<usize>, per_second: u64) -> Result<Self, String> {
        let (server, to) = config.start(core)?;
        let load = Generator::over(traffic(0, BATCH as usize, 0, 0), Vec::new());
        Ok(Self { server, to, load, others: Vec::new(), per_second })
    }

    /// The number of clients of the load.
    pub(crate) fn clients(&self) -> u32 {
        u32::try_from(self.load.back_by_connection().len()).unwrap_or(u32::MAX)
    }

    /// Connects this number of clients in batches. All of them must be accepted.
    pub(crate) fn connect(&mut self, count: u32) -> Result<(), String> {
        while self.clients() < count {
            self.connect_batch(BATCH.min(count - self.clients()))?.check()?;
        }
        Ok(())
    }

    /// Connects clients at the same time while those of the load send. They join the load if all are accepted.
    pub(crate) fn connect_batch(&mut self, count: u32) -> Result<ConnectOutcomes, String> {
        self.answer_with(ANSWER_BYTES)?;
        let (mut pool, load) = (bind(self.to, count)?, &mut self.load);
        let outcomes = pool.connect_while(
            count.into(),
            AT_ONCE,
            |_, _| {},
            |_| load.run(Window::beginning_at(clock::host_ns(), CONNECTING), |_| Ok(())),
        )?;
        self.load.settle()?;
        if outcomes.failed_count() > 0 {
            self.others.push(pool);
            return Ok(outcomes);
        }
        let connections = (self.clients() + count) as usize;
        let traffic = traffic(connections, BATCH as usize, self.per_second, ANSWER_BYTES);
        let empty = Generator::over(traffic, Vec::new());
        let mut clients = std::mem::replace(&mut self.load, empty).into_clients();
        clients.push(pool);
        self.load = Generator::over(traffic, clients);
        Ok(outcomes)
    }

    /// Runs one window of messages, and makes the report of a server with one busy thread. `poll` is called between two polls.
    pub(crate) fn round(
        &mut self,
        counted: Duration,
        poll: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<Outcome, String> {
        self.load.measure(&self.server, (WARM_UP, counted), (true, PER_DROP), poll)
    }

    /// Changes the length of answers.
    pub(crate) fn answer_with(&mut self, bytes: usize) -> Result<(), String> {
        self.server.send_line(&bytes.to_string())?;
        self.server.line()?;
        self.load.change(u64::from(self.clients()) * self.per_second, bytes);
        Ok(())
    }

    /// The counters of all clients of the load.
    pub(crate) fn counters(&mut self) -> SocketCounters {
        self.load
            .clients()
            .iter()
            .map(ClientPool::counters)
            .fold(SocketCounters::default(), SocketCounters::plus)
    }

    /// The number of clients of the load whose connection ended.
    pub(crate) fn ended(&mut self) -> u64 {
        self.load.clients().iter().map(ClientPool::ended).sum()
    }

    /// Ends the server, and closes the books of both directions. Returns the counters of the server.
    pub(crate) fn close(self) -> Result<Counts, String> {
        let mut pools = self.load.into_clients();
        pools.extend(self.others);
        let served = close_server(self.server, &mut pools.iter_mut().collect::<Vec<_>>())?;
        match count(&served, "refused") {
            0 => Ok(served),
            refused => Err(format!("{refused} answers found no room at the server")),
        }
    }
}

/// Binds sockets for this number of clients of a server.
pub(crate) fn bind(to: Target, clients: u32) -> Result<ClientPool, String> {
    let settings = ClientSettings { reliable_channel: Some(RELIABLE), ..ClientSettings::new(to) };
    ClientPool::bind(settings, clients.div_ceil(PER_SOCKET), clients)
}

/// The share of the server's CPU time that it spent in the program, in percent. The kernel counts it in ticks of 10 ms, so only the
/// sum over all rounds says something.
pub(crate) fn program_percent(arm: &Measured) -> f64 {
    let threads = || arm.rounds.iter().flat_map(|report| &report.threads);
    let user: f64 = threads().filter_map(|thread| thread.cpu_user_s).sum();
    user / threads().filter_map(ThreadReport::cpu_s).sum::<f64>() * 100.0
}
