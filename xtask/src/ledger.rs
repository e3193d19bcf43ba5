//! `cargo xtask ledger`: what all runs that looked for faults came to, added up, beside what is to be reached.
//!
//! The ledger are two tables in a file of the project, a row for each run, with the totals behind them; the tasks that run write
//! their rows, and tidy checks that the file is what this module would write. It judges no run.

mod other;
mod row;
mod totals;

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::run::{CommandLine, Stop};
use crate::workspace::Workspace;

pub(crate) use other::Ended;
use other::Other;
use row::Row;
use totals::Totals;

/// The file, below the root.
pub(crate) const PATH: &str = "crates/sim/docs/LEDGER.md";

const HEAD: &str = "# Ledger

What was run so far to find faults: a row for each run, written by the tasks themselves (`cargo xtask sim --ledger` and the like,
`cargo xtask nightly`). Rows are never changed; `cargo xtask tidy` checks that the totals are those of the rows. Hours are those
that simulated clients were connected, faults those of links, ends, clocks and addresses, hostile are datagrams of attackers
without keys, audited are packets of which key and number were compared with all others of their world, and planted are bugs
planted on purpose that were found.

In one go `cargo xtask nightly` has 180 processor minutes, 90 minutes of two cores, for all of it. Where a figure of a beta takes
more than its share of that, a scaled goal stands before it: 300 CPU s for each target of the fuzzer, half the connection-hours,
packets and audited packets, one soak of 3 minutes and one under the address sanitizer, 1,000 seeds of each test of the core. What
the whole takes, at the rate of those rows that say their time, stands behind it. Shares are those of all runs together; what each
submission has to reach is one run of `cargo xtask ci`, which writes no rows.
";

/// What stands before the second table.
const OTHERS: &str = "## Other runs

Runs over real sockets, in all or many orders of threads, and under sanitizers; of what is counted only what held adds up.
";

/// All rows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Book {
    /// Of the simulator and of the fuzzer.
    rows: Vec<Row>,
    others: Vec<Other>,
}

/// A run that is neither the simulator's nor the fuzzer's, as its task tells it.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// The task, without `cargo`.
    pub(crate) command: &'a str,
    /// `C1`, `loom` and so on: runs of one name are compared with each other.
    pub(crate) what: &'a str,
    /// As `key=value`, with spaces between them; none where something did not hold.
    pub(crate) counts: &'a str,
    /// Without builds.
    pub(crate) wall: Duration,
    pub(crate) ended: Ended,
}

/// Writes the totals anew, and prints them.
///
/// # Errors
/// [`Stop::Failed`] when the file cannot be read or written, or is not what it should be.
pub(crate) fn run() -> Result<(), Stop> {
    let root = Workspace::load()?.root;
    let book = read(&root)?;
    write(&root, &book)?;
    print!("{}", Totals::of(&book));
    Ok(())
}

/// Prints what a run says for the ledger, a text of `key=value` for each row, and writes it down if it is to be kept.
///
/// # Errors
/// [`Stop::Failed`] when a text has a field that the ledger does not know, or the file cannot be written.
pub(crate) fn note(root: &Path, command: &str, figures: &[String], keeps: bool) -> Result<(), Stop> {
    let (date, commit) = (today(root)?, commit(root)?);
    let mut book = if keeps { read(root)? } else { Book::default() };
    for figures in figures {
        println!("ledger: {figures} commit={commit}");
        book.rows.push(Row::said(&date, &commit, command, figures).map_err(|why| no_line(&why))?);
    }
    if keeps { write(root, &book) } else { Ok(()) }
}

/// The same for a run of another kind.
///
/// # Errors
/// As [`note`].
pub(crate) fn note_other(root: &Path, run: &Run<'_>, keeps: bool) -> Result<(), Stop> {
    let row = Other::said(&today(root)?, &commit(root)?, run).map_err(|why| no_line(&why))?;
    println!("ledger: {row}");
    if !keeps {
        return Ok(());
    }
    let mut book = read(root)?;
    book.others.push(row);
    write(root, &book)
}

fn no_line(why: &str) -> Stop {
    Stop::failed(format!("a line for the ledger: {why}"))
}

fn today(root: &Path) -> Result<String, Stop> {
    Ok(CommandLine::new("date", &["-u", "+%Y-%m-%d"]).output(root)?.trim().to_owned())
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
    Ok(read(root)?.rows.iter().filter_map(|row| row.seeds.as_ref()).map(|seeds| seeds.end).max().unwrap_or(0))
}

/// What is wrong with the file's text, and in which line.
pub(crate) fn check(text: &str) -> Result<(), (usize, String)> {
    let written = written(&parse(text)?);
    if written == text {
        return Ok(());
    }
    let same = written.lines().zip(text.lines()).take_while(|(one, other)| one == other).count();
    Err((same + 1, "is not what the rows add up to: `cargo xtask ledger` writes it".to_owned()))
}

fn read(root: &Path) -> Result<Book, Stop> {
    let text = fs::read_to_string(root.join(PATH)).map_err(|why| Stop::failed(format!("{PATH}: {why}")))?;
    parse(&text).map_err(|(line, why)| Stop::failed(format!("{PATH}:{line}: {why}")))
}

fn write(root: &Path, book: &Book) -> Result<(), Stop> {
    fs::write(root.join(PATH), written(book)).map_err(|why| Stop::failed(format!("{PATH}: {why}")))
}

/// The rows of both tables; a file of before there was the second has none of its rows.
fn parse(text: &str) -> Result<Book, (usize, String)> {
    Ok(Book { rows: table(text, row::HEAD, Row::parse)?, others: table(text, other::HEAD, Other::parse)? })
}

/// The rows of the table with this first line.
fn table<T>(
    text: &str,
    head: &str,
    row: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, (usize, String)> {
    let table = text.lines().zip(1..).skip_while(|(line, _)| *line != head).skip(2);
    let rows = table.take_while(|(line, _)| line.starts_with('|'));
    rows.map(|(line, number)| row(line).map_err(|why| (number, why))).collect()
}

fn written(book: &Book) -> String {
    let lines = |rows: &[String]| rows.iter().map(|row| format!("{row}\n")).collect::<String>();
    let rows = lines(&book.rows.iter().map(ToString::to_string).collect::<Vec<_>>());
    let others = lines(&book.others.iter().map(ToString::to_string).collect::<Vec<_>>());
    let [first, second] = [row::HEAD, other::HEAD].map(|head| format!("{head}\n{}\n", rule(head)));
    format!("{HEAD}\n{first}{rows}\n{OTHERS}\n{second}{others}\n{}", Totals::of(book))
}

/// The line below the first of a table.
fn rule(head: &str) -> String {
    "| --- ".repeat(head.matches(" | ").count() + 1) + "|"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> Book {
        let simulated = "seeds=0..2000 hours=221.37 packets=3000000 faults=400000 handshakes=17000 hostile=900000 \
                         audited=2500000 cpu=25s findings=0";
        let fuzzed = "target=F1 inputs=5000000 cpu=20s coverage=12 corpus=3 findings=0";
        let planted = "planted=24/24 findings=0";
        let row = |said: &str| Row::said("2026-01-02", "abc1234", "xtask it", said).unwrap();
        let other = |what, counts, ended| {
            let wall = Duration::from_secs(180);
            let run = Run { command: "xtask chaos all", what, counts, wall, ended };
            Other::said("2026-01-02", "abc1234", &run).unwrap()
        };
        Book {
            rows: [simulated, simulated, fuzzed, planted].map(row).into(),
            others: vec![
                other("C1", "packets=4000000 seconds=180", Ended::Held),
                other("C9", "panics=7", Ended::Missed),
            ],
        }
    }

    #[test]
    fn what_was_written_is_read_and_adds_up() {
        let text = written(&book());
        assert_eq!(parse(&text), Ok(book()));
        assert_eq!(check(&text), Ok(()));
        assert!(text.contains("| seeds | 4000 | whole |  | 100000 | 4.0 % | 0.4 CPU h |"), "{text}");
        let hours = "| connection-hours | 442.74 | 25000 | 1.7 % | 50000 | 0.8 % | 1.6 CPU h |";
        assert!(text.contains(hours), "{text}");
        assert!(text.contains("| F1 | 20 | 6.6 % | 0.2 % | 5000000 | 0.5 % | 2.0 CPU h |"), "{text}");
        assert!(text.contains("planted bugs: 24/24."), "{text}");
        let soak = "| packets of a soak (C1) | 4000000 | 8000000 | 50.0 % | 300000000 | 1.3 % | 3.8 h |";
        assert!(text.contains(soak), "{text}");
        assert!(text.contains("| C9 | 2026-01-02 | abc1234 | panics=7 | missed |"), "{text}");
    }

    #[test]
    fn a_file_of_one_table_is_read_and_gets_the_second() {
        let text = written(&book());
        let (before, behind) = (text.find(OTHERS).unwrap(), text.find("## Totals").unwrap());
        let old = format!("{}{}", &text[..before], &text[behind..]);
        let rows = parse(&old).unwrap();
        assert_eq!((&rows.rows, rows.others.len()), (&book().rows, 0));
        assert!(check(&old).is_err() && check(&written(&rows)).is_ok());
    }

    #[test]
    fn totals_that_are_not_those_of_the_rows_are_seen_where_they_stand() {
        let text = written(&book());
        let line = text.lines().zip(1..).find(|(line, _)| line.starts_with("| seeds | 4000")).unwrap().1;
        let wrong = text.replace("| seeds | 4000", "| seeds | 4001");
        assert_eq!(check(&wrong).unwrap_err().0, line);
        for (good, bad) in [("0..2000", "0..2o00"), ("seconds=180", "seconds=long")] {
            let row = text.lines().zip(1..).find(|(line, _)| line.contains(good)).unwrap().1;
            assert_eq!(check(&text.replacen(good, bad, 1)).unwrap_err().0, row);
        }
        assert!(check("").is_err());
    }

    #[test]
    fn a_rule_has_as_many_columns_as_its_head() {
        for head in [row::HEAD, other::HEAD] {
            assert_eq!(rule(head).matches('|').count(), head.matches('|').count(), "{head}");
        }
    }

    #[test]
    fn the_next_seed_is_behind_all_of_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let rows = read(root).unwrap().rows;
        let last = rows.into_iter().filter_map(|row| row.seeds).map(|seeds| seeds.end).max();
        assert_eq!(next_seed(root).unwrap(), last.unwrap_or(0));
    }
}
