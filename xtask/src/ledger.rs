//! `cargo xtask ledger`: what all runs of the simulator and of the fuzzer came to, added up, beside what is to be reached.
//!
//! The ledger is a table in a file of the project, a row for each run, with the totals behind it; the tasks that run write
//! their rows, and tidy checks that the file is what this module would write. It judges no run.

mod row;
mod totals;

use std::fs;
use std::path::Path;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

use row::Row;
use totals::Totals;

/// The file, below the root.
pub(crate) const PATH: &str = "crates/sim/docs/LEDGER.md";

const HEAD: &str = "# Ledger

What the simulator and the fuzzer did so far: a row for each run, written by the tasks themselves (`cargo xtask sim --ledger`,
`cargo xtask fuzz --ledger`, `cargo xtask nightly`). Rows are never changed; `cargo xtask tidy` checks that the totals are those
of the rows. Hours are those that simulated clients were connected, faults those of links, ends, clocks and addresses, hostile
are datagrams of attackers without keys, audited are packets of which key and number were compared with all others of their
world, and planted are bugs planted on purpose that were found.
";

/// Prints the totals.
///
/// # Errors
/// [`Stop::Failed`] when the file cannot be read, or is not what it should be.
pub(crate) fn run() -> Result<(), Stop> {
    let rows = read(&Workspace::load()?.root)?;
    print!("{}", Totals::of(&rows));
    Ok(())
}

/// Prints what a run says for the ledger, a text of `key=value` for each row, and writes it down if it is to be kept.
///
/// # Errors
/// [`Stop::Failed`] when a text has a field that the ledger does not know, or the file cannot be written.
pub(crate) fn note(root: &Path, command: &str, figures: &[String], keeps: bool) -> Result<(), Stop> {
    let commit = commit(root)?;
    let date = CommandLine::new("date", &["-u", "+%Y-%m-%d"]).output(root)?;
    let mut rows = if keeps { read(root)? } else { Vec::new() };
    for figures in figures {
        println!("ledger: {figures} commit={commit}");
        let row = Row::said(date.trim(), &commit, command, figures);
        rows.push(row.map_err(|why| Stop::failed(format!("a line for the ledger: {why}")))?);
    }
    if keeps { write(root, &rows) } else { Ok(()) }
}

/// What was run: the commit, and whether any file differs from it but the ledger, into which a task before this one may have
/// written.
fn commit(root: &Path) -> Result<String, Stop> {
    let commit = CommandLine::new("git", &["describe", "--always"]).output(root)?;
    let exclude = format!(":(top,exclude){PATH}");
    let status = ["status", "--porcelain", "--untracked-files=no", "--", ":(top)", &exclude];
    let changed = CommandLine::new("git", &status).output(root)?;
    let mark = if changed.is_empty() { "" } else { "-dirty" };
    Ok(format!("{}{mark}", commit.trim()))
}

/// The first seed behind all that ran.
///
/// # Errors
/// [`Stop::Failed`] when the file cannot be read, or is not what it should be.
pub(crate) fn next_seed(root: &Path) -> Result<u64, Stop> {
    Ok(read(root)?.iter().filter_map(|row| row.seeds.as_ref()).map(|seeds| seeds.end).max().unwrap_or(0))
}

/// What is wrong with the file's text, and in which line.
pub(crate) fn check(text: &str) -> Result<(), (usize, String)> {
    let written = written(&parse(text)?);
    if written == text {
        return Ok(());
    }
    let same = written.lines().zip(text.lines()).take_while(|(one, other)| one == other).count();
    Err((same + 1, "is not what the rows add up to: `cargo xtask sim --ledger` writes it".to_owned()))
}

fn read(root: &Path) -> Result<Vec<Row>, Stop> {
    let text = fs::read_to_string(root.join(PATH)).map_err(|why| Stop::failed(format!("{PATH}: {why}")))?;
    parse(&text).map_err(|(line, why)| Stop::failed(format!("{PATH}:{line}: {why}")))
}

fn write(root: &Path, rows: &[Row]) -> Result<(), Stop> {
    fs::write(root.join(PATH), written(rows)).map_err(|why| Stop::failed(format!("{PATH}: {why}")))
}

/// The rows of the first table.
fn parse(text: &str) -> Result<Vec<Row>, (usize, String)> {
    let table = text.lines().zip(1..).skip_while(|(line, _)| *line != row::HEAD).skip(2);
    let rows = table.take_while(|(line, _)| line.starts_with('|'));
    rows.map(|(line, number)| Row::parse(line).map_err(|why| (number, why))).collect()
}

fn written(rows: &[Row]) -> String {
    let table: String = rows.iter().map(|row| format!("{row}\n")).collect();
    format!("{HEAD}\n{}\n{}\n{table}\n{}", row::HEAD, row::rule(), Totals::of(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let simulated = "seeds=0..2000 hours=221.37 packets=3000000 faults=400000 handshakes=17000 hostile=900000 \
                         audited=2500000 cpu=25s findings=0";
        let fuzzed = "target=F1 inputs=5000000 cpu=20s coverage=12 corpus=3 findings=0";
        let planted = "planted=24/24 findings=0";
        let row = |said: &str| Row::said("2026-01-02", "abc1234", "xtask it", said).unwrap();
        [simulated, simulated, fuzzed, planted].map(row).into()
    }

    #[test]
    fn what_was_written_is_read_and_adds_up() {
        let text = written(&rows());
        assert_eq!(parse(&text), Ok(rows()));
        assert_eq!(check(&text), Ok(()));
        assert!(text.contains("| seeds | 4000 | 2000 | reached | 100000 | 4.0 % |"), "{text}");
        assert!(text.contains("| connection-hours | 442.74 | 1000 | 44.2 % | 50000 | 0.8 % |"), "{text}");
        assert!(text.contains("| F1 | 20 | reached | 0.2 % | 5000000 | reached | 0.5 % |"), "{text}");
        assert!(text.contains("planted bugs: 24/24."), "{text}");
    }

    #[test]
    fn totals_that_are_not_those_of_the_rows_are_seen_where_they_stand() {
        let text = written(&rows());
        let line = text.lines().zip(1..).find(|(line, _)| line.starts_with("| seeds | 4000")).unwrap().1;
        let wrong = text.replace("| seeds | 4000", "| seeds | 4001");
        assert_eq!(check(&wrong).unwrap_err().0, line);
        let row = text.lines().zip(1..).find(|(line, _)| line.contains("0..2000")).unwrap().1;
        assert_eq!(check(&text.replacen("0..2000", "0..2o00", 1)).unwrap_err().0, row);
        assert!(check("").is_err());
    }

    #[test]
    fn the_next_seed_is_behind_all_of_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let last = read(root).unwrap().into_iter().filter_map(|row| row.seeds).map(|seeds| seeds.end).max();
        assert_eq!(next_seed(root).unwrap(), last.unwrap_or(0));
    }
}
