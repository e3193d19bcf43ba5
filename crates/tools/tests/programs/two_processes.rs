//! Receiver and sender as two commands: both books agree. After Ctrl-C and kills, every program ends by itself, with its report or with
//! one error line.

use std::net::UdpSocket;

use drumfire_tools::report::Report;

use crate::process::{Ended, Program, receiver, sender, waiting_receiver};
use crate::report::{SEVERAL, report_of};

/// Checks that both reports agree, and returns the receiver's.
fn assert_agree(received: &Ended, sent: &Ended) -> Report {
    let (receiver, sender) = (report_of(received), report_of(sent));
    assert_eq!((receiver.name.as_str(), sender.name.as_str()), ("receiver", "sender"));
    assert_eq!((&receiver.books, &receiver.foreign), (&sender.books, &sender.foreign));
    assert_eq!((receiver.duplicated, receiver.reordered), (sender.duplicated, sender.reordered));
    assert_eq!((receiver.offered, &receiver.limited_by), (sender.offered, &sender.limited_by));
    assert_eq!(receiver.messages, sender.messages);
    receiver
}

/// The stages with books of datagrams alone, and of reliable messages too.
const STAGES: [&str; 2] = ["parse", "deliver --mode reliable-ordered"];

/// Checks that all messages arrived, if there are some.
fn assert_delivered(report: &Report) {
    if let Some(messages) = &report.messages {
        assert_eq!(messages.books.received, messages.books.sent);
    }
}

#[test]
fn a_receiver_and_a_sender_of_their_own_agree() {
    for stage in STAGES {
        let (receiver, address) = waiting_receiver(&format!("--stage {stage} --threads {SEVERAL} --json -"));
        let sent =
            sender(address, "--secs 0.3 --rate 10000 --flows 12 --threads 2 --json -").end().with_code(0);
        let has_line = |start: &str| sent.stderr.iter().any(|line| line.starts_with(start));
        assert!(has_line("books ") && has_line("messages ") == stage.contains("mode"), "{sent:#?}");
        assert_delivered(&assert_agree(&receiver.end().with_code(0), &sent));
    }
}

#[test]
fn a_sender_without_json_prints_its_table() {
    let (receiver, address) = waiting_receiver("");
    let sent = sender(address, "--secs 0.1 --rate 1000").end().with_code(0);
    assert!(sent.stdout.iter().any(|line| line.starts_with("books ")), "{sent:#?}");
    assert_eq!(sent.stderr, [""; 0]);
    receiver.end().with_code(0);
}

#[test]
fn a_sender_without_a_receiver_says_so_in_one_line() {
    // With UDP of that number taken, no receiver of another test comes to listen there.
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = udp.local_addr().unwrap();
    let ended = sender(address, "--secs 0.1").end().with_code(1);
    let line = ended.only_error_line();
    assert!(line.starts_with(&format!("error: nothing answers at tcp {address}")), "{line}");
    assert!(
        line.ends_with("start `receiver` there first, and open TCP and UDP of that port in the firewall"),
        "{line}"
    );
}

#[test]
fn a_time_limit_and_ctrl_c_end_a_receiver_without_a_sender() {
    for (flags, is_interrupted) in [("--secs 0.1", false), ("", true)] {
        let (receiver, _) = waiting_receiver(flags);
        if is_interrupted {
            receiver.interrupt();
        }
        let ended = receiver.end().with_code(1);
        assert!(ended.only_error_line().contains("no sender connected: start `sender --to`"), "{ended:#?}");
    }
}

#[test]
fn a_receiver_with_a_time_limit_stops_a_longer_sender() {
    for stage in STAGES {
        let (receiver, address) = waiting_receiver(&format!("--stage {stage} --secs 5 --json -"));
        let sent = sender(address, "--secs 600 --rate 500 --json -").end().with_code(0);
        assert_delivered(&assert_agree(&receiver.end().with_code(0), &sent));
    }
}

/// A run that is longer than a test waits, so it has to be interrupted.
const FOREVER: &str = "--secs 3600 --rate 2000 --json -";

/// A receiver and a sender that are in the middle of a run.
fn running() -> (Program, Program) {
    let (mut receiver, address) = waiting_receiver(&format!("--threads {SEVERAL} --json -"));
    let sender = sender(address, FOREVER);
    receiver.line_with("pps");
    (receiver, sender)
}

#[test]
fn ctrl_c_ends_a_run_with_its_report() {
    let mut program = receiver(&format!("--with-sender --threads {SEVERAL} {FOREVER}"));
    program.line_with("pps");
    program.interrupt();
    report_of(&program.end().with_code(0));
}

#[test]
fn ctrl_c_for_either_program_ends_both_with_their_books() {
    for is_receiver in [true, false] {
        let (receiver, sender) = running();
        if is_receiver { &receiver } else { &sender }.interrupt();
        assert_agree(&receiver.end().with_code(0), &sender.end().with_code(0));
    }
}

#[test]
fn ctrl_c_ends_a_sender_without_a_receiver() {
    // The kernel accepts connections, but no program reads them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = sender(silent.local_addr().unwrap(), FOREVER);
    let (_held, _) = silent.accept().unwrap();
    sender.interrupt();
    let ended = sender.end().with_code(1);
    assert!(ended.only_error_line().contains("stopped before anything was sent"), "{ended:#?}");
}

#[test]
fn a_program_that_is_killed_leaves_the_other_with_one_error() {
    for is_receiver in [true, false] {
        let (receiver, sender) = running();
        let (killed, other) = if is_receiver { (receiver, sender) } else { (sender, receiver) };
        drop(killed);
        let ended = other.end().with_code(1);
        assert_eq!(ended.stdout, [""; 0]);
        // The receiver has printed its rates before.
        let (line, awaited) = if is_receiver {
            (ended.only_error_line(), "")
        } else {
            (ended.error_line(), " before `finished`")
        };
        assert!(line.contains(&format!("closed the control connection{awaited}")), "{ended:#?}");
    }
}
