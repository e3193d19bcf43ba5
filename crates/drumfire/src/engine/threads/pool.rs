//! The threads of a server: how they begin, ask for their shards, and end.
//!
//! [`ShardPlan`] decides which shard belongs to which thread. No datagram passes through here: while a shard moves, its socket keeps
//! them.

use std::sync::Arc;

use drumfire_socket::{MultiPoller, Wait};

use super::plan::{PlanStep, ShardPlan, ThreadShard as _, ThreadSlot};
use super::shard::Shard;
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
    /// Starts `threads` threads with these shards.
    pub(super) fn start(
        wait: Wait,
        clock: SystemClock,
        shards: Vec<Shard>,
        threads: u16,
        monitor: Option<PortMonitor>,
    ) -> Result<Arc<Self>, Error> {
        let threads = usize::from(threads);
        let plan = ShardPlan::new(shards.len(), threads);
        let mut of_threads: Vec<Vec<Shard>> = (0..threads).map(|_| Vec::new()).collect();
        for (shard, home) in shards.into_iter().zip(plan.homes()) {
            if let Some(shards) = of_threads.get_mut(*home) {
                shards.push(shard);
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
        for (me, shards) in of_threads.into_iter().enumerate() {
            let spawned = pool.spawn_thread(&mut pool.plan(), me, shards);
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
    pub(super) fn settle(&self, me: usize, shards: &mut Vec<Shard>, hub: &MultiPoller) -> PlanStep {
        self.plan().settle(me, shards, |shard| shard.leave(hub))
    }

    /// Starts a thread with these shards.
    fn spawn_thread(
        self: &Arc<Self>,
        plan: &mut ShardPlan<Shard>,
        me: usize,
        shards: Vec<Shard>,
    ) -> Result<(), Error> {
        let call = Arc::new(WakeFlag::default());
        // A new thread looks at the plan first.
        call.set();
        let (waker, driven) = (shards.first().map(Shard::waker), shards.len());
        let thread = Thread::new(me, Arc::clone(self), Arc::clone(&call), shards)?;
        let handle = thread::Builder::new().name(format!("drumfire-{me}")).spawn(move || thread.run())?;
        let before = plan.fill(me, ThreadSlot::new(call, handle, waker, driven));
        let _ = before.map(JoinHandle::join);
        Ok(())
    }

    fn plan(&self) -> MutexGuard<'_, ShardPlan<Shard>> {
        // After a panic under this lock, each shard still has exactly one owner, so a poisoned lock can be used.
        lock(&self.plan)
    }
}
