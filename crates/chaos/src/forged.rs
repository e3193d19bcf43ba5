//! Datagrams that claim to come from anywhere, as an attacker sends them whose own network lets them out.
//!
//! They go no further than the network namespace of the run.

use std::io::ErrorKind;
use std::net::{SocketAddr, SocketAddrV4};

use socket2::{Domain, Protocol, Socket, Type};

use crate::packet;
use crate::stop::{Stop, Tried};

/// The protocol's number of a socket that takes packets with their headers, see raw(7).
const WITH_HEADERS: i32 = 255;

/// Sends them.
pub(crate) struct Forger(Socket);

impl Forger {
    /// One more.
    ///
    /// # Errors
    /// [`Stop::Needs`] where the privilege is missing.
    pub(crate) fn new() -> Result<Self, Stop> {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(WITH_HEADERS)));
        let socket = socket.map_err(|why| match why.kind() {
            ErrorKind::PermissionDenied => Stop::Needs(format!("the privilege to open raw sockets: {why}")),
            _ => Stop::failed("a raw socket", why),
        })?;
        socket.set_nonblocking(true).tried("a raw socket that does not wait")?;
        Ok(Self(socket))
    }

    /// Sends this as if it came from there; answers whether the system took it.
    pub(crate) fn send(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> bool {
        let packet = packet::udp(from, to, payload);
        packet.is_some_and(|packet| self.0.send_to(&packet, &to.into()).is_ok())
    }
}

/// The address, where it is one of IPv4.
///
/// # Errors
/// [`Stop::Needs`] where it is not: such packets are made by hand.
pub(crate) fn v4(address: SocketAddr) -> Result<SocketAddrV4, Stop> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(Stop::Needs(format!("an address of IPv4 instead of {address}"))),
    }
}
