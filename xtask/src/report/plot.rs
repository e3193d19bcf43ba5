//! Plots as SVG and as bars of HTML, in the colours of the page: lines, boxes, bars.
//!
//! An axis of amounts begins at zero, for a cut axis makes things look more different than they are; where values lie
//! decades apart it is logarithmic and says so. Nothing here knows what is plotted.

use maud::{Markup, html};

use super::series::{BoxOf, Line, Spread};

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 26.0;
/// Height of a box with its label.
const ROW: f64 = 34.0;
/// The page has so many colours for lines; where there are more of them, further plots show them on the same axes.
const COLOURS: usize = 8;
/// Values farther apart than this are shown on a logarithmic axis.
const DECADES: f64 = 16.0;

/// A place for each value, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_log: bool,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let place = |value: f64| if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (low, high) = (place(self.low), place(self.high));
        let share = if high > low { (place(value) - low) / (high - low) } else { 0.5 };
        self.from + (self.to - self.from) * share
    }
}

/// Round steps from zero to the first that is not below `highest`, four to nine of them.
fn linear_ticks(highest: f64) -> Vec<f64> {
    let highest = if highest > 0.0 && highest.is_finite() { highest } else { 1.0 };
    let magnitude = 10_f64.powf(highest.log10().floor());
    let steps = [0.1, 0.2, 0.25, 0.5, 1.0, 2.0].map(|step| step * magnitude);
    let step = steps.into_iter().find(|step| highest / step <= 6.0).unwrap_or(magnitude);
    let mut ticks = vec![0.0];
    while let Some(last) = ticks.last().filter(|last| **last < highest * (1.0 - 1e-9)) {
        ticks.push(last + step);
    }
    ticks
}

/// Decades, with steps between where there are few, from below `low` to above `high`.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let low = low.max(1e-12);
    let parts: &[f64] = if high / low > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let mut magnitude = 10_f64.powf(low.log10().floor());
    let mut ticks = Vec::new();
    while magnitude <= high * 10.0 {
        ticks.extend(parts.iter().map(|part| part * magnitude));
        magnitude *= 10.0;
    }
    let first = ticks.iter().rposition(|tick| *tick <= low * (1.0 + 1e-9)).unwrap_or(0);
    let last = ticks.iter().position(|tick| *tick >= high * (1.0 - 1e-9)).unwrap_or(ticks.len() - 1);
    ticks[first..=last.max(first)].to_vec()
}

/// A number in few characters: `1.25M`, `40k`, `0.5`.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match scaled.abs() {
        size if size >= 100.0 => format!("{scaled:.0}"),
        size if size >= 10.0 => format!("{scaled:.1}"),
        _ => format!("{scaled:.2}"),
    };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// What names a line in the legend and draws it.
fn class(at: usize) -> String {
    format!("c{}", at % COLOURS)
}

/// The names of the lines with their colours.
fn legend(lines: &[Line]) -> Markup {
    html! {
        ul.legend {
            @for (at, line) in lines.iter().enumerate() {
                li { span class={ "key " (class(at)) } {} (line.name) }
            }
        }
    }
}

/// The vertical axis with its lines across the plot.
fn rungs(scale: &Scale, ticks: &[f64]) -> Markup {
    html! {
        @for tick in ticks {
            @let y = px(scale.at(*tick));
            line.grid x1=(px(LEFT)) x2=(px(WIDTH - RIGHT)) y1=(y) y2=(y) {}
            text.tick x=(px(LEFT - 6.0)) y=(y) dy="0.32em" text-anchor="end" { (short(*tick)) }
        }
    }
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// Lines over a numeric axis: a plot for every eight of them.
pub(super) fn lines(lines: &[Line], unit: &str) -> Vec<Markup> {
    let xs = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
    let (low, high) = (xs().fold(f64::MAX, f64::min), xs().fold(f64::MIN, f64::max));
    let is_log = low > 0.0 && high / low >= DECADES;
    let x = Scale { low, high, from: LEFT + 8.0, to: WIDTH - RIGHT - 8.0, is_log };
    let mut steps: Vec<f64> = xs().collect();
    steps.sort_by(f64::total_cmp);
    steps.dedup();
    let labels = spaced(&steps, &x);
    let ys = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let (low, high) = (ys().fold(f64::MAX, f64::min), ys().fold(0.0, f64::max));
    drawn(lines, unit, &x, &labels, low > 0.0 && high / low >= DECADES)
}

/// Lines over named places, with a logarithmic axis of values: a plot for every eight of them.
pub(super) fn over_names(lines: &[Line], names: &[&str], unit: &str) -> Vec<Markup> {
    let last = names.len().saturating_sub(1) as f64;
    let x = Scale { low: 0.0, high: last, from: LEFT + 16.0, to: WIDTH - RIGHT - 16.0, is_log: false };
    let labels: Vec<(f64, String)> =
        names.iter().enumerate().map(|(at, name)| (at as f64, (*name).to_owned())).collect();
    drawn(lines, unit, &x, &labels, true)
}

/// Labels of the steps, where they do not touch.
fn spaced(steps: &[f64], x: &Scale) -> Vec<(f64, String)> {
    const APART: f64 = 34.0;
    let mut labels: Vec<(f64, String)> = Vec::new();
    for step in steps {
        if labels.last().is_none_or(|(before, _)| x.at(*step) - x.at(*before) >= APART) {
            labels.push((*step, short(*step)));
        }
    }
    labels
}

/// The plots of these lines, all of them on the same axes.
fn drawn(lines: &[Line], unit: &str, x: &Scale, labels: &[(f64, String)], is_log: bool) -> Vec<Markup> {
    let ys = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let (low, high) = (ys().fold(f64::MAX, f64::min), ys().fold(0.0, f64::max));
    let ticks = if is_log && low > 0.0 { log_ticks(low, high) } else { linear_ticks(high) };
    let is_log = is_log && low > 0.0;
    let (first, last) = (ticks[0], ticks[ticks.len() - 1]);
    let y = Scale { low: first, high: last, from: HEIGHT - BOTTOM, to: TOP, is_log };
    let axes = Axes { x, y: &y, ticks: &ticks, labels };
    // Of a line alone the caption has said what it is.
    let has_legend = lines.len() > 1;
    lines.chunks(COLOURS).map(|lines| on_axes(lines, unit, &axes, has_legend)).collect()
}

/// What all plots of some lines have in common.
struct Axes<'a> {
    x: &'a Scale,
    y: &'a Scale,
    ticks: &'a [f64],
    labels: &'a [(f64, String)],
}

/// One plot, of as many lines as there are colours.
fn on_axes(lines: &[Line], unit: &str, axes: &Axes<'_>, has_legend: bool) -> Markup {
    let Axes { x, y, ticks, labels } = *axes;
    let points = |line: &Line| {
        let place = |point: &(f64, f64)| format!("{},{}", px(x.at(point.0)), px(y.at(point.1)));
        line.points.iter().map(place).collect::<Vec<_>>().join(" ")
    };
    html! {
        div.unit { (unit) @if y.is_log { ", logarithmic" } }
        svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" {
            (rungs(y, ticks))
            @for (at, label) in labels {
                text.tick x=(px(x.at(*at))) y=(px(HEIGHT - 8.0)) text-anchor="middle" { (label) }
            }
            @for (at, line) in lines.iter().enumerate() {
                polyline class={ "line " (class(at)) } points=(points(line)) {}
                @for point in &line.points {
                    circle class={ "dot " (class(at)) } cx=(px(x.at(point.0))) cy=(px(y.at(point.1))) r="3" {
                        title { (line.name) ": " (short(point.1)) " " (unit) }
                    }
                }
            }
        }
        @if has_legend { (legend(lines)) }
    }
}

/// Boxes, one below the other, each under its name.
pub(super) fn boxes(boxes: &[(String, BoxOf)], unit: &str) -> Markup {
    let highest = boxes.iter().map(|(_, of)| of.highest()).fold(0.0, f64::max);
    let ticks = linear_ticks(highest);
    let x = Scale { low: 0.0, high: ticks[ticks.len() - 1], from: 16.0, to: WIDTH - 24.0, is_log: false };
    let bottom = ROW * boxes.len() as f64 + 6.0;
    html! {
        div.unit { (unit) }
        svg viewBox=(format!("0 0 {WIDTH} {}", bottom + 22.0)) role="img" {
            @for tick in &ticks {
                @let at = px(x.at(*tick));
                line.grid x1=(at) x2=(at) y1="0" y2=(px(bottom)) {}
                text.tick x=(at) y=(px(bottom + 15.0)) text-anchor="middle" { (short(*tick)) }
            }
            @for (row, (name, of)) in boxes.iter().enumerate() {
                (one_box(&x, ROW * row as f64, name, of, unit))
            }
        }
    }
}

/// A box whose name begins at `top`.
fn one_box(x: &Scale, top: f64, name: &str, of: &BoxOf, unit: &str) -> Markup {
    let (upper, middle, lower) = (top + 15.0, top + 22.0, top + 29.0);
    let at = |value: f64| px(x.at(value));
    let whiskers = [(of.low, of.first), (of.third, of.high)];
    html! {
        g {
            title {
                (name) ": " (short(of.low)) ", " (short(of.first)) ", " (short(of.median)) ", "
                (short(of.third)) ", " (short(of.high)) " " (unit)
            }
            text.label x="16" y=(px(top + 11.0)) { (name) }
            @for (from, to) in whiskers {
                line.edge x1=(at(from)) x2=(at(to)) y1=(px(middle)) y2=(px(middle)) {}
            }
            @for end in [of.low, of.high] {
                line.edge x1=(at(end)) x2=(at(end)) y1=(px(middle - 4.0)) y2=(px(middle + 4.0)) {}
            }
            rect.box x=(at(of.first)) y=(px(upper)) height=(px(lower - upper))
                width=(px((x.at(of.third) - x.at(of.first)).max(1.0))) {}
            line.median x1=(at(of.median)) x2=(at(of.median)) y1=(px(upper)) y2=(px(lower)) {}
            @for outlier in &of.outliers {
                circle.edge.hollow cx=(at(*outlier)) cy=(px(middle)) r="2.5" {}
            }
        }
    }
}

/// Bars, one below the other, with the spread behind the median.
pub(super) fn bars(bars: &[(String, Spread)], unit: &str) -> Markup {
    let highest = bars.iter().map(|(_, of)| of.median).fold(0.0, f64::max);
    let percent = |value: f64| if highest > 0.0 { 100.0 * value / highest } else { 0.0 };
    html! {
        div.unit { (unit) }
        div.bars {
            @for (name, of) in bars {
                div.name { (name) }
                div.value {
                    b { (short(of.median)) }
                    @let (least, most) = (short(of.least), short(of.most));
                    @if least != most { span.faint { " " (least) " to " (most) } }
                }
                div.track { div.bar style=(format!("width:{:.1}%", percent(of.median))) {} }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn svg(markup: &Markup) -> &str {
        &markup.0
    }

    #[test]
    fn a_box_of_known_numbers_stands_where_it_should() {
        // The axis goes from 0 at 16 to 100 at 416: a unit is four pixels.
        let of =
            BoxOf { low: 10.0, first: 20.0, median: 30.0, third: 50.0, high: 60.0, outliers: vec![100.0] };
        let drawn = boxes(&[("thread 0".to_owned(), of)], "packets/s");
        let svg = svg(&drawn);
        for part in [
            r#"<rect class="box" x="96.0" y="15.0" height="14.0" width="120.0">"#,
            r#"<line class="median" x1="136.0" x2="136.0" y1="15.0" y2="29.0">"#,
            r#"<line class="edge" x1="56.0" x2="96.0" y1="22.0" y2="22.0">"#,
            r#"<line class="edge" x1="216.0" x2="256.0" y1="22.0" y2="22.0">"#,
            r#"<circle class="edge hollow" cx="416.0" cy="22.0" r="2.5">"#,
            r#"viewBox="0 0 440 62""#,
            "thread 0",
        ] {
            assert!(svg.contains(part), "{part} in\n{svg}");
        }
    }

    #[test]
    fn a_line_of_known_numbers_stands_where_it_should() {
        let line = Line { name: "a <b> & \"c\"".to_owned(), points: vec![(0.0, 0.0), (10.0, 100.0)] };
        let drawn = lines(&[line], "ns");
        let svg = svg(&drawn[0]);
        assert!(svg.contains(r#"points="66.0,224.0 418.0,12.0""#), "{svg}");
        assert!(svg.contains("a &lt;b&gt; &amp; &quot;c&quot;") && !svg.contains("<b>"), "{svg}");
    }

    #[test]
    fn values_decades_apart_have_a_logarithmic_axis_that_says_so() {
        let points = vec![(0.0, 1_000.0), (1.0, 10_000.0), (2.0, 1_000_000.0)];
        let drawn = over_names(&[Line { name: "a".to_owned(), points }], &["p50", "p99", "max"], "us");
        let svg = svg(&drawn[0]);
        assert!(svg.contains("us, logarithmic"));
        assert!(svg.contains(r#"points="74.0,224.0 242.0,153.3 410.0,12.0""#), "{svg}");
    }

    #[test]
    fn no_two_lines_of_a_plot_look_alike_however_many_there_are() {
        let line = |at: u8| Line { name: format!("line {at}."), points: vec![(0.0, f64::from(at) + 1.0)] };
        let thirty: Vec<Line> = (0..30).map(line).collect();
        let drawn = over_names(&thirty, &["p50"], "us");
        assert_eq!(drawn.len(), 4);
        for (plot, of_plot) in drawn.iter().zip(thirty.chunks(COLOURS)) {
            for (at, line) in of_plot.iter().enumerate() {
                assert_eq!(svg(plot).matches(&format!("line {}\"", class(at))).count(), 1, "{}", plot.0);
                assert!(svg(plot).contains(&format!("</span>{}</li>", line.name)), "{}", plot.0);
            }
        }
        let ticks = |plot: &Markup| svg(plot).matches("text-anchor=\"end\"").count();
        assert!(drawn.iter().all(|plot| ticks(plot) == ticks(&drawn[0])), "all have the same axes");
    }

    #[test]
    fn a_plot_of_nothing_or_of_zeros_has_no_nonsense_in_it() {
        let zero = Line { name: "a".to_owned(), points: vec![(1.0, 0.0)] };
        assert_eq!(lines(&[], "x").len(), 0);
        for drawn in [lines(std::slice::from_ref(&zero), "x"), over_names(&[zero], &["a"], "x")].concat() {
            assert!(!drawn.0.contains("NaN") && !drawn.0.contains("inf"), "{}", drawn.0);
        }
        let nothing = Spread { median: 0.0, least: 0.0, most: 0.0 };
        assert!(bars(&[("a".to_owned(), nothing)], "ns").0.contains("width:0.0%"));
        assert!(!boxes(&[], "x").0.contains("NaN"));
    }

    #[test]
    fn the_longest_bar_is_whole_and_the_others_in_proportion() {
        let of = |median| Spread { median, least: median, most: median };
        let drawn = bars(&[("a".to_owned(), of(50.0)), ("b".to_owned(), of(200.0))], "ns");
        assert!(drawn.0.contains("width:25.0%") && drawn.0.contains("width:100.0%"), "{}", drawn.0);
    }

    #[test]
    fn ticks_are_round_and_hold_every_value() {
        for high in [0.3, 1.0, 9.0, 11.0, 583_666.0, 1.8e19] {
            let ticks = linear_ticks(high);
            assert!(
                (2..=9).contains(&ticks.len()) && ticks[ticks.len() - 1] >= high * 0.999,
                "{high}: {ticks:?}"
            );
        }
        assert_eq!(log_ticks(30.0, 700.0), [20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]);
        assert_eq!(log_ticks(100.0, 100.0), [100.0]);
    }

    #[test]
    fn numbers_are_short() {
        let cases =
            [(0.0, "0"), (0.25, "0.25"), (9_999.0, "9999"), (40_000.0, "40k"), (1_250_000.0, "1.25M")];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
