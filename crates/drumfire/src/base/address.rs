//! Checks of the address of a server.

use std::net::{IpAddr, SocketAddr};

use super::error::Error;

pub(crate) fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Returns an error for an address that no server can have.
pub(crate) fn check_server(server: SocketAddr) -> Result<(), Error> {
    let ip = server.ip().to_canonical();
    let problem = if server.port() == 0 {
        "has port 0, which no server can have: name the port that the server was bound to"
    } else if ip.is_unspecified() {
        "0.0.0.0 and [::] are for binding, not for connecting: name an address that clients can reach"
    } else if ip.is_multicast() {
        "is a multicast address: name the address of one server"
    } else {
        return Ok(());
    };
    Err(Error::setting("server", problem))
}
