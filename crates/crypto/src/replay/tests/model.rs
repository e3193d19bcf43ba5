//! A replay window as a set of accepted numbers. The fuzz targets compare with it too.

use std::collections::HashSet;

use super::ReplayError;

/// A model of a narrow window that becomes wide, and narrow again.
#[derive(Default)]
pub(crate) struct ChangingModel {
    accepted: HashSet<u64>,
    highest: u64,
    floor: u64,
    wide_size: u64,
    is_wide: bool,
}

impl ChangingModel {
    /// Returns an empty window, which has this size while it is wide.
    pub(crate) fn narrow(wide_size: u32) -> Self {
        Self { wide_size: wide_size.into(), ..Self::default() }
    }

    pub(crate) fn highest(&self) -> Option<u64> {
        (!self.accepted.is_empty()).then_some(self.highest)
    }

    pub(crate) fn check(&self, number: u64) -> Result<(), ReplayError> {
        let (size, floor) = if self.is_wide { (self.wide_size, self.floor) } else { (64, 0) };
        if number < self.highest.saturating_sub(size - 1).max(floor) {
            Err(ReplayError::TooOld)
        } else if self.accepted.contains(&number) {
            Err(ReplayError::Duplicate)
        } else {
            Ok(())
        }
    }

    pub(crate) fn accept(&mut self, number: u64) -> Result<(), ReplayError> {
        self.check(number)?;
        if number.saturating_sub(self.highest) >= 64 {
            // The window widens rather than forget numbers in between.
            self.widen();
        }
        self.accepted.insert(number);
        self.highest = self.highest.max(number);
        Ok(())
    }

    pub(crate) fn widen(&mut self) {
        if !std::mem::replace(&mut self.is_wide, true) {
            // A wider window does not remember what a narrower one forgot.
            self.floor = self.highest.saturating_sub(63);
        }
    }

    pub(crate) fn shrink(&mut self) {
        self.is_wide = false;
    }
}
