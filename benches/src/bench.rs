//! The command line of a bench, and the order in which its parts run.
//!
//! A bench is one executable with several parts. Its child processes are the same executable with a hidden first argument.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use drumfire_tools::host as system;

use crate::host::{Cores, pin_to, print_machine};
use crate::process::{ROLE_FLAG, UNPINNED};
use crate::results::Results;
use crate::rounds::{Extent, Plan};

/// The separator of the names in [`Options::only`]. Names contain spaces and commas.
pub(crate) const AND: &str = " + ";

/// The arguments of a bench.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How much the bench does.
    pub extent: Extent,
    /// The parts and sections to run, separated by `+`. With `None` all of them run.
    pub only: Option<String>,
}

impl Options {
    /// Whether this part is to run.
    pub fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only.split(AND).any(|name| name == part))
    }
}

/// One part of a bench.
#[derive(Clone, Copy)]
pub struct Part {
    name: &'static str,
    sections: &'static [&'static str],
    least: Extent,
    run: fn(&mut Bench) -> Result<(), String>,
}

/// A part with this name.
pub const fn part(name: &'static str, run: fn(&mut Bench) -> Result<(), String>) -> Part {
    Part { name, sections: &[], least: Extent::Quick, run }
}

impl Part {
    /// Adds the names of sections that `--only` can select within the part.
    #[must_use]
    pub const fn with_sections(self, sections: &'static [&'static str]) -> Self {
        Self { sections, ..self }
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Leaves the part out of runs that do less than this, unless `--only` names it.
    #[must_use]
    pub const fn from(self, least: Extent) -> Self {
        Self { least, ..self }
    }
}

/// The main function of a child process. It receives the arguments after the name of the role.
pub type Role = fn(&[&str]) -> Result<(), String>;

/// A bench as its `main` describes it.
pub struct Program<'a> {
    /// The name of the bench target.
    pub name: &'static str,
    /// The parts in the order in which they run.
    pub parts: &'a [Part],
    /// The roles of child processes by name.
    pub roles: &'a [(&'static str, Role)],
    /// Flags of this bench alone. Each takes a number of at least 1.
    pub numbers: &'a [&'static str],
    /// Runs before the first part, to note pinning and seed.
    pub prepare: fn(&mut Bench),
}

/// A bench that runs: its arguments, and the results so far.
pub struct Bench {
    /// The figures and reports. They are written when all parts have run.
    pub results: Results,
    options: Options,
    /// The part that runs now.
    part: Part,
    numbers: BTreeMap<String, u32>,
    cores: Option<Cores>,
    /// Failures that leave the figures of their part valid.
    failures: Vec<String>,
}

impl Program<'_> {
    /// Runs a child process, if the arguments ask for one, or the bench.
    ///
    /// The exit code is 2 for bad arguments, and 1 when a part failed or when `--judge` was given and a goal was missed.
    pub fn main(&self) -> ExitCode {
        let args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
        self.main_with(&args.collect::<Vec<String>>())
    }

    /// As [`Self::main`], with these arguments.
    #[must_use]
    pub fn main_with(&self, args: &[String]) -> ExitCode {
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        if let [ROLE_FLAG, name, core, rest @ ..] = words.as_slice() {
            return ending(self.run_role(name, core, rest));
        }
        match self.parse(&words) {
            Ok((options, numbers, is_judged)) => ending(self.run(options, numbers, is_judged)),
            Err(line) => refuse(&line),
        }
    }

    fn run_role(&self, name: &str, core: &str, args: &[&str]) -> Result<(), String> {
        let (_, role) = self
            .roles
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| format!("{name}: not a role"))?;
        if core != UNPINNED {
            // Threads that the role starts later stay on the same core.
            pin_to(core)?;
        }
        role(args)
    }

    fn parse(&self, args: &[&str]) -> Result<(Options, BTreeMap<String, u32>, bool), String> {
        let mut numbers = BTreeMap::new();
        let mut args: Vec<OsString> = args.iter().map(OsString::from).collect();
        for flag in self.numbers {
            if let Some(number) = take_number(&mut args, flag)? {
                numbers.insert((*flag).to_owned(), number);
            }
        }
        let judge = args.iter().position(|arg| arg == "--judge").map(|at| args.remove(at));
        let names: Vec<&str> =
            self.parts.iter().flat_map(|part| [&[part.name], part.sections].concat()).collect();
        Ok((parse(args, &names)?, numbers, judge.is_some()))
    }

    fn run(&self, options: Options, numbers: BTreeMap<String, u32>, is_judged: bool) -> Result<(), String> {
        print_machine();
        println!("extent    {}", options.extent.name());
        let Some(first) = self.parts.first() else { return Ok(()) };
        let results = Results::new(self.name, &options);
        let failures = Vec::new();
        let mut bench = Bench { results, options, part: *first, numbers, cores: None, failures };
        (self.prepare)(&mut bench);
        let mut failed = None;
        for part in self.parts {
            let is_wanted =
                [&[part.name], part.sections].concat().iter().any(|name| bench.options.wants(name));
            if is_wanted && (bench.options.only.is_some() || bench.options.extent >= part.least) {
                println!("\n{}", part.name);
                bench.part = *part;
                if let Err(line) = bench.run_part() {
                    eprintln!("{}: {line}", part.name);
                    failed.get_or_insert(format!("{}: {line}", part.name));
                }
            }
        }
        println!("\n{}", bench.results.table());
        println!("written to {}", bench.results.write()?.display());
        let missed = bench.results.missed();
        match failed.or_else(|| bench.failures.into_iter().next()) {
            Some(line) => Err(line),
            None if is_judged && !missed.is_empty() => Err(format!("missed: {}", missed.join("; "))),
            None => Ok(()),
        }
    }
}

impl Bench {
    /// Runs the present part on a thread of its own, so that the part's pinning ends with it. A part that fails leaves no figure.
    fn run_part(&mut self) -> Result<(), String> {
        let mark = self.results.mark();
        let run = self.part.run;
        let outcome = std::thread::scope(|scope| scope.spawn(|| run(&mut *self)).join());
        let outcome = outcome.unwrap_or_else(|_| Err("the part panicked".to_owned()));
        if outcome.is_err() {
            self.results.back_to(&mark);
        }
        outcome
    }

    /// How much the bench does.
    pub fn extent(&self) -> Extent {
        self.options.extent
    }

    /// Whether this section of the present part is to run.
    pub fn wants(&self, section: &str) -> bool {
        self.options.wants(section) || self.options.wants(self.part.name)
    }

    /// Ends the bench with this failure after the last part. The figures of the present part stay.
    pub fn fail_later(&mut self, line: String) {
        eprintln!("{line}");
        self.failures.push(line);
    }

    /// The number that was given with this flag.
    pub fn number(&self, flag: &str) -> Option<u32> {
        self.numbers.get(flag).copied()
    }

    /// The rounds of this extent.
    pub fn plan(&self) -> Plan {
        Plan::of(self.options.extent)
    }

    /// Pins this thread to the core of the load and notes it in the results.
    pub fn pin_load(&mut self) -> Result<Cores, String> {
        let cores = Cores::of_this_process()?;
        if self.cores != Some(cores) {
            self.cores = Some(cores);
            self.results.pinned(cores);
        }
        system::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
        Ok(cores)
    }

    /// Prints the length of the rounds.
    pub fn print_plan(&self, plan: Plan, window: Duration) {
        println!("  {} rounds of {window:?}, medians", plan.rounds);
    }
}

/// Returns the arguments of this program as they were typed, without those that cargo adds.
pub(crate) fn given() -> Vec<String> {
    typed(std::env::args_os().skip(1))
}

fn typed(args: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned());
    args.filter(|arg| arg != "--bench").collect()
}

/// Returns all arguments except extent and part as one word for a file name, such as `clients-64`.
pub(crate) fn file_suffix(args: &[String]) -> String {
    let mut is_skipped = false;
    let mut words = Vec::new();
    for arg in args {
        if arg.starts_with("--") {
            is_skipped = ["--quick", "--full", "--only", "--judge"].contains(&arg.as_str());
        }
        if !is_skipped {
            words.push(
                arg.trim_start_matches('-').replace(|letter: char| !letter.is_ascii_alphanumeric(), "-"),
            );
        }
    }
    words.join("-")
}

/// Removes a flag and its number from the arguments.
fn take_number(args: &mut Vec<OsString>, flag: &str) -> Result<Option<u32>, String> {
    let Some(at) = args.iter().position(|arg| arg == flag) else { return Ok(None) };
    let number = args.get(at + 1).and_then(|value| value.to_str()?.parse().ok()).filter(|number| *number > 0);
    let number = number.ok_or_else(|| format!("{flag}: takes a number of at least 1"))?;
    args.drain(at..at + 2);
    Ok(Some(number))
}

/// Reads the flags, without the name of the program. `parts` are the names that `--only` takes.
fn parse(args: impl IntoIterator<Item = OsString>, parts: &[&str]) -> Result<Options, String> {
    let mut options = Options { extent: Extent::Default, only: None };
    let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).peekable();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            // Cargo adds this flag.
            "--bench" => {}
            "--quick" => options.extent = Extent::Quick,
            "--full" => options.extent = Extent::Full,
            "--only" => {
                let mut names = Vec::new();
                while let Some(name) = args.next_if(|name| parts.contains(&name.as_str())) {
                    names.push(name);
                }
                if names.is_empty() {
                    return Err(format!("--only: takes some of {}", parts.join(", ")));
                }
                options.only = Some(names.join(AND));
            }
            other => {
                return Err(format!(
                    "{other}: not a flag of this bench; give --quick, --full or --only PART"
                ));
            }
        }
    }
    Ok(options)
}

/// Prints the error, if any, and returns the exit code.
pub fn ending(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("error: {line}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(line: &str) -> ExitCode {
    eprintln!("error: {line}");
    ExitCode::from(2)
}

/// Returns the extent of a Criterion bench: a smoke run where it is asked for, and where cargo runs the bench as a test.
pub fn criterion_extent() -> Extent {
    let args: Vec<String> = std::env::args().collect();
    let is_smoke = args.iter().any(|arg| arg == "--test" || arg == "--quick")
        || !args.iter().any(|arg| arg == "--bench");
    if is_smoke { Extent::Quick } else { Extent::Default }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program<'_> = Program {
        name: "drain",
        parts: &[part("drain", |_| Ok(())), part("guests", |_| Ok(())).with_sections(&["stalled", "abuser"])],
        roles: &[],
        numbers: &["--clients"],
        prepare: |_| {},
    };

    #[test]
    fn flags_of_all_benches_and_of_one_are_read() {
        let (options, numbers, is_judged) = PROGRAM.parse(&["--bench"]).expect("no flags");
        assert_eq!(options, Options { extent: Extent::Default, only: None });
        assert!(numbers.is_empty() && !is_judged);
        let args = ["--full", "--clients", "300", "--only", "stalled", "drain", "--judge"];
        let (options, numbers, is_judged) = PROGRAM.parse(&args).expect("good flags");
        let wants = ["stalled", "drain", "abuser"].map(|name| options.wants(name));
        assert_eq!((options.extent, wants), (Extent::Full, [true, true, false]));
        assert_eq!((numbers.get("--clients"), is_judged), (Some(&300), true));
    }

    #[test]
    fn a_bad_flag_gets_one_line_with_what_can_be_given() {
        let unknown = [&["--fast"][..], &["--only"], &["--only", "nothing"], &["drain"], &["--workers", "1"]];
        for bad in unknown {
            let line = PROGRAM.parse(bad).expect_err("refused");
            assert!(line.contains("--only") && line.lines().count() == 1, "{line}");
        }
        for bad in [&["--clients"][..], &["--clients", "0"], &["--clients", "many"]] {
            let line = PROGRAM.parse(bad).expect_err("refused");
            assert!(line.contains("--clients"), "{line}");
        }
    }

    #[test]
    fn other_arguments_become_part_of_the_file_name() {
        let typed = |args: &[&str]| typed(args.iter().map(OsString::from));
        let args = typed(&["--clients", "64", "--only", "echo", "join", "--full", "--at", "a/b", "--bench"]);
        assert_eq!(args, ["--clients", "64", "--only", "echo", "join", "--full", "--at", "a/b"]);
        assert_eq!(file_suffix(&args), "clients-64-at-a-b");
        assert_eq!(file_suffix(&typed(&["--quick", "--bench", "--only", "echo"])), "");
    }
}
