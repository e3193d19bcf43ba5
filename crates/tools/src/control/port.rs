//! The control port of a receiver: the next sender, and connections that are refused.

#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::{ControlError, Hello, ReceiverEnd, Visitor, accept};

/// How long a new connection may take to send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of connections without a hello. More wait in the backlog of the listener.
const MAX_PENDING: usize = 16;

/// A sender with a valid hello.
#[derive(Debug)]
pub struct AcceptedSender {
    /// The connection to it.
    pub end: ReceiverEnd,
    /// The hello.
    pub hello: Hello,
    /// The address of the sender.
    pub peer: SocketAddr,
    /// The address of this host that the sender reached.
    pub own: SocketAddr,
}

/// The control port of a receiver. Connections without a hello block neither a run nor the next sender.
#[derive(Debug)]
pub struct ControlPort {
    listener: TcpListener,
    /// The read timeout of a connection after its hello.
    read_timeout: Duration,
    pending: VecDeque<Pending>,
}

#[derive(Debug)]
struct Pending {
    visitor: Visitor,
    peer: SocketAddr,
    deadline: Instant,
}

impl ControlPort {
    /// Accepts senders from this listener.
    #[must_use]
    pub const fn new(listener: TcpListener, read_timeout: Duration) -> Self {
        Self { listener, read_timeout, pending: VecDeque::new() }
    }

    /// Returns the first sender whose hello has arrived, without waiting. `on_note` receives a line per refused connection.
    pub fn next_sender(&mut self, now: Instant, on_note: &mut dyn FnMut(&str)) -> Option<AcceptedSender> {
        let mut refused = |error: &ControlError| on_note(&format!("a connection was turned away: {error}"));
        self.accept_all(now);
        for _ in 0..self.pending.len() {
            let mut next = self.pending.pop_front()?;
            match next.visitor.poll_hello() {
                Ok(None) if now < next.deadline => self.pending.push_back(next),
                Ok(None) => refused(&ControlError::TimedOut { waiting_for: "hello" }),
                Err(error) => refused(&error),
                Ok(Some(hello)) => {
                    let stream = next.visitor.stream();
                    match stream.set_nonblocking(false).and_then(|()| stream.local_addr()) {
                        Ok(own) => {
                            let end = next.visitor.admit(&hello);
                            return Some(AcceptedSender { end, hello, peer: next.peer, own });
                        }
                        Err(error) => refused(&ControlError::Io(error)),
                    }
                }
            }
        }
        None
    }

    /// Refuses every sender whose hello has arrived, without waiting.
    pub fn refuse_all(&mut self, now: Instant, reason: &str) {
        self.accept_all(now);
        self.pending.retain_mut(|next| match next.visitor.poll_hello() {
            Ok(None) => now < next.deadline,
            Ok(Some(_)) => {
                // A sender that closed the connection needs no reason.
                let _ = next.visitor.refuse(reason);
                false
            }
            Err(_) => false,
        });
    }

    fn accept_all(&mut self, now: Instant) {
        // A full queue makes room for one connection per call, so that silent connections do not keep a sender out.
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        while self.pending.len() < MAX_PENDING {
            let Ok(Some((channel, peer))) = accept(&self.listener, self.read_timeout) else { return };
            // A stream whose reads would block the others is dropped.
            if channel.stream().set_nonblocking(true).is_ok() {
                let deadline = now.checked_add(HELLO_TIMEOUT).unwrap_or(now);
                self.pending.push_back(Pending { visitor: Visitor::new(channel), peer, deadline });
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, clippy::arithmetic_side_effects, reason = "tests may panic")]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpStream;

    use super::super::{VERSION, listen};
    use super::*;
    use crate::choices::SendMode;
    use crate::clock;

    fn port() -> (ControlPort, SocketAddr) {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        (ControlPort::new(listener, Duration::from_millis(20)), address)
    }

    fn connect(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn hello() -> String {
        let hello = Hello {
            version: VERSION,
            flows: 1,
            threads: 1,
            size: 28,
            rate: 1,
            send: SendMode::Single,
            secs: 1.0,
            kernel_id: String::new(),
        };
        let mut line = serde_json::to_value(hello).unwrap();
        line.as_object_mut().unwrap().insert("message".to_owned(), "hello".into());
        format!("{line}\n")
    }

    /// Repeats until there is a result. The loopback delivers on its own, so this ends.
    fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
        let deadline = clock::now() + Duration::from_secs(30);
        while clock::now() < deadline {
            if let Some(found) = attempt() {
                return found;
            }
            std::thread::yield_now();
        }
        panic!("no result");
    }

    #[test]
    fn silent_connections_do_not_keep_a_sender_out() {
        let (mut port, address) = port();
        let silent: Vec<TcpStream> =
            (0..3 * MAX_PENDING).map(|n| connect(address, if n % 2 == 0 { "" } else { "{\"mess" })).collect();
        let sender = connect(address, &hello());
        let now = clock::now();
        let arrival = until(|| port.next_sender(now, &mut |note| panic!("{note}")));
        assert_eq!((arrival.hello.flows, arrival.peer), (1, sender.local_addr().unwrap()));
        assert!(port.pending.len() <= MAX_PENDING);
        drop(silent);
    }

    #[test]
    fn a_connection_without_a_hello_is_dropped_after_the_timeout() {
        let (mut port, address) = port();
        let _silent = connect(address, "{");
        let came = clock::now();
        until(|| {
            assert!(port.next_sender(came, &mut |note| panic!("{note}")).is_none());
            (!port.pending.is_empty()).then_some(())
        });
        for (late, notes, pending) in
            [(HELLO_TIMEOUT - Duration::from_nanos(1), 0, 1), (HELLO_TIMEOUT, 1, 0), (HELLO_TIMEOUT, 0, 0)]
        {
            let mut seen = 0;
            assert!(port.next_sender(came + late, &mut |_| seen += 1).is_none());
            assert_eq!((seen, port.pending.len()), (notes, pending));
        }
    }

    #[test]
    fn during_a_run_every_sender_is_refused_with_the_reason() {
        let (mut port, address) = port();
        let senders = [connect(address, &hello()), connect(address, "GET / HTTP/1.1\r\n")];
        until(|| {
            port.refuse_all(clock::now(), "come back later");
            let mut byte = [0];
            senders.iter().all(|stream| stream.peek(&mut byte).is_ok_and(|length| length == 1)).then_some(())
        });
        let [sender, stranger] = senders.map(|stream| {
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            line
        });
        assert!(sender.contains("refused") && sender.contains("come back later"), "{sender}");
        assert!(stranger.contains("refused") && stranger.contains("not valid"), "{stranger}");
    }
}
