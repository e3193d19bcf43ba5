//! The type bytes of frames, and the kinds of frames as a set of bits, for records of sent and received packets.

use core::fmt;

/// The first byte of each frame (PROTOCOL 7, "Frames"). The standard reserves other values for later versions.
pub(crate) mod frame_type {
    pub(crate) const PADDING: u8 = 0x00;
    pub(crate) const PING: u8 = 0x01;
    pub(crate) const ACK: u8 = 0x02;
    pub(crate) const CLOSE: u8 = 0x03;
    pub(crate) const SKIP: u8 = 0x04;
    pub(crate) const CREDIT: u8 = 0x05;
    pub(crate) const PATH_CHALLENGE: u8 = 0x07;
    pub(crate) const PATH_RESPONSE: u8 = 0x08;
    pub(crate) const NEW_CONNECTION_ID: u8 = 0x09;
    pub(crate) const RETIRE_CONNECTION_ID: u8 = 0x0a;
    pub(crate) const RESUME_TOKEN: u8 = 0x0b;
    pub(crate) const ACK_REQUEST: u8 = 0x0c;
    pub(crate) const TIMESTAMP: u8 = 0x0d;
    pub(crate) const SKIP_RUN: u8 = 0x0e;

    /// Set in the types of messages and fragments. Bits 0 to 2 are the delivery mode.
    pub(crate) const MESSAGE: u8 = 0x80;
    pub(crate) const UNRELIABLE: u8 = 0x80;
    pub(crate) const UNRELIABLE_SEQUENCED: u8 = 0x81;
    pub(crate) const RELIABLE_UNORDERED: u8 = 0x82;
    pub(crate) const RELIABLE_ORDERED: u8 = 0x83;
    pub(crate) const RELIABLE_SEQUENCED: u8 = 0x84;
    pub(crate) const RELIABLE_LATEST: u8 = 0x85;

    /// Set in the type of a message whose id is omitted, because it is the successor of the previous id in the packet.
    /// Only modes with ids have this bit.
    pub(crate) const NEXT_ID: u8 = 0x10;

    /// Set in the type of a message of which the frame carries a fragment. Every mode except "reliable latest" has this
    /// bit.
    pub(crate) const FRAGMENT: u8 = 0x08;

    /// Set in the type of a run of messages. A run has no fragments, and the modes "reliable sequenced" and "reliable latest"
    /// have no runs.
    pub(crate) const RUN: u8 = 0x20;
}

/// A set of kinds of frames. It does not record how many frames of a kind a packet has, or their order.
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
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Padding frames.
    pub const PADDING: Self = Self(1);
    /// Ping frames.
    pub const PING: Self = Self(1 << 1);
    /// Ack frames.
    pub const ACK: Self = Self(1 << 2);
    /// Close frames.
    pub const CLOSE: Self = Self(1 << 3);
    /// Skip frames, of one message or of a run.
    pub const SKIP: Self = Self(1 << 4);
    /// Credit frames.
    pub const CREDIT: Self = Self(1 << 5);
    /// Path challenges.
    pub const PATH_CHALLENGE: Self = Self(1 << 6);
    /// Path responses.
    pub const PATH_RESPONSE: Self = Self(1 << 7);
    /// Frames with a new connection id.
    pub const NEW_CONNECTION_ID: Self = Self(1 << 8);
    /// Frames that retire a connection id.
    pub const RETIRE_CONNECTION_ID: Self = Self(1 << 9);
    /// Resume tokens.
    pub const RESUME_TOKEN: Self = Self(1 << 10);
    /// Requests for an immediate ack.
    pub const ACK_REQUEST: Self = Self(1 << 11);
    /// Timestamp frames.
    pub const TIMESTAMP: Self = Self(1 << 12);
    /// Whole messages, alone or in runs.
    pub const MESSAGE: Self = Self(1 << 13);
    /// Fragments of messages.
    pub const FRAGMENT: Self = Self(1 << 14);

    /// The name of each kind, in the order in which `Display` writes them.
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

    /// The kinds that must be acknowledged.
    const ACK_ELICITING: Self = Self::PING
        .with(Self::SKIP)
        .with(Self::CREDIT)
        .with(Self::NEW_CONNECTION_ID)
        .with(Self::RETIRE_CONNECTION_ID)
        .with(Self::RESUME_TOKEN)
        .with(Self::ACK_REQUEST)
        .with(Self::MESSAGE)
        .with(Self::FRAGMENT);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether the sets have a kind in common.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns whether a packet with these frames has pings, and nothing else except padding. Keep-alives and probes are such
    /// packets.
    #[must_use]
    pub const fn is_bare_ping(self) -> bool {
        self.with(Self::PADDING).0 == Self::PING.with(Self::PADDING).0
    }

    /// Returns whether a packet with these frames carries data of the application.
    #[must_use]
    pub const fn has_messages(self) -> bool {
        self.has(Self::MESSAGE.with(Self::FRAGMENT))
    }

    /// Returns whether a packet with these frames must be acknowledged.
    #[must_use]
    pub const fn is_ack_eliciting(self) -> bool {
        self.has(Self::ACK_ELICITING)
    }

    /// Returns the names of the kinds in the set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().filter(move |(kind, _)| self.has(*kind)).map(|(_, name)| name)
    }
}

impl fmt::Display for FrameKinds {
    /// Writes the names, separated by spaces.
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

/// Returns whether `byte` is the type of a fragment.
pub(super) const fn is_fragment(byte: u8) -> bool {
    byte & frame_type::FRAGMENT != 0 && byte & frame_type::MESSAGE != 0
}

/// Returns how many of [`PACKET_FRAMES_MAX`] a frame counts as. A fragment costs its receiver twice as much as another frame.
pub(super) const fn frame_weight(is_fragment: bool) -> u8 {
    if is_fragment { 2 } else { 1 }
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
    fn a_bare_ping_has_only_padding_next_to_it() {
        let (ping, padding) = (FrameKinds::PING, FrameKinds::PADDING);
        assert!(ping.is_bare_ping() && ping.with(padding).is_bare_ping());
        for other in [FrameKinds::NONE, padding, FrameKinds::ACK, ping.with(FrameKinds::ACK)] {
            assert!(!other.is_bare_ping(), "{other}");
        }
    }

    #[test]
    fn a_kind_is_ack_eliciting_if_its_frame_is() {
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
