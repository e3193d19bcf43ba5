//! The players of a run: all in one thread, each with a socket of its own, saying something on both channels many times a
//! second, as a game does.
//!
//! It judges nothing: what became of each is in its ledgers.

use std::ops::Range;
use std::time::{Duration, Instant};

use drumfire::{
    ChannelId, Client, ClientConfig, ClientEvent, ClientState, CloseReason, ConnectToken, SendError,
    SendOptions,
};
use drumfire_tools::clock::{host_ns, now};

use crate::ledger::Ledger;
use crate::process::{Plan, Report, ServerProcess};
use crate::serve::{DOWN, FAULT, LOSSY, ORDERED, REFUSE};
use crate::stop::{Stop, Tried};
use crate::times::Times;

/// A condition that takes this long will not come true.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often a server is asked what it counted.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Ordered messages of one player that may wait for their echo; with more it says no other.
const AHEAD: u64 = 64;

/// One player.
pub(crate) struct Player {
    pub(crate) client: Client,
    pub(crate) lossy: Ledger,
    pub(crate) ordered: Ledger,
    /// Messages of the server's own that came, and those that should not have.
    pub(crate) down: Ledger,
    /// How long the newest of them was under way.
    one_way: Option<Duration>,
    /// How often it had to begin anew, and when it first knew.
    pub(crate) again: u64,
    pub(crate) told_at: Option<Instant>,
    /// Why it is gone for good.
    pub(crate) gone: Option<String>,
    /// Whether nobody looks after it.
    pub(crate) is_asleep: bool,
    /// Whether its echoes are looked at apart, too.
    pub(crate) is_apart: bool,
    /// Bytes of the largest datagram to the server, as it said when it was asked last.
    pub(crate) datagram_max_bytes: u16,
}

/// All players.
pub(crate) struct Crowd {
    pub(crate) players: Vec<Player>,
    /// Of echoes since it was last cleared.
    pub(crate) round_trips: Times,
    /// Those of the players that are looked at apart.
    pub(crate) apart: Times,
    /// Of what the server said of its own.
    one_ways: Times,
    /// In it everybody speaks, one after the other: all at once is a burst whose last echo says nothing of the server.
    period: Duration,
    /// When this one began, and how many have spoken in it.
    began_at: Instant,
    spoken: usize,
    /// Whether they say anything.
    is_talking: bool,
}

impl Crowd {
    /// So many players with tokens of the plan; each says something on both channels once in a period.
    pub(crate) fn connect(
        plan: &Plan,
        players: usize,
        period: Duration,
        config: &ClientConfig,
    ) -> Result<Self, Stop> {
        let mut crowd = Self::begun(plan, players, period, config)?;
        crowd.until("all are answered", |player| player.ordered.heard > 0)?;
        Ok(crowd)
    }

    /// The same, while they connect and before they said anything.
    pub(crate) fn begun(
        plan: &Plan,
        players: usize,
        period: Duration,
        config: &ClientConfig,
    ) -> Result<Self, Stop> {
        let mut crowd = Self {
            players: Vec::new(),
            round_trips: Times::new()?,
            apart: Times::new()?,
            one_ways: Times::new()?,
            period,
            began_at: now(),
            spoken: 0,
            is_talking: true,
        };
        for player in 0..players {
            crowd.begin(&plan.token(player)?, config)?;
        }
        Ok(crowd)
    }

    /// These players come too, and are answered.
    pub(crate) fn join(
        &mut self,
        plan: &Plan,
        players: Range<usize>,
        config: &ClientConfig,
    ) -> Result<(), Stop> {
        for player in players {
            self.begin(&plan.token(player)?, config)?;
        }
        self.until("all are answered", |player| player.ordered.heard > 0).map(drop)
    }

    /// A player begins to connect.
    pub(crate) fn begin(&mut self, token: &ConnectToken, config: &ClientConfig) -> Result<(), Stop> {
        let client = Client::connect_with_token(token, config).tried("a client")?;
        self.players.push(Player::new(client));
        Ok(())
    }

    /// How long echoes took and who had to begin anew so far counts no more.
    pub(crate) fn forget(&mut self) {
        self.round_trips.forget();
        self.apart.forget();
        for player in &mut self.players {
            (player.again, player.told_at) = (0, None);
        }
    }

    /// The sum over all players.
    pub(crate) fn sum(&self, of: impl Fn(&Player) -> u64) -> u64 {
        self.players.iter().map(of).sum()
    }

    /// How many players are so.
    pub(crate) fn count(&self, is_so: impl Fn(&Player) -> bool) -> u64 {
        self.sum(|player| u64::from(is_so(player)))
    }

    /// What no player should have heard.
    pub(crate) fn wrong(&self) -> u64 {
        self.sum(|player| player.lossy.wrong + player.ordered.wrong + player.down.wrong)
    }

    /// Goes on until all players are so; answers how long it took.
    pub(crate) fn until(&mut self, what: &str, is_so: impl Fn(&Player) -> bool) -> Result<Duration, Stop> {
        let outcome = self.until_any(what, |crowd| crowd.players.iter().all(&is_so));
        outcome.map_err(|why| match why {
            Stop::Failed(why) => {
                let (so, all) = (self.count(is_so), self.players.len());
                let gone = self.players.iter().find_map(|player| player.gone.as_deref()).unwrap_or("nobody");
                Stop::Failed(format!("{why}: {so} of {all}; gone: {gone}"))
            }
            needs => needs,
        })
    }

    /// Goes on until the server counted this.
    pub(crate) fn until_server(
        &mut self,
        what: &str,
        server: &mut ServerProcess,
        is_so: impl Fn(&Report) -> bool,
    ) -> Result<Report, Stop> {
        let start = now();
        loop {
            let report = server.report()?;
            if is_so(&report) {
                return Ok(report);
            }
            if now().duration_since(start) > PATIENCE {
                return Err(Stop::failed(what, format!("not after {} s", PATIENCE.as_secs())));
            }
            self.go_on(LOOK_EVERY);
        }
    }

    /// Goes on until something is so; answers how long it took.
    pub(crate) fn until_any(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<Duration, Stop> {
        let start = now();
        while !is_so(self) {
            if now().duration_since(start) > PATIENCE {
                return Err(Stop::failed(what, format!("not after {} s", PATIENCE.as_secs())));
            }
            self.step();
        }
        Ok(now().duration_since(start))
    }

    /// Says nothing any more, and goes on until everything ordered came back that can.
    pub(crate) fn settle(&mut self) -> Result<(), Stop> {
        self.is_talking = false;
        self.until("everything came back", |player| {
            player.gone.is_some() || player.is_asleep || player.ordered.missing() == 0
        })?;
        self.talk();
        Ok(())
    }

    /// From now on nobody says anything.
    pub(crate) const fn hush(&mut self) {
        self.is_talking = false;
    }

    /// Takes in what comes for so long, and says nothing.
    pub(crate) fn rest(&mut self, time: Duration) {
        self.is_talking = false;
        self.go_on(time);
        self.talk();
    }

    /// Goes on for so long.
    pub(crate) fn go_on(&mut self, time: Duration) {
        let start = now();
        while now().duration_since(start) < time {
            self.step();
        }
    }

    /// Everybody takes in what there is, and speaks when it is time.
    pub(crate) fn step(&mut self) {
        if self.is_talking {
            self.speak();
        }
        for at in 0..self.players.len() {
            let player = &mut self.players[at];
            if player.is_asleep || player.gone.is_some() {
                continue;
            }
            if at == 0 {
                // Nobody sleeps: one socket waits for all.
                player.client.wait(Duration::from_millis(1));
            }
            for event in player.client.poll() {
                if let Some(time) = player.note(event) {
                    self.round_trips.note(time);
                    if player.is_apart {
                        self.apart.note(time);
                    }
                }
                if let Some(time) = player.one_way.take() {
                    self.one_ways.note(time);
                }
            }
        }
    }

    /// From now on everybody speaks in turn, as if nobody had been quiet.
    fn talk(&mut self) {
        self.is_talking = true;
        (self.began_at, self.spoken) = (now(), 0);
    }

    /// Those speak whose turn has come.
    fn speak(&mut self) {
        let (players, passed) = (self.players.len(), now().duration_since(self.began_at));
        let due = passed.as_nanos().saturating_mul(players as u128) / self.period.as_nanos().max(1);
        let due = usize::try_from(due).map_or(players, |due| due.min(players));
        self.players.iter_mut().take(due).skip(self.spoken).for_each(Player::speak);
        self.spoken = self.spoken.max(due);
        if passed >= self.period {
            (self.began_at, self.spoken) = (now(), 0);
        }
    }

    /// Asks all players how large datagrams their paths carry.
    pub(crate) fn datagram_max_bytes(&mut self) -> Result<Vec<u16>, Stop> {
        for player in &mut self.players {
            player.datagram_max_bytes = 0;
            player.client.request_stats();
        }
        self.until("all said what their paths carry", |player| player.datagram_max_bytes > 0)?;
        Ok(self.players.iter().map(|player| player.datagram_max_bytes).collect())
    }

    /// The time that this share of the server's messages kept, in percent.
    pub(crate) fn one_way(&self, percent: f64) -> Duration {
        self.one_ways.percentile(percent)
    }

    /// From now on what is said has these sizes; nothing may have been said before.
    pub(crate) fn set_sizes(&mut self, sizes: &'static [usize]) {
        for player in &mut self.players {
            (player.lossy, player.ordered) = (Ledger::lossy().sizes(sizes), Ledger::ordered().sizes(sizes));
        }
    }

    /// The time that this share of echoes kept, in percent.
    pub(crate) fn round_trip(&self, percent: f64) -> Duration {
        self.round_trips.percentile(percent)
    }
}

impl Player {
    fn new(client: Client) -> Self {
        Self {
            client,
            lossy: Ledger::lossy(),
            ordered: Ledger::ordered(),
            down: Ledger::ordered(),
            one_way: None,
            again: 0,
            told_at: None,
            gone: None,
            is_asleep: false,
            is_apart: false,
            datagram_max_bytes: 0,
        }
    }

    /// Says that the application is to panic, in this call of it; [`FAULT`] knows which.
    pub(crate) fn ask_for_a_fault(&mut self, call: &'static str) -> Result<(), Stop> {
        self.client.send(FAULT, call, SendOptions::reliable_ordered()).map(drop).tried("the fault")?;
        self.client.flush();
        Ok(())
    }

    /// Says that the system is to answer calls of the player's worker with this error; `sockets` is what [`REFUSE`] knows.
    pub(crate) fn ask_for_errors(&mut self, errno: i32, sockets: &str, calls: &str) -> Result<(), Stop> {
        let text = format!("{errno} {sockets} {calls}");
        self.client.send(REFUSE, text, SendOptions::reliable_ordered()).map(drop).tried("the errors")?;
        self.client.flush();
        Ok(())
    }

    fn speak(&mut self) {
        if self.is_asleep || self.gone.is_some() || self.client.state() != ClientState::Connected {
            return;
        }
        self.say(LOSSY, SendOptions::unreliable());
        if self.ordered.missing() < AHEAD {
            self.say(ORDERED, SendOptions::reliable_ordered());
        }
        self.client.flush();
    }

    fn say(&mut self, channel: ChannelId, options: SendOptions) {
        let ledger = if channel == LOSSY { &mut self.lossy } else { &mut self.ordered };
        match self.client.send(channel, ledger.next(host_ns()), options) {
            Ok(_) => ledger.on_said(),
            // What does not fit, or has no connection, was not said.
            Err(SendError::Full | SendError::NotConnected) => {}
            Err(error) => self.gone = Some(error.to_string()),
        }
    }

    /// Takes an event in; answers how long an echo was under way.
    fn note(&mut self, event: ClientEvent) -> Option<Duration> {
        match event {
            ClientEvent::Message { channel: LOSSY, bytes } => self.lossy.hear(&bytes, host_ns()),
            ClientEvent::Message { channel: ORDERED, bytes } => self.ordered.hear(&bytes, host_ns()),
            ClientEvent::Message { channel: DOWN, bytes } => {
                // The server counts what it said.
                self.down.said += 1;
                self.one_way = self.down.hear(&bytes, host_ns());
                None
            }
            ClientEvent::Reconnecting { .. } => {
                self.again += 1;
                self.told_at.get_or_insert_with(now);
                // Nothing of what was said is carried over.
                for ledger in [&mut self.lossy, &mut self.ordered, &mut self.down] {
                    *ledger = ledger.anew();
                }
                None
            }
            ClientEvent::Stats { stats } => {
                self.datagram_max_bytes = stats.datagram_max_bytes;
                None
            }
            ClientEvent::Disconnected { reason, .. } => self.on_end(&reason),
            ClientEvent::ConnectFailed { error } => {
                self.gone = Some(error.to_string());
                None
            }
            _ => None,
        }
    }

    fn on_end(&mut self, reason: &CloseReason) -> Option<Duration> {
        self.told_at.get_or_insert_with(now);
        self.gone = Some(reason.to_string());
        None
    }
}
