//! Another process on the port of a server: lets itself in where the system does, and says how many datagrams it got there.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use socket2::{Domain, Socket, Type};

use crate::stop::{Stop, Tried};

/// Binds, and answers each line on standard input, the first without one.
///
/// # Errors
/// When the system does not let it in.
pub(crate) fn run(address: SocketAddr) -> Result<(), Stop> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None).tried("a socket")?;
    socket.set_reuse_port(true).tried("a shared port")?;
    socket.bind(&address.into()).tried("a place on the port")?;
    socket.set_nonblocking(true).tried("a socket that does not wait")?;
    let (socket, mut count) = (UdpSocket::from(socket), 0_u64);
    say(count)?;
    for line in io::stdin().lock().lines() {
        line.tried("standard input")?;
        while socket.recv(&mut [0; 2_048]).is_ok() {
            count += 1;
        }
        say(count)?;
    }
    Ok(())
}

fn say(count: u64) -> Result<(), Stop> {
    let mut out = io::stdout().lock();
    writeln!(out, "{count}").and_then(|()| out.flush()).tried("standard output")
}

/// That process as a run sees it. It ends when this is dropped, or the run dies.
pub(crate) struct Foreign {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Foreign {
    /// Starts it, and waits until it is in.
    pub(crate) fn start(address: SocketAddr) -> Result<Self, Stop> {
        let program = std::env::current_exe().tried("this program")?;
        let mut command = Command::new(program);
        command.args(["join", &address.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().tried("another process")?;
        let (questions, answers) =
            (child.stdin.take().tried("a pipe")?, child.stdout.take().tried("a pipe")?);
        let mut foreign = Self { child, questions, answers: BufReader::new(answers) };
        foreign.answer().map(|_| foreign)
    }

    /// How many datagrams it got so far.
    pub(crate) fn count(&mut self) -> Result<u64, Stop> {
        self.questions.write_all(b"\n").tried("a question")?;
        self.answer()
    }

    fn answer(&mut self) -> Result<u64, Stop> {
        let mut line = String::new();
        self.answers.read_line(&mut line).tried("an answer")?;
        line.trim().parse().tried("an answer of the other process")
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // One that is gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
