//! nbio over WebSocket, on TCP, not encrypted: the server is a Go program (`../go/nbio`) that answers in its event loop, with one
//! processor, since it has one core. The client is a WebSocket made of plain non-blocking sockets, TCP_NODELAY set, whose frames
//! are masked with zeros: a mask must be there, and need not be dear to the client, who is not counted. A silent client pings.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::{Rival, Serve};
use crate::face::{Client, KEEP_ALIVE, MESSAGE_MAX_BYTES, Setup, line};
use crate::programs::Program;

/// Bytes that wait to be sent on one connection, at most.
const OUTGOING_MAX_BYTES: usize = 64 * 1_024;

/// Bytes of the answer to the first request, at most.
const HEAD_MAX_BYTES: usize = 4_096;

/// A whole message of bytes.
const BINARY: u8 = 0x82;

/// A whole ping that says nothing, its mask included.
const PING: [u8; 6] = [0x89, MASKED, 0, 0, 0, 0];

/// A frame that is a close.
const CLOSE: u8 = 0x88;

/// The bit that says that a mask follows.
const MASKED: u8 = 0x80;

/// Lengths from here on stand in two bytes of their own.
const LONG: usize = 126;

pub(super) fn rivals() -> Vec<Rival> {
    vec![Rival {
        has_unreliable: false,
        has_one_thread: false,
        is_udp: false,
        ..Rival::new("nbio, WebSocket", "nbio", Serve::Program(Program::Nbio), connect)
    }]
}

/// One connection.
struct WebSocket {
    stream: TcpStream,
    is_open: bool,
    /// When it last said something.
    spoke: u64,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

fn connect(server: SocketAddr, _: usize, _: &Setup) -> Result<Box<dyn Client>, String> {
    let stream = TcpStream::connect(server).map_err(line)?;
    stream.set_nodelay(true).map_err(line)?;
    stream.set_nonblocking(true).map_err(line)?;
    let outgoing = format!(
        "GET /ws HTTP/1.1\r\nHost: {server}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: ZHJ1bWZpcmUgZWNob2VzIQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    );
    let outgoing = outgoing.into_bytes();
    Ok(Box::new(WebSocket { stream, is_open: false, spoke: 0, incoming: Vec::new(), outgoing }))
}

/// A frame at the beginning of some bytes: its first byte, where its message is, and where it ends.
fn frame_of(bytes: &[u8]) -> Option<(u8, std::ops::Range<usize>)> {
    let (first, length) = (*bytes.first()?, usize::from(*bytes.get(1)?));
    let (from, length) = match length {
        LONG => (4, usize::from(u16::from_be_bytes([*bytes.get(2)?, *bytes.get(3)?]))),
        // No answer of the bench is longer: it is left to be refused as no message.
        length => (2, length),
    };
    (bytes.len() >= from + length).then_some((first, from..from + length))
}

fn push_frame(outgoing: &mut Vec<u8>, message: &[u8]) -> Result<(), String> {
    if message.len() > MESSAGE_MAX_BYTES {
        return Err("a message is longer than any of the bench".to_owned());
    }
    outgoing.push(BINARY);
    match u8::try_from(message.len()) {
        Ok(length) if message.len() < LONG => outgoing.push(MASKED | length),
        _ => {
            outgoing.push(MASKED | 126);
            outgoing.extend(u16::try_from(message.len()).map_err(line)?.to_be_bytes());
        }
    }
    outgoing.extend([0; 4]);
    outgoing.extend_from_slice(message);
    Ok(())
}

impl WebSocket {
    fn read(&mut self) -> Result<(), String> {
        let mut buffer = [0; 16 * 1_024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err("a client lost its connection".to_owned()),
                Ok(length) => {
                    self.incoming.extend_from_slice(&buffer[..length]);
                    if length < buffer.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(line(error)),
            }
        }
    }

    /// Reads the answer to the request for a WebSocket, when it is all there.
    fn open(&mut self, now: u64) -> Result<(), String> {
        let end = self.incoming.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        let Some(end) = end else {
            let is_too_long = self.incoming.len() > HEAD_MAX_BYTES;
            return if is_too_long { Err("no answer of a WebSocket".to_owned()) } else { Ok(()) };
        };
        if !self.incoming.starts_with(b"HTTP/1.1 101") {
            return Err("the server opens no WebSocket".to_owned());
        }
        self.incoming.drain(..end + 4);
        self.is_open = true;
        self.spoke = now;
        Ok(())
    }
}

impl Client for WebSocket {
    fn is_ready(&self) -> bool {
        self.is_open
    }

    fn receive(&mut self, now: u64, take: &mut dyn FnMut(usize, &[u8])) -> Result<(), String> {
        self.read()?;
        if !self.is_open {
            self.open(now)?;
        }
        if !self.is_open {
            return Ok(());
        }
        if u128::from(now.saturating_sub(self.spoke)) >= KEEP_ALIVE.as_nanos() {
            self.outgoing.extend(PING);
            self.spoke = now;
        }
        let mut taken = 0;
        while let Some((first, message)) = frame_of(&self.incoming[taken..]) {
            match first {
                BINARY => take(0, &self.incoming[taken + message.start..taken + message.end]),
                CLOSE => return Err("a client's WebSocket was closed".to_owned()),
                _ => {}
            }
            taken += message.end;
        }
        self.incoming.drain(..taken);
        Ok(())
    }

    fn send(&mut self, now: u64, _: usize, _: u8, message: &[u8]) -> Result<bool, String> {
        if self.outgoing.len() > OUTGOING_MAX_BYTES {
            return Ok(false);
        }
        self.spoke = now;
        push_frame(&mut self.outgoing, message).map(|()| true)
    }

    fn flush(&mut self, _: u64) -> Result<(), String> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(length) => drop(self.outgoing.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(line(error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_found_when_all_of_it_is_there() {
        for length in [0, 5, 125, 126, 1_024] {
            let mut bytes = Vec::new();
            push_frame(&mut bytes, &vec![7; length]).expect("short enough");
            // As the server sends it: without the mask.
            bytes[1] &= !MASKED;
            let mask = if length < LONG { 2 } else { 4 };
            bytes.drain(mask..mask + 4);
            let (first, message) = frame_of(&bytes).expect("it is all there");
            assert_eq!((first, message.len(), message.end), (BINARY, length, bytes.len()));
            assert_eq!(frame_of(&bytes[..bytes.len() - 1]), None);
        }
        assert!(push_frame(&mut Vec::new(), &[0; MESSAGE_MAX_BYTES + 1]).is_err());
    }
}
