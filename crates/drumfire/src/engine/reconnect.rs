//! Whether a client comes back by itself, when, and with what: what it decides each time a connection or an attempt ends.
//!
//! It does no I/O and begins nothing; [`Client`](crate::Client) and [`Clients`](crate::Clients) do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ChannelOptions, CloseCode, CloseReason, ConnectError, Moment, PeerId, RefuseReason,
};

use crate::base::address::check_server;
use crate::config::client::Reconnect;
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerPublicKey;
use crate::message::event::{Closed, Event, ReconnectReason};

/// The application code that goes with [`CloseCode::Shutdown`] when the server is restarted.
pub(crate) const SHUTDOWN_RESTARTS: u32 = 1;

/// The longest wait before the first attempt; before each further one it is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait before any attempt, beside what a server asks for.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A connection that lasted this long was a success; after a shorter one the waits and the time go on as before it.
const STEADY: Duration = Duration::from_secs(10);

/// How long a server may keep the token of an attempt that timed out: until it has forgotten its half of it.
const TOKEN_HELD: Duration = Duration::from_secs(10);

/// What follows the end of a connection or of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Another attempt, after a delay.
    Again { reason: ReconnectReason, attempt: u32, delay: Duration },
    /// The connection is over.
    Over(Box<Closed>),
    /// There never was a connection.
    Failed(ConnectError),
}

impl NextStep {
    /// Returns what follows for a client that does not reconnect.
    fn of(end: ReconnectReason) -> Self {
        match end {
            ReconnectReason::Ended(closed) => Self::Over(closed),
            ReconnectReason::Failed(error) => Self::Failed(error),
        }
    }

    /// Returns the event of a verdict. `next` is the id of the next attempt.
    pub(crate) fn event(self, peer: PeerId, next: PeerId) -> Event {
        match self {
            Self::Again { reason, attempt, delay } => {
                Event::Reconnecting { peer, next, reason, attempt, delay }
            }
            Self::Over(closed) => Event::Disconnected { peer, closed },
            Self::Failed(error) => Event::ConnectFailed { peer, error },
        }
    }
}

/// A source of random delays. They are not secret, but differ between clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns an independent source.
    pub(crate) const fn split(&mut self) -> Self {
        Self(self.draw())
    }

    /// Returns a random duration up to `most`.
    fn up_to(&mut self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.draw() % nanos.saturating_add(1))
    }

    /// SplitMix64.
    const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// What one connection needs to come back.
#[derive(Debug)]
pub(crate) struct ReconnectState {
    within: Duration,
    key: ServerPublicKey,
    hello: Bytes,
    /// Where the server was last, and where a refusal sent the client since.
    home: SocketAddr,
    redirected: Option<SocketAddr>,
    /// What the client began with, and what it was given since.
    token: Option<ConnectToken>,
    resume: Option<ConnectToken>,
    options: BTreeMap<ChannelId, ChannelOptions>,
    connected_at: Option<Moment>,
    /// How the last connection ended, if there ever was one.
    ended: Option<Box<Closed>>,
    /// By the application: its code and text.
    closed: Option<(u32, Bytes)>,
    timed_out_at: Option<Moment>,
    give_up_at: Moment,
    attempt: u32,
    jitter: Jitter,
}

impl ReconnectState {
    /// For a client that begins now; `None` when it is never to come back.
    pub(crate) fn new(
        policy: Reconnect,
        now: Moment,
        options: &ConnectOptions,
        jitter: Jitter,
    ) -> Option<Box<Self>> {
        let Reconnect::Within(within) = policy else { return None };
        Some(Box::new(Self {
            within,
            key: options.key,
            hello: options.hello.clone(),
            home: options.server,
            redirected: None,
            token: options.token.clone(),
            resume: None,
            options: BTreeMap::new(),
            connected_at: None,
            ended: None,
            closed: None,
            timed_out_at: None,
            give_up_at: now.after(within),
            attempt: 0,
            jitter,
        }))
    }

    /// Where the connection or the attempt leads.
    pub(crate) fn server(&self) -> SocketAddr {
        self.redirected.unwrap_or(self.home)
    }

    /// Returns the options of the next attempt.
    pub(crate) fn options_of_attempt(&self) -> ConnectOptions {
        let token = self.resume.as_ref().or(self.token.as_ref()).cloned();
        let hello = self.hello.clone();
        ConnectOptions { token, hello, ..ConnectOptions::new(self.server(), self.key) }
    }

    pub(crate) fn has_resume(&self, issued: &drumfire_proto::IssuedToken) -> bool {
        self.resume.as_ref().is_some_and(|kept| kept.issued() == issued)
    }

    /// Keeps what the server gave to come back with.
    pub(crate) fn keep_resume(&mut self, token: ConnectToken) {
        self.resume = Some(token);
    }

    /// Keeps how a channel is sent, for the connections to come.
    pub(crate) fn keep_options(&mut self, channel: ChannelId, options: ChannelOptions) {
        if options == ChannelOptions::default() {
            self.options.remove(&channel);
        } else {
            self.options.insert(channel, options);
        }
    }

    /// How channels are sent that are not as by default.
    pub(crate) fn options(&self) -> impl Iterator<Item = (ChannelId, ChannelOptions)> {
        self.options.iter().map(|(channel, options)| (*channel, *options))
    }

    /// The application closes: there is no coming back.
    pub(crate) fn on_close(&mut self, code: u32, text: &str) {
        self.closed.get_or_insert_with(|| (code, Bytes::copy_from_slice(text.as_bytes())));
    }

    pub(crate) const fn is_connected(&self) -> bool {
        self.connected_at.is_some()
    }

    pub(crate) fn on_connected(&mut self, now: Moment) {
        self.connected_at = Some(now);
        self.timed_out_at = None;
        self.home = self.server();
        self.redirected = None;
    }

    /// An attempt could not even begin.
    pub(crate) fn give_up(&mut self, error: ConnectError) -> NextStep {
        match (self.ended.take(), self.closed.take()) {
            (Some(_), Some((application_code, text))) if error == ConnectError::Closed => {
                let reason = CloseReason::Local { code: CloseCode::Application, application_code };
                NextStep::Over(Box::new(Closed::new(reason, text)))
            }
            (Some(closed), _) => NextStep::Over(Box::new(Closed { reconnect_error: Some(error), ..*closed })),
            (None, _) => NextStep::Failed(error),
        }
    }

    fn on_end(&mut self, now: Moment, end: ReconnectReason) -> NextStep {
        match end {
            ReconnectReason::Ended(closed) => {
                let lasted = self.connected_at.take().map_or(Duration::ZERO, |since| now.since(since));
                if self.ended.is_none() || lasted >= STEADY {
                    (self.attempt, self.give_up_at) = (0, now.after(self.within));
                }
                self.ended = Some(closed.clone());
                let next = is_worth_it(closed.reason).then(|| self.next(now, Duration::ZERO)).flatten();
                let Some((attempt, delay)) = next else { return NextStep::Over(closed) };
                NextStep::Again { reason: ReconnectReason::Ended(closed), attempt, delay }
            }
            ReconnectReason::Failed(error) => {
                let next = self.after(now, &error).and_then(|least| self.next(now, least));
                let Some((attempt, delay)) = next else { return self.give_up(error) };
                NextStep::Again { reason: ReconnectReason::Failed(error), attempt, delay }
            }
        }
    }

    /// How long to wait at least before the attempt after one that ended so; `None` when there is none.
    fn after(&mut self, now: Moment, error: &ConnectError) -> Option<Duration> {
        // Where it was sent to is tried once.
        let redirected = self.redirected.take();
        match error {
            // The answer may have been lost, or come too late.
            ConnectError::Timeout | ConnectError::KeysInvalidated => {
                self.timed_out_at = Some(now);
                Some(Duration::ZERO)
            }
            // A host between two networks has no address to send from.
            ConnectError::Unreachable => Some(Duration::ZERO),
            ConnectError::Refused(refusal) => match refusal.reason {
                RefuseReason::Full => Some(refusal.retry_after.unwrap_or_default()),
                RefuseReason::TryThere => {
                    // The core tells an address only when it is the server's word.
                    let address = refusal.address.filter(|address| check_server(*address).is_ok())?;
                    self.redirected = Some(address);
                    Some(refusal.retry_after.unwrap_or_default())
                }
                // The server may still hold the token for an attempt whose answer was lost.
                RefuseReason::TokenUsed => {
                    self.redirected = redirected;
                    self.timed_out_at.filter(|at| now.since(*at) < TOKEN_HELD).map(|_| Duration::ZERO)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The number of the next attempt, and the wait before it; `None` when time is up before it would begin.
    fn next(&mut self, now: Moment, least: Duration) -> Option<(u32, Duration)> {
        if self.closed.is_some() {
            return None;
        }
        let doubled = FIRST_WAIT.saturating_mul(1 << self.attempt.min(16));
        let wait = least.saturating_add(self.jitter.up_to(doubled.min(WAIT_MAX)));
        if now.after(wait) > self.give_up_at {
            return None;
        }
        self.attempt = self.attempt.saturating_add(1);
        Some((self.attempt, wait))
    }
}

/// What follows on an end, for a client that comes back or does not.
pub(crate) fn next_step(
    reconnect_state: Option<&mut ReconnectState>,
    now: impl FnOnce() -> Moment,
    end: ReconnectReason,
) -> NextStep {
    match reconnect_state {
        Some(reconnect_state) => reconnect_state.on_end(now(), end),
        None => NextStep::of(end),
    }
}

/// Whether a connection that ended so is to be had back.
fn is_worth_it(reason: CloseReason) -> bool {
    match reason {
        CloseReason::Reset
        | CloseReason::Silent
        | CloseReason::Unacknowledged
        | CloseReason::KeyLimit
        | CloseReason::KeysInvalidated
        | CloseReason::Unreachable => true,
        CloseReason::Remote { code, application_code } => {
            let restarts = code == CloseCode::Shutdown && application_code == SHUTDOWN_RESTARTS;
            restarts || code == CloseCode::KeyLimit
        }
        CloseReason::Local { .. } | CloseReason::Protocol(_) => false,
    }
}

#[cfg(test)]
mod tests;
