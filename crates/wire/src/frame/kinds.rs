//! Which kinds of frames a packet holds, as a set of bits: for records of what was sent and received.
//!
//! It says neither how many there are nor in which order they stand.

use core::fmt;

/// A set of kinds of frames.
///
/// ```
/// # use drumfire_wire::{FrameKinds, FrameWriter};
/// let mut memory = [0; 8];
/// let mut writer = FrameWriter::new(&mut memory[..]);
/// writer.ping()?;
/// writer.padding(4)?;
/// assert!(writer.kinds().has(FrameKinds::PING) && !writer.kinds().has(FrameKinds::ACK));
/// assert_eq!(writer.kinds().to_string(), "padding ping");
/// # Ok::<(), drumfire_wire::EncodeError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameKinds(u16);

impl FrameKinds {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// Padding.
    pub const PADDING: Self = Self(1);
    /// A ping.
    pub const PING: Self = Self(1 << 1);
    /// An ack.
    pub const ACK: Self = Self(1 << 2);
    /// A close.
    pub const CLOSE: Self = Self(1 << 3);
    /// Word that a message will not come.
    pub const SKIP: Self = Self(1 << 4);
    /// Credit for reliable messages.
    pub const CREDIT: Self = Self(1 << 5);
    /// A path challenge.
    pub const PATH_CHALLENGE: Self = Self(1 << 6);
    /// The answer to one.
    pub const PATH_RESPONSE: Self = Self(1 << 7);
    /// One more connection id.
    pub const NEW_CONNECTION_ID: Self = Self(1 << 8);
    /// An id that will not be used any more.
    pub const RETIRE_CONNECTION_ID: Self = Self(1 << 9);
    /// A resume token.
    pub const RESUME_TOKEN: Self = Self(1 << 10);
    /// A request for an ack at once.
    pub const ACK_REQUEST: Self = Self(1 << 11);
    /// What the sender's clock shows.
    pub const TIMESTAMP: Self = Self(1 << 12);
    /// A whole message.
    pub const MESSAGE: Self = Self(1 << 13);
    /// A piece of a message.
    pub const FRAGMENT: Self = Self(1 << 14);

    /// All kinds by name, in the order in which sets are written.
    const NAMES: [(Self, &'static str); 15] = [
        (Self::PADDING, "padding"),
        (Self::PING, "ping"),
        (Self::ACK, "ack"),
        (Self::CLOSE, "close"),
        (Self::SKIP, "skip"),
        (Self::CREDIT, "credit"),
        (Self::PATH_CHALLENGE, "path_challenge"),
        (Self::PATH_RESPONSE, "path_response"),
        (Self::NEW_CONNECTION_ID, "new_connection_id"),
        (Self::RETIRE_CONNECTION_ID, "retire_connection_id"),
        (Self::RESUME_TOKEN, "resume_token"),
        (Self::ACK_REQUEST, "ack_request"),
        (Self::TIMESTAMP, "timestamp"),
        (Self::MESSAGE, "message"),
        (Self::FRAGMENT, "fragment"),
    ];

    /// Those that ask for an ack.
    const ACK_ELICITING: Self = Self::PING
        .with(Self::SKIP)
        .with(Self::CREDIT)
        .with(Self::NEW_CONNECTION_ID)
        .with(Self::RETIRE_CONNECTION_ID)
        .with(Self::RESUME_TOKEN)
        .with(Self::ACK_REQUEST)
        .with(Self::MESSAGE)
        .with(Self::FRAGMENT);

    /// The kinds of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any kind of `other` is in it.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether a packet with these frames says that its sender is there and nothing else.
    #[must_use]
    pub const fn is_bare_ping(self) -> bool {
        self.with(Self::PADDING).0 == Self::PING.with(Self::PADDING).0
    }

    /// Whether a packet with these frames brings something of the application's.
    #[must_use]
    pub const fn has_messages(self) -> bool {
        self.has(Self::MESSAGE.with(Self::FRAGMENT))
    }

    /// Whether a packet with these frames must be acknowledged.
    #[must_use]
    pub const fn is_ack_eliciting(self) -> bool {
        self.has(Self::ACK_ELICITING)
    }

    /// The names of the kinds in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(kind, _)| self.has(*kind)).map(|(_, name)| name)
    }
}

impl fmt::Display for FrameKinds {
    /// The names, separated by spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.names().enumerate() {
            if at > 0 {
                f.write_str(" ")?;
            }
            f.write_str(name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frames;

    #[test]
    fn every_kind_has_a_bit_and_a_name_of_its_own() {
        let mut all = FrameKinds::NONE;
        for (kind, name) in FrameKinds::NAMES {
            assert!(!all.has(kind) && kind.0.is_power_of_two(), "{name}");
            all = all.with(kind);
            assert_eq!(kind.to_string(), name);
        }
        assert_eq!(all.names().count(), FrameKinds::NAMES.len());
        assert_eq!(FrameKinds::NONE.to_string(), "");
    }

    #[test]
    fn a_bare_ping_has_padding_beside_it_at_most() {
        let (ping, padding) = (FrameKinds::PING, FrameKinds::PADDING);
        assert!(ping.is_bare_ping() && ping.with(padding).is_bare_ping());
        for other in [FrameKinds::NONE, padding, FrameKinds::ACK, ping.with(FrameKinds::ACK)] {
            assert!(!other.is_bare_ping(), "{other}");
        }
    }

    #[test]
    fn a_kind_asks_for_an_ack_where_its_frame_does() {
        let one_of_each: [&[u8]; 15] = [
            &[0x00],
            &[0x01],
            &[0x02, 5, 0, 0, 0],
            &[0x03, 0, 0, 0],
            &[0x04, 0, 1, 0, 0],
            &[0x05, 1],
            &[0x07, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x08, 1, 2, 3, 4, 5, 6, 7, 8],
            &[[0x09, 1].as_slice(), &[7; 24]].concat(),
            &[0x0a, 1],
            &[[0x0b].as_slice(), &[7; 546]].concat(),
            &[0x0c],
            &[0x0d, 1],
            &[0x80, 0, 0],
            &[0x8a, 0, 1, 9, 0, 1, 5],
        ];
        for (bytes, (kind, name)) in one_of_each.into_iter().zip(FrameKinds::NAMES) {
            let frame =
                Frames::new(bytes).next().unwrap().unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(frame.kind(), kind, "{frame:?}");
            assert_eq!(kind.is_ack_eliciting(), frame.is_ack_eliciting(), "{name}");
        }
    }
}
