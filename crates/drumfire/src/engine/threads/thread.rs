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
use drumfire_socket::{MultiPoller, Parker as _, Waiter, Woken};

use super::plan::PlanStep;
use super::pool::Pool;
use super::shard::Shard;
use crate::base::clock::{Clock as _, ClockSample, SystemClock};
use crate::base::error::Error;
use crate::base::sync::{WakeFlag, thread};
use crate::worker::transport::RETRY_AFTER;

/// The state of one thread.
pub(super) struct Thread {
    /// The index of the thread in the pool.
    me: usize,
    pool: Arc<Pool>,
    /// Set when the thread must update its shards from the pool.
    call: Arc<WakeFlag>,
    /// Waits for all shards together, when there are several.
    hub: MultiPoller,
    waiter: Waiter,
    clock: SystemClock,
    /// The shards of the thread, sorted by index.
    shards: Vec<Shard>,
    /// The position in `shards` of the shard that the thread is working on. Only this shard restarts after a panic.
    at_hand: Option<usize>,
}

impl Thread {
    /// Creates a thread that drives these shards.
    pub(super) fn new(
        me: usize,
        pool: Arc<Pool>,
        call: Arc<WakeFlag>,
        shards: Vec<Shard>,
    ) -> Result<Self, Error> {
        let hub = MultiPoller::new()?;
        let (waiter, clock) = (Waiter::new(pool.wait)?, pool.clock);
        Ok(Self { me, pool, call, hub, waiter, clock, shards, at_hand: None })
    }

    /// Drives shards until the thread is no longer needed.
    pub(super) fn run(mut self) {
        // After a panic, the state of the thread is still valid, and shards that may be inconsistent restart.
        while catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            let at_hand = self.at_hand.take();
            for (at, shard) in self.shards.iter_mut().enumerate() {
                shard.is_broken |= at_hand.is_none_or(|at_hand| at_hand == at);
            }
            // The panic may have interrupted `settle` after it took the flag.
            self.call.set();
            // Repeated panics must not use all of the core.
            std::thread::park_timeout(RETRY_AFTER);
        }
    }

    /// Restarts broken shards, and then drives all shards until the thread must end.
    fn serve(&mut self) {
        self.mend();
        loop {
            // The flag is checked in every pass and rarely set. The load avoids an atomic exchange in most passes.
            if self.call.is_set() && self.call.take() && self.settle() == PlanStep::End {
                return self.finish();
            }
            match self.shards.as_mut_slice() {
                [] => thread::park(),
                [only] => {
                    self.at_hand = Some(0);
                    only.worker.wait(None);
                    #[cfg(test)]
                    self.pool.trap.spring(Some(only.index));
                    only.worker.work();
                    self.at_hand = None;
                    if only.worker.is_over() {
                        self.call.set();
                    }
                }
                _ => self.round(),
            }
            #[cfg(test)]
            self.pool.trap.spring(None);
        }
    }

    /// Restarts the shards that a panic may have left inconsistent.
    fn mend(&mut self) {
        for (at, shard) in self.shards.iter_mut().enumerate().filter(|(_, shard)| shard.is_broken) {
            self.at_hand = Some(at);
            shard.start_over();
        }
        self.at_hand = None;
    }

    /// Updates the shards of the thread from the pool, and returns the next step.
    fn settle(&mut self) -> PlanStep {
        let next = self.pool.settle(self.me, &mut self.shards, &self.hub);
        if next != PlanStep::Drive {
            return next;
        }
        for shard in &self.shards {
            shard.link.busy().share_thread(self.shards.len());
        }
        match self.shards.as_mut_slice() {
            // A single shard waits on its own poller, without the hub.
            [only] => only.leave(&self.hub),
            several => several.iter_mut().for_each(|shard| shard.enter(&self.hub)),
        }
        next
    }

    /// Waits for all shards together, and then runs a pass of each shard that needs one.
    fn round(&mut self) {
        let is_polled = self.wait();
        let ClockSample { instant, now } = self.clock.read();
        let (mut is_told, mut arrivals) = (!is_polled, 0);
        for at in 0..self.shards.len() {
            let Some(shard) = self.shards.get_mut(at).filter(|shard| shard.has_work(now.monotonic)) else {
                continue;
            };
            self.at_hand = Some(at);
            #[cfg(test)]
            self.pool.trap.spring(Some(shard.index));
            is_told |= shard.is_ready;
            arrivals += shard.pass(now.monotonic, &self.hub);
            if shard.worker.is_over() {
                self.call.set();
            }
        }
        self.at_hand = None;
        // Passes for timers alone say nothing about the traffic.
        if is_told || arrivals > 0 {
            self.waiter.on_pass(instant, arrivals);
        }
    }

    /// Waits until a shard is ready or due, and marks the shards that the hub reports. Returns whether the wait was a poll of the
    /// hub, and not a gathering time, a spin, or an error.
    fn wait(&mut self) -> bool {
        let now = self.clock.monotonic();
        let until = self.shards.iter().filter_map(Shard::next).min().map(|next| next.since(now));
        let is_due = until.is_some_and(|until| until.is_zero());
        let woken = self.waiter.wait(&mut self.hub, until, is_due);
        let is_polled = matches!(woken, Ok(Woken::Polled(_)));
        // After a gathering time or a spin, one poll of the hub is cheaper than a receive call on every socket.
        let told = match woken {
            Ok(Woken::Gathered | Woken::Spun) => self.hub.poll(Some(Duration::ZERO)).is_ok(),
            Ok(Woken::Polled(_)) => true,
            Err(_) => false,
        };
        if !told {
            // Without the hub, no shard is known to be ready, so all of them get a pass.
            self.hub.sleep(RETRY_AFTER);
            for shard in &mut self.shards {
                shard.worker.set_wait_failed();
                shard.is_ready = true;
            }
        }
        for index in self.hub.ready() {
            // The hub can still report a shard that this thread has just handed over.
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
        while let Some(mut shard) = self.shards.pop() {
            // A panic in one shard must not keep the others from closing theirs.
            let _ = catch_unwind(AssertUnwindSafe(|| shard.worker.finish(CloseCode::Shutdown)));
        }
    }
}
