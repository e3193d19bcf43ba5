//! The cost of a server's pass follows its traffic. It does not grow with free slots, with connections or channels that were used
//! before, or with silent connections. The tests count visits and measure no time.
//!
//! Release builds make 64k connections. Builds with debug assertions make 4k, because each handshake costs them some milliseconds.

use drumfire_tries::tries;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_crypto::Entropy;

use crate::visits::{Visit, counted};
use crate::{
    ChannelId, ClientConfig, Close, CloseCode, Config, Endpoint, Event, Inbound, Message, Moment, Now,
    PeerId, Secret, SendOptions, ServerConfig, ServerIdentity, ServerKeyPair, SingleWorker,
};

/// The number of connections on a crowded server.
fn crowd() -> u32 {
    tries(65_536)
}

const FEW: u32 = 64;

/// The server makes 1,000 passes per second.
const PASS: Duration = Duration::from_millis(1);

/// Connections begun in each pass. A server takes no more.
const BEGUN_PER_PASS: u32 = 2;

/// The virtual second in which the crowd has come, or has left, and the first count begins. It is the same position of the timer
/// wheel in every world.
const SETTLED_S: u64 = 50;

/// The virtual second in which the player has connected too, and the second count begins.
const PLAYS_S: u64 = 70;

const PASSES: u64 = 10_000;

/// Passes from one message of the player to the next. The server answers each.
const PASSES_PER_MESSAGE: u64 = 10;

/// Passes after which a packet has been acknowledged.
const PASSES_PER_ACK: u16 = 30;

/// Channels that one test uses: more than a game with a stream for each property of its entities has.
const CHANNELS: u16 = 1_024;

/// The behavior of the crowd's clients once they are connected.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Stays,
    Leaves,
}

struct World {
    server: Endpoint<SingleWorker>,
    identity: ServerIdentity,
    crowd: Endpoint<SingleWorker>,
    crowd_count: u32,
    player: Endpoint<SingleWorker>,
    /// The player's connection, at the player's end.
    to_server: Option<PeerId>,
    /// The player's connection, at the server.
    to_player: Option<PeerId>,
    answered: u64,
    /// Messages that the player received.
    received: u64,
    /// The server's visits so far.
    visits: u64,
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
        // One slot more, for the player.
        let config = Config::default().connections(slots + 1);
        let crowd = Config::default().connections(crowd());
        Self {
            server: Endpoint::server(config, server, SingleWorker::default(), Secret::new([4; 32])).unwrap(),
            identity,
            crowd: Endpoint::client(crowd, ClientConfig::many(), Secret::new([5; 32])).unwrap(),
            crowd_count: 0,
            player: Endpoint::client(Config::default(), ClientConfig::default(), Secret::new([6; 32]))
                .unwrap(),
            to_server: None,
            to_player: None,
            answered: 0,
            received: 0,
            visits: 0,
            now: Now { monotonic: Moment::from_nanos(1_000_000_000), wall: Duration::ZERO },
        }
    }

    /// Lets `count` clients connect, which stay or leave immediately.
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

    /// Makes one pass of both ends. Datagrams arrive immediately.
    fn pass(&mut self) {
        let Self { server, crowd, player, visits, now, .. } = self;
        let now = *now;
        let mut memory = [0; 1_200];
        for (end, from) in [(&mut *crowd, CROWD_AT), (&mut *player, PLAYER_AT)] {
            end.handle_timeout(now);
            while let Some(transmit) = end.poll_transmit(now, &mut memory) {
                let bytes = &mut memory[..transmit.bytes];
                let inbound = Inbound { from: SocketAddr::from(from).into(), bytes };
                *visits += counted(Visit::Connection, || server.handle_datagrams(now, [inbound]));
            }
        }
        *visits += counted(Visit::Connection, || server.handle_timeout(now));
        while let Some(event) = server.poll_event() {
            match event {
                Event::Message { peer, payload, .. } => {
                    self.answered += 1;
                    let answer = Message::reliable_ordered(ChannelId(0), payload.to_vec());
                    server.send(now, peer, answer).unwrap();
                }
                Event::Connected { peer, .. } => self.to_player = Some(peer),
                _ => {}
            }
        }
        assert!(server.poll_forward().is_none());
        loop {
            let mut sent = None;
            *visits += counted(Visit::Connection, || sent = server.poll_transmit(now, &mut memory));
            let Some(transmit) = sent else { break };
            let is_player = transmit.to.peer == SocketAddr::from(PLAYER_AT);
            let to = if is_player { &mut *player } else { &mut *crowd };
            let bytes = &mut memory[..transmit.bytes];
            to.handle_datagrams(now, [Inbound { from: SocketAddr::from(SERVER).into(), bytes }]);
        }
        let _ = server.poll_timeout();
        while let Some(event) = player.poll_event() {
            self.received += u64::from(matches!(event, Event::Message { .. }));
        }
        self.now.monotonic = now.monotonic.after(PASS);
    }

    /// Returns the visits of [`PASSES`] passes. The player sends messages if it is connected.
    fn visits(&mut self) -> u64 {
        let before = self.visits;
        for pass in 0..PASSES {
            if let Some(peer) = self.to_server
                && pass.is_multiple_of(PASSES_PER_MESSAGE)
            {
                self.player
                    .send(self.now, peer, Message::reliable_ordered(ChannelId(0), vec![7; 20]))
                    .unwrap();
            }
            self.pass();
        }
        self.visits - before
    }

    /// Connects the player. In every world it gets the same ids, and the server skips the same packet numbers.
    fn player(&mut self) {
        self.server.entropy = Entropy::from_seed(Secret::new([7; 32]));
        let peer = self.player.connect(self.now, SERVER.into(), &self.identity, None).unwrap();
        self.to_server = Some(peer);
        self.pass_until(PLAYS_S);
        assert_eq!(self.player.stats().connections_opened, 1);
    }
}

#[test]
fn a_pass_visits_no_free_slot() {
    let few = World::new(FEW).crowd(0, Then::Stays);
    let much_room = World::new(crowd()).crowd(0, Then::Stays);
    let all_left = World::new(crowd()).crowd(crowd(), Then::Leaves);
    let visits = [few, much_room, all_left].map(|mut world| {
        let empty = world.visits();
        world.player();
        let one = world.visits();
        assert_eq!(world.answered, PASSES / PASSES_PER_MESSAGE);
        (empty, one)
    });
    println!("visits of {PASSES} passes without and with a player: {visits:?}; {} had left", crowd());
    assert_eq!(visits.map(|(empty, _)| empty), [0; 3]);
    let few = visits[0].1;
    assert!(few > 0, "the player is visited");
    assert_eq!(visits.map(|(_, one)| one), [few; 3]);
}

#[test]
fn silent_connections_cost_only_their_keep_alives() {
    let mut silent = World::new(crowd()).crowd(crowd(), Then::Stays);
    let visits = silent.visits();
    println!("visits of {PASSES} passes with {} silent connections: {visits}", crowd());
    // In ten seconds each connection sends one or two pings. Each ping is answered once and moves some timers.
    let of_each = visits / u64::from(crowd());
    assert!((1..=20).contains(&of_each), "{of_each}");
    assert!(visits < PASSES * u64::from(crowd()) / 100, "no pass visits all of them");
}

#[test]
fn a_tick_visits_no_channel_without_messages() {
    let visits = [1, CHANNELS].map(|channels| {
        let mut world = World::new(1);
        world.player();
        let peer = world.to_player.expect("the player is connected");
        let send = |world: &mut World, channel, options| {
            world
                .server
                .send(world.now, peer, Message::new(ChannelId(channel), vec![7; 16], options))
                .unwrap();
        };
        // Eight ordered channels wait at the same time. A sequenced message would replace the one before it, so each is sent alone.
        for message in 0..CHANNELS {
            send(&mut world, message % channels, SendOptions::reliable_ordered());
            if (message + 1).is_multiple_of(8) {
                world.pass();
            }
        }
        for message in 0..CHANNELS {
            send(&mut world, channels + message % channels, SendOptions::reliable_sequenced());
            (0..PASSES_PER_ACK).for_each(|_| world.pass());
        }
        world.pass_until(PLAYS_S + 60);
        assert_eq!(world.received, 2 * u64::from(CHANNELS));
        // The player sends no messages, so every line is the server's.
        counted(Visit::Queue, || {
            for _ in 0..100 {
                send(&mut world, 0, SendOptions::reliable_ordered());
                world.pass();
            }
        })
    });
    println!("100 ticks with one active channel visit {visits:?} lines");
    assert!((100..=200).contains(&visits[0]), "{visits:?}");
    assert_eq!(visits[0], visits[1]);
}
