//! The threads of a server: their start, the update of their shards, and their end.
//!
//! [`ShardPlan`] decides which shard belongs to which thread. While a shard moves, its socket keeps the datagrams that arrive.

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
    pub(super) panic_injector: super::tests::PanicInjector,
}

impl Pool {
    /// Starts `threads` threads with these shards. If a thread cannot be started, the others end.
    pub(in crate::engine) fn start(
        wait: Wait,
        clock: SystemClock,
        shards: Vec<Shard>,
        threads: u16,
        monitor: Option<PortMonitor>,
    ) -> Result<Arc<Self>, Error> {
        let threads = usize::from(threads);
        let plan = ShardPlan::new(shards.len(), threads);
        let mut shards_by_thread: Vec<Vec<Shard>> = (0..threads).map(|_| Vec::new()).collect();
        for (shard, assigned) in shards.into_iter().zip(plan.assignments()) {
            if let Some(shards) = shards_by_thread.get_mut(*assigned) {
                shards.push(shard);
            }
        }
        let pool = Arc::new(Self {
            wait,
            clock,
            plan: Mutex::new(plan),
            monitor,
            #[cfg(test)]
            panic_injector: super::tests::PanicInjector::default(),
        });
        for (thread_index, shards) in shards_by_thread.into_iter().enumerate() {
            let spawned = pool.spawn_thread(&mut pool.plan(), thread_index, shards);
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
        self.plan()
            .spread(threads.into(), |plan, thread_index| self.spawn_thread(plan, thread_index, Vec::new()))
    }

    /// Returns the number of shards of each running thread.
    pub(crate) fn shard_counts(&self) -> Vec<u16> {
        self.plan().shard_counts()
    }

    /// Returns the number of sockets of other programs on the port, if it is shared and known.
    pub(crate) fn foreign_sockets(&self) -> Option<usize> {
        self.monitor.as_ref()?.count()
    }

    /// Ends all threads. Their shards close all connections, also shards that are moving.
    pub(crate) fn stop(&self) {
        let monitor = self.monitor.as_ref().and_then(PortMonitor::end);
        let handles = self.plan().stop();
        // One of these threads may drop the last handle of a server. It cannot join itself, and ends on its own.
        let current = thread::current().id();
        for handle in handles.into_iter().filter(|handle| handle.thread().id() != current) {
            // The thread catches its panics. If one escaped, the thread has ended, and there is nothing left to do.
            let _ = handle.join();
        }
        let _ = monitor.map(std::thread::JoinHandle::join);
    }

    /// Returns the next step of a thread after its wake-up, and updates its shards.
    pub(super) fn update_shards(
        &self,
        thread_index: usize,
        shards: &mut Vec<Shard>,
        ended: &mut Vec<Shard>,
        multi_poller: &MultiPoller,
    ) -> PlanStep {
        self.plan().update_shards(thread_index, shards, ended, |shard| shard.detach(multi_poller))
    }

    /// Starts a thread with these shards.
    fn spawn_thread(
        self: &Arc<Self>,
        plan: &mut ShardPlan<Shard>,
        thread_index: usize,
        shards: Vec<Shard>,
    ) -> Result<(), Error> {
        let update_flag = Arc::new(WakeFlag::default());
        // A new thread updates its shards from the plan first.
        update_flag.set();
        let (waker, shard_count) = (shards.first().map(Shard::waker), shards.len());
        let thread = Thread::new(thread_index, Arc::clone(self), Arc::clone(&update_flag), shards)?;
        let handle =
            thread::Builder::new().name(format!("drumfire-{thread_index}")).spawn(move || thread.run())?;
        let before = plan.fill(thread_index, ThreadSlot::new(update_flag, handle, waker, shard_count));
        let _ = before.map(JoinHandle::join);
        Ok(())
    }

    fn plan(&self) -> MutexGuard<'_, ShardPlan<Shard>> {
        // After a panic under this lock, each shard still has exactly one owner, so a poisoned lock can be used.
        lock(&self.plan)
    }
}
