//! The network path of a connection, and its migration when the peer's address changes (PROTOCOL 11.4, "Paths").
//!
//! Only the newest packets and answered challenges move a path (RFC 9000 section 9.3). This module neither seals nor
//! opens packets. Only servers move paths.

use std::time::Duration;

use drumfire_crypto::Entropy;
use drumfire_wire::{ConnectionId, PathData};

use crate::limits::{
    AMPLIFICATION, CANDIDATE_SILENCE, CHALLENGE_INTERVAL, CHALLENGE_ROUNDS, DATAGRAM_SENT_MAX_BYTES,
    PATH_CANDIDATES,
};
use crate::route::Route;
use crate::time::Moment;

/// The route to the peer, and the connection id for it.
#[derive(Debug)]
pub(crate) struct Path {
    /// The known address of the peer, and the local one to send from.
    pub(crate) route: Route,
    /// The connection id in the header of sent packets. `None` when the peer's socket uses no ids.
    pub(crate) remote_id: Option<ConnectionId>,
    /// The largest UDP payload in bytes that the path is known to carry and the peer accepts.
    pub(crate) datagram_max_bytes: u16,
    /// The data of a challenge from the peer, which must be sent back. `None` when no challenge is unanswered.
    pub(crate) answer: Option<PathData>,
    /// The candidates for another address. `None` while the peer's address is certain.
    search: Option<Box<Search>>,
}

/// The destination of the next datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The address to send to.
    pub(crate) route: Route,
    /// The maximum number of bytes that the datagram may have, or `None` when the path sets no limit.
    pub(crate) room_bytes: Option<usize>,
    /// The challenge to send to the address, or `None` when no challenge is due there.
    pub(crate) challenge: Option<PathData>,
    /// The datagram carries nothing but the challenge.
    pub(crate) is_bare: bool,
}

/// Candidates for the peer's new address.
#[derive(Debug)]
struct Search {
    /// The candidates, in no order. `None` is a free place.
    candidates: [Option<Candidate>; PATH_CANDIDATES],
    /// The route of the newest packet. `None` when that packet came from the known address. A leading candidate that
    /// was replaced is no longer in `candidates`, and data then goes to the known address.
    leading: Option<Route>,
    /// The challenge to the known address.
    known: Challenge,
    /// The known address responded to a challenge, and no candidate has yet.
    prefers_known: bool,
    /// The remaining rounds of challenges for a connection whose Hello came from several addresses.
    challenge_rounds_left: u32,
}

/// An address that may be the peer's new one.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    /// The address.
    route: Route,
    /// The challenge that only the peer can answer.
    challenge: Challenge,
    /// The bytes of datagrams from the address, which limit the bytes sent to it.
    received_bytes: usize,
    /// The bytes of datagrams sent to the address.
    sent_bytes: usize,
    /// The time at which a packet last came from the address.
    seen_at: Moment,
}

/// A challenge to one address.
#[derive(Debug, Clone, Copy, Default)]
struct Challenge {
    /// The random data that the response must repeat. `None` when the address is not challenged.
    data: Option<PathData>,
    /// The data of the challenge before this one, which was sent to the same address. On a slow path its response arrives
    /// after the next challenge was sent.
    previous: Option<PathData>,
    /// Whether the challenge waits to be sent, for the first time or again.
    is_due: bool,
    /// The time at which the challenge was last sent. `None` before the first time.
    sent_at: Option<Moment>,
}

impl Challenge {
    /// Draws new data, unless the last challenge is unanswered and less than a second old.
    fn renew(&mut self, now: Moment, entropy: &mut Entropy) -> bool {
        let is_open = self.data.is_some()
            && (self.is_due || self.sent_at.is_some_and(|sent| now.since(sent) < CHALLENGE_INTERVAL));
        // New data for each attempt, so that a very late response to an old challenge proves nothing. The interval keeps a
        // peer that changes its address with each packet from causing a challenge with each packet.
        if !is_open {
            let previous = self.data;
            *self = Self { data: Some(PathData(entropy.bytes())), previous, is_due: true, sent_at: None };
        }
        !is_open
    }

    /// Whether a response with this data proves the address. Data that was never sent proves nothing.
    fn is_answered_by(&self, data: PathData) -> bool {
        let is_newest = self.data == Some(data) && self.sent_at.is_some();
        is_newest || self.previous == Some(data)
    }

    /// Whether a response may still be on its way.
    fn is_fresh(&self, now: Moment, settling: Duration) -> bool {
        self.is_due || self.sent_at.is_some_and(|sent| now.since(sent) < settling)
    }
}

impl Candidate {
    const fn new(route: Route, received_bytes: usize, now: Moment) -> Self {
        let challenge = Challenge { data: None, previous: None, is_due: false, sent_at: None };
        Self { route, challenge, received_bytes, sent_bytes: 0, seen_at: now }
    }

    /// Whether the candidate neither sent a packet nor was challenged for [`CANDIDATE_SILENCE`].
    fn is_silent(&self, now: Moment) -> bool {
        let last_at = self.challenge.sent_at.map_or(self.seen_at, |sent_at| sent_at.max(self.seen_at));
        now.since(last_at) >= CANDIDATE_SILENCE
    }

    /// The number of bytes that may still be sent to the candidate (anti-amplification, RFC 9000 section 8.1).
    const fn allowance_bytes(&self) -> usize {
        self.received_bytes.saturating_mul(AMPLIFICATION).saturating_sub(self.sent_bytes)
    }

    /// The size of the next datagram to the candidate, at most. Nothing is known about the size that this path carries,
    /// and a challenge that it drops would delay the move.
    fn room_bytes(&self) -> usize {
        self.allowance_bytes().min(Path::START_BYTES.into())
    }
}

impl Search {
    fn new() -> Box<Self> {
        Box::new(Self {
            candidates: [None; PATH_CANDIDATES],
            leading: None,
            known: Challenge::default(),
            prefers_known: false,
            challenge_rounds_left: 0,
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
        debug_assert!(self.find(route).is_some(), "there is no place for a candidate");
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

    /// Whether this is the present route, and no other address of the peer is being validated.
    #[inline]
    pub(crate) fn is_current(&self, from: Route) -> bool {
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
        // A newer packet from the known address ends the lead of any candidate: the peer is still there, or has come
        // back.
        if from == self.route {
            // Otherwise the search would last as long as the peer sends, and data would not follow its next move.
            self.search.take_if(|search| is_newest && search.is_won_by_known(now));
            if let Some(search) = &mut self.search {
                if is_newest {
                    search.leading = None;
                    // The challenge or its response may be lost, and without a response the search does not end.
                    if !search.prefers_known {
                        search.known.renew(now, entropy);
                    }
                }
                search.challenge_all(now, entropy);
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
        // Both addresses are challenged. An attacker who forwards packets makes its own address look genuine. It cannot
        // keep the peer from responding at the known address (RFC 9000 section 9.3.3).
        if candidate.challenge.renew(now, entropy) {
            search.known.renew(now, entropy);
        }
        search.challenge_all(now, entropy);
    }

    /// Registers another copy of the newest packet from another address, while a path is being searched. An attacker
    /// who copies packets may be faster than the peer, whose own packets then arrive second (RFC 9000 section 9.3.3).
    pub(crate) fn on_copy(&mut self, now: Moment, from: Route, bytes: usize, entropy: &mut Entropy) {
        // Without a search the first packet came from the known address, and a copy from elsewhere is ignored.
        let Some(search) = self.search.as_mut().filter(|_| from != self.route) else { return };
        let Some(candidate) = search.find_or_add(from, now) else { return };
        candidate.received_bytes = candidate.received_bytes.saturating_add(bytes);
        candidate.seen_at = now;
        candidate.challenge.renew(now, entropy);
    }

    /// Returns the time at which the challenge to the leading candidate is repeated.
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
    pub(crate) fn search_among(
        &mut self,
        now: Moment,
        others: impl Iterator<Item = Route>,
        received_bytes: usize,
        entropy: &mut Entropy,
    ) {
        // All of them repeated a cookie, so each receives what is sent to it, but only the holder of the keys can
        // answer a challenge. Challenges may be lost, so they are repeated for several rounds. There may be more
        // addresses than places. The others become candidates when a packet comes from them.
        let search = self.search.get_or_insert_with(Search::new);
        search.challenge_rounds_left = CHALLENGE_ROUNDS;
        for (place, route) in search.candidates.iter_mut().zip(others) {
            *place = Some(Candidate::new(route, received_bytes, now));
        }
        search.challenge_all(now, entropy);
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
    pub(crate) const fn has_path_frames(&self) -> bool {
        self.answer.is_some() || self.search.is_some()
    }

    /// Whether a challenge or a response waits to be sent.
    #[inline]
    pub(crate) fn has_to_send(&self) -> bool {
        self.has_path_frames()
            && (self.answer.is_some() || self.search.as_ref().is_some_and(|search| search.has_due()))
    }

    /// Returns the destination of the next datagram. `settling` is how long a response is waited for.
    #[inline]
    pub(crate) fn destination(&self, now: Moment, settling: impl FnOnce() -> Duration) -> Destination {
        // Most packets need no decision, and pay for none.
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

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        let Some(search) = &self.search else { return };
        let candidates = || search.candidates.iter().flatten();
        for candidate in candidates() {
            debug_assert!(
                candidate.sent_bytes <= candidate.received_bytes.saturating_mul(AMPLIFICATION),
                "{} bytes were sent to an address without a proof, for {} that came from it",
                candidate.sent_bytes,
                candidate.received_bytes
            );
        }
        let challenges = candidates().map(|candidate| &candidate.challenge).chain([&search.known]);
        for challenge in challenges {
            debug_assert!(challenge.data.is_some() || !challenge.is_due, "a challenge without data is due");
        }
    }

    /// Forgets the candidates, when the connection becomes idle.
    pub(crate) fn shrink(&mut self) {
        self.search = None;
    }
}

/// The smallest allowance for which a datagram is sent to a candidate: a challenge with an ack fits.
const CANDIDATE_MIN_BYTES: usize = 64;

impl Search {
    /// Returns the candidate from which the newest packet came.
    fn leading(&self) -> Option<&Candidate> {
        let leading = self.leading?;
        self.candidates.iter().flatten().find(|candidate| candidate.route == leading)
    }

    /// Whether the known address responded, and all candidates are silent.
    fn is_won_by_known(&self, now: Moment) -> bool {
        self.prefers_known
            && self.challenge_rounds_left == 0
            && self.candidates.iter().flatten().all(|candidate| candidate.is_silent(now))
    }

    /// Returns the time at which the challenge to the leading candidate is repeated. A challenge or its response may be
    /// lost while neither end has data. The challenge is repeated while the known address is silent and the allowance
    /// of the candidate permits it.
    fn repeat_at(&self) -> Option<Moment> {
        let candidate = self.leading().filter(|_| !self.prefers_known)?;
        let is_possible = !candidate.challenge.is_due && candidate.allowance_bytes() >= CANDIDATE_MIN_BYTES;
        let sent_at = candidate.challenge.sent_at.filter(|_| is_possible)?;
        Some(sent_at.after(CHALLENGE_INTERVAL))
    }

    /// Returns the destination of the next datagram. `plain` is one to the known address.
    #[cold]
    fn destination(&self, now: Moment, settling: Duration, plain: Destination) -> Destination {
        // Data follows the newest packet while the response may still be on its way, so that a genuine move loses
        // nothing. A candidate that stays silent loses the data again.
        let is_known_silent = !self.prefers_known;
        let moved = self.leading().filter(|candidate| {
            is_known_silent
                && candidate.challenge.is_fresh(now, settling)
                && candidate.allowance_bytes() >= CANDIDATE_MIN_BYTES
        });
        // The known address is challenged first. If it responds, the peer has not moved (RFC 9000 section 9.3.3).
        if let Some(data) = self.known.data.filter(|_| self.known.is_due) {
            return Destination { challenge: Some(data), is_bare: moved.is_some(), ..plain };
        }
        // Then the candidates, one datagram each. Only the datagram to the address that gets the data carries more
        // than the challenge.
        let due = self.candidates.iter().flatten().find(|candidate| {
            candidate.challenge.is_due && candidate.allowance_bytes() >= CANDIDATE_MIN_BYTES
        });
        if let Some(candidate) = due {
            let is_bare = moved.is_none_or(|moved| moved.route != candidate.route);
            return Destination {
                route: candidate.route,
                room_bytes: Some(candidate.room_bytes()),
                challenge: candidate.challenge.data,
                is_bare,
            };
        }
        moved.map_or(plain, |candidate| Destination {
            route: candidate.route,
            room_bytes: Some(candidate.room_bytes()),
            ..plain
        })
    }

    /// Counts a datagram against the allowance of its candidate, and registers its challenge.
    #[cold]
    fn on_sent(&mut self, now: Moment, known: Route, to: &Destination, bytes: usize) {
        let challenge = if to.route == known {
            Some(&mut self.known)
        } else {
            let candidate = self.find(to.route);
            debug_assert!(
                candidate.is_some(),
                "a datagram was sent to {:?}, which is no candidate",
                to.route
            );
            candidate.map(|candidate| {
                candidate.sent_bytes = candidate.sent_bytes.saturating_add(bytes);
                &mut candidate.challenge
            })
        };
        if let Some(challenge) = challenge.filter(|_| to.challenge.is_some()) {
            challenge.is_due = false;
            challenge.sent_at = Some(now);
        }
    }

    /// Whether a challenge can be sent now. A challenge beyond the allowance waits until more bytes arrive.
    fn has_due(&self) -> bool {
        let may = |candidate: &Candidate| {
            candidate.challenge.is_due && candidate.allowance_bytes() >= CANDIDATE_MIN_BYTES
        };
        self.known.is_due || self.candidates.iter().flatten().any(may)
    }

    /// Challenges all addresses again, if rounds are left.
    fn challenge_all(&mut self, now: Moment, entropy: &mut Entropy) {
        if self.challenge_rounds_left == 0 {
            return;
        }
        // A round counts only when a challenge is renewed, which is at most once per interval.
        let mut is_renewed = self.known.renew(now, entropy);
        for candidate in self.candidates.iter_mut().flatten() {
            is_renewed |= candidate.challenge.renew(now, entropy);
        }
        if is_renewed {
            self.challenge_rounds_left = self.challenge_rounds_left.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests;
