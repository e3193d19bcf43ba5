//! The handshake of a flow whose packets are sealed without an endpoint: it acknowledges and repeats nothing afterwards.

use std::time::Duration;

use drumfire_puppet::{Connector, PacketSealer};
use drumfire_socket::{DrainEnd, Parker, Socket};
use drumfire_wire::{ClientParameters, SuiteOffer};

use super::client::{BUDGET, SocketBuffers, unconnected};
use crate::choices::Suite;
use crate::clock;
use crate::control::Sealed;
use crate::error::Error;
use crate::receiver::service;

/// A handshake takes two round trips and the work of both ends.
const PATIENCE: Duration = Duration::from_secs(8);

/// The time without an answer after which a datagram is sent again.
const RESEND_AFTER: Duration = Duration::from_millis(100);

/// Connects this socket, and waits until the receiver has acknowledged a packet. Returns the sealing half of the connection.
pub(super) fn connect(
    socket: &mut Socket,
    buffers: &mut SocketBuffers,
    sealed: &Sealed,
) -> Result<PacketSealer, Error> {
    let mut client = begin(sealed)?;
    let mut poller = buffers.poller()?;
    poller.register(socket, 0).map_err(unconnected)?;
    let deadline = clock::now() + PATIENCE;
    while !client.is_confirmed() {
        if let Some(line) = client.failure() {
            return Err(unconnected(line));
        }
        if clock::now() >= deadline {
            return Err(unconnected("the server did not answer: check its address and public key"));
        }
        let mut answers = Vec::from_iter(client.resend());
        while !answers.is_empty() {
            for answer in answers.drain(..) {
                let _ = buffers.batch.push(None, &answer);
                buffers.flush(socket, &mut poller);
            }
            // The last datagram acknowledges the server's packet, and the server does not answer it.
            if client.is_confirmed() {
                break;
            }
            // A wait that fails ends early, and the datagram is sent again.
            let _ = poller.poll(Some(RESEND_AFTER));
            let end = buffers.receiver.drain(socket, BUDGET, |received| {
                for datagram in received.datagrams() {
                    answers.extend(client.on_datagram(datagram.bytes.to_vec()));
                }
            });
            if let DrainEnd::Closed(fault) = end {
                return Err(unconnected(format!("its socket is gone: {fault}")));
            }
        }
    }
    client.into_sealer().ok_or_else(|| unconnected("the connection has no keys"))
}

fn begin(sealed: &Sealed) -> Result<Connector, Error> {
    let (mut client_id, mut ephemeral) = ([0; 8], [0; 32]);
    getrandom::fill(&mut client_id).map_err(unconnected)?;
    getrandom::fill(&mut ephemeral).map_err(unconnected)?;
    let parameters =
        ClientParameters { connection_id: None, shared: service::shared_parameters(), hello: b"" };
    let offer = SuiteOffer::mandatory();
    let offer = match sealed.suite {
        Suite::Aes128Gcm => offer.with(drumfire_wire::Suite::Aes128Gcm),
        Suite::ChaCha20Poly1305 => offer,
    };
    Ok(Connector::new(&sealed.public_key, client_id, ephemeral, &parameters, offer))
}
