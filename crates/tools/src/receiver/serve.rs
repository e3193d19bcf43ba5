//! One run of the receiver: wait for a sender, welcome it, watch it, let the queues run dry, compare the books.
//!
//! It works beside the receiver threads and touches none of their datagrams.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use drumfire_socket::ReuseportGroup;
use drumfire_wire::SteeringError;

use super::crew::{self, Crew, Look, StartError};
use super::ids::{self, IdMint};
use super::outcome::{Measured, Outcome};
use super::panel::Panel;
use super::pipeline::Service;
use super::plan::Plan;
use super::watch::{Ticker, Watch};
use crate::clock;
use crate::control::{self, Arrival, ControlError, ControlPort, Finished, ReceiverEnd, Sealed, Welcome};
use crate::host::{self, InterfaceWatch};
use crate::limits::{DESCRIPTORS_PER_THREAD, OTHER_DESCRIPTORS};
use crate::report::Scope;

/// How long one look at the control connection takes; everything that is waited for is looked at this often.
const STEP: Duration = Duration::from_millis(20);

/// How long a sender may take from its hello to its start: thousands of sockets are made in between.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// How long a sender that was asked to stop may take to hand over its book.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take where it waits for acks of its messages first: longer than it waits for them.
const SETTLE_PATIENCE: Duration = Duration::from_secs(15);

/// What further senders hear.
const BUSY: &str = "another sender is being served: wait until it is done, or start a second receiver";

/// How long queues may take to run dry after the sender's last datagram.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// Ports tried when any will do: the kernel's choice for UDP may be taken for TCP.
const PORT_TRIES: u32 = 16;

/// A receiver that is bound and receiving, before a sender came.
pub struct Station {
    plan: Plan,
    crew: Crew,
    port: ControlPort,
    mint: IdMint,
    service: Option<Service>,
}

/// Why a run has no books.
#[derive(Debug)]
pub enum ServeError {
    /// Stopped, or out of time, before a sender came; strangers by name, if there were any.
    NoSender(std::collections::BTreeMap<String, u64>),
    /// Stopped after a sender came and before it began.
    Stopped,
    /// The control connection ended before the sender's book came.
    Control(ControlError),
    /// No ids could be drawn.
    Steering(SteeringError),
    /// A receiver thread ended on its own.
    Thread(String),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoSender(_) => {
                f.write_str("no sender came: start `sender --to` this address on the other host")
            }
            Self::Stopped => f.write_str("stopped before the sender began: start both again"),
            Self::Control(error) => error.fmt(f),
            Self::Steering(error) => write!(f, "no ids for the flows: {error}"),
            Self::Thread(line) => f.write_str(line),
        }
    }
}

impl std::error::Error for ServeError {}

impl From<ControlError> for ServeError {
    fn from(error: ControlError) -> Self {
        Self::Control(error)
    }
}

impl Station {
    /// Binds the group and the control connection to one port and starts the threads.
    ///
    /// # Errors
    ///
    /// [`StartError`] with what the system answered or the setting that cannot be used.
    pub fn open(plan: Plan) -> Result<Self, StartError> {
        if plan.threads as usize > ReuseportGroup::MAX_SOCKETS {
            let problem = "threads cannot share a port on this platform; give --threads 1";
            return Err(StartError::Setting(format!("--threads {}: {problem}", plan.threads)));
        }
        // Where the limit stays too low, opening the sockets says so.
        let _ = host::raise_open_files(u64::from(plan.threads) * DESCRIPTORS_PER_THREAD + OTHER_DESCRIPTORS);
        let mint = IdMint::new(plan.threads)
            .map_err(|error| StartError::Setting(format!("--threads {}: {error}", plan.threads)))?;
        let filter = crew::filter(&plan, mint.secret())?;
        let steering = crew::is_steered(&plan).then(|| mint.steering());
        let service =
            plan.stage.is_sealed().then(|| Service::new(plan.suite, plan.mode, steering)).transpose();
        let service = service.map_err(StartError::Setting)?;
        let mut tries = PORT_TRIES;
        loop {
            let crew = Crew::start(&plan, filter, service.as_ref())?;
            match control::listen(crew.address()) {
                Ok(listener) => {
                    let port = ControlPort::new(listener, STEP);
                    return Ok(Self { plan, crew, port, mint, service });
                }
                Err(error) => {
                    crew.stop();
                    tries -= 1;
                    if plan.bind.port() != 0 || tries == 0 {
                        return Err(StartError::Bind(error));
                    }
                }
            }
        }
    }

    /// Where it receives, the port resolved.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.crew.address()
    }

    /// What a control socket tells of it.
    #[must_use]
    pub fn panel(&self) -> Panel {
        self.crew.panel()
    }

    /// Receives what one sender sends and closes the books with it.
    ///
    /// # Errors
    ///
    /// [`ServeError`] when there are no two books to compare.
    pub fn serve(mut self, watch: &mut Watch<'_>) -> Result<Outcome, ServeError> {
        let session = self.session(watch);
        let Self { plan, crew, .. } = self;
        let totals = crew.stop();
        let fault = totals.iter().find_map(|totals| totals.fault.map(|fault| (totals.index, fault)));
        if let Some((index, fault)) = fault {
            return Err(ServeError::Thread(format!("receiver thread {index} lost its socket: {fault}")));
        }
        match session {
            Ok((end, measured)) => {
                let outcome = Outcome::of(&plan, measured, &totals);
                end.close(outcome.control_books())?;
                Ok(outcome)
            }
            Err(ServeError::NoSender(_)) => Err(ServeError::NoSender(super::outcome::strays(&totals))),
            Err(error) => Err(error),
        }
    }

    fn session(&mut self, watch: &mut Watch<'_>) -> Result<(ReceiverEnd, Measured), ServeError> {
        let arrival = self.greet(watch)?;
        let scope = scope(&arrival, self.crew.has_drop_counts());
        let interface = InterfaceWatch::begin(arrival.own, arrival.peer);
        let Arrival { mut end, hello, .. } = arrival;
        let ids = self.mint.ids(hello.flows, self.plan.steer).map_err(ServeError::Steering)?;
        // Before the first datagram can be on its way: what the kernel drops from here on is this session's.
        let mut first = self.crew.look();
        self.crew.begin(std::sync::Arc::clone(&ids), scope != Scope::TwoHosts);
        end.welcome(Welcome {
            version: control::VERSION,
            session: ids::session_number(),
            ids: ids.to_vec(),
            stage: self.plan.stage,
            sealed: self.service.as_ref().map(|service| Sealed {
                public_key: service.public_key().into(),
                suite: self.plan.suite,
                mode: self.plan.mode,
            }),
            steer: self.plan.steer,
            threads: self.plan.threads,
        })?;
        let deadline = clock::now() + START_PATIENCE;
        let started = end.wait_for_start(|| clock::now() < deadline && !(watch.is_stopped)());
        started.map_err(|error| if (watch.is_stopped)() { ServeError::Stopped } else { error.into() })?;
        let started = clock::now();
        let host_start_ns = clock::host_ns();
        // A thread that spins was busy while the sender made its sockets, and that is no part of the window.
        first.cpu = self.crew.cpu();
        let ticks = host::cpu_ticks();
        let mut ticker = Ticker::new(self.plan.sample_interval, started, &first);
        let finished = self.watch_session(&mut end, watch, &mut ticker, started)?;
        let last = self.run_dry(scope);
        let window = Duration::from_nanos(self.crew.last_receive_ns().saturating_sub(host_start_ns));
        // The time in which nothing more came belongs to no rate.
        ticker.finish(started + window, &last, watch);
        let steal = host::cpu_ticks().zip(ticks).and_then(|(now, then)| now.steal_share_since(&then));
        let measured = Measured {
            hello,
            finished,
            scope,
            window,
            first,
            last,
            samples: ticker.into_samples(),
            granted: self.crew.granted(),
            is_gro_on: self.crew.is_gro_on(),
            interface: interface.finish(),
            steal_share: steal,
        };
        Ok((end, measured))
    }

    /// Waits for the first sender whose hello is valid.
    fn greet(&mut self, watch: &mut Watch<'_>) -> Result<Arrival, ServeError> {
        let deadline = self.plan.at_most.map(|time| clock::now() + time);
        while !(watch.is_stopped)() && deadline.is_none_or(|deadline| clock::now() < deadline) {
            if let Some(arrival) = self.port.next_sender(clock::now(), watch.on_note) {
                return Ok(arrival);
            }
            clock::pause(STEP);
        }
        Err(ServeError::NoSender(std::collections::BTreeMap::new()))
    }

    /// Waits for the sender's book, with a line every second; other senders are sent away meanwhile.
    fn watch_session(
        &mut self,
        end: &mut ReceiverEnd,
        watch: &mut Watch<'_>,
        ticker: &mut Ticker,
        started: Instant,
    ) -> Result<Finished, ServeError> {
        let Self { crew, port, plan, .. } = self;
        let deadline = plan.at_most.map(|time| started + time);
        let mut go_on = |watch: &mut Watch<'_>, ticker: &mut Ticker, crew: &mut Crew| {
            let now = clock::now();
            if ticker.is_due(now) {
                ticker.tick(now, &crew.look(), watch);
            }
            port.refuse_all(now, BUSY);
        };
        let finished = end.wait_for_finish(|| {
            go_on(watch, ticker, crew);
            !(watch.is_stopped)() && deadline.is_none_or(|deadline| clock::now() < deadline)
        });
        match finished {
            Err(ControlError::TimedOut { .. }) => {
                end.stop()?;
                let time = if plan.mode.has_messages() { SETTLE_PATIENCE } else { STOP_PATIENCE };
                let patience = clock::now() + time;
                Ok(end.wait_for_finish(|| {
                    go_on(watch, ticker, crew);
                    clock::now() < patience
                })?)
            }
            other => Ok(other?),
        }
    }

    /// Waits until the queues are empty and nothing more arrives. CPU time is the one of the last look at which
    /// something still did: to spin in the silence after it is no part of the window either.
    fn run_dry(&mut self, scope: Scope) -> Look {
        // Only where the system shows its queues an empty one says that nothing is under way.
        let quiet_for = if scope == Scope::OneHost { STEP } else { STEP * 15 };
        let patience = clock::now() + DRAIN_PATIENCE;
        let mut last = self.crew.look();
        let mut cpu = last.cpu.clone();
        let mut quiet_since = clock::now();
        loop {
            clock::pause(Duration::from_millis(2));
            let look = self.crew.look();
            let now = clock::now();
            if look.received != last.received || !look.is_drained() {
                quiet_since = now;
                cpu.clone_from(&look.cpu);
            }
            last = look;
            if now.saturating_duration_since(quiet_since) >= quiet_for || now >= patience {
                return Look { cpu, ..last };
            }
        }
    }
}

/// Whether one kernel sees every datagram: both sides name the same one, or the connection never left the host.
fn scope(arrival: &Arrival, has_drop_counts: bool) -> Scope {
    let kernel_id = &arrival.hello.kernel_id;
    let is_one_host = arrival.peer.ip().to_canonical().is_loopback()
        || !kernel_id.is_empty() && *kernel_id == host::kernel_id();
    match (is_one_host, has_drop_counts) {
        (false, _) => Scope::TwoHosts,
        (true, true) => Scope::OneHost,
        (true, false) => Scope::OneHostUncounted,
    }
}
