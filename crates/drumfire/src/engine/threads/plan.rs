//! Which shard belongs to which thread, and how it gets there: everything that the threads of a pool share about it, as one value
//! under one lock.
//!
//! Whoever changes the number of threads writes down where each shard belongs, and calls. A thread that is called asks between two
//! passes: it gives shards that belong elsewhere to the threads they belong to, takes those given to it, and ends when it has none
//! and is not needed. So a move completes by itself, and one that is overtaken by another leads where the last one says. A shard
//! moves by value: there is no moment at which two threads have it.
//!
//! What a shard is, and how threads are begun, is not known here.

#[cfg(all(test, any(loom, shuttle)))]
mod interleavings;

use std::sync::Arc;

use crate::base::sync::WakeFlag;
use crate::base::sync::thread::JoinHandle;
use crate::base::wake::Wake;

/// What moves from thread to thread, whole.
pub(super) trait Movable {
    /// What ends the wait of the thread that drives it.
    type Waker: Wake;

    /// Its place among all.
    fn index(&self) -> usize;

    /// It does nothing more, and has said so.
    fn is_over(&self) -> bool;

    /// Who wakes its thread.
    fn waker(&self) -> Arc<Self::Waker>;
}

/// The threads of a pool, and the thread that each shard belongs to.
pub(super) struct ShardPlan<S: Movable> {
    /// The thread each shard belongs to.
    homes: Vec<usize>,
    /// Those from here on are not needed.
    threads: usize,
    slots: Vec<ThreadSlot<S>>,
    /// All threads must end.
    is_stopping: bool,
}

/// What is known of one thread.
pub(super) struct ThreadSlot<S: Movable> {
    call: Arc<WakeFlag>,
    handle: Option<JoinHandle<()>>,
    /// Shards given to it that it has not taken.
    arrivals: Vec<S>,
    /// Of a shard that it waits for; without one it is parked.
    waker: Option<Arc<S::Waker>>,
    driven: u16,
    is_over: bool,
}

/// What a thread that has asked does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It drives the shards that it has now.
    Drive,
    /// It ends, and the shards that it has close their connections.
    End,
}

impl<S: Movable> ThreadSlot<S> {
    /// Of a thread that has begun, with so many shards, and waits for this one's waker.
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

    /// Lets it ask, and ends its wait.
    fn call(&self) {
        self.call.set();
        match &self.waker {
            Some(waker) => waker.wake(),
            None => self.handle.iter().for_each(|handle| handle.thread().unpark()),
        }
    }
}

impl<S: Movable> ShardPlan<S> {
    /// Of so many shards on so many threads, none of which has begun.
    pub(super) fn new(shards: usize, threads: usize) -> Self {
        let homes = assign(&vec![usize::MAX; shards], threads);
        Self { homes, threads, slots: Vec::new(), is_stopping: false }
    }

    /// By shard, the thread it belongs to.
    pub(super) fn homes(&self) -> &[usize] {
        &self.homes
    }

    /// A thread has begun in this place, or behind the last. Answers the one before, which has given everything away and asks no
    /// more.
    pub(super) fn fill(&mut self, me: usize, post: ThreadSlot<S>) -> Option<JoinHandle<()>> {
        match self.slots.get_mut(me) {
            Some(place) => std::mem::replace(place, post).handle,
            None => {
                self.slots.push(post);
                None
            }
        }
    }

    /// Spreads the shards evenly over so many threads, of which those that do not run are hired first.
    ///
    /// # Errors
    ///
    /// The error of `spawn_thread`. Nothing has moved then. A pool that is stopping ignores the call.
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
                // Those that were hired have nothing to do, and end.
                self.call();
                return Err(error);
            }
        }
        self.threads = threads;
        self.homes = assign(&self.homes, threads);
        self.call();
        Ok(())
    }

    /// Lets all threads ask.
    fn call(&self) {
        self.slots.iter().for_each(ThreadSlot::call);
    }

    /// Ends all threads with the shards that they have. Returns the threads.
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

    /// A thread asks: those of its shards that belong elsewhere `leave` and are given away, and those that were given to it are
    /// added.
    pub(super) fn settle(&mut self, me: usize, shards: &mut Vec<S>, mut leave: impl FnMut(&mut S)) -> Next {
        let arrivals = self.slots.get_mut(me).map(|post| std::mem::take(&mut post.arrivals));
        shards.extend(arrivals.into_iter().flatten());
        shards.retain(|shard| !shard.is_over());
        if self.is_stopping {
            return Next::End;
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
        if is_needed { Next::Drive } else { Next::End }
    }
}

fn count(shards: usize) -> u16 {
    u16::try_from(shards).unwrap_or(u16::MAX)
}

/// Where shards belong with so many threads, when they are where `homes` says: as few as possible move, and the numbers of
/// any two threads differ by one at most.
fn assign(homes: &[usize], threads: usize) -> Vec<usize> {
    let threads = threads.max(1);
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
    fn no_more_shards_move_than_have_to() {
        let moved =
            |from: &[usize], to: &[usize]| from.iter().zip(to).filter(|(from, to)| from != to).count();
        for shards in 1..=24 {
            for before in 1..=shards {
                let from = assign(&vec![0; shards], before);
                for after in 1..=shards {
                    let to = assign(&from, after);
                    // What each thread had and may keep: its number, or one more as often as it has to be.
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
