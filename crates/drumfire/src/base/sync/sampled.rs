//! The locks, atomics, and threads of `shuttle`, under the names of the standard library.
//!
//! `shuttle` runs all accesses with sequential consistency. Only `loom` finds faults that need a weaker order.

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use shuttle::thread;
