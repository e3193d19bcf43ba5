//! The protocol core without UDP: the same connections over TCP streams that carry datagrams with their length before each, as
//! a fallback where a network lets no UDP through. Nothing but `drumfire-proto`, the standard library and a source of randomness.
//!
//! ```text
//! cargo run --release --example custom_transport -- server 0.0.0.0:7783
//! cargo run --release --example custom_transport -- client 127.0.0.1:7783
//! ```
//!
//! Between two hosts put the server's address in place of 127.0.0.1. Without arguments both ends run in one process. To give
//! the core something to do, each end throws every tenth datagram away, and all messages arrive all the same.
//!
//! What is here is what every shell around the core does: it feeds datagrams and time, and takes out datagrams, events and
//! the moment to come back. It takes no tokens, and it knows a client by the address of its stream.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use drumfire_proto::limits::{DATAGRAM_FOUND_MAX_BYTES, DATAGRAM_SENT_MAX_BYTES};
use drumfire_proto::{
    Alone, ChannelId, ClientConfig, Close, CloseCode, CloseReason, Config, Endpoint, Event, EventBatch,
    Inbound, Moment, Now, Secret, SendOptions, ServerConfig, ServerIdentity, ServerKeyPair,
};

/// The server's secret key, which a real server keeps to itself: its clients have the public half alone.
const SERVER_SECRET: [u8; 32] = *b"known to all who read this file!";
const CHANNEL: ChannelId = ChannelId(0);
const MESSAGES: u32 = 300;
/// Between two messages of the client.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a shell sleeps when nothing is due.
const IDLE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const LOSE_EVERY: u64 = 10;
/// Streams of a server, and datagrams that wait for one of them or for the core: what does not fit is lost, as on any network.
const LINES_MAX: usize = 64;
const QUEUE: usize = 256;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["server", address] => serve(TcpListener::bind(address)?, || false)?,
        ["client", server] => talk(server.parse()?)?.show(),
        [] => both()?.show(),
        _ => return Err("say nothing, `server ADDRESS` or `client ADDRESS`".into()),
    }
    Ok(())
}

/// What comes from the threads that read.
enum Arrival {
    Opened(SocketAddr, SyncSender<Vec<u8>>),
    Datagram(SocketAddr, Vec<u8>),
    Closed(SocketAddr),
}

/// The way to one peer.
struct Line {
    to_writer: SyncSender<Vec<u8>>,
    datagrams: u64,
}

/// An endpoint with all that it needs around it, which one thread drives.
struct Shell {
    endpoint: Endpoint,
    start: Instant,
    arrivals: Receiver<Arrival>,
    lines: HashMap<SocketAddr, Line>,
    events: EventBatch,
    /// Datagrams thrown away here.
    lost: u64,
}

impl Shell {
    fn new(endpoint: Endpoint, arrivals: Receiver<Arrival>) -> Self {
        let (lines, events) = (HashMap::new(), EventBatch::default());
        Self { endpoint, start: now(), arrivals, lines, events, lost: 0 }
    }

    /// What the clocks show. The other one is for the expiry of tokens.
    fn now(&self) -> Now {
        let passed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { monotonic: Moment::from_nanos(passed), wall: Duration::ZERO }
    }

    /// The whole of it: one input, or none in this time, then every output.
    fn turn(&mut self, patience: Duration, mut hear: impl FnMut(&mut Endpoint, Now, Event<'_>)) {
        // What the application has said since the last turn.
        self.transmit();
        let now = self.now().monotonic;
        let wait = self.endpoint.poll_timeout().map_or(patience, |due| due.since(now)).min(patience);
        let arrival = self.arrivals.recv_timeout(wait);
        let now = self.now();
        match arrival {
            Ok(Arrival::Datagram(from, mut bytes)) => {
                self.endpoint.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut bytes }]);
            }
            Ok(Arrival::Opened(address, to_writer)) if self.lines.len() < LINES_MAX => {
                self.lines.insert(address, Line { to_writer, datagrams: 0 });
            }
            // The end of a stream is the end of no connection: that ends by its own close, or by silence.
            Ok(Arrival::Closed(address)) => drop(self.lines.remove(&address)),
            Ok(Arrival::Opened(..)) | Err(_) => {}
        }
        // Also after a datagram: under load there is always one, and timers must not wait for the last.
        self.endpoint.handle_timeout(now);
        self.endpoint.take_events(&mut self.events);
        while let Some(event) = self.events.pop() {
            if let Some((peer, bytes)) = event.held() {
                self.endpoint.release(peer, bytes);
            }
            hear(&mut self.endpoint, now, event);
        }
        self.transmit();
    }

    fn transmit(&mut self) {
        let (now, mut memory) = (self.now(), [0; DATAGRAM_SENT_MAX_BYTES]);
        while let Some(sent) = self.endpoint.poll_transmit(now, &mut memory) {
            let Some(line) = self.lines.get_mut(&sent.to.peer) else { continue };
            let datagram = memory.get(..sent.bytes).unwrap_or_default().to_vec();
            line.datagrams += 1;
            // Never waits for a stream that takes nothing: others are waiting for this thread.
            if line.datagrams % LOSE_EVERY == 0 || line.to_writer.try_send(datagram).is_err() {
                self.lost += 1;
            }
        }
    }
}

/// Gives a stream its two threads. They end with the stream, or when the shell drops its end.
fn attach(stream: TcpStream, arrive: &SyncSender<Arrival>) -> Result<(), Box<dyn Error>> {
    // Small datagrams that wait for each other would be late.
    stream.set_nodelay(true)?;
    let (address, writing) = (stream.peer_addr()?, stream.try_clone()?);
    let (to_writer, datagrams) = sync_channel(QUEUE);
    arrive.send(Arrival::Opened(address, to_writer))?;
    std::thread::spawn(move || {
        // An error is the end of the stream, which the reader sees too.
        let _ = datagrams.iter().try_for_each(|datagram| write(&writing, &datagram));
        let _ = writing.shutdown(Shutdown::Both);
    });
    let arrive = arrive.clone();
    std::thread::spawn(move || {
        while let Ok(datagram) = read(&stream) {
            if arrive.send(Arrival::Datagram(address, datagram)).is_err() {
                return;
            }
        }
        // Nobody listens any more when that fails.
        let _ = arrive.send(Arrival::Closed(address));
    });
    Ok(())
}

fn write(mut to: impl Write, datagram: &[u8]) -> io::Result<()> {
    let length = u16::try_from(datagram.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&[&length.to_be_bytes(), datagram].concat())
}

/// The next datagram. Its length comes from a stranger: one that no datagram has is an error.
fn read(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    from.read_exact(&mut length)?;
    let length = usize::from(u16::from_be_bytes(length));
    if length > DATAGRAM_FOUND_MAX_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut datagram = vec![0; length];
    from.read_exact(&mut datagram)?;
    Ok(datagram)
}

/// The server's side: answers every message with itself, until it is told to stop.
fn serve(listener: TcpListener, should_stop: impl Fn() -> bool) -> Result<(), Box<dyn Error>> {
    let keys = ServerKeyPair::from_secret(Secret::new(SERVER_SECRET));
    // A server that is to know its clients after a restart keeps the second secret, the persistent one, in a file.
    let server = ServerConfig::new(keys, secret()?, secret()?);
    let endpoint = Endpoint::server(Config::default(), server, Alone::default(), secret()?)?;
    let (arrive, arrivals) = sync_channel(QUEUE);
    let mut shell = Shell::new(endpoint, arrivals);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A stream that broke at once is not the end of the server.
            let _ = stream.map_err(Into::into).and_then(|stream| attach(stream, &arrive));
        }
    });
    while !should_stop() {
        shell.turn(IDLE, |endpoint, now, event| match event {
            Event::Connected { address, .. } => println!("{address} is here"),
            Event::Message { peer, channel, bytes } => {
                let bytes = bytes.to_vec().into();
                // A client that does not take its answers gets fewer of them.
                let _ = endpoint.send(now, peer, channel, bytes, SendOptions::reliable_ordered());
            }
            Event::Disconnected { reason, .. } => println!("a client left: {}", reason.name()),
            _ => {}
        });
    }
    Ok(())
}

/// What the client saw.
#[derive(Debug)]
struct Summary {
    /// Messages that came back, in their order.
    answers: u32,
    round_trip: Duration,
    /// Datagrams that this end threw away.
    lost: u64,
    /// Messages that it sent again for that.
    resent: u64,
}

impl Summary {
    fn show(&self) {
        let Self { answers, round_trip, lost, resent } = self;
        println!("{answers} answers in order, {round_trip:?} there and back");
        println!("{lost} datagrams thrown away here, {resent} messages sent again");
    }
}

/// The client's side.
fn talk(server: SocketAddr) -> Result<Summary, Box<dyn Error>> {
    let (arrive, arrivals) = sync_channel(QUEUE);
    let endpoint = Endpoint::client(Config::default(), ClientConfig::default(), secret()?)?;
    let mut shell = Shell::new(endpoint, arrivals);
    let stream = loop {
        match TcpStream::connect(server) {
            Ok(stream) => break stream,
            // It may be starting. Over UDP a client repeats its Hello, and notices nothing.
            Err(_) if shell.start.elapsed() < CONNECT_PATIENCE => shell.turn(IDLE, |_, _, _| {}),
            Err(error) => return Err(error.into()),
        }
    };
    attach(stream, &arrive)?;

    let public_key = *ServerKeyPair::from_secret(Secret::new(SERVER_SECRET)).public();
    let identity = ServerIdentity { public_key, key_id: 0 };
    let peer = shell.endpoint.connect(shell.now(), server, &identity, None)?;
    let (mut said, mut answers, mut next_at) = (0, 0, now());
    let mut failure = None;
    while answers < MESSAGES && failure.is_none() {
        if said < MESSAGES && next_at.elapsed() >= PAUSE {
            let (now, bytes) = (shell.now(), said.to_be_bytes().to_vec().into());
            // Messages said before the connection is there wait for it.
            shell.endpoint.send(now, peer, CHANNEL, bytes, SendOptions::reliable_ordered())?;
            (said, next_at) = (said + 1, next_at + PAUSE);
        }
        shell.turn(PAUSE, |_, _, event| match event {
            Event::Message { bytes, .. } if bytes == answers.to_be_bytes() => answers += 1,
            Event::Message { .. } => failure = Some("an answer came out of its turn".to_owned()),
            Event::ConnectFailed { error, .. } => failure = Some(error.to_string()),
            Event::Disconnected { reason, .. } => failure = Some(reason.name().to_owned()),
            _ => {}
        });
        if shell.start.elapsed() > PATIENCE {
            failure = Some("the server does not answer any more".to_owned());
        }
    }
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let round_trip = shell.endpoint.round_trip(peer).unwrap_or_default();
    hang_up(&mut shell, peer)?;
    let stats = shell.endpoint.stats();
    Ok(Summary { answers, round_trip, lost: shell.lost, resent: stats.messages_resent })
}

/// Says goodbye, and stays until that was said often enough.
fn hang_up(shell: &mut Shell, peer: drumfire_proto::PeerId) -> Result<(), Box<dyn Error>> {
    let close = Close { code: CloseCode::Application, application_code: 0, reason: b"done" };
    let now = shell.now();
    shell.endpoint.close(now, peer, &close)?;
    let (mut is_local, start) = (false, now.monotonic);
    while shell.endpoint.connection_count() > 0 && shell.now().monotonic.since(start) < PATIENCE {
        shell.turn(IDLE, |_, _, event| {
            is_local |= matches!(event, Event::Disconnected { reason: CloseReason::Local { .. }, .. });
        });
    }
    if is_local { Ok(()) } else { Err("the server ended the connection first".into()) }
}

/// Both ends in one process.
fn both() -> Result<Summary, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, is_over) = (listener.local_addr()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let server = scope
            .spawn(|| serve(listener, || is_over.load(Ordering::Acquire)).map_err(|error| error.to_string()));
        let summary = talk(address).map_err(|error| error.to_string());
        is_over.store(true, Ordering::Release);
        server.join().map_err(|_| "the server panicked")??;
        Ok(summary?)
    })
}

fn secret() -> Result<Secret<32>, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(Secret::new(bytes))
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_messages_come_back_in_their_order_though_datagrams_are_lost() {
        let summary = both().expect("a run on the loopback");
        assert_eq!(summary.answers, MESSAGES);
        assert!(summary.lost > 0 && summary.resent > 0, "{summary:?}");
    }

    #[test]
    fn datagrams_come_back_from_a_stream_and_lengths_that_none_has_do_not() {
        let mut stream = Vec::new();
        for datagram in [&b"one"[..], b"", &[7; DATAGRAM_FOUND_MAX_BYTES]] {
            write(&mut stream, datagram).expect("memory");
        }
        let mut rest = stream.as_slice();
        assert_eq!(read(&mut rest).expect("the first"), b"one");
        assert_eq!(read(&mut rest).expect("the second"), b"");
        assert_eq!(read(&mut rest).expect("the third"), [7; DATAGRAM_FOUND_MAX_BYTES]);
        assert!(read(&mut rest).is_err(), "it is over");
        assert!(read(&[0xff; 70_000][..]).is_err(), "too long");
        assert!(read(&[0, 3, 1, 2][..]).is_err(), "cut");
    }

    #[test]
    fn a_server_of_something_else_is_told_apart() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let nonsense = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a stream");
            stream.write_all(b"SSH-2.0-something\r\n").expect("room");
            // It reads until the client has given up.
            drop(io::copy(&mut stream, &mut io::sink()));
        });
        let why = talk(address).expect_err("no server").to_string();
        assert!(why.contains("did not answer"), "{why}");
        nonsense.join().expect("no panic");
    }
}
