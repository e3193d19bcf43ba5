//! `drumfire top` as text for scripts, and its errors.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use drumfire::{Access, Client, ClientConfig, Server, ServerConfig, ServerKey, Workers};
use drumfire_control::ControlSocket;
use drumfire_tools::clock;

use crate::process::{DRUMFIRE, Ended, Folder, Program, RECEIVER, waiting_receiver};

fn top(args: &[&str]) -> Ended {
    Program::start(Command::new(DRUMFIRE).arg("top").args(args)).end()
}

#[track_caller]
fn refusal(args: &[&str]) -> String {
    let ended = top(args).with_code(2);
    assert_eq!(ended.stdout, [""; 0], "{ended:#?}");
    ended.only_error_line().to_owned()
}

/// A server with three clients that runs until it is dropped.
pub(crate) struct Game {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(crate) control: ControlSocket,
    address: SocketAddr,
}

impl Game {
    pub(crate) fn start(folder: &Folder) -> Self {
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
    let folder = Folder::new();
    let game = Game::start(&folder);
    let path = game.control.path().to_owned();
    let shown = std::thread::spawn(move || {
        top(&["--control", path.to_str().unwrap(), "--once", "--order", "rate"]).with_code(0)
    });
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
    let folder = Folder::new();
    let path = folder.path().join("control");
    let text = path.to_str().unwrap();
    let (receiver, address) = waiting_receiver(&format!("--threads 1 --control {text}"));
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"hello", address).unwrap();
    let lines = top(&["--control", text, "--once"]).with_code(0).stdout;
    assert!(lines[0].starts_with("drumfire top  receiver  workers 1  in "), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "connections are not followed here"), "{lines:#?}");
    receiver.interrupt();
    receiver.end().with_code(1);
    assert!(!path.exists());
}

#[test]
fn a_path_without_a_control_socket_is_refused() {
    let folder = Folder::new();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let line = refusal(&["--control", &file("none"), "--once"]);
    assert!(
        line.ends_with("/none: there is no such file; give the path that the server listens at"),
        "{line}"
    );
    drop(UnixListener::bind(file("left")).unwrap());
    let line = refusal(&["--control", &file("left"), "--once"]);
    assert!(
        line.ends_with("no server listens there any more; start the server again, or give another path"),
        "{line}"
    );
    let listener = UnixListener::bind(file("newer")).unwrap();
    let newer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        stream.write_all(b"{\"version\":2,\"answer\":\"picture\"}\n").unwrap();
    });
    let line = refusal(&["--control", &file("newer"), "--once"]);
    assert!(line.contains("speaks version 2 of the protocol, this program 1; give the control"), "{line}");
    newer.join().unwrap();
}

#[test]
fn without_a_terminal_the_error_names_the_alternative() {
    let folder = Folder::new();
    let path = folder.path().join("control");
    let (receiver, _) = waiting_receiver(&format!("--threads 1 --control {}", path.display()));
    let line = refusal(&["--control", path.to_str().unwrap()]);
    assert!(line.contains("a live view needs a terminal, and this is not one; give --once"), "{line}");
    receiver.interrupt();
    receiver.end().with_code(1);
    let ended =
        Program::start(Command::new(RECEIVER).args(["--tui", "--bind", "127.0.0.1:0"])).end().with_code(2);
    assert!(ended.only_error_line().ends_with("leave --tui out"), "{ended:#?}");
}

#[test]
fn a_path_where_no_socket_can_be_made_is_refused() {
    let folder = Folder::new();
    let file = folder.path().join("precious");
    std::fs::write(&file, "text").unwrap();
    let flags = ["--bind", "127.0.0.1:0", "--threads", "1", "--control", file.to_str().unwrap()];
    let ended = Program::start(Command::new(RECEIVER).args(flags)).end().with_code(2);
    assert!(
        ended.only_error_line().contains("the path is a file and not a socket; give a new name"),
        "{ended:#?}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
}
