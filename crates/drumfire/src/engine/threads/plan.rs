//! Assigns shards to threads and moves them. The threads of a pool share one [`ShardPlan`] behind a lock.
//!
//! [`ShardPlan::spread`] records the thread that each shard belongs to, and wakes all threads. A thread that wakes up calls
//! [`ShardPlan::update_shards`] between two passes. It hands over shards that belong to other threads, and takes over the shards that
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
    /// The thread that each shard is assigned to, by the index of the shard.
    assignments: Vec<usize>,
    /// The number of threads that are needed. Threads with this index or a higher one end when they have no shards.
    threads: usize,
    /// The threads by index, including the ones that have ended.
    slots: Vec<ThreadSlot<S>>,
    /// Whether all threads must end.
    is_stopping: bool,
}

/// The state of one thread.
pub(super) struct ThreadSlot<S: ThreadShard> {
    /// Set when the thread must call [`ShardPlan::update_shards`].
    update_flag: Arc<WakeFlag>,
    /// `None` after [`ShardPlan::stop`] has returned it.
    handle: Option<JoinHandle<()>>,
    /// Shards that were handed to the thread, and that it has not taken over yet.
    arrivals: Vec<S>,
    /// The waker of one of its shards. `None` if the thread has no shards, and is parked.
    waker: Option<Arc<S::Waker>>,
    /// The number of its shards after its last `update_shards`.
    shard_count: u16,
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
    /// Creates the slot of a thread that has started with `shard_count` shards. `waker` belongs to one of them.
    pub(super) fn new(
        update_flag: Arc<WakeFlag>,
        handle: JoinHandle<()>,
        waker: Option<Arc<S::Waker>>,
        shard_count: usize,
    ) -> Self {
        Self {
            update_flag,
            handle: Some(handle),
            arrivals: Vec::new(),
            waker,
            shard_count: count(shard_count),
            is_over: false,
        }
    }

    /// Requests that the thread calls [`ShardPlan::update_shards`], and ends its wait.
    fn request_update(&self) {
        // The flag is set before the wake-up, so the thread finds it when it wakes.
        self.update_flag.set();
        match &self.waker {
            Some(waker) => waker.wake(),
            None => self.handle.iter().for_each(|handle| handle.thread().unpark()),
        }
    }
}

impl<S: ThreadShard> ShardPlan<S> {
    /// Creates the plan for `shards` shards on `threads` threads. The caller then adds each thread with [`ShardPlan::fill`].
    pub(super) fn new(shards: usize, threads: usize) -> Self {
        let assignments = assign(&vec![usize::MAX; shards], threads);
        Self { assignments, threads, slots: Vec::new(), is_stopping: false }
    }

    /// Returns the thread that each shard belongs to, by the index of the shard.
    pub(super) fn assignments(&self) -> &[usize] {
        &self.assignments
    }

    /// Adds a thread that has started, in the slot `thread_index` or after the last slot. Returns the thread that was in the slot before.
    /// That thread has handed over all shards, and ends.
    pub(super) fn fill(&mut self, thread_index: usize, new: ThreadSlot<S>) -> Option<JoinHandle<()>> {
        match self.slots.get_mut(thread_index) {
            Some(slot) => std::mem::replace(slot, new).handle,
            None => {
                self.slots.push(new);
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
        for thread_index in 0..threads {
            if self.slots.get(thread_index).is_none_or(|slot| slot.is_over)
                && let Err(error) = spawn_thread(self, thread_index)
            {
                // The threads that were started have no shards and are not needed, so they end.
                self.request_updates();
                return Err(error);
            }
        }
        self.threads = threads;
        self.assignments = assign(&self.assignments, threads);
        self.request_updates();
        Ok(())
    }

    /// Requests that all threads call [`ShardPlan::update_shards`].
    fn request_updates(&self) {
        self.slots.iter().for_each(ThreadSlot::request_update);
    }

    /// Ends all threads, with the shards that they have. Returns their handles, which the caller joins.
    pub(super) fn stop(&mut self) -> Vec<JoinHandle<()>> {
        self.is_stopping = true;
        self.request_updates();
        self.slots.iter_mut().filter_map(|slot| slot.handle.take()).collect()
    }

    /// Returns the number of shards of each running thread.
    pub(super) fn shard_counts(&self) -> Vec<u16> {
        if self.is_stopping {
            return Vec::new();
        }
        self.slots.iter().filter(|slot| !slot.is_over).map(|slot| slot.shard_count).collect()
    }

    /// Updates the shards of the thread `thread_index`, and returns its next step. Takes over the shards that were handed to it, and moves
    /// the ones that have ended to `ended`. Dropping them runs code of the application, which may need the lock of the plan. Calls
    /// `detach` on each shard that belongs to another thread, and hands it to that thread.
    pub(super) fn update_shards(
        &mut self,
        thread_index: usize,
        shards: &mut Vec<S>,
        ended: &mut Vec<S>,
        mut detach: impl FnMut(&mut S),
    ) -> PlanStep {
        let arrivals = self.slots.get_mut(thread_index).map(|slot| std::mem::take(&mut slot.arrivals));
        shards.extend(arrivals.into_iter().flatten());
        ended.extend(shards.extract_if(.., |shard| shard.is_over()));
        if self.is_stopping {
            return PlanStep::End;
        }
        for mut shard in
            shards.extract_if(.., |shard| self.assignments.get(shard.index()) != Some(&thread_index))
        {
            detach(&mut shard);
            let assigned =
                self.assignments.get(shard.index()).and_then(|assigned| self.slots.get_mut(*assigned));
            if let Some(slot) = assigned {
                slot.arrivals.push(shard);
                slot.request_update();
            }
        }
        shards.sort_unstable_by_key(S::index);
        // A thread with shards that have ended still runs code of the application, which may need this lock. The caller that joins
        // the thread holds it.
        let is_needed = thread_index < self.threads || !shards.is_empty() || !ended.is_empty();
        if let Some(slot) = self.slots.get_mut(thread_index) {
            slot.shard_count = count(shards.len());
            slot.waker = shards.first().map(S::waker);
            slot.is_over = !is_needed;
        }
        if is_needed { PlanStep::Drive } else { PlanStep::End }
    }
}

/// Saturates at the largest number of shards that the statistics can show.
fn count(shards: usize) -> u16 {
    u16::try_from(shards).unwrap_or(u16::MAX)
}

/// Returns the thread of each shard with `threads` threads, when `assignments` is the assignment before. A thread index that is out of
/// range means that the shard has no thread yet.
///
/// The numbers of shards of any two threads differ by at most one, and as few shards as possible move.
fn assign(assignments: &[usize], threads: usize) -> Vec<usize> {
    let threads = threads.max(1);
    // `larger` threads get one shard more than the others.
    let (least, mut larger) = (assignments.len() / threads, assignments.len() % threads);
    let mut counts = vec![0; threads];
    let mut kept: Vec<Option<usize>> = assignments
        .iter()
        .map(|assigned| {
            let count = counts.get_mut(*assigned)?;
            if *count == least {
                larger = larger.checked_sub(1)?;
            } else if *count > least {
                return None;
            }
            *count += 1;
            Some(*assigned)
        })
        .collect();
    for assigned in kept.iter_mut().filter(|assigned| assigned.is_none()) {
        let fewest = (0..threads).min_by_key(|thread| counts.get(*thread).copied());
        if let Some(count) = fewest.and_then(|fewest| counts.get_mut(fewest)) {
            *count += 1;
        }
        *assigned = fewest;
    }
    kept.into_iter().map(Option::unwrap_or_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(assignments: &[usize], threads: usize) -> Vec<usize> {
        (0..threads)
            .map(|thread| assignments.iter().filter(|assigned| **assigned == thread).count())
            .collect()
    }

    #[test]
    fn threads_have_equal_numbers_of_shards_whatever_came_before() {
        for shards in 1..=40 {
            let mut assignments = assign(&vec![usize::MAX; shards], 1);
            assert!(assignments.iter().all(|assigned| *assigned == 0));
            for step in 0..60 {
                let threads = 1 + step * 17 % shards;
                assignments = assign(&assignments, threads);
                let counts = counts(&assignments, threads);
                assert_eq!(
                    counts.iter().sum::<usize>(),
                    shards,
                    "{threads} threads drive each of {shards} shards once"
                );
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
                    // The shards that each thread can keep: at most `least`, and one more on `larger` of the threads.
                    let (least, mut larger) = (shards / after, shards % after);
                    let keeps = counts(&from, before).into_iter().take(after).map(|had| {
                        let is_larger = had > least && larger > 0;
                        larger -= usize::from(is_larger);
                        had.min(least + usize::from(is_larger))
                    });
                    let keeps: usize = keeps.sum();
                    assert_eq!(
                        moved(&from, &to),
                        shards - keeps,
                        "only the necessary shards of {shards} move from {before} to {after} threads"
                    );
                }
            }
        }
        assert_eq!(assign(&[0, 1, 2, 3], 2), [0, 1, 0, 1]);
    }
}
