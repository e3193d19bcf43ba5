//! The plugins against simulated links in virtual time, and against each other over the loopback.

use std::time::Duration;

use bevy_app::prelude::*;
use bevy_drumfire::drumfire::conditioner::{Delay, LinkConfig, Loss};
use bevy_drumfire::drumfire::{
    Access, ChannelId, Client, ClientEvent, Event, SendError, SendOptions, ServerConfig, ServerKey, Workers,
    testing,
};
use bevy_drumfire::{
    ClientHeard, DrumfireClient, DrumfireClientPlugin, DrumfireServer, DrumfireServerPlugin, DrumfireSystems,
    ServerHeard, ToPeer, ToPeerFailed, ToServer, ToServerFailed,
};
use bevy_ecs::prelude::*;

const CHANNEL: ChannelId = ChannelId(3);
const FRAME: Duration = Duration::from_millis(16);

/// What systems of `Update` saw, frame by frame.
#[derive(Resource, Default)]
struct Heard<T>(Vec<T>);

fn keep<M: Message + Clone>(mut messages: MessageReader<M>, mut heard: ResMut<Heard<M>>) {
    heard.0.extend(messages.read().cloned());
}

fn app_that_keeps<M: Message + Clone, F: Message + Clone>(plugin: impl Plugin) -> App {
    let mut app = App::new();
    app.add_plugins(plugin).insert_resource(Heard::<M>(Vec::new())).insert_resource(Heard::<F>(Vec::new()));
    app.add_systems(Update, (keep::<M>, keep::<F>));
    app
}

fn client_app(client: Client) -> App {
    let mut app = app_that_keeps::<ClientHeard, ToServerFailed>(DrumfireClientPlugin);
    app.insert_resource(DrumfireClient::new(client));
    app
}

/// A frame, and then so much time. The world drives its clients while time passes, so the app lends it its own.
fn frame(app: &mut App, world: &mut testing::World, after: Duration) {
    app.update();
    let client = app.world_mut().remove_resource::<DrumfireClient>().expect("a client");
    world.clients.push(client.into_inner());
    world.advance(after);
    app.insert_resource(DrumfireClient::new(world.clients.pop().expect("the one")));
}

fn heard<M: Message + Clone>(app: &App) -> &[M] {
    &app.world().resource::<Heard<M>>().0
}

#[test]
fn over_a_poor_link_a_client_hears_all_in_order_in_virtual_time() {
    let mut world = testing::pair(5);
    let poor = LinkConfig::default().loss(Loss::Even(0.2)).delay(Delay::Constant(Duration::from_millis(30)));
    world.set_links(&poor).expect("links");
    let mut app = client_app(world.clients.pop().expect("one"));
    app.world_mut().write_message(ToServer::new(CHANNEL, "hello", SendOptions::reliable_ordered()));
    let mut asked = Vec::new();
    for _ in 0..300 {
        frame(&mut app, &mut world, FRAME);
        for event in world.server.poll() {
            if let Event::Message { peer, channel, bytes } = event {
                asked.push(bytes.clone());
                for number in 0..20_u8 {
                    let answer = [&bytes[..], &[number]].concat();
                    world.server.send(peer, channel, answer, SendOptions::reliable_ordered()).expect("room");
                }
            }
        }
        world.server.flush();
    }
    assert_eq!(asked, ["hello"], "sent once, in the frame in which it was written");
    let (first, rest) = heard::<ClientHeard>(&app).split_first().expect("something");
    assert_eq!(*first, ClientHeard(ClientEvent::Connected));
    let wanted = (0..20_u8).map(|number| {
        let bytes = [b"hello", &[number][..]].concat().into();
        ClientHeard(ClientEvent::Message { channel: CHANNEL, bytes })
    });
    assert_eq!(rest, wanted.collect::<Vec<_>>());
    assert!(heard::<ToServerFailed>(&app).is_empty());
}

#[test]
fn what_is_written_in_update_leaves_in_the_same_frame() {
    let mut world = testing::pair(6);
    let mut app = client_app(world.clients.pop().expect("one"));
    let mut turns = 0;
    while !heard::<ClientHeard>(&app).contains(&ClientHeard(ClientEvent::Connected)) {
        frame(&mut app, &mut world, FRAME);
        turns += 1;
        assert!(turns < 100, "it never connects");
    }
    world.server.poll().for_each(drop);
    app.add_systems(Update, |mut messages: MessageWriter<ToServer>, mut sent: Local<bool>| {
        if !std::mem::replace(&mut sent, true) {
            messages.write(ToServer::new(CHANNEL, "now", SendOptions::unreliable()));
        }
    });
    frame(&mut app, &mut world, Duration::from_millis(1));
    assert!(world.server.poll().any(|event| matches!(event, Event::Message { bytes, .. } if bytes == "now")));
}

#[test]
fn what_cannot_be_sent_comes_back_with_the_reason() {
    let mut world = testing::pair(7);
    let mut app = client_app(world.clients.pop().expect("one"));
    let long = vec![0; 100_000];
    app.world_mut().write_message(ToServer::new(CHANNEL, long, SendOptions::reliable_ordered()));
    app.update();
    let client = app.world_mut().remove_resource::<DrumfireClient>().expect("a client");
    app.world_mut().write_message(ToServer::new(CHANNEL, "nobody", SendOptions::reliable_ordered()));
    app.update();
    app.update();
    let why: Vec<_> = heard::<ToServerFailed>(&app).iter().map(|failed| failed.error).collect();
    assert_eq!(why, [SendError::TooLarge { limit_bytes: 65_536 }, SendError::Closed]);
    app.insert_resource(client);
    frame(&mut app, &mut world, Duration::from_secs(1));
    assert!(!world.server.poll().any(|event| matches!(event, Event::Message { .. })));
}

#[test]
fn a_server_answers_a_client_over_the_loopback_and_hears_it_leave() {
    let config = ServerConfig::new("127.0.0.1:0".parse().expect("address"), ServerKey::dev(), Access::Open);
    let mut server = DrumfireServer::bind(config.workers(Workers::Inline)).expect("bound");
    let address = server.get().local_addr();
    let mut host = app_that_keeps::<ServerHeard, ToPeerFailed>(DrumfireServerPlugin);
    host.insert_resource(server);
    host.add_systems(PostUpdate, answer.before(DrumfireSystems::Send));
    let mut player = client_app(Client::connect_dev(address).expect("begun"));
    player.world_mut().write_message(ToServer::new(CHANNEL, "ping", SendOptions::reliable_ordered()));
    let is_answer =
        |heard: &ClientHeard| matches!(&heard.0, ClientEvent::Message { bytes, .. } if bytes == "ping");
    both_until(&mut host, &mut player, |_, player| heard::<ClientHeard>(player).iter().any(is_answer));

    // Who removes the resource leaves.
    player.world_mut().remove_resource::<DrumfireClient>();
    let has_left = |heard: &ServerHeard| matches!(heard.0, Event::Disconnected { .. });
    both_until(&mut host, &mut player, |host, _| heard::<ServerHeard>(host).iter().any(has_left));
    let events = heard::<ServerHeard>(&host);
    assert!(
        matches!(events[0].0, Event::Connected { .. }) && has_left(events.last().expect("some")),
        "{events:?}"
    );
    let Event::Connected { peer, .. } = events[0].0 else { return };
    host.world_mut().write_message(ToPeer::new(peer, CHANNEL, "late", SendOptions::unreliable()));
    host.update();
    host.update();
    assert_eq!(heard::<ToPeerFailed>(&host)[0].error, SendError::UnknownPeer);
}

fn answer(mut heard: MessageReader<ServerHeard>, mut answers: MessageWriter<ToPeer>) {
    for ServerHeard(event) in heard.read() {
        if let Event::Message { peer, channel, bytes } = event {
            answers.write(ToPeer::new(*peer, *channel, bytes.clone(), SendOptions::reliable_ordered()));
        }
    }
}

/// Frames of both, each as soon as the server hears something or a millisecond later.
fn both_until(host: &mut App, player: &mut App, is_so: impl Fn(&App, &App) -> bool) {
    for _ in 0..10_000 {
        player.update();
        host.world_mut().resource_mut::<DrumfireServer>().get().wait(Duration::from_millis(1));
        host.update();
        if is_so(host, player) {
            return;
        }
    }
    panic!("it never is");
}
