//! A run in the ledger that is neither the simulator's nor the fuzzer's: what it was, what it counted, how long it took and how it
//! ended.

use std::fmt;

use crate::run::Stop;

/// The table's first line.
pub(super) const HEAD: &str = "| date | commit | command | what | count | wall s | result |";

/// What can be counted; those with a point in them are percent, and the others whole numbers.
const COUNTS: [&str; 14] = [
    "packets",
    "seconds",
    "rebinds",
    "restarts",
    "panics",
    "models",
    "interleavings",
    "schedules",
    "seed",
    "seeds",
    "strategy_seeds",
    "packages",
    "lines",
    "regions",
];

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All that had to hold did.
    Held,
    /// Something did not.
    Missed,
    /// What was done and judged held, and the machine could not do all, or the run was too short to judge all.
    InPart,
}

impl Ended {
    const ALL: [Self; 3] = [Self::Held, Self::Missed, Self::InPart];

    /// How a task ended that does all or nothing.
    pub(crate) const fn of(outcome: &Result<(), Stop>) -> Self {
        if outcome.is_ok() { Self::Held } else { Self::Missed }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Missed => "missed",
            Self::InPart => "held in part",
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Other {
    pub(super) date: String,
    pub(super) commit: String,
    pub(super) command: String,
    /// `C1`, `loom` and so on.
    pub(super) what: String,
    pub(super) counts: Vec<(String, String)>,
    pub(super) wall_seconds: u64,
    pub(super) ended: Ended,
}

impl Other {
    /// What a task says of a run.
    ///
    /// # Errors
    /// What is not as it should be.
    pub(super) fn said(date: &str, commit: &str, run: &super::Run<'_>) -> Result<Self, String> {
        Ok(Self {
            date: date.to_owned(),
            commit: commit.to_owned(),
            command: run.command.to_owned(),
            what: run.what.to_owned(),
            counts: counts_in(run.counts)?,
            wall_seconds: run.wall.as_secs(),
            ended: run.ended,
        })
    }

    /// A line of the table.
    ///
    /// # Errors
    /// What is not as it should be.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let inner = line.trim().strip_prefix('|').and_then(|line| line.strip_suffix('|')).unwrap_or("");
        let values: Vec<&str> = inner.split('|').map(str::trim).collect();
        let [date, commit, command, what, counts, wall, result] = values[..] else {
            return Err(format!("has {} columns, and not {}", values.len(), HEAD.matches('|').count() - 1));
        };
        let ended = Ended::ALL.into_iter().find(|ended| ended.word() == result);
        Ok(Self {
            date: date.to_owned(),
            commit: commit.to_owned(),
            command: command.trim_matches('`').to_owned(),
            what: what.to_owned(),
            counts: counts_in(counts)?,
            wall_seconds: wall.parse().map_err(|why| format!("wall s `{wall}`: {why}"))?,
            ended: ended.ok_or_else(|| format!("there is no result `{result}`"))?,
        })
    }

    /// A count of it, as it is written.
    pub(super) fn count(&self, key: &str) -> Option<&str> {
        self.counts.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// A count of it that is a whole number.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.count(key)?.parse().ok()
    }
}

/// Reads counts that a task says as `key=value`, with spaces between them.
///
/// # Errors
/// What is not as it should be.
pub(super) fn counts_in(said: &str) -> Result<Vec<(String, String)>, String> {
    let count = |field: &str| {
        let (key, value) = field.split_once('=').ok_or_else(|| format!("`{field}` has no value"))?;
        let is_number = value.parse::<f64>().is_ok_and(|number| number.is_finite() && number >= 0.0);
        match (COUNTS.contains(&key), is_number) {
            (true, true) => Ok((key.to_owned(), value.to_owned())),
            (false, _) => Err(format!("there is no count `{key}`")),
            (_, false) => Err(format!("{key} `{value}` is no number")),
        }
    };
    said.split_whitespace().map(count).collect()
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, commit, command, what, counts, wall_seconds, ended } = self;
        let counts: Vec<_> = counts.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let counts = counts.join(" ");
        write!(f, "| {date} | {commit} | `{command}` | {what} | {counts} | {wall_seconds} | {ended} |")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let line = "| 2026-01-02 | abc-dirty | `xtask chaos C1` | C1 | packets=7 seconds=180 | 181 | held |";
        let other = Other::parse(line).unwrap();
        assert_eq!(
            (other.number("packets"), other.number("panics"), other.wall_seconds),
            (Some(7), None, 181)
        );
        assert_eq!(other.to_string(), line);
        let line = "| 2026-01-02 | abc | `xtask coverage` | coverage | lines=93.21 regions=95.00 | 9 | held in part |";
        let other = Other::parse(line).unwrap();
        assert_eq!((other.count("lines"), other.ended), (Some("93.21"), Ended::InPart));
        assert_eq!(other.to_string(), line);
    }

    #[test]
    fn what_is_no_count_and_no_result_is_refused() {
        for bad in ["luck=3", "packets", "packets=many", "packets=-1", "packets=NaN"] {
            assert!(counts_in(bad).is_err(), "{bad}");
        }
        for bad in [
            "| 2026-01-02 | abc | `x` | C1 |  | 1 | fine |",
            "| 2026-01-02 | abc | `x` | C1 |  | soon | held |",
            "| 2026-01-02 | abc |",
        ] {
            assert!(Other::parse(bad).is_err(), "{bad}");
        }
    }
}
