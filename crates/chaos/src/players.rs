//! The players of a run, all in one thread, each with its own socket. Every player sends on a lossy and on an ordered
//! channel many times per second, as a game does, and records the echoes. The runs judge the records.

use std::ops::Range;
use std::time::{Duration, Instant};

use drumfire::conditioner::{LinkConfig, LinkCounts};
use drumfire::{
    ChannelId, Client, ClientConfig, CloseReason, ConnectToken, Event, Message, PeerId, Reconnect,
    ReconnectReason, SendError, SendOptions,
};
use drumfire_tools::clock::{host_ns, now};

use crate::error::{Error, ErrorContext};
use crate::process::ServerSpec;
use crate::server::{DOWN, LOSSY, ORDERED};
use crate::traffic::{MIXED_BYTES, MessageLog, Times};

/// The longest wait for a condition. A run fails after it.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum number of ordered messages of a player without an echo.
const UNANSWERED_MAX: u64 = 64;

/// Twenty messages per second and channel.
pub(crate) const PERIOD: Duration = Duration::from_millis(50);

/// Sixty messages per second, as a game with a fast tick sends them.
const FAST_PERIOD: Duration = Duration::from_micros(16_667);

/// One player.
pub(crate) struct Player {
    pub(crate) client: Client,
    pub(crate) peer: PeerId,
    /// The echoes of unreliable messages.
    pub(crate) lossy: MessageLog,
    /// The echoes of reliable messages.
    pub(crate) ordered: MessageLog,
    /// The server's own messages. The player counts each that arrives as sent.
    pub(crate) down: MessageLog,
    /// How often the player reconnected.
    pub(crate) reconnects: u64,
    /// When the player noticed the first loss of its connection.
    pub(crate) noticed_at: Option<Instant>,
    /// The reason for the first loss of a connection.
    pub(crate) lost_by: Option<CloseReason>,
    /// The reason why the connection ended for good.
    pub(crate) ended: Option<String>,
    /// Whether the player neither sends nor receives.
    pub(crate) is_paused: bool,
    /// Whether another worker serves the player than the one that the run disturbs.
    pub(crate) is_elsewhere: bool,
    /// The largest datagram on the path to the server, from the newest statistics. 0 while they are awaited.
    pub(crate) datagram_max_bytes: u16,
}

/// All players of a run.
pub(crate) struct Players {
    pub(crate) list: Vec<Player>,
    pub(crate) times: PlayTimes,
    /// The settings of players that are added.
    config: ClientConfig,
    /// The sizes of their messages, in turn. Empty for `MESSAGE_BYTES`.
    sizes: &'static [usize],
    /// The time in which every player sends once, spread evenly: messages of a common burst would delay each other.
    period: Duration,
    /// The start of the current period, and the number of players that have sent in it.
    period_start: Instant,
    sent_in_period: usize,
    is_sending: bool,
}

/// The times of messages that arrived in their turn.
#[derive(Default)]
pub(crate) struct PlayTimes {
    /// The times between a message and its echo.
    pub(crate) round_trips: Times,
    /// Round trips of the players with `is_elsewhere`.
    pub(crate) elsewhere: Times,
    /// One-way times of the server's own messages.
    pub(crate) one_way: Times,
}

impl Default for Players {
    fn default() -> Self {
        Self::new(PERIOD, ClientConfig::default())
    }
}

impl Players {
    /// Returns an empty set of players. `period` is the time between two messages of a player, and `config` has its
    /// settings.
    pub(crate) fn new(period: Duration, config: ClientConfig) -> Self {
        Self {
            list: Vec::new(),
            times: PlayTimes::default(),
            config,
            sizes: &[],
            period,
            period_start: now(),
            sent_in_period: 0,
            is_sending: true,
        }
    }

    /// Returns an empty set of players that send 60 messages of mixed sizes per second.
    pub(crate) fn mixed(config: ClientConfig) -> Self {
        Self { sizes: MIXED_BYTES, ..Self::new(FAST_PERIOD, config) }
    }

    /// Returns an empty set of players that reconnect when their connection ends.
    pub(crate) fn reconnecting(config: ClientConfig) -> Self {
        Self::new(PERIOD, config.reconnect(Reconnect::Within(Duration::from_secs(30))))
    }

    /// Adds a player that begins to connect.
    pub(crate) fn add(&mut self, token: &ConnectToken) -> Result<(), Error> {
        let mut client = Client::new(self.config.clone()).context("a client")?;
        let peer = client.connect(token).context("a client")?;
        self.list.push(Player {
            client,
            peer,
            lossy: MessageLog::lossy(self.sizes),
            ordered: MessageLog::ordered(self.sizes),
            down: MessageLog::ordered(&[]),
            reconnects: 0,
            noticed_at: None,
            lost_by: None,
            ended: None,
            is_paused: false,
            is_elsewhere: false,
            datagram_max_bytes: 0,
        });
        Ok(())
    }

    /// Adds players, which begin to connect.
    pub(crate) fn add_all(&mut self, spec: &ServerSpec, mut players: Range<usize>) -> Result<(), Error> {
        players.try_for_each(|player| self.add(&spec.token(player)?))
    }

    /// Waits until each player has received an echo.
    pub(crate) fn until_answered(&mut self) -> Result<(), Error> {
        self.until("all are answered", |player| player.ordered.received > 0).map(drop)
    }

    /// Forgets round trips and reconnects.
    pub(crate) fn reset(&mut self) {
        self.times.round_trips.clear();
        self.times.elsewhere.clear();
        for player in &mut self.list {
            (player.reconnects, player.noticed_at, player.lost_by) = (0, None, None);
        }
    }

    /// Returns a sum over all players.
    pub(crate) fn sum(&self, of: impl Fn(&Player) -> u64) -> u64 {
        self.list.iter().map(of).sum()
    }

    /// Returns a sum over the simulated links of all players, in both directions.
    pub(crate) fn sum_of_links(&self, of: impl Fn(&LinkCounts) -> u64) -> u64 {
        self.sum(|player| {
            let stats = player.client.stats();
            of(&stats.inbound_link) + of(&stats.outbound_link)
        })
    }

    /// Changes the simulated links of all players, in both directions.
    pub(crate) fn set_conditioner(&mut self, config: &LinkConfig) -> Result<(), Error> {
        self.list.iter_mut().try_for_each(|player| player.client.set_conditioner(config)).context("a link")
    }

    /// Returns the number of players with a property.
    pub(crate) fn count(&self, has: impl Fn(&Player) -> bool) -> u64 {
        self.sum(|player| u64::from(has(player)))
    }

    /// Returns the number of players whose connection ended or was replaced.
    pub(crate) fn gone(&self) -> u64 {
        self.count(Player::is_gone)
    }

    /// Returns the number of reliable messages without an echo.
    pub(crate) fn reliable_missing(&self) -> u64 {
        self.sum(|player| player.ordered.missing())
    }

    /// Returns the number of unreliable messages without an echo.
    pub(crate) fn lossy_missing(&self) -> u64 {
        self.sum(|player| player.lossy.missing())
    }

    /// Returns the number of reliable echoes.
    pub(crate) fn reliable_received(&self) -> u64 {
        self.sum(|player| player.ordered.received)
    }

    /// Returns the number of the server's own messages that arrived.
    pub(crate) fn down_received(&self) -> u64 {
        self.sum(|player| player.down.received)
    }

    /// Returns the number of messages that no player should have received.
    pub(crate) fn wrong(&self) -> u64 {
        self.sum(|player| player.lossy.wrong + player.ordered.wrong + player.down.wrong)
    }

    /// Plays until every player fulfills a condition. Returns how long that took.
    pub(crate) fn until(
        &mut self,
        what: &str,
        condition: impl Fn(&Player) -> bool,
    ) -> Result<Duration, Error> {
        let outcome = self.until_any(what, |players| players.list.iter().all(&condition));
        outcome.map_err(|error| match error {
            Error::Failed(reason) => {
                let (fulfilled, all) = (self.count(condition), self.list.len());
                let ended = self.list.iter().find_map(|player| player.ended.as_deref()).unwrap_or("none");
                Error::Failed(format!("{reason}: {fulfilled} of {all}; ended: {ended}"))
            }
            unsupported @ Error::Unsupported(_) => unsupported,
        })
    }

    /// Plays until a condition holds. Returns how long that took.
    pub(crate) fn until_any(
        &mut self,
        what: &str,
        condition: impl Fn(&Self) -> bool,
    ) -> Result<Duration, Error> {
        let start = now();
        while !condition(self) {
            check_timeout(what, start)?;
            self.step();
        }
        Ok(now().duration_since(start))
    }

    /// Stops sending until every reliable echo that can arrive has arrived.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        self.is_sending = false;
        self.until("all echoes are back", |player| {
            player.ended.is_some() || player.is_paused || player.ordered.missing() == 0
        })?;
        self.resume_sending();
        Ok(())
    }

    /// Stops sending.
    pub(crate) const fn stop_sending(&mut self) {
        self.is_sending = false;
    }

    fn resume_sending(&mut self) {
        self.is_sending = true;
        (self.period_start, self.sent_in_period) = (now(), 0);
    }

    /// Only receives for `time`.
    pub(crate) fn listen(&mut self, time: Duration) {
        self.is_sending = false;
        self.play(time);
        self.resume_sending();
    }

    /// Plays for `time`.
    pub(crate) fn play(&mut self, time: Duration) {
        let start = now();
        while now().duration_since(start) < time {
            self.step();
        }
    }

    /// Lets each player take its events, and send when its turn has come.
    pub(crate) fn step(&mut self) {
        if self.is_sending {
            self.send_due();
        }
        for (index, player) in self.list.iter_mut().enumerate() {
            if player.is_paused || player.ended.is_some() {
                continue;
            }
            // Waiting on one socket keeps the thread from spinning, and costs the others at most a millisecond.
            let timeout = if index == 0 { Duration::from_millis(1) } else { Duration::ZERO };
            player.client.poll(timeout);
            let events: Vec<_> = player.client.events().collect();
            for event in events {
                player.on_event(event, &mut self.times);
            }
        }
    }

    fn send_due(&mut self) {
        let (players, elapsed) = (self.list.len(), now().duration_since(self.period_start));
        let due = elapsed.as_nanos().saturating_mul(players as u128) / self.period.as_nanos().max(1);
        let due = usize::try_from(due).map_or(players, |due| due.min(players));
        self.list.iter_mut().take(due).skip(self.sent_in_period).for_each(Player::send_both);
        self.sent_in_period = self.sent_in_period.max(due);
        if elapsed >= self.period {
            (self.period_start, self.sent_in_period) = (now(), 0);
        }
    }

    /// Returns the largest datagram on the path of each player.
    pub(crate) fn datagram_max_bytes(&mut self) -> Result<Vec<u16>, Error> {
        for player in &mut self.list {
            player.datagram_max_bytes = 0;
            player.client.request_stats(player.peer);
        }
        self.until("all know their paths", |player| player.datagram_max_bytes > 0)?;
        Ok(self.list.iter().map(|player| player.datagram_max_bytes).collect())
    }
}

/// Fails when `what` has not happened long after `start`.
pub(crate) fn check_timeout(what: &str, start: Instant) -> Result<(), Error> {
    if now().duration_since(start) <= TIMEOUT {
        return Ok(());
    }
    Err(Error::failed(what, format!("not after {} s", TIMEOUT.as_secs())))
}

impl Player {
    /// Returns whether the connection ended or was replaced.
    pub(crate) fn is_gone(&self) -> bool {
        self.ended.is_some() || self.reconnects > 0
    }

    /// Asks the application for a fault. `server::FAULT` and `server::REFUSE` describe the requests.
    pub(crate) fn request_fault(&mut self, channel: ChannelId, request: &str) -> Result<(), Error> {
        self.client
            .send(self.peer, Message::reliable_ordered(channel, request.to_owned()))
            .context("the fault")?;
        self.client.flush();
        Ok(())
    }

    fn send_both(&mut self) {
        if self.is_paused || self.ended.is_some() || !self.client.is_connected(self.peer) {
            return;
        }
        self.send(LOSSY, SendOptions::unreliable());
        if self.ordered.missing() < UNANSWERED_MAX {
            self.send(ORDERED, SendOptions::reliable_ordered());
        }
        self.client.flush();
    }

    fn send(&mut self, channel: ChannelId, options: SendOptions) {
        let log = if channel == LOSSY { &mut self.lossy } else { &mut self.ordered };
        match self.client.send(self.peer, Message::new(channel, log.next_message(host_ns()), options)) {
            Ok(_) => log.sent += 1,
            // The message was not sent, and its number goes to the next one.
            Err(SendError::Full | SendError::NotConnected) => {}
            Err(error) => self.ended = Some(error.to_string()),
        }
    }

    fn on_event(&mut self, event: Event, times: &mut PlayTimes) {
        match event {
            Event::Message { channel: DOWN, payload, .. } => {
                // The server counts how many it sent.
                self.down.sent += 1;
                self.down.on_message(&payload, host_ns()).inspect(|time| times.one_way.record(*time));
            }
            Event::Message { channel: channel @ (LOSSY | ORDERED), payload, .. } => {
                let log = if channel == LOSSY { &mut self.lossy } else { &mut self.ordered };
                if let Some(time) = log.on_message(&payload, host_ns()) {
                    times.round_trips.record(time);
                    if self.is_elsewhere {
                        times.elsewhere.record(time);
                    }
                }
            }
            Event::Reconnecting { reason, .. } => {
                self.reconnects += 1;
                self.noticed_at.get_or_insert_with(now);
                if let ReconnectReason::Ended(closed) = reason {
                    self.lost_by.get_or_insert(closed.reason);
                }
                // A new connection carries nothing over.
                for log in [&mut self.lossy, &mut self.ordered, &mut self.down] {
                    *log = log.restarted();
                }
            }
            Event::Stats { stats, .. } => self.datagram_max_bytes = stats.datagram_max_bytes,
            Event::Disconnected { closed, .. } => {
                self.noticed_at.get_or_insert_with(now);
                self.lost_by.get_or_insert(closed.reason);
                self.ended = Some(closed.reason.to_string());
            }
            Event::ConnectFailed { error, .. } => self.ended = Some(error.to_string()),
            _ => {}
        }
    }
}
