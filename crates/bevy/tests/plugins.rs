//! Tests of the plugins: over simulated links in virtual time, and over loopback.

use std::time::Duration;

use bevy_app::prelude::*;
use bevy_drumfire::drumfire::conditioner::{Delay, LinkConfig, Loss};
use bevy_drumfire::drumfire::{
    self, Access, ChannelId, Client, ClientConfig, Event, SendError, ServerConfig, ServerKey, Workers,
    testing,
};
use bevy_drumfire::{
    DrumfireClient, DrumfireClientEvent, DrumfireClientPlugin, DrumfireServer, DrumfireServerEvent,
    DrumfireServerPlugin, DrumfireSystems, ToPeer, ToPeerFailed, ToServer, ToServerFailed,
};
use bevy_ecs::prelude::*;

const CHANNEL: ChannelId = ChannelId(3);
const FRAME: Duration = Duration::from_millis(16);

/// The messages that systems in `Update` read so far.
#[derive(Resource, Default)]
struct Recorded<T>(Vec<T>);

fn record<M: Message + Clone>(mut messages: MessageReader<M>, mut recorded: ResMut<Recorded<M>>) {
    recorded.0.extend(messages.read().cloned());
}

fn recording_app<M: Message + Clone, F: Message + Clone>(plugin: impl Plugin) -> App {
    let mut app = App::new();
    app.add_plugins(plugin);
    app.insert_resource(Recorded::<M>(Vec::new())).insert_resource(Recorded::<F>(Vec::new()));
    app.add_systems(Update, (record::<M>, record::<F>));
    app
}

fn client_app(client: Client) -> App {
    let mut app = recording_app::<DrumfireClientEvent, ToServerFailed>(DrumfireClientPlugin);
    let peer = client.peers().next().expect("connection");
    app.insert_resource(DrumfireClient::new(client, peer));
    app
}

/// Runs a frame of the app, then advances the world by `after`. The world polls only its own clients, so it borrows the
/// app's client for this time.
fn frame(app: &mut App, world: &mut testing::World, after: Duration) {
    app.update();
    let client = app.world_mut().remove_resource::<DrumfireClient>().expect("client");
    let peer = client.peer();
    world.clients.push(client.into_inner());
    world.advance(after);
    app.insert_resource(DrumfireClient::new(world.clients.pop().expect("client"), peer));
}

fn recorded<M: Message + Clone>(app: &App) -> &[M] {
    &app.world().resource::<Recorded<M>>().0
}

#[test]
fn a_client_receives_all_messages_in_order_over_a_lossy_link() {
    let mut world = testing::pair(5);
    let lossy =
        LinkConfig::default().loss(Loss::Random(0.2)).delay(Delay::Constant(Duration::from_millis(30)));
    world.set_links(&lossy).expect("links");
    let mut app = client_app(world.clients.pop().expect("client"));
    app.world_mut().write_message(ToServer(drumfire::Message::reliable_ordered(CHANNEL, "hello")));
    let mut requests = Vec::new();
    for _ in 0..300 {
        frame(&mut app, &mut world, FRAME);
        world.server.poll(Duration::ZERO);
        while let Some(event) = world.server.next_event() {
            if let Event::Message { peer, channel, payload } = event {
                requests.push(payload.clone());
                for number in 0..20_u8 {
                    let reply = [&payload[..], &[number]].concat();
                    world
                        .server
                        .send(peer, drumfire::Message::reliable_ordered(channel, reply))
                        .expect("room");
                }
            }
        }
        world.server.flush();
    }
    assert_eq!(requests, ["hello"], "the message is sent once");
    let (first, rest) = recorded::<DrumfireClientEvent>(&app).split_first().expect("events");
    assert!(matches!(first.0, Event::Connected { .. }), "{first:?}");
    let expected = (0..20_u8).map(|number| {
        let payload = [b"hello", &[number][..]].concat().into();
        DrumfireClientEvent(Event::Message { peer: first.0.peer(), channel: CHANNEL, payload })
    });
    assert_eq!(rest, expected.collect::<Vec<_>>());
    assert!(recorded::<ToServerFailed>(&app).is_empty());
}

#[test]
fn messages_written_in_update_are_sent_in_the_same_frame() {
    let mut world = testing::pair(6);
    let mut app = client_app(world.clients.pop().expect("client"));
    let mut frames = 0;
    let is_connected = |event: &DrumfireClientEvent| matches!(event.0, Event::Connected { .. });
    while !recorded(&app).iter().any(is_connected) {
        frame(&mut app, &mut world, FRAME);
        frames += 1;
        assert!(frames < 100, "the client connects within 100 frames");
    }
    world.server.poll(Duration::ZERO);
    world.server.events().for_each(drop);
    app.add_systems(Update, |mut messages: MessageWriter<ToServer>, mut sent: Local<bool>| {
        if !std::mem::replace(&mut sent, true) {
            messages.write(ToServer(drumfire::Message::unreliable(CHANNEL, "now")));
        }
    });
    frame(&mut app, &mut world, Duration::from_millis(1));
    world.server.poll(Duration::ZERO);
    assert!(
        world
            .server
            .events()
            .any(|event| matches!(event, Event::Message { payload, .. } if payload == "now"))
    );
}

#[test]
fn messages_that_cannot_be_sent_come_back_with_the_reason() {
    let mut world = testing::pair(7);
    let mut app = client_app(world.clients.pop().expect("client"));
    let long = vec![0; 100_000];
    app.world_mut().write_message(ToServer(drumfire::Message::reliable_ordered(CHANNEL, long)));
    app.update();
    let client = app.world_mut().remove_resource::<DrumfireClient>().expect("client");
    app.world_mut().write_message(ToServer(drumfire::Message::reliable_ordered(CHANNEL, "no client")));
    app.update();
    app.update();
    let errors: Vec<_> = recorded::<ToServerFailed>(&app).iter().map(|failed| failed.error).collect();
    assert_eq!(errors, [SendError::TooLarge { bytes: 100_000, limit_bytes: 65_536 }, SendError::Closed]);
    app.insert_resource(client);
    frame(&mut app, &mut world, Duration::from_secs(1));
    world.server.poll(Duration::ZERO);
    assert!(!world.server.events().any(|event| matches!(event, Event::Message { .. })));
}

#[test]
fn a_server_echoes_and_reports_when_the_client_leaves() {
    let config = ServerConfig::new("127.0.0.1:0".parse().expect("address"), ServerKey::dev(), Access::Open);
    let mut server = DrumfireServer::bind(config.workers(Workers::Inline)).expect("bound");
    let address = server.get().local_addr();
    let mut server_app = recording_app::<DrumfireServerEvent, ToPeerFailed>(DrumfireServerPlugin);
    server_app.insert_resource(server);
    server_app.add_systems(PostUpdate, echo.before(DrumfireSystems::Send));
    let mut client = Client::new(ClientConfig::default()).expect("client");
    client.connect((address, ServerKey::dev().public())).expect("connection");
    let mut client_app = client_app(client);
    client_app.world_mut().write_message(ToServer(drumfire::Message::reliable_ordered(CHANNEL, "ping")));
    let is_echo =
        |event: &DrumfireClientEvent| matches!(&event.0, Event::Message { payload, .. } if payload == "ping");
    update_until(&mut server_app, &mut client_app, |_, client_app| {
        recorded::<DrumfireClientEvent>(client_app).iter().any(is_echo)
    });

    client_app.world_mut().remove_resource::<DrumfireClient>();
    let is_end = |event: &DrumfireServerEvent| matches!(event.0, Event::Disconnected { .. });
    update_until(&mut server_app, &mut client_app, |server_app, _| {
        recorded::<DrumfireServerEvent>(server_app).iter().any(is_end)
    });
    let events = recorded::<DrumfireServerEvent>(&server_app);
    assert!(
        matches!(events[0].0, Event::Connected { .. }) && is_end(events.last().expect("events")),
        "{events:?}"
    );
    let Event::Connected { peer, .. } = events[0].0 else { return };
    server_app
        .world_mut()
        .write_message(ToPeer { peer, message: drumfire::Message::unreliable(CHANNEL, "late") });
    server_app.update();
    server_app.update();
    assert_eq!(recorded::<ToPeerFailed>(&server_app)[0].error, SendError::UnknownPeer);
}

fn echo(mut events: MessageReader<DrumfireServerEvent>, mut messages: MessageWriter<ToPeer>) {
    for DrumfireServerEvent(event) in events.read() {
        if let Event::Message { peer, channel, payload } = event {
            messages.write(ToPeer {
                peer: *peer,
                message: drumfire::Message::reliable_ordered(*channel, payload.clone()),
            });
        }
    }
}

/// Runs frames of both apps until the condition holds. The server's frame starts after an event or a millisecond.
fn update_until(server_app: &mut App, client_app: &mut App, condition: impl Fn(&App, &App) -> bool) {
    for _ in 0..10_000 {
        client_app.update();
        server_app.world_mut().resource_mut::<DrumfireServer>().get().poll(Duration::from_millis(1));
        server_app.update();
        if condition(server_app, client_app) {
            return;
        }
    }
    panic!("the condition does not hold");
}
