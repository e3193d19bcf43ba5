//! Both ends over loopback TCP, and lines over prepared reads. No test depends on timing: the peer has written before it is read.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::net::Shutdown;
use std::thread::JoinHandle;

use super::*;
use crate::choices::{Mode, SendMode, Stage, Steer, Suite};
use crate::datagram::RouteId;
use crate::report::{self, Messages};

const PATIENCE: Duration = Duration::from_secs(60);

/// A stream whose reads are prepared. An empty chunk is a read that finds nothing.
#[derive(Debug, Default)]
struct Script {
    reads: VecDeque<Vec<u8>>,
    written: Vec<u8>,
}

impl Script {
    fn channel(reads: impl IntoIterator<Item = Vec<u8>>) -> Channel<Self> {
        let stream = Self { reads: reads.into_iter().collect(), written: Vec::new() };
        Channel { stream, pending: Vec::new(), scanned: 0 }
    }
}

impl Read for Script {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(mut chunk) = self.reads.pop_front() else { return Ok(0) };
        if chunk.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = chunk.len().min(out.len());
        out[..length].copy_from_slice(&chunk[..length]);
        if length < chunk.len() {
            self.reads.push_front(chunk.split_off(length));
        }
        Ok(length)
    }
}

impl Write for Script {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
    (Channel::new(listener.accept().unwrap().0, PATIENCE).unwrap(), thread)
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
        granted: serde_json::Map::new(),
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

/// The end of a receiver whose sender writes these lines after a good hello.
fn receiver(lines: &[&str]) -> ReceiverEnd {
    let hello_line = line("hello", &hello());
    let lines: Vec<&str> = std::iter::once(hello_line.as_str()).chain(lines.iter().copied()).collect();
    let mut visitor = Visitor::new(peer_with(&lines).0);
    let said = visitor.poll_hello().unwrap().unwrap();
    assert_eq!(said, hello());
    visitor.admit(&said)
}

/// Greets a receiver that writes these lines.
fn greet(lines: &[&str]) -> Result<(SenderEnd, Welcome), ControlError> {
    SenderEnd::greet(peer_with(lines).0, &hello(), || true)
}

#[test]
fn a_whole_run_over_loopback_closes_both_books() {
    let step = Duration::from_millis(50);
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    assert!(accept(&listener, step).unwrap().is_none(), "there is no connection yet");

    let receiver = std::thread::spawn(move || {
        let channel = loop {
            if let Some((channel, _)) = accept(&listener, step).unwrap() {
                break channel;
            }
            std::thread::yield_now();
        };
        let mut visitor = Visitor::new(channel);
        let hello = loop {
            if let Some(hello) = visitor.poll_hello().unwrap() {
                break hello;
            }
        };
        let mut end = visitor.admit(&hello);
        end.welcome(welcome(hello.flows as usize)).unwrap();
        end.wait_for_start(|| true).unwrap();
        let finished = end.wait_for_finish(|| true).unwrap();
        let books = Books { received: 7, drops: counts(&[("kernel", 2)]), ..Books::default() };
        (finished, end.close(books).unwrap())
    });

    let channel = connect(&[address], PATIENCE, step).unwrap();
    assert_eq!(channel.stream().peer_addr().unwrap(), address);
    let (mut end, welcomed) = SenderEnd::greet(channel, &hello(), || true).unwrap();
    assert_eq!(welcomed, welcome(2));
    end.start().unwrap();
    let books = end.finish(finished(&[4, 6]), || true).unwrap();
    assert_eq!(books.unexplained, 1);
    assert_eq!(receiver.join().unwrap(), (finished(&[4, 6]), books));
}

#[test]
fn lines_are_whole_however_the_stream_is_cut() {
    let text = "a line\n\nanother\n";
    for size in [1, 2, 3, 7, 64] {
        let chunks = text.as_bytes().chunks(size).flat_map(|chunk| [Vec::new(), chunk.to_vec()]);
        let mut channel = Script::channel(chunks);
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
fn a_wait_ends_when_the_caller_says_so() {
    let mut quiet = Script::channel(vec![Vec::new(); 4]);
    let mut asked = 0;
    let waited: Result<FromReceiver, _> = quiet.wait("welcome", || {
        asked += 1;
        asked < 3
    });
    assert!(matches!(waited, Err(ControlError::TimedOut { waiting_for: "welcome" })));
    assert_eq!(asked, 3);
}

#[test]
fn a_peer_that_sends_byte_by_byte_does_not_block_a_poll() {
    let mut channel = Script::channel(vec![vec![b'x']; 1_000]);
    assert!(channel.poll_line("hello").unwrap().is_none());
    assert_eq!(channel.stream.reads.len(), 1_000 - MAX_READS_PER_POLL);
}

#[test]
fn a_line_above_three_mebibytes_is_refused_and_not_stored() {
    for (length, is_good) in [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)] {
        let mut text = vec![b'x'; length];
        text.push(b'\n');
        let mut channel = Script::channel([text]);
        assert_eq!(channel.poll_line("hello").is_ok_and(|line| line.unwrap().len() == length), is_good);
    }
    let mut endless = Script::channel([vec![b'x'; 3 * MAX_LINE_BYTES]]);
    for _ in 0..2 {
        assert!(matches!(endless.poll_line("hello"), Err(ControlError::LineTooLong)));
    }
    assert!(endless.stream.reads[0].len() > MAX_LINE_BYTES, "the rest was not read");
}

#[test]
fn the_longest_valid_lines_fit_and_a_longer_one_is_not_written() {
    let flows = 65_536;
    assert!(line("welcome", &welcome(flows)).len() <= MAX_LINE_BYTES);
    let per_flow = vec![u64::MAX; flows];
    let messages = SentMessages { sent_per_flow: per_flow.clone(), ..SentMessages::default() };
    let widest = Finished { sent_per_flow: per_flow, messages: Some(messages), ..finished(&[1]) };
    assert!(line("finished", &widest).len() <= MAX_LINE_BYTES);

    let mut channel = Script::channel([]);
    let long = "x".repeat(MAX_LINE_BYTES - 2);
    channel.send("hello", &long).unwrap();
    assert!(matches!(channel.send("hello", &format!("{long}x")), Err(ControlError::LineTooLong)));
    assert_eq!(channel.stream.written.len(), MAX_LINE_BYTES + 1);
}

#[test]
fn another_version_is_refused_whatever_its_other_fields_are() {
    let error = read_hello(br#"{"message":"hello","version":4,"flows":"a new shape"}"#).unwrap_err();
    assert!(matches!(error, ControlError::VersionDiffers { theirs: 4 }));
    assert!(error.to_string().contains("version 4, this one version 3"), "{error}");
    let error = greet(&[r#"{"message":"welcome","version":7,"ids":{}}"#]).unwrap_err();
    assert!(matches!(error, ControlError::VersionDiffers { theirs: 7 }));
}

#[test]
fn the_sender_of_a_bad_hello_receives_the_reason() {
    let (channel, peer) = peer_with(&["GET / HTTP/1.1\r"]);
    assert!(Visitor::new(channel).poll_hello().is_err());
    let reply = peer.join().unwrap();
    assert!(reply.starts_with(r#"{"message":"refused","reason":"its `hello` is not valid"#), "{reply}");
    assert!(matches!(greet(&[reply.trim()]), Err(ControlError::Refused { .. })));
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
fn anything_but_the_expected_message_is_malformed() {
    let fields = r#""threads":1,"size":28,"rate":0,"secs":1,"kernel_id":"""#;
    for bad in [
        String::new(),
        "null".to_owned(),
        "{}".to_owned(),
        "[]".to_owned(),
        r#"{"message":"hello"}"#.to_owned(),
        r#"{"message":"hello","version":3}"#.to_owned(),
        r#"{"message":"goodbye","version":3}"#.to_owned(),
        r#"{"message":"started"}"#.to_owned(),
        r#"{"message":"hello","version":-1}"#.to_owned(),
        format!(r#"{{"message":"hello","version":3,"flows":-1,"send":"gso",{fields}}}"#),
        format!(r#"{{"message":"hello","version":3,"flows":1,"send":"pigeon",{fields}}}"#),
        line("hello", &Hello { flows: u32::MAX, ..hello() }),
        "[".repeat(10_000),
        "\u{0}\u{1}\u{ff}".to_owned(),
    ] {
        let error = read_hello(bad.as_bytes()).unwrap_err();
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
fn a_senders_book_has_messages_exactly_if_its_mode_has_some() {
    let messages = SentMessages { sent_per_flow: vec![1, 2], sent: 3, ..SentMessages::default() };
    let with = Finished { messages: Some(messages), ..finished(&[1, 2]) };
    let sealed = |mode| Sealed { public_key: [7; 32].into(), suite: Suite::ChaCha20Poly1305, mode };
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
fn books_that_do_not_add_up_are_refused_by_the_sender() {
    let good =
        Books { received: 1, drops: counts(&[("kernel", 1)]), window_s: 1.0, ..Books::default() }.settle(3);
    assert_eq!(good.unexplained, 1);
    let of_messages = |count| {
        let books = report::Books::new(count, count);
        Books { messages: Some(Messages { books, ..Messages::none(Mode::Unreliable) }), ..good.clone() }
    };
    for (books, sent_messages, is_good) in [
        (good.clone(), None, true),
        (Books { strays: counts(&[("empty", 1_000_000)]), ..good.clone() }, None, true),
        (Books { received: 2, ..good.clone() }, None, false),
        (Books { unexplained: 0, ..good.clone() }, None, false),
        (Books { window_s: -1.0, ..good.clone() }, None, false),
        (Books { drops: counts(&[("kernel", u64::MAX), ("other", u64::MAX)]), ..good.clone() }, None, false),
        (Books { received: 3, drops: counts(&[]), unexplained: 0, ..good.clone() }, None, true),
        (Books { received: 4, drops: counts(&[]), unexplained: -1, ..good.clone() }, None, true),
        (of_messages(7), Some(7), true),
        (of_messages(6), Some(7), false),
        (of_messages(7), None, false),
        (good.clone(), Some(7), false),
    ] {
        assert_eq!(books.check(3, sent_messages).is_ok(), is_good, "{books:?}");
    }
    let bad = Books { received: 2, ..good.clone() };
    for (books, is_good) in [(good, true), (bad, false)] {
        let (mut end, _) = greet(&[&line("welcome", &welcome(2)), &line("books", &books)]).unwrap();
        assert_eq!(end.finish(finished(&[1, 2]), || true).is_ok(), is_good, "{books:?}");
    }
}

#[test]
fn no_books_are_sent_before_the_senders_book() {
    let closed = receiver(&[]).close(Books::default());
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
    // The listener is dropped, so nothing accepts connections at its port.
    let address = listen("127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap();
    let text = connect(&[address], PATIENCE, PATIENCE).unwrap_err().to_string();
    assert!(text.starts_with(&format!("nothing answers at tcp {address}")), "{text}");
    assert!(text.contains("start `receiver` there first, and open TCP and UDP of that port in the firewall"));
    assert!(connect(&[], PATIENCE, PATIENCE).is_err());
}
