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

/// The number of connections of a server with many clients.
fn many_connections() -> u32 {
    tries(65_536)
}

const FEW_SLOTS: u32 = 64;

/// The server makes 1,000 passes per second.
const PASS: Duration = Duration::from_millis(1);

/// Connections begun in each pass. A server takes no more.
const BEGUN_PER_PASS: u32 = 2;

/// The virtual second in which all clients have connected, or have left, and the first count begins. It is the same position of the timer
/// wheel in every world.
const FIRST_COUNT_AT_S: u64 = 50;

/// The virtual second in which the player has connected too, and the second count begins.
const SECOND_COUNT_AT_S: u64 = 70;

const PASSES: u64 = 10_000;

/// Passes from one message of the player to the next. The server answers each.
const PASSES_PER_MESSAGE: u64 = 10;

/// Passes after which a packet has been acknowledged.
const PASSES_PER_ACK: u16 = 30;

/// Channels that one test uses: more than a game with a stream for each property of its entities has.
const CHANNELS: u16 = 1_024;

/// The behavior of the clients once they are connected.
#[derive(Clone, Copy, PartialEq)]
enum AfterConnecting {
    Stays,
    Leaves,
}

struct World {
    server: Endpoint<SingleWorker>,
    identity: ServerIdentity,
    clients: Endpoint<SingleWorker>,
    client_count: u32,
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

const SERVER_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 1], 7_777);
const CLIENTS_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 2], 5_000);
const PLAYER_ADDRESS: ([u8; 4], u16) = ([127, 0, 0, 3], 5_000);

impl World {
    fn new(slots: u32) -> Self {
        let keys = ServerKeyPair::from_secret(Secret::new([1; 32]));
        let identity = ServerIdentity { public_key: *keys.public(), key_id: 0 };
        let server = ServerConfig::new(keys, Secret::new([2; 32]), Secret::new([3; 32]));
        // One slot more, for the player.
        let config = Config::default().connections(slots + 1);
        let many = Config::default().connections(many_connections());
        Self {
            server: Endpoint::server(config, server, SingleWorker::default(), Secret::new([4; 32])).unwrap(),
            identity,
            clients: Endpoint::client(many, ClientConfig::many(), Secret::new([5; 32])).unwrap(),
            client_count: 0,
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
    fn connect_clients(mut self, count: u32, after: AfterConnecting) -> Self {
        let mut begun = 0;
        while self.client_count < count
            || (after == AfterConnecting::Leaves && self.server.connection_count() > 0)
        {
            for _ in 0..BEGUN_PER_PASS.min(count - begun) {
                self.clients.connect(self.now, SERVER_ADDRESS.into(), &self.identity, None).unwrap();
                begun += 1;
            }
            self.pass();
            while let Some(event) = self.clients.poll_event() {
                match event {
                    Event::Connected { peer, .. } => {
                        self.client_count += 1;
                        if after == AfterConnecting::Leaves {
                            let close =
                                Close { code: CloseCode::Application, application_code: 0, reason: &[] };
                            self.clients.close(self.now, peer, &close).unwrap();
                        }
                    }
                    Event::Disconnected { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        self.pass_until(FIRST_COUNT_AT_S);
        assert_eq!(self.client_count, count);
        let expected_count = if after == AfterConnecting::Stays { count as usize } else { 0 };
        assert_eq!(self.server.connection_count(), expected_count);
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
        let Self { server, clients, player, visits, now, .. } = self;
        let now = *now;
        let mut memory = [0; 1_200];
        for (end, from) in [(&mut *clients, CLIENTS_ADDRESS), (&mut *player, PLAYER_ADDRESS)] {
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
            let is_player = transmit.to.peer == SocketAddr::from(PLAYER_ADDRESS);
            let to = if is_player { &mut *player } else { &mut *clients };
            let bytes = &mut memory[..transmit.bytes];
            to.handle_datagrams(now, [Inbound { from: SocketAddr::from(SERVER_ADDRESS).into(), bytes }]);
        }
        let _ = server.poll_timeout();
        while let Some(event) = player.poll_event() {
            self.received += u64::from(matches!(event, Event::Message { .. }));
        }
        self.now.monotonic = now.monotonic.after(PASS);
    }

    /// Returns the visits of [`PASSES`] passes. The player sends messages if it is connected.
    fn count_visits(&mut self) -> u64 {
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
    fn connect_player(&mut self) {
        self.server.entropy = Entropy::from_seed(Secret::new([7; 32]));
        let peer = self.player.connect(self.now, SERVER_ADDRESS.into(), &self.identity, None).unwrap();
        self.to_server = Some(peer);
        self.pass_until(SECOND_COUNT_AT_S);
        assert_eq!(self.player.stats().connections_opened, 1);
    }
}

#[test]
fn a_pass_visits_no_free_slot() {
    let few = World::new(FEW_SLOTS).connect_clients(0, AfterConnecting::Stays);
    let much_room = World::new(many_connections()).connect_clients(0, AfterConnecting::Stays);
    let all_left =
        World::new(many_connections()).connect_clients(many_connections(), AfterConnecting::Leaves);
    let visits = [few, much_room, all_left].map(|mut world| {
        let empty = world.count_visits();
        world.connect_player();
        let one = world.count_visits();
        assert_eq!(world.answered, PASSES / PASSES_PER_MESSAGE);
        (empty, one)
    });
    println!(
        "visits of {PASSES} passes without and with a player: {visits:?}; {} had left",
        many_connections()
    );
    assert_eq!(visits.map(|(empty, _)| empty), [0; 3]);
    let few = visits[0].1;
    assert!(few > 0, "the player is visited");
    assert_eq!(visits.map(|(_, one)| one), [few; 3]);
}

#[test]
fn silent_connections_cost_only_their_keep_alives() {
    let mut silent =
        World::new(many_connections()).connect_clients(many_connections(), AfterConnecting::Stays);
    let visits = silent.count_visits();
    println!("visits of {PASSES} passes with {} silent connections: {visits}", many_connections());
    // In ten seconds each connection sends one or two pings. Each ping is answered once and moves some timers.
    let of_each = visits / u64::from(many_connections());
    assert!((1..=20).contains(&of_each), "{of_each}");
    assert!(visits < PASSES * u64::from(many_connections()) / 100, "no pass visits all of them");
}

#[test]
fn a_tick_visits_no_channel_without_messages() {
    let visits = [1, CHANNELS].map(|channels| {
        let mut world = World::new(1);
        world.connect_player();
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
        world.pass_until(SECOND_COUNT_AT_S + 60);
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
