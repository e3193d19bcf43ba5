//! A sender on threads of this process, for a receiver on the same host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread::JoinHandle;

use crate::error::Error;
use crate::report::Report;
use crate::traffic::Traffic;

/// A running sender. Without a receiver it ends on its own.
pub(crate) struct LocalSender {
    thread: JoinHandle<Result<Report, Error>>,
}

impl LocalSender {
    /// Starts a sender for a receiver at `bound`.
    pub(crate) fn start(bound: SocketAddr, traffic: Traffic) -> Result<Self, Error> {
        let run = move || super::run(&[reachable(bound)], &traffic, &|| false);
        let thread = std::thread::Builder::new().name("sender".to_owned()).spawn(run);
        let thread = thread.map_err(|error| Error::run(format!("the sender cannot be started: {error}")))?;
        Ok(Self { thread })
    }

    /// Returns whether the sender has ended. Before it has the books of the receiver, that is a failure.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for the end of the sender, and returns its error.
    pub(crate) fn finish(self) -> Result<(), Error> {
        // A thread that panicked has printed that.
        self.thread.join().unwrap_or_else(|_| Err(Error::run("the sender panicked"))).map(drop)
    }
}

/// Returns the address at which a sender on this host reaches a receiver bound to `bound`.
fn reachable(bound: SocketAddr) -> SocketAddr {
    let mut reachable = bound;
    match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => reachable.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => reachable.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    reachable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_on_this_host_reaches_every_bound_address() {
        for (bound, expected) in [
            ("0.0.0.0:9", "127.0.0.1:9"),
            ("[::]:9", "[::1]:9"),
            ("127.0.0.2:9", "127.0.0.2:9"),
            ("[fe80::1%2]:9", "[fe80::1%2]:9"),
        ] {
            assert_eq!(reachable(bound.parse().unwrap()), expected.parse().unwrap());
        }
    }
}
