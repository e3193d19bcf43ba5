//! Interleaved rounds: every arm once, then every arm again, so that a change of the machine's speed affects all arms alike.
//!
//! A round is void when other work on the machine disturbed it. Void rounds are repeated.

use std::collections::BTreeMap;

use drumfire_tools::clock;
use drumfire_tools::host::{self, ThreadClock};
use drumfire_tools::report::{Latency, RUN_DELAY_LIMIT, Report, ThreadReport};

/// The number of times that void rounds of one arm are repeated, so that a busy machine cannot stop the bench.
const MAX_REPEATS: u32 = 10;

/// The note next to a figure whose rounds stayed void.
pub const BUSY: &str = "machine busy: these figures do not count";

/// Selects one time of a round.
pub type Pick = fn(&Latency) -> u64;

/// Further values of a round, by name.
pub type Values = BTreeMap<&'static str, f64>;

/// Returns a time of a round in microseconds.
pub fn micros(report: &Report, pick: Pick) -> Option<f64> {
    Some(pick(&report.latency_ns?) as f64 / 1e3)
}

/// How much a bench does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// A smoke run of a few seconds. Every part runs once, and the figures mean little.
    Quick,
    /// The figures, within minutes.
    Default,
    /// All figures, with longer windows and more rounds.
    Full,
}

impl Extent {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }

    /// Returns the value for this extent.
    pub fn pick<T>(self, quick: T, default: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Default => default,
            Self::Full => full,
        }
    }
}

/// How many rounds there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rounds that do not count.
    pub warm_up: u32,
    /// Rounds that count.
    pub rounds: u32,
    /// Whether void rounds are repeated.
    pub may_void: bool,
}

impl Plan {
    /// One round in a smoke run, five by default, and seven in a full run.
    pub fn of(extent: Extent) -> Self {
        let is_quick = extent == Extent::Quick;
        Self { warm_up: u32::from(!is_quick), rounds: extent.pick(1, 5, 7), may_void: !is_quick }
    }
}

/// One variant that is measured.
pub struct Arm<'a> {
    /// The name in the table.
    pub name: String,
    /// Runs it once.
    pub run: Box<dyn FnMut() -> Result<(Report, Values), String> + 'a>,
}

impl<'a> Arm<'a> {
    /// An arm without further values.
    pub fn new(name: impl Into<String>, mut run: impl FnMut() -> Result<Report, String> + 'a) -> Self {
        Self::with_values(name, move || Ok((run()?, Values::new())))
    }

    /// An arm with further values.
    pub fn with_values(
        name: impl Into<String>,
        run: impl FnMut() -> Result<(Report, Values), String> + 'a,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// The rounds of one arm, or of one [`Work`].
#[derive(Debug)]
pub struct Rounds<T> {
    /// The name of the arm.
    pub name: String,
    /// The rounds that count, in order.
    pub rounds: Vec<T>,
    /// The further values of all rounds. Warm-up and void rounds are included, because promises hold in them too.
    pub values: Vec<Values>,
    /// The number of void rounds that were repeated.
    pub voided: u32,
    /// Whether a round stayed void after all repeats.
    pub is_busy: bool,
    /// The failure that ended the arm, with [`interleave_all`].
    pub failure: Option<String>,
}

/// The rounds of an [`Arm`].
pub type Measured = Rounds<Report>;

/// Median, least, and most of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the middle two.
    pub median: f64,
    /// The least value.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Returns the spread of these values, or `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: (low + high) / 2.0, least, most })
    }
}

/// A median with the least and the most, for a table.
pub fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$} ({:.digits$}-{:.digits$})", spread.median, spread.least, spread.most),
    )
}

/// A median alone, for a table.
pub fn median_cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
}

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Self {
            name: String::new(),
            rounds: Vec::new(),
            values: Vec::new(),
            voided: 0,
            is_busy: false,
            failure: None,
        }
    }
}

impl<T> Rounds<T> {
    /// Returns the spread of a value over the rounds, or `None` when a round lacks it.
    pub fn spread(&self, value: impl Fn(&T) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(value).collect::<Option<Vec<f64>>>()?)
    }

    /// Returns the spread of a further value over all rounds that have it.
    pub fn value(&self, name: &str) -> Option<Spread> {
        Spread::of(self.values.iter().filter_map(|values| values.get(name).copied()))
    }

    /// Returns the sum of a further value over all rounds.
    pub fn sum(&self, name: &str) -> f64 {
        self.values.iter().filter_map(|values| values.get(name)).sum()
    }

    /// The number of void rounds, and whether one stayed void, for a table.
    pub fn void_cell(&self) -> String {
        format!("{}{}", self.voided, if self.is_busy { " busy" } else { "" })
    }

    /// Returns [`BUSY`] when a round stayed void, or `note`.
    pub fn busy_or(&self, note: &'static str) -> &'static str {
        if self.is_busy { BUSY } else { note }
    }

    /// Returns the spread of the ratios of a value, round by round, or `None` when a round lacks it.
    pub fn over(&self, other: &Self, value: impl Fn(&T) -> Option<f64>) -> Option<Spread> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        Spread::of(pairs.map(|(own, other)| Some(value(own)? / value(other)?)).collect::<Option<Vec<f64>>>()?)
    }
}

impl Measured {
    /// The share of a core that the receiver took, in percent.
    pub fn core_percent(&self) -> Option<Spread> {
        let cpu_s = |report: &Report| report.threads.iter().map(ThreadReport::cpu_s).sum::<Option<f64>>();
        self.spread(|report| Some(cpu_s(report)? / report.window_s * 100.0))
    }

    /// Packets received per second.
    pub fn pps(&self) -> Option<Spread> {
        self.spread(|report| Some(report.pps))
    }

    /// Returns what limited more than half of the rounds, if it was not the receiver.
    pub fn limited_by(&self) -> Option<&str> {
        let limits = || self.rounds.iter().filter_map(|round| round.limited_by.as_deref());
        if limits().count() * 2 > self.rounds.len() { limits().next() } else { None }
    }

    /// What limited the rate, for a table.
    pub fn limit_cell(&self) -> String {
        self.limited_by().map_or_else(String::new, |by| format!("{by}-limited"))
    }

    /// Millions of packets received per second, for a table. A rate that the receiver did not limit is shown as a lower bound.
    pub fn rate_cell(&self) -> String {
        let Some(Spread { median, least, most }) = self.pps() else { return "-".to_owned() };
        match self.limited_by() {
            Some(by) => format!("{by}-limited, over {:.2}", median / 1e6),
            None => format!("{:.2} ({:.2}-{:.2})", median / 1e6, least / 1e6, most / 1e6),
        }
    }

    /// CPU nanoseconds of the receiver per packet.
    pub fn cpu_ns(&self) -> Option<Spread> {
        self.spread(|report| report.cpu_ns_per_packet)
    }
}

/// Returns [`BUSY`] when one of these arms had a round that stayed void, or nothing.
pub fn busy_note(measured: &[Measured]) -> &'static str {
    if measured.iter().any(|arm| arm.is_busy) { BUSY } else { "" }
}

/// The note next to a ratio of these arms: the arms that the client limited, and whether the machine was busy.
pub fn ratio_note(arms: &[&Measured]) -> String {
    let mut words = Vec::new();
    for arm in arms {
        if arm.limited_by() == Some("client") {
            words.push(format!("client-limited: {}", arm.name));
        }
        if arm.is_busy {
            words.push(BUSY.to_owned());
        }
    }
    words.dedup();
    words.join("; ")
}

/// Runs `warm_up` rounds that do not count and `rounds` that do. Void rounds are repeated where `may_void`.
pub fn interleave(
    arms: Vec<Arm<'_>>,
    warm_up: u32,
    rounds: u32,
    may_void: bool,
) -> Result<Vec<Measured>, String> {
    run_arms(arms, (warm_up, rounds, may_void), |_, line| Err(line))
}

/// As [`interleave`], but an arm that fails is only left out of further rounds. Its failure is kept.
pub fn interleave_all(arms: Vec<Arm<'_>>, warm_up: u32, rounds: u32, may_void: bool) -> Vec<Measured> {
    let outcome = run_arms(arms, (warm_up, rounds, may_void), |measured, line| {
        measured.failure = Some(line);
        Ok(())
    });
    outcome.unwrap_or_default()
}

fn run_arms(
    mut arms: Vec<Arm<'_>>,
    (warm_up, rounds, may_void): (u32, u32, bool),
    on_failure: impl Fn(&mut Measured, String) -> Result<(), String>,
) -> Result<Vec<Measured>, String> {
    let mut all: Vec<Measured> =
        arms.iter().map(|arm| Rounds { name: arm.name.clone(), ..Rounds::default() }).collect();
    for round in 0..warm_up + rounds {
        for (arm, all) in arms.iter_mut().zip(&mut all) {
            if all.failure.is_some() {
                continue;
            }
            let counts = round >= warm_up;
            let Rounds { name, voided, is_busy, values, .. } = all;
            let report = repeat_void(counts && may_void, voided, is_busy, || {
                let (report, further) = (arm.run)().map_err(|line| format!("{name}: {line}"))?;
                report.check().map_err(|line| format!("{name}: {line}"))?;
                values.push(further);
                let is_void = report.is_void();
                Ok((report, is_void))
            });
            match report {
                Ok(report) if counts => all.rounds.push(report),
                Ok(_) => {}
                Err(line) => on_failure(all, line)?,
            }
        }
    }
    Ok(all)
}

/// Runs a round until it is not void, at most [`MAX_REPEATS`] times per arm.
fn repeat_void<T>(
    may_void: bool,
    voided: &mut u32,
    is_busy: &mut bool,
    mut run: impl FnMut() -> Result<(T, bool), String>,
) -> Result<T, String> {
    loop {
        let (outcome, is_void) = run()?;
        if !may_void || !is_void {
            return Ok(outcome);
        }
        if *voided == MAX_REPEATS {
            *is_busy = true;
            return Ok(outcome);
        }
        *voided += 1;
    }
}

/// Work of one thread in memory, without sockets.
pub struct Work<'a, T> {
    /// The name in the table.
    pub name: String,
    /// Does the work once.
    pub run: Box<dyn FnMut() -> Result<T, String> + 'a>,
}

impl<'a, T> Work<'a, T> {
    /// Work of this name.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<T, String> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// Pins this thread to one core, where the system permits it.
pub fn pin() {
    if let Some(core) = host::allowed_cores().unwrap_or_default().last() {
        // Without pinning the figures only spread more.
        let _ = host::pin_current_thread(*core);
    }
}

/// Runs `warm_up` rounds that do not count and `rounds` that do. Void rounds are repeated where `may_void`.
///
/// Only the time for which this thread waited for a core makes a round void. Steal is counted in ticks that are longer than some of
/// these rounds.
pub fn interleave_work<T>(
    mut arms: Vec<Work<'_, T>>,
    warm_up: u32,
    rounds: u32,
    may_void: bool,
) -> Result<Vec<Rounds<T>>, String> {
    let mut all: Vec<Rounds<T>> =
        arms.iter().map(|arm| Rounds { name: arm.name.clone(), ..Rounds::default() }).collect();
    for round in 0..warm_up + rounds {
        for (arm, all) in arms.iter_mut().zip(&mut all) {
            let counts = round >= warm_up;
            let outcome = repeat_void(counts && may_void, &mut all.voided, &mut all.is_busy, || {
                let (outcome, is_void) = watched(&mut arm.run);
                Ok((outcome.map_err(|line| format!("{}: {line}", arm.name))?, is_void))
            })?;
            if counts {
                all.rounds.push(outcome);
            }
        }
    }
    Ok(all)
}

/// Runs the work and returns whether this thread waited too long for a core.
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
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_round_that_stays_void_is_noted_next_to_the_figure() {
        let arm = |is_busy| Measured { voided: 3, is_busy, ..Rounds::default() };
        assert_eq!(busy_note(&[arm(false), arm(false)]), "");
        assert!(busy_note(&[arm(false), arm(true)]).starts_with("machine busy"));
        assert_eq!((arm(false).void_cell(), arm(true).void_cell()), ("3".to_owned(), "3 busy".to_owned()));
    }

    #[test]
    fn a_void_round_is_repeated_a_limited_number_of_times() {
        let (mut voided, mut is_busy, mut runs) = (0, false, 0);
        let mut run = |busy: u32, may_void, voided: &mut u32, is_busy: &mut bool| {
            repeat_void(may_void, voided, is_busy, || {
                runs += 1;
                Ok((runs, runs <= busy))
            })
        };
        assert_eq!(run(2, true, &mut voided, &mut is_busy), Ok(3));
        assert_eq!(run(9, false, &mut voided, &mut is_busy), Ok(4));
        assert_eq!((voided, is_busy), (2, false));
        let _ = repeat_void(true, &mut voided, &mut is_busy, || Ok(((), true)));
        assert_eq!((voided, is_busy), (MAX_REPEATS, true));
    }

    #[test]
    fn a_rate_that_the_receiver_did_not_limit_is_a_lower_bound() {
        let round = |limited_by: Option<&str>| {
            let mut report = Report::of(drumfire_tools::report::Counted::default());
            (report.pps, report.limited_by) = (1.5e6, limited_by.map(str::to_owned));
            report
        };
        let arm = |rounds| Measured { rounds, ..Rounds::default() };
        let client = arm(vec![round(Some("client"))]);
        assert_eq!(ratio_note(&[&client, &arm(vec![round(Some("sender"))])]), "client-limited: ");
        let half = arm(vec![round(None), round(Some("sender"))]);
        assert_eq!((half.limited_by(), half.rate_cell()), (None, "1.50 (1.50-1.50)".to_owned()));
        let most = arm(vec![round(None), round(Some("provider")), round(Some("provider"))]);
        assert_eq!(most.limited_by(), Some("provider"));
        assert_eq!(most.rate_cell(), "provider-limited, over 1.50");
    }

    #[test]
    fn values_of_all_rounds_count_and_reports_of_the_last_ones() {
        let mut next = 0;
        let arm = Arm::with_values("a", || {
            next += 1;
            let report = Report::of(drumfire_tools::report::Counted::default());
            Ok((report, Values::from([("lost", f64::from(next))])))
        });
        let measured = interleave(vec![arm], 1, 2, false).expect("no arm fails");
        assert_eq!((measured[0].rounds.len(), measured[0].sum("lost")), (2, 6.0));
        assert_eq!(measured[0].value("lost").map(|lost| lost.median), Some(2.0));
        assert_eq!(measured[0].value("other"), None);
    }

    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_the_middle_two() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 7.0]), Some(6.0));
        let three = Spread::of([2.0, 8.0, 5.0]);
        assert_eq!((cell(three, 0), median_cell(three, 1)), ("5 (2-8)".to_owned(), "5.0".to_owned()));
        assert_eq!((cell(None, 0), median_cell(None, 1)), ("-".to_owned(), "-".to_owned()));
    }

    #[test]
    fn arms_are_interleaved_and_the_warm_up_does_not_count() {
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
        let arm = Work::new("b", || Err::<(), _>("no message came".to_owned()));
        assert_eq!(interleave_work(vec![arm], 0, 1, false).expect_err("it fails"), "b: no message came");
    }
}
