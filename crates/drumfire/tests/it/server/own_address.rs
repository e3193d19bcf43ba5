//! An address for a server that gives up its port for a moment and comes back to it.

use std::net::SocketAddr;

/// Returns a loopback address, with any port, that no other process uses. On the usual one, the port may be given to another
/// process while the server is away. Systems with a single loopback address have that one.
pub(crate) fn own_address(test: u8) -> SocketAddr {
    let [.., high, low] = std::process::id().to_be_bytes();
    let host = if cfg!(target_os = "linux") { [127, high | 0x80, low, test] } else { [127, 0, 0, 1] };
    (host, 0).into()
}
