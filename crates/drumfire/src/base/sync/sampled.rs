//! Locks, flags and threads of `shuttle` under the names of the standard library's.
//!
//! Its memory is sequentially consistent: what a weaker order lets happen is `loom`'s to find.

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU32};
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use shuttle::thread;
