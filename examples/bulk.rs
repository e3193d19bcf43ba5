//! An asset of many megabytes goes from the server to the client while the game goes on: 60 inputs per second go the other way
//! and are answered, and how long that takes is shown beside the progress.
//!
//! ```text
//! cargo run --release --example bulk -- server 0.0.0.0:7781 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 64
//! cargo run --release --example bulk -- client 127.0.0.1:7781 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw
//! ```
//!
//! 64 is the asset's length in MiB. Between two hosts put the server's address in place of 127.0.0.1. The secret key above
//! stands in this file for everybody to read: draw your own with `drumfire keygen`. Without arguments both ends run in one
//! process. Nothing is written to a disk: a game would do that where this one counts bytes.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drumfire::transfer::{Download, Upload};
use drumfire::{
    Access, Bytes, ChannelId, Client, ClientConfig, ClientEvent, Event, PeerId, Priority, SendOptions,
    Server, ServerConfig, ServerKey, ServerPublicKey, Workers,
};

/// What the asset must come to, before its first piece.
const MANIFEST: ChannelId = ChannelId(0);
const ASSET: ChannelId = ChannelId(1);
const INPUTS: ChannelId = ChannelId(2);

const INPUT_PERIOD: Duration = Duration::from_nanos(1_000_000_000 / 60);
const PROGRESS_PERIOD: Duration = Duration::from_millis(500);
/// Between two looks whether connections take more of an asset; with nothing to send the server waits longer.
const UPLOAD_WAIT: Duration = Duration::from_millis(1);
const IDLE_WAIT: Duration = Duration::from_millis(100);
/// The client takes nothing longer than this.
const ASSET_MAX_BYTES: u64 = 1 << 30;
const MIB: usize = 1 << 20;
/// Of a run without arguments, in MiB.
const SHOW_MIB: usize = 32;

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
            let mut store = Store::bind(address.parse()?, secret.parse()?, asset(mebibytes.parse()?)?)?;
            println!("{} bytes of asset on {}", store.asset.len(), store.server.local_addr());
            store.serve(|| false);
        }
        ["client", server, key] => fetch(server.parse()?, key.parse()?)?.show(),
        [] => show(SHOW_MIB)?.show(),
        _ => {
            let usage = "say nothing, `server ADDRESS SECRET_KEY MIB` or `client ADDRESS PUBLIC_KEY`";
            return Err(usage.into());
        }
    }
    Ok(())
}

/// Something to send, of which no part is like another.
fn asset(mebibytes: usize) -> Result<Bytes, Box<dyn Error>> {
    let bytes = mebibytes.checked_mul(MIB).filter(|bytes| (1..=ASSET_MAX_BYTES).contains(&(*bytes as u64)));
    let bytes = bytes.ok_or("an asset has 1 to 1024 MiB")?;
    let numbers = (0..bytes as u64 / 8).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Ok(numbers.flat_map(u64::to_be_bytes).collect::<Vec<_>>().into())
}

/// A sum over all bytes and their order (FNV-1a, with 64 bits): it finds mistakes of the application. That nobody has changed
/// anything on the way is the connection's promise.
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

/// The server's side: the asset, and who is getting it.
struct Store {
    server: Server,
    asset: Bytes,
    checksum: Checksum,
    uploads: BTreeMap<PeerId, Upload>,
}

impl Store {
    fn bind(address: SocketAddr, key: ServerKey, asset: Bytes) -> Result<Self, Box<dyn Error>> {
        let config = ServerConfig::new(address, key, Access::Open).workers(Workers::Auto);
        let mut checksum = Checksum::START;
        checksum.add(&asset);
        Ok(Self { server: Server::bind(config)?, asset, checksum, uploads: BTreeMap::new() })
    }

    fn serve(&mut self, should_stop: impl Fn() -> bool) {
        while !should_stop() {
            // No event tells that a connection has room again, so it is looked at often while there is more to send.
            self.server.wait(if self.uploads.is_empty() { IDLE_WAIT } else { UPLOAD_WAIT });
            for event in self.server.poll() {
                self.hear(event);
            }
            let server = &mut self.server;
            self.uploads.retain(|peer, upload| {
                let step = upload.step(|channel, bytes, options| server.send(*peer, channel, bytes, options));
                // An error is that the peer is leaving, which an event tells too.
                step.is_ok_and(|progress| !progress.is_over())
            });
            self.server.flush();
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Connected { peer, address, .. } => {
                println!("{address} is getting the asset");
                let manifest = self.checksum.0.to_be_bytes().to_vec();
                // Nothing was sent to this peer before, so there is room.
                let _ = self.server.send(peer, MANIFEST, manifest, SendOptions::reliable_ordered());
                // The bytes are shared by all who are getting them.
                self.uploads.insert(peer, Upload::new(ASSET, self.asset.clone()));
            }
            Event::Message { peer, channel: INPUTS, bytes } => {
                // The game would move somebody here. The answer goes before all that waits of the asset.
                let options = SendOptions::unreliable().priority(Priority::Urgent);
                let _ = self.server.send(peer, INPUTS, bytes, options);
            }
            Event::Disconnected { peer, .. } => {
                self.uploads.remove(&peer);
            }
            _ => {}
        }
    }
}

/// What the client saw.
#[derive(Debug)]
struct Summary {
    bytes: u64,
    time: Duration,
    /// Of each input that was answered, sorted.
    round_trips: Vec<Duration>,
    inputs: u64,
}

impl Summary {
    fn show(&self) {
        let [half, most, slowest] = [50, 98, 100].map(|percent| percentile(&self.round_trips, percent));
        println!(
            "{} bytes in {:.2} s, {:.1} MiB/s, checksum good",
            self.bytes,
            self.time.as_secs_f64(),
            mebibytes_per_second(self.bytes, self.time)
        );
        println!(
            "{} of {} inputs answered: {half:?} at half of them, {most:?} at 98 %, {slowest:?} at most",
            self.round_trips.len(),
            self.inputs
        );
    }
}

/// What the client is doing.
struct Fetch {
    client: Client,
    download: Download,
    checksum: Checksum,
    /// What the checksum must be.
    wanted: Option<u64>,
    start: Instant,
    inputs: u64,
    round_trips: Vec<Duration>,
}

/// The client's side: takes the asset, and plays meanwhile.
fn fetch(server: SocketAddr, key: ServerPublicKey) -> Result<Summary, Box<dyn Error>> {
    let client = Client::connect(server, key, &ClientConfig::default())?;
    let start = now();
    let (download, checksum) = (Download::new(ASSET_MAX_BYTES), Checksum::START);
    let mut fetch =
        Fetch { client, download, checksum, wanted: None, start, inputs: 0, round_trips: Vec::new() };
    let (mut next_input, mut next_line) = (start, start + PROGRESS_PERIOD);
    while !fetch.download.progress().is_over() {
        fetch.client.wait(next_input.saturating_duration_since(now()));
        for event in fetch.client.poll() {
            fetch.hear(event)?;
        }
        if now() >= next_input {
            fetch.send_input();
            next_input += INPUT_PERIOD;
        }
        if now() >= next_line {
            fetch.show_progress();
            next_line += PROGRESS_PERIOD;
        }
    }
    fetch.finish()
}

impl Fetch {
    fn hear(&mut self, event: ClientEvent) -> Result<(), Box<dyn Error>> {
        match event {
            // Handshake aside: what is measured is the transfer.
            ClientEvent::Connected => self.start = now(),
            ClientEvent::Message { channel: ASSET, bytes } => {
                self.checksum.add(self.download.take(&bytes)?.bytes);
            }
            ClientEvent::Message { channel: MANIFEST, bytes } => {
                self.wanted = Some(u64::from_be_bytes(bytes.as_ref().try_into()?));
            }
            ClientEvent::Message { channel: INPUTS, bytes } => {
                let sent = Duration::from_nanos(u64::from_be_bytes(bytes.as_ref().try_into()?));
                self.round_trips.push(self.elapsed().saturating_sub(sent));
            }
            ClientEvent::ConnectFailed { error } => return Err(error.into()),
            ClientEvent::Disconnected { reason, .. } => return Err(reason.name().into()),
            _ => {}
        }
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        now() - self.start
    }

    /// An input that says when it was sent. One that is lost is not sent again: the next is on its way.
    fn send_input(&mut self) {
        if self.wanted.is_none() {
            return;
        }
        let sent = u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let options = SendOptions::unreliable().priority(Priority::Urgent);
        if self.client.send(INPUTS, sent.to_be_bytes().to_vec(), options).is_ok() {
            self.inputs += 1;
        }
        self.client.flush();
    }

    fn show_progress(&self) {
        let progress = self.download.progress();
        if progress.total_bytes == 0 {
            return;
        }
        println!(
            "{:3} %, {:.1} MiB/s, last input answered after {:?}",
            progress.done_bytes * 100 / progress.total_bytes,
            mebibytes_per_second(progress.done_bytes, self.elapsed()),
            self.round_trips.last().copied().unwrap_or_default()
        );
    }

    fn finish(mut self) -> Result<Summary, Box<dyn Error>> {
        let time = self.elapsed();
        if self.wanted != Some(self.checksum.0) {
            return Err("the checksum of the asset is wrong".into());
        }
        self.client.close(0, "thank you")?;
        self.client.flush();
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

/// Both ends in one process.
fn show(mebibytes: usize) -> Result<Summary, Box<dyn Error>> {
    let mut store = Store::bind("127.0.0.1:0".parse()?, ServerKey::dev(), asset(mebibytes)?)?;
    let (address, is_over) = (store.server.local_addr(), AtomicBool::new(false));
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| store.serve(|| is_over.load(Ordering::Acquire)));
        let summary = fetch(address, ServerKey::dev().public()).map_err(|error| error.to_string());
        is_over.store(true, Ordering::Release);
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
    fn all_of_the_asset_comes_and_inputs_are_answered_meanwhile() {
        let summary = show(16).expect("a run on the loopback");
        assert_eq!(summary.bytes, 16 << 20);
        assert!(!summary.round_trips.is_empty(), "{summary:?}");
    }

    #[test]
    fn a_checksum_knows_each_byte_and_their_order() {
        let sum = |bytes: &[u8]| {
            let mut sum = Checksum::START;
            sum.add(bytes);
            sum.0
        };
        // The published test vector.
        assert_eq!(sum(b"foobar"), 0x85944171f73967e8);
        assert_ne!(sum(&[1, 2]), sum(&[2, 1]));
    }

    #[test]
    fn an_asset_is_as_long_as_it_was_asked_to_be() {
        assert_eq!(asset(2).expect("a length").len(), 2 << 20);
        assert!(asset(0).is_err() && asset(1_025).is_err() && asset(usize::MAX).is_err());
    }
}
