//! [`super::Polling::Turns`]: one client is polled after the other, and at most one message leaves between two polls of a client.

use drumfire_tools::clock;

use super::{Client, Generator, LEAD_NS, Shape};
use crate::tally::Window;

/// A turn is left out when its connection has this number of outstanding messages.
const TURN_OUTSTANDING_MAX: usize = 4;

/// The outcomes of the turns of a schedule within a window.
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

/// The turns of all connections. Each has the same number per second, evenly over time.
struct TurnSchedule {
    /// The time of the first turn of the first connection.
    first: u64,
    per_second: u64,
    /// The time in which turns count.
    window: Window,
    /// The next turn of each connection.
    next: Vec<u64>,
    counts: Turns,
}

impl TurnSchedule {
    fn new(first: u64, per_second: u64, connections: usize, window: Window) -> Self {
        Self { first, per_second, window, next: vec![0; connections], counts: Turns::default() }
    }

    /// The time of the next turn of a connection, or of a later one.
    fn due(&self, connection: usize, later: u64) -> u64 {
        let offset = connection as u64 * 1_000_000_000 / (self.per_second * self.next.len() as u64);
        self.first + offset + (self.next[connection] + later) * 1_000_000_000 / self.per_second
    }

    /// Ends the next turn of a connection, and counts it in this place if it is within the window.
    fn end_turn(&mut self, connection: usize, place: fn(&mut Turns) -> &mut u64) {
        if self.window.has(self.due(connection, 0)) {
            self.counts.offered += 1;
            *place(&mut self.counts) += 1;
        }
        self.next[connection] += 1;
    }

    /// Leaves out the turns of a connection that are due, except for the newest one if a message can leave in it. Returns whether there
    /// is one.
    fn pass(&mut self, connection: usize, now: u64, has_room: bool) -> bool {
        while self.due(connection, 0) <= now {
            if !has_room {
                self.end_turn(connection, |counts| &mut counts.no_room);
            } else if self.due(connection, 1) <= now {
                self.end_turn(connection, |counts| &mut counts.late);
            } else {
                return true;
            }
        }
        false
    }

    /// Counts the turns that were never reached.
    fn finish(mut self) -> Turns {
        for connection in 0..self.next.len() {
            while self.due(connection, 0) < self.window.end {
                self.end_turn(connection, |counts| &mut counts.late);
            }
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
                (Some(TurnSchedule::new(start, rate, connections, window)), TURN_OUTSTANDING_MAX)
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
            self.poll_client(client, now)?;
            let first = client * self.traffic.per_client;
            let count = self.traffic.per_client.min(connections - first);
            let mut is_sent = false;
            for step in 0..count {
                let connection = first + (first_of[client] + step) % count;
                let has_room = self.out[connection].awaited(now, self.traffic.may_lose) < outstanding;
                if let Some(schedule) = &mut schedule {
                    if schedule.pass(connection, now, has_room) && !is_sent {
                        is_sent = true;
                        let is_taken = self.send(connection, now, schedule.due(connection, 0))?;
                        let place: fn(&mut Turns) -> &mut u64 =
                            if is_taken { |counts| &mut counts.sent } else { |counts| &mut counts.refused };
                        schedule.end_turn(connection, place);
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
        self.turns = schedule.map(TurnSchedule::finish);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn each_turn_within_the_window_has_one_place() {
        // Seven turns per second of three connections. A second is not a multiple of their interval.
        let window = Window { start: 100 + SECOND, end: 100 + 3 * SECOND };
        let turns = TurnSchedule::new(100, 7, 3, window).finish();
        assert_eq!((turns.offered, turns.late), (2 * 7 * 3, 2 * 7 * 3));

        let mut schedule = TurnSchedule::new(100, 7, 3, Window { start: 0, end: 100 + 2 * SECOND });
        let (second, third) = (schedule.due(0, 1), schedule.due(0, 2));
        assert!(schedule.pass(0, 100, true) && !schedule.pass(0, 99, true), "the first turn is due");
        schedule.end_turn(0, |counts| &mut counts.sent);
        assert!(!schedule.pass(0, second - 1, true), "the second turn is not due");
        // The second turn is late, the third one is refused, and the fourth has no room. The rest is never reached.
        assert!(schedule.pass(0, third, true));
        schedule.end_turn(0, |counts| &mut counts.refused);
        assert!(!schedule.pass(0, schedule.due(0, 0), false));
        let turns = schedule.finish();
        assert_eq!((turns.sent, turns.refused, turns.no_room, turns.offered), (1, 1, 1, 2 * 7 * 3));
        assert_eq!(turns.late, turns.offered - 3);
    }
}
