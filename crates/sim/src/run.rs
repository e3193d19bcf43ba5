//! Runs a scenario: chaos, then calm, with every event checked as it comes and the books after every step.

mod chaos;
mod group;
mod talk;
mod turnover;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use drumfire::conditioner::{Datagram, Delay, LinkConfig, Random};
use drumfire::testing::{ClockConfig, Trouble, World};
use drumfire::{ChannelId, ChannelOptions, Event, PeerId, PlayerId};

use crate::attacker::Attacker;
use crate::books;
use crate::client::{Client, Stage};
use crate::door::Door;
use crate::guests::Guests;
use crate::hostile::HostileEnds;
use crate::ledger::{self, Class};
use crate::memory;
use crate::scenario::{Plan, Scenario};
use crate::swarm::{Covered, Doer, Excused};
use crate::toll::Toll;
use turnover::Turnover;

/// Time between two looks in the calm.
const CALM_STEP: Duration = Duration::from_millis(500);

/// Turns of hostile ends in a tick of a short scenario.
const HOSTILE_TURNS: u32 = 4;

/// In an hour the books are closed once in so many steps,
const STEPS_PER_LOOK: u64 = 4;

/// and what went to each address is looked at once in so many.
const STEPS_PER_AUDIT: u64 = 240;

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
    /// Bytes that the whole world held at a time, at most: within some kilobytes, for tables with random keys grow at other
    /// moments in every run.
    pub held_bytes: u64,
    /// What happened to the server's workers.
    pub covered: Covered,
    /// What it was put through.
    pub toll: Toll,
}

impl Outcome {
    /// All but `held_bytes`: what the seed alone decides.
    #[must_use]
    pub const fn of_the_seed(self) -> Self {
        Self { held_bytes: 0, ..self }
    }
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
    /// It is the one of an hour.
    pub is_hour: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, reason, has_swarm, is_hour } = self;
        let next = seed.saturating_add(1);
        let kind = match (has_swarm, is_hour) {
            (true, _) => "--worker ",
            (_, true) => "--long ",
            _ => "",
        };
        write!(f, "seed {seed}: {reason}\nreplay it with: cargo xtask sim {kind}--seeds {seed}..{next}")
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

/// Runs the hour of this seed.
///
/// # Errors
/// As [`run`].
pub fn run_hour(seed: u64) -> Result<Outcome, Failure> {
    run_scenario(&Scenario::of_an_hour(seed))
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
            memory::check(used.bytes_max, scenario.clients.len(), workers, scenario.is_hour)
                .map(|()| Outcome { held_bytes: used.bytes_max, ..outcome })
        })
        .map_err(|reason| {
            let (has_swarm, is_hour) = (scenario.swarm.is_some(), scenario.is_hour);
            Failure { seed: scenario.seed, reason, has_swarm, is_hour }
        })
}

struct Run<'a> {
    scenario: &'a Scenario,
    /// What each client does that is there now.
    plans: Vec<Plan>,
    world: World,
    door: Door,
    random: Random,
    clients: Vec<Client>,
    /// Who was there before.
    turnover: Turnover,
    attacker: Attacker,
    hostile: HostileEnds,
    /// Datagrams that were sent since the attacker last looked.
    seen: Vec<Datagram>,
    doer: Doer,
    /// Clients by every address they ever had, and by those from which their packets are copied.
    by_address: HashMap<SocketAddr, usize>,
    by_peer: HashMap<PeerId, usize>,
    /// Players that had their session.
    players: HashSet<PlayerId>,
    guests: Guests,
    /// Messages that were said to groups.
    said_to_groups: u64,
    rebound: u64,
    /// Two addresses that are still to be exchanged.
    swap: Option<(u64, usize)>,
    toll: Toll,
    steps: u64,
    /// The server's application does nothing.
    is_stalled: bool,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario) -> Result<Self, String> {
        let (mut world, mut door) = Door::open(scenario)?;
        for (at, plan) in scenario.clients.iter().enumerate() {
            door.admit(&mut world, at, plan)?;
        }
        let random = Random::part(scenario.seed, 2);
        let mut attacker = Attacker::new(scenario.attack, Random::part(scenario.seed, 3));
        let is_gone = |(_, plan): &(usize, &Plan)| plan.vanishes.is_some() && !scenario.is_hour;
        for (at, _) in scenario.clients.iter().enumerate().filter(is_gone) {
            attacker.watch(world.client_address(at));
        }
        let hostile = HostileEnds::new(scenario.clients.len(), Random::part(scenario.seed, 8));
        let doer = Doer::new(scenario.swarm.as_ref(), &mut world);
        let (by_address, by_peer, players) = (HashMap::new(), HashMap::new(), HashSet::new());
        let mut run = Self {
            scenario,
            plans: scenario.clients.clone(),
            world,
            door,
            random,
            clients: Vec::new(),
            turnover: Turnover::new(scenario.clients.len()),
            attacker,
            hostile,
            seen: Vec::new(),
            doer,
            by_address,
            by_peer,
            players,
            guests: Guests::default(),
            said_to_groups: 0,
            rebound: 0,
            swap: scenario.swap,
            toll: Toll { others: scenario.faults(), ..Toll::default() },
            steps: 0,
            is_stalled: false,
        };
        let client = |plan| Client::of(plan, scenario.memory_bytes.is_some());
        run.clients = scenario.clients.iter().map(client).collect();
        (0..scenario.clients.len()).try_for_each(|at| run.begin(at))?;
        // From now on the world keeps what is sent.
        run.world.take_seen();
        Ok(run)
    }

    /// A client has come to this place.
    fn begin(&mut self, at: usize) -> Result<(), String> {
        let plan = &self.plans[at];
        self.world
            .set_up(at, &plan.up)
            .and_then(|()| self.world.set_down(at, &plan.down))
            .and_then(|()| self.hostile.begin(at, plan))
            .map_err(|error| error.to_string())?;
        if plan.hostile.is_some() {
            chaos::cut(&mut self.world, at, &plan.up)?;
        }
        self.note_address(at);
        Ok(())
    }

    /// Writes down where a client is now.
    fn note_address(&mut self, at: usize) {
        let address = self.world.client_address(at);
        self.by_address.insert(address, at);
        self.by_address.insert(Class::copier(address), at);
    }

    fn whole(&mut self) -> Result<Outcome, String> {
        for tick in 0..self.scenario.chaos_ticks {
            let phase = tick % self.scenario.period_ticks;
            let (silent_from, silent_until) = self.scenario.silence;
            if !(silent_from..silent_until).contains(&phase) {
                self.say(tick)?;
            }
            self.close(tick);
            self.disturb(tick)?;
            self.set_clocks(tick);
            let seen = std::mem::take(&mut self.seen);
            self.attacker.act(&mut self.world, self.scenario.cookie, seen)?;
            self.trouble(tick);
            let (stall_from, stall_until) = self.scenario.stall;
            self.is_stalled = (stall_from..stall_until).contains(&phase);
            self.doer.covered.unpolled += u64::from(self.is_stalled);
            self.step(self.scenario.tick, Some(tick))?;
            if self.scenario.is_hour {
                self.turn_over(tick)?;
            }
        }
        self.calm_down()?;
        self.judge()
    }

    /// All that went wrong is right, and everybody gets what is owed to them.
    fn calm_down(&mut self) -> Result<(), String> {
        self.is_stalled = false;
        (0..self.world.workers()).for_each(|worker| self.world.set_trouble(worker, Trouble::default()));
        let right = ClockConfig::default();
        self.world.set_server_clock(&right);
        (0..self.clients.len()).for_each(|at| self.world.set_client_clock(at, &right));
        let calm = LinkConfig::default().delay(Delay::Constant(Duration::from_millis(10)));
        self.world.set_links(&calm).map_err(|error| error.to_string())?;
        for (at, client) in self.clients.iter().enumerate() {
            self.hostile.silence(at);
            if client.has_vanished || client.is_hostile {
                chaos::cut(&mut self.world, at, &calm)?;
            }
        }
        self.guests.come(&mut self.world, self.door.tokens(), &self.clients)?;
        // A thread may stand still for longer than all else goes wrong.
        let end = self.world.elapsed().max(self.doer.stalled_until) + self.scenario.calm;
        while self.world.elapsed() < end {
            self.close(self.scenario.chaos_ticks);
            self.attacker.speak_for_the_gone(&mut self.world);
            self.seen.clear();
            self.step(CALM_STEP, None)?;
        }
        // Whoever is woken once more counts once more.
        self.world.set_server_clock(&right);
        self.step(CALM_STEP, None)
    }

    /// Lets time pass and takes in what happened; `tick` is that of the chaos.
    fn step(&mut self, time: Duration, tick: Option<u64>) -> Result<(), String> {
        let turns = if self.scenario.is_hour || tick.is_none() { 1 } else { HOSTILE_TURNS };
        for _ in 0..turns {
            self.seen.extend(self.hostile.act(&mut self.world));
            self.world.advance(time / turns);
        }
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
        for (at, client) in self.clients.iter_mut().enumerate() {
            let of_client = |reason| late(format!("client {at}: {reason}"));
            let is_deaf = tick.is_some_and(|tick| self.plans[at].deaf.contains(&tick));
            if !is_deaf {
                for event in self.world.clients[at].poll() {
                    client.on_client(event).map_err(of_client)?;
                }
            }
            self.doer.covered.unpolled += u64::from(is_deaf);
            client.check_told(!is_deaf, !self.is_stalled).map_err(of_client)?;
            if client.at_client == Stage::Connected {
                self.toll.connected += time;
            }
        }
        self.look().map_err(late)
    }

    /// Closes the books.
    fn look(&mut self) -> Result<(), String> {
        self.steps += 1;
        let (per_look, per_audit) =
            if self.scenario.is_hour { (STEPS_PER_LOOK, STEPS_PER_AUDIT) } else { (1, 1) };
        if self.steps.is_multiple_of(per_look) {
            if self.scenario.is_clean {
                books::check_clean(&self.world)?;
            }
            books::check(&self.world, self.turnover.gone())?;
        }
        if self.steps.is_multiple_of(per_audit) {
            ledger::check(&self.world, self.scenario.cookie, &self.attacker)?;
        }
        Ok(())
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
            | Event::Missed { peer, .. }
            | Event::Writable { peer }
            | Event::FlightRecord { peer, .. }
            | Event::Disconnected { peer, .. } => *peer,
            other => return Err(format!("an unknown event: {other:?}")),
        };
        let at = *self.by_peer.get(&peer).ok_or("an event of a peer that was never connected")?;
        if let Event::Connected { .. } = &event {
            let plan = &self.plans[at];
            let options = ChannelOptions::default().redundancy(plan.redundancy).when_full(plan.when_full);
            for channel in (0..plan.channels).map(ChannelId) {
                self.world.server.set_channel_options(peer, channel, options);
                self.world.clients[at].set_channel_options(channel, options);
            }
        }
        self.clients[at].on_server(event).map_err(|reason| format!("the server, of client {at}: {reason}"))
    }

    /// What must hold in the end.
    fn judge(&mut self) -> Result<Outcome, String> {
        let gone = self.turnover.gone();
        books::close(&self.world, gone).map_err(|reason| format!("in the end: {reason}"))?;
        self.doer.judge()?;
        for at in 0..self.clients.len() {
            self.count(at).map_err(|reason| format!("in the end, {reason}"))?;
        }
        self.toll.take(&self.world, self.turnover.gone());
        self.toll.hostile = self.attacker.sent();
        self.toll.others += self.rebound;
        self.toll.handshakes += self.clients.len() as u64 + self.guests.count();
        let outcome = Outcome {
            trace: self.world.trace(),
            rebound: self.rebound,
            attacks: self.attacker.sent(),
            covered: Covered { said_to_groups: self.said_to_groups, ..self.doer.covered(&self.world) },
            toll: self.toll,
            ..self.turnover.outcome()
        };
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
