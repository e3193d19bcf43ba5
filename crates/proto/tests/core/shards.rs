//! A server of several shards: Hellos go to the owner that the shell names, packets to the one their id names.

use crate::harness::{CLIENT, SERVER, address, identity, server_config};
use drumfire_proto::{
    ChannelId, Claim, ClientConfig, Config, Confirmed, DropReason, Endpoint, Event, Forwarded, HelloHash,
    Inbound, Moment, Now, Placed, Placement, Secret, SendOptions, Shard, SteeringSecret,
};
use std::cell::RefCell;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::Duration;

/// What was asked, by which shard, about which Hello.
type Log = Rc<RefCell<Vec<(&'static str, u16, HelloHash)>>>;

/// Names one shard as the owner of everything, and notes what it was asked.
#[derive(Clone, Debug)]
struct Fixed {
    index: u16,
    owner: Option<u16>,
    log: Log,
}

impl Placement for Fixed {
    fn place(&mut self, _: Now, claim: &Claim<'_>) -> Placed {
        assert_eq!((claim.key, claim.token), (None, None), "open access has neither keys nor tokens");
        self.log.borrow_mut().push(("place", self.index, claim.hello));
        match self.owner {
            None => Placed::Full { retry_after: None },
            Some(owner) if owner == self.index => Placed::Here,
            Some(owner) => Placed::Elsewhere(owner),
        }
    }

    fn take(&mut self, hash: HelloHash) -> bool {
        self.log.borrow_mut().push(("take", self.index, hash));
        self.owner == Some(self.index)
    }

    fn confirm(&mut self, _: Now, hash: HelloHash) -> Confirmed {
        self.log.borrow_mut().push(("confirm", self.index, hash));
        Confirmed::Alone
    }

    fn release(&mut self, hash: HelloHash) {
        self.log.borrow_mut().push(("release", self.index, hash));
    }
}

struct Shards {
    client: Endpoint,
    servers: Vec<Endpoint<Fixed>>,
    log: Log,
    now: Now,
}

impl Shards {
    fn new(count: u16, owner: Option<u16>) -> Self {
        #[cfg(feature = "audit-nonce")]
        drumfire_crypto::audit_nonce::start_world();
        let log = Rc::new(RefCell::new(Vec::new()));
        let servers = (0..count).map(|index| {
            let shard = Shard {
                index,
                count: NonZeroU16::new(count).unwrap(),
                steering: SteeringSecret::from_bits(0x9e37_79b9),
            };
            let placement = Fixed { index, owner, log: Rc::clone(&log) };
            let seed = Secret::new([u8::try_from(index).unwrap() + 1; 32]);
            Endpoint::server(Config::default(), server_config().shard(shard), placement, seed).unwrap()
        });
        let seed = Secret::new([99; 32]);
        Self {
            client: Endpoint::client(Config::default(), ClientConfig::default(), seed).unwrap(),
            servers: servers.collect(),
            log,
            now: Now { monotonic: Moment::from_nanos(1_000_000), wall: Duration::ZERO },
        }
    }

    /// Hands everything the client sends to shard `receives`, everything forwarded to where it belongs, and the
    /// answers back.
    fn exchange(&mut self, receives: usize) {
        let mut memory = [0; 1_200];
        while let Some(transmit) = self.client.poll_transmit(self.now, &mut memory) {
            let datagram = Inbound { from: address(CLIENT).into(), bytes: &mut memory[..transmit.bytes] };
            self.servers[receives].handle_datagrams(self.now, [datagram]);
        }
        for index in 0..self.servers.len() {
            while let Some(forwarded) = self.servers[index].poll_forward() {
                let shard = usize::from(forwarded.shard());
                assert_ne!(shard, index);
                self.servers[shard].handle_forwarded(self.now, forwarded);
            }
        }
        for server in &mut self.servers {
            while let Some(transmit) = server.poll_transmit(self.now, &mut memory) {
                let datagram = Inbound { from: address(SERVER).into(), bytes: &mut memory[..transmit.bytes] };
                self.client.handle_datagrams(self.now, [datagram]);
            }
            assert_eq!(server.stats().unexplained(), 0);
        }
        self.now.monotonic = self.now.monotonic.after(Duration::from_millis(30));
        self.client.handle_timeout(self.now);
        for server in &mut self.servers {
            server.handle_timeout(self.now);
        }
    }

    /// What the client says next, as the first shard passes it on.
    fn forwarded(&mut self) -> Forwarded {
        let mut memory = [0; 1_200];
        let transmit = self.client.poll_transmit(self.now, &mut memory).unwrap();
        let bytes = &mut memory[..transmit.bytes];
        self.servers[0].handle_datagrams(self.now, [Inbound { from: address(CLIENT).into(), bytes }]);
        self.servers[0].poll_forward().unwrap()
    }
}

#[test]
fn a_hello_goes_to_the_owner_and_packets_reach_it_from_any_shard() {
    let mut shards = Shards::new(3, Some(2));
    let peer = shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    for receives in [0, 0, 1, 1] {
        shards.exchange(receives);
    }
    let counts: Vec<_> = shards.servers.iter().map(Endpoint::connection_count).collect();
    assert_eq!(counts, [0, 0, 1]);
    let options = SendOptions::reliable_ordered();
    shards.client.send(shards.now, peer, ChannelId(0), "hi".into(), options).unwrap();
    shards.exchange(0);
    let mut messages = 0;
    while let Some(event) = shards.servers[2].poll_event() {
        messages += usize::from(matches!(event, Event::Message { bytes: b"hi", .. }));
    }
    assert_eq!(messages, 1);
    assert!(shards.servers[0].stats().forwarded >= 2 && shards.servers[1].stats().forwarded >= 1);
}

#[test]
fn a_place_is_reserved_once_and_released_when_the_connection_dies() {
    let mut shards = Shards::new(2, Some(1));
    shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    shards.exchange(0);
    shards.exchange(0);
    assert_eq!(shards.servers[1].connection_count(), 1);
    shards.now.monotonic = shards.now.monotonic.after(Duration::from_secs(6));
    shards.servers[1].handle_timeout(shards.now);
    assert_eq!(shards.servers[1].connection_count(), 0);
    let log = shards.log.borrow();
    let [("place", 0, placed), ("take", 1, taken), ("release", 1, released)] = log.as_slice() else {
        panic!("{log:?}")
    };
    assert_eq!((placed, taken), (taken, released));
}

#[test]
fn a_hello_forwarded_to_where_its_place_is_gone_opens_nothing_and_releases_nothing() {
    let mut shards = Shards::new(3, Some(1));
    shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    shards.exchange(0);
    let forwarded = shards.forwarded();
    shards.servers[2].handle_forwarded(shards.now, forwarded);
    let stats = shards.servers[2].stats();
    assert_eq!((stats.dropped(DropReason::Misrouted), stats.handshakes_computed), (1, 0));
    assert_eq!((stats.unexplained(), shards.servers[2].connection_count()), (0, 0));
    let log = shards.log.borrow();
    assert!(matches!(log.as_slice(), [("place", 0, _), ("take", 2, _)]), "{log:?}");
}

#[test]
fn a_full_server_forwards_and_computes_nothing() {
    let mut shards = Shards::new(2, None);
    shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    shards.exchange(0);
    shards.exchange(0);
    let stats = shards.servers[0].stats();
    assert_eq!((stats.forwarded, stats.handshakes_computed), (0, 0));
    assert_eq!(stats.dropped(DropReason::ServerFull), 1);
}

#[test]
fn more_than_256_waiting_to_be_forwarded_are_dropped_and_counted() {
    let mut shards = Shards::new(2, Some(1));
    shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    for _ in 0..2 {
        shards.exchange(0);
    }
    let mut memory = [0; 1_200];
    let transmit = shards.client.poll_transmit(shards.now, &mut memory).unwrap();
    for sent in 1..=257 {
        let bytes = &mut memory[..transmit.bytes];
        shards.servers[0].handle_datagrams(shards.now, [Inbound { from: address(CLIENT).into(), bytes }]);
        assert_eq!(shards.servers[0].stats().dropped(DropReason::ForwardFull), u64::from(sent > 256));
    }
    assert_eq!(shards.servers[0].stats().unexplained(), 0);
}

#[test]
fn a_packet_is_forwarded_once_at_most() {
    let mut shards = Shards::new(2, Some(1));
    shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    for _ in 0..2 {
        shards.exchange(0);
    }
    let forwarded = shards.forwarded();
    // Taken back to where it came from, it goes no further.
    shards.servers[0].handle_forwarded(shards.now, forwarded);
    assert!(shards.servers[0].poll_forward().is_none());
    assert_eq!(shards.servers[0].stats().dropped(DropReason::Misrouted), 1);
}
