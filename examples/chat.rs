//! A chat server: what one says all others hear, and `/who` and `/quit` do what they say.
//!
//! ```text
//! cargo run --release --example chat -- server 0.0.0.0:7780 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8
//! cargo run --release --example chat -- client 127.0.0.1:7780 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw ann --say hello --say /who
//! ```
//!
//! Leave `--say` out to type lines instead, and start another client with another name in a second terminal. The secret
//! key above stands in this file for everybody to read: leave it out, and the server draws one and prints the client's
//! command. Without arguments a server and two scripted clients run in one process.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use drumfire::{
    Access, BroadcastError, Bytes, ChannelId, Client, ClientConfig, ClientEvent, CloseReason, Event, GroupId,
    PeerId, SendOptions, Server, ServerConfig, ServerKey, ServerPublicKey, Workers,
};

/// Lines of text, both ways; the first of a client is its name.
const LINES: ChannelId = ChannelId(0);
/// All who have a name.
const EVERYBODY: GroupId = GroupId(0);
const LINE_MAX_BYTES: usize = 256;
const NAME_MAX_CHARS: usize = 16;
/// What `/who` shows at most.
const WHO_MAX: usize = 100;
const CONNECTIONS: u32 = 4_096;
/// How long the server waits for news, and the client between two looks at the keyboard.
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
        ["server", address] => Chat::bind(address.parse()?, ServerKey::generate()?)?.serve(|| false),
        ["server", address, secret] => Chat::bind(address.parse()?, secret.parse()?)?.serve(|| false),
        ["client", server, key, name, script @ ..] => {
            let lines = if script.is_empty() { typed() } else { scripted(script)? };
            talk(server.parse()?, key.parse()?, name, &lines, |line| println!("{line}"))?;
        }
        [] => show()?,
        _ => {
            return Err("say nothing, `server ADDRESS [SECRET_KEY]` or \
                `client ADDRESS PUBLIC_KEY NAME [--say LINE]...`"
                .into());
        }
    }
    Ok(())
}

/// The server's side.
struct Chat {
    server: Server,
    names: BTreeMap<PeerId, String>,
}

impl Chat {
    fn bind(address: SocketAddr, key: ServerKey) -> Result<Self, Box<dyn Error>> {
        let public = key.public();
        let config = ServerConfig::new(address, key, Access::Open).workers(Workers::Auto);
        let server = Server::bind(config.connections(CONNECTIONS))?;
        println!("cargo run --release --example chat -- client {} {public} YOUR_NAME", server.local_addr());
        Ok(Self { server, names: BTreeMap::new() })
    }

    fn serve(mut self, should_stop: impl Fn() -> bool) {
        while !should_stop() {
            self.server.wait(SERVER_WAIT);
            for event in self.server.poll() {
                self.hear(event);
            }
            // What came together leaves together: a packet to each peer has as many lines as fit.
            self.server.flush();
        }
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Connected { peer, .. } => self.tell(peer, "welcome; say your name"),
            Event::Message { peer, bytes, .. } => match clean(&bytes) {
                None => self.tell(peer, "that line was empty or too long"),
                Some(line) => match self.names.get(&peer).cloned() {
                    None => self.name(peer, line),
                    Some(name) => self.obey(peer, &name, &line),
                },
            },
            // Nobody waits for somebody on a slow line, who only learns how much was left out.
            Event::Missed { peer, count, .. } => self.tell(peer, &format!("you missed {count} lines")),
            Event::Disconnected { peer, .. } => {
                if let Some(name) = self.names.remove(&peer) {
                    self.tell_others(peer, format!("{name} has left"));
                }
            }
            _ => {}
        }
    }

    /// The first line of a client.
    fn name(&mut self, peer: PeerId, name: String) {
        let is_short = name.chars().count() <= NAME_MAX_CHARS && name.chars().all(char::is_alphanumeric);
        if !is_short {
            return self.tell(peer, "a name has up to 16 letters and digits; say another");
        }
        if self.names.values().any(|taken| *taken == name) {
            return self.tell(peer, "somebody has that name; say another");
        }
        if self.server.join(EVERYBODY, peer).is_err() {
            // It has just left.
            return;
        }
        self.tell(peer, &format!("hello {name}, {} others are here", self.names.len()));
        self.tell_others(peer, format!("{name} is here"));
        self.names.insert(peer, name);
    }

    fn obey(&mut self, peer: PeerId, name: &str, line: &str) {
        match line {
            "/who" => {
                let mut names: Vec<&str> = self.names.values().map(String::as_str).collect();
                names.sort_unstable();
                let others = match names.len().saturating_sub(WHO_MAX) {
                    0 => String::new(),
                    count => format!(" and {count} more"),
                };
                names.truncate(WHO_MAX);
                self.tell(peer, &format!("here are {}{others}", names.join(", ")));
            }
            "/quit" => {
                // It can only fail when the peer has quit in another way.
                let _ = self.server.close(peer, 0, "see you");
            }
            _ if line.starts_with('/') => self.tell(peer, "there are /who and /quit"),
            _ => self.tell_others(peer, format!("{name}: {line}")),
        }
    }

    fn tell(&mut self, peer: PeerId, line: &str) {
        // Who has no room for an answer does not take the lines of others either, and hears of that.
        let _ = self.server.send(peer, LINES, line.to_owned(), SendOptions::reliable_ordered());
    }

    /// One copy of the line for all, however many they are.
    fn tell_others(&mut self, speaker: PeerId, line: String) {
        let options = SendOptions::reliable_ordered();
        // It cannot fail otherwise: a line is short, and asks for no receipt.
        if let Err(BroadcastError::Full) =
            self.server.broadcast_except(speaker, EVERYBODY, LINES, line, options)
        {
            self.tell(speaker, "too much is being said: say that again");
        }
    }
}

/// The line that somebody sent, who may have sent anything.
fn clean(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes.get(..LINE_MAX_BYTES.min(bytes.len()))?);
    let line: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    (!line.is_empty() && bytes.len() <= LINE_MAX_BYTES).then_some(line)
}

/// The client's side: says the lines, shows what it hears, and quits after the last line.
fn talk(
    server: SocketAddr,
    key: ServerPublicKey,
    name: &str,
    lines: &Receiver<String>,
    mut show: impl FnMut(&str),
) -> Result<(), Box<dyn Error>> {
    let mut client = Client::connect(server, key, &ClientConfig::default())?;
    // It leaves as soon as the connection is there.
    client.send(LINES, name.to_owned(), SendOptions::reliable_ordered())?;
    let mut has_quit = false;
    loop {
        for event in client.poll() {
            match event {
                ClientEvent::Message { bytes, .. } => show(&String::from_utf8_lossy(&bytes)),
                ClientEvent::ConnectFailed { error } => return Err(error.into()),
                ClientEvent::Disconnected { reason, text } => return farewell(has_quit, reason, &text),
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
                client.wait(CLIENT_WAIT);
            }
            Some(line) => {
                has_quit |= line == "/quit";
                // Closed, when the server is just saying goodbye: the event tells more.
                if client.send(LINES, line, SendOptions::reliable_ordered()).is_err() {
                    show("that was not sent");
                }
                client.flush();
            }
        }
    }
}

/// Who has said goodbye expects to be let go, and nobody else does.
fn farewell(has_quit: bool, reason: CloseReason, text: &Bytes) -> Result<(), Box<dyn Error>> {
    if has_quit && matches!(reason, CloseReason::Remote { application_code: 0, .. }) {
        return Ok(());
    }
    Err(format!("{reason}: {}", String::from_utf8_lossy(text)).into())
}

/// Lines from the keyboard, which only a thread of its own can wait for.
fn typed() -> Receiver<String> {
    let (say, lines) = channel();
    std::thread::spawn(move || {
        let mut typed = std::io::stdin().lines().map_while(Result::ok);
        while typed.next().is_some_and(|line| say.send(line).is_ok()) {}
    });
    lines
}

/// The lines of `--say LINE --say LINE`.
fn scripted(script: &[&str]) -> Result<Receiver<String>, Box<dyn Error>> {
    let (say, lines) = channel();
    for pair in script.chunks(2) {
        let &["--say", line] = pair else {
            return Err(format!("`{}` is not `--say LINE`", pair.join(" ")).into());
        };
        say.send(line.to_owned())?;
    }
    Ok(lines)
}

/// The server and two clients in one process.
fn show() -> Result<(), Box<dyn Error>> {
    let key = ServerKey::generate()?;
    let public = key.public();
    let chat = Chat::bind("127.0.0.1:0".parse()?, key)?;
    let (address, is_over) = (chat.server.local_addr(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| chat.serve(|| is_over.load(Ordering::Acquire)));
        let people = [("ann", "good evening"), ("bob", "is it evening already?")].map(|(name, line)| {
            scope.spawn(move || {
                let lines = scripted(&["--say", line, "--say", "/who"]).map_err(|error| error.to_string())?;
                talk(address, public, name, &lines, |line| println!("{name} hears: {line}"))
                    .map_err(|error| error.to_string())
            })
        });
        let ends = people.map(|person| person.join().map_err(|_| "a client panicked".to_owned()).flatten());
        is_over.store(true, Ordering::Release);
        ends.into_iter().collect::<Result<(), String>>()
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumfire::{Clients, ClientsEvent};
    use std::sync::mpsc::Sender;
    use std::thread::JoinHandle;

    const PATIENCE: Duration = Duration::from_secs(30);

    struct World {
        address: SocketAddr,
        is_over: std::sync::Arc<AtomicBool>,
        server: Option<JoinHandle<()>>,
    }

    impl World {
        fn new() -> Self {
            let address = "127.0.0.1:0".parse().expect("an address");
            let chat = Chat::bind(address, ServerKey::dev()).expect("a free port on the loopback");
            let (address, is_over) = (chat.server.local_addr(), std::sync::Arc::new(AtomicBool::new(false)));
            let should_stop = std::sync::Arc::clone(&is_over);
            let server = std::thread::spawn(move || chat.serve(|| should_stop.load(Ordering::Acquire)));
            Self { address, is_over, server: Some(server) }
        }

        fn person(&self, name: &'static str) -> Person {
            let ((say, lines), (heard_here, heard)) = (channel(), channel());
            let address = self.address;
            let talking = std::thread::spawn(move || {
                let show = |line: &str| drop(heard_here.send(line.to_owned()));
                talk(address, ServerKey::dev().public(), name, &lines, show)
                    .map_err(|error| error.to_string())
            });
            Person { say, heard, talking }
        }
    }

    impl Drop for World {
        fn drop(&mut self) {
            self.is_over.store(true, Ordering::Release);
            drop(self.server.take().map(JoinHandle::join));
        }
    }

    struct Person {
        say: Sender<String>,
        heard: Receiver<String>,
        talking: JoinHandle<Result<(), String>>,
    }

    impl Person {
        fn say(&self, line: &str) {
            self.say.send(line.to_owned()).expect("a client that runs");
        }

        fn next(&self) -> String {
            self.heard.recv_timeout(PATIENCE).expect("a line")
        }

        fn quit(self) {
            drop(self.say);
            self.talking.join().expect("no panic").expect("a friendly end");
        }
    }

    #[test]
    fn people_hear_each_other_and_not_themselves() {
        let world = World::new();
        let ann = world.person("ann");
        assert_eq!([ann.next(), ann.next()], ["welcome; say your name", "hello ann, 0 others are here"]);
        let bob = world.person("bob");
        assert_eq!([bob.next(), bob.next()], ["welcome; say your name", "hello bob, 1 others are here"]);
        assert_eq!(ann.next(), "bob is here");
        ann.say("hello");
        ann.say("/who");
        assert_eq!([bob.next(), ann.next()], ["ann: hello", "here are ann, bob"]);
        bob.say("/dance");
        assert_eq!(bob.next(), "there are /who and /quit");
        ann.quit();
        assert_eq!(bob.next(), "ann has left");
        bob.quit();
    }

    #[test]
    fn a_name_is_given_once() {
        let world = World::new();
        let (ann, other) = (world.person("ann"), world.person("two words"));
        assert_eq!(ann.next(), "welcome; say your name");
        assert_eq!(ann.next(), "hello ann, 0 others are here");
        assert_eq!(other.next(), "welcome; say your name");
        assert_eq!(other.next(), "a name has up to 16 letters and digits; say another");
        other.say("ann");
        assert_eq!(other.next(), "somebody has that name; say another");
        other.say("tom");
        assert_eq!(other.next(), "hello tom, 1 others are here");
    }

    #[test]
    fn every_line_reaches_everybody_else_once() {
        const PEOPLE: usize = 40;
        let world = World::new();
        let address = "127.0.0.1:0".parse().expect("an address");
        let mut people = Clients::bind(address, 40, &ClientConfig::default()).expect("a socket");
        let key = ServerKey::dev().public();
        let peers: Vec<PeerId> =
            (0..PEOPLE).map(|_| people.connect(world.address, key).expect("room")).collect();
        for (number, peer) in peers.iter().enumerate() {
            let name = format!("n{number}");
            people.send(*peer, LINES, name, SendOptions::reliable_ordered()).expect("room");
        }
        let mut heard: BTreeMap<PeerId, Vec<String>> = BTreeMap::new();
        let mut hear = |people: &mut Clients| {
            assert!(people.wait(PATIENCE), "nothing more is heard");
            for event in people.poll() {
                if let ClientsEvent::Message { peer, bytes, .. } = event {
                    heard.entry(peer).or_default().push(String::from_utf8_lossy(&bytes).into_owned());
                }
            }
            let count = |word| heard.values().flatten().filter(|line| line.contains(word)).count();
            (count("hello n"), count(": line of"))
        };
        while hear(&mut people).0 < PEOPLE {}
        for (number, peer) in peers.iter().enumerate() {
            let line = format!("line of {number}");
            people.send(*peer, LINES, line, SendOptions::reliable_ordered()).expect("room");
        }
        while hear(&mut people).1 < PEOPLE * (PEOPLE - 1) {}
        for (number, peer) in peers.iter().enumerate() {
            let mut lines: Vec<&String> = heard[peer].iter().filter(|line| line.contains(": ")).collect();
            lines.sort();
            lines.dedup();
            assert_eq!(lines.len(), PEOPLE - 1);
            assert!(!lines.contains(&&format!("n{number}: line of {number}")));
        }
    }

    #[test]
    fn lines_are_made_fit_to_show() {
        assert_eq!(clean(b" hi\x1b[2J there\n").as_deref(), Some("hi[2J there"));
        assert_eq!(clean(&[0xff, b'a']).as_deref(), Some("\u{fffd}a"));
        for bad in [&b""[..], b" \n", &[b'a'; LINE_MAX_BYTES + 1]] {
            assert_eq!(clean(bad), None);
        }
        assert!(clean(&[b'a'; LINE_MAX_BYTES]).is_some());
    }

    #[test]
    fn a_script_says_what_it_cannot_read() {
        let lines = scripted(&["--say", "a", "--say", "b"]).expect("two lines");
        assert_eq!(lines.iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(scripted(&["--sya", "a"]).is_err_and(|error| error.to_string().contains("--sya")));
        assert!(scripted(&["--say"]).is_err());
    }
}
