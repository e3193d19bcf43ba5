//! A server and a client as two Bevy apps without a window: the client walks, the server moves it and tells all where everybody
//! is.
//!
//! ```text
//! cargo run --manifest-path crates/bevy/Cargo.toml --example headless
//! ```
//!
//! Both run in this process, on a thread each, and talk over the loopback. It ends with 0 once the client has come where it wanted,
//! and with 1 when it has not after so many frames.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bevy_app::ScheduleRunnerPlugin;
use bevy_app::prelude::*;
use bevy_drumfire::drumfire::{
    Access, ChannelId, ClientConfig, ClientEvent, Event, PeerId, SendOptions, ServerConfig, ServerKey,
    ServerPublicKey, Workers,
};
use bevy_drumfire::{
    ClientHeard, DrumfireClient, DrumfireClientPlugin, DrumfireServer, DrumfireServerPlugin, ServerHeard,
    ToPeer, ToServer,
};
use bevy_ecs::prelude::*;

const INPUTS: ChannelId = ChannelId(0);
const SNAPSHOTS: ChannelId = ChannelId(1);
/// Between two frames.
const FRAME: Duration = Duration::from_millis(10);
/// Frames until both sides give up.
const FRAMES_MAX: u32 = 2_000;
/// Where the client wants to be.
const GOAL: u32 = 20;

/// Frames there were.
#[derive(Resource, Default)]
struct Frames(u32);

/// A player of the server, and where it is.
#[derive(Component)]
struct Player {
    peer: PeerId,
    place: u32,
}

/// Where the server last said that this player is.
#[derive(Resource, Default)]
struct Seen(u32);

fn main() -> Result<(), Box<dyn Error>> {
    let seen = play()?;
    println!("the client walked to {seen}, and the server saw it come and leave");
    Ok(())
}

/// Runs both apps until the client is where it wants to be and the server is empty again; answers where the client is.
fn play() -> Result<u32, Box<dyn Error>> {
    let key = ServerKey::generate()?;
    let public = key.public();
    let config = ServerConfig::new("127.0.0.1:0".parse()?, key, Access::Open).workers(Workers::Inline);
    let mut server = DrumfireServer::bind(config)?;
    let address = server.get().local_addr();
    let server = std::thread::spawn(move || server_app(server).run());
    let (exit, seen) = run_client(client_app(address, public)?);
    let served = server.join().map_err(|_| "the server panicked")?;
    if exit.is_error() || served.is_error() {
        return Err(format!("client: {exit:?} at {seen}, server: {served:?}").into());
    }
    Ok(seen)
}

fn app() -> App {
    let mut app = App::new();
    app.add_plugins((TaskPoolPlugin::default(), ScheduleRunnerPlugin::run_loop(FRAME)));
    app.init_resource::<Frames>().add_systems(Last, count_frames);
    app
}

fn count_frames(mut frames: ResMut<Frames>, mut exit: MessageWriter<AppExit>) {
    frames.0 += 1;
    if frames.0 == FRAMES_MAX {
        exit.write(AppExit::error());
    }
}

fn server_app(server: DrumfireServer) -> App {
    let mut app = app();
    app.add_plugins(DrumfireServerPlugin)
        .insert_resource(server)
        .add_systems(Update, (come_and_go, take_steps, tell_all).chain());
    app
}

/// Players come and go.
fn come_and_go(
    mut commands: Commands,
    players: Query<(Entity, &Player)>,
    mut heard: MessageReader<ServerHeard>,
    mut exit: MessageWriter<AppExit>,
) {
    for ServerHeard(event) in heard.read() {
        match event {
            Event::Connected { peer, .. } => {
                commands.spawn(Player { peer: *peer, place: 0 });
            }
            Event::Disconnected { peer, .. } => {
                let gone = players.iter().find(|(_, player)| player.peer == *peer);
                gone.into_iter().for_each(|(entity, _)| commands.entity(entity).despawn());
                exit.write(AppExit::Success);
            }
            _ => {}
        }
    }
}

/// A step for every input. Who came in this very frame has an entity only once the commands of the system before were carried out,
/// which Bevy does between two systems of a chain.
fn take_steps(mut players: Query<&mut Player>, mut heard: MessageReader<ServerHeard>) {
    for ServerHeard(event) in heard.read() {
        if let Event::Message { peer, channel: INPUTS, .. } = event {
            let walking = players.iter_mut().find(|player| player.peer == *peer);
            walking.into_iter().for_each(|mut player| player.place += 1);
        }
    }
}

/// A snapshot for everybody: a newer one makes older ones worthless.
fn tell_all(players: Query<&Player>, mut messages: MessageWriter<ToPeer>) {
    for player in &players {
        let snapshot = player.place.to_be_bytes().to_vec();
        messages.write(ToPeer::new(player.peer, SNAPSHOTS, snapshot, SendOptions::unreliable_sequenced()));
    }
}

fn client_app(server: SocketAddr, key: ServerPublicKey) -> Result<App, Box<dyn Error>> {
    let mut app = app();
    app.add_plugins(DrumfireClientPlugin);
    app.insert_resource(DrumfireClient::connect(server, key, &ClientConfig::default())?);
    app.init_resource::<Seen>().add_systems(Update, (look, walk).chain());
    Ok(app)
}

/// The runner of an app takes it for good, so what the client saw last comes by a channel.
fn run_client(mut app: App) -> (AppExit, u32) {
    let (tell, told) = std::sync::mpsc::channel();
    app.add_systems(Last, move |seen: Res<Seen>| {
        // Nobody hears it once the app is over.
        let _ = tell.send(seen.0);
    });
    let exit = app.run();
    (exit, told.try_iter().last().unwrap_or(0))
}

fn look(
    mut seen: ResMut<Seen>,
    mut heard: MessageReader<ClientHeard>,
    mut client: ResMut<DrumfireClient>,
    mut exit: MessageWriter<AppExit>,
) -> Result {
    for ClientHeard(event) in heard.read() {
        match event {
            ClientEvent::Message { channel: SNAPSHOTS, bytes } => {
                seen.0 = u32::from_be_bytes(bytes.as_ref().try_into()?);
                if seen.0 == GOAL {
                    client.get().close(0, "there")?;
                }
            }
            ClientEvent::Disconnected { .. } if seen.0 == GOAL => {
                exit.write(AppExit::Success);
            }
            ClientEvent::Disconnected { .. } | ClientEvent::ConnectFailed { .. } => {
                exit.write(AppExit::error());
            }
            _ => {}
        }
    }
    Ok(())
}

/// A step per frame, until there are enough.
fn walk(mut steps: Local<u32>, mut messages: MessageWriter<ToServer>) {
    if *steps < GOAL {
        *steps += 1;
        messages.write(ToServer::new(INPUTS, "step", SendOptions::reliable_ordered()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_comes_where_it_wants() {
        assert_eq!(play().expect("both apps end well"), GOAL);
    }
}
