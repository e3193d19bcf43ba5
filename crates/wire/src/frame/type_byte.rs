//! The first byte of every frame (PROTOCOL 7, "Frames").
//!
//! Only what this version sends and reads; the numbers set aside for what comes later stand in the standard.

/// One byte that means nothing.
pub(super) const PADDING: u8 = 0x00;

/// Asks for an ack.
pub(super) const PING: u8 = 0x01;

/// Which packets arrived.
pub(super) const ACK: u8 = 0x02;

/// Ends the connection.
pub(super) const CLOSE: u8 = 0x03;

/// A message that will not come.
pub(super) const SKIP: u8 = 0x04;

/// How far the peer may go with reliable messages.
pub(super) const CREDIT: u8 = 0x05;

/// Asks whether somebody is at the end of a path.
pub(super) const PATH_CHALLENGE: u8 = 0x07;

/// Says so.
pub(super) const PATH_RESPONSE: u8 = 0x08;

/// One more id for packets to the server.
pub(super) const NEW_CONNECTION_ID: u8 = 0x09;

/// An id that will not be used any more.
pub(super) const RETIRE_CONNECTION_ID: u8 = 0x0a;

/// What a client needs to come back.
pub(super) const RESUME_TOKEN: u8 = 0x0b;

/// Asks for an ack at once.
pub(super) const ACK_REQUEST: u8 = 0x0c;

/// What the sender's clock shows.
pub(super) const TIMESTAMP: u8 = 0x0d;

/// A whole message, at most once, in any order. Bit 7 marks messages, bits 0 to 2 are the delivery mode.
pub(super) const UNRELIABLE: u8 = 0x80;

/// A whole message, at most once, never an older one after a newer.
pub(super) const UNRELIABLE_SEQUENCED: u8 = 0x81;

/// A whole message, exactly once, in any order; its id is written out.
pub(super) const RELIABLE_UNORDERED: u8 = 0x82;

/// A whole message, exactly once, in order; its id is written out.
pub(super) const RELIABLE_ORDERED: u8 = 0x83;

/// A whole message of which the newest arrives; its id is written out.
pub(super) const RELIABLE_SEQUENCED: u8 = 0x84;

/// A whole value of a key, of which the newest arrives.
pub(super) const RELIABLE_LATEST: u8 = 0x85;

/// In the types of messages with ids: the id is not written, for it is one more than that of the message with an id before
/// it in the packet.
pub(super) const NEXT_ID: u8 = 0x10;

/// In the types of messages: what follows is a piece of one. Values by key have none.
pub(super) const FRAGMENT: u8 = 0x08;

/// Marks messages and their fragments.
pub(super) const MESSAGE: u8 = 0x80;
