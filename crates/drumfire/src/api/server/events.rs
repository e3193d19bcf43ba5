//! What a server's workers reported, as events.

use super::Server;
use crate::message::event::Event;
use crate::worker::channel::Report;

impl Server {
    pub(super) fn gather(&mut self) {
        self.home.add(self.front.gather().filter_map(|report| match report {
            Report::Connected { peer, address, player, .. } => {
                Some(Event::Connected { peer, address, player })
            }
            Report::Receipt { peer, receipt, outcome } => Some(Event::Receipt { peer, receipt, outcome }),
            Report::Skipped { peer, channel, count } => Some(Event::Skipped { peer, channel, count }),
            Report::Missed { peer, channel, count } => Some(Event::Missed { peer, channel, count }),
            Report::Writable { peer } => Some(Event::Writable { peer }),
            Report::Measured { peer, stats } => Some(Event::Stats { peer, stats }),
            Report::FlightRecord { peer, record } => Some(Event::FlightRecord { peer, record }),
            Report::Message { peer, channel, bytes } => Some(Event::Message { peer, channel, bytes }),
            Report::Disconnected { peer, reason, text } => Some(Event::Disconnected { peer, reason, text }),
            // A server begins no connection.
            Report::ConnectFailed { .. } => None,
        }));
    }
}
