//! `cargo xtask bench`: lists the benches, runs the short run of each in turn, or holds the instruction counts against
//! their baseline.
//!
//! It measures nothing itself; [`gate`] judges counts and nothing else is judged here.

mod gate;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use crate::run::{CommandLine, Interrupt, Stop, Stopwatch, end, finished};
use crate::workspace::{Package, Target, Workspace};

/// At this age a bench's short run, which is to take at most 20 s, is stuck and killed: a busy machine is no reason to fail it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// All short runs together, without the build.
const WHOLE_SECS: f64 = 600.0;

/// Longer descriptions are cut where they can be.
const LINE: usize = 110;

/// What is asked of this task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// What benches there are.
    List,
    /// The short run of each.
    Quick,
    /// Instruction counts against the baseline.
    Gate,
    /// Instruction counts as the new baseline.
    Bless,
}

/// Does what is asked.
///
/// # Errors
/// [`Stop::Failed`] naming the benches that failed or the stages that grew; [`Stop::Needs`] where there is no valgrind.
pub(crate) fn run(ask: Ask) -> Result<(), Stop> {
    let workspace = Workspace::load()?;
    match ask {
        Ask::List => list(&workspace),
        Ask::Quick => quick(&workspace),
        Ask::Gate => gate::run(&workspace, false),
        Ask::Bless => gate::run(&workspace, true),
    }
}

/// The command of a bench's short run: `--quick`, or the arguments `package.metadata.smoke` gives it.
pub(crate) fn short_run(package: &Package, bench: &str) -> CommandLine {
    let quick = ["--quick".to_owned()];
    let args = package.smoke.get(bench).map_or(&quick[..], |args| &args[..]);
    let command = CommandLine::new("cargo", &["bench", "-p", &package.name, "--bench", bench, "--"]);
    args.iter().fold(command, CommandLine::arg)
}

/// Every bench target of the workspace with its package.
fn benches(workspace: &Workspace) -> Result<Vec<(&Package, &Target)>, Stop> {
    let of = |package| Package::targets(package, "bench").map(move |target| (package, target));
    let benches: Vec<_> = workspace.packages.iter().flat_map(of).collect();
    if benches.is_empty() { Err(Stop::failed("the workspace has no bench")) } else { Ok(benches) }
}

fn list(workspace: &Workspace) -> Result<(), Stop> {
    let benches = benches(workspace)?;
    let width = benches.iter().map(|(_, bench)| bench.name.len()).max().unwrap_or_default();
    for (_, bench) in benches {
        let path = workspace.root.join(&bench.source);
        let text = std::fs::read_to_string(&path)
            .map_err(|why| Stop::failed(format!("{}: {why}", path.display())))?;
        println!("{:width$}  {}", bench.name, first_sentence(&text));
    }
    println!("\ncargo bench --bench NAME [-- --quick | --full]   runs one; cargo bench -- --quick runs all");
    println!("cargo xtask bench --quick                        short runs of all, with a summary");
    println!(
        "cargo xtask bench --gate | --bless               instruction counts against benches/counts.toml"
    );
    println!("cargo xtask report                               a page of what was measured");
    Ok(())
}

/// The first sentence of a file's docs, without the command in it.
fn first_sentence(text: &str) -> String {
    let docs: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
    let docs = docs.join(" ");
    let first = docs.split_inclusive(". ").next().unwrap_or_default().trim();
    let without_command = first.split(": `cargo bench").next().unwrap_or(first).trim_end_matches('.');
    if without_command.len() <= LINE {
        return without_command.to_owned();
    }
    // What stands after a colon explains what stands before it.
    without_command.split(": ").next().unwrap_or(without_command).to_owned()
}

/// What came of one short run.
struct Ran {
    bench: String,
    secs: f64,
    /// `ok`, or the line that says what is wrong.
    word: String,
    is_ok: bool,
}

fn quick(workspace: &Workspace) -> Result<(), Stop> {
    let benches = benches(workspace)?;
    let build = CommandLine::new("cargo", &["bench", "--workspace", "--benches", "--no-run"]);
    println!("{build}");
    if !build.run(&workspace.root, None)?.success() {
        return Err(Stop::failed(format!("{build}: failed")));
    }
    let folder = workspace.target.join("reports/logs");
    std::fs::create_dir_all(&folder).map_err(|why| Stop::failed(format!("{}: {why}", folder.display())))?;
    let interrupt = Interrupt::on_ctrl_c()?;
    let (whole, mut all) = (Stopwatch::start(), Vec::new());
    for (at, (package, bench)) in benches.iter().enumerate() {
        let bench = &bench.name;
        let command = short_run(package, bench);
        println!("[{}/{}] {command}", at + 1, benches.len());
        let log = folder.join(format!("{bench}.log"));
        all.push(run_one(&workspace.root, bench, &command, &log, &interrupt)?);
    }
    let secs = whole.elapsed().as_secs_f64();
    println!("\n{}", table(&all));
    println!("{secs:.0} s in all; what each printed is in {}", folder.display());
    let failed: Vec<&str> = all.iter().filter(|ran| !ran.is_ok).map(|ran| ran.bench.as_str()).collect();
    if !failed.is_empty() {
        return Err(Stop::failed(format!("failed: {}", failed.join(", "))));
    }
    if secs > WHOLE_SECS {
        return Err(Stop::failed(format!("the short runs took {secs:.0} s, more than {WHOLE_SECS:.0} s")));
    }
    Ok(())
}

fn run_one(
    root: &Path,
    bench: &str,
    command: &CommandLine,
    log: &PathBuf,
    interrupt: &Interrupt,
) -> Result<Ran, Stop> {
    let unwritable = |why: std::io::Error| Stop::failed(format!("{}: {why}", log.display()));
    let file = File::create(log).map_err(unwritable)?;
    let stopwatch = Stopwatch::start();
    let mut child = command
        .command()
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(file.try_clone().map_err(unwritable)?)
        .stderr(file)
        .spawn()
        .map_err(|why| Stop::failed(format!("{command}: {why}")))?;
    let status = loop {
        if let Some(status) = finished(&mut child)? {
            break Some(status);
        }
        if stopwatch.elapsed() >= DEADLINE {
            end(&mut child);
            break None;
        }
        if let Err(stop) = interrupt.pause() {
            end(&mut child);
            return Err(stop);
        }
    };
    let text = std::fs::read_to_string(log).map_err(unwritable)?;
    let (is_ok, word) = verdict(status, &text);
    Ok(Ran { bench: bench.to_owned(), secs: stopwatch.elapsed().as_secs_f64(), word, is_ok })
}

/// Whether a run was well, and in one line what was not. No status is one that did not end in time.
fn verdict(status: Option<ExitStatus>, text: &str) -> (bool, String) {
    let line_of = |start: &str| text.lines().rfind(|line| line.starts_with(start));
    match status {
        Some(status) if status.success() => {
            (true, line_of("skipped: ").map_or_else(|| "ok".to_owned(), str::to_owned))
        }
        None => (false, format!("killed: still running after {} s", DEADLINE.as_secs())),
        Some(status) => {
            // Cargo has the last word, and says only that the bench failed.
            let said = text
                .lines()
                .rfind(|line| line.starts_with("error: ") && !line.starts_with("error: bench failed"));
            let panicked = || {
                let mut lines = text.lines().skip_while(|line| !line.contains("panicked at"));
                lines.next().and_then(|_| lines.next())
            };
            (false, said.or_else(panicked).map_or_else(|| status.to_string(), str::to_owned))
        }
    }
}

fn table(all: &[Ran]) -> String {
    let width = all.iter().map(|ran| ran.bench.len()).max().unwrap_or_default();
    let row = |ran: &Ran| format!("{:width$}  {:6.1} s  {}", ran.bench, ran.secs, ran.word);
    all.iter().map(row).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::samples;
    use serde_json::json;

    fn status(code: u8) -> Option<ExitStatus> {
        CommandLine::new("sh", &["-c", &format!("exit {code}")]).run(Path::new("."), None).ok()
    }

    #[test]
    fn a_bench_is_described_by_the_first_sentence_of_its_docs() {
        let text = "//! What an ack costs,\n//! by ranges: `cargo bench --bench acks`.\n//!\n//! More. And more.\nuse x;";
        assert_eq!(first_sentence(text), "What an ack costs, by ranges");
        assert_eq!(
            first_sentence("//! Echo: what a message costs.\n//!\n//! `x`"),
            "Echo: what a message costs"
        );
        assert_eq!(first_sentence(&format!("//! A stage: {}.", "parse, ".repeat(30))), "A stage");
        assert_eq!(first_sentence("use x;"), "");
    }

    #[test]
    fn a_short_run_has_the_arguments_that_the_package_gives_it() {
        let mut benches = samples::package("benches", &[], &[("bench", "pps"), ("bench", "codec")], &[]);
        benches["metadata"] = json!({ "smoke": { "codec": ["--test"] } });
        let workspace = samples::workspace(&[benches]);
        let package = workspace.package_in("benches").unwrap();
        let command = |bench| short_run(package, bench).to_string();
        assert_eq!(command("pps"), "cargo bench -p drumfire-benches --bench pps -- --quick");
        assert_eq!(command("codec"), "cargo bench -p drumfire-benches --bench codec -- --test");
    }

    #[test]
    fn a_failed_run_is_told_by_the_line_that_names_what_is_off() {
        let log =
            "row\nerror: BOOKS DO NOT CLOSE: 7 left over\nerror: bench failed, to rerun pass `--bench pps`\n";
        assert_eq!(verdict(status(1), log), (false, "error: BOOKS DO NOT CLOSE: 7 left over".to_owned()));
        let log = "thread 'main' panicked at benches/x.rs:1:2:\na counter is off\nnote: x\n";
        assert_eq!(verdict(status(101), log), (false, "a counter is off".to_owned()));
        assert_eq!(verdict(None, ""), (false, "killed: still running after 120 s".to_owned()));
        assert!(verdict(status(3), "").1.contains('3'));
    }

    #[test]
    fn a_run_that_was_skipped_says_so() {
        assert_eq!(verdict(status(0), "written\n"), (true, "ok".to_owned()));
        assert_eq!(verdict(status(0), "skipped: needs x\n"), (true, "skipped: needs x".to_owned()));
    }
}
