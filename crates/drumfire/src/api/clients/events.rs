//! The events of many connections, and the next attempt after one ended. `reconnect` decides whether there is one.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_proto::{ConnectError, PeerId};

use super::{Clients, Target};
use crate::config::client::Reconnect;
use crate::credentials::connect_token::ConnectToken;
use crate::engine::reconnect::{NextStep, ReconnectState, next_step};
use crate::message::event::{Event, ReconnectReason};

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

    pub(super) fn reconnect_state(&mut self, peer: PeerId) -> Option<&mut ReconnectState> {
        self.targets.get_mut(peer)?.reconnect_state.as_deref_mut()
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
                    && let Some(reconnect_state) = &mut target.reconnect_state
                {
                    reconnect_state.on_connected(worker.time());
                }
                return event;
            }
            Event::ConnectFailed { peer, error } => (peer, ReconnectReason::Failed(error)),
            Event::Disconnected { peer, closed } => (peer, ReconnectReason::Ended(closed)),
            event => return event,
        };
        let (peer, end) = end;
        let target = ending.pop_front_if(|(name, _)| *name == peer);
        self.on_end(peer, target.map(|(_, target)| target), end)
    }

    fn on_end(&mut self, peer: PeerId, mut target: Option<Target>, end: ReconnectReason) -> Event {
        let reconnect_state = target.as_mut().and_then(|target| target.reconnect_state.as_deref_mut());
        let worker = &mut self.inline.worker;
        let mut next_step = next_step(reconnect_state, || worker.time(), end);
        let mut next = peer;
        if let NextStep::Again { delay, .. } = next_step
            && let Some(target) = target
        {
            match self.begin_again(target, delay) {
                Ok(peer) => next = peer,
                Err(gave_up) => next_step = gave_up,
            }
        }
        next_step.event(peer, next)
    }

    /// Starts another attempt after `delay`. Returns what follows if it cannot.
    fn begin_again(&mut self, mut target: Target, delay: Duration) -> Result<PeerId, NextStep> {
        let Some(reconnect_state) = &mut target.reconnect_state else {
            return Err(NextStep::Failed(ConnectError::Closed));
        };
        let next = match self.inline.begin(&reconnect_state.options_of_attempt(), delay) {
            Ok(next) => next,
            Err(error) => return Err(reconnect_state.give_up(error)),
        };
        for (channel, options) in reconnect_state.options() {
            self.inline.front.set_channel_options(next, channel, options);
        }
        target.server = reconnect_state.server();
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
            let Target { server: address, key: server, reconnect_state: Some(reconnect_state) } = target
            else {
                return;
            };
            let Some((issued, expires_at)) = worker.resume_token(peer) else { return };
            if !reconnect_state.has_resume(issued) {
                let (address, server, issued) = (*address, *server, issued.duplicate());
                reconnect_state.keep_resume(ConnectToken {
                    address,
                    server,
                    protocol_id,
                    expires_at,
                    issued,
                });
            }
        });
    }
}

/// Whether a connection or an attempt ended.
const fn is_end(event: &Event) -> bool {
    matches!(event, Event::ConnectFailed { .. } | Event::Disconnected { .. })
}
