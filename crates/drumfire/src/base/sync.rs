//! What crosses threads: four small types that have steps of their own, the mailbox that is made of one of them, and the locks
//! and flags below them all.
//!
//! State crosses threads in one of four ways.
//!
//! - Through one of the small types. Each has several steps, between which others may come, and so each is tried by itself:
//!
//! | small type | between | how |
//! | --- | --- | --- |
//! | [`Call`] | anybody and a thread that waits elsewhere | a flag that is set behind what it tells of; who sets it wakes |
//! | [`Bell`] | anybody and a thread that waits for it | a lock and a condition |
//! | [`TaskBell`] | anybody and tasks | `tokio`'s `Notify`, and the one order in which it is waited for |
//! | `Credit` | who sends to a peer and its worker | counters, and whom to wake below one |
//!
//! - As a value under one lock, which is whole whenever the lock is free: nothing comes between. So are `Owners`, `Home`, `Bans`,
//!   `Gate`, `Attempts`, what a worker last counted, what `Lookout` saw, the numbers of a group's addresses in `drumfire-socket`, and
//!   the network of a world. Whoever has to be woken for it is woken behind the lock.
//! - Through a channel of the standard library or of `tokio`: `Ring`, `Monitor` and its answers, receipts and statistics for tasks.
//!   Whoever sends wakes who receives behind it; the steps are the channel's.
//! - As a number that means something by itself, whatever others say at that moment: `Busy`, the sums of `metrics`, how many
//!   stand in a queue of `Senders`, the flags of a connection that are touched under the lobby's lock or only ever set.
//!
//! What is made of several of these is tried too, as it is, apart from sockets and clocks:
//!
//! | type | between | made of |
//! | --- | --- | --- |
//! | `Link` | a worker and the application | a [`Mailbox`] of commands, reports under a lock, `Bell`, `Credit`, a waker that is set once |
//! | [`Mailbox`] | any thread and a handler, tasks and their worker | a queue under a lock, `Call`, the wake-up of the `Link` |
//! | `Drain` and its `Share`s | the workers of a server that ends | a count under a lock, whom to wake at 0 |
//! | `Rota` | threads of a crew, to which shards move whole | one lock, `Call`, and the wake-up of a `Link` or parking |
//! | `Lobby` | tasks and workers | one lock, `TaskBell` |
//! | `Shared` | tasks and the worker of one connection | a lock for each way, `TaskBell`, `Credit` |
//! | `Senders` | tasks that wait for room, and a worker | `Credit`, `TaskBell`, `tokio`'s lock for the turn |
//!
//! Two tools try the same models: `loom` every interleaving of them, also those that only a weak memory shows (`cargo xtask loom`),
//! and `shuttle` as many as are asked for, at random, with sequentially consistent memory (`cargo xtask loom --shuttle N`). Where
//! three threads have too many for `loom`, it tries those of two, and of three those in which threads are interrupted twice at
//! most. Neither tool sees the inside of `tokio`'s types: each of their steps counts as one.
//!
//! Nothing here decides what is handed over; that is with the types themselves.

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
#[cfg(shuttle)]
mod sampled;
mod wake_flag;

use std::sync::{LockResult, PoisonError};
use std::time::Duration;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::{
    sync::{
        Condvar, Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU32},
    },
    thread,
};

#[cfg(all(feature = "tokio", not(any(loom, shuttle))))]
use tokio::sync::Notify;

#[cfg(feature = "tokio")]
pub(crate) use async_notify::TaskBell;
#[cfg(loom)]
pub(crate) use exhaustive::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, thread};
pub(crate) use mailbox::{Mailbox, move_all};
#[cfg(all(feature = "tokio", any(loom, shuttle)))]
use modelled::Notify;
#[cfg(any(loom, shuttle))]
pub(crate) use modelled::OnceLock;
pub(crate) use notifier::Bell;
#[cfg(shuttle)]
pub(crate) use sampled::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard, thread};
pub(crate) use wake_flag::Call;

/// Locks; for what is whole after every statement behind its lock, so that a panic elsewhere spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    whole(mutex.lock())
}

/// Waits until `must_wait` is over or `timeout` has passed. In a model the time never passes: what would have to rely on it
/// hangs there.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn wait_while<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
    must_wait: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    whole(condition.wait_timeout_while(guard, timeout, must_wait)).0
}

#[cfg(any(loom, shuttle))]
pub(crate) fn wait_while<'a, T>(
    condition: &Condvar,
    mut guard: MutexGuard<'a, T>,
    _: Duration,
    mut must_wait: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    while must_wait(&mut guard) {
        guard = whole(condition.wait(guard));
    }
    guard
}

fn whole<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}
