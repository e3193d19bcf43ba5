//! A page of numbers for Prometheus, served over plain HTTP on an address of its own.
//!
//! One question at a time, nothing but `GET /metrics`, no encryption: for a network of one's own. What stands on the page is
//! said by others, see [`text`].

pub mod text;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock;

/// How long a client may take for each part of its question, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A question is shorter, and comes in fewer parts.
const QUESTION_MAX_BYTES: usize = 4_096;
const QUESTION_MAX_PARTS: usize = 8;

/// Between two tries where no connection can be taken.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The page, for as long as the process lives.
#[derive(Clone, Debug)]
pub struct Page {
    text: Arc<Mutex<String>>,
    address: SocketAddr,
}

impl Page {
    /// An empty page at this address (port 0 takes a free one), answered from a thread of its own.
    ///
    /// # Errors
    ///
    /// What the system says when the address cannot be bound, or no thread be started.
    pub fn serve(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let page = Self { text: Arc::default(), address: listener.local_addr()? };
        let served = page.clone();
        let serve = move || {
            for client in listener.incoming() {
                match client {
                    // One that goes away, or says nothing, has no answer.
                    Ok(client) => drop(served.answer(client)),
                    Err(_) => clock::pause(RETRY_AFTER),
                }
            }
        };
        std::thread::Builder::new().name("metrics".to_owned()).spawn(serve)?;
        Ok(page)
    }

    /// Where it is served, the port resolved.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces what stands on it.
    pub fn set(&self, text: String) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }

    fn answer(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        let question = question(&mut client)?;
        let (status, body) = if is_for_metrics(&question) {
            ("200 OK", self.text.lock().unwrap_or_else(PoisonError::into_inner).clone())
        } else {
            ("404 Not Found", "ask for /metrics\n".to_owned())
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        client.write_all(head.as_bytes())?;
        client.write_all(body.as_bytes())
    }
}

/// What comes before the empty line that ends a question; it has no body.
fn question(client: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut question = Vec::new();
    for _ in 0..QUESTION_MAX_PARTS {
        let mut part = [0; QUESTION_MAX_BYTES];
        let length = client.read(&mut part)?;
        question.extend(part.iter().take(length));
        let is_whole = question.windows(4).any(|end| end == b"\r\n\r\n");
        if is_whole || length == 0 || question.len() > QUESTION_MAX_BYTES {
            break;
        }
    }
    Ok(question)
}

/// Whether the first line asks for the page, with whatever behind a `?`.
fn is_for_metrics(question: &[u8]) -> bool {
    let line = question.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let path = (words.next() == Some(b"GET")).then(|| words.next()).flatten();
    path.and_then(|path| path.split(|byte| *byte == b'?').next()) == Some(b"/metrics")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is answered to these bytes.
    fn ask(page: &Page, parts: &[&str]) -> String {
        let mut client = TcpStream::connect(page.address()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        for part in parts {
            client.write_all(part.as_bytes()).unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_answered_as_it_is_now_and_nothing_else() {
        let page = Page::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let question = ["GET /metrics HT", "TP/1.1\r\nHost: a\r\n", "\r\n"];
        assert!(ask(&page, &question).ends_with("Content-Length: 0\r\nConnection: close\r\n\r\n"));
        page.set("a 1\n".to_owned());
        let answer = ask(&page, &question);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\na 1\n"), "{answer}");
        assert!(ask(&page, &["GET /metrics?x HTTP/1.1\r\n\r\n"]).starts_with("HTTP/1.1 200 OK\r\n"));
        for other in ["GET / HTTP/1.1\r\n\r\n", "POST /metrics HTTP/1.1\r\n\r\n", "\r\n\r\n"] {
            assert!(ask(&page, &[other]).starts_with("HTTP/1.1 404 Not Found\r\n"), "{other}");
        }
    }

    #[test]
    fn who_leaves_in_the_middle_or_talks_without_end_does_not_stop_it() {
        let page = Page::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        drop(TcpStream::connect(page.address()).unwrap());
        let mut endless = TcpStream::connect(page.address()).unwrap();
        // It may be hung up on in the middle.
        let _ = endless.write_all(&[b'a'; 4 * QUESTION_MAX_BYTES]);
        assert!(ask(&page, &["GET /metrics HTTP/1.1\r\n\r\n"]).starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[test]
    fn an_address_that_is_taken_is_an_error() {
        let page = Page::serve("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = Page::serve(page.address()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
