//! Every bound of the wire format: a constant, its unit and its reason.
//!
//! Deliberately not here: limits on time, memory and rate. They belong to the layers that measure them.

/// Bytes of UDP payload a path is assumed to carry before it was probed: the IPv6 minimum of 1280 less
/// headers, with room for tunnels. The same figure QUIC starts from (RFC 9000 section 14).
pub const DATAGRAM_START_BYTES: usize = 1_200;

/// Bytes of the largest UDP payload over IPv4: 65,535 less 20 of IP and 8 of UDP header.
pub const DATAGRAM_MAX_BYTES: usize = 65_507;

/// Bytes of the authentication tag that ends every packet; the same in both suites.
pub const TAG_BYTES: usize = 16;

/// Bytes of the shortest packet: an 8-byte connection id, a 2-byte number, one byte of frames and the tag.
/// The steering filter reads the routing tag only from this length on.
pub const TRANSPORT_MIN_BYTES: usize = 28;

/// Where the routing tag stands in a packet to a server, in bytes from the front: behind byte 0, as the first part
/// of the connection id.
pub const ROUTING_TAG_OFFSET: usize = 1;

/// Bytes of the longest transport header: byte 0, connection id, four bytes of packet number.
pub const TRANSPORT_HEADER_MAX_BYTES: usize = 13;

/// The first packet number that must not be sealed. Far below the end of u64, so that no counter ever comes
/// near wrapping, and far above what a connection can send.
pub const PACKET_NUMBER_END: u64 = 1 << 61;

/// Bytes of a Hello, exactly: a server's answers stay small beside it, and a path that cannot carry a full
/// packet fails at once instead of later.
pub const HELLO_BYTES: usize = 1_200;

/// Bytes of the sealed token's area in the Hello: token ids, keys and limits with 256 B of user data, nonce
/// and tag included. Always full, so that its length tells nothing about the player.
pub const SEALED_TOKEN_BYTES: usize = 512;

/// Bytes of a cookie: 16 of keyed check and 16 for whatever the server wants to find again.
pub const COOKIE_BYTES: usize = 32;

/// Bytes of the keyed check that ends a Hello.
pub const MAC1_BYTES: usize = 16;

/// Bytes of the Noise message 1 in a Hello, all that the other fields leave: a 32-byte key, a sealed payload
/// of 564 and its tag.
pub const NOISE_MESSAGE_1_BYTES: usize = 612;

/// Bytes by which a Noise message is longer than its payload: a 32-byte key and a 16-byte tag.
pub const NOISE_OVERHEAD_BYTES: usize = 48;

/// Bytes of a server's parameters, the payload of Noise message 2.
pub const SERVER_PARAMETERS_BYTES: usize = 43;

/// The shortest timeout either end may ask for, in milliseconds: below a second an ordinary gap in a home
/// network would end connections.
pub const TIMEOUT_MIN_MS: u32 = 1_000;

/// Bytes of the shortest Noise message 2: a 32-byte key and the tag of an empty payload.
pub const NOISE_MESSAGE_2_MIN_BYTES: usize = 48;

/// Bytes of a Retry, at least. This version sends exactly this many.
pub const RETRY_MIN_BYTES: usize = 64;

/// Bytes of a Retry, at most: under a tenth of the Hello it answers, so a forged source gains nothing.
pub const RETRY_MAX_BYTES: usize = 96;

/// Bytes of the check that ends a Refuse.
pub const REFUSE_MAC_BYTES: usize = 16;

/// Bytes of a Refuse, at least. This version sends exactly this many.
pub const REFUSE_MIN_BYTES: usize = 51;

/// Bytes of the token that proves a Reset.
pub const RESET_TOKEN_BYTES: usize = 16;

/// Random bytes of a path challenge.
pub const PATH_CHALLENGE_BYTES: usize = 8;

/// Ids a server may have given to one connection and not taken back.
pub const CONNECTION_IDS_ACTIVE: usize = 4;

/// Bytes of a Refuse, at most, for the reason a Retry has.
pub const REFUSE_MAX_BYTES: usize = 96;

/// Bytes of a Welcome, at least: kind, client id and the shortest Noise message 2.
pub const WELCOME_MIN_BYTES: usize = 57;

/// Bytes of a Welcome, at most: never more than the Hello it answers.
pub const WELCOME_MAX_BYTES: usize = 1_200;

/// Bytes of a Reset: kind, connection id and a 16-byte token. Shorter than any packet, so that two ends
/// which both lost their state cannot answer each other for ever (RFC 9000 section 10.3.3).
pub const RESET_BYTES: usize = 25;

/// Ranges of received packet numbers an end remembers. More holes than this are forgotten, oldest first.
pub const ACK_RANGES_KEPT: usize = 64;

/// Ranges in one ack frame, at most. More is a protocol error: work per ack must stay bounded.
pub const ACK_RANGES_SENT: usize = 32;

/// The largest ack delay, in units of 8 us: 16.8 s, above every timeout, and three bytes on the wire.
pub const ACK_DELAY_MAX_UNITS: u32 = (1 << 21) - 1;

/// Frames in one packet, at most; a run of padding is one, and a fragment counts as two. More is a protocol error: a receiver
/// works for each frame, and a frame can be as short as a byte.
pub const PACKET_FRAMES_MAX: u8 = 40;

/// Channels of a connection: ids from 0 to 65,535.
pub const CHANNELS: u32 = 65_536;

/// How far a reliable message's id may lie beyond the receiver's floor. A sender that goes further breaks
/// the protocol: sparse ids would cost the receiver memory without costing the sender anything.
pub const MESSAGE_IDS_AHEAD: u64 = 4_096;

/// Bytes of a reliable message, unless an end says otherwise.
pub const RELIABLE_MESSAGE_MAX_BYTES: usize = 64 * 1_024;

/// Bytes of a message, whatever the two ends say: longer ones are sent as several.
pub const MESSAGE_LIMIT_BYTES: u32 = 16 * 1_024 * 1_024;

/// Bytes that every end takes in one reliable message.
pub const MESSAGE_LEAST_BYTES: u32 = 1_024;

/// Bytes that every reliable message is charged beside its payload, so that short ones cost something.
pub const MESSAGE_CHARGE_BYTES: u32 = 64;

/// Bytes of an unreliable message: losing one fragment loses it all, so large ones hardly ever arrive.
pub const UNRELIABLE_MESSAGE_MAX_BYTES: usize = 16 * 1_024;

/// Bytes of the reason in a close frame: a short line for a log.
pub const CLOSE_REASON_MAX_BYTES: usize = 128;

/// Sockets one server may steer between: up to here a balanced secret is found quickly.
pub const STEERING_SOCKETS_MAX: u16 = 1_024;

/// Secrets drawn before giving up. The worst count of sockets accepts about half of all secrets, so running
/// out means that the entropy is broken.
pub const STEERING_SECRET_DRAWS: u32 = 64;

/// Routing tags drawn per socket before giving up: with a balanced secret, chance fails once in e^57.
pub const ROUTING_TAG_DRAWS_PER_SOCKET: u32 = 64;

// The relations the rest of the protocol leans on.
const _: () = assert!(RETRY_MAX_BYTES * 10 <= HELLO_BYTES && REFUSE_MAX_BYTES * 10 <= HELLO_BYTES);
const _: () = assert!(WELCOME_MAX_BYTES <= HELLO_BYTES && HELLO_BYTES <= DATAGRAM_START_BYTES);
const _: () = assert!(RESET_BYTES < TRANSPORT_MIN_BYTES);
const _: () = assert!(ACK_RANGES_SENT <= ACK_RANGES_KEPT);
