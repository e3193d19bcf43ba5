//! Assigns shards to threads and moves them. The threads of a pool share one [`ShardPlan`] behind a lock.
//!
//! [`ShardPlan::spread`] records the thread that each shard belongs to, and wakes all threads. A thread that wakes up calls
//! [`ShardPlan::settle`] between two passes. It hands over shards that belong to other threads, and takes over the shards that
//! were handed to it. A thread ends when it has no shards and is not needed.
//!
//! A move completes without further calls. If a second `spread` comes before the first is complete, shards go where the second
//! one assigns them. A shard moves by value, so two threads never own it at the same time.
//!
//! This module does not depend on the kind of shard, or on the way threads are started.

#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;

use std::sync::Arc;

use crate::base::sync::WakeFlag;
use crate::base::sync::thread::JoinHandle;
use crate::base::wake::Wake;

/// A value that moves between threads.
pub(super) trait ThreadShard {
    /// The handle that ends the wait of the thread that drives the shard.
    type Waker: Wake;

    /// Returns the index of the shard among all shards of the pool.
    fn index(&self) -> usize;

    /// Whether the shard has ended for good. Its thread then drops it.
    fn is_over(&self) -> bool;

    /// Returns the waker of the thread that drives the shard.
    fn waker(&self) -> Arc<Self::Waker>;
}

/// The threads of a pool, and the thread that each shard belongs to.
pub(super) struct ShardPlan<S: ThreadShard> {
    /// The thread that each shard belongs to, by the index of the shard.
    homes: Vec<usize>,
    /// The number of threads that are needed. Threads with this index or a higher one end when they have no shards.
    threads: usize,
    /// The threads by index, including the ones that have ended.
    slots: Vec<ThreadSlot<S>>,
    /// Whether all threads must end.
    is_stopping: bool,
}

/// The state of one thread.
pub(super) struct ThreadSlot<S: ThreadShard> {
    /// Set when the thread must call [`ShardPlan::settle`].
    call: Arc<WakeFlag>,
    /// `None` after [`ShardPlan::stop`] has returned it.
    handle: Option<JoinHandle<()>>,
    /// Shards that were handed to the thread, and that it has not taken over yet.
    arrivals: Vec<S>,
    /// The waker of one of its shards. `None` if the thread has no shards, and is parked.
    waker: Option<Arc<S::Waker>>,
    /// The number of its shards after its last `settle`.
    driven: u16,
    /// Whether the thread has been allowed to end, so that a new one can replace it.
    is_over: bool,
}

/// The next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlanStep {
    /// The thread drives the shards that it has now.
    Drive,
    /// The thread ends. The shards that it still has close their connections.
    End,
}

impl<S: ThreadShard> ThreadSlot<S> {
    /// Creates the slot of a thread that has started with `driven` shards. `waker` belongs to one of them.
    pub(super) fn new(
        call: Arc<WakeFlag>,
        handle: JoinHandle<()>,
        waker: Option<Arc<S::Waker>>,
        driven: usize,
    ) -> Self {
        Self {
            call,
            handle: Some(handle),
            arrivals: Vec::new(),
            waker,
            driven: count(driven),
            is_over: false,
        }
    }

    /// Requests that the thread calls [`ShardPlan::settle`], and ends its wait.
    fn call(&self) {
        // The flag is set before the wake-up, so the thread finds it when it wakes.
        self.call.set();
        match &self.waker {
            Some(waker) => waker.wake(),
            None => self.handle.iter().for_each(|handle| handle.thread().unpark()),
        }
    }
}

impl<S: ThreadShard> ShardPlan<S> {
    /// Creates the plan for `shards` shards on `threads` threads. The caller then adds each thread with [`ShardPlan::fill`].
    pub(super) fn new(shards: usize, threads: usize) -> Self {
        let homes = assign(&vec![usize::MAX; shards], threads);
        Self { homes, threads, slots: Vec::new(), is_stopping: false }
    }

    /// Returns the thread that each shard belongs to, by the index of the shard.
    pub(super) fn homes(&self) -> &[usize] {
        &self.homes
    }

    /// Adds a thread that has started, in the slot `me` or after the last slot. Returns the thread that was in the slot before.
    /// That thread has handed over all shards, and ends.
    pub(super) fn fill(&mut self, me: usize, post: ThreadSlot<S>) -> Option<JoinHandle<()>> {
        match self.slots.get_mut(me) {
            Some(place) => std::mem::replace(place, post).handle,
            None => {
                self.slots.push(post);
                None
            }
        }
    }

    /// Spreads the shards evenly over `threads` threads, and starts the threads that do not run. A pool that is stopping ignores
    /// the call.
    ///
    /// # Errors
    ///
    /// The error of `spawn_thread`. In this case no shard moves.
    pub(super) fn spread<E>(
        &mut self,
        threads: usize,
        mut spawn_thread: impl FnMut(&mut Self, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.is_stopping {
            return Ok(());
        }
        for me in 0..threads {
            if self.slots.get(me).is_none_or(|post| post.is_over)
                && let Err(error) = spawn_thread(self, me)
            {
                // The threads that were started have no shards and are not needed, so they end.
                self.call();
                return Err(error);
            }
        }
        self.threads = threads;
        self.homes = assign(&self.homes, threads);
        self.call();
        Ok(())
    }

    /// Requests that all threads call [`ShardPlan::settle`].
    fn call(&self) {
        self.slots.iter().for_each(ThreadSlot::call);
    }

    /// Ends all threads, with the shards that they have. Returns their handles, which the caller joins.
    pub(super) fn stop(&mut self) -> Vec<JoinHandle<()>> {
        self.is_stopping = true;
        self.call();
        self.slots.iter_mut().filter_map(|post| post.handle.take()).collect()
    }

    /// Returns the number of shards of each running thread.
    pub(super) fn driven(&self) -> Vec<u16> {
        if self.is_stopping {
            return Vec::new();
        }
        self.slots.iter().filter(|post| !post.is_over).map(|post| post.driven).collect()
    }

    /// Updates the shards of the thread `me`, and returns its next step. Takes over the shards that were handed to it, and drops
    /// the ones that have ended. Calls `leave` on each shard that belongs to another thread, and hands it to that thread.
    pub(super) fn settle(
        &mut self,
        me: usize,
        shards: &mut Vec<S>,
        mut leave: impl FnMut(&mut S),
    ) -> PlanStep {
        let arrivals = self.slots.get_mut(me).map(|post| std::mem::take(&mut post.arrivals));
        shards.extend(arrivals.into_iter().flatten());
        shards.retain(|shard| !shard.is_over());
        if self.is_stopping {
            return PlanStep::End;
        }
        for mut shard in shards.extract_if(.., |shard| self.homes.get(shard.index()) != Some(&me)) {
            leave(&mut shard);
            let home = self.homes.get(shard.index()).and_then(|home| self.slots.get_mut(*home));
            if let Some(post) = home {
                post.arrivals.push(shard);
                post.call();
            }
        }
        shards.sort_unstable_by_key(S::index);
        let is_needed = me < self.threads || !shards.is_empty();
        if let Some(post) = self.slots.get_mut(me) {
            post.driven = count(shards.len());
            post.waker = shards.first().map(S::waker);
            post.is_over = !is_needed;
        }
        if is_needed { PlanStep::Drive } else { PlanStep::End }
    }
}

/// Saturates at the largest number of shards that the statistics can show.
fn count(shards: usize) -> u16 {
    u16::try_from(shards).unwrap_or(u16::MAX)
}

/// Returns the thread of each shard with `threads` threads, when `homes` is the assignment before. A thread index that is out of
/// range means that the shard has no thread yet.
///
/// The numbers of shards of any two threads differ by at most one, and as few shards as possible move.
fn assign(homes: &[usize], threads: usize) -> Vec<usize> {
    let threads = threads.max(1);
    // `longer` threads get one shard more than the others.
    let (least, mut longer) = (homes.len() / threads, homes.len() % threads);
    let mut counts = vec![0; threads];
    let mut kept: Vec<Option<usize>> = homes
        .iter()
        .map(|home| {
            let count = counts.get_mut(*home)?;
            if *count == least {
                longer = longer.checked_sub(1)?;
            } else if *count > least {
                return None;
            }
            *count += 1;
            Some(*home)
        })
        .collect();
    for home in kept.iter_mut().filter(|home| home.is_none()) {
        let fewest = (0..threads).min_by_key(|thread| counts.get(*thread).copied());
        if let Some(count) = fewest.and_then(|fewest| counts.get_mut(fewest)) {
            *count += 1;
        }
        *home = fewest;
    }
    kept.into_iter().map(Option::unwrap_or_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(homes: &[usize], threads: usize) -> Vec<usize> {
        (0..threads).map(|thread| homes.iter().filter(|home| **home == thread).count()).collect()
    }

    #[test]
    fn threads_have_equal_numbers_of_shards_whatever_came_before() {
        for shards in 1..=40 {
            let mut homes = assign(&vec![usize::MAX; shards], 1);
            assert!(homes.iter().all(|home| *home == 0));
            for step in 0..60 {
                let threads = 1 + step * 17 % shards;
                homes = assign(&homes, threads);
                let counts = counts(&homes, threads);
                assert_eq!(counts.iter().sum::<usize>(), shards, "{shards} on {threads}");
                let (least, most) = (counts.iter().min(), counts.iter().max());
                assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counts:?}");
            }
        }
    }

    #[test]
    fn as_few_shards_as_possible_move() {
        let moved =
            |from: &[usize], to: &[usize]| from.iter().zip(to).filter(|(from, to)| from != to).count();
        for shards in 1..=24 {
            for before in 1..=shards {
                let from = assign(&vec![0; shards], before);
                for after in 1..=shards {
                    let to = assign(&from, after);
                    // The shards that each thread can keep: at most `least`, and one more on `longer` of the threads.
                    let (least, mut longer) = (shards / after, shards % after);
                    let keeps = counts(&from, before).into_iter().take(after).map(|had| {
                        let is_longer = had > least && longer > 0;
                        longer -= usize::from(is_longer);
                        had.min(least + usize::from(is_longer))
                    });
                    let keeps: usize = keeps.sum();
                    assert_eq!(moved(&from, &to), shards - keeps, "{shards}: {before} to {after}");
                }
            }
        }
        assert_eq!(assign(&[0, 1, 2, 3], 2), [0, 1, 0, 1]);
    }
}
