//! Counts of the items that this thread examines to find work. Tests use them to show that the cost follows the
//! traffic, not the number of connections or channels. Other builds count nothing.

#[cfg(test)]
use std::cell::Cell;

/// A kind of item that is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// A slot of the timers, a timer, or a connection that may have something to send.
    Connection,
    /// A queue of waiting messages.
    Queue,
}

#[cfg(test)]
thread_local! {
    static VISITS: [Cell<u64>; 2] = const { [Cell::new(0), Cell::new(0)] };
}

/// Counts a visit.
#[cfg(not(test))]
pub(crate) const fn count(_: Visit) {}

/// Counts a visit.
#[cfg(test)]
pub(crate) fn count(visit: Visit) {
    VISITS.with(|visits| visits[visit as usize].update(|count| count + 1));
}

/// Returns the number of visits that `work` makes.
#[cfg(test)]
pub(crate) fn counted(visit: Visit, work: impl FnOnce()) -> u64 {
    let visits = || VISITS.with(|visits| visits[visit as usize].get());
    let before = visits();
    work();
    visits() - before
}
