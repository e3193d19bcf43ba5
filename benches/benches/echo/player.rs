//! drumfire's client, made of the connection core and a plain socket: one `recv` and one `send` per message, as the
//! raw client does, so that 500 of them on one core keep a server busy.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire::{Bytes, SendOptions};
use drumfire_crypto::{Secret, Suite};
use drumfire_proto::limits::DATAGRAM_SENT_MAX_BYTES;
use drumfire_proto::{
    Alone, ClientConfig, Config, Endpoint, Event, Inbound, Moment, Now, PeerId, SendError, ServerIdentity,
};
use drumfire_tools::clock;

use crate::encrypted::{CHANNEL, key, options};
use crate::load::Line;
use crate::peer::Delivery;

/// More than any datagram of the bench.
const BUFFER_BYTES: usize = 2_048;

/// One client.
pub(crate) struct Player {
    socket: UdpSocket,
    endpoint: Endpoint<Alone>,
    server: PeerId,
    options: SendOptions,
    is_ready: bool,
}

impl Player {
    /// Begins to connect, offering this suite at most.
    pub(crate) fn connect(server: SocketAddr, delivery: Delivery, suite: Suite) -> Result<Self, String> {
        let socket = socket(server).map_err(|error| format!("a client's socket: {error}"))?;
        let config = Config::default().has_aes_gcm(suite == Suite::Aes128Gcm);
        let mut endpoint = Endpoint::client(config, ClientConfig::default(), seed(&socket))
            .map_err(|error| format!("a client: {error}"))?;
        let identity = ServerIdentity { public_key: key().public().to_bytes(), key_id: 0 };
        let server =
            endpoint.connect(now(), server, &identity, None).map_err(|error| format!("a client: {error}"))?;
        let mut player = Self { socket, endpoint, server, options: options(delivery), is_ready: false };
        player.transmit()?;
        Ok(player)
    }

    fn transmit(&mut self) -> Result<(), String> {
        let mut out = [0; DATAGRAM_SENT_MAX_BYTES];
        while let Some(transmit) = self.endpoint.poll_transmit(now(), &mut out) {
            match self.socket.send(&out[..transmit.bytes]) {
                Ok(_) => {}
                // As if the network had lost it.
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
                Err(error) => return Err(format!("a client's socket: {error}")),
            }
        }
        Ok(())
    }
}

impl Line for Player {
    fn is_ready(&self) -> bool {
        self.is_ready
    }

    fn receive(&mut self, mut take: impl FnMut(&[u8])) -> Result<(), String> {
        let mut buffer = [0; BUFFER_BYTES];
        match self.socket.recv(&mut buffer) {
            Ok(length) => {
                let from = self.endpoint.address(self.server).unwrap_or(([0, 0, 0, 0], 0).into());
                self.endpoint.handle_datagrams(now(), [Inbound { from, bytes: &mut buffer[..length] }]);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {}
            Err(error) => return Err(format!("a client's socket: {error}")),
        }
        let now = now();
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now.monotonic) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Connected { .. } => self.is_ready = true,
                Event::Message { bytes, .. } => take(bytes),
                Event::ConnectFailed { error, .. } => return Err(format!("a client: {error}")),
                Event::Disconnected { reason, .. } => {
                    return Err(format!("a client lost its connection: {}", reason.name()));
                }
                _ => {}
            }
        }
        self.transmit()
    }

    fn send(&mut self, message: &[u8]) -> Result<bool, String> {
        let bytes = Bytes::copy_from_slice(message);
        match self.endpoint.send(now(), self.server, CHANNEL, bytes, self.options) {
            Ok(()) => self.transmit().map(|()| true),
            Err(SendError::Full) => Ok(false),
            Err(error) => Err(format!("a client: {error}")),
        }
    }
}

fn socket(server: SocketAddr) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(server)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Another one for every client; nobody is kept out by it.
fn seed(socket: &UdpSocket) -> Secret<32> {
    let mut seed = [0; 32];
    let port = socket.local_addr().map_or(0, |address| address.port());
    seed[..8].copy_from_slice(&clock::host_ns().to_be_bytes());
    seed[8..10].copy_from_slice(&port.to_be_bytes());
    Secret::new(seed)
}

fn now() -> Now {
    Now { monotonic: Moment::from_nanos(clock::host_ns()), wall: Duration::ZERO }
}
