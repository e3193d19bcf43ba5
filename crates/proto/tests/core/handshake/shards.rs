//! A server of several shards: Hellos go to the owner that the shell returns, packets to the shard of their id.

use crate::handshake::hello_server::{COOKIE, hello};
use crate::harness::{CLIENT, SERVER, address, identity, server_config};
use drumfire_proto::{
    ChannelId, Claim, ClientConfig, Config, ConfirmDecision, DropReason, Endpoint, Event, Forwarded,
    HelloHash, Inbound, LiveConfig, Message, Moment, Now, Placement, PlacementDecision, Secret, SendError,
    SendOptions, Shard, SteeringSecret,
};
use std::cell::RefCell;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::Duration;

/// The question, the shard that asked it, and the Hello.
type Log = Rc<RefCell<Vec<(&'static str, u16, HelloHash)>>>;

/// Returns one shard as the owner of everything, and records the questions.
#[derive(Clone, Debug)]
struct Fixed {
    index: u16,
    owner: Option<u16>,
    /// Whether a shard returns this one as the owner.
    is_owner: bool,
    log: Log,
}

impl Placement for Fixed {
    fn place(&mut self, _: Now, claim: &Claim<'_>) -> PlacementDecision {
        assert_eq!((claim.key, claim.token), (None, None), "open access has neither keys nor tokens");
        self.log.borrow_mut().push(("place", self.index, claim.hello));
        match self.owner {
            None => PlacementDecision::Full { retry_after: None },
            Some(owner) if owner == self.index => PlacementDecision::Local,
            Some(owner) => PlacementDecision::Forward(owner),
        }
    }

    fn take(&mut self, hash: HelloHash) -> bool {
        self.log.borrow_mut().push(("take", self.index, hash));
        self.is_owner
    }

    fn confirm(&mut self, _: Now, hash: HelloHash) -> ConfirmDecision {
        self.log.borrow_mut().push(("confirm", self.index, hash));
        ConfirmDecision::Confirmed
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
        Self::with(count, |_| owner)
    }

    /// Creates shards that each return their own owner of everything.
    fn with(count: u16, owner: impl Fn(u16) -> Option<u16>) -> Self {
        let log = Rc::new(RefCell::new(Vec::new()));
        let servers = (0..count).map(|index| {
            let shard = Shard {
                index,
                count: NonZeroU16::new(count).unwrap(),
                steering: SteeringSecret::from_bits(0x9e37_79b9),
            };
            let is_owner = (0..count).any(|other| owner(other) == Some(index));
            let placement = Fixed { index, owner: owner(index), is_owner, log: Rc::clone(&log) };
            let seed = Secret::new([u8::try_from(index).unwrap() + 1; 32]);
            let mut config = server_config().shard(shard);
            config.half_open_per_source = u16::MAX;
            Endpoint::server(Config::default(), config, placement, seed).unwrap()
        });
        let seed = Secret::new([99; 32]);
        Self {
            client: Endpoint::client(Config::default(), ClientConfig::default(), seed).unwrap(),
            servers: servers.collect(),
            log,
            now: Now { monotonic: Moment::from_nanos(1_000_000), wall: Duration::ZERO },
        }
    }

    /// Passes everything that the client sends to shard `receives`, everything forwarded to its shard, and the
    /// responses back.
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

    /// Passes a new Hello from the client's address to shard `receives`, once without and once with the cookie of
    /// that shard.
    fn send_hellos(&mut self, receives: usize, number: u32) {
        let (from, mut memory) = (address(CLIENT).into(), [0; 1_200]);
        let mut hello = hello(self.now, number, None);
        let server = &mut self.servers[receives];
        server.handle_datagrams(self.now, [Inbound { from, bytes: &mut hello.clone() }]);
        let retry = server.poll_transmit(self.now, &mut memory).unwrap();
        assert_eq!((memory[0], retry.bytes), (0x8a, 64));
        hello[COOKIE].copy_from_slice(&memory[9..41]);
        server.handle_datagrams(self.now, [Inbound { from, bytes: &mut hello }]);
        while server.poll_transmit(self.now, &mut memory).is_some() {}
    }

    /// Passes everything forwarded to its shard.
    fn deliver_forwarded(&mut self) {
        for index in 0..self.servers.len() {
            while let Some(forwarded) = self.servers[index].poll_forward() {
                let shard = usize::from(forwarded.shard());
                self.servers[shard].handle_forwarded(self.now, forwarded);
            }
        }
    }

    fn computed(&self) -> Vec<u64> {
        self.servers.iter().map(|server| server.stats().handshakes_computed).collect()
    }

    /// Returns the client's next datagrams, as the first shard forwards them.
    fn forwarded(&mut self) -> Forwarded {
        let mut memory = [0; 1_200];
        let transmit = self.client.poll_transmit(self.now, &mut memory).unwrap();
        let bytes = &mut memory[..transmit.bytes];
        self.servers[0].handle_datagrams(self.now, [Inbound { from: address(CLIENT).into(), bytes }]);
        self.servers[0].poll_forward().unwrap()
    }
}

#[test]
fn hellos_and_packets_reach_the_owner_from_any_shard() {
    let mut shards = Shards::new(3, Some(2));
    let peer = shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    for receives in [0, 0, 1, 1] {
        shards.exchange(receives);
    }
    let counts: Vec<_> = shards.servers.iter().map(Endpoint::connection_count).collect();
    assert_eq!(counts, [0, 0, 1]);
    let options = SendOptions::reliable_ordered();
    shards.client.send(shards.now, peer, Message::new(ChannelId(0), "hi", options)).unwrap();
    shards.exchange(0);
    let mut messages = 0;
    while let Some(event) = shards.servers[2].poll_event() {
        messages += usize::from(matches!(event, Event::Message { payload: b"hi", .. }));
    }
    assert_eq!(messages, 1);
    assert!(shards.servers[0].stats().forwarded >= 2 && shards.servers[1].stats().forwarded >= 1);
}

#[test]
fn an_id_is_refused_by_other_shards_and_after_a_restart() {
    let mut shards = Shards::new(2, Some(1));
    shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    for receives in [0, 0, 1, 1] {
        shards.exchange(receives);
    }
    let Some(Event::Connected { peer, .. }) = shards.servers[1].poll_event() else { panic!("not connected") };
    assert_eq!(peer.worker(), 1);
    let (now, options) = (shards.now, SendOptions::reliable_ordered());
    let send =
        |server: &mut Endpoint<Fixed>| server.send(now, peer, Message::new(ChannelId(0), "hi", options));
    assert_eq!(send(&mut shards.servers[1]), Ok(()));
    assert_eq!(send(&mut shards.servers[0]), Err(SendError::UnknownPeer));
    assert_eq!(shards.servers[0].address(peer), None);
    // The shard restarts, and the next connection has the same slot.
    let mut restarted = Shards::new(2, Some(1));
    restarted.servers[1].continue_peer_ids(&shards.servers[1]);
    restarted.client.connect(restarted.now, address(SERVER), &identity(), None).unwrap();
    for receives in [0, 0, 1, 1] {
        restarted.exchange(receives);
    }
    let server = &mut restarted.servers[1];
    let Some(Event::Connected { peer: next, .. }) = server.poll_event() else { panic!("not connected") };
    assert_eq!((next.worker(), next.slot()), (peer.worker(), peer.slot()));
    assert_eq!(send(server), Err(SendError::UnknownPeer));
    assert!(server.address(peer).is_none() && server.address(next).is_some());
}

#[test]
fn a_slot_is_reserved_once_and_released_at_the_end() {
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
fn a_forwarded_hello_without_a_reserved_slot_opens_nothing() {
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
fn more_than_2000_waiting_forwards_are_dropped_and_counted() {
    let mut shards = Shards::new(2, Some(1));
    shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    for _ in 0..2 {
        shards.exchange(0);
    }
    let mut memory = [0; 1_200];
    let transmit = shards.client.poll_transmit(shards.now, &mut memory).unwrap();
    for sent in 1..=2_001 {
        let bytes = &mut memory[..transmit.bytes];
        shards.servers[0].handle_datagrams(shards.now, [Inbound { from: address(CLIENT).into(), bytes }]);
        assert_eq!(shards.servers[0].stats().dropped(DropReason::ForwardFull), u64::from(sent > 2_000));
    }
    assert_eq!(shards.servers[0].stats().unexplained(), 0);
}

#[test]
fn a_source_gets_one_share_whichever_shards_it_uses() {
    let mut shards = Shards::new(4, Some(3));
    for number in 0..100 {
        shards.send_hellos(number as usize % 4, number);
    }
    shards.deliver_forwarded();
    assert_eq!(shards.computed(), [0, 0, 0, 20]);
    let limited = shards.servers.iter().map(|server| server.stats().dropped(DropReason::SourceLimit));
    // Five of each shard's 25 were no attempt of its own. The owner then had a share for 20 of 80.
    assert_eq!(limited.sum::<u64>(), 100 - 20);
}

#[test]
fn a_handshake_forwarded_between_shards_is_charged_once_at_each() {
    let mut shards = Shards::with(2, |index| Some(1 - index));
    for number in 0..40 {
        shards.send_hellos(number as usize % 2, number);
    }
    shards.deliver_forwarded();
    assert_eq!(shards.computed(), [20, 20], "as many as without forwarding");
}

#[test]
fn a_forwarded_hello_is_charged_to_its_source_first() {
    let mut shards = Shards::new(2, Some(1));
    let mut hello = hello(shards.now, 1, None);
    let (from, mut memory) = (address(CLIENT).into(), [0; 1_200]);
    shards.servers[0].handle_datagrams(shards.now, [Inbound { from, bytes: &mut hello.clone() }]);
    shards.servers[0].poll_transmit(shards.now, &mut memory).unwrap();
    hello[COOKIE].copy_from_slice(&memory[9..41]);
    for _ in 0..1_000 {
        shards.servers[0].handle_datagrams(shards.now, [Inbound { from, bytes: &mut hello.clone() }]);
        shards.deliver_forwarded();
    }
    let stats = shards.servers[0].stats();
    assert_eq!((stats.forwarded, stats.dropped(DropReason::SourceLimit)), (20, 980));
    assert_eq!(shards.servers[1].stats().dropped(DropReason::HelloRepeated), 15, "after five Welcomes");
    assert_eq!(shards.log.borrow().iter().filter(|(asked, ..)| *asked == "place").count(), 20);
}

#[test]
fn invalidated_keys_release_the_slots_of_forwarded_hellos() {
    let mut shards = Shards::new(2, Some(1));
    (0..3).for_each(|number| shards.send_hellos(0, number));
    shards.servers[0].invalidate_all_keys(shards.now, Secret::new([5; 32]));
    assert!(shards.servers[0].poll_forward().is_none());
    let log = shards.log.borrow();
    let of =
        |what| log.iter().filter(move |(asked, by, _)| (*asked, *by) == (what, 0)).map(|(.., hash)| *hash);
    assert_eq!(of("place").count(), 3);
    assert!(of("release").eq(of("place")), "{log:?}");
}

/// A shard without memory for another connection takes the place of a forwarded Hello, and releases it once.
#[test]
fn a_forwarded_hello_that_fails_releases_its_slot_once() {
    let mut shards = Shards::new(2, Some(1));
    shards.send_hellos(0, 1);
    shards.deliver_forwarded();
    let mut live = LiveConfig::new(&Config::default());
    live.connections = 1;
    shards.servers[1].reconfigure(&live).unwrap();
    shards.send_hellos(0, 2);
    shards.deliver_forwarded();
    assert_eq!(shards.servers[1].stats().dropped(DropReason::ServerFull), 1);
    let log = shards.log.borrow();
    assert_eq!(log.iter().filter(|(asked, ..)| *asked == "release").count(), 1, "{log:?}");
}

#[test]
fn a_packet_is_forwarded_once_at_most() {
    let mut shards = Shards::new(2, Some(1));
    shards.client.connect(shards.now, address(SERVER), &identity(), None).unwrap();
    for _ in 0..2 {
        shards.exchange(0);
    }
    let forwarded = shards.forwarded();
    // Passed back to the shard that it came from, it goes no further.
    shards.servers[0].handle_forwarded(shards.now, forwarded);
    assert!(shards.servers[0].poll_forward().is_none());
    assert_eq!(shards.servers[0].stats().dropped(DropReason::Misrouted), 1);
}
