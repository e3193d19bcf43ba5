//! A handle of the server process, to start, stop, and kill it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A running server process. It ends when the handle is dropped or the test ends.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    /// Starts a server at this address, where port 0 selects a free port. Waits until the server is bound.
    pub(crate) fn start(address: SocketAddr, workers: u16, keys: &[String]) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["serve", &address.to_string(), &workers.to_string()]).args(keys);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("another process");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its address");
        Self { child, address: line.trim().parse().expect("its address") }
    }

    /// Kills the process without a close to its clients, as the kernel does when memory runs out.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it was there");
        self.child.wait().expect("it is gone");
    }

    /// Sends the signal with this name, such as `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(status.expect("kill").success(), "{name}");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
