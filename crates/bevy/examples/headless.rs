//! Two Bevy apps without a window: a client that walks, and a server that moves it and sends it its position.
//!
//! ```text
//! cargo run --manifest-path crates/bevy/Cargo.toml --example headless
//! ```
//!
//! Both apps run in this process, on a thread each, and communicate over loopback. The exit status is 0 if the client
//! reached its goal, and 1 if it did not within [`FRAMES_MAX`] frames.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use bevy_app::ScheduleRunnerPlugin;
use bevy_app::prelude::*;
use bevy_drumfire::drumfire::{
    Access, ChannelId, ClientConfig, Event, Message, PeerId, ServerConfig, ServerKey, ServerPublicKey,
    Workers,
};
use bevy_drumfire::{
    DrumfireClient, DrumfireClientEvent, DrumfireClientPlugin, DrumfireServer, DrumfireServerEvent,
    DrumfireServerPlugin, ToPeer, ToServer,
};
use bevy_ecs::prelude::*;

const INPUTS: ChannelId = ChannelId(0);
const SNAPSHOTS: ChannelId = ChannelId(1);
/// The time between two frames.
const FRAME: Duration = Duration::from_millis(10);
/// The number of frames after which both apps give up.
const FRAMES_MAX: u32 = 2_000;
/// The position that the client walks to.
const GOAL: u32 = 20;

/// The number of frames so far.
#[derive(Resource, Default)]
struct FrameCount(u32);

/// A connected player and its position.
#[derive(Component)]
struct Player {
    peer: PeerId,
    position: u32,
}

/// The client's position in the last snapshot.
#[derive(Resource, Default)]
struct LastPosition(u32);

fn main() -> Result<(), Box<dyn Error>> {
    let position = run()?;
    println!("the client walked to {position}, connected, and disconnected");
    Ok(())
}

/// Runs both apps until the client reached its goal and left the server. Returns the last position of the client.
fn run() -> Result<u32, Box<dyn Error>> {
    let key = ServerKey::generate()?;
    let public = key.public();
    let config = ServerConfig::new("127.0.0.1:0".parse()?, key, Access::Open).workers(Workers::Inline);
    let mut server = DrumfireServer::bind(config)?;
    let address = server.get().local_addr();
    let server = std::thread::spawn(move || server_app(server).run());
    let (client_exit, position) = run_client(client_app(address, public)?);
    let server_exit = server.join().map_err(|_| "the server panicked")?;
    if client_exit.is_error() || server_exit.is_error() {
        return Err(format!("client: {client_exit:?} at {position}, server: {server_exit:?}").into());
    }
    Ok(position)
}

fn app() -> App {
    let mut app = App::new();
    app.add_plugins((TaskPoolPlugin::default(), ScheduleRunnerPlugin::run_loop(FRAME)));
    app.init_resource::<FrameCount>().add_systems(Last, count_frames);
    app
}

fn count_frames(mut frames: ResMut<FrameCount>, mut exit: MessageWriter<AppExit>) {
    frames.0 += 1;
    if frames.0 == FRAMES_MAX {
        exit.write(AppExit::error());
    }
}

fn server_app(server: DrumfireServer) -> App {
    let mut app = app();
    app.add_plugins(DrumfireServerPlugin)
        .insert_resource(server)
        .add_systems(Update, (update_players, move_players, send_snapshots).chain());
    app
}

/// Spawns and despawns players as they connect and disconnect.
fn update_players(
    mut commands: Commands,
    players: Query<(Entity, &Player)>,
    mut events: MessageReader<DrumfireServerEvent>,
    mut exit: MessageWriter<AppExit>,
) {
    for DrumfireServerEvent(event) in events.read() {
        match event {
            Event::Connected { peer, .. } => {
                commands.spawn(Player { peer: *peer, position: 0 });
            }
            Event::Disconnected { peer, .. } => {
                let player = players.iter().find(|(_, player)| player.peer == *peer);
                player.into_iter().for_each(|(entity, _)| commands.entity(entity).despawn());
                exit.write(AppExit::Success);
            }
            _ => {}
        }
    }
}

/// Moves a player by one step per input.
///
/// The chain applies the commands of `update_players` first, so a player that connected in this frame has an entity.
fn move_players(mut players: Query<&mut Player>, mut events: MessageReader<DrumfireServerEvent>) {
    for DrumfireServerEvent(event) in events.read() {
        if let Event::Message { peer, channel: INPUTS, .. } = event {
            let player = players.iter_mut().find(|player| player.peer == *peer);
            player.into_iter().for_each(|mut player| player.position += 1);
        }
    }
}

/// Sends each player its position. The mode is unreliable and sequenced because only the newest snapshot matters.
fn send_snapshots(players: Query<&Player>, mut messages: MessageWriter<ToPeer>) {
    for player in &players {
        let snapshot = player.position.to_be_bytes().to_vec();
        messages
            .write(ToPeer { peer: player.peer, message: Message::unreliable_sequenced(SNAPSHOTS, snapshot) });
    }
}

fn client_app(server: SocketAddr, key: ServerPublicKey) -> Result<App, Box<dyn Error>> {
    let mut app = app();
    app.add_plugins(DrumfireClientPlugin);
    app.insert_resource(DrumfireClient::connect((server, key), ClientConfig::default())?);
    app.init_resource::<LastPosition>().add_systems(Update, (read_events, walk).chain());
    Ok(app)
}

/// Runs the client. `App::run` does not return the app's resources, so a channel returns the last position.
fn run_client(mut app: App) -> (AppExit, u32) {
    let (sender, positions) = std::sync::mpsc::channel();
    app.add_systems(Last, move |position: Res<LastPosition>| {
        // Fails only after `run` returned.
        let _ = sender.send(position.0);
    });
    let exit = app.run();
    (exit, positions.try_iter().last().unwrap_or(0))
}

fn read_events(
    mut position: ResMut<LastPosition>,
    mut events: MessageReader<DrumfireClientEvent>,
    mut client: ResMut<DrumfireClient>,
    mut exit: MessageWriter<AppExit>,
) -> Result {
    for DrumfireClientEvent(event) in events.read() {
        match event {
            Event::Message { channel: SNAPSHOTS, payload, .. } => {
                position.0 = u32::from_be_bytes(payload.as_ref().try_into()?);
                if position.0 == GOAL {
                    let peer = client.peer();
                    client.get().close(peer, 0, "goal reached");
                }
            }
            Event::Disconnected { .. } if position.0 == GOAL => {
                exit.write(AppExit::Success);
            }
            Event::Disconnected { .. } | Event::ConnectFailed { .. } => {
                exit.write(AppExit::error());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sends one step per frame, up to the goal.
fn walk(mut steps: Local<u32>, mut messages: MessageWriter<ToServer>) {
    if *steps < GOAL {
        *steps += 1;
        messages.write(ToServer(Message::reliable_ordered(INPUTS, "step")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_reaches_its_goal() {
        assert_eq!(run().expect("both apps exit with success"), GOAL);
    }
}
