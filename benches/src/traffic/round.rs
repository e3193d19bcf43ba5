//! One round of traffic: a window with its counts, the usage of both ends, and the report that they make.

use std::time::Duration;

use drumfire_tools::clock;
use drumfire_tools::report::{Accounting, IN_LOST_DATAGRAMS, Report};

use super::{Client, Generator, Polling, Shape, Traffic};
use crate::host::{DropWatch, UsageWatch, WindowUsage, report_of};
use crate::process::Child;
use crate::recorder::{EchoCounts, Window};
use crate::rounds::{Outcome, Values};

/// The name of messages that returned after the window.
const OUTSTANDING: &str = "outstanding";

/// The share of the server's core that a closed loop must use. Below it the client was the limit.
const SATURATED: f64 = 0.9;

/// The share of the client's polls that must find nothing. Below it the client itself is the limit: a server that waits for the
/// client still looks busy, with a few datagrams per wake-up.
const IDLE_MIN: f64 = 0.05;

/// The client limits a schedule with turns when more than one message in this many is overdue.
const OVERDUE_IN: u64 = 100;

/// A client that shares its core limits a schedule when it sends less of it than this.
const SENT_MIN: f64 = 0.99;

/// One window of traffic: its counts, and the usage of both ends.
#[derive(Clone, Debug)]
pub struct EchoRound {
    /// The traffic.
    pub traffic: Traffic,
    /// The window.
    pub window: Window,
    /// The counts of the client.
    pub counts: EchoCounts,
    /// The usage of the server's process and of the client's.
    pub usage: WindowUsage,
}

impl EchoRound {
    /// Makes the report of the server. `lost` names the places at which messages were lost. Server and client are judged by their
    /// waiting for a core where they have one busy thread. Fails when a message returned that was not outstanding.
    pub fn report(&self, has_one_thread: [bool; 2], lost: &[(&str, u64)]) -> Result<Report, String> {
        let Self { counts, window, .. } = self;
        if counts.unexpected > 0 {
            return Err(format!("{} messages returned that were not outstanding", counts.unexpected));
        }
        let books = Accounting::new(counts.outstanding_at_start + counts.sent, counts.echoed);
        let books = books.dropped(OUTSTANDING, counts.late);
        let books = lost.iter().fold(books, |books, (name, count)| books.dropped(name, *count));
        let cpu = self.usage.server.cpu_over(window.length());
        let mut report = report_of(cpu, window.length(), books, counts.latency);
        report.limited_by = self.is_client_limit().then(|| "client".to_owned());
        self.usage.note_in(&mut report, has_one_thread);
        Ok(report)
    }

    /// The shares of a core of both ends in percent, and the lost messages and those without room at the client.
    pub fn values(&self) -> Values {
        let WindowUsage { server, load, .. } = &self.usage;
        Values::from([
            ("core %", server.core_share() * 100.0),
            ("client %", load.core_share() * 100.0),
            ("lost", self.counts.lost as f64),
            ("refused", self.counts.refused as f64),
        ])
    }

    fn idle_share(&self) -> f64 {
        self.counts.idle_polls as f64 / self.counts.polls.max(1) as f64
    }

    /// Whether the client was the limit.
    fn is_client_limit(&self) -> bool {
        let Self { traffic, counts, .. } = self;
        let is_full = self.usage.server.core_share() >= SATURATED;
        match (traffic.shape, traffic.polling) {
            (Shape::Open { .. }, Polling::RoundRobin) => counts.overdue * OVERDUE_IN > counts.offered(),
            // It sends late, and still sends the whole schedule.
            (Shape::Open { .. }, Polling::Paused) => {
                let rate = traffic.shape.rate(traffic.connections).unwrap_or(0);
                let offered = rate as f64 * self.window.length().as_secs_f64();
                ((counts.sent + counts.refused) as f64) < offered * SENT_MIN
            }
            (Shape::Open { .. }, _) => counts.delay.is_some_and(|delay| delay.p90 > traffic.late_ns),
            // Its path has delays and losses, which limit a closed loop, or it has no messages.
            (Shape::Closed { .. }, Polling::Paused) => false,
            (Shape::Closed { .. }, Polling::Batch) => !is_full || self.idle_share() < IDLE_MIN,
            (Shape::Closed { .. }, Polling::RoundRobin) => !is_full,
        }
    }
}

impl<C: Client> Generator<C> {
    /// Runs a warm-up, and one window of traffic. Samples the process of the server and this one. `poll` is called between two polls with
    /// the window, after the warm-up, and the time. [`Self::settle`] awaits the outstanding messages and returns the final counts.
    pub fn round(
        &mut self,
        server: &Child,
        (warm_up, counted): (Duration, Duration),
        mut poll: impl FnMut(Option<Window>, u64) -> Result<(), String>,
    ) -> Result<EchoRound, String> {
        self.run(Window::beginning_at(clock::host_ns(), warm_up), |now| poll(None, now))?;
        let watch = UsageWatch::begin(server.id(), std::process::id());
        let window = Window::beginning_at(clock::host_ns(), counted);
        self.run(window, |now| poll(Some(window), now))?;
        let usage = watch.used()?;
        Ok(EchoRound { traffic: self.traffic, window, counts: self.recorder.finish(), usage })
    }

    /// Runs one window of traffic, waits for the outstanding messages, and makes the report of the server.
    ///
    /// Each drop of the kernel explains the loss of `per_drop` messages at most. Drops are those of all sockets of the host.
    pub fn measure(
        &mut self,
        server: &Child,
        times: (Duration, Duration),
        per_drop: u64,
        mut poll: impl FnMut(u64) -> Result<(), String>,
    ) -> Result<Outcome, String> {
        let dropped = DropWatch::begin();
        let mut round = self.round(server, times, |_, now| poll(now))?;
        round.counts = self.settle()?;
        self.give_up();
        let in_drops = round.counts.lost.min(dropped.count().saturating_mul(per_drop));
        let report = round.report([true; 2], &[(IN_LOST_DATAGRAMS, in_drops)])?;
        Ok((report, round.values()))
    }
}

#[cfg(test)]
mod tests {
    use drumfire_tools::host::ThreadSample;

    use super::*;
    use crate::host::Usage;
    use crate::recorder::Recorder;

    fn round(counts: EchoCounts, traffic: Traffic, core_share: f64) -> EchoRound {
        let window = Window::beginning_at(1_000, Duration::from_nanos(1_000));
        let run = Duration::from_secs_f64(core_share).as_nanos();
        let cpu = ThreadSample { run_ns: u64::try_from(run).expect("a second"), ..ThreadSample::default() };
        let server = Usage { window: Duration::from_secs(1), cpu };
        let usage = WindowUsage { server, load: server, steal_share: None };
        EchoRound { traffic, window, counts, usage }
    }

    /// Two messages are out when the window begins, three leave and return in it, one is late, and one never returns.
    fn counts() -> EchoCounts {
        EchoCounts { outstanding_at_start: 2, sent: 3, echoed: 3, late: 1, lost: 1, ..EchoCounts::default() }
    }

    #[test]
    fn the_books_of_a_report_close_only_with_every_loss_named() {
        let round = round(counts(), Traffic::echo(Shape::Open { rate: 5 }, 1, 64), 1.0);
        let report = |lost| round.report([true; 2], &[("lost", lost)]).expect("no unexpected messages");
        assert!(report(1).check().is_ok());
        assert!(report(0).check().is_err() && report(2).check().is_err());
        assert_eq!(report(1).pps, 3e6);
    }

    #[test]
    fn a_closed_loop_is_limited_by_a_client_that_is_never_idle() {
        let is_limited = |shape, idle_polls, core_share| {
            let counts = EchoCounts { polls: 100, idle_polls, ..EchoCounts::default() };
            round(counts, Traffic::echo(shape, 1, 64), core_share).is_client_limit()
        };
        let closed = Shape::Closed { outstanding: 1 };
        assert!(!is_limited(closed, 5, 0.9) && is_limited(closed, 5, 0.89) && is_limited(closed, 4, 1.0));
    }

    #[test]
    fn a_schedule_is_limited_by_a_client_that_sends_late() {
        let traffic = Traffic::echo(Shape::Open { rate: 60 }, 1, 64);
        let of = |delay_ns| {
            let mut recorder = Recorder::default();
            recorder.on_departure(delay_ns);
            round(recorder.finish(), traffic, 0.0)
        };
        assert!(!of(traffic.late_ns / 2).is_client_limit() && of(2 * traffic.late_ns).is_client_limit());
    }
}
