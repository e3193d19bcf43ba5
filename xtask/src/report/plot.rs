//! Box plots: the numbers that `page.html` draws as SVG, one box below the other.
//!
//! The axis begins at zero, because a cut axis makes differences look larger than they are.

use serde::Serialize;

/// The length of the axis in pixels.
const AXIS: f64 = 640.0;
/// Distance of a value from the box, in lengths of the box, from which it is an outlier (Tukey).
const FENCE: f64 = 1.5;
/// The most steps of the axis.
const STEPS_MAX: f64 = 6.0;

/// A plot. Positions are pixels from the beginning of the axis.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Plot {
    title: String,
    ticks: Vec<Tick>,
    boxes: Vec<BoxPlot>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Tick {
    at: f64,
    label: String,
}

/// A box with whiskers. The whiskers end at the last values that are not outliers.
#[derive(Debug, PartialEq, Serialize)]
struct BoxPlot {
    name: String,
    low: f64,
    first: f64,
    median: f64,
    third: f64,
    high: f64,
    outliers: Vec<f64>,
}

impl Plot {
    /// Returns a plot of rows, each a name with its values. Rows without values are left out, and so is a plot without rows.
    pub(super) fn of(
        title: impl Into<String>,
        rows: impl IntoIterator<Item = (String, Vec<f64>)>,
    ) -> Option<Self> {
        let boxes: Vec<_> = rows.into_iter().filter_map(|(name, values)| BoxPlot::of(name, values)).collect();
        let ends = boxes.iter().flat_map(|one| one.outliers.iter().copied().chain([one.high]));
        let highest = ends.reduce(f64::max)?.max(f64::MIN_POSITIVE);
        let step = step(highest);
        let end = step * (highest / step).ceil();
        let at = |value: f64| (10.0 * AXIS * value / end).round() / 10.0;
        let values = std::iter::successors(Some(0.0), |value| Some(value + step));
        let ticks = values.take_while(|value| *value < end + step / 2.0);
        Some(Self {
            title: title.into(),
            ticks: ticks.map(|value| Tick { at: at(value), label: short(value) }).collect(),
            boxes: boxes.into_iter().map(|one| one.scaled(at)).collect(),
        })
    }
}

impl BoxPlot {
    fn of(name: String, mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let [first, median, third] = [1, 2, 3].map(|quarter| quartile(&values, quarter));
        let (first, median, third) = (first?, median?, third?);
        let reach = (third - first) * FENCE;
        let is_within = |value: &f64| (first - reach..=third + reach).contains(value);
        let (within, outliers): (Vec<f64>, Vec<f64>) = values.into_iter().partition(is_within);
        // An interpolated quartile may lie beyond the last value within the fences.
        let low = within.first().map_or(first, |low| low.min(first));
        let high = within.last().map_or(third, |high| high.max(third));
        Some(Self { name, low, first, median, third, high, outliers })
    }

    fn scaled(self, at: impl Fn(f64) -> f64) -> Self {
        let [low, first, median, third, high] =
            [self.low, self.first, self.median, self.third, self.high].map(&at);
        let outliers = self.outliers.into_iter().map(at).collect();
        Self { name: self.name, low, first, median, third, high, outliers }
    }
}

/// Returns the median of values in any order.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    quartile(&values, 2)
}

/// The value below which `quarter` quarters of the ascending values lie, interpolated as R does by default.
fn quartile(values: &[f64], quarter: usize) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let (below, rest) = (last * quarter / 4, last * quarter % 4);
    let (low, high) = (values[below], values[(below + 1).min(last)]);
    Some(low + (high - low) * rest as f64 / 4.0)
}

/// A round step with which an axis reaches `highest` in at most [`STEPS_MAX`] steps.
fn step(highest: f64) -> f64 {
    let magnitude = 10_f64.powf(highest.log10().floor());
    let steps = [0.2, 0.5, 1.0, 2.0].map(|step| step * magnitude);
    steps.into_iter().find(|step| highest / step <= STEPS_MAX).unwrap_or(magnitude)
}

/// A number in few characters: `1.25M`, `40k`, `0.5`.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{unit}", precise(scaled))
}

/// A number with the digits that matter, and commas between thousands.
pub(super) fn precise(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1_000.0 => 0,
        size if size >= 100.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match rest.trim_end_matches('0') {
        "" => grouped,
        rest => format!("{grouped}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_has_the_quartiles_of_r_and_the_whiskers_of_tukey() {
        let one = BoxPlot::of(String::new(), vec![200.0, 10.0, 20.0, 30.0, 40.0, 50.0]).unwrap();
        assert_eq!((one.first, one.median, one.third), (22.5, 35.0, 47.5));
        assert_eq!((one.low, one.high, &one.outliers[..]), (10.0, 50.0, &[200.0][..]));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!((median(Vec::new()), BoxPlot::of(String::new(), Vec::new())), (None, None));
    }

    #[test]
    fn a_plot_begins_at_zero_and_holds_every_value() {
        let plot = Plot::of("a", [("one".to_owned(), vec![50.0]), ("none".to_owned(), vec![])]).unwrap();
        let ticks: Vec<_> = plot.ticks.iter().map(|tick| (tick.at, tick.label.as_str())).collect();
        assert_eq!((ticks[0], ticks[ticks.len() - 1]), ((0.0, "0"), (640.0, "50")));
        assert_eq!((plot.boxes.len(), plot.boxes[0].median), (1, 640.0));
        let outlier = Plot::of("a", [("one".to_owned(), vec![1.0, 1.0, 1.0, 1.0, 1e6])]).unwrap();
        assert_eq!(outlier.boxes[0].outliers, [640.0]);
        for highest in [0.0, 0.3, 9.0, 11.0, 583_666.0, 1.8e19] {
            let plot = Plot::of("a", [("one".to_owned(), vec![highest])]).unwrap();
            assert!((2..=7).contains(&plot.ticks.len()), "{plot:?}");
            assert!(plot.ticks.iter().all(|tick| tick.at.is_finite()), "{plot:?}");
        }
        assert_eq!(Plot::of("a", []), None);
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (value, text) in [
            (0.0, "0"),
            (1.4225, "1.42"),
            (139.68, "139.7"),
            (100.0, "100"),
            (40_960.0, "40,960"),
            (-123_456.0, "-123,456"),
        ] {
            assert_eq!(precise(value), text);
        }
        assert_eq!([9_999.0, 40_000.0, 1_250_000.0].map(short), ["9,999", "40k", "1.25M"]);
    }
}
