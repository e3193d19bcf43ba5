//! Connection ids: 8 bytes by which packets find their connection, and before that their socket.
//!
//! The check inside is computed and compared elsewhere, by whoever holds the key: this file only knows where
//! it stands. Which socket a tag means is [`SteeringSecret`](crate::SteeringSecret)'s matter.

use core::fmt;

/// The id of a connection, made by the server that receives it (PROTOCOL 11.1, "Connection ids").
///
/// ```text
///  0        2           5           8
///  +--------+-----------+-----------+
///  |  tag   |  random   |   check   |
///  +--------+-----------+-----------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId([u8; 8]);

impl ConnectionId {
    /// Bytes of every id.
    pub const BYTES: usize = 8;

    /// The bytes the check is computed over: tag and random bits.
    pub const CHECKED_BYTES: usize = 5;

    /// Puts an id together. `check` is the first 24 bits of a keyed function of [`Self::checked_part`].
    pub fn new(tag: RoutingTag, random: [u8; 3], check: [u8; 3]) -> Self {
        let [t0, t1] = tag.0.to_be_bytes();
        let ([r0, r1, r2], [c0, c1, c2]) = (random, check);
        Self([t0, t1, r0, r1, r2, c0, c1, c2])
    }

    /// An id as it stood on the wire; its check is not looked at.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    /// The id as it stands on the wire.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// The tag that selects the socket.
    pub fn routing_tag(self) -> RoutingTag {
        let [t0, t1, ..] = self.0;
        RoutingTag(u16::from_be_bytes([t0, t1]))
    }

    /// What the check is computed over.
    #[inline]
    pub fn checked_part(self) -> [u8; Self::CHECKED_BYTES] {
        let [t0, t1, r0, r1, r2, ..] = self.0;
        [t0, t1, r0, r1, r2]
    }

    /// The check this id carries.
    #[inline]
    pub fn check(self) -> [u8; 3] {
        let [.., c0, c1, c2] = self.0;
        [c0, c1, c2]
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({:016x})", u64::from_be_bytes(self.0))
    }
}

/// The first 16 bits of a connection id. By itself it says nothing: only with the server's secret does it
/// name a socket, so an outsider cannot choose one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoutingTag(pub u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_stand_where_the_standard_says() {
        let id = ConnectionId::new(RoutingTag(0x0102), [3, 4, 5], [6, 7, 8]);
        assert_eq!(id.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(ConnectionId::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]), id);
        assert_eq!(id.routing_tag(), RoutingTag(0x0102));
        assert_eq!(id.checked_part(), [1, 2, 3, 4, 5]);
        assert_eq!(id.check(), [6, 7, 8]);
        assert_eq!(format!("{id:?}"), "ConnectionId(0102030405060708)");
    }
}
