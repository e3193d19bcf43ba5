//! The wheel against what a sorted list would say, at the edges of ticks, slots and time.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const TICK: Duration = Duration::from_nanos(1 << TICK_BITS);

fn ms(milliseconds: u64) -> Moment {
    Moment::from_nanos(milliseconds * 1_000_000)
}

/// Everything that is due, in order of place.
fn due(timers: &mut Timers, now: Moment) -> Vec<u32> {
    let mut due: Vec<u32> = std::iter::from_fn(|| timers.pop_due(now)).collect();
    due.sort_unstable();
    due
}

#[test]
fn a_much_later_deadline_moves_its_timer_after_half_the_time() {
    let mut timers = Timers::default();
    timers.arm(ms(0), 3, ms(30_000));
    timers.arm(ms(14_999), 3, ms(44_999));
    assert_eq!(timers.next(), Some(ms(30_000)), "a touch for each packet is what laziness saves");
    timers.arm(ms(15_001), 3, ms(45_001));
    assert!(due(&mut timers, ms(45_000)).is_empty());
    assert_eq!(due(&mut timers, ms(45_001)), [3]);
    timers.arm(ms(50_000), 3, ms(50_001));
    timers.arm(ms(50_000), 3, ms(51_000));
    assert_eq!(due(&mut timers, ms(50_001)), [3], "not even a second later");
}

#[test]
fn the_earliest_of_few_timers_can_be_postponed() {
    let mut timers = Timers::default();
    assert_eq!(timers.front(), None);
    for (index, at) in [(0, 700), (1, 300), (2, 500)] {
        timers.arm(ms(0), index, ms(at));
    }
    assert_eq!(timers.front(), Some((1, ms(300))));
    timers.defer(1, ms(600));
    assert_eq!(timers.front(), Some((2, ms(500))));
    timers.defer(9, ms(1));
    assert_eq!(timers.next(), Some(ms(500)), "what is not armed stays so");
    assert_eq!(timers.pop_due(ms(500)), Some(2));
    timers.arm(ms(500), 3, ms(550));
    assert_eq!(timers.pop_due(ms(499)), None);
    for index in 10..30 {
        timers.arm(ms(500), index, ms(501));
    }
    assert_eq!(timers.front(), None, "too many to look at all");
    assert_eq!(due(&mut timers, ms(700)), [&[0, 1, 3][..], &Vec::from_iter(10..30)].concat());
}

#[test]
fn a_later_deadline_changes_nothing_and_an_earlier_one_counts() {
    let mut timers = Timers::default();
    timers.arm(ms(0), 3, ms(10));
    timers.arm(ms(0), 3, ms(20));
    assert_eq!(timers.next(), Some(ms(10)));
    timers.arm(ms(0), 3, ms(5));
    assert_eq!(timers.next(), Some(ms(5)));
    assert_eq!((timers.pop_due(ms(4)), timers.pop_due(ms(5)), timers.pop_due(ms(99))), (None, Some(3), None));
    assert_eq!(timers.next(), None);
}

#[test]
fn disarming_an_unarmed_timer_has_no_effect() {
    let mut timers = Timers::default();
    timers.disarm(7);
    timers.arm(ms(0), 0, ms(1));
    timers.disarm(7);
    timers.disarm(0);
    timers.disarm(0);
    assert_eq!(timers.next(), None);
}

#[test]
fn within_one_tick_deadlines_are_exact() {
    let mut timers = Timers::default();
    let start = Moment::from_nanos(1_000 << TICK_BITS);
    for nanos in 0..8 {
        timers.arm(ms(0), u32::try_from(nanos).unwrap(), start.after(Duration::from_nanos(nanos)));
    }
    for nanos in 0..8 {
        let now = start.after(Duration::from_nanos(nanos));
        assert_eq!(timers.next(), Some(now));
        assert_eq!(due(&mut timers, now), [u32::try_from(nanos).unwrap()]);
    }
}

#[test]
fn the_largest_moment_has_a_slot() {
    let mut timers = Timers::default();
    let last = Moment::LAST;
    timers.arm(ms(0), 0, last);
    timers.arm(ms(0), 1, ms(7));
    assert_eq!(due(&mut timers, ms(7)), [1]);
    assert_eq!(timers.next(), Some(last));
    assert!(due(&mut timers, Moment::from_nanos(last.as_nanos() - 1)).is_empty());
    assert_eq!(due(&mut timers, last), [0]);
}

#[test]
fn a_past_deadline_is_due_immediately() {
    let mut timers = Timers::default();
    timers.arm(ms(0), 0, ms(500));
    assert!(due(&mut timers, ms(400)).is_empty());
    timers.arm(ms(0), 1, ms(100));
    assert!(timers.next().is_some_and(|next| next <= ms(400)));
    assert_eq!(due(&mut timers, ms(400)), [1]);
}

#[test]
fn the_next_of_many_timers_is_no_later_than_the_earliest() {
    let mut timers = Timers::default();
    for index in 0..1_000 {
        timers.arm(ms(0), index, ms(7_500).after(Duration::from_nanos(u64::from(index))));
    }
    let mut woken = 0;
    let mut now = ms(0);
    while let Some(next) = timers.next().filter(|next| *next < ms(7_500)) {
        assert!(next > now, "each wake-up is later than the previous one");
        (now, woken) = (next, woken + 1);
        assert_eq!(timers.pop_due(now), None);
    }
    assert!(woken < i32::try_from(LEVELS).unwrap(), "{woken} wake-ups without a due timer");
    assert_eq!(due(&mut timers, ms(7_501)).len(), 1_000);
}

#[test]
fn a_wake_up_finds_a_due_timer_or_a_closer_deadline() {
    let mut timers = Timers::default();
    for index in 0..20 {
        timers.arm(ms(0), index, Moment::ORIGIN.after(TICK * index * 977));
    }
    let mut fired = 0;
    while let Some(next) = timers.next() {
        let count = due(&mut timers, next).len();
        assert!(count > 0, "twenty timers are few enough to be looked at");
        fired += count;
    }
    assert_eq!(fired, 20);
}

proptest! {
    #[test]
    fn timers_agree_with_a_sorted_list(
        scale in 0_u32..40,
        steps in prop::collection::vec((0_u32..12, 0_u64..50, 0_u8..5), 0..200),
    ) {
        let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
        let mut now = Moment::ORIGIN;
        for (index, number, kind) in steps {
            let later = now.after(Duration::from_nanos(number << scale));
            match kind {
                0 => {
                    timers.disarm(index);
                    model.remove(&index);
                }
                1 | 2 => {
                    now = later;
                    let fired = due(&mut timers, now);
                    let expected: Vec<u32> =
                        model.iter().filter(|(_, deadline)| **deadline <= now).map(|(index, _)| *index).collect();
                    prop_assert_eq!(&fired, &expected);
                    model.retain(|_, deadline| *deadline > now);
                }
                _ => {
                    timers.arm(now, index, later);
                    let armed = model.entry(index).or_insert(later);
                    if later < *armed || should_move(now, *armed, later) {
                        *armed = later;
                    }
                }
            }
            timers.assert_invariants();
            let earliest = model.values().min().copied();
            prop_assert_eq!(timers.next().is_some(), earliest.is_some());
            if let (Some(next), Some(earliest)) = (timers.next(), earliest) {
                prop_assert!(next <= earliest || earliest <= now);
                prop_assert!(next > now || earliest <= now, "it would be woken for nothing");
            }
            prop_assert!((0..12).all(|index| timers.is_armed(index) == model.contains_key(&index)));
        }
    }
}
