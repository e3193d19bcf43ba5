//! One timer per connection, in a hierarchical timing wheel (Varghese and Lauck 1987, scheme 7).
//!
//! Arming is lazy: a later deadline than the armed one changes nothing, so that traffic, which pushes deadlines
//! out, does not touch the wheel. Whoever is woken looks at what is really due and arms again. Only a deadline that is much
//! later moves its timer: the keep-alives of silent connections would else each wake a thread once more, for nothing. For the
//! same reason who is about to wait looks whether the first timer still means something, see [`Timers::front`].
//!
//! A timer lies in the list of a slot. Slots of the lowest level are one tick long, those of each level above as long as
//! all slots below together; a timer lies as low as it may, and comes down when the time has come to its slot. So arming,
//! disarming and firing cost the same however many there are. Deadlines stay exact: the slots only sort them.

use std::time::Duration;

use crate::time::Moment;
use crate::visits::{self, Visit};

/// A tick is so many bits of nanoseconds: 65.5 us.
const TICK_BITS: u32 = 16;

/// Slots of one level, as bits of ticks.
const SLOT_BITS: u32 = 6;

const SLOTS: u32 = 1 << SLOT_BITS;

/// With so many, every moment there is has its slot.
const LEVELS: u32 = (u64::BITS - TICK_BITS) / SLOT_BITS;

/// The list of timers that have fired and were not taken yet.
const FIRED: u32 = LEVELS * SLOTS;

/// Marks a link that leads to a list's head. Places are below it: so many connections fit no memory.
const HEAD: u32 = 1 << 31;

const NOWHERE: u32 = u32::MAX;

/// Timers of a slot that are looked at for the earliest; in a longer list the slot's beginning has to do, save in the
/// lowest level, where a beginning may have passed.
const LOOKED_AT: usize = 8;

/// A deadline that is nearer to the armed one than this does not move its timer.
const MOVED_BY: Duration = Duration::from_secs(1);

/// The armed timers.
#[derive(Debug)]
pub(crate) struct Timers {
    /// By place of the connection.
    timers: Vec<Timer>,
    /// The first timer of each slot's list, level by level, and of those that have fired.
    heads: Box<[u32]>,
    /// For each level, a bit for every slot whose list is not empty.
    occupied: [u64; LEVELS as usize],
    /// The tick up to which everything has come down.
    reached: u64,
}

/// A timer, and its neighbours in its list.
#[derive(Debug, Clone, Copy)]
struct Timer {
    deadline: Moment,
    next: u32,
    /// Another timer, the head of a list, or nowhere for a timer that is not armed.
    before: u32,
}

const UNARMED: Timer = Timer { deadline: Moment::ORIGIN, next: NOWHERE, before: NOWHERE };

impl Default for Timers {
    fn default() -> Self {
        let heads = (0..=FIRED).map(|_| NOWHERE).collect();
        Self { timers: Vec::new(), heads, occupied: [0; LEVELS as usize], reached: 0 }
    }
}

impl Timers {
    /// Makes sure that place `index` is woken at `deadline` or before.
    pub(crate) fn arm(&mut self, now: Moment, index: u32, deadline: Moment) {
        if at(index) >= self.timers.len() {
            self.timers.resize(at(index).saturating_add(1), UNARMED);
        }
        if self.timer(index).is_some_and(|timer| {
            timer.deadline <= deadline && !is_worth_moving(now, timer.deadline, deadline)
        }) {
            return;
        }
        self.disarm(index);
        self.link(index, deadline, self.list_for(deadline));
    }

    /// Whether place `index` has a timer.
    pub(crate) fn is_armed(&self, index: u32) -> bool {
        self.timer(index).is_some()
    }

    /// Forgets the timer of place `index`.
    pub(crate) fn disarm(&mut self, index: u32) {
        let Some(Timer { next, before, .. }) = self.timer(index).copied() else { return };
        if before & HEAD == 0 {
            if let Some(timer) = self.timers.get_mut(at(before)) {
                timer.next = next;
            }
        } else {
            self.set_head(before ^ HEAD, next);
        }
        if let Some(timer) = self.timers.get_mut(at(next)) {
            timer.before = before;
        }
        if let Some(timer) = self.timers.get_mut(at(index)) {
            *timer = UNARMED;
        }
    }

    /// The earliest deadline, or before it; `None` when there is none.
    pub(crate) fn next(&self) -> Option<Moment> {
        if let Some(fired) = self.timer(self.head(FIRED)) {
            return Some(fired.deadline);
        }
        let (list, tick) = self.first()?;
        let is_short = list < SLOTS || self.list(list).nth(LOOKED_AT).is_none();
        if is_short {
            self.list(list).map(|timer| timer.deadline).min()
        } else {
            Some(Moment::from_nanos(tick.checked_shl(TICK_BITS).unwrap_or(u64::MAX)))
        }
    }

    /// The timer that fires first, where few lie with it, and its deadline; `None` when one has fired.
    pub(crate) fn front(&self) -> Option<(u32, Moment)> {
        if self.timer(self.head(FIRED)).is_some() {
            return None;
        }
        let (list, _) = self.first()?;
        let (mut index, mut first) = (self.head(list), None);
        for _ in 0..LOOKED_AT {
            let Some(timer) = self.timer(index) else { return first };
            if first.is_none_or(|(_, deadline)| timer.deadline < deadline) {
                first = Some((index, timer.deadline));
            }
            index = timer.next;
        }
        first.filter(|_| self.timer(index).is_none())
    }

    /// Lets the timer of place `index` fire at `deadline` and not before.
    pub(crate) fn put_off(&mut self, index: u32, deadline: Moment) {
        if self.is_armed(index) {
            self.disarm(index);
            self.link(index, deadline, self.list_for(deadline));
        }
    }

    /// Takes out a timer whose deadline has come, if there is one.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<u32> {
        if self.head(FIRED) == NOWHERE {
            self.turn(now);
        }
        let index = self.head(FIRED);
        self.timer(index)?;
        self.disarm(index);
        Some(index)
    }

    /// Brings down what the time has come to, and fires what is due.
    fn turn(&mut self, now: Moment) {
        let now_tick = tick(now);
        while let Some((list, slot_tick)) = self.first().filter(|(_, tick)| *tick <= now_tick) {
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
            // What is left there is due later in this tick.
            if is_lowest && self.head(list) != NOWHERE {
                return;
            }
        }
        self.reached = self.reached.max(now_tick);
    }

    /// The slot that comes first, and its first tick.
    fn first(&self) -> Option<(u32, u64)> {
        let (level, occupied) = (0..).zip(&self.occupied).find(|(_, occupied)| **occupied != 0)?;
        let slot = occupied.trailing_zeros();
        let shift = u32::saturating_mul(level, SLOT_BITS);
        // The slots of a level lie in the slot of the level above in which the time is.
        let above = self.reached.checked_shr(shift.saturating_add(SLOT_BITS)).unwrap_or(0);
        let ticks = (above << SLOT_BITS | u64::from(slot)).checked_shl(shift).unwrap_or(u64::MAX);
        Some((level.saturating_mul(SLOTS).saturating_add(slot), ticks))
    }

    /// The list of the lowest slot in which a deadline may lie.
    fn list_for(&self, deadline: Moment) -> u32 {
        let tick = tick(deadline).max(self.reached);
        let level = (tick ^ self.reached).checked_ilog2().unwrap_or(0) / SLOT_BITS;
        let slot = tick.checked_shr(level.saturating_mul(SLOT_BITS)).unwrap_or(0) & u64::from(SLOTS - 1);
        level.saturating_mul(SLOTS).saturating_add(u32::try_from(slot).unwrap_or(0))
    }

    /// Puts an unarmed timer in front of a list.
    fn link(&mut self, index: u32, deadline: Moment, list: u32) {
        let next = self.head(list);
        if let Some(timer) = self.timers.get_mut(at(next)) {
            timer.before = index;
        }
        if let Some(timer) = self.timers.get_mut(at(index)) {
            *timer = Timer { deadline, next, before: list | HEAD };
        }
        self.set_head(list, index);
    }

    fn set_head(&mut self, list: u32, index: u32) {
        if let Some(head) = self.heads.get_mut(at(list)) {
            *head = index;
        }
        let bit = 1_u64 << (list % SLOTS);
        if let Some(occupied) = self.occupied.get_mut(at(list / SLOTS)) {
            *occupied = if index == NOWHERE { *occupied & !bit } else { *occupied | bit };
        }
    }

    fn head(&self, list: u32) -> u32 {
        self.heads.get(at(list)).copied().unwrap_or(NOWHERE)
    }

    /// The timers of a list.
    fn list(&self, list: u32) -> impl Iterator<Item = &Timer> {
        let first = self.timer(self.head(list));
        std::iter::successors(first, |timer| self.timer(timer.next))
    }

    /// The timer of a place, if it is armed.
    fn timer(&self, index: u32) -> Option<&Timer> {
        self.timers.get(at(index)).filter(|timer| timer.before != NOWHERE)
    }
}

const fn tick(moment: Moment) -> u64 {
    moment.as_nanos() >> TICK_BITS
}

fn at(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

/// Whether a timer would fire long before there is anything to do, and has come half the way there.
fn is_worth_moving(now: Moment, armed: Moment, deadline: Moment) -> bool {
    let ahead = deadline.since(armed);
    ahead >= MOVED_BY && ahead > armed.since(now)
}

#[cfg(test)]
mod tests;
