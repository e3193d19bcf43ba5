//! Foreign datagrams and connections at the port: they are counted or refused, and the run is unaffected.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};

use drumfire_tools::datagram::{Header, RouteId};

use crate::client::{Client, encoded, foreign_socket, send_kinds};
use crate::matrix::drains;
use crate::process::{receiver, sender, waiting_receiver};
use crate::report::{SEVERAL, report_of};

const FLOWS: u32 = 5;

/// Sends junk of every kind, and returns the expected count of each name.
fn send_junk(from: &UdpSocket, known: RouteId) -> BTreeMap<String, u64> {
    let ours = encoded(&Header { id: known, flow: 0, sequence: 0, stamp: None });
    let with_flow = |flow| encoded(&Header { id: known, flow, sequence: 0, stamp: None });
    let mut beyond = ours;
    beyond[13..21].fill(0xff);
    let wrong_id = RouteId(known.0.map(|byte| !byte));
    let kinds: [(&str, u64, Vec<u8>); 11] = [
        ("empty", 3, Vec::new()),
        ("too_short", 2, vec![0x08]),
        ("too_short", 2, ours[..27].to_vec()),
        ("not_ours", 3, vec![0xff; 28]),
        ("not_ours", 2, vec![0; 1_200]),
        ("overlong", 3, vec![0x08; 65_508]),
        ("bad_sequence", 6, beyond.to_vec()),
        ("wrong_id", 7, encoded(&Header { id: wrong_id, flow: 0, sequence: 0, stamp: None }).to_vec()),
        ("wrong_id", 1, encoded(&Header { id: known, flow: 1, sequence: 0, stamp: None }).to_vec()),
        ("unknown_flow", 4, with_flow(FLOWS).to_vec()),
        ("unknown_flow", 5, with_flow(u32::MAX).to_vec()),
    ];
    send_kinds(kinds, |_| from)
}

#[test]
fn junk_in_a_run_is_counted_by_name() {
    for way in drains() {
        for steer in ["tag", "hash"] {
            // Only IPv6 carries a datagram that is too long.
            let flags = format!("--bind [::1]:0 {way} --steer {steer} --threads {SEVERAL} --json -");
            let mut receiver = receiver(&flags);
            let address = receiver.address();
            // Junk before the run is not counted in it. The connection is refused after that junk was delivered.
            send_junk(&foreign_socket(address), RouteId::default());
            drop(TcpStream::connect(address).unwrap());
            receiver.line_with("a connection was refused");
            let mut client = Client::begin(address, FLOWS);
            client.send(0, 20);
            let expected = send_junk(&foreign_socket(address), client.flows[0].header.id);
            client.send(4, 20);
            let received = client.finish();
            assert_eq!((received.books.received, received.books.unexplained()), (40, 0), "{flags}");
            assert_eq!(received.foreign, expected, "{flags}");
            let report = report_of(&receiver.end().with_code(0));
            assert_eq!((report.foreign, report.books.received), (expected, 40), "{flags}");
        }
    }
}

#[test]
fn junk_next_to_the_real_sender_is_counted() {
    let (mut receiver, address) = waiting_receiver(&format!("--threads {SEVERAL} --json -"));
    let sender = sender(address, "--secs 2 --rate 2000 --json -");
    // One second of the run is over, and another one follows.
    receiver.line_with("pps");
    let from = foreign_socket(address);
    for _ in 0..100 {
        from.send(b"").unwrap();
        from.send(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n").unwrap();
    }
    let expected = ["empty", "not_ours"].map(|name| (name.to_owned(), 100));
    for program in [receiver, sender] {
        assert_eq!(report_of(&program.end().with_code(0)).foreign, BTreeMap::from(expected.clone()));
    }
}

/// Does to the control port what a port scanner, a browser, and a broken program may do. Returns the connections that stay open.
fn disturb(address: SocketAddr) -> Vec<TcpStream> {
    let open = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(address).unwrap();
        // The receiver may have closed the connection already.
        let _ = stream.write_all(bytes);
        stream
    };
    drop(open(b""));
    drop(open(b"{\"message\":\"hel"));
    let long = vec![b'x'; 3 * 1024 * 1024];
    vec![
        open(b""),
        open(b"{\"message\":\"hello\",\"ver"),
        open(b"GET / HTTP/1.1\r\n\r\n"),
        open(b"\n\n\n"),
        open(&[0xff, 0xfe, 0, b'\n']),
        open(b"{\"message\":\"hello\",\"version\":999}\n"),
        open(b"{\"message\":\"started\"}\n"),
        open(&long),
    ]
}

#[test]
fn junk_on_the_control_port_disturbs_neither_a_start_nor_a_run() {
    let (receiver, address) = waiting_receiver("--json -");
    let _open_before = disturb(address);
    let mut client = Client::begin(address, FLOWS);
    client.send(0, 10);
    let _open = disturb(address);
    let second = sender(address, "--secs 0.1").end().with_code(1);
    assert!(second.only_error_line().contains("another sender is being served"), "{second:#?}");
    client.send(0, 10);
    assert_eq!(client.finish().books.received, 20);
    assert_eq!(report_of(&receiver.end().with_code(0)).books.received, 20);
}
