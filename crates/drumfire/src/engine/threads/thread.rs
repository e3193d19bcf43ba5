//! A thread and the shards it drives.
//!
//! With one shard it does nothing but wait and work. With several it waits for all of them at once, by the wait strategy
//! of the server over what comes to all of them together, and gives a pass to each that has something or is due. Between
//! two passes it checks its [`WakeFlag`], and then asks the pool which shards are its own.
//!
//! A panic inside a pass is the worker's business. Any other is caught here: the shard that was at hand begins anew on its
//! socket, all of them when none was, and the thread goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::CloseCode;
use drumfire_socket::{MultiPoller, Parker as _, Waiter, Woken};

use super::plan::Next;
use super::pool::Pool;
use super::shard::{Shard, ShardSeed};
use crate::base::clock::{Clock as _, Reading, SystemClock};
use crate::base::error::Error;
use crate::base::sync::{WakeFlag, thread};
use crate::worker::transport::RETRY_AFTER;

/// What runs on one thread.
pub(super) struct Thread {
    /// Its index in the pool.
    me: usize,
    pool: Arc<Pool>,
    call: Arc<WakeFlag>,
    hub: MultiPoller,
    waiter: Waiter,
    clock: SystemClock,
    /// By index.
    shards: Vec<Shard>,
    /// Whose turn it is.
    at_hand: Option<usize>,
}

impl Thread {
    /// Takes these places, on the thread that is to run it.
    pub(super) fn new(
        me: usize,
        pool: Arc<Pool>,
        call: Arc<WakeFlag>,
        places: Vec<ShardSeed>,
    ) -> Result<Self, Error> {
        let hub = MultiPoller::new()?;
        let (waiter, clock) = (Waiter::new(pool.wait)?, pool.clock);
        let shards = places.into_iter().map(ShardSeed::into_shard).collect::<Result<_, _>>()?;
        Ok(Self { me, pool, call, hub, waiter, clock, shards, at_hand: None })
    }

    /// Drives shards until the thread is no longer needed.
    pub(super) fn run(mut self) {
        // Everything here is whole after a panic, or begins anew.
        while catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            let at_hand = self.at_hand.take();
            for (at, shard) in self.shards.iter_mut().enumerate() {
                shard.is_broken |= at_hand.is_none_or(|at_hand| at_hand == at);
            }
            // It may have come while a call was answered.
            self.call.set();
            // A panic that comes again and again must not take the core.
            std::thread::park_timeout(RETRY_AFTER);
        }
    }

    fn serve(&mut self) {
        self.mend();
        loop {
            // Looked at in every pass, and hardly ever set.
            if self.call.is_set() && self.call.take() && self.settle() == Next::End {
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

    /// Lets those begin anew that a panic may have spoilt.
    fn mend(&mut self) {
        for (at, shard) in self.shards.iter_mut().enumerate().filter(|(_, shard)| shard.is_broken) {
            self.at_hand = Some(at);
            shard.start_over();
        }
        self.at_hand = None;
    }

    /// Gives away what is no longer its own and takes what is.
    fn settle(&mut self) -> Next {
        let next = self.pool.settle(self.me, &mut self.shards, &self.hub);
        if next != Next::Drive {
            return next;
        }
        for shard in &self.shards {
            shard.link.busy().share_thread(self.shards.len());
        }
        match self.shards.as_mut_slice() {
            [only] => only.leave(&self.hub),
            several => several.iter_mut().for_each(|shard| shard.enter(&self.hub)),
        }
        next
    }

    /// Waits for all shards at once, and then gives a pass to each that needs one.
    fn round(&mut self) {
        let is_polled = self.wait();
        let Reading { instant, now } = self.clock.read();
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

    /// Waits until a shard has something or is due, and marks those that the hub tells of; false after a nap, or none at
    /// all.
    fn wait(&mut self) -> bool {
        let now = self.clock.read().now.monotonic;
        let until = self.shards.iter().filter_map(Shard::next).min().map(|next| next.since(now));
        let is_due = until.is_some_and(|until| until.is_zero());
        let woken = self.waiter.wait(&mut self.hub, until, is_due);
        let is_polled = matches!(woken, Ok(Woken::Polled(_)));
        // One look at the hub is cheaper than one at every socket.
        let told = match woken {
            Ok(Woken::Gathered | Woken::Spun) => self.hub.poll(Some(Duration::ZERO)).is_ok(),
            Ok(Woken::Polled(_)) => true,
            Err(_) => false,
        };
        if !told {
            self.hub.nap(RETRY_AFTER);
            for shard in &mut self.shards {
                shard.worker.set_wait_failed();
                shard.is_ready = true;
            }
        }
        for index in self.hub.ready() {
            // One that has just left may still be told of.
            if let Ok(at) = self.shards.binary_search_by_key(&index, |shard| shard.index.into())
                && let Some(shard) = self.shards.get_mut(at)
            {
                shard.is_ready = true;
            }
        }
        is_polled
    }

    /// Closes all connections.
    fn finish(&mut self) {
        while let Some(mut shard) = self.shards.pop() {
            // A panic in one shard must not keep the others from closing theirs.
            let _ = catch_unwind(AssertUnwindSafe(|| shard.worker.finish(CloseCode::Shutdown)));
        }
    }
}
