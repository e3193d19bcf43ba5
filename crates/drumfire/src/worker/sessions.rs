//! The sessions of a client, and the attempts that follow the end of a connection.
//!
//! A session begins with a call of `connect`. All its connections, one after another, have the same peer id. [`reconnect`] decides
//! whether another attempt follows, and the core starts it before the application receives the end of the last one. All kinds of
//! clients use this.
//!
//! [`reconnect`]: super::reconnect

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{ConnectError, IssuedToken, Moment, PeerId, Placement};

use super::core::Core;
use super::reconnect::{ReconnectState, last_event};
use super::send_edge::SendEdge;
use crate::base::address::check_server;
use crate::base::error::Error;
use crate::base::peer_map::PeerMap;
use crate::conditioner::Random;
use crate::config::client::{ClientConfig, Reconnect};
use crate::config::connect::ConnectOptions;
use crate::credentials::connect_token::ConnectToken;
use crate::credentials::keys::ServerPublicKey;
use crate::message::event::{Event, ReconnectReason};

/// The sessions of one client.
pub(crate) struct Sessions {
    protocol_id: u64,
    /// Whether the socket is bound to an IPv6 address. IPv4 addresses are mapped to IPv6 then, as the socket reports them.
    is_ipv6: bool,
    policy: Reconnect,
    random: Random,
    sessions: PeerMap<Session>,
    /// The resume token of the session that ended last. A client with one connection is asked for it after the end.
    ended: Option<(PeerId, ConnectToken)>,
    /// The last attempt that followed an end, until [`Core::take_new_attempt`].
    new_attempt: Option<NewAttempt>,
}

/// An attempt that follows the end of a connection or of another attempt.
#[derive(Clone, Copy)]
pub(super) struct NewAttempt {
    pub(super) peer: PeerId,
    pub(super) server: SocketAddr,
    /// Whether the server has another address than before.
    pub(super) is_redirected: bool,
}

struct Session {
    server: SocketAddr,
    key: ServerPublicKey,
    /// The newest token that the server issued to earlier connections of the session.
    resume: Option<ConnectToken>,
    /// `None` if the client does not reconnect.
    reconnect: Option<Box<ReconnectState>>,
}

impl Sessions {
    pub(crate) fn new(config: &ClientConfig, is_ipv6: bool, random: Random) -> Self {
        Self {
            protocol_id: config.protocol_id,
            is_ipv6,
            policy: config.reconnect,
            random,
            sessions: PeerMap::default(),
            ended: None,
            new_attempt: None,
        }
    }

    fn begin(&mut self, now: Moment, peer: PeerId, options: &ConnectOptions) {
        let reconnect = ReconnectState::new(self.policy, now, options, &mut self.random);
        self.sessions
            .insert(peer, Session { server: options.server, key: options.key, resume: None, reconnect });
    }

    /// Returns the state of a session that reconnects.
    pub(super) fn reconnect(&mut self, peer: PeerId) -> Option<&mut ReconnectState> {
        self.sessions.get_mut(peer)?.reconnect.as_deref_mut()
    }

    /// Creates the token of a session from the parts that the server issued.
    fn token(&self, peer: PeerId, issued: &IssuedToken, expires_at: Duration) -> Option<ConnectToken> {
        let &Session { server: address, key: server, .. } = self.sessions.get(peer)?;
        let (protocol_id, issued) = (self.protocol_id, issued.duplicate());
        Some(ConnectToken { address, server, protocol_id, expires_at, issued })
    }

    /// Returns the newest token of a session without a connection.
    fn kept_token(&self, peer: PeerId) -> Option<&ConnectToken> {
        if let Some(session) = self.sessions.get(peer) {
            return session.resume.as_ref();
        }
        self.ended.as_ref().filter(|(ended, _)| *ended == peer).map(|(_, token)| token)
    }

    /// Returns the event that follows the end of a connection or an attempt. `token` is the newest resume token of the connection.
    fn on_end(
        &mut self,
        now: Moment,
        peer: PeerId,
        token: Option<ConnectToken>,
        end: ReconnectReason,
    ) -> Event {
        let Some(session) = self.sessions.get_mut(peer) else { return last_event(peer, end) };
        // The endpoint drops the token when the next attempt starts, so the session keeps it.
        session.resume = token.or_else(|| session.resume.take());
        match &mut session.reconnect {
            Some(reconnect) => reconnect.on_end(now, peer, end),
            None => last_event(peer, end),
        }
    }

    /// Removes a session that is over.
    fn remove(&mut self, peer: PeerId) {
        // The token outlives the session, because the application can ask for it after the last event.
        if let Some(token) = self.sessions.remove(peer).and_then(|session| session.resume) {
            self.ended = Some((peer, token));
        }
    }

    /// Forgets all sessions, because their endpoint is replaced. `ended` is the resume token of a client's only session.
    pub(super) fn clear(&mut self, ended: Option<(PeerId, ConnectToken)>) {
        self.ended = ended.or_else(|| self.ended.take());
        self.sessions = PeerMap::default();
        self.new_attempt = None;
    }
}

impl<P: Placement> Core<P> {
    /// Checks whether a client can connect like this.
    pub(super) fn check(&self, options: &ConnectOptions) -> Result<(), Error> {
        options.check(self.sessions.as_ref().map_or(0, |sessions| sessions.protocol_id))
    }

    /// Starts a session of a client, and returns its id.
    pub(super) fn connect(&mut self, options: &ConnectOptions) -> Result<PeerId, ConnectError> {
        debug_assert!(check_server(options.server).is_ok(), "the caller checks the address of the server");
        // The endpoint checks the request and draws the id. A request that fails leaves no session behind.
        let is_ipv6 = self.sessions.as_ref().is_some_and(|sessions| sessions.is_ipv6);
        let peer = self.endpoint.connect_with(self.now, &options.request(Duration::ZERO, is_ipv6))?;
        if let Some(sessions) = &mut self.sessions {
            sessions.begin(self.now.monotonic, peer, options);
        }
        self.begin_attempt(peer);
        Ok(peer)
    }

    /// Adds an attempt to the peers, and returns its send edge.
    fn begin_attempt(&mut self, peer: PeerId) -> Option<Arc<SendEdge>> {
        let edge = self.new_edge(self.limits.message_max_bytes, !self.reconnects());
        self.peers.begin(peer, edge.clone());
        edge
    }

    /// Returns the state of a session of a client that reconnects.
    pub(super) fn reconnect_state(&mut self, peer: PeerId) -> Option<&mut ReconnectState> {
        self.sessions.as_mut()?.reconnect(peer)
    }

    /// Whether another attempt follows the end of a peer's connection, as far as is known.
    pub(super) fn connects_again(&self, peer: PeerId) -> bool {
        let session = self.sessions.as_ref().and_then(|sessions| sessions.sessions.get(peer));
        session.and_then(|session| session.reconnect.as_ref()).is_some_and(|reconnect| !reconnect.is_closed())
    }

    /// Whether this is a client that reconnects. Its messages are refused until a connection is established, because a failed attempt
    /// would lose them without notice.
    pub(super) fn reconnects(&self) -> bool {
        self.sessions.as_deref().is_some_and(|sessions| sessions.policy != Reconnect::Never)
    }

    /// Returns what the application of a client receives at the end of a connection or an attempt. If another attempt follows, it
    /// has started, and the send edge is that of the attempt.
    pub(super) fn on_session_end(
        &mut self,
        peer: PeerId,
        end: ReconnectReason,
    ) -> (Event, Option<Arc<SendEdge>>) {
        // The token is read before the next attempt starts, because the endpoint drops it then.
        let (now, token) = (self.now.monotonic, self.issued_token(peer));
        let Some(sessions) = &mut self.sessions else {
            return (last_event(peer, end), None);
        };
        let mut event = sessions.on_end(now, peer, token, end);
        // The attempt starts now, and the endpoint sends its first packet after the delay. So the delay needs no
        // timer here.
        if let Event::Reconnecting { delay, .. } = event {
            match self.connect_again(peer, delay) {
                Ok(edge) => return (event, edge),
                Err(last) => event = last,
            }
        }
        if let Some(sessions) = &mut self.sessions {
            sessions.remove(peer);
        }
        // The endpoint has reserved the id for further attempts (`ConnectRequest::keeps_id`).
        self.endpoint.forget_peer(peer);
        (event, None)
    }

    /// Starts another attempt of a session after `delay`. Returns the last event of the session if it cannot.
    fn connect_again(&mut self, peer: PeerId, delay: Duration) -> Result<Option<Arc<SendEdge>>, Event> {
        let closed = Event::ConnectFailed { peer, error: ConnectError::Closed };
        let Some(sessions) = &mut self.sessions else { return Err(closed) };
        let is_ipv6 = sessions.is_ipv6;
        let Some(session) = sessions.sessions.get_mut(peer) else { return Err(closed) };
        let Some(reconnect) = &mut session.reconnect else { return Err(closed) };
        let options = reconnect.options_of_attempt(session.resume.as_ref());
        if let Err(error) = self.endpoint.connect_again(self.now, peer, &options.request(delay, is_ipv6)) {
            return Err(reconnect.give_up(peer, error));
        }
        // A connected socket leads to one address. `Worker::follow_attempt` replaces it before the attempt sends.
        let is_redirected = session.server != options.server;
        session.server = options.server;
        sessions.new_attempt = Some(NewAttempt { peer, server: options.server, is_redirected });
        // The endpoint has forgotten the options with the last connection.
        for (channel, options) in reconnect.options() {
            self.endpoint.set_channel_options(peer, channel, options);
        }
        Ok(self.begin_attempt(peer))
    }

    /// Returns the resume token that the endpoint has for a session.
    fn issued_token(&self, peer: PeerId) -> Option<ConnectToken> {
        let (issued, until) = self.endpoint.resume_token(peer)?;
        // The endpoint has monotonic time. The token has wall-clock time, because another process may use it.
        let expires_at = self.now.wall.saturating_add(until.since(self.now.monotonic));
        self.sessions.as_ref()?.token(peer, issued, expires_at)
    }

    /// Returns the newest resume token of a session, also of the one that ended last.
    pub(super) fn resume_token(&self, peer: PeerId) -> Option<ConnectToken> {
        self.issued_token(peer).or_else(|| self.sessions.as_ref()?.kept_token(peer).cloned())
    }

    /// Removes and returns the last attempt that followed an end.
    pub(super) fn take_new_attempt(&mut self) -> Option<NewAttempt> {
        self.sessions.as_mut()?.new_attempt.take()
    }

    /// Returns the session of a client with one connection, and its server.
    pub(super) fn only_session(&self) -> Option<(PeerId, SocketAddr)> {
        let (peer, session) = self.sessions.as_ref()?.sessions.iter().next()?;
        Some((*peer, session.server))
    }

    /// Prepares all connections of a client for the local address `local`, which is `None` in a simulated world. Each takes a spare
    /// connection id, so that no id links both paths.
    pub(super) fn change_paths(&mut self, local: Option<SocketAddr>) {
        for (peer, _) in self.sessions.iter().flat_map(|sessions| sessions.sessions.iter()) {
            self.endpoint.change_path(self.now, *peer);
            // An attempt has no path yet, and `Connected` is the first event of its connection.
            if let Some(address) = local.filter(|_| self.peers.is_connected(*peer)) {
                self.queued.push_back(Event::PathChanged { peer: *peer, address });
            }
        }
    }
}
