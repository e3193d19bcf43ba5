//! The command line of a bench, and the order in which its parts run.
//!
//! A bench is one executable with several parts. Its child processes are the same executable with a hidden first argument.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use drumfire_tools::host as system;

use crate::host::{Cores, print_machine};
use crate::process::{Counts, ROLE_FLAG, arguments, print_json};
use crate::results::{ArmTable, Results};
use crate::rounds::{Extent, Measured, Plan};

/// One part of a bench.
#[derive(Clone, Copy)]
pub struct Part {
    name: &'static str,
    sections: &'static [&'static str],
    extent_min: Extent,
    run: fn(&mut Bench) -> Result<(), String>,
}

/// A part with this name.
pub const fn part(name: &'static str, run: fn(&mut Bench) -> Result<(), String>) -> Part {
    Part { name, sections: &[], extent_min: Extent::Quick, run }
}

impl Part {
    /// Adds the names of sections that `--only` can select within the part.
    pub const fn with_sections(self, sections: &'static [&'static str]) -> Self {
        Self { sections, ..self }
    }

    /// Leaves the part out of runs that do less than this, unless `--only` names it.
    pub const fn from(self, extent_min: Extent) -> Self {
        Self { extent_min, ..self }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        [self.name].into_iter().chain(self.sections.iter().copied())
    }
}

/// The main function of a child process. It reads its arguments with [`crate::arguments`]. Its counts are the last line of its output,
/// if there are any.
pub type Role = fn(&str) -> Result<Counts, String>;

/// A bench as its `main` describes it.
pub struct Program<'a> {
    /// The name of the bench target.
    pub name: &'static str,
    /// The parts in the order in which they run.
    pub parts: &'a [Part],
    /// The roles of child processes by name.
    pub roles: &'a [(&'static str, Role)],
    /// A flag of this bench alone, without dashes. It takes a number of at least 1.
    pub number: Option<&'static str>,
    /// Runs before the first part, to note pinning and seed.
    pub prepare: fn(&mut Bench),
}

/// A bench that runs: its arguments, and the results so far.
pub struct Bench {
    /// The figures and reports. They are written when all parts have run.
    pub results: Results,
    extent: Extent,
    /// The parts and sections that `--only` names. Without names all of them run.
    only: Vec<String>,
    /// The part that runs now.
    part: Part,
    number: Option<u32>,
    cores: Option<Cores>,
    /// Failures that leave the figures of their part valid.
    failures: Vec<String>,
}

impl<'a> Program<'a> {
    /// A bench without roles and further flags.
    pub const fn new(name: &'static str, parts: &'a [Part]) -> Self {
        Self { name, parts, roles: &[], number: None, prepare: |_| {} }
    }

    /// Runs a child process, if the arguments ask for one, or the bench.
    ///
    /// The exit code is 2 for bad arguments, and 1 when a part failed or when `--judge` was given and a goal was missed.
    pub fn main(&self) -> ExitCode {
        let args: Vec<String> = std::env::args().skip(1).collect();
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let outcome = if let [ROLE_FLAG, name, core, args] = words.as_slice() {
            self.run_role(name, core, args)
        } else {
            match self.command().no_binary_name(true).try_get_matches_from(&args) {
                Ok(matches) => self.run(&matches),
                Err(error) => error.exit(),
            }
        };
        outcome.map_or_else(
            |line| {
                eprintln!("error: {line}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        )
    }

    fn run_role(&self, name: &str, core: &str, args: &str) -> Result<(), String> {
        let role = self.roles.iter().find(|(known, _)| *known == name);
        let (_, role) = role.ok_or_else(|| format!("{name}: not a role"))?;
        if let Some(core) = arguments(core)? {
            // Threads that the role starts later stay on the same core.
            system::pin_current_thread(core).map_err(|error| error.to_string())?;
        }
        let counts = role(args)?;
        if counts.is_empty() { Ok(()) } else { print_json(&counts) }
    }

    fn command(&self) -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let parts = PossibleValuesParser::new(self.parts.iter().flat_map(Part::names));
        let only = Arg::new("only").long("only").num_args(1..).value_parser(parts);
        let number = |name| Arg::new(name).long(name).value_parser(value_parser!(u32).range(1..));
        Command::new(self.name)
            .arg(flag("quick").help("A smoke run, whose figures mean little"))
            .arg(
                flag("full").help("All figures, with longer windows and more rounds").conflicts_with("quick"),
            )
            .arg(flag("judge").help("Makes a missed goal a failure"))
            // Cargo adds this flag.
            .arg(flag("bench").hide(true))
            .arg(only.help("The parts to run"))
            .args(self.number.map(number))
    }

    fn bench(&self, matches: &ArgMatches) -> Option<Bench> {
        let extent = match (matches.get_flag("quick"), matches.get_flag("full")) {
            (true, _) => Extent::Quick,
            (_, true) => Extent::Full,
            _ => Extent::Default,
        };
        let only: Vec<String> = matches.get_many::<String>("only").into_iter().flatten().cloned().collect();
        let number = self.number.and_then(|name| matches.get_one::<u32>(name).copied());
        let size = self.number.zip(number).map(|(name, number)| format!("{name}-{number}"));
        let (part, results) = (*self.parts.first()?, Results::new(self.name, extent, &only, size));
        Some(Bench { results, extent, only, part, number, cores: None, failures: Vec::new() })
    }

    fn run(&self, matches: &ArgMatches) -> Result<(), String> {
        print_machine();
        let mut bench = self.bench(matches).ok_or("a bench without parts")?;
        println!("extent    {}", bench.extent.name());
        (self.prepare)(&mut bench);
        let mut failed = None;
        for part in self.parts {
            let is_wanted = part.names().any(|name| bench.is_named(name));
            if is_wanted && (!bench.only.is_empty() || bench.extent >= part.extent_min) {
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
            None if matches.get_flag("judge") && !missed.is_empty() => {
                Err(format!("missed: {}", missed.join("; ")))
            }
            None => Ok(()),
        }
    }
}

impl Bench {
    /// Runs the present part on a thread of its own, so that the part's pinning ends with it. A part that fails leaves no figure.
    fn run_part(&mut self) -> Result<(), String> {
        let before = self.results.clone();
        let run = self.part.run;
        let outcome = std::thread::scope(|scope| scope.spawn(|| run(&mut *self)).join());
        let outcome = outcome.unwrap_or_else(|_| Err("the part panicked".to_owned()));
        if outcome.is_err() {
            self.results = before;
        }
        outcome
    }

    fn is_named(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// How much the bench does.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The name of the present part.
    pub fn part(&self) -> &'static str {
        self.part.name
    }

    /// Whether this section of the present part is to run.
    pub fn wants(&self, section: &str) -> bool {
        self.is_named(section) || self.is_named(self.part.name)
    }

    /// Ends the bench with this failure after the last part. The figures of the present part stay.
    pub fn fail_later(&mut self, line: String) {
        eprintln!("{line}");
        self.failures.push(line);
    }

    /// The number that was given with [`Program::number`].
    pub fn number(&self) -> Option<u32> {
        self.number
    }

    /// Prints a table of echoes with these further values, and adds their runs.
    pub fn show_echoes(
        &mut self,
        part: &str,
        measured: &[Measured],
        values: &[(&str, usize)],
    ) -> Result<(), String> {
        ArmTable::of_echoes(part, measured).values(values).print_with_limits();
        self.results.rounds(part, measured)
    }

    /// The rounds of this extent.
    pub fn plan(&self) -> Plan {
        Plan::of(self.extent)
    }

    /// Pins this thread to the core of the load and notes it in the results.
    pub fn pin_load(&mut self) -> Result<Cores, String> {
        let cores = Cores::of_this_process()?;
        if self.cores != Some(cores) {
            self.cores = Some(cores);
            self.results.pinned_as(&cores.to_string());
        }
        system::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
        Ok(cores)
    }
}

/// Returns the arguments of this program as they were typed, without those that cargo adds.
pub(crate) fn given() -> Vec<String> {
    std::env::args().skip(1).filter(|arg| arg != "--bench").collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Goal;

    const PARTS: [Part; 2] =
        [part("drain", |_| Ok(())), part("neighbours", |_| Ok(())).with_sections(&["stalled", "abuser"])];
    const PROGRAM: Program<'_> = Program { number: Some("clients"), ..Program::new("drain", &PARTS) };

    fn parse(args: &[&str]) -> Result<Bench, clap::Error> {
        let matches = PROGRAM.command().no_binary_name(true).try_get_matches_from(args)?;
        Ok(PROGRAM.bench(&matches).expect("there are parts"))
    }

    #[test]
    fn flags_of_all_benches_and_of_one_are_read() {
        let bench = parse(&["--bench"]).expect("no flags");
        assert_eq!((bench.extent, bench.wants("stalled"), bench.number()), (Extent::Default, true, None));
        let args = ["--full", "--clients", "300", "--only", "stalled", "drain"];
        let bench = parse(&args).expect("good flags");
        let named = ["stalled", "drain", "abuser"].map(|name| bench.is_named(name));
        assert_eq!((bench.extent, named), (Extent::Full, [true, true, false]));
        assert_eq!(bench.number(), Some(300));
    }

    #[test]
    fn a_part_that_fails_leaves_no_figure() {
        let mut bench = parse(&[]).expect("no flags");
        bench.results.figure("of the part before", None::<f64>, "", Goal::AtMost(0.0), "");
        bench.part = part("drain", |bench| {
            bench.results.figure("of books that do not close", None::<f64>, "", Goal::AtMost(0.0), "");
            Err("BOOKS DO NOT CLOSE".to_owned())
        });
        assert!(bench.run_part().is_err());
        assert_eq!(bench.results.missed(), ["of the part before"]);
    }

    #[test]
    fn a_bad_flag_is_named_and_ends_with_code_2() {
        let bad = [
            (&["--fast"][..], "--fast"),
            (&["--only"], "--only"),
            (&["--only", "nothing"], "stalled"),
            (&["--clients", "0"], "--clients"),
            (&["--clients", "many"], "--clients"),
        ];
        for (args, named) in bad {
            let error = parse(args).err().expect("refused");
            assert!(error.to_string().contains(named) && error.exit_code() == 2, "{error}");
        }
    }
}
