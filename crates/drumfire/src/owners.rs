//! Which worker owns a new connection: one table for all workers of a server, asked once per handshake.
//!
//! Packets never come here: their ids steer. The table is bounded by the connections and the used tokens there may
//! be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drumfire_proto::limits::{FULL_RETRY_AFTER, USED_TOKENS};
use drumfire_proto::{
    Claim, ClaimError, Confirmed, HelloHash, Now, Placed, Placement, PlacementKey, Replaced, TokenLedger,
};

/// Nowhere is room, for now.
const FULL: Placed = Placed::Full { retry_after: Some(FULL_RETRY_AFTER) };

/// The table, shared by all workers.
#[derive(Debug)]
pub struct Owners(Mutex<Table>);

#[derive(Debug)]
struct Table {
    /// The owner of each connection, half-open ones included, by the Hello that made it.
    owners: HashMap<HelloHash, u16>,
    /// Connections of each worker.
    loads: Vec<u32>,
    /// The most one worker takes.
    most: u32,
    tokens: TokenLedger,
}

impl Owners {
    /// For this many workers with at most so many connections each.
    pub fn new(workers: u16, most: u32) -> Arc<Self> {
        let loads = vec![0; usize::from(workers)];
        let tokens = TokenLedger::new(USED_TOKENS.saturating_mul(usize::from(workers)));
        Arc::new(Self(Mutex::new(Table { owners: HashMap::new(), loads, most, tokens })))
    }

    /// The view of the worker at this index.
    pub fn of_worker(self: &Arc<Self>, index: u16) -> WorkerPlacement {
        WorkerPlacement { owners: Arc::clone(self), index }
    }

    /// Forgets everything a worker owned, because it begins anew.
    pub fn forget(&self, index: u16) {
        let mut table = self.table();
        let Table { owners, tokens, .. } = &mut *table;
        for hello in owners.extract_if(|_, owner| *owner == index).map(|(hello, _)| hello) {
            tokens.release(hello);
        }
        if let Some(load) = table.loads.get_mut(usize::from(index)) {
            *load = 0;
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A worker that panicked between two lines here left at worst a place reserved.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One worker's view of the table.
#[derive(Clone, Debug)]
pub struct WorkerPlacement {
    owners: Arc<Owners>,
    index: u16,
}

impl Placement for WorkerPlacement {
    fn place(&mut self, now: Now, claim: &Claim<'_>) -> Placed {
        let mut table = self.owners.table();
        let claimed =
            claim.token.as_ref().map_or(Ok(()), |token| table.tokens.claim(now.wall, token, claim.hello));
        match claimed {
            Ok(()) => {}
            Err(ClaimError::Used) => return Placed::Used,
            Err(ClaimError::Full) => return FULL,
        }
        let owner = match table.owners.get(&claim.hello) {
            Some(owner) => *owner,
            None => match table.reserve(claim, self.index) {
                Some(owner) => owner,
                None => {
                    table.tokens.release(claim.hello);
                    return FULL;
                }
            },
        };
        if owner == self.index { Placed::Here } else { Placed::Elsewhere(owner) }
    }

    fn confirm(&mut self, _: Now, hello: HelloHash) -> Confirmed {
        let mut table = self.owners.table();
        let Some(hello) = table.tokens.confirm(hello) else { return Confirmed::Alone };
        let shard = table.owners.get(&hello).copied();
        shard.map_or(Confirmed::Alone, |shard| Confirmed::Replaces(Replaced { shard, hello }))
    }

    fn release(&mut self, hello: HelloHash) {
        let mut table = self.owners.table();
        table.tokens.release(hello);
        if let Some(owner) = table.owners.remove(&hello)
            && let Some(load) = table.loads.get_mut(usize::from(owner))
        {
            *load = load.saturating_sub(1);
        }
    }
}

impl Table {
    /// Takes a place: with the worker of the claim's key, or with the least loaded one, which is `here` where that is
    /// one of them.
    fn reserve(&mut self, claim: &Claim<'_>, here: u16) -> Option<u16> {
        let owner = match claim.key {
            Some(key) => self.worker_of(key).filter(|owner| self.load(*owner) < self.most)?,
            None => self.least_loaded(here)?,
        };
        *self.loads.get_mut(usize::from(owner))? += 1;
        self.owners.insert(claim.hello, owner);
        Some(owner)
    }

    fn least_loaded(&self, here: u16) -> Option<u16> {
        let least = *self.loads.iter().min().filter(|load| **load < self.most)?;
        if self.load(here) == least {
            return Some(here);
        }
        u16::try_from(self.loads.iter().position(|load| *load == least)?).ok()
    }

    /// The worker of all players with this key.
    fn worker_of(&self, key: PlacementKey) -> Option<u16> {
        let count = u64::try_from(self.loads.len()).ok()?;
        // Rooms are often numbered one after the other, or in steps: their numbers are scattered first.
        let scattered = key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        u16::try_from(scattered.checked_rem(count)?).ok()
    }

    fn load(&self, worker: u16) -> u32 {
        self.loads.get(usize::from(worker)).copied().unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire_proto::{Moment, PlayerId, TokenClaim, TokenId};
    use std::net::SocketAddr;
    use std::time::Duration;

    const NOW: Now = Now { monotonic: Moment::ORIGIN, wall: Duration::ZERO };

    fn hash(number: u32) -> HelloHash {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        HelloHash(bytes)
    }

    /// A Hello without a token.
    fn plain(number: u32) -> Claim<'static> {
        let address = SocketAddr::from(([192, 0, 2, 1], 5_000));
        Claim {
            hello: hash(number),
            address,
            is_address_proved: true,
            key: None,
            token: None,
            user_data: &[],
        }
    }

    fn owner_of(placed: Placed, here: u16) -> u16 {
        match placed {
            Placed::Here => here,
            Placed::Elsewhere(owner) => owner,
            placed => panic!("{placed:?}"),
        }
    }

    #[test]
    fn the_same_hello_has_the_same_owner_wherever_it_arrives() {
        let owners = Owners::new(4, 100);
        for number in 0..100 {
            let first = u16::try_from(number % 4).unwrap();
            let owner = owner_of(owners.of_worker(first).place(NOW, &plain(number)), first);
            for here in 0..4 {
                let again = owners.of_worker(here).place(NOW, &plain(number));
                assert_eq!(owner_of(again, here), owner);
            }
        }
        assert_eq!(owners.table().loads, [25; 4]);
    }

    #[test]
    fn a_hello_stays_where_it_came_unless_another_worker_has_less() {
        let owners = Owners::new(3, 100);
        assert_eq!(owners.of_worker(2).place(NOW, &plain(1)), Placed::Here);
        assert_eq!(owners.of_worker(2).place(NOW, &plain(2)), Placed::Elsewhere(0));
        assert_eq!(owners.of_worker(2).place(NOW, &plain(3)), Placed::Elsewhere(1));
        assert_eq!(owners.of_worker(2).place(NOW, &plain(4)), Placed::Here);
    }

    #[test]
    fn a_released_place_is_free_again_and_only_once() {
        let owners = Owners::new(2, 1);
        let mut here = owners.of_worker(0);
        assert_eq!(here.place(NOW, &plain(1)), Placed::Here);
        assert_eq!(here.place(NOW, &plain(2)), Placed::Elsewhere(1));
        assert_eq!(here.place(NOW, &plain(3)), FULL);
        owners.of_worker(1).release(hash(2));
        owners.of_worker(1).release(hash(2));
        assert_eq!(here.place(NOW, &plain(3)), Placed::Elsewhere(1));
        assert_eq!(here.place(NOW, &plain(4)), FULL);
        assert_eq!(owners.table().owners.len(), 2);
    }

    #[test]
    fn a_worker_that_begins_anew_owns_nothing() {
        let owners = Owners::new(2, 4);
        for number in 0..8 {
            owners.of_worker(0).place(NOW, &plain(number));
        }
        owners.forget(1);
        assert_eq!(owners.table().loads, [4, 0]);
        assert_eq!(owners.of_worker(0).place(NOW, &plain(9)), Placed::Elsewhere(1));
    }

    fn with_token(number: u32, key: Option<u64>) -> Claim<'static> {
        let token = TokenClaim {
            token: TokenId(hash(number).0),
            player: PlayerId(1),
            expires_at: Duration::from_secs(100),
        };
        Claim { key: key.map(PlacementKey), token: Some(token), ..plain(number) }
    }

    #[test]
    fn players_with_the_same_key_share_a_worker_as_long_as_it_has_room() {
        let owners = Owners::new(4, 2);
        let placed = |number: u32, key| {
            let claim = Claim { key: Some(PlacementKey(key)), ..plain(number) };
            owners.of_worker(0).place(NOW, &claim)
        };
        let first = placed(1, 77);
        assert_eq!(placed(2, 77), first);
        assert_eq!(placed(3, 77), FULL);
        let spread: std::collections::HashSet<_> =
            (0..64).map(|key| owners.table().worker_of(PlacementKey(key)).unwrap()).collect();
        assert_eq!(spread.len(), 4);
    }

    /// Every worker tries every token, from a Hello of its own; answers which were taken, by token and Hello.
    fn race(owners: &Arc<Owners>, tokens: u32) -> Vec<(u32, HelloHash)> {
        let barrier = std::sync::Barrier::new(4);
        let mut taken = std::thread::scope(|scope| {
            let racers = (0..4).map(|worker| {
                let (mut placement, barrier) = (owners.of_worker(worker), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let tries = (0..tokens).map(|token| (token, hash(token << 8 | u32::from(worker))));
                    let is_taken = |(token, hello): &(u32, HelloHash)| {
                        let claim = Claim { hello: *hello, ..with_token(*token, None) };
                        placement.place(NOW, &claim) != Placed::Used
                    };
                    tries.filter(is_taken).collect::<Vec<_>>()
                })
            });
            let racers: Vec<_> = racers.collect();
            racers.into_iter().flat_map(|racer| racer.join().unwrap()).collect::<Vec<_>>()
        });
        taken.sort_unstable();
        taken
    }

    #[test]
    fn tokens_raced_on_all_workers_replayed_and_used_after_the_close_open_one_session_each() {
        const TOKENS: u32 = 25_000;
        let owners = Owners::new(4, TOKENS);
        let taken = race(&owners, TOKENS);
        assert!(taken.iter().map(|(token, _)| *token).eq(0..TOKENS), "each once in 100,000 tries");
        for (_, hello) in &taken {
            owners.of_worker(0).confirm(NOW, *hello);
        }
        // Its own Hello finds the connection that it made.
        assert_eq!(race(&owners, TOKENS), taken, "while the sessions last");
        assert_eq!(owners.table().owners.len(), taken.len());
        for (_, hello) in &taken {
            owners.of_worker(0).release(*hello);
        }
        assert!(race(&owners, TOKENS).is_empty(), "after their close");
        assert_eq!(owners.table().owners.len(), 0);
    }

    #[test]
    fn an_older_session_is_closed_where_it_lives() {
        let owners = Owners::new(2, 100);
        let mut here = owners.of_worker(0);
        assert_eq!(here.place(NOW, &with_token(1, None)), Placed::Here);
        assert_eq!(here.confirm(NOW, hash(1)), Confirmed::Alone);
        assert_eq!(here.place(NOW, &with_token(2, None)), Placed::Elsewhere(1));
        assert_eq!(
            owners.of_worker(1).confirm(NOW, hash(2)),
            Confirmed::Replaces(Replaced { shard: 0, hello: hash(1) })
        );
        here.release(hash(1));
        owners.forget(1);
        assert_eq!(here.place(NOW, &with_token(2, None)), Placed::Used, "used stays used");
    }
}
