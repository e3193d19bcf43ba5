//! What a peer's messages may take up between the application and the worker that owns the peer: one counter
//! that both touch, so that `send` knows at once. Who waits for room can have itself woken.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;

use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{Mode, Priority, SendError, SendOptions};

/// The room of one peer, shared by the application's thread and the peer's worker.
#[derive(Debug)]
pub(crate) struct Credit {
    used_bytes: AtomicUsize,
    pub(crate) limit_bytes: usize,
    /// Bytes of the longest reliable message; the peer may take shorter ones only, once it is known.
    message_max_bytes: AtomicUsize,
    is_closed: AtomicBool,
    /// Somebody waits until less than this is used; 0 = nobody waits.
    pub(crate) wake_below_bytes: AtomicUsize,
    /// Whom to wake then.
    pub(crate) waiter: OnceLock<Waker>,
}

impl Credit {
    pub(crate) const fn new(limit_bytes: usize, message_max_bytes: usize) -> Self {
        Self {
            used_bytes: AtomicUsize::new(0),
            limit_bytes,
            message_max_bytes: AtomicUsize::new(message_max_bytes),
            is_closed: AtomicBool::new(false),
            wake_below_bytes: AtomicUsize::new(0),
            waiter: OnceLock::new(),
        }
    }

    /// Bytes of the longest message of this mode.
    pub(crate) fn message_max_bytes(&self, mode: Mode) -> usize {
        message_max_bytes_of(mode, self.message_max_bytes.load(Ordering::Acquire))
    }

    pub(crate) fn set_message_max_bytes(&self, bytes: usize) {
        self.message_max_bytes.store(bytes, Ordering::Release);
    }

    /// Takes room for a message with these options; one that does not wait where there is none needs room to be looked at only.
    pub(crate) fn admit(
        &self,
        payload_bytes: usize,
        options: &SendOptions,
        must_wait: bool,
    ) -> Result<(), SendError> {
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        let limit_bytes = self.message_max_bytes(options.mode);
        if payload_bytes > limit_bytes {
            return Err(SendError::TooLarge { limit_bytes });
        }
        let is_taken = if must_wait {
            self.take(payload_bytes, options.priority)
        } else {
            self.take_for_dropping(payload_bytes)
        };
        if is_taken { Ok(()) } else { Err(SendError::Full) }
    }

    /// Takes room for a message of this length; false when there is not enough.
    pub(crate) fn take(&self, payload_bytes: usize, priority: Priority) -> bool {
        self.take_up_to(payload_bytes, priority.share_of(self.limit_bytes))
    }

    /// The same for a message that need not wait: with as much room again, for its worker decides what becomes of it.
    pub(crate) fn take_for_dropping(&self, payload_bytes: usize) -> bool {
        self.take_up_to(payload_bytes, self.limit_bytes.saturating_mul(2))
    }

    fn take_up_to(&self, payload_bytes: usize, limit_bytes: usize) -> bool {
        let after =
            |used: usize| Some(used.saturating_add(charge(payload_bytes))).filter(|sum| *sum <= limit_bytes);
        // The application takes for what it sends to this peer, and the worker for what goes to a group.
        self.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, after).is_ok()
    }

    /// Gives the room of a message back, and wakes who waits for as much as there is now.
    pub(crate) fn give(&self, payload_bytes: usize) {
        // Whoever waits says so first and then looks again: one order of all four steps, so that one of both sees the other.
        let given_bytes = charge(payload_bytes);
        let used = self.used_bytes.fetch_sub(given_bytes, Ordering::SeqCst).wrapping_sub(given_bytes);
        if used < self.wake_below_bytes.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Room that is taken.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Acquire)
    }

    /// Nothing is taken any more; nobody waits for room any longer.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        if self.wake_below_bytes.swap(0, Ordering::SeqCst) > 0
            && let Some(waiter) = self.waiter.get()
        {
            waiter.wake_by_ref();
        }
    }
}

/// Bytes of the longest message of this mode, where this is the longest reliable one.
pub(crate) fn message_max_bytes_of(mode: Mode, reliable_bytes: usize) -> usize {
    let is_value = mode == Mode::ReliableLatest;
    if mode.is_reliable() && !is_value { reliable_bytes } else { mode.message_max_bytes() }
}

pub(crate) fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends_exactly_at_the_limit_and_comes_back() {
        for (limit, is_taken) in [(99, false), (100, true), (101, true)] {
            assert_eq!(
                Credit::new(limit, 65_536).take(100 - ITEM_CHARGE_BYTES, Priority::Normal),
                is_taken,
                "{limit}"
            );
        }
        let credit = Credit::new(2 * ITEM_CHARGE_BYTES, 65_536);
        assert!(
            credit.take(0, Priority::Normal)
                && credit.take(0, Priority::Normal)
                && !credit.take(0, Priority::Normal)
        );
        credit.give(0);
        assert!(credit.take(0, Priority::Normal) && !credit.take(0, Priority::Normal));
    }

    #[test]
    fn a_closed_credit_stays_closed() {
        let credit = Credit::new(1_000, 65_536);
        assert!(!credit.is_closed());
        credit.close();
        assert!(credit.is_closed());
    }
}
