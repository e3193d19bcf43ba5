//! The room for messages to one peer between the application and the worker that owns the peer.
//!
//! Both threads share one atomic counter, so `send` returns `Full` without asking the worker. An asynchronous sender is woken
//! when there is room again. For any other sender, the worker reports `Writable`.

use std::sync::atomic::Ordering;
use std::task::Waker;

use drumfire_proto::limits::ITEM_CHARGE_BYTES;
use drumfire_proto::{Mode, Priority, SendError, SendOptions};

use crate::base::sync::{AtomicBool, AtomicU32, OnceLock};

/// The room for messages to one peer, shared by the application's thread and the peer's worker.
///
/// Counts are 32 bits wide, because a server has many peers. Larger limits saturate at 4 GiB.
#[derive(Debug)]
pub(crate) struct Credit {
    /// Bytes of admitted messages that have not reached the connection, with a charge of [`ITEM_CHARGE_BYTES`] for each.
    used_bytes: AtomicU32,
    /// The room for messages that wait. Messages that need not wait have twice as much.
    limit_bytes: u32,
    /// The bytes of the longest reliable message. It can change when the peer connects, because the peer may accept less.
    message_max_bytes: AtomicU32,
    /// A sender waits until fewer bytes than this are used. 0 = no sender waits.
    wake_below_bytes: AtomicU32,
    /// The peer is gone, so no message is admitted.
    is_closed: AtomicBool,
    /// A client that reconnects has no connection at the moment, so no message is admitted.
    is_connecting: AtomicBool,
    /// The waker of asynchronous senders. Boxed to keep the struct small, because few peers ever have one.
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
            is_connecting: AtomicBool::new(false),
            waiter: OnceLock::new(),
        }
    }

    /// Returns the room for messages that wait, in bytes.
    pub(crate) const fn limit_bytes(&self) -> usize {
        self.limit_bytes as usize
    }

    /// Sets the waker of asynchronous senders. Only the first call has an effect.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_waiter(&self, waiter: Waker) {
        self.waiter.get_or_init(|| Box::new(waiter));
    }

    /// Registers a sender that waits until fewer than `bytes` are used. Of several thresholds, the highest counts.
    pub(crate) fn wake_below(&self, bytes: usize) {
        self.wake_below_bytes.fetch_max(small(bytes), Ordering::SeqCst);
    }

    /// Returns the argument of [`Credit::wake_below`] for a sender of a message of `payload_bytes`.
    ///
    /// The sender is woken when one of `parts` equal parts of the room for such messages is free, and the message fits. Each
    /// wake-up thus serves many messages.
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

    /// Returns the bytes of the longest message of this mode.
    pub(crate) fn message_max_bytes(&self, mode: Mode) -> usize {
        message_max_bytes_of(mode, self.message_max_bytes.load(Ordering::Acquire) as usize)
    }

    pub(crate) fn set_message_max_bytes(&self, bytes: usize) {
        self.message_max_bytes.store(small(bytes), Ordering::Release);
    }

    /// Takes room for a message with these options. A message that need not wait may use twice the limit, as in
    /// [`Credit::take_for_dropping`].
    pub(crate) fn admit(
        &self,
        payload_bytes: usize,
        options: &SendOptions,
        must_wait: bool,
    ) -> Result<(), SendError> {
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        if self.is_connecting() {
            return Err(SendError::NotConnected);
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

    /// Calls [`Credit::admit`] for a sender without a waker. After `Full`, [`Credit::give`] returns true once, when half of the
    /// room for such messages is free and the message fits.
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
        // `give` does not report room that was returned before `wake_below`, so try again.
        self.admit(payload_bytes, options, must_wait)
    }

    /// Takes room for a message of this length. Returns false if there is not enough.
    pub(crate) fn take(&self, payload_bytes: usize, priority: Priority) -> bool {
        self.take_up_to(payload_bytes, priority.share_of(self.limit_bytes()))
    }

    /// Takes room for a message that need not wait. Its limit is twice as high, because the worker can drop messages of such a
    /// channel.
    pub(crate) fn take_for_dropping(&self, payload_bytes: usize) -> bool {
        self.take_up_to(payload_bytes, self.limit_bytes().saturating_mul(2))
    }

    fn take_up_to(&self, payload_bytes: usize, limit_bytes: usize) -> bool {
        let (charge, limit_bytes) = (u32::try_from(charge(payload_bytes)), small(limit_bytes));
        let Ok(charge) = charge else { return false };
        let after = |used: u32| used.checked_add(charge).filter(|sum| *sum <= limit_bytes);
        // Two threads take room: the application for its own messages, and the worker for broadcasts.
        self.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, after).is_ok()
    }

    /// Returns the room of a message, and wakes the waiting senders if there is enough room now.
    ///
    /// Returns true if a refused sender has no waker and must be notified. This happens once per [`Credit::wake_below`] episode.
    pub(crate) fn give(&self, payload_bytes: usize) -> bool {
        // A waiter stores its threshold and then tries again. This side frees room and then loads the threshold. With `SeqCst` on
        // all four steps, at least one side sees the other, so no wake-up is lost.
        let given_bytes = small(charge(payload_bytes));
        let used = self.used_bytes.fetch_sub(given_bytes, Ordering::SeqCst).wrapping_sub(given_bytes);
        used < self.wake_below_bytes.load(Ordering::SeqCst) && self.wake()
    }

    /// Returns the room that is taken, in bytes, charges included.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Acquire) as usize
    }

    /// Refuses further messages and wakes the waiting senders, because the peer is gone.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Refuses further messages and wakes the waiting senders, because the connection ended and the client connects again. The next
    /// attempt has a credit of its own.
    pub(crate) fn end_for_reconnect(&self) {
        self.set_connecting();
        self.wake();
    }

    /// Refuses messages until [`Credit::set_connected`].
    pub(crate) fn set_connecting(&self) {
        self.is_connecting.store(true, Ordering::SeqCst);
    }

    /// Admits messages, because the connection is established.
    pub(crate) fn set_connected(&self) {
        self.is_connecting.store(false, Ordering::SeqCst);
    }

    /// Whether messages are refused because there is no connection yet.
    pub(crate) fn is_connecting(&self) -> bool {
        self.is_connecting.load(Ordering::SeqCst)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Wakes the waiting senders. Returns true if a sender waits and there is no waker.
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

/// Returns the bytes of the longest message of this mode. `reliable_bytes` is the length of the longest reliable message.
pub(crate) fn message_max_bytes_of(mode: Mode, reliable_bytes: usize) -> usize {
    let is_value = mode == Mode::ReliableLatest;
    if mode.is_reliable() && !is_value { reliable_bytes } else { mode.message_max_bytes() }
}

/// Converts to 32 bits, saturating.
fn small(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// Returns the room that a message of this length takes, in bytes.
pub(crate) fn charge(payload_bytes: usize) -> usize {
    payload_bytes.saturating_add(ITEM_CHARGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_ends_exactly_at_the_limit_and_can_be_returned() {
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
    fn a_limit_above_32_bits_saturates() {
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
    fn a_refused_sender_is_reported_once_when_half_is_free() {
        let credit = Credit::new(1_000, 65_536);
        let options = SendOptions::reliable_ordered();
        let charged = 100 - ITEM_CHARGE_BYTES;
        let fill = || while credit.admit(charged, &options, true).is_ok() {};
        fill();
        assert!((0..10).all(|_| !credit.give(charged)), "no sender was refused");
        fill();
        for _ in 0..3 {
            assert_eq!(credit.admit_or_ask(charged, &options, true), Err(SendError::Full));
        }
        let reports: Vec<bool> = (0..10).map(|_| credit.give(charged)).collect();
        assert_eq!(reports.iter().position(|is_reported| *is_reported), Some(4), "500 of 1,000 are used");
        assert_eq!(reports.iter().filter(|is_reported| **is_reported).count(), 1);
    }

    #[test]
    fn a_refused_message_fits_when_its_sender_is_reported() {
        let reported_at = |payload_bytes: usize, options: &SendOptions, must_wait: bool| {
            let credit = Credit::new(1_000, 65_536);
            while credit.take_for_dropping(0) {}
            assert_eq!(credit.admit_or_ask(payload_bytes, options, must_wait), Err(SendError::Full));
            assert!((0..31).any(|_| credit.give(0)));
            assert_eq!(credit.admit(payload_bytes, options, must_wait), Ok(()));
            credit.used_bytes() - charge(payload_bytes)
        };
        let normal = SendOptions::reliable_ordered();
        let used = 31 * ITEM_CHARGE_BYTES;
        assert_eq!(reported_at(0, &normal, true), used - 24 * ITEM_CHARGE_BYTES, "at most 500");
        assert_eq!(reported_at(900 - ITEM_CHARGE_BYTES, &normal, true), ITEM_CHARGE_BYTES, "at most 100");
        assert_eq!(
            reported_at(0, &normal.priority(Priority::Bulk), true),
            5 * ITEM_CHARGE_BYTES,
            "at most 375"
        );
        assert_eq!(reported_at(0, &normal, false), 15 * ITEM_CHARGE_BYTES, "at most 1,000 of 2,000");
    }

    #[test]
    fn a_credit_takes_at_most_40_bytes() {
        // With the two counters of its `Arc` and 8 bytes of the allocator, it fits into an allocation of 64 bytes.
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
