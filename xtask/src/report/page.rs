//! The page: an overview, then a section for each report with its figures beside their goals, and the plots.
//!
//! Everything that comes from a file is escaped by the templates.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Entry;
use super::input::{Figure, Goal, Measured, Rates, Run};
use super::plot::{bars, boxes, lines, over_names, short};
use super::sections::{SECTIONS, place};
use super::series::{Arm, BoxOf, Line, Spread, ladders_of_arms, ladders_of_figures, parts};

const STYLE: &str = include_str!("page.css");
/// More figures without a goal than these are folded.
const SHOWN: usize = 8;
/// More arms than these are folded where a ladder shows them.
const UNFOLDED: usize = 8;
/// Rates that differ by no more than this factor are the same load.
const SAME_RATE: f64 = 1.03;
/// The places of a latency plot.
const PERCENTILES: [&str; 5] = ["p50", "p90", "p99", "p99.9", "max"];

/// The whole page.
pub(super) fn render(entries: &BTreeMap<String, Entry>) -> Markup {
    let mut ordered: Vec<&Entry> = entries.values().collect();
    ordered.sort_by_key(|entry| place(&entry.stem));
    let read = || ordered.iter().filter_map(|entry| entry.read.as_ref().ok());
    let goals = || read().flat_map(|measured| &measured.figures).filter_map(verdict_of);
    let count = |wanted: Verdict| goals().filter(|verdict| *verdict == wanted).count();
    let mut machines: Vec<&str> = read().map(|measured| measured.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "drumfire: what was measured" }
                style { (PreEscaped(STYLE)) }
            }
            body { main {
                h1 { "drumfire: what was measured" }
                p.meta { @for machine in machines { "Measured on " (machine) ". " } "How each number is made: crates/drumfire/docs/NUMBERS.md." }
                p {
                    "Goals: " (badge(Verdict::Pass, &count(Verdict::Pass).to_string())) " "
                    (badge(Verdict::Miss, &count(Verdict::Miss).to_string())) " "
                    (badge(Verdict::Open, &count(Verdict::Open).to_string()))
                }
                (overview(&ordered))
                @for entry in &ordered {
                    @if let Ok(measured) = &entry.read { (section(entry, measured)) }
                }
            } }
        }
    }
}

/// How a figure stands to its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Miss,
    Open,
}

fn verdict_of(figure: &Figure) -> Option<Verdict> {
    figure.goal?;
    Some(match figure.is_reached {
        Some(true) => Verdict::Pass,
        Some(false) => Verdict::Miss,
        None => Verdict::Open,
    })
}

fn badge(verdict: Verdict, count: &str) -> Markup {
    let (class, word) = match verdict {
        Verdict::Pass => ("pass", "pass"),
        Verdict::Miss => ("miss", "miss"),
        Verdict::Open => ("none", "not measured"),
    };
    html! { span class={ "badge " (class) } { (count) @if !count.is_empty() { " " } (word) } }
}

/// Every report with its command and how many goals it reached, and the reports that are not there.
fn overview(ordered: &[&Entry]) -> Markup {
    let missing = SECTIONS.iter().filter(|section| !ordered.iter().any(|entry| entry.stem == section.stem));
    html! {
        section {
            table.overview {
                thead { tr { th { "report" } th.wide { "written" } th { "goals" } th.wide { "command" } } }
                tbody {
                    @for entry in ordered {
                        tr {
                            @match &entry.read {
                                Ok(measured) => {
                                    td { a href={ "#" (entry.stem) } { (title(&entry.stem)) } " " (marks(measured)) }
                                    td.wide.meta { (entry.date) }
                                    td { (tally(measured)) }
                                    td.wide { code { (measured.command) } }
                                }
                                Err(line) => {
                                    td { (title(&entry.stem)) }
                                    td.wide.meta { (entry.date) }
                                    td colspan="2" { span.badge.miss { "cannot be read" } " " (line) }
                                }
                            }
                        }
                    }
                    @for section in missing {
                        tr {
                            td.faint { (section.title) }
                            td.faint colspan="3" { "not run: " code { (section.command) } }
                        }
                    }
                }
            }
        }
    }
}

/// How many goals were reached, missed, and not measured; nothing where there are none.
fn tally(measured: &Measured) -> Markup {
    let verdicts: Vec<Verdict> = measured.figures.iter().filter_map(verdict_of).collect();
    let all = [Verdict::Pass, Verdict::Miss, Verdict::Open];
    html! {
        @for verdict in all {
            @let count = verdicts.iter().filter(|of| **of == verdict).count();
            @if count > 0 { (badge(verdict, &count.to_string())) " " }
        }
    }
}

/// What says that a run is not the documented one: that the figures of a short run mean little, that a part was run alone, or
/// with which sizes.
fn marks(measured: &Measured) -> Markup {
    let is_quick = measured.extent.as_deref() == Some("quick");
    html! {
        @if is_quick { span.badge.warn { "quick: figures mean little" } " " }
        @if let Some(part) = &measured.part { span.badge.warn { (part) " alone" } " " }
        @if !measured.sizes.is_empty() { span.badge.warn { "not as documented: " (measured.sizes) } " " }
    }
}

fn title(stem: &str) -> String {
    match SECTIONS.get(place(stem)) {
        Some(section) if section.stem == stem => section.title.to_owned(),
        Some(section) => {
            let part = stem.strip_prefix(section.stem).unwrap_or(stem).trim_start_matches('-');
            format!("{}: {part}", section.title)
        }
        None => stem.to_owned(),
    }
}

fn section(entry: &Entry, measured: &Measured) -> Markup {
    let with_goal: Vec<&Figure> = measured.figures.iter().filter(|figure| figure.goal.is_some()).collect();
    let without: Vec<&Figure> = measured.figures.iter().filter(|figure| figure.goal.is_none()).collect();
    let is_short = without.len() <= SHOWN;
    html! {
        section id=(entry.stem) {
            header {
                h2 { (title(&entry.stem)) " " (marks(measured)) }
                @if let Some(section) = SECTIONS.get(place(&entry.stem)) { p { (section.about) } }
                p.meta {
                    code { (measured.command) }
                    @if let Some(extent) = &measured.extent { " · " (extent) " run" }
                    @if let Some(part) = &measured.part { ", part " (part) " alone" }
                    " · " (entry.date) " · " (measured.versions) " · " (measured.machine)
                    @if !measured.setup.is_empty() { " · " (measured.setup) }
                }
            }
            (missing(&measured.figures))
            (figures("goal", &with_goal))
            @if is_short { (figures("", &without)) }
            @else { details { summary { (without.len()) " figures without a goal" } (figures("", &without)) } }
            @if let Some(flame) = &entry.flame { (self::flame(&title(&entry.stem), flame)) }
            (plots(measured))
        }
    }
}

/// Whom a figure is without a value for: the parts of the notes that say `missing: reason`, each once.
fn missing(figures: &[Figure]) -> Markup {
    let mut reasons: Vec<&str> = Vec::new();
    for figure in figures.iter().filter(|figure| figure.value.is_none()) {
        for part in figure.note.split("; ").filter(|part| part.contains("missing: ")) {
            if !reasons.contains(&part) {
                reasons.push(part);
            }
        }
    }
    html! { @for reason in reasons { p { span.badge.warn { "missing" } " " (reason) } } }
}

/// A flame graph as a picture: what a viewer of its own could run in it does not run here.
fn flame(title: &str, svg: &str) -> Markup {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~ /:=,;()".contains(&byte);
    let mut address = "data:image/svg+xml,".to_owned();
    for byte in svg.bytes() {
        if is_plain(byte) {
            address.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(address, "%{byte:02X}");
        }
    }
    let caption = format!("{title}: where the server's time goes, a flame graph");
    html! { figure.flame { figcaption { (caption) } img src=(address) alt=(caption); } }
}

/// A table, whose third column has this heading.
fn figures(goal: &str, figures: &[&Figure]) -> Markup {
    html! {
        @if !figures.is_empty() {
            table.figures {
                thead { tr { th { "figure" } th.num.amount { "value" } th.num.goal { (goal) } th.verdict {} } }
                tbody { @for figure in figures { (row(figure)) } }
            }
        }
    }
}

fn row(figure: &Figure) -> Markup {
    html! {
        tr {
            td { (figure.name) @if !figure.note.is_empty() { div.note { (figure.note) } } }
            td.num { b { @match figure.value { Some(value) => (precise(value)), None => "-" } } " " (figure.unit) }
            td.num.faint {
                @match figure.goal {
                    Some(Goal::AtLeast(least)) => { "at least " (precise(least)) }
                    Some(Goal::AtMost(most)) => { "at most " (precise(most)) }
                    None => {}
                }
            }
            td { @if let Some(verdict) = verdict_of(figure) { (badge(verdict, "")) } }
        }
    }
}

/// A number with the digits that matter, and commas between thousands.
fn precise(value: f64) -> String {
    let size = value.abs();
    if size < 1_000.0 {
        let text = if size >= 100.0 { format!("{value:.1}") } else { format!("{value:.2}") };
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{size:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Whatever of a report can be plotted.
fn plots(measured: &Measured) -> Markup {
    let parts = parts(&measured.name, &measured.runs);
    html! {
        div.plots {
            @for rates in &measured.rates { (of_threads(rates)) }
            @for ladder in ladders_of_figures(&measured.figures) {
                (plot(&ladder.name, &lines(&ladder.lines, &ladder.unit)))
            }
            @for (part, arms) in &parts { (part_plots(part, arms)) }
        }
        (notes(&measured.runs))
    }
}

fn plot(caption: &str, drawn: &Markup) -> Markup {
    html! { figure { figcaption { (caption) } (drawn) } }
}

/// A box for each thread over its samples.
fn of_threads(rates: &Rates) -> Markup {
    let named = |(thread, samples): (usize, &Vec<f64>)| {
        Some((format!("thread {thread}"), BoxOf::of(samples.iter().copied())?))
    };
    let drawn: Vec<_> = rates.threads.iter().enumerate().filter_map(named).collect();
    let what = if rates.name.is_empty() { String::new() } else { format!(", {}", rates.name) };
    plot(&format!("Packet rate of each thread, sample by sample{what}"), &boxes(&drawn, "packets/s"))
}

/// The plots of one part's arms: its ladders, then every arm, folded where ladders have shown many already.
fn part_plots(part: &str, arms: &[Arm<'_>]) -> Markup {
    let ladders = ladders_of_arms(arms);
    let named = |what: &str| named(part, what);
    html! {
        @for ladder in &ladders {
            (plot(&named(&ladder.name), &lines(&ladder.lines, &ladder.unit)))
        }
        @if ladders.is_empty() || arms.len() <= UNFOLDED { (arms_plots(part, arms)) }
        @else {
            details { summary { (named("")) (arms.len()) " rows one by one" } (arms_plots(part, arms)) }
        }
    }
}

/// What is plotted of a part, with the part before it.
fn named(part: &str, what: &str) -> String {
    if part.is_empty() { what.to_owned() } else { format!("{part}: {what}") }
}

/// The plots that show every arm by its name: threads as boxes, CPU and rate as bars, latency as lines.
fn arms_plots(part: &str, arms: &[Arm<'_>]) -> Markup {
    let named = |what: &str| named(part, what);
    let spread: Vec<(String, BoxOf)> = arms
        .iter()
        .filter(|arm| arm.runs.iter().all(|run| run.threads_pps.len() > 1))
        .filter_map(|arm| Some((arm.label(), BoxOf::of(arm.threads_pps())?)))
        .collect();
    let cpu: Vec<_> = arms.iter().filter_map(|arm| Some((arm.label(), arm.cpu_ns()?))).collect();
    let rate: Vec<_> = arms.iter().filter_map(|arm| Some((arm.label(), arm.pps()?))).collect();
    // Arms that were given the same load say nothing by their rates.
    let all = Spread::of(rate.iter().map(|(_, of)| of.median));
    let is_told = spread.is_empty() && all.is_some_and(|all| all.most > all.least * SAME_RATE);
    let latency: Vec<Line> = arms.iter().filter_map(latency_line).collect();
    let from = if arms.iter().all(Arm::has_schedule) { " from the intended time of sending" } else { "" };
    html! {
        @if !spread.is_empty() {
            (plot(&named("packet rate of each thread"), &boxes(&spread, "packets/s, one value for each thread and round")))
        }
        @if cpu.len() > 1 {
            (plot(&named("CPU for each packet or message"), &bars(&cpu, "ns; median, least to most")))
        }
        @if is_told {
            (plot(&named("packets or messages per second"), &bars(&rate, "per second; median, least to most")))
        }
        @if !latency.is_empty() {
            (plot(&named(&format!("latency{from}")), &over_names(&latency, &PERCENTILES, "us")))
        }
    }
}

fn latency_line(arm: &Arm<'_>) -> Option<Line> {
    let places = [0.0, 1.0, 2.0, 3.0, 4.0];
    let points = places.into_iter().zip(arm.latency_ns()?).map(|(at, ns)| (at, ns / 1e3)).collect();
    Some(Line { name: arm.label(), points })
}

/// What the runs have to say, and how they were counted.
fn notes(runs: &[Run]) -> Markup {
    let said: Vec<&Run> = runs.iter().filter(|run| !run.notes.is_empty()).collect();
    html! {
        @if !said.is_empty() {
            details {
                summary { "notes of " (said.len()) " runs" }
                @for run in said {
                    p.note { b { (run.name) } ", " (short(run.window_s)) " s: " (run.notes.join("; ")) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::input::samples;
    use super::*;
    use serde_json::{Value, json};

    fn entry(stem: &str, value: &Value) -> (String, Entry) {
        let read = Measured::read(&value.to_string()).map_err(|why| format!("{stem}.json: {why}"));
        (
            stem.to_owned(),
            Entry { stem: stem.to_owned(), date: "2026-11-21 23:09 UTC".to_owned(), flame: None, read },
        )
    }

    fn page() -> String {
        let figures = json!([
            { "name": "CPU <over> raw", "value": 1.5, "unit": "x", "goal": 1.35, "bound": "at_most", "reached": false, "note": "a & b" },
            { "name": "p50", "value": 1.1, "unit": "x", "goal": 1.5, "bound": "at_most", "reached": true, "note": "" },
            { "name": "spread", "value": null, "unit": "x", "goal": 1.05, "bound": "at_most", "reached": null, "note": "" },
        ]);
        let runs = [samples::run("echo F: <raw>"), samples::run("echo F: ours")];
        let broken = json!({ "name": "load", "command": 7 });
        let entries = BTreeMap::from([
            entry("echo", &samples::bench(&figures, &runs)),
            entry("receiver", &samples::run("receiver")),
            entry("load", &broken),
        ]);
        render(&entries).into_string()
    }

    #[test]
    fn every_figure_stands_beside_its_goal_with_its_verdict() {
        let page = page();
        for part in [
            "at most 1.35",
            "<span class=\"badge miss\">miss</span>",
            "<span class=\"badge pass\">pass</span>",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(page.contains("1 pass") && page.contains("1 miss") && page.contains("1 not measured"));
    }

    #[test]
    fn what_files_hold_is_escaped() {
        let page = page();
        assert!(page.contains("CPU &lt;over&gt; raw") && page.contains("a &amp; b"));
        assert!(page.contains("&lt;raw&gt;") && page.contains("Some &lt;CPU&gt;"));
        assert!(!page.contains("<over>") && !page.contains("<raw>") && !page.contains("<CPU>"));
    }

    #[test]
    fn what_is_missing_or_broken_is_named() {
        let page = page();
        assert!(page.contains("not run: <code>cargo bench --bench pps</code>"));
        assert!(page.contains("load.json: command: is not a text"));
        assert!(!page.contains("not run: <code>cargo bench --bench echo</code>"));
    }

    #[test]
    fn a_page_asks_nobody_for_anything() {
        let page = page();
        for word in ["http:", "https:", "<script", "<link", "url(", "@import", "<img"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn a_receivers_seconds_are_boxes_and_latency_is_lines() {
        let page = page();
        assert!(page.contains("thread 0") && page.contains("thread 1"));
        assert!(page.contains("F: CPU for each packet or message"));
        assert!(page.contains("<figcaption>F: latency</figcaption>") && page.contains("p99.9"));
    }

    #[test]
    fn latency_counts_from_the_intended_time_where_there_is_a_schedule_alone() {
        let mut run = samples::run("echo A: ours");
        run["offered"] = json!(30);
        let page = |runs: &[Value]| {
            render(&BTreeMap::from([entry("echo", &samples::bench(&json!([]), runs))])).into_string()
        };
        assert!(page(&[run.clone()]).contains("A: latency from the intended time of sending"));
        assert!(!page(&[run, samples::run("echo A: raw")]).contains("intended"));
    }

    #[test]
    fn a_ladder_hides_no_other_plot() {
        let run = |clients: u32| samples::run(&format!("peers_scale ladder: {clients} clients, 64 B down"));
        let page = |clients: &[u32]| {
            let runs: Vec<Value> = clients.iter().map(|clients| run(*clients)).collect();
            let read = samples::bench(&json!([]), &runs);
            render(&BTreeMap::from([entry("peers_scale", &read)])).into_string()
        };
        let few = page(&[500, 1_000]);
        assert!(!few.contains("rows one by one"));
        let many = page(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert!(many.contains("9 rows one by one"));
        for page in [few, many] {
            assert!(page.contains(" by clients") && !page.contains("bytes of a packet"));
            assert!(page.contains(": CPU for each packet or message</figcaption>"));
            assert!(page.contains(": latency</figcaption>"));
        }
    }

    #[test]
    fn a_run_that_is_not_the_documented_one_is_marked() {
        let mut bench = samples::bench(&json!([]), &[]);
        bench["command"] = json!("cargo bench --bench echo -- --quick --only F --clients 9");
        bench["flags"] = json!({ "extent": "quick", "only": "F" });
        let page = render(&BTreeMap::from([entry("echo-F", &bench)])).into_string();
        for mark in ["quick: figures mean little", "F alone", "not as documented: --clients 9"] {
            assert!(page.contains(mark), "{mark}");
        }
        assert!(!self::page().contains("not as documented"));
    }

    #[test]
    fn who_is_missing_is_told_once_with_the_reason() {
        let figure = |name: &str, note: &str| json!({ "name": name, "value": null, "unit": "x", "goal": 2, "bound": "at_least", "reached": null, "note": note });
        let note = "the median of the rounds; GNS: missing: no protoc";
        let figures = json!([figure("C over GNS", note), figure("D over GNS", note)]);
        let page = render(&BTreeMap::from([entry("peers", &samples::bench(&figures, &[]))])).into_string();
        assert_eq!(page.matches("</span> GNS: missing: no protoc").count(), 1);
    }

    #[test]
    fn a_flame_graph_stands_in_the_page() {
        let (stem, mut entry) = entry("peers_scale", &samples::bench(&json!([]), &[]));
        entry.flame = Some("<svg \"#é\">".to_owned());
        let page = render(&BTreeMap::from([(stem, entry)])).into_string();
        assert!(page.contains(r#"<img src="data:image/svg+xml,%3Csvg %22%23%C3%A9%22%3E""#), "{page}");
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let cases = [
            (1.0, "1"),
            (1.4225, "1.42"),
            (139.68, "139.7"),
            (40_960.0, "40,960"),
            (-1_234_567.0, "-1,234,567"),
            (100.0, "100"),
        ];
        for (value, text) in cases {
            assert_eq!(precise(value), text);
        }
    }
}
