//! Locks and flags of what crosses threads: those of the standard library, and under `cfg(loom)` the same of `loom`, which
//! tries every interleaving of a small model (`cargo xtask loom`).
//!
//! | what crosses | between | how | tried in every interleaving |
//! | --- | --- | --- | --- |
//! | `Link` | a worker and the application | two queues under a lock each, flags for whom to wake | yes |
//! | `Bell` | workers and a thread that waits for any of them | a lock and a condition | yes |
//! | `Credit` | who sends to a peer and its worker | counters, and whom to wake below one | yes |
//! | `Drain` and its `Share`s | the workers of a server that ends | a count under a lock, whom to wake at 0 | yes |
//! | `Mailbox` | any thread and a handler | a queue under a lock, a flag, the wake-up of the `Link` | yes |
//! | `Desk` | tasks and their worker | as `Mailbox` | no: the same steps |
//! | `Ring` | workers | the standard library's bounded channels, the wake-up of the `Link` | no: theirs |
//! | `Lobby`, `Attempts`, `Shared`, `Senders` | tasks and workers | `tokio::sync`, and queues under one lock | no: theirs |
//! | `Owners`, `Home`, `Bans`, `Gate`, `Network` | workers | everything under one lock | no: nothing interleaves |
//! | `Roster`, `Call` | threads of a crew | one lock, a flag, and parking | no |
//! | `Lookout` | its thread and who ends it | a lock and a condition of the standard library | no |
//! | `Monitor` and its answers | any thread and workers | the standard library's bounded channels, the wake-up of the `Link` | no: theirs |
//! | `Busy` | a worker and who asks | single numbers that only the worker writes | no: none depends on another |
//!
//! Nothing here decides who is woken when; that is with the types themselves.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32},
};
use std::sync::{LockResult, PoisonError};
use std::time::Duration;

#[cfg(loom)]
pub(crate) use modelled::{AtomicBool, AtomicU32, Condvar, Mutex, MutexGuard};

#[cfg(all(test, loom))]
pub(crate) mod interleavings;
#[cfg(loom)]
mod modelled;

/// Locks; for what is whole after every statement behind its lock, so that a panic elsewhere spoils nothing.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    whole(mutex.lock())
}

/// Waits until `must_wait` is over or `timeout` has passed. In a model the time never passes: what would have to rely on it
/// hangs there.
#[cfg(not(loom))]
pub(crate) fn wait_while<'a, T>(
    condition: &Condvar,
    guard: MutexGuard<'a, T>,
    timeout: Duration,
    must_wait: impl FnMut(&mut T) -> bool,
) -> MutexGuard<'a, T> {
    whole(condition.wait_timeout_while(guard, timeout, must_wait)).0
}

#[cfg(loom)]
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
