//! F3 and F18: a server and those whom it does not know. It answers with less than it got, keeps nothing of them, and its
//! books close.
//!
//! What strangers send is any bytes, or what a genuine client sent with some of it changed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use allocation_counter::measure;
use drumfire_proto::{
    Alone, ClientConfig, Config, Cookie, Endpoint, Event, Inbound, Moment, Now, PeerId, Secret, ServerConfig,
    limits,
};

use crate::harness::{SERVER, address, identity, server_config};
use crate::input::Input;

/// What a datagram that is dropped, or answered at once, may take meanwhile.
const DROPPED_BYTES: u64 = 2 * 1_024;
/// What a server may keep of strangers who did not prove themselves: tables that it makes when it needs them first.
const TABLES_BYTES: i64 = 4 * 1_024;
/// The same once it has computed a handshake.
const COMPUTED_TABLES_BYTES: i64 = 24 * 1_024;
/// What it may keep of each handshake while that is half open.
const HALF_OPEN_BYTES: i64 = 2 * 1_024;
/// Clients, and addresses beside theirs.
const CLIENTS: u8 = 3;

/// Bytes that a server sends for each it got, to an address that did not prove itself, at most.
const AMPLIFICATION: u64 = limits::AMPLIFICATION as u64;

/// The least first byte of a handshake's datagram.
const HANDSHAKE: u8 = 0x80;
const RETRY: u8 = 0x8a;
const REFUSE: u8 = 0x8b;

/// A server, its clock, and what it sent to and got from whom.
struct Gate {
    server: Endpoint,
    now: Now,
    /// Bytes that the server holds more than at the beginning.
    held: i64,
    got: BTreeMap<SocketAddr, u64>,
    given: BTreeMap<SocketAddr, u64>,
    /// Of these in packets, which only who holds the keys gets.
    packets: BTreeMap<SocketAddr, u64>,
    /// Of these in Retries and Refuses.
    declined: BTreeMap<SocketAddr, u64>,
    /// Who proved to hold the keys.
    peers: Vec<PeerId>,
    /// Where they did, and where they have been since, as their answers to challenges show.
    proved: BTreeSet<SocketAddr>,
    /// The last that was sent to an address.
    last: BTreeMap<SocketAddr, Vec<u8>>,
}

impl Gate {
    fn new(is_calm: bool) -> Self {
        let cookie = if is_calm { Cookie::UnderLoad } else { Cookie::Always };
        let config: ServerConfig = server_config().cookie(cookie);
        let seed = Secret::new([5; 32]);
        Self {
            server: Endpoint::server(Config::default(), config, Alone::default(), seed).expect("a server"),
            now: Now { monotonic: Moment::from_nanos(1), wall: Duration::ZERO },
            held: 0,
            got: BTreeMap::new(),
            given: BTreeMap::new(),
            packets: BTreeMap::new(),
            declined: BTreeMap::new(),
            peers: Vec::new(),
            proved: BTreeSet::new(),
            last: BTreeMap::new(),
        }
    }

    /// Hands the server a datagram; answers how much memory it took at most.
    fn hand(&mut self, from: SocketAddr, mut bytes: Vec<u8>) -> u64 {
        *self.got.entry(from).or_default() += bytes.len() as u64;
        let (server, now) = (&mut self.server, self.now);
        let counted =
            measure(|| server.handle_datagrams(now, [Inbound { from: from.into(), bytes: &mut bytes }]));
        self.held += counted.bytes_current;
        self.collect();
        counted.bytes_max
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic.after(time);
        self.now.wall += time;
        let (server, now) = (&mut self.server, self.now);
        self.held += measure(|| server.handle_timeout(now)).bytes_current;
        self.collect();
    }

    /// Takes out what the server says, and holds it against what it got.
    fn collect(&mut self) {
        let (server, now, mut memory) = (&mut self.server, self.now, [0; 1_472]);
        self.proved.extend(self.peers.iter().filter_map(|peer| server.address(*peer)));
        let mut sent = None;
        loop {
            let counted = measure(|| sent = server.poll_transmit(now, &mut memory));
            self.held += counted.bytes_current;
            let Some(transmit) = sent else { break };
            let (to, bytes) = (transmit.to.peer, &memory[..transmit.bytes]);
            *self.given.entry(to).or_default() += bytes.len() as u64;
            if bytes[0] < HANDSHAKE {
                *self.packets.entry(to).or_default() += bytes.len() as u64;
            }
            if matches!(bytes[0], RETRY | REFUSE) {
                *self.declined.entry(to).or_default() += bytes.len() as u64;
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
        assert_eq!(self.server.stats().unexplained(), 0, "the books close");
        self.check();
    }

    fn check(&self) {
        for (to, given) in self.given.iter().filter(|(to, _)| !self.proved.contains(to)) {
            let got = self.got.get(to).copied().unwrap_or(0);
            let declined = self.declined.get(to).copied().unwrap_or(0);
            let packets = self.packets.get(to).copied().unwrap_or(0);
            assert!(given - packets <= got, "{given} bytes to {to} for {got}");
            assert!(*given <= got * AMPLIFICATION, "{given} bytes to {to} for {got}");
            assert!(declined * 10 <= got, "{declined} bytes of no to {to} for {got}");
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

/// A client that asks, and the Hello it asks with.
fn asking(number: u8, now: Now) -> (Endpoint, Vec<u8>) {
    let seed = Secret::new([0x40 + number; 32]);
    let mut client = Endpoint::client(Config::default(), ClientConfig::default(), seed).expect("a client");
    client.connect(now, address(SERVER), &identity(), None).expect("an attempt");
    let hello = said(&mut client, now).expect("a Hello");
    (client, hello)
}

fn said(client: &mut Endpoint, now: Now) -> Option<Vec<u8>> {
    let mut memory = [0; 1_472];
    let sent = client.poll_transmit(now, &mut memory)?;
    Some(memory[..sent.bytes].to_vec())
}

/// Changes some bytes in the middle.
fn change(bytes: &mut [u8], input: &mut Input<'_>) {
    let at = usize::from(input.u16()) % bytes.len().max(1);
    let count = usize::from(input.u8());
    bytes[at..].iter_mut().zip(input.bytes(count)).for_each(|(byte, change)| *byte ^= change);
}

/// F3: one datagram to a server that knows nobody. What it costs is small, and all of it is given back.
pub(crate) fn datagram(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.u8();
    let mut gate = Gate::new(how & 1 != 0);
    let bytes = match how >> 1 & 3 {
        0 => input.rest().to_vec(),
        1 => {
            let mut hello = asking(0, gate.now).1;
            change(&mut hello, &mut input);
            hello
        }
        2 => [&[0x08 | how >> 3 & 7], input.rest()].concat(),
        _ => [&[0x88 | how >> 3 & 7], input.rest()].concat(),
    };
    let took = gate.hand(from(200), bytes);
    if gate.computed() == 0 {
        assert!(took <= DROPPED_BYTES, "{took} bytes for a datagram that was dropped");
    }
    assert!(gate.peers.is_empty());
    gate.pass(Duration::from_secs(6));
    assert!(gate.held <= gate.tables_bytes(), "{} bytes kept of a stranger", gate.held);
}

/// F18: many datagrams from many addresses, some of clients that go on with what they hear.
pub(crate) fn flood(data: &[u8]) {
    let mut input = Input::new(data);
    let mut gate = Gate::new(input.u8() & 1 != 0);
    // Each asked at the beginning, and is made when it is needed first: what it computes for that is most of the work with many an
    // input.
    let (mut clients, begin) = ([const { None }; CLIENTS as usize], gate.now);
    while !input.is_empty() {
        let [what, who] = input.array();
        let number = who % CLIENTS;
        let place: &mut Option<_> = &mut clients[usize::from(number)];
        // Mostly from where it is, sometimes from elsewhere.
        let source = from(if who & 0x80 == 0 { who % CLIENTS } else { who });
        match what % 6 {
            0 => {
                let count = usize::from(input.u8());
                gate.hand(source, input.bytes(count).to_vec());
            }
            1 => {
                let (_, last) = place.get_or_insert_with(|| asking(number, begin));
                let mut bytes = last.clone();
                change(&mut bytes, &mut input);
                gate.hand(source, bytes);
            }
            2 => {
                let (client, last) = place.get_or_insert_with(|| asking(number, begin));
                client.handle_timeout(gate.now);
                *last = said(client, gate.now).unwrap_or_else(|| last.clone());
                gate.hand(source, last.clone());
            }
            3 => {
                if let Some(answer) = gate.last.get_mut(&source) {
                    let (client, _) = place.get_or_insert_with(|| asking(number, begin));
                    let inbound = Inbound { from: address(SERVER).into(), bytes: answer };
                    client.handle_datagrams(gate.now, [inbound]);
                    while client.poll_event().is_some() {}
                }
            }
            4 => gate.pass(Duration::from_millis(u64::from(input.u16()))),
            _ => {
                let id = input.array::<8>();
                let rest = usize::from(input.u8());
                gate.hand(source, [&[0x09], &id[..], &vec![what; rest]].concat());
            }
        }
    }
}
