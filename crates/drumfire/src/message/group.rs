//! The ids of groups, and the errors of joining a group and sending to one.

use std::fmt;

/// The id of a group of peers. The application chooses the number: for a room, a team, or the players that see an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// The largest number of groups that one peer can be in.
pub const GROUPS_PER_PEER_MAX: usize = 64;

/// The reason why a peer did not join a group.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupError {
    /// The connection of the peer is closed.
    UnknownPeer,
    /// The peer is in [`GROUPS_PER_PEER_MAX`] groups. Remove it from one first.
    TooMany,
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPeer => f.write_str("the peer is gone"),
            Self::TooMany => {
                write!(f, "the peer is in {GROUPS_PER_PEER_MAX} groups: take it out of one first")
            }
        }
    }
}

impl std::error::Error for GroupError {}

drumfire_proto::debug_with_display!(GroupError);

/// The reason why a broadcast was not accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BroadcastError {
    /// The message is longer than its mode allows. Send it in parts.
    TooLarge {
        /// The longest message of this mode, in bytes.
        limit_bytes: usize,
    },
    /// The workers have not processed earlier broadcasts yet. Call `flush`, or try again with the next tick.
    Full,
    /// A broadcast has no receipt. Send to each peer where you need one.
    Receipt,
}

impl fmt::Display for BroadcastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit_bytes } => write!(f, "longer than {limit_bytes} bytes: send it in parts"),
            Self::Full => f.write_str("the workers are behind: try again with the next tick"),
            Self::Receipt => {
                f.write_str("a message to a group has no receipt: send to each peer where you need one")
            }
        }
    }
}

impl std::error::Error for BroadcastError {}

drumfire_proto::debug_with_display!(BroadcastError);
