//! A sender inside the test, datagram by datagram, for faults that the real one never has.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire_puppet::{Connector, PacketSealer, default_parameters};
use drumfire_tools::choices::SendMode;
use drumfire_tools::cli::{Load, Traffic};
use drumfire_tools::control::{self, Finished, Hello, Sealed, SenderEnd, SentMessages};
use drumfire_tools::datagram::{self, Header, MIN_BYTES};
use drumfire_tools::report::Report;
use drumfire_tools::{clock, host};

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The length of a packet of a connection.
pub(crate) const SIZE: usize = 100;

/// A sender in a session that has started.
pub(crate) struct Client {
    end: SenderEnd,
    pub(crate) flows: Vec<Flow>,
}

/// A flow of the sender. Its datagrams are packets if the receiver wants connections.
pub(crate) struct Flow {
    pub(crate) socket: UdpSocket,
    /// The header of the next datagram.
    pub(crate) header: Header,
    /// Packets that it sent, without handshakes.
    pub(crate) packets: u64,
    pub(crate) sealer: Option<PacketSealer>,
    pub(crate) newest: Vec<u8>,
}

impl Client {
    /// Connects and begins a session with this number of flows.
    pub(crate) fn begin(to: SocketAddr, flows: u32) -> Self {
        Self::begin_after(to, flows, || {})
    }

    /// Connects, calls `before_start`, and begins the session.
    pub(crate) fn begin_after(to: SocketAddr, flows: u32, before_start: impl FnOnce()) -> Self {
        let load = Load { flows, size: SIZE.try_into().unwrap(), rate: 1_000, send: SendMode::Single };
        let traffic = Traffic { threads: 1, load, secs: Duration::from_secs(1), pin: None };
        let hello = Hello { version: control::VERSION, traffic, kernel_id: host::kernel_id() };
        let (mut end, welcome) = SenderEnd::connect(&[to], &hello, clock::within(RESPONSE_TIMEOUT)).unwrap();
        let flows = (0..).zip(welcome.ids).map(|(flow, id)| {
            let socket = foreign_socket(to);
            let (sealer, packets) = welcome.sealed.map(|sealed| connect(&socket, &sealed, flow)).unzip();
            let header = Header { id, flow, sequence: 0, stamp: None };
            Flow { socket, header, packets: packets.unwrap_or(0), sealer, newest: Vec::new() }
        });
        let flows = flows.collect();
        before_start();
        end.start().unwrap();
        Self { end, flows }
    }

    /// Sends `count` datagrams of a flow.
    pub(crate) fn send(&mut self, flow: usize, count: u64) {
        (0..count).for_each(|_| self.flows[flow].send());
    }

    /// Sends a book of all datagrams and returns the receiver's report.
    pub(crate) fn finish(self) -> Report {
        let book = book(self.flows.iter().map(|flow| flow.header.sequence).collect());
        self.close(book)
    }

    /// Sends a book of one flow with this number of messages, and `more_packets` more packets than the flow sent.
    pub(crate) fn finish_messages(self, messages: u64, more_packets: u64) -> Report {
        let messages =
            SentMessages { sent_per_flow: vec![messages], sent: messages, ..SentMessages::default() };
        let packets = book(vec![self.flows[0].packets + more_packets]);
        self.close(Finished { messages: Some(messages), ..packets })
    }

    fn close(mut self, book: Finished) -> Report {
        self.end.finish(book, clock::within(RESPONSE_TIMEOUT)).unwrap()
    }
}

impl Flow {
    fn send(&mut self) {
        self.newest = match &mut self.sealer {
            None => encoded(&self.header).to_vec(),
            Some(sealer) => {
                let mut payload = vec![0; PacketSealer::payload_bytes(SIZE).unwrap()];
                datagram::encode(&mut payload, &self.header).unwrap();
                let mut packet = vec![0; SIZE];
                sealer.seal(&mut packet, &payload).unwrap();
                packet
            }
        };
        self.header.sequence += 1;
        self.socket.send(&self.newest).unwrap();
        self.packets += 1;
    }
}

/// Makes a connection. Returns its sealing half and the number of packets that it took.
fn connect(socket: &UdpSocket, sealed: &Sealed, flow: u32) -> (PacketSealer, u64) {
    let ephemeral = [u8::try_from(flow).unwrap() + 1; 32];
    let offer = sealed.suite.offer();
    let mut client =
        Connector::new(&sealed.public_key, [ephemeral[0]; 8], ephemeral, &default_parameters(), offer);
    let has_time = clock::within(RESPONSE_TIMEOUT);
    let (mut memory, mut packets) = ([0; 2_048], 0);
    while !client.is_confirmed() {
        assert!(has_time(), "flow {flow} does not connect");
        let mut next = client.resend();
        while let Some(datagram) = next.take() {
            let is_packet = datagram[0] < 0x80;
            packets += u64::from(is_packet);
            socket.send(&datagram).unwrap();
            // On the loopback the answer to a Hello can be late but not lost. A second Hello would count as a duplicate.
            let wait = if is_packet { Duration::from_millis(20) } else { RESPONSE_TIMEOUT };
            socket.set_read_timeout(Some(wait)).unwrap();
            if let Ok(length) = socket.recv(&mut memory) {
                next = client.on_datagram(memory[..length].to_vec());
            }
        }
    }
    (client.into_sealer().unwrap(), packets)
}

/// The book of a sender that sent these datagrams of each flow.
fn book(sent_per_flow: Vec<u64>) -> Finished {
    let sent = sent_per_flow.iter().sum();
    Finished { sent_per_flow, sent, offered: sent, elapsed_ns: 1, ..Finished::default() }
}

/// A socket of another program that sends to the receiver.
pub(crate) fn foreign_socket(to: SocketAddr) -> UdpSocket {
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
