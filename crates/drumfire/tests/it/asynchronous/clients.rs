//! Async clients: many connections over one socket, refused attempts, and players that resume their session.

use std::net::UdpSocket;
use std::pin::pin;

use drumfire::error::RefuseReason;
use drumfire::tokens::{TokenAccess, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, ClientConfig, CloseReason, ConnectError, Error, Event, Message, PlayerId, SendError,
    ServerConfig, ServerKey, asynchronous,
};

use super::world::{
    CHANNEL, PATIENCE, accept, config, connect, message, number_of, numbered, open, open_dev, soon,
};

fn many(count: u32) -> asynchronous::Client {
    asynchronous::Client::new(ClientConfig::default().connections(count)).unwrap()
}

#[tokio::test]
async fn connections_over_one_socket_receive_their_own_messages() {
    let server = asynchronous::Server::bind(config()).unwrap();
    let clients = many(40);
    let (mut bots, mut address) = (Vec::new(), None);
    for number in 0..40 {
        let bot = clients.connect((server.local_addr(), ServerKey::dev().public()));
        let bot = soon("connect", bot).await.unwrap();
        let at_server = accept(&server).await;
        assert_eq!(at_server.info().address, *address.get_or_insert(at_server.info().address));
        for part in 0..20 {
            let message = numbered(number * 20 + part, 300);
            at_server.send(Message::reliable_ordered(CHANNEL, message)).await.unwrap();
        }
        bots.push((bot, at_server));
    }
    for (number, (bot, _)) in (0..).zip(&bots) {
        for part in 0..20 {
            assert_eq!(number_of(&message(bot).await), number * 20 + part);
        }
    }
    // The end of one connection affects no other, and makes room for a new one.
    let (gone, at_server) = bots.swap_remove(7);
    drop(gone);
    soon("the end", at_server.closed()).await;
    let again = async {
        loop {
            match clients.connect((server.local_addr(), ServerKey::dev().public())).await {
                Err(Error::Connect(ConnectError::TooManyConnections)) => {}
                other => break other.unwrap(),
            }
        }
    };
    let again = soon("another one", again).await;
    again.send(Message::reliable_ordered(CHANNEL, "again")).await.unwrap();
    assert_eq!(message(&accept(&server).await).await, "again");
    let (bot, at_server) = bots.first().unwrap();
    // Connections outlive the `Clients` that created them.
    drop(clients);
    bot.send(Message::reliable_ordered(CHANNEL, "still here")).await.unwrap();
    assert_eq!(message(at_server).await, "still here");
}

#[tokio::test]
async fn failed_attempts_have_a_reason() {
    let server = asynchronous::Server::bind(config().connections(1)).unwrap();
    let _first = soon("connect", open_dev(server.local_addr())).await.unwrap();
    let full = soon("the refusal", open_dev(server.local_addr())).await.err().unwrap();
    let reason = |error| match error {
        Error::Connect(ConnectError::Refused(refusal)) => Some(refusal.reason),
        _ => None,
    };
    assert_eq!(reason(full), Some(RefuseReason::Full));

    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = open_dev(nobody.local_addr().unwrap());
    let silent = soon("the timeout", silent).await.err();
    assert!(matches!(silent, Some(Error::Connect(ConnectError::Timeout))), "{silent:?}");

    let tight = ClientConfig::default().memory_bytes(1, 1);
    let refused = open((server.local_addr(), ServerKey::dev().public()), &tight).await;
    assert!(matches!(refused, Err(Error::Setting { .. })));
}

#[tokio::test]
async fn a_player_resumes_with_a_token_after_the_connection_ended() {
    let master = TokenMasterKey::generate().unwrap();
    let token_key = || master.token_key(1, "eu").unwrap();
    let server_key = ServerKey::generate().unwrap();
    let public = server_key.public();
    let config = ServerConfig::new(
        "127.0.0.1:0".parse().unwrap(),
        server_key,
        Access::Token(TokenAccess::new(token_key())),
    );
    let server = asynchronous::Server::bind(config).unwrap();
    let request = TokenRequest::new(PlayerId(77), server.local_addr(), public).user_data(b"red");
    let token = request.issue(&token_key()).unwrap();
    let settings = ClientConfig::default();
    let first = soon("connect", open(&token, &settings)).await.unwrap();
    let at_server = accept(&server).await;
    let info = at_server.info();
    assert_eq!((info.player, &info.user_data[..]), (Some(PlayerId(77)), &b"red"[..]));
    let resume = soon("a token to come back with", async {
        loop {
            if let Some(token) = first.resume_token().await {
                break token;
            }
        }
    })
    .await;
    at_server.close(1, "");
    soon("the end", first.closed()).await;
    assert!(first.resume_token().await.is_some(), "the first request asks the worker for it");
    assert!(at_server.resume_token().await.is_none());
    let second = soon("connect", open(&resume, &settings)).await;
    let _second = second.unwrap();
    assert_eq!(accept(&server).await.info().player, Some(PlayerId(77)));
}

#[tokio::test]
async fn invalidating_keys_ends_all_connections_and_attempts() {
    const INVALIDATED: CloseReason = CloseReason::KeysInvalidated;
    let server = asynchronous::Server::bind(config()).unwrap();
    let (clients, key) = (many(3), ServerKey::dev().public());
    let mut bots = Vec::new();
    for _ in 0..2 {
        bots.push(soon("connect", clients.connect((server.local_addr(), key))).await.unwrap());
    }
    let at_server = [accept(&server).await, accept(&server).await];
    // The attempt is in progress when its Hello arrives at this socket, which never answers.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut attempt = pin!(clients.connect((silent.local_addr().unwrap(), key)));
    tokio::select! {
        biased;
        connected = &mut attempt => panic!("{connected:?}"),
        () = std::future::ready(()) => silent.recv(&mut [0; 2_048]).map(drop).unwrap(),
    }
    clients.invalidate_keys().unwrap();
    for bot in &bots {
        assert_eq!(soon("the end", bot.closed()).await.reason, INVALIDATED);
        let late = bot.try_send(Message::reliable_ordered(CHANNEL, "late"));
        assert_eq!(late, Err(SendError::Closed));
    }
    let attempt = soon("the attempt", attempt).await;
    assert!(matches!(attempt, Err(Error::Connect(ConnectError::KeysInvalidated))));
    let again = soon("connect", clients.connect((server.local_addr(), key))).await.unwrap();
    again.send(Message::reliable_ordered(CHANNEL, "again")).await.unwrap();
    assert_eq!(message(&accept(&server).await).await, "again");
    assert!(
        at_server.iter().all(|connection| connection.try_recv() == Ok(None)),
        "the server was not informed"
    );
}

#[tokio::test]
async fn a_client_that_invalidates_its_keys_ends_and_can_be_replaced() {
    let server = asynchronous::Server::bind(config()).unwrap();
    let client = connect(&server).await;
    let at_server = accept(&server).await;
    client.invalidate_keys().unwrap();
    assert_eq!(soon("the end", client.closed()).await.reason, CloseReason::KeysInvalidated);
    client.invalidate_keys().unwrap();
    let next = connect(&server).await;
    next.send(Message::reliable_ordered(CHANNEL, "next")).await.unwrap();
    assert_eq!(message(&accept(&server).await).await, "next");
    assert_eq!(at_server.try_recv(), Ok(None), "the server was not informed");
}

#[tokio::test]
async fn connections_continue_from_another_socket() {
    let server = asynchronous::Server::bind(config()).unwrap();
    for count in [1, 2] {
        let clients = many(count);
        clients.rebind().unwrap();
        let client = clients.connect((server.local_addr(), ServerKey::dev().public()));
        let client = soon("connect", client).await.unwrap();
        let at_server = accept(&server).await;
        for round in 0..3 {
            clients.rebind().unwrap();
            client.send(Message::reliable_ordered(CHANNEL, numbered(round, 100))).await.unwrap();
            let event = soon("the client's own address", client.next_event()).await.unwrap();
            assert!(matches!(event, Event::PathChanged { .. }), "{event:?}");
            // The ping that shows the new address can be faster than the message.
            let (mut has_moved, mut has_message) = (false, false);
            while !(has_moved && has_message) {
                match soon("the message and the address", at_server.next_event()).await.unwrap() {
                    Event::PathChanged { .. } => has_moved = true,
                    Event::Message { payload, .. } => has_message = number_of(&payload) == round,
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn a_client_connects_again_after_the_end() {
    let (one, other) =
        (asynchronous::Server::bind(config()).unwrap(), asynchronous::Server::bind(config()).unwrap());
    let client = many(1);
    for server in [&one, &other, &one] {
        let to = (server.local_addr(), ServerKey::dev().public());
        let connection = soon("connect", client.connect(to)).await.unwrap();
        let full = client.connect(to).await.err();
        assert!(matches!(full, Some(Error::Connect(ConnectError::TooManyConnections))), "{full:?}");
        let at_server = accept(server).await;
        connection.close(3, "next");
        soon("the end", connection.closed()).await;
        assert_eq!(soon("the close", at_server.closed()).await.text, "next");
    }
}
