//! Ratios of two values that were measured in pairs, with a confidence interval. Both values of a pair share the state of the machine.

/// The 97.5 % quantiles of Student's t distribution, by degrees of freedom from 1.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The way in which ratio and interval are computed, for the notes of a bench.
pub const METHOD: &str =
    "geometric mean of the ratios of pairs; 95 % interval of Student's t over their logarithms";

/// A ratio and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// The geometric mean.
    pub ratio: f64,
    /// The lower end of the interval, or `None` for a single pair.
    pub low: Option<f64>,
    /// The upper end of the interval, or `None` for a single pair.
    pub high: Option<f64>,
    /// The number of pairs.
    pub pairs: usize,
}

impl Paired {
    /// Returns the ratio of the first value of each pair to the second, or `None` without pairs or with a value that is not positive.
    #[must_use]
    pub fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().map(|(over, under)| (over / under).ln()).collect();
        if logs.is_empty() || logs.iter().any(|log| !log.is_finite()) {
            return None;
        }
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let t = logs.len().checked_sub(2).map(|at| T_975.get(at).copied().unwrap_or(1.96));
        let half = t.map(|t| {
            let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
            t * (squares / (count - 1.0) / count).sqrt()
        });
        Some(Self {
            ratio: mean.exp(),
            low: half.map(|half| (mean - half).exp()),
            high: half.map(|half| (mean + half).exp()),
            pairs: logs.len(),
        })
    }

    /// Whether the interval excludes 1. A single pair has no interval.
    #[must_use]
    pub fn is_different(&self) -> bool {
        self.low.is_some_and(|low| low > 1.0) || self.high.is_some_and(|high| high < 1.0)
    }
}

impl std::fmt::Display for Paired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Some(low), Some(high)) = (self.low, self.high) else {
            return write!(f, "one pair, no interval");
        };
        let verdict = if self.is_different() { "different" } else { "no difference shown" };
        write!(f, "{low:.3} to {high:.3} in {} pairs: {verdict}", self.pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_students_t_distribution() {
        // Logarithms -0.1, 0.0 and 0.1: mean 0, standard error 0.1 / sqrt(3), t(2) = 4.303.
        let pairs = [-0.1_f64, 0.0, 0.1].map(|log| (log.exp(), 1.0));
        let paired = Paired::of(&pairs).expect("three pairs");
        let half = 4.303 * 0.1 / 3.0_f64.sqrt();
        assert!((paired.ratio - 1.0).abs() < 1e-12);
        assert!((paired.low.expect("it is there").ln() + half).abs() < 1e-9);
        assert!((paired.high.expect("it is there").ln() - half).abs() < 1e-9);
        assert!(!paired.is_different());
    }

    #[test]
    fn a_difference_beyond_the_spread_is_reported() {
        let paired = Paired::of(&[(2.0, 1.0), (4.1, 2.0), (5.9, 3.0)]).expect("three pairs");
        assert!(paired.is_different() && (paired.ratio - 2.0).abs() < 0.02, "{paired}");
        assert!(paired.to_string().ends_with("in 3 pairs: different"), "{paired}");
    }

    #[test]
    fn one_pair_has_no_interval_and_none_has_no_ratio() {
        let one = Paired::of(&[(3.0, 2.0)]).expect("a pair");
        assert_eq!((one.ratio, one.low, one.is_different()), (1.5, None, false));
        assert_eq!(Paired::of(&[]), None);
        assert_eq!(Paired::of(&[(1.0, 1.0), (0.0, 1.0)]), None);
    }
}
