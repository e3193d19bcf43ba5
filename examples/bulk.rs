//! A download of many megabytes during the game. The client sends 60 inputs per second, the server echoes them, and the
//! client prints the progress of the download with the round-trip time of the inputs.
//!
//! ```text
//! cargo run --release --example bulk -- server 0.0.0.0:7781 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 64
//! cargo run --release --example bulk -- client 127.0.0.1:7781 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! The last argument of the server is the size of the asset in MiB. On two hosts, replace 127.0.0.1 by the server's
//! address. The secret key above is public, so use it only for tests; `drumfire keygen` generates a new one. Without
//! arguments, the server and the client run in one process. The client does not store the asset: a game would write the
//! chunks to a file.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drumfire::transfer::{Download, Upload};
use drumfire::{
    Access, Bytes, ChannelId, Client, ClientConfig, Event, Message, PeerId, Priority, Server, ServerConfig,
    ServerKey, ServerPublicKey, Workers,
};

/// Carries the checksum of the asset, before its first chunk.
const MANIFEST: ChannelId = ChannelId(0);
const ASSET: ChannelId = ChannelId(1);
const INPUTS: ChannelId = ChannelId(2);

const INPUT_PERIOD: Duration = Duration::from_nanos(1_000_000_000 / 60);
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);
/// The longest wait of the server for an event during an upload. A short wait means that the connections always have chunks
/// to send.
const UPLOAD_WAIT: Duration = Duration::from_millis(1);
const IDLE_WAIT: Duration = Duration::from_millis(100);
/// The client rejects larger assets.
const ASSET_MAX_BYTES: u64 = 1 << 30;
const MIB: usize = 1 << 20;
/// The size of the asset in MiB when both ends run in one process.
const RUN_BOTH_MIB: usize = 32;

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
        ["server", address, secret, mebibytes] => {
            let mut server =
                AssetServer::bind(address.parse()?, secret.parse()?, asset(mebibytes.parse()?)?)?;
            println!("serving {} bytes on {}", server.asset.len(), server.inner.local_addr());
            server.run(|| false);
        }
        ["client", server, key] => download(server.parse()?, key.parse()?)?.print(),
        [] => run_both(RUN_BOTH_MIB)?.print(),
        _ => {
            let usage =
                "usage: no arguments, `server ADDRESS SECRET_KEY MIB`, or `client ADDRESS PUBLIC_KEY`";
            return Err(usage.into());
        }
    }
    Ok(())
}

/// Returns an asset without repetition, so that misplaced chunks change the checksum.
fn asset(mebibytes: usize) -> Result<Bytes, Box<dyn Error>> {
    let bytes = mebibytes.checked_mul(MIB).filter(|bytes| (1..=ASSET_MAX_BYTES).contains(&(*bytes as u64)));
    let bytes = bytes.ok_or("the size must be from 1 to 1024 MiB")?;
    let numbers = (0..bytes as u64 / 8).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Ok(numbers.flat_map(u64::to_be_bytes).collect::<Vec<_>>().into())
}

/// An FNV-1a checksum with 64 bits. It finds mistakes in the application; the connection itself detects changed
/// packets.
#[derive(Clone, Copy)]
struct Checksum(u64);

impl Checksum {
    const START: Self = Self(0xcbf2_9ce4_8422_2325);

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// A server that sends the asset to each client.
struct AssetServer {
    inner: Server,
    asset: Bytes,
    checksum: Checksum,
    uploads: BTreeMap<PeerId, Upload>,
}

impl AssetServer {
    fn bind(address: SocketAddr, key: ServerKey, asset: Bytes) -> Result<Self, Box<dyn Error>> {
        let config = ServerConfig::new(address, key, Access::Open).workers(Workers::Auto);
        let mut checksum = Checksum::START;
        checksum.add(&asset);
        Ok(Self { inner: Server::bind(config)?, asset, checksum, uploads: BTreeMap::new() })
    }

    fn run(&mut self, should_stop: impl Fn() -> bool) {
        while !should_stop() {
            self.inner.poll(if self.uploads.is_empty() { IDLE_WAIT } else { UPLOAD_WAIT });
            while let Some(event) = self.inner.next_event() {
                self.on_event(event);
            }
            let server = &mut self.inner;
            self.uploads.retain(|peer, upload| {
                let step = upload.step(|message| server.send(*peer, message));
                // A step fails only if the connection ended. A `Disconnected` event follows.
                step.is_ok_and(|progress| !progress.is_over())
            });
            self.inner.flush();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { peer, info } => {
                println!("{} connected", info.address);
                let manifest = self.checksum.0.to_be_bytes().to_vec();
                // This is the first message to the peer, so there is room for it.
                let _ = self.inner.send(peer, Message::reliable_ordered(MANIFEST, manifest));
                // All uploads share the bytes of the asset.
                self.uploads.insert(peer, Upload::new(ASSET, self.asset.clone()));
            }
            Event::Message { peer, channel: INPUTS, payload } => {
                // A game would move a player here. The urgent priority puts the echo before waiting chunks.
                let echo = Message::unreliable(INPUTS, payload).priority(Priority::Urgent);
                let _ = self.inner.send(peer, echo);
            }
            Event::Disconnected { peer, .. } => {
                self.uploads.remove(&peer);
            }
            _ => {}
        }
    }
}

/// The result of a download.
#[derive(Debug)]
struct Summary {
    bytes: u64,
    time: Duration,
    /// The sorted round-trip times of the echoed inputs.
    round_trips: Vec<Duration>,
    inputs: u64,
}

impl Summary {
    fn print(&self) {
        let [median, p98, maximum] = [50, 98, 100].map(|percent| percentile(&self.round_trips, percent));
        println!(
            "{} bytes in {:.2} s, {:.1} MiB/s, checksum correct",
            self.bytes,
            self.time.as_secs_f64(),
            mebibytes_per_second(self.bytes, self.time)
        );
        println!(
            "{} of {} inputs echoed, round trip median {median:?}, 98 % {p98:?}, maximum {maximum:?}",
            self.round_trips.len(),
            self.inputs
        );
    }
}

/// A client that downloads the asset and sends inputs.
struct DownloadClient {
    inner: Client,
    peer: PeerId,
    download: Download,
    checksum: Checksum,
    expected_checksum: Option<u64>,
    start: Instant,
    inputs: u64,
    round_trips: Vec<Duration>,
}

/// Downloads the asset from a server.
fn download(server: SocketAddr, key: ServerPublicKey) -> Result<Summary, Box<dyn Error>> {
    let start = now();
    let mut inner = Client::new(ClientConfig::default())?;
    let peer = inner.connect((server, key))?;
    let mut client = DownloadClient {
        inner,
        peer,
        download: Download::new(ASSET_MAX_BYTES),
        checksum: Checksum::START,
        expected_checksum: None,
        start,
        inputs: 0,
        round_trips: Vec::new(),
    };
    let (mut next_input, mut next_line) = (start, start + PROGRESS_PERIOD);
    while !client.download.progress().is_over() {
        client.inner.poll(next_input.saturating_duration_since(now()));
        while let Some(event) = client.inner.next_event() {
            client.on_event(event)?;
        }
        if now() >= next_input {
            client.send_input();
            next_input += INPUT_PERIOD;
        }
        if now() >= next_line {
            client.print_progress();
            next_line += PROGRESS_PERIOD;
        }
    }
    client.finish()
}

impl DownloadClient {
    fn on_event(&mut self, event: Event) -> Result<(), Box<dyn Error>> {
        match event {
            // The measured time does not include the handshake.
            Event::Connected { .. } => self.start = now(),
            Event::Message { channel: ASSET, payload, .. } => {
                self.checksum.add(self.download.take(&payload)?.bytes);
            }
            Event::Message { channel: MANIFEST, payload, .. } => {
                self.expected_checksum = Some(u64::from_be_bytes(payload.as_ref().try_into()?));
            }
            Event::Message { channel: INPUTS, payload, .. } => {
                let sent = Duration::from_nanos(u64::from_be_bytes(payload.as_ref().try_into()?));
                self.round_trips.push(self.elapsed().saturating_sub(sent));
            }
            Event::ConnectFailed { error, .. } => return Err(error.into()),
            Event::Disconnected { closed, .. } => return Err(closed.reason.name().into()),
            _ => {}
        }
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        now() - self.start
    }

    /// Sends an input that contains the current time. It is unreliable, because the next input replaces a lost one.
    fn send_input(&mut self) {
        if self.expected_checksum.is_none() {
            return;
        }
        let sent = u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let input = Message::unreliable(INPUTS, sent.to_be_bytes().to_vec()).priority(Priority::Urgent);
        if self.inner.send(self.peer, input).is_ok() {
            self.inputs += 1;
        }
        self.inner.flush();
    }

    fn print_progress(&self) {
        let progress = self.download.progress();
        if progress.total_bytes == 0 {
            return;
        }
        println!(
            "{:3} %, {:.1} MiB/s, last round trip {:?}",
            progress.done_bytes * 100 / progress.total_bytes,
            mebibytes_per_second(progress.done_bytes, self.elapsed()),
            self.round_trips.last().copied().unwrap_or_default()
        );
    }

    fn finish(mut self) -> Result<Summary, Box<dyn Error>> {
        let time = self.elapsed();
        if self.expected_checksum != Some(self.checksum.0) {
            return Err("the asset has a wrong checksum".into());
        }
        self.inner.close(self.peer, 0, "done");
        self.inner.flush();
        self.round_trips.sort_unstable();
        let bytes = self.download.progress().done_bytes;
        Ok(Summary { bytes, time, round_trips: self.round_trips, inputs: self.inputs })
    }
}

fn mebibytes_per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / MIB as f64 / time.as_secs_f64().max(f64::EPSILON)
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or_default()
}

/// Runs the server and the client in one process.
fn run_both(mebibytes: usize) -> Result<Summary, Box<dyn Error>> {
    let mut server = AssetServer::bind("127.0.0.1:0".parse()?, ServerKey::dev(), asset(mebibytes)?)?;
    let (address, should_stop) = (server.inner.local_addr(), AtomicBool::new(false));
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| server.run(|| should_stop.load(Ordering::Acquire)));
        let summary = download(address, ServerKey::dev().public()).map_err(|error| error.to_string());
        should_stop.store(true, Ordering::Release);
        summary
    });
    Ok(summary?)
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_asset_arrives_while_inputs_are_echoed() {
        let summary = run_both(16).expect("summary");
        assert_eq!(summary.bytes, 16 << 20);
        assert!(!summary.round_trips.is_empty(), "{summary:?}");
    }

    #[test]
    fn a_checksum_depends_on_each_byte_and_the_order() {
        let sum = |bytes: &[u8]| {
            let mut sum = Checksum::START;
            sum.add(bytes);
            sum.0
        };
        // The test vector of the FNV specification.
        assert_eq!(sum(b"foobar"), 0x85944171f73967e8);
        assert_ne!(sum(&[1, 2]), sum(&[2, 1]));
    }

    #[test]
    fn an_asset_has_the_requested_size() {
        assert_eq!(asset(2).expect("asset").len(), 2 << 20);
        assert!(asset(0).is_err() && asset(1_025).is_err() && asset(usize::MAX).is_err());
    }
}
