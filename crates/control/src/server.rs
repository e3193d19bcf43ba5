//! The server of a control socket: one thread for a few clients. The memory that each client can occupy is limited.

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};

use super::local::{self, Listener, SocketFile, Stream};
use super::message::{REQUEST_BYTES_MAX, Request, Response, ResponseMessage, VERSION};
use super::source::Source;

/// The largest number of clients that are connected at a time. Further clients are rejected with an error.
pub const CLIENTS_MAX: usize = 4;

/// A client that neither sends nor reads for this time is disconnected.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between checks for idle clients.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of bytes of one read.
const READ_BYTES: usize = 1_024;

const LISTENER: Token = Token(CLIENTS_MAX);
const WAKER: Token = Token(CLIENTS_MAX + 1);

/// An open control socket. Dropping it ends its thread and removes its file.
pub struct ControlSocket {
    path: PathBuf,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl ControlSocket {
    /// Listens at this path and serves `source`. Replaces a socket that a killed server left behind.
    ///
    /// # Errors
    ///
    /// - `AlreadyExists`: the path is another file, or another server listens there.
    /// - `Unsupported`: the system has no Unix domain sockets.
    /// - Other errors of the system: no permission, a missing directory, or a path that is too long (107 bytes on Linux).
    pub fn listen(path: impl AsRef<Path>, source: impl Source) -> io::Result<Self> {
        let path = path.as_ref();
        let (mut listener, socket_file) = local::bind(path)?;
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let session = ControlSession {
            poll,
            listener,
            _socket_file: socket_file,
            clients: [const { None }; CLIENTS_MAX],
            is_accept_due: false,
            start: now(),
            source,
        };
        let thread =
            std::thread::Builder::new().name("drumfire-control".to_owned()).spawn(|| session.run())?;
        Ok(Self { path: path.to_owned(), waker, thread: Some(thread) })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.waker.wake().is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for ControlSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlSocket").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The state of the thread.
struct ControlSession<S> {
    poll: Poll,
    listener: Listener,
    _socket_file: SocketFile,
    clients: [Option<Client>; CLIENTS_MAX],
    /// A client waits that could not be accepted, for instance because the process is out of descriptors. No event reports it again.
    is_accept_due: bool,
    start: Instant,
    source: S,
}

struct Client {
    stream: Stream,
    /// The bytes of an incomplete request.
    incoming: Vec<u8>,
    /// The bytes of a response that the client has not read. Until it has, no further request is read.
    outgoing: Vec<u8>,
    active_at: Instant,
    /// The client is disconnected as soon as the response is written.
    is_ending: bool,
}

/// The client has closed its connection, or must be disconnected.
struct Disconnect;

impl<S: Source> ControlSession<S> {
    fn run(mut self) {
        let mut events = Events::with_capacity(2 * CLIENTS_MAX);
        // One request per client and round, so that a client with many requests does not delay the others.
        let mut is_ready = [false; CLIENTS_MAX];
        loop {
            let timeout = if is_ready.contains(&true) { Duration::ZERO } else { IDLE_CHECK_INTERVAL };
            let polled = self.poll.poll(&mut events, Some(timeout));
            if polled.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                return;
            }
            let now = now();
            for token in events.iter().map(mio::event::Event::token) {
                match token {
                    WAKER => return,
                    LISTENER => self.is_accept_due = true,
                    Token(at) => {
                        if let Some(is_ready) = is_ready.get_mut(at) {
                            *is_ready = true;
                        }
                    }
                }
            }
            if self.is_accept_due {
                self.accept(now, &mut is_ready);
            }
            for (at, is_ready) in is_ready.iter_mut().enumerate().filter(|(_, is_ready)| **is_ready) {
                *is_ready = self.serve(at, now);
            }
            for client in &mut self.clients {
                let is_idle =
                    |client: &Client| now.saturating_duration_since(client.active_at) >= IDLE_TIMEOUT;
                *client = client.take().filter(|client| !is_idle(client));
            }
        }
    }

    fn accept(&mut self, now: Instant, is_ready: &mut [bool; CLIENTS_MAX]) {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                // A connection that failed before it was accepted is skipped.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                Err(error) => {
                    self.is_accept_due = error.kind() != io::ErrorKind::WouldBlock;
                    return;
                }
            };
            let free = self.clients.iter().position(Option::is_none);
            let Some(at) = free else {
                let busy = format!("{CLIENTS_MAX} other clients are connected: end one of them");
                let _ = stream.write(&line(Response::Error { text: busy }));
                continue;
            };
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(at), interest).is_ok() {
                let (incoming, outgoing) = (Vec::new(), Vec::new());
                let client = Client { stream, incoming, outgoing, active_at: now, is_ending: false };
                self.clients[at] = Some(client);
                is_ready[at] = true;
            }
        }
    }

    /// Handles one request of a client, if it has sent one and reads the response. Returns whether it may have sent more.
    fn serve(&mut self, at: usize, now: Instant) -> bool {
        let Some(client) = self.clients.get_mut(at).and_then(Option::as_mut) else { return false };
        let (source, start) = (&mut self.source, self.start);
        let served = client.serve(now, |request| respond(source, request, start));
        if served.is_err() {
            self.clients[at] = None;
        }
        served.unwrap_or(false)
    }
}

impl Client {
    /// Handles one request at most. Returns whether there may be another.
    fn serve(
        &mut self,
        now: Instant,
        mut respond: impl FnMut(&[u8]) -> Result<Response, Response>,
    ) -> Result<bool, Disconnect> {
        let mut has_responded = false;
        loop {
            if !self.write(now)? {
                return Ok(false);
            }
            if self.is_ending {
                return Err(Disconnect);
            }
            if has_responded {
                return Ok(true);
            }
            let end = self.incoming.iter().position(|byte| *byte == b'\n');
            if end.unwrap_or(self.incoming.len()) > REQUEST_BYTES_MAX {
                let text = format!("a request has at most {REQUEST_BYTES_MAX} bytes");
                (self.outgoing, self.is_ending) = (line(Response::Error { text }), true);
            } else if let Some(end) = end {
                let request: Vec<u8> = self.incoming.drain(..=end).collect();
                let response = respond(&request[..end]);
                self.is_ending = response.is_err();
                self.outgoing = line(response.unwrap_or_else(|error| error));
                has_responded = true;
            } else if !self.read(now)? {
                return Ok(false);
            }
        }
    }

    /// Reads from the client. Returns false if there is nothing to read now.
    fn read(&mut self, now: Instant) -> Result<bool, Disconnect> {
        let mut bytes = [0; READ_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(Disconnect),
            Ok(count) => {
                self.incoming.extend_from_slice(&bytes[..count]);
                self.active_at = now;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(_) => Err(Disconnect),
        }
    }

    /// Writes the response. Returns true when all of it is written.
    fn write(&mut self, now: Instant) -> Result<bool, Disconnect> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(count) => {
                    self.outgoing.drain(..count);
                    self.active_at = now;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(Disconnect),
            }
        }
        Ok(true)
    }
}

/// Returns the response to a request. After an `Err` the connection is closed.
fn respond(source: &mut impl Source, request: &[u8], start: Instant) -> Result<Response, Response> {
    let fatal = |text: String| Err(Response::Error { text });
    // The version is checked first, because requests of other versions may have another form.
    match serde_json::from_slice::<serde_json::Value>(request).map(|value| value["version"].as_u64()) {
        Ok(Some(version)) if version == u64::from(VERSION) => {}
        Ok(Some(version)) => {
            return fatal(format!(
                "this server uses version {VERSION} of the protocol and the request {version}"
            ));
        }
        Ok(None) | Err(_) => {
            return fatal("not a request: it is not a JSON object with a version".to_owned());
        }
    }
    let request: Request = match serde_json::from_slice(request) {
        Ok(request) => request,
        Err(error) => return fatal(format!("not a request: {error}")),
    };
    let mut response = source.respond(request.command);
    if let Response::Snapshot(snapshot) = &mut response {
        let since = now().saturating_duration_since(start);
        snapshot.taken_at_nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    }
    Ok(response)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
fn now() -> Instant {
    Instant::now()
}

fn line(response: Response) -> Vec<u8> {
    let mut line = serde_json::to_vec(&ResponseMessage { version: VERSION, response }).unwrap_or_default();
    line.push(b'\n');
    line
}
