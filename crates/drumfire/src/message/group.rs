//! The ids of groups, and the receivers of a broadcast.

use drumfire_proto::PeerId;

/// The id of a group of peers. The application chooses the number: for a room, a team, or the players that see an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u64);

/// The largest number of groups that one peer can be in.
pub const GROUPS_PER_PEER_MAX: usize = 64;

/// The receivers of a broadcast: all peers or the members of a group, and possibly without one of them.
///
/// ```
/// use drumfire::{Audience, GroupId};
///
/// const RED_TEAM: Audience = Audience::group(GroupId(1));
/// assert_eq!(Audience::from(GroupId(1)), RED_TEAM);
/// assert_ne!(Audience::ALL, RED_TEAM);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Audience {
    /// The group, or `None` for all connected peers.
    pub(crate) group: Option<GroupId>,
    pub(crate) except: Option<PeerId>,
}

impl Audience {
    /// The audience of all connected peers. The cost of a broadcast is proportional to the number of peers.
    pub const ALL: Self = Self { group: None, except: None };

    /// Returns the audience of all members of a group. The cost of a broadcast is proportional to the number of members.
    #[must_use]
    pub const fn group(group: GroupId) -> Self {
        Self { group: Some(group), except: None }
    }

    /// Leaves out one peer, such as the sender of a chat line. A second call replaces the first.
    #[must_use]
    pub const fn except(mut self, peer: PeerId) -> Self {
        self.except = Some(peer);
        self
    }
}

impl From<GroupId> for Audience {
    fn from(group: GroupId) -> Self {
        Self::group(group)
    }
}
