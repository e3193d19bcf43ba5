//! Every bound of the core on time, memory and rate: a constant, its unit and its reason.
//!
//! The bounds of the wire format itself stand in `drumfire_wire::limits`; what an application may change
//! stands in [`Config`](crate::Config), with these as its defaults where they have the same name.

use std::time::Duration;

use drumfire_wire::limits::{DATAGRAM_START_BYTES, TAG_BYTES, TRANSPORT_HEADER_MAX_BYTES};
pub use drumfire_wire::limits::{ROUTING_TAG_OFFSET, TRANSPORT_MIN_BYTES};

/// Bytes of UDP payload that are sent on any path, and the memory a datagram needs at least.
pub const DATAGRAM_SENT_MAX_BYTES: usize = DATAGRAM_START_BYTES;

/// Bytes of UDP payload that paths are probed for at most: Ethernet with IPv4. Who gives less memory for a datagram is given
/// shorter ones.
pub const DATAGRAM_FOUND_MAX_BYTES: usize = 1_472;

/// Probes of one size that must be lost until the path is taken not to carry it (RFC 8899 section 5.1.2).
pub const MTU_PROBES: u32 = 3;

/// Between two searches for a larger size (RFC 8899 section 5.1.1).
pub const MTU_SEARCH_INTERVAL: Duration = Duration::from_secs(600);

/// Larger packets lost in a row after which the path is taken to carry them no more.
pub const MTU_BLACK_HOLE_PACKETS: u32 = 8;

/// Until larger sizes are tried again after that.
pub const MTU_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Bytes a message frame may take beside its payload: type, channel, id, distance back, length.
const MESSAGE_OVERHEAD_MAX_BYTES: usize = 1 + 3 + 10 + 10 + 2;

/// Bytes of the largest message that fits one packet of 1200 B whatever its ids are; longer ones travel in pieces.
pub const MESSAGE_MAX_BYTES: usize =
    DATAGRAM_SENT_MAX_BYTES - TRANSPORT_HEADER_MAX_BYTES - TAG_BYTES - MESSAGE_OVERHEAD_MAX_BYTES;

/// Bytes every queued item is charged beside its payload, so that empty ones cost something.
pub const ITEM_CHARGE_BYTES: usize = 64;

/// Bytes of messages a connection keeps for sending, charges included.
pub const SEND_MEMORY_BYTES: usize = 256 * 1_024;

/// Bytes of messages a connection keeps for the application, charges included.
pub const RECEIVE_MEMORY_BYTES: usize = 256 * 1_024;

/// Bytes of messages that the connections of an endpoint hold together, charges included, before it takes no more of them.
pub const WORKER_MEMORY_BYTES: usize = 512 * 1_024 * 1_024;

/// Bytes of payload that wait in an endpoint's events, over all connections.
pub const EVENT_MEMORY_BYTES: usize = 8 * 1_024 * 1_024;

/// Bytes of packets in flight of a connection, whatever its congestion window allows. Enough for 100 Mbit/s at 50 ms (625 kB).
/// A connection has at most half its send memory in flight, so with the defaults the limit is 128 KiB: the receive buffer
/// that sockets have by default holds as much.
pub const IN_FLIGHT_BYTES: usize = 1_024 * 1_024;

/// Between two words about what this end's clock shows.
pub(crate) const STAMP_INTERVAL: Duration = Duration::from_secs(1);

/// How much clocks are taken to drift apart, in parts of a million.
pub const CLOCK_DRIFT_PPM: u32 = 200;

/// A measurement of the peer's clock gives way to any other after so long.
pub(crate) const CLOCK_SAMPLE_LIFE: Duration = Duration::from_secs(30);

/// Acks of a connection that sends all it has are handed to its congestion controller in lumps, at most one in so long.
pub(crate) const LUMP_INTERVAL: Duration = Duration::from_millis(10);

/// Probe timeouts in a row after which nothing but probes is sent, until an ack comes: the path is taken to be
/// dead. One or two may be bad luck.
pub const PROBES_BEFORE_SILENCE: u32 = 3;

/// A reliable message's ids under way, at most; the receiver refuses more.
pub const MESSAGE_IDS_AHEAD: u64 = drumfire_wire::limits::MESSAGE_IDS_AHEAD;

/// Reliable messages under way in pieces, at most; the receiver refuses more.
pub const RELIABLE_IN_PIECES_MAX: usize = 64;

/// Unfinished messages in pieces of one channel at most; the next waits until one of them was acknowledged.
pub const CHANNEL_IN_PIECES_MAX: u32 = 8;

/// Runs of bytes that a receiver keeps apart, over all reliable messages in pieces: each of them, and 256 holes.
pub const PIECE_RANGES_MAX: usize = RELIABLE_IN_PIECES_MAX + 256;

/// Unreliable messages in pieces that a receiver keeps.
pub const UNRELIABLE_IN_PIECES_MAX: usize = 8;

/// Runs of bytes that it keeps apart of one of these.
pub const UNRELIABLE_RANGES_MAX: usize = 32;

/// Bytes of the longest unreliable message.
pub const UNRELIABLE_MESSAGE_MAX_BYTES: usize = drumfire_wire::limits::UNRELIABLE_MESSAGE_MAX_BYTES;

/// Bytes of the longest reliable message, unless the configuration says otherwise.
pub const RELIABLE_MESSAGE_MAX_BYTES: usize = drumfire_wire::limits::RELIABLE_MESSAGE_MAX_BYTES;

/// Bytes of the shortest piece that a message is cut for where the rest of a packet is left; with less the next packet begins.
pub(crate) const PIECE_MIN_BYTES: usize = 64;

/// Times that pieces of a message may disagree before the connection is closed.
pub(crate) const STRIKES_MAX: u8 = 16;

/// Bytes of the longest message that rides again for redundancy.
pub const REDUNDANT_MAX_BYTES: usize = 128;

/// Keys of ReliableLatest channels of a connection whose newest version is remembered.
pub const KEYS_REMEMBERED: usize = 2_048;

/// Bytes of the longest value of a key.
pub const VALUE_MAX_BYTES: usize = 1_024;

/// UnreliableSequenced channels of a connection whose newest message is remembered.
pub const SEQUENCED_CHANNELS: usize = 1_024;

/// Datagrams of one connection opened in one pass, a pass being all datagrams handled at one moment.
pub const PASS_SHARE_DATAGRAMS: u16 = 64;

/// The number of frames of a packet that count as one more datagram in that share: a packet of many short frames costs as much
/// as several packets.
pub(crate) const PASS_SHARE_FRAMES: usize = 8;

/// Datagrams a connection sends in a row before the next one gets its turn.
pub const SEND_TURN_DATAGRAMS: u32 = 16;

/// Datagrams worked on together: parsed, then opened, then delivered.
pub(crate) const STAGE_DATAGRAMS: usize = 32;

/// Connections of one endpoint.
pub const CONNECTIONS: u32 = 65_536;

/// Half-open connections of one endpoint.
pub const HALF_OPEN: u32 = 4_096;

/// Half-open connections of one source (an IPv4 address or an IPv6 /64) in open access.
pub const HALF_OPEN_PER_SOURCE: u16 = 16;

/// Half-open connections of one source with tokens.
pub const TOKEN_HALF_OPEN_PER_SOURCE: u16 = 256;

/// A handshake is over after this long, at either end.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// The client repeats its Hello after this long, then after twice as long each time.
pub const HELLO_RESEND_FIRST: Duration = Duration::from_millis(250);

/// The longest wait between two Hellos.
pub const HELLO_RESEND_MAX: Duration = Duration::from_secs(1);

/// The least wait between two Hellos with a cookie: a forger of Retries gets no more out of a client.
pub const COOKIE_HELLO_INTERVAL: Duration = Duration::from_millis(100);

/// When a client that found the server full is told to try again.
pub const FULL_RETRY_AFTER: Duration = Duration::from_secs(10);

/// Refusals of the same kind in a row after which a client begins to believe one that proves nothing.
pub const REFUSALS_BELIEVED: u32 = 3;

/// How long a Welcome may still come after that.
pub const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// Cookies a pending client keeps.
pub const COOKIES_KEPT: usize = 8;

/// Welcomes for the same Hello from the same address, at most.
pub const WELCOMES_PER_ADDRESS: u8 = 5;

/// Addresses from which the same Hello is answered: who copies a Hello must not use up the answers to its owner.
pub const ADDRESSES_PER_HELLO: usize = 4;

/// Diffie-Hellman handshakes of one endpoint per second.
pub const HANDSHAKES_PER_SECOND: u32 = 2_000;

/// Attempts of one source per second in open access, which is also the burst; the same for key agreements. A Hello whose answers
/// are lost counts each time it arrives, at most seven times in five seconds. So 17 clients behind one address get in together
/// even at the worst loss.
pub const SOURCE_HANDSHAKES_PER_SECOND: u32 = 20;

/// Attempts of one source per second with tokens: a house, a university and a carrier's NAT have many players. 500 of them get in
/// together even at the worst loss.
pub const TOKEN_SOURCE_HANDSHAKES_PER_SECOND: u32 = 500;

/// The burst of attempts of one source with tokens.
pub const TOKEN_SOURCE_HANDSHAKES_BURST: u32 = 1_000;

/// Players whose used tokens a server remembers, for each connection it may have: those who are there, all back by resume token
/// after a restart, and as many others within the ten minutes of a resume token. More are refused.
pub const PLAYERS_PER_CONNECTION: usize = 2;

/// Players that a server remembers in any case. With tokens that live a minute, 504 new players a second.
pub const PLAYERS_REMEMBERED_MIN: usize = 32_768;

/// Used connect tokens of one player that are remembered one by one. Tokens issued before them are refused. So a player can use
/// 16 tokens that were issued in one second.
pub const USED_TOKENS_PER_PLAYER: usize = 16;

/// Keys of tokens a server takes at once: those of a rotation, with room.
pub const TOKEN_KEYS: usize = 8;

/// Handshakes of one endpoint per second above which [`Cookie::UnderLoad`](crate::Cookie::UnderLoad) asks for a cookie, and
/// at once.
pub const LOAD_HANDSHAKES_PER_SECOND: u32 = 64;

/// Half-open connections of one endpoint from which on it does.
pub const LOAD_HALF_OPEN: u32 = 128;

/// How long it goes on asking after the last sign of load.
pub const LOAD_STICKY: Duration = Duration::from_secs(1);

/// Retries of one endpoint per second.
pub const RETRIES_PER_SECOND: u32 = 10_000;

/// Packets sealed under one key, after which the next one is due.
pub const REKEY_PACKETS: u64 = 1 << 23;

/// Age of a key at which the next one is due.
pub const REKEY_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// Packets sealed under one key without a sign that the peer has it; then the connection ends.
pub const KEY_PACKETS_UNCONFIRMED: u64 = 1 << 24;

/// Probe timeouts for which old keys are kept, and after which a confirmed key may be followed by the next.
pub const KEY_CHANGE_PROBES: u32 = 3;

/// How many times as many bytes go to an address that has not answered a challenge as came from there.
pub const AMPLIFICATION: usize = 3;

/// Addresses that may be a peer's new one, at a time.
pub const PATH_CANDIDATES: usize = 2;

/// Between two challenges of an address that does not answer.
pub const CHALLENGE_INTERVAL: Duration = Duration::from_secs(1);

/// Rounds of challenges for a connection whose Hello came from several addresses.
pub(crate) const CONTESTED_ROUNDS: u32 = 10;

/// How long a resume token is good; another one is sent at half its life.
pub const RESUME_LIFE: Duration = Duration::from_secs(600);

/// Spare ids a server gives to a client: each takes 40 bytes of every silent connection. One is RFC 9000's least too.
pub const SPARE_IDS: usize = 1;

/// Draws for one connection id. With 131,072 ids on one of 16 workers a draw meets an id in use once in 500,000 times.
pub(crate) const CONNECTION_ID_DRAWS: u32 = 16;

/// Ids a client takes back at once, at most, because they came too late: with a server that keeps to the standard it has no
/// more than three of them.
pub const RETIRING_IDS: usize = 8;

/// Resets of one endpoint per second; a tenth of a second's worth at once.
pub const RESETS_PER_SECOND: u32 = 5_000;

/// Between two resets for the same id.
pub const RESET_INTERVAL: Duration = Duration::from_millis(100);

/// Ids told apart by that; ids that fall together share.
pub(crate) const RESET_BUCKETS: usize = 1_024;

/// Handshake answers waiting to be sent.
pub(crate) const REPLIES_WAITING: usize = 1_024;

/// Datagrams waiting to be taken to another shard, at most. The burst of attempts of one source leaves room for others.
pub(crate) const FORWARDS_WAITING: usize = 2 * TOKEN_SOURCE_HANDSHAKES_BURST as usize;

/// Datagrams waiting to be taken to another shard for which an endpoint has memory from the start.
pub(crate) const FORWARDS_USUAL: usize = 256;

/// Sources told apart by the limits per source; sources that fall together share what is theirs.
pub(crate) const SOURCE_BUCKETS: usize = 4_096;

/// Longest silence of the client before it sends a ping; with shorter timeouts it is shorter.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A connection without a packet from its peer ends after this long.
pub const SILENT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection with an unacknowledged packet ends after this long.
pub const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that sent and received nothing for this long gives its working memory back.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(5);

/// Packets with reliable content after which an ack is due at once.
pub const ACK_AFTER_RELIABLE: u32 = 32;

/// Packets of any content after which an ack is due at once.
pub const ACK_AFTER_ANY: u32 = 64;

/// An ack of reliable content waits a quarter of the round trip, at least this long.
pub const ACK_DELAY_MIN: Duration = Duration::from_millis(5);

/// An ack of reliable content waits a quarter of the round trip, at most this long; one of a ping, or of what else its
/// sender hears of soon, waits the round trip, at least this long.
pub const ACK_DELAY_MAX: Duration = Duration::from_millis(25);

/// An ack of unreliable messages alone waits the round trip, at least this long: whoever answers ten times a second, or has
/// input to send, takes it along. A lone ack costs its sender and its receiver as much as a message.
pub const ACK_DELAY_LATE: Duration = Duration::from_millis(150);

/// From so many packets on the ack of unreliable messages waits no longer than that of a ping: much is under way, and its
/// sender watches the path by acks.
pub const ACK_SOON_FROM: u32 = 8;

/// The least time between two acks that a new gap calls for.
pub const ACK_GAP_INTERVAL: Duration = Duration::from_millis(5);

/// The round trip before the first measurement: probes early enough on most paths, and 325 ms is no storm.
pub const ROUND_TRIP_INITIAL: Duration = Duration::from_millis(100);

/// What seems to be a longer round trip is none: this end stood still, or its clock jumped. By default its path
/// would have been given up.
pub const ROUND_TRIP_MAX: Duration = UNACKNOWLEDGED_TIMEOUT;

/// Timers are no finer than this (RFC 9002 section 6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// A packet is lost when one this much later was acknowledged (RFC 9002 section 6.1.1).
pub const PACKET_THRESHOLD: u64 = 3;

/// Probe timeouts in a row that do not double. RFC 9002 section 6.2.1 doubles from the first on, so that the wait after a
/// pause in radio reception is as long again as the pause; a game has up to a second of it whenever somebody walks
/// from one access point to the next.
pub const PROBES_BEFORE_BACK_OFF: u32 = 11;

/// Probe timeouts double up to this, so that a connection on a path that loses every third packet each way
/// still hears an ack before it is given up: twenty tries in ten seconds and more.
pub const PROBE_INTERVAL_MAX: Duration = Duration::from_millis(700);

/// Doublings of the probe timeout, so that no shift overflows.
pub const PROBE_DOUBLINGS_MAX: u32 = 10;

/// Probe timeouts over which everything must be lost to count as persistent congestion (RFC 9002 section 7.6.1).
pub const PERSISTENT_PROBES: u32 = 3;

/// Packet numbers between two that are skipped, at least.
pub const SKIP_MIN_PACKETS: u64 = 128;

/// Packet numbers between two that are skipped, less than this many more.
pub const SKIP_SPREAD_PACKETS: u64 = 256;

/// Skipped packet numbers remembered: those among the newest 2,048 at least, which covers all under way.
pub const SKIPPED_KEPT: usize = 16;

/// Ranges in an ack that goes alone from which on a ping goes with it, so that the ranges can be forgotten once
/// it is acknowledged.
pub(crate) const RANGES_BEFORE_PING: usize = 16;

/// Packet numbers without a word from the peer from which on a ping goes with an ack, so that numbers stay
/// short.
pub(crate) const NUMBERS_BEFORE_PING: u64 = 1 << 14;

/// Timers that are looked at before each wait, whether they still mean something.
pub(crate) const PUT_OFF_BEFORE_WAIT: usize = 32;

/// A closed connection repeats its close for this many probe timeouts.
pub(crate) const CLOSE_LINGER_PROBES: u32 = 3;

/// Entries of a flight recorder: a second or two of a busy game, 3 KiB.
pub const FLIGHT_ENTRIES: usize = 128;

/// Flight records of one endpoint that wait for the application; those of connections that end beyond that are only counted.
pub const FLIGHT_RECORDS_WAITING: usize = 64;

const _: () = assert!(MESSAGE_MAX_BYTES == 1_145);
