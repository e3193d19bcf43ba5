//! One timer per connection, in a hierarchical timing wheel (Varghese and Lauck 1987, scheme 7).
//!
//! Arming is lazy: a later deadline than the armed one changes nothing, so that traffic, which postpones deadlines,
//! does not touch the wheel. When a timer fires, the caller checks what is really due and arms it again. Only a much
//! later deadline moves the timer, because the keep-alives of idle connections would otherwise each wake a thread
//! once more for nothing. For the same reason the caller checks before it waits whether the first timer still has a
//! purpose, see [`Timers::front`].
//!
//! A timer is in the list of a slot. A slot of the lowest level is one tick long, and a slot of each higher level is
//! as long as all slots of the level below. A timer is on the lowest level that holds it, and moves down when time
//! reaches its slot. Arming, disarming, and firing therefore have a constant cost. Deadlines stay exact: the slots
//! only sort them.

use std::time::Duration;

use crate::convert::to_usize;
use crate::time::Moment;
use crate::visits::{self, Visit};

/// The length of a tick as a power of two of nanoseconds: 65.5 us.
const TICK_BITS: u32 = 16;

/// The slots of one level as a power of two.
const SLOT_BITS: u32 = 6;

const SLOTS: u32 = 1 << SLOT_BITS;

/// With this many levels, every moment has a slot.
const LEVELS: u32 = (u64::BITS - TICK_BITS) / SLOT_BITS;

/// The list of timers that have fired and were not taken yet.
const FIRED: u32 = LEVELS * SLOTS;

/// Marks a link to the head of a list. Indices are below it, because no memory holds as many connections.
const HEAD: u32 = 1 << 31;

const NO_INDEX: u32 = u32::MAX;

/// The number of timers of a slot that are examined for the earliest. For a longer list the start of the slot is
/// used, except on the lowest level, where that may have passed.
const SCANNED_MAX: usize = 8;

/// A deadline that is closer than this to the armed one does not move its timer.
const MOVE_MIN: Duration = Duration::from_secs(1);

/// The armed timers.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Timers by the index of their connection. Indices without an armed timer have an entry too.
    timers: Vec<Timer>,
    /// The first timer of each slot's list, level by level, and of the fired timers.
    heads: Box<[u32]>,
    /// For each level, a bit for every slot whose list is not empty.
    occupied: [u64; LEVELS as usize],
    /// The tick up to which all timers have moved down.
    reached: u64,
}

/// A timer, and its neighbors in its list.
#[derive(Debug, Clone, Copy)]
struct Timer {
    /// The time at which the timer fires. It has no meaning for a timer that is not armed.
    deadline: Moment,
    /// The index of the next timer in the list, or `NO_INDEX` for the last one.
    next: u32,
    /// Another timer, the head of a list, or `NO_INDEX` for a timer that is not armed.
    before: u32,
}

const UNARMED: Timer = Timer { deadline: Moment::ORIGIN, next: NO_INDEX, before: NO_INDEX };

impl Default for Timers {
    fn default() -> Self {
        let heads = (0..=FIRED).map(|_| NO_INDEX).collect();
        Self { timers: Vec::new(), heads, occupied: [0; LEVELS as usize], reached: 0 }
    }
}

impl Timers {
    /// Ensures that the timer of `index` fires at `deadline` or earlier.
    pub(crate) fn arm(&mut self, now: Moment, index: u32, deadline: Moment) {
        if to_usize(index) >= self.timers.len() {
            self.timers.resize(to_usize(index).saturating_add(1), UNARMED);
        }
        if self
            .timer(index)
            .is_some_and(|timer| timer.deadline <= deadline && !should_move(now, timer.deadline, deadline))
        {
            return;
        }
        self.disarm(index);
        self.link(index, deadline, self.list_for(deadline));
    }

    /// Whether `index` has an armed timer.
    pub(crate) fn is_armed(&self, index: u32) -> bool {
        self.timer(index).is_some()
    }

    /// Disarms the timer of `index`.
    pub(crate) fn disarm(&mut self, index: u32) {
        let Some(Timer { next, before, .. }) = self.timer(index).copied() else { return };
        debug_assert!(
            before & HEAD != 0 || self.timer(before).is_some_and(|timer| timer.next == index),
            "timer {before} does not lead to timer {index}"
        );
        if before & HEAD == 0 {
            if let Some(timer) = self.timers.get_mut(to_usize(before)) {
                timer.next = next;
            }
        } else {
            self.set_head(before ^ HEAD, next);
        }
        if let Some(timer) = self.timers.get_mut(to_usize(next)) {
            timer.before = before;
        }
        if let Some(timer) = self.timers.get_mut(to_usize(index)) {
            *timer = UNARMED;
        }
    }

    /// The earliest deadline, or a moment before it; `None` without armed timers.
    pub(crate) fn next(&self) -> Option<Moment> {
        if let Some(fired) = self.timer(self.head(FIRED)) {
            return Some(fired.deadline);
        }
        // The first slot holds the earliest timer: slots are in the order of time, from the lowest level up.
        let (list, tick) = self.first()?;
        let is_short = list < SLOTS || self.list(list).nth(SCANNED_MAX).is_none();
        if is_short {
            self.list(list).map(|timer| timer.deadline).min()
        } else {
            // Too early is harmless: the caller finds nothing due, and the timers of the slot move down.
            Some(Moment::from_nanos(tick << TICK_BITS))
        }
    }

    /// The timer that fires first, with its deadline, if few timers share its slot. `None` when a timer has fired.
    pub(crate) fn front(&self) -> Option<(u32, Moment)> {
        if self.timer(self.head(FIRED)).is_some() {
            return None;
        }
        let (list, _) = self.first()?;
        let (mut index, mut first) = (self.head(list), None);
        for _ in 0..SCANNED_MAX {
            let Some(timer) = self.timer(index) else { return first };
            if first.is_none_or(|(_, deadline)| timer.deadline < deadline) {
                first = Some((index, timer.deadline));
            }
            index = timer.next;
        }
        first.filter(|_| self.timer(index).is_none())
    }

    /// Returns the time at which the timer of `index` fires, or `None` if it is not armed.
    pub(crate) fn deadline(&self, index: u32) -> Option<Moment> {
        self.timer(index).map(|timer| timer.deadline)
    }

    /// Lets the timer of `index` fire at `deadline` and not before.
    pub(crate) fn defer(&mut self, index: u32, deadline: Moment) {
        if self.is_armed(index) {
            self.disarm(index);
            self.link(index, deadline, self.list_for(deadline));
        }
    }

    /// Removes a timer whose deadline has passed, if there is one.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<u32> {
        if self.head(FIRED) == NO_INDEX {
            self.advance(now);
        }
        let index = self.head(FIRED);
        self.timer(index)?;
        self.disarm(index);
        Some(index)
    }

    /// Moves timers down to the present time, and fires those that are due.
    fn advance(&mut self, now: Moment) {
        let now_tick = tick(now);
        // Slots are emptied in order until one lies in the future. Each timer moves down at most once per level, so the
        // cost per timer is bounded whatever the time between two calls.
        while let Some((list, slot_tick)) = self.first().filter(|(_, tick)| *tick <= now_tick) {
            // The slots below are empty, so time may jump to the start of this one. Timers that move down are then
            // sorted relative to it.
            self.reached = self.reached.max(slot_tick);
            visits::count(Visit::Connection);
            let is_lowest = list < SLOTS;
            let mut index = self.head(list);
            while let Some(&Timer { deadline, next, .. }) = self.timer(index) {
                visits::count(Visit::Connection);
                if deadline <= now {
                    self.disarm(index);
                    self.link(index, deadline, FIRED);
                } else if !is_lowest {
                    self.disarm(index);
                    self.link(index, deadline, self.list_for(deadline));
                }
                index = next;
            }
            // The remaining timers of the slot are due later in this tick.
            if is_lowest && self.head(list) != NO_INDEX {
                return;
            }
        }
        self.reached = self.reached.max(now_tick);
    }

    /// The first slot that is not empty, and its first tick.
    fn first(&self) -> Option<(u32, u64)> {
        let (level, occupied) = (0..).zip(&self.occupied).find(|(_, occupied)| **occupied != 0)?;
        let slot = occupied.trailing_zeros();
        let shift = u32::saturating_mul(level, SLOT_BITS);
        // The slots of a level lie within the current slot of the level above. A level is below `LEVELS`, so no shift
        // exceeds 48 bits.
        let above = self.reached.checked_shr(shift.saturating_add(SLOT_BITS)).unwrap_or(0);
        let ticks = (above << SLOT_BITS | u64::from(slot)).wrapping_shl(shift);
        Some((level.saturating_mul(SLOTS).saturating_add(slot), ticks))
    }

    /// The list of the lowest slot that can hold a deadline.
    fn list_for(&self, deadline: Moment) -> u32 {
        // A deadline in the past goes to the current slot, and fires with the next turn.
        let tick = tick(deadline).max(self.reached);
        // The highest digit in which the deadline differs from the present decides the level. All higher digits are
        // equal, so one wheel of slots per level is enough.
        let level = (tick ^ self.reached).checked_ilog2().unwrap_or(0) / SLOT_BITS;
        let slot = tick.checked_shr(level.saturating_mul(SLOT_BITS)).unwrap_or(0) & u64::from(SLOTS - 1);
        let list = level.saturating_mul(SLOTS).saturating_add(u32::try_from(slot).unwrap_or(0));
        debug_assert!(list < FIRED, "no slot holds the deadline {deadline:?}");
        list
    }

    /// Adds an unarmed timer at the front of a list.
    fn link(&mut self, index: u32, deadline: Moment, list: u32) {
        debug_assert!(
            index < HEAD && to_usize(index) < self.timers.len() && self.timer(index).is_none(),
            "timer {index} cannot join list {list}"
        );
        let next = self.head(list);
        if let Some(timer) = self.timers.get_mut(to_usize(next)) {
            timer.before = index;
        }
        if let Some(timer) = self.timers.get_mut(to_usize(index)) {
            *timer = Timer { deadline, next, before: list | HEAD };
        }
        self.set_head(list, index);
    }

    /// Asserts what must hold between two calls.
    pub(crate) fn assert_invariants(&self) {
        // A slot whose bit is missing would never be reached, and its timers would never fire.
        for (list, head) in (0..FIRED).zip(&*self.heads) {
            let bits = self.occupied.get(to_usize(list / SLOTS)).copied().unwrap_or(0);
            let is_marked = bits & (1 << (list % SLOTS)) != 0;
            debug_assert_eq!(is_marked, *head != NO_INDEX, "the list {list} and its bit disagree");
        }
        for (index, timer) in (0..).zip(&self.timers).filter(|(_, timer)| timer.before != NO_INDEX) {
            let leads_here = if timer.before & HEAD == 0 {
                self.timer(timer.before).is_some_and(|before| before.next == index)
            } else {
                self.head(timer.before ^ HEAD) == index
            };
            debug_assert!(leads_here, "the neighbor before timer {index} does not lead to it");
            debug_assert!(
                timer.next == NO_INDEX || self.timer(timer.next).is_some_and(|next| next.before == index),
                "the neighbor behind timer {index} does not lead back to it"
            );
        }
    }

    fn set_head(&mut self, list: u32, index: u32) {
        debug_assert!(list <= FIRED, "there is no list {list}");
        if let Some(head) = self.heads.get_mut(to_usize(list)) {
            *head = index;
        }
        // The list of fired timers belongs to no level, and has no bit.
        let bit = 1_u64 << (list % SLOTS);
        if let Some(occupied) = self.occupied.get_mut(to_usize(list / SLOTS)) {
            *occupied = if index == NO_INDEX { *occupied & !bit } else { *occupied | bit };
        }
    }

    fn head(&self, list: u32) -> u32 {
        self.heads.get(to_usize(list)).copied().unwrap_or(NO_INDEX)
    }

    /// The timers of a list.
    fn list(&self, list: u32) -> impl Iterator<Item = &Timer> {
        let first = self.timer(self.head(list));
        std::iter::successors(first, |timer| self.timer(timer.next))
    }

    /// The timer of an index, if it is armed.
    fn timer(&self, index: u32) -> Option<&Timer> {
        self.timers.get(to_usize(index)).filter(|timer| timer.before != NO_INDEX)
    }
}

const fn tick(moment: Moment) -> u64 {
    moment.as_nanos() >> TICK_BITS
}

/// Whether a timer would fire long before anything is due, and at least half of the time until then has passed.
fn should_move(now: Moment, armed: Moment, deadline: Moment) -> bool {
    let ahead = deadline.since(armed);
    ahead >= MOVE_MIN && ahead > armed.since(now)
}

#[cfg(test)]
mod tests;
