//! The line that a running receiver prints each second.
//!
//! It is one line if the rates of all threads fit, in full or abbreviated. Otherwise a second line has the rates, or the least,
//! the median, and the most of them.

use super::text::{LINE_WIDTH, abbreviated, thousands};

/// The rates of one second, in at most two lines of [`LINE_WIDTH`] characters, without a line feed at the end.
///
/// `second` counts from 0, and `per_thread_pps` is by thread index. `spread` is the busiest thread over the mean (see
/// [`spread_max_over_mean`](crate::report::spread_max_over_mean)), absent without datagrams. `kernel_drops` counts the drops of
/// this second, absent if they are not known.
#[must_use]
pub fn live_line(
    second: u64,
    per_thread_pps: &[u64],
    spread: Option<f64>,
    kernel_drops: Option<u64>,
) -> String {
    let sum = per_thread_pps.iter().fold(0, |sum: u64, pps| sum.saturating_add(*pps));
    let spread = spread.map_or_else(|| "   -".to_owned(), |spread| format!("{spread:>4.2}"));
    let drops = kernel_drops.map_or_else(|| "unknown".to_owned(), thousands);
    let head = format!("{second:>4} s  {:>10} pps  spread {spread}  kernel drops {drops}", thousands(sum));
    let full = joined(per_thread_pps, thousands);
    let short = joined(per_thread_pps, abbreviated);
    let one_line = |rates: &str| format!("{head}  |{rates}");
    let below = format!("   |{short}");
    if one_line(&full).len() <= LINE_WIDTH {
        one_line(&full)
    } else if one_line(&short).len() <= LINE_WIDTH {
        one_line(&short)
    } else if below.len() <= LINE_WIDTH {
        format!("{head}\n{below}")
    } else {
        format!("{head}\n   | {}", extremes(per_thread_pps))
    }
}

fn joined(rates: &[u64], text: fn(u64) -> String) -> String {
    rates.iter().map(|pps| format!(" {}", text(*pps))).collect()
}

fn extremes(per_thread_pps: &[u64]) -> String {
    let mut by_rate: Vec<(u64, usize)> =
        per_thread_pps.iter().copied().enumerate().map(|(thread, pps)| (pps, thread)).collect();
    by_rate.sort_unstable();
    let median = by_rate.get(by_rate.len() / 2).map_or(0, |(pps, _)| *pps);
    let (least, most) = (by_rate.first().copied(), by_rate.last().copied());
    let ((least, least_thread), (most, most_thread)) = (least.unwrap_or_default(), most.unwrap_or_default());
    format!(
        "{} threads: least {} (thread {least_thread}), median {}, most {} (thread {most_thread})",
        by_rate.len(),
        abbreviated(least),
        abbreviated(median),
        abbreviated(most)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_threads_stand_in_full_on_one_line() {
        assert_eq!(
            live_line(3, &[25_003, 25_001, 25_004, 25_004], Some(1.0), Some(0)),
            "   3 s     100,012 pps  spread 1.00  kernel drops 0  | 25,003 25,001 25,004 25,004"
        );
    }

    #[test]
    fn more_threads_are_shortened_before_they_are_wrapped() {
        assert_eq!(
            live_line(12, &[583_666, 186_166, 583_972, 384_625, 186_250, 384_708], Some(1.52), Some(40)),
            "  12 s   2,309,387 pps  spread 1.52  kernel drops 40  | 584k 186k 584k 385k 186k 385k"
        );
    }

    #[test]
    fn sixteen_threads_of_any_rate_keep_a_figure_each() {
        for pps in [0, 9_999, 999_499, 1_037_000, 99_900_000] {
            let text = live_line(1, &[pps; 16], Some(1.0), Some(0));
            let (_, rates) = text.split_once('|').unwrap();
            assert_eq!(rates.split_whitespace().count(), 16, "{text}");
        }
    }

    #[test]
    fn sixty_four_threads_become_least_median_and_most() {
        let rates: Vec<u64> = (0..64).map(|thread| 10_000 + thread * 100).collect();
        let text = live_line(7, &rates, Some(1.24), Some(0));
        let below = text.lines().nth(1).unwrap();
        assert_eq!(below, "   | 64 threads: least 10.0k (thread 0), median 13.2k, most 16.3k (thread 63)");
    }

    #[test]
    fn no_count_of_threads_and_no_rate_breaks_the_width() {
        for threads in 0..=64 {
            for pps in [0, 1, 1_234, 583_666, 1_037_000, 12_345_678_901] {
                let text = live_line(86_400, &vec![pps; threads], Some(16.0), Some(1_234_567_890));
                assert!(text.lines().count() <= 2, "{text}");
                assert!(text.lines().all(|line| line.len() <= LINE_WIDTH), "{text}");
            }
        }
    }

    #[test]
    fn a_second_in_which_nothing_came_has_no_spread() {
        assert_eq!(
            live_line(0, &[0], None, Some(0)),
            "   0 s           0 pps  spread    -  kernel drops 0  | 0"
        );
    }

    #[test]
    fn drops_that_the_system_does_not_count_are_not_called_none() {
        assert_eq!(
            live_line(0, &[5], Some(1.0), None),
            "   0 s           5 pps  spread 1.00  kernel drops unknown  | 5"
        );
    }
}
