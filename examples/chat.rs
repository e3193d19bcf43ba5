//! A chat server. Each line of a client is sent to all other clients. `/who` lists the names, and `/quit` disconnects.
//!
//! ```text
//! cargo run --release --example chat -- server 0.0.0.0:7780 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8
//! cargo run --release --example chat -- client 127.0.0.1:7780 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw ann --say hello --say /who
//! ```
//!
//! Without `--say`, the client reads lines from standard input; start another client with another name in a second
//! terminal. `--link bad_wifi` after the name simulates a bad network at the client's socket. The secret key above is
//! public, so use it only for tests. Without a key the server generates one and prints the client's command. Without
//! arguments, a server and two scripted clients run in one process.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use drumfire::conditioner::LinkConfig;
use drumfire::{
    Access, Audience, Bytes, ChannelId, Client, ClientConfig, CloseReason, Event, GroupId, Message, PeerId,
    Server, ServerConfig, ServerKey, ServerPublicKey, Workers,
};

/// Lines of text in both directions. The first line of a client is its name.
const LINES: ChannelId = ChannelId(0);
/// All peers with a name.
const NAMED_PEERS: GroupId = GroupId(0);
const LINE_MAX_BYTES: usize = 256;
const NAME_MAX_CHARS: usize = 16;
/// The maximum number of names in the reply to `/who`.
const WHO_NAMES_MAX: usize = 100;
const CONNECTIONS: u32 = 4_096;
/// How long the server waits for an event, and how often the client checks for input.
const SERVER_WAIT: Duration = Duration::from_millis(100);
const CLIENT_WAIT: Duration = Duration::from_millis(20);

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
        ["server", address] => ChatServer::bind(address.parse()?, ServerKey::generate()?)?.serve(|| false),
        ["server", address, secret] => ChatServer::bind(address.parse()?, secret.parse()?)?.serve(|| false),
        ["client", server, key, name, options @ ..] => {
            let (config, script) = match options {
                ["--link", preset, script @ ..] => (link_config(preset)?, script),
                script => (ClientConfig::default(), script),
            };
            let lines = if script.is_empty() { stdin_lines() } else { scripted_lines(script)? };
            chat((server.parse()?, key.parse()?), config, name, &lines, |line| println!("{line}"))?;
        }
        [] => run_all()?,
        _ => {
            return Err("usage: no arguments, `server ADDRESS [SECRET_KEY]`, or \
                `client ADDRESS PUBLIC_KEY NAME [--link PRESET] [--say LINE]...`"
                .into());
        }
    }
    Ok(())
}

/// The chat server.
struct ChatServer {
    server: Server,
    names: BTreeMap<PeerId, String>,
}

impl ChatServer {
    fn bind(address: SocketAddr, key: ServerKey) -> Result<Self, Box<dyn Error>> {
        let public = key.public();
        let config = ServerConfig::new(address, key, Access::Open).workers(Workers::Auto);
        let server = Server::bind(config.connections(CONNECTIONS))?;
        println!("cargo run --release --example chat -- client {} {public} YOUR_NAME", server.local_addr());
        Ok(Self { server, names: BTreeMap::new() })
    }

    fn serve(mut self, should_stop: impl Fn() -> bool) {
        while !should_stop() {
            self.server.poll(SERVER_WAIT);
            while let Some(event) = self.server.next_event() {
                self.on_event(event);
            }
            // One flush for all events, so that a packet to a peer contains as many lines as fit.
            self.server.flush();
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { peer, .. } => self.send(peer, "welcome; enter your name"),
            Event::Message { peer, payload, .. } => match sanitize(&payload) {
                None => self.send(peer, "the line is empty or too long"),
                Some(line) => match self.names.get(&peer).cloned() {
                    None => self.set_name(peer, line),
                    Some(name) => self.on_line(peer, &name, &line),
                },
            },
            // A slow peer does not block the others. It receives the number of lines that it missed.
            Event::Missed { peer, count, .. } => self.send(peer, &format!("you missed {count} lines")),
            Event::Disconnected { peer, .. } => {
                if let Some(name) = self.names.remove(&peer) {
                    self.broadcast_except(peer, format!("{name} left"));
                }
            }
            _ => {}
        }
    }

    /// Handles the first line of a client.
    fn set_name(&mut self, peer: PeerId, name: String) {
        let is_valid = name.chars().count() <= NAME_MAX_CHARS && name.chars().all(char::is_alphanumeric);
        if !is_valid {
            return self.send(peer, "a name has up to 16 letters and digits; enter another");
        }
        if self.names.values().any(|taken| *taken == name) {
            return self.send(peer, "the name is taken; enter another");
        }
        if !self.server.join(peer, NAMED_PEERS) {
            // The peer has already disconnected.
            return;
        }
        self.send(peer, &format!("hello {name}, {} others are here", self.names.len()));
        self.broadcast_except(peer, format!("{name} joined"));
        self.names.insert(peer, name);
    }

    fn on_line(&mut self, peer: PeerId, name: &str, line: &str) {
        match line {
            "/who" => {
                let mut names: Vec<&str> = self.names.values().map(String::as_str).collect();
                names.sort_unstable();
                let others = match names.len().saturating_sub(WHO_NAMES_MAX) {
                    0 => String::new(),
                    count => format!(" and {count} more"),
                };
                names.truncate(WHO_NAMES_MAX);
                self.send(peer, &format!("connected: {}{others}", names.join(", ")));
            }
            "/quit" => {
                // Closing fails only if the peer is already gone.
                self.server.close(peer, 0, "see you");
            }
            _ if line.starts_with('/') => self.send(peer, "the commands are /who and /quit"),
            _ => self.broadcast_except(peer, format!("{name}: {line}")),
        }
    }

    fn send(&mut self, peer: PeerId, line: &str) {
        // If the connection is full, the peer also misses broadcasts and is notified of them.
        let _ = self.server.send(peer, Message::reliable_ordered(LINES, line.to_owned()));
    }

    /// Sends a line to all named peers except one. They share one copy of the line.
    fn broadcast_except(&mut self, sender: PeerId, line: String) {
        let others = Audience::group(NAMED_PEERS).except(sender);
        // The line is short, so the only possible error is `Full`.
        if self.server.broadcast(others, Message::reliable_ordered(LINES, line)).is_err() {
            self.send(sender, "the server is overloaded; send the line again");
        }
    }
}

/// Converts untrusted bytes into a line. Returns `None` if it is empty or too long.
fn sanitize(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes.get(..LINE_MAX_BYTES.min(bytes.len()))?);
    let line: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    (!line.is_empty() && bytes.len() <= LINE_MAX_BYTES).then_some(line)
}

/// Returns the settings of a client whose socket simulates this link.
fn link_config(preset: &str) -> Result<ClientConfig, Box<dyn Error>> {
    let presets = LinkConfig::PRESET_NAMES;
    let link =
        LinkConfig::preset(preset).ok_or_else(|| format!("--link is one of {}", presets.join(", ")))?;
    Ok(ClientConfig::default().conditioner(link))
}

/// Runs a client: sends the lines, passes received lines to `show`, and quits after the last line.
fn chat(
    server: (SocketAddr, ServerPublicKey),
    config: ClientConfig,
    name: &str,
    lines: &Receiver<String>,
    mut show: impl FnMut(&str),
) -> Result<(), Box<dyn Error>> {
    let mut client = Client::new(config)?;
    let server = client.connect(server)?;
    // The name is sent as soon as the connection is open.
    client.send(server, Message::reliable_ordered(LINES, name.to_owned()))?;
    let mut has_quit = false;
    loop {
        client.poll(Duration::ZERO);
        while let Some(event) = client.next_event() {
            match event {
                Event::Message { payload, .. } => show(&String::from_utf8_lossy(&payload)),
                Event::ConnectFailed { error, .. } => return Err(error.into()),
                Event::Disconnected { closed, .. } => return on_close(has_quit, closed.reason, &closed.text),
                _ => {}
            }
        }
        let line = match lines.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                (!std::mem::replace(&mut has_quit, true)).then(|| "/quit".to_owned())
            }
        };
        match line {
            None => {
                client.poll(CLIENT_WAIT);
            }
            Some(line) => {
                has_quit |= line == "/quit";
                // A send fails with `Closed` while the server disconnects the client. An event gives the reason.
                if client.send(server, Message::reliable_ordered(LINES, line)).is_err() {
                    show("the line was not sent");
                }
                client.flush();
            }
        }
    }
}

/// A close by the server is an error unless the client requested it with `/quit`.
fn on_close(has_quit: bool, reason: CloseReason, text: &Bytes) -> Result<(), Box<dyn Error>> {
    if has_quit && matches!(reason, CloseReason::Remote { application_code: 0, .. }) {
        return Ok(());
    }
    Err(format!("{reason}: {}", String::from_utf8_lossy(text)).into())
}

/// Reads lines from standard input on a separate thread, because reading blocks.
fn stdin_lines() -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lines().map_while(Result::ok);
        while input.next().is_some_and(|line| sender.send(line).is_ok()) {}
    });
    lines
}

/// Returns the lines of `--say LINE --say LINE`.
fn scripted_lines(script: &[&str]) -> Result<Receiver<String>, Box<dyn Error>> {
    let (sender, lines) = channel();
    for pair in script.chunks(2) {
        let &["--say", line] = pair else {
            return Err(format!("`{}` is not `--say LINE`", pair.join(" ")).into());
        };
        sender.send(line.to_owned())?;
    }
    Ok(lines)
}

/// Runs the server and two clients in one process.
fn run_all() -> Result<(), Box<dyn Error>> {
    let key = ServerKey::generate()?;
    let public = key.public();
    let server = ChatServer::bind("127.0.0.1:0".parse()?, key)?;
    let (address, should_stop) = (server.server.local_addr(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| server.serve(|| should_stop.load(Ordering::Acquire)));
        let clients = [("ann", "good evening"), ("bob", "is it evening already?")].map(|(name, line)| {
            scope.spawn(move || {
                let lines =
                    scripted_lines(&["--say", line, "--say", "/who"]).map_err(|error| error.to_string())?;
                let show = |line: &str| println!("{name} received: {line}");
                chat((address, public), ClientConfig::default(), name, &lines, show)
                    .map_err(|error| error.to_string())
            })
        });
        let ends = clients.map(|client| client.join().map_err(|_| "a client panicked".to_owned()).flatten());
        should_stop.store(true, Ordering::Release);
        ends.into_iter().collect::<Result<(), String>>()
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::Event;
    use std::sync::mpsc::Sender;
    use std::thread::JoinHandle;

    const LINE_TIMEOUT: Duration = Duration::from_secs(30);

    struct RunningServer {
        address: SocketAddr,
        should_stop: std::sync::Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    }

    impl RunningServer {
        fn new() -> Self {
            let address = "127.0.0.1:0".parse().expect("address");
            let server = ChatServer::bind(address, ServerKey::dev()).expect("server");
            let address = server.server.local_addr();
            let should_stop = std::sync::Arc::new(AtomicBool::new(false));
            let flag = std::sync::Arc::clone(&should_stop);
            let thread = std::thread::spawn(move || server.serve(|| flag.load(Ordering::Acquire)));
            Self { address, should_stop, thread: Some(thread) }
        }

        fn connect(&self, name: &'static str) -> RunningClient {
            let ((lines, to_send), (output, received)) = (channel(), channel());
            let address = self.address;
            let thread = std::thread::spawn(move || {
                let show = |line: &str| drop(output.send(line.to_owned()));
                let server = (address, ServerKey::dev().public());
                chat(server, ClientConfig::default(), name, &to_send, show).map_err(|error| error.to_string())
            });
            RunningClient { lines, received, thread }
        }
    }

    impl Drop for RunningServer {
        fn drop(&mut self) {
            self.should_stop.store(true, Ordering::Release);
            drop(self.thread.take().map(JoinHandle::join));
        }
    }

    struct RunningClient {
        lines: Sender<String>,
        received: Receiver<String>,
        thread: JoinHandle<Result<(), String>>,
    }

    impl RunningClient {
        fn say(&self, line: &str) {
            self.lines.send(line.to_owned()).expect("running client");
        }

        fn next(&self) -> String {
            self.received.recv_timeout(LINE_TIMEOUT).expect("line")
        }

        fn quit(self) {
            drop(self.lines);
            self.thread.join().expect("no panic").expect("no error");
        }
    }

    #[test]
    fn clients_receive_the_lines_of_others() {
        let server = RunningServer::new();
        let ann = server.connect("ann");
        assert_eq!([ann.next(), ann.next()], ["welcome; enter your name", "hello ann, 0 others are here"]);
        let bob = server.connect("bob");
        assert_eq!([bob.next(), bob.next()], ["welcome; enter your name", "hello bob, 1 others are here"]);
        assert_eq!(ann.next(), "bob joined");
        ann.say("hello");
        ann.say("/who");
        assert_eq!([bob.next(), ann.next()], ["ann: hello", "connected: ann, bob"]);
        bob.say("/dance");
        assert_eq!(bob.next(), "the commands are /who and /quit");
        ann.quit();
        assert_eq!(bob.next(), "ann left");
        bob.quit();
    }

    #[test]
    fn a_name_is_valid_and_unique() {
        let server = RunningServer::new();
        let (ann, other) = (server.connect("ann"), server.connect("two words"));
        assert_eq!(ann.next(), "welcome; enter your name");
        assert_eq!(ann.next(), "hello ann, 0 others are here");
        assert_eq!(other.next(), "welcome; enter your name");
        assert_eq!(other.next(), "a name has up to 16 letters and digits; enter another");
        other.say("ann");
        assert_eq!(other.next(), "the name is taken; enter another");
        other.say("tom");
        assert_eq!(other.next(), "hello tom, 1 others are here");
    }

    #[test]
    fn every_line_reaches_all_other_clients_once() {
        const CLIENTS: usize = 40;
        let server = RunningServer::new();
        let mut clients = Client::new(ClientConfig::default().connections(40)).expect("socket");
        let key = ServerKey::dev().public();
        let peers: Vec<PeerId> =
            (0..CLIENTS).map(|_| clients.connect((server.address, key)).expect("room")).collect();
        for (number, peer) in peers.iter().enumerate() {
            let name = format!("n{number}");
            clients.send(*peer, Message::reliable_ordered(LINES, name)).expect("room");
        }
        let mut received: BTreeMap<PeerId, Vec<String>> = BTreeMap::new();
        let mut receive = |clients: &mut Client| {
            assert!(clients.poll(LINE_TIMEOUT), "lines are missing");
            while let Some(event) = clients.next_event() {
                if let Event::Message { peer, payload, .. } = event {
                    received.entry(peer).or_default().push(String::from_utf8_lossy(&payload).into_owned());
                }
            }
            let count = |word| received.values().flatten().filter(|line| line.contains(word)).count();
            (count("hello n"), count(": line of"))
        };
        while receive(&mut clients).0 < CLIENTS {}
        for (number, peer) in peers.iter().enumerate() {
            let line = format!("line of {number}");
            clients.send(*peer, Message::reliable_ordered(LINES, line)).expect("room");
        }
        while receive(&mut clients).1 < CLIENTS * (CLIENTS - 1) {}
        for (number, peer) in peers.iter().enumerate() {
            let mut lines: Vec<&String> = received[peer].iter().filter(|line| line.contains(": ")).collect();
            lines.sort();
            lines.dedup();
            assert_eq!(lines.len(), CLIENTS - 1);
            assert!(!lines.contains(&&format!("n{number}: line of {number}")));
        }
    }

    #[test]
    fn lines_are_sanitized() {
        assert_eq!(sanitize(b" hi\x1b[2J there\n").as_deref(), Some("hi[2J there"));
        assert_eq!(sanitize(&[0xff, b'a']).as_deref(), Some("\u{fffd}a"));
        for bad in [&b""[..], b" \n", &[b'a'; LINE_MAX_BYTES + 1]] {
            assert_eq!(sanitize(bad), None);
        }
        assert!(sanitize(&[b'a'; LINE_MAX_BYTES]).is_some());
    }

    #[test]
    fn an_unknown_link_is_an_error_that_lists_the_presets() {
        assert!(link_config("modem").is_err_and(|error| error.to_string().contains("wifi, lte")));
        assert!(link_config("satellite").is_ok_and(|config| config.conditioner.is_some()));
    }

    #[test]
    fn an_invalid_script_is_an_error() {
        let lines = scripted_lines(&["--say", "a", "--say", "b"]).expect("lines");
        assert_eq!(lines.iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(scripted_lines(&["--sya", "a"]).is_err_and(|error| error.to_string().contains("--sya")));
        assert!(scripted_lines(&["--say"]).is_err());
    }
}
