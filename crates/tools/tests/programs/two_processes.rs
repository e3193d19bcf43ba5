//! Receiver and sender as two commands: both books agree.

use std::net::UdpSocket;

use crate::process::{Ended, sender, waiting_receiver};
use crate::report::{Report, SEVERAL};

/// Checks that both reports agree, and returns the receiver's.
pub(crate) fn assert_agree(received: &Ended, sent: &Ended) -> Report {
    let (receiver, sender) = (Report::of(received), Report::of(sent));
    assert_eq!((&receiver.0["name"], &sender.0["name"]), (&"receiver".into(), &"sender".into()));
    let keys = "sent received drops unexplained foreign duplicated reordered offered messages";
    for key in keys.split(' ') {
        assert_eq!(receiver.0.get(key), sender.0.get(key), "{key}: {received:#?} {sent:#?}");
    }
    receiver
}

/// The stages with books of datagrams alone, and of reliable messages too.
const STAGES: [&str; 2] = ["parse", "deliver --mode reliable-ordered"];

/// Checks that all messages arrived, if there are some.
fn assert_delivered(report: &Report) {
    if report.0.get("messages").is_some() {
        assert_eq!(report.number("/messages/received"), report.number("/messages/sent"));
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
fn a_receiver_with_a_time_limit_ends_without_a_sender() {
    let (receiver, _) = waiting_receiver("--secs 0.1");
    let ended = receiver.end().with_code(1);
    assert!(ended.only_error_line().contains("no sender came: start `sender --to`"), "{ended:#?}");
}

#[test]
fn a_receiver_with_a_time_limit_stops_a_longer_sender() {
    for stage in STAGES {
        let (receiver, address) = waiting_receiver(&format!("--stage {stage} --secs 5 --json -"));
        let sent = sender(address, "--secs 600 --rate 500 --json -").end().with_code(0);
        assert_delivered(&assert_agree(&receiver.end().with_code(0), &sent));
    }
}
