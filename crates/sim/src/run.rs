//! Runs a scenario: chaos, then calm. Every event is checked when it is received, and the world is checked after every
//! step.

mod admit;
mod disturb;
mod send;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Random};
use drumfire::testing::{ClockConfig, Datagram, SocketFaults, World};
use drumfire::tokens::TokenKey;
use drumfire::{ChannelId, ChannelOptions, Event, PeerId, PeerInfo, PlayerId, WhenFull};

use crate::attacker::Attacker;
use crate::checks::{self, AddressClass, ReplacedClientCounts};
use crate::client::{Client, ConnectionState};
use crate::hostile::{self, HostileEnd};
use crate::memory;
use crate::scenario::{CALM, Scenario, Side};
use crate::stats::Counts;
use crate::workers::WorkerRecords;

/// The time between two steps in the calm.
const CALM_STEP: Duration = Duration::from_millis(500);

/// In an hour, a client is replaced six seconds after it has left: its handshakes and packets may be on their way until
/// then.
const EMPTY_TICKS: u64 = 24;

/// Turns of hostile ends in a tick of a short scenario.
const HOSTILE_TURNS: u32 = 4;

/// Steps of an hour between two checks of the books, and of the amplification.
const STEPS_PER_BOOKS_CHECK: u64 = 4;
const STEPS_PER_AMPLIFICATION_CHECK: u64 = 240;

/// The result of a scenario that held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// A hash over the time, sender, and content of each datagram.
    pub trace: u64,
    /// The peak memory of the world in bytes. It varies by some kilobytes between runs, because tables with random keys
    /// grow at different times.
    pub held_bytes: u64,
    /// The number of events of each kind.
    pub counts: Counts,
}

impl Outcome {
    /// Returns the outcome without `held_bytes`, the only part that does not depend on the seed alone.
    #[must_use]
    pub fn of_the_seed(self) -> Self {
        Self { held_bytes: 0, ..self }
    }
}

/// A scenario that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// The violated requirement, and the time.
    pub reason: String,
    /// The flag of the scenario's kind.
    flag: &'static str,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, reason, flag } = self;
        let next = seed.saturating_add(1);
        write!(f, "seed {seed}: {reason}\nreplay it with: cargo xtask sim {flag}--seeds {seed}..{next}")
    }
}

impl std::error::Error for Failure {}

/// Runs a scenario.
///
/// # Errors
/// The first violated requirement, or a panic.
pub fn run(scenario: &Scenario) -> Result<Outcome, Failure> {
    let mut outcome = Err("it did not run".to_owned());
    let used = allocation_counter::measure(|| {
        let run = catch_unwind(AssertUnwindSafe(|| ScenarioRun::new(scenario)?.run()));
        outcome = run.unwrap_or_else(|_| Err("it panicked".to_owned()));
    });
    let held_bytes = used.bytes_max;
    outcome
        .and_then(|outcome| {
            memory::check_memory(held_bytes, scenario)?;
            Ok(Outcome { held_bytes, ..outcome })
        })
        .map_err(|reason| {
            let flag = match (&scenario.workers, scenario.is_hour) {
                (Some(_), _) => "--worker ",
                (_, true) => "--long ",
                _ => "",
            };
            Failure { seed: scenario.seed, reason, flag }
        })
}

struct ScenarioRun<'a> {
    scenario: &'a Scenario,
    world: World,
    /// The key that seals tokens, or `None` in open access.
    token_key: Option<TokenKey>,
    next_player: u128,
    random: Random,
    clients: Vec<Client>,
    replaced: Vec<ReplacedClientCounts>,
    attacker: Attacker,
    /// The generator of the hostile ends.
    hostile_random: Random,
    /// Datagrams that were sent since the attacker's last turn.
    seen: Vec<Datagram>,
    faults: WorkerRecords,
    /// Clients by each of their addresses, and by the sources of copies of their packets.
    by_address: HashMap<SocketAddr, usize>,
    by_peer: HashMap<PeerId, usize>,
    /// Players that have had their session.
    players: HashSet<PlayerId>,
    /// The addresses of clients with the token of a session that is over.
    returned: HashSet<SocketAddr>,
    /// Messages to groups.
    broadcasts: u64,
    /// Two clients whose addresses are to be exchanged: the tick, and the index of the first.
    swap: Option<(u64, usize)>,
    counts: Counts,
    steps: u64,
    /// Whether the server's application takes no events.
    is_stalled: bool,
}

impl<'a> ScenarioRun<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, String> {
        let (mut world, token_key) = admit::open(scenario)?;
        let count = scenario.clients.len();
        let faults = WorkerRecords::new(scenario.workers.as_ref(), &mut world);
        let mut run = Self {
            scenario,
            world,
            token_key,
            next_player: 0,
            random: Random::part(scenario.seed, 2),
            clients: Vec::new(),
            replaced: vec![ReplacedClientCounts::default(); count],
            attacker: Attacker::new(scenario.attack, Random::part(scenario.seed, 3)),
            hostile_random: Random::part(scenario.seed, 8),
            seen: Vec::new(),
            faults,
            by_address: HashMap::new(),
            by_peer: HashMap::new(),
            players: HashSet::new(),
            returned: HashSet::new(),
            broadcasts: 0,
            swap: scenario.swap,
            counts: Counts::default(),
            steps: 0,
            is_stalled: false,
        };
        for (at, plan) in scenario.clients.iter().enumerate() {
            run.admit(at, plan.clone())?;
            if plan.vanishes.is_some() && !scenario.is_hour {
                run.attacker.vanishing.insert(run.world.client_address(at));
            }
        }
        (0..count).try_for_each(|at| run.begin(at))?;
        // The world records datagrams from the first call on.
        run.world.take_captured();
        Ok(run)
    }

    /// Sets up the links and the hostile end of a new client.
    fn begin(&mut self, at: usize) -> Result<(), String> {
        let client = &mut self.clients[at];
        let plan = &client.plan;
        client.hostile = self
            .world
            .set_uplink(at, &plan.up)
            .and_then(|()| self.world.set_downlink(at, &plan.down))
            .and_then(|()| HostileEnd::begin(plan, &mut self.hostile_random))
            .map_err(|error| error.to_string())?;
        if client.hostile.is_some() {
            disturb::cut(&mut self.world, at, &plan.up)?;
        }
        self.note_address(at);
        Ok(())
    }

    /// Records the current address of a client.
    fn note_address(&mut self, at: usize) {
        let address = self.world.client_address(at);
        self.by_address.insert(address, at);
        self.by_address.insert(AddressClass::copier(address), at);
    }

    fn run(&mut self) -> Result<Outcome, String> {
        for tick in 0..self.scenario.chaos_ticks {
            let phase = tick % self.scenario.period_ticks;
            if !self.scenario.silence.contains(&phase) {
                self.send_all(tick)?;
            }
            self.close(tick);
            self.disturb(tick)?;
            self.set_clocks(tick);
            let seen = std::mem::take(&mut self.seen);
            self.attacker.act(&mut self.world, self.scenario.cookie, seen)?;
            self.inject_faults(tick);
            self.is_stalled = self.scenario.stall.contains(&phase);
            self.counts.add("ticks without a poll", self.is_stalled.into());
            self.step(self.scenario.tick, Some(tick))?;
            if self.scenario.is_hour {
                self.replace_clients(tick)?;
            }
        }
        self.run_calm()?;
        self.check_end()
    }

    /// Ends all faults, and waits until all promised messages have been delivered.
    fn run_calm(&mut self) -> Result<(), String> {
        self.is_stalled = false;
        (0..self.world.workers())
            .for_each(|worker| self.world.set_socket_faults(worker, SocketFaults::default()));
        let right = ClockConfig::default();
        self.world.set_server_clock(&right);
        (0..self.clients.len()).for_each(|at| self.world.set_client_clock(at, &right));
        let calm = LinkConfig::default().delay(Delay::Constant(Duration::from_millis(10)));
        self.world.set_links(&calm).map_err(|error| error.to_string())?;
        for (at, client) in self.clients.iter_mut().enumerate() {
            client.silence();
            if client.has_vanished || client.hostile.is_some() {
                disturb::cut(&mut self.world, at, &calm)?;
            }
        }
        self.reuse_tokens()?;
        // A stalled thread may continue later than the chaos ends.
        let end = self.world.elapsed().max(self.faults.stalled_until) + CALM;
        while self.world.elapsed() < end {
            self.close(self.scenario.chaos_ticks);
            self.attacker.send_corrupted_copies(&mut self.world);
            self.seen.clear();
            self.step(CALM_STEP, None)?;
        }
        // Setting the clock wakes the workers, which report their counters once more.
        self.world.set_server_clock(&right);
        self.step(CALM_STEP, None)
    }

    /// Advances the time, and handles all events. `tick` is the tick of the chaos, if it has not ended.
    fn step(&mut self, time: Duration, tick: Option<u64>) -> Result<(), String> {
        let turns = if self.scenario.is_hour || tick.is_none() { 1 } else { HOSTILE_TURNS };
        for _ in 0..turns {
            self.seen.extend(hostile::act(&mut self.clients, &mut self.world));
            self.world.advance(time / turns);
        }
        let now = self.world.elapsed();
        let millis = u64::try_from(time.as_millis()).unwrap_or(0);
        let at_time = |reason| format!("after {now:?}: {reason}");
        // The application drives a server with one worker in this call.
        if !self.is_stalled {
            self.world.server.poll(Duration::ZERO);
        }
        for worker in self.faults.take_restarted(&self.world).map_err(at_time)? {
            self.allow_end(Some(worker));
        }
        while let Some(event) = self.world.server.next_event() {
            self.on_server(event).map_err(at_time)?;
        }
        for (at, client) in self.clients.iter_mut().enumerate() {
            let of_client = |reason| at_time(format!("client {at}: {reason}"));
            let is_client_stalled = tick.is_some_and(|tick| client.plan.stall.contains(&tick));
            if !is_client_stalled {
                self.world.clients[at].poll(Duration::ZERO);
                while let Some(event) = self.world.clients[at].next_event() {
                    client.on_event(Side::Client, event).map_err(of_client)?;
                }
            }
            self.counts.add("ticks without a poll", is_client_stalled.into());
            client.check_receipts(!is_client_stalled, !self.is_stalled).map_err(of_client)?;
            if client.at_client == ConnectionState::Connected {
                self.counts.add(Counts::CLIENT_MS, millis);
            }
        }
        self.check().map_err(at_time)
    }

    fn check(&mut self) -> Result<(), String> {
        self.steps += 1;
        let (per_books, per_amplification) = if self.scenario.is_hour {
            (STEPS_PER_BOOKS_CHECK, STEPS_PER_AMPLIFICATION_CHECK)
        } else {
            (1, 1)
        };
        if self.steps.is_multiple_of(per_books) {
            if self.scenario.is_clean {
                checks::check_clean(&self.world)?;
            }
            checks::check_books(&self.world, &self.replaced)?;
        }
        if self.steps.is_multiple_of(per_amplification) {
            checks::check_amplification(&self.world, self.scenario.cookie, &self.attacker.proved)?;
        }
        Ok(())
    }

    fn on_server(&mut self, event: Event) -> Result<(), String> {
        let peer = event.peer();
        if let Event::Connected { info, .. } = &event {
            self.on_connected(peer, info)?;
        }
        let at = *self.by_peer.get(&peer).ok_or("an event of a peer that did not connect")?;
        let outcome = self.clients[at].on_event(Side::Server, event);
        outcome.map_err(|reason| format!("the server, of client {at}: {reason}"))
    }

    /// Checks that the server may accept this client, and sets the options of its channels.
    fn on_connected(&mut self, peer: PeerId, info: &PeerInfo) -> Result<(), String> {
        if let Some(player) = info.player
            && !self.players.insert(player)
        {
            return Err(format!("a second session by one token, of {player:?}"));
        }
        if info.player.is_some() != self.scenario.has_tokens {
            return Err("a player without a token, or a token without a player".to_owned());
        }
        if self.returned.contains(&info.address) {
            return Err("a token whose session was over opened another".to_owned());
        }
        let at = *self.by_address.get(&info.address).ok_or("a client at an unknown address connected")?;
        if self.by_peer.insert(peer, at).is_some() {
            return Err(format!("the peer id of client {at} was in use before"));
        }
        self.clients[at].peer = Some(peer);
        let plan = &self.clients[at].plan;
        let options = ChannelOptions::default().redundancy(plan.redundancy).when_full(plan.when_full);
        let to = self.world.clients[at].peers().next();
        for channel in (0..plan.channels).map(ChannelId) {
            self.world.server.set_channel_options(peer, channel, options);
            if let Some(to) = to {
                self.world.clients[at].set_channel_options(to, channel, options);
            }
        }
        Ok(())
    }

    /// Replaces clients that left long enough ago.
    fn replace_clients(&mut self, tick: u64) -> Result<(), String> {
        if self.is_stalled {
            // The server's application may not have taken the event of a connection yet.
            self.clients.iter_mut().for_each(|client| client.empty_since = None);
            return Ok(());
        }
        for at in 0..self.clients.len() {
            let client = &mut self.clients[at];
            client.revoke_end(tick);
            if !client.has_left() {
                client.empty_since = None;
            } else if tick >= *client.empty_since.get_or_insert(tick) + EMPTY_TICKS {
                self.replace(at, tick).map_err(|reason| format!("in tick {tick}, {reason}"))?;
            }
        }
        Ok(())
    }

    fn replace(&mut self, at: usize, tick: u64) -> Result<(), String> {
        self.judge_client(at)?;
        self.counts.add(Counts::HANDSHAKES, 1);
        self.replaced[at].add(&self.world.clients[at].stats());
        let plan = Scenario::new_client(self.scenario.seed, at as u64, tick, self.scenario.has_tokens);
        self.counts.add(Counts::OTHER_FAULTS, plan.faults());
        self.admit(at, plan)?;
        self.world.set_client_clock(at, &ClockConfig::default());
        self.begin(at)
    }

    /// Checks a client at its end, and counts it.
    fn judge_client(&mut self, at: usize) -> Result<(), String> {
        let (client, stats) = (&self.clients[at], self.world.clients[at].stats());
        client.check_end(&stats).map_err(|reason| format!("client {at}: {reason}"))?;
        let is_failed = client.at_client == ConnectionState::Failed;
        let counts = &mut self.counts;
        counts.add(Counts::FAILED, is_failed.into());
        counts.add(Counts::CONNECTED, (!is_failed).into());
        counts.add(Counts::HOSTILE, (client.hostile.is_some() && client.was_connected()).into());
        counts.add(Counts::CLOSED, (client.at_client == ConnectionState::Closed).into());
        counts.add(Counts::SENT, client.up.sent() + client.down.sent());
        counts.add(Counts::DELIVERED, client.up.delivered + client.down.delivered);
        counts.add("closed for want of room", client.has_overflowed.into());
        counts.add("missed for want of room", client.down.missed);
        match client.plan.when_full {
            WhenFull::DropOldest => counts.add("dropped as the oldest", stats.protocol.messages_dropped),
            WhenFull::DropNewest => counts.add("dropped as the newest", stats.protocol.messages_dropped),
            WhenFull::Block | WhenFull::Disconnect => {}
        }
        Ok(())
    }

    /// Checks what must hold at the end.
    fn check_end(&mut self) -> Result<Outcome, String> {
        let at_end = |reason| format!("at the end, {reason}");
        checks::check_final_books(&self.world, &self.replaced).map_err(at_end)?;
        self.faults.check_drain()?;
        for at in 0..self.clients.len() {
            self.judge_client(at).map_err(at_end)?;
        }
        let mut counts = std::mem::take(&mut self.counts);
        counts.add_traffic(&self.world, &self.replaced);
        self.faults.count(&self.world, &mut counts);
        counts.add(Counts::ATTACKS, self.attacker.sent);
        counts.add(Counts::OTHER_FAULTS, self.scenario.faults() + counts.of(Counts::REBOUND));
        counts.add(Counts::HANDSHAKES, self.clients.len() as u64 + self.returned.len() as u64);
        let outcome = Outcome { trace: self.world.trace(), held_bytes: 0, counts };
        let open =
            self.clients.iter().filter(|client| client.at_server == ConnectionState::Connected).count();
        let counted = self.world.server.control().stats().connections();
        // The server may have closed the connection of a hostile end a moment ago, so that it lingers. The connection of a stalled
        // worker lingers for longer, because the stall counts as the round trip to its peer.
        let may_linger = |client: &&Client| {
            (client.hostile.is_some() || client.may_end) && client.at_server == ConnectionState::Closed
        };
        let lingering = self.clients.iter().filter(may_linger).count();
        if (open..=open + lingering).contains(&counted) {
            Ok(outcome)
        } else {
            Err(format!("at the end, the server has {counted} connections, and not {open}"))
        }
    }
}
