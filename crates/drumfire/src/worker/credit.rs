//! What a peer's messages may take up between the application and the worker that owns the peer: one counter
//! that both touch, so that `send` knows at once. Who waits for room can have itself woken, and who does not wait is told of it.

use std::sync::atomic::Ordering;
use std::task::Waker;

use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{Mode, Priority, SendError, SendOptions};

use crate::base::sync::{AtomicBool, AtomicU32, OnceLock};

/// The room of one peer, shared by the application's thread and the peer's worker. Bytes are counted in 32 bits, for a server
/// has many peers: more than 4 GiB are never on their way between two threads.
#[derive(Debug)]
pub(crate) struct Credit {
    used_bytes: AtomicU32,
    limit_bytes: u32,
    /// Bytes of the longest reliable message; the peer may take shorter ones only, once it is known.
    message_max_bytes: AtomicU32,
    /// Somebody waits until less than this is used; 0 = nobody waits.
    wake_below_bytes: AtomicU32,
    is_closed: AtomicBool,
    /// Whom to wake then. Boxed, because hardly anybody ever waits.
    waiter: OnceLock<Box<Waker>>,
}

impl Credit {
    pub(crate) fn new(limit_bytes: usize, message_max_bytes: usize) -> Self {
        Self {
            used_bytes: AtomicU32::new(0),
            limit_bytes: small(limit_bytes),
            message_max_bytes: AtomicU32::new(small(message_max_bytes)),
            wake_below_bytes: AtomicU32::new(0),
            is_closed: AtomicBool::new(false),
            waiter: OnceLock::new(),
        }
    }

    /// Room there is in all.
    pub(crate) const fn limit_bytes(&self) -> usize {
        self.limit_bytes as usize
    }

    /// Who is woken from now on; the first who says so is.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_waiter(&self, waiter: Waker) {
        self.waiter.get_or_init(|| Box::new(waiter));
    }

    /// Somebody waits until less than this is used.
    pub(crate) fn wake_below(&self, bytes: usize) {
        self.wake_below_bytes.fetch_max(small(bytes), Ordering::SeqCst);
    }

    /// Below which use it is worth looking again whether there is room for so many bytes: when one of so many `parts` of what
    /// such a message may fill is free, so that each look serves many messages, or more where the message needs it.
    pub(crate) fn look_below_bytes(
        &self,
        payload_bytes: usize,
        priority: Priority,
        must_wait: bool,
        parts: usize,
    ) -> usize {
        let limit_bytes = self.limit_bytes();
        let share = if must_wait { priority.share_of(limit_bytes) } else { limit_bytes.saturating_mul(2) };
        let used_bytes = share - share / parts.max(1);
        used_bytes.min(share.saturating_sub(charge(payload_bytes))).saturating_add(1)
    }

    /// Bytes of the longest message of this mode.
    pub(crate) fn message_max_bytes(&self, mode: Mode) -> usize {
        message_max_bytes_of(mode, self.message_max_bytes.load(Ordering::Acquire) as usize)
    }

    pub(crate) fn set_message_max_bytes(&self, bytes: usize) {
        self.message_max_bytes.store(small(bytes), Ordering::Release);
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

    /// [`Credit::admit`] for who does not wait: where there is no room [`Credit::give`] says when half of what such a message
    /// may fill is free again.
    pub(crate) fn admit_or_ask(
        &self,
        payload_bytes: usize,
        options: &SendOptions,
        must_wait: bool,
    ) -> Result<(), SendError> {
        let answer = self.admit(payload_bytes, options, must_wait);
        if answer != Err(SendError::Full) {
            return answer;
        }
        self.wake_below(self.look_below_bytes(payload_bytes, options.priority, must_wait, 2));
        // What was given back before is not told of.
        self.admit(payload_bytes, options, must_wait)
    }

    /// Takes room for a message of this length; false when there is not enough.
    pub(crate) fn take(&self, payload_bytes: usize, priority: Priority) -> bool {
        self.take_up_to(payload_bytes, priority.share_of(self.limit_bytes()))
    }

    /// The same for a message that need not wait: with as much room again, for its worker decides what becomes of it.
    pub(crate) fn take_for_dropping(&self, payload_bytes: usize) -> bool {
        self.take_up_to(payload_bytes, self.limit_bytes().saturating_mul(2))
    }

    fn take_up_to(&self, payload_bytes: usize, limit_bytes: usize) -> bool {
        let (charge, limit_bytes) = (u32::try_from(charge(payload_bytes)), small(limit_bytes));
        let Ok(charge) = charge else { return false };
        let after = |used: u32| used.checked_add(charge).filter(|sum| *sum <= limit_bytes);
        // The application takes for what it sends to this peer, and the worker for what goes to a group.
        self.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, after).is_ok()
    }

    /// Gives the room of a message back, and wakes who waits for as much as there is now. True when somebody was refused who is
    /// to be told, because nothing wakes him; once, until he asks again.
    pub(crate) fn give(&self, payload_bytes: usize) -> bool {
        // Whoever waits says so first and then looks again: one order of all four steps, so that one of both sees the other.
        let given_bytes = small(charge(payload_bytes));
        let used = self.used_bytes.fetch_sub(given_bytes, Ordering::SeqCst).wrapping_sub(given_bytes);
        used < self.wake_below_bytes.load(Ordering::SeqCst) && self.wake()
    }

    /// Room that is taken.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Acquire) as usize
    }

    /// Nothing is taken any more; nobody waits for room any longer.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Wakes who waits; true when somebody does whom nothing wakes.
    fn wake(&self) -> bool {
        if self.wake_below_bytes.swap(0, Ordering::SeqCst) == 0 {
            return false;
        }
        let waiter = self.waiter.get();
        if let Some(waiter) = waiter {
            waiter.wake_by_ref();
        }
        waiter.is_none()
    }
}

/// Bytes of the longest message of this mode, where this is the longest reliable one.
pub(crate) fn message_max_bytes_of(mode: Mode, reliable_bytes: usize) -> usize {
    let is_value = mode == Mode::ReliableLatest;
    if mode.is_reliable() && !is_value { reliable_bytes } else { mode.message_max_bytes() }
}

fn small(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
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
    fn more_room_than_can_be_counted_is_as_much_as_can() {
        let credit = Credit::new(usize::MAX, usize::MAX);
        let half = (1 << 31) - ITEM_CHARGE_BYTES;
        assert!(credit.take(half, Priority::Normal) && !credit.take(half, Priority::Normal));
        assert!(!credit.take_for_dropping(half) && !credit.take(usize::MAX, Priority::Normal));
        assert!(credit.take_for_dropping(half - 1));
        assert_eq!(credit.used_bytes(), (1 << 32) - 1);
        credit.give(half);
        credit.give(half - 1);
        assert_eq!(credit.used_bytes(), 0);
    }

    #[test]
    fn who_was_refused_is_told_once_when_half_is_free_and_nobody_else_is() {
        let credit = Credit::new(1_000, 65_536);
        let options = SendOptions::reliable_ordered();
        let charged = 100 - ITEM_CHARGE_BYTES;
        let fill = || while credit.admit(charged, &options, true).is_ok() {};
        fill();
        assert!((0..10).all(|_| !credit.give(charged)), "nobody asked");
        fill();
        for _ in 0..3 {
            assert_eq!(credit.admit_or_ask(charged, &options, true), Err(SendError::Full));
        }
        let told: Vec<bool> = (0..10).map(|_| credit.give(charged)).collect();
        assert_eq!(told.iter().position(|is_told| *is_told), Some(4), "500 of 1,000 are used");
        assert_eq!(told.iter().filter(|is_told| **is_told).count(), 1);
    }

    #[test]
    fn who_was_refused_a_long_or_a_less_urgent_message_is_told_when_there_is_room_for_that() {
        let told_at = |payload_bytes: usize, options: &SendOptions, must_wait: bool| {
            let credit = Credit::new(1_000, 65_536);
            while credit.take_for_dropping(0) {}
            assert_eq!(credit.admit_or_ask(payload_bytes, options, must_wait), Err(SendError::Full));
            assert!((0..31).any(|_| credit.give(0)));
            assert_eq!(credit.admit(payload_bytes, options, must_wait), Ok(()));
            credit.used_bytes() - charge(payload_bytes)
        };
        let normal = SendOptions::reliable_ordered();
        let used = 31 * ITEM_CHARGE_BYTES;
        assert_eq!(told_at(0, &normal, true), used - 24 * ITEM_CHARGE_BYTES, "at most 500");
        assert_eq!(told_at(900 - ITEM_CHARGE_BYTES, &normal, true), ITEM_CHARGE_BYTES, "at most 100");
        assert_eq!(told_at(0, &normal.priority(Priority::Bulk), true), 5 * ITEM_CHARGE_BYTES, "at most 375");
        assert_eq!(told_at(0, &normal, false), 15 * ITEM_CHARGE_BYTES, "at most 1,000 of twice as much");
    }

    #[test]
    fn a_server_can_afford_one_for_each_peer() {
        // With the two counts of its Arc and eight bytes of the allocator's 64.
        assert!(size_of::<Credit>() <= 40, "{}", size_of::<Credit>());
    }

    #[test]
    fn a_closed_credit_stays_closed() {
        let credit = Credit::new(1_000, 65_536);
        assert!(!credit.is_closed());
        credit.close();
        assert!(credit.is_closed());
    }
}
