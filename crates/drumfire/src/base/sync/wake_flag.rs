//! A flag that announces a change to a thread, for example in a queue or in a value under a lock.
//!
//! The flag holds neither the change nor the means to wake the thread.

use std::sync::atomic::Ordering;

use super::AtomicBool;

/// A flag that is set after the change that it announces, and taken before the thread looks for changes.
///
/// In this order, no change is lost: a change that the thread does not find sets the flag again.
#[derive(Debug)]
pub(crate) struct WakeFlag(AtomicBool);

impl Default for WakeFlag {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl WakeFlag {
    /// Sets the flag. Returns true if it was clear, so that only one of several callers wakes the thread.
    pub(crate) fn set(&self) -> bool {
        #[cfg(test)]
        super::shared_steps::add();
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether the flag is set. Cheaper than [`WakeFlag::take`] for a thread that polls a flag that is rarely set.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Clears the flag. Returns whether it was set.
    pub(crate) fn take(&self) -> bool {
        // Always an exchange, also on a clear flag: a later `set` then sees all writes before this call.
        #[cfg(test)]
        super::shared_steps::add();
        self.0.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_set_returns_true_until_the_flag_is_taken() {
        let flag = WakeFlag::default();
        assert!(!flag.is_set() && !flag.take());
        assert!(flag.set() && !flag.set());
        assert!(flag.is_set() && flag.take());
        assert!(!flag.is_set() && !flag.take() && flag.set());
    }
}
