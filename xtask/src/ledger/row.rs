//! One run in the ledger: as the task says it, and as a line of the table.
//!
//! Figures that a run has not are left empty, and count as none.

use std::fmt;
use std::ops::Range;

/// The table's first line.
pub(super) const HEAD: &str = "| date | commit | command | seeds | hours | packets | faults | handshakes | hostile | audited | \
                               target | inputs | CPU s | planted | findings |";

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) date: String,
    pub(super) commit: String,
    pub(super) command: String,
    pub(super) seeds: Option<Range<u64>>,
    /// In hundredths.
    pub(super) hours: Option<u64>,
    pub(super) packets: Option<u64>,
    pub(super) faults: Option<u64>,
    pub(super) handshakes: Option<u64>,
    pub(super) hostile: Option<u64>,
    pub(super) audited: Option<u64>,
    pub(super) target: Option<String>,
    pub(super) inputs: Option<u64>,
    pub(super) cpu_seconds: Option<u64>,
    /// How many were found, of how many.
    pub(super) planted: Option<String>,
    pub(super) findings: u64,
}

impl Row {
    /// What a task says of a run, as `key=value`; what it says beyond the ledger's figures is left out.
    ///
    /// # Errors
    /// What is not as it should be.
    pub(super) fn said(date: &str, commit: &str, command: &str, said: &str) -> Result<Self, String> {
        let mut row = Self {
            date: date.to_owned(),
            commit: commit.to_owned(),
            command: command.to_owned(),
            ..Self::default()
        };
        for field in said.split_whitespace() {
            let (key, value) = field.split_once('=').ok_or_else(|| format!("`{field}` has no value"))?;
            row.set(key, value)?;
        }
        Ok(row)
    }

    /// A line of the table.
    ///
    /// # Errors
    /// What is not as it should be.
    pub(super) fn parse(line: &str) -> Result<Self, String> {
        let names = HEAD.trim_matches('|').split('|').map(str::trim);
        let values: Vec<&str> = line
            .trim()
            .strip_prefix('|')
            .and_then(|line| line.strip_suffix('|'))
            .unwrap_or("")
            .split('|')
            .collect();
        if values.len() != names.clone().count() {
            return Err(format!("has {} columns, and not {}", values.len(), names.count()));
        }
        let mut row = Self::default();
        for (name, value) in names.zip(values) {
            let value = value.trim();
            match name {
                "date" => row.date = value.to_owned(),
                "commit" => row.commit = value.to_owned(),
                "command" => row.command = value.trim_matches('`').to_owned(),
                "CPU s" => row.set("cpu", value)?,
                name => row.set(name, value)?,
            }
        }
        Ok(row)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        if value.is_empty() {
            return Ok(());
        }
        let bad = |why: std::num::ParseIntError| format!("{key} `{value}`: {why}");
        let number = |text: &str| text.parse::<u64>().map(Some).map_err(bad);
        match key {
            "seeds" => self.seeds = Some(crate::sim::seeds(value)?),
            "hours" => {
                let (whole, hundredths) = value.split_once('.').unwrap_or((value, "00"));
                if hundredths.len() != 2 {
                    return Err(format!("hours `{value}`: write hundredths"));
                }
                self.hours = number(&format!("{whole}{hundredths}"))?;
            }
            "packets" => self.packets = number(value)?,
            "faults" => self.faults = number(value)?,
            "handshakes" => self.handshakes = number(value)?,
            "hostile" => self.hostile = number(value)?,
            "audited" => self.audited = number(value)?,
            "target" => self.target = Some(value.to_owned()),
            "inputs" => self.inputs = number(value)?,
            // A system that does not tell it has none to count.
            "cpu" if value == "unknown" => {}
            "cpu" => self.cpu_seconds = number(value.trim_end_matches('s'))?,
            "planted" => self.planted = Some(value.to_owned()),
            "findings" => self.findings = number(value)?.unwrap_or(0),
            "coverage" | "corpus" => {}
            other if other.ends_with("_faults") => {}
            other => return Err(format!("there is no figure `{other}`")),
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let seeds =
            self.seeds.as_ref().map_or(String::new(), |seeds| format!("{}..{}", seeds.start, seeds.end));
        let values = [
            self.date.clone(),
            self.commit.clone(),
            format!("`{}`", self.command),
            seeds,
            self.hours.map_or(String::new(), hundredths),
            number(self.packets),
            number(self.faults),
            number(self.handshakes),
            number(self.hostile),
            number(self.audited),
            text(&self.target),
            number(self.inputs),
            number(self.cpu_seconds),
            text(&self.planted),
            self.findings.to_string(),
        ];
        write!(f, "| {} |", values.join(" | "))
    }
}

/// A number of hundredths as it is written.
pub(super) fn hundredths(number: u64) -> String {
    format!("{}.{:02}", number / 100, number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_as_many_columns_as_its_head_and_is_read_as_it_was_written() {
        let said = "seeds=7..9 hours=0.05 packets=3 cpu=1s findings=2";
        let row = Row::said("2026-01-02", "abc-dirty", "xtask sim --seeds 7..9", said).unwrap();
        let line = row.to_string();
        assert_eq!(line.matches('|').count(), HEAD.matches('|').count(), "{line}");
        assert_eq!(Row::parse(&line), Ok(row));
    }

    #[test]
    fn what_is_not_a_figure_is_refused() {
        for bad in ["seeds=9..7", "hours=1.5", "packets=many", "luck=3", "packets"] {
            assert!(Row::said("", "", "", bad).is_err(), "{bad}");
        }
        assert!(Row::parse("| 2026-01-02 | abc |").is_err());
        assert_eq!(Row::said("", "", "", "cpu=unknown coverage=7 lost_faults=2"), Ok(Row::default()));
    }
}
