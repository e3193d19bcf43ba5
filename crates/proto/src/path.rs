//! The network path of a connection, and its migration when the peer's address changes (PROTOCOL 11.4, "Paths").
//!
//! Only the newest packets and answered challenges move a path (RFC 9000 section 9.3). This module neither seals nor
//! opens packets. Only servers move paths.

use std::time::Duration;

use drumfire_crypto::Entropy;
use drumfire_wire::{ConnectionId, PathData};

use crate::limits::{
    AMPLIFICATION, CHALLENGE_INTERVAL, CONTESTED_ROUNDS, DATAGRAM_SENT_MAX_BYTES, PATH_CANDIDATES,
};
use crate::route::Route;
use crate::time::Moment;

/// The route to the peer, and the connection id for it.
#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) route: Route,
    pub(crate) remote_id: Option<ConnectionId>,
    pub(crate) datagram_max_bytes: u16,
    /// The data of a challenge from the peer, which must be sent back.
    pub(crate) answer: Option<PathData>,
    search: Option<Box<Search>>,
}

/// The destination of the next datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) route: Route,
    /// The most bytes that the datagram may have, or `None` when the path sets no limit.
    pub(crate) room_bytes: Option<usize>,
    /// The challenge to send to the address.
    pub(crate) challenge: Option<PathData>,
    /// The datagram carries nothing but the challenge.
    pub(crate) is_bare: bool,
}

/// Candidates for the peer's new address.
#[derive(Debug)]
struct Search {
    candidates: [Option<Candidate>; PATH_CANDIDATES],
    /// The route of the newest packet, if that is a candidate.
    leading: Option<Route>,
    /// The challenge to the known address.
    known: Challenge,
    /// The known address responded to a challenge, and no candidate has yet.
    prefers_known: bool,
    /// The remaining rounds of challenges for a connection whose Hello came from several addresses.
    contested_rounds: u32,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    route: Route,
    challenge: Challenge,
    received_bytes: usize,
    sent_bytes: usize,
    seen_at: Moment,
}

#[derive(Debug, Clone, Copy, Default)]
struct Challenge {
    data: Option<PathData>,
    is_due: bool,
    sent_at: Option<Moment>,
}

impl Challenge {
    /// Draws new data, unless the last challenge is unanswered and less than a second old.
    fn renew(&mut self, now: Moment, entropy: &mut Entropy) -> bool {
        let is_open = self.data.is_some()
            && (self.is_due || self.sent_at.is_some_and(|sent| now.since(sent) < CHALLENGE_INTERVAL));
        if !is_open {
            *self = Self { data: Some(PathData(entropy.bytes())), is_due: true, sent_at: None };
        }
        !is_open
    }

    fn is_answered_by(&self, data: PathData) -> bool {
        self.data == Some(data) && self.sent_at.is_some()
    }

    /// Whether a response may still be on its way.
    fn is_fresh(&self, now: Moment, settling: Duration) -> bool {
        self.is_due || self.sent_at.is_some_and(|sent| now.since(sent) < settling)
    }
}

impl Candidate {
    const fn new(route: Route, received_bytes: usize, now: Moment) -> Self {
        let challenge = Challenge { data: None, is_due: false, sent_at: None };
        Self { route, challenge, received_bytes, sent_bytes: 0, seen_at: now }
    }

    /// The number of bytes that may still be sent to the candidate (anti-amplification, RFC 9000 section 8.1).
    const fn allowance_bytes(&self) -> usize {
        self.received_bytes.saturating_mul(AMPLIFICATION).saturating_sub(self.sent_bytes)
    }
}

impl Search {
    fn new() -> Box<Self> {
        Box::new(Self {
            candidates: [None; PATH_CANDIDATES],
            leading: None,
            known: Challenge::default(),
            prefers_known: false,
            contested_rounds: 0,
        })
    }

    /// Returns the candidate with this route.
    fn find(&mut self, route: Route) -> Option<&mut Candidate> {
        self.candidates.iter_mut().flatten().find(|candidate| candidate.route == route)
    }

    /// Returns the candidate with this route. A new candidate takes a free place, or replaces the one seen longest
    /// ago.
    fn find_or_add(&mut self, route: Route, now: Moment) -> Option<&mut Candidate> {
        if self.find(route).is_none() {
            // A free place sorts first. Otherwise the candidate seen longest ago is replaced.
            let place = self.candidates.iter_mut().min_by_key(|place| place.map(|taken| taken.seen_at))?;
            *place = Some(Candidate::new(route, 0, now));
        }
        self.find(route)
    }
}

impl Path {
    /// The UDP payload that every path is assumed to carry, in bytes.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "1200 fits, and a constant cannot be converted otherwise"
    )]
    pub(crate) const START_BYTES: u16 = DATAGRAM_SENT_MAX_BYTES as u16;

    pub(crate) const fn new(route: Route, remote_id: Option<ConnectionId>) -> Self {
        Self { route, remote_id, datagram_max_bytes: Self::START_BYTES, answer: None, search: None }
    }

    /// Whether packets from this route change nothing.
    #[inline]
    pub(crate) fn is_settled(&self, from: Route) -> bool {
        self.search.is_none() && from == self.route
    }

    /// Registers the source of an opened packet of `bytes`. `is_newest` is true when no larger number was opened
    /// before.
    pub(crate) fn on_packet(
        &mut self,
        now: Moment,
        from: Route,
        bytes: usize,
        is_newest: bool,
        entropy: &mut Entropy,
    ) {
        if from == self.route {
            if let Some(search) = &mut self.search {
                if is_newest {
                    search.leading = None;
                }
                search.contest(now, entropy);
            }
            return;
        }
        // A reordered packet may come from an old address. It extends the allowance of a candidate, but makes none.
        if !is_newest {
            if let Some(candidate) = self.search.as_mut().and_then(|search| search.find(from)) {
                candidate.received_bytes = candidate.received_bytes.saturating_add(bytes);
            }
            return;
        }
        let search = self.search.get_or_insert_with(Search::new);
        // Data goes to the newest address immediately, within its allowance, so that a genuine move interrupts
        // nothing.
        search.leading = Some(from);
        let Some(candidate) = search.find_or_add(from, now) else { return };
        candidate.received_bytes = candidate.received_bytes.saturating_add(bytes);
        candidate.seen_at = now;
        if candidate.challenge.renew(now, entropy) {
            search.known.renew(now, entropy);
        }
        search.contest(now, entropy);
    }

    /// Registers another copy of the newest packet from another address, while a path is being searched. An attacker
    /// who copies packets may be faster than the peer, whose own packets then arrive second (RFC 9000 section 9.3.3).
    pub(crate) fn on_copy(&mut self, now: Moment, from: Route, bytes: usize, entropy: &mut Entropy) {
        let Some(search) = self.search.as_mut().filter(|_| from != self.route) else { return };
        let Some(candidate) = search.find_or_add(from, now) else { return };
        candidate.received_bytes = candidate.received_bytes.saturating_add(bytes);
        candidate.seen_at = now;
        candidate.challenge.renew(now, entropy);
    }

    /// When the challenge to the leading candidate is repeated.
    #[inline]
    pub(crate) fn repeat_at(&self) -> Option<Moment> {
        self.search.as_ref().and_then(|search| search.repeat_at())
    }

    /// Schedules the repeated challenge to the leading candidate, if it is due.
    pub(crate) fn repeat_due(&mut self, now: Moment) {
        if let Some(search) =
            self.search.as_mut().filter(|search| search.repeat_at().is_some_and(|at| at <= now))
            && let Some(candidate) = search.leading.and_then(|leading| search.find(leading))
        {
            candidate.challenge.is_due = true;
        }
    }

    /// Whether the peer's address is uncertain.
    pub(crate) const fn is_searching(&self) -> bool {
        self.search.is_some()
    }

    /// Starts a search among the addresses that sent the same Hello, each of `received_bytes`. The known address is
    /// only one of them.
    pub(crate) fn contest(
        &mut self,
        now: Moment,
        others: impl Iterator<Item = Route>,
        received_bytes: usize,
        entropy: &mut Entropy,
    ) {
        let search = self.search.get_or_insert_with(Search::new);
        search.contested_rounds = CONTESTED_ROUNDS;
        for (place, route) in search.candidates.iter_mut().zip(others) {
            *place = Some(Candidate::new(route, received_bytes, now));
        }
        search.contest(now, entropy);
    }

    /// Processes the response to a challenge. Returns whether the path moved.
    pub(crate) fn on_response(&mut self, data: PathData) -> bool {
        let Some(search) = &mut self.search else { return false };
        // The peer is still at the known address, so the candidate may be an attacker's.
        if search.known.is_answered_by(data) {
            search.known = Challenge::default();
            search.prefers_known = true;
            return false;
        }
        let answered =
            search.candidates.iter().flatten().find(|candidate| candidate.challenge.is_answered_by(data));
        let Some(route) = answered.map(|candidate| candidate.route) else { return false };
        // Only the holder of the keys can answer the challenge, and it was sent only to this address.
        self.route = route;
        self.search = None;
        true
    }

    /// Whether the next packet has to consider challenges or responses.
    #[inline]
    pub(crate) const fn has_news(&self) -> bool {
        self.answer.is_some() || self.search.is_some()
    }

    /// Whether a challenge or a response waits to be sent.
    #[inline]
    pub(crate) fn has_to_send(&self) -> bool {
        self.has_news()
            && (self.answer.is_some() || self.search.as_ref().is_some_and(|search| search.has_due()))
    }

    /// Returns the destination of the next datagram. `settling` is how long a response is waited for.
    #[inline]
    pub(crate) fn destination(&self, now: Moment, settling: impl FnOnce() -> Duration) -> Destination {
        let route = self.route;
        let plain = Destination { route, room_bytes: None, challenge: None, is_bare: false };
        match &self.search {
            None => plain,
            Some(search) => search.destination(now, settling(), plain),
        }
    }

    /// Registers a datagram that was built for this destination.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Moment, to: &Destination, bytes: usize) {
        if let Some(search) = &mut self.search {
            search.on_sent(now, self.route, to, bytes);
        }
    }

    /// Falls back to the size that every path carries.
    pub(crate) fn fall_back(&mut self) {
        self.datagram_max_bytes = self.datagram_max_bytes.min(Self::START_BYTES);
    }

    /// Forgets the candidates, when the connection becomes idle.
    pub(crate) fn shrink(&mut self) {
        self.search = None;
    }
}

/// The smallest allowance for which a datagram is sent to a candidate: a challenge with an ack fits.
const LEAST_BYTES: usize = 64;

impl Search {
    /// Returns the candidate from which the newest packet came.
    fn leading(&self) -> Option<&Candidate> {
        let leading = self.leading?;
        self.candidates.iter().flatten().find(|candidate| candidate.route == leading)
    }

    /// When the challenge to the leading candidate is repeated. A challenge or its response may be lost while neither
    /// end has data. The challenge is repeated while the known address is silent and the allowance of the candidate
    /// permits it.
    fn repeat_at(&self) -> Option<Moment> {
        let candidate = self.leading().filter(|_| !self.prefers_known)?;
        let is_possible = !candidate.challenge.is_due && candidate.allowance_bytes() >= LEAST_BYTES;
        let sent_at = candidate.challenge.sent_at.filter(|_| is_possible)?;
        Some(sent_at.after(CHALLENGE_INTERVAL))
    }

    /// Returns the destination of the next datagram. `plain` is one to the known address.
    #[cold]
    fn destination(&self, now: Moment, settling: Duration, plain: Destination) -> Destination {
        let is_known_silent = !self.prefers_known;
        let moved = self.leading().filter(|candidate| {
            is_known_silent
                && candidate.challenge.is_fresh(now, settling)
                && candidate.allowance_bytes() >= LEAST_BYTES
        });
        // The known address is challenged first. If it responds, the peer has not moved (RFC 9000 section 9.3.3).
        if let Some(data) = self.known.data.filter(|_| self.known.is_due) {
            return Destination { challenge: Some(data), is_bare: moved.is_some(), ..plain };
        }
        let due = self
            .candidates
            .iter()
            .flatten()
            .find(|candidate| candidate.challenge.is_due && candidate.allowance_bytes() >= LEAST_BYTES);
        if let Some(candidate) = due {
            let is_bare = moved.is_none_or(|moved| moved.route != candidate.route);
            return Destination {
                route: candidate.route,
                room_bytes: Some(candidate.allowance_bytes()),
                challenge: candidate.challenge.data,
                is_bare,
            };
        }
        moved.map_or(plain, |candidate| Destination {
            route: candidate.route,
            room_bytes: Some(candidate.allowance_bytes()),
            ..plain
        })
    }

    #[cold]
    fn on_sent(&mut self, now: Moment, known: Route, to: &Destination, bytes: usize) {
        let challenge = if to.route == known {
            Some(&mut self.known)
        } else {
            self.find(to.route).map(|candidate| {
                candidate.sent_bytes = candidate.sent_bytes.saturating_add(bytes);
                &mut candidate.challenge
            })
        };
        if let Some(challenge) = challenge.filter(|_| to.challenge.is_some()) {
            challenge.is_due = false;
            challenge.sent_at = Some(now);
        }
    }

    fn has_due(&self) -> bool {
        let may =
            |candidate: &Candidate| candidate.challenge.is_due && candidate.allowance_bytes() >= LEAST_BYTES;
        self.known.is_due || self.candidates.iter().flatten().any(may)
    }

    /// Challenges all addresses again, while the peer's is uncertain and rounds are left.
    fn contest(&mut self, now: Moment, entropy: &mut Entropy) {
        if self.contested_rounds == 0 {
            return;
        }
        let mut is_renewed = self.known.renew(now, entropy);
        for candidate in self.candidates.iter_mut().flatten() {
            is_renewed |= candidate.challenge.renew(now, entropy);
        }
        if is_renewed {
            self.contested_rounds = self.contested_rounds.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
