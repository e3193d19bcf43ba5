//! The memory budget of an endpoint: how many bytes of messages its connections hold together. A server that holds
//! too much accepts no more connections. The connections report what they hold.

use crate::convert::saturated;

/// The part of one connection's queues that is counted in the budget, in whole kilobytes up to 65,535, so that it
/// takes two bytes per connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BudgetShare(u16);

impl BudgetShare {
    /// The share in kilobytes.
    pub(crate) fn units(self) -> u64 {
        self.0.into()
    }
}

const UNIT_BYTES: usize = 1_024;

/// The sum over all connections.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    units: u64,
    /// Charges of messages that wait for the application, over all existing connections.
    events_bytes: usize,
    /// The memory of blocks, which connections share. The caller counts it.
    block_bytes: usize,
    limit_bytes: usize,
}

impl MemoryBudget {
    pub(crate) const fn new(limit_bytes: usize) -> Self {
        Self { units: 0, events_bytes: 0, block_bytes: 0, limit_bytes }
    }

    pub(crate) const fn set_block_bytes(&mut self, block_bytes: usize) {
        self.block_bytes = block_bytes;
    }

    pub(crate) const fn set_limit(&mut self, limit_bytes: usize) {
        self.limit_bytes = limit_bytes;
    }

    /// Counts a message that waits for the application.
    #[inline]
    pub(crate) const fn on_queued(&mut self, charge_bytes: usize) {
        self.events_bytes = self.events_bytes.saturating_add(charge_bytes);
    }

    /// Removes the charge of messages that the application took, or whose connection was removed.
    #[inline]
    pub(crate) const fn on_taken(&mut self, charge_bytes: usize) {
        self.events_bytes = self.events_bytes.saturating_sub(charge_bytes);
    }

    /// Updates the share of a connection whose queues hold `held_bytes` now.
    pub(crate) fn count(&mut self, share: &mut BudgetShare, held_bytes: usize) {
        let now = BudgetShare(saturated(held_bytes / UNIT_BYTES, u16::MAX));
        if now != *share {
            self.units = self.units.saturating_sub(share.0.into()).saturating_add(now.0.into());
            *share = now;
        }
    }

    /// Bytes that all connections hold, and those of blocks. The queues of each connection are rounded down to kilobytes.
    pub(crate) fn bytes(&self) -> usize {
        let queued = saturated(self.units, usize::MAX).saturating_mul(UNIT_BYTES);
        queued.saturating_add(self.events_bytes).saturating_add(self.block_bytes)
    }

    /// Asserts that the totals are those of all connections together.
    pub(crate) fn assert_invariants(&self, units: u64, events_bytes: usize) {
        debug_assert_eq!(
            (self.units, self.events_bytes),
            (units, events_bytes),
            "the memory of the connections was counted wrong"
        );
    }

    /// Whether half of the limit is reached.
    pub(crate) fn is_half_full(&self) -> bool {
        self.bytes() >= self.limit_bytes / 2
    }

    /// Whether the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes() >= self.limit_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_held_now_counts() {
        let mut budget = MemoryBudget::new(3_072);
        let (mut one, mut other) = (BudgetShare::default(), BudgetShare::default());
        budget.count(&mut one, 1_023);
        assert_eq!(budget.bytes(), 0);
        budget.count(&mut one, 2_050);
        budget.count(&mut other, 1_023);
        assert_eq!((budget.bytes(), budget.is_full()), (2_048, false));
        budget.count(&mut other, 1_024);
        assert_eq!((budget.bytes(), budget.is_full()), (3_072, true));
        budget.set_limit(3_073);
        assert!(!budget.is_full());
        budget.count(&mut one, 0);
        budget.count(&mut one, 0);
        assert_eq!(budget.bytes(), 1_024);
        budget.count(&mut other, usize::MAX);
        assert_eq!(budget.bytes(), 65_535 * 1_024);
        budget.count(&mut other, 0);
        budget.on_queued(164);
        budget.on_queued(64);
        assert_eq!(budget.bytes(), 228);
        budget.on_taken(164);
        assert_eq!(budget.bytes(), 64);
        budget.set_block_bytes(3_009);
        assert_eq!((budget.bytes(), budget.is_full()), (3_073, true));
        budget.set_block_bytes(0);
        assert_eq!(budget.bytes(), 64);
    }
}
