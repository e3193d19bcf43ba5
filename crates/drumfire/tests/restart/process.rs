//! The server process as the test sees it: started, stopped, killed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A running server. It ends when this is dropped, or the test dies.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    /// Starts one at this address, port 0 for any; waits until it serves.
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

    /// Kills it, as the kernel does when memory runs out: it says nothing to anybody.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it was there");
        self.child.wait().expect("it is gone");
    }

    /// Lets it stand still, or go on.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(status.expect("kill").success(), "{name}");
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // One that is gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
