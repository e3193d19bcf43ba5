//! nbio's server, which is the Go program in `go/nbio` of this package, and clients for it. The server is built where there is a Go
//! toolchain.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream as Connecting};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use drumfire_tools::host;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use tungstenite::client::client_with_config;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket};

use crate::client::Client;
use crate::host::Cores;
use crate::process::{Child, output_of};
use crate::rounds::Extent;

const MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/go/nbio");

const GO_MOD: &str = include_str!("../go/nbio/go.mod");

/// The version of nbio, without the `v` that Go puts before it.
pub fn version() -> &'static str {
    let of_line = |line: &'static str| line.trim().strip_prefix("require github.com/lesismal/nbio v");
    GO_MOD.lines().find_map(of_line).unwrap_or_default()
}

/// Builds the server in `target/go` with the installed toolchain and the versions of `go.mod`, and returns its path. A smoke run has no
/// time to build it and uses an earlier build.
pub fn build_for(extent: Extent) -> Result<PathBuf, String> {
    // This program is in `target/<profile>/deps`.
    let executable = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = executable.ancestors().nth(3).ok_or("no target folder")?;
    let program = target.join("go").join("nbio");
    if extent == Extent::Quick && !program.exists() {
        return Err("not built yet, and --quick has no time for it".to_owned());
    }
    let mut build = Command::new("go");
    build.args(["build", "-trimpath", "-o"]).arg(&program).arg(".").current_dir(MODULE);
    output_of(build.envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=readonly -buildvcs=false")]))?;
    Ok(program)
}

/// Starts the server on its core, with the settings of nbio's own benchmark. The calling thread stays on the core of the load.
pub fn start(program: &Path, cores: Cores) -> Result<Child, String> {
    // A child process inherits the cores of the thread that starts it.
    host::pin_current_thread(cores.server).map_err(|error| error.to_string())?;
    let child = Child::start_program("nbio's server", program, &[]);
    host::pin_current_thread(cores.load).map_err(|error| error.to_string())?;
    child
}

/// The size of the read buffer of a connection. It holds more than one message.
const BUFFER_BYTES: usize = 4_096;

/// Bytes of messages that the kernel has not accepted, at most.
const UNSENT_MAX_BYTES: usize = 64 * 1_024;

/// The time within which the server must answer while a connection is made.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A client with non-blocking connections behind one poll, with `TCP_NODELAY`.
pub struct WebSockets {
    sockets: Vec<WebSocket<TcpStream>>,
    poll: Poll,
    events: Events,
    /// Connections whose last message the kernel has not accepted completely.
    unsent: Vec<usize>,
}

impl WebSockets {
    /// Makes this number of connections, one after the other.
    pub fn connect(server: SocketAddr, count: usize) -> Result<Self, String> {
        let poll = Poll::new().map_err(|error| fail(&error))?;
        let sockets = (0..count).map(|index| connect(server, &poll, index)).collect::<Result<_, _>>()?;
        let (events, unsent) = (Events::with_capacity(count.max(1)), Vec::new());
        Ok(Self { sockets, poll, events, unsent })
    }
}

impl Client for WebSockets {
    fn receive(&mut self, _: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(fail(&error)),
            _ => {}
        }
        for event in &self.events {
            let Token(index) = event.token();
            let Some(socket) = self.sockets.get_mut(index) else { continue };
            loop {
                match socket.read() {
                    Ok(Message::Binary(bytes)) => take(index, &bytes),
                    Ok(Message::Close(_)) => return Err("a client lost its connection".to_owned()),
                    Ok(_) => {}
                    Err(error) if is_blocked(&error) => break,
                    Err(error) => return Err(fail(&error)),
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, _: u64, index: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        match self.sockets[index].write(Message::binary(message.to_vec())) {
            Ok(()) => {}
            Err(Error::WriteBufferFull(_)) => return Ok(false),
            // The message is queued and leaves with a later flush.
            Err(error) if is_blocked(&error) => {}
            Err(error) => return Err(fail(&error)),
        }
        self.unsent.push(index);
        Ok(true)
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        let Self { sockets, unsent, .. } = self;
        let mut result = Ok(());
        unsent.retain(|index| match sockets[*index].flush() {
            Ok(()) => false,
            Err(error) if is_blocked(&error) => true,
            Err(error) => {
                result = Err(fail(&error));
                false
            }
        });
        result
    }
}

fn connect(server: SocketAddr, poll: &Poll, index: usize) -> Result<WebSocket<TcpStream>, String> {
    let stream = Connecting::connect(server).map_err(|error| fail(&error))?;
    stream.set_nodelay(true).map_err(|error| fail(&error))?;
    stream.set_read_timeout(Some(HANDSHAKE_TIMEOUT)).map_err(|error| fail(&error))?;
    // The stream blocks only until the connection is made.
    let stream = TcpStream::from_std(stream);
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(UNSENT_MAX_BYTES);
    let made = client_with_config(format!("ws://{server}/ws"), stream, Some(config));
    let (mut socket, _) = made.map_err(|error| format!("a client: {error}"))?;
    let stream = socket.get_mut();
    socket2::SockRef::from(&*stream).set_nonblocking(true).map_err(|error| fail(&error))?;
    poll.registry().register(stream, Token(index), Interest::READABLE).map_err(|error| fail(&error))?;
    Ok(socket)
}

fn is_blocked(error: &Error) -> bool {
    matches!(error, Error::Io(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
}

fn fail(error: &dyn std::fmt::Display) -> String {
    format!("a client: {error}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_version_is_that_of_the_module() {
        let version = super::version();
        assert_eq!(version.split('.').filter_map(|part| part.parse::<u32>().ok()).count(), 3, "{version}");
    }
}
