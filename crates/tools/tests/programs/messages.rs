//! Messages between real endpoints: both books close, and a run that breaks the promise of its mode is refused.

use drumfire_tools::choices::Mode;
use drumfire_tools::report::Report;

use crate::client::Client;
use crate::process::{Ended, sender, waiting_receiver};
use crate::report::{messages_of, report_of, report_of_run};
use crate::sealed::send_junk;

fn run(flags: &str) -> Report {
    report_of_run(&format!("--stage deliver {flags}"))
}

#[test]
fn more_flows_than_one_poller_watches_are_all_served() {
    // A busy machine needs more time to send a message of each flow.
    let sent = ["0.2", "2", "20"].into_iter().find_map(|secs| {
        let report =
            run(&format!("--mode reliable-ordered --threads 1 --flows 150 --secs {secs} --rate 6000"));
        let books = &messages_of(&report).books;
        assert_eq!(books.received, books.sent);
        Some(books.sent).filter(|sent| *sent >= 150)
    });
    assert!(sent.is_some(), "no run had a message of each flow");
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
mod with_losses {
    use drumfire_tools::report::{IN_LOST_DATAGRAMS, KERNEL_RECEIVE_QUEUE, Messages, SUPERSEDED};

    use super::*;

    /// Sends as fast as possible into a receive buffer for a few packets, until the kernel has dropped some and the books of messages
    /// show that. A busy machine may need a longer run, because a slow sender does not fill the buffer.
    fn flood(mode: Mode, flows: u32, shows_drops: fn(&Messages) -> bool) -> Report {
        let mut runs = ["0.3", "3", "30"].into_iter().map(|secs| {
            run(&format!(
                "--mode {mode} --threads 1 --flows {flows} --secs {secs} --rate 0 --send gso --receive-buffer 4096"
            ))
        });
        let report = runs.find(|report| {
            report.books.drops.get(KERNEL_RECEIVE_QUEUE) > Some(&0) && shows_drops(messages_of(report))
        });
        report.unwrap_or_else(|| panic!("{mode}: the books of no run show the kernel's drops"))
    }

    #[test]
    fn a_full_buffer_shows_in_the_books_of_every_mode() {
        for mode in [Mode::ReliableUnordered, Mode::ReliableOrdered] {
            let report = flood(mode, 8, |messages| messages.resent > 0 && messages.packets_lost > 0);
            let books = &messages_of(&report).books;
            assert_eq!(books.received, books.sent, "{mode}");
        }
        for mode in [Mode::Unreliable, Mode::UnreliableSequenced] {
            let report = flood(mode, 8, |messages| messages.books.drops.get(IN_LOST_DATAGRAMS) > Some(&0));
            assert_eq!(messages_of(&report).resent, 0, "{mode}");
        }
        for mode in [Mode::ReliableSequenced, Mode::ReliableLatest] {
            // Each flow has one message in flight, so only many flows fill the buffer.
            let report = flood(mode, 256, |messages| messages.books.drops.get(SUPERSEDED) > Some(&0));
            assert_eq!(report.limited_by, None, "{mode}: acks set the pace");
        }
    }
}

#[test]
fn a_size_that_the_mode_does_not_take_is_refused() {
    let (receiver, address) = waiting_receiver("--stage deliver --mode reliable-latest");
    let ended = sender(address, "--size 1058 --secs 0.1").end().with_code(2);
    assert!(ended.only_error_line().contains("give --size 60 to 1057"), "{ended:#?}");
    receiver.interrupt();
    receiver.end();
}

/// Sends unreliable messages with these numbers to a receiver of this mode. The sender then claims one message for each, and these many
/// messages and packets more than it sent.
fn pretend(mode: Mode, sequences: &[u64], more_messages: u64, more_packets: u64) -> Ended {
    let (receiver, address) = waiting_receiver(&format!("--stage deliver --mode {mode} --threads 1"));
    let mut client = Client::begin(address, 1);
    for sequence in sequences {
        client.flows[0].header.sequence = *sequence;
        client.send(0, 1);
    }
    client.finish_messages(sequences.len() as u64 + more_messages, more_packets);
    receiver.end()
}

#[test]
fn junk_amid_messages_is_foreign_and_both_books_close() {
    let (receiver, address) =
        waiting_receiver("--stage deliver --mode unreliable-sequenced --threads 1 --json -");
    let mut client = Client::begin(address, 1);
    client.send(0, 20);
    let strays = send_junk(&client.flows[0]);
    client.send(0, 20);
    let packets = client.flows[0].packets;
    let received = client.finish_messages(40, 0);
    assert_eq!((received.books.received, received.books.unexplained()), (packets, 0));
    assert_eq!(received.foreign, strays);
    let report = report_of(&receiver.end().with_code(0));
    assert_eq!((messages_of(&report).books.received, &report.foreign), (40, &strays));
}

/// The unit tests of the promises cover each mode.
#[test]
fn broken_promises_and_missing_messages_are_refused() {
    pretend(Mode::Unreliable, &[2, 0, 1], 0, 0).with_code(0);
    let open = "BOOKS DO NOT CLOSE: sent 4 is not received 3";
    let broken = "PROMISE BROKEN: 1 were not delivered";
    for (mode, sequences, more_messages, reason) in [
        (Mode::Unreliable, &[0, 1, 2][..], 1, open),
        (Mode::ReliableOrdered, &[0, 1, 2], 1, broken),
        (Mode::ReliableUnordered, &[0, 1, 1], 0, broken),
        (Mode::ReliableLatest, &[8, 0, 1, 2, 3, 4, 5, 6, 7], 0, broken),
    ] {
        let ended = pretend(mode, sequences, more_messages, 0).with_code(1);
        let line = ended.only_error_line();
        assert!(line.starts_with(&format!("error: messages, {mode}: {reason}")), "{line}");
    }
}

#[cfg(all(target_os = "linux", not(feature = "portable")))]
#[test]
fn a_datagram_that_was_never_sent_is_missing() {
    let ended = pretend(Mode::Unreliable, &[0, 1, 2], 1, 1).with_code(1);
    let line = ended.only_error_line();
    assert!(
        line.starts_with("error: BOOKS DO NOT CLOSE") && line.ends_with("1 are missing without a name"),
        "{line}"
    );
}
