//! What a thread waits for that does nothing else meanwhile.
//!
//! It says that something happened, and not what.

use std::time::Duration;

use super::{Condvar, Mutex, lock, wait_while};

/// Tells one thread that others have something for it.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    state: Mutex<State>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_rung: bool,
    is_waited_for: bool,
}

impl Notifier {
    pub(crate) fn ring(&self) {
        let mut state = lock(&self.state);
        let must_notify = !state.is_rung && state.is_waited_for;
        state.is_rung = true;
        // Whoever wakes up needs the lock; and to notify nobody is a system call too.
        drop(state);
        if must_notify {
            self.rung.notify_one();
            // Where the two share a core, the application answers before the worker sleeps and has to be woken in turn.
            std::thread::yield_now();
        }
    }

    /// Waits until it was rung since the last wait, or `timeout` has passed.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut state = lock(&self.state);
        state.is_waited_for = true;
        *wait_while(&self.rung, state, timeout, |state| !state.is_rung) = State::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_was_rung_before_the_wait_ends_it() {
        let notifier = Notifier::default();
        notifier.ring();
        notifier.ring();
        notifier.wait(Duration::MAX);
        notifier.wait(Duration::ZERO);
    }
}
