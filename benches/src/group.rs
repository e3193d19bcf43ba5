//! A server's endpoint and a client's endpoint with many connections to it, in memory and in virtual time: what the
//! protocol costs one end, with a real one at the other.
//!
//! It carries no datagrams by itself once the connections are made: what arrives, when and in which order is the bench's
//! choice, and only what the bench times is timed.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{
    Alone, ClientConfig, Config, Congestion, Endpoint, Event, Inbound, Now, PeerId, Secret, ServerConfig,
    ServerIdentity, ServerKeyPair,
};

use crate::pair::{at_ms, server_address};

/// As many datagrams as a receive call takes.
pub const BATCH: usize = 32;

/// A rate that nothing here comes near: what is measured is not how fast a path may be used.
pub const UNLIMITED: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// How long an attempt may take, in virtual time.
const PATIENCE_MS: u32 = 2_000;

/// Both ends of some connections.
#[derive(Debug)]
pub struct Group {
    /// The server.
    pub server: Endpoint<Alone>,
    /// The client, with all connections.
    pub client: Endpoint<Alone>,
    /// The connections.
    pub links: Vec<Link>,
    /// The virtual time.
    pub now: Now,
}

/// A connection, as both ends know it.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// The client, at the server.
    pub client: PeerId,
    /// The server, at the client.
    pub server: PeerId,
}

/// Where all connections of the client come from.
#[must_use]
pub fn client_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 50_000))
}

impl Group {
    /// So many connections, one made after the other, both ends with these settings.
    ///
    /// # Errors
    /// When the settings are refused, or a connection was not made in time.
    pub fn connect(count: u32, config: &Config) -> Result<Self, String> {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let mut settings = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        // All come from one address, faster than people do.
        settings.source_handshakes_per_second = 1_000_000;
        settings.source_handshakes_burst = 1_000_000;
        settings.handshakes_per_second = 1_000_000;
        let server = Endpoint::server(config.clone(), settings, Alone::default(), Secret::new([5; 32]));
        let client = Endpoint::client(config.clone(), ClientConfig::many(), Secret::new([6; 32]));
        let mut group = Self {
            server: server.map_err(|error| error.to_string())?,
            client: client.map_err(|error| error.to_string())?,
            links: Vec::new(),
            now: at_ms(0),
        };
        for _ in 0..count {
            let link = group.connect_one(&identity)?;
            group.links.push(link);
        }
        Ok(group)
    }

    /// Lets virtual time pass; timers are not looked at.
    pub fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic.after(time);
    }

    /// Lets what both ends have to say arrive at once, until neither has more to say now.
    pub fn settle(&mut self) {
        let mut memory = [0; 1_200];
        let (client, server) = (client_address(), server_address());
        loop {
            let from_client = exchange(&mut self.client, &mut self.server, self.now, client, &mut memory);
            let from_server = exchange(&mut self.server, &mut self.client, self.now, server, &mut memory);
            if from_client + from_server == 0 {
                return;
            }
        }
    }

    fn connect_one(&mut self, identity: &ServerIdentity) -> Result<Link, String> {
        let begun = self.client.connect(self.now, server_address(), identity, None);
        let server = begun.map_err(|error| error.to_string())?;
        for _ in 0..PATIENCE_MS {
            self.settle();
            while self.client.poll_event().is_some() {}
            while let Some(event) = self.server.poll_event() {
                if let Event::Connected { peer: client, .. } = event {
                    return Ok(Link { client, server });
                }
            }
            self.pass(Duration::from_millis(1));
            self.client.handle_timeout(self.now);
            self.server.handle_timeout(self.now);
        }
        Err(format!("connection {} was not made", self.links.len()))
    }
}

/// Hands over what one end has to say, datagram by datagram; answers how many there were.
pub(crate) fn exchange(
    from: &mut Endpoint<Alone>,
    to: &mut Endpoint<Alone>,
    now: Now,
    address: SocketAddr,
    memory: &mut [u8; 1_200],
) -> u32 {
    let mut count = 0;
    while let Some(transmit) = from.poll_transmit(now, &mut memory[..]) {
        to.handle_datagrams(now, [Inbound { from: address.into(), bytes: &mut memory[..transmit.bytes] }]);
        count += 1;
    }
    count
}

/// Datagrams in memory that is kept: written once, taken in once.
#[derive(Debug, Default)]
pub struct Datagrams {
    slots: Vec<Slot>,
    count: usize,
}

#[derive(Debug)]
struct Slot {
    memory: Box<[u8; 1_200]>,
    bytes: usize,
}

impl Datagrams {
    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.iter().take(self.count).map(|slot| slot.bytes).sum()
    }

    /// Forgets all; the memory stays.
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Makes room for so many, so that none is made while time is taken.
    pub fn reserve(&mut self, count: usize) {
        while self.slots.len() < count {
            self.slots.push(Slot { memory: Box::new([0; 1_200]), bytes: 0 });
        }
    }

    /// Takes the next datagram that `endpoint` has to send; false when it has none.
    pub fn take_from(&mut self, endpoint: &mut Endpoint<Alone>, now: Now) -> bool {
        self.write(|memory| endpoint.poll_transmit(now, memory).map(|transmit| transmit.bytes))
    }

    /// Takes all that `endpoint` has to send.
    pub fn take_all_from(&mut self, endpoint: &mut Endpoint<Alone>, now: Now) {
        while self.take_from(endpoint, now) {}
    }

    /// Adds the datagram that `write` writes; it answers the length, or `None` for none. Answers whether there was one.
    pub fn write(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        self.reserve(self.count + 1);
        let Some(slot) = self.slots.get_mut(self.count) else { return false };
        let Some(bytes) = write(&mut slot.memory[..]) else { return false };
        slot.bytes = bytes.min(slot.memory.len());
        self.count += 1;
        true
    }

    /// Keeps those of which `is_kept`, asked in order, says so.
    pub fn retain(&mut self, mut is_kept: impl FnMut() -> bool) {
        let mut kept = 0;
        for at in 0..self.count {
            if is_kept() {
                self.slots.swap(kept, at);
                kept += 1;
            }
        }
        self.count = kept;
    }

    /// Puts them into another order, of which `place` gives each one's place in the new order.
    pub fn reorder(&mut self, place: impl Fn(usize) -> usize) {
        let rest = self.slots.split_off(self.count.min(self.slots.len()));
        let mut placed: Vec<(usize, Slot)> =
            self.slots.drain(..).enumerate().map(|(at, slot)| (place(at), slot)).collect();
        placed.sort_by_key(|(place, _)| *place);
        self.slots.extend(placed.into_iter().map(|(_, slot)| slot));
        self.slots.extend(rest);
    }

    /// All of them, as they arrive from this address.
    pub fn inbound(&mut self, from: SocketAddr) -> impl Iterator<Item = Inbound<'_>> {
        self.part(0, self.count, from)
    }

    /// Those from `start` to `end`, as they arrive from this address.
    pub fn part(&mut self, start: usize, end: usize, from: SocketAddr) -> impl Iterator<Item = Inbound<'_>> {
        let end = end.min(self.count);
        let slots = self.slots.get_mut(start.min(end)..end).unwrap_or_default();
        slots.iter_mut().map(move |Slot { memory, bytes }| Inbound {
            from: from.into(),
            bytes: memory.get_mut(..*bytes).unwrap_or_default(),
        })
    }
}

/// The next number of a sequence that repeats with its seed (Marsaglia 2003, xorshift64).
#[must_use]
pub const fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[usize]) -> Datagrams {
        let mut datagrams = Datagrams::default();
        for length in bytes {
            assert!(datagrams.write(|_| Some(*length)));
        }
        datagrams
    }

    fn lengths(datagrams: &mut Datagrams) -> Vec<usize> {
        datagrams.inbound(client_address()).map(|inbound| inbound.bytes.len()).collect()
    }

    #[test]
    fn datagrams_are_kept_dropped_and_put_into_another_order() {
        let mut datagrams = of(&[10, 11, 12, 13]);
        assert!(!datagrams.write(|_| None));
        let mut next = 0;
        datagrams.retain(|| {
            next += 1;
            next != 2
        });
        assert_eq!(lengths(&mut datagrams), [10, 12, 13]);
        datagrams.reorder(|at| 10 - at);
        assert_eq!(lengths(&mut datagrams), [13, 12, 10]);
        datagrams.clear();
        assert_eq!((datagrams.count(), datagrams.bytes()), (0, 0));
    }

    #[test]
    fn a_group_connects_and_both_ends_know_each_other() {
        let group = Group::connect(3, &Config::default()).expect("connections");
        assert_eq!((group.server.connection_count(), group.client.connection_count()), (3, 3));
    }
}
