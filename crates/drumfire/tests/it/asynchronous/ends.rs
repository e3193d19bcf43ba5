//! The end of connections and servers: its reason comes last, and to every task that waits.

use crate::server::world::Polled;
use std::time::Duration;

use drumfire::config::CLOSE_TEXT_MAX_BYTES;
use drumfire::error::CloseCode;
use drumfire::{CloseReason, Error, Event, Message, SendError, ServerKey, Workers, asynchronous};

use super::world::{CHANNEL, Pair, accept, config, connect, message, number_of, numbered, soon};
use crate::single::{Single as _, connect_dev};

fn remote(code: CloseCode, application_code: u32) -> CloseReason {
    CloseReason::Remote { code, application_code }
}

fn local(code: CloseCode, application_code: u32) -> CloseReason {
    CloseReason::Local { code, application_code }
}

#[tokio::test]
async fn the_end_follows_all_messages_and_keeps_its_reason() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let mut receipts = Vec::new();
    for number in 0..50 {
        let sent = client.send_with_receipt(Message::reliable_ordered(CHANNEL, numbered(number, 500)));
        receipts.push(sent.await.unwrap());
    }
    for receipt in receipts {
        soon("a receipt", receipt).await;
    }
    client.close(42, "good night");
    let closed = soon("the end", at_server.closed()).await;
    assert_eq!((closed.reason, &closed.text[..]), (remote(CloseCode::Application, 42), &b"good night"[..]));
    for number in 0..50 {
        assert_eq!(number_of(&message(&at_server).await), number);
    }
    for _ in 0..3 {
        assert_eq!(at_server.recv().await, Err(closed.clone()));
        assert_eq!(at_server.try_recv(), Err(closed.clone()));
    }
    assert_eq!(soon("the end", client.recv()).await.unwrap_err().reason, local(CloseCode::Application, 42));
    let late = at_server.send(Message::reliable_ordered(CHANNEL, "late")).await;
    assert_eq!(late, Err(SendError::Closed));
    at_server.close(1, "");
}

#[tokio::test]
async fn every_waiting_task_receives_the_end() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let connection = at_server.clone();
            tokio::spawn(async move {
                if number % 2 == 0 { connection.closed().await } else { connection.recv().await.unwrap_err() }
            })
        })
        .collect();
    // This task waits for room, because no task receives its messages.
    let mouth = at_server.clone();
    let sending = tokio::spawn(async move {
        loop {
            if let Err(error) = mouth.send(Message::reliable_ordered(CHANNEL, numbered(0, 2_000))).await {
                break error;
            }
        }
    });
    while at_server.try_send(Message::reliable_ordered(CHANNEL, numbered(0, 2_000))).is_ok() {
        tokio::task::yield_now().await;
    }
    client.close(5, "");
    for task in tasks {
        assert_eq!(soon("the end", task).await.unwrap().reason, remote(CloseCode::Application, 5));
    }
    assert_eq!(soon("the sender's end", sending).await.unwrap(), SendError::Closed);
}

#[tokio::test]
async fn dropping_the_last_handle_sends_queued_messages_and_closes() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let clone = client.clone();
    drop(client);
    clone.send(Message::reliable_ordered(CHANNEL, "still here")).await.unwrap();
    assert_eq!(message(&at_server).await, "still here");
    clone.send(Message::reliable_ordered(CHANNEL, "and gone")).await.unwrap();
    drop(clone);
    assert_eq!(message(&at_server).await, "and gone");
    let closed = soon("the end", at_server.recv()).await.unwrap_err();
    assert_eq!(closed.reason, remote(CloseCode::Application, 0));
}

#[tokio::test]
async fn a_dropped_connection_of_a_server_is_closed_for_its_client() {
    let Pair { server, client, at_server } = Pair::new(config()).await;
    drop(at_server);
    let closed = soon("the end", client.recv()).await.unwrap_err();
    assert_eq!(closed.reason, remote(CloseCode::Application, 0));
    let again = connect(&server).await;
    let at_server = accept(&server).await;
    again.send(Message::reliable_ordered(CHANNEL, "the next one")).await.unwrap();
    assert_eq!(message(&at_server).await, "the next one");
}

#[tokio::test]
async fn a_dropped_server_ends_all_connections_at_both_ends() {
    let Pair { server, client, at_server } = Pair::new(config()).await;
    let waiting = at_server.clone();
    let waiting = tokio::spawn(async move { waiting.recv().await });
    drop(server);
    assert_eq!(soon("the end", waiting).await.unwrap().unwrap_err().reason, local(CloseCode::Shutdown, 0));
    assert_eq!(soon("the end", at_server.recv()).await.unwrap_err().reason, local(CloseCode::Shutdown, 0));
    assert_eq!(soon("the end", client.recv()).await.unwrap_err().reason, remote(CloseCode::Shutdown, 0));
    let late = at_server.send(Message::reliable_ordered(CHANNEL, "late")).await;
    assert_eq!(late, Err(SendError::Closed));
    at_server.stats().await.unwrap_err();
}

#[tokio::test]
async fn a_closed_server_accepts_queued_connections_and_no_others() {
    let server = std::sync::Arc::new(asynchronous::Server::bind(config()).unwrap());
    let accepting = tokio::spawn({
        let server = std::sync::Arc::clone(&server);
        async move {
            let mut accepted = Vec::new();
            while let Some(connection) = server.accept().await {
                accepted.push(connection);
            }
            accepted.len()
        }
    });
    let first = connect(&server).await;
    let second = connect(&server).await;
    for client in [&first, &second] {
        let receipt = client.send_with_receipt(Message::reliable_ordered(CHANNEL, "here")).await;
        soon("the receipt", receipt.unwrap()).await;
    }
    assert_eq!(soon("the shutdown", server.control().shut_down(Duration::ZERO)).await, []);
    assert_eq!(soon("the end", accepting).await.unwrap(), 2);
    assert!(soon("the end of the server", server.accept()).await.is_none());
    assert_eq!(soon("the end", first.recv()).await.unwrap_err().reason, remote(CloseCode::Shutdown, 0));
    soon("the end", second.closed()).await;
}

#[tokio::test]
async fn the_default_number_of_threads_does_not_keep_settings_from_changing() {
    let settings = config().workers(Workers::Inline);
    let server = asynchronous::Server::bind(settings.clone()).unwrap();
    server.control().reconfigure(&settings.connections(100)).unwrap();
}

#[tokio::test]
async fn messages_of_a_client_that_left_early_are_received() {
    let server = asynchronous::Server::bind(config()).unwrap();
    let client = connect(&server).await;
    let receipt = client.send_with_receipt(Message::reliable_ordered(CHANNEL, "I was here"));
    soon("the receipt", receipt.await.unwrap()).await;
    client.close(9, "");
    while server.control().stats().workers[0].protocol.connections_closed == 0 {
        tokio::task::yield_now().await;
    }
    let at_server = accept(&server).await;
    assert_eq!(message(&at_server).await, "I was here");
    assert_eq!(at_server.recv().await.unwrap_err().reason, remote(CloseCode::Application, 9));
}

#[tokio::test]
async fn the_queue_keeps_the_newest_ended_connections() {
    const KEPT: u32 = 256;
    let server = asynchronous::Server::bind(config()).unwrap();
    let staying = connect(&server).await;
    staying.send(Message::reliable_ordered(CHANNEL, "staying")).await.unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let clients = drumfire::asynchronous::Client::new(
        drumfire::ClientConfig::default().connections(1_000).address(address),
    )
    .unwrap();
    for number in 0..KEPT + 10 {
        let client = clients.connect((server.local_addr(), ServerKey::dev().public()));
        let client = soon("connect", client).await.unwrap();
        client.close(number, "");
    }
    soon("all are gone", async {
        while server.control().stats().workers[0].connections_unaccepted < 10 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.control().stats().workers[0].connections_unaccepted, 10);
    assert_eq!(message(&accept(&server).await).await, "staying", "an open connection stays in the queue");
    for number in 10..KEPT + 10 {
        let closed = accept(&server).await.recv().await.unwrap_err();
        assert_eq!(closed.reason, remote(CloseCode::Application, number));
    }
}

#[tokio::test]
async fn a_close_text_over_the_limit_is_cut() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let text = "x".repeat(CLOSE_TEXT_MAX_BYTES + 1);
    client.close(1, &text);
    assert_eq!(soon("the end", at_server.recv()).await.unwrap_err().text, text[1..]);
}

#[tokio::test]
async fn a_bad_setting_is_named() {
    let refused = asynchronous::Server::bind(config().memory_bytes(1, 1)).unwrap_err();
    assert!(matches!(refused, Error::Setting { .. }), "{refused}");
}

#[tokio::test]
async fn clients_of_other_interfaces_are_served() {
    let server = asynchronous::Server::bind(config()).unwrap();
    let address = server.local_addr();
    let ticking = std::thread::spawn(move || {
        let mut client = connect_dev(address).unwrap();
        client.send_up(Message::reliable_ordered(CHANNEL, "tick")).unwrap();
        let mut answer = None;
        while !client.is_over() {
            client.poll(Duration::from_millis(1));
            while let Some(event) = client.next_event() {
                if let Event::Message { payload, .. } = event {
                    client.close(client.server(), 1, "");
                    answer = Some(payload);
                }
            }
        }
        answer
    });
    let connection = accept(&server).await;
    let Ok((channel, payload)) = connection.recv().await else { panic!("a message") };
    connection.send(Message::reliable_ordered(channel, payload)).await.unwrap();
    soon("the end", connection.closed()).await;
    assert_eq!(ticking.join().unwrap().unwrap(), "tick");
}

#[tokio::test]
async fn a_broken_connection_has_a_flight_record() {
    let brief = Duration::from_secs(3);
    let server = asynchronous::Server::bind(config().timeouts(brief, brief).flight_recorder(true)).unwrap();
    let mut client = connect_dev(server.local_addr()).unwrap();
    while !client.is_up() {
        client.poll(Duration::from_millis(1));
        client.polled().for_each(drop);
    }
    client.send_up(Message::reliable_ordered(CHANNEL, "hello")).unwrap();
    client.flush();
    let connection = accept(&server).await;
    assert_eq!(message(&connection).await, "hello");
    // The client is not polled, so it acknowledges nothing.
    connection.send(Message::reliable_ordered(CHANNEL, "are you there?")).await.unwrap();
    let event = soon("the record", connection.next_event()).await.unwrap();
    let Event::FlightRecord { record, .. } = event else { panic!("{event:?}") };
    let closed = soon("the end", connection.next_event()).await.unwrap_err();
    assert!(matches!(closed.reason, CloseReason::IdleTimeout | CloseReason::Unacknowledged), "{closed}");
    assert_eq!((record.is_server, record.reason), (true, Some(closed.reason)));
}
