//! Connections of tasks that outlive a restart of their server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use drumfire::asynchronous::Connection;
use drumfire::error::CloseCode;
use drumfire::{
    Access, ClientConfig, CloseReason, Event, Message, Outcome, Reconnect, ReconnectReason, SendError,
    ServerConfig, ServerKey, Workers, asynchronous,
};

use super::world::{CHANNEL, accept, message, open, soon};
use crate::server::own_address::own_address;

const ANNOUNCED: CloseReason = CloseReason::Remote { code: CloseCode::Shutdown, application_code: 1 };

fn config() -> ClientConfig {
    ClientConfig::default().reconnect(Reconnect::Within(Duration::from_secs(60)))
}

/// The receive memory of a server, in messages of 1,000 bytes.
const RECEIVED_MAX: usize = 66;

fn serve(address: SocketAddr) -> asynchronous::Server {
    let config = ServerConfig::new(address, ServerKey::dev(), Access::Open).workers(Workers::Count(1));
    asynchronous::Server::bind(config.memory_bytes(256 * 1_024, RECEIVED_MAX * 1_000)).unwrap()
}

/// Connects with a socket of its own, or with one that many connections share.
async fn connect(server: &asynchronous::Server, has_own_socket: bool) -> Connection {
    let to = (server.local_addr(), ServerKey::dev().public());
    if has_own_socket {
        return soon("connect", open(to, &config())).await.unwrap();
    }
    let clients = asynchronous::Client::new(config().connections(9)).unwrap();
    soon("connect", clients.connect(to)).await.unwrap()
}

/// Shuts down a server for a restart, and returns its address.
async fn stop(server: asynchronous::Server) -> SocketAddr {
    let address = server.local_addr();
    soon("the shutdown", server.control().shut_down_for_restart(Duration::ZERO)).await;
    address
}

fn reliable(payload: impl Into<drumfire::Bytes>) -> Message {
    Message::reliable_ordered(CHANNEL, payload)
}

#[tokio::test]
async fn a_connection_outlives_a_restart_of_its_server() {
    for (has_own_socket, number) in [(true, 11), (false, 12)] {
        let mut server = serve(own_address(number));
        let client = connect(&server, has_own_socket).await;
        let mut at_server = accept(&server).await;
        let peer = client.peer();
        for round in 0_u32..3 {
            at_server.send(reliable(format!("before {round}"))).await.unwrap();
            let sent = client.send_with_receipt(reliable("x")).await.unwrap();
            assert_eq!(soon("the receipt", sent).await, Outcome::Acknowledged);
            // The server shuts down when its message was acknowledged, so the message is in the inbox or on its way to it.
            let address = stop(server).await;
            let first = soon("the message", client.next_event()).await.unwrap();
            assert!(matches!(first, Event::Message { payload, .. } if payload == format!("before {round}")));
            let lost = soon("the loss", client.next_event()).await.unwrap();
            let Event::Reconnecting { peer: same, reason: ReconnectReason::Ended(closed), .. } = lost else {
                panic!("{lost:?}")
            };
            assert_eq!((same, closed.reason), (peer, ANNOUNCED));
            assert_eq!(client.try_send(reliable("early")), Err(SendError::NotConnected));
            assert_eq!(client.send(reliable("early")).await, Err(SendError::NotConnected));
            server = serve(address);
            // The request waits for the next connection.
            let stats = soon("statistics", client.stats()).await.unwrap();
            assert!(stats.packets_sent < 10, "the stats are those of the new connection");
            let mut event = soon("the connection", client.next_event()).await.unwrap();
            while matches!(event, Event::Reconnecting { .. }) {
                event = soon("the connection", client.next_event()).await.unwrap();
            }
            assert!(matches!(event, Event::Connected { peer: same, .. } if same == peer));
            at_server = accept(&server).await;
            client.send(reliable("after")).await.unwrap();
            assert_eq!(message(&at_server).await, "after");
        }
        drop(client);
        soon("the end", at_server.closed()).await;
    }
}

#[tokio::test]
async fn receipts_and_receive_memory_belong_to_one_connection() {
    let server = serve(own_address(13));
    let client = connect(&server, true).await;
    let at_server = accept(&server).await;
    // The server takes nothing, so most of these are never acknowledged, and the last ones wait for room.
    let (sending, sent) = (client.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&sent);
    let sender = tokio::spawn(async move {
        let mut receipts = Vec::new();
        loop {
            match sending.send_with_receipt(reliable(vec![7; 1_000])).await {
                Ok(receipt) => receipts.push(receipt),
                Err(error) => return (receipts, error),
            }
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    while sent.load(Ordering::Relaxed) < 2 * RECEIVED_MAX {
        tokio::task::yield_now().await;
    }
    // The client takes nothing either, so its receive memory is full when the connection ends.
    while at_server.try_send(reliable(vec![8; 1_000])) != Err(SendError::Full) {
        tokio::task::yield_now().await;
    }
    let address = stop(server).await;
    let (receipts, error) = soon("the loss", sender).await.unwrap();
    assert_eq!(error, SendError::NotConnected);
    let mut lost = 0;
    for receipt in receipts {
        lost += usize::from(soon("an outcome", receipt).await == Outcome::Lost);
    }
    assert!(lost >= RECEIVED_MAX, "{lost}");
    let server = serve(address);
    let at_server = accept(&server).await;
    let mut old = 0;
    loop {
        match soon("an event", client.next_event()).await.unwrap() {
            Event::Message { .. } => old += 1,
            Event::Connected { .. } => break,
            _ => {}
        }
    }
    assert!(old > 0);
    // The new connection has its whole memory, and messages flow in both directions.
    for number in 0_u32..3_000 {
        at_server.send(reliable(number.to_be_bytes().to_vec())).await.unwrap();
        client.send(reliable(number.to_be_bytes().to_vec())).await.unwrap();
        assert_eq!(message(&at_server).await, number.to_be_bytes()[..]);
        assert_eq!(message(&client).await, number.to_be_bytes()[..]);
    }
}

#[tokio::test]
async fn a_close_while_reconnecting_ends_the_connection() {
    let server = serve(own_address(14));
    let client = connect(&server, false).await;
    stop(server).await;
    while !matches!(soon("the loss", client.next_event()).await, Ok(Event::Reconnecting { .. })) {}
    client.close(9, "enough");
    let closed = soon("the end", client.closed()).await;
    let reason = CloseReason::Local { code: CloseCode::Application, application_code: 9 };
    assert_eq!((closed.reason, &closed.text[..]), (reason, &b"enough"[..]));
    assert_eq!(client.send(reliable("late")).await, Err(SendError::Closed));
}
