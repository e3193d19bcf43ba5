//! What belongs together on one plot: runs of one arm, arms of one part, figures whose names differ in one number alone, and
//! the five numbers of a box.
//!
//! Names are all there is to go by: a bench names a run `bench part: arm`, and a ladder's figures by the step.

use std::collections::BTreeMap;

use super::input::{Figure, Run};

/// Fewer steps than these are no ladder.
const STEPS: usize = 4;
/// How far from the box a value may be, in heights of the box, before it is an outlier (Tukey).
const FENCE: f64 = 1.5;

/// Median, least and most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Of these values; `None` when there are none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Some(Self { median: quantile(&values, 0.5)?, least: *values.first()?, most: *values.last()? })
    }
}

/// What a box plot shows of some values. Quartiles are interpolated between neighbours, as R does by default.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BoxOf {
    pub(super) low: f64,
    pub(super) first: f64,
    pub(super) median: f64,
    pub(super) third: f64,
    pub(super) high: f64,
    pub(super) outliers: Vec<f64>,
}

impl BoxOf {
    /// Of these values; `None` when there are none.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (first, median, third) =
            (quantile(&values, 0.25)?, quantile(&values, 0.5)?, quantile(&values, 0.75)?);
        let reach = (third - first) * FENCE;
        let is_within = |value: &f64| (first - reach..=third + reach).contains(value);
        let (within, outliers): (Vec<f64>, Vec<f64>) = values.into_iter().partition(is_within);
        // A quartile between two values may lie beyond the last value within reach.
        let low = within.first().map_or(first, |low| low.min(first));
        let high = within.last().map_or(third, |high| high.max(third));
        Some(Self { low, first, median, third, high, outliers })
    }

    /// The highest value of all.
    pub(super) fn highest(&self) -> f64 {
        self.outliers.last().map_or(self.high, |last| last.max(self.high))
    }
}

/// The value below which this share of the ascending values lies; `None` without values.
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let last = values.len().checked_sub(1)?;
    let place = last as f64 * share;
    let below = (0..=last).rev().find(|at| *at as f64 <= place)?;
    let (low, high) = (values[below], values[(below + 1).min(last)]);
    Some(low + (high - low) * (place - below as f64))
}

/// All runs of one arm, in order.
#[derive(Clone, Debug)]
pub(super) struct Arm<'a> {
    pub(super) name: &'a str,
    pub(super) runs: Vec<&'a Run>,
}

impl Arm<'_> {
    /// Its name, with what it seals with where the name does not say so.
    pub(super) fn label(&self) -> String {
        match self.runs.iter().find_map(|run| run.encrypted.as_deref()) {
            Some("no") => format!("{}, not encrypted", self.name),
            Some(suite) if !self.name.contains(suite) => format!("{}, {suite}", self.name),
            _ => self.name.to_owned(),
        }
    }

    /// Its label for a bar of what it could do, with who else held it down in more than half of its runs.
    pub(super) fn limited_label(&self) -> String {
        let limits = || self.runs.iter().filter_map(|run| run.limited_by.as_deref());
        match limits().next() {
            Some(by) if limits().count() * 2 > self.runs.len() => format!("{}, {by}-limited", self.label()),
            _ => self.label(),
        }
    }

    /// Whether all its latency counts from the intended time of sending.
    pub(super) fn has_schedule(&self) -> bool {
        self.runs.iter().all(|run| run.has_schedule || run.latency_ns.is_none())
    }

    /// CPU for each packet or message.
    pub(super) fn cpu_ns(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|run| run.cpu_ns))
    }

    /// Packets or messages of each second.
    pub(super) fn pps(&self) -> Option<Spread> {
        Spread::of(self.runs.iter().map(|run| run.pps))
    }

    /// Medians over the runs of each percentile, in nanoseconds.
    pub(super) fn latency_ns(&self) -> Option<[f64; 5]> {
        let mut medians = [0.0; 5];
        for (at, median) in medians.iter_mut().enumerate() {
            *median = Spread::of(self.runs.iter().filter_map(|run| Some(run.latency_ns?[at])))?.median;
        }
        Some(medians)
    }

    /// What each thread took, over all runs.
    pub(super) fn threads_pps(&self) -> Vec<f64> {
        self.runs.iter().flat_map(|run| run.threads_pps.iter().copied()).collect()
    }
}

/// The parts of a bench in order, each with its arms in order.
pub(super) fn parts<'a>(bench: &str, runs: &'a [Run]) -> Vec<(&'a str, Vec<Arm<'a>>)> {
    let mut parts: Vec<(&str, Vec<Arm<'_>>)> = Vec::new();
    for run in runs {
        let name = run.name.strip_prefix(bench).unwrap_or(&run.name).trim();
        let (part, arm) = name.split_once(": ").unwrap_or(("", name));
        let at = parts.iter().position(|(name, _)| *name == part).unwrap_or_else(|| {
            parts.push((part, Vec::new()));
            parts.len() - 1
        });
        let arms = &mut parts[at].1;
        match arms.iter_mut().find(|known| known.name == arm) {
            Some(known) => known.runs.push(run),
            None => arms.push(Arm { name: arm, runs: vec![run] }),
        }
    }
    parts
}

/// A line of a plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) name: String,
    /// Ascending in the first.
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines with the same unit over the same steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ladder {
    /// The names with `N` for the step and `..` for what differs from line to line.
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) lines: Vec<Line>,
}

/// The ladders among these named values: names that differ in one number alone, with at least four steps.
pub(super) fn ladders<'a>(values: impl Iterator<Item = (&'a str, &'a str, f64)>) -> Vec<Ladder> {
    /// Templates in order of appearance, by family and unit.
    type Families = Vec<((String, String), Vec<(String, Vec<(f64, f64)>)>)>;
    let mut families = Families::new();
    for (name, unit, value) in values {
        let words = words(name);
        for (at, word) in words.iter().enumerate() {
            let Some(step) = number(word) else { continue };
            let template = join(&words, |other, word| if other == at { "N" } else { word });
            let family = join(&words, |other, word| match number(word) {
                _ if other == at => "N",
                Some(_) => "..",
                None => word,
            });
            let key = (family, unit.to_owned());
            let lines = entry(&mut families, key);
            entry(lines, template).push((step, value));
        }
    }
    let mut ladders = Vec::new();
    for ((_, unit), lines) in families {
        let mut of_it = Vec::new();
        for (name, mut points) in lines {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            points.dedup_by(|a, b| a.0 == b.0);
            if points.len() >= STEPS {
                of_it.push(Line { name, points });
            }
        }
        if !of_it.is_empty() {
            ladders.push(Ladder { name: told_apart(&mut of_it), unit, lines: of_it });
        }
    }
    ladders
}

/// Leaves in the lines' names only what tells them apart, and answers what they have in common.
fn told_apart(lines: &mut [Line]) -> String {
    let names: Vec<String> = lines.iter().map(|line| line.name.clone()).collect();
    let of_all: Vec<Vec<&str>> = names.iter().map(|name| words(name)).collect();
    let Some((first, others)) = of_all.split_first() else { return String::new() };
    let differs = |at: usize| others.iter().any(|other| other.get(at) != first.get(at));
    let common = join(first, |at, word| if differs(at) { ".." } else { word });
    if !others.is_empty() {
        for (line, words) in lines.iter_mut().zip(&of_all) {
            // A number with what it counts.
            let telling = (0..words.len()).filter(|at| differs(*at) || (*at > 0 && differs(at - 1)));
            let telling: Vec<&str> = telling.map(|at| words[at]).collect();
            line.name = telling.join(" ").trim_end_matches([',', ':']).to_owned();
        }
    }
    common
}

/// The ladders among figures.
pub(super) fn ladders_of_figures(figures: &[Figure]) -> Vec<Ladder> {
    ladders(figures.iter().filter_map(|figure| Some((&*figure.name, &*figure.unit, figure.value?))))
}

/// What is drawn of the arms of a ladder: its title, its unit, and the value of an arm.
type Drawn = (&'static str, &'static str, fn(&Arm<'_>) -> Option<f64>);

const DRAWN: [Drawn; 3] = [
    ("rate", "per second", |arm| Some(arm.pps()?.median)),
    ("CPU for each packet or message", "ns", |arm| Some(arm.cpu_ns()?.median)),
    ("p99", "us", |arm| Some(arm.latency_ns()?[2] / 1e3)),
];

/// Where an arm stands on a ladder.
#[derive(Clone, Debug, PartialEq)]
struct Rung {
    /// What the steps are.
    by: String,
    line: String,
    step: f64,
}

/// The ladders of these arms: of packet sizes, `drain / send SIZE B THREADS threads`, one for each number of threads; of clients,
/// `N clients` or `N plain` among the words; and of rates, `N %`. A line that has one step alone is none.
pub(super) fn ladders_of_arms(arms: &[Arm<'_>]) -> Vec<Ladder> {
    let mut ladders = Vec::new();
    for (what, unit, value) in DRAWN {
        let mut families: BTreeMap<String, Vec<Line>> = BTreeMap::new();
        for arm in arms {
            let Some(value) = value(arm) else { continue };
            for Rung { by, line, step } in rungs(arm.name) {
                let lines = families.entry(by).or_default();
                match lines.iter_mut().find(|known| known.name == line) {
                    Some(known) => known.points.push((step, value)),
                    None => lines.push(Line { name: line, points: vec![(step, value)] }),
                }
            }
        }
        for (by, mut lines) in families {
            lines.retain(|line| line.points.len() > 1);
            for line in &mut lines {
                line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
            if !lines.is_empty() {
                ladders.push(Ladder { name: format!("{what} by {by}"), unit: unit.to_owned(), lines });
            }
        }
    }
    ladders
}

/// Every ladder that an arm of this name may stand on.
fn rungs(arm: &str) -> Vec<Rung> {
    let words = words(arm);
    let has_threads = words.last() == Some(&"threads");
    let steps = words.windows(2).enumerate().filter_map(|(at, pair)| {
        let step = number(pair[0])?;
        let rest = [&words[..at], &words[at + 2..]].concat();
        let unit = pair[1].trim_end_matches([',', ':']);
        let (by, line) = match unit {
            "B" if has_threads && rest.len() >= 2 => {
                let (line, threads) = rest.split_at(rest.len() - 2);
                (format!("bytes of a packet, {}", threads.join(" ")), line.join(" "))
            }
            "clients" => ("clients".to_owned(), rest.join(" ")),
            "plain" => ("clients".to_owned(), [&["plain,"], &rest[..]].concat().join(" ")),
            "%" => ("percent of the rate".to_owned(), rest.join(" ")),
            _ => return None,
        };
        let line = line.trim_end_matches([',', ':', ' ']).to_owned();
        Some(Rung { by, line, step })
    });
    steps.collect()
}

fn entry<K: PartialEq, V: Default>(list: &mut Vec<(K, V)>, key: K) -> &mut V {
    let at = list.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        list.push((key, V::default()));
        list.len() - 1
    });
    &mut list[at].1
}

/// The words of a name, with what ends a word left on it.
fn words(name: &str) -> Vec<&str> {
    name.split(' ').collect()
}

fn join<'a>(words: &[&'a str], replace: impl Fn(usize, &'a str) -> &'a str) -> String {
    let replaced = words.iter().enumerate().map(|(at, word)| {
        let end = word.trim_end_matches([',', ':', ')']);
        let body = replace(at, end);
        format!("{body}{}", &word[end.len()..])
    });
    replaced.collect::<Vec<_>>().join(" ")
}

/// A word that is a number, with commas between thousands or `k` behind it.
fn number(word: &str) -> Option<f64> {
    let word = word.trim_end_matches([',', ':', ')']);
    let (digits, factor) = word.strip_suffix('k').map_or((word, 1.0), |digits| (digits, 1_000.0));
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    digits.replace(',', "").parse::<f64>().ok().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&'static str]) -> Vec<Ladder> {
        ladders(names.iter().zip(1_u8..).map(|(name, value)| (*name, "ns", f64::from(value))))
    }

    #[test]
    fn a_box_has_quartiles_as_r_has_them_and_tukeys_whiskers() {
        let of = BoxOf::of([10.0, 20.0, 30.0, 40.0, 50.0, 200.0]).unwrap();
        assert_eq!((of.first, of.median, of.third), (22.5, 35.0, 47.5));
        assert_eq!((of.low, of.high, of.outliers.clone(), of.highest()), (10.0, 50.0, vec![200.0], 200.0));
        let one = BoxOf::of([7.0]).unwrap();
        assert_eq!((one.low, one.first, one.median, one.high), (7.0, 7.0, 7.0, 7.0));
        assert_eq!(BoxOf::of([]), None);
    }

    #[test]
    fn runs_are_put_together_by_part_and_arm_in_order() {
        let run = |name: &str, pps| Run { name: name.to_owned(), pps, ..Run::default() };
        let runs = [
            run("echo F: raw", 1.0),
            run("echo F: ours", 5.0),
            run("echo A: raw", 3.0),
            run("echo F: raw", 2.0),
            run("receiver", 9.0),
        ];
        let parts = parts("echo", &runs);
        let names: Vec<_> = parts
            .iter()
            .map(|(part, arms)| (*part, arms.iter().map(|a| a.name).collect::<Vec<_>>()))
            .collect();
        assert_eq!(names, [("F", vec!["raw", "ours"]), ("A", vec!["raw"]), ("", vec!["receiver"])]);
        assert_eq!(parts[0].1[0].pps(), Some(Spread { median: 1.5, least: 1.0, most: 2.0 }));
        assert_eq!((parts[0].1[0].cpu_ns(), parts[0].1[0].latency_ns()), (None, None));
    }

    #[test]
    fn names_that_differ_in_one_number_are_a_ladder() {
        let found = named(&[
            "1 range, 8,192 in flight",
            "1 range, 32 in flight",
            "1 range, 512 in flight",
            "1 range, 1k in flight",
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].name.as_str(), found[0].unit.as_str()), ("1 range, N in flight", "ns"));
        assert_eq!(found[0].lines[0].points, [(32.0, 2.0), (512.0, 3.0), (1_000.0, 4.0), (8_192.0, 1.0)]);
    }

    #[test]
    fn ladders_that_differ_in_another_number_share_a_plot() {
        let found = named(&[
            "1 a, 0 b", "2 a, 0 b", "3 a, 0 b", "4 a, 0 b", "1 a, 8 b", "2 a, 8 b", "3 a, 8 b", "4 a, 8 b",
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "N a, .. b");
        assert_eq!(found[0].lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>(), ["0 b", "8 b"]);
    }

    #[test]
    fn what_all_lines_have_in_common_stands_in_the_title() {
        let names = ["7 p, 1 a, 0 on, ns", "7 p, 2 a, 0 on, ns", "7 p, 3 a, 0 on, ns", "7 p, 4 a, 0 on, ns"];
        let more = names.map(|name| &*Box::leak(name.replace("0 on", "8 on").into_boxed_str()));
        let found = named(&[names, more].concat());
        assert_eq!(found[0].name, "7 p, N a, .. on, ns");
        assert_eq!(found[0].lines[1].name, "8 on");
    }

    #[test]
    fn numbers_within_words_and_few_steps_are_no_ladder() {
        assert_eq!(
            named(&["p50 over", "p90 over", "p99 over", "p99.9 over", "AES-128-GCM", "AES-256-GCM"]),
            []
        );
        assert_eq!(named(&["1 a", "2 a", "3 a"]), []);
    }

    #[test]
    fn arms_named_by_size_are_a_ladder_for_each_number_of_threads() {
        let run = Run { pps: 5.0, ..Run::default() };
        let arm = |name| Arm { name, runs: vec![&run] };
        let sizes = [arm("recv / gso 128 B 1 threads"), arm("recv / gso 32 B 1 threads")];
        let arms = [&sizes[..], &[arm("recv / gso 128 B 16 threads"), arm("raw")]].concat();
        let found = ladders_of_arms(&arms);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].name, "rate by bytes of a packet, 1 threads");
        assert_eq!(
            found[0].lines,
            [Line { name: "recv / gso".to_owned(), points: vec![(32.0, 5.0), (128.0, 5.0)] }]
        );
    }

    #[test]
    fn arms_named_by_clients_are_a_ladder_of_clients_and_never_of_sizes() {
        let run = Run { pps: 5.0, cpu_ns: Some(7.0), latency_ns: Some([1e3; 5]), ..Run::default() };
        let arm = |name| Arm { name, runs: vec![&run] };
        let arms = ["1k clients, 64 B down", "500 clients, 64 B down", "500 plain, 64 B down"].map(arm);
        let found = ladders_of_arms(&[&arms[..], &[arm("1,000 plain, 64 B down")]].concat());
        let names: Vec<_> = found.iter().map(|ladder| ladder.name.as_str()).collect();
        assert_eq!(names, ["rate by clients", "CPU for each packet or message by clients", "p99 by clients"]);
        let line = |name: &str| Line { name: name.to_owned(), points: vec![(500.0, 7.0), (1_000.0, 7.0)] };
        assert_eq!(found[1].lines, [line("64 B down"), line("plain, 64 B down")]);
        assert_eq!(found[2].lines[0].points, [(500.0, 1.0), (1_000.0, 1.0)]);
    }

    #[test]
    fn clients_and_rates_of_one_climb_are_a_ladder_each() {
        let run = Run { pps: 5.0, ..Run::default() };
        let names =
            ["ordered, 256 clients, 100 %", "ordered, 512 clients, 100 %", "ordered, 512 clients, 150 %"];
        let found = ladders_of_arms(&names.map(|name| Arm { name, runs: vec![&run] }));
        let told: Vec<_> =
            found.iter().map(|ladder| (&*ladder.name, ladder.lines[0].name.as_str())).collect();
        assert_eq!(
            told,
            [("rate by clients", "ordered, 100 %"), ("rate by percent of the rate", "ordered, 512 clients")]
        );
    }

    #[test]
    fn an_arm_says_what_it_seals_with() {
        let label = |name: &str, encrypted: Option<&str>| {
            let run = Run { encrypted: encrypted.map(str::to_owned), ..Run::default() };
            Arm { name, runs: vec![&run] }.label()
        };
        assert_eq!(label("ENet reliable", Some("no")), "ENet reliable, not encrypted");
        assert_eq!(label("quinn", Some("AES-256")), "quinn, AES-256");
        assert_eq!(label("drumfire, AES-128", Some("AES-128")), "drumfire, AES-128");
        assert_eq!(label("raw", None), "raw");
    }

    #[test]
    fn a_rate_that_the_client_held_down_is_not_shown_as_the_servers() {
        let label = |limits: &[Option<&str>]| {
            let run = |by: &Option<&str>| Run { limited_by: by.map(str::to_owned), ..Run::default() };
            let runs: Vec<Run> = limits.iter().map(run).collect();
            Arm { name: "ours", runs: runs.iter().collect() }.limited_label()
        };
        assert_eq!(label(&[None, Some("client"), Some("client")]), "ours, client-limited");
        assert_eq!(label(&[None, Some("sender")]), "ours", "half of them is not more than half");
        assert_eq!(label(&[None]), "ours");
    }
}
