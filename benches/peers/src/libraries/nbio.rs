//! nbio over WebSocket and TCP, not encrypted. The server is a Go program (`../go/nbio`) that answers in its event loop, with one
//! processor for its one core. The client is tungstenite on non-blocking sockets with TCP_NODELAY. A silent client sends pings.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use drumfire_benches::traffic::Client;
use drumfire_benches::{Counts, nbio};
use tungstenite::client::client_with_config;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket};

use crate::adapter::{KEEP_ALIVE, Library, Setup, line, program};

/// The name of the server in Go.
const PROGRAM: &str = "nbio-server";

/// Bytes that wait to be sent on one connection, at most.
const OUTGOING_MAX_BYTES: usize = 64 * 1_024;

pub(crate) fn libraries() -> Vec<Library> {
    vec![Library {
        has_unreliable: false,
        has_one_thread: false,
        is_udp: false,
        build: Some(|| nbio::build(&program(PROGRAM)?).map(|()| nbio::version().to_owned())),
        ..Library::new("nbio, WebSocket", "nbio", serve, connect)
    }]
}

/// Replaces this process by the server in Go, which keeps its core and its pipes.
fn serve(setup: &Setup) -> Result<Counts, String> {
    Err(line(Command::new(program(PROGRAM)?).args(nbio::for_one_core(setup.answer_bytes)).exec()))
}

/// One connection.
struct Connection {
    socket: WebSocket<TcpStream>,
    /// The time of the last frame that it sent.
    sent_at: u64,
}

fn connect(server: SocketAddr, _: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    let stream = TcpStream::connect(server).map_err(line)?;
    stream.set_nodelay(true).map_err(line)?;
    let config = WebSocketConfig::default().max_write_buffer_size(OUTGOING_MAX_BYTES).write_buffer_size(0);
    let upgraded = client_with_config(format!("ws://{server}/ws"), stream, Some(config));
    let (socket, _) = upgraded.map_err(line)?;
    socket.get_ref().set_nonblocking(true).map_err(line)?;
    Ok(Box::new(Connection { socket, sent_at: u64::MAX }))
}

fn is_blocked(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == ErrorKind::WouldBlock)
}

impl Client for Connection {
    fn is_ready(&self) -> bool {
        true
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.sent_at = self.sent_at.min(now);
        if u128::from(now - self.sent_at) >= KEEP_ALIVE.as_nanos() {
            self.send_message(now, Message::Ping(Vec::new().into()))?;
        }
        loop {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => take(0, &bytes),
                Ok(Message::Close(_)) => return Err("a client lost its connection".to_owned()),
                Ok(_) => {}
                Err(error) if is_blocked(&error) => return Ok(()),
                Err(error) => return Err(line(error)),
            }
        }
    }

    fn send(&mut self, now: u64, _: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        self.send_message(now, Message::binary(message.to_vec()))
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        match self.socket.flush() {
            Err(error) if !is_blocked(&error) => Err(line(error)),
            _ => Ok(()),
        }
    }
}

impl Connection {
    fn send_message(&mut self, now: u64, message: Message) -> Result<bool, String> {
        match self.socket.write(message) {
            Err(Error::WriteBufferFull(_)) => return Ok(false),
            // A message that the kernel did not take leaves with a later flush.
            Err(error) if !is_blocked(&error) => return Err(line(error)),
            _ => self.sent_at = now,
        }
        Ok(true)
    }
}
