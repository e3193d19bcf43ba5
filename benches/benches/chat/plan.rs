//! What is measured: which server, how many clients, how much they say, and for how long. It passes to the processes of a run as
//! one argument.

use std::time::Duration;

use drumfire::SendOptions;
use drumfire_benches::{Counts, count};

/// A server and how messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// Ours, each message reliable and in order; it gathers for 50 ms before it broadcasts.
    Ordered,
    /// Ours, unreliable; it gathers for 50 ms before it broadcasts.
    Unreliable,
    /// Ours, reliable and in order; it broadcasts when it hears.
    AtOnce,
    /// The baseline by the journal's method, over TCP and not encrypted.
    Tcp,
}

impl Arm {
    pub(crate) const ALL: [Self; 4] = [Self::Ordered, Self::Unreliable, Self::AtOnce, Self::Tcp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ordered => "reliable-ordered, 50 ms",
            Self::Unreliable => "unreliable, 50 ms",
            Self::AtOnce => "reliable-ordered, at once",
            Self::Tcp => "TCP, a write per message",
        }
    }

    pub(crate) const fn is_reliable(self) -> bool {
        !matches!(self, Self::Unreliable)
    }

    /// How its messages are sent, both ways.
    pub(crate) const fn options(self) -> SendOptions {
        if self.is_reliable() { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
    }
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) arm: Arm,
    pub(crate) clients: u32,
    /// How much each client says, in percent of the journal's.
    pub(crate) speed: u32,
    pub(crate) seed: u64,
    /// From one status line to the next; the first interval with load warms up.
    pub(crate) interval: Duration,
    /// How long is measured; whole intervals.
    pub(crate) window: Duration,
    /// One more client, which says nothing, stops reading for as long as is measured.
    pub(crate) has_stalled: bool,
}

/// The mean time between two messages of a client, in nanoseconds, at 100 %.
const MEAN_NS: u64 = 750_000_000;

impl Plan {
    /// As one argument.
    pub(crate) fn to_arg(self) -> String {
        let arm = Arm::ALL.iter().position(|arm| *arm == self.arm).unwrap_or(0) as u64;
        let counts = Counts::from(
            [
                ("arm", arm),
                ("clients", self.clients.into()),
                ("speed", self.speed.into()),
                ("seed", self.seed),
                ("interval", ns(self.interval)),
                ("window", ns(self.window)),
                ("stalled", self.has_stalled.into()),
            ]
            .map(|(name, count)| (name.to_owned(), count)),
        );
        serde_json::json!(counts).to_string()
    }

    /// What [`Plan::to_arg`] wrote.
    pub(crate) fn from_arg(arg: &str) -> Option<Self> {
        let counts: Counts = serde_json::from_str(arg).ok()?;
        Some(Self {
            arm: *Arm::ALL.get(usize::try_from(count(&counts, "arm")).ok()?)?,
            clients: u32::try_from(count(&counts, "clients")).ok()?,
            speed: u32::try_from(count(&counts, "speed")).ok()?,
            seed: count(&counts, "seed"),
            interval: Duration::from_nanos(count(&counts, "interval")),
            window: Duration::from_nanos(count(&counts, "window")),
            has_stalled: count(&counts, "stalled") > 0,
        })
    }

    /// Broadcasts in a second that the schedule asks for.
    pub(crate) fn broadcasts_per_second(self) -> f64 {
        f64::from(self.clients) * 1e9 / MEAN_NS as f64 * f64::from(self.speed) / 100.0
    }

    /// Deliveries in a second that the schedule asks for: who speaks hears itself too, as in the journal.
    pub(crate) fn deliveries_per_second(self) -> f64 {
        self.broadcasts_per_second() * f64::from(self.clients)
    }

    /// All connections.
    pub(crate) const fn connections(self) -> u32 {
        self.clients + self.has_stalled as u32
    }
}

/// A time in nanoseconds.
pub(crate) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
