//! Flow control: a receiver grants its sender credit for the memory that it has for reliable messages (PROTOCOL 10,
//! "Flow control").
//!
//! This module only counts charges. Other modules decide when to send a Credit frame, and know how much memory is in use.

use std::num::NonZeroU32;
use std::time::Duration;

use drumfire_wire::limits::MESSAGE_LIMIT_BYTES;

use crate::convert::{saturated, to_usize};
use crate::time::Moment;

/// The longest message in the protocol.
const MESSAGE_LIMIT: NonZeroU32 = match NonZeroU32::new(MESSAGE_LIMIT_BYTES) {
    Some(bytes) => bytes,
    None => NonZeroU32::MAX,
};

/// The credit that this end may still spend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendCredit {
    /// The charges of all messages that were ever sent, in bytes.
    used: u64,
    /// The charges of messages that may still be sent, in bytes.
    left: u32,
    /// The longest message that the peer accepts, in bytes. Never 0, so that enums around this struct need no tag.
    message_max_bytes: NonZeroU32,
}

impl SendCredit {
    /// Creates the state before the peer's parameters are known, without credit.
    pub(crate) const fn new() -> Self {
        Self { used: 0, left: 0, message_max_bytes: MESSAGE_LIMIT }
    }

    /// Stores the values of the peer's parameters.
    pub(crate) const fn set_parameters(&mut self, message_max_bytes: u32, credit_bytes: u32) {
        // Parameters with less than a kilobyte were refused before.
        debug_assert!(message_max_bytes > 0, "the peer accepts no message");
        self.message_max_bytes = match NonZeroU32::new(message_max_bytes) {
            Some(bytes) => bytes,
            None => NonZeroU32::MIN,
        };
        self.left = credit_bytes;
    }

    /// The largest message that the peer accepts, in bytes.
    pub(crate) fn message_max_bytes(&self) -> usize {
        to_usize(self.message_max_bytes.get())
    }

    /// The charges of messages that may still be sent, in bytes.
    pub(crate) const fn left_bytes(&self) -> usize {
        to_usize(self.left)
    }

    /// Whether a message with this charge may be sent.
    pub(crate) fn has(&self, charge_bytes: usize) -> bool {
        u32::try_from(charge_bytes).is_ok_and(|charge| charge <= self.left)
    }

    /// Spends credit on a message that is sent for the first time.
    pub(crate) fn spend(&mut self, charge_bytes: usize) {
        debug_assert!(
            self.has(charge_bytes),
            "{charge_bytes} bytes of credit are spent, of {} that are left",
            self.left
        );
        let charge = saturated(charge_bytes, u32::MAX);
        self.used = self.used.saturating_add(charge.into());
        self.left = self.left.saturating_sub(charge);
    }

    /// Processes the peer's new total credit. Returns whether it is higher than before.
    pub(crate) fn on_credit(&mut self, total_bytes: u64) -> bool {
        // Credit frames may arrive out of order, so a lower total is ignored (as in RFC 9000 section 4.1).
        // An honest total is ahead by at most a `u32`, because the window of a receiver is a `u32`.
        let left = saturated(total_bytes.saturating_sub(self.used), u32::MAX);
        let has_grown = left > self.left;
        self.left = self.left.max(left);
        has_grown
    }
}

/// The credit that the peer may still spend.
#[derive(Debug, Default)]
pub(crate) struct ReceiveCredit {
    /// The charges of all messages that ever arrived, in bytes.
    received: u64,
    /// The charges of messages that the peer may still send, in bytes.
    left: u32,
}

impl ReceiveCredit {
    /// Stores the value of this end's parameters.
    pub(crate) const fn set_parameters(&mut self, credit_bytes: u32) {
        self.left = credit_bytes;
    }

    /// Bytes that the peer may still send, for which memory must be reserved.
    pub(crate) fn left_bytes(&self) -> usize {
        to_usize(self.left)
    }

    /// The charges of all messages that ever arrived, in bytes.
    pub(crate) const fn received_bytes(&self) -> u64 {
        self.received
    }

    /// Spends credit on a message that arrived for the first time. Returns false when the peer had no credit for it.
    #[must_use]
    pub(crate) fn take(&mut self, charge_bytes: usize) -> bool {
        // The length in a Skip is only a claim. One beyond a `u32` takes the maximum credit.
        let charge = saturated(charge_bytes, u32::MAX);
        let Some(left) = self.left.checked_sub(charge) else { return false };
        self.left = left;
        self.received = self.received.saturating_add(charge.into());
        true
    }

    /// Grants more credit when the difference is worth a frame. `window` is the credit of a peer whose messages use no memory
    /// here, and `held_bytes` the memory in use. Returns the peer's new total credit.
    pub(crate) fn extend(&mut self, window: u32, held_bytes: usize) -> Option<u64> {
        // Unreliable messages in the application's queue count too, so more may be held than the window.
        let held = saturated(held_bytes, u32::MAX);
        let left = window.saturating_sub(held);
        // A quarter of the window per frame keeps Credit frames rare, and leaves the sender three quarters in the
        // meantime.
        let is_worth_a_frame = left > self.left && left.saturating_sub(self.left) >= window / 4;
        is_worth_a_frame.then(|| {
            self.left = left;
            self.received.saturating_add(left.into())
        })
    }
}

/// The credit of a busy peer when this end holds none of its messages. The window grows with the rate at which the application takes
/// messages, so that it does not limit a fast path (as in the automatic tuning of TCP receive buffers).
#[derive(Debug)]
pub(crate) struct CreditWindow {
    bytes: u32,
    /// The time at which the present measurement began.
    from: Moment,
    /// The charges of all messages that had arrived by then, in bytes.
    received_before: u64,
}

impl CreditWindow {
    pub(crate) const fn new(bytes: u32) -> Self {
        Self { bytes, from: Moment::ORIGIN, received_before: 0 }
    }

    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Doubles the window, up to `max_bytes`, when a whole window arrived within two round trips. The peer cannot send
    /// that much unless the application takes it. `received` is the charges of all messages that ever arrived.
    pub(crate) fn on_received(&mut self, now: Moment, received: u64, round_trip: Duration, max_bytes: u32) {
        if now.since(self.from) > round_trip.saturating_mul(2) {
            (self.from, self.received_before) = (now, received);
        } else if received.saturating_sub(self.received_before) >= self.bytes.into() {
            self.bytes = self.bytes.saturating_mul(2).min(max_bytes).max(self.bytes);
            (self.from, self.received_before) = (now, received);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_when_consumed_within_two_round_trips() {
        let (mut window, trip) = (CreditWindow::new(1_000), Duration::from_millis(50));
        let at = |milliseconds| Moment::ORIGIN.after(Duration::from_millis(milliseconds));
        window.on_received(at(1_000), 5_000, trip, 3_000);
        window.on_received(at(1_050), 5_999, trip, 3_000);
        assert_eq!(window.bytes(), 1_000);
        window.on_received(at(1_100), 6_000, trip, 3_000);
        assert_eq!(window.bytes(), 2_000);
        // Two round trips are over, and the measurement starts again.
        window.on_received(at(1_201), 8_000, trip, 3_000);
        assert_eq!(window.bytes(), 2_000);
        window.on_received(at(1_202), 10_000, trip, 3_000);
        window.on_received(at(1_203), 20_000, trip, 3_000);
        assert_eq!(window.bytes(), 3_000);
    }

    #[test]
    fn sender_and_receiver_count_the_same_credit() {
        let (mut out, mut into) = (SendCredit::new(), ReceiveCredit::default());
        assert!(!out.has(1), "nothing before the parameters");
        out.set_parameters(2_000, 4_000);
        into.set_parameters(4_000);
        for _ in 0..2 {
            assert!(out.has(1_500));
            out.spend(1_500);
            assert!(into.take(1_500));
        }
        assert!(out.has(1_000) && !out.has(1_001));
        assert_eq!(into.extend(4_000, 2_001), None, "not a quarter more");
        assert_eq!(into.extend(4_000, 2_000), Some(5_000));
        assert!(out.on_credit(5_000) && out.has(2_000) && !out.has(2_001));
        assert!(!out.on_credit(5_000) && !out.on_credit(4_000), "an old word");
        assert!(into.take(2_000) && !into.take(1), "the peer went too far");
    }

    #[test]
    fn granted_credit_is_never_revoked() {
        let mut into = ReceiveCredit::default();
        into.set_parameters(4_000);
        assert_eq!(into.extend(4_000, 4_000), None);
        assert!(into.take(4_000));
        assert_eq!(into.extend(4_000, 0), Some(8_000));
    }

    #[test]
    fn credit_limits_saturate_at_the_largest_value() {
        let mut out = SendCredit::new();
        assert!(out.on_credit(u64::MAX) && out.has(u32::MAX as usize));
        out.spend(u32::MAX as usize);
        assert!(!out.has(1));
        let mut into = ReceiveCredit::default();
        into.set_parameters(u32::MAX);
        assert!(into.take(usize::MAX) && !into.take(1));
    }
}
