//! Counters of one endpoint, and the names under which datagrams are dropped.
//!
//! Every datagram handed in is counted once more: as a packet, as a handshake datagram that was acted on, as
//! forwarded, or under one [`DropReason`]. So the books close. Nothing here is per connection.

use core::fmt;

use drumfire_wire::DatagramError;

/// Why a datagram went no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// It had no bytes.
    Empty,
    /// Its first byte is not one of this protocol.
    FixedBits,
    /// Its handshake kind does not exist.
    UnknownKind,
    /// Its length is not one of its kind's.
    WrongLength,
    /// It claims a packet number of no length.
    PacketNumberLength,
    /// It is of a kind this end does not take.
    UnexpectedKind,
    /// Nothing else was wrong, but its source cannot be answered: port 0, or an unspecified, multicast, or broadcast address.
    UnanswerableSource,
    /// Its connection id was not made by this server.
    ForgedId,
    /// No connection has its id.
    UnknownConnection,
    /// It was forwarded to the wrong shard, or to one that has no place for it any more.
    Misrouted,
    /// Its connection had its share of this pass.
    PassShare,
    /// Its connection has no keys yet.
    NoKeys,
    /// Its packet number was accepted before.
    Duplicate,
    /// Its packet number is below the replay window.
    TooOld,
    /// It did not open.
    Forged,
    /// Its connection was closed before it was delivered.
    ConnectionClosed,
    /// It brought messages for which the connection has no memory left; it was not acknowledged.
    ReceiveMemory,
    /// It brought a piece of a message that says something else than the pieces before.
    PiecesDisagree,
    /// It broke the protocol, and its connection is closed.
    Protocol,
    /// A Hello for another protocol id.
    WrongProtocol,
    /// A Hello of another version, with a good cookie.
    WrongVersion,
    /// A Hello for a key this server does not have.
    UnknownServerKey,
    /// A Hello with a token, where none is taken.
    UnexpectedToken,
    /// A Hello without a token, where one is needed.
    TokenMissing,
    /// A Hello with a token that is for another server, or that no key of this server opens.
    TokenForeign,
    /// A Hello with a token whose time is over, or that was issued before this server began.
    TokenExpired,
    /// A Hello whose token holds impossible values, or that has bytes of a token and names no key.
    TokenMalformed,
    /// A Hello with a token that another Hello has used.
    TokenUsed,
    /// A Hello without the mandatory suite.
    BadOffer,
    /// A Hello without a good cookie, when enough Retries were sent.
    RetryLimit,
    /// A Hello whose source has made as many attempts, or has as many half-open connections, as it may.
    SourceLimit,
    /// A Hello when the endpoint has enough half-open connections.
    HalfOpenLimit,
    /// A Hello when enough handshakes were done.
    HandshakeLimit,
    /// A Hello whose first MAC does not fit.
    BadMac1,
    /// A Hello for which no server has room.
    ServerFull,
    /// A Hello when the connections of the endpoint hold as much of messages as they may together.
    MemoryFull,
    /// A Hello of somebody who is banned.
    Banned,
    /// A Hello that the application did not accept.
    Declined,
    /// A Hello over which the application's decision panicked.
    AcceptPanicked,
    /// A Hello when the server takes no new players.
    NotAdmitting,
    /// A Hello whose source has as many connections as it may.
    SourceFull,
    /// A Hello when every worker that might take it is busy.
    Overloaded,
    /// A Hello whose Noise message does not fit.
    BadNoise,
    /// A Hello with parameters out of bounds.
    BadParameters,
    /// A Hello for whose connection no unused id could be drawn: the source of entropy is broken.
    NoConnectionId,
    /// A Hello that was answered often enough, or whose connection exists.
    HelloRepeated,
    /// Too many datagrams wait to be forwarded.
    ForwardFull,
    /// Too many answers wait to be sent.
    ReplyFull,
    /// An answer to a Hello that this client did not send, or sent long ago.
    UnknownClientId,
    /// An answer from somewhere else than the Hello went to.
    WrongSource,
    /// A Retry beyond those a client keeps.
    CookieLimit,
    /// A Welcome that does not open, or says what cannot be.
    BadWelcome,
    /// A Reset that fits no connection.
    BadReset,
}

impl DropReason {
    /// How many there are.
    pub const COUNT: usize = 53;

    /// All of them, in the order of their counters.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Empty,
        Self::FixedBits,
        Self::UnknownKind,
        Self::WrongLength,
        Self::PacketNumberLength,
        Self::UnexpectedKind,
        Self::UnanswerableSource,
        Self::ForgedId,
        Self::UnknownConnection,
        Self::Misrouted,
        Self::PassShare,
        Self::NoKeys,
        Self::Duplicate,
        Self::TooOld,
        Self::Forged,
        Self::ConnectionClosed,
        Self::ReceiveMemory,
        Self::PiecesDisagree,
        Self::Protocol,
        Self::WrongProtocol,
        Self::WrongVersion,
        Self::UnknownServerKey,
        Self::UnexpectedToken,
        Self::TokenMissing,
        Self::TokenForeign,
        Self::TokenExpired,
        Self::TokenMalformed,
        Self::TokenUsed,
        Self::BadOffer,
        Self::RetryLimit,
        Self::SourceLimit,
        Self::HalfOpenLimit,
        Self::HandshakeLimit,
        Self::BadMac1,
        Self::ServerFull,
        Self::MemoryFull,
        Self::Banned,
        Self::Declined,
        Self::AcceptPanicked,
        Self::NotAdmitting,
        Self::SourceFull,
        Self::Overloaded,
        Self::BadNoise,
        Self::BadParameters,
        Self::NoConnectionId,
        Self::HelloRepeated,
        Self::ForwardFull,
        Self::ReplyFull,
        Self::UnknownClientId,
        Self::WrongSource,
        Self::CookieLimit,
        Self::BadWelcome,
        Self::BadReset,
    ];

    /// A stable name for counters and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::FixedBits => "fixed_bits",
            Self::UnknownKind => "unknown_kind",
            Self::WrongLength => "wrong_length",
            Self::PacketNumberLength => "packet_number_length",
            Self::UnexpectedKind => "unexpected_kind",
            Self::UnanswerableSource => "unanswerable_source",
            Self::ForgedId => "forged_id",
            Self::UnknownConnection => "unknown_connection",
            Self::Misrouted => "misrouted",
            Self::PassShare => "pass_share",
            Self::NoKeys => "no_keys",
            Self::Duplicate => "duplicate",
            Self::TooOld => "too_old",
            Self::Forged => "forged",
            Self::ConnectionClosed => "connection_closed",
            Self::ReceiveMemory => "receive_memory",
            Self::PiecesDisagree => "pieces_disagree",
            Self::Protocol => "protocol",
            Self::WrongProtocol => "wrong_protocol",
            Self::WrongVersion => "wrong_version",
            Self::UnknownServerKey => "unknown_server_key",
            Self::UnexpectedToken => "unexpected_token",
            Self::TokenMissing => "token_missing",
            Self::TokenForeign => "token_foreign",
            Self::TokenExpired => "token_expired",
            Self::TokenMalformed => "token_malformed",
            Self::TokenUsed => "token_used",
            Self::BadOffer => "bad_offer",
            Self::RetryLimit => "retry_limit",
            Self::SourceLimit => "source_limit",
            Self::HalfOpenLimit => "half_open_limit",
            Self::HandshakeLimit => "handshake_limit",
            Self::BadMac1 => "bad_mac1",
            Self::ServerFull => "server_full",
            Self::MemoryFull => "memory_full",
            Self::Banned => "banned",
            Self::Declined => "declined",
            Self::AcceptPanicked => "accept_panicked",
            Self::NotAdmitting => "not_admitting",
            Self::SourceFull => "source_full",
            Self::Overloaded => "overloaded",
            Self::BadNoise => "bad_noise",
            Self::BadParameters => "bad_parameters",
            Self::NoConnectionId => "no_connection_id",
            Self::HelloRepeated => "hello_repeated",
            Self::ForwardFull => "forward_full",
            Self::ReplyFull => "reply_full",
            Self::UnknownClientId => "unknown_client_id",
            Self::WrongSource => "wrong_source",
            Self::CookieLimit => "cookie_limit",
            Self::BadWelcome => "bad_welcome",
            Self::BadReset => "bad_reset",
        }
    }
}

impl From<DatagramError> for DropReason {
    fn from(error: DatagramError) -> Self {
        match error {
            DatagramError::Empty => Self::Empty,
            DatagramError::FixedBits => Self::FixedBits,
            DatagramError::UnknownKind => Self::UnknownKind,
            DatagramError::WrongKind => Self::UnexpectedKind,
            DatagramError::WrongLength => Self::WrongLength,
            DatagramError::PacketNumberLength => Self::PacketNumberLength,
        }
    }
}

/// What an endpoint did so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams handed in.
    pub datagrams_received: u64,
    /// Of those, packets that were opened and delivered.
    pub packets_received: u64,
    /// Of those, handshake datagrams that were acted on.
    pub handshakes_received: u64,
    /// Of those, datagrams given out for another shard.
    pub forwarded: u64,
    /// Datagrams written to be sent.
    pub datagrams_sent: u64,
    /// Bytes of UDP payload written to be sent.
    pub bytes_sent: u64,
    /// Of the datagrams, packets with nothing but an ack.
    pub acks_sent_alone: u64,
    /// Probes sent because no ack came.
    pub probes_sent: u64,
    /// Reliable messages put into a packet again.
    pub messages_resent: u64,
    /// Messages put into packets, resends included.
    pub messages_sent: u64,
    /// Messages dropped before they were sent, because the memory was full and their channel's options say so.
    pub messages_dropped: u64,
    /// Pieces of messages put into packets, those sent again included; a message in pieces counts as sent with its last.
    pub pieces_sent: u64,
    /// Messages handed to the application.
    pub messages_delivered: u64,
    /// Unreliable messages for which no memory was left.
    pub unreliable_overflows: u64,
    /// Messages that were given up by their sender after it had sent them.
    pub messages_skipped: u64,
    /// Copies of messages that rode again for redundancy.
    pub messages_copied: u64,
    /// Messages of this end that were given up because their time was over.
    pub messages_expired: u64,
    /// Sequenced messages that came after a newer one, or too late to tell: not delivered, as promised.
    pub sequenced_late: u64,
    /// Packets found lost.
    pub packets_lost: u64,
    /// Changes of keys that this end began; those that peers began are not counted.
    pub key_changes: u64,
    /// Diffie-Hellman handshakes computed.
    pub handshakes_computed: u64,
    /// Bytes of Hellos received, which is what may be answered in proportion.
    pub hello_bytes: u64,
    /// Bytes of Retries sent.
    pub retry_bytes: u64,
    /// Bytes of Refuses sent.
    pub refuse_bytes: u64,
    /// Resets sent.
    pub resets_sent: u64,
    /// Times a connection's path moved to another address.
    pub paths_moved: u64,
    /// Bytes of Welcomes sent.
    pub welcome_bytes: u64,
    /// Connections that became connected.
    pub connections_opened: u64,
    /// Connections that were connected and ended.
    pub connections_closed: u64,
    /// Flight records that were not given out, because too many waited for the application.
    pub flight_records_dropped: u64,
    pub(crate) dropped: DropCounts,
}

/// The number of dropped datagrams per [`DropReason`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct DropCounts(pub(crate) [u64; DropReason::COUNT]);

impl fmt::Debug for DropCounts {
    /// Prints the reasons that occurred, by name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = DropReason::ALL.iter().map(|reason| reason.name()).zip(&self.0);
        f.debug_map().entries(counts.filter(|(_, count)| **count > 0)).finish()
    }
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            datagrams_received: 0,
            packets_received: 0,
            handshakes_received: 0,
            forwarded: 0,
            datagrams_sent: 0,
            bytes_sent: 0,
            acks_sent_alone: 0,
            probes_sent: 0,
            messages_resent: 0,
            messages_sent: 0,
            messages_delivered: 0,
            unreliable_overflows: 0,
            messages_skipped: 0,
            messages_dropped: 0,
            pieces_sent: 0,
            messages_copied: 0,
            messages_expired: 0,
            sequenced_late: 0,
            packets_lost: 0,
            key_changes: 0,
            handshakes_computed: 0,
            hello_bytes: 0,
            retry_bytes: 0,
            refuse_bytes: 0,
            resets_sent: 0,
            paths_moved: 0,
            welcome_bytes: 0,
            connections_opened: 0,
            connections_closed: 0,
            flight_records_dropped: 0,
            dropped: DropCounts([0; DropReason::COUNT]),
        }
    }
}

impl Stats {
    /// Datagrams dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.0.get(usize::from(reason as u8)).copied().unwrap_or(0)
    }

    /// Datagrams dropped for any reason.
    #[must_use]
    pub fn dropped_count(&self) -> u64 {
        self.dropped.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Datagrams handed in that are in no other counter; 0, or the books do not close.
    #[must_use]
    pub fn unexplained(&self) -> u64 {
        let parts = [self.packets_received, self.handshakes_received, self.forwarded, self.dropped_count()];
        let explained = parts.into_iter().fold(0_u64, u64::saturating_add);
        self.datagrams_received.abs_diff(explained)
    }

    pub(crate) fn on_drop(&mut self, reason: DropReason) {
        if let Some(count) = self.dropped.0.get_mut(usize::from(reason as u8)) {
            add(count, 1);
        }
    }
}

/// Adds to a counter.
pub(crate) const fn add(counter: &mut u64, more: u64) {
    *counter = counter.saturating_add(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_its_own_counter_and_name() {
        let mut stats = Stats::default();
        for (at, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(reason as u8), at);
            stats.on_drop(reason);
            assert_eq!(stats.dropped(reason), 1);
        }
        let names: HashSet<_> = DropReason::ALL.map(DropReason::name).into();
        assert_eq!((names.len(), stats.dropped_count()), (DropReason::COUNT, DropReason::COUNT as u64));
    }

    #[test]
    fn debug_prints_only_reasons_that_occurred() {
        let mut stats = Stats::default();
        assert!(format!("{stats:?}").ends_with("dropped: {} }"), "{stats:?}");
        stats.on_drop(DropReason::Forged);
        stats.on_drop(DropReason::TokenUsed);
        stats.on_drop(DropReason::TokenUsed);
        assert!(format!("{stats:?}").ends_with(r#"dropped: {"forged": 1, "token_used": 2} }"#), "{stats:?}");
    }

    #[test]
    fn the_books_close_or_say_by_how_much_they_do_not() {
        let mut stats =
            Stats { datagrams_received: 5, packets_received: 2, forwarded: 1, ..Stats::default() };
        stats.on_drop(DropReason::Empty);
        assert_eq!(stats.unexplained(), 1);
        stats.handshakes_received = 1;
        assert_eq!(stats.unexplained(), 0);
    }
}
