//! A control socket of a server on loopback: the answers to an operator, and the treatment of clients that misbehave.
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
    ANSWER_BYTES_MAX, Answer, Ask, AskError, CLIENTS_MAX, Connection, ControlSocket, OpenError, PeerRow,
    REQUEST_BYTES_MAX, Snapshot, Source,
};

/// A condition that takes this long will not come true.
const PATIENCE: Duration = Duration::from_secs(30);

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
    heard: Arc<Mutex<Vec<Vec<Event>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Game {
    fn new(clients: usize) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let config = ServerConfig::new(address, ServerKey::dev(), Access::Open).flight_recorder(true);
        let mut server = Server::bind(config.workers(Workers::Count(1))).unwrap();
        let control = ControlSocket::listen(path(), server.control()).unwrap();
        let (is_over, heard) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (over, ears) = (Arc::clone(&is_over), Arc::clone(&heard));
        let thread = std::thread::spawn(move || {
            let mut players: Vec<(Client, PeerId)> = Vec::new();
            while !over.load(Ordering::Acquire) {
                // A closed client is replaced by one more.
                let is_one_gone =
                    |ears: &Vec<Event>| ears.iter().any(|event| matches!(event, Event::Disconnected { .. }));
                let wanted = clients + usize::from(ears.lock().unwrap().iter().any(is_one_gone));
                if players.len() < wanted {
                    let mut player = Client::new(ClientConfig::default()).unwrap();
                    let peer = player.connect((server.local_addr(), ServerKey::dev().public())).unwrap();
                    players.push((player, peer));
                    ears.lock().unwrap().push(Vec::new());
                }
                server.poll(Duration::from_millis(1));
                server.events().count();
                for ((player, peer), ears) in players.iter_mut().zip(ears.lock().unwrap().iter_mut()) {
                    let _ = player.send(*peer, Message::reliable_unordered(ChannelId(0), "input"));
                    player.poll(Duration::ZERO);
                    ears.extend(player.events());
                }
            }
        });
        Self { control, is_over, heard, thread: Some(thread) }
    }

    fn open(&self) -> Connection {
        Connection::open(self.control.path()).unwrap()
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(self.control.path()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
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

fn snapshot(connection: &mut Connection, most: usize) -> Snapshot {
    match connection.ask(Ask::Snapshot { order: SurveyOrder::Rate, most }).unwrap() {
        Answer::Snapshot(snapshot) => snapshot,
        other => panic!("{other:?}"),
    }
}

/// The first snapshot of which this is true.
fn snapshot_with(connection: &mut Connection, is_it: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let deadline = now() + PATIENCE;
    loop {
        let snapshot = snapshot(connection, 100);
        if is_it(&snapshot) {
            return snapshot;
        }
        assert!(now() < deadline, "{snapshot:?}");
    }
}

fn error(answer: Answer) -> String {
    let Answer::Error { text } = answer else { panic!("{answer:?}") };
    text
}

/// Returns the last line that a client receives before the connection ends.
fn last_words(stream: UnixStream) -> String {
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
fn connections_are_shown_with_their_rates_and_no_more_of_them_than_asked_for() {
    let game = Game::new(3);
    let mut connection = game.open();
    let all = snapshot_with(&mut connection, |snapshot| {
        snapshot.peers_seen >= 3 && snapshot.peers.iter().all(|peer| peer.sent_per_second.is_some())
    });
    assert_eq!((all.what.as_str(), all.has_peers, all.workers.len()), ("server", true, 1));
    assert!(all.peers.iter().all(|peer| peer.address.starts_with("127.0.0.1:") && peer.player.is_none()));
    assert!(all.workers[0].received > 0 && all.workers[0].busy_percent.is_some());
    let few = snapshot(&mut connection, 2);
    assert_eq!(few.peers.len(), 2);
    assert!(few.taken_at_nanos > all.taken_at_nanos);
    let total = |peer: &PeerRow| peer.sent_per_second.unwrap_or(0) + peer.received_per_second.unwrap_or(0);
    assert!(total(&few.peers[0]) >= total(&few.peers[1]));
}

#[test]
fn a_peer_is_closed_by_its_name_and_hears_the_line() {
    let game = Game::new(1);
    let mut connection = game.open();
    let peer = snapshot_with(&mut connection, |snapshot| snapshot.peers_seen == 1).peers.remove(0).peer;
    let close = |peer: &str, text: &str| Ask::Close { peer: peer.to_owned(), text: text.to_owned() };
    assert!(error(connection.ask(close("nobody", "")).unwrap()).contains("not the id of a peer"));
    assert!(error(connection.ask(close("7.0.1", "")).unwrap()).contains("peer"));
    assert!(error(connection.ask(close(&peer, &"x".repeat(200))).unwrap()).contains("128"));
    let done = connection.ask(close(&peer, "come back tomorrow")).unwrap();
    assert_eq!(done, Answer::Done { text: format!("closed {peer}") });
    let deadline = now() + PATIENCE;
    let has_heard = |event: &Event| matches!(event, Event::Disconnected { closed, .. } if closed.text == "come back tomorrow");
    while !game.heard.lock().unwrap().iter().flatten().any(has_heard) {
        assert!(now() < deadline, "{:?}", game.heard.lock().unwrap());
        snapshot(&mut connection, 1);
    }
}

#[test]
fn who_is_banned_goes_and_is_not_let_in_again() {
    let game = Game::new(1);
    let mut connection = game.open();
    let peer = snapshot_with(&mut connection, |snapshot| snapshot.peers_seen == 1).peers.remove(0).peer;
    let ban = Ask::Ban { peer: peer.clone(), seconds: 600 };
    let Answer::Done { text } = connection.ask(ban.clone()).unwrap() else { panic!("it is there") };
    assert!(text.contains("127.0.0.1") && text.contains("600 s"), "{text}");
    let is_refused = |event: &Event| {
        let Event::ConnectFailed { error: ConnectError::Refused(refusal), .. } = event else {
            return false;
        };
        refusal.reason == RefuseReason::Banned
    };
    let deadline = now() + PATIENCE;
    while !game.heard.lock().unwrap().iter().flatten().any(is_refused) {
        assert!(now() < deadline, "{:?}", game.heard.lock().unwrap());
        snapshot(&mut connection, 1);
    }
    assert!(error(connection.ask(ban).unwrap()).contains("peer"), "it is gone");
}

#[test]
fn a_trace_is_the_flight_record_as_text() {
    let game = Game::new(1);
    let mut connection = game.open();
    let is_busy = |snapshot: &Snapshot| {
        snapshot.peers.first().is_some_and(|peer| peer.received_per_second.is_some_and(|rate| rate > 0))
    };
    let peer = snapshot_with(&mut connection, is_busy).peers.remove(0).peer;
    let Answer::Record { text } = connection.ask(Ask::Trace { peer }).unwrap() else { panic!("it is busy") };
    assert!(text.starts_with("flight record of a server") && text.contains("received"), "{text}");
    assert!(text.lines().count() > 3 && text.len() < ANSWER_BYTES_MAX);
    let gone = connection.ask(Ask::Trace { peer: "0.0.4294967295".to_owned() }).unwrap();
    assert!(error(gone).contains("there is no flight record"));
}

#[test]
fn what_is_no_request_is_answered_once_and_the_connection_ends() {
    let game = Game::new(1);
    for (sent, expected) in [
        ("hello\n", "no JSON object with a version"),
        ("[1]\n", "no JSON object with a version"),
        ("\n", "no JSON object with a version"),
        (r#"{"version":2,"ask":"everything"}"#, "version 1 of the protocol and the request 2"),
        (r#"{"version":1,"ask":"everything"}"#, "unknown variant"),
        (r#"{"version":1,"ask":"ban","peer":"0.0.1","seconds":-1}"#, "not a request"),
    ] {
        let mut stream = game.raw();
        stream.write_all(format!("{}\n", sent.trim_end()).as_bytes()).unwrap();
        let line = last_words(stream);
        assert!(line.contains(r#""answer":"error""#) && line.contains(expected), "{sent}: {line}");
    }
    let mut stream = game.raw();
    let _ = stream.write_all(&vec![b'x'; REQUEST_BYTES_MAX + 1]);
    assert!(last_words(stream).contains("4096 bytes at most"));
    assert_eq!(snapshot(&mut game.open(), 1).workers.len(), 1, "the others hear nothing of it");
}

#[test]
fn clients_that_do_not_read_or_say_half_a_word_hold_up_nobody_else() {
    let game = Game::new(1);
    let (mut deaf, mut slow) = (game.raw(), game.raw());
    slow.write_all(br#"{"version":1,"#).unwrap();
    deaf.set_nonblocking(true).unwrap();
    let request = b"{\"version\":1,\"ask\":\"snapshot\",\"order\":\"rate\",\"most\":256}\n";
    let deadline = now() + PATIENCE;
    let mut connection = game.open();
    // Until neither takes more of the other.
    while deaf.write_all(request).is_ok() {
        assert!(now() < deadline, "there is no end to it");
        if deadline - now() < PATIENCE / 2 {
            snapshot(&mut connection, 1);
        }
    }
    assert_eq!(snapshot(&mut connection, 1).workers.len(), 1);
    slow.write_all(b"\"ask\":\"snapshot\",\"order\":\"rate\",\"most\":1}\n").unwrap();
    let mut line = String::new();
    BufReader::new(slow).read_line(&mut line).unwrap();
    assert!(line.contains(r#""answer":"snapshot""#), "{line}");
}

/// A source that answers with the number of the question. The first answer waits for the test.
struct Numbering {
    asked: Arc<AtomicUsize>,
    go_on: std::sync::mpsc::Receiver<()>,
}

impl Source for Numbering {
    fn snapshot(&mut self, _: SurveyOrder, _: usize) -> Snapshot {
        Snapshot::default()
    }

    fn close(&mut self, peer: &str, _: &str) -> Result<String, String> {
        Err(peer.to_owned())
    }

    fn ban(&mut self, peer: &str, _: Duration) -> Result<String, String> {
        Err(peer.to_owned())
    }

    fn trace(&mut self, _: &str) -> Result<String, String> {
        let number = self.asked.fetch_add(1, Ordering::AcqRel);
        if number == 0 {
            self.go_on.recv_timeout(PATIENCE).unwrap();
        }
        Ok(number.to_string())
    }
}

#[test]
fn a_client_with_many_requests_waits_for_the_others_between_them() {
    let (asked, (send, go_on)) = (Arc::new(AtomicUsize::new(0)), std::sync::mpsc::channel());
    let control = ControlSocket::listen(path(), Numbering { asked: Arc::clone(&asked), go_on }).unwrap();
    let [mut greedy, mut other] = [(); 2].map(|()| UnixStream::connect(control.path()).unwrap());
    let request = b"{\"version\":1,\"ask\":\"trace\",\"peer\":\"0.0.1\"}\n";
    greedy.write_all(&request.repeat(100)).unwrap();
    let deadline = now() + PATIENCE;
    while asked.load(Ordering::Acquire) == 0 {
        assert!(now() < deadline, "nothing was asked");
        std::thread::yield_now();
    }
    // All requests are there before the first is answered.
    other.write_all(request).unwrap();
    send.send(()).unwrap();
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut line = String::new();
    BufReader::new(other).read_line(&mut line).unwrap();
    assert!(["1", "2"].iter().any(|number| line.contains(&format!("\"text\":\"{number}\""))), "{line}");
}

#[test]
fn one_too_many_is_told_so_and_a_place_is_free_again_when_one_leaves() {
    let game = Game::new(1);
    let mut others: Vec<Connection> = (0..CLIENTS_MAX).map(|_| game.open()).collect();
    others.iter_mut().for_each(|other| assert_eq!(snapshot(other, 1).workers.len(), 1));
    let ask = || Ask::Snapshot { order: SurveyOrder::Loss, most: 1 };
    assert!(error(game.open().ask(ask()).unwrap()).contains("other clients are connected"));
    others.pop();
    let deadline = now() + PATIENCE;
    while let Answer::Error { text } = game.open().ask(ask()).unwrap() {
        assert!(now() < deadline, "{text}");
    }
}

#[test]
fn the_file_is_its_owners_alone_and_goes_with_the_server() {
    let game = Game::new(1);
    let path = game.control.path().to_owned();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let second = ControlSocket::listen(&path, Nothing).unwrap_err();
    assert_eq!(second.to_string(), "another server listens there");
    let mut connection = game.open();
    drop(game);
    assert!(!path.exists());
    let ask = Ask::Trace { peer: "0.0.1".to_owned() };
    assert!(matches!(connection.ask(ask), Err(AskError::Ended | AskError::Io(_))));
    assert!(matches!(Connection::open(&path), Err(OpenError::Missing)));
}

#[test]
fn a_socket_that_was_left_behind_is_taken_over_and_any_other_file_is_not() {
    let path = path();
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(Connection::open(&path), Err(OpenError::Abandoned)));
    drop(ControlSocket::listen(&path, Nothing).unwrap());
    std::fs::write(&path, "precious").unwrap();
    let refused = ControlSocket::listen(&path, Nothing).unwrap_err();
    assert_eq!(refused.to_string(), "the path is a file and not a socket");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    assert!(ControlSocket::listen("/no such folder/socket", Nothing).is_err());
    assert!(ControlSocket::listen("x".repeat(300), Nothing).is_err());
}

#[test]
fn answers_that_are_none_are_called_so() {
    let cases = [
        ("{\"version\":9,\"answer\":\"done\"}\n", "version 9 of the protocol"),
        ("{\"answer\":\"done\"}\n", "no version"),
        ("{\"version\":1,\"answer\":\"else\"}\n", "no answer"),
        ("nonsense\n", "no answer"),
        ("{\"version\":1", "cut off"),
        ("", "ended the connection"),
    ];
    for (answer, expected) in cases {
        let path = path();
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            BufReader::new(&stream).read_line(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        let mut connection = Connection::open(&path).unwrap();
        let error = connection.ask(Ask::Trace { peer: String::new() }).unwrap_err();
        assert!(error.to_string().contains(expected), "{answer}: {error}");
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

/// A source of which nothing is asked.
struct Nothing;

impl Source for Nothing {
    fn snapshot(&mut self, _: SurveyOrder, _: usize) -> Snapshot {
        Snapshot::default()
    }

    fn close(&mut self, peer: &str, _: &str) -> Result<String, String> {
        Err(peer.to_owned())
    }

    fn ban(&mut self, peer: &str, _: Duration) -> Result<String, String> {
        Err(peer.to_owned())
    }

    fn trace(&mut self, peer: &str) -> Result<String, String> {
        Err(peer.to_owned())
    }
}
