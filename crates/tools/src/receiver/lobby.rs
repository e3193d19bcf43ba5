//! Who has connected to the control port: the next sender, and everybody who is not.
//!
//! Nobody is waited for here. A connection that stays silent, half a line, or a program that speaks something
//! else holds up neither the run that goes on nor the sender that comes next.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::control::{self, ControlError, Hello, ReceiverEnd, Visitor};

/// Connections looked at together; more wait in the listener's queue, and each look makes room for one.
const MOST: usize = 16;

/// How long a connection may take to say hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);

/// The control port and who is at it.
pub(super) struct Lobby {
    listener: TcpListener,
    /// Read timeout of the connection once its sender is taken.
    read_timeout: Duration,
    guests: VecDeque<Guest>,
}

struct Guest {
    visitor: Visitor<TcpStream>,
    peer: SocketAddr,
    until: Instant,
}

/// A sender that said hello.
pub(super) struct Arrival {
    pub(super) end: ReceiverEnd<TcpStream>,
    pub(super) hello: Hello,
    pub(super) peer: SocketAddr,
    /// The address of this host that the peer reached.
    pub(super) own: SocketAddr,
}

impl Lobby {
    pub(super) fn new(listener: TcpListener, read_timeout: Duration) -> Self {
        Self { listener, read_timeout, guests: VecDeque::new() }
    }

    /// One look: takes the first sender whose hello is there. Whoever is turned away is told to `on_note`.
    pub(super) fn next_sender(&mut self, now: Instant, on_note: &mut dyn FnMut(&str)) -> Option<Arrival> {
        let mut turned_away =
            |error: &ControlError| on_note(&format!("a connection was turned away: {error}"));
        self.let_in(now);
        for _ in 0..self.guests.len() {
            let mut guest = self.guests.pop_front()?;
            match guest.visitor.poll_hello() {
                Ok(None) if now < guest.until => self.guests.push_back(guest),
                Ok(None) => turned_away(&ControlError::TimedOut { waiting_for: "hello" }),
                Err(error) => turned_away(&error),
                Ok(Some(hello)) => match settled_at(guest.visitor.stream()) {
                    Ok(own) => {
                        let end = guest.visitor.admit(&hello);
                        return Some(Arrival { end, hello, peer: guest.peer, own });
                    }
                    Err(error) => turned_away(&ControlError::Io(error)),
                },
            }
        }
        None
    }

    /// One look: sends every sender away, for this reason.
    pub(super) fn refuse_all(&mut self, now: Instant, reason: &str) {
        self.let_in(now);
        self.guests.retain_mut(|guest| match guest.visitor.poll_hello() {
            Ok(None) => now < guest.until,
            Ok(Some(_)) => {
                // Should it have closed the connection itself, nobody is left to tell.
                let _ = guest.visitor.refuse(reason);
                false
            }
            Err(_) => false,
        });
    }

    fn let_in(&mut self, now: Instant) {
        if self.guests.len() == MOST {
            self.guests.pop_front();
        }
        while self.guests.len() < MOST {
            let Ok(Some((channel, peer))) = control::accept(&self.listener, self.read_timeout) else {
                return;
            };
            let visitor = Visitor::new(channel);
            // One that would block the others is not let in.
            if visitor.stream().set_nonblocking(true).is_ok() {
                self.guests.push_back(Guest { visitor, peer, until: now + HELLO_PATIENCE });
            }
        }
    }
}

/// Lets reads wait from now on, and answers which address of this host the stream ends at.
fn settled_at(stream: &TcpStream) -> io::Result<SocketAddr> {
    stream.set_nonblocking(false)?;
    stream.local_addr()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use super::*;
    use crate::choices::SendMode;
    use crate::clock;

    fn lobby() -> (Lobby, SocketAddr) {
        let listener = control::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        (Lobby::new(listener, Duration::from_millis(20)), address)
    }

    fn connect(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn hello() -> String {
        let hello = Hello {
            version: control::VERSION,
            flows: 1,
            threads: 1,
            size: 28,
            rate: 1,
            send: SendMode::Single,
            secs: 1.0,
            kernel_id: String::new(),
        };
        let mut line = serde_json::to_value(hello).unwrap();
        line["message"] = "hello".into();
        format!("{line}\n")
    }

    /// Looks until there is something; loopback delivers without being asked, so this ends.
    fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = clock::now() + Duration::from_secs(30);
        while clock::now() < deadline {
            if let Some(found) = look() {
                return found;
            }
            std::thread::yield_now();
        }
        panic!("nothing came");
    }

    fn line_of(stream: TcpStream) -> String {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn a_crowd_that_says_nothing_does_not_keep_a_sender_out() {
        let (mut lobby, address) = lobby();
        let silent: Vec<TcpStream> =
            (0..3 * MOST).map(|n| connect(address, if n % 2 == 0 { "" } else { "{\"mess" })).collect();
        let sender = connect(address, &hello());
        let now = clock::now();
        let arrival = until(|| lobby.next_sender(now, &mut |note| panic!("{note}")));
        assert_eq!(arrival.hello.flows, 1);
        assert_eq!(arrival.peer, sender.local_addr().unwrap());
        assert!(lobby.guests.len() <= MOST);
        drop(silent);
    }

    #[test]
    fn who_says_nothing_in_time_is_turned_away_with_a_note() {
        let (mut lobby, address) = lobby();
        let _silent = connect(address, "{");
        let came = clock::now();
        until(|| {
            assert!(lobby.next_sender(came, &mut |note| panic!("{note}")).is_none());
            (!lobby.guests.is_empty()).then_some(())
        });
        for (late, is_there) in [
            (HELLO_PATIENCE - Duration::from_nanos(1), true),
            (HELLO_PATIENCE, false),
            (HELLO_PATIENCE, false),
        ] {
            let mut notes = 0;
            assert!(lobby.next_sender(came + late, &mut |_| notes += 1).is_none());
            assert_eq!(!lobby.guests.is_empty(), is_there);
        }
        assert!(lobby.guests.is_empty());
    }

    #[test]
    fn while_one_is_served_everybody_is_sent_away_with_the_reason() {
        let (mut lobby, address) = lobby();
        let senders = [connect(address, &hello()), connect(address, "GET / HTTP/1.1\r\n")];
        let mut accepted = 0;
        until(|| {
            let before = lobby.guests.len();
            lobby.refuse_all(clock::now(), "come back later");
            accepted += usize::from(lobby.guests.len() != before);
            let mut byte = [0];
            senders.iter().all(|stream| stream.peek(&mut byte).is_ok_and(|length| length == 1)).then_some(())
        });
        let [sender, stranger] = senders.map(line_of);
        assert!(sender.contains("refused") && sender.contains("come back later"), "{sender}");
        assert!(stranger.contains("refused") && stranger.contains("not valid"), "{stranger}");
    }
}
