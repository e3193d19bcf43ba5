//! Many bots on a few sockets put load on a server: they join one after the other, send inputs, and count and time what comes
//! back. Any server takes them that lets strangers in or whose tokens they have, such as `echo` and `tick_server`; one that
//! answers every message comes with them.
//!
//! ```text
//! cargo run --release --example bots -- server 0.0.0.0:7782 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 --join-broadcast
//! cargo run --release --example bots -- client 127.0.0.1:7782 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw --join-broadcast --bots 500
//! ```
//!
//! With `--join-broadcast` everybody is told of everybody who joins, and the bots see to it that nobody missed one. Bots that
//! were not let in or lost their connection make the program fail. In open access a server lets in 20 a second from another
//! host: say `--ramp 20`, or bring tokens with `--token-file`. Without arguments both run in one process.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::error::Error;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use clap::Parser;
use drumfire::{
    Access, Bytes, ChannelId, ClientConfig, Clients, ClientsEvent, ConnectError, ConnectToken, Event,
    GroupId, PeerId, SendOptions, Server, ServerConfig, ServerKey, ServerPublicKey, Workers,
};

/// Where `echo` answers unreliably, too.
const INPUTS: ChannelId = ChannelId(1);
/// The numbers of those who join, from 1 on.
const JOINS: ChannelId = ChannelId(2);
const EVERYBODY: GroupId = GroupId(0);
/// How an input begins, before the time when it was sent: other messages are not the echo of one.
const MARK: [u8; 8] = *b"bot says";
const INPUT_BYTES: usize = 32;
/// Who joined meanwhile fits one packet to everybody, as does what a socket's bots counted one line.
const TELL_PERIOD: Duration = Duration::from_millis(200);
const BOT_WAIT: Duration = Duration::from_millis(2);
const LINE_PERIOD: Duration = Duration::from_secs(1);
/// How long after the end all must have heard of all.
const JOINS_PATIENCE: Duration = Duration::from_secs(60);
/// Bots of a socket that are asked for their round trip where nothing is echoed.
const ASKED: usize = 32;
const ROUND_TRIPS_KEPT: usize = 1 << 20;

/// Bots that put load on a server, and a server for them.
#[derive(Parser)]
enum Command {
    /// Answer every message with itself
    Server {
        /// Where to bind
        address: SocketAddr,
        /// Its secret key
        secret: String,
        /// Tell everybody of everybody who joins
        #[arg(long)]
        join_broadcast: bool,
    },
    /// Send bots
    Client(Load),
}

#[derive(Parser, Clone)]
struct Load {
    /// Where the server is
    #[arg(required_unless_present = "token_file", requires = "key")]
    server: Option<SocketAddr>,
    /// Its public key
    key: Option<ServerPublicKey>,
    /// Connect with the tokens of this file, one per line and bot, instead
    #[arg(long, conflicts_with = "server")]
    token_file: Option<PathBuf>,
    /// How many bots
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bots: u32,
    /// On how many sockets, each with a thread
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    sockets: u32,
    /// How many of them join per second
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    ramp: u32,
    /// Inputs per second of each bot; 0 for none
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000))]
    rate: u32,
    /// How long they play once all are there, in seconds
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// See to it that everybody hears of everybody who joins later; the bots must be alone on the server
    #[arg(long)]
    join_broadcast: bool,
}

fn main() -> ExitCode {
    let outcome = if std::env::args().len() == 1 {
        let config = ServerConfig::new((Ipv4Addr::LOCALHOST, 0).into(), ServerKey::dev(), Access::Open);
        show(config.workers(Workers::Auto), &["--join-broadcast", "--seconds", "1"])
    } else {
        match Command::parse() {
            Command::Server { address, secret, join_broadcast } => host(address, &secret, join_broadcast),
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

fn host(address: SocketAddr, secret: &str, join_broadcast: bool) -> Result<(), Box<dyn Error>> {
    let config = ServerConfig::new(address, secret.parse()?, Access::Open).workers(Workers::Auto);
    let mut host = Host::bind(config, join_broadcast)?;
    println!("waiting for bots on {}", host.server.local_addr());
    host.serve(|| false);
    Ok(())
}

/// The server's side.
struct Host {
    server: Server,
    join_broadcast: bool,
    present: u32,
    /// Since nobody was here, and up to which number everybody was told.
    joined: u32,
    told: u32,
}

impl Host {
    fn bind(config: ServerConfig, join_broadcast: bool) -> Result<Self, Box<dyn Error>> {
        // Thousands acknowledge the same broadcast at the same time.
        let server = Server::bind(config.receive_buffer_bytes(4 << 20))?;
        Ok(Self { server, join_broadcast, present: 0, joined: 0, told: 0 })
    }

    fn serve(&mut self, should_stop: impl Fn() -> bool) {
        let mut next_tell = now();
        while !should_stop() {
            self.server.wait(TELL_PERIOD);
            for event in self.server.poll() {
                self.hear(event);
            }
            if now() >= next_tell {
                next_tell = now() + TELL_PERIOD;
                self.tell();
            }
            self.server.flush();
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Connected { peer, .. } => {
                self.present += 1;
                // Where that fails, it is gone already.
                if self.join_broadcast && self.server.join(EVERYBODY, peer).is_ok() {
                    self.joined += 1;
                }
            }
            Event::Disconnected { .. } => {
                self.present -= 1;
                if self.present == 0 {
                    (self.joined, self.told) = (0, 0);
                }
            }
            Event::Message { peer, channel, bytes } => {
                // A bot that does not take its answers gets fewer of them.
                let _ = self.server.send(peer, channel, bytes, SendOptions::unreliable());
            }
            Event::Missed { peer, count, .. } => eprintln!("{peer:?} had no room for {count} messages"),
            _ => {}
        }
    }

    /// One broadcast for each who joined. When the workers are behind, the rest waits for the next round: nobody misses it.
    fn tell(&mut self) {
        while self.told < self.joined {
            let (number, options) = (self.told + 1, SendOptions::reliable_ordered());
            if self.server.broadcast(EVERYBODY, JOINS, number.to_be_bytes().to_vec(), options).is_err() {
                break;
            }
            self.told = number;
        }
    }
}

/// Where a bot goes.
enum Target {
    Open(SocketAddr, ServerPublicKey),
    Token(Box<ConnectToken>),
}

/// What bots counted.
#[derive(Default)]
struct Tally {
    connected: u32,
    failed: u32,
    lost: u32,
    sent: u64,
    /// Inputs for which there was no room.
    held: u64,
    answers: u64,
    round_trips: Vec<Duration>,
    /// Bots that heard of the last of all.
    heard_last: u32,
    /// What went wrong, and how often.
    troubles: BTreeMap<String, u32>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.connected += other.connected;
        self.failed += other.failed;
        self.lost += other.lost;
        self.sent += other.sent;
        self.held += other.held;
        self.answers += other.answers;
        self.heard_last += other.heard_last;
        other.troubles.into_iter().for_each(|(what, count)| self.trouble(what, count));
        let room = ROUND_TRIPS_KEPT.saturating_sub(self.round_trips.len());
        self.round_trips.extend(other.round_trips.into_iter().take(room));
    }

    fn trouble(&mut self, what: String, count: u32) {
        *self.troubles.entry(what).or_default() += count;
    }

    fn fail(&mut self, why: ConnectError) {
        self.failed += 1;
        self.trouble(format!("not let in, {why}"), 1);
    }

    fn troubles(&self) -> String {
        let troubles = self.troubles.iter().map(|(what, count)| format!("{count} times: {what}"));
        troubles.collect::<Vec<_>>().join("; ")
    }
}

/// The bots of one socket.
struct Bots {
    clients: Clients,
    targets: VecDeque<Target>,
    /// Who is connected, with the number of the newest join that each has heard of.
    playing: HashMap<PeerId, Option<u32>>,
    /// The same in the order of their turns.
    turns: VecDeque<PeerId>,
    load: Load,
    tally: Tally,
    has_echo: bool,
    start: Instant,
    joins_begun: u32,
    inputs_due: f64,
    before: Instant,
    told_at: Instant,
}

impl Bots {
    fn new(targets: VecDeque<Target>, load: &Load) -> Result<Self, Box<dyn Error>> {
        let (server, protocol_id) = match targets.front() {
            Some(Target::Token(token)) => (token.address(), token.protocol_id()),
            Some(Target::Open(server, _)) => (*server, 0),
            None => return Err("a socket without bots".into()),
        };
        let any = if server.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let (any, config) = (SocketAddr::new(any, 0), ClientConfig::default().protocol_id(protocol_id));
        let clients = Clients::bind(any, u32::try_from(targets.len())?, &config)?;
        let start = now();
        Ok(Self {
            clients,
            targets,
            playing: HashMap::new(),
            turns: VecDeque::new(),
            load: load.clone(),
            tally: Tally::default(),
            has_echo: false,
            start,
            joins_begun: 0,
            inputs_due: 0.0,
            before: start,
            told_at: start,
        })
    }

    fn run(mut self, teller: &SyncSender<Tally>, should_stop: &AtomicBool) {
        while !should_stop.load(Ordering::Acquire) {
            let now = now();
            self.join(now);
            self.send(now);
            self.clients.flush();
            self.clients.wait(BOT_WAIT);
            for event in self.clients.poll() {
                self.hear(event);
            }
            if now - self.told_at >= TELL_PERIOD {
                self.told_at = now;
                if !self.has_echo {
                    // The server does something else with inputs. The connection knows its round trip in any case.
                    self.turns.iter().take(ASKED).for_each(|peer| self.clients.request_stats(*peer));
                }
                // When nobody listens any more, it is over, and the next look says so.
                let _ = teller.send(std::mem::take(&mut self.tally));
            }
        }
        for peer in self.playing.keys() {
            // Who is gone already needs no goodbye.
            let _ = self.clients.close(*peer, 0, "the load is over");
        }
        self.clients.flush();
    }

    /// As many as should have joined by now; the sockets share the ramp.
    fn join(&mut self, now: Instant) {
        let ramp = f64::from(self.load.ramp) / f64::from(self.load.sockets);
        while f64::from(self.joins_begun) <= (now - self.start).as_secs_f64() * ramp
            && let Some(target) = self.targets.pop_front()
        {
            self.joins_begun += 1;
            let begun = match target {
                Target::Open(server, key) => self.clients.connect(server, key),
                Target::Token(token) => self.clients.connect_with_token(&token),
            };
            if let Err(error) = begun {
                self.tally.fail(error);
            }
        }
    }

    /// Inputs that are due by now, from all bots in turn.
    fn send(&mut self, now: Instant) {
        let passed = now - std::mem::replace(&mut self.before, now);
        self.inputs_due += passed.as_secs_f64() * f64::from(self.load.rate) * self.turns.len() as f64;
        // After a long break nobody sends what the break would have taken: one round at most.
        self.inputs_due = self.inputs_due.min(self.turns.len() as f64);
        let time = u64::try_from((now - self.start).as_nanos()).unwrap_or(u64::MAX);
        let mut input = [MARK, time.to_be_bytes()].concat();
        input.resize(INPUT_BYTES, 0);
        let input = Bytes::from(input);
        while self.inputs_due >= 1.0
            && let Some(peer) = self.turns.pop_front()
        {
            self.inputs_due -= 1.0;
            // One that is gone has no more turns.
            if self.playing.contains_key(&peer) {
                match self.clients.send(peer, INPUTS, input.clone(), SendOptions::unreliable()) {
                    Ok(_) => self.tally.sent += 1,
                    Err(_) => self.tally.held += 1,
                }
                self.turns.push_back(peer);
            }
        }
    }

    fn hear(&mut self, event: ClientsEvent) {
        match event {
            ClientsEvent::Connected { peer } => {
                self.tally.connected += 1;
                self.playing.insert(peer, None);
                self.turns.push_back(peer);
            }
            ClientsEvent::ConnectFailed { error, .. } => self.tally.fail(error),
            ClientsEvent::Disconnected { peer, reason, .. } => {
                self.playing.remove(&peer);
                self.tally.lost += 1;
                self.tally.trouble(format!("lost, {}", reason.name()), 1);
            }
            ClientsEvent::Stats { stats, .. } => self.tally.round_trips.push(stats.round_trip),
            ClientsEvent::Message { peer, channel: JOINS, bytes } if self.load.join_broadcast => {
                if let (Ok(number), Some(heard)) = (bytes.as_ref().try_into(), self.playing.get_mut(&peer)) {
                    let number = u32::from_be_bytes(number);
                    if heard.is_some_and(|heard| heard + 1 != number) {
                        self.tally.trouble("did not hear of a join in its turn".to_owned(), 1);
                    }
                    self.tally.heard_last += u32::from(number == self.load.bots);
                    *heard = Some(number);
                }
            }
            ClientsEvent::Message { bytes, .. } => {
                self.tally.answers += 1;
                let time = bytes.strip_prefix(&MARK).and_then(<[u8]>::first_chunk);
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

/// Where each of the bots goes.
fn targets(load: &Load) -> Result<Vec<Target>, Box<dyn Error>> {
    let Some(file) = &load.token_file else {
        let (server, key) = load.server.zip(load.key).ok_or("say the server's address and its key")?;
        return Ok((0..load.bots).map(|_| Target::Open(server, key)).collect());
    };
    let text = std::fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
    let tokens = text.split_whitespace().map(|token| Ok(Target::Token(Box::new(token.parse()?))));
    let tokens: Vec<Target> = tokens.take(load.bots as usize).collect::<Result<_, Box<dyn Error>>>()?;
    if tokens.len() < load.bots as usize {
        return Err(format!("{}: {} tokens for {} bots", file.display(), tokens.len(), load.bots).into());
    }
    Ok(tokens)
}

/// The client's side: sends the bots, prints what they count, and fails when one of them did.
fn run(load: &Load) -> Result<(), Box<dyn Error>> {
    let (mut sockets, mut targets) = (Vec::new(), targets(load)?);
    let share = targets.len().div_ceil(load.sockets as usize);
    while !targets.is_empty() {
        let of_one = targets.drain(..share.min(targets.len())).collect();
        sockets.push(Bots::new(of_one, load)?);
    }
    let ((teller, told), should_stop) = (sync_channel(sockets.len()), AtomicBool::new(false));
    let total = std::thread::scope(|scope| {
        for bots in sockets {
            let (teller, should_stop) = (teller.clone(), &should_stop);
            scope.spawn(move || bots.run(&teller, should_stop));
        }
        drop(teller);
        let total = watch(load, &told);
        should_stop.store(true, Ordering::Release);
        // Whoever is just telling goes on, and sees that it is over.
        drop(told);
        total
    });
    if !total.troubles.is_empty() {
        return Err(total.troubles().into());
    }
    println!("{} bots, 0 failed connects, 0 lost, {} answers", total.connected, total.answers);
    Ok(())
}

/// Prints a line per second, until all have played for as long as they should, and answers the sum.
fn watch(load: &Load, told: &Receiver<Tally>) -> Tally {
    let (mut total, mut second, mut end) = (Tally::default(), Tally::default(), None);
    let (start, mut next_line) = (now(), now() + LINE_PERIOD);
    loop {
        match told.recv_timeout(next_line.saturating_duration_since(now())) {
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
        let (sent, held, answers) = (second.sent, second.held, second.answers);
        total.add(std::mem::take(&mut second));
        let Tally { connected, failed, lost, heard_last, .. } = total;
        println!(
            "{:3} s | {} connected, {failed} failed, {lost} lost | {sent} inputs, {held} held, {answers} answers | {round_trips} {}",
            (now - start).as_secs(),
            connected - lost,
            total.troubles()
        );
        if end.is_none() && connected + failed == load.bots {
            end = Some(now + Duration::from_secs(load.seconds.into()));
        }
        let Some(end) = end.filter(|end| now >= *end) else { continue };
        let waits_for_joins = load.join_broadcast && total.troubles.is_empty() && heard_last < load.bots;
        if waits_for_joins && now >= end + JOINS_PATIENCE {
            total.trouble("did not hear of the last join".to_owned(), load.bots - heard_last);
        } else if !waits_for_joins {
            return total;
        }
    }
}

fn percentiles(mut round_trips: Vec<Duration>) -> String {
    round_trips.sort_unstable();
    let last = round_trips.len().saturating_sub(1);
    let at = |percent| round_trips.get(last * percent / 100).copied().unwrap_or_default();
    format!("round trip {:.1?}, 95 % {:.1?}, 99 % {:.1?}", at(50), at(95), at(99))
}

/// Both ends in one process: bots with these flags, and a server with these settings.
fn show(config: ServerConfig, flags: &[&str]) -> Result<(), Box<dyn Error>> {
    let (key, mut host) = (config.key.public().to_string(), Host::bind(config, true)?);
    let address = host.server.local_addr().to_string();
    let load = Load::try_parse_from([&["client", &address, &key], flags].concat())?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| host.serve(|| is_over.load(Ordering::Acquire)));
        let outcome = run(&load);
        is_over.store(true, Ordering::Release);
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
    use drumfire::{PlayerId, TokenAccess, TokenMasterKey, TokenRequest};

    fn config(access: Access) -> ServerConfig {
        let address = "127.0.0.1:0".parse().expect("an address");
        ServerConfig::new(address, ServerKey::from_bytes([1; 32]), access).workers(Workers::Count(2))
    }

    fn key() -> String {
        ServerKey::from_bytes([1; 32]).public().to_string()
    }

    #[test]
    fn all_bots_join_hear_of_each_other_and_are_answered() {
        let flags = ["--join-broadcast", "--bots", "60", "--sockets", "3", "--seconds", "1"];
        show(config(Access::Open), &flags).expect("no trouble");
    }

    #[test]
    fn bots_that_are_not_let_in_are_counted_and_fail_the_run() {
        let full = show(config(Access::Open).connections(4), &["--bots", "7", "--seconds", "0"]);
        let why = full.expect_err("three too many").to_string();
        assert!(why.contains("3 times: not let in") && why.contains("full"), "{why}");
    }

    #[test]
    fn each_bot_connects_with_a_token_of_its_own() {
        let token_key = TokenMasterKey::from_bytes([2; 32]).token_key(1, "bots").expect("an id");
        let config = config(Access::Token(TokenAccess::new(token_key.clone()))).protocol_id(9);
        let public = config.key.public();
        let mut host = Host::bind(config, false).expect("a free port on the loopback");
        let token = |player| {
            let request = TokenRequest::new(PlayerId(player), host.server.local_addr(), public);
            request.protocol_id(9).issue(&token_key).expect("a token").to_text()
        };
        let text = (0..5).map(token).collect::<Vec<_>>().join("\n");
        let file = std::env::temp_dir().join(format!("drumfire-bots-{}", std::process::id()));
        std::fs::write(&file, text).expect("a file");
        let load = |bots| {
            let file = file.display().to_string();
            let words = ["client", "--token-file", &file, "--bots", bots, "--seconds", "0"];
            Load::try_parse_from(words).expect("good flags")
        };
        let too_few = run(&load("6")).expect_err("one token too few").to_string();
        let is_over = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| host.serve(|| is_over.load(Ordering::Acquire)));
            let outcome = run(&load("5")).map_err(|error| error.to_string());
            is_over.store(true, Ordering::Release);
            outcome
        });
        std::fs::remove_file(&file).expect("it is there");
        assert!(too_few.contains("5 tokens for 6 bots"), "{too_few}");
        assert_eq!(outcome, Ok(()));
    }

    #[test]
    fn a_join_that_is_left_out_is_a_trouble() {
        let load =
            Load::try_parse_from(["client", "127.0.0.1:9", &key(), "--join-broadcast"]).expect("flags");
        let mut bots = Bots::new(targets(&load).expect("an address").into(), &load).expect("a socket");
        bots.join(bots.start);
        let peer = bots.clients.connect(load.server.expect("one"), load.key.expect("one")).expect("room");
        bots.hear(ClientsEvent::Connected { peer });
        for number in [5_u32, 6, 8, 100] {
            let bytes = number.to_be_bytes().to_vec().into();
            bots.hear(ClientsEvent::Message { peer, channel: JOINS, bytes });
        }
        assert_eq!(bots.tally.troubles(), "2 times: did not hear of a join in its turn");
        assert_eq!(bots.tally.heard_last, 1, "of all 100");
    }
}
