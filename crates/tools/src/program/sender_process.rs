//! A sender in a process of its own: the same executable in its sender mode. Dropping the value ends the process.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::cli::SENDER_MODE;
use crate::clock;
use crate::error::Error;
use crate::traffic::Traffic;

/// How long the process may take to end after its books are closed. A process that takes longer hangs, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interval in which the end of the process is polled.
const STEP: Duration = Duration::from_millis(2);

/// The sender's process.
pub struct SenderProcess {
    child: RefCell<Child>,
}

impl SenderProcess {
    /// Starts the process for a receiver at `bound`. The current executable must pass arguments that begin with [`SENDER_MODE`] to
    /// [`super::receiver`].
    ///
    /// # Errors
    ///
    /// [`Error::Run`] with the error of the system.
    pub fn start(bound: SocketAddr, traffic: &Traffic) -> Result<Self, Error> {
        let child = std::env::current_exe().and_then(|program| {
            Command::new(program)
                .arg(SENDER_MODE)
                .args(traffic.arguments(reachable(bound)))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
        });
        let child = child.map_err(|error| Error::run(format!("the sender cannot be started: {error}")))?;
        Ok(Self { child: child.into() })
    }

    /// Returns whether the process has failed.
    pub fn has_failed(&self) -> bool {
        matches!(self.child.borrow_mut().try_wait(), Ok(Some(status)) if !status.success())
    }

    /// Waits for the end of the process, and kills it if it does not end in time.
    ///
    /// # Errors
    ///
    /// [`Error::Reported`] if the sender printed an error, or [`Error::Run`] if it was killed or hangs.
    pub fn finish(self) -> Result<(), Error> {
        let deadline = clock::now() + PATIENCE;
        loop {
            match self.child.borrow_mut().try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    let killed = format!("the sender was ended from outside ({status}): start both again");
                    let code = status.code().and_then(|code| u8::try_from(code).ok());
                    return Err(code.map_or(Error::Run(killed), Error::Reported));
                }
                Ok(None) if clock::now() < deadline => {}
                // Dropping the value kills the process.
                _ => return Err(Error::run("the sender did not end and was stopped")),
            }
            clock::pause(STEP);
        }
    }
}

impl Drop for SenderProcess {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        if matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            let _ = child.wait();
        }
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
