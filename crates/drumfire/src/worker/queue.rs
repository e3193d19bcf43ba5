//! The face for an application that asks: reports wait in the link until it takes them, in one slice per pass with one
//! wake-up.
//!
//! Where there is no room events stay in the endpoint, and peers are not acknowledged.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use drumfire_proto::{Event, Moment, PeerId, Placement};

use super::arena::Arena;
use super::channel::{Link, Report};
use super::core::{Abandoned, Core, Notice};
use super::credit::Credit;
use super::sink::Face;
use crate::message::event::Player;

/// Reports on their way into a link.
pub(crate) struct Queue {
    link: Arc<Link>,
    reports: VecDeque<Report>,
    arena: Arena,
    poll_watch: PollWatch,
}

/// The time after which an application that never polled is warned.
const POLL_EXPECTED_WITHIN: Duration = Duration::from_secs(1);

/// Whether the application has polled yet.
#[derive(Clone, Copy)]
enum PollWatch {
    /// No pass was made.
    New,
    /// No poll was seen since the first pass.
    Since(Moment),
    /// A poll was seen, or the warning was given: nothing is looked at any more.
    Over,
}

impl Queue {
    pub(crate) fn new(link: &Arc<Link>) -> Self {
        Self {
            link: Arc::clone(link),
            reports: VecDeque::new(),
            arena: Arena::default(),
            poll_watch: PollWatch::New,
        }
    }

    /// Warns once when the application never polls. It runs in passes, which a flush makes too.
    fn watch_polls<P: Placement>(&mut self, core: &mut Core<P>) {
        let now = core.now.monotonic;
        self.poll_watch = match self.poll_watch {
            PollWatch::Over => return,
            _ if self.link.is_polled() => PollWatch::Over,
            PollWatch::New => PollWatch::Since(now),
            PollWatch::Since(begun) if now.since(begun) < POLL_EXPECTED_WITHIN => return,
            PollWatch::Since(_) => {
                core.observer.never_polled();
                PollWatch::Over
            }
        };
    }

    /// The next report there is to make; `Some(None)` for an event that nobody has to hear of.
    fn next_report<P: Placement>(&mut self, core: &mut Core<P>) -> Option<Option<Report>> {
        if let Some(notice) = core.pop_notice() {
            return Some(Some(match notice {
                Notice::Measured { peer, stats } => Report::Measured { peer, stats },
                Notice::Recorded { peer, record } => Report::FlightRecord { peer, record },
                Notice::Missed { peer, channel, count } => Report::Missed { peer, channel, count },
                Notice::Writable { peer } => Report::Writable { peer },
            }));
        }
        Some(match core.endpoint.poll_event()? {
            Event::Connected { peer, address, player, user_data } => {
                let player = player.map(|id| Box::new(Player { id, user_data: user_data.into() }));
                let credit = core.connected(peer, address);
                Some(Report::Connected { peer, address, player, credit })
            }
            Event::ConnectFailed { peer, error } => {
                core.not_connected(peer, error);
                Some(Report::ConnectFailed { peer, error })
            }
            Event::Message { peer, channel, bytes } => {
                let bytes = self.arena.copy(bytes);
                Some(Report::Message { peer, channel, bytes })
            }
            Event::Receipt { peer, receipt, outcome } => Some(Report::Receipt { peer, receipt, outcome }),
            Event::Skipped { peer, channel, count } => Some(Report::Skipped { peer, channel, count }),
            Event::FlightRecord { peer, record } => {
                Some(Report::FlightRecord { peer, record: Box::new(record.clone()) })
            }
            Event::Disconnected { peer, reason, text } => {
                let text = Bytes::copy_from_slice(text);
                core.disconnected(peer, reason);
                Some(Report::Disconnected { peer, reason, text })
            }
            _ => None,
        })
    }
}

impl<P: Placement> Face<P> for Queue {
    fn answers_at_once(&self) -> bool {
        false
    }

    fn begin(&mut self, _: PeerId, _: &Arc<Credit>) {
        // Whoever began it knows.
    }

    fn hand_over(&mut self, core: &mut Core<P>) -> bool {
        self.watch_polls(core);
        let (mut count, mut bytes) = self.link.room();
        loop {
            if count == 0 || bytes == 0 {
                self.link.report(&mut self.reports);
                if !self.link.hold() {
                    core.stats.events_held += 1;
                    return false;
                }
                (count, bytes) = self.link.room();
            }
            match self.next_report(core) {
                Some(Some(report)) => {
                    bytes = bytes.saturating_sub(report.bytes());
                    count -= 1;
                    self.reports.push_back(report);
                }
                Some(None) => {}
                None => break,
            }
        }
        self.link.report(&mut self.reports);
        false
    }

    fn timer(&self) -> Option<Moment> {
        None
    }

    fn abandon(&mut self, core: &mut Core<P>) {
        self.reports.extend(core.abandon().map(|abandoned| match abandoned {
            Abandoned::Disconnected(peer, reason) => {
                Report::Disconnected { peer, reason, text: Bytes::new() }
            }
            Abandoned::NotConnected(peer, error) => Report::ConnectFailed { peer, error },
        }));
        // More than the bound for once: there is one for each peer, and never more.
        self.link.report(&mut self.reports);
    }
}
