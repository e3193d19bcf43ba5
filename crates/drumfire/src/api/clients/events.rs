//! The events of many connections, and the next attempt after one ended. `reconnect` decides whether there is one.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_proto::{ConnectError, PeerId};

use super::{Clients, Target};
use crate::config::client::Reconnect;
use crate::credentials::connect_token::ConnectToken;
use crate::engine::reconnect::{Comeback, End, Verdict, verdict};
use crate::message::event::Event;

/// Connections whose resume token is looked at in one go.
const LOOKS: usize = 128;

impl Clients {
    /// Takes the events of the worker, and starts the next attempts of connections that come back.
    pub(super) fn gather(&mut self) {
        let mut gathered = self.inline.gather();
        let mut ending = self.take_ending(&mut gathered);
        for event in gathered.drain(..) {
            let event = self.take_in(event, &mut ending);
            self.inline.events.push_back(event);
        }
        self.inline.give_back(gathered);
    }

    pub(super) fn comeback(&mut self, peer: PeerId) -> Option<&mut Comeback> {
        self.targets.get_mut(peer)?.comeback.as_deref_mut()
    }

    /// Removes the targets of all connections that ended, in the order of their events. An attempt takes the id of any of them, so
    /// all of their events must be here.
    fn take_ending(&mut self, gathered: &mut VecDeque<Event>) -> VecDeque<(PeerId, Target)> {
        if self.reconnect != Reconnect::Never && gathered.iter().any(is_end) {
            self.inline.gather_held(gathered);
        }
        let targets = &mut self.targets;
        let target = |peer| targets.remove(peer).map(|target| (peer, target));
        gathered.iter().filter(|event| is_end(event)).map(Event::peer).filter_map(target).collect()
    }

    /// Updates the connections with an event, and returns what the application receives.
    fn take_in(&mut self, event: Event, ending: &mut VecDeque<(PeerId, Target)>) -> Event {
        let end = match event {
            Event::Connected { peer, .. } => {
                let worker = &mut self.inline.worker;
                if let Some(target) = self.targets.get_mut(peer)
                    && let Some(comeback) = &mut target.comeback
                {
                    comeback.on_connected(worker.time());
                }
                return event;
            }
            Event::ConnectFailed { peer, error } => (peer, End::Failed(error)),
            Event::Disconnected { peer, closed } => (peer, End::Ended(closed)),
            event => return event,
        };
        let (peer, end) = end;
        let target = ending.pop_front_if(|(name, _)| *name == peer);
        self.on_end(peer, target.map(|(_, target)| target), end)
    }

    fn on_end(&mut self, peer: PeerId, mut target: Option<Target>, end: End) -> Event {
        let comeback = target.as_mut().and_then(|target| target.comeback.as_deref_mut());
        let worker = &mut self.inline.worker;
        let mut verdict = verdict(comeback, || worker.time(), end);
        let mut next = peer;
        if let Verdict::Again { delay, .. } = verdict
            && let Some(target) = target
        {
            match self.begin_again(target, delay) {
                Ok(peer) => next = peer,
                Err(gave_up) => verdict = gave_up,
            }
        }
        verdict.event(peer, next)
    }

    /// Starts another attempt after `delay`. Returns what follows if it cannot.
    fn begin_again(&mut self, mut target: Target, delay: Duration) -> Result<PeerId, Verdict> {
        let Some(comeback) = &mut target.comeback else { return Err(Verdict::Failed(ConnectError::Closed)) };
        let next = match self.inline.begin(&comeback.whom(), delay) {
            Ok(next) => next,
            Err(error) => return Err(comeback.give_up(error)),
        };
        for (channel, options) in comeback.options() {
            self.inline.front.set_channel_options(next, channel, options);
        }
        target.server = comeback.server();
        self.targets.insert(next, target);
        Ok(next)
    }

    /// Keeps the newest resume tokens of connections that come back by themselves: when one has ended it is too late. Some
    /// at a time, so that it costs the same however many there are.
    pub(super) fn keep_resume_tokens(&mut self) {
        if self.reconnect == Reconnect::Never {
            return;
        }
        let protocol_id = self.protocol_id;
        let (worker, looked_at) = (&self.inline.worker, self.looked_at);
        self.looked_at = self.targets.walk(looked_at, LOOKS, |peer, target| {
            let Target { server: address, key: server, comeback: Some(comeback) } = target else { return };
            let Some((issued, expires_at)) = worker.resume_token(peer) else { return };
            if !comeback.has_resume(issued) {
                let (address, server, issued) = (*address, *server, issued.duplicate());
                comeback.keep_resume(ConnectToken { address, server, protocol_id, expires_at, issued });
            }
        });
    }
}

/// Whether a connection or an attempt ended.
const fn is_end(event: &Event) -> bool {
    matches!(event, Event::ConnectFailed { .. } | Event::Disconnected { .. })
}
