//! A login with a backend.
//!
//! The backend checks a name and a password over HTTP and returns a connect token. The game server accepts the token. The
//! client knows only the backend's address, its name, and its password.
//!
//! ```text
//! cargo run --release --example backend -- server 0.0.0.0:7783 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 drumfire_master_KioqKioqKioqKioqKioqKioqKioqKioqKioqKioqKio
//! cargo run --release --example backend -- client 127.0.0.1:7783 ann correct-horse
//! ```
//!
//! `server` runs the backend on TCP and the game on UDP in one process and on one port. In production they are
//! separate, so that the game server does not have the master key:
//!
//! ```text
//! cargo run --release --example backend -- game 0.0.0.0:7783 drumfire_secret_... drumfire_tokenkey_...
//! cargo run --release --example backend -- backend 0.0.0.0:7784 drumfire_master_... 203.0.113.9:7783 drumfire_public_...
//! ```
//!
//! `drumfire keygen` generates such keys, and derives the token key of the game server from the master key with `--name
//! eu-1`. The keys above are public, so use them only for tests. Without arguments, the backend, the game server, and
//! the client run in one process.
//!
//! A real backend also needs TLS, because anyone who reads a token can use it, a database of password hashes, a rate
//! limit per address, and concurrent requests.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, ChannelId, Client, ClientConfig, ConnectToken, Event, Message, PlayerId, Server, ServerConfig,
    ServerKey, ServerPublicKey, Workers,
};
use serde::{Deserialize, Serialize};

/// The backend's name for the game server. The token key is derived from the master key and this name.
const SERVER_NAME: &str = "eu-1";
/// The id of the token key. Increment it to rotate the key.
const KEY_ID: u32 = 1;
const CHANNEL: ChannelId = ChannelId(0);
/// The players. A real backend has a database with password hashes.
const PLAYERS: [(&str, &str, PlayerId); 2] =
    [("ann", "correct-horse", PlayerId(42)), ("bob", "battery-staple", PlayerId(43))];

/// The path of login requests.
const LOGIN: &str = "/login";
/// The maximum size of a request or a response.
const HTTP_MAX_BYTES: usize = 8_192;
const HEADERS_MAX: usize = 32;
/// The timeout of each read and each write of an HTTP connection.
const HTTP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the client waits for the backend and for the server.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two attempts to reach the backend, and between two checks whether to stop.
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
            let servers = Servers::bind(address.parse()?, secret.parse()?, &master.parse()?)?;
            let (game, backend) = (servers.game.local_addr(), servers.http.local_addr()?);
            println!("game on UDP {game}, backend on TCP {backend}");
            servers.serve_while(|| true)
        }
        ["game", address, secret, token_key] => {
            let mut game = bind_game(address.parse()?, secret.parse()?, token_key.parse()?)?;
            println!("game on {}", game.local_addr());
            run_game(&mut game, || true);
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
            println!("{}", run_all()?);
            Ok(())
        }
        _ => {
            let usage = "usage: `server ADDRESS SECRET MASTER`, `client BACKEND NAME PASSWORD`, \
                `game ADDRESS SECRET TOKEN_KEY`, or `backend ADDRESS MASTER GAME PUBLIC`";
            Err(usage.into())
        }
    }
}

/// Runs the backend, the game server, and the client in one process. Returns the text that the client received.
fn run_all() -> Result<String, Box<dyn Error>> {
    let servers =
        Servers::bind("127.0.0.1:0".parse()?, ServerKey::generate()?, &TokenMasterKey::generate()?)?;
    let address = servers.http.local_addr()?;
    run_client(servers, || welcome(&log_in(address, "ann", "correct-horse")?))
}

/// Runs the servers until `client` returns, and returns its result.
fn run_client<T: Send>(
    servers: Servers,
    client: impl FnOnce() -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            let served = servers.serve_while(|| !is_done.load(Ordering::Acquire));
            served.map_err(|error| error.to_string())
        });
        let outcome = client();
        is_done.store(true, Ordering::Release);
        serving.join().map_err(|_| "the server panicked")??;
        outcome
    })
}

fn token_key(master: &TokenMasterKey) -> Result<TokenKey, Box<dyn Error>> {
    Ok(master.token_key(KEY_ID, SERVER_NAME)?)
}

// The game server. It has its secret key and its token key, but no player data.

fn bind_game(address: SocketAddr, key: ServerKey, token_key: TokenKey) -> Result<Server, Box<dyn Error>> {
    let access = Access::Token(TokenAccess::new(token_key));
    Ok(Server::bind(ServerConfig::new(address, key, access).workers(Workers::Inline))?)
}

/// Greets each player with the name that the backend put into the token.
fn run_game(game: &mut Server, should_continue: impl Fn() -> bool) {
    while should_continue() {
        game.poll(PAUSE);
        while let Some(event) = game.next_event() {
            if let Event::Connected { peer, info } = event
                && let Some(PlayerId(player)) = info.player
            {
                let name = String::from_utf8_lossy(&info.user_data);
                let greeting = format!("welcome, {name}, player {player}");
                // A send fails only if the player is already gone.
                let _ = game.send(peer, Message::reliable_ordered(CHANNEL, greeting));
            }
        }
        game.flush();
    }
}

/// The game server and the backend on one port. With port 0 they have different ports.
struct Servers {
    game: Server,
    http: TcpListener,
    backend: Backend,
}

impl Servers {
    fn bind(address: SocketAddr, key: ServerKey, master: &TokenMasterKey) -> Result<Self, Box<dyn Error>> {
        let public = key.public();
        let game = bind_game(address, key, token_key(master)?)?;
        let http = TcpListener::bind(address)?;
        let backend = Backend { key: token_key(master)?, game: game.local_addr(), public };
        Ok(Self { game, http, backend })
    }

    fn serve_while(mut self, should_continue: impl Fn() -> bool + Sync) -> Result<(), Box<dyn Error>> {
        std::thread::scope(|scope| {
            let (backend, http) = (&self.backend, &self.http);
            let serving = scope
                .spawn(|| backend.serve_while(http, &should_continue).map_err(|error| error.to_string()));
            run_game(&mut self.game, || should_continue() && !serving.is_finished());
            serving.join().map_err(|_| "the backend panicked")??;
            Ok(())
        })
    }
}

// The backend. It has the player data and the addresses of the game servers.

struct Backend {
    key: TokenKey,
    /// The address of the game server. If its IP is unspecified, tokens contain the IP at which the client reached the
    /// backend.
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
enum Response {
    Token(String),
    Error(String),
}

/// The HTTP status and the text of a refused login.
type HttpError = (u16, &'static str);

impl Backend {
    /// Handles requests one after the other.
    fn serve_while(
        &self,
        http: &TcpListener,
        should_continue: impl Fn() -> bool,
    ) -> Result<(), Box<dyn Error>> {
        http.set_nonblocking(true)?;
        while should_continue() {
            match http.accept() {
                // An error concerns only this client, which has gone or is too slow.
                Ok((stream, _)) => drop(self.handle_request(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::park_timeout(PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn handle_request(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        set_timeouts(&stream)?;
        let local_ip = stream.local_addr()?.ip();
        let login = read_request(&mut stream);
        let (status, response) = match login.and_then(|login| self.issue_token(&login, local_ip)) {
            Ok(token) => (200, Response::Token(token.to_text())),
            Err((status, text)) => (status, Response::Error(text.to_owned())),
        };
        let body = serde_json::to_vec(&response)?;
        // The reason phrase may be empty (RFC 9112, section 4). `no-store` keeps tokens out of caches.
        let head = format!(
            "HTTP/1.1 {status} \r\ncontent-type: application/json\r\ncontent-length: {}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat())
    }

    /// Issues a token if the password is correct. `local_ip` is the IP at which the client reached the backend.
    fn issue_token(&self, login: &Login, local_ip: IpAddr) -> Result<ConnectToken, HttpError> {
        let entry =
            PLAYERS.iter().find(|(name, password, _)| (*name, *password) == (&login.name, &login.password));
        let (name, _, player) = entry.ok_or((401, "wrong name or password"))?;
        let ip = if self.game.ip().is_unspecified() { local_ip } else { self.game.ip() };
        let request = TokenRequest::new(*player, SocketAddr::new(ip, self.game.port()), self.public)
            .lifetime(Duration::from_secs(30))
            .user_data(name.as_bytes());
        request.issue(&self.key).map_err(|_| (500, "cannot issue a token"))
    }
}

/// Limits how long the other end can block this thread.
fn set_timeouts(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(HTTP_TIMEOUT))?;
    stream.set_write_timeout(Some(HTTP_TIMEOUT))
}

/// Reads a login request.
fn read_request(stream: &mut TcpStream) -> Result<Login, HttpError> {
    let mut bytes = Vec::new();
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes).map_err(|_| (400, "the request is not HTTP"))?;
        if let httparse::Status::Complete(head) = parsed {
            if request.path != Some(LOGIN) {
                return Err((404, "the path must be /login"));
            }
            if request.method != Some("POST") {
                return Err((405, "the method must be POST"));
            }
            let length = content_length(request.headers).ok_or((411, "content-length is missing"))?;
            let end = head.checked_add(length).filter(|end| *end <= HTTP_MAX_BYTES);
            let end = end.ok_or((413, "the request is too long"))?;
            if let Some(body) = bytes.get(head..end) {
                return serde_json::from_slice(body)
                    .map_err(|_| (400, "the body must be {\"name\": .., \"password\": ..}"));
            }
        }
        if !read_more(stream, &mut bytes).map_err(|_| (408, "the request is too slow or too long"))? {
            return Err((400, "the request is incomplete"));
        }
    }
}

fn content_length(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let header = headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(header.value).ok()?.trim().parse().ok()
}

/// Reads available bytes. Returns false at the end of the stream.
fn read_more(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 1_024];
    let count = stream.read(&mut buffer)?;
    if bytes.len() + count > HTTP_MAX_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    bytes.extend_from_slice(&buffer[..count]);
    Ok(count > 0)
}

// The client.

/// Requests a token from the backend.
fn log_in(backend: SocketAddr, name: &str, password: &str) -> Result<ConnectToken, Box<dyn Error>> {
    let login = serde_json::to_vec(&Login { name: name.to_owned(), password: password.to_owned() })?;
    let head = format!("POST {LOGIN} HTTP/1.1\r\nhost: {backend}\r\ncontent-length: {}\r\n\r\n", login.len());
    let body = send_request(backend, &[head.as_bytes(), &login].concat())?;
    match serde_json::from_slice(&body)? {
        Response::Token(text) => Ok(text.parse()?),
        Response::Error(text) => Err(format!("the backend refused the login: {text}").into()),
    }
}

/// Sends a request and returns the body of the response, whatever its status is.
fn send_request(backend: SocketAddr, request: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut stream = connect(backend)?;
    set_timeouts(&stream)?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    while read_more(&mut stream, &mut bytes)? {}
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::Response::new(&mut headers).parse(&bytes)? {
        httparse::Status::Complete(head) => Ok(bytes.split_off(head)),
        httparse::Status::Partial => Err("the backend's response is incomplete".into()),
    }
}

/// Connects to the backend. Retries while the backend starts.
fn connect(backend: SocketAddr) -> io::Result<TcpStream> {
    let start = now();
    loop {
        match TcpStream::connect(backend) {
            Err(_) if start.elapsed() < CLIENT_TIMEOUT => std::thread::park_timeout(PAUSE),
            outcome => return outcome,
        }
    }
}

/// Connects to the game server and returns its first message. The token contains the server's address and key.
fn welcome(token: &ConnectToken) -> Result<String, Box<dyn Error>> {
    let mut client = Client::new(ClientConfig::default())?;
    client.connect(token)?;
    while client.poll(CLIENT_TIMEOUT) {
        if let Some(outcome) = client.events().find_map(outcome) {
            return outcome;
        }
    }
    Err("the server sent no message".into())
}

/// Returns the text of a message, or the error of a connection that ended.
fn outcome(event: Event) -> Option<Result<String, Box<dyn Error>>> {
    Some(match event {
        Event::Message { payload, .. } => String::from_utf8(payload.to_vec()).map_err(Into::into),
        Event::ConnectFailed { error, .. } => Err(error.into()),
        Event::Disconnected { closed, .. } => Err(closed.reason.to_string().into()),
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

    fn servers() -> Servers {
        let key = ServerKey::generate().expect("server key");
        let master = TokenMasterKey::generate().expect("master key");
        Servers::bind("127.0.0.1:0".parse().expect("address"), key, &master).expect("servers")
    }

    /// Returns the body of the backend's response.
    fn response(backend: SocketAddr, request: &str) -> Result<String, Box<dyn Error>> {
        Ok(String::from_utf8(send_request(backend, request.as_bytes())?)?)
    }

    #[test]
    fn a_client_logs_in_and_is_greeted() {
        assert_eq!(run_all().expect("greeting"), "welcome, ann, player 42");
    }

    #[test]
    fn a_token_admits_once() {
        let servers = servers();
        let backend = servers.http.local_addr().expect("address");
        let outcome = run_client(servers, || {
            let token = log_in(backend, "bob", "battery-staple")?;
            Ok((welcome(&token)?, welcome(&token).map_err(|error| error.to_string())))
        });
        let (first, second) = outcome.expect("first greeting");
        assert_eq!(first, "welcome, bob, player 43");
        assert_eq!(second.expect_err("the token was used"), "the token has been used: get a new one");
    }

    #[test]
    fn invalid_logins_are_refused_with_a_reason() {
        let servers = servers();
        let backend = servers.http.local_addr().expect("address");
        let outcome = run_client(servers, || {
            let error =
                log_in(backend, "ann", "battery-staple").expect_err("the password is wrong").to_string();
            let requests = [
                "no HTTP\r\n\r\n",
                "GET /login HTTP/1.1\r\n\r\n",
                "POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
                "POST /login HTTP/1.1\r\n\r\n",
                "POST /login HTTP/1.1\r\ncontent-length: 18446744073709551615\r\n\r\n",
                "POST /login HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}",
            ];
            let responses =
                requests.iter().map(|request| response(backend, request)).collect::<Result<Vec<_>, _>>();
            Ok((error, responses?))
        });
        let (error, responses) = outcome.expect("responses");
        assert_eq!(error, "the backend refused the login: wrong name or password");
        let parts = [
            "not HTTP",
            "must be POST",
            "must be /login",
            "content-length is missing",
            "too long",
            "{\\\"name\\\": .., \\\"password\\\": ..}",
        ];
        for (response, part) in responses.iter().zip(parts) {
            assert!(response.contains(part) && response.starts_with("{\"error\":"), "{response}: {part}");
        }
    }

    #[test]
    fn the_documented_keys_are_valid() {
        let source = include_str!("backend.rs");
        let line = source.lines().find(|line| line.contains("-- server 0.0.0.0")).expect("command");
        let words: Vec<&str> = line.split_whitespace().rev().take(2).collect();
        assert!(words[0].parse::<TokenMasterKey>().is_ok(), "{}", words[0]);
        assert!(words[1].parse::<ServerKey>().is_ok(), "{}", words[1]);
    }
}
