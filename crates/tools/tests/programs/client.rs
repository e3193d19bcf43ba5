//! A sender inside the test, datagram by datagram, for faults that the real one never has.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_tools::choices::SendMode;
use drumfire_tools::cli::Traffic;
use drumfire_tools::control::{self, Finished, Hello, SenderEnd, Welcome};
use drumfire_tools::datagram::{self, Header, MIN_BYTES, RouteId};
use drumfire_tools::report::Report;
use drumfire_tools::{clock, host};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A sender in a session that has started.
pub(crate) struct Client {
    end: SenderEnd,
    socket: UdpSocket,
    ids: Vec<RouteId>,
    sent: Vec<u64>,
}

impl Client {
    /// Connects and begins a session with this number of flows.
    pub(crate) fn begin(to: SocketAddr, flows: u32) -> Self {
        Self::begin_after(to, flows, || {})
    }

    /// Connects, calls `before_start`, and begins the session.
    pub(crate) fn begin_after(to: SocketAddr, flows: u32, before_start: impl FnOnce()) -> Self {
        let (mut end, welcome) = greet(to, flows, MIN_BYTES);
        before_start();
        end.start().unwrap();
        Self { end, socket: stranger(to), ids: welcome.ids, sent: vec![0; flows as usize] }
    }

    /// Sends `count` datagrams of a flow.
    pub(crate) fn send(&mut self, flow: u32, count: u64) {
        for _ in 0..count {
            let sequence = &mut self.sent[flow as usize];
            let header = Header { id: self.ids[flow as usize], flow, sequence: *sequence, stamp: None };
            self.socket.send(&encoded(&header)).unwrap();
            *sequence += 1;
        }
    }

    /// Claims a datagram of a flow that it never sends.
    pub(crate) fn pretend(&mut self, flow: u32) {
        self.sent[flow as usize] += 1;
    }

    /// The id of a flow, for a datagram that is almost right.
    pub(crate) fn id(&self, flow: u32) -> RouteId {
        self.ids[flow as usize]
    }

    /// Sends its book and returns the receiver's report.
    pub(crate) fn finish(mut self) -> Report {
        self.end.finish(book(self.sent), clock::within(PATIENCE)).unwrap()
    }
}

/// A socket of another program that sends to the receiver.
pub(crate) fn stranger(to: SocketAddr) -> UdpSocket {
    let any: SocketAddr = if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }.parse().unwrap();
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// Sends datagrams of each kind, with the name under which the receiver counts it, the number of copies, and its bytes, from the
/// socket for that name. Returns the expected count of each name.
pub(crate) fn send_kinds<'a, const N: usize>(
    kinds: [(&str, u64, Vec<u8>); N],
    socket_for: impl Fn(&str) -> &'a UdpSocket,
) -> BTreeMap<String, u64> {
    let mut expected = BTreeMap::new();
    for (name, count, bytes) in kinds {
        for _ in 0..count {
            socket_for(name).send(&bytes).unwrap();
        }
        *expected.entry(name.to_owned()).or_default() += count;
    }
    expected
}

/// The shortest datagram with this header.
pub(crate) fn encoded(header: &Header) -> [u8; MIN_BYTES] {
    let mut datagram = [0; MIN_BYTES];
    datagram::encode(&mut datagram, header).unwrap();
    datagram
}

/// Connects a sender that announces flows with datagrams of this size.
pub(crate) fn greet(to: SocketAddr, flows: u32, size: usize) -> (SenderEnd, Welcome) {
    let (size, send, secs) = (size.try_into().unwrap(), SendMode::Single, Duration::from_secs(1));
    let traffic = Traffic { threads: 1, flows, size, rate: 1_000, send, secs, pin: None };
    let hello = Hello { version: control::VERSION, traffic, kernel_id: host::kernel_id() };
    SenderEnd::connect(&[to], &hello, clock::within(PATIENCE)).unwrap()
}

/// The book of a sender that sent these datagrams of each flow.
pub(crate) fn book(sent_per_flow: Vec<u64>) -> Finished {
    let sent = sent_per_flow.iter().sum();
    Finished { sent_per_flow, sent, offered: sent, elapsed_ns: 1, ..Finished::default() }
}
