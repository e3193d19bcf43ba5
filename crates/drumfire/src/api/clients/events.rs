//! What the worker of many connections reported, as events; and the next attempt of one that comes back by itself. Whether
//! it does is decided in `reconnect`.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_proto::{ConnectError, PeerId};

use super::{Clients, ClientsEvent, Target};
use crate::config::client::Reconnect;
use crate::credentials::connect_token::ConnectToken;
use crate::engine::reconnect::{Comeback, End, Verdict, verdict};
use crate::worker::channel::Report;

/// Connections whose resume token is looked at in one go.
const LOOKS: usize = 128;

impl Clients {
    pub(super) fn gather(&mut self) {
        self.keep_resume_tokens();
        let home = self.inline.home();
        let mut events = home.queue();
        let mut reports = self.inline.take_reports();
        let mut ending = self.take_ending(&mut reports);
        for report in reports.drain(..) {
            self.take_in(report, &mut ending, &mut events);
        }
        self.inline.give_back(reports);
    }

    pub(super) fn comeback(&mut self, peer: PeerId) -> Option<&mut Comeback> {
        self.targets.get_mut(peer)?.comeback.as_deref_mut()
    }

    /// Takes out the targets of all connections that ended, in the order of their reports. Whoever begins anew takes the place
    /// of any of them, so none may still have something to be said of it.
    fn take_ending(&mut self, reports: &mut VecDeque<Report>) -> VecDeque<(PeerId, Target)> {
        if self.reconnect != Reconnect::Never && reports.iter().any(|report| ended(report).is_some()) {
            self.inline.take_held_reports(reports);
        }
        let targets = &mut self.targets;
        let target = |peer| targets.remove(peer).map(|target| (peer, target));
        reports.iter().filter_map(ended).filter_map(target).collect()
    }

    fn take_in(
        &mut self,
        report: Report,
        ending: &mut VecDeque<(PeerId, Target)>,
        events: &mut VecDeque<ClientsEvent>,
    ) {
        let event = match report {
            Report::Connected { peer, .. } => {
                let worker = &mut self.inline.worker;
                if let Some(target) = self.targets.get_mut(peer)
                    && let Some(comeback) = &mut target.comeback
                {
                    comeback.on_connected(worker.time());
                }
                ClientsEvent::Connected { peer }
            }
            Report::Receipt { peer, receipt, outcome } => ClientsEvent::Receipt { peer, receipt, outcome },
            Report::Skipped { peer, channel, count } => ClientsEvent::Skipped { peer, channel, count },
            Report::Writable { peer } => ClientsEvent::Writable { peer },
            Report::FlightRecord { peer, record } => ClientsEvent::FlightRecord { peer, record },
            Report::Measured { peer, stats } => ClientsEvent::Stats { peer, stats },
            Report::Message { peer, channel, bytes } => ClientsEvent::Message { peer, channel, bytes },
            Report::ConnectFailed { peer, error } => {
                let target = ending.pop_front_if(|(name, _)| *name == peer);
                return self.on_end(peer, target, End::Attempt(error), events);
            }
            Report::Disconnected { peer, reason, text } => {
                let target = ending.pop_front_if(|(name, _)| *name == peer);
                return self.on_end(peer, target, End::Connection(reason, text), events);
            }
            // A client has no groups.
            Report::Missed { .. } => return,
        };
        events.push_back(event);
    }

    fn on_end(
        &mut self,
        peer: PeerId,
        mut target: Option<(PeerId, Target)>,
        end: End,
        events: &mut VecDeque<ClientsEvent>,
    ) {
        let comeback = target.as_mut().and_then(|(_, target)| target.comeback.as_deref_mut());
        let worker = &mut self.inline.worker;
        let mut verdict = verdict(comeback, || worker.time(), end);
        if let Verdict::Again { reason, ref mut text, attempt, wait } = verdict
            && let Some((_, target)) = target
        {
            let text = std::mem::take(text);
            match self.begin_again(target, wait) {
                Ok(next) => {
                    let event = ClientsEvent::Reconnecting { peer, next, reason, text, attempt, wait };
                    return events.push_back(event);
                }
                Err(gave_up) => verdict = gave_up,
            }
        }
        match verdict {
            Verdict::Over { failed, reason, text } => {
                events.extend(failed.map(|error| ClientsEvent::ReconnectFailed { peer, error }));
                events.push_back(ClientsEvent::Disconnected { peer, reason, text });
            }
            Verdict::Failed(error) => events.push_back(ClientsEvent::ConnectFailed { peer, error }),
            // Only a target has another attempt.
            Verdict::Again { .. } => {}
        }
    }

    /// Begins another attempt, which asks after `wait`; or says what follows when it cannot.
    fn begin_again(&mut self, mut target: Target, wait: Duration) -> Result<PeerId, Verdict> {
        let Some(comeback) = &mut target.comeback else { return Err(Verdict::Failed(ConnectError::Closed)) };
        let next = match self.inline.begin(&comeback.whom(), wait) {
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
    fn keep_resume_tokens(&mut self) {
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

/// Whose connection or attempt this reports to have ended.
fn ended(report: &Report) -> Option<PeerId> {
    match report {
        Report::ConnectFailed { peer, .. } | Report::Disconnected { peer, .. } => Some(*peer),
        _ => None,
    }
}
