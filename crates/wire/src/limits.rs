//! The limits of the wire format, each with its unit and its reason.
//!
//! Limits on time, memory, and rate belong to the layers that measure them.

/// The UDP payload in bytes that a path is assumed to carry before it was probed.
///
/// This is the minimum MTU of IPv6, 1280, minus headers and with room for tunnels. QUIC starts with the same value
/// (RFC 9000 section 14).
pub const DATAGRAM_START_BYTES: usize = 1_200;

/// The largest UDP payload over IPv4 in bytes: 65,535 minus 20 for the IP header and 8 for the UDP header.
pub const DATAGRAM_MAX_BYTES: usize = 65_507;

/// The length in bytes of the authentication tag at the end of every packet. Both suites have the same.
pub const TAG_BYTES: usize = 16;

/// The length of the shortest packet in bytes: byte 0, an 8-byte connection id, a 2-byte packet number, one byte of
/// frames, and the tag.
///
/// The steering filter reads the routing tag only in datagrams that are at least this long.
pub const TRANSPORT_MIN_BYTES: usize = 28;

/// The offset in bytes of the routing tag in a packet to a server. The tag is the first part of the connection id, which
/// follows byte 0.
pub const ROUTING_TAG_OFFSET: usize = 1;

/// The length of the longest transport header in bytes: byte 0, connection id, and four bytes of packet number.
pub const TRANSPORT_HEADER_MAX_BYTES: usize = 13;

/// The first packet number that must not be sealed.
///
/// It is far below the end of `u64`, so no counter comes near to wrapping, and far above what a connection can send.
pub const PACKET_NUMBER_END: u64 = 1 << 61;

/// The length of a Hello in bytes. No other length is valid.
///
/// The replies of a server are small in comparison, which limits amplification (RFC 9000 section 8). A path that cannot carry
/// a full packet fails during the handshake and not later.
pub const HELLO_BYTES: usize = 1_200;

/// The length in bytes of a sealed token, including its nonce, its tag, and 256 bytes for user data.
///
/// All tokens have this length, so the length reveals nothing about the player.
pub const SEALED_TOKEN_BYTES: usize = 512;

/// The length of a cookie in bytes: 16 for the keyed check, and 16 zeros that leave room for data of the server.
pub const COOKIE_BYTES: usize = 32;

/// The length in bytes of mac1, the MAC at the end of a Hello.
pub const MAC1_BYTES: usize = 16;

/// The length in bytes of Noise message 1: a 32-byte key, a sealed payload of 564 bytes, and its 16-byte tag.
///
/// It fills the space that the other fields of a Hello leave.
pub const NOISE_MESSAGE_1_BYTES: usize = 612;

/// The number of bytes by which a Noise message is longer than its payload: a 32-byte key and a 16-byte tag.
pub const NOISE_OVERHEAD_BYTES: usize = 48;

/// The length in bytes of the server's parameters, which are the payload of Noise message 2.
pub const SERVER_PARAMETERS_BYTES: usize = 43;

/// The length in bytes of the client's parameters, the payload of Noise message 1. The fields are padded with zeros
/// (PROTOCOL 5.7, "Parameters").
pub const CLIENT_PARAMETERS_BYTES: usize = NOISE_MESSAGE_1_BYTES - NOISE_OVERHEAD_BYTES;

/// The shortest timeout that either peer may ask for, in milliseconds.
///
/// Below a second, an ordinary gap in a home network would end connections.
pub const TIMEOUT_MIN_MS: u32 = 1_000;

/// The largest length in bytes of the application hello, the bytes of an application in the client's parameters
/// (PROTOCOL 5.7, "Parameters").
pub const APPLICATION_HELLO_MAX_BYTES: usize = 256;

/// The length of the shortest Noise message 2 in bytes: a 32-byte key and the tag of an empty payload.
pub const NOISE_MESSAGE_2_MIN_BYTES: usize = 48;

/// The minimum length of a Retry in bytes. This version sends exactly this length.
pub const RETRY_MIN_BYTES: usize = 64;

/// The maximum length of a Retry in bytes.
///
/// It is less than a tenth of the Hello, so a spoofed source address gains an attacker nothing.
pub const RETRY_MAX_BYTES: usize = 96;

/// The length in bytes of the MAC of a Refuse.
pub const REFUSE_MAC_BYTES: usize = 16;

/// The minimum length of a Refuse in bytes. This version sends exactly this length.
pub const REFUSE_MIN_BYTES: usize = 51;

/// The length in bytes of the token that proves a Reset to be genuine.
pub const RESET_TOKEN_BYTES: usize = 16;

/// The number of random bytes in a path challenge.
pub const PATH_CHALLENGE_BYTES: usize = 8;

/// The maximum number of connection ids that a server has issued for one connection and that are not retired.
pub const CONNECTION_IDS_ACTIVE: usize = 4;

/// The maximum length of a Refuse in bytes, for the same reason as [`RETRY_MAX_BYTES`].
pub const REFUSE_MAX_BYTES: usize = 96;

/// The minimum length of a Welcome in bytes: byte 0, client id, and the shortest Noise message 2.
pub const WELCOME_MIN_BYTES: usize = 57;

/// The maximum length of a Welcome in bytes, which is the length of the Hello, so a Welcome amplifies nothing.
pub const WELCOME_MAX_BYTES: usize = 1_200;

/// The length of a Reset in bytes: byte 0, connection id, and a 16-byte token.
///
/// It is shorter than any packet, so two peers that both lost their state cannot reset each other in a loop (RFC 9000 section
/// 10.3.3).
pub const RESET_BYTES: usize = 25;

/// The maximum number of ranges of received packet numbers that a receiver remembers. It forgets the oldest range first.
pub const ACK_RANGES_KEPT: usize = 64;

/// The maximum number of ranges in one ack frame. More is a protocol error, because the work per ack must be bounded.
pub const ACK_RANGES_SENT: usize = 32;

/// The largest ack delay in units of 8 us: 16.8 s, which is the largest value of a three-byte varint.
pub const ACK_DELAY_MAX_UNITS: u32 = (1 << 21) - 1;

/// The maximum number of frames in one packet. A run of padding counts as one frame, and a fragment counts as two.
///
/// More is a protocol error. A frame can be as short as one byte, so the length of a packet alone does not bound the
/// receiver's work.
pub const PACKET_FRAMES_MAX: u8 = 40;

/// The maximum number of messages that all runs and Skip runs of one packet have together.
///
/// More is a protocol error. An empty message takes one byte in a run, so the length of a packet alone does not bound the
/// receiver's work.
pub const PACKET_RUN_MESSAGES_MAX: u16 = 512;

/// The number of channels of a connection. Their ids are 0 to 65,535.
pub const CHANNELS: u32 = 65_536;

/// The maximum distance of a reliable message's id from the receiver's floor.
///
/// More is a protocol error. Sparse ids would cost the receiver memory and cost the sender nothing.
pub const MESSAGE_IDS_AHEAD: u64 = 16_384;

/// The default for the maximum length of a reliable message, in bytes. Each peer can choose another value.
pub const RELIABLE_MESSAGE_MAX_BYTES: usize = 64 * 1_024;

/// The largest value in bytes that a peer can choose for the maximum length of a message.
pub const MESSAGE_LIMIT_BYTES: u32 = 16 * 1_024 * 1_024;

/// The length in bytes of a reliable message that every peer must accept.
pub const MESSAGE_LIMIT_MIN_BYTES: u32 = 1_024;

/// The number of bytes that each reliable message is charged in addition to its payload, so short messages have a cost too.
pub const MESSAGE_CHARGE_BYTES: u32 = 64;

/// The maximum length of an unreliable message in bytes. One lost fragment loses the whole message, so longer messages would
/// rarely arrive.
pub const UNRELIABLE_MESSAGE_MAX_BYTES: usize = 16 * 1_024;

/// The maximum length in bytes of the reason in a close frame, which is a short line for a log.
pub const CLOSE_REASON_MAX_BYTES: usize = 128;

/// The maximum number of sockets that a server steers packets to. Up to this number, a balanced secret is found quickly.
pub const STEERING_SOCKETS_MAX: u16 = 1_024;

/// The maximum number of steering secrets that are drawn.
///
/// The worst number of sockets still accepts about half of all secrets. If all draws fail, the source of entropy is broken.
pub const STEERING_SECRET_DRAWS: u32 = 64;

/// The maximum number of routing tags that are drawn, per socket. With a balanced secret, all of them fail with a probability
/// of e^-57.
pub const ROUTING_TAG_DRAWS_PER_SOCKET: u32 = 64;

// The rest of the protocol relies on these relations.
const _: () = assert!(RETRY_MAX_BYTES * 10 <= HELLO_BYTES && REFUSE_MAX_BYTES * 10 <= HELLO_BYTES);
const _: () = assert!(WELCOME_MAX_BYTES <= HELLO_BYTES && HELLO_BYTES <= DATAGRAM_START_BYTES);
const _: () = assert!(RESET_BYTES < TRANSPORT_MIN_BYTES);
const _: () = assert!(ACK_RANGES_SENT <= ACK_RANGES_KEPT);
