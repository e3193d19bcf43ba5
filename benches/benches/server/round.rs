//! One round of echoes against a server process: the connections, one window, the usage of both ends, and the report.

use std::time::Duration;

use drumfire_benches::traffic::{Generator, Shape, Traffic};
use drumfire_benches::{
    Child, Counts, Crowd, DropWatch, EchoCounts, SATURATED, StealWatch, Usage, UsageWatch, Window, count,
    counts_text, usage_of,
};
use drumfire_tools::clock;
use drumfire_tools::report::{Flags, IN_LOST_DATAGRAMS, Report};

use crate::Target;

/// The name of messages for which an end had no room.
const NO_ROOM: &str = "no_room";

pub(crate) const MESSAGE_BYTES: usize = 128;

/// The load limits a schedule when more than one message in ten leaves later than this.
const LATE_NS: u64 = 50_000;

/// Messages that are lost with one drop of the kernel, at most: a train of 64 datagrams that are full of messages.
const PER_DROP: u64 = 64 * 1_472 / MESSAGE_BYTES as u64;

/// Connections per socket, at most.
const PER_SOCKET: u32 = 64;

/// Connections begun per second.
const RAMP_PER_SECOND: u64 = 1_500;

/// The load runs this long before it is counted.
const WARM_UP: Duration = Duration::from_millis(250);

/// The traffic of the clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: u32,
    /// Messages per connection and second. With `None` each message is sent when the one before is back.
    pub(crate) rate: Option<u64>,
}

impl Load {
    pub(crate) fn words(self) -> String {
        let load = self.total_rate().map_or_else(
            || "one message each, closed loop".to_owned(),
            |rate| format!("{rate}/s in all, open loop"),
        );
        format!("{} connections, {load}, {MESSAGE_BYTES} B unreliable", self.connections)
    }

    fn total_rate(self) -> Option<u64> {
        Some(self.rate? * u64::from(self.connections))
    }

    fn traffic(self) -> Traffic {
        let shape = self.rate.map_or(Shape::Closed { outstanding: 1 }, |rate| Shape::Open { rate });
        Traffic::echo(shape, self.connections as usize, MESSAGE_BYTES)
    }
}

/// A round that ran. The connections are still open.
#[derive(Debug)]
pub(crate) struct Round {
    load: Load,
    pub(crate) crowd: Crowd,
    pub(crate) counts: EchoCounts,
    pub(crate) window: Window,
    /// The usage of the server's process in the window.
    pub(crate) server: Usage,
    /// The usage of this process in the window.
    pub(crate) here: Usage,
    steal_share: Option<f64>,
    dropped: DropWatch,
}

impl Round {
    /// Connects to a server and runs the load. `poll` is called between two polls with the window and the time.
    pub(crate) fn run(
        load: Load,
        counted: Duration,
        (server, to): (&Child, Target),
        mut poll: impl FnMut(Window, u64) -> Result<(), String>,
    ) -> Result<Self, String> {
        let dropped = DropWatch::begin();
        let mut crowd = Crowd::bind(load.connections.div_ceil(PER_SOCKET), load.connections)?;
        crowd.connect(to, load.connections.into(), RAMP_PER_SECOND, |_, _| {})?.check()?;
        let mut generator = Generator::over(load.traffic(), vec![crowd]);
        let warm_up = Window::beginning_at(clock::host_ns(), WARM_UP);
        let window = Window::beginning_at(warm_up.end, counted);
        let steal = StealWatch::begin();
        let mut watches = None;
        generator.run(window, |now| {
            if now >= window.start && watches.is_none() {
                watches = Some([server.id(), std::process::id()].map(UsageWatch::begin));
            }
            poll(window, now)
        })?;
        let [server, here] = usage_of(watches.ok_or("the window never began")?)?;
        let steal_share = steal.share();
        let counts = generator.settle()?.finish();
        let crowd = generator.into_clients().pop().ok_or("no crowd")?;
        Ok(Self { load, crowd, counts, window, server, here, steal_share, dropped })
    }

    /// Datagrams that the kernel dropped at full receive buffers since the round began.
    pub(crate) fn drops(&self) -> u64 {
        self.dropped.count()
    }

    /// Fails for faults that no named drop excuses.
    pub(crate) fn check(&self, served: &Counts) -> Result<(), String> {
        for (count, what) in [
            (self.counts.strangers, "messages came back that were not outstanding"),
            (count(served, "unexplained"), "datagrams are in no counter of the server"),
            (count(served, "panics"), "panics at the server"),
        ] {
            if count > 0 {
                return Err(format!("{count} {what}"));
            }
        }
        Ok(())
    }

    /// Makes the report of the server. `drops` is the number of datagrams that the kernel dropped.
    ///
    /// A round is void when this process waited for a core, or when a server with one busy thread did. Several threads of a server on
    /// one core wait for each other, which is no disturbance.
    pub(crate) fn report(&self, served: &Counts, drops: u64, has_one_thread: bool) -> Report {
        let counts = &self.counts;
        let no_room = (count(served, "refused") + count(served, "undelivered")).min(counts.lost);
        let by_kernel = (counts.lost - no_room).min(drops * PER_DROP);
        let mut flags = Flags::from([
            ("connections".to_owned(), u64::from(self.load.connections).into()),
            ("size".to_owned(), (MESSAGE_BYTES as u64).into()),
        ]);
        let rate = self.load.total_rate();
        flags.extend(rate.map(|rate| ("rate".to_owned(), rate.into())));
        let cpu = self.server.cpu_over(self.window.length());
        let lost = [(NO_ROOM, no_room), (IN_LOST_DATAGRAMS, by_kernel)];
        let mut report = counts.report(self.window, rate, flags, Some(cpu), &lost);
        let is_load_limit = match rate {
            None => self.server.core_share() < SATURATED,
            Some(_) => counts.delay.is_some_and(|delay| delay.p90 > LATE_NS),
        };
        report.limited_by = is_load_limit.then(|| "client".to_owned());
        if counts.refused > 0 {
            report.notes.push(format!("{} messages found no room at the clients", counts.refused));
        }
        report.notes.push(format!("the server from its first datagram to its last: {}", counts_text(served)));
        let judged = [self.server.run_delay_share().filter(|_| has_one_thread), self.here.run_delay_share()];
        report.run_delay_share = judged.into_iter().flatten().reduce(f64::max);
        report.steal_share = self.steal_share;
        report
    }
}
