//! `cargo xtask coverage`: how many lines of the packages that an attacker meets first their own tests run, and how many regions
//! of the one that reads what comes off the wire.
//!
//! cargo-llvm-cov builds, runs and counts; here its reports are read without the code of tests, which all runs and would
//! flatter them. It says what no test runs, not whether what runs is tested well.

mod regions;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use crate::files::is_tests_alone;
use crate::ledger::{self, Ended, Run};
use crate::run::{CommandLine, Stop, Stopwatch, word};
use crate::workspace::Workspace;
use regions::Regions;

/// The folders of the packages.
const PACKAGES: [&str; 3] = ["crates/wire", "crates/crypto", "crates/proto"];
/// Of a hundred lines, so many are run at least.
const LEAST_PERCENT: f64 = 90.0;
/// Of a hundred regions of this package, so many are run at least.
const IN_REGIONS: (&str, f64) = (PACKAGES[0], 90.0);
/// What a beta wants of either; printed, and no gate before.
pub(crate) const BETA_PERCENT: (f64, f64) = (95.0, 98.0);
/// The reports of lines and of regions, below the target folder.
const LINES: &str = "coverage.lcov";
const REGIONS: &str = "coverage.json";
/// The build and the tests, which count as they run.
const DEADLINE: Duration = Duration::from_secs(1_200);
/// Versions of LLVM whose tools read what today's compilers make count.
const VERSIONS: RangeInclusive<u32> = 19..=30;
/// Files of which the lines that no test runs are shown.
const SHOWN: usize = 10;

/// Lines or regions of a file or a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    count: usize,
    run: usize,
}

/// What a report says of one file: its lines that hold code, and whether each was run.
type Report = BTreeMap<String, BTreeMap<usize, bool>>;

/// Measures, and prints the share of each package.
///
/// # Errors
/// [`Stop::Needs`] without cargo-llvm-cov or the tools of LLVM that it calls, [`Stop::Failed`] when a test fails or the lines
/// that are run are too few.
pub(crate) fn run(keeps: bool) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    let llvm = Llvm::find(root)?;
    let tool = |args: &[&str]| llvm.tool(args);
    let [lines, regions] = [LINES, REGIONS].map(|name| workspace.target.join(name));
    // Optimised, or the exhaustive tests take minutes; not in release, where the long ones repeat what runs no other line.
    let report = tool(&["--lib", "--tests", "--lcov", "--output-path", &word(&lines)]);
    let report = report.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    let packages = PACKAGES.iter().filter_map(|folder| workspace.package_in(folder));
    let report = packages.fold(report, |report, package| report.arg("-p").arg(&package.name));
    println!("{report}");
    let stopwatch = Stopwatch::start();
    match report.run(root, Some(DEADLINE))? {
        status if status.success() => {}
        status => return Err(Stop::failed(format!("coverage: {status}"))),
    }
    let again = tool(&["report", "--json", "--output-path", &word(&regions)]);
    println!("{again}");
    again.output(root)?;
    let text = |path: &Path| {
        fs::read_to_string(path).map_err(|why| Stop::failed(format!("{}: {why}", path.display())))
    };
    let of_lines = judge(&without_tests(root, read(&text(&lines)?, root)?)?);
    let of_regions = judge_regions(root, regions::read(&text(&regions)?, root)?);
    let outcome = of_lines.and_then(|lines| Ok((lines, of_regions?)));
    let counts = outcome.as_ref().map_or_else(|_| String::new(), |(lines, regions)| counts(*lines, *regions));
    let outcome = outcome.map(|(lines, regions)| println!("{}", beside_beta(lines, regions)));
    let (wall, ended) = (stopwatch.elapsed(), Ended::of(&outcome));
    let run = Run { command: "xtask coverage", what: "coverage", counts: &counts, wall, ended };
    ledger::note_other(root, &run, keeps)?;
    outcome
}

/// The tools that read what a program counted: those of the compiler, or of a version that the system has.
struct Llvm {
    /// By which they are called, where they are not the compiler's.
    version: Option<u32>,
}

impl Llvm {
    /// # Errors
    /// [`Stop::Needs`] without cargo-llvm-cov or without such tools.
    fn find(root: &Path) -> Result<Self, Stop> {
        let needs = |what: &str| Stop::Needs(what.to_owned());
        let of_compiler = Self { version: None };
        let version = of_compiler.tool(&["--version"]).output(root);
        let version = version.map_err(|_| needs("cargo-llvm-cov: cargo install cargo-llvm-cov --locked"))?;
        println!("{}", version.trim());
        // It would ask whether to install them.
        if of_compiler.tool(&["show-env"]).env("CARGO_LLVM_COV_SETUP", "no").output(root).is_ok() {
            return Ok(of_compiler);
        }
        let has = |version: &u32| {
            let tools = ["llvm-cov", "llvm-profdata"].map(|tool| format!("{tool}-{version}"));
            tools.iter().all(|tool| CommandLine::new(tool, &["--version"]).output(root).is_ok())
        };
        let version = VERSIONS.rev().find(has);
        let what = "llvm-cov and llvm-profdata: rustup component add llvm-tools (or on Debian: apt-get install llvm-19)";
        version.map(|version| Self { version: Some(version) }).ok_or_else(|| needs(what))
    }

    fn tool(&self, args: &[&str]) -> CommandLine {
        let command = CommandLine::new("cargo", &[&["llvm-cov"][..], args].concat());
        match self.version {
            None => command,
            Some(version) => command
                .env("LLVM_COV", &format!("llvm-cov-{version}"))
                .env("LLVM_PROFDATA", &format!("llvm-profdata-{version}")),
        }
    }
}

/// Both shares as the ledger has them, rounded down.
fn counts(lines: Share, regions: Share) -> String {
    let [lines, regions] = [lines, regions].map(|share| (100.0 * share.percent()).floor() / 100.0);
    format!("lines={lines:.2} regions={regions:.2}")
}

/// Both shares beside what a beta wants.
fn beside_beta(lines: Share, regions: Share) -> String {
    let word = |share: Share, goal: f64| if share.percent() >= goal { "reached" } else { "not reached" };
    let (of_lines, of_regions) = BETA_PERCENT;
    format!(
        "for a beta: {of_lines} % of the lines of all, {}; {of_regions} % of the regions, {}",
        word(lines, of_lines),
        word(regions, of_regions)
    )
}

/// Prints the share of each package and the lines that were not run; answers that of all together.
fn judge(report: &Report) -> Result<Share, Stop> {
    let mut files: Vec<_> = report.iter().map(|(path, lines)| (path, Share::of(lines), lines)).collect();
    files.sort_by_key(|(path, lines, _)| (Reverse(lines.count - lines.run), *path));
    for (path, lines, each) in files.iter().filter(|(_, lines, _)| lines.run < lines.count).take(SHOWN) {
        println!("{:6.2} %  {path}, not run: {}", lines.percent(), missed(each));
    }
    let (mut low, mut all) = (Vec::new(), Share::default());
    for folder in PACKAGES {
        let of_package = files.iter().filter(|(path, ..)| path.starts_with(&format!("{folder}/")));
        let lines = of_package.fold(Share::default(), |sum, (_, lines, _)| sum.and(*lines));
        println!("{:6.2} %  {folder}: {} of {} lines", lines.percent(), lines.run, lines.count);
        if lines.count == 0 || lines.percent() < LEAST_PERCENT {
            low.push(folder);
        }
        all = all.and(lines);
    }
    if low.is_empty() {
        Ok(all)
    } else {
        Err(Stop::failed(format!("fewer than {LEAST_PERCENT} % of the lines are run: {}", low.join(", "))))
    }
}

/// Prints the share of regions of the package of which they are looked at, and those that were not run; answers the share.
fn judge_regions(root: &Path, report: Regions) -> Result<Share, Stop> {
    let (folder, least_percent) = IN_REGIONS;
    let mut sum = Share::default();
    for (path, mut of_file) in report.into_iter().filter(|(path, _)| path.starts_with(&format!("{folder}/")))
    {
        let Some(end) = code_of(root, &path)? else { continue };
        of_file.retain(|[line, ..], _| usize::try_from(*line).is_ok_and(|line| line < end));
        let share = Share::of(&of_file);
        if share.run < share.count {
            println!("{:6.2} %  {path}, regions not run: {}", share.percent(), regions::missed(&of_file));
        }
        sum = sum.and(share);
    }
    println!("{:6.2} %  {folder}: {} of {} regions", sum.percent(), sum.run, sum.count);
    if sum.count > 0 && sum.percent() >= least_percent {
        Ok(sum)
    } else {
        Err(Stop::failed(format!("fewer than {least_percent} % of the regions are run: {folder}")))
    }
}

impl Share {
    fn of<T>(parts: &BTreeMap<T, bool>) -> Self {
        Self { count: parts.len(), run: parts.values().filter(|is_run| **is_run).count() }
    }

    const fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, run: self.run + other.run }
    }

    fn percent(self) -> f64 {
        100.0 * self.run as f64 / self.count.max(1) as f64
    }
}

/// Reads the records `SF` (a file) and `DA` (a line, and how often it was run) of a report in the format of lcov.
fn read(text: &str, root: &Path) -> Result<Report, Stop> {
    let mut report = Report::new();
    let mut lines = None;
    for record in text.lines() {
        if let Some(file) = record.strip_prefix("SF:") {
            lines = Some(report.entry(path_of(file, root)).or_default());
        } else if let Some(line) = record.strip_prefix("DA:") {
            let mut numbers = line.split(',').map(str::parse::<u64>);
            let (Some(Ok(line)), Some(Ok(times)), Some(lines)) = (numbers.next(), numbers.next(), &mut lines)
            else {
                return Err(Stop::failed(format!("the report has a line {record}")));
            };
            let is_run: &mut bool = lines.entry(usize::try_from(line).unwrap_or(usize::MAX)).or_default();
            *is_run |= times > 0;
        }
    }
    Ok(report)
}

/// The same without files of tests, and without lines of the tests at the end of a file.
fn without_tests(root: &Path, report: Report) -> Result<Report, Stop> {
    let mut rest = Report::new();
    for (path, mut lines) in report {
        let Some(end) = code_of(root, &path)? else { continue };
        lines.retain(|line, _| *line < end);
        rest.insert(path, lines);
    }
    Ok(rest)
}

/// The line at which the code of a file ends and its tests begin; none for what is not a package's code.
fn code_of(root: &Path, path: &str) -> Result<Option<usize>, Stop> {
    let is_ours = PACKAGES.iter().any(|folder| path.starts_with(&format!("{folder}/src/")));
    if !is_ours || is_tests_alone(path) {
        return Ok(None);
    }
    let source = fs::read_to_string(root.join(path)).map_err(|why| Stop::failed(format!("{path}: {why}")))?;
    Ok(Some(tests_at(&source)))
}

/// A file of a report as it is named here: below the root, with `/`.
fn path_of(file: &str, root: &Path) -> String {
    let path = Path::new(file);
    word(path.strip_prefix(root).unwrap_or(path)).replace('\\', "/")
}

/// The line at which the module of a file's tests begins; beyond every line where there is none.
fn tests_at(source: &str) -> usize {
    let pairs = source.lines().zip(source.lines().skip(1));
    let is_begin = |(line, next): (&str, &str)| line == "#[cfg(test)]" && next.ends_with("mod tests {");
    pairs.zip(1..).find(|(pair, _)| is_begin(*pair)).map_or(usize::MAX, |(_, line)| line)
}

/// The lines that were not run, as ranges.
fn missed(lines: &BTreeMap<usize, bool>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut is_going_on = false;
    for (&line, &is_run) in lines {
        match ranges.last_mut() {
            Some((_, last)) if is_going_on && !is_run => *last = line,
            _ if !is_run => ranges.push((line, line)),
            _ => {}
        }
        is_going_on = !is_run;
    }
    let range = |(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORTED: &str = "SF:/x/crates/wire/src/a.rs\nFN:1,f\nDA:1,3\nDA:2,0\nDA:3,0\nDA:5,1\nend_of_record\n\
                            SF:/x/crates/wire/src/a.rs\nDA:3,7\nDA:9,0\nend_of_record\n";

    fn report() -> Report {
        read(REPORTED, Path::new("/x")).unwrap()
    }

    #[test]
    fn a_line_counts_once_and_is_run_where_any_record_says_so() {
        let report = report();
        let lines = &report["crates/wire/src/a.rs"];
        assert_eq!(Share::of(lines), Share { count: 5, run: 3 });
        assert_eq!(missed(lines), "2 9");
        assert!(read("DA:1,2\n", Path::new("/x")).is_err(), "of no file");
        assert!(read("SF:/x/a\nDA:1,x\n", Path::new("/x")).is_err());
    }

    #[test]
    fn lines_in_a_row_are_one_range_though_lines_without_code_lie_between() {
        let lines = [(1, false), (2, false), (7, false), (8, true), (9, false)];
        assert_eq!(missed(&BTreeMap::from(lines)), "1-7 9");
    }

    #[test]
    fn a_files_tests_begin_with_their_module_and_not_with_a_helper() {
        assert_eq!(tests_at("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), 3);
        assert_eq!(tests_at("#[cfg(test)]\npub(crate) mod tests {\n}\n"), 1);
        assert_eq!(tests_at("#[cfg(test)]\nmod test_support;\nfn a() {}\n"), usize::MAX);
    }

    #[test]
    fn too_few_lines_of_a_package_and_none_at_all_are_a_failure() {
        let all_of = |is_run: bool, folders: &[&str]| -> Report {
            let lines: BTreeMap<usize, bool> = (1..=100).map(|line| (line, line > 10 || is_run)).collect();
            folders.iter().map(|folder| (format!("{folder}/src/a.rs"), lines.clone())).collect()
        };
        assert!(judge(&all_of(true, &PACKAGES)).is_ok() && judge(&all_of(false, &PACKAGES)).is_ok());
        let mut low = all_of(false, &PACKAGES);
        low.get_mut("crates/crypto/src/a.rs").unwrap().insert(50, false);
        assert!(matches!(judge(&low), Err(Stop::Failed(why)) if why.ends_with(": crates/crypto")));
        assert!(judge(&all_of(true, &PACKAGES[..2])).is_err());
    }

    #[test]
    fn a_beta_wants_more_than_the_gate_and_no_share_is_rounded_up_to_it() {
        let (low, high) = (Share { count: 100_000, run: 94_999 }, Share { count: 100, run: 98 });
        assert_eq!(counts(low, high), "lines=94.99 regions=98.00");
        let said = beside_beta(low, high);
        assert!(said.contains("95 % of the lines of all, not reached") && said.ends_with("regions, reached"));
    }

    #[test]
    fn lines_of_tests_do_not_count() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let lines: BTreeMap<usize, bool> = (1..=10_000).map(|line| (line, true)).collect();
        let paths = ["crates/wire/src/varint.rs", "crates/proto/src/timers/tests.rs", "xtask/src/run.rs"];
        let report = paths.iter().map(|path| ((*path).to_owned(), lines.clone())).collect();
        let rest = without_tests(root, report).unwrap();
        assert_eq!(rest.keys().collect::<Vec<_>>(), ["crates/wire/src/varint.rs"]);
        assert!((50..200).contains(&rest["crates/wire/src/varint.rs"].len()));
    }
}
