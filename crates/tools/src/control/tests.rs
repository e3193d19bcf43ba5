//! Both ends over in-memory streams and loopback TCP: the whole order, every refusal, every bound.
//!
//! No thread and no timing: what one end waits for has been written before it looks.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests may panic")]

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};

use super::*;
use crate::choices::{Mode, SendMode, Stage, Steer, Suite};
use crate::datagram::RouteId;

/// A peer whose every read is laid down beforehand; an empty chunk is a read that finds nothing.
#[derive(Debug, Default)]
struct Script {
    reads: VecDeque<Vec<u8>>,
    written: Vec<u8>,
}

impl Script {
    fn new(lines: &[&str]) -> Channel<Self> {
        let reads = lines.iter().map(|line| format!("{line}\n").into_bytes()).collect();
        Channel::new(Self { reads, written: Vec::new() })
    }

    fn chunks(reads: impl IntoIterator<Item = Vec<u8>>) -> Channel<Self> {
        Channel::new(Self { reads: reads.into_iter().collect(), written: Vec::new() })
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

fn drops(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn line(message: &str, rest: &impl serde::Serialize) -> String {
    let mut object = serde_json::to_value(rest).unwrap();
    object["message"] = message.into();
    object.to_string()
}

fn never() -> bool {
    false
}

/// A receiver's whole greeting, for streams that have something at every look.
fn greet<S: Read + Write>(channel: Channel<S>) -> Result<(ReceiverEnd<S>, Hello), ControlError> {
    let mut visitor = Visitor::new(channel);
    loop {
        if let Some(hello) = visitor.poll_hello()? {
            return Ok((visitor.admit(&hello), hello));
        }
    }
}

/// What a receiver says to a hello line.
fn answer_to(hello_line: &str) -> ControlError {
    greet(Script::new(&[hello_line])).unwrap_err()
}

#[test]
fn a_whole_run_over_loopback_closes_both_books() {
    let step = Duration::from_millis(50);
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    assert!(accept(&listener, step).unwrap().is_none(), "nobody has connected yet");

    let receiver = std::thread::spawn(move || {
        let channel = loop {
            if let Some((channel, _)) = accept(&listener, step).unwrap() {
                break channel;
            }
            std::thread::yield_now();
        };
        let (mut end, hello) = greet(channel).unwrap();
        end.welcome(welcome(hello.flows as usize)).unwrap();
        end.wait_for_start(|| true).unwrap();
        let finished = end.wait_for_finish(|| true).unwrap();
        let books = Books { received: 7, drops: drops(&[("kernel", 2)]), ..Books::default() };
        (finished, end.close(books).unwrap())
    });

    let channel = connect(&[address], Duration::from_secs(5), step).unwrap();
    assert_eq!(channel.stream().peer_addr().unwrap(), address);
    let (mut end, welcomed) = SenderEnd::greet(channel, &hello(), || true).unwrap();
    assert_eq!(welcomed, welcome(2));
    end.start().unwrap();
    let books = end.finish(finished(&[4, 6]), || true).unwrap();
    assert_eq!(books.unexplained, 1);
    assert!(!books.is_closed());
    assert_eq!(receiver.join().unwrap(), (finished(&[4, 6]), books));
}

#[test]
fn lines_come_whole_however_the_stream_cuts_them() {
    let hello_line = format!("{}\n", line("hello", &hello()));
    let text = format!("{hello_line}{{\"message\":\"started\"}}\n{}\n", line("finished", &finished(&[1, 2])));
    for size in [1, 2, 3, 7, 64, 5_000] {
        let chunks = text.as_bytes().chunks(size).flat_map(|chunk| [Vec::new(), chunk.to_vec()]);
        let (mut end, said) = greet(Script::chunks(chunks)).unwrap();
        assert_eq!(said, hello());
        end.wait_for_start(|| true).unwrap();
        assert_eq!(end.wait_for_finish(|| true).unwrap(), finished(&[1, 2]));
        assert!(matches!(
            end.wait_for_finish(|| true),
            Err(ControlError::ClosedEarly { waiting_for: "finished" })
        ));
    }
}

#[test]
fn a_wait_ends_when_the_caller_says_so_and_can_be_taken_up_again() {
    let hello_line = format!("{}\n", line("hello", &hello())).into_bytes();
    let (start, rest) = hello_line.split_at(9);
    let mut channel = Script::chunks([start.to_vec(), Vec::new(), rest.to_vec()]);
    assert!(channel.poll_line("hello").unwrap().is_none());
    assert!(channel.poll_line("hello").unwrap().is_some());

    let quiet = Script::chunks([Vec::new(), Vec::new(), Vec::new(), Vec::new()]);
    let mut asked = 0;
    let error = SenderEnd::greet(quiet, &hello(), || {
        asked += 1;
        asked < 3
    })
    .unwrap_err();
    assert!(matches!(error, ControlError::TimedOut { waiting_for: "welcome" }), "{error}");
    assert_eq!(asked, 3);
}

#[test]
fn a_peer_that_drips_does_not_hold_a_poll() {
    let mut channel = Script::chunks(vec![vec![b'x']; 1_000]);
    assert!(channel.poll_line("hello").unwrap().is_none());
    assert_eq!(channel.stream().reads.len(), 1_000 - 256);
}

#[test]
fn a_line_above_three_mebibytes_is_refused_and_not_stored() {
    for (length, is_good) in [(MAX_LINE_BYTES - 1, true), (MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)]
    {
        let mut text = vec![b'x'; length];
        text.push(b'\n');
        let mut channel = Script::chunks([text]);
        assert_eq!(
            channel.poll_line("hello").is_ok_and(|line| line.unwrap().len() == length),
            is_good,
            "{length}"
        );
    }
    let mut endless = Script::chunks([vec![b'x'; 3 * MAX_LINE_BYTES]]);
    assert!(matches!(endless.poll_line("hello"), Err(ControlError::LineTooLong)));
    assert!(matches!(endless.poll_line("hello"), Err(ControlError::LineTooLong)), "it stays refused");
    assert!(endless.stream().reads[0].len() > MAX_LINE_BYTES, "the rest was left where it was");
}

#[test]
fn the_longest_honest_lines_fit() {
    let flows = 65_536;
    let message = line("welcome", &welcome(flows));
    assert!(message.len() <= MAX_LINE_BYTES);
    let announced = Hello { flows: 65_536, ..hello() };
    let (_, welcomed) = SenderEnd::greet(Script::new(&[&message]), &announced, never).unwrap();
    assert_eq!(welcomed.ids.len(), flows);
    let counts = vec![u64::MAX; flows];
    let messages = SentMessages { sent_per_flow: counts.clone(), ..SentMessages::default() };
    let widest = Finished { sent_per_flow: counts, messages: Some(messages), ..finished(&[1]) };
    assert!(line("finished", &widest).len() <= MAX_LINE_BYTES);
}

#[test]
fn a_message_that_does_not_fit_is_not_written() {
    let mut channel = Script::new(&[]);
    let long = "x".repeat(MAX_LINE_BYTES - 2);
    channel.send("hello", &long).unwrap();
    assert_eq!(channel.stream().written.len(), MAX_LINE_BYTES + 1);
    assert!(matches!(channel.send("hello", &format!("{long}x")), Err(ControlError::LineTooLong)));
    assert_eq!(channel.stream().written.len(), MAX_LINE_BYTES + 1);
}

#[test]
fn another_version_is_refused_by_name_whatever_else_its_hello_says() {
    let error = answer_to(r#"{"message":"hello","version":4,"flows":"a new shape"}"#);
    assert!(matches!(error, ControlError::VersionDiffers { theirs: 4 }));
    assert!(error.to_string().contains("version 4, this one version 3"), "{error}");

    let other = Script::new(&[r#"{"message":"welcome","version":7,"ids":{}}"#]);
    let error = SenderEnd::greet(other, &hello(), never).unwrap_err();
    assert!(matches!(error, ControlError::VersionDiffers { theirs: 7 }));
}

#[test]
fn a_bad_hello_is_told_why_on_the_wire() {
    let mut reply = Vec::new();
    let mut stream = Script { reads: VecDeque::from([b"GET / HTTP/1.1\r\n".to_vec()]), ..Script::default() };
    let channel = Channel::new(Tee { script: &mut stream, reply: &mut reply });
    assert!(greet(channel).is_err());
    let reply = String::from_utf8(reply).unwrap();
    assert!(reply.starts_with(r#"{"message":"refused","reason":"its `hello` is not valid"#), "{reply}");
    assert!(reply.ends_with("\n"));

    let error = SenderEnd::greet(Script::new(&[reply.trim()]), &hello(), never).unwrap_err();
    assert!(matches!(error, ControlError::Refused { .. }), "{error}");
}

/// Keeps what was written when the end that wrote it is gone.
#[derive(Debug)]
struct Tee<'a> {
    script: &'a mut Script,
    reply: &'a mut Vec<u8>,
}

impl Read for Tee<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.script.read(out)
    }
}

impl Write for Tee<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.reply.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn every_field_of_a_hello_is_checked_at_its_bounds() {
    type Case = (&'static str, fn(u64) -> Hello, u64, u64);
    let cases: [Case; 4] = [
        ("flows", |value| Hello { flows: narrow(value), ..hello() }, 1, 65_536),
        ("threads", |value| Hello { threads: narrow(value), ..hello() }, 1, 1_024),
        ("size", |value| Hello { size: narrow(value), ..hello() }, 28, 65_507),
        ("rate", |value| Hello { rate: value, ..hello() }, 0, 1_000_000_000),
    ];
    for (field, make, low, high) in cases {
        let below = low.checked_sub(1).map(|value| (value, false));
        let around = [(low, true), (low + 1, true), (high - 1, true), (high, true), (high + 1, false)];
        for (value, is_good) in around.into_iter().chain(below) {
            let outcome = make(value).check();
            assert_eq!(outcome.is_ok(), is_good, "{field} {value}");
            assert!(outcome.is_ok() || outcome.unwrap_err().contains(field));
        }
    }
    let run = [(0.000_9, false), (0.001, true), (604_800.0, true), (604_800.1, false)];
    for (secs, is_good) in run.into_iter().chain([(f64::NAN, false), (f64::INFINITY, false), (-1.0, false)]) {
        assert_eq!(Hello { secs, ..hello() }.check().is_ok(), is_good, "{secs}");
    }
    for (length, is_good) in [(0, true), (47, true), (48, true), (49, false)] {
        let kernel_id = "x".repeat(length);
        assert_eq!(Hello { kernel_id, ..hello() }.check().is_ok(), is_good, "{length}");
    }
}

fn narrow(value: u64) -> u32 {
    value.try_into().unwrap()
}

#[test]
fn what_is_not_the_expected_message_is_malformed() {
    let huge_flows = line("hello", &Hello { flows: u32::MAX, ..hello() });
    let nested = "[".repeat(10_000);
    for bad in [
        "",
        "null",
        "{}",
        "[]",
        r#"{"message":"hello"}"#,
        r#"{"message":"hello","version":3}"#,
        r#"{"message":"goodbye","version":3}"#,
        r#"{"message":"started"}"#,
        r#"{"message":"hello","version":-1}"#,
        r#"{"message":"hello","version":3,"flows":-1,"threads":1,"size":28,"rate":0,"send":"gso","secs":1,"kernel_id":""}"#,
        r#"{"message":"hello","version":3,"flows":1,"threads":1,"size":28,"rate":0,"send":"pigeon","secs":1,"kernel_id":""}"#,
        &huge_flows,
        &nested,
        "\u{0}\u{1}\u{ff}",
    ] {
        let error = answer_to(bad);
        assert!(matches!(error, ControlError::Malformed { expected: "hello", .. }), "{bad}: {error}");
    }
}

#[test]
fn a_welcome_has_one_id_per_flow() {
    for (ids, is_good) in [(1, false), (2, true), (3, false)] {
        let channel = Script::new(&[&line("welcome", &welcome(ids))]);
        assert_eq!(SenderEnd::greet(channel, &hello(), never).is_ok(), is_good, "{ids} ids");
        let (mut end, _) = greet(Script::new(&[&line("hello", &hello())])).unwrap();
        assert_eq!(end.welcome(welcome(ids)).is_ok(), is_good, "{ids} ids");
    }
    let bad_id = line("welcome", &welcome(2)).replacen("ffffffffffffffff", "fffffffffffffff", 1);
    assert!(matches!(
        SenderEnd::greet(Script::new(&[&bad_id]), &hello(), never),
        Err(ControlError::Malformed { expected: "welcome", .. })
    ));
}

#[test]
fn a_senders_book_must_add_up() {
    let good = finished(&[1, 2]);
    let name =
        |length: usize| Finished { errors: drops(&[("x".repeat(length).as_str(), 1)]), ..good.clone() };
    let many = |count: usize| Finished {
        errors: (0..count).map(|index| (format!("e{index}"), 1)).collect(),
        ..good.clone()
    };
    for (book, is_good) in [
        (good.clone(), true),
        (finished(&[3]), false),
        (finished(&[1, 1, 1]), false),
        (Finished { sent: 4, ..good.clone() }, false),
        (Finished { sent_per_flow: vec![u64::MAX, 4], sent: 3, ..good.clone() }, false),
        (Finished { errors: drops(&[("\u{1b}[2J", 1)]), ..good.clone() }, false),
        (name(0), false),
        (name(1), true),
        (name(47), true),
        (name(48), true),
        (name(49), false),
        (many(63), true),
        (many(64), true),
        (many(65), false),
    ] {
        let lines = [line("hello", &hello()), line("finished", &book)];
        let (mut end, _) = greet(Script::new(&[&lines[0], &lines[1]])).unwrap();
        assert_eq!(end.wait_for_finish(never).is_ok(), is_good, "{book:?}");
    }
}

#[test]
fn a_senders_book_has_messages_where_it_was_welcomed_to_deliver_some_and_nowhere_else() {
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
            let lines = [line("hello", &hello()), line("finished", &book)];
            let (mut end, _) = greet(Script::new(&[&lines[0], &lines[1]])).unwrap();
            end.welcome(Welcome { sealed, ..welcome(2) }).unwrap();
            assert_eq!(end.wait_for_finish(never).is_ok(), has_messages == is_there, "{sealed:?}");
        }
    }
}

#[test]
fn books_that_do_not_add_up_are_refused_by_the_sender() {
    let good =
        Books { received: 1, drops: drops(&[("kernel", 1)]), window_s: 1.0, ..Books::default() }.settle(3);
    assert_eq!(good.unexplained, 1);
    for (books, is_good) in [
        (good.clone(), true),
        (Books { strays: drops(&[("empty", 1_000_000)]), ..good.clone() }, true),
        (Books { received: 2, ..good.clone() }, false),
        (Books { unexplained: 0, ..good.clone() }, false),
        (Books { window_s: -1.0, ..good.clone() }, false),
        (Books { drops: drops(&[("kernel", u64::MAX), ("other", u64::MAX)]), ..good.clone() }, false),
        (Books { received: 3, drops: drops(&[]), unexplained: 0, ..good.clone() }, true),
        (Books { received: 4, drops: drops(&[]), unexplained: -1, ..good.clone() }, true),
    ] {
        let lines = [line("welcome", &welcome(2)), line("books", &books)];
        let channel = Script::new(&[&lines[0], &lines[1]]);
        let (mut end, _) = SenderEnd::greet(channel, &hello(), never).unwrap();
        assert_eq!(end.finish(finished(&[1, 2]), never).is_ok(), is_good, "{books:?}");
    }
}

#[test]
fn the_remainder_is_held_at_the_ends_of_its_range() {
    let all = Books::default().settle(u64::MAX);
    assert_eq!(all.unexplained, i64::MAX);
    let none = Books { received: u64::MAX, drops: drops(&[("a", u64::MAX)]), ..Books::default() }.settle(0);
    assert_eq!(none.unexplained, i64::MIN);
}

#[test]
fn books_before_the_senders_book_are_not_handed_over() {
    let (end, _) = greet(Script::new(&[&line("hello", &hello())])).unwrap();
    assert!(matches!(end.close(Books::default()), Err(ControlError::TimedOut { waiting_for: "finished" })));
}

#[test]
fn a_refusal_carries_its_reason_without_the_peers_control_characters() {
    let message = r#"{"message":"refused","reason":"busy\n\u001b[31m\u202efake"}"#;
    let error = SenderEnd::greet(Script::new(&[message]), &hello(), never).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("the receiver refused this sender: busy"), "{text}");
    assert!(!text.contains(['\n', '\u{1b}', '\u{202e}']), "{text:?}");

    let long = format!(r#"{{"message":"refused","reason":"{}"}}"#, "x".repeat(1_000_000));
    let text = SenderEnd::greet(Script::new(&[&long]), &hello(), never).unwrap_err().to_string();
    assert!(text.len() < 400);
}

#[test]
fn nobody_at_the_address_is_said_in_one_line_with_the_way_out() {
    // A listener that is gone again leaves a port where nothing answers.
    let address = listen("127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap();
    let error = connect(&[address], Duration::from_secs(5), Duration::from_secs(1)).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("nothing answers at tcp {address}")), "{text}");
    assert!(text.contains("start `receiver` there first, and open TCP and UDP of that port in the firewall"));
    assert!(connect(&[], Duration::from_secs(1), Duration::from_secs(1)).is_err());
}

#[test]
fn every_error_is_one_line_that_says_what_to_do() {
    let errors = [
        ControlError::Unreachable {
            address: "[::1]:9".parse().unwrap(),
            source: io::ErrorKind::TimedOut.into(),
        },
        ControlError::ClosedEarly { waiting_for: "books" },
        ControlError::TimedOut { waiting_for: "welcome" },
        ControlError::LineTooLong,
        ControlError::Malformed { expected: "hello", problem: "flows is 0, it may be 1 to 65536".to_owned() },
        ControlError::VersionDiffers { theirs: 9 },
        ControlError::Io(io::ErrorKind::Other.into()),
    ];
    for error in errors {
        let text = error.to_string();
        assert!(!text.contains('\n') && text.contains(": "), "{text}");
        let advice = ["start", "build", "only"];
        assert!(advice.iter().any(|word| text.contains(word)), "{text}");
    }
}
