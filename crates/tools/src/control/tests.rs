//! Both ends over loopback TCP, and lines over prepared reads. No test depends on timing: the peer has written before it is read.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "tests may panic"
)]

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader};
use std::net::Shutdown;
use std::thread::JoinHandle;

use super::*;
use crate::choices::{Mode, SendMode, Stage, Steer, Suite};
use crate::clock;
use crate::datagram::RouteId;
use crate::report::{Books, Granted, Messages};

/// A stream whose reads are prepared. An empty chunk is a read that finds nothing.
#[derive(Debug)]
struct Script(VecDeque<Vec<u8>>);

fn script(reads: impl IntoIterator<Item = Vec<u8>>) -> Channel<Script> {
    Channel { stream: Script(reads.into_iter().collect()), pending: Vec::new(), scanned: 0 }
}

impl Read for Script {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(mut chunk) = self.0.pop_front() else { return Ok(0) };
        if chunk.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = chunk.len().min(out.len());
        out[..length].copy_from_slice(&chunk[..length]);
        if length < chunk.len() {
            self.0.push_front(chunk.split_off(length));
        }
        Ok(length)
    }
}

/// A connection to a peer that writes these lines, reads until the end, and returns what it read.
fn peer_with(lines: &[impl AsRef<[u8]>]) -> (Channel, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let text: Vec<u8> = lines.iter().flat_map(|line| [line.as_ref(), b"\n"].concat()).collect();
    let thread = std::thread::spawn(move || {
        // The other end may refuse the connection before it has read everything.
        let _ = peer.write_all(&text).and_then(|()| peer.shutdown(Shutdown::Write));
        let mut reply = Vec::new();
        let _ = peer.read_to_end(&mut reply);
        String::from_utf8(reply).unwrap()
    });
    (Channel::new(listener.accept().unwrap().0).unwrap(), thread)
}

fn hello() -> Hello {
    Hello {
        version: VERSION,
        flows: 2,
        threads: 1,
        size: 128,
        rate: 1_000,
        send: SendMode::Single,
        secs: 10.0,
        kernel_id: "f00d".to_owned(),
    }
}

fn welcome(flows: usize) -> Welcome {
    Welcome {
        version: VERSION,
        session: u64::MAX,
        ids: vec![RouteId([0xff; 8]); flows],
        stage: Stage::Parse,
        sealed: None,
        steer: Steer::Tag,
        threads: 4,
    }
}

fn finished(sent_per_flow: &[u64]) -> Finished {
    Finished {
        sent_per_flow: sent_per_flow.to_vec(),
        sent: sent_per_flow.iter().sum(),
        sent_bytes: 1_280,
        offered: 12,
        errors: BTreeMap::from([("no_buffer_space".to_owned(), 2)]),
        elapsed_ns: 5,
        cpu_ns: 4,
        late: true,
        granted: Granted::default(),
        messages: None,
    }
}

fn counts(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn line(message: &str, rest: &impl serde::Serialize) -> String {
    let mut object = serde_json::to_value(rest).unwrap();
    object["message"] = message.into();
    object.to_string()
}

/// The end of a receiver whose sender writes these lines after its hello.
fn receiver(lines: &[&str]) -> ReceiverEnd {
    let (channel, _) = peer_with(lines);
    let address = channel.stream.peer_addr().unwrap();
    ReceiverEnd { channel, hello: hello(), peer: address, own: address, has_messages: false, sent: None }
}

/// A port without a sender, and its address.
fn port() -> (ControlPort, SocketAddr) {
    let port = ControlPort::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.listener.local_addr().unwrap();
    (port, address)
}

/// A connection to a port that has written this.
fn visitor(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
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

fn next_line(stream: TcpStream) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// Greets a receiver that writes these lines.
fn greet(lines: &[&str]) -> Result<(SenderEnd, Welcome), ControlError> {
    SenderEnd::greet(peer_with(lines).0, &hello(), || true)
}

#[test]
fn a_whole_run_over_loopback_closes_both_books() {
    let (mut port, address) = port();
    let books = ReceiverBooks { datagrams: Books::new(10, 7).dropped("kernel", 2), ..Default::default() };
    let expected = books.clone();
    let receiver = std::thread::spawn(move || {
        let mut end = until(|| port.next_sender(clock::now(), &mut |note| panic!("{note}")));
        end.welcome(welcome(2)).unwrap();
        end.wait_for_start(|| true).unwrap();
        let finished = end.wait_for_finish(|| true).unwrap();
        end.close(books).unwrap();
        finished
    });
    let (mut end, welcomed) = SenderEnd::connect(&[address], &hello(), || true).unwrap();
    assert_eq!((end.peer, welcomed), (address, welcome(2)));
    end.start().unwrap();
    assert_eq!(end.finish(finished(&[4, 6]), || true).unwrap(), expected);
    assert_eq!(receiver.join().unwrap(), finished(&[4, 6]));
}

#[test]
fn silent_connections_do_not_keep_a_sender_out() {
    let (mut port, address) = port();
    let partial = |n: usize| if n.is_multiple_of(2) { "" } else { "{\"mess" };
    let _silent: Vec<TcpStream> = (0..3 * MAX_PENDING).map(|n| visitor(address, partial(n))).collect();
    let sender = visitor(address, &(line("hello", &hello()) + "\n"));
    let now = clock::now();
    let end = until(|| port.next_sender(now, &mut |note| panic!("{note}")));
    assert_eq!((&end.hello, end.peer), (&hello(), sender.local_addr().unwrap()));
    assert!(port.pending.len() <= MAX_PENDING);
}

#[test]
fn a_connection_without_a_hello_is_dropped_at_the_timeout() {
    let (mut port, address) = port();
    let _silent = visitor(address, "{");
    let start = clock::now();
    until(|| {
        assert!(port.next_sender(start, &mut |note| panic!("{note}")).is_none());
        (!port.pending.is_empty()).then_some(())
    });
    for (late, notes, pending) in [(HELLO_TIMEOUT - Duration::from_nanos(1), 0, 1), (HELLO_TIMEOUT, 1, 0)] {
        let mut seen = 0;
        assert!(port.next_sender(start + late, &mut |_| seen += 1).is_none());
        assert_eq!((seen, port.pending.len()), (notes, pending));
    }
}

#[test]
fn during_a_run_every_connection_is_refused_with_a_reason() {
    let (mut port, address) = port();
    let hello = line("hello", &hello()) + "\n";
    let visitors = [visitor(address, &hello), visitor(address, "GET / HTTP/1.1\r\n")];
    until(|| {
        port.refuse_all(clock::now(), "come back later");
        let mut byte = [0];
        visitors.iter().all(|stream| stream.peek(&mut byte).is_ok_and(|length| length == 1)).then_some(())
    });
    let [sender, stranger] = visitors.map(next_line);
    assert!(sender.contains("refused") && sender.contains("come back later"), "{sender}");
    assert!(stranger.contains("refused") && stranger.contains("a valid `hello`"), "{stranger}");
    assert!(matches!(greet(&[stranger.trim()]), Err(ControlError::Refused { .. })));
}

#[test]
fn lines_are_whole_however_the_stream_is_cut() {
    let text = "a line\n\nanother\n";
    for size in [1, 2, 3, 7, 64] {
        let mut channel = script(text.as_bytes().chunks(size).flat_map(|chunk| [Vec::new(), chunk.to_vec()]));
        let mut lines = Vec::new();
        loop {
            match channel.poll_line("books") {
                Ok(line) => lines.extend(line),
                Err(ControlError::ClosedEarly { waiting_for: "books" }) => break,
                Err(error) => unreachable!("{error}"),
            }
        }
        assert_eq!(lines, [b"a line".to_vec(), Vec::new(), b"another".to_vec()]);
    }
}

#[test]
fn neither_a_wait_nor_a_poll_lasts_forever() {
    let mut asked = 0;
    let waited: Result<FromReceiver, _> = script(vec![Vec::new(); 4]).wait("welcome", || {
        asked += 1;
        asked < 3
    });
    assert!(matches!(waited, Err(ControlError::TimedOut { waiting_for: "welcome" })) && asked == 3);
    let mut slow = script(vec![vec![b'x']; 1_000]);
    assert!(slow.poll_line("hello").unwrap().is_none());
    assert_eq!(slow.stream.0.len(), 1_000 - MAX_READS_PER_POLL);
}

#[test]
fn a_line_that_is_too_long_is_neither_stored_nor_sent() {
    for (length, is_good) in [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)] {
        let mut text = vec![b'x'; length];
        text.push(b'\n');
        let line = script([text]).poll_line("hello");
        assert_eq!(line.is_ok_and(|line| line.unwrap().len() == length), is_good);
        let mut channel = Channel { stream: Vec::new(), pending: Vec::new(), scanned: 0 };
        // JSON adds two quotes.
        assert_eq!(channel.send("hello", &"x".repeat(length - 2)).is_ok(), is_good);
        assert_eq!(channel.stream.len(), if is_good { MAX_LINE_BYTES + 1 } else { 0 });
    }
    let mut endless = script([vec![b'x'; 3 * MAX_LINE_BYTES]]);
    for _ in 0..2 {
        assert!(matches!(endless.poll_line("hello"), Err(ControlError::LineTooLong)));
    }
    assert!(endless.stream.0[0].len() > MAX_LINE_BYTES, "the rest was not read");
}

#[test]
fn the_longest_valid_lines_fit() {
    let flows = 65_536;
    assert!(line("welcome", &welcome(flows)).len() <= MAX_LINE_BYTES);
    let per_flow = vec![u64::MAX; flows];
    let messages = SentMessages { sent_per_flow: per_flow.clone(), ..SentMessages::default() };
    let widest = Finished { sent_per_flow: per_flow, messages: Some(messages), ..finished(&[1]) };
    assert!(line("finished", &widest).len() <= MAX_LINE_BYTES);
}

#[test]
fn another_version_is_refused_whatever_its_fields_are() {
    let other = br#"{"message":"hello","version":5,"flows":"a new shape"}"#;
    let error = parse::<FromSender>("hello", other).unwrap_err();
    assert!(error.to_string().contains("version 5, this one version 4"), "{error}");
    let error = greet(&[r#"{"message":"welcome","version":7,"ids":{}}"#]).unwrap_err();
    assert!(matches!(error, ControlError::VersionDiffers { theirs: 7 }));
}

#[test]
fn every_field_of_a_hello_is_checked_at_its_bounds() {
    type Case = (&'static str, fn(u64) -> Hello, u64, u64);
    let cases: [Case; 4] = [
        ("flows", |value| Hello { flows: value.try_into().unwrap(), ..hello() }, 1, 65_536),
        ("threads", |value| Hello { threads: value.try_into().unwrap(), ..hello() }, 1, 1_024),
        ("size", |value| Hello { size: value.try_into().unwrap(), ..hello() }, 28, 65_507),
        ("rate", |value| Hello { rate: value, ..hello() }, 0, 1_000_000_000),
    ];
    for (field, make, low, high) in cases {
        let below = low.checked_sub(1).map(|value| (value, false));
        for (value, is_good) in [(low, true), (high, true), (high + 1, false)].into_iter().chain(below) {
            let outcome = make(value).check();
            assert_eq!(outcome.is_ok(), is_good, "{field} {value}");
            assert!(outcome.is_ok() || outcome.unwrap_err().contains(field));
        }
    }
    let run = [(0.000_9, false), (0.001, true), (604_800.0, true), (604_800.1, false), (-1.0, false)];
    for (secs, is_good) in run.into_iter().chain([(f64::NAN, false), (f64::INFINITY, false)]) {
        assert_eq!(Hello { secs, ..hello() }.check().is_ok(), is_good, "{secs}");
    }
    for (length, is_good) in [(0, true), (48, true), (49, false)] {
        assert_eq!(Hello { kernel_id: "x".repeat(length), ..hello() }.check().is_ok(), is_good, "{length}");
    }
}

#[test]
fn anything_but_a_message_is_malformed() {
    let fields = r#""threads":1,"size":28,"rate":0,"secs":1,"kernel_id":"""#;
    for bad in [
        "",
        "null",
        "{}",
        "[]",
        r#"{"message":"hello"}"#,
        r#"{"message":"hello","version":4}"#,
        r#"{"message":"goodbye","version":4}"#,
        r#"{"message":"hello","version":-1}"#,
        &format!(r#"{{"message":"hello","version":4,"flows":-1,"send":"gso",{fields}}}"#),
        &format!(r#"{{"message":"hello","version":4,"flows":1,"send":"pigeon",{fields}}}"#),
        &"[".repeat(10_000),
        "\u{0}\u{1}\u{ff}",
    ] {
        let error = parse::<FromSender>("hello", bad.as_bytes()).unwrap_err();
        assert!(matches!(error, ControlError::Malformed { expected: "hello", .. }), "{bad}: {error}");
    }
}

#[test]
fn a_welcome_has_one_id_per_flow() {
    for (ids, is_good) in [(1, false), (2, true), (3, false)] {
        assert_eq!(greet(&[&line("welcome", &welcome(ids))]).is_ok(), is_good, "{ids} ids");
        assert_eq!(receiver(&[]).welcome(welcome(ids)).is_ok(), is_good, "{ids} ids");
    }
    let bad_id = line("welcome", &welcome(2)).replacen("ffffffffffffffff", "fffffffffffffff", 1);
    assert!(matches!(greet(&[&bad_id]), Err(ControlError::Malformed { expected: "welcome", .. })));
}

#[test]
fn a_senders_book_must_add_up() {
    let good = finished(&[1, 2]);
    let name = |length: usize| Finished { errors: counts(&[(&"x".repeat(length), 1)]), ..good.clone() };
    let many = |count: usize| Finished {
        errors: (0..count).map(|index| (format!("e{index}"), 1)).collect(),
        ..good.clone()
    };
    let messages =
        SentMessages { sent_per_flow: vec![3, 4], sent: 7, unsent: 2, given_up: 1, ..Default::default() };
    let with = |messages: SentMessages| Finished { messages: Some(messages), ..good.clone() };
    for (book, is_good) in [
        (good.clone(), true),
        (finished(&[3]), false),
        (finished(&[1, 1, 1]), false),
        (Finished { sent: 4, ..good.clone() }, false),
        (Finished { sent_per_flow: vec![u64::MAX, 4], sent: 3, ..good.clone() }, false),
        (Finished { errors: counts(&[("\u{1b}[2J", 1)]), ..good.clone() }, false),
        (name(0), false),
        (name(1), true),
        (name(48), true),
        (name(49), false),
        (many(64), true),
        (many(65), false),
        (with(messages.clone()), true),
        (with(SentMessages { sent: 8, ..messages.clone() }), false),
        (with(SentMessages { sent_per_flow: vec![7], ..messages.clone() }), false),
        (with(SentMessages { unsent: 7, ..messages.clone() }), true),
        (with(SentMessages { unsent: 8, ..messages.clone() }), false),
        (with(SentMessages { given_up: 2, ..messages.clone() }), true),
        (with(SentMessages { given_up: 3, ..messages.clone() }), false),
    ] {
        assert_eq!(book.check(2).is_ok(), is_good, "{book:?}");
    }
    let good = line("finished", &good);
    let bad = line("finished", &finished(&[3]));
    assert!(receiver(&[&good]).wait_for_finish(|| true).is_ok());
    assert!(receiver(&[&bad]).wait_for_finish(|| true).is_err());
}

#[test]
fn a_book_has_messages_exactly_if_its_mode_has_some() {
    let messages = SentMessages { sent_per_flow: vec![1, 2], sent: 3, ..SentMessages::default() };
    let with = Finished { messages: Some(messages), ..finished(&[1, 2]) };
    let sealed = |mode| Sealed {
        public_key: drumfire::ServerPublicKey::from_bytes([7; 32]),
        suite: Suite::ChaCha20Poly1305,
        mode,
    };
    for (sealed, has_messages) in [
        (None, false),
        (Some(sealed(Mode::Packets)), false),
        (Some(sealed(Mode::Unreliable)), true),
        (Some(sealed(Mode::ReliableLatest)), true),
    ] {
        for (book, is_there) in [(with.clone(), true), (finished(&[1, 2]), false)] {
            let mut end = receiver(&[&line("finished", &book)]);
            end.welcome(Welcome { sealed, ..welcome(2) }).unwrap();
            assert_eq!(end.wait_for_finish(|| true).is_ok(), has_messages == is_there, "{sealed:?}");
        }
    }
}

#[test]
fn books_that_do_not_fit_the_senders_are_refused() {
    let good = ReceiverBooks { datagrams: Books::new(3, 1).dropped("kernel", 1), ..Default::default() };
    let of_messages = |count| {
        let books = Books::new(count, count);
        ReceiverBooks {
            messages: Some(Messages { books, ..Messages::none(Mode::Unreliable) }),
            ..good.clone()
        }
    };
    let foreign = counts(&[("empty", 1_000_000)]);
    for (books, sent_messages, is_good) in [
        (good.clone(), None, true),
        (ReceiverBooks { foreign, ..good.clone() }, None, true),
        (ReceiverBooks { foreign: counts(&[("\u{1b}[2J", 1)]), ..good.clone() }, None, false),
        (ReceiverBooks { datagrams: Books::new(4, 1), ..good.clone() }, None, false),
        (of_messages(7), Some(7), true),
        (of_messages(6), Some(7), false),
        (of_messages(7), None, false),
        (good.clone(), Some(7), false),
    ] {
        assert_eq!(books.check((3, sent_messages)).is_ok(), is_good, "{books:?}");
    }
    let good = line("books", &good);
    let lie = good.replacen(r#""received":1"#, r#""received":2"#, 1);
    for (books, is_good) in [(&good, true), (&lie, false)] {
        let (mut end, _) = greet(&[&line("welcome", &welcome(2)), books]).unwrap();
        assert_eq!(end.finish(finished(&[1, 2]), || true).is_ok(), is_good, "{books}");
    }
    let closed = receiver(&[]).close(ReceiverBooks::default());
    assert!(matches!(closed, Err(ControlError::TimedOut { waiting_for: "finished" })));
}

#[test]
fn the_reason_of_a_refusal_is_made_printable() {
    let error = greet(&[r#"{"message":"refused","reason":"busy\n\u001b[31m\u202efake"}"#]).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the receiver refused this sender: busy"), "{text}");
    assert!(!text.contains(['\n', '\u{1b}', '\u{202e}']), "{text:?}");
    let long = format!(r#"{{"message":"refused","reason":"{}"}}"#, "x".repeat(1_000_000));
    assert!(greet(&[&long]).unwrap_err().to_string().len() < 400);
}

#[test]
fn an_address_without_a_receiver_is_named_with_what_to_do() {
    // The port is dropped, so nothing accepts connections there.
    let address = port().1;
    let text = Channel::connect(&[address]).unwrap_err().to_string();
    assert!(text.starts_with(&format!("nothing answers at tcp {address}")), "{text}");
    assert!(text.contains("start `receiver` there first, and open TCP and UDP of that port in the firewall"));
    assert!(Channel::connect(&[]).is_err());
}
