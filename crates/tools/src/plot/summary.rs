//! The five numbers and the outliers of one thread's rates, for a box plot.
//!
//! Quartiles are interpolated between neighbors (type 7 of Hyndman and Fan, 1996, the default of R and NumPy). Whiskers end at the
//! last value within one and a half times the box (Tukey). The box of plotters is not used: its whiskers end at the fences
//! themselves, which may be below zero, instead of at measured values.

/// How far from the box a value may be, in heights of the box, before it is an outlier.
const FENCE: f64 = 1.5;

/// The numbers of a box, in packets per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The mean of the values.
    pub mean: f64,
    /// The lowest value that is no outlier.
    pub low: f64,
    /// A quarter of the values are at most this.
    pub first: f64,
    /// Half of the values are at most this.
    pub median: f64,
    /// Three quarters of the values are at most this.
    pub third: f64,
    /// The highest value that is no outlier.
    pub high: f64,
    /// The values beyond the whiskers, ascending.
    pub outliers: Vec<f64>,
}

impl Summary {
    /// One summary per thread index, each over the seconds that have that thread.
    #[must_use]
    pub fn of_each_thread(rates: &[Vec<u64>]) -> Vec<Self> {
        let threads = rates.iter().map(Vec::len).max().unwrap_or(0);
        let of_thread = |thread| rates.iter().filter_map(move |rates| rates.get(thread).copied());
        (0..threads).map(|thread| Self::of(of_thread(thread))).collect()
    }

    /// The highest value of all.
    #[must_use]
    pub fn highest(&self) -> f64 {
        self.outliers.last().copied().unwrap_or(0.0).max(self.high)
    }

    fn of(rates: impl Iterator<Item = u64>) -> Self {
        let mut values: Vec<f64> = rates.map(|pps| pps as f64).collect();
        values.sort_by(f64::total_cmp);
        let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
        let [first, median, third] = [1, 2, 3].map(|quarter| quartile(&values, quarter));
        let reach = (third - first) * FENCE;
        let is_within = |value: &f64| (first - reach..=third + reach).contains(value);
        let (within, outliers): (Vec<f64>, Vec<f64>) = values.into_iter().partition(is_within);
        // A quartile between two values may lie beyond the last value within reach.
        let low = within.first().map_or(first, |low| low.min(first));
        let high = within.last().map_or(third, |high| high.max(third));
        Self { mean, low, first, median, third, high, outliers }
    }
}

/// The value below which `quarter` quarters of the ascending values lie; 0 without values.
fn quartile(values: &[f64], quarter: usize) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let (below, rest) = (last * quarter / 4, last * quarter % 4);
    let (low, high) = (values[below], values[(below + 1).min(last)]);
    low + (high - low) * rest as f64 / 4.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rates: &[u64]) -> Summary {
        Summary::of(rates.iter().copied())
    }

    #[test]
    fn quartiles_are_those_of_r() {
        // quantile(c(1, 2, 3, 4, 5)) and quantile(c(1, 2, 3, 10)) in R.
        let odd = of(&[5, 3, 1, 4, 2]);
        assert_eq!((odd.low, odd.first, odd.median, odd.third, odd.high), (1.0, 2.0, 3.0, 4.0, 5.0));
        let even = of(&[10, 3, 2, 1]);
        assert_eq!((even.first, even.median, even.third), (1.75, 2.5, 4.75));
        assert_eq!((odd.mean, even.mean), (3.0, 4.0));
    }

    #[test]
    fn a_value_is_an_outlier_only_beyond_the_fence() {
        // The quartiles are 20 and 40 for each last value, so the fence is at 70.
        for (last, is_outlier) in [(69, false), (70, false), (71, true)] {
            let summary = of(&[10, 20, 30, 40, last]);
            assert_eq!(summary.outliers.is_empty(), !is_outlier, "{last}");
            assert_eq!(summary.highest(), last as f64);
            assert_eq!(summary.high, if is_outlier { 40.0 } else { last as f64 });
        }
    }

    #[test]
    fn one_value_is_a_box_of_no_height_and_none_is_all_zero() {
        let one = of(&[7]);
        assert_eq!((one.low, one.first, one.median, one.third, one.high), (7.0, 7.0, 7.0, 7.0, 7.0));
        assert_eq!(of(&[]), Summary::default());
    }

    #[test]
    fn whiskers_never_end_inside_the_box() {
        let summary = of(&[0, 100, 100, 100, 100, 100, 100, 1_000]);
        assert!(summary.low <= summary.first && summary.high >= summary.third);
        assert_eq!(summary.outliers, [0.0, 1_000.0]);
    }

    #[test]
    fn a_thread_that_came_later_has_only_its_own_seconds() {
        let summaries = Summary::of_each_thread(&[vec![10], vec![20, 50]]);
        assert_eq!(summaries.len(), 2);
        assert_eq!((summaries[0].median, summaries[1].median), (15.0, 50.0));
    }
}
