//! The counters of one endpoint, and the reasons for dropped datagrams.
//!
//! Every received datagram is counted exactly once more: as a packet, as a processed handshake datagram, as
//! forwarded, or under one [`DropReason`]. The sums therefore match. No counter is per connection.

use core::fmt;

use drumfire_wire::DatagramError;

/// The reason why a datagram was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The datagram was empty.
    Empty,
    /// The first byte of the datagram is not one of this protocol.
    FixedBits,
    /// The handshake kind of the datagram does not exist.
    UnknownKind,
    /// The length of the datagram is not valid for its kind.
    WrongLength,
    /// The datagram has an invalid length of the packet number.
    PacketNumberLength,
    /// The datagram is of a kind that this end does not accept.
    UnexpectedKind,
    /// The datagram is valid otherwise, but its source cannot receive a response: port 0, or an unspecified, multicast, or
    /// broadcast address.
    UnanswerableSource,
    /// The connection id of the packet was not issued by this server.
    ForgedId,
    /// No connection has the id of the packet.
    UnknownConnection,
    /// The datagram was forwarded to the wrong shard, or to one that no longer has a place for it.
    Misrouted,
    /// The connection of the packet has used up its share of this pass.
    PassShare,
    /// The connection of the packet has no keys yet.
    NoKeys,
    /// The packet number was accepted before.
    Duplicate,
    /// The packet number is below the replay window.
    TooOld,
    /// The tag did not authenticate the packet, which was forged or corrupted.
    Forged,
    /// The connection of the packet was closed before the packet was delivered.
    ConnectionClosed,
    /// The datagram contained messages for which the connection has no memory left. It was not acknowledged.
    ReceiveMemory,
    /// The datagram contained a fragment that contradicts earlier fragments of its message.
    FragmentMismatch,
    /// The datagram violated the protocol, and its connection is closed.
    Protocol,
    /// The datagram is a Hello for another protocol id.
    WrongProtocol,
    /// The datagram is a Hello of another version, with a valid cookie.
    WrongVersion,
    /// The datagram is a Hello for a key that this server does not have.
    UnknownServerKey,
    /// The datagram is a Hello with a token, on a server that accepts none.
    UnexpectedToken,
    /// The datagram is a Hello without a token, on a server that requires one.
    TokenMissing,
    /// The datagram is a Hello with a token that is for another server, or that no key of this server opens.
    TokenForeign,
    /// The datagram is a Hello with a token that has expired, or was issued before this server started.
    TokenExpired,
    /// The datagram is a Hello whose token contains impossible values, or that has bytes of a token without a key id.
    TokenMalformed,
    /// The datagram is a Hello with a token that another Hello has used.
    TokenUsed,
    /// The datagram is a Hello without the mandatory suite.
    BadOffer,
    /// The datagram is a Hello without a valid cookie, when the limit of Retries was reached.
    RetryLimit,
    /// The datagram is a Hello whose source has reached its limit of attempts or of half-open connections.
    SourceLimit,
    /// The datagram is a Hello that arrived when the limit of half-open connections was reached.
    HalfOpenLimit,
    /// The datagram is a Hello that arrived when the limit of handshakes was reached.
    HandshakeLimit,
    /// The datagram is a Hello whose first MAC is invalid.
    BadMac1,
    /// The datagram is a Hello that arrived when the server was full.
    ServerFull,
    /// The datagram is a Hello that arrived when the connections of the endpoint held as many bytes of messages as allowed.
    MemoryFull,
    /// The datagram is a Hello from a banned client.
    Banned,
    /// The datagram is a Hello that the application did not accept.
    Declined,
    /// The datagram is a Hello for which the application's decision panicked.
    AcceptPanicked,
    /// The datagram is a Hello that arrived when the server accepts no new players.
    NotAdmitting,
    /// The datagram is a Hello whose source has reached its limit of connections.
    SourceFull,
    /// The datagram is a Hello that arrived when every worker that could accept it was overloaded.
    Overloaded,
    /// The datagram is a Hello whose Noise message is invalid.
    BadNoise,
    /// The datagram is a Hello with parameters out of range.
    BadParameters,
    /// The datagram is a Hello for whose connection no unused id could be drawn. The entropy source is broken.
    NoConnectionId,
    /// The datagram is a Hello that was answered often enough, or whose connection exists.
    HelloRepeated,
    /// Too many datagrams wait to be forwarded.
    ForwardFull,
    /// Too many responses wait to be sent.
    ReplyFull,
    /// The datagram is a response to a Hello that this client did not send, or sent long ago.
    UnknownClientId,
    /// The datagram is a response from another address than that of the server.
    WrongSource,
    /// The datagram is a Retry beyond the number that a client stores.
    CookieLimit,
    /// The datagram is a Welcome that does not open, or has invalid contents.
    BadWelcome,
    /// The datagram is a Welcome beyond the number that a client tries to open per second.
    WelcomeLimit,
    /// The datagram is a Reset that matches no connection.
    BadReset,
}

impl DropReason {
    /// The number of reasons.
    pub const COUNT: usize = 54;

    /// All reasons, in the order of their counters.
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
        Self::FragmentMismatch,
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
        Self::WelcomeLimit,
        Self::BadReset,
    ];

    /// Returns a stable name for counters and logs.
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
            Self::FragmentMismatch => "fragment_mismatch",
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
            Self::WelcomeLimit => "welcome_limit",
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

/// The counters of an endpoint since its creation. They never decrease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of datagrams received.
    pub datagrams_received: u64,
    /// The number of received datagrams that were opened and delivered as packets.
    pub packets_received: u64,
    /// The number of received handshake datagrams that were processed.
    pub handshakes_received: u64,
    /// The number of received datagrams that were passed to another shard.
    pub forwarded: u64,
    /// The number of datagrams returned to be sent.
    pub datagrams_sent: u64,
    /// The number of bytes of UDP payload returned to be sent.
    pub bytes_sent: u64,
    /// The number of sent packets with nothing but an ack.
    pub ack_only_packets_sent: u64,
    /// The number of probes sent because no ack arrived in time.
    pub probes_sent: u64,
    /// The number of retransmissions of reliable messages.
    pub messages_resent: u64,
    /// The number of messages put into packets, including retransmissions.
    pub messages_sent: u64,
    /// The number of messages dropped before they were sent, because the memory was full as the options of their
    /// channel request.
    pub messages_dropped: u64,
    /// The number of fragments put into packets, including retransmissions. A fragmented message counts as sent with its last
    /// fragment.
    pub fragments_sent: u64,
    /// The number of messages delivered to the application.
    pub messages_delivered: u64,
    /// The number of unreliable messages that were dropped because no memory was left.
    pub unreliable_overflows: u64,
    /// The number of messages that their sender gave up after it had sent them.
    pub messages_skipped: u64,
    /// The number of copies of messages that were sent for redundancy.
    pub redundant_copies_sent: u64,
    /// The number of messages of this end that were given up because their lifetime ended.
    pub messages_expired: u64,
    /// The number of sequenced messages that arrived after a newer one, or so late that their order is unknown. By
    /// design they were not delivered.
    pub sequenced_late: u64,
    /// The number of packets declared lost.
    pub packets_lost: u64,
    /// The number of key changes that this end initiated. Key changes by peers are not counted.
    pub key_changes: u64,
    /// The number of key agreements computed.
    pub handshakes_computed: u64,
    /// The number of bytes of Hellos received, to which responses are proportional.
    pub hello_bytes: u64,
    /// The number of bytes of Retries sent.
    pub retry_bytes: u64,
    /// The number of bytes of Refuses sent.
    pub refuse_bytes: u64,
    /// The number of stateless resets sent.
    pub resets_sent: u64,
    /// The number of migrations of connections to another address of the peer.
    pub path_migrations: u64,
    /// The number of bytes of Welcomes sent.
    pub welcome_bytes: u64,
    /// The number of connections that became connected.
    pub connections_opened: u64,
    /// The number of connections that were connected and ended.
    pub connections_closed: u64,
    /// The number of flight records that were dropped, because too many waited for the application.
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
            ack_only_packets_sent: 0,
            probes_sent: 0,
            messages_resent: 0,
            messages_sent: 0,
            messages_delivered: 0,
            unreliable_overflows: 0,
            messages_skipped: 0,
            messages_dropped: 0,
            fragments_sent: 0,
            redundant_copies_sent: 0,
            messages_expired: 0,
            sequenced_late: 0,
            packets_lost: 0,
            key_changes: 0,
            handshakes_computed: 0,
            hello_bytes: 0,
            retry_bytes: 0,
            refuse_bytes: 0,
            resets_sent: 0,
            path_migrations: 0,
            welcome_bytes: 0,
            connections_opened: 0,
            connections_closed: 0,
            flight_records_dropped: 0,
            dropped: DropCounts([0; DropReason::COUNT]),
        }
    }
}

impl Stats {
    /// Returns the number of datagrams that were dropped for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped.0.get(usize::from(reason as u8)).copied().unwrap_or(0)
    }

    /// Returns the number of datagrams that were dropped for any reason.
    #[must_use]
    pub fn dropped_count(&self) -> u64 {
        self.dropped.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns the number of received datagrams that are in no other counter. Always 0, unless the accounting is wrong.
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
    fn the_accounting_balances_or_names_the_difference() {
        let mut stats =
            Stats { datagrams_received: 5, packets_received: 2, forwarded: 1, ..Stats::default() };
        stats.on_drop(DropReason::Empty);
        assert_eq!(stats.unexplained(), 1);
        stats.handshakes_received = 1;
        assert_eq!(stats.unexplained(), 0);
    }
}
