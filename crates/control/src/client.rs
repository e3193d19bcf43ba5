//! The client of a control socket. It sends one request at a time and waits for the response.
//!
//! The client checks the size and the form of a response, but not its texts. Escape the texts before you print them to a
//! terminal.

use std::error::Error;
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use super::local::{self, PlainStream};
use super::message::{Command, RESPONSE_BYTES_MAX, Request, Response, ResponseMessage, VERSION};

/// The longest wait for a part of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to a server's control socket.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<PlainStream>,
}

/// The reason why a control socket could not be opened.
#[non_exhaustive]
pub enum OpenError {
    /// The path does not exist.
    Missing,
    /// No server listens on the socket. A killed server leaves its file behind.
    Abandoned,
    /// The file belongs to another user.
    NoPermission,
    /// This system has no local sockets.
    Unsupported,
    /// Any other error of the system.
    Io(io::Error),
}

/// The reason why a request has no response. The connection cannot be used afterwards.
#[non_exhaustive]
pub enum RequestError {
    /// The server is gone, or it did not answer in time.
    Io(io::Error),
    /// The server closed the connection.
    Ended,
    /// The received line is not a response.
    Unreadable(String),
    /// The server uses another version of the protocol.
    Version(u32),
}

impl Connection {
    /// Connects to the control socket at this path.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let stream = local::connect(path)?;
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
        stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a request and waits for the response, at most 5 s for each part of it.
    ///
    /// # Errors
    ///
    /// [`RequestError`]. A request that the server refuses is not an error here: it returns [`Response::Error`].
    pub fn request(&mut self, command: Command) -> Result<Response, RequestError> {
        let request = serde_json::to_vec(&Request { version: VERSION, command });
        let mut request = request.map_err(|error| RequestError::Unreadable(error.to_string()))?;
        request.push(b'\n');
        // A server that rejects a client sends the reason and reads nothing, so the write may fail while a response is there.
        let written = self.stream.get_mut().write_all(&request);
        let mut line = Vec::new();
        let limit = u64::try_from(RESPONSE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
        let read = (&mut self.stream).take(limit).read_until(b'\n', &mut line);
        if line.is_empty() {
            written?;
            read?;
            return Err(RequestError::Ended);
        }
        read?;
        if line.pop() != Some(b'\n') {
            return Err(RequestError::Unreadable("the line is cut off or too long".to_owned()));
        }
        let unreadable = |error: serde_json::Error| RequestError::Unreadable(error.to_string());
        let value: serde_json::Value = serde_json::from_slice(&line).map_err(unreadable)?;
        match value["version"].as_u64().and_then(|version| u32::try_from(version).ok()) {
            Some(VERSION) => {
                Ok(serde_json::from_value::<ResponseMessage>(value).map_err(unreadable)?.response)
            }
            Some(version) => Err(RequestError::Version(version)),
            None => Err(RequestError::Unreadable("it has no version".to_owned())),
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::ConnectionRefused => Self::Abandoned,
            io::ErrorKind::PermissionDenied => Self::NoPermission,
            io::ErrorKind::Unsupported => Self::Unsupported,
            _ => Self::Io(error),
        }
    }
}

impl From<io::Error> for RequestError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such file"),
            Self::Abandoned => f.write_str("no server listens there any more"),
            Self::NoPermission => f.write_str("it belongs to another user"),
            Self::Unsupported => f.write_str("this system has no local control sockets"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the server does not answer ({error})"),
            Self::Ended => f.write_str("the server ended the connection"),
            Self::Unreadable(why) => write!(f, "the response is invalid: {why}"),
            Self::Version(version) => {
                write!(f, "the server speaks version {version} of the protocol, this program {VERSION}")
            }
        }
    }
}

impl Error for OpenError {}

impl fmt::Debug for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for RequestError {}

impl fmt::Debug for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
