//! The packet rate of each thread as a box plot, drawn as an SVG.
//!
//! One box per thread over its seconds, as R draws them: the box from the first to the third quartile, the
//! median across it, whiskers to the last values within one and a half boxes, everything farther out as a dot.
//! A dashed line marks the mean of all threads, so that spread is seen at once. The rates start at zero, for a
//! cut axis makes threads look more different than they are. Fonts are the viewer's; nothing is measured here.

mod summary;

use std::fmt;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, Circle, DrawingArea, IntoDrawingArea, PathElement, RGBColor, Rectangle, SVGBackend, Text,
    WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontFamily, FontStyle, FontTransform, IntoFont, TextStyle};

use crate::csv::Sample;
use crate::report::{FileError, Flags, Machine, flags_text, write_file};
use crate::table::{abbreviated, wrapped};
pub use summary::Summary;

const SIZE: (u32, u32) = (1_000, 600);
const MARGIN: i32 = 24;
const CAPTION_CHARS: usize = 140;
const CAPTION_LINES: usize = 4;
const CAPTION_STEP: i32 = 17;
/// More threads than this have a label at every second, third, ... box.
const LABELS: usize = 32;

const INK: RGBColor = RGBColor(34, 40, 49);
const FAINT: RGBColor = RGBColor(96, 104, 116);
const GRID: RGBColor = RGBColor(222, 226, 231);
const BOX: RGBColor = RGBColor(150, 188, 224);
const EDGE: RGBColor = RGBColor(31, 88, 143);
const MEAN: RGBColor = RGBColor(200, 92, 30);

/// The box plot as SVG text.
///
/// `machine` and `flags` stand below the title. A thread that took part in some of the seconds only has a box
/// of those.
///
/// # Errors
/// [`PlotError::NoSamples`] when there is no second with a thread; [`PlotError::Drawing`] when it cannot be
/// drawn.
pub fn render(samples: &[Sample], machine: &Machine, flags: &Flags) -> Result<String, PlotError> {
    let boxes = Summary::of_each_thread(samples);
    let rates: Vec<u64> = samples.iter().flat_map(|sample| sample.pps_per_thread.iter().copied()).collect();
    if rates.is_empty() {
        return Err(PlotError::NoSamples);
    }
    let mean = rates.iter().map(|pps| *pps as f64).sum::<f64>() / rates.len() as f64;
    let captions = captions(machine, flags, samples.len());
    let mut svg = String::new();
    draw(&mut svg, &boxes, mean, &captions).map_err(|error| PlotError::Drawing(error.to_string()))?;
    Ok(svg)
}

/// Draws the box plot into a file, replacing what it held.
///
/// # Errors
/// As [`render`], and [`PlotError::File`] with the path when the file cannot be made or written.
pub fn write(path: &Path, samples: &[Sample], machine: &Machine, flags: &Flags) -> Result<(), PlotError> {
    write_file(path, &render(samples, machine, flags)?).map_err(PlotError::File)
}

/// Why there is no plot.
#[derive(Debug)]
pub enum PlotError {
    /// The run ended before its first second.
    NoSamples,
    /// The drawing failed.
    Drawing(String),
    /// The file could not be written; the error names it.
    File(FileError),
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSamples => write!(f, "nothing to plot: the run had no full second"),
            Self::Drawing(reason) => write!(f, "cannot draw the plot: {reason}"),
            Self::File(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PlotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File(error) => Some(error),
            Self::NoSamples | Self::Drawing(_) => None,
        }
    }
}

type Failure = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

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

fn draw(svg: &mut String, boxes: &[Summary], mean: f64, captions: &[String]) -> Result<(), Failure> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let plot = title(&root, captions)?;
    let ticks = ticks(boxes.iter().map(Summary::highest).fold(1.0, f64::max));
    let highest = ticks.last().copied().unwrap_or(1.0);
    let last = boxes.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(&plot)
        .margin(MARGIN)
        .margin_top(8)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..last, 0.0..highest)?;
    let pixel = |x, y| chart.backend_coord(&(x, y));
    axes(&root, &pixel, boxes.len(), &ticks)?;
    let (left, y) = pixel(-0.5, mean);
    let (right, _) = pixel(last, mean);
    for x in (left..right).step_by(12) {
        root.draw(&PathElement::new([(x, y), ((x + 7).min(right), y)], MEAN.stroke_width(2)))?;
    }
    for (thread, summary) in boxes.iter().enumerate() {
        let shapes = shapes(thread as f64, summary);
        chart.draw_series(shapes.fill)?;
        chart.draw_series(shapes.lines)?;
        chart.draw_series(shapes.outliers)?;
    }
    root.present()?;
    Ok(())
}

/// Draws what stands above the axes and gives the area below it.
fn title<'a>(root: &Area<'a>, captions: &[String]) -> Result<Area<'a>, Failure> {
    let top_left = Pos::new(HPos::Left, VPos::Top);
    let mut bold = text(27, INK, top_left);
    bold.font = bold.font.style(FontStyle::Bold);
    let mut y = 20;
    root.draw(&Text::new("Packet rate on each thread", (MARGIN, y), bold))?;
    y += 34;
    for line in captions {
        root.draw(&Text::new(line.as_str(), (MARGIN, y), text(15, FAINT, top_left)))?;
        y += CAPTION_STEP;
    }
    let legend = "box: middle half of the seconds; line: median; dots: outliers; dashed: mean of all threads";
    root.draw(&Text::new(legend, (MARGIN, y), text(15, FAINT, top_left)))?;
    let (_, below) = root.split_vertically(y + CAPTION_STEP + 8);
    Ok(below)
}

/// Draws grid, numbers and names of both axes; `pixel` turns a thread and a rate into a place.
fn axes(
    root: &Area<'_>,
    pixel: &impl Fn(f64, f64) -> (i32, i32),
    threads: usize,
    ticks: &[f64],
) -> Result<(), Failure> {
    let right = threads as f64 - 0.5;
    for pps in ticks {
        let (from, to) = (pixel(-0.5, *pps), pixel(right, *pps));
        let color = if *pps == 0.0 { FAINT } else { GRID };
        root.draw(&PathElement::new([from, to], color.stroke_width(1)))?;
        let beside = text(16, INK, Pos::new(HPos::Right, VPos::Center));
        root.draw(&Text::new(rate_label(*pps), (from.0 - 8, from.1), beside))?;
    }
    for thread in (0..threads).step_by(threads.div_ceil(LABELS)) {
        let (x, y) = pixel(thread as f64, 0.0);
        let below = text(16, INK, Pos::new(HPos::Center, VPos::Top));
        root.draw(&Text::new(thread.to_string(), (x, y + 8), below))?;
    }
    let centered = || text(17, INK, Pos::new(HPos::Center, VPos::Top));
    let (middle, bottom) = pixel((threads as f64 - 1.0) / 2.0, 0.0);
    root.draw(&Text::new("receiver thread", (middle, bottom + 32), centered()))?;
    let (_, half_way) = pixel(0.0, ticks.last().copied().unwrap_or(1.0) / 2.0);
    let upwards = centered().transform(FontTransform::Rotate270);
    root.draw(&Text::new("packets per second", (MARGIN, half_way), upwards))?;
    Ok(())
}

fn text(size: i32, color: RGBColor, anchor: Pos) -> TextStyle<'static> {
    let mut style = TextStyle::from((FontFamily::SansSerif, size).into_font()).pos(anchor);
    style.color = color.to_backend_color();
    style
}

/// What one box is made of, from back to front.
struct Shapes {
    fill: [Rectangle<(f64, f64)>; 2],
    lines: [PathElement<(f64, f64)>; 5],
    outliers: Vec<Circle<(f64, f64), i32>>,
}

fn shapes(x: f64, summary: &Summary) -> Shapes {
    const HALF_BOX: f64 = 0.3;
    const HALF_CAP: f64 = 0.15;
    let Summary { low, first, median, third, high, outliers, .. } = summary;
    let line = |from, to, width| PathElement::new([from, to], EDGE.stroke_width(width));
    let across = |half: f64, y: f64, width| line((x - half, y), (x + half, y), width);
    let corners = [(x - HALF_BOX, *first), (x + HALF_BOX, *third)];
    Shapes {
        fill: [Rectangle::new(corners, BOX.filled()), Rectangle::new(corners, EDGE.stroke_width(1))],
        lines: [
            line((x, *low), (x, *first), 1),
            line((x, *third), (x, *high), 1),
            across(HALF_CAP, *low, 1),
            across(HALF_CAP, *high, 1),
            across(HALF_BOX, *median, 3),
        ],
        outliers: outliers.iter().map(|pps| Circle::new((x, *pps), 3, EDGE.stroke_width(1))).collect(),
    }
}

/// Round steps from zero to the first that is not below `highest`, four to nine of them.
fn ticks(highest: f64) -> Vec<f64> {
    let magnitude = 10f64.powf(highest.max(1.0).log10().floor());
    let steps = [0.1, 0.2, 0.25, 0.5, 1.0, 2.0].map(|step| step * magnitude);
    let step = steps.into_iter().find(|step| highest / step <= 8.0).unwrap_or(magnitude);
    let mut ticks = vec![0.0];
    while let Some(last) = ticks.last().filter(|last| **last < highest) {
        ticks.push(last + step);
    }
    ticks
}

fn rate_label(pps: f64) -> String {
    // A tick is a small multiple of a round step: shortened it loses nothing but zeros.
    let whole: u64 = format!("{pps:.0}").parse().unwrap_or(0);
    let text = abbreviated(whole);
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(seconds: u64, threads: u64) -> Vec<Sample> {
        // Rates that differ by thread and second without a random source.
        let pps = |second: u64, thread: u64| {
            let base = 86_000 + (thread * 7_919) % 5 * 130_000;
            base + (second * 2_654_435_761 + thread * 40_503) % 123_000
                + if second == 3 { 260_000 } else { 0 }
        };
        (0..seconds)
            .map(|second| Sample {
                run: second,
                pps_per_thread: (0..threads).map(|thread| pps(second, thread)).collect(),
            })
            .collect()
    }

    fn machine() -> Machine {
        Machine {
            cpu: Some("Intel(R) Xeon(R) <Processor> & more".to_owned()),
            cores: Some(2),
            kernel: Some("6.18.44".to_owned()),
            memory_bytes: Some(24_684_084 << 10),
        }
    }

    fn flags() -> Flags {
        let text = [("bind", "127.0.0.1:0"), ("drain", "recvmmsg"), ("wait", "gather"), ("steer", "tag")];
        text.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
    }

    fn count(svg: &str, part: &str) -> usize {
        svg.matches(part).count()
    }

    #[test]
    fn each_thread_has_a_box_and_the_axes_have_units() {
        for threads in [1, 4, 16, 64] {
            let svg = render(&samples(10, threads), &machine(), &flags()).unwrap();
            let boxes = usize::try_from(threads).unwrap();
            assert_eq!(count(&svg, "fill=\"#96BCE0\""), boxes);
            for text in
                ["Packet rate on each thread", "packets per second", "thread", "10 samples of one second"]
            {
                assert!(svg.contains(text), "{text}");
            }
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"));
        }
    }

    #[test]
    fn machine_and_flags_stand_in_the_title_and_are_escaped() {
        let svg = render(&samples(2, 2), &machine(), &flags()).unwrap();
        assert!(svg.contains("Xeon(R) &lt;Processor&gt; &amp; more, 2 cores"));
        assert!(svg.contains("bind=127.0.0.1:0 drain=recvmmsg steer=tag wait=gather"));
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
        for samples in [vec![], vec![Sample::default()]] {
            let error = render(&samples, &machine(), &flags()).unwrap_err();
            assert_eq!(error.to_string(), "nothing to plot: the run had no full second");
        }
    }

    #[test]
    fn a_run_in_which_nothing_came_still_has_a_plot() {
        let samples = [Sample { run: 0, pps_per_thread: vec![0, 0] }];
        assert!(render(&samples, &machine(), &flags()).is_ok());
    }

    #[test]
    fn absurd_rates_are_drawn_without_an_end_to_the_steps() {
        let samples = [Sample { run: 0, pps_per_thread: vec![u64::MAX, 1] }];
        assert!(render(&samples, &machine(), &flags()).is_ok());
    }

    #[test]
    fn an_error_names_the_path() {
        let path = Path::new("no-such-folder/pps.svg");
        let error = write(path, &samples(2, 2), &machine(), &flags()).unwrap_err();
        assert!(error.to_string().contains("no-such-folder/pps.svg"), "{error}");
    }

    #[test]
    fn the_axis_starts_at_zero_and_ends_at_or_above_the_highest_rate() {
        for highest in [1.0, 9.0, 10.0, 11.0, 583_666.0, 999_999.0, 1_000_000.0, 1_059_000.0, 1.8e19] {
            let ticks = ticks(highest);
            assert_eq!(ticks[0], 0.0);
            assert!((4..=10).contains(&ticks.len()), "{highest}: {ticks:?}");
            assert!(*ticks.last().unwrap() >= highest && ticks[ticks.len() - 2] < highest, "{ticks:?}");
        }
    }

    #[test]
    fn a_rate_on_the_axis_is_short() {
        let cases =
            [(0.0, "0"), (50.0, "50"), (2_500.0, "2.5k"), (100_000.0, "100k"), (1_250_000.0, "1.25M")];
        for (pps, text) in cases {
            assert_eq!(rate_label(pps), text);
        }
    }
}
