//! How much is done of a load: how many rounds, how long each of them, and how long all of it takes. It measures nothing.

use std::time::Duration;

use drumfire_benches::Extent;
use drumfire_benches::traffic::{CONNECTING_MAX, Shape};

use crate::face::KEEP_ALIVE;
use crate::load::Load;
use crate::relay::HELD;

/// Rounds of load A, whose latencies are compared round by round.
const ROUNDS_OF_A: u32 = 7;

/// From the last connect to the window in which connections are idle: drumfire's clients say that they are there 2.5 s after they
/// spoke, and 5 s after that its server gives working memory back.
const QUIET: Duration = Duration::from_secs(8);

/// What the processes of a round take to start.
const START: Duration = Duration::from_millis(330);

/// How much is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Rounds that count.
    pub(crate) rounds: u32,
    /// Rounds before them.
    pub(crate) warm_ups: u32,
    /// The load runs for so long before it is counted.
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
    /// Connections of any load, at most.
    pub(crate) connections_max: usize,
    /// Whether disturbed rounds are repeated.
    pub(crate) may_void: bool,
}

impl Effort {
    /// That of a load. Idle connections take long to be idle, and are counted over one keep-alive of each: rounds of theirs are
    /// few, and none of them is for warming up.
    pub(crate) fn of(extent: Extent, load: Load) -> Self {
        let millis = Duration::from_millis;
        let effort = |rounds, warm_ups, warm_up, counted| Self {
            rounds,
            warm_ups,
            warm_up,
            counted,
            connections_max: usize::MAX,
            may_void: true,
        };
        let is_idle = load.shape == Shape::Idle;
        match extent {
            Extent::Quick => {
                Self { connections_max: 64, may_void: false, ..effort(1, 0, millis(50), millis(100)) }
            }
            Extent::Default | Extent::Full if is_idle => effort(3, 0, QUIET, KEEP_ALIVE),
            Extent::Default if load.name == "A" => effort(ROUNDS_OF_A, 1, millis(300), millis(1_000)),
            Extent::Default => effort(5, 1, millis(300), millis(1_000)),
            // Whose connections are made, and whose losses are waited for, for most of a round.
            Extent::Full if load.is_relayed => effort(5, 1, millis(300), millis(1_500)),
            Extent::Full => effort(7, 1, millis(300), millis(1_500)),
        }
    }

    /// What all rounds of a row take when none is void.
    pub(crate) fn time(&self, load: Load, connections: usize, may_lose: bool) -> Duration {
        let mut round = START + self.warm_up + self.counted;
        if load.is_relayed {
            // Each connection is made with two ways there and back.
            let batches = connections.div_ceil(CONNECTING_MAX);
            round += HELD * 4 * u32::try_from(batches).unwrap_or(u32::MAX);
            if may_lose {
                // Some are always lost, and waited for.
                round += load.settle(may_lose);
            }
        }
        round * (self.warm_ups + self.rounds)
    }

    /// For people.
    pub(crate) fn words(&self) -> String {
        let Self { rounds, warm_ups, warm_up, counted, .. } = self;
        let before = if *warm_ups > 0 { " after one that does not count" } else { "" };
        format!("medians; rounds: {rounds}{before}, each {counted:?} after {warm_up:?} of the same")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Load {
        Load::named(name).expect("a load")
    }

    #[test]
    fn idle_connections_are_counted_over_one_keep_alive_and_not_before_they_are_idle() {
        for extent in [Extent::Default, Extent::Full] {
            let effort = Effort::of(extent, named("E"));
            assert!(effort.warm_up > KEEP_ALIVE && effort.counted == KEEP_ALIVE && effort.rounds >= 3);
        }
        assert!(Effort::of(Extent::Quick, named("E")).counted < Duration::from_secs(1));
    }

    #[test]
    fn latencies_of_a_are_those_of_seven_rounds() {
        let rounds = |extent, name| Effort::of(extent, named(name)).rounds;
        assert_eq!((rounds(Extent::Default, "A"), rounds(Extent::Full, "A")), (7, 7));
        assert_eq!(rounds(Extent::Default, "B"), 5);
    }

    #[test]
    fn a_row_takes_its_rounds_and_behind_the_relay_its_connects_too() {
        let millis = |name, may_lose| {
            let load = named(name);
            Effort::of(Extent::Default, load).time(load, load.connections, may_lose).as_millis()
        };
        assert_eq!(millis("B", false), 6 * (330 + 300 + 1_000));
        assert_eq!(millis("E", true), 3 * (330 + 8_000 + 7_500));
        // 100 connections are two batches, of 100 ms each.
        assert_eq!(millis("A-lossy", false), 6 * (1_630 + 200));
        assert_eq!(millis("A-lossy", true), 6 * (1_630 + 200 + 1_000));
    }
}
