//! What a client's worker reported, as events; and the next attempt, when a connection ended and the client comes back by
//! itself. Whether it does is decided in `reconnect`.

use std::collections::VecDeque;
use std::time::Duration;

use drumfire_proto::ConnectError;

use super::{Client, ClientState};
use crate::credentials::connect_token::ConnectToken;
use crate::engine::reconnect::{End, Verdict, verdict};
use crate::message::event::ClientEvent;
use crate::worker::channel::Report;

impl Client {
    pub(crate) fn gather(&mut self) {
        self.keep_resume_token();
        let home = self.inline.home();
        let mut events = home.queue();
        let mut reports = self.inline.take_reports();
        for report in reports.drain(..) {
            self.take_in(report, &mut events);
        }
        self.inline.give_back(reports);
    }

    fn take_in(&mut self, report: Report, events: &mut VecDeque<ClientEvent>) {
        let event = match report {
            Report::Connected { .. } => {
                self.state = ClientState::Connected;
                if let Some(comeback) = &mut self.comeback {
                    comeback.on_connected(self.inline.worker.time());
                }
                ClientEvent::Connected
            }
            Report::Receipt { receipt, outcome, .. } => ClientEvent::Receipt { receipt, outcome },
            Report::Skipped { channel, count, .. } => ClientEvent::Skipped { channel, count },
            Report::Writable { .. } => ClientEvent::Writable,
            Report::FlightRecord { record, .. } => ClientEvent::FlightRecord { record },
            Report::Measured { stats, .. } => ClientEvent::Stats { stats },
            Report::Message { channel, bytes, .. } => ClientEvent::Message { channel, bytes },
            Report::ConnectFailed { error, .. } => return self.on_end(End::Attempt(error), events),
            Report::Disconnected { reason, text, .. } => {
                return self.on_end(End::Connection(reason, text), events);
            }
            // A client has no groups.
            Report::Missed { .. } => return,
        };
        events.push_back(event);
    }

    fn on_end(&mut self, end: End, events: &mut VecDeque<ClientEvent>) {
        let worker = &mut self.inline.worker;
        let mut verdict = verdict(self.comeback.as_deref_mut(), || worker.time(), end);
        if let Verdict::Again { wait, .. } = verdict
            && let Err(error) = self.begin_again(wait)
            && let Some(comeback) = &mut self.comeback
        {
            verdict = comeback.give_up(error);
        }
        self.state = ClientState::Closed;
        match verdict {
            Verdict::Again { reason, text, attempt, wait } => {
                self.state = ClientState::Reconnecting;
                events.push_back(ClientEvent::Reconnecting { reason, text, attempt, wait });
            }
            Verdict::Over { failed, reason, text } => {
                events.extend(failed.map(|error| ClientEvent::ReconnectFailed { error }));
                events.push_back(ClientEvent::Disconnected { reason, text });
            }
            Verdict::Failed(error) => events.push_back(ClientEvent::ConnectFailed { error }),
        }
    }

    /// Begins another attempt, which asks after `wait`.
    fn begin_again(&mut self, wait: Duration) -> Result<(), ConnectError> {
        let Some(comeback) = &self.comeback else { return Err(ConnectError::Closed) };
        let server = comeback.server();
        // The device may have changed its network, which a socket with a peer does not follow.
        match self.inline.connect_socket(server) {
            Ok(()) => {}
            Err(_) if server == self.server => {}
            // The socket there is leads elsewhere.
            Err(_) => return Err(ConnectError::Timeout),
        }
        self.server = server;
        self.peer = self.inline.begin(&comeback.whom(), wait)?;
        for (channel, options) in comeback.options() {
            self.inline.front.set_channel_options(self.peer, channel, options);
        }
        Ok(())
    }

    /// Keeps the newest resume token.
    fn keep_resume_token(&mut self) {
        let Some((issued, expires_at)) = self.inline.worker.resume_token(self.peer) else { return };
        if self.resume.as_ref().is_none_or(|kept| kept.issued() != issued) {
            let (server, protocol_id) = (self.key, self.protocol_id);
            let issued = issued.duplicate();
            let token = ConnectToken { address: self.server, server, protocol_id, expires_at, issued };
            if let Some(comeback) = &mut self.comeback {
                comeback.keep_resume(token.clone());
            }
            self.resume = Some(token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::server::Server;
    use crate::config::client::{ClientConfig, Reconnect};
    use crate::config::server::{Access, ServerConfig};
    use crate::credentials::keys::ServerKey;
    use drumfire_proto::{Refusal, RefuseReason};

    #[test]
    fn a_client_that_was_sent_elsewhere_goes_there_from_another_socket() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (from, key) = (silent.local_addr().unwrap(), ServerKey::dev());
        let to = "127.0.0.1:0".parse().unwrap();
        let mut server = Server::bind(ServerConfig::new(to, ServerKey::dev(), Access::Open)).unwrap();
        let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60)));
        let mut client = Client::connect(from, key.public(), &config).unwrap();
        // The attempt ends as by a refusal, which only a server that reads tokens can prove.
        client.inline.front.close(client.peer, 0, "").unwrap();
        client.inline.flush();
        assert_eq!(client.inline.take_reports().len(), 1);
        let (reason, address) = (RefuseReason::TryThere, Some(server.local_addr()));
        let refusal = Refusal { reason, version_min: 1, version_max: 1, retry_after: None, address };
        let mut events = VecDeque::new();
        client.on_end(End::Attempt(ConnectError::Refused(refusal)), &mut events);
        assert!(matches!(events.pop_front(), Some(ClientEvent::Reconnecting { attempt: 1, .. })));
        for _ in 0..10_000 {
            client.wait(Duration::from_millis(1));
            server.wait(Duration::from_millis(1));
            server.poll().for_each(drop);
            if client.poll().any(|event| event == ClientEvent::Connected) {
                assert_eq!(client.server, server.local_addr());
                return;
            }
        }
        panic!("it never came");
    }
}
