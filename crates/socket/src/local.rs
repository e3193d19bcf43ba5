//! Which of the host's own addresses a datagram came to, as a small number: a host has few, and an answer must leave
//! from the one that was asked, or a firewall and a connected client take it for a stranger's.
//!
//! Only sockets bound to an unspecified address need to know; with any other address the kernel has no choice.

/// One of the addresses of a socket's host, as a [`crate::ReuseportGroup`] numbers them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalAddress(u16);

impl LocalAddress {
    /// None in particular: the kernel chooses.
    pub const ANY: Self = Self(0);

    /// The address of this number, which [`Self::to_number`] gave.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        Self(number)
    }

    /// The number, 0 for none in particular.
    #[must_use]
    pub const fn to_number(self) -> u16 {
        self.0
    }
}
