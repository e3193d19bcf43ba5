//! The locks, atomics, and threads of `loom`, under the names of the standard library.
//!
//! The atomics differ from those of `loom` in two ways, because `loom` would otherwise report executions that cannot happen:
//!
//! - `loom` treats sequentially consistent accesses as acquire and release accesses. So each of them has a fence on both sides here,
//!   which `loom` implements.
//! - `loom` lets a store come before an exchange that did not read its value. So a store is an exchange here.
//!
//! Both order more than the plain accesses do. To test a weaker order, the code under test must request the weaker order.

use std::sync::atomic::Ordering;

use loom::sync::atomic;
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use loom::thread;

/// `AtomicBool` of `loom`, with fences for sequentially consistent accesses.
#[derive(Debug)]
pub(crate) struct AtomicBool(atomic::AtomicBool);

impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        Self(atomic::AtomicBool::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        fenced(order, || self.0.load(order))
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        fenced(order, || self.0.swap(value, order));
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        fenced(order, || self.0.swap(value, order))
    }
}

/// `AtomicU32` of `loom`, with fences for sequentially consistent accesses.
#[derive(Debug)]
pub(crate) struct AtomicU32(atomic::AtomicU32);

impl AtomicU32 {
    pub(crate) fn new(value: u32) -> Self {
        Self(atomic::AtomicU32::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u32 {
        fenced(order, || self.0.load(order))
    }

    pub(crate) fn store(&self, value: u32, order: Ordering) {
        fenced(order, || self.0.swap(value, order));
    }
}

/// `AtomicU64` of `loom`, with fences for sequentially consistent accesses.
#[derive(Debug)]
pub(crate) struct AtomicU64(atomic::AtomicU64);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(atomic::AtomicU64::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        fenced(order, || self.0.load(order))
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        fenced(order, || self.0.swap(value, order));
    }

    pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
        fenced(order, || self.0.swap(value, order))
    }

    pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        fenced(order, || self.0.fetch_sub(value, order))
    }

    pub(crate) fn fetch_update(
        &self,
        set: Ordering,
        fetch: Ordering,
        next: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        fenced(set, || self.0.fetch_update(set, fetch, next))
    }
}

/// Returns the result of `access`, which has a fence on both sides if `order` is sequentially consistent.
fn fenced<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
    let fence = || {
        if order == Ordering::SeqCst {
            atomic::fence(Ordering::SeqCst);
        }
    };
    fence();
    let outcome = access();
    fence();
    outcome
}
