//! The page: an overview, then a section for each report with its figures beside their goals, and the plots.
//!
//! Everything that comes from a file is escaped by the templates.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::Entry;
use super::input::{Figure, Goal, Measured, Range, Rates, Run};
use super::plot::{bars, boxes, lines, over_names, short};
use super::sections::{SECTIONS, Section, place};
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
    let goals: Vec<Verdict> =
        counted(&ordered).into_iter().flat_map(|measured| &measured.figures).filter_map(verdict_of).collect();
    let count = |wanted: Verdict| goals.iter().filter(|verdict| **verdict == wanted).count();
    let read = ordered.iter().filter_map(|entry| entry.read.as_ref().ok());
    let mut machines: Vec<&str> = read.map(|measured| measured.machine.as_str()).collect();
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
                p.meta { @for machine in machines { "Measured on " (machine) ". " } "How each number is made: benches/docs/benchmarks.md." }
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

/// The reports whose goals are counted together: no smoke runs, and no part whose whole is there and not older.
fn counted<'a>(ordered: &[&'a Entry]) -> Vec<&'a Measured> {
    let full: Vec<(&Entry, &Measured)> = ordered
        .iter()
        .copied()
        .filter_map(|entry| Some((entry, entry.read.as_ref().ok()?)))
        .filter(|(_, measured)| !is_quick(measured))
        .collect();
    let has_whole = |part: &Entry, measured: &Measured| {
        full.iter().any(|(whole, _)| whole.stem == measured.name && whole.written >= part.written)
    };
    let counts =
        full.iter().filter(|(entry, measured)| measured.part.is_none() || !has_whole(entry, measured));
    counts.map(|(_, measured)| *measured).collect()
}

fn is_quick(measured: &Measured) -> bool {
    measured.extent.as_deref() == Some("quick")
}

/// The reports of single parts that are there where that of the whole is not.
fn parts_alone<'a>(section: &Section, ordered: &[&'a Entry]) -> Vec<&'a Entry> {
    if ordered.iter().any(|entry| entry.stem == section.stem) {
        return Vec::new();
    }
    let is_part = |entry: &&Entry| {
        entry.read.as_ref().is_ok_and(|measured| measured.name == section.stem && measured.part.is_some())
    };
    ordered.iter().copied().filter(is_part).collect()
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
    let is_there = |section: &Section| ordered.iter().any(|entry| entry.stem == section.stem);
    let in_parts: Vec<(&Section, Vec<&Entry>)> =
        SECTIONS.iter().map(|section| (section, parts_alone(section, ordered))).collect();
    let begun_by = |entry: &Entry| {
        in_parts.iter().find(|(_, parts)| parts.first().is_some_and(|first| first.stem == entry.stem))
    };
    let missing = in_parts.iter().filter(|(section, parts)| !is_there(section) && parts.is_empty());
    html! {
        section {
            table.overview {
                thead { tr { th { "report" } th.wide { "written" } th { "goals" } th.wide { "command" } } }
                tbody {
                    @for entry in ordered {
                        @if let Some((section, parts)) = begun_by(entry) { (parts_row(section, parts)) }
                        (overview_row(entry))
                    }
                    @for (section, _) in missing {
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

fn overview_row(entry: &Entry) -> Markup {
    html! {
        tr {
            @match &entry.read {
                Ok(measured) => {
                    td { a href={ "#" (entry.stem) } { (title(entry)) } " " (marks(measured)) }
                    td.wide.meta { (entry.date) }
                    td { (tally(measured)) }
                    td.wide { code { (measured.command) } }
                }
                Err(line) => {
                    td { (title(entry)) }
                    td.wide.meta { (entry.date) }
                    td colspan="2" { span.badge.miss { "cannot be read" } " " (line) }
                }
            }
        }
    }
}

/// Stands in place of a whole of which there are only parts.
fn parts_row(section: &Section, parts: &[&Entry]) -> Markup {
    html! {
        tr {
            td { (section.title) }
            td colspan="3" {
                "in parts:"
                @for part in parts { " " a href={ "#" (part.stem) } { (title(part)) } }
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

/// What says that a run is not the documented one: that the figures of a short run mean little, or with which sizes it was.
/// That a part was run alone is in its title.
fn marks(measured: &Measured) -> Markup {
    html! {
        @if is_quick(measured) { span.badge.warn { "quick: figures mean little" } " " }
        @if !measured.sizes.is_empty() { span.badge.warn { "not as documented: " (measured.sizes) } " " }
    }
}

/// What a report is called: its bench, and the part that was run alone. Sizes are among its marks.
fn title(entry: &Entry) -> String {
    let section = SECTIONS.get(place(&entry.stem));
    match (&entry.read, section) {
        (Ok(Measured { name, part: Some(part), .. }), section) => {
            format!("{}: {part}", section.map_or(name.as_str(), |section| section.title))
        }
        (Ok(_), Some(section)) => section.title.to_owned(),
        (Err(_), Some(section)) if section.stem == entry.stem => section.title.to_owned(),
        // The file's name is all that is known.
        _ => entry.stem.clone(),
    }
}

fn section(entry: &Entry, measured: &Measured) -> Markup {
    let with_goal: Vec<&Figure> = measured.figures.iter().filter(|figure| figure.goal.is_some()).collect();
    let without: Vec<&Figure> = measured.figures.iter().filter(|figure| figure.goal.is_none()).collect();
    let is_short = without.len() <= SHOWN;
    html! {
        section id=(entry.stem) {
            header {
                h2 { (title(entry)) " " (marks(measured)) }
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
            @if let Some(flame) = &entry.flame { (self::flame(&title(entry), flame)) }
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
            td.num {
                b { @match figure.value { Some(value) => (precise(value)), None => "-" } } " " (figure.unit)
                @if let Some(Range { least, most }) = figure.range {
                    div.note { (precise(least)) " to " (precise(most)) }
                }
            }
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
                (plots_of(&ladder.name, &lines(&ladder.lines, &ladder.unit)))
            }
            @for (part, arms) in &parts { (part_plots(part, arms)) }
        }
        (notes(&measured.runs))
    }
}

fn plot(caption: &str, drawn: &Markup) -> Markup {
    html! { figure { figcaption { (caption) } (drawn) } }
}

/// Plots that share a caption.
fn plots_of(caption: &str, drawn: &[Markup]) -> Markup {
    let count = drawn.len();
    let numbered = |at: usize| {
        if count == 1 { caption.to_owned() } else { format!("{caption}, {} of {count}", at + 1) }
    };
    html! { @for (at, one) in drawn.iter().enumerate() { (plot(&numbered(at), one)) } }
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
            (plots_of(&named(&ladder.name), &lines(&ladder.lines, &ladder.unit)))
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
    let cpu: Vec<_> = arms.iter().filter_map(|arm| Some((arm.limited_label(), arm.cpu_ns()?))).collect();
    let rate: Vec<_> = arms.iter().filter_map(|arm| Some((arm.limited_label(), arm.pps()?))).collect();
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
            (plots_of(&named(&format!("latency{from}")), &over_names(&latency, &PERCENTILES, "us")))
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
    use std::time::{Duration, UNIX_EPOCH};

    fn entry(stem: &str, value: &Value) -> (String, Entry) {
        let read = Measured::read(&value.to_string()).map_err(|why| format!("{stem}.json: {why}"));
        let date = "2026-11-21 23:09 UTC".to_owned();
        (stem.to_owned(), Entry { stem: stem.to_owned(), written: None, date, flame: None, read })
    }

    /// A run of this extent, of one part or whole, with one goal that is reached.
    fn reached(extent: &str, part: Option<&str>) -> Value {
        let figures = json!([
            { "name": "p50", "value": 1.1, "least": 0.9, "most": 1.25, "unit": "x", "goal": 1.5, "bound": "at_most", "reached": true, "note": "" },
        ]);
        let mut bench = samples::bench(&figures, &[]);
        bench["flags"] = json!({ "extent": extent, "only": part });
        bench
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
    fn a_bench_that_was_run_in_parts_is_not_called_not_run() {
        let parts = ["A", "F"].map(|part| entry(&format!("echo-{part}"), &reached("default", Some(part))));
        let page = render(&BTreeMap::from(parts)).into_string();
        assert!(!page.contains("not run: <code>cargo bench --bench echo</code>"));
        let links = "in parts: <a href=\"#echo-A\">Echo: A</a> <a href=\"#echo-F\">Echo: F</a>";
        assert_eq!(page.matches(links).count(), 1, "{page}");
        assert!(page.contains("<h2>Echo: A ") && page.contains("<section id=\"echo-F\">"));
        let whole = entry("echo", &reached("default", None));
        let page = render(&BTreeMap::from([whole, entry("echo-A", &reached("default", Some("A")))]));
        assert!(!page.into_string().contains("in parts"));
    }

    #[test]
    fn a_goal_counts_once_for_a_part_and_its_whole_and_never_for_a_smoke_run() {
        let written = |stem: &str, bench: &Value, secs: u64| {
            let (_, mut entry) = entry(stem, bench);
            entry.written = Some(UNIX_EPOCH + Duration::from_secs(secs));
            entry
        };
        let count = |entries: &[&Entry]| counted(entries).len();
        let whole = written("echo", &reached("default", None), 10);
        let smoke = written("echo", &reached("quick", None), 12);
        let older = written("echo-A", &reached("default", Some("A")), 10);
        let newer = written("echo-F", &reached("default", Some("F")), 11);
        assert_eq!((count(&[&whole, &older]), count(&[&whole, &newer])), (1, 2));
        assert_eq!((count(&[&older, &newer]), count(&[&smoke]), count(&[&smoke, &older])), (2, 0, 1));
    }

    #[test]
    fn the_middle_of_rounds_has_their_least_and_most_beneath_it() {
        let page = render(&BTreeMap::from([entry("echo", &reached("default", None))])).into_string();
        assert!(page.contains("<b>1.1</b> x<div class=\"note\">0.9 to 1.25</div>"), "{page}");
    }

    #[test]
    fn who_was_held_down_by_the_client_says_so_beside_its_bars() {
        let run = |name: &str, limited_by: Option<&str>| {
            let mut run = samples::run(name);
            run["limited_by"] = json!(limited_by);
            run
        };
        let runs = [run("echo F: raw", Some("client")), run("echo F: ours", None)];
        let page = render(&BTreeMap::from([entry("echo", &samples::bench(&json!([]), &runs))]));
        let page = page.into_string();
        assert!(page.contains(">raw, client-limited</div>") && page.contains(">ours</div>"), "{page}");
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
            assert!(
                page.contains(": latency</figcaption>") || page.contains(": latency, 2 of 2</figcaption>")
            );
        }
    }

    #[test]
    fn a_run_that_is_not_the_documented_one_is_marked() {
        let mut bench = samples::bench(&json!([]), &[]);
        bench["command"] = json!("cargo bench --bench echo -- --quick --only F --clients 9");
        bench["flags"] = json!({ "extent": "quick", "only": "F" });
        let page = render(&BTreeMap::from([entry("echo-F", &bench)])).into_string();
        for mark in ["quick: figures mean little", "part F alone", "not as documented: --clients 9"] {
            assert!(page.contains(mark), "{mark}");
        }
        let title = "<h2>Echo: F <span class=\"badge warn\">quick";
        assert!(
            page.contains(title) && page.matches("F alone").count() == 1,
            "its title names the part: {page}"
        );
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
