//! The status line of a run, in the journal's format with what it left out, and whether all lines together make what the other
//! end counted.

use drumfire_benches::{Counts, count};

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
    before: Sample,
    /// Messages of what was printed: rate by time, and how far rounding may have put it off.
    messages: f64,
    messages_off: f64,
}

impl Status {
    /// Beginning behind this sample.
    pub(crate) fn after(sample: Sample) -> Self {
        Self { before: sample, ..Self::default() }
    }

    /// The line from the sample before to this one.
    pub(crate) fn line(&mut self, now: &Sample) -> String {
        let before = std::mem::replace(&mut self.before, now.clone());
        let seconds = now.seconds_since(&before);
        let bots = |name: &str| now.of_bots(name).saturating_sub(before.of_bots(name)) as f64 / seconds;
        let broadcasts = now.of_server("broadcasts").saturating_sub(before.of_server("broadcasts")) as f64
            / now.server_seconds_since(&before);
        let dropped = now.dropped().saturating_sub(before.dropped()) as f64 / seconds;
        // As printed, so that the sums are made of what a reader sees.
        let messages = bots("heard").round();
        self.messages += messages * seconds;
        self.messages_off += 0.6 * seconds;
        format!(
            "c[{:4}] s\u{3a3}[{:8.2}Mb] ss[{:5.2}Mb] ms[{messages:7.0}] bs[{broadcasts:7.2}] d\u{3a3}[{}] \
             ds[{dropped:.2}] | o\u{3a3}[{}] os[{:.2}] skip\u{3a3}[{}] q[{}] cpu[{:.0}% {:.0}%]",
            now.of_server("members"),
            now.of_bots("heard bytes") as f64 / MEGABYTE,
            bots("heard bytes") / MEGABYTE,
            now.dropped(),
            now.of_bots("offered"),
            bots("offered"),
            now.of_bots("skipped") + now.of_bots("refused"),
            now.of_server("waiting most").max(now.of_server("gathered most")),
            now.server_cores_since(&before) * 100.0,
            now.bots_cores_since(&before) * 100.0,
        )
    }

    /// Whether the clients' rates by time make what the server counted: all that left it where it `is_reliable`, else at most so
    /// much.
    ///
    /// # Errors
    ///
    /// One line that names both.
    pub(crate) fn check(&self, is_reliable: bool) -> Result<(), String> {
        let left = self.before.delivered() as f64;
        let more = self.messages - left;
        if more > self.messages_off || (is_reliable && -more > self.messages_off) {
            return Err(format!(
                "BOOKS DO NOT CLOSE: ms by time makes {:.0}, and the server counted {left:.0}",
                self.messages
            ));
        }
        Ok(())
    }
}
