//! Synchronization: three notification types, a mailbox, and the locks and atomics that they use.
//!
//! State is shared between threads in one of four ways:
//!
//! - Through a notification type. Other threads can run between the steps of such a type, so each type has a model of its own:
//!
//! | type | between | how |
//! | --- | --- | --- |
//! | [`WakeFlag`] | any thread and a thread that waits in another way, such as a poll | a flag that is set after the change that it announces; the thread that sets it wakes the other thread |
//! | [`Notifier`] | any thread and a thread that waits for it | a lock and a condition variable |
//! | [`AsyncNotify`] | any thread and tasks | `tokio`'s `Notify`, registered before each check for changes |
//! | `SendEdge` | the senders to a peer and its worker | a number that the worker raises, and a waker that it calls then |
//!
//! - As a value under one lock: `ConnectionRegistry`, `Bans`, `Gate`, `Attempts`, the counters of a worker, and the result of
//!   `PortMonitor`. The addresses of a group in `drumfire-socket` and the network of a world have such a lock too. Wake-ups
//!   follow after the lock is free.
//! - Through a channel of the standard library or `tokio`: `ForwardQueue`, the end of `PortMonitor`, receipts, and statistics for tasks.
//!   The sender wakes the receiver afterward.
//! - As a number that does not depend on others: `LoadMeter`, the sums of `metrics`, and the length of a queue of `Senders`. The flags of a
//!   connection are in this group too: they change only under the lock of the accept queue, or are never cleared.
//!
//! Types that combine several of these have models too, without sockets and clocks:
//!
//! | type | between | parts |
//! | --- | --- | --- |
//! | `WorkerChannel` | a worker and the application | a [`Mailbox`] of commands, events under a lock, `Notifier`, the room for broadcasts, a waker that is set once |
//! | [`Mailbox`] | any thread and a handler, tasks and their worker | a queue under a lock, `WakeFlag`, the wake-up of the `WorkerChannel` |
//! | [`Pending`], [`PendingPart`] | the workers of a server, and a thread or task that waits for a result | a count under a lock, a condition variable, and a waker to call at 0 |
//! | `ShardPlan` | the threads of a pool, between which shards move | one lock, `WakeFlag`, and the wake-up of a `WorkerChannel`, or parking |
//! | `AcceptQueue` | tasks and workers | one lock, `AsyncNotify` |
//! | `Shared` | tasks and the worker of one connection | a lock for each direction, `AsyncNotify`, `SendEdge` |
//! | `Senders` | tasks that wait for room, and a worker | `SendEdge`, `AsyncNotify`, `tokio`'s lock for the turn |
//!
//! Two tools run the same models. `loom` tries every interleaving, including those that only weak memory permits (`cargo xtask loom`).
//! `shuttle` tries a number of random ones with sequentially consistent memory (`cargo xtask loom --shuttle N`). If three threads have
//! too many interleavings, `loom` tries those with at most two preemptions. For both tools, a step of a `tokio` type is atomic.

#[cfg(feature = "tokio")]
mod async_notify;
#[cfg(loom)]
mod exhaustive;
mod mailbox;
#[cfg(any(loom, shuttle))]
mod modelled;
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) mod models;
mod notifier;
mod pending;
#[cfg(shuttle)]
mod sampled;
mod wake_flag;

use std::sync::{LockResult, PoisonError};
use std::time::Duration;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64},
    },
    thread,
};

#[cfg(all(feature = "tokio", not(any(loom, shuttle))))]
use tokio::sync::Notify;

#[cfg(feature = "tokio")]
pub(crate) use async_notify::AsyncNotify;
#[cfg(loom)]
pub(crate) use exhaustive::{AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, thread};
pub(crate) use mailbox::{Mailbox, move_all};
#[cfg(all(feature = "tokio", any(loom, shuttle)))]
use modelled::Notify;
#[cfg(any(loom, shuttle))]
pub(crate) use modelled::OnceLock;
pub(crate) use notifier::Notifier;
pub use pending::Pending;
pub(crate) use pending::PendingPart;
#[cfg(shuttle)]
pub(crate) use sampled::{AtomicBool, AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard, thread};
pub(crate) use wake_flag::WakeFlag;

/// Locks the mutex, also if it is poisoned. The value must be consistent after each statement under the lock, so that a panic between
/// two statements does no harm.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(test)]
    shared_steps::add();
    unpoisoned(mutex.lock())
}

/// Waits until `must_wait` returns false or `timeout` has passed. In a model, no time passes, so code that relies on the timeout
/// deadlocks and is found.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn wait_while<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
    must_wait: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    unpoisoned(condition.wait_timeout_while(guard, timeout, must_wait)).0
}

#[cfg(any(loom, shuttle))]
pub(crate) fn wait_while<'a, T>(
    condition: &Condvar,
    mut guard: MutexGuard<'a, T>,
    _: Duration,
    mut must_wait: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while must_wait(&mut guard) {
        guard = unpoisoned(condition.wait(guard));
    }
    guard
}

/// Returns the guard, also of a poisoned lock.
fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// The number of locks and exchanges of flags on this thread, for tests of code that needs none.
#[cfg(test)]
pub(crate) mod shared_steps {
    use std::cell::Cell;

    thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    pub(super) fn add() {
        COUNT.set(COUNT.get() + 1);
    }

    pub(crate) fn count() -> u64 {
        COUNT.get()
    }
}
