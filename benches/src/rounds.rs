//! Interleaved rounds: every arm once, then every arm again, so that a change of the machine's speed affects all arms alike.
//!
//! A round is void when other work on the machine disturbed it. Void rounds are repeated.

use std::collections::BTreeMap;
use std::time::Duration;

use drumfire_tools::clock;
use drumfire_tools::host::{self, ThreadClock};
use drumfire_tools::report::{Accounting, CpuTime, Latency, Report, ThreadReport};

use crate::host::report_of;

/// The number of times that void rounds of one arm are repeated, so that a busy machine cannot stop the bench.
const MAX_REPEATS: u32 = 10;

/// The note next to a figure whose rounds stayed void.
const BUSY: &str = "machine busy: these figures do not count";

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

    /// One round that counts and is not repeated.
    pub const fn once() -> Self {
        Self { warm_up: 0, rounds: 1, may_void: false }
    }
}

/// The report of a round and its further values.
pub type Outcome = (Report, Values);

/// One variant that is measured.
pub struct Arm<'a> {
    name: String,
    run: Box<dyn FnMut() -> Result<Outcome, String> + 'a>,
}

impl<'a> Arm<'a> {
    /// An arm with this name in tables. `run` runs it once.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<Outcome, String> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// The rounds of one arm.
#[derive(Debug, Default)]
pub struct Measured {
    /// The name of the arm.
    pub name: String,
    /// The reports of the rounds that count, in order.
    pub rounds: Vec<Report>,
    /// The further values of all rounds. Warm-up and void rounds are included, because promises hold in them too.
    pub values: Vec<Values>,
    /// The number of void rounds that were repeated.
    pub voided: u32,
    /// Whether a round stayed void after all repeats, or was not repeated.
    pub is_busy: bool,
    /// The failure that ended the arm, with [`interleave_all`].
    pub failure: Option<String>,
}

/// Median, minimum, and maximum of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value, or the mean of the middle two.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl From<f64> for Spread {
    fn from(value: f64) -> Self {
        Self { median: value, min: value, max: value }
    }
}

impl Spread {
    /// Returns the spread of these values, or `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: (low + high) / 2.0, min, max })
    }
}

/// A median with minimum and maximum, for a table.
pub fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$} ({:.digits$}-{:.digits$})", spread.median, spread.min, spread.max),
    )
}

/// A median alone, for a table.
pub fn median_cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
}

impl Measured {
    /// Returns the spread of a value over the rounds, or `None` when a round lacks it.
    pub fn spread(&self, value: impl Fn(&Report) -> Option<f64>) -> Option<Spread> {
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

    /// Returns the spread of the ratios of a value, round by round, or `None` when a round lacks it.
    pub fn over(&self, other: &Self, value: impl Fn(&Report) -> Option<f64>) -> Option<Spread> {
        let pairs = self.rounds.iter().zip(&other.rounds);
        Spread::of(pairs.map(|(own, other)| Some(value(own)? / value(other)?)).collect::<Option<Vec<f64>>>()?)
    }

    /// Packets received per second.
    pub fn pps(&self) -> Option<Spread> {
        self.spread(|report| Some(report.pps))
    }

    /// CPU nanoseconds of the receiver per packet.
    pub fn cpu_ns(&self) -> Option<Spread> {
        self.spread(|report| report.cpu_ns_per_packet)
    }

    /// A time in microseconds.
    pub fn micros(&self, pick: Pick) -> Option<Spread> {
        self.spread(|report| micros(report, pick))
    }

    /// A time in milliseconds.
    pub fn millis(&self, pick: Pick) -> Option<Spread> {
        self.spread(|report| Some(micros(report, pick)? / 1e3))
    }

    /// Returns the limit of more than half of the rounds, if it was not the receiver.
    pub fn limited_by(&self) -> Option<&str> {
        let limits = || self.rounds.iter().filter_map(|round| round.limited_by.as_deref());
        if limits().count() * 2 > self.rounds.len() { limits().next() } else { None }
    }
}

/// Returns `BUSY` when one of these arms had a round that stayed void, or nothing.
pub fn busy_note<'a>(measured: impl IntoIterator<Item = &'a Measured>) -> &'static str {
    if measured.into_iter().any(|arm| arm.is_busy) { BUSY } else { "" }
}

/// The note next to a ratio of these arms: the arms that something else than the receiver limited, and whether the machine was busy.
pub fn ratio_note(arms: &[&Measured]) -> String {
    let limited = arms.iter().filter_map(|arm| Some(format!("{}-limited: {}", arm.limited_by()?, arm.name)));
    let busy = Some(busy_note(arms.iter().copied()).to_owned()).filter(|busy| !busy.is_empty());
    limited.chain(busy).collect::<Vec<_>>().join("; ")
}

/// Returns the share of a core that the receiver took in a round, in percent.
pub fn core_percent(report: &Report) -> Option<f64> {
    let cpu_s = report.threads.iter().map(ThreadReport::cpu_s).sum::<Option<f64>>()?;
    Some(cpu_s / report.window_s * 100.0)
}

/// Runs work of this thread in memory, which returns the time that its `steps` took. They take `window` of virtual time.
///
/// Only the time for which this thread waited for a core makes the round void. Steal is counted in ticks that are longer than some of
/// these rounds.
pub fn measure_work(
    steps: u64,
    window: Duration,
    work: impl FnOnce() -> Result<Duration, String>,
) -> Result<Outcome, String> {
    let sample = || host::current_thread_id().and_then(ThreadClock::sample);
    let (before, start) = (sample(), clock::now());
    let cpu = CpuTime { user_s: work()?.as_secs_f64(), sys_s: 0.0 };
    let (elapsed, samples) = (start.elapsed(), before.zip(sample()));
    let mut report = report_of(cpu, window, Accounting::new(steps, steps), None);
    report.run_delay_share = samples.and_then(|(before, now)| now.since(&before).run_delay_share(elapsed));
    Ok((report, Values::new()))
}

/// Runs the rounds of a plan. The first arm that fails ends them.
pub fn interleave(arms: Vec<Arm<'_>>, plan: Plan) -> Result<Vec<Measured>, String> {
    run_arms(arms, plan, false)
}

/// As [`interleave`], but an arm that fails is only left out of further rounds. Its failure is kept.
pub fn interleave_all(arms: Vec<Arm<'_>>, plan: Plan) -> Vec<Measured> {
    run_arms(arms, plan, true).unwrap_or_default()
}

fn run_arms(mut arms: Vec<Arm<'_>>, plan: Plan, continues: bool) -> Result<Vec<Measured>, String> {
    let named = |arm: &Arm<'_>| Measured { name: arm.name.clone(), ..Measured::default() };
    let mut all: Vec<Measured> = arms.iter().map(named).collect();
    for round in 0..plan.warm_up + plan.rounds {
        let counts = round >= plan.warm_up;
        for (arm, all) in arms.iter_mut().zip(&mut all).filter(|(_, all)| all.failure.is_none()) {
            let outcome = loop {
                let outcome = (arm.run)().and_then(|(report, values)| {
                    report.check().map_err(|error| error.to_string())?;
                    all.values.push(values);
                    Ok(report)
                });
                let is_void = outcome.as_ref().is_ok_and(Report::is_void) && counts;
                if is_void && plan.may_void && all.voided < MAX_REPEATS {
                    all.voided += 1;
                    continue;
                }
                all.is_busy |= is_void;
                break outcome.map_err(|line| format!("{}: {line}", all.name));
            };
            match outcome {
                Ok(report) if counts => all.rounds.push(report),
                Ok(_) => {}
                Err(line) if continues => all.failure = Some(line),
                Err(line) => return Err(line),
            }
        }
    }
    Ok(all)
}

/// Pins this thread to its last core, where the system permits it.
pub fn pin_to_last_core() {
    if let Some(core) = host::allowed_cores().unwrap_or_default().last() {
        // Without pinning the figures only spread more.
        let _ = host::pin_current_thread(*core);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use drumfire_tools::report::RUN_DELAY_LIMIT;

    use super::*;

    /// An arm that notes its name at each run. Its first `busy` rounds are void.
    fn arm<'a>(name: &'static str, busy: usize, order: &'a RefCell<Vec<&'static str>>) -> Arm<'a> {
        Arm::new(name, move || {
            order.borrow_mut().push(name);
            let run = order.borrow().len();
            let share = if run <= busy { 2.0 * RUN_DELAY_LIMIT } else { 0.0 };
            let report = Report { run_delay_share: Some(share), ..Report::default() };
            Ok((Report { pps: run as f64, ..report }, Values::from([("lost", run as f64)])))
        })
    }

    fn runs(arm: &Measured) -> Vec<f64> {
        arm.rounds.iter().map(|report| report.pps).collect()
    }

    /// Runs one arm whose first `busy` rounds are void.
    fn voids(busy: usize, plan: Plan) -> Measured {
        let order = RefCell::default();
        interleave(vec![arm("a", busy, &order)], plan).expect("no arm fails").remove(0)
    }

    #[test]
    fn a_void_round_is_repeated_a_limited_number_of_times() {
        let plan = |may_void| Plan { may_void, ..Plan::once() };
        let arm = voids(2, plan(true));
        assert_eq!((runs(&arm), arm.void_cell().as_str()), (vec![3.0], "2"));
        assert_eq!(runs(&voids(9, plan(false))), [1.0]);
        let arm = voids(99, plan(true));
        assert_eq!((arm.voided, arm.void_cell().as_str()), (MAX_REPEATS, "10 busy"));
        assert!(busy_note([&arm]).starts_with("machine busy"));
    }

    #[test]
    fn most_rounds_decide_what_limited_an_arm() {
        let arm = |limits: &[Option<&str>]| {
            let round =
                |limit: &Option<&str>| Report { limited_by: limit.map(str::to_owned), ..Report::default() };
            Measured { rounds: limits.iter().map(round).collect(), ..Measured::default() }
        };
        assert_eq!(ratio_note(&[&arm(&[Some("client")]), &arm(&[None])]), "client-limited: ");
        assert_eq!(arm(&[None, Some("sender")]).limited_by(), None);
        assert_eq!(arm(&[None, Some("provider"), Some("provider")]).limited_by(), Some("provider"));
    }

    #[test]
    fn values_of_all_rounds_count_and_reports_of_the_last_ones() {
        let measured = voids(0, Plan { warm_up: 1, rounds: 2, may_void: false });
        assert_eq!((measured.rounds.len(), measured.sum("lost")), (2, 6.0));
        assert_eq!(measured.value("lost").map(|lost| lost.median), Some(2.0));
        assert_eq!(measured.value("other"), None);
    }

    #[test]
    fn the_median_is_the_middle_value_or_the_mean_of_the_middle_two() {
        let median = |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| spread.median);
        assert_eq!((median(&[]), median(&[3.0])), (None, Some(3.0)));
        assert_eq!((median(&[9.0, 1.0, 5.0]), median(&[9.0, 1.0, 5.0, 7.0])), (Some(5.0), Some(6.0)));
        let three = Spread::of([2.0, 8.0, 5.0]);
        assert_eq!((cell(three, 0), median_cell(three, 1)), ("5 (2-8)".to_owned(), "5.0".to_owned()));
        assert_eq!((cell(None, 0), median_cell(None, 1)), ("-".to_owned(), "-".to_owned()));
    }

    #[test]
    fn arms_are_interleaved_and_an_arm_that_fails_is_named() {
        let order = RefCell::default();
        let plan = Plan { warm_up: 1, rounds: 2, may_void: false };
        let arms = vec![arm("a", 0, &order), arm("b", 0, &order)];
        let all = interleave(arms, plan).expect("no arm fails");
        assert_eq!(all.iter().map(runs).collect::<Vec<_>>(), [[3.0, 5.0], [4.0, 6.0]]);
        assert_eq!(order.take(), ["a", "b", "a", "b", "a", "b"]);
        let failing = || vec![Arm::new("b", || Err("no message arrived".to_owned()))];
        assert_eq!(interleave(failing(), plan).expect_err("it fails"), "b: no message arrived");
        assert_eq!(interleave_all(failing(), plan)[0].failure.as_deref(), Some("b: no message arrived"));
    }

    #[test]
    fn work_in_memory_has_its_time_per_step_and_its_share_of_virtual_time() {
        let second = Duration::from_secs(1);
        let (report, _) = measure_work(500, second, || Ok(second / 4)).expect("it ends");
        assert_eq!((report.cpu_ns_per_packet, core_percent(&report)), (Some(500_000.0), Some(25.0)));
    }
}
