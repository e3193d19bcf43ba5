//! Handshake datagrams: Hellos on a server, and the responses that a client receives.
//!
//! `handshake` validates their contents. This module creates and confirms the connections.

use std::sync::Arc;

use drumfire_wire::{
    ClientId, CloseCode, DatagramKind, Hello, NewConnectionId, Refuse, RefuseReason, Reset, Retry, Welcome,
    limits as wire_limits,
};

use super::receive::HandshakeStatus;
use super::{Endpoint, Reply, Role};
use crate::connection::{Connection, Liveness, Phase};
use crate::control::Control;
use crate::convert::to_u64;
use crate::datagram::{Forwarded, ForwardedWork};
use crate::error::CloseReason;
use crate::handshake::admission::{AdmittedHello, DenialNotice, DeniedHello};
use crate::handshake::half_open::{HalfOpen, HelloSource};
use crate::handshake::server::{CookieVerdict, HandshakeResponse};
use crate::identity::{ConnectionIdState, IssuedIds, KnownIds};
use crate::limits::{FORWARDS_WAITING, REPLIES_WAITING, SPARE_IDS};
use crate::path::Path;
use crate::peer_id::PeerId;
use crate::placement::{ConfirmDecision, HelloHash, Placement, PlacementDecision, ReplacedConnection};
use crate::route::Route;
use crate::stats::{DropReason, add};
use crate::time::{Moment, Now};

impl<P: Placement> Endpoint<P> {
    pub(super) fn on_handshake(
        &mut self,
        now: Moment,
        kind: DatagramKind,
        from: Route,
        bytes: &[u8],
    ) -> Result<HandshakeStatus, DropReason> {
        // Each kind is for one role, so two endpoints of one role never answer each other, whatever is reflected.
        match (kind, &self.role) {
            (DatagramKind::Hello, Role::Server(_)) => self.on_hello(now, from, bytes),
            (DatagramKind::Retry, Role::Client) => self.on_retry(now, from, bytes),
            (DatagramKind::Refuse, Role::Client) => self.on_refuse(now, from, bytes),
            (DatagramKind::Welcome, Role::Client) => self.on_welcome(now, from, bytes),
            (DatagramKind::Reset, Role::Client) => self.on_reset(bytes),
            _ => Err(DropReason::UnexpectedKind),
        }
    }

    /// Processes a Hello that another shard charged to its source, and for which that shard reserved a place here.
    pub(super) fn on_forwarded_hello(
        &mut self,
        now: Moment,
        sender: HelloSource,
        bytes: &[u8],
    ) -> Result<HandshakeStatus, DropReason> {
        let hello = Hello::decode(bytes)?;
        let hash = HelloHash(*hello.mac1);
        // The client repeated its Hello while an earlier copy was on its way here.
        if self.connection_of_hello(hash).is_some() {
            return self
                .repeat_welcome(hash, sender)
                .or_else(|reason| self.deny(now, sender, &hello, &reason.into()));
        }
        // The other shard reserved a place for the Hello. Without one, a shard restarted in between, and the client's
        // next copy is placed again.
        if !self.placement.take(hash) {
            return Err(DropReason::Misrouted);
        }
        let taken = match self.admit_forwarded(now, sender, &hello) {
            Ok(admitted) => self.welcome(now, sender, &hello, admitted),
            // A reservation that no connection uses would stay.
            Err(denied) => {
                self.placement.release(hash);
                Err(denied)
            }
        };
        taken.or_else(|denied| self.deny(now, sender, &hello, &denied))
    }

    fn admit_forwarded(
        &mut self,
        now: Moment,
        sender: HelloSource,
        hello: &Hello<'_>,
    ) -> Result<AdmittedHello, DeniedHello> {
        let Role::Server(responder) = &mut self.role else { return Err(DropReason::UnexpectedKind.into()) };
        // The shard that received the Hello charged its source. The limits here protect the shard that does the work.
        responder.on_forwarded(now);
        responder.check_limits(now, sender.source())?;
        responder.admit(self.wall, hello)
    }

    /// Opens a half-open connection on its first valid packet.
    pub(super) fn confirm(&mut self, now: Moment, peer: PeerId, from: Route) {
        let Some(connection) = self.connections.get_mut(peer) else { return };
        let Some(Phase::HalfOpen(half_open)) = connection.phase.as_deref_mut() else { return };
        let (source, mut grant) = (half_open.source(), half_open.grant.take());
        let application_hello = std::mem::take(&mut half_open.application_hello);
        let proved = half_open.proved();
        let first = proved.iter().flatten().next().copied();
        // A packet from a proved address shows where the client is. Any other may be a copy, and the first proved
        // address is used.
        if let Some(route) = Some(from).filter(|from| proved.contains(&Some(*from))).or(first) {
            connection.path.route = route;
        }
        connection.open(now, false);
        let known = connection.path.route;
        let others = proved.into_iter().flatten().filter(|route| *route != known);
        if others.clone().next().is_some() {
            connection.path.search_among(now, others, wire_limits::HELLO_BYTES, &mut self.entropy);
        }
        // The token gives the end of the session as wall-clock time. Here it becomes a time of the monotonic clock.
        if let Some(grant) = &mut grant {
            let left = grant.session_ends_at.map(|ends_at| ends_at.saturating_sub(self.wall));
            grant.ends_at = left.map(|left| now.after(left));
        }
        if let Role::Server(responder) = &mut self.role {
            responder.end_half_open(source);
        }
        add(&mut self.stats.connections_opened, 1);
        let address = connection.path.route.canonical();
        // `Connected` comes first, even if the placement now denies the connection and the next event is its end.
        self.events.connected(peer, address, grant.as_deref(), &application_hello);
        connection.grant = grant;
        self.issue_spare_ids(peer);
        let hello = self.connections.get(peer).and_then(|connection| connection.hello);
        debug_assert!(hello.is_some(), "a server's connection was made by no Hello");
        let Some(hello) = hello else { return };
        let ReplacedConnection { shard, hello } =
            match self.placement.confirm(Now { monotonic: now, wall: self.wall }, hello) {
                ConfirmDecision::Confirmed => return,
                ConfirmDecision::Replaces(older) => older,
                ConfirmDecision::Rejected => return self.close_for(peer, CloseCode::Application),
            };
        if shard == self.ids.shard_index() {
            self.close_replaced(hello);
        } else {
            // At most one for each connection that is confirmed, so their number is bounded by the datagrams
            // received.
            self.forwards.push_back(Forwarded { shard, work: ForwardedWork::Replace(hello) });
        }
    }

    /// Issues spare ids to a client, up to its limit.
    pub(super) fn issue_spare_ids(&mut self, peer: PeerId) {
        let has_fewer = |connection: &Connection| match &connection.identity {
            ConnectionIdState::Server(issued) => issued.active_count() <= SPARE_IDS,
            ConnectionIdState::Client(_) => false,
        };
        // A client that moves needs another id, so that its paths cannot be linked (RFC 9000 section 9.5).
        while self.connections.get(peer).is_some_and(has_fewer) {
            // When no id can be drawn, the client has fewer spare ids.
            let Ok(id) = self.draw_id() else { return };
            let reset_token = self.ids.reset_token(id);
            let Some(connection) = self.connections.get_mut(peer) else { return };
            let ConnectionIdState::Server(issued) = &mut connection.identity else { return };
            // A client that has used up all sequence numbers keeps its last id, and violates the protocol when it retires
            // that too.
            let Some(sequence) = issued.issue(id) else { return };
            connection.control.push(Control::NewConnectionId(NewConnectionId { sequence, id, reset_token }));
            self.by_id.insert(u64::from_be_bytes(id.to_bytes()), peer.slot());
        }
    }

    fn on_hello(&mut self, now: Moment, from: Route, bytes: &[u8]) -> Result<HandshakeStatus, DropReason> {
        add(&mut self.stats.hello_bytes, to_u64(bytes.len()));
        let hello = Hello::decode(bytes)?;
        let Role::Server(responder) = &mut self.role else { return Err(DropReason::UnexpectedKind) };
        let proved = HelloSource { route: from, is_proved: true };
        // The cheapest checks come first. The address may be forged until the source has repeated a cookie, and no
        // response to it is longer than the Hello (compare RFC 9000 section 8.1).
        let sender = match responder.check_hello(now, from.peer, &hello)? {
            CookieVerdict::Retry => return self.retry(now, from, &hello),
            CookieVerdict::Unproved => HelloSource { is_proved: false, ..proved },
            CookieVerdict::Proved => proved,
            CookieVerdict::Mismatch(reason) => {
                responder.charge(now, proved.source())?;
                return self.deny(now, proved, &hello, &reason.into());
            }
        };
        self.admit_hello(now, sender, bytes, &hello).or_else(|denied| self.deny(now, sender, &hello, &denied))
    }

    /// Asks a client to prove its address.
    fn retry(&mut self, now: Moment, to: Route, hello: &Hello<'_>) -> Result<HandshakeStatus, DropReason> {
        let Role::Server(responder) = &mut self.role else { return Err(DropReason::UnexpectedKind) };
        let cookie = responder.retry(now, to.peer, hello)?;
        // The cookie contains all that this shard would have to remember, so a Retry leaves no state behind (RFC 9000
        // section 8.1.2).
        self.reply(Reply::Retry { to, client_id: hello.fields.client_id, cookie })
    }

    /// Refuses a Hello with a reason, where the client may know it. A client that has not proved its address must do
    /// that first, so that a refusal cannot be reflected.
    fn deny(
        &mut self,
        now: Moment,
        sender: HelloSource,
        hello: &Hello<'_>,
        denied: &DeniedHello,
    ) -> Result<HandshakeStatus, DropReason> {
        let has_more = denied.notice.is_some() || denied.reason == DropReason::HelloRepeated;
        if has_more && !sender.is_proved {
            return self.retry(now, sender.route, hello);
        }
        if let Role::Server(responder) = &mut self.role
            && let Some(refuse) = responder.refuse(now, hello, denied)
        {
            // Without room for the response, the client repeats its Hello.
            let _ = self.reply(Reply::Refuse { to: sender.route, refuse });
        }
        Err(denied.reason)
    }

    fn admit_hello(
        &mut self,
        now: Moment,
        sender: HelloSource,
        bytes: &[u8],
        hello: &Hello<'_>,
    ) -> Result<HandshakeStatus, DeniedHello> {
        let hash = HelloHash(*hello.mac1);
        if self.connection_of_hello(hash).is_some() {
            // The first MAC identifies the Hello and was checked when it was admitted. A copy with another token or
            // Noise message receives the same Welcome, which only the client can open, and within the same limits.
            return Ok(self.repeat_welcome(hash, sender)?);
        }
        let Role::Server(responder) = &mut self.role else { return Err(DropReason::UnexpectedKind.into()) };
        // All steps below cost more than a cookie: a cipher, the lock of a table, the application's hook, a place in
        // another shard's queue, a key agreement.
        responder.charge(now, sender.source())?;
        responder.check_limits(now, sender.source())?;
        let admitted = responder.admit(self.wall, hello)?;
        // Checked before a place is reserved. A reservation that is not used would stay.
        if self.forwards.len() >= FORWARDS_WAITING {
            return Err(DropReason::ForwardFull.into());
        }
        let asked_at = Now { monotonic: now, wall: self.wall };
        let denied = match self.placement.place(asked_at, &admitted.claim(sender)) {
            PlacementDecision::Local => return self.welcome(now, sender, hello, admitted),
            PlacementDecision::Forward(shard) => {
                self.forward(shard, || ForwardedWork::Hello { sender, bytes: bytes.into() });
                return Ok(HandshakeStatus::Counted);
            }
            PlacementDecision::Full { retry_after } => {
                let notice = DenialNotice { reason: RefuseReason::Full, retry_after, address: None };
                DeniedHello { notice: Some(notice), ..DropReason::ServerFull.into() }
            }
            PlacementDecision::Used => DropReason::TokenUsed.into(),
            PlacementDecision::Rejected(rejection) => rejection.into(),
            PlacementDecision::Undecided => DropReason::HelloRepeated.into(),
        };
        Err(DeniedHello { key: admitted.refuse_key(), ..denied })
    }

    /// Returns the connection that this Hello made.
    pub(super) fn connection_of_hello(&self, hello: HelloHash) -> Option<PeerId> {
        self.by_hello.find(hello.to_key(), |place| {
            let peer = self.connections.id_at(place)?;
            self.connections.get(peer).filter(|connection| connection.hello == Some(hello)).map(|_| peer)
        })
    }

    /// Repeats the Welcome of a Hello that was answered before, if its connection is still half-open.
    fn repeat_welcome(
        &mut self,
        hash: HelloHash,
        sender: HelloSource,
    ) -> Result<HandshakeStatus, DropReason> {
        let repeated = DropReason::HelloRepeated;
        let peer = self.connection_of_hello(hash).ok_or(repeated)?;
        let connection = self.connections.get_mut(peer).ok_or(repeated)?;
        let Some(Phase::HalfOpen(half_open)) = connection.phase.as_deref_mut() else { return Err(repeated) };
        if !half_open.take_welcome(sender) {
            return Err(repeated);
        }
        self.reply(Reply::Welcome { to: sender.route, peer })
    }

    /// Computes the key agreement and creates a half-open connection. Releases the reserved place if that fails.
    fn welcome(
        &mut self,
        now: Moment,
        sender: HelloSource,
        hello: &Hello<'_>,
        mut admitted: AdmittedHello,
    ) -> Result<HandshakeStatus, DeniedHello> {
        let made = self.make_half_open(now, sender, hello, &mut admitted);
        if made.is_err() {
            self.placement.release(admitted.hello);
        }
        // The server has read the token, so the client can verify that the server is full.
        made.and_then(|peer| self.reply(Reply::Welcome { to: sender.route, peer }))
            .map_err(|reason| DeniedHello { key: admitted.refuse_key(), ..reason.into() })
    }

    fn make_half_open(
        &mut self,
        now: Moment,
        sender: HelloSource,
        hello: &Hello<'_>,
        admitted: &mut AdmittedHello,
    ) -> Result<PeerId, DropReason> {
        // Everything that can run out is checked before the key agreement, which is the expensive step.
        if self.connections.is_full() {
            return Err(DropReason::ServerFull);
        }
        if self.budget.is_full() {
            return Err(DropReason::MemoryFull);
        }
        if self.replies.len() >= REPLIES_WAITING {
            return Err(DropReason::ReplyFull);
        }
        // The Welcome carries the id and its reset token, encrypted, so both are drawn before it is built.
        let local_id = self.draw_id().map_err(|_| DropReason::NoConnectionId)?;
        let reset_token = self.ids.reset_token(local_id);
        let Role::Server(responder) = &mut self.role else { return Err(DropReason::UnexpectedKind) };
        add(&mut self.stats.handshakes_computed, 1);
        let hash = admitted.hello;
        let ids = (local_id, reset_token);
        let answer = responder.answer(now, sender.source(), hello, &admitted.psk, ids, &mut self.entropy)?;
        let HandshakeResponse { agreement, remote_id, welcome, application_hello } = answer;
        let path = Path::new(sender.route, remote_id);
        let timeouts = agreement.timeouts;
        let liveness = Liveness::new(now, false, timeouts.idle_timeout, timeouts.unacknowledged_timeout);
        let half_open = HalfOpen::new(now, sender, welcome, admitted.grant.take(), application_hello);
        let identity = ConnectionIdState::Server(IssuedIds::new(local_id));
        let (bounds, phase) = (Arc::clone(&self.bounds), Phase::HalfOpen(half_open));
        let peer = self.connections.insert(Connection::new(phase, path, liveness, identity, bounds));
        debug_assert!(peer.is_some(), "a slab with room takes a connection");
        let peer = peer.ok_or(DropReason::ServerFull)?;
        // Counted only now, because a key agreement that failed leaves nothing that could end.
        responder.begin_half_open(sender.source());
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.hello = Some(hash);
            connection.on_handshake(now, agreement, remote_id, &mut self.entropy);
        }
        // From here on, copies of the Hello receive the same Welcome, and packets find the connection.
        self.by_hello.insert(hash.to_key(), peer.slot());
        self.register_id(peer, Some(local_id));
        self.reschedule(peer);
        Ok(peer)
    }

    fn reply(&mut self, reply: Reply) -> Result<HandshakeStatus, DropReason> {
        if self.replies.len() >= REPLIES_WAITING {
            return Err(DropReason::ReplyFull);
        }
        self.replies.push_back(reply);
        Ok(HandshakeStatus::Processed)
    }

    fn on_retry(&mut self, now: Moment, from: Route, bytes: &[u8]) -> Result<HandshakeStatus, DropReason> {
        let retry = Retry::decode(bytes)?;
        let peer = self.find_attempt(retry.client_id, from)?;
        let connection = self.connections.get_mut(peer).ok_or(DropReason::UnknownClientId)?;
        let Some(Phase::Connecting(attempt)) = connection.phase.as_deref_mut() else {
            return Err(DropReason::UnknownClientId);
        };
        attempt.on_retry(now, &retry)?;
        self.reschedule(peer);
        Ok(HandshakeStatus::Processed)
    }

    fn on_refuse(&mut self, now: Moment, from: Route, bytes: &[u8]) -> Result<HandshakeStatus, DropReason> {
        let refuse = Refuse::decode(bytes)?;
        let peer = self.find_attempt(refuse.client_id, from)?;
        let connection = self.connections.get_mut(peer).ok_or(DropReason::UnknownClientId)?;
        let Some(Phase::Connecting(attempt)) = connection.phase.as_deref_mut() else {
            return Err(DropReason::UnknownClientId);
        };
        // An attacker on the path may have forged or caused the Refuse, so the attempt usually only notes it and goes on.
        if attempt.on_refuse(now, &refuse, bytes) {
            let error = attempt.failure(now);
            self.events.connect_failed(peer, error);
            self.remove(peer);
        }
        self.reschedule(peer);
        Ok(HandshakeStatus::Processed)
    }

    fn on_welcome(&mut self, now: Moment, from: Route, bytes: &[u8]) -> Result<HandshakeStatus, DropReason> {
        let welcome = Welcome::decode(bytes)?;
        let peer = self.find_attempt(welcome.client_id, from)?;
        let connection = self.connections.get_mut(peer).ok_or(DropReason::UnknownClientId)?;
        let Some(Phase::Connecting(attempt)) = connection.phase.as_deref_mut() else {
            return Err(DropReason::UnknownClientId);
        };
        // A forged Welcome fails here, before anything has changed, and the attempt goes on.
        let (agreement, remote_id, reset_token) = attempt.on_welcome(now, &welcome)?;
        self.by_client_id.remove(&u64::from_be_bytes(welcome.client_id.0));
        connection.on_handshake(now, agreement, Some(remote_id), &mut self.entropy);
        match &mut connection.identity {
            ConnectionIdState::Client(ids) => ids.known = Some(KnownIds::new(remote_id, reset_token)),
            ConnectionIdState::Server(_) => {
                debug_assert!(false, "a server's connection was made by a Welcome");
            }
        }
        if self.only.is_none() {
            self.by_server_id.insert(u64::from_be_bytes(remote_id.to_bytes()), peer);
        }
        // The server confirms the connection on the first packet, so the client must send one.
        connection.open(now, true);
        add(&mut self.stats.connections_opened, 1);
        self.events.connected(peer, from.canonical(), None, &[]);
        self.reschedule(peer);
        Ok(HandshakeStatus::Processed)
    }

    /// Ends a connection that the server no longer knows, if the Reset proves it.
    fn on_reset(&mut self, bytes: &[u8]) -> Result<HandshakeStatus, DropReason> {
        let reset = Reset::decode(bytes)?;
        let by_id = self.by_server_id.get(&u64::from_be_bytes(reset.connection_id.to_bytes()));
        let peer = self.only.or(by_id.copied()).ok_or(DropReason::BadReset)?;
        let connection = self.connections.get(peer).ok_or(DropReason::BadReset)?;
        let is_genuine = connection
            .identity
            .known()
            .is_some_and(|known| known.is_reset(reset.connection_id, &reset.token));
        // Only the two ends know the token, so an attacker cannot forge a Reset (RFC 9000 section 10.3).
        if !is_genuine {
            return Err(DropReason::BadReset);
        }
        if connection.is_open() {
            self.disconnected(peer, CloseReason::Reset, &[]);
        }
        self.remove(peer);
        Ok(HandshakeStatus::Processed)
    }

    /// Returns the attempt that this response belongs to.
    fn find_attempt(&self, client_id: ClientId, from: Route) -> Result<PeerId, DropReason> {
        let peer = self.by_client_id.get(&u64::from_be_bytes(client_id.0)).copied();
        let peer = peer.ok_or(DropReason::UnknownClientId)?;
        let connection = self.connections.get(peer).ok_or(DropReason::UnknownClientId)?;
        // Not all responses are authenticated. Each must at least come from the address to which the Hello was sent, so that
        // an attacker has to forge that address.
        if connection.path.route.peer == from.peer { Ok(peer) } else { Err(DropReason::WrongSource) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ClientConfig, Config, ServerConfig, ServerIdentity};
    use crate::datagram::Inbound;
    use crate::placement::SingleWorker;
    use drumfire_crypto::{Entropy, Secret, ServerKeyPair};
    use drumfire_wire::ConnectionId;
    use std::collections::BTreeSet;
    use std::net::SocketAddr;
    use std::time::Duration;

    /// Connects a client to a server that draws the same numbers in each round trip.
    fn connect(server: &mut Endpoint<SingleWorker>, number: u8, public_key: [u8; 32]) {
        let (here, there): (SocketAddr, SocketAddr) =
            (([192, 0, 2, number], 5_000).into(), ([198, 51, 100, 1], 7_777).into());
        let now = Now { monotonic: Moment::from_nanos(1_000_000_000), wall: Duration::ZERO };
        let seed = Secret::new([number; 32]);
        let mut client = Endpoint::client(Config::default(), ClientConfig::default(), seed).unwrap();
        client.connect(now, there, &ServerIdentity { public_key, key_id: 0 }, None).unwrap();
        let mut memory = [0; 1_200];
        for _ in 0..3 {
            while let Some(sent) = client.poll_transmit(now, &mut memory) {
                server.entropy = Entropy::from_seed(Secret::new([9; 32]));
                server
                    .handle_datagrams(now, [Inbound { from: here.into(), bytes: &mut memory[..sent.bytes] }]);
            }
            while let Some(sent) = server.poll_transmit(now, &mut memory) {
                client.handle_datagrams(
                    now,
                    [Inbound { from: there.into(), bytes: &mut memory[..sent.bytes] }],
                );
            }
        }
    }

    #[test]
    fn connection_ids_are_unique() {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let public_key = *keys.public();
        let config = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        let mut server =
            Endpoint::server(Config::default(), config, SingleWorker::default(), Secret::new([4; 32]))
                .unwrap();
        for number in 1..=3 {
            connect(&mut server, number, public_key);
        }
        assert_eq!(server.stats().connections_opened, 3);
        let peers = (0..3).map(|place| server.connections.id_at(place).unwrap());
        let ids: BTreeSet<_> = peers
            .flat_map(|peer| match &server.connections.get(peer).unwrap().identity {
                ConnectionIdState::Server(issued) => {
                    issued.all().map(ConnectionId::to_bytes).collect::<Vec<_>>()
                }
                ConnectionIdState::Client(_) => Vec::new(),
            })
            .collect();
        assert_eq!(ids.len(), 3 * (1 + SPARE_IDS));
    }
}
