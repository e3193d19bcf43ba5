//! How many bytes of reliable messages may be sent: a receiver gives its sender credit for the memory that it has (PROTOCOL 10,
//! "Flow control").
//!
//! This module only counts charges. Other modules decide when to send a Credit frame, and know how much memory is in use.

use std::num::NonZeroU32;

use drumfire_wire::limits::MESSAGE_LIMIT_BYTES;

/// The longest message there is.
const MESSAGE_LIMIT: NonZeroU32 = match NonZeroU32::new(MESSAGE_LIMIT_BYTES) {
    Some(bytes) => bytes,
    None => NonZeroU32::MAX,
};

/// What this end may still send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outflow {
    used: u64,
    left: u32,
    /// Never 0, which leaves room for what else may stand in its place.
    message_max_bytes: NonZeroU32,
}

impl Outflow {
    /// Nothing, until the peer has said how much.
    pub(crate) const fn new() -> Self {
        Self { used: 0, left: 0, message_max_bytes: MESSAGE_LIMIT }
    }

    /// What the peer's parameters say.
    pub(crate) const fn agree(&mut self, message_max_bytes: u32, credit_bytes: u32) {
        // Parameters with less than a kilobyte are refused before.
        self.message_max_bytes = match NonZeroU32::new(message_max_bytes) {
            Some(bytes) => bytes,
            None => NonZeroU32::MIN,
        };
        self.left = credit_bytes;
    }

    /// Bytes of the largest message that the peer takes.
    pub(crate) fn message_max_bytes(&self) -> usize {
        usize::try_from(self.message_max_bytes.get()).unwrap_or(usize::MAX)
    }

    pub(crate) fn has(&self, charge_bytes: usize) -> bool {
        u32::try_from(charge_bytes).is_ok_and(|charge| charge <= self.left)
    }

    /// A message is sent for the first time.
    pub(crate) fn spend(&mut self, charge_bytes: usize) {
        // What there is credit for fits.
        let charge = u32::try_from(charge_bytes).unwrap_or(u32::MAX);
        debug_assert!(
            charge <= self.left,
            "{charge} bytes of credit are spent, of {} that are left",
            self.left
        );
        self.used = self.used.saturating_add(charge.into());
        self.left = self.left.saturating_sub(charge);
    }

    /// The peer says how far this end may go; answers whether that is further than before.
    pub(crate) fn on_credit(&mut self, edge: u64) -> bool {
        let left = u32::try_from(edge.saturating_sub(self.used)).unwrap_or(u32::MAX);
        let is_more = left > self.left;
        self.left = self.left.max(left);
        is_more
    }
}

/// What the peer may still send.
#[derive(Debug, Default)]
pub(crate) struct Inflow {
    received: u64,
    left: u32,
}

impl Inflow {
    /// What this end's parameters say.
    pub(crate) const fn agree(&mut self, credit_bytes: u32) {
        self.left = credit_bytes;
    }

    /// Bytes the peer may send: memory that must be there.
    pub(crate) fn left_bytes(&self) -> usize {
        usize::try_from(self.left).unwrap_or(usize::MAX)
    }

    /// A message came for the first time; false when the peer had no credit for it.
    #[must_use]
    pub(crate) fn take(&mut self, charge_bytes: usize) -> bool {
        let charge = u32::try_from(charge_bytes).unwrap_or(u32::MAX);
        let Some(left) = self.left.checked_sub(charge) else { return false };
        self.left = left;
        self.received = self.received.saturating_add(charge.into());
        true
    }

    /// Gives more, if it is worth a word: `window` is what may be under way when nothing is held here, of which
    /// `held_bytes` are. Answers how far the peer may go then.
    pub(crate) fn extend(&mut self, window: u32, held_bytes: usize) -> Option<u64> {
        let held = u32::try_from(held_bytes).unwrap_or(u32::MAX);
        let left = window.saturating_sub(held);
        let is_worth_it = left > self.left && left.saturating_sub(self.left) >= window / 4;
        is_worth_it.then(|| {
            self.left = left;
            self.received.saturating_add(left.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_count_the_same() {
        let (mut out, mut into) = (Outflow::new(), Inflow::default());
        assert!(!out.has(1), "nothing before the parameters");
        out.agree(2_000, 4_000);
        into.agree(4_000);
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
    fn what_is_given_is_never_taken_back() {
        let mut into = Inflow::default();
        into.agree(4_000);
        assert_eq!(into.extend(4_000, 4_000), None);
        assert!(into.take(4_000));
        assert_eq!(into.extend(4_000, 0), Some(8_000));
    }

    #[test]
    fn numbers_at_the_end_do_no_harm() {
        let mut out = Outflow::new();
        assert!(out.on_credit(u64::MAX) && out.has(u32::MAX as usize));
        out.spend(usize::MAX);
        assert!(!out.has(1));
        let mut into = Inflow::default();
        into.agree(u32::MAX);
        assert!(into.take(usize::MAX) && !into.take(1));
    }
}
