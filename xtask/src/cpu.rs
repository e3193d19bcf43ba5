//! The processor time of a program, where the system tells it.

use std::process::Child;

/// Ticks of the processor time in `/proc`, the same on every Linux.
const TICKS_PER_SECOND: u64 = 100;
/// Where a program's own time and the system's for it stand in its `stat`, counted behind its name.
const TICKS: std::ops::Range<usize> = 11..13;

/// What a child that has said its last word, and was not waited for yet, took, with all its threads.
pub(crate) fn seconds_of(child: &Child) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    Some(ticks_in(&stat)? / TICKS_PER_SECOND)
}

/// As a field of a line for the ledger.
pub(crate) fn field(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "cpu=unknown".to_owned(), |seconds| format!("cpu={seconds}s"))
}

fn ticks_in(stat: &str) -> Option<u64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    fields.get(TICKS)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_stands_behind_a_name_with_anything_in_it() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 130 70 12 13 20 0 1";
        assert_eq!(ticks_in(stat), Some(200));
        assert_eq!(ticks_in("7 (a) S"), None);
    }

    #[test]
    fn a_line_says_the_time_or_that_nobody_knows_it() {
        assert_eq!((field(Some(7)), field(None)), ("cpu=7s".to_owned(), "cpu=unknown".to_owned()));
    }
}
