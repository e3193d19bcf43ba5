//! The status line of a run, in the journal's format with what it left out, and whether all lines together make what the other
//! end counted.

use drumfire_benches::{ByTime, Counts, count};

use crate::tell::{AT, CPU};

/// Bytes in what the line calls Mb, as the journal did.
const MEGABYTE: f64 = 1e6;

/// What both ends had counted at one time, since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) server: Counts,
    pub(crate) bots: Counts,
}

impl Sample {
    pub(crate) fn of_bots(&self, name: &str) -> u64 {
        count(&self.bots, name)
    }

    pub(crate) fn of_server(&self, name: &str) -> u64 {
        count(&self.server, name)
    }

    /// Deliveries that never will be, as far as it is known by now: those that the server did not make, or those that ears miss
    /// between two of a speaker, whichever are more. What is lost last of all is in the books alone.
    pub(crate) fn dropped(&self) -> u64 {
        let unheard = self.of_server("not broadcast") * self.of_server("members");
        let by_server = self.of_server("missed") + self.of_server("given up") + unheard;
        by_server.max(self.of_bots("gaps").saturating_sub(self.of_bots("behind")))
    }

    /// Deliveries that left the server.
    fn delivered(&self) -> u64 {
        self.of_server("owed").saturating_sub(self.of_server("missed") + self.of_server("given up"))
    }

    /// Seconds of the clients' clock from an earlier sample to this one.
    pub(crate) fn seconds_since(&self, earlier: &Self) -> f64 {
        (self.of_bots(AT).saturating_sub(earlier.of_bots(AT)) as f64 / 1e9).max(1e-9)
    }

    /// The same of the server's.
    pub(crate) fn server_seconds_since(&self, earlier: &Self) -> f64 {
        (self.of_server(AT).saturating_sub(earlier.of_server(AT)) as f64 / 1e9).max(1e-9)
    }

    /// What the server's processor did from an earlier sample to this one, in cores.
    pub(crate) fn server_cores_since(&self, earlier: &Self) -> f64 {
        let used = self.of_server(CPU).saturating_sub(earlier.of_server(CPU)) as f64 / 1e9;
        used / self.server_seconds_since(earlier)
    }

    /// The same of the clients'.
    pub(crate) fn bots_cores_since(&self, earlier: &Self) -> f64 {
        let used = self.of_bots(CPU).saturating_sub(earlier.of_bots(CPU)) as f64 / 1e9;
        used / self.seconds_since(earlier)
    }
}

/// The lines of a run.
#[derive(Debug, Default)]
pub(crate) struct Status {
    first: Sample,
    before: Sample,
    messages: ByTime,
    bytes: ByTime,
    offered: ByTime,
    broadcasts: ByTime,
}

impl Status {
    /// Beginning behind this sample.
    pub(crate) fn after(sample: Sample) -> Self {
        Self { first: sample.clone(), before: sample, ..Self::default() }
    }

    /// The line from the sample before to this one.
    pub(crate) fn line(&mut self, now: &Sample) -> String {
        let before = std::mem::replace(&mut self.before, now.clone());
        let (seconds, server_seconds) = (now.seconds_since(&before), now.server_seconds_since(&before));
        let bots = |name: &str| now.of_bots(name).saturating_sub(before.of_bots(name)) as f64 / seconds;
        let broadcasts = now.of_server("broadcasts").saturating_sub(before.of_server("broadcasts")) as f64;
        let dropped = now.dropped().saturating_sub(before.dropped()) as f64 / seconds;
        let messages = self.messages.print(bots("heard"), 1.0, seconds);
        let bytes = self.bytes.print(bots("heard bytes"), 0.01 * MEGABYTE, seconds);
        let offered = self.offered.print(bots("offered"), 0.01, seconds);
        let broadcasts = self.broadcasts.print(broadcasts / server_seconds, 0.01, server_seconds);
        format!(
            "c[{:4}] s\u{3a3}[{:8.2}Mb] ss[{:5.2}Mb] ms[{messages:7.0}] bs[{broadcasts:7.2}] d\u{3a3}[{}] \
             ds[{dropped:.2}] | o\u{3a3}[{}] os[{offered:.2}] skip\u{3a3}[{}] q[{}] cpu[{:.0}% {:.0}%]",
            now.of_server("members"),
            now.of_bots("heard bytes") as f64 / MEGABYTE,
            bytes / MEGABYTE,
            now.dropped(),
            now.of_bots("offered"),
            now.of_bots("skipped") + now.of_bots("refused"),
            now.of_server("waiting most").max(now.of_server("gathered most")),
            now.server_cores_since(&before) * 100.0,
            now.bots_cores_since(&before) * 100.0,
        )
    }

    /// Whether the rates by time make what was counted: broadcasts at the server, what was offered and heard at the clients, and
    /// messages heard what left the server, all of it where it `is_reliable`, else at most so much.
    ///
    /// # Errors
    ///
    /// One line that names the column and both sums.
    pub(crate) fn check(&self, is_reliable: bool) -> Result<(), String> {
        let Self { first, before: last, .. } = self;
        let of_bots = |name: &str| last.of_bots(name).saturating_sub(first.of_bots(name)) as f64;
        let broadcasts = last.of_server("broadcasts").saturating_sub(first.of_server("broadcasts")) as f64;
        self.messages.check("ms", last.delivered() as f64, !is_reliable)?;
        self.bytes.check("ss", of_bots("heard bytes"), false)?;
        self.offered.check("os", of_bots("offered"), false)?;
        self.broadcasts.check("bs", broadcasts, false)
    }
}
