//! The protocol core over TCP instead of UDP, as a fallback for networks that block UDP. Streams carry datagrams, each
//! after its length. The example uses only `drumfire-proto`, the standard library, and a source of randomness.
//!
//! ```text
//! cargo run --release --example custom_transport -- server 0.0.0.0:7783
//! cargo run --release --example custom_transport -- client 127.0.0.1:7783
//! ```
//!
//! On two hosts, replace 127.0.0.1 by the server's address. Without arguments, the server and the client run in one
//! process. Both ends drop every tenth datagram, so that the core has losses to repair.
//!
//! [`Driver`] shows the loop around the core: it passes in datagrams and the time, and takes out datagrams, events, and
//! the next timeout. It supports no tokens, and identifies a client by the address of its stream.
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
    ChannelId, ClientConfig, Close, CloseCode, CloseReason, Config, Endpoint, Event, EventBatch, Inbound,
    Message, Moment, Now, Secret, ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker,
};

/// The server's secret key. A real server keeps it secret, and its clients have only the public key.
const SERVER_SECRET: [u8; 32] = *b"known to all who read this file!";
const CHANNEL: ChannelId = ChannelId(0);
const MESSAGES: u32 = 300;
/// The client's pause between two messages.
const PAUSE: Duration = Duration::from_millis(5);
/// The longest wait of the server.
const IDLE_WAIT: Duration = Duration::from_millis(100);
const RUN_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Every n-th datagram of a stream is dropped.
const DROP_INTERVAL: u64 = 10;
/// The maximum number of streams of a server.
const STREAMS_MAX: usize = 64;
/// The capacity of the queues to a stream and to the core. A datagram that does not fit the queue to a stream is lost.
const QUEUE_CAPACITY: usize = 256;

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
        ["client", server] => exchange(server.parse()?)?.print(),
        [] => run_both()?.print(),
        _ => return Err("usage: no arguments, `server ADDRESS`, or `client ADDRESS`".into()),
    }
    Ok(())
}

/// Reports of the threads that read streams.
enum StreamEvent {
    Opened(SocketAddr, SyncSender<Vec<u8>>),
    Datagram(SocketAddr, Vec<u8>),
    Closed(SocketAddr),
}

/// The sending side of a stream.
struct StreamSender {
    datagrams: SyncSender<Vec<u8>>,
    sent_count: u64,
}

/// An endpoint and its transport. One thread drives it.
struct Driver {
    endpoint: Endpoint,
    start: Instant,
    stream_events: Receiver<StreamEvent>,
    streams: HashMap<SocketAddr, StreamSender>,
    events: EventBatch,
    /// The number of datagrams that were dropped on purpose or for lack of room.
    dropped_count: u64,
}

impl Driver {
    fn new(endpoint: Endpoint, stream_events: Receiver<StreamEvent>) -> Self {
        let (streams, events) = (HashMap::new(), EventBatch::default());
        Self { endpoint, start: now(), stream_events, streams, events, dropped_count: 0 }
    }

    /// Returns the current time. The wall clock is needed only to check the expiry of tokens.
    fn now(&self) -> Now {
        let passed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { monotonic: Moment::from_nanos(passed), wall: Duration::ZERO }
    }

    /// Handles at most one input, after waiting up to `timeout` for it, and then all outputs.
    fn drive(&mut self, timeout: Duration, mut on_event: impl FnMut(&mut Endpoint, Now, Event<'_>)) {
        // Sends messages that the application queued since the last call.
        self.transmit();
        let now = self.now().monotonic;
        let wait = self.endpoint.poll_timeout().map_or(timeout, |due| due.since(now)).min(timeout);
        let stream_event = self.stream_events.recv_timeout(wait);
        let now = self.now();
        match stream_event {
            Ok(StreamEvent::Datagram(from, mut bytes)) => {
                self.endpoint.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut bytes }]);
            }
            Ok(StreamEvent::Opened(address, datagrams)) if self.streams.len() < STREAMS_MAX => {
                self.streams.insert(address, StreamSender { datagrams, sent_count: 0 });
            }
            // The end of a stream does not end its connection: a close or the idle timeout does.
            Ok(StreamEvent::Closed(address)) => drop(self.streams.remove(&address)),
            Ok(StreamEvent::Opened(..)) | Err(_) => {}
        }
        // Timers run after each datagram too, because under load there is always another datagram.
        self.endpoint.handle_timeout(now);
        self.endpoint.take_events(&mut self.events);
        while let Some(event) = self.events.pop() {
            if let Some((peer, bytes)) = event.held() {
                self.endpoint.release(peer, bytes);
            }
            on_event(&mut self.endpoint, now, event);
        }
        self.transmit();
    }

    fn transmit(&mut self) {
        let (now, mut memory) = (self.now(), [0; DATAGRAM_SENT_MAX_BYTES]);
        while let Some(sent) = self.endpoint.poll_transmit(now, &mut memory) {
            let Some(stream) = self.streams.get_mut(&sent.to.peer) else { continue };
            let datagram = memory.get(..sent.bytes).unwrap_or_default().to_vec();
            stream.sent_count += 1;
            // `try_send` never blocks, so a slow stream does not delay the others.
            if stream.sent_count % DROP_INTERVAL == 0 || stream.datagrams.try_send(datagram).is_err() {
                self.dropped_count += 1;
            }
        }
    }
}

/// Starts the two threads of a stream. They end with the stream, or when the driver drops its end of the channels.
fn start_stream(stream: TcpStream, events: &SyncSender<StreamEvent>) -> Result<(), Box<dyn Error>> {
    // Nagle's algorithm would delay small datagrams.
    stream.set_nodelay(true)?;
    let (address, write_half) = (stream.peer_addr()?, stream.try_clone()?);
    let (sender, datagrams) = sync_channel(QUEUE_CAPACITY);
    events.send(StreamEvent::Opened(address, sender))?;
    std::thread::spawn(move || {
        // An error means that the stream ended. The reading thread reports it.
        let _ = datagrams.iter().try_for_each(|datagram| write_datagram(&write_half, &datagram));
        let _ = write_half.shutdown(Shutdown::Both);
    });
    let events = events.clone();
    std::thread::spawn(move || {
        while let Ok(datagram) = read_datagram(&stream) {
            if events.send(StreamEvent::Datagram(address, datagram)).is_err() {
                return;
            }
        }
        // Fails only after the driver was dropped.
        let _ = events.send(StreamEvent::Closed(address));
    });
    Ok(())
}

fn write_datagram(mut to: impl Write, datagram: &[u8]) -> io::Result<()> {
    let length = u16::try_from(datagram.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    to.write_all(&[&length.to_be_bytes(), datagram].concat())
}

/// Reads the next datagram. The length is untrusted, so a length that no datagram has is an error.
fn read_datagram(mut from: impl Read) -> io::Result<Vec<u8>> {
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

/// Runs a server that echoes messages until `should_stop` returns true.
fn serve(listener: TcpListener, should_stop: impl Fn() -> bool) -> Result<(), Box<dyn Error>> {
    let keys = ServerKeyPair::from_secret(Secret::new(SERVER_SECRET));
    // To recognize its clients after a restart, a server would keep the second (persistent) secret in a file.
    let server = ServerConfig::new(keys, secret()?, secret()?);
    let endpoint = Endpoint::server(Config::default(), server, SingleWorker::default(), secret()?)?;
    let (sender, stream_events) = sync_channel(QUEUE_CAPACITY);
    let mut driver = Driver::new(endpoint, stream_events);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // An error concerns only this stream.
            let _ = stream.map_err(Into::into).and_then(|stream| start_stream(stream, &sender));
        }
    });
    while !should_stop() {
        driver.drive(IDLE_WAIT, |endpoint, now, event| match event {
            Event::Connected { address, .. } => println!("{address} connected"),
            Event::Message { peer, channel, payload } => {
                let echo = Message::reliable_ordered(channel, payload.to_vec());
                // A client that does not read its echoes receives fewer of them.
                let _ = endpoint.send(now, peer, echo);
            }
            Event::Disconnected { reason, .. } => println!("a client disconnected: {}", reason.name()),
            _ => {}
        });
    }
    Ok(())
}

/// The result of the client.
#[derive(Debug)]
struct Summary {
    /// Messages that were echoed in order.
    echoes: u32,
    round_trip: Duration,
    /// Datagrams that the client dropped.
    dropped_count: u64,
    /// Messages that the client resent.
    resent_count: u64,
}

impl Summary {
    fn print(&self) {
        let Self { echoes, round_trip, dropped_count, resent_count } = self;
        println!("{echoes} echoes in order, round trip {round_trip:?}");
        println!("{dropped_count} datagrams dropped by the client, {resent_count} messages resent");
    }
}

/// Runs a client that sends messages and checks their echoes.
fn exchange(server: SocketAddr) -> Result<Summary, Box<dyn Error>> {
    let (sender, stream_events) = sync_channel(QUEUE_CAPACITY);
    let endpoint = Endpoint::client(Config::default(), ClientConfig::default(), secret()?)?;
    let mut driver = Driver::new(endpoint, stream_events);
    let stream = loop {
        match TcpStream::connect(server) {
            Ok(stream) => break stream,
            // The server may still start. Over UDP, the client repeats its Hello instead.
            Err(_) if driver.start.elapsed() < CONNECT_TIMEOUT => driver.drive(IDLE_WAIT, |_, _, _| {}),
            Err(error) => return Err(error.into()),
        }
    };
    start_stream(stream, &sender)?;

    let public_key = *ServerKeyPair::from_secret(Secret::new(SERVER_SECRET)).public();
    let identity = ServerIdentity { public_key, key_id: 0 };
    let peer = driver.endpoint.connect(driver.now(), server, &identity, None)?;
    let (mut sent, mut echoes, mut next_send) = (0, 0, now());
    let mut failure = None;
    while echoes < MESSAGES && failure.is_none() {
        if sent < MESSAGES && next_send.elapsed() >= PAUSE {
            let (now, bytes) = (driver.now(), sent.to_be_bytes().to_vec());
            // Messages wait until the connection is open.
            driver.endpoint.send(now, peer, Message::reliable_ordered(CHANNEL, bytes))?;
            (sent, next_send) = (sent + 1, next_send + PAUSE);
        }
        driver.drive(PAUSE, |_, _, event| match event {
            Event::Message { payload, .. } if payload == echoes.to_be_bytes() => echoes += 1,
            Event::Message { .. } => failure = Some("the echoes are out of order".to_owned()),
            Event::ConnectFailed { error, .. } => failure = Some(error.to_string()),
            Event::Disconnected { reason, .. } => failure = Some(reason.name().to_owned()),
            _ => {}
        });
        if driver.start.elapsed() > RUN_TIMEOUT {
            failure = Some("the server stopped echoing".to_owned());
        }
    }
    if let Some(failure) = failure {
        return Err(failure.into());
    }
    let round_trip = driver.endpoint.round_trip(peer).unwrap_or_default();
    close(&mut driver, peer)?;
    let resent_count = driver.endpoint.stats().messages_resent;
    Ok(Summary { echoes, round_trip, dropped_count: driver.dropped_count, resent_count })
}

/// Closes the connection, and drives the endpoint until it sent its last close packet.
fn close(driver: &mut Driver, peer: drumfire_proto::PeerId) -> Result<(), Box<dyn Error>> {
    let close = Close { code: CloseCode::Application, application_code: 0, reason: b"done" };
    let now = driver.now();
    driver.endpoint.close(now, peer, &close)?;
    let (mut is_local, start) = (false, now.monotonic);
    while driver.endpoint.connection_count() > 0 && driver.now().monotonic.since(start) < RUN_TIMEOUT {
        driver.drive(IDLE_WAIT, |_, _, event| {
            is_local |= matches!(event, Event::Disconnected { reason: CloseReason::Local { .. }, .. });
        });
    }
    if is_local { Ok(()) } else { Err("the server closed the connection first".into()) }
}

/// Runs the server and the client in one process.
fn run_both() -> Result<Summary, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, should_stop) = (listener.local_addr()?, AtomicBool::new(false));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            serve(listener, || should_stop.load(Ordering::Acquire)).map_err(|error| error.to_string())
        });
        let summary = exchange(address).map_err(|error| error.to_string());
        should_stop.store(true, Ordering::Release);
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
    fn all_messages_are_echoed_in_order_despite_losses() {
        let summary = run_both().expect("summary");
        assert_eq!(summary.echoes, MESSAGES);
        assert!(summary.dropped_count > 0 && summary.resent_count > 0, "{summary:?}");
    }

    #[test]
    fn a_stream_carries_datagrams_of_valid_lengths() {
        let mut stream = Vec::new();
        for datagram in [&b"one"[..], b"", &[7; DATAGRAM_FOUND_MAX_BYTES]] {
            write_datagram(&mut stream, datagram).expect("write");
        }
        let mut rest = stream.as_slice();
        assert_eq!(read_datagram(&mut rest).expect("first"), b"one");
        assert_eq!(read_datagram(&mut rest).expect("second"), b"");
        assert_eq!(read_datagram(&mut rest).expect("third"), [7; DATAGRAM_FOUND_MAX_BYTES]);
        assert!(read_datagram(&mut rest).is_err(), "the stream is at its end");
        assert!(read_datagram(&[0xff; 70_000][..]).is_err(), "the datagram is too long");
        assert!(read_datagram(&[0, 3, 1, 2][..]).is_err(), "the datagram is incomplete");
    }

    #[test]
    fn a_client_of_another_protocol_s_server_times_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listener");
        let address = listener.local_addr().expect("address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("stream");
            stream.write_all(b"SSH-2.0-something\r\n").expect("write");
            // Reads until the client gives up.
            drop(io::copy(&mut stream, &mut io::sink()));
        });
        let error = exchange(address).expect_err("the server speaks another protocol").to_string();
        assert!(error.contains("did not answer"), "{error}");
        server.join().expect("no panic");
    }
}
