//! Interleaved rounds: every arm once, then every arm again, so that whatever the machine does meanwhile is done
//! to all of them. The first round warms up and does not count.

use drumfire_tools::report::{Latency, Report};

/// How often rounds of one arm that the machine disturbed are repeated, so that a busy machine cannot hold up the
/// bench.
const MAX_REPEATS: u32 = 10;

/// Stands beside a figure whose rounds the machine disturbed to the end.
pub const BUSY: &str = "machine busy: these figures do not count";

/// Picks one time of a round.
pub type Pick = fn(&Latency) -> u64;

/// A time of a round, in microseconds.
#[must_use]
pub fn micros(report: &Report, pick: Pick) -> Option<f64> {
    Some(pick(&report.latency_ns?) as f64 / 1e3)
}

/// One thing that is measured.
pub struct Arm<'a> {
    /// Its name in the table.
    pub name: String,
    /// Runs it once.
    pub run: Box<dyn FnMut() -> Result<Report, String> + 'a>,
}

impl<'a> Arm<'a> {
    /// An arm of this name.
    pub fn new(name: impl Into<String>, run: impl FnMut() -> Result<Report, String> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

/// What came of one arm.
#[derive(Debug)]
pub struct Measured {
    /// The arm's name.
    pub name: String,
    /// The rounds that count, in order.
    pub rounds: Vec<Report>,
    /// Rounds that the machine disturbed and that were repeated.
    pub voided: u32,
    /// Whether a round stayed disturbed however often it was repeated.
    pub is_busy: bool,
}

/// Median, least and most of some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// Of these values; `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: (low + high) / 2.0, least, most })
    }
}

/// A median with its least and most, for a table.
#[must_use]
pub fn cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.digits$} ({:.digits$}-{:.digits$})", spread.median, spread.least, spread.most),
    )
}

/// A median alone, for a table.
#[must_use]
pub fn median_cell(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.digits$}", spread.median))
}

impl Measured {
    /// The spread of a value of each round; `None` when some round has none.
    pub fn spread(&self, value: impl Fn(&Report) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds.iter().map(value).collect::<Option<Vec<f64>>>()?)
    }

    /// Packets received per second.
    #[must_use]
    pub fn pps(&self) -> Option<Spread> {
        self.spread(|report| Some(report.pps))
    }

    /// What held down more than half of the rounds, where it was not the receiver.
    #[must_use]
    pub fn limited_by(&self) -> Option<&str> {
        let limits = || self.rounds.iter().filter_map(|round| round.limited_by.as_deref());
        if limits().count() * 2 > self.rounds.len() { limits().next() } else { None }
    }

    /// Millions of packets received per second, for a table; what held them down where it was not the receiver, with what
    /// came at least.
    #[must_use]
    pub fn rate_cell(&self) -> String {
        let Some(Spread { median, least, most }) = self.pps() else { return "-".to_owned() };
        match self.limited_by() {
            Some(by) => format!("{by}-limited, over {:.2}", median / 1e6),
            None => format!("{:.2} ({:.2}-{:.2})", median / 1e6, least / 1e6, most / 1e6),
        }
    }

    /// How many rounds were voided, and whether one stayed disturbed all the same: for a table.
    #[must_use]
    pub fn void_cell(&self) -> String {
        format!("{}{}", self.voided, if self.is_busy { " busy" } else { "" })
    }

    /// CPU nanoseconds of the receiver per packet.
    #[must_use]
    pub fn cpu_ns(&self) -> Option<Spread> {
        self.spread(|report| report.cpu_ns_per_packet)
    }
}

/// What has to stand beside a figure made of these: nothing, or that the machine was too busy for it to count.
#[must_use]
pub fn busy_note(measured: &[Measured]) -> &'static str {
    if measured.iter().any(|arm| arm.is_busy) { BUSY } else { "" }
}

/// What a reader of a ratio of these arms has to know: which of them the client held down, and whether the machine was busy.
#[must_use]
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
///
/// # Errors
///
/// The first line of a run that failed, or of one whose books do not close, with the arm's name.
pub fn interleave(
    mut arms: Vec<Arm<'_>>,
    warm_up: u32,
    rounds: u32,
    may_void: bool,
) -> Result<Vec<Measured>, String> {
    let mut measured: Vec<Measured> = arms
        .iter()
        .map(|arm| Measured { name: arm.name.clone(), rounds: Vec::new(), voided: 0, is_busy: false })
        .collect();
    for round in 0..warm_up + rounds {
        for (arm, measured) in arms.iter_mut().zip(&mut measured) {
            let report = loop {
                let report = (arm.run)().map_err(|line| format!("{}: {line}", arm.name))?;
                report.check().map_err(|line| format!("{}: {line}", arm.name))?;
                if !may_void || round < warm_up || !report.is_void() {
                    break report;
                }
                if measured.voided == MAX_REPEATS {
                    measured.is_busy = true;
                    break report;
                }
                measured.voided += 1;
            };
            if round >= warm_up {
                measured.rounds.push(report);
            }
        }
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_stays_disturbed_is_said_beside_the_figure() {
        let arm = |is_busy| Measured { name: String::new(), rounds: Vec::new(), voided: 3, is_busy };
        assert_eq!(busy_note(&[arm(false), arm(false)]), "");
        assert!(busy_note(&[arm(false), arm(true)]).starts_with("machine busy"));
        assert_eq!((arm(false).void_cell(), arm(true).void_cell()), ("3".to_owned(), "3 busy".to_owned()));
    }

    #[test]
    fn a_rate_that_another_held_down_is_no_result() {
        let round = |limited_by: Option<&str>| {
            let mut report = Report::of(drumfire_tools::report::Counted::default());
            (report.pps, report.limited_by) = (1.5e6, limited_by.map(str::to_owned));
            report
        };
        let arm = |rounds| Measured { name: String::new(), rounds, voided: 0, is_busy: false };
        let client = arm(vec![round(Some("client"))]);
        assert_eq!(ratio_note(&[&client, &arm(vec![round(Some("sender"))])]), "client-limited: ");
        let half = arm(vec![round(None), round(Some("sender"))]);
        assert_eq!((half.limited_by(), half.rate_cell()), (None, "1.50 (1.50-1.50)".to_owned()));
        let most = arm(vec![round(None), round(Some("provider")), round(Some("provider"))]);
        assert_eq!(most.limited_by(), Some("provider"));
        assert_eq!(most.rate_cell(), "provider-limited, over 1.50");
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
        let spread = three.expect("three values");
        assert_eq!((spread.least, spread.most), (2.0, 8.0));
    }
}
