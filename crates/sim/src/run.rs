//! Runs a scenario: chaos, then calm, with every event checked as it comes and the books after every step.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Random};
use drumfire::testing::{ClockConfig, Trouble, World};
use drumfire::{ChannelId, ChannelOptions, Event, Mode, PeerId, PlayerId, Priority, SendError, SendOptions};

use crate::attacker::Attacker;
use crate::books;
use crate::client::{Client, Stage};
use crate::door;
use crate::guests::Guests;
#[cfg(feature = "hostile")]
use crate::insides;
use crate::ledger::{self, Class};
use crate::memory;
use crate::scenario::{Plan, Scenario, Side, WrongClock};
use crate::swarm::{Covered, Doer, Excused};
use crate::toll::Toll;

/// Messages one end sends in one go, at most.
const BURST_MESSAGES: u32 = 8;

/// Time between two looks in the calm.
const CALM_STEP: Duration = Duration::from_millis(500);

/// What a scenario that held came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// A hash over every datagram that was sent: when, by whom, what.
    pub trace: u64,
    /// Clients that were connected.
    pub connected: u64,
    /// Clients whose handshake came to nothing.
    pub failed: u64,
    /// Connections that were over at the end, as they should be.
    pub closed: u64,
    /// Messages that were taken for sending.
    pub sent: u64,
    /// Messages that were delivered.
    pub delivered: u64,
    /// Times that a client changed its address.
    pub rebound: u64,
    /// Datagrams of attackers.
    pub attacks: u64,
    /// Connections of which one end broke the rules.
    pub hostile: u64,
    /// Bytes that the whole world held at a time, at most.
    pub held_bytes: u64,
    /// What happened to the server's workers.
    pub covered: Covered,
    /// What it was put through.
    pub toll: Toll,
}

/// What did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// In the scenario of this seed.
    pub seed: u64,
    /// What, and when.
    pub reason: String,
    /// The scenario is the one with a swarm.
    pub has_swarm: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, reason, has_swarm } = self;
        let (next, worker) = (seed.saturating_add(1), if *has_swarm { "--worker " } else { "" });
        write!(f, "seed {seed}: {reason}\nreplay it with: cargo xtask sim {worker}--seeds {seed}..{next}")
    }
}

impl std::error::Error for Failure {}

/// Runs the scenario of this seed.
///
/// # Errors
/// The first thing that did not hold; a panic is one too.
pub fn run(seed: u64) -> Result<Outcome, Failure> {
    run_scenario(&Scenario::from_seed(seed))
}

/// Runs the scenario of this seed with several workers, and with all that goes wrong with them.
///
/// # Errors
/// As [`run`].
pub fn run_swarm(seed: u64) -> Result<Outcome, Failure> {
    run_scenario(&Scenario::with_swarm(seed))
}

/// Runs this scenario.
///
/// # Errors
/// The first thing that did not hold; a panic is one too.
pub fn run_scenario(scenario: &Scenario) -> Result<Outcome, Failure> {
    let mut outcome = Err("it did not run".to_owned());
    let used = allocation_counter::measure(|| {
        let run = catch_unwind(AssertUnwindSafe(|| Run::new(scenario)?.whole()));
        outcome = run.unwrap_or_else(|_| Err("it panicked".to_owned()));
    });
    outcome
        .and_then(|outcome| {
            let workers = scenario.swarm.as_ref().map_or(1, |swarm| swarm.workers);
            memory::check(used.bytes_max, scenario.clients.len(), workers)
                .map(|()| Outcome { held_bytes: used.bytes_max, ..outcome })
        })
        .map_err(|reason| Failure { seed: scenario.seed, reason, has_swarm: scenario.swarm.is_some() })
}

struct Run<'a> {
    scenario: &'a Scenario,
    world: World,
    random: Random,
    clients: Vec<Client>,
    attacker: Attacker,
    doer: Doer,
    /// Clients by every address they ever had, and by those from which their packets are copied.
    by_address: HashMap<SocketAddr, usize>,
    by_peer: HashMap<PeerId, usize>,
    /// Players that had their session.
    players: HashSet<PlayerId>,
    guests: Guests,
    rebound: u64,
    toll: Toll,
    /// The server's application does nothing.
    is_stalled: bool,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, String> {
        let (mut world, tokens) = door::open(scenario)?;
        for (at, plan) in scenario.clients.iter().enumerate() {
            world.set_up(at, &plan.up).map_err(|error| error.to_string())?;
            world.set_down(at, &plan.down).map_err(|error| error.to_string())?;
        }
        let clients = scenario.clients.iter().map(|_| Client::default()).collect();
        let random = Random::part(scenario.seed, 2);
        let mut attacker = Attacker::new(scenario.attack, Random::part(scenario.seed, 3));
        let is_gone = |(_, plan): &(usize, &Plan)| plan.vanishes.is_some();
        for (at, _) in scenario.clients.iter().enumerate().filter(is_gone) {
            attacker.watch(world.client_address(at));
        }
        let doer = Doer::new(scenario.swarm.as_ref(), &mut world);
        let (by_address, by_peer, players) = (HashMap::new(), HashMap::new(), HashSet::new());
        let mut run = Self {
            scenario,
            world,
            random,
            clients,
            attacker,
            doer,
            by_address,
            by_peer,
            players,
            guests: Guests::new(tokens),
            rebound: 0,
            toll: Toll { others: scenario.faults(), ..Toll::default() },
            is_stalled: false,
        };
        (0..scenario.clients.len()).for_each(|at| run.note_address(at));
        // From now on it is written down.
        run.world.take_seen();
        Ok(run)
    }

    /// Writes down where a client is now.
    fn note_address(&mut self, at: usize) {
        let address = self.world.client_address(at);
        self.by_address.insert(address, at);
        self.by_address.insert(Class::copier(address), at);
    }

    fn whole(&mut self) -> Result<Outcome, String> {
        for tick in 0..self.scenario.chaos_ticks {
            let (silent_from, silent_until) = self.scenario.silence;
            if !(silent_from..silent_until).contains(&tick) {
                self.say()?;
            }
            self.close(tick);
            self.disturb(tick)?;
            self.set_clocks(tick);
            self.attacker.act(&mut self.world, self.scenario.cookie)?;
            self.trouble(tick);
            let (stall_from, stall_until) = self.scenario.stall;
            self.is_stalled = (stall_from..stall_until).contains(&tick);
            self.doer.covered.unpolled += u64::from(self.is_stalled);
            self.step(self.scenario.tick)?;
        }
        self.is_stalled = false;
        (0..self.world.workers()).for_each(|worker| self.world.set_trouble(worker, Trouble::default()));
        let right = ClockConfig::default();
        self.world.set_server_clock(&right);
        (0..self.clients.len()).for_each(|at| self.world.set_client_clock(at, &right));
        let calm = LinkConfig::default().delay(Delay::Constant(Duration::from_millis(10)));
        self.world.set_links(&calm).map_err(|error| error.to_string())?;
        for (at, plan) in self.scenario.clients.iter().enumerate() {
            if plan.vanishes.is_some() {
                cut(&mut self.world, at, &calm)?;
            }
        }
        self.guests.come(&mut self.world, &self.clients)?;
        // A thread may stand still for longer than all else goes wrong.
        let end = self.world.elapsed().max(self.doer.stalled_until) + self.scenario.calm;
        while self.world.elapsed() < end {
            self.close(self.scenario.chaos_ticks);
            self.attacker.speak_for_the_gone(&mut self.world);
            self.step(CALM_STEP)?;
        }
        // Whoever is woken once more counts once more.
        self.world.set_server_clock(&right);
        self.step(CALM_STEP)?;
        self.judge()
    }

    /// Addresses change, and holes come and go.
    fn disturb(&mut self, tick: u64) -> Result<(), String> {
        for (at, plan) in self.scenario.clients.iter().enumerate() {
            if plan.rebind_ticks > 0 && (tick + 1).is_multiple_of(plan.rebind_ticks) {
                let before = self.world.client_address(at);
                self.world.rebind(at, SocketAddr::new(before.ip(), before.port() + 1));
                self.note_address(at);
                self.rebound += 1;
            }
            if plan.vanishes == Some(tick) {
                cut(&mut self.world, at, &plan.up)?;
                self.clients[at].is_closed = true;
            }
            let Some(hole) = plan.hole.as_ref().filter(|hole| !hole.ticks.is_empty()) else { continue };
            let through = |link: &LinkConfig| {
                if tick == hole.ticks.start {
                    Some(link.clone().datagram_max_bytes(hole.datagram_max_bytes))
                } else {
                    (tick == hole.ticks.end).then(|| link.clone())
                }
            };
            let (Some(up), Some(down)) = (through(&plan.up), through(&plan.down)) else { continue };
            self.world
                .set_up(at, &up)
                .and_then(|()| self.world.set_down(at, &down))
                .map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Workers have their troubles.
    fn trouble(&mut self, tick: u64) {
        let Some(swarm) = &self.scenario.swarm else { return };
        let is_there = |client: &&Client| client.at_server == Stage::Connected;
        let peers: Vec<_> = self.clients.iter().filter(is_there).filter_map(|client| client.peer).collect();
        for excused in self.doer.act(swarm, tick, &mut self.world, &mut self.random, &peers) {
            self.excuse(excused);
        }
    }

    /// These connections may end from now on.
    fn excuse(&mut self, excused: Excused) {
        for client in &mut self.clients {
            client.may_end |= match excused {
                Excused::Worker(worker) => client.peer.is_none_or(|peer| peer.worker() == worker),
                Excused::Peer(peer) => client.peer == Some(peer),
                Excused::Everybody => true,
            };
        }
    }

    /// Clocks go wrong, and right again.
    fn set_clocks(&mut self, tick: u64) {
        let due = |clock: &Option<WrongClock>| {
            let WrongClock { tick: from, ticks, config } = (*clock)?;
            if tick == from { Some(config) } else { (tick == from + ticks).then(ClockConfig::default) }
        };
        if let Some(config) = due(&self.scenario.clock) {
            self.world.set_server_clock(&config);
        }
        for (at, plan) in self.scenario.clients.iter().enumerate() {
            if let Some(config) = due(&plan.clock) {
                self.world.set_client_clock(at, &config);
            }
        }
    }

    /// Everybody sends what the dice say.
    fn say(&mut self) -> Result<(), String> {
        for (at, plan) in self.scenario.clients.iter().enumerate() {
            for _ in 0..BURST_MESSAGES {
                if !self.random.happens(plan.rate) {
                    break;
                }
                self.say_one(at, plan, Side::Client)?;
                // Who takes no events does not know who is there.
                if !self.is_stalled {
                    self.say_one(at, plan, Side::Server)?;
                }
            }
        }
        Ok(())
    }

    fn say_one(&mut self, at: usize, plan: &Plan, by: Side) -> Result<(), String> {
        let client = &mut self.clients[at];
        let channel = ChannelId(u16::try_from(self.random.below(plan.channels.into())).unwrap_or(0));
        let length = self.random.below(plan.message_max_bytes as u64 + 1);
        let is_reliable = self.random.happens(plan.reliable);
        let mode = match (is_reliable, self.random.below(4)) {
            (true, 0) => Mode::ReliableUnordered,
            (true, 1) => Mode::ReliableSequenced,
            (true, 2) => Mode::ReliableLatest,
            (true, _) => Mode::ReliableOrdered,
            (false, 0) => Mode::UnreliableSequenced,
            (false, _) => Mode::Unreliable,
        };
        let classes = [Priority::Urgent, Priority::Normal, Priority::Low, Priority::Bulk];
        let class = usize::try_from(self.random.below(8)).unwrap_or(1);
        let priority = classes.get(class).copied().unwrap_or_default();
        let mut options = SendOptions::new(mode).priority(priority);
        if mode == Mode::ReliableLatest {
            options.key = self.random.below(20);
        }
        let length = usize::try_from(length).unwrap_or(0).min(mode.message_max_bytes());
        if self.random.below(8) == 0 {
            options = options.lifetime(Duration::from_millis(self.random.below(600)));
        }
        if self.random.below(8) == 0 {
            options = options.with_receipt();
        }
        let (flow, stage) = match by {
            Side::Client => (&mut client.up, client.at_client),
            Side::Server => (&mut client.down, client.at_server),
        };
        let bytes = flow.next(options, length, &mut self.random);
        let answer = match (by, client.peer) {
            (Side::Client, _) => self.world.clients[at].send(channel, bytes.clone(), options),
            (Side::Server, Some(peer)) => self.world.server.send(peer, channel, bytes.clone(), options),
            (Side::Server, None) => return Ok(()),
        };
        let is_over = client.is_closed || client.may_end || matches!(stage, Stage::Failed | Stage::Over);
        match answer {
            Ok(receipt) => flow.on_sent(channel.0, options, bytes, receipt),
            Err(SendError::Full) => flow.on_refused(),
            Err(SendError::UnknownPeer | SendError::Closed) if is_over => {}
            Err(error) => return Err(format!("{by:?} {at} at {stage:?} cannot send: {error}")),
        }
        Ok(())
    }

    /// Closes what is to be closed in this tick, or was to be and could not.
    fn close(&mut self, tick: u64) {
        for (at, plan) in self.scenario.clients.iter().enumerate() {
            let client = &mut self.clients[at];
            let Some(closing) = plan.closing.filter(|closing| closing.tick <= tick && !client.is_closed)
            else {
                continue;
            };
            client.is_closed = match (closing.by, client.peer) {
                (Side::Client, _) => self.world.clients[at].close(7, "bye").is_ok(),
                (Side::Server, Some(peer)) => self.world.server.close(peer, 8, "out").is_ok(),
                (Side::Server, None) => false,
            };
        }
    }

    /// Lets time pass and takes in what happened.
    fn step(&mut self, time: Duration) -> Result<(), String> {
        self.world.advance(time);
        let now = self.world.elapsed();
        let late = |reason| format!("after {now:?}: {reason}");
        // Of a server with one worker the application does the work, here.
        let events = if self.is_stalled { None } else { Some(self.world.server.poll()) };
        for worker in self.doer.began_anew(&self.world).map_err(late)? {
            self.excuse(Excused::Worker(worker));
        }
        for event in events.into_iter().flatten() {
            self.on_server(event).map_err(late)?;
        }
        for at in 0..self.clients.len() {
            for event in self.world.clients[at].poll() {
                self.clients[at].on_client(event).map_err(|reason| late(format!("client {at}: {reason}")))?;
            }
        }
        let is_heard = !self.is_stalled;
        for (at, client) in self.clients.iter_mut().enumerate() {
            client.check_told(is_heard).map_err(|reason| late(format!("client {at}: {reason}")))?;
            if client.at_client == Stage::Connected {
                self.toll.connected += time;
            }
        }
        #[cfg(feature = "hostile")]
        {
            insides::turn_hostile(&mut self.world, self.scenario, &mut self.clients);
            insides::check(&mut self.world, &self.clients).map_err(late)?;
        }
        if self.scenario.is_clean {
            books::check_clean(&self.world).map_err(late)?;
        }
        books::check(&self.world).map_err(late)?;
        ledger::check(&self.world, self.scenario.cookie, &self.attacker).map_err(late)
    }

    fn on_server(&mut self, event: Event) -> Result<(), String> {
        let peer = match &event {
            Event::Connected { peer, address, player } => {
                if let Some(player) = player
                    && !self.players.insert(player.id)
                {
                    return Err(format!("a second session by one token, of {:?}", player.id));
                }
                if player.is_some() != self.scenario.has_tokens {
                    return Err("a player that is none, or the other way round".to_owned());
                }
                if self.guests.has(*address) {
                    return Err("a token whose session was over opened another".to_owned());
                }
                let at = self.by_address.get(address).ok_or("a client from nowhere is connected")?;
                if self.by_peer.insert(*peer, *at).is_some() {
                    return Err(format!("the id of client {at} had an owner before"));
                }
                *peer
            }
            Event::Message { peer, .. }
            | Event::Receipt { peer, .. }
            | Event::Skipped { peer, .. }
            | Event::Writable { peer }
            | Event::FlightRecord { peer, .. }
            | Event::Disconnected { peer, .. } => *peer,
            other => return Err(format!("an unknown event: {other:?}")),
        };
        let at = *self.by_peer.get(&peer).ok_or("an event of a peer that was never connected")?;
        if let Event::Connected { .. } = &event {
            let plan = &self.scenario.clients[at];
            #[cfg(feature = "hostile")]
            insides::on_connected(&mut self.world, at, peer, plan);
            let options = ChannelOptions::default().redundancy(plan.redundancy);
            for channel in (0..plan.channels).map(ChannelId) {
                self.world.server.set_channel_options(peer, channel, options);
                self.world.clients[at].set_channel_options(channel, options);
            }
        }
        self.clients[at].on_server(event).map_err(|reason| format!("the server, of client {at}: {reason}"))
    }

    /// What must hold in the end.
    fn judge(&self) -> Result<Outcome, String> {
        let (trace, rebound, attacks) = (self.world.trace(), self.rebound, self.attacker.sent());
        books::close(&self.world).map_err(|reason| format!("in the end: {reason}"))?;
        self.doer.judge()?;
        let covered = self.doer.covered(&self.world);
        let mut toll = self.toll;
        toll.take(&self.world);
        toll.hostile = attacks;
        toll.others += rebound;
        toll.handshakes = self.clients.len() as u64 + self.guests.count();
        let mut outcome = Outcome { trace, rebound, attacks, covered, toll, ..Outcome::default() };
        for (at, client) in self.clients.iter().enumerate() {
            client.judge().map_err(|reason| format!("in the end, client {at}: {reason}"))?;
            let is_failed = client.at_client == Stage::Failed;
            outcome.failed += u64::from(is_failed);
            outcome.connected += u64::from(!is_failed);
            outcome.hostile += u64::from(client.is_hostile);
            outcome.closed += u64::from(client.at_client == Stage::Over);
            outcome.sent += client.up.sent() + client.down.sent();
            outcome.delivered += client.up.delivered + client.down.delivered;
        }
        let open = self.clients.iter().filter(|client| client.at_server == Stage::Connected).count();
        let counted = self.world.server.stats().connections();
        // One end that breaks the rules may have been thrown out a moment ago; its connection then still lingers. So does one whose
        // worker stood still: it takes the way to its peer for as long as that lasted, and lingers for some times that.
        let may_linger =
            |client: &&Client| (client.is_hostile || client.may_end) && client.at_server == Stage::Over;
        let lingering = self.clients.iter().filter(may_linger);
        if (open..=open + lingering.count()).contains(&counted) {
            Ok(outcome)
        } else {
            Err(format!("in the end the server has {counted} connections, and not {open}"))
        }
    }
}

/// Nothing goes through any more between a client and the server, whatever else their links do.
fn cut(world: &mut World, at: usize, link: &LinkConfig) -> Result<(), String> {
    let cut = link.clone().datagram_max_bytes(1);
    world.set_up(at, &cut).and_then(|()| world.set_down(at, &cut)).map_err(|error| error.to_string())
}
