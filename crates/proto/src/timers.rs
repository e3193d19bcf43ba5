//! One timer per connection, in a heap that knows where each one stands.
//!
//! Arming is lazy: a later deadline than the armed one changes nothing, so that traffic, which pushes deadlines
//! out, does not touch the heap. Whoever is woken looks at what is really due and arms again.

use crate::time::Moment;

const NOWHERE: u32 = u32::MAX;

/// The armed timers, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<(Moment, u32)>,
    /// Where in the heap each place's timer is.
    positions: Vec<u32>,
}

impl Timers {
    /// Makes sure that place `index` is woken at `deadline` or before.
    pub(crate) fn arm(&mut self, index: u32, deadline: Moment) {
        let place = at(index);
        if place >= self.positions.len() {
            self.positions.resize(place.saturating_add(1), NOWHERE);
        }
        let armed = self.positions.get(place).copied().unwrap_or(NOWHERE);
        if armed == NOWHERE {
            self.heap.push((deadline, index));
            let last = self.heap.len().saturating_sub(1);
            self.note(last);
            self.rise(last);
        } else if let Some(entry) = self.heap.get_mut(at(armed))
            && deadline < entry.0
        {
            entry.0 = deadline;
            self.rise(at(armed));
        }
    }

    /// Whether place `index` has a timer.
    pub(crate) fn is_armed(&self, index: u32) -> bool {
        self.positions.get(at(index)).is_some_and(|position| *position != NOWHERE)
    }

    /// Forgets the timer of place `index`.
    pub(crate) fn disarm(&mut self, index: u32) {
        let Some(position) = self.positions.get_mut(at(index)) else { return };
        let hole = at(std::mem::replace(position, NOWHERE));
        if hole >= self.heap.len() {
            return;
        }
        self.heap.swap_remove(hole);
        if hole < self.heap.len() {
            self.note(hole);
            self.rise(hole);
            self.sink(hole);
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.heap.first().map(|(deadline, _)| *deadline)
    }

    /// Takes out the earliest timer, if its deadline has come.
    pub(crate) fn pop_due(&mut self, now: Moment) -> Option<u32> {
        let (_, index) = self.heap.first().copied().filter(|(deadline, _)| *deadline <= now)?;
        self.disarm(index);
        Some(index)
    }

    fn rise(&mut self, start: usize) {
        let mut child = start;
        while child > 0 {
            let parent = child.saturating_sub(1) / 2;
            if !self.is_earlier(child, parent) {
                break;
            }
            self.swap(child, parent);
            child = parent;
        }
    }

    fn sink(&mut self, start: usize) {
        let mut parent = start;
        loop {
            let left = parent.saturating_mul(2).saturating_add(1);
            let right = left.saturating_add(1);
            let child = if self.is_earlier(right, left) { right } else { left };
            if !self.is_earlier(child, parent) {
                break;
            }
            self.swap(child, parent);
            parent = child;
        }
    }

    /// Whether `a` stands in the heap and is due before `b`.
    fn is_earlier(&self, a: usize, b: usize) -> bool {
        match (self.heap.get(a), self.heap.get(b)) {
            (Some(a), Some(b)) => a.0 < b.0,
            _ => false,
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.note(a);
        self.note(b);
    }

    /// Writes down where the timer at `position` stands.
    fn note(&mut self, position: usize) {
        let Some(&(_, index)) = self.heap.get(position) else { return };
        if let Some(noted) = self.positions.get_mut(at(index)) {
            *noted = u32::try_from(position).unwrap_or(NOWHERE);
        }
    }
}

fn at(index: u32) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn ms(milliseconds: u64) -> Moment {
        Moment::from_nanos(milliseconds * 1_000_000)
    }

    #[test]
    fn a_later_deadline_changes_nothing_and_an_earlier_one_counts() {
        let mut timers = Timers::default();
        timers.arm(3, ms(10));
        timers.arm(3, ms(20));
        assert_eq!(timers.next(), Some(ms(10)));
        timers.arm(3, ms(5));
        assert_eq!(timers.next(), Some(ms(5)));
        assert_eq!(
            (timers.pop_due(ms(4)), timers.pop_due(ms(5)), timers.pop_due(ms(99))),
            (None, Some(3), None)
        );
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn disarming_what_is_not_armed_changes_nothing() {
        let mut timers = Timers::default();
        timers.disarm(7);
        timers.arm(0, ms(1));
        timers.disarm(7);
        timers.disarm(0);
        timers.disarm(0);
        assert_eq!(timers.next(), None);
    }

    proptest! {
        #[test]
        fn timers_agree_with_a_sorted_list(steps in prop::collection::vec((0_u32..12, 0_u64..50, 0_u8..4), 0..200)) {
            let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
            for (index, at, kind) in steps {
                match kind {
                    0 => {
                        timers.disarm(index);
                        model.remove(&index);
                    }
                    1 => {
                        while let Some(due) = timers.pop_due(ms(at)) {
                            let earliest = *model.values().min().unwrap();
                            prop_assert_eq!(model.remove(&due), Some(earliest));
                        }
                        prop_assert!(model.values().all(|deadline| *deadline > at));
                    }
                    _ => {
                        timers.arm(index, ms(at));
                        let armed = model.entry(index).or_insert(at);
                        *armed = at.min(*armed);
                    }
                }
                prop_assert_eq!(timers.next(), model.values().min().map(|deadline| ms(*deadline)));
            }
        }
    }
}
