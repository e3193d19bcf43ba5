//! Clients of a WebSocket server: non-blocking connections, several of them behind one poll.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_benches::PER_SOCKET;
use drumfire_benches::traffic::Client;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use tungstenite::client::client_with_config;
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, Message, WebSocket};

/// The size of the read buffer of a connection. It holds more than one message.
const BUFFER_BYTES: usize = 4_096;

/// Bytes of messages that the kernel has not accepted, at most.
const WAITING_MAX_BYTES: usize = 64 * 1_024;

/// The time within which the server must answer while a connection is made.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections behind one poll.
pub(crate) struct WebSockets {
    sockets: Vec<WebSocket<TcpStream>>,
    poll: Poll,
    events: Events,
    /// Connections whose last message the kernel has not accepted completely.
    unsent: Vec<usize>,
}

impl WebSockets {
    /// Makes this number of connections, one after the other.
    pub(crate) fn connect(server: SocketAddr, count: usize) -> Result<Self, String> {
        let poll = Poll::new().map_err(|error| fail(&error))?;
        let sockets = (0..count).map(|index| connect(server, &poll, index)).collect::<Result<_, _>>()?;
        let events = Events::with_capacity(PER_SOCKET);
        Ok(Self { sockets, poll, events, unsent: Vec::new() })
    }
}

impl Client for WebSockets {
    fn is_ready(&self) -> bool {
        true
    }

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
    let stream = std::net::TcpStream::connect(server).map_err(|error| fail(&error))?;
    stream.set_nodelay(true).map_err(|error| fail(&error))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| fail(&error))?;
    // The stream blocks only until the connection is made.
    let stream = TcpStream::from_std(stream);
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(WAITING_MAX_BYTES);
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
