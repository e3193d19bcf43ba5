//! What the machine says of a server's process and of a client's over one window, and whether the client was the limit.
//!
//! What came back is the client's to tell: [`crate::Told`].

use std::time::Duration;

use drumfire_tools::clock;
use drumfire_tools::report::Latency;

use crate::drive::Shape;
use crate::echoes::{Told, Window};
use crate::system::{StealWatch, Used, Watch, memory};

/// A load as fast as it can be that leaves the server's core this idle is the client's figure, not the server's.
pub const SATURATED: f64 = 0.9;

/// A client that finds something in nearly every look is itself the limit: a server that waits for it still looks busy, with a
/// few datagrams at a time.
const IDLE_LEAST: f64 = 0.05;

/// A schedule whose sends are later than this, for one in ten, is the client's figure.
const LATE_NS: u64 = 20_000;

/// What the machine said of the window.
#[derive(Clone, Copy, Debug)]
pub struct Watched {
    /// Of the server's process.
    pub server: Option<Used>,
    /// Of the client's process.
    pub client: Option<Used>,
    /// Share of the machine's time that went to other guests of its host, 0 to 1.
    pub steal_share: Option<f64>,
    /// The server's resident memory at the end.
    pub rss_kib: u64,
}

impl Watched {
    /// Waits for the window and looks at both processes at its ends.
    #[must_use]
    pub fn over(window: Window, server: u32, client: u32) -> Self {
        rest_until(window.start);
        let (at_server, at_client, steal) = (Watch::begin(server), Watch::begin(client), StealWatch::begin());
        rest_until(window.end);
        Self {
            server: at_server.used(),
            client: at_client.used(),
            steal_share: steal.share(),
            rss_kib: resident_kib(server),
        }
    }
}

/// Resident memory of this process now; 0 where the system does not tell.
#[must_use]
pub fn resident_kib(process: u32) -> u64 {
    memory(process).map_or(0, |memory| memory.resident_bytes / 1_024)
}

fn rest_until(at: u64) {
    clock::pause(Duration::from_nanos(at.saturating_sub(clock::host_ns())));
}

impl Told {
    /// Share of the client's looks that found nothing.
    #[must_use]
    pub fn idle_share(&self) -> f64 {
        self.idle_looks as f64 / self.looks.max(1) as f64
    }

    /// Whether the client was the limit of a load of this shape, in which the server used so much of its core.
    #[must_use]
    pub fn is_client_limit(&self, shape: Shape, core_share: f64) -> bool {
        match shape {
            Shape::Closed { .. } => core_share < SATURATED || self.idle_share() < IDLE_LEAST,
            Shape::Open { .. } => self.delay.is_some_and(|delay| delay.p90 > LATE_NS),
            Shape::Idle => false,
        }
    }

    /// How late the messages of a schedule left, for people.
    #[must_use]
    pub fn delay_note(&self) -> Option<String> {
        let Latency { p50, p99, .. } = self.delay?;
        Some(format!(
            "sends left {} us after their time at half of them, {} us at 99 %",
            p50 / 1_000,
            p99 / 1_000
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::echoes::Tally;

    #[test]
    fn a_closed_loop_is_the_clients_figure_when_the_server_rests_or_the_client_never_does() {
        let closed = Shape::Closed { outstanding: 1 };
        let told = |idle_looks| Told { looks: 100, idle_looks, ..Told::default() };
        assert!(!told(5).is_client_limit(closed, 0.9));
        assert!(told(5).is_client_limit(closed, 0.89));
        assert!(told(4).is_client_limit(closed, 1.0));
        assert!(!told(0).is_client_limit(Shape::Idle, 0.0));
    }

    #[test]
    fn a_schedule_is_the_clients_figure_when_its_sends_are_late() {
        let told = |delay_ns| {
            let mut tally = Tally::default();
            tally.on_departure(0, delay_ns);
            tally.told()
        };
        let open = Shape::Open { rate: 60 };
        assert!(
            !told(LATE_NS / 2).is_client_limit(open, 0.0) && told(2 * LATE_NS).is_client_limit(open, 1.0)
        );
        assert_eq!(Told::default().delay_note(), None);
        assert!(told(7_000).delay_note().is_some_and(|note| note.contains("7 us at 99 %")));
    }
}
