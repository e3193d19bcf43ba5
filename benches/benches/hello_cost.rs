//! How many instructions a server spends on a Hello that it refuses, by the step at which it does:
//! `cargo bench --bench hello_cost`. It counts with valgrind, so the figures are the same on every run.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use drumfire_benches::hellos::Refusals;
use drumfire_benches::{instructions, valgrind_version};
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
    if valgrind_version().is_none() {
        println!("skipped: needs valgrind on the PATH, which counts the instructions");
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
        let counted = |count: u64| instructions(&[COUNTED, &at.to_string(), &count.to_string()], None);
        let (few, many) = (counted(FEW)?, counted(MANY)?);
        table.row(vec![(*class).to_owned(), many.saturating_sub(few).div_ceil(MANY - FEW).to_string()]);
    }
    Ok(table.render())
}
