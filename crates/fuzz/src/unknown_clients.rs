//! F3 and F18: a server and unknown clients, which send any bytes, or changed datagrams of a genuine client. The server sends them less
//! than they sent, keeps nothing of them, and counts each datagram.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use allocation_counter::measure;
use drumfire_proto::{
    ClientConfig, Config, Cookie, Endpoint, Event, Inbound, Moment, Now, PeerId, Secret, ServerConfig,
    SingleWorker, limits,
};

use crate::harness::{SERVER, address, identity, server_config};
use crate::input::Input;

/// The memory that a datagram may need until it is dropped or answered.
const DROPPED_BYTES: u64 = 2 * 1_024;
/// The memory that a server may keep because of unproved clients: tables that it allocates on their first use.
const TABLES_BYTES: i64 = 4 * 1_024;
/// The same once it has computed a handshake.
const COMPUTED_TABLES_BYTES: i64 = 24 * 1_024;
/// The memory of each half-open handshake.
const HALF_OPEN_BYTES: i64 = 2 * 1_024;
/// The number of clients.
const CLIENTS: u8 = 3;

/// The maximum number of bytes that a server sends to an unproved address for each byte from it.
const AMPLIFICATION: u64 = limits::AMPLIFICATION as u64;

/// The smallest first byte of a handshake datagram.
const HANDSHAKE: u8 = 0x80;
const RETRY: u8 = 0x8a;
const REFUSE: u8 = 0x8b;

/// The bytes that an address exchanged with the server.
#[derive(Default)]
struct Exchange {
    received: u64,
    sent: u64,
    /// Bytes sent in packets, which only clients with the keys receive.
    packets: u64,
    /// Bytes sent in Retries and Refuses.
    declined: u64,
}

/// A server, its clock, and the bytes to and from each address.
struct MeteredServer {
    server: Endpoint,
    now: Now,
    /// The growth of the server's memory.
    held: i64,
    exchanges: BTreeMap<SocketAddr, Exchange>,
    /// The connected peers.
    peers: Vec<PeerId>,
    /// The addresses of connected peers, also after a move that the server validated.
    proved: BTreeSet<SocketAddr>,
    /// The newest datagram to each address.
    last: BTreeMap<SocketAddr, Vec<u8>>,
}

impl MeteredServer {
    fn new(is_calm: bool) -> Self {
        let cookie = if is_calm { Cookie::UnderLoad } else { Cookie::Always };
        let config: ServerConfig = server_config().cookie(cookie);
        let seed = Secret::new([5; 32]);
        Self {
            server: Endpoint::server(Config::default(), config, SingleWorker::default(), seed)
                .expect("a server"),
            now: Now { monotonic: Moment::from_nanos(1), wall: Duration::ZERO },
            held: 0,
            exchanges: BTreeMap::new(),
            peers: Vec::new(),
            proved: BTreeSet::new(),
            last: BTreeMap::new(),
        }
    }

    /// Receives a datagram. Returns the peak memory that the datagram needed.
    fn receive(&mut self, from: SocketAddr, mut bytes: Vec<u8>) -> u64 {
        self.exchanges.entry(from).or_default().received += bytes.len() as u64;
        let (server, now) = (&mut self.server, self.now);
        let counted =
            measure(|| server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut bytes }]));
        self.held += counted.bytes_current;
        self.collect();
        counted.bytes_max
    }

    fn advance(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic.after(time);
        self.now.wall += time;
        let (server, now) = (&mut self.server, self.now);
        self.held += measure(|| server.handle_timeout(now)).bytes_current;
        self.collect();
    }

    /// Handles the server's datagrams and events, and checks the limits.
    fn collect(&mut self) {
        let (server, now, mut memory) = (&mut self.server, self.now, [0; 1_472]);
        self.proved.extend(self.peers.iter().filter_map(|peer| server.address(*peer)));
        let mut sent = None;
        loop {
            let counted = measure(|| sent = server.poll_transmit(now, &mut memory));
            self.held += counted.bytes_current;
            let Some(transmit) = sent else { break };
            let (to, bytes) = (transmit.to.peer, &memory[..transmit.bytes]);
            let (exchange, count) = (self.exchanges.entry(to).or_default(), bytes.len() as u64);
            exchange.sent += count;
            match bytes[0] {
                RETRY | REFUSE => exchange.declined += count,
                ..HANDSHAKE => exchange.packets += count,
                _ => {}
            }
            self.last.insert(to, bytes.to_vec());
        }
        let (peers, proved) = (&mut self.peers, &mut self.proved);
        let counted = measure(|| {
            while let Some(event) = server.poll_event() {
                if let Event::Connected { peer, address, .. } = event {
                    peers.push(peer);
                    proved.insert(address);
                }
            }
        });
        self.held += counted.bytes_current;
        assert_eq!(self.server.stats().unexplained(), 0, "each datagram is counted");
        self.check();
    }

    fn check(&self) {
        for (to, Exchange { received, sent, packets, declined }) in &self.exchanges {
            let is_bounded = sent - packets <= *received
                && *sent <= received * AMPLIFICATION
                && declined * 10 <= *received;
            let is_proved = self.proved.contains(to);
            assert!(is_bounded || is_proved, "{sent} bytes to {to} for {received}, {declined} of refusals");
        }
        let limit = self.tables_bytes() + self.computed() * HALF_OPEN_BYTES;
        let is_alone = self.peers.is_empty();
        assert!(!is_alone || self.held <= limit, "{} of {limit} bytes held", self.held);
    }

    fn computed(&self) -> i64 {
        i64::try_from(self.server.stats().handshakes_computed).unwrap_or(i64::MAX)
    }

    fn tables_bytes(&self) -> i64 {
        if self.computed() == 0 { TABLES_BYTES } else { COMPUTED_TABLES_BYTES }
    }
}

fn from(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, number], 5_000 + u16::from(number)))
}

/// Returns a client that connects, and its Hello.
fn connecting_client(number: u8, now: Now) -> (Endpoint, Vec<u8>) {
    let seed = Secret::new([0x40 + number; 32]);
    let mut client = Endpoint::client(Config::default(), ClientConfig::default(), seed).expect("a client");
    client.connect(now, address(SERVER), &identity(), None).expect("an attempt");
    let hello = next_datagram(&mut client, now).expect("a Hello");
    (client, hello)
}

fn next_datagram(client: &mut Endpoint, now: Now) -> Option<Vec<u8>> {
    let mut memory = [0; 1_472];
    let sent = client.poll_transmit(now, &mut memory)?;
    Some(memory[..sent.bytes].to_vec())
}

/// Changes some bytes.
fn change(bytes: &mut [u8], input: &mut Input<'_>) {
    let at = usize::from(input.u16()) % bytes.len().max(1);
    let count = usize::from(input.u8());
    bytes[at..].iter_mut().zip(input.bytes(count)).for_each(|(byte, change)| *byte ^= change);
}

/// F3: one datagram to a server without clients. It needs little memory, and all of it is freed.
pub(crate) fn datagram(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.u8();
    let mut metered = MeteredServer::new(how & 1 != 0);
    let bytes = match how >> 1 & 3 {
        0 => input.rest().to_vec(),
        1 => {
            let mut hello = connecting_client(0, metered.now).1;
            change(&mut hello, &mut input);
            hello
        }
        2 => [&[0x08 | how >> 3 & 7], input.rest()].concat(),
        _ => [&[0x88 | how >> 3 & 7], input.rest()].concat(),
    };
    let took = metered.receive(from(200), bytes);
    if metered.computed() == 0 {
        assert!(took <= DROPPED_BYTES, "{took} bytes for a dropped datagram");
    }
    assert!(metered.peers.is_empty());
    metered.advance(Duration::from_secs(6));
    assert!(metered.held <= metered.tables_bytes(), "{} bytes kept of an unknown client", metered.held);
}

/// F18: many datagrams from many addresses, some of clients that continue their handshake.
pub(crate) fn flood(data: &[u8]) {
    let mut input = Input::new(data);
    let mut metered = MeteredServer::new(input.u8() & 1 != 0);
    // All clients connect at the start. Each is made on its first use, because its keys take longer than most inputs.
    let (mut clients, begin) = ([const { None }; CLIENTS as usize], metered.now);
    while !input.is_empty() {
        let [what, who] = input.array();
        let number = who % CLIENTS;
        let place: &mut Option<_> = &mut clients[usize::from(number)];
        // Mostly from its own address, and sometimes from another.
        let source = from(if who & 0x80 == 0 { who % CLIENTS } else { who });
        match what % 6 {
            0 => {
                let count = usize::from(input.u8());
                metered.receive(source, input.bytes(count).to_vec());
            }
            1 => {
                let (_, last) = place.get_or_insert_with(|| connecting_client(number, begin));
                let mut bytes = last.clone();
                change(&mut bytes, &mut input);
                metered.receive(source, bytes);
            }
            2 => {
                let (client, last) = place.get_or_insert_with(|| connecting_client(number, begin));
                client.handle_timeout(metered.now);
                *last = next_datagram(client, metered.now).unwrap_or_else(|| last.clone());
                metered.receive(source, last.clone());
            }
            3 => {
                if let Some(answer) = metered.last.get_mut(&source) {
                    let (client, _) = place.get_or_insert_with(|| connecting_client(number, begin));
                    let inbound = Inbound { from: address(SERVER).into(), bytes: answer };
                    client.handle_datagrams(metered.now, [inbound]);
                    while client.poll_event().is_some() {}
                }
            }
            4 => metered.advance(Duration::from_millis(u64::from(input.u16()))),
            _ => {
                let id = input.array::<8>();
                let rest = usize::from(input.u8());
                metered.receive(source, [&[0x09], &id[..], &vec![what; rest]].concat());
            }
        }
    }
}
