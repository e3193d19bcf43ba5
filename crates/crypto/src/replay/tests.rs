//! Tests of the replay window: its edges, every state of a small window, and comparisons with a set as a model.

mod model;

use super::*;
use crate::test_support::TestRandom;
use drumfire_tries::tries;
use model::ChangingModel;
use std::collections::{HashSet, VecDeque};

#[test]
fn only_multiples_of_64_within_the_bounds_are_permitted() {
    for size in [64, 128, 960, 1_024, 1_088, 8_128, 8_192] {
        assert!(ReplayWindow::new(size).is_some(), "{size}");
    }
    for size in [0, 1, 63, 65, 1_023, 1_025, 8_191, 8_193, 8_256, u32::MAX] {
        assert!(ReplayWindow::new(size).is_none(), "{size}");
    }
}

#[test]
fn the_window_of_an_idle_connection_takes_24_bytes() {
    assert_eq!(size_of::<ReplayWindow>(), 24);
}

#[test]
fn the_window_ends_exactly_at_its_size() {
    for size in [64, 1_024, 8_192] {
        for highest in [20_000, 20_031, 20_032, 20_033, u64::MAX] {
            let oldest = highest - u64::from(size) + 1;
            let mut window = ReplayWindow::new(size).unwrap();
            window.accept(highest).unwrap();
            assert_eq!(window.accept(oldest + 1), Ok(()));
            assert_eq!(window.accept(oldest), Ok(()));
            assert_eq!(window.accept(oldest - 1), Err(ReplayError::TooOld));
            assert_eq!(window.accept(oldest), Err(ReplayError::Duplicate));
            assert_eq!(window.accept(highest), Err(ReplayError::Duplicate));
        }
    }
}

#[test]
fn the_first_packet_may_have_any_number() {
    for number in [0, 1, 1_023, 1_024, u64::MAX] {
        for mut window in [ReplayWindow::default(), ReplayWindow::narrow(64).unwrap()] {
            assert_eq!(window.highest(), None);
            assert_eq!(window.accept(number), Ok(()));
            assert_eq!(window.accept(number), Err(ReplayError::Duplicate));
            assert_eq!(window.highest(), Some(number));
            window.shrink();
            assert_eq!(window.highest(), Some(number));
        }
    }
}

#[test]
fn a_check_changes_nothing() {
    let mut window = ReplayWindow::default();
    window.accept(10).unwrap();
    let mut random = TestRandom(3);
    for _ in 0..tries(1_000_000) {
        assert_eq!(window.check(11 + random.below(u64::MAX - 11)), Ok(()));
    }
    assert_eq!(window.highest(), Some(10));
    assert_eq!(window.check(10), Err(ReplayError::Duplicate));
    assert_eq!(window.accept(0), Ok(()));
}

#[test]
fn the_window_works_at_the_end_of_u64() {
    let mut window = ReplayWindow::default();
    for number in (u64::MAX - 3_000)..=u64::MAX {
        assert_eq!(window.accept(number), Ok(()));
        assert_eq!(window.accept(number), Err(ReplayError::Duplicate));
    }
    assert_eq!(window.accept(0), Err(ReplayError::TooOld));
}

/// A model of a window of 8 numbers: the highest number, and one bit for each number of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Model {
    highest: u64,
    accepted: u8,
}

impl Model {
    fn accept(self, number: u64) -> (Self, Result<(), ReplayError>) {
        if number > self.highest {
            let distance = u32::try_from(number - self.highest).unwrap_or(u32::MAX);
            let accepted = self.accepted.checked_shl(distance).unwrap_or(0) | 1;
            return (Self { highest: number, accepted }, Ok(()));
        }
        let depth = self.highest - number;
        if depth >= 8 {
            return (self, Err(ReplayError::TooOld));
        }
        if self.accepted & (1 << depth) != 0 {
            return (self, Err(ReplayError::Duplicate));
        }
        (Self { accepted: self.accepted | (1 << depth), ..self }, Ok(()))
    }
}

/// Visits every state that a window of 8 numbers can reach with 256 numbers from `lowest` on, and tries every number in each.
fn walk_every_state(lowest: u64) {
    const LOG2: u32 = 1;
    let state_index = |map: &Bitmap<LOG2>| {
        let words = (0..map.words.count()).filter_map(|index| map.words.get(index));
        let bits = words.fold(0, |bits, word| (bits << 2) | usize::try_from(word).unwrap());
        // The highest number of the initial state may not be one of the 256 numbers.
        let number = map.highest.checked_sub(lowest).map_or(256, |number| usize::try_from(number).unwrap());
        ((number * 5 + usize::try_from(map.head).unwrap()) << 10) | bits
    };
    let copy = |map: &Bitmap<LOG2>| Bitmap::<LOG2> { words: map.words.clone(), ..*map };
    let mut models: Vec<Option<Model>> = vec![None; (257 * 5) << 10];
    let first = Bitmap::<LOG2>::new(8);
    assert_eq!(first.words.count(), 5);
    let first_model = Model { highest: 0, accepted: 0 };
    models[state_index(&first)] = Some(first_model);
    let mut queue = VecDeque::from([(first, first_model)]);
    let mut next = Bitmap::<LOG2>::new(8);
    let mut state_count = 0_u32;
    while let Some((map, model)) = queue.pop_front() {
        state_count += 1;
        for number in lowest..=lowest + 255 {
            let (next_model, expected) = model.accept(number);
            assert_eq!(map.check(number), expected, "{model:?} {number}");
            if expected.is_err() {
                continue;
            }
            next.words.clone_from(&map.words);
            (next.head, next.highest) = (map.head, map.highest);
            next.accept(number).unwrap();
            match &mut models[state_index(&next)] {
                Some(known) => assert_eq!(*known, next_model, "equal states have equal models"),
                unknown => {
                    *unknown = Some(next_model);
                    queue.push_back((copy(&next), next_model));
                }
            }
        }
    }
    assert!(state_count > 100_000, "only {state_count} states");
}

#[test]
fn every_state_of_a_small_window_agrees_with_its_model() {
    walk_every_state(0);
}

#[test]
fn every_state_agrees_with_its_model_at_the_end_of_u64() {
    walk_every_state(u64::MAX - 255);
}

#[test]
fn a_million_random_operations_agree_with_a_set() {
    for (size, seed) in [(64, 1), (192, 2), (1_024, 3), (8_192, 4)] {
        let mut window = ReplayWindow::new(size).unwrap();
        let (mut accepted, mut highest, mut random) = (HashSet::new(), 0_u64, TestRandom(seed));
        for _ in 0..250_000 {
            let spread = u64::from(size) * 2;
            let number = match random.below(100) {
                0 => highest + random.below(spread * 3),
                1..30 => highest + random.below(4),
                _ => highest.saturating_sub(random.below(spread)),
            };
            let expected = if number + u64::from(size) <= highest {
                Err(ReplayError::TooOld)
            } else if accepted.contains(&number) {
                Err(ReplayError::Duplicate)
            } else {
                Ok(())
            };
            assert_eq!(window.check(number), expected);
            if random.below(4) != 0 {
                assert_eq!(window.accept(number), expected);
                if expected.is_ok() {
                    accepted.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }
}

/// Returns the result that a window of 64 numbers must give, where `accepted` is the set of accepted numbers.
fn expected_of_narrow(accepted: &HashSet<u64>, highest: u64, number: u64) -> Result<(), ReplayError> {
    if number + 64 <= highest {
        Err(ReplayError::TooOld)
    } else if accepted.contains(&number) {
        Err(ReplayError::Duplicate)
    } else {
        Ok(())
    }
}

#[test]
fn a_narrow_window_agrees_with_a_set() {
    let mut window = ReplayWindow::narrow(1_024).unwrap();
    let (mut accepted, mut highest, mut random) = (HashSet::new(), 0_u64, TestRandom(5));
    for _ in 0..tries(1_000_000) {
        let number = match random.below(20) {
            // A number that is one more ahead would widen the window.
            0 => highest + random.below(64),
            1..8 => highest + random.below(4),
            _ => highest.saturating_sub(random.below(130)),
        };
        let expected = expected_of_narrow(&accepted, highest, number);
        assert_eq!(
            (window.check(number), window.accept(number)),
            (expected, expected),
            "{number} at {highest}"
        );
        if expected.is_ok() {
            accepted.insert(number);
            highest = highest.max(number);
        }
        assert_eq!(window.highest().unwrap_or(0), highest);
    }
}

#[test]
fn no_number_passes_twice_while_the_window_changes() {
    let (mut accepted, mut random) = (HashSet::new(), TestRandom(6));
    for size in [64, 128, 1_024] {
        let mut window = ReplayWindow::narrow(size).unwrap();
        let (mut highest, mut passed) = (0_u64, 0);
        accepted.clear();
        for _ in 0..50_000 {
            match random.below(40) {
                0 => window.widen(),
                1 => window.shrink(),
                _ => {}
            }
            let number = match random.below(20) {
                0 => highest + random.below(300),
                1..8 => highest + random.below(4),
                _ => highest.saturating_sub(random.below(130)),
            };
            let is_new = !accepted.contains(&number);
            match window.accept(number) {
                Ok(()) => {
                    assert!(accepted.insert(number), "{number} passed twice");
                    passed += 1;
                }
                Err(_) => assert!(!is_new || number + 64 <= highest, "{number} of the newest 64 was refused"),
            }
            highest = highest.max(number);
        }
        assert!(passed > 10_000, "{passed}");
    }
}

#[test]
fn a_widened_window_remembers_its_full_size() {
    let mut window = ReplayWindow::new(1_024).unwrap();
    window.accept(5_000).unwrap();
    window.shrink();
    assert_eq!((window.check(4_936), window.check(4_937)), (Err(ReplayError::TooOld), Ok(())));
    window.widen();
    assert_eq!((window.check(4_936), window.check(4_937)), (Err(ReplayError::TooOld), Ok(())));
    assert_eq!(
        (window.accept(5_900), window.accept(4_937)),
        (Ok(()), Ok(())),
        "900 numbers are in the window"
    );
    assert_eq!(
        (window.accept(4_937), window.accept(4_936)),
        (Err(ReplayError::Duplicate), Err(ReplayError::TooOld))
    );
}

#[test]
fn a_narrow_window_widens_for_reordered_packets() {
    let mut window = ReplayWindow::narrow(1_024).unwrap();
    (0..100).for_each(|number| window.accept(number).unwrap());
    window.shrink();
    assert_eq!(window.accept(1_100), Ok(()));
    for number in (100..1_100).rev() {
        assert_eq!(window.accept(number), Ok(()), "{number}");
    }
    assert!((36..=1_100).all(|number| window.accept(number).is_err()));
}

#[test]
fn a_narrow_window_accepts_any_first_number() {
    for number in [0, 1, 63, 64, u64::MAX] {
        let mut window = ReplayWindow::narrow(64).unwrap();
        assert_eq!((window.accept(number), window.accept(number)), (Ok(()), Err(ReplayError::Duplicate)));
        window.widen();
        assert_eq!(window.accept(number), Err(ReplayError::Duplicate));
    }
}

#[test]
fn every_sequence_of_five_steps_agrees_with_a_set() {
    const NUMBERS: [u64; 7] = [0, 1, 63, 64, 65, 128, 129];
    const STEPS: usize = NUMBERS.len() + 2;
    const LENGTH: u32 = 5;
    let mut refused_count = 0_u32;
    for sequence in 0..STEPS.pow(LENGTH) {
        let (mut window, mut model) = (ReplayWindow::narrow(128).unwrap(), ChangingModel::narrow(128));
        for step in 0..LENGTH {
            match sequence / STEPS.pow(step) % STEPS {
                7 => {
                    window.widen();
                    model.widen();
                }
                8 => {
                    window.shrink();
                    model.shrink();
                }
                number => {
                    let (number, expected) = (NUMBERS[number], model.check(NUMBERS[number]));
                    assert_eq!(window.check(number), expected, "{number} in sequence {sequence}");
                    assert_eq!((window.accept(number), model.accept(number)), (expected, expected));
                    refused_count += u32::from(expected.is_err());
                }
            }
        }
        assert_eq!(window.highest(), model.highest(), "sequence {sequence}");
    }
    assert!(refused_count > 10_000, "{refused_count}");
}
