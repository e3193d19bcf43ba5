//! All limits of the core on time, memory, and rate, each with its unit and its reason.
//!
//! The limits of the wire format are in `drumfire_wire::limits`. Limits that an application may change are in
//! [`Config`](crate::Config), with these as defaults where the names are the same.

use std::time::Duration;

use drumfire_wire::limits::{DATAGRAM_START_BYTES, TAG_BYTES, TRANSPORT_HEADER_MAX_BYTES};
pub use drumfire_wire::limits::{ROUTING_TAG_OFFSET, TRANSPORT_MIN_BYTES};

/// The length of the UDP payload that every path is assumed to carry, in bytes. A buffer for a datagram needs at least
/// this length.
pub const DATAGRAM_SENT_MAX_BYTES: usize = DATAGRAM_START_BYTES;

/// The largest UDP payload for which paths are probed, in bytes: Ethernet with IPv4. A caller with a smaller buffer
/// gets shorter datagrams.
pub const DATAGRAM_FOUND_MAX_BYTES: usize = 1_472;

/// The number of lost probes after which a path is assumed not to carry a size (RFC 8899 section 5.1.2).
pub const MTU_PROBES: u32 = 3;

/// The time between the end of a search for a larger datagram size and the next search (RFC 8899 section 5.1.1).
pub const MTU_SEARCH_INTERVAL: Duration = Duration::from_secs(600);

/// The number of consecutive losses of large packets after which a path is assumed to carry them no longer.
pub const MTU_BLACK_HOLE_PACKETS: u32 = 8;

/// The time until larger sizes are tried again after [`MTU_BLACK_HOLE_PACKETS`] losses.
pub const MTU_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The maximum number of bytes of a message frame besides its payload: type, channel, id, distance back, length.
const MESSAGE_OVERHEAD_MAX_BYTES: usize = 1 + 3 + 10 + 10 + 2;

/// The largest payload of a message that fits one packet of 1,200 bytes, however long its ids are. Longer messages are
/// fragmented.
pub const MESSAGE_MAX_BYTES: usize =
    DATAGRAM_SENT_MAX_BYTES - TRANSPORT_HEADER_MAX_BYTES - TAG_BYTES - MESSAGE_OVERHEAD_MAX_BYTES;

/// The charge for every queued item in addition to its payload, in bytes, so that empty items have a cost.
pub const ITEM_CHARGE_BYTES: usize = 64;

/// The default memory of a connection for messages that wait to be sent or acknowledged, in bytes including charges.
pub const SEND_MEMORY_BYTES: usize = 1_024 * 1_024;

/// The default memory of a connection for received messages that wait for the application, in bytes including charges.
pub const RECEIVE_MEMORY_BYTES: usize = 2 * 1_024 * 1_024;

/// The credit for reliable messages that a new connection gives its peer, in bytes including charges. It is less if half
/// of the receive memory is less, and more if two of the longest messages are more. It grows up to that half while the
/// application takes a whole credit within two round trips.
pub const CREDIT_START_BYTES: u32 = 128 * 1_024;

/// The default memory for messages of all connections of an endpoint, in bytes including charges. Beyond it, the
/// endpoint accepts no more connections.
pub const WORKER_MEMORY_BYTES: usize = 512 * 1_024 * 1_024;

/// The default memory for events of an endpoint that wait for the application, in bytes over all connections.
pub const EVENT_MEMORY_BYTES: usize = 8 * 1_024 * 1_024;

/// The default limit on the bytes in flight of a connection, whatever its congestion window allows. Enough
/// for 250 Mbit/s at 100 ms. The send memory limits them too.
pub const IN_FLIGHT_BYTES: usize = 4 * 1_024 * 1_024;

/// The bytes that a new connection may have in flight, and the minimum limit of a path whose rate is measured. They fit
/// the default receive buffer of sockets.
pub const IN_FLIGHT_START_BYTES: usize = 128 * 1_024;

/// The maximum number of packets in flight of a connection. The default limit on bytes in flight allows 3,500 full
/// packets.
pub const PACKETS_IN_FLIGHT_MAX: usize = 5_000;

/// The time between two timestamps of this end's clock.
pub(crate) const TIMESTAMP_INTERVAL: Duration = Duration::from_secs(1);

/// The assumed drift between two clocks, in parts per million.
pub const CLOCK_DRIFT_PPM: u32 = 200;

/// The age at which a measurement of the peer's clock is replaced by any newer one.
pub(crate) const CLOCK_SAMPLE_LIFETIME: Duration = Duration::from_secs(30);

/// The shortest time between two updates of the congestion controller for a connection without waiting data.
pub(crate) const ACK_MERGE_INTERVAL: Duration = Duration::from_millis(10);

/// The number of consecutive probe timeouts after which only probes are sent until an ack arrives, because the path
/// is assumed to be dead. One or two may be isolated losses.
pub const PROBES_BEFORE_SILENCE: u32 = 3;

/// The maximum distance from the lowest missing id of a reliable message to the id of a received one. A larger distance
/// is a protocol error.
pub const MESSAGE_IDS_AHEAD: u64 = drumfire_wire::limits::MESSAGE_IDS_AHEAD;

/// The maximum number of ids of reliable messages from the oldest one in flight to the newest. The peer accepts as
/// many, and only messages that have not arrived take memory.
pub const MESSAGE_IDS_IN_FLIGHT: u64 = MESSAGE_IDS_AHEAD;

/// The maximum number of fragmented reliable messages in flight. The receiver refuses more.
pub const RELIABLE_FRAGMENTED_MAX: usize = 64;

/// The maximum number of unacknowledged fragmented messages of one channel. The next one waits.
pub const CHANNEL_FRAGMENTED_MAX: u32 = 8;

/// The maximum number of byte ranges that a receiver stores for all fragmented reliable messages: one for each, and 256
/// holes.
pub const FRAGMENT_RANGES_MAX: usize = RELIABLE_FRAGMENTED_MAX + 256;

/// The maximum number of fragmented unreliable messages that a receiver stores.
pub const UNRELIABLE_FRAGMENTED_MAX: usize = 8;

/// The maximum number of byte ranges that a receiver stores for one fragmented unreliable message.
pub const UNRELIABLE_RANGES_MAX: usize = 32;

/// The longest unreliable message in bytes.
pub const UNRELIABLE_MESSAGE_MAX_BYTES: usize = drumfire_wire::limits::UNRELIABLE_MESSAGE_MAX_BYTES;

/// The longest reliable message in bytes, unless the configuration sets another limit.
pub const RELIABLE_MESSAGE_MAX_BYTES: usize = drumfire_wire::limits::RELIABLE_MESSAGE_MAX_BYTES;

/// The shortest fragment, in bytes, for which the rest of a packet is used. With less, the fragment starts in the
/// next packet.
pub(crate) const FRAGMENT_MIN_BYTES: usize = 64;

/// The number of contradicting fragments after which the connection is closed.
pub(crate) const CONTRADICTIONS_MAX: u8 = 16;

/// The longest message that is repeated for redundancy, in bytes.
pub const REDUNDANT_MAX_BYTES: usize = 128;

/// The number of keys of ReliableLatest channels per connection whose newest version is remembered.
pub const KEYS_REMEMBERED: usize = 2_048;

/// The longest value of a key in bytes.
pub const VALUE_MAX_BYTES: usize = 1_024;

/// The number of UnreliableSequenced channels per connection whose newest message is remembered.
pub const SEQUENCED_CHANNELS: usize = 1_024;

/// The number of datagrams of one connection that are opened in one pass. A pass is all datagrams handled at one
/// moment.
pub const PASS_SHARE_DATAGRAMS: u16 = 64;

/// A packet counts as one more datagram of [`PASS_SHARE_DATAGRAMS`] for each of this many frames, because a packet of many
/// short frames costs as much as several packets.
pub(crate) const PASS_SHARE_FRAMES: usize = 8;

/// The number of datagrams that a connection sends in a row before the next one has its turn.
pub const SEND_TURN_DATAGRAMS: u32 = 16;

/// The number of datagrams that are processed together: parsed, then opened, then delivered.
pub(crate) const STAGE_DATAGRAMS: usize = 32;

pub use crate::peer_id::CONNECTIONS_MAX;

/// The number of connections of one endpoint, unless it is configured.
pub const CONNECTIONS: u32 = 65_536;

/// The number of half-open connections of one endpoint.
pub const HALF_OPEN: u32 = 4_096;

/// The number of half-open connections of one source (an IPv4 address or an IPv6 /64) in open access.
pub const HALF_OPEN_PER_SOURCE: u16 = 16;

/// The number of half-open connections of one source with tokens.
pub const TOKEN_HALF_OPEN_PER_SOURCE: u16 = 256;

/// The time after which a handshake fails, on either end.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// The time after which a client repeats its Hello. It doubles each time.
pub const HELLO_RESEND_FIRST: Duration = Duration::from_millis(250);

/// The longest time between two Hellos.
pub const HELLO_RESEND_MAX: Duration = Duration::from_secs(1);

/// The shortest time between two Hellos with a cookie, and from any Hello to one that a Refuse causes. It limits how many
/// Hellos forged Retries and Refuses can cause.
pub const COOKIE_HELLO_INTERVAL: Duration = Duration::from_millis(100);

/// The retry time that a client receives when the server is full.
pub const FULL_RETRY_AFTER: Duration = Duration::from_secs(10);

/// The number of equal refusals in a row after which a client starts to believe an unauthenticated one.
pub const REFUSALS_BELIEVED: u32 = 3;

/// The time for which a Welcome may still arrive after an authenticated refusal, or after [`REFUSALS_BELIEVED`] others.
pub const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// The number of cookies that a connecting client stores.
pub const COOKIES_KEPT: usize = 8;

/// The number of Welcomes per second that a connecting client tries to open. Each forged one costs some key agreements. The
/// limit is far above what a server sends, because a forged Welcome that uses it up may keep out the genuine one.
pub const WELCOMES_OPENED_PER_SECOND: u32 = 1_000;

/// The maximum number of Welcomes for the same Hello from the same address.
pub const WELCOMES_PER_ADDRESS: u8 = 5;

/// The number of addresses from which the same Hello is answered. An attacker who copies a Hello must not use up the
/// responses to its owner.
pub const ADDRESSES_PER_HELLO: usize = 4;

/// The number of key agreements of one endpoint per second.
pub const HANDSHAKES_PER_SECOND: u32 = 2_000;

/// The number of attempts of one source per second in open access, which is also the burst, and the same for key
/// agreements. A Hello whose responses are lost counts each time it arrives, at most seven times in five seconds. So
/// 17 clients behind one address connect together even at the worst loss.
pub const SOURCE_HANDSHAKES_PER_SECOND: u32 = 20;

/// The number of attempts of one source per second with tokens: households, universities, and carrier NATs have many
/// players. 500 of them connect together even at the worst loss.
pub const TOKEN_SOURCE_HANDSHAKES_PER_SECOND: u32 = 500;

/// The number of attempts of one source with tokens that may arrive in a burst.
pub const TOKEN_SOURCE_HANDSHAKES_BURST: u32 = 1_000;

/// The number of players whose used tokens a server remembers, for each connection that it may have. This covers the
/// connected players, who may all return by resume token after a restart, and as many others within the ten minutes
/// of a resume token. More are refused.
pub const PLAYERS_PER_CONNECTION: usize = 2;

/// The number of players that a server remembers in any case. With tokens that live a minute, this is 504 new players
/// per second.
pub const PLAYERS_REMEMBERED_MIN: usize = 32_768;

/// The number of used connect tokens of one player that are remembered. Tokens that were issued before them are
/// refused. A player can therefore use 16 tokens that were issued in one second.
pub const USED_TOKENS_PER_PLAYER: usize = 16;

/// The number of token keys that a server accepts: those of a rotation, and a few more.
pub const TOKEN_KEYS: usize = 8;

/// The number of handshakes of one endpoint per second above which [`Cookie::UnderLoad`](crate::Cookie::UnderLoad)
/// requires a cookie, which is also the burst.
pub const LOAD_HANDSHAKES_PER_SECOND: u32 = 64;

/// The number of half-open connections at which an endpoint starts to require cookies.
pub const LOAD_HALF_OPEN: u32 = 128;

/// The time for which an endpoint requires cookies after the last sign of load.
pub const LOAD_STICKY: Duration = Duration::from_secs(1);

/// The number of Retries of one endpoint per second.
pub const RETRIES_PER_SECOND: u32 = 10_000;

/// The number of packets after which a key is replaced.
pub const REKEY_PACKETS: u64 = 1 << 23;

/// The age at which a key is replaced.
pub const REKEY_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// The number of packets sealed under one key without an ack after which the connection ends.
pub const KEY_PACKETS_UNCONFIRMED: u64 = 1 << 24;

/// The number of probe timeouts for which old keys are kept, and after which a confirmed key may be replaced (RFC
/// 9001 section 6.5).
pub const KEY_CHANGE_PROBES: u32 = 3;

/// The ratio of bytes sent to bytes received for an address that has not answered a challenge (RFC 9000 section 8.1).
pub const AMPLIFICATION: usize = 3;

/// The number of candidates for a peer's new address.
pub const PATH_CANDIDATES: usize = 2;

/// The time between two challenges to an address that does not respond.
pub const CHALLENGE_INTERVAL: Duration = Duration::from_secs(1);

/// The number of challenge rounds for a connection whose Hello came from several addresses.
pub(crate) const CHALLENGE_ROUNDS: u32 = 10;

/// The time without packets and challenges after which a candidate no longer counts, if the known address has responded.
/// An attacker who copies one packet diverts some datagrams each time that a search begins, so a search ends late.
pub(crate) const CANDIDATE_SILENCE: Duration = Duration::from_secs(5);

/// The lifetime of a resume token. A new one is sent at half of it.
pub const RESUME_LIFETIME: Duration = Duration::from_secs(600);

/// The number of spare ids that a server issues to a client. Each takes 40 bytes of every idle connection. One is
/// also the minimum of RFC 9000.
pub const SPARE_IDS: usize = 1;

/// The number of draws for one connection id. With 131,072 ids on one of 16 workers, one draw in 500,000 meets an id
/// in use.
pub(crate) const CONNECTION_ID_DRAWS: u32 = 16;

/// The number of ids that arrived too late and that a client retires at the same time. A server that follows the
/// standard causes at most three.
pub const RETIRING_IDS: usize = 8;

/// The number of Resets of one endpoint per second. The burst is a tenth of it.
pub const RESETS_PER_SECOND: u32 = 5_000;

/// The shortest time between two Resets for the same id.
pub const RESET_INTERVAL: Duration = Duration::from_millis(100);

/// The size of the table of connection ids for [`RESET_INTERVAL`]. Ids that collide share an entry.
pub(crate) const RESET_BUCKETS: usize = 1_024;

/// The number of handshake responses that may wait to be sent.
pub(crate) const REPLIES_WAITING: usize = 1_024;

/// The maximum number of datagrams that may wait to be forwarded to another shard. The burst of one source leaves room
/// for others.
pub(crate) const FORWARDS_WAITING: usize = 2 * TOKEN_SOURCE_HANDSHAKES_BURST as usize;

/// The number of waiting forwarded datagrams for which a new endpoint allocates memory.
pub(crate) const FORWARDS_PREALLOCATED: usize = 256;

/// The number of buckets for the limits per source. Sources that collide share a bucket.
pub(crate) const SOURCE_BUCKETS: usize = 4_096;

/// The longest time without a packet after which a client sends a ping. Shorter timeouts shorten it.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// The time without a packet from the peer after which a connection ends.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time for which a packet may be unacknowledged before the connection ends.
pub const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(10);

/// The time without packets in either direction after which a connection releases its working memory.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(5);

/// The number of packets with reliable data after which an ack is due immediately.
pub const ACK_AFTER_RELIABLE: u32 = 32;

/// The number of packets with any data after which an ack is due immediately.
pub const ACK_AFTER_ANY: u32 = 64;

/// The shortest delay of an ack for reliable data, which is a quarter of the round trip.
pub const ACK_DELAY_MIN: Duration = Duration::from_millis(5);

/// The longest delay of an ack for reliable data. It is also the shortest delay for pings and similar frames, whose
/// ack waits for one round trip.
pub const ACK_DELAY_MAX: Duration = Duration::from_millis(25);

/// The shortest delay of an ack for unreliable messages alone, which waits for one round trip. An application that
/// responds ten times a second, or has input to send, adds the ack to its own packets. A separate ack costs both ends
/// as much as a message.
pub const ACK_DELAY_LATE: Duration = Duration::from_millis(150);

/// With at least this many unacknowledged packets, the ack of unreliable messages waits no longer than that of a ping. A
/// sender with much data in flight relies on acks to observe the path.
pub const ACK_SOON_FROM: u32 = 8;

/// The shortest time between two acks that are caused by gaps.
pub const ACK_GAP_INTERVAL: Duration = Duration::from_millis(5);

/// The assumed round trip before the first sample. It probes early enough on most paths, and a probe every 325 ms is
/// no flood.
pub const ROUND_TRIP_INITIAL: Duration = Duration::from_millis(100);

/// The longest plausible round trip. A longer sample means that this end was suspended or that its clock jumped,
/// because by default such a path would have timed out.
pub const ROUND_TRIP_MAX: Duration = UNACKNOWLEDGED_TIMEOUT;

/// The granularity of timers (RFC 9002 section 6.1.2).
pub const GRANULARITY: Duration = Duration::from_millis(1);

/// A packet is lost when one with a number this much larger was acknowledged (RFC 9002 section 6.1.1).
pub const PACKET_THRESHOLD: u64 = 3;

/// The time without an ack for which probe timeouts do not double while reliable messages are in flight. RFC 9002 section
/// 6.2.1 doubles from the first one on, so that the wait after a radio outage is as long again as the outage. A player who
/// walks from one access point to the next has such an outage of up to a second.
pub const BACK_OFF_AFTER: Duration = Duration::from_millis(1_100);

/// The number of consecutive probe timeouts that do not double, at most. A path that is gone for eight seconds then takes at
/// most 40 packets of a game. They are the packets of three probe timeouts, 17 probes, four until the wait is
/// [`PROBE_INTERVAL_MAX`], and ten with that wait. Below a probe timeout of 65 ms, the wait doubles before
/// [`BACK_OFF_AFTER`], because both cannot hold.
pub const PROBES_BEFORE_BACK_OFF: u32 = 17;

/// The longest probe timeout while reliable messages are in flight, on a path whose own delay is not longer. It gives a
/// connection more than twenty tries in ten seconds. On a path that loses every third packet in each direction, an ack then
/// arrives before the timeout.
pub const PROBE_INTERVAL_MAX: Duration = Duration::from_millis(700);

/// The longest probe timeout without reliable messages in flight, on a path whose own delay is not longer. A server that
/// cannot keep up loses the acks of all its connections. If 100,000 of them probed every 700 ms, their probes alone would
/// be more than a core handles, and it would never recover.
pub const QUIET_PROBE_INTERVAL_MAX: Duration = Duration::from_millis(2_800);

/// The interval of probes in the second half of the unacknowledged timeout, without reliable messages in flight and on a path
/// whose probe timeout is not longer.
pub const LAST_PROBE_INTERVAL: Duration = Duration::from_millis(350);

/// The maximum number of doublings of the probe timeout, so that no shift overflows.
pub const PROBE_DOUBLINGS_MAX: u32 = 10;

/// The number of probe timeouts over which all packets must be lost for persistent congestion (RFC 9002 section
/// 7.6.1).
pub const PERSISTENT_PROBES: u32 = 3;

/// The minimum distance between two skipped packet numbers.
pub const SKIP_MIN_PACKETS: u64 = 128;

/// The spread of the distance between two skipped packet numbers.
pub const SKIP_SPREAD_PACKETS: u64 = 256;

/// The number of skipped packet numbers that are remembered. They cover at least the newest 2,048 packet numbers. Acks of
/// older skipped numbers are not detected.
pub const SKIPPED_KEPT: usize = 16;

/// An ack with more ranges than this is sent with a ping. Once the ping is acknowledged, the ranges can be forgotten.
pub(crate) const RANGES_BEFORE_PING: usize = 16;

/// An ack is sent with a ping when its packet number exceeds the last acknowledged number by more than this. Encoded packet
/// numbers then stay short.
pub(crate) const NUMBERS_BEFORE_PING: u64 = 1 << 14;

/// The number of timers that are examined before each wait, and deferred if nothing is due at their time.
pub(crate) const DEFERS_BEFORE_WAIT: usize = 32;

/// The number of probe timeouts for which a closed connection repeats its close.
pub(crate) const CLOSE_LINGER_PROBES: u32 = 3;

/// The entries of a flight recorder: one or two seconds of a busy game, 3 KiB.
pub const FLIGHT_ENTRIES: usize = 128;

/// The number of flight records of one endpoint that wait for the application. Further ones are only counted.
pub const FLIGHT_RECORDS_WAITING: usize = 64;

const _: () = assert!(MESSAGE_MAX_BYTES == 1_145);
