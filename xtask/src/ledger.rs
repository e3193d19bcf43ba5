//! `cargo xtask ledger`: prints the sums of all nights in the ledger.
//!
//! The ledger is a file with a table of nights and a table of findings. A task with `--ledger` adds its figures to the last night,
//! or to a new one when the last night was another commit. `cargo xtask nightly` begins a new one. Rows are only added to, and tidy
//! checks that the file is what this module writes.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use crate::files;
use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

/// The file, below the root.
pub(crate) const PATH: &str = "crates/sim/docs/LEDGER.md";

const HEAD: &str = "# Ledger

The long runs that look for faults: a row for each run of `cargo xtask nightly`, and a line for each finding.
`cargo xtask ledger` prints the sums of all rows.

| column | meaning |
| --- | --- |
| seeds, next seed | seeds of the simulator, and the first seed of the next night |
| hours | hours of virtual time that simulated clients were connected |
| packets, faults | packets of simulated connections; faults of links, endpoints, clocks, and addresses |
| hostile | datagrams of simulated attackers without keys |
| audited | packets whose key and packet number were compared with all others of their world |
| inputs, least | inputs of all fuzz targets, and of the target with the fewest |
| planted, mutants | found of the planted bugs; caught of the mutants |
| findings | failed runs, one line each in the second table |
";

const FINDINGS: &str = "| date | commit | command | finding |";

/// How a new figure changes the cell of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// A sum with this number of digits after the point.
    Sum(usize),
    Most,
    Least,
    /// The last figure replaces earlier ones. It is a text.
    Last,
}

/// The columns after date and commit. The tasks use the same names for their figures, except `next seed` and `least`.
const COLUMNS: [(&str, Rule); 12] = [
    ("seeds", Rule::Sum(0)),
    ("next seed", Rule::Most),
    ("hours", Rule::Sum(2)),
    ("packets", Rule::Sum(0)),
    ("faults", Rule::Sum(0)),
    ("hostile", Rule::Sum(0)),
    ("audited", Rule::Sum(0)),
    ("inputs", Rule::Sum(0)),
    ("least", Rule::Least),
    ("planted", Rule::Last),
    ("mutants", Rule::Last),
    ("findings", Rule::Sum(0)),
];

/// Figures that the tasks print and the ledger leaves out.
const OMITTED: [&str; 4] = ["handshakes", "target", "coverage", "corpus"];

/// A row of the first table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Night {
    date: String,
    commit: String,
    /// By column. An empty cell has no figure.
    cells: [String; COLUMNS.len()],
}

/// A row of the second table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    date: String,
    commit: String,
    command: String,
    /// The seed, the target, or `failed`.
    what: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Ledger {
    nights: Vec<Night>,
    findings: Vec<Finding>,
}

/// Prints the sums.
pub(crate) fn run() -> Result<(), Stop> {
    let ledger = Ledger::load(&Workspace::load()?.root)?;
    let sums = ledger.sums().map_err(Stop::Failed)?;
    for ((name, _), sum) in COLUMNS.iter().zip(&sums.cells).filter(|(_, sum)| !sum.is_empty()) {
        println!("{name:9}  {sum}");
    }
    Ok(())
}

/// Begins the row of a new night.
pub(crate) fn begin(root: &Path) -> Result<(), Stop> {
    let mut ledger = Ledger::load(root)?;
    ledger.nights.push(Night { date: today(root)?, commit: commit(root)?, ..Night::default() });
    ledger.save(root)
}

/// Prints the figures of a run, a text of `key=value`, and adds them to the file if `is_kept`.
pub(crate) fn note(root: &Path, command: &str, figures: &str, is_kept: bool) -> Result<(), Stop> {
    let (date, commit) = (today(root)?, commit(root)?);
    let mut ledger = if is_kept { Ledger::load(root)? } else { Ledger::default() };
    println!("ledger: {figures} commit={commit}");
    ledger.add(&date, &commit, command, figures).map_err(|why| Stop::failed(format!("ledger: {why}")))?;
    if is_kept { ledger.save(root) } else { Ok(()) }
}

/// Returns the number of findings.
pub(crate) fn findings(root: &Path) -> Result<usize, Stop> {
    Ok(Ledger::load(root)?.findings.len())
}

/// Returns the first seed that was not tried yet.
pub(crate) fn next_seed(root: &Path) -> Result<u64, Stop> {
    let sums = Ledger::load(root)?.sums().map_err(Stop::Failed)?;
    Ok(sums.cell("next seed").parse().unwrap_or(0))
}

/// Checks the text of the file. An error has the line and the reason.
pub(crate) fn check(text: &str) -> Result<(), (usize, String)> {
    let written = Ledger::parse(text)?.to_string();
    if written == text {
        return Ok(());
    }
    let same = written.lines().zip(text.lines()).take_while(|(one, other)| one == other).count();
    Err((same + 1, "is not what `cargo xtask` writes".to_owned()))
}

/// Parses `A..B`, the seeds from A up to and without B, or returns the mistake in the text.
pub(crate) fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write it as A..B, from A up to, and without, B")?;
    let number = |text: &str| text.parse::<u64>().map_err(|why| format!("`{text}`: {why}"));
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err("there is no seed in it".to_owned()) } else { Ok(range) }
}

fn today(root: &Path) -> Result<String, Stop> {
    Ok(CommandLine::new("date", &["-u", "+%Y-%m-%d"]).output(root)?.trim().to_owned())
}

/// Returns the commit, marked when the files differ from it. The ledger itself does not count, because the task before may have
/// written it.
fn commit(root: &Path) -> Result<String, Stop> {
    let commit = CommandLine::new("git", &["describe", "--always"]).output(root)?;
    let exclude = format!(":(top,exclude){PATH}");
    let status = ["status", "--porcelain", "--untracked-files=no", "--", ":(top)", &exclude];
    let changed = CommandLine::new("git", &status).output(root)?;
    let mark = if changed.is_empty() { "" } else { "-dirty" };
    Ok(format!("{}{mark}", commit.trim()))
}

impl Ledger {
    fn load(root: &Path) -> Result<Self, Stop> {
        Self::parse(&files::text(&root.join(PATH))?)
            .map_err(|(line, why)| Stop::failed(format!("{PATH}:{line}: {why}")))
    }

    fn save(&self, root: &Path) -> Result<(), Stop> {
        files::write(&root.join(PATH), self.to_string())
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        Ok(Self {
            nights: table(text, &nights_head(), Night::parse)?,
            findings: table(text, FINDINGS, Finding::parse)?,
        })
    }

    /// Adds the figures of one run.
    fn add(&mut self, date: &str, commit: &str, command: &str, figures: &str) -> Result<(), String> {
        if self.nights.last().is_none_or(|night| night.commit != commit) {
            let (date, commit) = (date.to_owned(), commit.to_owned());
            self.nights.push(Night { date, commit, ..Night::default() });
        }
        let (mut is_finding, mut what) = (false, Vec::new());
        for figure in figures.split_whitespace() {
            let (key, value) = figure.split_once('=').ok_or_else(|| format!("`{figure}` has no value"))?;
            if let Some(night) = self.nights.last_mut() {
                night.add(key, value)?;
            }
            if key == "findings" {
                is_finding = value != "0";
            } else {
                what.push(figure);
            }
        }
        if is_finding {
            let what = if what.is_empty() { "failed".to_owned() } else { what.join(" ") };
            let [date, commit, command] = [date, commit, command].map(|cell| cell.replace('|', "/"));
            self.findings.push(Finding { date, commit, command, what });
        }
        Ok(())
    }

    /// Returns all nights as one.
    fn sums(&self) -> Result<Night, String> {
        let mut sums = Night::default();
        for night in &self.nights {
            for ((name, _), cell) in COLUMNS.iter().zip(&night.cells).filter(|(_, cell)| !cell.is_empty()) {
                sums.put(name, cell)?;
            }
        }
        Ok(sums)
    }
}

impl Night {
    fn parse(cells: &[&str]) -> Result<Self, String> {
        let [date, commit, cells @ ..] = cells else { return Err("has no commit".to_owned()) };
        let mut night = Self { date: (*date).to_owned(), commit: (*commit).to_owned(), ..Self::default() };
        if cells.len() != COLUMNS.len() {
            return Err(format!("has {} figures instead of {}", cells.len(), COLUMNS.len()));
        }
        for ((name, _), cell) in COLUMNS.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
            night.put(name, cell)?;
        }
        Ok(night)
    }

    fn cell(&self, name: &str) -> &str {
        let at = COLUMNS.iter().position(|(column, _)| *column == name);
        at.map_or("", |at| &self.cells[at])
    }

    /// Adds a figure of a task.
    fn add(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "seeds" => {
                let seeds = parse_seeds(value)?;
                self.put("seeds", &(seeds.end - seeds.start).to_string())?;
                self.put("next seed", &seeds.end.to_string())
            }
            "inputs" => {
                self.put("inputs", value)?;
                self.put("least", value)
            }
            key if OMITTED.contains(&key) || key.ends_with("_faults") => Ok(()),
            key => self.put(key, value),
        }
    }

    /// Combines a cell with a new figure.
    fn put(&mut self, name: &str, value: &str) -> Result<(), String> {
        let at = COLUMNS.iter().position(|(column, _)| *column == name);
        let at = at.ok_or_else(|| format!("there is no figure `{name}`"))?;
        let (rule, cell) = (COLUMNS[at].1, &mut self.cells[at]);
        if rule == Rule::Last {
            value.clone_into(cell);
            return Ok(());
        }
        let digits = if let Rule::Sum(digits) = rule { digits } else { 0 };
        // Counts are far below 2^53, so that a float holds each of them exactly.
        let number = |text: &str| {
            let is_exact =
                |number: &f64| (0.0..1e15).contains(number) && format!("{number:.digits$}") == text;
            let number = text.parse::<f64>().ok().filter(is_exact);
            number.ok_or_else(|| {
                format!("{name}: `{text}` is not a number with {digits} digits after the point")
            })
        };
        let new = number(value)?;
        let old = if cell.is_empty() { None } else { Some(number(cell)?) };
        let combined = match (rule, old) {
            (Rule::Most, Some(old)) => old.max(new),
            (Rule::Least, Some(old)) => old.min(new),
            (_, old) => old.unwrap_or(0.0) + new,
        };
        *cell = format!("{combined:.digits$}");
        Ok(())
    }
}

impl Finding {
    fn parse(cells: &[&str]) -> Result<Self, String> {
        let [date, commit, command, what] = cells else {
            return Err(format!("has {} cells instead of 4", cells.len()));
        };
        let [date, commit, what] = [date, commit, what].map(|cell| (*cell).to_owned());
        Ok(Self { date, commit, command: command.trim_matches('`').to_owned(), what })
    }
}

/// Reads the rows of the table with this head.
fn table<T>(
    text: &str,
    head: &str,
    row: impl Fn(&[&str]) -> Result<T, String>,
) -> Result<Vec<T>, (usize, String)> {
    let lines = text.lines().zip(1..).skip_while(|(line, _)| *line != head).skip(2);
    let rows = lines.take_while(|(line, _)| line.starts_with('|'));
    rows.map(|(line, number)| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        row(&cells).map_err(|why| (number, why))
    })
    .collect()
}

fn nights_head() -> String {
    let names: Vec<&str> = ["date", "commit"].into_iter().chain(COLUMNS.map(|(name, _)| name)).collect();
    format!("| {} |", names.join(" | "))
}

/// Returns the line below the head of a table.
fn rule(head: &str) -> String {
    "| --- ".repeat(head.matches(" | ").count() + 1) + "|"
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nights = nights_head();
        writeln!(f, "{HEAD}\n## Nights\n\n{nights}\n{}", rule(&nights))?;
        for Night { date, commit, cells } in &self.nights {
            writeln!(f, "| {date} | {commit} | {} |", cells.join(" | "))?;
        }
        writeln!(f, "\n## Findings\n\n{FINDINGS}\n{}", rule(FINDINGS))?;
        for Finding { date, commit, command, what } in &self.findings {
            writeln!(f, "| {date} | {commit} | `{command}` | {what} |")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        let simulated = "hours=221.97 packets=3000 faults=40 handshakes=17 hostile=9 audited=250 lost_faults=4 findings=0";
        for (commit, figures) in [
            ("abc", format!("seeds=7000..9000 {simulated}")),
            ("abc", format!("seeds=0..50 {simulated}")),
            ("abc", "target=F1 inputs=5000 coverage=12 corpus=3 findings=0".to_owned()),
            ("abc", "target=F2 inputs=70 coverage=12 corpus=3 findings=0".to_owned()),
            ("abc", "planted=24/24 findings=0".to_owned()),
            ("def", "seeds=17..18 findings=1".to_owned()),
            ("def", "findings=1".to_owned()),
        ] {
            ledger.add("2026-01-02", commit, "xtask it --or|that", &figures).unwrap();
        }
        ledger
    }

    #[test]
    fn figures_of_one_commit_share_a_row_and_findings_have_lines() {
        let text = ledger().to_string();
        for line in [
            "| 2026-01-02 | abc | 2050 | 9000 | 443.94 | 6000 | 80 | 18 | 500 | 5070 | 70 | 24/24 |  | 0 |",
            "| 2026-01-02 | def | 1 | 18 |  |  |  |  |  |  |  |  |  | 2 |",
            "| 2026-01-02 | def | `xtask it --or/that` | seeds=17..18 |",
            "| 2026-01-02 | def | `xtask it --or/that` | failed |",
        ] {
            assert!(text.lines().any(|other| other == line), "{text}");
        }
        let sums = ledger().sums().unwrap();
        assert_eq!(
            (sums.cell("seeds"), sums.cell("next seed"), sums.cell("hours")),
            ("2051", "9000", "443.94")
        );
    }

    #[test]
    fn a_written_ledger_is_read_back() {
        let text = ledger().to_string();
        assert_eq!(Ledger::parse(&text), Ok(ledger()));
        assert_eq!(check(&text), Ok(()));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let text = ledger().to_string();
        for (good, bad) in
            [("| 443.94 |", "| 443.9 |"), ("| 6000 |", "| many |"), ("| 18 | 500 |", "| 500 |")]
        {
            let line = text.lines().zip(1..).find(|(line, _)| line.contains(good)).unwrap().1;
            assert_eq!(check(&text.replacen(good, bad, 1)).unwrap_err().0, line, "{bad}");
        }
        assert!(check("").is_err());
    }

    #[test]
    fn a_range_of_seeds_has_two_ends_and_at_least_one_seed() {
        assert_eq!((parse_seeds("0..1000"), parse_seeds("17..18")), (Ok(0..1_000), Ok(17..18)));
        for bad in ["", "7", "7..", "..7", "7..7", "8..7", "a..b", "0..=7", "-1..2"] {
            assert!(parse_seeds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_figures_are_refused() {
        for bad in ["seeds=9..7", "hours=1.5", "packets=many", "packets=-1", "hours=NaN", "luck=3", "packets"]
        {
            assert!(Ledger::default().add("", "", "", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_projects_ledger_is_whole() {
        let root = files::samples::root();
        assert!(next_seed(root).unwrap() >= 302_025);
        let found = Ledger::load(root).unwrap().sums().unwrap().cell("findings").to_owned();
        assert_eq!(findings(root).unwrap().to_string(), found);
    }
}
