//! How many instructions a server spends on a Hello that it refuses, by the step at which it does:
//! `cargo bench --bench hello_cost`. It counts with valgrind, so the figures are the same on every run.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::process::{Command, ExitCode, Stdio};

use drumfire_benches::hellos::Refusals;
use drumfire_tools::table::{Align, TextTable};

/// The first argument of the run that is counted, before the class and how many Hellos.
const COUNTED: &str = "--counted";
/// What both runs do beside handing in Hellos cancels out.
const FEW: u64 = 100;
const MANY: u64 = 1_100;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [COUNTED, class, count] = args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        let (class, count) = (class.parse().unwrap_or(0), count.parse().unwrap_or(0));
        let mut refusals = Refusals::new();
        (0..count).for_each(|_: u64| refusals.hand_in(class));
        return ExitCode::SUCCESS;
    }
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if version.is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        println!("skipped: needs valgrind");
        return ExitCode::SUCCESS;
    }
    match table() {
        Ok(table) => {
            println!("{table}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> Result<String, String> {
    let mut table = TextTable::new(&[("a Hello", Align::Left), ("instructions", Align::Right)]).indented(2);
    for (at, (class, _)) in Refusals::new().classes.iter().enumerate() {
        let (few, many) = (instructions(at, FEW)?, instructions(at, MANY)?);
        table.row(vec![(*class).to_owned(), many.saturating_sub(few).div_ceil(MANY - FEW).to_string()]);
    }
    Ok(table.render())
}

/// Instructions of a whole run with so many Hellos of this class.
fn instructions(class: usize, count: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([COUNTED, &class.to_string(), &count.to_string()])
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind cannot be started: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    let (_, number) = collected.ok_or_else(|| format!("valgrind counted nothing: {text}"))?;
    number.trim().parse().map_err(|_| format!("valgrind counted {number}"))
}
