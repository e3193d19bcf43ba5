//! Which worker owns a new connection: one table for all workers of a server, asked once per handshake.
//!
//! Packets never come here: their ids steer. The table is bounded by the connections there may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drumfire_proto::{HelloHash, Placed, Placement, PlacementKey};

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
}

impl Owners {
    /// For this many workers with at most so many connections each.
    pub fn new(workers: u16, most: u32) -> Arc<Self> {
        let loads = vec![0; usize::from(workers)];
        Arc::new(Self(Mutex::new(Table { owners: HashMap::new(), loads, most })))
    }

    /// The view of the worker at this index.
    pub fn of_worker(self: &Arc<Self>, index: u16) -> WorkerPlacement {
        WorkerPlacement { owners: Arc::clone(self), index }
    }

    /// Forgets everything a worker owned, because it begins anew.
    pub fn forget(&self, index: u16) {
        let mut table = self.table();
        table.owners.retain(|_, owner| *owner != index);
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
    fn place(&mut self, _: Option<PlacementKey>, hash: HelloHash) -> Placed {
        let mut table = self.owners.table();
        let owner = match table.owners.get(&hash) {
            Some(owner) => *owner,
            None => match table.reserve(hash, self.index) {
                Some(owner) => owner,
                None => return Placed::Full,
            },
        };
        if owner == self.index { Placed::Here } else { Placed::Elsewhere(owner) }
    }

    fn release(&mut self, hash: HelloHash) {
        let mut table = self.owners.table();
        if let Some(owner) = table.owners.remove(&hash)
            && let Some(load) = table.loads.get_mut(usize::from(owner))
        {
            *load = load.saturating_sub(1);
        }
    }
}

impl Table {
    /// Takes a place with the least loaded worker; where `here` is one of them, it stays here.
    fn reserve(&mut self, hash: HelloHash, here: u16) -> Option<u16> {
        let least = *self.loads.iter().min().filter(|load| **load < self.most)?;
        let here_load = self.loads.get(usize::from(here)).copied();
        let owner = if here_load == Some(least) {
            here
        } else {
            u16::try_from(self.loads.iter().position(|load| *load == least)?).ok()?
        };
        *self.loads.get_mut(usize::from(owner))? += 1;
        self.owners.insert(hash, owner);
        Some(owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u32) -> HelloHash {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        HelloHash(bytes)
    }

    fn owner_of(placed: Placed, here: u16) -> u16 {
        match placed {
            Placed::Here => here,
            Placed::Elsewhere(owner) => owner,
            Placed::Full => panic!("there is room"),
        }
    }

    #[test]
    fn the_same_hello_has_the_same_owner_wherever_it_arrives() {
        let owners = Owners::new(4, 100);
        for number in 0..100 {
            let first = u16::try_from(number % 4).unwrap();
            let owner = owner_of(owners.of_worker(first).place(None, hash(number)), first);
            for here in 0..4 {
                let again = owners.of_worker(here).place(None, hash(number));
                assert_eq!(owner_of(again, here), owner);
            }
        }
        assert_eq!(owners.table().loads, [25; 4]);
    }

    #[test]
    fn a_hello_stays_where_it_came_unless_another_worker_has_less() {
        let owners = Owners::new(3, 100);
        assert_eq!(owners.of_worker(2).place(None, hash(1)), Placed::Here);
        assert_eq!(owners.of_worker(2).place(None, hash(2)), Placed::Elsewhere(0));
        assert_eq!(owners.of_worker(2).place(None, hash(3)), Placed::Elsewhere(1));
        assert_eq!(owners.of_worker(2).place(None, hash(4)), Placed::Here);
    }

    #[test]
    fn a_released_place_is_free_again_and_only_once() {
        let owners = Owners::new(2, 1);
        let mut here = owners.of_worker(0);
        assert_eq!(here.place(None, hash(1)), Placed::Here);
        assert_eq!(here.place(None, hash(2)), Placed::Elsewhere(1));
        assert_eq!(here.place(None, hash(3)), Placed::Full);
        owners.of_worker(1).release(hash(2));
        owners.of_worker(1).release(hash(2));
        assert_eq!(here.place(None, hash(3)), Placed::Elsewhere(1));
        assert_eq!(here.place(None, hash(4)), Placed::Full);
        assert_eq!(owners.table().owners.len(), 2);
    }

    #[test]
    fn a_worker_that_begins_anew_owns_nothing() {
        let owners = Owners::new(2, 4);
        for number in 0..8 {
            owners.of_worker(0).place(None, hash(number));
        }
        owners.forget(1);
        assert_eq!(owners.table().loads, [4, 0]);
        assert_eq!(owners.of_worker(0).place(None, hash(9)), Placed::Elsewhere(1));
    }
}
