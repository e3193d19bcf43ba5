//! Which thread drives which shard, and how shards get from one to another while they serve.
//!
//! Whoever changes the number of threads writes down where each shard belongs, and calls. A thread that is called asks,
//! under one lock and between two passes: it gives shards that belong elsewhere to the threads they belong to, takes those
//! given to it, and ends when it has none and is not needed. So a move completes by itself, and one that is overtaken by
//! another leads where the last one says. No datagram goes through here; while a shard is on its way, its socket keeps
//! them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use drumfire_socket::{Hub, Wait};

use super::shard::{Place, Shard};
use super::thread::Thread;
use crate::clock::SystemClock;
use crate::config::BindError;
use crate::link::Link;
use crate::lookout::Lookout;
use crate::worker::Wake as _;

/// The threads of a server.
pub(crate) struct Roster {
    pub(super) wait: Wait,
    pub(super) clock: SystemClock,
    state: Mutex<State>,
    /// The application code of the goodbye. Apart from the state, because who hires waits for a thread that ends with that in
    /// its hands.
    goodbye: AtomicU32,
    /// Where the port is shared.
    lookout: Option<Lookout>,
    #[cfg(test)]
    pub(super) trap: super::tests::Trap,
}

struct State {
    /// The thread each shard belongs to.
    homes: Vec<usize>,
    /// Those from here on are not needed.
    threads: usize,
    posts: Vec<Post>,
    is_stopping: bool,
}

/// Whether a thread has to ask; one that begins has to.
#[derive(Debug)]
pub(super) struct Call(AtomicBool);

impl Call {
    const fn new() -> Self {
        Self(AtomicBool::new(true))
    }

    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Looked at in every pass, and hardly ever set.
    pub(super) fn take(&self) -> bool {
        self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel)
    }
}

/// What is known of one thread.
struct Post {
    call: Arc<Call>,
    handle: Option<JoinHandle<()>>,
    /// Shards given to it that it has not taken.
    arrivals: Vec<Shard>,
    /// A shard it waits for, whose link wakes it; without one it is parked.
    waits_for: Option<Arc<Link>>,
    driven: u16,
    is_over: bool,
}

impl Post {
    /// Lets it ask, and ends its wait.
    fn call(&self) {
        self.call.set();
        match &self.waits_for {
            Some(link) => link.wake(),
            None => self.handle.iter().for_each(|handle| handle.thread().unpark()),
        }
    }
}

impl Roster {
    /// Starts so many threads with these shards, and waits until all of them are ready.
    pub(super) fn start(
        wait: Wait,
        clock: SystemClock,
        places: Vec<Place>,
        threads: u16,
        lookout: Option<Lookout>,
    ) -> Result<Arc<Self>, BindError> {
        let threads = usize::from(threads);
        let homes = assign(&vec![usize::MAX; places.len()], threads);
        let mut seats: Vec<Vec<Place>> = (0..threads).map(|_| Vec::new()).collect();
        for (place, home) in places.into_iter().zip(&homes) {
            if let Some(seats) = seats.get_mut(*home) {
                seats.push(place);
            }
        }
        let state = State { homes, threads, posts: Vec::new(), is_stopping: false };
        let roster = Arc::new(Self {
            wait,
            clock,
            state: Mutex::new(state),
            goodbye: AtomicU32::new(0),
            lookout,
            #[cfg(test)]
            trap: super::tests::Trap::default(),
        });
        for (me, places) in seats.into_iter().enumerate() {
            let hired = roster.hire(&mut roster.lock(), me, places);
            if let Err(error) = hired {
                // Every thread ends when one cannot start.
                roster.stop(0);
                return Err(error);
            }
        }
        Ok(roster)
    }

    /// Spreads the shards evenly over so many threads. What cannot be started is answered before anything moves.
    pub(super) fn set_threads(self: &Arc<Self>, threads: u16) -> Result<(), BindError> {
        let threads = usize::from(threads);
        let mut state = self.lock();
        for me in 0..threads {
            if state.posts.get(me).is_none_or(|post| post.is_over)
                && let Err(error) = self.hire(&mut state, me, Vec::new())
            {
                // Those that were started have nothing to do, and end.
                state.posts.iter().for_each(Post::call);
                return Err(error);
            }
        }
        state.threads = threads;
        state.homes = assign(&state.homes, threads);
        state.posts.iter().for_each(Post::call);
        Ok(())
    }

    /// The application code with which shards say goodbye.
    pub(super) fn goodbye(&self) -> u32 {
        self.goodbye.load(Ordering::Acquire)
    }

    /// How many shards each thread drives that runs.
    pub(super) fn driven(&self) -> Vec<u16> {
        self.lock().posts.iter().filter(|post| !post.is_over).map(|post| post.driven).collect()
    }

    pub(super) fn foreign_sockets(&self) -> Option<usize> {
        self.lookout.as_ref()?.count()
    }

    /// Ends all threads; their shards say goodbye with this application code, also those that were on their way.
    pub(super) fn stop(&self, goodbye: u32) {
        self.lookout.iter().for_each(Lookout::end);
        let mut state = self.lock();
        self.goodbye.store(goodbye, Ordering::Release);
        state.is_stopping = true;
        state.posts.iter().for_each(Post::call);
        let handles: Vec<_> = state.posts.iter_mut().filter_map(|post| post.handle.take()).collect();
        drop(state);
        // The last hand on a server may be let go by a task that one of these threads has woken: that one ends by itself.
        let me = std::thread::current().id();
        for handle in handles.into_iter().filter(|handle| handle.thread().id() != me) {
            // Every panic is caught there; one that was not has nothing more to end.
            let _ = handle.join();
        }
        self.lookout.iter().for_each(Lookout::join);
    }

    /// Gives away those of a thread's shards that belong elsewhere, and adds those that were given to it. False when the
    /// thread is to end: with its shards when all do, else it has none.
    pub(super) fn settle(&self, me: usize, shards: &mut Vec<Shard>, hub: &Hub) -> bool {
        let mut state = self.lock();
        let arrivals = state.posts.get_mut(me).map(|post| std::mem::take(&mut post.arrivals));
        shards.extend(arrivals.into_iter().flatten());
        // What lost its descriptor is over, and has said so.
        shards.retain(|shard| !shard.worker.is_over());
        if state.is_stopping {
            return false;
        }
        let State { homes, posts, .. } = &mut *state;
        for mut shard in shards.extract_if(.., |shard| homes.get(usize::from(shard.index)) != Some(&me)) {
            shard.leave(hub);
            let home = homes.get(usize::from(shard.index)).and_then(|home| posts.get_mut(*home));
            if let Some(post) = home {
                post.arrivals.push(shard);
                post.call();
            }
        }
        shards.sort_unstable_by_key(|shard| shard.index);
        let is_needed = me < state.threads || !shards.is_empty();
        if let Some(post) = state.posts.get_mut(me) {
            post.driven = u16::try_from(shards.len()).unwrap_or(u16::MAX);
            post.waits_for = shards.first().map(|shard| Arc::clone(&shard.link));
            post.is_over = !is_needed;
        }
        is_needed
    }

    /// Starts a thread and waits until it has taken its places.
    fn hire(self: &Arc<Self>, state: &mut State, me: usize, places: Vec<Place>) -> Result<(), BindError> {
        let (outbox, inbox) = sync_channel(1);
        let (roster, call) = (Arc::clone(self), Arc::new(Call::new()));
        let (of_thread, driven) = (Arc::clone(&call), places.len());
        let waits_for = places.first().map(|place| Arc::clone(&place.link));
        let handle = std::thread::Builder::new().name(format!("drumfire-{me}")).spawn(move || {
            // Whoever hires waits for this answer, so it is there to take it.
            match Thread::new(me, roster, of_thread, places) {
                Ok(thread) => {
                    let _ = outbox.send(Ok(()));
                    thread.run();
                }
                Err(error) => {
                    let _ = outbox.send(Err(error));
                }
            }
        })?;
        let ended = || Err(BindError::Io(std::io::Error::other("a worker's thread ended before it began")));
        inbox.recv().unwrap_or_else(|_| ended())?;
        let driven = u16::try_from(driven).unwrap_or(u16::MAX);
        let post =
            Post { call, handle: Some(handle), arrivals: Vec::new(), waits_for, driven, is_over: false };
        match state.posts.get_mut(me) {
            // The one before has given everything away, and asks no more.
            Some(place) => {
                let before = std::mem::replace(place, post);
                let _ = before.handle.map(JoinHandle::join);
            }
            None => state.posts.push(post),
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked between two lines here has its shards still, or has given them away.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
