//! The other process. It tries all means to share a port, and reports the number of datagrams that it received.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use socket2::{Domain, Socket, Type};

const JOINED: &str = "joined";
const REFUSED: &str = "refused";

/// Runs the other process: binds the port, and replies to each input line with the number of datagrams so far. It returns when its input
/// ends, because the process that started it has ended.
pub(crate) fn join(address: &str) {
    let address: SocketAddr = address.parse().expect("an address");
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).expect("a socket");
    socket.set_reuse_port(true).expect("asked");
    socket.set_reuse_address(true).expect("asked");
    match socket.bind(&address.into()) {
        Ok(()) => println!("{JOINED}"),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => return println!("{REFUSED}"),
        Err(error) => panic!("{error}"),
    }
    socket.set_nonblocking(true).expect("asked");
    let (socket, mut count) = (UdpSocket::from(socket), 0_u64);
    for line in io::stdin().lines() {
        line.expect("a line");
        while socket.recv(&mut [0; 2_000]).is_ok() {
            count += 1;
        }
        println!("{count}");
        io::stdout().flush().expect("the parent process reads");
    }
}

/// A handle of the other process. The process ends when the handle is dropped or the test ends.
pub(crate) struct Other {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    /// Starts the process. Returns `None` if the system does not let it share the port.
    pub(crate) fn start(address: SocketAddr) -> Option<Self> {
        let program = std::env::current_exe().expect("this program");
        let mut command = Command::new(program);
        command.args(["join", &address.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("another process");
        let questions = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut other = Self { child, questions, answers };
        match other.answer().as_str() {
            JOINED => Some(other),
            REFUSED => None,
            strange => panic!("{strange}"),
        }
    }

    /// Returns the number of datagrams that the process has received.
    pub(crate) fn count(&mut self) -> u64 {
        self.questions.write_all(b"\n").expect("it listens");
        self.answer().parse().expect("a number")
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.by_ref().take(100).read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // An error means that the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
