//! A flag that tells a thread to look at something: at a queue, or at a lock behind which something has changed.
//!
//! What there is to look at stands elsewhere, and so does how the thread is woken.

use std::sync::atomic::Ordering;

use super::AtomicBool;

/// Set behind what it tells of, taken before that is looked at: so whatever is not found comes with a call of its own.
#[derive(Debug)]
pub(crate) struct WakeFlag(AtomicBool);

impl Default for WakeFlag {
    fn default() -> Self {
        Self(AtomicBool::new(false))
    }
}

impl WakeFlag {
    /// Answers whether it was not set yet, so that nobody else wakes who is called.
    pub(crate) fn set(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether it is set, for who looks again and again and hardly ever finds it so.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether it was set; it is no longer. Always an exchange: who sets it after one that found nothing sees all that was done
    /// before that.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_calls_is_told_so_and_one_look_answers_all() {
        let call = WakeFlag::default();
        assert!(!call.is_set() && !call.take());
        assert!(call.set() && !call.set());
        assert!(call.is_set() && call.take());
        assert!(!call.is_set() && !call.take() && call.set());
    }
}
