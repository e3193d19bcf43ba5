//! [`super::Polling::Turns`]: one client is polled after the other, and at most one message leaves between two polls of a client.

use std::ops::Range;

use drumfire_tools::clock;

use super::{Client, Generator, LEAD_NS, Shape};
use crate::tally::Window;

/// A turn is left out when its connection has this number of outstanding messages.
pub const TURN_OUTSTANDING_MAX: usize = 4;

/// What became of the turns of a schedule within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// All turns.
    pub offered: u64,
    /// Turns in which a message left.
    pub sent: u64,
    /// Turns that were left out because the connection had too many outstanding messages.
    pub no_room: u64,
    /// Turns that were left out because the next one came first. The client had no time.
    pub late: u64,
    /// Turns whose message the connection refused.
    pub refused: u64,
}

impl Turns {
    /// Fails unless each turn has one place.
    ///
    /// # Errors
    ///
    /// One line with the counts.
    pub fn check(&self) -> Result<(), String> {
        let Self { offered, sent, no_room, late, refused } = *self;
        if offered == sent + no_room + late + refused {
            return Ok(());
        }
        Err(format!(
            "BOOKS DO NOT CLOSE: turns offered {offered}, sent {sent}, no_room {no_room}, late {late}, refused {refused}"
        ))
    }
}

/// The turns of all connections. Each has the same number per second, evenly over time.
struct Schedule {
    /// The time of the first turn of the first connection.
    first: u64,
    per_second: u64,
    connections: u64,
    /// The time in which turns count.
    window: Window,
    /// The next turn of each connection.
    next: Vec<u64>,
    counts: Turns,
}

impl Schedule {
    fn new(first: u64, per_second: u64, connections: usize, window: Window) -> Self {
        let (next, counts) = (vec![0; connections], Turns::default());
        Self { first, per_second, connections: connections as u64, window, next, counts }
    }

    fn due(&self, connection: usize, turn: u64) -> u64 {
        self.first_of(connection) + turn * 1_000_000_000 / self.per_second
    }

    fn first_of(&self, connection: usize) -> u64 {
        self.first + connection as u64 * 1_000_000_000 / (self.per_second * self.connections)
    }

    /// The newest turn of a connection that is due.
    fn newest(&self, connection: usize, now: u64) -> Option<u64> {
        let elapsed = now.checked_sub(self.first_of(connection))?;
        let near = elapsed * self.per_second / 1_000_000_000;
        // The time of a turn is rounded down, so the turn after may be due too.
        Some(if self.due(connection, near + 1) <= now { near + 1 } else { near })
    }

    /// The number of turns in this range that are within the window.
    fn counted(&self, connection: usize, turns: Range<u64>) -> u64 {
        let first_at = |time: u64| {
            let before = time.checked_sub(1).and_then(|before| self.newest(connection, before));
            before.map_or(0, |turn| turn + 1)
        };
        let (start, end) = (first_at(self.window.start), first_at(self.window.end));
        turns.end.min(end).saturating_sub(turns.start.max(start))
    }

    /// Counts the turns of a connection that are due and left out. Returns the newest turn where a message can leave.
    fn pass(&mut self, connection: usize, now: u64, has_room: bool) -> Option<u64> {
        let next = self.next[connection];
        let newest = self.newest(connection, now).filter(|newest| *newest >= next)?;
        if has_room {
            self.counts.late += self.counted(connection, next..newest);
            self.next[connection] = newest;
            Some(newest)
        } else {
            self.counts.no_room += self.counted(connection, next..newest + 1);
            self.next[connection] = newest + 1;
            None
        }
    }

    /// Counts a turn in which a message left or was refused.
    fn take(&mut self, connection: usize, turn: u64, is_sent: bool) {
        let counted = self.counted(connection, turn..turn + 1);
        *(if is_sent { &mut self.counts.sent } else { &mut self.counts.refused }) += counted;
        self.next[connection] = turn + 1;
    }

    /// Counts the turns that were never reached.
    fn finish(mut self) -> Turns {
        for connection in 0..self.next.len() {
            self.counts.late += self.counted(connection, self.next[connection]..u64::MAX);
            self.counts.offered += self.counted(connection, 0..u64::MAX);
        }
        self.counts
    }
}

impl<C: Client> Generator<C> {
    /// Runs a closed loop or a schedule until the window ends.
    pub(super) fn in_turns(
        &mut self,
        window: Window,
        poll: &mut dyn FnMut(u64) -> Result<(), String>,
    ) -> Result<(), String> {
        let (start, connections) = (clock::host_ns() + LEAD_NS, self.out.len());
        let (mut schedule, outstanding) = match self.traffic.shape {
            Shape::Open { rate } => {
                (Some(Schedule::new(start, rate, connections, window)), TURN_OUTSTANDING_MAX)
            }
            Shape::Closed { outstanding } => (None, outstanding),
            Shape::Idle => (None, 0),
        };
        // The connection of each client with which the search begins, so that no connection always comes first.
        let mut first_of = vec![0; self.clients.len()];
        for client in (0..self.clients.len()).cycle() {
            let now = clock::host_ns();
            if now >= window.end {
                break;
            }
            self.look(client, now)?;
            let first = client * self.traffic.per_client;
            let count = self.traffic.per_client.min(connections - first);
            let mut is_sent = false;
            for step in 0..count {
                let connection = first + (first_of[client] + step) % count;
                let has_room = self.out[connection].awaited(now, self.traffic.may_lose) < outstanding;
                if let Some(schedule) = &mut schedule {
                    let turn = schedule.pass(connection, now, has_room);
                    if let Some(turn) = turn.filter(|_| !is_sent) {
                        is_sent = true;
                        let is_taken = self.send(connection, now, schedule.due(connection, turn))?;
                        schedule.take(connection, turn, is_taken);
                    }
                } else if has_room {
                    self.send(connection, now, now)?;
                    first_of[client] += step;
                    break;
                }
            }
            first_of[client] = (first_of[client] + 1) % count;
            self.clients[client].flush(now)?;
            poll(now)?;
        }
        self.turns = schedule.map(Schedule::finish);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// Seven turns per second of three connections. A second is not a multiple of their interval.
    fn schedule(window: Window) -> Schedule {
        Schedule::new(100, 7, 3, window)
    }

    #[test]
    fn every_turn_within_the_window_is_offered_once() {
        let schedule = schedule(Window { start: 100 + SECOND, end: 100 + 3 * SECOND });
        for connection in 0..3 {
            let one_by_one: u64 = (0..40).map(|turn| schedule.counted(connection, turn..turn + 1)).sum();
            assert_eq!(schedule.counted(connection, 0..u64::MAX), one_by_one);
        }
        let turns = schedule.finish();
        assert_eq!((turns.offered, turns.late), (2 * 7 * 3, 2 * 7 * 3));
    }

    #[test]
    fn the_newest_turn_is_the_last_one_that_is_due() {
        let schedule = schedule(Window { start: 0, end: u64::MAX });
        for connection in 0..3 {
            for turn in 0..20 {
                let due = schedule.due(connection, turn);
                assert_eq!(schedule.newest(connection, due), Some(turn));
                assert_eq!(schedule.newest(connection, due - 1), turn.checked_sub(1));
            }
        }
    }

    #[test]
    fn each_turn_has_one_place() {
        let mut schedule = schedule(Window { start: 0, end: 100 + 2 * SECOND });
        // The first turn leaves, the next three are late or have no room, and the rest is never reached.
        let first = schedule.pass(0, schedule.due(0, 0), true).expect("the turn is due");
        schedule.take(0, first, true);
        assert_eq!(schedule.pass(0, schedule.due(0, 0), true), None, "the next turn is not due");
        let third = schedule.pass(0, schedule.due(0, 2), true).expect("the turn is due");
        schedule.take(0, third, false);
        assert_eq!(schedule.pass(0, schedule.due(0, 3), false), None);
        let turns = schedule.finish();
        assert_eq!((turns.sent, turns.refused, turns.no_room, turns.offered), (1, 1, 1, 2 * 7 * 3));
        assert!(turns.check().is_ok());
        let line = Turns { sent: 0, ..turns }.check().expect_err("one is missing");
        assert!(line.contains("sent 0"), "{line}");
    }
}
