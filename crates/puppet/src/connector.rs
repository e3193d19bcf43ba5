//! A whole handshake of a client that keeps no connection: the tools and benches that use it need the keys alone.

use drumfire_wire::{ClientParameters, FrameWriter, Refuse, SuiteOffer, Welcome};

use crate::connection::Connection;
use crate::handshake::Handshake;
use crate::packet::PacketSealer;

/// Connects and then acknowledges every packet of the server, until its sealing half is taken.
///
/// Pass each datagram of the server to [`Self::on_datagram`] and send what it returns. Call [`Self::resend`] when nothing came for
/// a while, first of all for the first datagram.
pub struct Connector {
    state: State,
    is_confirmed: bool,
}

enum State {
    Handshake(Box<Handshake>),
    Connected(Box<Connection>),
    /// There will be no connection, for this reason.
    Failed(String),
}

impl Connector {
    /// Begins a handshake with the server that has this public key. Two clients need two `ephemeral` secrets.
    ///
    /// # Panics
    ///
    /// If the public key is one of the few that are not valid.
    #[must_use]
    pub fn new(
        server_key: &[u8; 32],
        client_id: [u8; 8],
        ephemeral: [u8; 32],
        parameters: &ClientParameters,
        offer: SuiteOffer,
    ) -> Self {
        let payload = parameters.encode();
        let handshake = Handshake::with(server_key, client_id, ephemeral, &payload, offer);
        Self { state: State::Handshake(handshake.into()), is_confirmed: false }
    }

    /// Returns whether the handshake is over. The server does not know it before a packet of the connection has arrived.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected(_))
    }

    /// Returns whether the server has opened a packet of the connection and answered it.
    #[must_use]
    pub const fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Returns the reason why there will be no connection, or `None` while there may be one.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        if let State::Failed(reason) = &self.state { Some(reason) } else { None }
    }

    /// Returns the datagram that is due when the server does not answer: the Hello, or a packet that asks for an ack. Returns
    /// `None` once the connection is confirmed.
    pub fn resend(&mut self) -> Option<Vec<u8>> {
        match &mut self.state {
            State::Handshake(handshake) => Some(handshake.hello()),
            State::Connected(client) => (!self.is_confirmed).then(|| client.datagram(&ack_request())),
            State::Failed(_) => None,
        }
    }

    /// Takes a datagram of the server and returns the answer to it, if it has one.
    pub fn on_datagram(&mut self, datagram: Vec<u8>) -> Option<Vec<u8>> {
        match &mut self.state {
            State::Handshake(handshake) => {
                if handshake.on_retry(&datagram) {
                    return self.resend();
                }
                if let Ok(refuse) = Refuse::decode(&datagram) {
                    let reason = refuse.refusal.reason;
                    self.state = State::Failed(format!("the server refuses the connection: {reason:?}"));
                    return None;
                }
                let welcome = Welcome::decode(&datagram).ok()?;
                // Datagrams of other handshakes are ignored.
                (welcome.client_id == handshake.client_id()).then_some(())?;
                // A Welcome uses up the handshake, whether it opens or not.
                let failed = State::Failed("the server's Welcome does not open".to_owned());
                if let State::Handshake(mut handshake) = std::mem::replace(&mut self.state, failed)
                    && let Some(client) = handshake.on_welcome(&datagram)
                {
                    self.state = State::Connected(client.into());
                }
                self.resend()
            }
            State::Connected(client) => {
                let heard = client.open(datagram)?;
                self.is_confirmed = true;
                heard.ack().map(|ack| client.datagram(&ack))
            }
            State::Failed(_) => None,
        }
    }

    /// Returns the sealing half of the connection, or `None` if there is no connection.
    #[must_use]
    pub fn into_sealer(self) -> Option<PacketSealer> {
        match self.state {
            State::Connected(client) => Some(client.into_halves().0),
            State::Handshake(_) | State::Failed(_) => None,
        }
    }
}

/// Returns frames that ask for an immediate ack, padded to the shortest length of a packet.
fn ack_request() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut frames = FrameWriter::new(&mut bytes);
    frames.ack_request().and_then(|()| frames.padding(3)).expect("a vector has room");
    bytes
}
