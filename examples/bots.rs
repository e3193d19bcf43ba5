//! Bots that put load on a server over a few sockets. They join at a given rate, send inputs, and measure the echoes.
//!
//! Any server works that has open access or whose tokens the bots have, such as `echo` and `tick_server`.
//!
//! ```text
//! cargo run --release --example bots -- server 0.0.0.0:7782 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 --join-broadcast
//! cargo run --release --example bots -- client 127.0.0.1:7782 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw --join-broadcast --bots 500
//! ```
//!
//! With `--join-broadcast` the server announces each join, and the bots check that they receive every announcement. The
//! program fails if a bot was refused or lost its connection. In open access, a server admits 20 connections per second
//! from another host: use `--ramp 20` or `--token-file`. Without arguments, the server and the bots run in one process.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use clap::Parser;
use drumfire::{
    Access, Audience, Bytes, ChannelId, Client, ClientConfig, ConnectToken, Event, Message, PeerId, Server,
    ServerConfig, ServerKey, ServerPublicKey, Workers,
};

/// The example `echo` replies unreliably on this channel.
const INPUTS: ChannelId = ChannelId(1);
/// Announces joins as numbers, starting at 1.
const JOINS: ChannelId = ChannelId(2);
/// The first bytes of an input. They distinguish an echo from other messages. The send time follows.
const MARK: [u8; 8] = *b"bot says";
const INPUT_BYTES: usize = 32;
/// The period of announcements and of the reports of a socket. Announcements of one period fit a packet.
const REPORT_PERIOD: Duration = Duration::from_millis(200);
const BOT_WAIT: Duration = Duration::from_millis(2);
const LINE_PERIOD: Duration = Duration::from_secs(1);
/// How long after the end of the load all bots may take to receive all announcements.
const JOINS_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of bots per socket whose round-trip time is queried if the server does not echo.
const STATS_SAMPLE: usize = 32;
const ROUND_TRIPS_MAX: usize = 1 << 20;

/// Bots that put load on a server, and an echo server.
#[derive(Parser)]
enum Command {
    /// Run the echo server
    Server {
        /// The address to bind
        address: SocketAddr,
        /// The server's secret key
        secret: String,
        /// Announce each join to all clients
        #[arg(long)]
        join_broadcast: bool,
    },
    /// Run the bots
    Client(Load),
}

#[derive(Parser, Clone)]
struct Load {
    /// The server's address
    #[arg(required_unless_present = "token_file", requires = "key")]
    server: Option<SocketAddr>,
    /// The server's public key
    key: Option<ServerPublicKey>,
    /// Connect with the tokens of this file, one per line and bot, instead of to an address
    #[arg(long, conflicts_with = "server")]
    token_file: Option<PathBuf>,
    /// The number of bots
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bots: u32,
    /// The number of sockets, each with a thread
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    sockets: u32,
    /// Bots that join per second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    ramp: u32,
    /// Inputs per second of each bot; 0 for none
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000))]
    rate: u32,
    /// How long the bots play after all of them joined, in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Check that every bot receives all later joins; needs a server without other clients
    #[arg(long)]
    join_broadcast: bool,
}

fn main() -> ExitCode {
    let outcome = if std::env::args().len() == 1 {
        let config = ServerConfig::new((Ipv4Addr::LOCALHOST, 0).into(), ServerKey::dev(), Access::Open);
        run_both(config.workers(Workers::Auto), &["--join-broadcast", "--seconds", "1"])
    } else {
        match Command::parse() {
            Command::Server { address, secret, join_broadcast } => serve(address, &secret, join_broadcast),
            Command::Client(load) => run(&load),
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(address: SocketAddr, secret: &str, join_broadcast: bool) -> Result<(), Box<dyn Error>> {
    let config = ServerConfig::new(address, secret.parse()?, Access::Open).workers(Workers::Auto);
    let mut server = EchoServer::bind(config, join_broadcast)?;
    println!("waiting for bots on {}", server.inner.local_addr());
    server.run(|| false);
    Ok(())
}

/// The echo server.
struct EchoServer {
    inner: Server,
    join_broadcast: bool,
    connected_count: u32,
    /// The number of joins since the server was empty.
    joined_count: u32,
    /// The number of joins that were announced.
    announced_count: u32,
}

impl EchoServer {
    fn bind(config: ServerConfig, join_broadcast: bool) -> Result<Self, Box<dyn Error>> {
        // Thousands of bots acknowledge a broadcast at the same time.
        let inner = Server::bind(config.receive_buffer_bytes(4 << 20))?;
        Ok(Self { inner, join_broadcast, connected_count: 0, joined_count: 0, announced_count: 0 })
    }

    fn run(&mut self, should_stop: impl Fn() -> bool) {
        let mut next_announcement = now();
        while !should_stop() {
            self.inner.poll(REPORT_PERIOD);
            while let Some(event) = self.inner.next_event() {
                self.on_event(event);
            }
            if now() >= next_announcement {
                next_announcement = now() + REPORT_PERIOD;
                self.announce_joins();
            }
            self.inner.flush();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { .. } => {
                self.connected_count += 1;
                if self.join_broadcast {
                    self.joined_count += 1;
                }
            }
            Event::Disconnected { .. } => {
                self.connected_count -= 1;
                if self.connected_count == 0 {
                    (self.joined_count, self.announced_count) = (0, 0);
                }
            }
            Event::Message { peer, channel, payload } => {
                // A bot that does not read its echoes receives fewer of them.
                let _ = self.inner.send(peer, Message::unreliable(channel, payload));
            }
            Event::Missed { peer, count, .. } => eprintln!("{peer:?} had no room for {count} messages"),
            _ => {}
        }
    }

    /// Broadcasts the number of each new join. If the workers are busy, the next call continues, so no join is skipped.
    fn announce_joins(&mut self) {
        while self.announced_count < self.joined_count {
            let number = self.announced_count + 1;
            let message = Message::reliable_ordered(JOINS, number.to_be_bytes().to_vec());
            if self.inner.broadcast(Audience::ALL, message).is_err() {
                break;
            }
            self.announced_count = number;
        }
    }
}

/// Where a bot connects.
enum Target {
    Open(SocketAddr, ServerPublicKey),
    Token(Box<ConnectToken>),
}

/// Counters of bots.
#[derive(Default)]
struct Tally {
    connected: u32,
    failed: u32,
    lost: u32,
    sent: u64,
    /// Inputs that were not sent because the connection was full.
    rejected: u64,
    echoes: u64,
    round_trips: Vec<Duration>,
    /// Bots that received the last join.
    received_last: u32,
    /// Error descriptions with their counts.
    errors: BTreeMap<String, u32>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.connected += other.connected;
        self.failed += other.failed;
        self.lost += other.lost;
        self.sent += other.sent;
        self.rejected += other.rejected;
        self.echoes += other.echoes;
        self.received_last += other.received_last;
        other.errors.into_iter().for_each(|(text, count)| self.add_error(text, count));
        let room = ROUND_TRIPS_MAX.saturating_sub(self.round_trips.len());
        self.round_trips.extend(other.round_trips.into_iter().take(room));
    }

    fn add_error(&mut self, text: String, count: u32) {
        *self.errors.entry(text).or_default() += count;
    }

    fn on_connect_error(&mut self, error: &str) {
        self.failed += 1;
        self.add_error(format!("connect failed, {error}"), 1);
    }

    fn errors(&self) -> String {
        let errors = self.errors.iter().map(|(text, count)| format!("{count} times: {text}"));
        errors.collect::<Vec<_>>().join("; ")
    }
}

/// The bots of one socket.
struct Bots {
    clients: Client,
    targets: VecDeque<Target>,
    /// Connected bots, with the last join that each of them received.
    connected: HashMap<PeerId, Option<u32>>,
    /// The order in which bots send. Bots that disconnected are removed when it is their turn.
    turns: VecDeque<PeerId>,
    load: Load,
    tally: Tally,
    has_echo: bool,
    start: Instant,
    connects_started: u32,
    inputs_due: f64,
    last_send: Instant,
    last_report: Instant,
}

impl Bots {
    fn new(targets: VecDeque<Target>, load: &Load) -> Result<Self, Box<dyn Error>> {
        let protocol_id = match targets.front() {
            Some(Target::Token(token)) => token.protocol_id(),
            Some(Target::Open(..)) => 0,
            None => return Err("a socket needs at least one bot".into()),
        };
        // With several connections, one socket carries all of them, and reaches servers with IPv4 and IPv6 addresses.
        let config = ClientConfig::default().protocol_id(protocol_id);
        let clients = Client::new(config.connections(u32::try_from(targets.len())?))?;
        let start = now();
        Ok(Self {
            clients,
            targets,
            connected: HashMap::new(),
            turns: VecDeque::new(),
            load: load.clone(),
            tally: Tally::default(),
            has_echo: false,
            start,
            connects_started: 0,
            inputs_due: 0.0,
            last_send: start,
            last_report: start,
        })
    }

    fn run(mut self, reports: &SyncSender<Tally>, should_stop: &AtomicBool) {
        while !should_stop.load(Ordering::Acquire) {
            let now = now();
            self.join(now);
            self.send(now);
            self.clients.flush();
            self.clients.poll(BOT_WAIT);
            while let Some(event) = self.clients.next_event() {
                self.on_event(event);
            }
            if now - self.last_report >= REPORT_PERIOD {
                self.last_report = now;
                if !self.has_echo {
                    // Without echoes, the connections provide the round-trip times.
                    self.turns.iter().take(STATS_SAMPLE).for_each(|peer| self.clients.request_stats(*peer));
                }
                // Fails only after the receiver was dropped, and then `should_stop` is set.
                let _ = reports.send(std::mem::take(&mut self.tally));
            }
        }
        for peer in self.connected.keys() {
            // Fails only if the connection has already ended.
            self.clients.close(*peer, 0, "the load is over");
        }
        self.clients.flush();
    }

    /// Starts the connects that are due. Each socket has an equal share of the rate.
    fn join(&mut self, now: Instant) {
        let ramp = f64::from(self.load.ramp) / f64::from(self.load.sockets);
        while f64::from(self.connects_started) <= (now - self.start).as_secs_f64() * ramp
            && let Some(target) = self.targets.pop_front()
        {
            self.connects_started += 1;
            let started = match target {
                Target::Open(server, key) => self.clients.connect((server, key)),
                Target::Token(token) => self.clients.connect(*token),
            };
            if let Err(error) = started {
                self.tally.on_connect_error(&error.to_string());
            }
        }
    }

    /// Sends the inputs that are due. The bots take turns.
    fn send(&mut self, now: Instant) {
        let passed = now - std::mem::replace(&mut self.last_send, now);
        self.inputs_due += passed.as_secs_f64() * f64::from(self.load.rate) * self.turns.len() as f64;
        // After a long pause each bot sends one input, and not all that it missed.
        self.inputs_due = self.inputs_due.min(self.turns.len() as f64);
        let time = u64::try_from((now - self.start).as_nanos()).unwrap_or(u64::MAX);
        let mut input = [MARK, time.to_be_bytes()].concat();
        input.resize(INPUT_BYTES, 0);
        let input = Bytes::from(input);
        while self.inputs_due >= 1.0
            && let Some(peer) = self.turns.pop_front()
        {
            self.inputs_due -= 1.0;
            // A bot that disconnected leaves the turns here.
            if self.connected.contains_key(&peer) {
                match self.clients.send(peer, Message::unreliable(INPUTS, input.clone())) {
                    Ok(_) => self.tally.sent += 1,
                    Err(_) => self.tally.rejected += 1,
                }
                self.turns.push_back(peer);
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { peer, .. } => {
                self.tally.connected += 1;
                self.connected.insert(peer, None);
                self.turns.push_back(peer);
            }
            Event::ConnectFailed { error, .. } => self.tally.on_connect_error(&error.to_string()),
            Event::Disconnected { peer, closed } => {
                self.connected.remove(&peer);
                self.tally.lost += 1;
                self.tally.add_error(format!("disconnected, {}", closed.reason.name()), 1);
            }
            Event::Stats { stats, .. } => self.tally.round_trips.push(stats.round_trip),
            Event::Message { peer, channel: JOINS, payload } if self.load.join_broadcast => {
                if let (Ok(number), Some(last)) = (payload.as_ref().try_into(), self.connected.get_mut(&peer))
                {
                    let number = u32::from_be_bytes(number);
                    if last.is_some_and(|last| last + 1 != number) {
                        self.tally.add_error("missed a join".to_owned(), 1);
                    }
                    self.tally.received_last += u32::from(number == self.load.bots);
                    *last = Some(number);
                }
            }
            Event::Message { payload, .. } => {
                self.tally.echoes += 1;
                let time = payload.strip_prefix(&MARK).and_then(<[u8]>::first_chunk);
                if let Some(time) = time {
                    self.has_echo = true;
                    let sent = Duration::from_nanos(u64::from_be_bytes(*time));
                    self.tally.round_trips.push((now() - self.start).saturating_sub(sent));
                }
            }
            _ => {}
        }
    }
}

fn targets(load: &Load) -> Result<Vec<Target>, Box<dyn Error>> {
    let Some(file) = &load.token_file else {
        let (server, key) = load.server.zip(load.key).ok_or("the server's address and key are required")?;
        return Ok((0..load.bots).map(|_| Target::Open(server, key)).collect());
    };
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let tokens = text.split_whitespace().map(|token| Ok(Target::Token(Box::new(token.parse()?))));
    let tokens: Vec<Target> = tokens.take(load.bots as usize).collect::<Result<_, Box<dyn Error>>>()?;
    if tokens.len() < load.bots as usize {
        return Err(format!("{}: {} tokens for {} bots", file.display(), tokens.len(), load.bots).into());
    }
    Ok(tokens)
}

/// Runs the bots and prints their counters. Returns an error if a bot had one.
fn run(load: &Load) -> Result<(), Box<dyn Error>> {
    let (mut sockets, mut targets) = (Vec::new(), targets(load)?);
    let share = targets.len().div_ceil(load.sockets as usize);
    while !targets.is_empty() {
        let share = targets.drain(..share.min(targets.len())).collect();
        sockets.push(Bots::new(share, load)?);
    }
    let ((sender, reports), should_stop) = (sync_channel(sockets.len()), AtomicBool::new(false));
    let total = std::thread::scope(|scope| {
        for bots in sockets {
            let (sender, should_stop) = (sender.clone(), &should_stop);
            scope.spawn(move || bots.run(&sender, should_stop));
        }
        drop(sender);
        let total = print_reports(load, &reports);
        should_stop.store(true, Ordering::Release);
        // Unblocks threads that wait for room in the channel.
        drop(reports);
        total
    });
    if !total.errors.is_empty() {
        return Err(total.errors().into());
    }
    println!("{} bots, no errors, {} echoes", total.connected, total.echoes);
    Ok(())
}

/// Prints a line per second until the load is over. Returns the total.
fn print_reports(load: &Load, reports: &Receiver<Tally>) -> Tally {
    let (mut total, mut second, mut end) = (Tally::default(), Tally::default(), None);
    let (start, mut next_line) = (now(), now() + LINE_PERIOD);
    loop {
        match reports.recv_timeout(next_line.saturating_duration_since(now())) {
            Ok(tally) => second.add(tally),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return total,
        }
        let now = now();
        if now < next_line {
            continue;
        }
        next_line += LINE_PERIOD;
        let round_trips = percentiles(std::mem::take(&mut second.round_trips));
        let (sent, rejected, echoes) = (second.sent, second.rejected, second.echoes);
        total.add(std::mem::take(&mut second));
        let Tally { connected, failed, lost, received_last, .. } = total;
        println!(
            "{:3} s | {} connected, {failed} failed, {lost} lost | {sent} inputs, {rejected} rejected, {echoes} echoes | {round_trips} {}",
            (now - start).as_secs(),
            connected - lost,
            total.errors()
        );
        if end.is_none() && connected + failed == load.bots {
            end = Some(now + Duration::from_secs(load.seconds.into()));
        }
        let Some(end) = end.filter(|end| now >= *end) else { continue };
        let waits_for_joins = load.join_broadcast && total.errors.is_empty() && received_last < load.bots;
        if waits_for_joins && now >= end + JOINS_TIMEOUT {
            total.add_error("did not receive the last join".to_owned(), load.bots - received_last);
        } else if !waits_for_joins {
            return total;
        }
    }
}

fn percentiles(mut round_trips: Vec<Duration>) -> String {
    round_trips.sort_unstable();
    let last = round_trips.len().saturating_sub(1);
    let at = |percent| round_trips.get(last * percent / 100).copied().unwrap_or_default();
    format!("round trip median {:.1?}, 95 % {:.1?}, 99 % {:.1?}", at(50), at(95), at(99))
}

/// Runs a server with these settings and bots with these flags in one process.
fn run_both(config: ServerConfig, flags: &[&str]) -> Result<(), Box<dyn Error>> {
    let (key, mut server) = (config.key.public().to_string(), EchoServer::bind(config, true)?);
    let address = server.inner.local_addr().to_string();
    let load = Load::try_parse_from([&["client", &address, &key], flags].concat())?;
    let should_stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(|| should_stop.load(Ordering::Acquire)));
        let outcome = run(&load);
        should_stop.store(true, Ordering::Release);
        outcome
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::tokens::{TokenAccess, TokenMasterKey, TokenRequest};
    use drumfire::{PeerInfo, PlayerId};

    fn config(access: Access) -> ServerConfig {
        let address = "127.0.0.1:0".parse().expect("address");
        ServerConfig::new(address, ServerKey::from_bytes([1; 32]), access).workers(Workers::Count(2))
    }

    fn key() -> String {
        ServerKey::from_bytes([1; 32]).public().to_string()
    }

    #[test]
    fn all_bots_join_receive_all_joins_and_are_echoed() {
        let flags = ["--join-broadcast", "--bots", "60", "--sockets", "3", "--seconds", "1"];
        run_both(config(Access::Open), &flags).expect("no errors");
    }

    #[test]
    fn refused_bots_are_counted_and_fail_the_run() {
        let full = run_both(config(Access::Open).connections(4), &["--bots", "7", "--seconds", "0"]);
        let text = full.expect_err("three bots are refused").to_string();
        assert!(text.contains("3 times: connect failed") && text.contains("full"), "{text}");
    }

    #[test]
    fn each_bot_connects_with_its_own_token() {
        let token_key = TokenMasterKey::from_bytes([2; 32]).token_key(1, "bots").expect("token key");
        let config = config(Access::Token(TokenAccess::new(token_key.clone()))).protocol_id(9);
        let public = config.key.public();
        let mut server = EchoServer::bind(config, false).expect("server");
        let token = |player| {
            let request = TokenRequest::new(PlayerId(player), server.inner.local_addr(), public);
            request.protocol_id(9).issue(&token_key).expect("token").to_text()
        };
        let text = (0..5).map(token).collect::<Vec<_>>().join("\n");
        let file = std::env::temp_dir().join(format!("drumfire-bots-{}", std::process::id()));
        std::fs::write(&file, text).expect("write");
        let load = |bots| {
            let file = file.display().to_string();
            let words = ["client", "--token-file", &file, "--bots", bots, "--seconds", "0"];
            Load::try_parse_from(words).expect("flags")
        };
        let too_few = run(&load("6")).expect_err("there is no sixth token").to_string();
        let should_stop = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| server.run(|| should_stop.load(Ordering::Acquire)));
            let outcome = run(&load("5")).map_err(|error| error.to_string());
            should_stop.store(true, Ordering::Release);
            outcome
        });
        std::fs::remove_file(&file).expect("remove");
        assert!(too_few.contains("5 tokens for 6 bots"), "{too_few}");
        assert_eq!(outcome, Ok(()));
    }

    #[test]
    fn a_missed_join_is_an_error() {
        let load =
            Load::try_parse_from(["client", "127.0.0.1:9", &key(), "--join-broadcast"]).expect("flags");
        let mut bots = Bots::new(targets(&load).expect("targets").into(), &load).expect("socket");
        bots.join(bots.start);
        let peer =
            bots.clients.connect((load.server.expect("address"), load.key.expect("key"))).expect("room");
        let info = Box::new(PeerInfo::new(load.server.expect("address")));
        bots.on_event(Event::Connected { peer, info });
        for number in [5_u32, 6, 8, 100] {
            let payload = number.to_be_bytes().to_vec().into();
            bots.on_event(Event::Message { peer, channel: JOINS, payload });
        }
        assert_eq!(bots.tally.errors(), "2 times: missed a join");
        assert_eq!(bots.tally.received_last, 1, "one bot received join 100");
    }
}
