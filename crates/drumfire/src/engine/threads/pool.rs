//! The threads of a server: how they begin, ask for their shards, and end.
//!
//! [`ShardPlan`] decides which shard belongs to which thread. No datagram passes through here: while a shard moves, its socket keeps
//! them.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use drumfire_socket::{MultiPoller, Wait};

use super::plan::{Next, ShardPlan, ThreadSlot};
use super::shard::{Shard, ShardSeed};
use super::thread::Thread;
use crate::base::clock::SystemClock;
use crate::base::error::Error;
use crate::base::sync::thread::{self, JoinHandle};
use crate::base::sync::{Mutex, MutexGuard, WakeFlag, lock};
use crate::engine::port_monitor::PortMonitor;

/// The threads of a server.
pub(crate) struct Pool {
    pub(super) wait: Wait,
    pub(super) clock: SystemClock,
    plan: Mutex<ShardPlan<Shard>>,
    /// `None` for a single socket, which does not share its port.
    monitor: Option<PortMonitor>,
    #[cfg(test)]
    pub(super) trap: super::tests::Trap,
}

impl Pool {
    /// Starts `threads` threads with these shards, and waits until all of them are ready.
    pub(super) fn start(
        wait: Wait,
        clock: SystemClock,
        places: Vec<ShardSeed>,
        threads: u16,
        monitor: Option<PortMonitor>,
    ) -> Result<Arc<Self>, Error> {
        let threads = usize::from(threads);
        let plan = ShardPlan::new(places.len(), threads);
        let mut seats: Vec<Vec<ShardSeed>> = (0..threads).map(|_| Vec::new()).collect();
        for (place, home) in places.into_iter().zip(plan.homes()) {
            if let Some(seats) = seats.get_mut(*home) {
                seats.push(place);
            }
        }
        let pool = Arc::new(Self {
            wait,
            clock,
            plan: Mutex::new(plan),
            monitor,
            #[cfg(test)]
            trap: super::tests::Trap::default(),
        });
        for (me, places) in seats.into_iter().enumerate() {
            let spawned = pool.spawn_thread(&mut pool.plan(), me, places);
            if let Err(error) = spawned {
                // Every thread ends when one cannot start.
                pool.stop();
                return Err(error);
            }
        }
        Ok(pool)
    }

    /// Spreads the shards evenly over this number of threads. Nothing moves if a thread cannot be started.
    pub(crate) fn set_threads(self: &Arc<Self>, threads: u16) -> Result<(), Error> {
        self.plan().spread(threads.into(), |plan, me| self.spawn_thread(plan, me, Vec::new()))
    }

    /// Returns the number of shards of each running thread.
    pub(crate) fn driven(&self) -> Vec<u16> {
        self.plan().driven()
    }

    /// Returns the number of sockets of other programs on the port, if it is shared and known.
    pub(crate) fn foreign_sockets(&self) -> Option<usize> {
        self.monitor.as_ref()?.count()
    }

    /// Ends all threads. Their shards close all connections, also shards that are moving.
    pub(crate) fn stop(&self) {
        self.monitor.iter().for_each(PortMonitor::end);
        let handles = self.plan().stop();
        // One of these threads may drop the last handle of a server. It cannot join itself, and ends on its own.
        let me = thread::current().id();
        for handle in handles.into_iter().filter(|handle| handle.thread().id() != me) {
            // The thread catches its panics. If one escaped, the thread has ended, and there is nothing left to do.
            let _ = handle.join();
        }
        self.monitor.iter().for_each(PortMonitor::join);
    }

    /// Returns the next step of a thread after its wake-up, and updates its shards.
    pub(super) fn settle(&self, me: usize, shards: &mut Vec<Shard>, hub: &MultiPoller) -> Next {
        self.plan().settle(me, shards, |shard| shard.leave(hub))
    }

    /// Starts a thread and waits until it has taken over its shards.
    fn spawn_thread(
        self: &Arc<Self>,
        plan: &mut ShardPlan<Shard>,
        me: usize,
        places: Vec<ShardSeed>,
    ) -> Result<(), Error> {
        let (outbox, inbox) = sync_channel(1);
        let (pool, call) = (Arc::clone(self), Arc::new(WakeFlag::default()));
        // A new thread looks at the plan first.
        call.set();
        let (of_thread, driven) = (Arc::clone(&call), places.len());
        let waker = places.first().map(|place| Arc::clone(&place.link));
        let handle = thread::Builder::new().name(format!("drumfire-{me}")).spawn(move || {
            // The thread that spawned this one waits for the result.
            match Thread::new(me, pool, of_thread, places) {
                Ok(thread) => {
                    let _ = outbox.send(Ok(()));
                    thread.run();
                }
                Err(error) => {
                    let _ = outbox.send(Err(error));
                }
            }
        })?;
        let ended = || Err(Error::Io(std::io::Error::other("a worker's thread ended before it began")));
        inbox.recv().unwrap_or_else(|_| ended())?;
        let before = plan.fill(me, ThreadSlot::new(call, handle, waker, driven));
        let _ = before.map(JoinHandle::join);
        Ok(())
    }

    fn plan(&self) -> MutexGuard<'_, ShardPlan<Shard>> {
        // After a panic under this lock, each shard still has exactly one owner, so a poisoned lock can be used.
        lock(&self.plan)
    }
}
