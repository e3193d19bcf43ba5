//! The packet rate of each thread as a box plot, drawn as an SVG.
//!
//! One box per thread over its seconds, from the first to the third quartile, with the median across it. Whiskers reach to the last
//! values within one and a half boxes. Dots are outliers. A dashed line shows the mean of all threads. The rates start at
//! zero, because a cut axis exaggerates the differences.
//!
//! Quartiles are interpolated between neighbors (type 7 of Hyndman and Fan, 1996, the default of R and NumPy). The box of plotters is
//! not used: its whiskers end at the fences themselves, which may be below zero, instead of at measured values.

use plotters::prelude::{
    ChartBuilder, Circle, DashedLineSeries, IntoDrawingArea, PathElement, RGBColor, Rectangle, SVGBackend,
    Text, WHITE,
};
use plotters::style::{Color, FontFamily, IntoFont};

use crate::error::Error;
use crate::report::{Flags, Machine, flags_text};
use crate::table::{abbreviated, wrapped};

const SIZE: (u32, u32) = (1_000, 600);
const MARGIN: i32 = 24;
const CAPTION_CHARS: usize = 140;
const CAPTION_LINES: usize = 4;
const CAPTION_STEP: i32 = 17;
/// The maximum number of labels on an axis.
const LABELS: usize = 32;
/// Half the width of a box and of the end of a whisker, in threads.
const HALF_BOX: f64 = 0.3;
const HALF_CAP: f64 = 0.15;

const FAINT: RGBColor = RGBColor(96, 104, 116);
const BOX: RGBColor = RGBColor(150, 188, 224);
const EDGE: RGBColor = RGBColor(31, 88, 143);
const MEAN: RGBColor = RGBColor(200, 92, 30);

const LEGEND: &str =
    "box: middle half of the seconds; line: median; dots: outliers; dashed: mean of all threads";

/// Draws the box plot as SVG text, with `machine` and `flags` below the title. `rates` has a row for each second and a column for
/// each thread. A run without a second with a thread has no plot.
pub(crate) fn render(rates: &[Vec<u64>], machine: &Machine, flags: &Flags) -> Result<String, Error> {
    let boxes = Summary::of_each_thread(rates);
    let count = rates.iter().map(Vec::len).sum::<usize>();
    if count == 0 {
        return Err(Error::run("nothing to plot: the run had no full second"));
    }
    let mean = rates.iter().flatten().map(|pps| *pps as f64).sum::<f64>() / count as f64;
    let captions = captions(machine, flags, rates.len());
    let mut svg = String::new();
    let drawn = draw(&mut svg, &boxes, mean, &captions);
    drawn.map_err(|error| Error::run(format!("cannot draw the plot: {error}")))?;
    Ok(svg)
}

fn captions(machine: &Machine, flags: &Flags, seconds: usize) -> Vec<String> {
    let mut lines = wrapped(&format!("{machine}; {seconds} samples of one second"), CAPTION_CHARS);
    lines.extend(wrapped(&flags_text(flags), CAPTION_CHARS).into_iter().filter(|line| !line.is_empty()));
    if lines.len() > CAPTION_LINES {
        lines.truncate(CAPTION_LINES);
        if let Some(last) = lines.last_mut() {
            last.push_str(" ...");
        }
    }
    lines
}

fn draw(
    svg: &mut String,
    boxes: &[Summary],
    mean: f64,
    captions: &[String],
) -> Result<(), Box<dyn std::error::Error>> {
    let font = |size: i32| (FontFamily::SansSerif, size).into_font();
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut plot = root.titled("Packet rate on each thread", font(27))?;
    for line in captions.iter().map(String::as_str).chain([LEGEND]) {
        let (above, below) = plot.split_vertically(CAPTION_STEP);
        above.draw(&Text::new(line, (MARGIN, 0), font(15).color(&FAINT)))?;
        plot = below;
    }
    let highest = boxes.iter().map(Summary::highest).fold(1.0, f64::max);
    let last = boxes.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(&plot)
        .margin(MARGIN)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(-0.5..last, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(boxes.len().min(LABELS))
        // Key points between two threads have no label.
        .x_label_formatter(&|thread| {
            if thread.fract() == 0.0 { format!("{thread:.0}") } else { String::new() }
        })
        .y_label_formatter(&|pps| abbreviated(format!("{pps:.0}").parse().unwrap_or(0)))
        .label_style(font(16))
        .x_desc("receiver thread")
        .y_desc("packets per second")
        .draw()?;
    chart.draw_series(DashedLineSeries::new([(-0.5, mean), (last, mean)], 7, 5, MEAN.stroke_width(2)))?;
    for (thread, summary) in boxes.iter().enumerate() {
        let (x, area) = (thread as f64, chart.plotting_area());
        let line = |from, to, width| area.draw(&PathElement::new([from, to], EDGE.stroke_width(width)));
        let across = |half: f64, y: f64, width| line((x - half, y), (x + half, y), width);
        let corners = [(x - HALF_BOX, summary.first), (x + HALF_BOX, summary.third)];
        area.draw(&Rectangle::new(corners, BOX.filled()))?;
        area.draw(&Rectangle::new(corners, EDGE.stroke_width(1)))?;
        line((x, summary.low), (x, summary.first), 1)?;
        line((x, summary.third), (x, summary.high), 1)?;
        across(HALF_CAP, summary.low, 1)?;
        across(HALF_CAP, summary.high, 1)?;
        across(HALF_BOX, summary.median, 3)?;
        for pps in &summary.outliers {
            area.draw(&Circle::new((x, *pps), 3, EDGE.stroke_width(1)))?;
        }
    }
    root.present()?;
    Ok(())
}

/// The distance from the box beyond which a value is an outlier, in heights of the box.
const FENCE: f64 = 1.5;

/// The numbers of a box, in packets per second: its whiskers and quartiles, and the values beyond the whiskers, ascending.
struct Summary {
    low: f64,
    first: f64,
    median: f64,
    third: f64,
    high: f64,
    outliers: Vec<f64>,
}

impl Summary {
    /// One summary per thread index, each over the seconds that have that thread.
    fn of_each_thread(rates: &[Vec<u64>]) -> Vec<Self> {
        let threads = rates.iter().map(Vec::len).max().unwrap_or(0);
        let of_thread = |thread| rates.iter().filter_map(move |rates| rates.get(thread).copied());
        (0..threads).map(|thread| Self::of(of_thread(thread))).collect()
    }

    /// The highest value of all.
    fn highest(&self) -> f64 {
        self.outliers.last().copied().unwrap_or(0.0).max(self.high)
    }

    fn of(rates: impl Iterator<Item = u64>) -> Self {
        let mut values: Vec<f64> = rates.map(|pps| pps as f64).collect();
        values.sort_by(f64::total_cmp);
        let [first, median, third] = [1, 2, 3].map(|quarter| quartile(&values, quarter));
        let reach = (third - first) * FENCE;
        let is_within = |value: &f64| (first - reach..=third + reach).contains(value);
        let (within, outliers): (Vec<f64>, Vec<f64>) = values.into_iter().partition(is_within);
        // A quartile between two values may lie beyond the last value within reach.
        let low = within.first().map_or(first, |low| low.min(first));
        let high = within.last().map_or(third, |high| high.max(third));
        Self { low, first, median, third, high, outliers }
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

    /// Rates that differ by thread and second without a random source.
    fn rates(seconds: u64, threads: u64) -> Vec<Vec<u64>> {
        let pps = |second: u64, thread: u64| 86_000 + (second * 2_654_435_761 + thread * 40_503) % 123_000;
        (0..seconds).map(|second| (0..threads).map(|thread| pps(second, thread)).collect()).collect()
    }

    fn machine() -> Machine {
        let cpu = Some("Intel(R) Xeon(R) <Processor> & more".to_owned());
        Machine { cpu, cores: Some(2), ..Machine::default() }
    }

    #[test]
    fn each_thread_has_a_box_and_the_axes_have_units() {
        for threads in [1, 4, 16, 64] {
            let svg = render(&rates(10, threads), &machine(), &Flags::new()).unwrap();
            let boxes = usize::try_from(threads).unwrap();
            assert_eq!(svg.matches("fill=\"#96BCE0\"").count(), boxes);
            for text in [
                "Packet rate on each thread",
                "packets per second",
                "Xeon(R) &lt;Processor&gt; &amp; more, 2 cores",
            ] {
                assert!(svg.contains(text), "{text}");
            }
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }

    #[test]
    fn many_flags_are_cut_and_say_so() {
        let flags = (0..200).map(|n| (format!("flag-{n:03}"), 1u32.into())).collect();
        let lines = captions(&machine(), &flags, 10);
        assert_eq!(lines.len(), CAPTION_LINES);
        assert!(lines.last().unwrap().ends_with(" ..."));
        assert_eq!(captions(&machine(), &Flags::new(), 10).len(), 1);
    }

    #[test]
    fn a_run_without_a_full_second_has_no_plot() {
        assert!(render(&[vec![0, 0], vec![u64::MAX, 1]], &machine(), &Flags::new()).is_ok());
        for rates in [vec![], vec![vec![]]] {
            let error = render(&rates, &machine(), &Flags::new()).unwrap_err();
            assert_eq!(error.to_string(), "nothing to plot: the run had no full second");
        }
    }

    #[test]
    fn a_box_is_that_of_r_and_its_whiskers_end_at_values() {
        for (rates, whiskers_and_quartiles, outliers) in [
            // quantile(c(1, 2, 3, 4, 5)) and quantile(c(1, 2, 3, 10)) in R.
            (&[5, 3, 1, 4, 2][..], [1.0, 2.0, 3.0, 4.0, 5.0], &[][..]),
            (&[10, 3, 2, 1], [1.0, 1.75, 2.5, 4.75, 4.75], &[10.0]),
            // The quartiles are 20 and 40 for each last value, so the fence is at 70.
            (&[10, 20, 30, 40, 69], [10.0, 20.0, 30.0, 40.0, 69.0], &[]),
            (&[10, 20, 30, 40, 70], [10.0, 20.0, 30.0, 40.0, 70.0], &[]),
            (&[10, 20, 30, 40, 71], [10.0, 20.0, 30.0, 40.0, 40.0], &[71.0]),
            // A whisker never ends inside the box.
            (&[0, 100, 100, 100, 100, 100, 100, 1_000], [100.0; 5], &[0.0, 1_000.0]),
            (&[7], [7.0; 5], &[]),
            (&[], [0.0; 5], &[]),
        ] {
            let summary = Summary::of(rates.iter().copied());
            let Summary { low, first, median, third, high, outliers: found } = &summary;
            assert_eq!([*low, *first, *median, *third, *high], whiskers_and_quartiles, "{rates:?}");
            assert_eq!(found, outliers, "{rates:?}");
            assert_eq!(summary.highest(), rates.iter().copied().max().unwrap_or(0) as f64, "{rates:?}");
        }
    }

    #[test]
    fn a_thread_that_came_later_has_only_its_own_seconds() {
        let summaries = Summary::of_each_thread(&[vec![10], vec![20, 50]]);
        assert_eq!(summaries.len(), 2);
        assert_eq!((summaries[0].median, summaries[1].median), (15.0, 50.0));
    }
}
