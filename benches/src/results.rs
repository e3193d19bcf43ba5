//! The figures of a bench with their goals, for the table at the end and the JSON file.

use std::path::{Path, PathBuf};

use crate::bench::{AND, Options, file_suffix, given};
use crate::host as machine;
use crate::host::Cores;
use crate::rounds::{Extent, Measured, Rounds, Spread};
use drumfire_tools::host;
use drumfire_tools::plot::{self, Summary};
use drumfire_tools::report::{Flags, Report, Versions};
use drumfire_tools::table::{self, Align, TextTable};
use serde_json::{Value, json};

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

/// One figure of the bench.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    /// The name, with the parameters that belong to the figure.
    name: String,
    /// The value, or `None` where it could not be measured.
    value: Option<f64>,
    /// The unit. It is empty for counts.
    unit: &'static str,
    /// The bound that the value is compared with.
    goal: Goal,
    /// The least and the most of the rounds, where the value is their median.
    range: Option<(f64, f64)>,
    /// A remark for the reader.
    note: String,
}

impl Figure {
    /// Whether the goal is reached, or `None` without a goal or a value.
    fn is_reached(&self) -> Option<bool> {
        match (self.value?, self.goal) {
            (value, Goal::AtLeast(least)) => Some(value >= least),
            (value, Goal::AtMost(most)) => Some(value <= most),
            (_, Goal::Shown) => None,
        }
    }

    fn verdict(&self) -> &'static str {
        match (self.value.is_some(), self.is_reached()) {
            (false, _) => "not measured",
            (true, Some(true)) => "reached",
            (true, Some(false)) => "MISSED",
            (true, None) => "",
        }
    }
}

/// All results of a bench.
pub struct Results {
    name: &'static str,
    command: String,
    extent: &'static str,
    part: Option<String>,
    /// The folder of reports, where it is not that of the executable.
    folder: Option<PathBuf>,
    /// The arguments as they were typed.
    given: Vec<String>,
    pinning: Option<String>,
    seed: Option<String>,
    figures: Vec<Figure>,
    runs: Vec<Value>,
    rates: Vec<(&'static str, String, Vec<Vec<u64>>)>,
    pictures: Vec<(&'static str, Vec<u8>)>,
}

impl Results {
    /// No results yet.
    pub fn new(name: &'static str, options: &Options) -> Self {
        let (extent, part) = (options.extent.name(), options.only.clone());
        let given = given();
        let command = with_arguments(&format!("cargo bench --bench {name}"), &given);
        let (figures, runs, rates, pictures) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (pinning, seed, folder) = (None, None, None);
        Self { name, command, extent, part, folder, given, pinning, seed, figures, runs, rates, pictures }
    }

    /// Replaces the command in reports and their folder, for a program that `cargo bench` does not start.
    pub fn started_by(&mut self, command: &str, folder: PathBuf) {
        self.command = with_arguments(command, &self.given);
        self.folder = Some(folder);
    }

    /// Notes the cores of server and load.
    pub fn pinned(&mut self, cores: Cores) {
        self.pinned_as(&cores.to_string());
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

    /// The present end of the results, for [`Self::back_to`].
    pub(crate) fn mark(&self) -> [usize; 4] {
        [self.figures.len(), self.runs.len(), self.rates.len(), self.pictures.len()]
    }

    /// Removes all results since the mark.
    pub(crate) fn back_to(&mut self, mark: &[usize; 4]) {
        self.figures.truncate(mark[0]);
        self.runs.truncate(mark[1]);
        self.rates.truncate(mark[2]);
        self.pictures.truncate(mark[3]);
    }

    /// Adds a figure that is the median of rounds, with the least and the most of them.
    pub fn spread(
        &mut self,
        name: impl Into<String>,
        spread: Option<Spread>,
        unit: &'static str,
        goal: Goal,
        note: &str,
    ) {
        self.figure(name, spread.map(|spread| spread.median), unit, goal, note);
        if let Some(figure) = self.figures.last_mut() {
            figure.range = spread.map(|spread| (spread.least, spread.most));
        }
    }

    /// Adds a figure.
    pub fn figure(
        &mut self,
        name: impl Into<String>,
        value: Option<f64>,
        unit: &'static str,
        goal: Goal,
        note: &str,
    ) {
        let (name, note) = (name.into(), note.to_owned());
        self.figures.push(Figure { name, value, unit, goal, range: None, note });
    }

    /// The names of figures that missed their goal, or that have a goal and no value.
    pub fn missed(&self) -> Vec<String> {
        let judged = self.figures.iter().filter(|figure| figure.goal != Goal::Shown);
        judged.filter(|figure| figure.is_reached() != Some(true)).map(|figure| figure.name.clone()).collect()
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

    /// Adds the rates of single threads that were sampled together, with the quartiles of a box plot. `key` is part of the names of
    /// the file with comma-separated values and of the plot.
    pub fn rates(&mut self, key: &'static str, name: impl Into<String>, rates: &[Vec<u64>]) {
        self.rates.push((key, name.into(), rates.to_vec()));
    }

    /// Adds a picture. Its file has the name of the report with this ending.
    pub fn picture(&mut self, ending: &'static str, bytes: Vec<u8>) {
        self.pictures.push((ending, bytes));
    }

    /// The table of all figures.
    pub fn table(&self) -> String {
        let mut table = TextTable::new(&[
            ("figure", Align::Left),
            ("value", Align::Right),
            ("goal", Align::Right),
            ("", Align::Left),
        ]);
        for figure in &self.figures {
            let value = figure
                .value
                .map_or_else(|| "-".to_owned(), |value| format!("{} {}", number(value), figure.unit));
            let goal = match figure.goal {
                Goal::AtLeast(least) => format!(">= {}", number(least)),
                Goal::AtMost(most) => format!("<= {}", number(most)),
                Goal::Shown => String::new(),
            };
            let range = |(least, most)| format!("{} to {}", number(least), number(most));
            let range = figure.range.map_or_else(String::new, range);
            let words = [figure.verdict(), &range, &figure.note];
            let words = words.into_iter().filter(|word| !word.is_empty());
            table.row([figure.name.clone(), value, goal, words.collect::<Vec<_>>().join("; ")]);
        }
        table.render()
    }

    /// Writes the results as JSON and returns the path. Rates of threads are also written as comma-separated values and as a box plot.
    pub fn write(&self) -> Result<PathBuf, String> {
        let folder = self
            .folder
            .clone()
            .or_else(reports_folder)
            .ok_or("the target folder cannot be found from this program's path")?;
        self.write_in(&folder)
    }

    /// Writes the results into this folder and returns the path. A smoke run writes into its subfolder `quick`.
    pub fn write_in(&self, folder: &Path) -> Result<PathBuf, String> {
        // Smoke runs, runs of one part, and runs of other sizes do not replace the report of a whole run.
        let folder = if self.extent == Extent::Quick.name() { &folder.join("quick") } else { folder };
        let part = self.part.as_ref().map_or_else(String::new, |part| format!("-{}", part.replace(AND, "-")));
        let other = file_suffix(&self.given);
        let part = if other.is_empty() { part } else { format!("{part}-{other}") };
        let path = folder.join(format!("{}{part}.json", self.name));
        let fail = |error: std::io::Error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(folder).map_err(fail)?;
        let figures: Vec<Value> = self.figures.iter().map(figure_json).collect();
        let rates: Vec<Value> = self.rates.iter().map(|(_, name, rates)| rates_json(name, rates)).collect();
        for (key, _, rates) in &self.rates {
            let file = |ending| folder.join(format!("{}{part}-{key}.{ending}", self.name));
            std::fs::write(file("csv"), table::csv(rates)).map_err(fail)?;
            let svg =
                plot::render(rates, &host::machine(), &Flags::new()).map_err(|error| error.to_string())?;
            std::fs::write(file("svg"), svg).map_err(fail)?;
        }
        for (ending, bytes) in &self.pictures {
            let path = folder.join(format!("{}{part}-{ending}", self.name));
            std::fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let all = json!({
            "name": self.name,
            "command": self.command,
            "flags": { "extent": self.extent, "only": self.part, "given": self.given },
            "versions": Versions::of_this_build(),
            "build": machine::build(),
            "machine": host::machine(),
            "network": machine::network(),
            "pinning": self.pinning,
            "seed": self.seed,
            "figures": figures,
            "runs": self.runs,
            "rates": rates,
        });
        std::fs::write(&path, format!("{all:#}\n")).map_err(fail)?;
        Ok(path)
    }
}

/// A table with a row per arm. The last column is the number of void rounds.
pub struct ArmTable<'a, T> {
    arms: &'a [Rounds<T>],
    headings: Vec<(&'a str, Align)>,
    rows: Vec<Vec<String>>,
}

impl<'a, T> ArmTable<'a, T> {
    /// A table with the names of the arms under this heading.
    pub fn new(heading: &'a str, arms: &'a [Rounds<T>]) -> Self {
        let rows = arms.iter().map(|arm| vec![arm.name.clone()]).collect();
        Self { arms, headings: vec![(heading, Align::Left)], rows }
    }

    /// Adds a column.
    pub fn column(mut self, heading: &'a str, cell: impl Fn(&Rounds<T>) -> String) -> Self {
        self.headings.push((heading, Align::Right));
        for (row, arm) in self.rows.iter_mut().zip(self.arms) {
            row.push(cell(arm));
        }
        self
    }

    /// Prints the table.
    pub fn print(self) {
        let Self { headings, rows, .. } = self.column("void", Rounds::void_cell);
        let mut table = TextTable::new(&headings).indented(2);
        rows.into_iter().for_each(|row| table.row(row));
        println!("{}", table.render());
    }
}

impl ArmTable<'_, Report> {
    /// Prints the table with a further column: what limited each arm, if it was not the receiver.
    pub fn print_with_limits(self) {
        self.column("limit", Measured::limit_cell).print();
    }
}

/// A column of a table: its heading, and the cell of an arm.
pub type Column<'a> = (&'a str, Box<dyn Fn(&Measured) -> String + 'a>);

/// A column of a table.
pub fn column<'a>(heading: &'a str, cell: impl Fn(&Measured) -> String + 'a) -> Column<'a> {
    (heading, Box::new(cell))
}

/// Prints an [`ArmTable`] whose columns are collected first.
pub fn print_table(heading: &str, measured: &[Measured], columns: &[Column<'_>]) {
    let table = ArmTable::new(heading, measured);
    columns.iter().fold(table, |table, (heading, cell)| table.column(heading, cell)).print_with_limits();
}

fn figure_json(figure: &Figure) -> Value {
    let (bound, goal) = match figure.goal {
        Goal::AtLeast(least) => (Some("at_least"), Some(least)),
        Goal::AtMost(most) => (Some("at_most"), Some(most)),
        Goal::Shown => (None, None),
    };
    json!({
        "name": figure.name,
        "value": figure.value,
        "least": figure.range.map(|(least, _)| least),
        "most": figure.range.map(|(_, most)| most),
        "unit": figure.unit,
        "goal": goal,
        "bound": bound,
        "reached": figure.is_reached(),
        "note": figure.note,
    })
}

/// All rates as rows of run, thread, and packets per second, and the quartiles of each thread.
fn rates_json(name: &str, rates: &[Vec<u64>]) -> Value {
    let rows: Vec<Value> = rates
        .iter()
        .enumerate()
        .flat_map(|(run, rates)| rates.iter().enumerate().map(move |row| (run, row)))
        .map(|(run, (thread, pps))| json!({ "run": run, "thread": thread, "pps": pps }))
        .collect();
    let boxes = Summary::of_each_thread(rates);
    let sum: f64 = boxes.iter().map(|of_thread| of_thread.mean).sum();
    let boxes: Vec<Value> = boxes
        .iter()
        .enumerate()
        .map(|(thread, of_thread)| {
            json!({
                "thread": thread,
                "mean": of_thread.mean,
                "low": of_thread.low,
                "first_quartile": of_thread.first,
                "median": of_thread.median,
                "third_quartile": of_thread.third,
                "high": of_thread.high,
                "outliers": of_thread.outliers,
            })
        })
        .collect();
    json!({ "name": name, "unit": "pps", "sum_of_means": sum, "threads": boxes, "samples": rows })
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

    #[test]
    fn rates_keep_every_sample_and_have_a_box_for_each_thread() {
        let rates = rates_json("two", &[vec![10, 1], vec![20, 3], vec![60, 5]]);
        assert_eq!(rates["samples"].as_array().map(Vec::len), Some(6));
        assert_eq!(rates["samples"][3], json!({ "run": 1, "thread": 1, "pps": 3 }));
        assert_eq!(
            (&rates["threads"][0]["mean"], &rates["threads"][0]["median"]),
            (&json!(30.0), &json!(20.0))
        );
        assert_eq!((&rates["threads"][1]["low"], &rates["threads"][1]["high"]), (&json!(1.0), &json!(5.0)));
        assert_eq!(rates["sum_of_means"], json!(33.0));
    }

    #[test]
    fn goals_without_a_value_count_as_missed() {
        let mut results = Results::new("pps", &Options { extent: Extent::Quick, only: None });
        results.figure("reached", Some(1.0), "", Goal::AtMost(1.0), "");
        results.figure("missed", Some(1.1), "", Goal::AtMost(1.0), "");
        results.figure("not measured", None, "", Goal::AtLeast(1.0), "");
        results.figure("shown", None, "", Goal::Shown, "");
        assert_eq!(results.missed(), ["missed", "not measured"]);
    }

    #[test]
    fn results_after_a_mark_can_be_removed() {
        let mut results = Results::new("pps", &Options { extent: Extent::Quick, only: None });
        results.figure("before", Some(1.0), "", Goal::Shown, "");
        let mark = results.mark();
        results.figure("of books that do not close", Some(1.0), "", Goal::Shown, "");
        results.rates("rates", "of them", &[]);
        results.back_to(&mark);
        assert_eq!((results.figures.len(), results.rates.len()), (1, 0));
    }

    #[test]
    fn a_figure_of_rounds_has_the_least_and_the_most_of_them() {
        let mut results = Results::new("pps", &Options { extent: Extent::Quick, only: None });
        results.spread("of three", Spread::of([3.0, 1.0, 2.0]), "x", Goal::AtMost(2.0), "a note");
        let figure = figure_json(&results.figures[0]);
        assert_eq!(
            (&figure["value"], &figure["least"], &figure["most"]),
            (&json!(2.0), &json!(1.0), &json!(3.0))
        );
        assert!(results.table().contains("reached; 1 to 3; a note"), "{}", results.table());
    }

    #[test]
    fn a_smoke_run_does_not_replace_a_report() {
        let folder = std::env::temp_dir().join(format!("drumfire-figures-{}", std::process::id()));
        let write = |extent, given: &[&str]| {
            let mut results = Results::new("pps", &Options { extent, only: None });
            results.given = given.iter().map(|arg| (*arg).to_owned()).collect();
            results.write_in(&folder).unwrap()
        };
        let (smoke, whole) = (write(Extent::Quick, &["--quick"]), write(Extent::Default, &[]));
        let other = write(Extent::Default, &["--clients", "64"]);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((smoke, whole), (folder.join("quick/pps.json"), folder.join("pps.json")));
        assert_eq!(other, folder.join("pps-clients-64.json"));
    }

    #[test]
    fn a_figure_is_compared_with_its_goal() {
        let name = String::new;
        let figure = |value, goal| Figure { name: name(), value, unit: "", goal, range: None, note: name() };
        assert_eq!(figure(Some(1.5), Goal::AtLeast(1.5)).is_reached(), Some(true));
        assert_eq!(figure(Some(1.49), Goal::AtLeast(1.5)).is_reached(), Some(false));
        assert_eq!(figure(Some(150.0), Goal::AtMost(150.0)).is_reached(), Some(true));
        assert_eq!(figure(Some(150.1), Goal::AtMost(150.0)).is_reached(), Some(false));
        assert_eq!(figure(None, Goal::AtMost(1.0)).is_reached(), None);
        assert_eq!(figure(Some(1.0), Goal::Shown).is_reached(), None);
    }
}
