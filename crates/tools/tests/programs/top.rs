//! `drumfire top` as text for scripts, and its errors.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::{Access, Client, ClientConfig, Server, ServerConfig, ServerKey, Workers};
use drumfire_control::ControlSocket;
use drumfire_tools::clock;
use tempfile::{TempDir, tempdir};

use crate::bad_input::assert_refused;
use crate::process::{DRUMFIRE, RECEIVER, file, start, waiting_receiver};

/// A server with three clients that runs until it is dropped.
pub(crate) struct Game {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) control: ControlSocket,
    address: SocketAddr,
}

impl Game {
    pub(crate) fn start(folder: &TempDir) -> Self {
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), ServerKey::dev(), Access::Open);
        let mut server = Server::bind(config.workers(Workers::Count(1))).unwrap();
        let control = ControlSocket::listen(folder.path().join("control"), server.control()).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let address = server.local_addr();
        let play = move || {
            let mut clients = Client::new(ClientConfig::default().connections(3)).unwrap();
            for _ in 0..3 {
                clients.connect((address, ServerKey::dev().public())).unwrap();
            }
            while !over.load(Ordering::Acquire) {
                server.poll(Duration::from_millis(1));
                server.events().for_each(drop);
                clients.poll(Duration::ZERO);
                clients.events().for_each(drop);
            }
        };
        Self { is_over, thread: Some(std::thread::spawn(play)), control, address }
    }
}

impl Drop for Game {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // A thread that panicked has printed its message.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn a_server_and_its_connections_are_printed_once() {
    let folder = tempdir().unwrap();
    let game = Game::start(&folder);
    let flags = format!("top --control {} --once --order rate", game.control.path().display());
    let shown = std::thread::spawn(move || start(DRUMFIRE, &flags).end().with_code(0));
    // Junk is dropped by name while the game continues.
    let junk = UdpSocket::bind("127.0.0.1:0").unwrap();
    while !shown.is_finished() {
        junk.send_to(&[0xff; 5], game.address).unwrap();
        clock::pause(Duration::from_millis(1));
    }
    let lines = shown.join().unwrap().stdout;
    assert!(lines[0].starts_with("drumfire top  server  workers 1  connections 3"), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains(" 127.0.0.1:")).count(), 3, "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("dropped: ") && line.ends_with("/s)")), "{lines:#?}");
}

#[test]
fn a_receiver_is_printed_once_and_takes_its_socket_with_it() {
    let folder = tempdir().unwrap();
    let path = file(&folder, "control");
    let (receiver, address) = waiting_receiver(&format!("--threads 1 --control {path}"));
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"hello", address).unwrap();
    let lines = start(DRUMFIRE, &format!("top --control {path} --once")).end().with_code(0).stdout;
    assert!(lines[0].starts_with("drumfire top  receiver  workers 1  in "), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "connections are not followed here"), "{lines:#?}");
    let advice = "a live view needs a terminal, and this is not one; give --once";
    assert_refused(start(DRUMFIRE, &format!("top --control {path}")), &[advice]);
    receiver.interrupt();
    receiver.end().with_code(1);
    assert!(!folder.path().join("control").exists());
    assert_refused(start(RECEIVER, "--tui --bind 127.0.0.1:0"), &["this is not one; leave --tui out"]);
}

#[test]
fn a_path_without_a_control_socket_is_refused() {
    let folder = tempdir().unwrap();
    let assert_refused = |name: &str, text: &str| {
        let flags = format!("top --once --control {}", file(&folder, name));
        assert_refused(start(DRUMFIRE, &flags), &[text]);
    };
    assert_refused("none", "/none: there is no such file; give the path that the server listens at");
    drop(UnixListener::bind(file(&folder, "left")).unwrap());
    let text = "no server listens there any more; start the server again, or give another path";
    assert_refused("left", text);
    let listener = UnixListener::bind(file(&folder, "newer")).unwrap();
    let newer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream.write_all(b"{\"version\":2,\"answer\":\"picture\"}\n").unwrap();
    });
    assert_refused("newer", "speaks version 2 of the protocol, this program 1; give the control");
    newer.join().unwrap();
}

#[test]
fn a_path_where_no_socket_can_be_made_is_refused() {
    let folder = tempdir().unwrap();
    let path = file(&folder, "precious");
    std::fs::write(&path, "text").unwrap();
    let text = "the path is a file and not a socket; give a new name";
    let flags = format!("--bind 127.0.0.1:0 --threads 1 --control {path}");
    assert_refused(start(RECEIVER, &flags), &[text]);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
}
