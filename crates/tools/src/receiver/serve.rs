//! One run of the receiver: wait for a sender, welcome it, watch it, let the queues run dry, compare the books.
//!
//! It works beside the receiver threads and touches none of their datagrams.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use drumfire_wire::SteeringError;

use super::crew::{self, Crew, Look, StartError};
use super::ids::{self, IdMint};
use super::outcome::{Measured, Outcome};
use super::plan::Plan;
use super::watch::{Ticker, Watch};
use crate::clock;
use crate::control::{self, Channel, ControlError, Finished, Hello, ReceiverEnd, Welcome};
use crate::host;
use crate::report::Scope;

/// How long one look at the control connection takes; everything that is waited for is looked at this often.
const STEP: Duration = Duration::from_millis(20);

/// How long a sender may take from its hello to its start: thousands of sockets are made in between.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// How long a sender that was asked to stop may take to hand over its book.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// How long queues may take to run dry after the sender's last datagram.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// Ports tried when any will do: the kernel's choice for UDP may be taken for TCP.
const PORT_TRIES: u32 = 16;

/// A receiver that is bound and receiving, before a sender came.
pub struct Station {
    plan: Plan,
    crew: Crew,
    listener: TcpListener,
    mint: IdMint,
}

/// Why a run has no books.
#[derive(Debug)]
pub enum ServeError {
    /// Stopped before a sender came; strangers by name, if there were any.
    NoSender(std::collections::BTreeMap<String, u64>),
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
        let mint = IdMint::new(plan.threads)
            .map_err(|error| StartError::Setting(format!("--threads {}: {error}", plan.threads)))?;
        let filter = crew::filter(&plan, mint.secret())?;
        let mut tries = PORT_TRIES;
        loop {
            let crew = Crew::start(&plan, filter)?;
            match control::listen(crew.address()) {
                Ok(listener) => return Ok(Self { plan, crew, listener, mint }),
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

    fn session(&mut self, watch: &mut Watch<'_>) -> Result<(ReceiverEnd<TcpStream>, Measured), ServeError> {
        let (mut end, hello) = self.greet(watch)?;
        let scope = scope(&hello);
        let ids = self.mint.ids(hello.flows, self.plan.steer).map_err(ServeError::Steering)?;
        // Before the first datagram can be on its way: what the kernel drops from here on is this session's.
        let first = self.crew.look();
        self.crew.begin(std::sync::Arc::clone(&ids), scope == Scope::OneHost);
        end.welcome(Welcome {
            version: control::VERSION,
            session: ids::session_number(),
            ids: ids.to_vec(),
            stage: self.plan.stage,
            steer: self.plan.steer,
            threads: self.plan.threads,
        })?;
        let deadline = clock::now() + START_PATIENCE;
        end.wait_for_start(|| clock::now() < deadline && !(watch.is_stopped)())?;
        let started = clock::now();
        let host_start_ns = clock::host_ns();
        let ticks = host::cpu_ticks();
        let mut ticker = Ticker::new(started, &first);
        let finished = self.watch_session(&mut end, watch, &mut ticker, started)?;
        let last = self.run_dry(scope);
        ticker.finish(clock::now(), &last, watch);
        let window_ns = self.crew.last_receive_ns().saturating_sub(host_start_ns);
        let steal = host::cpu_ticks().zip(ticks).and_then(|(now, then)| now.steal_share_since(&then));
        let measured = Measured {
            hello,
            finished,
            scope,
            window: Duration::from_nanos(window_ns),
            first,
            last,
            samples: ticker.into_samples(),
            granted: self.crew.granted(),
            is_gro_on: self.crew.is_gro_on(),
            steal_share: steal,
        };
        Ok((end, measured))
    }

    /// Waits for the first sender whose hello is valid.
    fn greet(&self, watch: &mut Watch<'_>) -> Result<(ReceiverEnd<TcpStream>, Hello), ServeError> {
        let deadline = self.plan.at_most.map(|time| clock::now() + time);
        while !(watch.is_stopped)() && deadline.is_none_or(|deadline| clock::now() < deadline) {
            let Some(channel) = self.next_connection() else {
                clock::pause(STEP);
                continue;
            };
            let patience = clock::now() + START_PATIENCE;
            match ReceiverEnd::greet(channel, || clock::now() < patience && !(watch.is_stopped)()) {
                Ok(greeted) => return Ok(greeted),
                Err(error) => (watch.on_note)(&format!("a connection was turned away: {error}")),
            }
        }
        Err(ServeError::NoSender(std::collections::BTreeMap::new()))
    }

    fn next_connection(&self) -> Option<Channel<TcpStream>> {
        control::accept(&self.listener, STEP).ok().flatten().map(|(channel, _)| channel)
    }

    /// Waits for the sender's book, with a line every second; other senders are sent away meanwhile.
    fn watch_session(
        &mut self,
        end: &mut ReceiverEnd<TcpStream>,
        watch: &mut Watch<'_>,
        ticker: &mut Ticker,
        started: Instant,
    ) -> Result<Finished, ServeError> {
        let Self { crew, listener, plan, .. } = self;
        let deadline = plan.at_most.map(|time| started + time);
        let go_on = |watch: &mut Watch<'_>, ticker: &mut Ticker, crew: &mut Crew| {
            let now = clock::now();
            if ticker.is_due(now) {
                ticker.tick(now, &crew.look(), watch);
            }
            send_away(listener);
        };
        let finished = end.wait_for_finish(|| {
            go_on(watch, ticker, crew);
            !(watch.is_stopped)() && deadline.is_none_or(|deadline| clock::now() < deadline)
        });
        match finished {
            Err(ControlError::TimedOut { .. }) => {
                end.stop()?;
                let patience = clock::now() + STOP_PATIENCE;
                Ok(end.wait_for_finish(|| {
                    go_on(watch, ticker, crew);
                    clock::now() < patience
                })?)
            }
            other => Ok(other?),
        }
    }

    /// Waits until the queues are empty and nothing more arrives.
    fn run_dry(&mut self, scope: Scope) -> Look {
        let quiet_for = if scope == Scope::OneHost { STEP } else { STEP * 15 };
        let patience = clock::now() + DRAIN_PATIENCE;
        let mut last = self.crew.look();
        let mut quiet_since = clock::now();
        loop {
            clock::pause(Duration::from_millis(2));
            let look = self.crew.look();
            let now = clock::now();
            if look.received != last.received || !look.is_drained() {
                quiet_since = now;
            }
            last = look;
            if now.saturating_duration_since(quiet_since) >= quiet_for || now >= patience {
                return last;
            }
        }
    }
}

/// Tells further senders that one is being served.
fn send_away(listener: &TcpListener) {
    let Ok(Some((channel, _))) = control::accept(listener, STEP) else { return };
    if let Ok((end, _)) = ReceiverEnd::greet(channel, || false) {
        // Should it have closed the connection itself, nobody is left to tell.
        let _ =
            end.refuse("another sender is being served: wait until it is done, or start a second receiver");
    }
}

/// One host when both sides run on one kernel.
fn scope(hello: &Hello) -> Scope {
    let is_one_host = !hello.kernel_id.is_empty() && hello.kernel_id == host::kernel_id();
    if is_one_host { Scope::OneHost } else { Scope::TwoHosts }
}
