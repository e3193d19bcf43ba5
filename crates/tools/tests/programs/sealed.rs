//! The stages whose flows are connections: the books of real packets, and of junk that looks like packets.

use std::collections::BTreeMap;

use drumfire_puppet::PacketSealer;
use drumfire_tools::choices::Suite;

use crate::client::{Client, Flow, SIZE, foreign_socket, send_kinds};
use crate::process::waiting_receiver;
use crate::report::{IS_NATIVE, SEVERAL, report_of, report_of_run};

/// Sends junk of every kind, and returns the expected count of each name.
pub(crate) fn send_junk(flow: &Flow) -> BTreeMap<String, u64> {
    let real = &flow.newest;
    let changed = |at: usize| {
        let mut bytes = real.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let with_first = |first: u8, length: usize| {
        let mut bytes = vec![0x55; length];
        bytes[0] = first;
        bytes
    };
    // A packet that was changed behind its header keeps its number, so it counts as a duplicate without being opened.
    let kinds: [(&str, u64, Vec<u8>); 12] = [
        ("empty", 3, Vec::new()),
        ("wrong_length", 2, real[..27].to_vec()),
        ("wrong_length", 1, vec![0x09]),
        ("fixed_bits", 4, with_first(0x00, 40)),
        ("fixed_bits", 1, b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec()),
        ("unknown_kind", 5, with_first(0x8f, 40)),
        ("packet_number_length", 6, with_first(0x08, 40)),
        ("unexpected_kind", 7, with_first(0x8c, 100)),
        ("forged_id", 8, changed(7)),
        ("duplicate", 9, changed(SIZE - 1)),
        ("duplicate", 2, changed(30)),
        ("duplicate", 10, real.clone()),
    ];
    let other = foreign_socket(flow.socket.peer_addr().unwrap());
    // A duplicate has to arrive after the packet that it repeats. Two sockets of the receiver keep no common order, so it comes from
    // the address of that packet.
    send_kinds(kinds, |name| if name == "duplicate" { &flow.socket } else { &other })
}

#[test]
fn junk_in_a_sealed_run_is_counted_by_name() {
    for stage in ["open", "deliver"] {
        for suite in [Suite::best(), Suite::ChaCha20Poly1305] {
            let flags = format!("--stage {stage} --suite {suite} --threads {SEVERAL} --json -");
            let (receiver, address) = waiting_receiver(&flags);
            let mut client = Client::begin(address, 3);
            client.send(0, 20);
            client.send(2, 5);
            let mut expected = send_junk(&client.flows[0]);
            let forged = forged_ahead(&mut client.flows[2]);
            expected.insert("forged".to_owned(), forged.len() as u64);
            for bytes in forged {
                client.flows[2].socket.send(&bytes).unwrap();
            }
            client.send(0, 20);
            let received = client.finish();
            assert_eq!((received.books.received, received.books.unexplained()), (45, 0), "{flags}");
            assert_eq!(received.foreign, expected, "{flags}");
            assert_eq!(report_of(&receiver.end().with_code(0)).foreign, expected, "{flags}");
        }
    }
}

/// Returns packets with the next numbers, each changed in another place behind its header. Only opening detects that.
fn forged_ahead(flow: &mut Flow) -> Vec<Vec<u8>> {
    let mut real = vec![0; SIZE];
    let sealer = flow.sealer.as_mut().unwrap();
    let payload = vec![0; PacketSealer::payload_bytes(SIZE).unwrap()];
    (13..SIZE)
        .map(|at| {
            sealer.seal(&mut real, &payload).unwrap();
            let mut forged = real.clone();
            forged[at] ^= 1;
            forged
        })
        .collect()
}

#[test]
fn connections_are_spread_evenly_over_the_threads() {
    if IS_NATIVE {
        for stage in ["open", "deliver"] {
            let flags = format!("--stage {stage} --threads 4 --flows 32 --secs 0.2 --rate 16000");
            let report = report_of_run(&flags);
            let busiest = report.threads.iter().map(|thread| thread.received).max().unwrap();
            // The sender takes the flows in turn, and may end before each thread had one message of each of its eight flows.
            let is_even = 4 * 100 * busiest.saturating_sub(8) <= 105 * report.books.received;
            assert!(is_even, "{:#?}", report.threads);
        }
    }
}
