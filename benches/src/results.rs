//! The figures of a bench with their goals, for the table at the end and the JSON file.

use std::path::{Path, PathBuf};

use crate::bench::given;
use crate::host as machine;
use crate::rounds::{Extent, Measured, Spread, cell, median_cell};
use drumfire_tools::host;
use drumfire_tools::report::{Report, Versions};
use drumfire_tools::table::{Align, TextTable};
use serde::Serialize;
use serde_json::{Value, json};

/// The separator of the parts of a run in its report. Names contain spaces and commas.
const AND: &str = " + ";

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The figure should be at least this.
    AtLeast(f64),
    /// The figure should be at most this.
    AtMost(f64),
    /// The figure is only shown.
    Shown,
}

/// One figure of the bench, as the report has it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Figure {
    /// The name, with the parameters that belong to the figure.
    name: String,
    /// The value, or `None` where it could not be measured.
    value: Option<f64>,
    /// Minimum and maximum of the rounds, whose median is the value. They are the value itself where it is the only one.
    #[serde(rename = "least")]
    min: Option<f64>,
    #[serde(rename = "most")]
    max: Option<f64>,
    /// The unit. It is empty for counts.
    unit: &'static str,
    /// The bound that the value is compared with, and its kind.
    goal: Option<f64>,
    bound: Option<&'static str>,
    /// Whether the goal is reached, or `None` without a goal or a value.
    reached: Option<bool>,
    /// A remark for the reader.
    note: String,
}

impl Figure {
    /// The cells of the table.
    fn cells(&self) -> [String; 4] {
        let value =
            self.value.map_or_else(|| "-".to_owned(), |value| format!("{} {}", number(value), self.unit));
        let sign = if self.bound == Some("at_most") { "<=" } else { ">=" };
        let goal = self.goal.map_or_else(String::new, |goal| format!("{sign} {}", number(goal)));
        let verdict = match (self.value, self.reached) {
            (None, _) => "not measured",
            (_, Some(true)) => "reached",
            (_, Some(false)) => "MISSED",
            (_, None) => "",
        };
        let range = self.min.zip(self.max).filter(|(min, max)| min < max);
        let range =
            range.map_or_else(String::new, |(min, max)| format!("{} to {}", number(min), number(max)));
        let words = [verdict, &range, &self.note].into_iter().filter(|word| !word.is_empty());
        let words = words.collect::<Vec<_>>().join("; ");
        [self.name.clone(), value, goal, words]
    }
}

/// All results of a bench.
#[derive(Clone)]
pub struct Results {
    name: &'static str,
    command: String,
    extent: Extent,
    part: Option<String>,
    size: Option<String>,
    /// The folder of reports, where it is not that of the executable.
    folder: Option<PathBuf>,
    /// The arguments as they were typed.
    given: Vec<String>,
    pinning: Option<String>,
    seed: Option<String>,
    figures: Vec<Figure>,
    runs: Vec<Value>,
}

impl Results {
    /// No results yet of these parts, or of all parts. `size` is part of the names of files.
    pub fn new(name: &'static str, extent: Extent, only: &[String], size: Option<String>) -> Self {
        let part = Some(only.join(AND)).filter(|part| !part.is_empty());
        let given = given();
        let command = with_arguments(&format!("cargo bench --bench {name}"), &given);
        let (figures, runs) = (Vec::new(), Vec::new());
        let (pinning, seed, folder) = (None, None, None);
        Self { name, command, extent, part, size, folder, given, pinning, seed, figures, runs }
    }

    /// Replaces the command in reports and their folder, for a program that `cargo bench` does not start.
    pub fn started_by(&mut self, command: &str, folder: PathBuf) {
        self.command = with_arguments(command, &self.given);
        self.folder = Some(folder);
    }

    /// Notes in words which threads are pinned where, and prints it.
    pub fn pinned_as(&mut self, words: &str) {
        println!("pinned    {words}");
        self.pinning = Some(words.to_owned());
    }

    /// Notes in words the seed of everything random, and prints it.
    pub fn seeded(&mut self, words: &str) {
        println!("seed      {words}");
        self.seed = Some(words.to_owned());
    }

    /// Adds a figure. Its value is a number, or the median of rounds with their minimum and maximum.
    pub fn figure(
        &mut self,
        name: impl Into<String>,
        value: Option<impl Into<Spread>>,
        unit: &'static str,
        goal: Goal,
        note: &str,
    ) {
        let (value, min, max) = match value.map(Into::into) {
            Some(Spread { median, min, max }) => (Some(median), Some(min), Some(max)),
            None => (None, None, None),
        };
        let (goal, bound, reached) = match goal {
            Goal::AtLeast(bound) => (Some(bound), Some("at_least"), value.map(|value| value >= bound)),
            Goal::AtMost(bound) => (Some(bound), Some("at_most"), value.map(|value| value <= bound)),
            Goal::Shown => (None, None, None),
        };
        let (name, note) = (name.into(), note.to_owned());
        self.figures.push(Figure { name, value, min, max, unit, goal, bound, reached, note });
    }

    /// The names of figures that missed their goal, or that have a goal and no value.
    pub fn missed(&self) -> Vec<String> {
        let judged = self.figures.iter().filter(|figure| figure.goal.is_some());
        judged.filter(|figure| figure.reached != Some(true)).map(|figure| figure.name.clone()).collect()
    }

    /// Adds the report of a run, under the name of its row.
    pub fn run(&mut self, name: &str, report: &Report) -> Result<(), String> {
        let mut report = report.clone();
        report.name = format!("{} {name}", self.name);
        report.command.clone_from(&self.command);
        report.check().map_err(|error| error.to_string())?;
        self.runs.push(serde_json::to_value(&report).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Adds the reports of all rounds that count, under the name of the part and of each arm.
    pub fn rounds<'a>(
        &mut self,
        part: &str,
        measured: impl IntoIterator<Item = &'a Measured>,
    ) -> Result<(), String> {
        for arm in measured {
            for round in &arm.rounds {
                self.run(&format!("{part}: {}", arm.name), round)?;
            }
        }
        Ok(())
    }

    /// The table of all figures.
    pub fn table(&self) -> String {
        let mut table = TextTable::new(&[
            ("figure", Align::Left),
            ("value", Align::Right),
            ("goal", Align::Right),
            ("", Align::Left),
        ]);
        self.figures.iter().for_each(|figure| table.row(figure.cells()));
        table.render()
    }

    /// Writes the results as JSON, and returns the path.
    pub fn write(&self) -> Result<PathBuf, String> {
        let folder = self.folder.clone().or_else(reports_folder);
        self.write_in(&folder.ok_or("the target folder cannot be found from this program's path")?)
    }

    /// Writes the results into this folder and returns the path. A smoke run writes into its subfolder `quick`.
    fn write_in(&self, folder: &Path) -> Result<PathBuf, String> {
        // Smoke runs, runs of one part, and runs of other sizes do not replace the report of a whole run.
        let folder = if self.extent == Extent::Quick { &folder.join("quick") } else { folder };
        let part = self.part.as_ref().map(|part| part.replace(AND, "-"));
        let stem: Vec<String> =
            [self.name.to_owned()].into_iter().chain(part).chain(self.size.clone()).collect();
        let path = folder.join(format!("{}.json", stem.join("-")));
        let all = json!({
            "name": self.name,
            "command": self.command,
            "flags": { "extent": self.extent.name(), "only": self.part, "given": self.given },
            "versions": Versions::of_this_build(),
            "build": machine::build(),
            "machine": host::machine(),
            "network": machine::network(),
            "pinning": self.pinning,
            "seed": self.seed,
            "figures": self.figures,
            "runs": self.runs,
            // The reader of reports requires the field.
            "rates": [],
        });
        let written =
            std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, format!("{all:#}\n")));
        written.map_err(|error| format!("{}: {error}", path.display())).map(|()| path)
    }
}

/// A table with a row per arm. The last column is the number of void rounds.
pub struct ArmTable<'a> {
    arms: &'a [Measured],
    headings: Vec<(&'a str, Align)>,
    rows: Vec<Vec<String>>,
}

impl<'a> ArmTable<'a> {
    /// A table with the names of the arms under this heading.
    pub fn new(heading: &'a str, arms: &'a [Measured]) -> Self {
        let rows = arms.iter().map(|arm| vec![arm.name.clone()]).collect();
        Self { arms, headings: vec![(heading, Align::Left)], rows }
    }

    /// Adds a column.
    pub fn column(mut self, heading: &'a str, cell: impl Fn(&Measured) -> String) -> Self {
        self.headings.push((heading, Align::Right));
        for (row, arm) in self.rows.iter_mut().zip(self.arms) {
            row.push(cell(arm));
        }
        self
    }

    /// Prints the table.
    pub fn print(self) {
        let Self { headings, rows, .. } = self.column("void", Measured::void_cell);
        let mut table = TextTable::new(&headings).indented(2);
        rows.into_iter().for_each(|row| table.row(row));
        println!("{}", table.render());
    }

    /// A table of echoes: rate, CPU, latency, the share of a core of both ends, and lost messages.
    pub fn of_echoes(heading: &'a str, arms: &'a [Measured]) -> Self {
        Self::new(heading, arms)
            .column("messages/s", |arm| median_cell(arm.pps(), 0))
            .column("CPU ns/message", |arm| cell(arm.cpu_ns(), 0))
            .column("p50 us", |arm| median_cell(arm.micros(|latency| latency.p50), 0))
            .column("p90 us", |arm| median_cell(arm.micros(|latency| latency.p90), 0))
            .column("p99 us", |arm| median_cell(arm.micros(|latency| latency.p99), 0))
            .column("p99.9 us", |arm| median_cell(arm.micros(|latency| latency.p999), 0))
            .values(&[("core %", 1), ("client %", 1)])
            .column("lost", |arm| format!("{:.0}", arm.sum("lost")))
    }

    /// Adds columns of further values, each with its number of digits after the point.
    pub fn values(self, values: &[(&'a str, usize)]) -> Self {
        values.iter().fold(self, |table, (name, digits)| {
            table.column(name, |arm| median_cell(arm.value(name), *digits))
        })
    }

    /// Prints the table with a further column: the limit of each arm, if it was not the receiver.
    pub fn print_with_limits(self) {
        let limit = |arm: &Measured| arm.limited_by().map_or_else(String::new, |by| format!("{by}-limited"));
        self.column("limit", limit).print();
    }
}

/// Appends the arguments of the bench to its command.
fn with_arguments(command: &str, given: &[String]) -> String {
    if given.is_empty() { command.to_owned() } else { format!("{command} -- {}", given.join(" ")) }
}

/// Formats a value with about three significant digits.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude >= 1_000.0 || (magnitude.fract() == 0.0 && magnitude < 1e9) {
        format!("{value:.0}")
    } else if magnitude >= 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Returns `target/reports`. The executable is in `target/<profile>`, or in its folder `deps` when it is a bench.
fn reports_folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let profile = if folder.ends_with("deps") { folder.parent()? } else { folder };
    Some(profile.parent()?.join("reports"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(extent: Extent, size: Option<&str>) -> Results {
        Results::new("pps", extent, &[], size.map(str::to_owned))
    }

    #[test]
    fn a_goal_is_reached_at_its_bound_and_missed_without_a_value() {
        let mut results = results(Extent::Quick, None);
        for (name, value, goal) in [
            ("at least", Some(1.5), Goal::AtLeast(1.5)),
            ("too little", Some(1.49), Goal::AtLeast(1.5)),
            ("at most", Some(150.0), Goal::AtMost(150.0)),
            ("too much", Some(150.1), Goal::AtMost(150.0)),
            ("not measured", None, Goal::AtLeast(1.0)),
            ("shown", None, Goal::Shown),
        ] {
            results.figure(name, value, "", goal, "");
        }
        assert_eq!(results.missed(), ["too little", "too much", "not measured"]);
    }

    #[test]
    fn a_figure_of_rounds_has_their_minimum_and_maximum() {
        let mut results = results(Extent::Quick, None);
        results.figure("of three", Spread::of([3.0, 1.0, 2.0]), "x", Goal::AtMost(2.0), "a note");
        let figure = serde_json::to_value(&results.figures[0]).expect("a figure");
        let expected = json!({
            "name": "of three", "value": 2.0, "least": 1.0, "most": 3.0, "unit": "x", "goal": 2.0, "bound": "at_most",
            "reached": true, "note": "a note",
        });
        assert_eq!(figure, expected);
        assert!(results.table().contains("reached; 1 to 3; a note"), "{}", results.table());
    }

    #[test]
    fn a_smoke_run_does_not_replace_a_report() {
        let folder = std::env::temp_dir().join(format!("drumfire-figures-{}", std::process::id()));
        let write = |extent, size| results(extent, size).write_in(&folder).unwrap();
        let (smoke, whole) = (write(Extent::Quick, None), write(Extent::Default, None));
        let other = write(Extent::Default, Some("clients-64"));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((smoke, whole), (folder.join("quick/pps.json"), folder.join("pps.json")));
        assert_eq!(other, folder.join("pps-clients-64.json"));
    }
}
