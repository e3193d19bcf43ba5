//! The events of a client, and its next attempt after a connection ended. `reconnect` decides whether there is one.

use std::time::Duration;

use drumfire_proto::{ConnectError, PeerId};

use super::{Client, ClientState};
use crate::credentials::connect_token::ConnectToken;
use crate::engine::reconnect::{NextStep, next_step};
use crate::message::event::{Event, ReconnectReason};

impl Client {
    /// Takes the events of the worker, and starts the next attempt of a client that reconnects.
    pub(crate) fn gather(&mut self) {
        let mut gathered = self.inline.gather();
        for event in gathered.drain(..) {
            let event = self.take_in(event);
            self.inline.events.push_back(event);
        }
        self.inline.give_back(gathered);
    }

    /// Updates the client with an event, and returns what the application receives.
    fn take_in(&mut self, event: Event) -> Event {
        match event {
            Event::Connected { .. } => {
                self.state = ClientState::Connected;
                if let Some(reconnect_state) = &mut self.reconnect_state {
                    reconnect_state.on_connected(self.inline.worker.time());
                }
                event
            }
            Event::ConnectFailed { peer, error } => self.on_end(peer, ReconnectReason::Failed(error)),
            Event::Disconnected { peer, closed } => self.on_end(peer, ReconnectReason::Ended(closed)),
            event => event,
        }
    }

    fn on_end(&mut self, peer: PeerId, end: ReconnectReason) -> Event {
        let worker = &mut self.inline.worker;
        let mut next_step = next_step(self.reconnect_state.as_deref_mut(), || worker.time(), end);
        if let NextStep::Again { delay, .. } = next_step
            && let Err(error) = self.begin_again(delay)
            && let Some(reconnect_state) = &mut self.reconnect_state
        {
            next_step = reconnect_state.give_up(error);
        }
        let is_again = matches!(next_step, NextStep::Again { .. });
        self.state = if is_again { ClientState::Reconnecting } else { ClientState::Closed };
        next_step.event(peer, self.peer)
    }

    /// Starts another attempt after `delay`.
    fn begin_again(&mut self, delay: Duration) -> Result<(), ConnectError> {
        let Some(reconnect_state) = &self.reconnect_state else { return Err(ConnectError::Closed) };
        let server = reconnect_state.server();
        // The device may have changed its network, which a connected socket does not follow.
        match self.inline.connect_socket(server) {
            Ok(()) => {}
            Err(_) if server == self.server => {}
            // The present socket is connected to another server.
            Err(_) => return Err(ConnectError::Timeout),
        }
        self.server = server;
        self.peer = self.inline.begin(&reconnect_state.options_of_attempt(), delay)?;
        for (channel, options) in reconnect_state.options() {
            self.inline.front.set_channel_options(self.peer, channel, options);
        }
        Ok(())
    }

    /// Keeps the newest resume token.
    pub(crate) fn keep_resume_token(&mut self) {
        let Some((issued, expires_at)) = self.inline.worker.resume_token(self.peer) else { return };
        if self.resume.as_ref().is_none_or(|kept| kept.issued() != issued) {
            let (server, protocol_id) = (self.key, self.protocol_id);
            let issued = issued.duplicate();
            let token = ConnectToken { address: self.server, server, protocol_id, expires_at, issued };
            if let Some(reconnect_state) = &mut self.reconnect_state {
                reconnect_state.keep_resume(token.clone());
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
    fn a_redirected_client_connects_from_another_socket() {
        let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (from, key) = (silent.local_addr().unwrap(), ServerKey::dev());
        let to = "127.0.0.1:0".parse().unwrap();
        let mut server = Server::bind(ServerConfig::new(to, ServerKey::dev(), Access::Open)).unwrap();
        let config = ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60)));
        let mut client = Client::connect((from, key.public()), &config).unwrap();
        // The attempt ends as by a refusal, which only a server that reads tokens can prove.
        assert!(client.inline.front.close(client.peer, 0, ""));
        client.inline.flush();
        assert_eq!(client.inline.gather().len(), 1);
        let (reason, address) = (RefuseReason::TryThere, Some(server.local_addr()));
        let refusal = Refusal { reason, version_min: 1, version_max: 1, retry_after: None, address };
        let event =
            client.on_end(client.peer, ReconnectReason::Failed(ConnectError::Refused(Box::new(refusal))));
        assert!(matches!(event, Event::Reconnecting { attempt: 1, .. }));
        for _ in 0..10_000 {
            client.poll(Duration::from_millis(1));
            server.poll(Duration::from_millis(1));
            server.events().for_each(drop);
            if client.events().any(|event| matches!(event, Event::Connected { .. })) {
                assert_eq!(client.server, server.local_addr());
                return;
            }
        }
        panic!("it never connected");
    }
}
