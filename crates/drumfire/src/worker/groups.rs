//! The groups of the peers of one worker.
//!
//! Each membership takes memory, and each broadcast takes time per member. A group without members does not exist.

use std::collections::HashMap;

use drumfire_proto::PeerId;

use crate::base::peer_map::PeerMap;
use crate::message::group::{GROUPS_PER_PEER_MAX, GroupId};

/// The groups of one worker's peers.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The members of each group, in no order. No group is empty.
    members: HashMap<GroupId, Vec<PeerId>>,
    /// The groups of each peer, with its index among the members.
    places: PeerMap<Vec<(GroupId, usize)>>,
}

impl Groups {
    /// Adds a peer to a group. Returns whether it is a member now: false if it is in [`GROUPS_PER_PEER_MAX`] other groups.
    pub(crate) fn join(&mut self, group: GroupId, peer: PeerId) -> bool {
        if self.place(group, peer).is_some() {
            return true;
        }
        // The limit bounds the memory that one peer takes here, and the length of the linear searches in its list.
        if self.places.get(peer).is_some_and(|places| places.len() >= GROUPS_PER_PEER_MAX) {
            return false;
        }
        let members = self.members.entry(group).or_default();
        let place = (group, members.len());
        members.push(peer);
        match self.places.get_mut(peer) {
            Some(places) => places.push(place),
            None => self.places.insert(peer, vec![place]),
        }
        true
    }

    /// Removes a peer from a group.
    pub(crate) fn leave(&mut self, group: GroupId, peer: PeerId) {
        let Some(places) = self.places.get_mut(peer) else { return };
        let Some(at) = places.iter().position(|(of, _)| *of == group) else { return };
        let (_, place) = places.swap_remove(at);
        if places.is_empty() {
            self.places.remove(peer);
        }
        self.take_out(group, place);
    }

    /// Removes a peer from all its groups.
    pub(crate) fn remove_peer(&mut self, peer: PeerId) {
        for (group, place) in self.places.remove(peer).into_iter().flatten() {
            self.take_out(group, place);
        }
    }

    /// Removes all peers from all groups.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the members of a group, in no order.
    pub(crate) fn members(&self, group: GroupId) -> &[PeerId] {
        self.members.get(&group).map(Vec::as_slice).unwrap_or_default()
    }

    fn place(&self, group: GroupId, peer: PeerId) -> Option<usize> {
        let mut places = self.places.get(peer)?.iter();
        places.find_map(|(of, place)| (*of == group).then_some(*place))
    }

    /// Removes a member. The last member takes its index.
    fn take_out(&mut self, group: GroupId, place: usize) {
        // The last member fills the gap, so the removal takes constant time in a group of any size. Its own entry
        // must then name its new index.
        let Some(members) = self.members.get_mut(&group) else { return };
        members.swap_remove(place);
        if let Some(moved) = members.get(place)
            && let Some(places) = self.places.get_mut(*moved)
            && let Some(entry) = places.iter_mut().find(|(of, _)| *of == group)
        {
            entry.1 = place;
        }
        // The application chooses the ids of groups. Empty groups would accumulate if it uses each id once.
        if self.members.get(&group).is_some_and(Vec::is_empty) {
            self.members.remove(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn peers(count: u32) -> Vec<PeerId> {
        (0..count).map(|slot| format!("0.{slot}.0").parse().unwrap()).collect()
    }

    #[test]
    fn groups_agree_with_a_model_over_random_changes() {
        let (peers, mut groups) = (peers(20), Groups::default());
        let mut model: BTreeMap<GroupId, BTreeSet<PeerId>> = BTreeMap::new();
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let peer = peers[usize::try_from(next(20)).unwrap()];
            let group = GroupId(next(10));
            match next(10) {
                0..5 => {
                    groups.join(group, peer);
                    model.entry(group).or_default().insert(peer);
                }
                5..9 => {
                    groups.leave(group, peer);
                    model.entry(group).or_default().remove(&peer);
                }
                _ => {
                    groups.remove_peer(peer);
                    for members in model.values_mut() {
                        members.remove(&peer);
                    }
                }
            }
            let members: BTreeSet<PeerId> = groups.members(group).iter().copied().collect();
            assert_eq!(members.len(), groups.members(group).len(), "a group lists each member once");
            assert_eq!(members, model.get(&group).cloned().unwrap_or_default());
        }
        for peer in peers {
            groups.remove_peer(peer);
        }
        assert!(
            groups.members.is_empty() && groups.places.iter().next().is_none(),
            "removed peers leave nothing behind"
        );
    }
}
