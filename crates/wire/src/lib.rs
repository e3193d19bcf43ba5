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
//! One word per idea, in code, documents and counters alike.
//!
//! | word | meaning |
//! | --- | --- |
//! | datagram | what UDP carries: one payload with a source and a destination |
//! | packet | a protected, numbered datagram of a connection: header, frames, authentication tag. Never resent |
//! | frame | one item inside a packet: an acknowledgement, a message, a close |
//! | message | what the application sends and receives. Resent where its channel is reliable |
//! | fragment | a part of a message that does not fit one packet |
//! | channel | a stream of messages with one delivery mode; one channel never blocks another |
//! | sequence | the order of the messages in a channel |
//! | receipt | the number of a message whose outcome the sender's application is notified of |
//! | credit | the number of bytes of reliable messages that a peer may send |
//! | ack | the statement that packets arrived, as ranges of packet numbers |
//! | resend | to put a message that may be lost into another packet |
//! | probe | a packet that requests an ack because no ack arrived in time |
//! | packet number | counts the packets of one direction; a u64 that never repeats under a key |
//! | truncated number | the low 16, 24 or 32 bits of a packet number, as the header carries them |
//! | replay window | remembers which packet numbers were accepted, so that a copy is refused |
//! | epoch | the time for which one key per direction is in use |
//! | path | the pair of addresses between which the packets of a connection travel |
//! | migration | the move of a connection to another path |
//! | connection id | 8 bytes, made by the server, that name a connection on the wire |
//! | routing tag | the first 16 bits of a connection id: they select the socket |
//! | token | sealed by the game's backend, it admits a player to a server |
//! | cookie | proves that a client receives at the address it sends from |
//! | keep-alive | a packet sent only to show that its sender lives |
//! | endpoint | the protocol state of one socket: its connections and handshakes |
//! | worker | receives and sends on one socket, and owns its connections from handshake to close |
//! | shard | one of a server's sockets with its worker; a thread drives one shard or several |
//! | group | peers that are addressed together |
//! | peer | the other end of a connection |

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
    ChannelId, Close, CloseCode, Delivery, Fragment, Frame, FrameKinds, FrameWriter, Frames, Message,
    MessageId, NewConnectionId, PathData, ResumeToken, Skip,
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
