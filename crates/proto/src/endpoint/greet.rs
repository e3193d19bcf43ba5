//! Handshake datagrams: a server's Hellos, and the answers a client gets.
//!
//! What is in them is judged in `handshake`; here connections are made of them.

use std::net::SocketAddr;

use drumfire_wire::{ClientId, DatagramKind, Hello, Refuse, Retry, Welcome};

use super::receive::Taken;
use super::{Endpoint, Reply, Role};
use crate::connection::{Connection, Liveness, Path, Phase};
use crate::handshake::server::{Answer, HalfOpen, Judgement};
use crate::limits::{DATAGRAM_SENT_MAX_BYTES, FORWARDS_WAITING, REPLIES_WAITING};
use crate::placement::{HelloHash, Placed, Placement};
use crate::slab::PeerId;
use crate::stats::{DropReason, add};
use crate::time::Moment;

impl<P: Placement> Endpoint<P> {
    pub(super) fn on_handshake(
        &mut self,
        now: Moment,
        kind: DatagramKind,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Result<Taken, DropReason> {
        match (kind, &self.role) {
            (DatagramKind::Hello, Role::Server(_)) => self.on_hello(now, from, bytes),
            (DatagramKind::Retry, Role::Client) => self.on_retry(now, from, bytes),
            (DatagramKind::Refuse, Role::Client) => self.on_refuse(now, from, bytes),
            (DatagramKind::Welcome, Role::Client) => self.on_welcome(now, from, bytes),
            _ => Err(DropReason::UnexpectedKind),
        }
    }

    /// A Hello whose cookie and limits another shard has checked.
    pub(super) fn on_forwarded_hello(
        &mut self,
        now: Moment,
        from: SocketAddr,
        bytes: &[u8],
    ) -> Result<Taken, DropReason> {
        let hello = Hello::decode(bytes)?;
        let hash = HelloHash(*hello.mac1);
        if self.by_hello.contains_key(&hash.to_key()) {
            return self.repeat_welcome(hash, from);
        }
        let Role::Server(greeter) = &mut self.role else { return Err(DropReason::UnexpectedKind) };
        let limited = greeter.check_limits(now, from);
        if limited.is_err() {
            // The place was reserved by the shard that sent it here.
            self.placement.release(hash);
        }
        limited?;
        self.welcome(now, from, &hello, hash)
            .inspect_err(|reason| self.refuse(now, from, hello.fields.client_id, *reason))
    }

    /// The first valid packet of a half-open connection: it is connected.
    pub(super) fn confirm(&mut self, now: Moment, peer: PeerId) {
        let Some(connection) = self.connections.get_mut(peer) else { return };
        connection.open(now, false);
        if let Role::Server(greeter) = &mut self.role {
            greeter.end_half_open(connection.path.address);
        }
        add(&mut self.stats.connections_opened, 1);
        self.events.connected(peer, connection.path.address);
    }

    fn on_hello(&mut self, now: Moment, from: SocketAddr, bytes: &[u8]) -> Result<Taken, DropReason> {
        add(&mut self.stats.hello_bytes, u64::try_from(bytes.len()).unwrap_or(0));
        let hello = Hello::decode(bytes)?;
        self.judge_hello(now, from, bytes, &hello).inspect_err(|reason| {
            // A client that has not proved its address is dropped for other reasons.
            self.refuse(now, from, hello.fields.client_id, *reason);
        })
    }

    /// Tells a client why it is dropped, where that is told.
    fn refuse(&mut self, now: Moment, to: SocketAddr, client_id: ClientId, reason: DropReason) {
        let Role::Server(greeter) = &mut self.role else { return };
        if let Some(refusal) = greeter.refusal(now, reason) {
            // Without room for the answer the client asks again.
            let _ = self.reply(Reply::Refuse { to, client_id, refusal });
        }
    }

    fn judge_hello(
        &mut self,
        now: Moment,
        from: SocketAddr,
        bytes: &[u8],
        hello: &Hello<'_>,
    ) -> Result<Taken, DropReason> {
        let Role::Server(greeter) = &mut self.role else { return Err(DropReason::UnexpectedKind) };
        match greeter.judge(now, from, hello)? {
            Judgement::Retry(cookie) => {
                return self.reply(Reply::Retry { to: from, client_id: hello.fields.client_id, cookie });
            }
            Judgement::Proved => {}
        }
        let is_known = self.by_hello.contains_key(&HelloHash(*hello.mac1).to_key());
        if !is_known {
            greeter.check_limits(now, from)?;
        }
        let hash = greeter.check_mac1(hello)?;
        if is_known {
            return self.repeat_welcome(hash, from);
        }
        // Asked before a place is reserved: one that is reserved and not reached would stay so.
        if self.forwards.len() >= FORWARDS_WAITING {
            return Err(DropReason::ForwardFull);
        }
        match self.placement.place(None, hash) {
            Placed::Here => self.welcome(now, from, hello, hash),
            Placed::Full => Err(DropReason::ServerFull),
            Placed::Elsewhere(shard) => {
                self.forward(shard, from, bytes);
                Ok(Taken::Counted)
            }
        }
    }

    /// Sends the Welcome of a Hello that was answered before, if it still waits to be confirmed.
    fn repeat_welcome(&mut self, hash: HelloHash, from: SocketAddr) -> Result<Taken, DropReason> {
        let repeated = DropReason::HelloRepeated;
        let peer = *self.by_hello.get(&hash.to_key()).ok_or(repeated)?;
        let connection = self.connections.get_mut(peer).ok_or(repeated)?;
        let Phase::HalfOpen(half_open) = &mut connection.phase else { return Err(repeated) };
        if connection.hello != Some(hash) || connection.path.address != from || !half_open.take_welcome() {
            return Err(repeated);
        }
        self.reply(Reply::Welcome(peer))
    }

    /// The Diffie-Hellman, and a half-open connection. The place that was reserved is released if it fails.
    fn welcome(
        &mut self,
        now: Moment,
        from: SocketAddr,
        hello: &Hello<'_>,
        hash: HelloHash,
    ) -> Result<Taken, DropReason> {
        let made = self.make_half_open(now, from, hello, hash);
        if made.is_err() {
            self.placement.release(hash);
        }
        self.reply(Reply::Welcome(made?))
    }

    fn make_half_open(
        &mut self,
        now: Moment,
        from: SocketAddr,
        hello: &Hello<'_>,
        hash: HelloHash,
    ) -> Result<PeerId, DropReason> {
        if self.connections.is_full() {
            return Err(DropReason::ServerFull);
        }
        if self.replies.len() >= REPLIES_WAITING {
            return Err(DropReason::ReplyFull);
        }
        let Role::Server(greeter) = &mut self.role else { return Err(DropReason::UnexpectedKind) };
        add(&mut self.stats.handshakes_computed, 1);
        let answer = greeter.answer(now, hello, &self.ids, &mut self.entropy)?;
        let Answer { agreement, local_id, remote_id, welcome } = answer;
        let path = Path { address: from, remote_id, datagram_max_bytes: DATAGRAM_SENT_MAX_BYTES };
        let timeouts = agreement.timeouts;
        let liveness = Liveness::new(now, false, timeouts.silent_timeout, timeouts.unacknowledged_timeout);
        let mut half_open = HalfOpen::new(now, welcome);
        half_open.take_welcome();
        let (bounds, phase) = (self.bounds, Phase::HalfOpen(Box::new(half_open)));
        let peer = self
            .connections
            .insert_with(|peer| Connection::new(peer, phase, path, liveness, bounds))
            .ok_or(DropReason::ServerFull)?;
        greeter.begin_half_open(now, from);
        if let Some(connection) = self.connections.get_mut(peer) {
            connection.hello = Some(hash);
            connection.agree(agreement, remote_id, &mut self.entropy);
        }
        self.by_hello.insert(hash.to_key(), peer);
        self.name(peer, Some(local_id));
        self.settle(peer);
        Ok(peer)
    }

    fn reply(&mut self, reply: Reply) -> Result<Taken, DropReason> {
        if self.replies.len() >= REPLIES_WAITING {
            return Err(DropReason::ReplyFull);
        }
        self.replies.push_back(reply);
        Ok(Taken::Acted)
    }

    fn on_retry(&mut self, now: Moment, from: SocketAddr, bytes: &[u8]) -> Result<Taken, DropReason> {
        let retry = Retry::decode(bytes)?;
        let peer = self.attempt_of(retry.client_id, from)?;
        let connection = self.connections.get_mut(peer).ok_or(DropReason::UnknownClientId)?;
        let Phase::Connecting(attempt) = &mut connection.phase else {
            return Err(DropReason::UnknownClientId);
        };
        attempt.on_retry(now, &retry)?;
        self.settle(peer);
        Ok(Taken::Acted)
    }

    fn on_refuse(&mut self, now: Moment, from: SocketAddr, bytes: &[u8]) -> Result<Taken, DropReason> {
        let refuse = Refuse::decode(bytes)?;
        let peer = self.attempt_of(refuse.client_id, from)?;
        let connection = self.connections.get_mut(peer).ok_or(DropReason::UnknownClientId)?;
        let Phase::Connecting(attempt) = &mut connection.phase else {
            return Err(DropReason::UnknownClientId);
        };
        attempt.on_refuse(now, refuse.refusal);
        self.settle(peer);
        Ok(Taken::Acted)
    }

    fn on_welcome(&mut self, now: Moment, from: SocketAddr, bytes: &[u8]) -> Result<Taken, DropReason> {
        let welcome = Welcome::decode(bytes)?;
        let peer = self.attempt_of(welcome.client_id, from)?;
        let connection = self.connections.get_mut(peer).ok_or(DropReason::UnknownClientId)?;
        let Phase::Connecting(attempt) = &mut connection.phase else {
            return Err(DropReason::UnknownClientId);
        };
        let (agreement, remote_id) = attempt.on_welcome(&welcome)?;
        self.by_client_id.remove(&u64::from_be_bytes(welcome.client_id.0));
        connection.agree(agreement, Some(remote_id), &mut self.entropy);
        connection.open(now, true);
        add(&mut self.stats.connections_opened, 1);
        self.events.connected(peer, from);
        self.settle(peer);
        Ok(Taken::Acted)
    }

    /// The attempt that this answer belongs to.
    fn attempt_of(&self, client_id: ClientId, from: SocketAddr) -> Result<PeerId, DropReason> {
        let peer = self.by_client_id.get(&u64::from_be_bytes(client_id.0)).copied();
        let peer = peer.ok_or(DropReason::UnknownClientId)?;
        let connection = self.connections.get(peer).ok_or(DropReason::UnknownClientId)?;
        if connection.path.address == from { Ok(peer) } else { Err(DropReason::WrongSource) }
    }
}
