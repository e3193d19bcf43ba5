//! The decision of a client that reconnects, at each end of a connection or an attempt: whether another attempt follows, when, and
//! with which token.
//!
//! This module does no I/O and starts no attempt. [`sessions`](super::sessions) does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{
    ChannelId, ChannelOptions, CloseCode, CloseReason, ConnectError, Moment, PeerId, RefuseReason,
};

use crate::base::address::check_server;
use crate::conditioner::Random;
use crate::config::client::Reconnect;
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerPublicKey;
use crate::message::event::{Closed, Event, ReconnectReason};

/// The application code that goes with [`CloseCode::Shutdown`] when the server is restarted.
pub(crate) const SHUTDOWN_RESTARTS: u32 = 1;

/// The longest wait before the first attempt. It doubles for each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The longest wait before any attempt, in addition to the wait that a server asks for.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The duration of a connection after which the waits and the time limit start again. After a shorter connection they continue.
const STEADY: Duration = Duration::from_secs(10);

/// The time for which a server may hold the token of an attempt that timed out, because it still has the half-open connection.
const TOKEN_HELD: Duration = Duration::from_secs(10);

/// Returns the last event of a session that ends like this, because no further attempt follows.
pub(super) fn last_event(peer: PeerId, end: ReconnectReason) -> Event {
    match end {
        ReconnectReason::Ended(closed) => Event::Disconnected { peer, closed },
        ReconnectReason::Failed(error) => Event::ConnectFailed { peer, error },
    }
}

/// The state of one session that reconnects.
#[derive(Debug)]
pub(crate) struct ReconnectState {
    within: Duration,
    key: ServerPublicKey,
    hello: Bytes,
    /// The address of the last connection, or of the first attempt.
    home: SocketAddr,
    /// The address to which a refusal redirected the next attempt.
    redirected: Option<SocketAddr>,
    /// The token of the first attempt.
    token: Option<ConnectToken>,
    options: BTreeMap<ChannelId, ChannelOptions>,
    connected_at: Option<Moment>,
    /// The end of the last connection. `None` before the first connection.
    ended: Option<Box<Closed>>,
    /// The code and the text with which the application closed the session.
    closed: Option<(u32, Bytes)>,
    timed_out_at: Option<Moment>,
    give_up_at: Moment,
    attempt: u32,
    /// The source of the waits. They are not secret, but differ between clients.
    random: Random,
}

impl ReconnectState {
    /// Creates the state of a session that begins now. `None` if the client does not reconnect.
    pub(super) fn new(
        policy: Reconnect,
        now: Moment,
        options: &ConnectOptions,
        random: &mut Random,
    ) -> Option<Box<Self>> {
        let Reconnect::Within(within) = policy else { return None };
        Some(Box::new(Self {
            within,
            key: options.key,
            hello: options.hello.clone(),
            home: options.server,
            redirected: None,
            token: options.token.clone(),
            options: BTreeMap::new(),
            connected_at: None,
            ended: None,
            closed: None,
            timed_out_at: None,
            give_up_at: now.after(within),
            attempt: 0,
            random: Random::new(random.bits()),
        }))
    }

    /// Returns the address of the connection or the attempt.
    fn server(&self) -> SocketAddr {
        self.redirected.unwrap_or(self.home)
    }

    /// Returns the options of the next attempt. `resume` is the newest token that the server issued.
    pub(super) fn options_of_attempt(&self, resume: Option<&ConnectToken>) -> ConnectOptions {
        // The server accepts a token once. The resume token is newer than the token of the first attempt, which may
        // be used up.
        let token = resume.or(self.token.as_ref()).cloned();
        let hello = self.hello.clone();
        ConnectOptions { token, hello, ..ConnectOptions::new(self.server(), self.key) }
    }

    /// Keeps the options of a channel for later connections.
    pub(super) fn keep_options(&mut self, channel: ChannelId, options: ChannelOptions) {
        if options == ChannelOptions::default() {
            self.options.remove(&channel);
        } else {
            self.options.insert(channel, options);
        }
    }

    /// Returns the options of the channels that do not have the default options.
    pub(super) fn options(&self) -> impl Iterator<Item = (ChannelId, ChannelOptions)> {
        self.options.iter().map(|(channel, options)| (*channel, *options))
    }

    /// Records that the application closes the session. No further attempt follows.
    pub(super) fn on_close(&mut self, code: u32, text: &[u8]) {
        // The first close counts, because a second one finds a connection that is already closing.
        self.closed.get_or_insert_with(|| (code, Bytes::copy_from_slice(text)));
    }

    /// Whether the application has closed the session.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    pub(super) fn on_connected(&mut self, now: Moment) {
        self.connected_at = Some(now);
        self.timed_out_at = None;
        // The server behind a redirect has accepted the client, so later attempts go there first.
        self.home = self.server();
        self.redirected = None;
    }

    /// Returns the last event of the session, whose next attempt cannot start.
    pub(super) fn give_up(&mut self, peer: PeerId, error: ConnectError) -> Event {
        match (self.ended.take(), self.closed.take()) {
            // The application has closed the session during an attempt after a connection. The reason is its own
            // close, and not a failed attempt.
            (Some(_), Some((application_code, text))) if error == ConnectError::Closed => {
                let reason = CloseReason::Local { code: CloseCode::Application, application_code };
                Event::disconnected(peer, Closed::new(reason, text))
            }
            (Some(closed), _) => {
                Event::disconnected(peer, Closed { reconnect_error: Some(error), ..*closed })
            }
            (None, _) => Event::ConnectFailed { peer, error },
        }
    }

    /// Decides what follows the end of a connection or an attempt: [`Event::Reconnecting`] if it is another attempt, or else the last
    /// event of the session.
    pub(super) fn on_end(&mut self, now: Moment, peer: PeerId, end: ReconnectReason) -> Event {
        match end {
            ReconnectReason::Ended(closed) => {
                // A short connection does not reset the delay. Otherwise, a client would connect in a tight loop to a
                // server that accepts and closes each connection.
                let lasted = self.connected_at.take().map_or(Duration::ZERO, |since| now.since(since));
                if self.ended.is_none() || lasted >= STEADY {
                    (self.attempt, self.give_up_at) = (0, now.after(self.within));
                }
                self.ended = Some(closed.clone());
                let next = should_reconnect(closed.reason).then(|| self.next(now, Duration::ZERO)).flatten();
                let Some((attempt, delay)) = next else { return Event::Disconnected { peer, closed } };
                Event::Reconnecting { peer, reason: ReconnectReason::Ended(closed), attempt, delay }
            }
            ReconnectReason::Failed(error) => {
                let next = self.after(now, &error).and_then(|least| self.next(now, least));
                let Some((attempt, delay)) = next else { return self.give_up(peer, error) };
                Event::Reconnecting { peer, reason: ReconnectReason::Failed(error), attempt, delay }
            }
        }
    }

    /// Returns the shortest wait after an attempt that failed with this error. `None` if no further attempt follows.
    fn after(&mut self, now: Moment, error: &ConnectError) -> Option<Duration> {
        // The address of a redirect is tried once.
        let redirected = self.redirected.take();
        match error {
            // The answer may have been lost, or may have arrived too late.
            ConnectError::Timeout | ConnectError::KeysInvalidated => self.after_no_answer(now),
            // An attacker on the path may have written the refusal. Neither its reason nor its time may stop the attempts
            // (PROTOCOL 16, "Refuse"). A refusal for the version is never proved.
            ConnectError::VersionMismatch { .. } => self.after_no_answer(now),
            ConnectError::Refused(refusal) if !refusal.is_proved => self.after_no_answer(now),
            // A host between two networks has no address to send from.
            ConnectError::Unreachable => Some(Duration::ZERO),
            ConnectError::Refused(refusal) => match refusal.reason {
                RefuseReason::Full => Some(refusal.retry_after.unwrap_or_default()),
                RefuseReason::Redirect => {
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

    /// Returns the shortest wait after an attempt of which the server's answer is not known.
    const fn after_no_answer(&mut self, now: Moment) -> Option<Duration> {
        self.timed_out_at = Some(now);
        Some(Duration::ZERO)
    }

    /// Returns the number of the next attempt and the wait before it. `None` if it would begin too late.
    fn next(&mut self, now: Moment, least: Duration) -> Option<(u32, Duration)> {
        if self.closed.is_some() {
            return None;
        }
        // The delay is random between zero and a bound that doubles ("full jitter"). After a restart of the server,
        // its clients then return at different times. The exponent is limited only to keep the shift in range,
        // because the bound reaches `WAIT_MAX` long before.
        let doubled = FIRST_WAIT.saturating_mul(1 << self.attempt.min(16));
        // The delay is added to the wait of a full server, because all refused clients may have received the same
        // wait.
        let wait = least.saturating_add(self.random.duration(doubled.min(WAIT_MAX)));
        if now.after(wait) > self.give_up_at {
            return None;
        }
        self.attempt = self.attempt.saturating_add(1);
        Some((self.attempt, wait))
    }
}

/// Returns whether a client reconnects after an end with this reason.
fn should_reconnect(reason: CloseReason) -> bool {
    match reason {
        // The path or the server may work again, and a new connection has new keys.
        CloseReason::Reset
        | CloseReason::IdleTimeout
        | CloseReason::Unacknowledged
        | CloseReason::KeyLimit
        | CloseReason::KeysInvalidated
        | CloseReason::Unreachable => true,
        CloseReason::Remote { code, application_code } => {
            // A deliberate close is final, except when the server announces its return or when only the keys were
            // used up.
            let restarts = code == CloseCode::Shutdown && application_code == SHUTDOWN_RESTARTS;
            restarts || code == CloseCode::KeyLimit
        }
        // This end has closed the connection, or the next connection would probably fail at the same violation.
        CloseReason::Local { .. } | CloseReason::Protocol(_) => false,
    }
}

#[cfg(test)]
mod tests;
