//! The report on how connections were made, in the columns of nbio's benchmark.
//!
//! Sixteen share a socket and are made together, so a time is that of sixteen: from the beginning of the first until the last of
//! them is there. A connection that cannot be made ends the bench, whose tables are then not printed.

use drumfire_benches::{Goal, Results, Spread};
use drumfire_tools::table::{Align, TextTable};
use hdrhistogram::Histogram;

use super::Subject;

/// Headings and quantiles.
const QUANTILES: [(&str, f64); 7] = [
    ("Min", 0.0),
    ("TP50", 0.5),
    ("TP75", 0.75),
    ("TP90", 0.9),
    ("TP95", 0.95),
    ("TP99", 0.99),
    ("Max", 1.0),
];

/// How the connections of one session were made.
pub(crate) struct Connecting {
    count: usize,
    /// From the first beginning to the last end.
    used_ns: u64,
    /// Nanoseconds of each socket.
    times: Histogram<u64>,
}

impl Connecting {
    /// From when each socket's connections were begun, and when all of them were there.
    ///
    /// # Errors
    ///
    /// A time that cannot be counted.
    pub(crate) fn of(count: usize, sockets: &[(u64, u64)]) -> Result<Self, String> {
        let begun = sockets.iter().map(|(begun, _)| *begun).min().unwrap_or(0);
        let ended = sockets.iter().map(|(_, there)| *there).max().unwrap_or(begun);
        let mut times = Histogram::new(3).map_err(|error| error.to_string())?;
        for (begun, there) in sockets {
            times.record(there.saturating_sub(*begun)).map_err(|error| error.to_string())?;
        }
        Ok(Self { count, used_ns: ended.saturating_sub(begun), times })
    }

    fn per_second(&self) -> f64 {
        self.count as f64 * 1e9 / self.used_ns.max(1) as f64
    }

    /// The time that this share of the sockets did not exceed.
    fn quantile_ms(&self, share: f64) -> f64 {
        self.times.value_at_quantile(share) as f64 / 1e6
    }
}

/// The table, medians of all sessions of a subject; its columns as figures too.
pub(crate) fn report(sessions: &[(Subject, Connecting)], results: &mut Results) -> String {
    let mut headings = vec![("Framework", Align::Left), ("TPS", Align::Right), ("Avg", Align::Right)];
    headings.extend(QUANTILES.map(|(heading, _)| (heading, Align::Right)));
    headings.extend(["Usage", "Total", "Success", "Failed"].map(|heading| (heading, Align::Right)));
    let mut table = TextTable::new(&headings).indented(2);
    for subject in Subject::all() {
        let of_subject = || sessions.iter().filter(|(of, _)| *of == subject).map(|(_, session)| session);
        let median =
            |of: &dyn Fn(&Connecting) -> f64| Spread::of(of_subject().map(of)).map(|spread| spread.median);
        let (Some(per_second), Some(mean), Some(used)) = (
            median(&Connecting::per_second),
            median(&|session| session.times.mean() / 1e6),
            median(&|session| session.used_ns as f64 / 1e9),
        ) else {
            continue;
        };
        let count = of_subject().next().map_or(0, |session| session.count);
        let mut cells = vec![subject.name(), format!("{per_second:.0}"), format!("{mean:.2}ms")];
        for (heading, share) in QUANTILES {
            let time = median(&|session| session.quantile_ms(share)).unwrap_or_default();
            cells.push(format!("{time:.2}ms"));
            results.figure(
                format!("Connections: {}: {heading}", subject.name()),
                Some(time),
                "ms",
                Goal::Shown,
                "",
            );
        }
        cells.extend([format!("{used:.2}s"), count.to_string(), count.to_string(), "0".to_owned()]);
        results.figure(
            format!("Connections: {}: TPS", subject.name()),
            Some(per_second),
            "/s",
            Goal::Shown,
            "",
        );
        table.row(cells);
    }
    format!(
        "Connections\n{}  Times are of sixteen connections on one socket. Raw datagrams need none; drumfire's clients begin {} in a second, \
         since a server takes 2,000; nbio's begin one after the other.\n",
        table.render(),
        super::fleet::RAMP_PER_SECOND
    )
}
