//! Both ends over loopback TCP. No test depends on timing: each waits for what the peer has written.

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests may panic")]

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::*;
use crate::choices::{Mode, SendMode, Suite};
use crate::cli::{Load, Traffic};
use crate::clock;
use crate::datagram::RouteId;
use crate::report::{Accounting, Messages, ThreadReport};

fn hello() -> Hello {
    let (secs, send) = (Duration::from_secs(10), SendMode::Single);
    let load = Load { flows: 2, size: 128, rate: 1_000, send };
    let traffic = Traffic { threads: 1, load, secs, pin: None };
    Hello { version: VERSION, traffic, kernel_id: "f00d".to_owned() }
}

fn welcome(flows: usize) -> Welcome {
    Welcome { version: VERSION, ids: vec![RouteId([0xff; 8]); flows], sealed: None }
}

fn finished(sent_per_flow: &[u64]) -> Finished {
    Finished {
        sent_per_flow: sent_per_flow.to_vec(),
        sent: sent_per_flow.iter().sum(),
        errors: BTreeMap::from([("no_buffer_space".to_owned(), 2)]),
        ..Finished::default()
    }
}

fn line(message: &str, rest: &impl Serialize) -> String {
    let mut object = serde_json::to_value(rest).unwrap();
    object["message"] = message.into();
    object.to_string()
}

/// A port without a sender, and its address.
fn port() -> (ControlPort, SocketAddr) {
    let port = ControlPort::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = port.listener.local_addr().unwrap();
    (port, address)
}

/// Returns a connection to a port, after it has sent this text.
fn visitor(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

/// Repeats until there is a result. The loopback delivers on its own, so this ends.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let has_time = clock::within(Duration::from_secs(30));
    while has_time() {
        if let Some(found) = attempt() {
            return found;
        }
        std::thread::yield_now();
    }
    panic!("no result");
}

/// A peer that writes these lines to a stream once it has one, and then reads until the end.
fn spawn_peer(lines: &[&str], stream: impl FnOnce() -> TcpStream + Send + 'static) {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::thread::spawn(move || {
        let mut stream = stream();
        // The other end may refuse the connection before it has read everything.
        let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        let _ = stream.read_to_end(&mut Vec::new());
    });
}

/// The end of a receiver whose sender writes these lines after its hello.
fn receiver(lines: &[&str]) -> ReceiverEnd {
    let (mut port, address) = port();
    let hello = line("hello", &hello());
    spawn_peer(&[&[hello.as_str()], lines].concat(), move || TcpStream::connect(address).unwrap());
    until(|| port.next_sender(clock::now(), &mut |note| panic!("{note}")))
}

/// Greets a receiver that writes these lines.
fn greet(lines: &[&str]) -> Result<(SenderEnd, Welcome), Error> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn_peer(lines, move || listener.accept().unwrap().0);
    SenderEnd::connect(&[address], &hello(), || true)
}

#[track_caller]
fn assert_fails<T>(result: Result<T, Error>, text: &str) {
    let error = result.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
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
fn a_line_that_is_too_long_is_neither_stored_nor_sent() {
    for (length, is_good) in [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)] {
        let text = [vec![b'x'; length].as_slice(), b"\nthe next line\n"].concat();
        assert_eq!(read_line(&mut text.as_slice()).is_ok_and(|line| line.len() == length), is_good);
        let empty = line("refused", &serde_json::json!({ "reason": "" })).len();
        let message = Message::Refused { reason: "x".repeat(length - empty) };
        assert_eq!(to_line(&message).is_ok_and(|line| line.len() == length + 1), is_good);
    }
    let endless = read_line(&mut BufReader::new(io::repeat(b'x')));
    assert_fails(endless.map_err(|error| broken(&error, "hello")), "more than 3145728 bytes");
    assert_fails(read_line(&mut b"cut off".as_slice()).map_err(|error| broken(&error, "hello")), "closed");
}

#[test]
fn the_longest_valid_lines_fit() {
    let flows = 65_536;
    assert!(line("welcome", &welcome(flows)).len() <= MAX_LINE_BYTES);
    let per_flow = vec![u64::MAX; flows];
    let messages = SentMessages { sent_per_flow: per_flow.clone(), ..SentMessages::default() };
    let widest = Finished { sent_per_flow: per_flow, messages: Some(messages), ..Finished::default() };
    assert!(line("finished", &widest).len() <= MAX_LINE_BYTES);
    let (received, cpu_user_s) = (u64::MAX, Some(f64::MAX));
    let thread =
        ThreadReport { received, kernel_drops: Some(received), cpu_user_s, ..ThreadReport::default() };
    let (threads, notes) = (vec![thread; 1_024], vec!["x".repeat(300); 1_024]);
    let report = Report { threads, notes, ..Report::default() };
    assert!(line("books", &report).len() <= MAX_LINE_BYTES);
}

#[test]
fn another_version_is_refused_whatever_its_fields_are() {
    let other = br#"{"message":"hello","version":7,"flows":"a new shape"}"#;
    assert_fails(parse("hello", other), "version 7, this one version 6");
    assert_fails(greet(&[r#"{"message":"welcome","version":8,"ids":{}}"#]), "version 8, this one version 6");
}

/// Checks a message as the other side does, with other values in the place of a field. `good` and `bad` are JSON arrays of values, in
/// which `{48}` and `{49}` are names of that length.
#[track_caller]
fn assert_bounds(message: &str, base: &impl Serialize, field: &str, good: &str, bad: &str) {
    let values = |text: &str| -> Vec<Value> {
        let text = text.replace("{48}", &"x".repeat(48)).replace("{49}", &"x".repeat(49));
        serde_json::from_str(&text).unwrap()
    };
    let cases = values(good).into_iter().map(|value| (value, true));
    for (value, is_good) in cases.chain(values(bad).into_iter().map(|value| (value, false))) {
        let mut object: Value = serde_json::from_str(&line(message, base)).unwrap();
        *object.pointer_mut(field).unwrap() = value.clone();
        let is_valid = parse("hello", object.to_string().as_bytes()).is_ok_and(|message| match message {
            Message::Hello(hello) => hello.check().is_ok(),
            Message::Welcome(welcome) => welcome.check(2).is_ok(),
            Message::Finished(finished) => finished.check(2).is_ok(),
            Message::Books(report) => check_report(&report, (3, Some(7))).is_ok(),
            _ => false,
        });
        assert_eq!(is_valid, is_good, "{message} {field} {value}");
    }
}

const GOOD_NAMES: &str = r#"[{}, {"x": 1}, {"{48}": 1}]"#;

const BAD_NAMES: &str = r#"[{"": 1}, {"{49}": 1}, {"\u001b[2J": 1}]"#;

#[test]
fn every_field_of_a_hello_and_a_welcome_is_checked_at_its_bounds() {
    for (field, good, bad) in [
        ("/flows", "[1, 65536]", "[0, 65537, -1]"),
        ("/threads", "[1, 1024]", "[0, 1025]"),
        ("/size", "[28, 65507]", "[27, 65508]"),
        ("/rate", "[0, 1000000000]", "[1000000001]"),
        ("/secs", "[0.001, 604800]", "[0.0009, 604800.1, -1, 1e300]"),
        ("/send", r#"["gso"]"#, r#"["pigeon"]"#),
        ("/kernel_id", r#"["", "{48}"]"#, r#"["{49}"]"#),
    ] {
        assert_bounds("hello", &hello(), field, good, bad);
    }
    let ids = "[[[1,2,3,4,5,6,7,8]], [[1,2,3,4,5,6,7,8], [256,2,3,4,5,6,7,8]]]";
    assert_bounds("welcome", &welcome(2), "/ids", "[[[1,2,3,4,5,6,7,8], [255,2,3,4,5,6,7,8]]]", ids);
}

#[test]
fn anything_but_a_message_is_malformed() {
    for bad in [
        "",
        "null",
        "{}",
        "[]",
        r#"{"message":"hello"}"#,
        r#"{"message":"hello","version":6}"#,
        r#"{"message":"goodbye","version":6}"#,
        r#"{"message":"hello","version":-1}"#,
        &"[".repeat(10_000),
        "\u{0}\u{1}\u{ff}",
    ] {
        assert_fails(parse("hello", bad.as_bytes()), "did not send a valid `hello`");
    }
}

#[test]
fn books_must_add_up() {
    let messages =
        SentMessages { sent_per_flow: vec![3, 4], sent: 7, unsent: 2, given_up: 1, ..Default::default() };
    let sent = Finished { messages: Some(messages), ..finished(&[1, 2]) };
    for (field, good, bad) in [
        ("/errors", GOOD_NAMES, BAD_NAMES),
        ("/sent", "[3]", "[4]"),
        ("/sent_per_flow", "[[3, 0]]", "[[3], [1, 1, 1], [18446744073709551615, 4]]"),
        ("/messages/sent", "[7]", "[8]"),
        ("/messages/sent_per_flow", "[[7, 0]]", "[[7]]"),
        ("/messages/unsent", "[7]", "[8, 0]"),
        ("/messages/given_up", "[2]", "[3]"),
    ] {
        assert_bounds("finished", &sent, field, good, bad);
    }
    let datagrams = Accounting::new(3, 1).dropped("kernel", 1);
    let messages = Some(Messages { books: Accounting::new(7, 7), ..Messages::default() });
    let foreign = BTreeMap::from([("empty".to_owned(), 1)]);
    let books = Report { books: datagrams, foreign, messages, ..Report::default() };
    for (field, good, bad) in [
        ("/foreign", GOOD_NAMES, BAD_NAMES),
        ("/drops", r#"[{"kernel": 1}]"#, r#"[{"kernel": 2}, {}]"#),
        ("/received", "[1]", "[2]"),
        ("/sent", "[3]", "[4]"),
        ("/messages/sent", "[7]", "[6]"),
        ("/messages", "[]", "[null]"),
    ] {
        assert_bounds("books", &books, field, good, bad);
    }
    assert!(check_report(&books, (3, None)).is_err(), "no messages were sent");
    for (count, is_good) in [(64, true), (65, false)] {
        let errors = (0..count).map(|index| (format!("e{index}"), 1)).collect();
        assert_eq!(Finished { errors, ..sent.clone() }.check(2).is_ok(), is_good, "{count} names");
    }
}

#[test]
fn a_message_that_fails_its_check_ends_the_connection() {
    assert!(greet(&[&line("welcome", &welcome(1))]).is_err());
    assert!(receiver(&[]).welcome(welcome(3)).is_err());
    let (good, bad) = (line("finished", &finished(&[1, 2])), line("finished", &finished(&[3])));
    assert!(receiver(&[&good]).wait_for_finish(|| true).is_ok());
    assert_fails(receiver(&[&bad]).wait_for_finish(|| true), "1 entries for 2 flows");
    for (sent, is_good) in [(3, true), (4, false)] {
        let books = Report { books: Accounting::new(sent, sent), ..Report::default() };
        let (mut end, _) = greet(&[&line("welcome", &welcome(2)), &line("books", &books)]).unwrap();
        assert_eq!(end.finish(finished(&[1, 2]), || true).is_ok(), is_good, "{sent}");
    }
    let other = Report { books: Accounting::new(2, 2), ..Report::default() };
    assert_fails(receiver(&[]).close(&finished(&[1, 2]), &other), "about other datagrams");
}

#[test]
fn a_book_has_messages_exactly_if_its_mode_has_some() {
    let messages = SentMessages { sent_per_flow: vec![1, 2], sent: 3, ..SentMessages::default() };
    let with = Finished { messages: Some(messages), ..finished(&[1, 2]) };
    let sealed = |mode| Some(Sealed { public_key: [7; 32], suite: Suite::ChaCha20Poly1305, mode });
    for (sealed, has_messages) in
        [(None, false), (sealed(Mode::Packets), false), (sealed(Mode::ReliableLatest), true)]
    {
        for (book, is_there) in [(with.clone(), true), (finished(&[1, 2]), false)] {
            let mut end = receiver(&[&line("finished", &book)]);
            end.welcome(Welcome { sealed, ..welcome(2) }).unwrap();
            assert_eq!(end.wait_for_finish(|| true).is_ok(), has_messages == is_there, "{sealed:?}");
        }
    }
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
