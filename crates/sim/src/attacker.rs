//! An attacker on and off the path, without keys. It invents datagrams, and it copies, repeats, and changes the
//! datagrams of the ends, from any address.
//!
//! Other modules check its effects: `checks` how much the server sends to its addresses, and `client` the connections.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;

use drumfire::conditioner::Random;
use drumfire::config::Cookie;
use drumfire::testing::{Datagram, World};

use crate::checks::AddressClass;
use crate::random::{index, pick};
use crate::scenario::Attack;

/// The number of datagrams of the ends that are remembered.
const REMEMBERED: usize = 256;

const HELLO: u8 = 0x89;
const RETRY: u8 = 0x8a;
const REFUSE: u8 = 0x8b;
const WELCOME: u8 = 0x8c;
const RESET: u8 = 0x8d;
const HELLO_BYTES: usize = 1_200;
/// The offset of the cookie in a Hello.
const COOKIE_AT: usize = 540;
const COOKIE_BYTES: usize = 32;

/// The bytes of the connection id in a packet to a server.
const ID: std::ops::Range<usize> = 1..9;

/// The attacker of a whole world.
pub(crate) struct Attacker {
    plan: Attack,
    random: Random,
    /// Datagrams of the ends, at most [`REMEMBERED`].
    kept: Vec<Datagram>,
    /// Hellos of clients, each with another client id, the newest last.
    hellos: VecDeque<Vec<u8>>,
    /// Addresses of the attacker that have proved to the server that they receive, by a valid cookie.
    pub(crate) proved: HashSet<SocketAddr>,
    /// The last packet between two addresses, to and from clients that vanish.
    last_packets: BTreeMap<(SocketAddr, SocketAddr), Datagram>,
    /// The addresses of clients that vanish.
    pub(crate) vanishing: HashSet<SocketAddr>,
    /// The number of datagrams sent so far.
    pub(crate) sent: u64,
}

impl Attacker {
    pub(crate) fn new(plan: Attack, random: Random) -> Self {
        let (kept, hellos, proved) = (Vec::new(), VecDeque::new(), HashSet::new());
        let (last_packets, vanishing) = (BTreeMap::new(), HashSet::new());
        Self { plan, random, kept, hellos, proved, last_packets, vanishing, sent: 0 }
    }

    /// Sends the last packets between vanished clients and the server to both ends, with a bit flipped.
    pub(crate) fn send_corrupted_copies(&mut self, world: &mut World) {
        let packets: Vec<_> = self.last_packets.values().cloned().collect();
        for mut datagram in packets {
            if let Some(last) = datagram.bytes.last_mut() {
                *last ^= 1;
            }
            self.send(world, datagram.from, datagram.to, datagram.bytes);
        }
    }

    /// Sends the datagrams of one turn. `seen` are the datagrams that the ends have sent since the last turn.
    ///
    /// # Errors
    /// The server sent a Welcome to an address without a valid cookie.
    pub(crate) fn act(
        &mut self,
        world: &mut World,
        cookie: Cookie,
        seen: Vec<Datagram>,
    ) -> Result<(), String> {
        for _ in 0..self.plan.off_path {
            self.invent(world);
        }
        if self.plan.on_path == 0 {
            return Ok(());
        }
        let server = world.server.local_addr();
        for datagram in seen {
            let is_welcome = datagram.from == server && datagram.bytes.first() == Some(&WELCOME);
            if is_welcome
                && cookie == Cookie::Always
                && AddressClass::of(datagram.to).is_some()
                && !self.proved.contains(&datagram.to)
            {
                return Err(format!("{} got a Welcome without a cookie of its own", datagram.to));
            }
            if datagram.from == server && AddressClass::of(datagram.to) == Some(AddressClass::Copier) {
                self.answer(world, &datagram);
            } else {
                self.keep(datagram);
            }
        }
        for _ in 0..self.plan.on_path {
            self.modify_seen(world);
        }
        Ok(())
    }

    /// Sends a datagram that requires no knowledge except addresses.
    fn invent(&mut self, world: &mut World) {
        let server = world.server.local_addr();
        let client = world.client_address(self.below(world.clients.len()));
        let length = self.below(1_300);
        let (from, to, bytes) = match self.random.below(6) {
            0 | 1 => (AddressClass::Hello.address(&mut self.random), server, self.hello()),
            2 => {
                // A packet with an unknown id, which the server may answer by a Reset.
                let mut packet = self.bytes(28 + length);
                packet[0] = 0x0b;
                (AddressClass::Junk.address(&mut self.random), server, packet)
            }
            3 => (AddressClass::Junk.address(&mut self.random), server, self.bytes(length)),
            4 => (server, client, self.bytes(length)),
            _ => {
                let client_id = self.bytes(8);
                (server, client, self.reply(&client_id))
            }
        };
        self.send(world, from, to, bytes);
    }

    /// Sends a datagram of an end again, unchanged or modified.
    fn modify_seen(&mut self, world: &mut World) {
        let server = world.server.local_addr();
        let at = self.below(self.kept.len());
        let Some(mut seen) = self.kept.get(at).cloned() else { return };
        let is_hello = is_hello(&seen);
        match self.random.below(8) {
            // A repetition.
            0 => {}
            // A copy from another address, which must not move the path.
            1 | 2 if seen.to == server => seen.from = AddressClass::copier(seen.from),
            3 => {
                if let Some(at) = seen.bytes.len().checked_sub(1).map(|last| self.below(last + 1)) {
                    seen.bytes[at] ^= 1 << self.random.below(8);
                }
            }
            4 => seen.bytes.truncate(self.below(seen.bytes.len() + 1)),
            // A reflection.
            5 => (seen.from, seen.to) = (seen.to, seen.from),
            // A Reset with an id that was seen, and a token that was guessed.
            6 if seen.to == server && is_packet(&seen) && seen.bytes.len() >= ID.end => {
                let mut reset = self.bytes(25);
                reset[0] = RESET;
                reset[ID].copy_from_slice(&seen.bytes[ID]);
                (seen.from, seen.to, seen.bytes) = (server, seen.from, reset);
            }
            _ if is_hello => {
                let client_id = seen.bytes[11..19].to_vec();
                (seen.from, seen.to) = (server, seen.from);
                seen.bytes = self.reply(&client_id);
            }
            _ => {}
        }
        self.send(world, seen.from, seen.to, seen.bytes);
    }

    /// Handles a datagram of the server to an address of the attacker. With the cookie of a Retry, a client's Hello
    /// becomes valid from that address.
    fn answer(&mut self, world: &mut World, datagram: &Datagram) {
        let (Some(&RETRY), Some(client_id), Some(cookie)) =
            (datagram.bytes.first(), datagram.bytes.get(1..9), datagram.bytes.get(9..9 + COOKIE_BYTES))
        else {
            return;
        };
        let hello = self.hellos.iter().find(|hello| hello.get(11..19) == Some(client_id));
        if let Some(mut hello) = hello.cloned() {
            hello[COOKIE_AT..COOKIE_AT + COOKIE_BYTES].copy_from_slice(cookie);
            self.proved.insert(datagram.to);
            self.send(world, datagram.to, datagram.from, hello);
        }
    }

    fn keep(&mut self, datagram: Datagram) {
        let is_new = |hello: &Vec<u8>| hello.get(11..19) != datagram.bytes.get(11..19);
        if is_hello(&datagram) && self.hellos.iter().all(is_new) {
            if self.hellos.len() == REMEMBERED {
                self.hellos.pop_front();
            }
            self.hellos.push_back(datagram.bytes.clone());
        }
        if is_packet(&datagram) && [datagram.from, datagram.to].iter().any(|end| self.vanishing.contains(end))
        {
            self.last_packets.insert((datagram.from, datagram.to), datagram.clone());
        }
        if self.kept.len() < REMEMBERED {
            self.kept.push(datagram);
        } else {
            let at = self.below(REMEMBERED);
            self.kept[at] = datagram;
        }
    }

    fn hello(&mut self) -> Vec<u8> {
        let mut hello = self.bytes(HELLO_BYTES);
        hello[0] = HELLO;
        // The server's version, protocol, and keys, so that the cookie alone decides whether the server computes a handshake.
        hello[1..11].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        hello[19..28].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 1]);
        if self.random.below(2) == 0 {
            hello[COOKIE_AT..COOKIE_AT + COOKIE_BYTES].fill(0);
        }
        hello
    }

    /// Returns a datagram in the form of a server's answer.
    fn reply(&mut self, client_id: &[u8]) -> Vec<u8> {
        let kinds = [(RETRY, 64), (REFUSE, 51), (WELCOME, 92), (RESET, 25)];
        let (kind, length) = pick(&mut self.random, &kinds);
        let mut reply = self.bytes(length);
        reply[0] = kind;
        reply[1..9].copy_from_slice(client_id);
        reply
    }

    fn send(&mut self, world: &mut World, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        self.sent += u64::from(world.inject(from, to, bytes));
    }

    fn below(&mut self, bound: usize) -> usize {
        index(&mut self.random, bound)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length.div_ceil(8)).flat_map(|_| self.random.bits().to_be_bytes()).take(length).collect()
    }
}

/// Returns whether a datagram is a packet of a connection, and not of a handshake.
fn is_packet(datagram: &Datagram) -> bool {
    datagram.bytes.first().is_some_and(|first| first & 0x80 == 0)
}

/// Returns whether a datagram is a Hello of full length. Hostile ends also send shorter ones.
fn is_hello(datagram: &Datagram) -> bool {
    datagram.bytes.first() == Some(&HELLO) && datagram.bytes.len() >= HELLO_BYTES
}
