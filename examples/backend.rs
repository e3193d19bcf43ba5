//! The way in of a real game: a backend checks a login over HTTP and answers with a connect token, the game server takes the
//! token, and the client knows nothing but the backend's address, its name and its password.
//!
//! ```text
//! cargo run --release --example backend -- server 0.0.0.0:7783 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 drumfire_master_KioqKioqKioqKioqKioqKioqKioqKioqKioqKioqKio
//! cargo run --release --example backend -- client 127.0.0.1:7783 ann correct-horse
//! ```
//!
//! `server` is both in one process, the backend on TCP and the game on UDP of one port. Apart, as they are in production, where
//! the game server never sees the master key:
//!
//! ```text
//! cargo run --release --example backend -- game 0.0.0.0:7783 drumfire_secret_... drumfire_tokenkey_...
//! cargo run --release --example backend -- backend 0.0.0.0:7784 drumfire_master_... 203.0.113.9:7783 drumfire_public_...
//! ```
//!
//! `drumfire keygen` makes such keys; the game server's token key is made of the master key with `--name eu-1`. The keys above
//! stand in this file for everybody to read. Without arguments all runs in one process.
//!
//! What a real backend has and this one leaves out: TLS in front of it, for whoever reads a token on its way can use it; a
//! database with hashes of passwords; a limit of logins per address; more than one request at a time.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drumfire::{
    Access, ChannelId, Client, ClientConfig, ClientEvent, ConnectToken, Event, PlayerId, SendOptions, Server,
    ServerConfig, ServerKey, ServerPublicKey, TokenAccess, TokenKey, TokenMasterKey, TokenRequest, Workers,
};
use serde::{Deserialize, Serialize};

/// The backend's name for the game server, from which the token key of both is derived.
const SERVER_NAME: &str = "eu-1";
/// Counted up when the token key is rotated.
const KEY_ID: u32 = 1;
const CHANNEL: ChannelId = ChannelId(0);
/// Who may play. A real backend asks its database, and has hashes there.
const PLAYERS: [(&str, &str, PlayerId); 2] =
    [("ann", "correct-horse", PlayerId(42)), ("bob", "battery-staple", PlayerId(43))];

/// Where logins are answered.
const LOGIN: &str = "/login";
/// A request or an answer that is longer is none.
const HTTP_MAX_BYTES: usize = 8_192;
const HEADERS_MAX: usize = 32;
/// For each read and write of a request.
const HTTP_PATIENCE: Duration = Duration::from_secs(2);
/// The client gives up when backend or server take this long.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to reach a backend that is being started, and two looks at whether to stop.
const PAUSE: Duration = Duration::from_millis(50);

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
        ["server", address, secret, master] => {
            let both = Both::bind(address.parse()?, secret.parse()?, &master.parse()?)?;
            println!("game on UDP {}, backend on TCP {}", both.game.local_addr(), both.http.local_addr()?);
            both.serve_while(|| true)
        }
        ["game", address, secret, token_key] => {
            let mut game = bind_game(address.parse()?, secret.parse()?, token_key.parse()?)?;
            println!("game on {}", game.local_addr());
            play_host(&mut game, || true);
            Ok(())
        }
        ["backend", address, master, game, public] => {
            let http = TcpListener::bind(address.parse::<SocketAddr>()?)?;
            println!("backend on {}", http.local_addr()?);
            let game = game.parse()?;
            let backend = Backend { key: token_key(&master.parse()?)?, game, public: public.parse()? };
            backend.serve_while(&http, || true)
        }
        ["client", backend, name, password] => {
            println!("{}", welcome(&log_in(backend.parse()?, name, password)?)?);
            Ok(())
        }
        [] => {
            println!("{}", all()?);
            Ok(())
        }
        _ => {
            Err("say `server ADDRESS SECRET MASTER`, `client BACKEND NAME PASSWORD`, `game` or `backend`"
                .into())
        }
    }
}

/// Backend, game server and client in this process, on the loopback; answers what the client is told.
fn all() -> Result<String, Box<dyn Error>> {
    let both = Both::bind("127.0.0.1:0".parse()?, ServerKey::generate()?, &TokenMasterKey::generate()?)?;
    let address = both.http.local_addr()?;
    while_served(both, || welcome(&log_in(address, "ann", "correct-horse")?))
}

/// Answers what `client` does while both are there.
fn while_served<T: Send>(
    both: Both,
    client: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let served = both.serve_while(|| !is_done.load(Ordering::Acquire));
            served.map_err(|error| error.to_string())
        });
        let outcome = client();
        is_done.store(true, Ordering::Release);
        host.join().map_err(|_| "the server panicked")??;
        outcome
    })
}

fn token_key(master: &TokenMasterKey) -> Result<TokenKey, Box<dyn Error>> {
    Ok(master.token_key(KEY_ID, SERVER_NAME)?)
}

// The game server. It knows its own secret key and its token key, and no player.

fn bind_game(address: SocketAddr, key: ServerKey, token_key: TokenKey) -> Result<Server, Box<dyn Error>> {
    let access = Access::Token(TokenAccess::new(token_key));
    Ok(Server::bind(ServerConfig::new(address, key, access).workers(Workers::Inline))?)
}

/// Greets everybody whom the backend let in, by what it wrote into the token.
fn play_host(game: &mut Server, mut goes_on: impl FnMut() -> bool) {
    while goes_on() {
        game.wait(PAUSE);
        for event in game.poll() {
            if let Event::Connected { peer, player: Some(player), .. } = event {
                let name = String::from_utf8_lossy(&player.user_data);
                let greeting = format!("welcome, {name}, player {}", player.id.0);
                // Who is gone again needs none.
                let _ = game.send(peer, CHANNEL, greeting, SendOptions::reliable_ordered());
            }
        }
        game.flush();
    }
}

/// Both on one port, for a first look; with port 0 on two that are free.
struct Both {
    game: Server,
    http: TcpListener,
    backend: Backend,
}

impl Both {
    fn bind(address: SocketAddr, key: ServerKey, master: &TokenMasterKey) -> Result<Self, Box<dyn Error>> {
        let public = key.public();
        let game = bind_game(address, key, token_key(master)?)?;
        let http = TcpListener::bind(address)?;
        let backend = Backend { key: token_key(master)?, game: game.local_addr(), public };
        Ok(Self { game, http, backend })
    }

    fn serve_while(mut self, goes_on: impl Fn() -> bool + Sync) -> Result<(), Box<dyn Error>> {
        std::thread::scope(|scope| {
            let (backend, http) = (&self.backend, &self.http);
            let asked =
                scope.spawn(|| backend.serve_while(http, &goes_on).map_err(|error| error.to_string()));
            play_host(&mut self.game, || goes_on() && !asked.is_finished());
            asked.join().map_err(|_| "the backend panicked")??;
            Ok(())
        })
    }
}

// The backend. It knows the players, and where the game servers are.

struct Backend {
    key: TokenKey,
    /// Where clients find the game server. With an unspecified IP it is the one at which the client found the backend.
    game: SocketAddr,
    public: ServerPublicKey,
}

#[derive(Deserialize, Serialize)]
struct Login {
    name: String,
    password: String,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Token(String),
    Error(String),
}

/// Why there is no token: a status of HTTP, and a line for the player.
type Refused = (u16, &'static str);

impl Backend {
    /// Answers one request after the other.
    fn serve_while(&self, http: &TcpListener, goes_on: impl Fn() -> bool) -> Result<(), Box<dyn Error>> {
        http.set_nonblocking(true)?;
        while goes_on() {
            match http.accept() {
                // Who breaks off has asked for nothing.
                Ok((stream, _)) => drop(self.answer(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::park_timeout(PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        bound(&stream)?;
        let here = stream.local_addr()?.ip();
        let (status, answer) = match read_request(&mut stream).and_then(|login| self.admit(&login, here)) {
            Ok(token) => (200, Answer::Token(token.to_text())),
            Err((status, why)) => (status, Answer::Error(why.to_owned())),
        };
        let body = serde_json::to_vec(&answer)?;
        // Its reason phrase may be empty (RFC 9112 section 4). Nobody on the way may keep a token.
        let head = format!(
            "HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat())
    }

    /// A token for who knows the password; `here` is where the client found this backend.
    fn admit(&self, login: &Login, here: IpAddr) -> Result<ConnectToken, Refused> {
        let known =
            PLAYERS.iter().find(|(name, password, _)| (*name, *password) == (&login.name, &login.password));
        let (name, _, player) = known.ok_or((401, "no such name and password"))?;
        let ip = if self.game.ip().is_unspecified() { here } else { self.game.ip() };
        let request = TokenRequest::new(*player, SocketAddr::new(ip, self.game.port()), self.public)
            .life(Duration::from_secs(30))
            .user_data(name.as_bytes());
        request.issue(&self.key).map_err(|_| (500, "no token can be made now"))
    }
}

/// Nobody holds up this end for long.
fn bound(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(HTTP_PATIENCE))?;
    stream.set_write_timeout(Some(HTTP_PATIENCE))
}

/// The login in a request to this backend.
fn read_request(stream: &mut TcpStream) -> Result<Login, Refused> {
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes).map_err(|_| (400, "this is no HTTP"))?;
        if let httparse::Status::Complete(head) = parsed {
            if request.path != Some(LOGIN) {
                return Err((404, "logins are at /login"));
            }
            if request.method != Some("POST") {
                return Err((405, "a login is a POST"));
            }
            let length = content_length(request.headers).ok_or((411, "say how long the body is"))?;
            let end = head.checked_add(length).filter(|end| *end <= HTTP_MAX_BYTES);
            let end = end.ok_or((413, "too long"))?;
            if let Some(body) = bytes.get(head..end) {
                return serde_json::from_slice(body)
                    .map_err(|_| (400, "say {\"name\": .., \"password\": ..}"));
            }
        }
        if !read_more(stream, &mut bytes).map_err(|_| (408, "too slow, or too long"))? {
            return Err((400, "the request ends too early"));
        }
    }
}

fn content_length(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(header.value).ok()?.trim().parse().ok()
}

/// Reads what is there; answers whether there may be more.
fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut some = [0; 1_024];
    let count = stream.read(&mut some)?;
    if bytes.len() + count > HTTP_MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    bytes.extend_from_slice(&some[..count]);
    Ok(count > 0)
}

// The client.

/// A token for this player.
fn log_in(backend: SocketAddr, name: &str, password: &str) -> Result<ConnectToken, Box<dyn Error>> {
    let login = serde_json::to_vec(&Login { name: name.to_owned(), password: password.to_owned() })?;
    let head = format!("POST {LOGIN} HTTP/1.1\r\nhost: {backend}\r\ncontent-length: {}\r\n\r\n", login.len());
    let answer = ask(backend, &[head.as_bytes(), &login].concat())?;
    match serde_json::from_slice(&answer)? {
        Answer::Token(text) => Ok(text.parse()?),
        Answer::Error(why) => Err(format!("the backend says: {why}").into()),
    }
}

/// The body of the answer, whatever its status.
fn ask(backend: SocketAddr, request: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut stream = reach(backend)?;
    bound(&stream)?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    while read_more(&mut stream, &mut bytes)? {}
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::Response::new(&mut headers).parse(&bytes)? {
        httparse::Status::Complete(head) => Ok(bytes.split_off(head)),
        httparse::Status::Partial => Err("the backend's answer ends too early".into()),
    }
}

/// A connection to the backend, which may be starting.
fn reach(backend: SocketAddr) -> io::Result<TcpStream> {
    let start = now();
    loop {
        match TcpStream::connect(backend) {
            Err(_) if start.elapsed() < PATIENCE => std::thread::park_timeout(PAUSE),
            outcome => return outcome,
        }
    }
}

/// What the game server says first. The token names the server and its key.
fn welcome(token: &ConnectToken) -> Result<String, Box<dyn Error>> {
    let mut client = Client::connect_with_token(token, &ClientConfig::default())?;
    while client.wait(PATIENCE) {
        if let Some(said) = client.poll().find_map(said_by_server) {
            return said;
        }
    }
    Err("the server says nothing".into())
}

/// A message, or why there will be none.
fn said_by_server(event: ClientEvent) -> Option<Result<String, Box<dyn Error>>> {
    Some(match event {
        ClientEvent::Message { bytes, .. } => String::from_utf8(bytes.to_vec()).map_err(Into::into),
        ClientEvent::ConnectFailed { error } => Err(error.into()),
        ClientEvent::Disconnected { reason, .. } => Err(reason.to_string().into()),
        _ => return None,
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both() -> Both {
        let (key, master) =
            (ServerKey::generate().expect("a key"), TokenMasterKey::generate().expect("a key"));
        Both::bind("127.0.0.1:0".parse().expect("an address"), key, &master).expect("a server")
    }

    /// What the backend answers to these bytes.
    fn said(backend: SocketAddr, request: &str) -> Result<String, Box<dyn Error>> {
        Ok(String::from_utf8(ask(backend, request.as_bytes())?)?)
    }

    #[test]
    fn a_login_becomes_a_welcome() {
        assert_eq!(all().expect("a welcome"), "welcome, ann, player 42");
    }

    #[test]
    fn a_token_lets_in_once() {
        let both = both();
        let backend = both.http.local_addr().expect("an address");
        let outcome = while_served(both, || {
            let token = log_in(backend, "bob", "battery-staple")?;
            Ok((welcome(&token)?, welcome(&token).map_err(|error| error.to_string())))
        });
        let (first, second) = outcome.expect("an answer to both");
        assert_eq!(first, "welcome, bob, player 43");
        assert_eq!(second.expect_err("it is used"), "the token has been used: get a new one");
    }

    #[test]
    fn who_is_not_known_gets_no_token_and_what_is_no_login_is_told_so() {
        let both = both();
        let backend = both.http.local_addr().expect("an address");
        let outcome = while_served(both, || {
            let refused =
                log_in(backend, "ann", "battery-staple").expect_err("another's password").to_string();
            let requests = [
                "no HTTP\r\n\r\n",
                "GET /login HTTP/1.1\r\n\r\n",
                "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
                "POST /login HTTP/1.1\r\n\r\n",
                "POST /login HTTP/1.1\r\ncontent-length: 18446744073709551615\r\n\r\n",
                "POST /login HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}",
            ];
            let answers =
                requests.iter().map(|request| said(backend, request)).collect::<Result<Vec<_>, _>>();
            Ok((refused, answers?))
        });
        let (refused, answers) = outcome.expect("answers");
        assert_eq!(refused, "the backend says: no such name and password");
        let parts = [
            "no HTTP",
            "a POST",
            "at /login",
            "how long",
            "too long",
            "say {\\\"name\\\": .., \\\"password\\\": ..}",
        ];
        for (answer, part) in answers.iter().zip(parts) {
            assert!(answer.contains(part) && answer.starts_with("{\"error\":"), "{answer}: {part}");
        }
    }

    #[test]
    fn the_keys_of_the_head_can_be_read() {
        let head = include_str!("backend.rs");
        let line = head.lines().find(|line| line.contains("-- server 0.0.0.0")).expect("a command");
        let words: Vec<&str> = line.split_whitespace().rev().take(2).collect();
        assert!(words[0].parse::<TokenMasterKey>().is_ok(), "{}", words[0]);
        assert!(words[1].parse::<ServerKey>().is_ok(), "{}", words[1]);
    }
}
