//! Clients that reconnect by themselves to a server that was stopped and bound again, over real sockets.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::own_address::own_address;
use super::world::{PATIENCE, Polled, now, possible};
use drumfire::error::CloseCode;
use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, ChannelId, Client, ClientConfig, CloseReason, ConnectError, Context, Event, Handler, Message,
    PeerId, PlayerId, Reconnect, ReconnectReason, SendError, Server, ServerConfig, ServerKey, Workers,
    handler,
};

use crate::single::{Single as _, connect};

const ANNOUNCED: CloseReason = CloseReason::Remote { code: CloseCode::Shutdown, application_code: 1 };

fn back_within(seconds: u64) -> ClientConfig {
    ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(seconds)))
}

/// Shuts down a server for a restart, and drops it.
fn shut_down_for_restart(mut server: Server) {
    let mut shutdown = server.control().shut_down_for_restart(Duration::ZERO);
    until("it has shut down", || {
        server.poll(Duration::from_millis(1));
        server.events().for_each(drop);
        shutdown.try_take().is_some()
    });
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = now() + PATIENCE;
    while !is_true() {
        assert!(now() < deadline, "not in time: {what}");
    }
}

/// Binds a server with token access. It has the same key and id each time.
fn serve(address: std::net::SocketAddr, tokens: &TokenKey) -> Server {
    let access = Access::Token(TokenAccess::new(tokens.clone()));
    let config = ServerConfig::new(address, ServerKey::from_bytes([7; 32]), access);
    Server::bind(config.server_id("eu-1").workers(possible(Workers::Count(2)))).expect("the port is free")
}

/// Polls a server once. It echoes all messages, and its new players are added to `players`.
fn echo(server: &mut Server, players: &mut Vec<u128>) {
    server.poll(Duration::from_millis(1));
    while let Some(event) = server.next_event() {
        match event {
            Event::Connected { info, .. } => players.extend(info.player.map(|player| player.0)),
            Event::Message { peer, channel, payload } => {
                server.send(peer, Message::reliable_ordered(channel, payload)).expect("room");
            }
            _ => {}
        }
    }
    server.flush();
}

fn tokens() -> TokenKey {
    TokenMasterKey::generate().expect("randomness").token_key(1, "eu-1").expect("an id")
}

#[test]
fn each_connection_of_a_socket_reconnects_as_its_own_player() {
    const BOTS: u128 = 60;
    let tokens = tokens();
    let mut server = serve(own_address(1), &tokens);
    let (address, public) = (server.local_addr(), ServerKey::from_bytes([7; 32]).public());
    let own = "127.0.0.1:0".parse().expect("an address");
    let mut bots = Client::new(back_within(30).connections(60).address(own)).expect("a socket");
    let mut names: HashMap<PeerId, u128> = HashMap::new();
    for player in 0..BOTS {
        let token = TokenRequest::new(PlayerId(player), address, public).issue(&tokens).expect("a token");
        names.insert(bots.connect(&token).expect("room"), player);
    }
    let mut players = Vec::new();
    until("all have a resume token", || {
        echo(&mut server, &mut players);
        bots.polled().for_each(|event| assert!(matches!(event, Event::Connected { .. }), "{event:?}"));
        names.keys().all(|peer| bots.resume_token(*peer).is_some())
    });
    shut_down_for_restart(server);
    let mut server = serve(address, &tokens);
    let (mut lost, mut back, mut heard) = (0, 0, HashMap::new());
    players.clear();
    until("all are back and were answered", || {
        echo(&mut server, &mut players);
        bots.poll(Duration::ZERO);
        while let Some(event) = bots.next_event() {
            match event {
                Event::Reconnecting { peer, reason, attempt: 1, .. } => {
                    assert!(matches!(reason, ReconnectReason::Ended(closed) if closed.reason == ANNOUNCED));
                    assert!(names.contains_key(&peer));
                    lost += 1;
                    let early = bots.send(peer, Message::unreliable(ChannelId(0), "x"));
                    assert_eq!(early, Err(SendError::NotConnected));
                }
                Event::Connected { peer, .. } => {
                    back += u128::from(names.contains_key(&peer));
                    let text = names[&peer].to_string();
                    bots.send(peer, Message::reliable_ordered(ChannelId(0), text)).expect("room");
                }
                Event::Message { peer, payload, .. } => {
                    heard.insert(names[&peer], payload);
                }
                event => panic!("{event:?}"),
            }
        }
        heard.len() as u128 == BOTS
    });
    assert_eq!((lost, back), (BOTS, BOTS));
    assert!(heard.iter().all(|(player, bytes)| *bytes == player.to_string()), "{heard:?}");
    players.sort_unstable();
    assert!(players.into_iter().eq(0..BOTS));
}

#[test]
fn a_connection_that_cannot_be_established_again_ends_once() {
    let tokens = tokens();
    let mut server = serve(own_address(2), &tokens);
    let (address, public) = (server.local_addr(), ServerKey::from_bytes([7; 32]).public());
    let own = "127.0.0.1:0".parse().expect("an address");
    let mut bots = Client::new(back_within(1).connections(1).address(own)).expect("a socket");
    let token = TokenRequest::new(PlayerId(1), address, public).issue(&tokens).expect("a token");
    let peer = bots.connect(&token).expect("room");
    until("it is connected", || {
        echo(&mut server, &mut Vec::new());
        bots.polled().count() > 0
    });
    shut_down_for_restart(server);
    let (mut heard, mut refused) = (Vec::new(), 0);
    until("it gave up", || {
        bots.poll(Duration::from_millis(100));
        heard.extend(bots.polled());
        if let Some(Event::Reconnecting { .. }) = heard.last() {
            let sent = bots.send(peer, Message::reliable_ordered(ChannelId(0), "too early"));
            refused += u32::from(sent == Err(SendError::NotConnected));
        }
        matches!(heard.last(), Some(Event::Disconnected { .. }))
    });
    let [between @ .., Event::Disconnected { peer: last, closed }] = &heard[..] else { panic!("{heard:?}") };
    assert!(between.iter().all(|event| matches!(event, Event::Reconnecting { .. })), "{heard:?}");
    assert!(between.iter().all(|event| event.peer() == peer), "{heard:?}");
    assert!(!between.is_empty() && refused > 0);
    let sent = bots.send(peer, Message::reliable_ordered(ChannelId(0), "too late"));
    assert_eq!(sent, Err(SendError::UnknownPeer));
    assert_eq!((*last, closed.reason), (peer, ANNOUNCED));
    assert_eq!(closed.reconnect_error, Some(ConnectError::Timeout));
    assert!(bots.connect((address, public)).is_ok(), "its place is free");
}

/// A handler that keeps its events, and sends a message with each connection.
struct Keeper(Arc<Mutex<Vec<Event>>>);

impl Handler for Keeper {
    type Note = ();

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        if let Event::Connected { peer, .. } | Event::Reconnecting { peer, .. } = event {
            let sent = context.send_with_receipt(peer, Message::reliable_ordered(ChannelId(0), "here"));
            assert_eq!(sent.is_ok(), matches!(event, Event::Connected { .. }), "{sent:?}");
        }
        self.0.lock().unwrap().push(event);
    }

    fn on_message(&mut self, _: &mut Context<'_>, peer: PeerId, channel: ChannelId, payload: &[u8]) {
        let payload = payload.to_vec().into();
        self.0.lock().unwrap().push(Event::Message { peer, channel, payload });
    }
}

#[test]
fn connections_of_a_handler_reconnect_under_their_ids() {
    let tokens = tokens();
    let mut server = serve(own_address(4), &tokens);
    let (address, public) = (server.local_addr(), ServerKey::from_bytes([7; 32]).public());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let own = "127.0.0.1:0".parse().expect("an address");
    let mut bots =
        handler::Client::new(back_within(30).connections(9).address(own), Keeper(Arc::clone(&heard)))
            .unwrap();
    let mut ids = BTreeSet::new();
    for player in 0..9 {
        let token = TokenRequest::new(PlayerId(player), address, public).issue(&tokens).expect("a token");
        ids.insert(bots.connect(&token).expect("room"));
    }
    let mut players = Vec::new();
    let answers = |heard: &Mutex<Vec<Event>>| {
        let heard = heard.lock().unwrap();
        heard.iter().filter(|event| matches!(event, Event::Message { .. })).count()
    };
    until("all were answered", || {
        echo(&mut server, &mut players);
        bots.poll(Duration::from_millis(1));
        answers(&heard) == 9
    });
    shut_down_for_restart(server);
    let mut server = serve(address, &tokens);
    until("all were answered again", || {
        echo(&mut server, &mut players);
        bots.poll(Duration::from_millis(1));
        answers(&heard) == 18
    });
    let heard = heard.lock().unwrap();
    assert!(heard.iter().all(|event| ids.contains(&event.peer())), "{heard:?}");
    for id in ids {
        let of_peer = |event: &&Event| event.peer() == id && matches!(event, Event::Connected { .. });
        assert_eq!(heard.iter().filter(of_peer).count(), 2);
    }
    players.sort_unstable();
    let expected: Vec<u128> = (0..9).flat_map(|player| [player; 2]).collect();
    assert_eq!(players, expected, "each reconnected as its own player");
}

#[test]
fn a_client_that_blocks_in_poll_reconnects_on_time() {
    let tokens = tokens();
    let mut server = serve(own_address(3), &tokens);
    let (address, public) = (server.local_addr(), ServerKey::from_bytes([7; 32]).public());
    let token = TokenRequest::new(PlayerId(1), address, public).issue(&tokens).expect("a token");
    let mut client = connect(&token, &back_within(30)).expect("a client");
    until("it can come back", || {
        echo(&mut server, &mut Vec::new());
        client.polled().for_each(drop);
        client.resume_token(client.server()).is_some()
    });
    shut_down_for_restart(server);
    let server = serve(address, &tokens);
    // Only `poll` runs the client, and each call waits until there are events.
    let mut heard = Vec::new();
    until("it is back", || {
        assert!(client.poll(PATIENCE), "an event arrives within a minute");
        heard.extend(client.polled());
        client.is_up()
    });
    let [Event::Reconnecting { .. }, Event::Connected { .. }] = &heard[..] else { panic!("{heard:?}") };
    drop(server);
}

#[test]
fn a_redirected_client_connects_from_another_socket() {
    let tokens = tokens();
    let (mut full, mut free) = (serve(own_address(5), &tokens), serve(own_address(6), &tokens));
    let (address, public) = (full.local_addr(), ServerKey::from_bytes([7; 32]).public());
    full.control().close_gate(Some(free.local_addr()));
    let token = TokenRequest::new(PlayerId(1), address, public).issue(&tokens).expect("a token");
    let mut client = connect(&token, &back_within(60)).expect("a client");
    let mut heard = Vec::new();
    until("it is connected", || {
        for server in [&mut full, &mut free] {
            echo(server, &mut Vec::new());
        }
        client.poll(Duration::from_millis(1));
        heard.extend(client.events());
        client.is_up()
    });
    let [Event::Reconnecting { peer, .. }, Event::Connected { peer: same, info }] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!((peer, info.address), (same, free.local_addr()));
    until("a token for the other server came", || {
        echo(&mut free, &mut Vec::new());
        client.poll(Duration::from_millis(1));
        client.resume_token(client.server()).is_some()
    });
    assert_eq!(client.resume_token(client.server()).map(|token| token.address()), Some(free.local_addr()));
    client.rebind().expect("a socket");
    client.send_up(Message::reliable_ordered(ChannelId(0), "still there")).expect("room");
    until("the other server echoed", || {
        echo(&mut free, &mut Vec::new());
        client.poll(Duration::from_millis(1));
        client.events().any(|event| matches!(event, Event::Message { .. }))
    });
}
