//! `cargo xtask coverage`: how many lines of the packages that an attacker meets first their own tests run.
//!
//! cargo-llvm-cov builds, runs and counts; here its report is read without the lines of tests, which all run and would
//! flatter it. It says which lines no test runs, not whether those that run are tested well.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::files::is_tests_alone;
use crate::run::{CommandLine, Stop, word};
use crate::workspace::Workspace;

/// The folders of the packages.
const PACKAGES: [&str; 3] = ["crates/wire", "crates/crypto", "crates/proto"];
/// Of a hundred lines, so many are run at least.
const LEAST_PERCENT: f64 = 90.0;
/// The report, below the target folder.
const REPORT: &str = "coverage.lcov";
/// The build and the tests, which count as they run.
const DEADLINE: Duration = Duration::from_secs(1_200);
/// Files of which the lines that no test runs are shown.
const SHOWN: usize = 10;

/// Lines of a file or a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
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
pub(crate) fn run() -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    let root = &workspace.root;
    let tool = |args: &[&str]| CommandLine::new("cargo", &[&["llvm-cov"][..], args].concat());
    let need = |probe: CommandLine, what: &str| probe.output(root).map_err(|_| Stop::Needs(what.to_owned()));
    let version = need(tool(&["--version"]), "cargo-llvm-cov: cargo install cargo-llvm-cov --locked")?;
    println!("{}", version.trim());
    // It would ask whether to install them.
    let probe = tool(&["show-env"]).env("CARGO_LLVM_COV_SETUP", "no");
    need(probe, "llvm-cov and llvm-profdata of the compiler's LLVM: rustup component add llvm-tools")?;
    let path = workspace.target.join(REPORT);
    // Optimised, or the exhaustive tests take minutes; not in release, where the long ones repeat what runs no other line.
    let report = tool(&["--lib", "--tests", "--lcov", "--output-path", &word(&path)]);
    let report = report.env("CARGO_PROFILE_DEV_OPT_LEVEL", "2");
    let packages = PACKAGES.iter().filter_map(|folder| workspace.package_in(folder));
    let report = packages.fold(report, |report, package| report.arg("-p").arg(&package.name));
    println!("{report}");
    match report.run(root, Some(DEADLINE))? {
        status if status.success() => {}
        status => return Err(Stop::failed(format!("coverage: {status}"))),
    }
    let text = fs::read_to_string(&path).map_err(|why| Stop::failed(format!("{}: {why}", path.display())))?;
    judge(&without_tests(root, read(&text, root)?)?)
}

/// Prints the share of each package and the lines that were not run.
fn judge(report: &Report) -> Result<(), Stop> {
    let mut files: Vec<_> = report.iter().map(|(path, lines)| (path, Lines::of(lines), lines)).collect();
    files.sort_by_key(|(path, lines, _)| (Reverse(lines.count - lines.run), *path));
    for (path, lines, each) in files.iter().filter(|(_, lines, _)| lines.run < lines.count).take(SHOWN) {
        println!("{:6.2} %  {path}, not run: {}", lines.percent(), missed(each));
    }
    let mut low = Vec::new();
    for folder in PACKAGES {
        let of_package = files.iter().filter(|(path, ..)| path.starts_with(&format!("{folder}/")));
        let lines = of_package.fold(Lines::default(), |sum, (_, lines, _)| sum.and(*lines));
        println!("{:6.2} %  {folder}: {} of {} lines", lines.percent(), lines.run, lines.count);
        if lines.count == 0 || lines.percent() < LEAST_PERCENT {
            low.push(folder);
        }
    }
    if low.is_empty() {
        Ok(())
    } else {
        Err(Stop::failed(format!("fewer than {LEAST_PERCENT} % of the lines are run: {}", low.join(", "))))
    }
}

impl Lines {
    fn of(lines: &BTreeMap<usize, bool>) -> Self {
        Self { count: lines.len(), run: lines.values().filter(|is_run| **is_run).count() }
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
            let path = Path::new(file);
            let path = path.strip_prefix(root).unwrap_or(path);
            lines = Some(report.entry(word(path).replace('\\', "/")).or_default());
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
        let is_ours = PACKAGES.iter().any(|folder| path.starts_with(&format!("{folder}/src/")));
        if !is_ours || is_tests_alone(&path) {
            continue;
        }
        let source =
            fs::read_to_string(root.join(&path)).map_err(|why| Stop::failed(format!("{path}: {why}")))?;
        lines.retain(|line, _| *line < tests_at(&source));
        rest.insert(path, lines);
    }
    Ok(rest)
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
        assert_eq!(Lines::of(lines), Lines { count: 5, run: 3 });
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
