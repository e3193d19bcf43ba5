//! The wire format of drumfire: encoding and decoding of headers, frames, and ids.
//!
//! This crate has no keys, clock, entropy, sockets, or connection state. Packet protection authenticates the bytes of frames
//! before [`Frames`] decodes them, and the protocol core acts on the frames. Decoding never allocates: all decoded values borrow
//! from their datagram.
//!
//! The written standard is the module [`protocol`]. It is complete enough to write a client in another language, and tests in
//! this crate compare it with the code.
//!
//! # Where to begin
//!
//! 1. [`DatagramKind::of`] returns the kind of a datagram from its first byte and its length.
//! 2. [`TransportHeader::decode`] reads the header of a protected packet. [`Hello`], [`Retry`], and [`Welcome`] read the
//!    datagrams of the handshake.
//! 3. [`Frames`] iterates over the frames of an opened packet, and [`FrameWriter`] fills a packet.
//!
//! # Glossary
//!
//! Code, documents, and counters use one word for each idea.
//!
//! ## What travels
//!
//! | word | meaning |
//! | --- | --- |
//! | datagram | what UDP carries: one payload with a source and a destination |
//! | packet | a protected, numbered datagram of a connection: header, frames, authentication tag. Never resent |
//! | header | the bytes of a packet before its frames (PROTOCOL 6.1, "Header") |
//! | frame | one item inside a packet: an acknowledgment, a message, a close (PROTOCOL 7, "Frames") |
//! | message | what the application sends and receives. Resent if its delivery mode is reliable |
//! | fragment | a part of a message that does not fit one packet (PROTOCOL 8.6, "Fragments") |
//! | run | consecutive messages of one channel and one delivery mode in one frame (PROTOCOL 8.8, "Run") |
//! | body | a message as a run carries it: its length and its payload |
//! | segment | messages of one channel that wait to be sent: their bodies, of which a run takes as many as fit a packet |
//! | block | messages that are encoded once for many peers, whose connections share the bodies |
//! | chunk | a part of the send memory with the bodies of several segments and sent runs |
//! | varint | an unsigned integer of 1 to 10 bytes, 7 bits in each (PROTOCOL 2.1, "Integers") |
//! | packet number | counts the packets of one direction; a u64 that never repeats under a key (PROTOCOL 6.2, "Packet numbers") |
//! | truncated number | the low 16, 24 or 32 bits of a packet number, as the header carries them |
//! | train | datagrams of one length between two addresses, in one system call: GSO when sent, GRO when received |
//!
//! ## Delivery
//!
//! | word | meaning |
//! | --- | --- |
//! | channel | a number that groups messages; an order holds within one channel, and no channel blocks another |
//! | delivery mode | the guarantee for one message: reliable or not, ordered or not (PROTOCOL 8, "Messages and delivery modes") |
//! | reliable | resent until it is acknowledged; it arrives unless the connection ends first |
//! | sequence | the order of the messages in a channel |
//! | priority | the class of a message; a higher class leaves first |
//! | lifetime | the time after which a message is no longer sent |
//! | redundancy | copies of a short reliable message in later packets, before it is known to be lost |
//! | value | a message of the mode ReliableLatest, which replaces the older ones of its key (PROTOCOL 8.5, "Values") |
//! | skip | the notice that a sender gave up a message, so that later ones are delivered (PROTOCOL 8.7, "Skip") |
//! | receipt | reports the outcome of one message to its sender: acknowledged, lost, or expired |
//! | credit | the number of bytes of reliable messages that a peer may send (PROTOCOL 10, "Flow control") |
//! | send edge | the sum of bytes that senders on other threads may have sent to a peer, as in the flow control of QUIC |
//! | memory budget | the number of bytes of messages that all connections of an endpoint may hold together |
//! | transfer | a long series of bytes, sent as messages on a channel of its own |
//!
//! ## Acknowledgment and rate
//!
//! | word | meaning |
//! | --- | --- |
//! | ack | the statement that packets arrived, as ranges of packet numbers (PROTOCOL 9.1, "Ack") |
//! | ack delay | the time between the arrival of a packet and the sending of its ack |
//! | in flight | sent, and neither acknowledged nor lost |
//! | loss | the conclusion that a packet will not be acknowledged (RFC 9002, section 6) |
//! | resend | to put a message that may be lost into another packet |
//! | probe | a packet that requests an ack because no ack arrived in time |
//! | round trip | the time from sending a packet until its ack, smoothed (RFC 9002, section 5) |
//! | clock offset | the difference between the clocks of both ends (PROTOCOL 9.5, "Timestamp") |
//! | congestion window | the number of bytes that may be in flight; a controller computes it from acks and losses |
//! | Cubic | a controller for bulk transfers, which grows the window until packets are lost (RFC 9438) |
//! | bandwidth | the rate at which a path delivers, as acks show it |
//! | pacing, pacer | sending the window over a round trip instead of in one burst (RFC 9002, section 7.7) |
//! | MTU search | finds the largest datagram that a path carries (RFC 8899) |
//!
//! ## Connections
//!
//! | word | meaning |
//! | --- | --- |
//! | client | the end that opens a connection, usually the program of a player |
//! | server | the end that accepts connections, with one port and one key |
//! | peer | the other end of a connection; in the facade, a connection as the application names it |
//! | connection | the shared state of a client and a server: keys, paths, channels |
//! | connection id | 8 bytes, made by the server, that name a connection on the wire (PROTOCOL 11.1, "Connection ids") |
//! | spare connection id | an id for a client that changes its path on purpose (PROTOCOL 11.2, "Spare connection ids") |
//! | routing tag | the first 16 bits of a connection id: they select the socket |
//! | path | the pair of addresses between which the packets of a connection travel (PROTOCOL 11.4, "Paths") |
//! | route | a path as one end sees it: the peer's address and the local address |
//! | migration | the move of a connection to another path |
//! | keep-alive | a packet sent only to show that its sender is alive |
//! | liveness | whether a peer still responds, judged by timeouts (PROTOCOL 13.1, "Timeouts") |
//! | close | the end of a connection by one end, with a code as its reason (PROTOCOL 13.2, "Close") |
//! | reset | a server's proof that it does not know a connection (PROTOCOL 14, "Reset") |
//! | flight record | the last events of a connection, kept to explain its end |
//!
//! ## Handshake and admission
//!
//! | word | meaning |
//! | --- | --- |
//! | handshake | the datagrams that open a connection (PROTOCOL 5, "Handshake") |
//! | attempt | what a client does from its first Hello until it is connected or gives up |
//! | Hello | the first datagram of a client (PROTOCOL 5.4, "Hello") |
//! | Retry | asks a client for the same Hello with a cookie (PROTOCOL 5.5, "Retry") |
//! | Welcome | accepts a client (PROTOCOL 5.6, "Welcome") |
//! | Refuse, refusal | rejects a client with a reason (PROTOCOL 16, "Refuse") |
//! | parameters | the limits that both ends exchange in the handshake (PROTOCOL 5.7, "Parameters") |
//! | half-open | the state of a server's connection between its Welcome and the first packet that opens |
//! | source | an IPv4 address or an IPv6 /64, the unit of limits for handshakes |
//! | cookie | proves that a client receives at the address it sends from |
//! | access | the rule for clients that connect: open, or with a token |
//! | admission | the decision about a Hello, by token, bans, limits, load, gate, and the application |
//! | applicant | a client about whose admission the application decides, in the accept hook |
//! | ban | the refusal of a player or a network for some time |
//! | gate | the switch by which a server refuses all new players |
//! | load | the share of its time for which a worker is busy |
//! | placement | selects the worker that owns a new connection; a placement key keeps players together |
//! | claim | the request of a Hello that passed all checks: for its token, and for a place on a worker |
//! | session | what continues over reconnects: at a server, the admission of a player; at a client, its connections since `connect` |
//!
//! ## Keys and tokens
//!
//! | word | meaning |
//! | --- | --- |
//! | seal | to encrypt and authenticate a packet |
//! | open | to check and decrypt a packet; of a connection, that both ends have keys |
//! | suite | the algorithms that protect packets (PROTOCOL 4.2, "Suites") |
//! | AEAD | authenticated encryption with associated data (RFC 5116) |
//! | nonce | the input of a seal that never repeats under a key; for a packet, made from its number |
//! | epoch | the time for which one key per direction is in use (PROTOCOL 12, "Key updates") |
//! | replay window | remembers which packet numbers were accepted, so that a copy is refused |
//! | mac1 | proves that the sender of a Hello knows the server's public key and the secret of its token (PROTOCOL 4.1, "Keyed functions") |
//! | initiator, responder | the client and the server in the Noise handshake |
//! | server identity | what a client knows of a server in advance: its public key and key id |
//! | backend | a service of the game that issues tokens; it is no part of a connection |
//! | token | sealed by the game's backend, it admits a player to a server (PROTOCOL 15, "Tokens") |
//! | connect token | a token with everything that a client needs to connect (PROTOCOL 15.3, "Connect tokens as text") |
//! | token audience | the match or instance for which a token is valid (PROTOCOL 15.1, "Sealed tokens") |
//! | resume token | a token of the server, with which a player returns (PROTOCOL 15.4, "Resume token") |
//! | token key | seals the tokens for one server |
//! | master key | the secret of the backend from which it derives the token key of each server |
//! | player | the person or program that a token names, by an id that the backend chooses |
//! | server id | the text that separates servers with the same key (PROTOCOL 17, "Server ids and key ids") |
//! | key id | the number of a server key or a token key (PROTOCOL 17, "Server ids and key ids") |
//!
//! ## Sockets
//!
//! | word | meaning |
//! | --- | --- |
//! | steering | the selection of a socket by routing tag, by a filter in the kernel |
//! | reuseport group | the sockets that share one UDP address; `SO_REUSEPORT` |
//! | batch | the datagrams of one system call |
//! | drain | to receive until the socket would block or a budget is spent |
//! | flush | to send all datagrams that are due |
//! | poller | waits for sockets and for its waker, which ends the wait from another thread |
//! | ready | able to receive without blocking, as the kernel reported it |
//! | gather, spin | strategies to wait: a short sleep for many datagrams, or no sleep at all |
//! | backoff | a growing pause after calls that fail |
//! | grant | a socket option as the kernel granted it, which may be less than requested |
//! | kernel drop | a datagram that the kernel dropped because the receive buffer was full |
//!
//! ## Workers
//!
//! | word | meaning |
//! | --- | --- |
//! | endpoint | the protocol state of one socket: its connections and handshakes |
//! | worker | receives and sends on one socket, and owns its connections from handshake to close |
//! | pass | one turn of a worker: wait, drain, deliver, flush |
//! | shard | one of a server's sockets with its worker; a thread drives one shard or several |
//! | engine | the workers of a server or a client, their threads, and the application's side of them |
//! | transport | what carries the datagrams of a worker: a socket, or the network of a test |
//! | inline | without threads of its own: the application's calls drive the worker |
//! | command | a request of the application to a worker |
//! | event | what happened to a peer, in order, for the application |
//! | shutdown | the end of a server, with a deadline for its last messages |
//! | sink | receives the events of one worker for one of the interfaces |
//! | registry | the connections of all workers of a server, for admission |
//! | forward | to pass a datagram to the worker that owns its connection |
//! | arena | the memory that received messages share |
//!
//! ## Interfaces
//!
//! | word | meaning |
//! | --- | --- |
//! | facade | the crate `drumfire`, which games use |
//! | tick, handler, async | the interfaces of the facade: a loop that polls, calls on the worker's thread, and tasks |
//! | group | peers that are addressed together |
//! | broadcast | one message for many peers |
//! | audience | the receivers of a broadcast: all peers or the members of a group, perhaps without one of them |
//! | codec | turns values of a type into messages and back |
//! | remote | a handle of a handler server, for other threads |
//! | control | a handle for the operator of a server, with actions that take effect between passes |
//! | reconnect | to connect again by itself after an end that no application wanted |
//! | drop reason | why a datagram was dropped; each dropped datagram is counted under one |
//! | survey | the result of a scan of connections for an operator, with the first ones in an order |
//! | snapshot | the state of a server that an operator's program shows |
//! | sample | a measurement of one moment, of a connection or a worker |
//! | observer | publishes the metrics and the trace of a worker |
//! | metrics, trace | counters and gauges for a recorder; log events for a subscriber |
//!
//! ## Tests
//!
//! | word | meaning |
//! | --- | --- |
//! | conditioner | simulates a bad network at a socket |
//! | link | one direction of a simulated path, with loss, delay, and a rate |
//! | world | a server and its clients in memory, with a simulated network and virtual time |
//! | seed | the number from which a run draws all random values; equal seeds give equal runs |
//! | entropy | random bytes of the system, or of a seed in a test |
//! | scenario | one run of the simulator: chaos, then calm, with every promise checked |
//! | plan | what a scenario does to one client, group, or worker |
//! | fault | a planned failure in a test; in `socket`, a failed call |
//! | outage | a time in which a path drops datagrams |
//! | attacker | invents, copies, repeats, and changes datagrams without keys |
//! | hostile end | a peer that breaks the rules, with keys |
//! | swarm | the traffic of one seed, made from a few frame templates |
//! | flood | datagrams that are meant to overload a server |

#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
// Without `std` and `alloc`, the compiler guarantees that this crate does not allocate.
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod ack;
mod codec;
mod connection_id;
mod frame;
mod handshake;
mod header;
pub mod limits;
mod packet_number;
pub mod varint;

pub use ack::{Ack, AckDelay, AckRange, AckRanges, AckRangesIter};
pub use codec::{EncodeError, FrameError};
pub use connection_id::{ConnectionId, RoutingTag, SteeringError, SteeringSecret};
pub use frame::{
    Bodies, ChannelId, Close, CloseCode, Delivery, Fragment, Frame, FrameKinds, FrameWriter, Frames, Lengths,
    Message, MessageId, NewConnectionId, PathData, Payloads, ResumeToken, Run, Skip, SkipRun,
};
pub use handshake::{
    ClientId, ClientParameters, Hello, HelloDraft, HelloFields, Refusal, Refuse, RefuseReason, Reset, Retry,
    ServerParameters, SharedParameters, Suite, SuiteOffer, Welcome,
};
pub use header::{ConnectionIdLength, DatagramError, DatagramKind, TransportHeader};
pub use packet_number::{PacketNumber, PacketNumberLength, TruncatedNumber};

/// The wire version that this crate implements, as it is in a Hello (PROTOCOL 2.2, "Versions").
pub const VERSION: u16 = 1;

#[doc = include_str!("../PROTOCOL.md")]
pub mod protocol {}
