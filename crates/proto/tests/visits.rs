//! What a pass of a server looks at: connections with something to do, and not the room there is for others, nor those that were
//! there once, nor those that are silent. Counted and not timed.
//!
//! 64k connections are made in release builds; those with debug assertions do with 4k, because each handshake costs them some
//! milliseconds.

use drumfire_proto::{
    Alone, ChannelId, ClientConfig, Close, CloseCode, Config, Endpoint, Event, Inbound, Moment, Now, PeerId,
    Secret, SendOptions, ServerConfig, ServerIdentity, ServerKeyPair,
};
use std::net::SocketAddr;
use std::time::Duration;

const CROWD: u32 = if cfg!(debug_assertions) { 4_096 } else { 65_536 };

const FEW: u32 = 64;

/// A server that looks a thousand times a second.
const PASS: Duration = Duration::from_millis(1);

/// Connections begun in each pass: as many as a server takes.
const BEGUN_PER_PASS: u32 = 2;

/// When all have come, and left, and the first window begins, in virtual seconds: the same moment of the wheel in every world.
const SETTLED_S: u64 = 50;

/// When the player has come too, and the second one begins.
const PLAYS_S: u64 = 70;

const PASSES: u64 = 10_000;

/// A message there and one back in so many passes.
const PASSES_PER_MESSAGE: u64 = 10;

/// What becomes of the crowd.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Stays,
    Leaves,
}

struct World {
    server: Endpoint<Alone>,
    identity: ServerIdentity,
    crowd: Endpoint<Alone>,
    crowd_count: u32,
    player: Endpoint<Alone>,
    /// At the player's end.
    to_server: Option<PeerId>,
    answered: u64,
    now: Now,
}

const SERVER: ([u8; 4], u16) = ([127, 0, 0, 1], 7_777);
const CROWD_AT: ([u8; 4], u16) = ([127, 0, 0, 2], 5_000);
const PLAYER_AT: ([u8; 4], u16) = ([127, 0, 0, 3], 5_000);

impl World {
    fn new(slots: u32) -> Self {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        // Room for the player beside the others.
        let config = Config::default().connections(slots + 1);
        let crowd = Config::default().connections(CROWD);
        Self {
            server: Endpoint::server(config, server, Alone::default(), Secret::new([4; 32])).unwrap(),
            identity,
            crowd: Endpoint::client(crowd, ClientConfig::many(), Secret::new([5; 32])).unwrap(),
            crowd_count: 0,
            player: Endpoint::client(Config::default(), ClientConfig::default(), Secret::new([6; 32]))
                .unwrap(),
            to_server: None,
            answered: 0,
            now: Now { monotonic: Moment::from_nanos(1_000_000_000), wall: Duration::ZERO },
        }
    }

    /// So many come, and stay or leave as soon as they are there.
    fn crowd(mut self, count: u32, then: Then) -> Self {
        let mut begun = 0;
        while self.crowd_count < count || (then == Then::Leaves && self.server.connection_count() > 0) {
            for _ in 0..BEGUN_PER_PASS.min(count - begun) {
                self.crowd.connect(self.now, SERVER.into(), &self.identity, None).unwrap();
                begun += 1;
            }
            self.pass();
            while let Some(event) = self.crowd.poll_event() {
                match event {
                    Event::Connected { peer, .. } => {
                        self.crowd_count += 1;
                        if then == Then::Leaves {
                            let close =
                                Close { code: CloseCode::Application, application_code: 0, reason: &[] };
                            self.crowd.close(self.now, peer, &close).unwrap();
                        }
                    }
                    Event::Disconnected { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        self.pass_until(SETTLED_S);
        assert_eq!(self.crowd_count, count);
        let is_there = if then == Then::Stays { count as usize } else { 0 };
        assert_eq!(self.server.connection_count(), is_there);
        self
    }

    fn pass_until(&mut self, seconds: u64) {
        let until = Moment::from_nanos(seconds * 1_000_000_000);
        assert!(self.now.monotonic < until, "that was before");
        while self.now.monotonic < until {
            self.pass();
        }
    }

    /// One pass of everybody: what was sent arrives at once.
    fn pass(&mut self) {
        for (end, from) in [(&mut self.crowd, CROWD_AT), (&mut self.player, PLAYER_AT)] {
            end.handle_timeout(self.now);
            carry(end, from.into(), &mut self.server, self.now);
        }
        self.server.handle_timeout(self.now);
        while let Some((peer, bytes)) = next_message(&mut self.server) {
            self.answered += 1;
            let options = SendOptions::reliable_ordered();
            self.server.send(self.now, peer, ChannelId(0), bytes.into(), options).unwrap();
        }
        assert!(self.server.poll_forward().is_none());
        let mut memory = [0; 1_200];
        while let Some(transmit) = self.server.poll_transmit(self.now, &mut memory) {
            let is_player = transmit.to.peer == SocketAddr::from(PLAYER_AT);
            let to = if is_player { &mut self.player } else { &mut self.crowd };
            let inbound =
                Inbound { from: SocketAddr::from(SERVER).into(), bytes: &mut memory[..transmit.bytes] };
            to.handle_datagrams(self.now, [inbound]);
        }
        let _ = self.server.poll_timeout();
        self.now.monotonic = self.now.monotonic.after(PASS);
    }

    /// What all passes of a while look at.
    fn visits(&mut self) -> u64 {
        let before = self.server.connections_visited();
        for pass in 0..PASSES {
            if let Some(peer) = self.to_server
                && pass.is_multiple_of(PASSES_PER_MESSAGE)
            {
                let (message, options) = (vec![7; 20].into(), SendOptions::reliable_ordered());
                self.player.send(self.now, peer, ChannelId(0), message, options).unwrap();
            }
            self.pass();
            while self.player.poll_event().is_some() {}
        }
        self.server.connections_visited() - before
    }

    /// A player comes and talks, in every world with the same ids and the same packet numbers skipped.
    fn player(&mut self) {
        self.server.reseed(Secret::new([7; 32]));
        let peer = self.player.connect(self.now, SERVER.into(), &self.identity, None).unwrap();
        self.to_server = Some(peer);
        self.pass_until(PLAYS_S);
        assert!(matches!(self.player.poll_event(), Some(Event::Connected { .. })));
    }
}

fn carry(from: &mut Endpoint<Alone>, address: SocketAddr, to: &mut Endpoint<Alone>, now: Now) {
    let mut memory = [0; 1_200];
    while let Some(transmit) = from.poll_transmit(now, &mut memory) {
        to.handle_datagrams(now, [Inbound { from: address.into(), bytes: &mut memory[..transmit.bytes] }]);
    }
}

/// The next message that came.
fn next_message(server: &mut Endpoint<Alone>) -> Option<(PeerId, Vec<u8>)> {
    while let Some(event) = server.poll_event() {
        if let Event::Message { peer, bytes, .. } = event {
            return Some((peer, bytes.to_vec()));
        }
    }
    None
}

#[test]
fn a_pass_looks_at_nothing_for_room_that_nobody_takes_or_takes_any_more() {
    let few = World::new(FEW).crowd(0, Then::Stays);
    let much_room = World::new(CROWD).crowd(0, Then::Stays);
    let all_left = World::new(CROWD).crowd(CROWD, Then::Leaves);
    let visits = [few, much_room, all_left].map(|mut world| {
        let empty = world.visits();
        world.player();
        let one = world.visits();
        assert_eq!(world.answered, PASSES / PASSES_PER_MESSAGE);
        (empty, one)
    });
    println!("{PASSES} passes with nobody, and with one player, look at {visits:?}; {CROWD} had left");
    assert_eq!(visits.map(|(empty, _)| empty), [0; 3]);
    let few = visits[0].1;
    assert!(few > 0, "the player is looked at");
    assert_eq!(visits.map(|(_, one)| one), [few; 3]);
}

#[test]
fn silent_connections_cost_a_pass_their_keep_alives_alone() {
    let mut silent = World::new(CROWD).crowd(CROWD, Then::Stays);
    let visits = silent.visits();
    println!("{CROWD} silent connections are looked at {visits} times in {PASSES} passes");
    // In ten seconds each sends one or two pings, and each of these is answered once and moves some timers.
    let of_each = visits / u64::from(CROWD);
    assert!((1..=20).contains(&of_each), "{of_each}");
    assert!(visits < PASSES * u64::from(CROWD) / 100, "no pass looks at all of them");
}
