//! `cargo xtask chaos`: faults, floods, and restarts over real sockets. Each run has two network namespaces of its own.
//!
//! The program `chaos` decides what a run does and which marks it must reach. This module builds it, starts it, and sums up.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use crate::netns::{Pair, Side};
use crate::run::{CommandLine, EXIT_NEEDS, Stop, Stopwatch};
use crate::sanitize;
use crate::workspace::Workspace;

/// The runs, and what each is about.
const RUNS: [(&str, &str); 12] = [
    ("C1", "plays for long"),
    ("C2", "a bad net"),
    ("C3", "floods"),
    ("C4", "full buffers"),
    ("C5", "source ports change"),
    ("C6", "killed and started again"),
    ("C7", "ends without haste"),
    ("C8", "stands still"),
    ("C9", "panics"),
    ("C10", "errors of the system"),
    ("C11", "another process on the port, lost sockets"),
    ("C12", "addresses, packet sizes, trains"),
];

/// The exit code of a run that reached all marks that its size judges, and not the others.
const EXIT_PARTLY: i32 = 4;

/// The name for all runs.
const ALL: &str = "all";

/// The flags of the task.
#[derive(Debug, clap::Args)]
pub(crate) struct ChaosArgs {
    /// Which runs: C5 and so on, or all.
    #[arg(required = true, value_name = "RUN", value_parser = name)]
    runs: Vec<String>,
    /// Some seconds each.
    #[arg(long, group = "size")]
    quick: bool,
    /// The figures that a release is judged by, which take hours.
    #[arg(long, group = "size")]
    full: bool,
    /// With programs under the address sanitizer, where the compiler takes it.
    #[arg(long)]
    sanitized: bool,
}

impl ChaosArgs {
    const fn size(&self) -> Size {
        match (self.quick, self.full) {
            (true, _) => Size::Quick,
            (_, true) => Size::Full,
            _ => Size::Default,
        }
    }
}

/// How much of each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    /// Some seconds each.
    Quick,
    /// A minute or two each.
    Default,
    /// The figures that a release is judged by.
    Full,
}

impl Size {
    const fn flag(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Default => "default",
            Self::Full => "full",
        }
    }

    /// A run that takes longer is stuck.
    const fn deadline(self) -> Duration {
        Duration::from_secs(match self {
            Self::Quick => 120,
            Self::Default => 900,
            Self::Full => 36_000,
        })
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Passed,
    /// All marks were reached that this size judges.
    Partly,
    Missed,
    Skipped,
}

/// The name of a run, or `all`, in any case.
///
/// # Errors
/// When there is no such run.
fn name(text: &str) -> Result<String, String> {
    let known = RUNS.iter().map(|(name, _)| *name).chain([ALL]);
    known.into_iter().find(|name| name.eq_ignore_ascii_case(text)).map(str::to_owned).ok_or_else(|| {
        format!(
            "no such run; there are {ALL}{}",
            RUNS.map(|(name, what)| format!(", {name} ({what})")).concat()
        )
    })
}

/// Does the runs one after the other, also after one that missed a mark.
///
/// # Errors
/// [`Stop::Needs`] when the machine cannot make namespaces or a run was skipped for another reason, [`Stop::Failed`] when a
/// mark was missed or a run could not be done.
pub(crate) fn run(args: &ChaosArgs) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    // Before the build, so that a machine that cannot make namespaces is skipped without one.
    drop(Pair::new()?);
    let program = build(&workspace, args.sanitized)?.to_string_lossy().into_owned();
    let (size, mut ends) = (args.size(), Vec::new());
    for (name, _) in RUNS.iter().filter(|(run, _)| is_wanted(run, &args.runs)) {
        let stopwatch = Stopwatch::start();
        // Each run has its own pair, so that its settings end with it.
        let pair = Pair::new()?;
        let other = pair.name(Side::B);
        let address = Side::B.address().to_string();
        let link = ["--other", &other, "--other-address", &address];
        let flags = [&["run", name, "--size", size.flag()][..], &link].concat();
        let command = pair.inside(Side::A, &program, &flags);
        println!("\n{command}");
        let end = judged(command.run(&workspace.root, Some(size.deadline())))?;
        ends.push((*name, end, stopwatch.elapsed().as_secs_f64()));
    }
    println!();
    for (name, end, seconds) in &ends {
        println!("{name:4} {end:?} in {seconds:.1} s");
    }
    sum(&ends.iter().map(|(name, end, _)| (*name, *end)).collect::<Vec<_>>())
}

/// Builds the program and returns its path.
fn build(workspace: &Workspace, is_sanitized: bool) -> Result<PathBuf, Stop> {
    let args = ["build", "--release", "-p", "drumfire-chaos"];
    let (build, folder) = if is_sanitized {
        let sanitizer = sanitize::Sanitizer::find(workspace)?;
        (sanitizer.cargo(&args), sanitizer.built().join("release"))
    } else {
        (CommandLine::new("cargo", &args), workspace.target.join("release"))
    };
    build.done(&workspace.root)?;
    Ok(folder.join("chaos"))
}

fn is_wanted(run: &str, names: &[String]) -> bool {
    names.iter().any(|name| name == run || name == ALL)
}

/// Returns the end that a run's status means.
fn judged(status: Result<ExitStatus, Stop>) -> Result<End, Stop> {
    match status {
        Ok(status) if status.success() => Ok(End::Passed),
        Ok(status) if status.code() == Some(EXIT_PARTLY) => Ok(End::Partly),
        Ok(status) if status.code() == Some(i32::from(EXIT_NEEDS)) => Ok(End::Skipped),
        Ok(_) => Ok(End::Missed),
        Err(Stop::Failed(why)) => {
            eprintln!("{why}");
            Ok(End::Missed)
        }
        Err(other) => Err(other),
    }
}

/// All runs together: one that missed counts more than one that was skipped.
fn sum(ends: &[(&str, End)]) -> Result<(), Stop> {
    let of = |wanted| {
        let names = ends.iter().filter(|(_, end)| *end == wanted).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    match (of(End::Missed), of(End::Skipped)) {
        (missed, _) if !missed.is_empty() => Err(Stop::failed(format!("missed: {missed}"))),
        (_, skipped) if !skipped.is_empty() => Err(Stop::Needs(format!("what {skipped} said above"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_known_by_its_name_in_any_case() {
        assert_eq!(name("c5"), Ok("C5".to_owned()));
        assert_eq!(name("ALL"), Ok("all".to_owned()));
        assert!(name("C99").is_err_and(|why| why.contains("C5 (source ports change)")));
    }

    #[test]
    fn all_are_wanted_or_those_that_were_named() {
        let names = ["C5".to_owned()];
        assert!(is_wanted("C5", &names) && !is_wanted("C6", &names));
        assert!(RUNS.iter().all(|(run, _)| is_wanted(run, &[ALL.to_owned()])));
    }

    #[test]
    fn a_miss_is_worse_than_a_skip_and_neither_is_silent() {
        assert!(sum(&[("C5", End::Passed), ("C6", End::Partly)]).is_ok());
        let skipped = sum(&[("C5", End::Passed), ("C6", End::Skipped)]);
        assert!(matches!(skipped, Err(Stop::Needs(what)) if what.contains("C6")));
        let missed = sum(&[("C5", End::Missed), ("C6", End::Skipped)]);
        assert!(matches!(missed, Err(Stop::Failed(why)) if why.ends_with(": C5")));
    }

    #[test]
    fn a_status_is_judged() {
        let status =
            |code: u8| CommandLine::new("sh", &["-c", &format!("exit {code}")]).run(".".as_ref(), None);
        assert_eq!(judged(status(0)).unwrap(), End::Passed);
        assert_eq!(judged(status(4)).unwrap(), End::Partly);
        assert_eq!(judged(status(1)).unwrap(), End::Missed);
        assert_eq!(judged(status(EXIT_NEEDS)).unwrap(), End::Skipped);
        assert_eq!(judged(Err(Stop::failed("killed"))).unwrap(), End::Missed);
        assert!(matches!(judged(Err(Stop::Interrupted)), Err(Stop::Interrupted)));
    }
}
