//! A thread and the shards it drives.
//!
//! With one shard, the thread alternates between the wait of the worker and a pass. With several shards, it waits for all of them
//! together, and then runs a pass of each shard that is ready or due. The wait strategy of the server then applies to the traffic
//! of all shards together. Between two passes, the thread checks its [`WakeFlag`]. If the flag is set, the thread updates its
//! shards from the pool.
//!
//! The worker catches a panic inside a pass. The thread catches all others: it restarts the shard that it was working on, or all
//! of its shards if there was none. A restarted shard keeps its socket, and the thread continues.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::CloseCode;
use drumfire_socket::{MultiPoller, Parker as _, WaitEnd, Waiter};

use super::plan::PlanStep;
use super::pool::Pool;
use super::shard::Shard;
use crate::base::clock::{Clock as _, SystemClock};
use crate::base::error::Error;
use crate::base::sync::{WakeFlag, thread};
use crate::worker::transport::RETRY_AFTER;

/// The state of one thread.
pub(super) struct Thread {
    /// The index of the thread in the pool.
    thread_index: usize,
    pool: Arc<Pool>,
    /// Set when the thread must update its shards from the pool.
    update_flag: Arc<WakeFlag>,
    /// Waits for all shards together if there are several.
    multi_poller: MultiPoller,
    waiter: Waiter,
    clock: SystemClock,
    /// The shards of the thread, sorted by index.
    shards: Vec<Shard>,
    /// The position in `shards` of the shard that the thread is working on, if it works on one. Only this shard restarts after a panic.
    current: Option<usize>,
}

impl Thread {
    /// Creates the state of a thread that drives these shards.
    pub(super) fn new(
        thread_index: usize,
        pool: Arc<Pool>,
        update_flag: Arc<WakeFlag>,
        shards: Vec<Shard>,
    ) -> Result<Self, Error> {
        let multi_poller = MultiPoller::new()?;
        let (waiter, clock) = (Waiter::new(pool.wait)?, pool.clock);
        Ok(Self { thread_index, pool, update_flag, multi_poller, waiter, clock, shards, current: None })
    }

    /// Drives shards until the thread is no longer needed.
    pub(super) fn run(mut self) {
        // After a panic, the state of the thread is still valid, and shards that may be inconsistent restart.
        while catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            let current = self.current.take();
            for (at, shard) in self.shards.iter_mut().enumerate() {
                shard.is_broken |= current.is_none_or(|current| current == at);
            }
            // The panic may have interrupted `update_shards` after it took the flag.
            self.update_flag.set();
            // Repeated panics must not use all of the core.
            std::thread::park_timeout(RETRY_AFTER);
        }
    }

    /// Restarts broken shards, and then drives all shards until the thread must end.
    fn serve(&mut self) {
        self.restart_broken_shards();
        loop {
            // The flag is checked in every pass and rarely set. The load avoids an atomic exchange in most passes.
            if self.update_flag.is_set() && self.update_flag.take() && self.update_shards() == PlanStep::End {
                return self.finish();
            }
            match self.shards.as_mut_slice() {
                [] => thread::park(),
                [only] => {
                    self.current = Some(0);
                    only.worker.wait(None);
                    #[cfg(test)]
                    self.pool.panic_injector.panic_if_set(Some(only.index));
                    only.worker.work();
                    self.current = None;
                    if only.worker.is_over() {
                        self.update_flag.set();
                    }
                }
                _ => self.round(),
            }
            #[cfg(test)]
            self.pool.panic_injector.panic_if_set(None);
        }
    }

    /// Restarts the shards that a panic may have left inconsistent.
    fn restart_broken_shards(&mut self) {
        for (at, shard) in self.shards.iter_mut().enumerate().filter(|(_, shard)| shard.is_broken) {
            self.current = Some(at);
            shard.restart_after_panic();
        }
        self.current = None;
    }

    /// Updates the shards of the thread from the pool, and returns the next step.
    fn update_shards(&mut self) -> PlanStep {
        let (mut ended, multi_poller) = (Vec::new(), &self.multi_poller);
        let next = self.pool.update_shards(self.thread_index, &mut self.shards, &mut ended, multi_poller);
        if !ended.is_empty() {
            // The thread is not over before the handlers of these shards are dropped, so it updates its shards again afterwards.
            self.update_flag.set();
            ended.into_iter().for_each(finish);
        }
        if next != PlanStep::Drive {
            return next;
        }
        for shard in &self.shards {
            shard.link.busy().share_thread(self.shards.len());
        }
        match self.shards.as_mut_slice() {
            // A single shard waits on its own poller, without the multi-poller.
            [only] => only.detach(&self.multi_poller),
            several => several.iter_mut().for_each(|shard| shard.attach(&self.multi_poller)),
        }
        next
    }

    /// Waits for all shards together, and then runs a pass of each shard that needs one.
    fn round(&mut self) {
        let is_polled = self.wait();
        let now = self.clock.read().monotonic;
        let (mut has_readiness, mut arrivals) = (!is_polled, 0);
        for at in 0..self.shards.len() {
            let Some(shard) = self.shards.get_mut(at).filter(|shard| shard.has_work(now)) else {
                continue;
            };
            self.current = Some(at);
            #[cfg(test)]
            self.pool.panic_injector.panic_if_set(Some(shard.index));
            has_readiness |= shard.is_ready;
            arrivals += shard.pass(now, &self.multi_poller);
            if shard.worker.is_over() {
                self.update_flag.set();
            }
        }
        self.current = None;
        // Passes for timers alone give no information about the traffic.
        if has_readiness || arrivals > 0 {
            self.waiter.on_pass(Duration::from_nanos(now.as_nanos()), arrivals);
        }
    }

    /// Waits until a shard is ready or due, and marks the shards that the multi-poller reports. Returns whether the wait was a poll of the
    /// multi-poller, and not a gathering time, a spin, or an error.
    fn wait(&mut self) -> bool {
        let now = self.clock.monotonic();
        let until = self.shards.iter().filter_map(Shard::next).min().map(|next| next.since(now));
        let is_due = until.is_some_and(|until| until.is_zero());
        let woken = self.waiter.wait(&mut self.multi_poller, until, is_due);
        let is_polled = matches!(woken, Ok(WaitEnd::Polled(_)));
        // After a gathering time or a spin, one poll of the multi-poller is cheaper than a receive call on every socket.
        let has_polled = match woken {
            Ok(WaitEnd::Gathered | WaitEnd::Spun) => self.multi_poller.poll(Some(Duration::ZERO)).is_ok(),
            Ok(WaitEnd::Polled(_)) => true,
            Err(_) => false,
        };
        if !has_polled {
            // Without the multi-poller, no shard is known to be ready, so all of them get a pass.
            self.multi_poller.sleep(RETRY_AFTER);
            for shard in &mut self.shards {
                shard.worker.set_wait_failed();
                shard.is_ready = true;
            }
        }
        for index in self.multi_poller.ready() {
            // The multi-poller can still report a shard that this thread has just handed over.
            if let Ok(at) = self.shards.binary_search_by_key(&index, |shard| shard.index.into())
                && let Some(shard) = self.shards.get_mut(at)
            {
                shard.is_ready = true;
            }
        }
        is_polled
    }

    /// Closes all connections of all shards.
    fn finish(&mut self) {
        self.shards.drain(..).rev().for_each(finish);
    }
}

/// Closes all connections of a shard, and drops it.
fn finish(mut shard: Shard) {
    // A panic in one shard must not keep the other shards from closing their connections. The destructor of a handler is code of
    // the application too.
    let _ = catch_unwind(AssertUnwindSafe(|| shard.worker.finish(CloseCode::Shutdown)));
    let _ = catch_unwind(AssertUnwindSafe(|| drop(shard)));
}
