//! Game rooms on several workers. Each worker owns whole rooms, so their state needs no lock, and a move is processed
//! on the thread that received it. A token from the game's backend names a room, and the server places all players of a
//! room on the same worker.
//!
//! ```text
//! cargo run --release --example rooms -- server 0.0.0.0:7779 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 drumfire_tokenkey_AAAAAY9bZdpy7D7HXzzp60BPHyiLMlN_G6mgbrfFSMKkd6Ye
//! cargo run --release --example rooms -- client 127.0.0.1:7779 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw drumfire_tokenkey_AAAAAY9bZdpy7D7HXzzp60BPHyiLMlN_G6mgbrfFSMKkd6Ye 7 42
//! ```
//!
//! The client is player 42 and joins room 7. Start more clients with other player ids. The client has the token key
//! because it also plays the backend. In a game only the backend has the key, and sends tokens over HTTPS. The keys
//! above are public, so use them only for tests; `drumfire keygen` generates new ones. Without arguments, the server
//! and the clients run in one process.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drumfire::admission::{AcceptHook, AdmissionConfig, Applicant, Placement, Verdict};
use drumfire::error::RefuseReason;
use drumfire::tokens::{IssueError, TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, Bytes, ChannelId, Client, ClientConfig, CloseReason, ConnectToken, Context, Event, GroupId,
    Handler, Message, PeerId, PlayerId, ServerConfig, ServerKey, ServerPublicKey, Workers, handler,
};

const TICK: Duration = Duration::from_millis(50);
/// The request to join a room, and the reply.
const LOBBY: ChannelId = ChannelId(0);
/// A newer move or snapshot replaces an older one, so both channels are unreliable and sequenced.
const MOVES: ChannelId = ChannelId(1);
const SNAPSHOTS: ChannelId = ChannelId(2);
const ROOM_PLAYERS_MAX: usize = 64;
/// The positions of a full room fit an unreliable message.
const _: () = assert!(4 + 4 * ROOM_PLAYERS_MAX <= drumfire::config::MESSAGE_MAX_BYTES);
/// The close code for a player who may not join.
const NOT_ADMITTED: u32 = 1;
/// The time for which a client plays.
const PLAY_TIME: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["server", address, secret, token_key] => {
            let mut server = start(address.parse()?, secret.parse()?, token_key.parse()?, Workers::Auto)?;
            println!("rooms on {}, {} workers", server.local_addr(), server.remote().workers());
            loop {
                // The workers run the rooms. With a single core, the worker runs inside this call.
                server.poll(Duration::from_secs(60));
            }
        }
        ["client", server, key, token_key, room, player] => {
            let token = issue_token(
                server.parse()?,
                key.parse()?,
                &token_key.parse()?,
                room.parse()?,
                player.parse()?,
            )?;
            println!("{:?}", play(&token, room.parse()?, until_play_time_is_over())?);
        }
        [] => {
            for (room, view) in run_all(&[(7, 3), (8, 2)], Workers::Auto, |_room| until_play_time_is_over())?
            {
                println!("room {room}: {view:?}");
            }
        }
        _ => {
            return Err("usage: no arguments, `server ADDRESS SECRET_KEY TOKEN_KEY`, or \
                `client ADDRESS PUBLIC_KEY TOKEN_KEY ROOM PLAYER`"
                .into());
        }
    }
    Ok(())
}

/// Starts the server with one [`Rooms`] per worker.
fn start(
    address: SocketAddr,
    key: ServerKey,
    token_key: TokenKey,
    workers: Workers,
) -> Result<handler::Server<()>, Box<dyn Error>> {
    let access = Access::Token(TokenAccess::new(token_key));
    let admission = AdmissionConfig::default().accept(AcceptHook::new(admit));
    let config = ServerConfig::new(address, key, access).workers(workers).admission(admission);
    Ok(handler::Server::bind(config, |_worker| Rooms::default())?)
}

/// Admits players whose token names a room. Connections with the same placement key share a worker, so a room has one
/// worker.
fn admit(applicant: &Applicant<'_>) -> Verdict {
    match applicant.player.and_then(|player| room_of(player.user_data)) {
        Some(room) => Verdict::AcceptAt(Placement::Key(room.into())),
        None => Verdict::Refuse { reason: RefuseReason::Banned, retry_after: None },
    }
}

/// Returns the room in the user data of a token.
fn room_of(user_data: &[u8]) -> Option<u32> {
    user_data.try_into().ok().map(u32::from_be_bytes)
}

/// Issues a token for a room, as the backend does.
fn issue_token(
    server: SocketAddr,
    key: ServerPublicKey,
    token_key: &TokenKey,
    room: u32,
    player: u64,
) -> Result<ConnectToken, IssueError> {
    TokenRequest::new(PlayerId(player.into()), server, key).user_data(&room.to_be_bytes()).issue(token_key)
}

/// The rooms of one worker and their players. Only the thread of the worker accesses them.
#[derive(Default)]
struct Rooms {
    rooms: BTreeMap<u32, Room>,
    peers: BTreeMap<PeerId, Peer>,
}

/// A connected peer.
struct Peer {
    /// The room in its token.
    room: u32,
    has_joined: bool,
}

#[derive(Default)]
struct Room {
    tick: u32,
    players: BTreeMap<PeerId, Player>,
}

#[derive(Default)]
struct Player {
    position: [i16; 2],
    direction: [i8; 2],
}

impl Rooms {
    /// Removes a peer whose connection ended. It has left its groups already.
    fn remove(&mut self, peer: PeerId) {
        let Some(left) = self.peers.remove(&peer) else { return };
        let Some(room) = self.rooms.get_mut(&left.room) else { return };
        room.players.remove(&peer);
        if room.players.is_empty() {
            self.rooms.remove(&left.room);
        }
    }
}

impl Handler for Rooms {
    type Note = ();

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        match event {
            Event::Connected { peer, info } => match room_of(&info.user_data) {
                Some(room) => {
                    self.peers.insert(peer, Peer { room, has_joined: false });
                }
                None => reject(context, peer, "the token names no room"),
            },
            Event::Disconnected { peer, .. } => self.remove(peer),
            _ => {}
        }
    }

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, payload: &[u8]) {
        let Some(Peer { room: number, has_joined }) = self.peers.get_mut(&peer) else { return };
        match channel {
            LOBBY if !*has_joined => {
                // Only the token is trustworthy. A room that the message names may be on another worker.
                if payload != number.to_be_bytes() {
                    return reject(context, peer, "the token is for another room");
                }
                let room = self.rooms.entry(*number).or_default();
                if room.players.len() >= ROOM_PLAYERS_MAX || !context.join(peer, GroupId((*number).into())) {
                    return reject(context, peer, "the room is full");
                }
                *has_joined = true;
                room.players.insert(peer, Player::default());
                let worker = u32::try_from(context.worker()).unwrap_or(u32::MAX).to_be_bytes();
                // This is the first message to the peer, so there is room for it.
                let _ = context.send(peer, Message::reliable_ordered(LOBBY, context.copy(&worker)));
            }
            MOVES => {
                let player = self.rooms.get_mut(number).and_then(|room| room.players.get_mut(&peer));
                if let (Some(player), &[dx, dy]) = (player, payload) {
                    player.direction = [dx, dy].map(|step| i8::from_be_bytes([step]).clamp(-1, 1));
                }
            }
            _ => {}
        }
    }

    fn tick_period(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        for (number, room) in &mut self.rooms {
            room.step();
            // A player whose connection is full misses this snapshot and receives a later one.
            let _ = context.broadcast(
                GroupId((*number).into()),
                Message::unreliable_sequenced(SNAPSHOTS, room.snapshot()),
            );
        }
    }
}

/// Closes the connection of a player who may not join.
fn reject(context: &mut Context<'_>, peer: PeerId, reason: &str) {
    context.close(peer, NOT_ADMITTED, reason);
}

impl Room {
    fn step(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        for Player { position: [x, y], direction: [dx, dy] } in self.players.values_mut() {
            (*x, *y) = (x.wrapping_add((*dx).into()), y.wrapping_add((*dy).into()));
        }
    }

    /// Returns the tick and the positions of all players.
    fn snapshot(&self) -> Vec<u8> {
        let positions = self.players.values().flat_map(|player| player.position).flat_map(i16::to_be_bytes);
        self.tick.to_be_bytes().into_iter().chain(positions).collect()
    }
}

/// The observations of a player.
#[derive(Debug, Default)]
struct View {
    /// The worker that runs the room, as reported by the server.
    worker: Option<u32>,
    snapshots: u32,
    /// The largest number of players in one snapshot.
    players: usize,
    /// The x coordinate of the rightmost player in the last snapshot.
    farthest: i16,
}

/// Returns a function that returns true after [`PLAY_TIME`].
fn until_play_time_is_over() -> impl FnMut(&View) -> bool + Send {
    let end = now() + PLAY_TIME;
    move |_| now() >= end
}

/// Joins a room and walks to the right until `is_done` returns true.
fn play(
    token: &ConnectToken,
    room: u32,
    mut is_done: impl FnMut(&View) -> bool,
) -> Result<View, Box<dyn Error>> {
    let mut client = Client::new(ClientConfig::default())?;
    let server = client.connect(token)?;
    // The message is sent as soon as the connection is open.
    client.send(server, Message::reliable_ordered(LOBBY, room.to_be_bytes().to_vec()))?;
    let mut view = View::default();
    while !is_done(&view) {
        // If the connection is full, the move is dropped. The next move replaces it anyway.
        let _ = client.send(server, Message::unreliable_sequenced(MOVES, vec![1, 0]));
        client.flush();
        client.poll(TICK);
        while let Some(event) = client.next_event() {
            match event {
                Event::Message { channel, payload, .. } => view.update(channel, &payload),
                Event::ConnectFailed { error, .. } => return Err(error.into()),
                Event::Disconnected { closed, .. } => {
                    return Err(describe_close(closed.reason, &closed.text).into());
                }
                _ => {}
            }
        }
    }
    if view.snapshots == 0 {
        return Err("the room sent no snapshot".into());
    }
    client.close(server, 0, "done");
    client.flush();
    Ok(view)
}

fn describe_close(reason: CloseReason, text: &Bytes) -> String {
    format!("{reason}: {}", String::from_utf8_lossy(text))
}

impl View {
    fn update(&mut self, channel: ChannelId, bytes: &[u8]) {
        let Some((number, positions)) = bytes.split_first_chunk() else { return };
        if channel == LOBBY {
            self.worker = Some(u32::from_be_bytes(*number));
        } else if channel == SNAPSHOTS {
            self.snapshots += 1;
            let (positions, _) = positions.as_chunks::<4>();
            self.players = self.players.max(positions.len());
            let right = positions.iter().map(|[a, b, ..]| i16::from_be_bytes([*a, *b]));
            self.farthest = right.max().unwrap_or(0);
        }
    }
}

/// Runs the server and the given number of players per room in one process.
fn run_all<D: FnMut(&View) -> bool + Send>(
    rooms: &[(u32, usize)],
    workers: Workers,
    is_done: impl Fn(u32) -> D + Sync,
) -> Result<Vec<(u32, View)>, Box<dyn Error>> {
    let (key, token_key) = (ServerKey::generate()?, TokenMasterKey::generate()?.token_key(1, "rooms")?);
    let public = key.public();
    let mut server = start("127.0.0.1:0".parse()?, key, token_key.clone(), workers)?;
    let address = server.local_addr();
    let players = rooms.iter().flat_map(|(room, count)| (0..*count).map(|_| *room));
    let tokens: Vec<_> = players
        .zip(1..)
        .map(|(room, player)| Ok((room, issue_token(address, public, &token_key, room, player)?)))
        .collect::<Result<_, IssueError>>()?;
    let is_done = &is_done;
    std::thread::scope(|scope| {
        let play = |(room, token): (u32, ConnectToken)| {
            scope.spawn(move || {
                let view = play(&token, room, is_done(room)).map_err(|error| error.to_string())?;
                Ok::<_, String>((room, view))
            })
        };
        let players: Vec<_> = tokens.into_iter().map(play).collect();
        while players.iter().any(|player| !player.is_finished()) {
            server.poll(TICK);
        }
        players.into_iter().map(|player| Ok(player.join().map_err(|_| "a player panicked")??)).collect()
    })
}

#[expect(clippy::disallowed_methods, reason = "this is the example's only clock")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn players_of_a_room_share_a_worker_and_see_only_each_other() {
        let rooms = [(1, 2), (2, 3), (3, 1)];
        let (done_count, deadline) = (AtomicUsize::new(0), now() + Duration::from_secs(30));
        // All players stay until each of them has seen its whole room.
        let is_done = |room| {
            let expected =
                rooms.iter().find(|(number, _)| *number == room).map_or(0, |(_, players)| *players);
            let (done_count, mut is_counted) = (&done_count, false);
            move |view: &View| {
                if !is_counted && view.players >= expected && view.worker.is_some() && view.farthest > 0 {
                    is_counted = true;
                    done_count.fetch_add(1, Ordering::Relaxed);
                }
                done_count.load(Ordering::Relaxed) == 6 || now() >= deadline
            }
        };
        let views = run_all(&rooms, Workers::Count(3), is_done).expect("views");
        let mut workers = Vec::new();
        for (room, players) in rooms {
            let of_room: Vec<&View> =
                views.iter().filter(|(number, _)| *number == room).map(|(_, view)| view).collect();
            let worker = of_room[0].worker;
            assert!(worker.is_some() && of_room.iter().all(|view| view.worker == worker), "{of_room:?}");
            assert!(of_room.iter().all(|view| view.players == players && view.farthest > 0), "{of_room:?}");
            workers.push(worker);
        }
        assert!(workers.iter().any(|worker| *worker != workers[0]), "{workers:?}");
    }

    #[test]
    fn a_token_does_not_admit_to_another_room() {
        let (key, token_key) = (ServerKey::from_bytes([1; 32]), TokenMasterKey::from_bytes([2; 32]));
        let (public, token_key) = (key.public(), token_key.token_key(1, "rooms").expect("token key"));
        let address = "127.0.0.1:0".parse().expect("address");
        let server = start(address, key, token_key.clone(), Workers::Count(2)).expect("server");
        let token = issue_token(server.local_addr(), public, &token_key, 1, 1).expect("token");
        let deadline = now() + Duration::from_secs(30);
        let error = play(&token, 2, |_| now() >= deadline).expect_err("the token is for room 1");
        assert!(error.to_string().contains("another room"), "{error}");
    }
}
