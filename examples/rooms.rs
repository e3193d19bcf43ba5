//! Rooms: every worker thread owns whole rooms and runs them itself, so their state needs no lock, and a move is taken
//! where it arrived. A ticket of the game's backend names a room, and the server brings all its players to the same worker.
//!
//! ```text
//! cargo run --release --example rooms -- server 0.0.0.0:7779 drumfire_secret_XxwOerTSk4xuDxorPE1eb3CBkqO0xdbn-AkaKzxNXm8 drumfire_tokenkey_AAAAAY9bZdpy7D7HXzzp60BPHyiLMlN_G6mgbrfFSMKkd6Ye
//! cargo run --release --example rooms -- client 127.0.0.1:7779 drumfire_public_9kDVg5jubJx_baXUFDIivl7kFU-tNlQLqsM11qonCkw drumfire_tokenkey_AAAAAY9bZdpy7D7HXzzp60BPHyiLMlN_G6mgbrfFSMKkd6Ye 7 42
//! ```
//!
//! The client is player 42 and goes to room 7; start more with other players. It has the token key because it plays the
//! backend too: in a game the backend alone has it, and hands out tickets over HTTPS. The keys stand in this file for
//! everybody to read: make your own with `drumfire keygen`. Without arguments all runs in one process.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use drumfire::{
    AcceptHook, Access, AdmissionConfig, Applicant, Arrival, Bytes, ChannelId, Client, ClientConfig,
    ClientEvent, CloseReason, ConnectToken, Context, GroupId, Handler, IssueError, PeerId, Placement,
    PlayerId, RefuseReason, SendOptions, ServerConfig, ServerKey, ServerPublicKey, Serving, TokenAccess,
    TokenKey, TokenMasterKey, TokenRequest, Verdict, Workers, serve,
};

const TICK: Duration = Duration::from_millis(50);
/// A player's wish to come in, and the answer.
const LOBBY: ChannelId = ChannelId(0);
/// Both are worth nothing once the next one is there.
const MOVES: ChannelId = ChannelId(1);
const SNAPSHOTS: ChannelId = ChannelId(2);
const ROOM_PLAYERS_MAX: usize = 64;
/// Their positions fit one packet.
const _: () = assert!(4 + 4 * ROOM_PLAYERS_MAX <= drumfire::MESSAGE_MAX_BYTES);
/// With which the server closes the connection of somebody who may not come in.
const NOT_LET_IN: u32 = 1;
/// How long a client plays.
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
                // The workers do everything; where the machine has but one core, it is done in here.
                server.wait(Duration::from_secs(60));
            }
        }
        ["client", server, key, token_key, room, player] => {
            let ticket =
                ticket(server.parse()?, key.parse()?, &token_key.parse()?, room.parse()?, player.parse()?)?;
            println!("{:?}", play(&ticket, room.parse()?, for_a_while())?);
        }
        [] => {
            for (room, seen) in show(&[(7, 3), (8, 2)], Workers::Auto, |_room| for_a_while())? {
                println!("room {room}: {seen:?}");
            }
        }
        _ => {
            return Err("say nothing, `server ADDRESS SECRET_KEY TOKEN_KEY` or \
                `client ADDRESS PUBLIC_KEY TOKEN_KEY ROOM PLAYER`"
                .into());
        }
    }
    Ok(())
}

/// The server: one [`Rooms`] for each worker.
fn start(
    address: SocketAddr,
    key: ServerKey,
    token_key: TokenKey,
    workers: Workers,
) -> Result<Serving<()>, Box<dyn Error>> {
    let access = Access::Token(TokenAccess::new(token_key));
    let admission = AdmissionConfig::default().accept(AcceptHook::new(let_in));
    let config = ServerConfig::new(address, key, access).workers(workers).admission(admission);
    Ok(serve(config, |_worker| Rooms::default())?)
}

/// Where an applicant goes: those with the same key share a worker, and that is what keeps a room in one place.
fn let_in(applicant: &Applicant<'_>) -> Verdict {
    match applicant.player.and_then(|player| room_of(player.user_data)) {
        Some(room) => Verdict::AcceptAt(Placement::Key(room.into())),
        None => Verdict::Refuse { reason: RefuseReason::Banned, retry_after: None },
    }
}

/// The room that a ticket is for.
fn room_of(user_data: &[u8]) -> Option<u32> {
    user_data.try_into().ok().map(u32::from_be_bytes)
}

/// What the backend does when it has found a room for a player.
fn ticket(
    server: SocketAddr,
    key: ServerPublicKey,
    token_key: &TokenKey,
    room: u32,
    player: u64,
) -> Result<ConnectToken, IssueError> {
    TokenRequest::new(PlayerId(player.into()), server, key).user_data(&room.to_be_bytes()).issue(token_key)
}

/// The rooms of one worker, and who is in them. Nobody else ever touches it.
#[derive(Default)]
struct Rooms {
    rooms: BTreeMap<u32, Room>,
    guests: BTreeMap<PeerId, Guest>,
}

/// Somebody who is connected.
struct Guest {
    /// The room that the ticket is for.
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

impl Handler for Rooms {
    type Note = ();

    fn on_connect(&mut self, context: &mut Context<'_>, peer: PeerId, arrival: &Arrival<'_>) {
        match room_of(arrival.user_data) {
            Some(room) => {
                self.guests.insert(peer, Guest { room, has_joined: false });
            }
            None => turn_away(context, peer, "the ticket is for no room"),
        }
    }

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        let Some(guest) = self.guests.get_mut(&peer) else { return };
        match channel {
            LOBBY if !guest.has_joined => {
                // Each message but the ticket is the player's own invention: another room may be another worker's.
                if bytes != guest.room.to_be_bytes() {
                    return turn_away(context, peer, "the ticket is for another room");
                }
                let room = self.rooms.entry(guest.room).or_default();
                if room.players.len() >= ROOM_PLAYERS_MAX
                    || context.join(GroupId(guest.room.into()), peer).is_err()
                {
                    return turn_away(context, peer, "the room is full");
                }
                guest.has_joined = true;
                room.players.insert(peer, Player::default());
                let welcome = u32::try_from(context.worker()).unwrap_or(u32::MAX).to_be_bytes();
                // Nothing was sent to this peer before, so there is room.
                let _ = context.send(peer, LOBBY, &welcome, SendOptions::reliable_ordered());
            }
            MOVES => {
                let player = self.rooms.get_mut(&guest.room).and_then(|room| room.players.get_mut(&peer));
                if let (Some(player), &[dx, dy]) = (player, bytes) {
                    player.direction = [dx, dy].map(|step| i8::from_be_bytes([step]).clamp(-1, 1));
                }
            }
            _ => {}
        }
    }

    fn on_disconnect(&mut self, _: &mut Context<'_>, peer: PeerId, _: CloseReason, _: &[u8]) {
        // It has left its group by itself.
        let Some(guest) = self.guests.remove(&peer) else { return };
        let Some(room) = self.rooms.get_mut(&guest.room) else { return };
        room.players.remove(&peer);
        if room.players.is_empty() {
            self.rooms.remove(&guest.room);
        }
    }

    fn tick_period(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        for (number, room) in &mut self.rooms {
            room.step();
            // Who does not keep up misses a snapshot, and gets the next one.
            let _ = context.broadcast(
                GroupId((*number).into()),
                SNAPSHOTS,
                room.snapshot(),
                SendOptions::unreliable_sequenced(),
            );
        }
    }
}

/// Closes the connection of somebody who may not come in. Then there is nobody to tell when that fails.
fn turn_away(context: &mut Context<'_>, peer: PeerId, why: &str) {
    let _ = context.close(peer, NOT_LET_IN, why);
}

impl Room {
    fn step(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        for Player { position: [x, y], direction: [dx, dy] } in self.players.values_mut() {
            (*x, *y) = (x.wrapping_add((*dx).into()), y.wrapping_add((*dy).into()));
        }
    }

    /// The tick, and where everybody is.
    fn snapshot(&self) -> Vec<u8> {
        let positions = self.players.values().flat_map(|player| player.position).flat_map(i16::to_be_bytes);
        self.tick.to_be_bytes().into_iter().chain(positions).collect()
    }
}

/// What a player saw.
#[derive(Debug, Default)]
struct Seen {
    /// The worker that has the room, as it says itself.
    worker: Option<u32>,
    snapshots: u32,
    /// The most in one snapshot.
    players: usize,
    /// How far right the player who is farthest there is.
    farthest: i16,
}

/// Answers true when a client has played long enough.
fn for_a_while() -> impl FnMut(&Seen) -> bool + Send {
    let end = now() + PLAY_TIME;
    move |_| now() >= end
}

/// Goes to a room and walks to the right, until it has seen enough.
fn play(
    ticket: &ConnectToken,
    room: u32,
    mut is_enough: impl FnMut(&Seen) -> bool,
) -> Result<Seen, Box<dyn Error>> {
    let mut client = Client::connect_with_token(ticket, &ClientConfig::default())?;
    // It leaves as soon as the connection is there.
    client.send(LOBBY, room.to_be_bytes().to_vec(), SendOptions::reliable_ordered())?;
    let mut seen = Seen::default();
    while !is_enough(&seen) {
        // Only the newest move counts; when there is no room for more, the next one is soon enough.
        let _ = client.send(MOVES, vec![1, 0], SendOptions::unreliable_sequenced());
        client.flush();
        client.wait(TICK);
        for event in client.poll() {
            match event {
                ClientEvent::Message { channel, bytes } => seen.take(channel, &bytes),
                ClientEvent::ConnectFailed { error } => return Err(error.into()),
                ClientEvent::Disconnected { reason, text } => return Err(farewell(reason, &text).into()),
                _ => {}
            }
        }
    }
    if seen.snapshots == 0 {
        return Err("the room showed nothing of itself".into());
    }
    client.close(0, "enough for today")?;
    client.flush();
    Ok(seen)
}

fn farewell(reason: CloseReason, text: &Bytes) -> String {
    format!("{reason}: {}", String::from_utf8_lossy(text))
}

impl Seen {
    fn take(&mut self, channel: ChannelId, bytes: &[u8]) {
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

/// The server and so many players of these rooms, in one process.
fn show<E: FnMut(&Seen) -> bool + Send>(
    rooms: &[(u32, usize)],
    workers: Workers,
    end: impl Fn(u32) -> E + Sync,
) -> Result<Vec<(u32, Seen)>, Box<dyn Error>> {
    let (key, token_key) = (ServerKey::generate()?, TokenMasterKey::generate()?.token_key(1, "rooms")?);
    let public = key.public();
    let mut server = start("127.0.0.1:0".parse()?, key, token_key.clone(), workers)?;
    let address = server.local_addr();
    let players = rooms.iter().flat_map(|(room, count)| (0..*count).map(|_| *room));
    let tickets: Vec<_> = players
        .zip(1..)
        .map(|(room, player)| Ok((room, ticket(address, public, &token_key, room, player)?)))
        .collect::<Result<_, IssueError>>()?;
    let end = &end;
    std::thread::scope(|scope| {
        let play = |(room, ticket): (u32, ConnectToken)| {
            scope.spawn(move || {
                let seen = play(&ticket, room, end(room)).map_err(|error| error.to_string())?;
                Ok::<_, String>((room, seen))
            })
        };
        let players: Vec<_> = tickets.into_iter().map(play).collect();
        while players.iter().any(|player| !player.is_finished()) {
            server.wait(TICK);
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
    fn all_players_of_a_room_are_with_one_worker_and_see_each_other_and_nobody_else() {
        let rooms = [(1, 2), (2, 3), (3, 1)];
        let (content, deadline) = (AtomicUsize::new(0), now() + Duration::from_secs(30));
        // Nobody leaves before all have seen their whole room.
        let end = |room| {
            let wanted = rooms.iter().find(|(number, _)| *number == room).map_or(0, |(_, players)| *players);
            let (content, mut is_content) = (&content, false);
            move |seen: &Seen| {
                if !is_content && seen.players >= wanted && seen.worker.is_some() && seen.farthest > 0 {
                    is_content = true;
                    content.fetch_add(1, Ordering::Relaxed);
                }
                content.load(Ordering::Relaxed) == 6 || now() >= deadline
            }
        };
        let seen = show(&rooms, Workers::Count(3), end).expect("a run on the loopback");
        let mut workers = Vec::new();
        for (room, players) in rooms {
            let of_room: Vec<&Seen> =
                seen.iter().filter(|(number, _)| *number == room).map(|(_, seen)| seen).collect();
            let worker = of_room[0].worker;
            assert!(worker.is_some() && of_room.iter().all(|seen| seen.worker == worker), "{of_room:?}");
            assert!(of_room.iter().all(|seen| seen.players == players && seen.farthest > 0), "{of_room:?}");
            workers.push(worker);
        }
        assert!(workers.iter().any(|worker| *worker != workers[0]), "{workers:?}");
    }

    #[test]
    fn a_ticket_lets_nobody_into_another_room() {
        let (key, token_key) = (ServerKey::from_bytes([1; 32]), TokenMasterKey::from_bytes([2; 32]));
        let (public, token_key) = (key.public(), token_key.token_key(1, "rooms").expect("an id"));
        let address = "127.0.0.1:0".parse().expect("an address");
        let server = start(address, key, token_key.clone(), Workers::Count(2)).expect("a server");
        let ticket = ticket(server.local_addr(), public, &token_key, 1, 1).expect("a ticket");
        let deadline = now() + Duration::from_secs(30);
        let refused = play(&ticket, 2, |_| now() >= deadline).expect_err("it is for room 1");
        assert!(refused.to_string().contains("another room"), "{refused}");
    }
}
