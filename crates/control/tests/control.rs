//! A control socket of a server on loopback: the responses to an operator, and the treatment of clients that misbehave.
//!
//! Nothing here sleeps: a step waits for events, at most for a millisecond, and every wait has a deadline.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use drumfire::control::SurveyOrder;
use drumfire::error::RefuseReason;
use drumfire::{
    Access, ChannelId, Client, ClientConfig, ConnectError, Event, Message, PeerId, Server, ServerConfig,
    ServerKey, Workers,
};
use drumfire_control::{
    CLIENTS_MAX, Command, Connection, ControlSocket, OpenError, PeerRow, REQUEST_BYTES_MAX,
    RESPONSE_BYTES_MAX, RequestError, Response, Snapshot, Source,
};

/// The longest wait for a condition.
const TIMEOUT: Duration = Duration::from_secs(30);

#[expect(clippy::disallowed_methods, reason = "conditions on real sockets have deadlines")]
fn now() -> Instant {
    Instant::now()
}

/// A path that no other test has.
fn path() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("drumfire-control-{}-{number}", std::process::id()))
}

/// A game on a thread of its own, with a control socket.
struct Game {
    control: ControlSocket,
    is_over: Arc<AtomicBool>,
    /// The events of each client.
    events: Arc<Mutex<Vec<Vec<Event>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Game {
    fn new(clients: usize) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig::new(address, ServerKey::dev(), Access::Open).flight_recorder(true);
        let mut server = Server::bind(config.workers(Workers::Count(1))).unwrap();
        let control = ControlSocket::listen(path(), server.control()).unwrap();
        let (is_over, events) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (over, received) = (Arc::clone(&is_over), Arc::clone(&events));
        let thread = std::thread::spawn(move || {
            let mut players: Vec<(Client, PeerId)> = Vec::new();
            while !over.load(Ordering::Acquire) {
                // A closed client is replaced by one more.
                let is_closed = |events: &Vec<Event>| {
                    events.iter().any(|event| matches!(event, Event::Disconnected { .. }))
                };
                let wanted = clients + usize::from(received.lock().unwrap().iter().any(is_closed));
                if players.len() < wanted {
                    let mut player = Client::new(ClientConfig::default()).unwrap();
                    let peer = player.connect((server.local_addr(), ServerKey::dev().public())).unwrap();
                    players.push((player, peer));
                    received.lock().unwrap().push(Vec::new());
                }
                server.poll(Duration::from_millis(1));
                server.events().count();
                for ((player, peer), events) in players.iter_mut().zip(received.lock().unwrap().iter_mut()) {
                    let _ = player.send(*peer, Message::reliable_unordered(ChannelId(0), "input"));
                    player.poll(Duration::ZERO);
                    events.extend(player.events());
                }
            }
        });
        Self { control, is_over, events, thread: Some(thread) }
    }

    fn open(&self) -> Connection {
        Connection::open(self.control.path()).unwrap()
    }

    /// Waits until a client has an event for which this holds.
    fn wait_for(&self, is_expected: impl Fn(&Event) -> bool) {
        until(|| self.events.lock().unwrap().iter().flatten().any(&is_expected).then_some(()));
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(self.control.path()).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }
}

impl Drop for Game {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok());
        }
    }
}

/// Repeats until there is a result, at most for [`TIMEOUT`].
#[track_caller]
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = now() + TIMEOUT;
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(now() < deadline, "the condition does not hold in time");
        std::thread::yield_now();
    }
}

fn snapshot(connection: &mut Connection, limit: usize) -> Snapshot {
    match connection.request(Command::Snapshot { order: SurveyOrder::Rate, limit }).unwrap() {
        Response::Snapshot(snapshot) => snapshot,
        other => panic!("{other:?}"),
    }
}

/// Returns the first snapshot for which the condition holds.
fn snapshot_with(connection: &mut Connection, condition: impl Fn(&Snapshot) -> bool) -> Snapshot {
    until(|| Some(snapshot(connection, 100)).filter(&condition))
}

fn error(response: Response) -> String {
    let Response::Error { text } = response else { panic!("{response:?}") };
    text
}

/// Returns the only line that a client receives before the connection ends.
fn only_line(stream: UnixStream) -> String {
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    // If the server did not read everything, the end of the connection may be a reset.
    let mut rest = Vec::new();
    let _ = lines.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
    line
}

#[test]
fn a_snapshot_has_rates_and_at_most_the_requested_peers() {
    let game = Game::new(3);
    let mut connection = game.open();
    let all = snapshot_with(&mut connection, |snapshot| {
        snapshot.peers_examined >= 3 && snapshot.peers.iter().all(|peer| peer.sent_per_second.is_some())
    });
    assert_eq!((all.program.as_str(), all.has_peers, all.workers.len()), ("server", true, 1));
    assert!(all.peers.iter().all(|peer| peer.address.starts_with("127.0.0.1:") && peer.player.is_none()));
    assert!(all.workers[0].received > 0 && all.workers[0].busy_percent.is_some());
    let few = snapshot(&mut connection, 2);
    assert_eq!(few.peers.len(), 2);
    assert!(few.taken_at_nanos > all.taken_at_nanos);
    let total = |peer: &PeerRow| peer.sent_per_second.unwrap_or(0) + peer.received_per_second.unwrap_or(0);
    assert!(total(&few.peers[0]) >= total(&few.peers[1]));
}

#[test]
fn a_closed_peer_receives_the_text() {
    let game = Game::new(1);
    let mut connection = game.open();
    let peer = snapshot_with(&mut connection, |snapshot| snapshot.peers_examined == 1).peers.remove(0).peer;
    let close = |peer: &str, text: &str| Command::Close { peer: peer.to_owned(), text: text.to_owned() };
    assert!(error(connection.request(close("no id", "")).unwrap()).contains("not the id of a peer"));
    assert!(error(connection.request(close("7.0.1", "")).unwrap()).contains("peer"));
    assert!(error(connection.request(close(&peer, &"x".repeat(200))).unwrap()).contains("128"));
    let done = connection.request(close(&peer, "come back tomorrow")).unwrap();
    assert_eq!(done, Response::Done { text: format!("closed {peer}") });
    game.wait_for(
        |event| matches!(event, Event::Disconnected { closed, .. } if closed.text == "come back tomorrow"),
    );
}

#[test]
fn a_banned_peer_is_disconnected_and_then_refused() {
    let game = Game::new(1);
    let mut connection = game.open();
    let peer = snapshot_with(&mut connection, |snapshot| snapshot.peers_examined == 1).peers.remove(0).peer;
    let ban = Command::Ban { peer: peer.clone(), seconds: 600 };
    let Response::Done { text } = connection.request(ban.clone()).unwrap() else {
        panic!("the peer is connected")
    };
    assert!(text.contains("127.0.0.1") && text.contains("600 s"), "{text}");
    game.wait_for(|event| {
        matches!(event, Event::ConnectFailed { error: ConnectError::Refused(refusal), .. }
            if refusal.reason == RefuseReason::Banned)
    });
    assert!(error(connection.request(ban).unwrap()).contains("peer"), "the peer is disconnected");
}

#[test]
fn a_trace_is_the_flight_record_as_text() {
    let game = Game::new(1);
    let mut connection = game.open();
    let is_busy = |snapshot: &Snapshot| {
        snapshot.peers.first().is_some_and(|peer| peer.received_per_second.is_some_and(|rate| rate > 0))
    };
    let peer = snapshot_with(&mut connection, is_busy).peers.remove(0).peer;
    let Response::Record { text } = connection.request(Command::Trace { peer }).unwrap() else {
        panic!("a busy peer has a record")
    };
    assert!(text.starts_with("flight record of a server") && text.contains("received"), "{text}");
    assert!(text.lines().count() > 3 && text.len() < RESPONSE_BYTES_MAX);
    let gone = connection.request(Command::Trace { peer: "0.0.4294967295".to_owned() }).unwrap();
    assert!(error(gone).contains("there is no flight record"));
}

#[test]
fn an_invalid_request_gets_an_error_and_ends_the_connection() {
    let game = Game::new(1);
    for (sent, expected) in [
        ("hello\n", "not a JSON object with a version"),
        ("[1]\n", "not a JSON object with a version"),
        ("\n", "not a JSON object with a version"),
        (r#"{"version":2,"command":"everything"}"#, "version 1 of the protocol and the request 2"),
        (r#"{"version":1,"command":"everything"}"#, "unknown variant"),
        (r#"{"version":1,"command":"ban","peer":"0.0.1","seconds":-1}"#, "not a request"),
    ] {
        let mut stream = game.raw();
        stream.write_all(format!("{}\n", sent.trim_end()).as_bytes()).unwrap();
        let line = only_line(stream);
        assert!(line.contains(r#""answer":"error""#) && line.contains(expected), "{sent}: {line}");
    }
    for end in ["", "\n"] {
        let mut stream = game.raw();
        let _ = stream.write_all(&[&[b'x'; REQUEST_BYTES_MAX + 1], end.as_bytes()].concat());
        assert!(only_line(stream).contains("at most 4096 bytes"));
    }
    assert_eq!(snapshot(&mut game.open(), 1).workers.len(), 1, "other clients are served");
}

#[test]
fn clients_that_do_not_read_or_send_half_a_line_block_no_other() {
    let game = Game::new(1);
    let (mut unread, mut slow) = (game.raw(), game.raw());
    slow.write_all(br#"{"version":1,"#).unwrap();
    unread.set_nonblocking(true).unwrap();
    let request = b"{\"version\":1,\"command\":\"snapshot\",\"order\":\"rate\",\"limit\":256}\n";
    let deadline = now() + TIMEOUT;
    let mut connection = game.open();
    // Send until the buffers of both directions are full.
    while unread.write_all(request).is_ok() {
        assert!(now() < deadline, "the server reads without end");
        if deadline - now() < TIMEOUT / 2 {
            snapshot(&mut connection, 1);
        }
    }
    assert_eq!(snapshot(&mut connection, 1).workers.len(), 1);
    slow.write_all(b"\"command\":\"snapshot\",\"order\":\"rate\",\"limit\":1}\n").unwrap();
    let mut line = String::new();
    BufReader::new(slow).read_line(&mut line).unwrap();
    assert!(line.contains(r#""answer":"snapshot""#), "{line}");
}

/// A source whose response is the number of the request. The first response waits for a signal of the test.
struct Numbering {
    request_count: Arc<AtomicUsize>,
    signal: std::sync::mpsc::Receiver<()>,
}

impl Source for Numbering {
    fn snapshot(&mut self, _: SurveyOrder, _: usize) -> Snapshot {
        Snapshot::default()
    }

    fn trace(&mut self, _: &str) -> Result<String, String> {
        let number = self.request_count.fetch_add(1, Ordering::AcqRel);
        if number == 0 {
            self.signal.recv_timeout(TIMEOUT).unwrap();
        }
        Ok(number.to_string())
    }
}

#[test]
fn a_client_with_many_requests_does_not_delay_the_others() {
    let (request_count, (send, signal)) = (Arc::new(AtomicUsize::new(0)), std::sync::mpsc::channel());
    let source = Numbering { request_count: Arc::clone(&request_count), signal };
    let control = ControlSocket::listen(path(), source).unwrap();
    let [mut greedy, mut other] = [(); 2].map(|()| UnixStream::connect(control.path()).unwrap());
    let request = b"{\"version\":1,\"command\":\"trace\",\"peer\":\"0.0.1\"}\n";
    greedy.write_all(&request.repeat(100)).unwrap();
    until(|| (request_count.load(Ordering::Acquire) > 0).then_some(()));
    // All requests have arrived before the first one is answered.
    other.write_all(request).unwrap();
    send.send(()).unwrap();
    other.set_read_timeout(Some(TIMEOUT)).unwrap();
    let mut line = String::new();
    BufReader::new(other).read_line(&mut line).unwrap();
    assert!(["1", "2"].iter().any(|number| line.contains(&format!("\"text\":\"{number}\""))), "{line}");
}

#[test]
fn a_client_above_the_limit_is_rejected_until_one_leaves() {
    let game = Game::new(1);
    let mut others: Vec<Connection> = (0..CLIENTS_MAX).map(|_| game.open()).collect();
    others.iter_mut().for_each(|other| assert_eq!(snapshot(other, 1).workers.len(), 1));
    let command = || Command::Snapshot { order: SurveyOrder::Loss, limit: 1 };
    assert!(error(game.open().request(command()).unwrap()).contains("other clients are connected"));
    others.pop();
    until(|| matches!(game.open().request(command()).unwrap(), Response::Snapshot(_)).then_some(()));
}

#[test]
fn the_socket_file_is_private_and_removed_with_the_server() {
    let game = Game::new(1);
    let path = game.control.path().to_owned();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let second = ControlSocket::listen(&path, EmptySource).unwrap_err();
    assert_eq!(second.to_string(), "another server listens on the path");
    let mut connection = game.open();
    drop(game);
    assert!(!path.exists());
    let command = Command::Trace { peer: "0.0.1".to_owned() };
    assert!(matches!(connection.request(command), Err(RequestError::Ended | RequestError::Io(_))));
    assert!(matches!(Connection::open(&path), Err(OpenError::Missing)));
}

#[test]
fn an_abandoned_socket_is_replaced_and_any_other_file_is_kept() {
    let path = path();
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(Connection::open(&path), Err(OpenError::Abandoned)));
    drop(ControlSocket::listen(&path, EmptySource).unwrap());
    std::fs::write(&path, "precious").unwrap();
    let refused = ControlSocket::listen(&path, EmptySource).unwrap_err();
    assert_eq!(refused.to_string(), "the path is a file and not a socket");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    assert!(ControlSocket::listen("/no such folder/socket", EmptySource).is_err());
    assert!(ControlSocket::listen("x".repeat(300), EmptySource).is_err());
}

#[test]
fn invalid_answers_are_errors() {
    let cases = [
        ("{\"version\":9,\"answer\":\"done\"}\n", "version 9 of the protocol"),
        ("{\"answer\":\"done\"}\n", "no version"),
        ("{\"version\":1,\"answer\":\"else\"}\n", "the response is invalid"),
        ("nonsense\n", "the response is invalid"),
        ("{\"version\":1", "cut off"),
        ("", "ended the connection"),
    ];
    for (response, expected) in cases {
        let path = path();
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            stream.write_all(response.as_bytes()).unwrap();
        });
        let mut connection = Connection::open(&path).unwrap();
        let error = connection.request(Command::Trace { peer: String::new() }).unwrap_err();
        assert!(error.to_string().contains(expected), "{response}: {error}");
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

/// A source that has no data and refuses every command.
struct EmptySource;

impl Source for EmptySource {
    fn snapshot(&mut self, _: SurveyOrder, _: usize) -> Snapshot {
        Snapshot::default()
    }
}
