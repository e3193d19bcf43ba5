//! `cargo xtask report`: renders every `target/reports/*.json` as one page, `target/reports/index.html`. The page needs no script and
//! no network. With `--bless`, the figures of complete runs also replace their sections in `benches/docs/NUMBERS.md`.
//!
//! A smoke run (`target/reports/quick`) is shown, and marked, where there is no other run. This module measures nothing, and each
//! bench has compared its own figures with their goals.

pub(crate) mod results;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

use self::results::{Extent, Figure, Machine, Results};
use crate::files;
use crate::run::{CommandLine, Stop, fail_with};
use crate::workspace::Workspace;

/// The reports that are expected, in the order of the page. Other reports follow them.
const EXPECTED: [&str; 9] =
    ["receiver", "pps", "peers_scale", "channels", "chat", "echo", "peers", "counts", "server"];
/// The figures of complete runs, in a section for each bench.
const NUMBERS: &str = "benches/docs/NUMBERS.md";
const NUMBERS_HEAD: &str = "# Figures of complete runs

`cargo xtask report --bless` writes this page from `target/reports`. The [benchmarks page](benchmarks.md) explains the figures.
";
/// The cause of each missed goal: a table for each bench, with a part of the figure's name as the key.
const CAUSES: &str = "benches/causes.toml";

type Causes = BTreeMap<String, BTreeMap<String, String>>;

/// A file of `target/reports`.
struct Report {
    /// The name of the file without `.json`. A bench appends the part that ran alone.
    stem: String,
    /// The time of its last change, in UTC.
    date: String,
    /// The content, or a line that names the file and the wrong field.
    results: Result<Results, String>,
}

/// Renders the page, and fails after that when a report could not be read.
pub(crate) fn run(workspace: &Workspace, is_blessed: bool) -> Result<(), Stop> {
    let folder = workspace.target.join("reports");
    let read = |(stem, path): (String, PathBuf)| Report::read(&path, &stem);
    let mut reports = files_of(&folder, ".json")?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let read = |(name, path): (String, PathBuf)| Ok((name, files::text(&path)?));
    let pictures = files_of(&folder, ".svg")?.into_iter().map(read).collect::<Result<_, Stop>>()?;
    reports.sort_by_key(|report| position(&report.stem));
    let page = folder.join("index.html");
    files::write(&page, render(&reports, &pictures)?)?;
    println!("written to {}", page.display());
    if is_blessed {
        bless(&workspace.root, &reports)?;
    }
    fail_with(&reports.into_iter().filter_map(|report| report.results.err()).collect::<Vec<_>>())
}

/// Returns the files with an extension by their names without it. Smoke runs have a folder of their own, and other runs replace them.
fn files_of(folder: &Path, extension: &str) -> Result<BTreeMap<String, PathBuf>, Stop> {
    let mut found = BTreeMap::new();
    for folder in [&folder.join("quick"), folder].into_iter().filter(|folder| folder.exists()) {
        let names = files::names(folder)?;
        let named = |name: &String| Some((name.strip_suffix(extension)?.to_owned(), folder.join(name)));
        found.extend(names.iter().filter_map(named));
    }
    Ok(found)
}

/// Returns the position of a report in the page. A part, such as `pps-drain`, follows its bench.
fn position(stem: &str) -> usize {
    let bench = stem.split('-').next().unwrap_or(stem);
    EXPECTED.iter().position(|expected| *expected == bench).unwrap_or(EXPECTED.len())
}

impl Report {
    fn read(path: &Path, stem: &str) -> Result<Self, Stop> {
        let date = CommandLine::new("date", &["-u", "+%Y-%m-%d %H:%M UTC", "-r"]).arg(path);
        let text = fs::read_to_string(path).map_err(|why| why.to_string());
        let results = text.and_then(|text| Results::read(&text));
        Ok(Self {
            date: date.output()?.trim().to_owned(),
            results: results.map_err(|why| format!("{}: {why}", path.display())),
            stem: stem.to_owned(),
        })
    }

    /// Returns whether its goals count in the sum over all reports. Goals of smoke runs and of single parts do not
    /// count.
    fn counts(&self) -> bool {
        let flags = self.results.as_ref().map(|results| &results.flags);
        flags.is_ok_and(|flags| flags.extent != Extent::Quick && flags.only.is_none())
    }
}

/// Fills a template. The extension of its name decides how values are escaped.
pub(crate) fn fill(name: &str, template: &str, values: Value) -> Result<String, Stop> {
    let mut templates = Environment::new();
    templates.add_filter("precise", precise);
    let filled = templates.render_named_str(name, template, values);
    filled.map_err(|why| Stop::failed(format!("{name}: {why:#}")))
}

fn render(reports: &[Report], pictures: &BTreeMap<String, String>) -> Result<String, Stop> {
    let counted = reports.iter().filter(|report| report.counts());
    let counted = counted.filter_map(|report| report.results.as_ref().ok());
    let counted: Vec<&Figure> = counted.flat_map(|results| &results.figures).collect();
    let reports: Vec<_> = reports.iter().map(shown).collect();
    let values = context! { reports, pictures, counted => Serde(counted), expected => EXPECTED.to_vec() };
    fill("page.html", include_str!("report/page.html"), values)
}

fn shown(report: &Report) -> Value {
    let Report { stem: id, date, results } = report;
    let (error, results) = (results.as_ref().err(), results.as_ref().ok());
    let machine = results.map(|results| described(&results.machine));
    let sizes = results.map(|results| sizes(&results.flags.given));
    context! { id, date, error, machine, sizes, results => Serde(results) }
}

fn described(machine: &Machine) -> String {
    let Machine { cpu, cores, memory_bytes, kernel } = machine;
    let words = [
        cpu.clone(),
        cores.map(|cores| format!("{cores} cores")),
        memory_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))),
        kernel.as_ref().map(|kernel| format!("kernel {kernel}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the arguments of a run that is not the documented one: all except extent and part.
fn sizes(given: &[String]) -> String {
    let mut is_left_out = false;
    let others = given.iter().filter(|arg| {
        if arg.starts_with("--") {
            is_left_out =
                ["--quick", "--full", "--judge", "--test", "--only", "--bench"].contains(&arg.as_str());
        }
        !is_left_out
    });
    others.cloned().collect::<Vec<_>>().join(" ")
}

/// Returns a number with the digits that matter, and commas between thousands.
fn precise(value: f64) -> String {
    let size = value.abs();
    let digits = usize::from(size < 1_000.0) + usize::from(size < 100.0);
    let text = format!("{size:.digits$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let groups: Vec<_> = whole.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    let sign = if value < 0.0 { "-" } else { "" };
    let text = format!("{sign}{}.{rest}", groups.join(","));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Replaces the sections of complete runs in [`NUMBERS`], and keeps the others.
fn bless(root: &Path, reports: &[Report]) -> Result<(), Stop> {
    let causes: Causes = files::parsed(&root.join(CAUSES))?;
    let path = root.join(NUMBERS);
    let before = fs::read_to_string(&path).unwrap_or_default();
    let mut sections: BTreeMap<(usize, String), String> = before
        .split("\n## ")
        .skip(1)
        .filter_map(|section| Some((section.split_once('\n')?.0.to_owned(), section)))
        .map(|(bench, section)| ((position(&bench), bench), section.trim_end().to_owned()))
        .collect();
    for report in reports {
        let Ok(results) = &report.results else { continue };
        let is_whole = report.counts() && sizes(&results.flags.given).is_empty();
        if is_whole && !results.figures.is_empty() {
            let section = numbers(results, &report.date, causes.get(&results.name))?;
            sections.insert((position(&results.name), results.name.clone()), section);
        }
    }
    let sections: Vec<String> = sections.into_values().map(|section| format!("\n## {section}\n")).collect();
    files::write(&path, format!("{NUMBERS_HEAD}{}", sections.concat()))?;
    println!("written to {}", path.display());
    Ok(())
}

fn numbers(results: &Results, date: &str, causes: Option<&BTreeMap<String, String>>) -> Result<String, Stop> {
    let Results { name, command, machine, figures, .. } = results;
    let cause = |figure: &Figure| {
        let cause = causes.into_iter().flatten().find(|(part, _)| figure.name.contains(part.as_str()));
        (figure.name.clone(), cause.map_or("Not analyzed.".to_owned(), |(_, cause)| cause.clone()))
    };
    let missed = figures.iter().filter(|figure| figure.reached == Some(false));
    let missed: Vec<(String, String)> = missed.map(cause).collect();
    let values =
        context! { name, command, date, machine => described(machine), figures => Serde(figures), missed };
    fill("numbers.md", include_str!("report/numbers.jinja"), values)
}

#[cfg(test)]
mod tests {
    use super::results::samples;
    use super::*;
    use serde_json::json;

    fn report(stem: &str, value: &serde_json::Value) -> Report {
        let results = Results::read(&value.to_string()).map_err(|why| format!("{stem}.json: {why}"));
        let date = "2026-11-21 23:09 UTC".to_owned();
        Report { stem: stem.to_owned(), date, results }
    }

    #[test]
    fn the_page_shows_figures_as_text_and_loads_nothing() {
        let figures = [
            samples::figure("CPU <over> raw", Some(1.5), Some(false)),
            samples::figure("p50", Some(1.1), Some(true)),
            samples::figure("spread", None, None),
        ];
        let page = render(
            &[
                report("echo", &samples::bench("default", &figures)),
                report("receiver", &samples::report("run")),
                report("load", &json!({ "name": "load", "command": 7 })),
            ],
            &BTreeMap::new(),
        )
        .unwrap();
        for part in [
            "CPU &lt;over&gt; raw",
            "Some &lt;CPU&gt;",
            "at most 1.35",
            "1 reached",
            "1 missed",
            "1 not measured",
            "load.json: command: ",
            "not run: <code>cargo bench --bench pps",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        for part in ["<over>", "not run: <code>cargo bench --bench echo", "http", "<script", "<link", "url("]
        {
            assert!(!page.contains(part), "{part}");
        }
    }

    #[test]
    fn files_are_found_and_pictures_run_no_script() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["quick/echo.json", "echo.json", "quick/pps.json", "echo-A-flame.svg"] {
            files::write(&folder.path().join(name), "").unwrap();
        }
        let found = files_of(folder.path(), ".json").unwrap();
        assert_eq!(
            found.into_values().collect::<Vec<_>>(),
            ["echo.json", "quick/pps.json"].map(|name| folder.path().join(name))
        );
        assert_eq!(
            files_of(folder.path(), ".svg").unwrap().into_keys().collect::<Vec<_>>(),
            ["echo-A-flame"]
        );
        let pictures = [("flame".to_owned(), "<svg \"#é\">".to_owned())].into();
        let page = render(&[], &pictures).unwrap();
        assert!(page.contains("src=\"data:image/svg+xml,%3Csvg%20%22%23%C3%A9%22%3E\""), "{page}");
    }

    #[test]
    fn unusual_runs_are_marked_and_their_goals_do_not_count() {
        let run = |extent: &str, given: &[&str]| {
            let mut bench = samples::bench(extent, &[]);
            bench["flags"]["only"] = json!(given.contains(&"--only").then_some("F"));
            bench["flags"]["given"] = json!(given);
            report("echo-F", &bench)
        };
        assert!(run("default", &[]).counts() && !run("quick", &[]).counts());
        let unusual = run("quick", &["--quick", "--only", "F", "--clients", "9"]);
        assert!(!run("default", &["--only", "F"]).counts());
        let page = render(&[unusual], &BTreeMap::new()).unwrap();
        for mark in ["echo: F", "smoke run", "not as documented: --clients 9"] {
            assert!(page.contains(mark), "{mark}: {page}");
        }
    }

    #[test]
    fn the_section_of_a_bench_names_the_cause_of_a_missed_goal() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let blessed = |report: Report| {
            bless(root, &[report]).unwrap();
            fs::read_to_string(root.join(NUMBERS)).unwrap()
        };
        let causes = "[echo]\n\"over raw\" = \"The kernel.\"\n";
        files::write(&root.join(CAUSES), causes).unwrap();
        files::write(&root.join(NUMBERS), b"# Old\n\n## pps\n\nkept\n\n## echo\n\nreplaced\n").unwrap();
        let figures = [samples::figure("CPU over raw", Some(1.5), Some(false))];
        let text = blessed(report("echo", &samples::bench("full", &figures)));
        let quick = blessed(report("echo", &samples::bench("quick", &[])));
        for line in
            ["kept", "| CPU over raw | **1.5 x missed** | at most 1.35 |", "| CPU over raw | The kernel. |"]
        {
            assert_eq!(text.lines().filter(|other| *other == line).count(), 1, "{text}");
        }
        assert!(!text.contains("replaced"));
        assert_eq!(text, quick, "a smoke run replaces nothing");
    }

    #[test]
    fn every_expected_bench_exists_and_every_cause_belongs_to_one() {
        let workspace = Workspace::load().unwrap();
        let benches: Vec<&str> = workspace.package_in("benches").unwrap().targets_of("bench").collect();
        let others = ["receiver", "peers"];
        assert!(EXPECTED.iter().all(|bench| others.contains(bench) || benches.contains(bench)));
        let causes: Causes = files::parsed(&workspace.root.join(CAUSES)).unwrap();
        assert!(causes.keys().all(|bench| EXPECTED.contains(&bench.as_str())));
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (value, text) in
            [(0.0, "0"), (1.4225, "1.42"), (139.68, "139.7"), (40_960.0, "40,960"), (-123_456.0, "-123,456")]
        {
            assert_eq!(precise(value), text);
        }
    }
}
