//! The turns of a schedule: when each connection is to send, and what became of its turns. It reads no clock.

use std::ops::Range;

/// When the turns are. All connections have as many in a second, evenly over time.
#[derive(Clone, Debug)]
pub struct Schedule {
    first: u64,
    per_second: u64,
    connections: u64,
    window: Range<u64>,
}

/// What became of the turns within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// All there were.
    pub offered: u64,
    /// A message left.
    pub sent: u64,
    /// Left out: too many messages of the connection were out.
    pub no_room: u64,
    /// Left out: the next turn came first, because the client had no time.
    pub late: u64,
    /// Left out: the connection took no message.
    pub refused: u64,
}

impl Turns {
    /// All that were left out.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.no_room + self.late + self.refused
    }

    /// Whether each turn is somewhere.
    ///
    /// # Errors
    ///
    /// One line that names the counts.
    pub fn check(&self) -> Result<(), String> {
        let Self { offered, sent, no_room, late, refused } = *self;
        if offered == sent + self.skipped() {
            return Ok(());
        }
        Err(format!(
            "BOOKS DO NOT CLOSE: offered {offered}, sent {sent}, skipped: no_room {no_room}, late {late}, refused {refused}"
        ))
    }
}

impl Schedule {
    /// Begins at `first`, on any clock in nanoseconds, with so many turns of each connection in a second.
    #[must_use]
    pub fn new(first: u64, per_second: u64, connections: usize, window: Range<u64>) -> Self {
        Self { first, per_second, connections: connections as u64, window }
    }

    /// When a turn is.
    #[must_use]
    pub fn due(&self, place: usize, turn: u64) -> u64 {
        self.begin_of(place) + turn * 1_000_000_000 / self.per_second
    }

    /// The newest turn that has come by now.
    #[must_use]
    pub fn newest(&self, place: usize, now: u64) -> Option<u64> {
        let since = now.checked_sub(self.begin_of(place))?;
        let near = since * self.per_second / 1_000_000_000;
        // The time of a turn is rounded down: the one after may have come.
        Some(if self.due(place, near + 1) <= now { near + 1 } else { near })
    }

    /// How many of the turns from `from` to before `to` are within the window.
    #[must_use]
    pub fn counted(&self, place: usize, from: u64, to: u64) -> u64 {
        let (first, end) = (self.first_at(place, self.window.start), self.first_at(place, self.window.end));
        to.min(end).saturating_sub(from.max(first))
    }

    /// All turns of all connections within the window.
    #[must_use]
    pub fn offered(&self) -> u64 {
        (0..self.connections)
            .map(|place| self.counted(usize::try_from(place).unwrap_or(usize::MAX), 0, u64::MAX))
            .sum()
    }

    fn begin_of(&self, place: usize) -> u64 {
        self.first + place as u64 * 1_000_000_000 / (self.per_second * self.connections)
    }

    /// The first turn at `time` or later.
    fn first_at(&self, place: usize, time: u64) -> u64 {
        time.checked_sub(1).and_then(|before| self.newest(place, before)).map_or(0, |turn| turn + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn every_turn_within_the_window_is_offered_once() {
        // Seven turns in a second do not divide it.
        let schedule = Schedule::new(100, 7, 3, 100 + SECOND..100 + 3 * SECOND);
        assert_eq!(schedule.offered(), 2 * 7 * 3);
        for place in 0..3 {
            let all = schedule.counted(place, 0, u64::MAX);
            let one_by_one: u64 = (0..40).map(|turn| schedule.counted(place, turn, turn + 1)).sum();
            assert_eq!(all, one_by_one);
        }
    }

    #[test]
    fn the_newest_turn_is_the_last_one_whose_time_has_come() {
        let schedule = Schedule::new(50, 7, 3, 0..u64::MAX);
        for place in 0..3 {
            for turn in 0..20 {
                let due = schedule.due(place, turn);
                assert_eq!(schedule.newest(place, due), Some(turn));
                assert_eq!(schedule.newest(place, due - 1), turn.checked_sub(1));
            }
        }
    }

    #[test]
    fn connections_take_their_turns_evenly_over_time() {
        let schedule = Schedule::new(0, 200, 10, 0..SECOND);
        let times: Vec<u64> = (0..10).map(|place| schedule.due(place, 0)).collect();
        assert_eq!(times, (0..10).map(|place| place * 500_000).collect::<Vec<_>>());
        assert_eq!(schedule.due(0, 1), 5_000_000);
    }

    #[test]
    fn turns_that_are_nowhere_open_the_books() {
        let turns = Turns { offered: 10, sent: 6, no_room: 1, late: 2, refused: 1 };
        assert!(turns.check().is_ok() && turns.skipped() == 4);
        let line = Turns { sent: 5, ..turns }.check().expect_err("one is missing");
        assert!(line.contains("sent 5"), "{line}");
    }
}
