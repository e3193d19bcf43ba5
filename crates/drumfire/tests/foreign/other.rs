//! The other process: does all that can be done to be let onto a port, and says how many datagrams it got there.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use socket2::{Domain, Socket, Type};

const JOINED: &str = "joined";
const REFUSED: &str = "refused";

/// What that process does: binds, and answers each line with how much has come so far, until whoever started it is gone.
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
        io::stdout().flush().expect("somebody listens");
    }
}

/// That process as the test sees it. It ends when this is dropped, or the test dies.
pub(crate) struct Other {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    /// Starts it; `None` when the system does not let it in.
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

    /// How many datagrams it got so far.
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
        // One that is gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
