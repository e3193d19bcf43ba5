//! Interleaved rounds of work that one thread does without sockets: every arm once, then every arm again. What an arm
//! answers is its own business.
//!
//! A round counts as disturbed by the same share of waiting for a core as everywhere; time stolen from the machine is not
//! looked at, since it is told in ticks that are longer than some of these rounds.

use drumfire_tools::clock;
use drumfire_tools::host::{self, ThreadClock};
use drumfire_tools::report::RUN_DELAY_LIMIT;

/// How often a disturbed round is repeated before it counts all the same, and is marked.
const MAX_REPEATS: u32 = 10;

/// What is done in a round.
pub struct Work<'a, T> {
    /// Its name in the table.
    pub name: String,
    /// Does it once.
    pub run: Box<dyn FnMut() -> Result<T, String> + 'a>,
}

/// What came of one arm's rounds.
#[derive(Debug)]
pub struct Rounds<T> {
    /// The arm's name.
    pub name: String,
    /// The rounds that count, in order.
    pub rounds: Vec<T>,
    /// Rounds that the machine disturbed and that were repeated.
    pub voided: u32,
    /// Whether a round stayed disturbed however often it was repeated.
    pub is_busy: bool,
}

impl<'a, T> Work<'a, T> {
    /// An arm of this name.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<T, String> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Keeps this thread on one core, where the system lets it.
pub fn pin() {
    if let Some(core) = host::allowed_cores().unwrap_or_default().last() {
        // Where it cannot be, figures spread more.
        let _ = host::pin_current_thread(*core);
    }
}

/// Runs `warm_up` rounds that do not count and `rounds` that do. Disturbed rounds are repeated where `may_void`.
///
/// # Errors
/// The first line of an arm that failed, with its name.
pub fn interleave_work<T>(
    mut arms: Vec<Work<'_, T>>,
    warm_up: u32,
    rounds: u32,
    may_void: bool,
) -> Result<Vec<Rounds<T>>, String> {
    let mut all: Vec<Rounds<T>> = arms
        .iter()
        .map(|arm| Rounds { name: arm.name.clone(), rounds: Vec::new(), voided: 0, is_busy: false })
        .collect();
    for round in 0..warm_up + rounds {
        for (arm, of_arm) in arms.iter_mut().zip(&mut all) {
            let outcome = loop {
                let (outcome, is_disturbed) = watched(&mut arm.run);
                let outcome = outcome.map_err(|line| format!("{}: {line}", arm.name))?;
                if !may_void || round < warm_up || !is_disturbed {
                    break outcome;
                }
                if of_arm.voided == MAX_REPEATS {
                    of_arm.is_busy = true;
                    break outcome;
                }
                of_arm.voided += 1;
            };
            if round >= warm_up {
                of_arm.rounds.push(outcome);
            }
        }
    }
    Ok(all)
}

/// Runs it, and answers whether this thread waited too long for its core meanwhile.
fn watched<T>(run: &mut dyn FnMut() -> T) -> (T, bool) {
    let sample = || host::current_thread_id().and_then(ThreadClock::sample);
    let (before, start) = (sample(), clock::now());
    let outcome = run();
    let window = start.elapsed();
    let share = before.zip(sample()).and_then(|(before, after)| after.since(&before).run_delay_share(window));
    (outcome, share.is_some_and(|share| share > RUN_DELAY_LIMIT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn arms_take_turns_and_the_warm_up_does_not_count() {
        let order = RefCell::new(Vec::new());
        let arm = |name: &'static str| {
            let order = &order;
            Work::new(name, move || {
                order.borrow_mut().push(name);
                Ok(order.borrow().len())
            })
        };
        let all = interleave_work(vec![arm("a"), arm("b")], 1, 2, false).expect("no arm fails");
        assert_eq!(order.take(), ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(all.iter().map(|arm| arm.rounds.clone()).collect::<Vec<_>>(), [[3, 5], [4, 6]]);
    }

    #[test]
    fn an_arm_that_fails_is_named() {
        let arm = Work::new("b", || Err::<(), _>("nothing came".to_owned()));
        assert_eq!(interleave_work(vec![arm], 0, 1, false).expect_err("it fails"), "b: nothing came");
    }
}
