//! Echoed messages, with different numbers of workers and on several executors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use drumfire::asynchronous::Connection;
use drumfire::error::CloseCode;
use drumfire::{CloseReason, Message, Workers, asynchronous};

use super::world::{CHANNEL, Pair, accept, config, connect, message, number_of, numbered, open_dev, soon};

/// Echoes all messages until the connection ends. Returns the reason of the end.
async fn echo(connection: Connection) -> CloseReason {
    loop {
        match connection.recv().await {
            Ok((channel, payload)) => {
                // `recv` reports the end, so an error of `send` is ignored.
                let _ = connection.send(Message::reliable_ordered(channel, payload)).await;
            }
            Err(closed) => return closed.reason,
        }
    }
}

/// Sends `count` messages of up to 3,000 bytes, and receives their echoes at the same time.
async fn talk(connection: &Connection, count: u32) {
    let sending = async {
        for number in 0..count {
            let message = numbered(number, usize::try_from(number % 3_000).unwrap());
            connection.send(Message::reliable_ordered(CHANNEL, message)).await.unwrap();
        }
    };
    let receiving = async {
        for number in 0..count {
            let wanted = numbered(number, usize::try_from(number % 3_000).unwrap());
            assert_eq!(message(connection).await, wanted);
        }
    };
    tokio::join!(sending, receiving);
}

async fn echoes(workers: Workers) {
    let server = asynchronous::Server::bind(config().workers(workers)).unwrap();
    let address = server.local_addr();
    let clients: Vec<_> = (0..6)
        .map(|_| {
            tokio::spawn(async move {
                let connection = open_dev(address).await.unwrap();
                assert_eq!((connection.info().address, connection.info().player), (address, None));
                soon("the echoes", talk(&connection, 1_000)).await;
                connection.close(3, "done");
            })
        })
        .collect();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(tokio::spawn(echo(accept(&server).await)));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(server.control().stats().unexplained(), 0);
    // A client's Close packet can be lost under this load. Such a session ends with the shutdown of the server.
    drop(server);
    for session in sessions {
        let reason = soon("the end", session).await.unwrap();
        let is_known = matches!(
            reason,
            CloseReason::Remote { application_code: 3, .. }
                | CloseReason::Local { code: CloseCode::Shutdown, .. }
        );
        assert!(is_known, "{reason:?}");
    }
}

#[tokio::test]
async fn one_worker_echoes_all_messages() {
    echoes(Workers::Count(1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_echo_all_messages_to_tasks_on_several_threads() {
    // Several workers share one port, which not every platform supports.
    if drumfire_socket::ReuseportGroup::MAX_SOCKETS > 1 {
        echoes(Workers::Count(2)).await;
    }
}

#[tokio::test]
async fn a_server_without_threads_of_the_configuration_has_one() {
    echoes(Workers::Inline).await;
}

#[test]
fn no_tokio_runtime_is_needed() {
    let server = asynchronous::Server::bind(config()).unwrap();
    let address = server.local_addr();
    let session = std::thread::spawn(move || {
        pollster::block_on(async {
            let connection = server.accept().await.unwrap();
            echo(connection).await
        })
    });
    pollster::block_on(async {
        let connection = open_dev(address).await.unwrap();
        for number in 0..100 {
            connection.send(Message::reliable_ordered(CHANNEL, numbered(number, 100))).await.unwrap();
        }
        for number in 0..100 {
            let Ok((_, payload)) = connection.recv().await else { panic!("a message") };
            assert_eq!(number_of(&payload), number);
        }
    });
    assert!(matches!(session.join().unwrap(), CloseReason::Remote { application_code: 0, .. }));
}

#[tokio::test]
async fn connections_are_accepted_in_order_of_arrival() {
    let server = asynchronous::Server::bind(config()).unwrap();
    let mut clients = Vec::new();
    for number in 0..20 {
        let client = connect(&server).await;
        // After the receipt, the server has completed the handshake too, and not only the client.
        let sent = client.send_with_receipt(Message::reliable_ordered(CHANNEL, numbered(number, 4)));
        soon("the receipt", sent.await.unwrap()).await;
        clients.push(client);
    }
    for number in 0..20 {
        assert_eq!(number_of(&message(&accept(&server).await).await), number);
    }
}

#[tokio::test]
async fn tasks_share_a_connection_and_each_message_goes_to_one() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let count = Arc::new(AtomicU32::new(0));
    let ears: Vec<_> = (0..4)
        .map(|_| {
            let (ear, count) = (at_server.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let mut heard = Vec::new();
                while let Ok((_, payload)) = ear.recv().await {
                    heard.push(number_of(&payload));
                    count.fetch_add(1, Ordering::Relaxed);
                }
                heard
            })
        })
        .collect();
    let mouths: Vec<_> = (0..4)
        .map(|mouth| {
            let client = client.clone();
            tokio::spawn(async move {
                for number in 0..500 {
                    let message = numbered(mouth * 500 + number, 400);
                    client.send(Message::reliable_ordered(CHANNEL, message)).await.unwrap();
                }
            })
        })
        .collect();
    for mouth in mouths {
        soon("a mouth", mouth).await.unwrap();
    }
    // `close` does not wait for lost messages, so all messages must arrive first.
    soon("all of it", async {
        while count.load(Ordering::Relaxed) < 2_000 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    client.close(0, "");
    let mut heard = Vec::new();
    for ear in ears {
        heard.extend(soon("an ear", ear).await.unwrap());
    }
    heard.sort_unstable();
    assert!(heard.iter().copied().eq(0..2_000));
}

#[tokio::test]
async fn stats_are_returned_on_request() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    for number in 0..10 {
        client.send(Message::reliable_ordered(CHANNEL, numbered(number, 4))).await.unwrap();
        message(&at_server).await;
    }
    let (first, second) = tokio::join!(client.stats(), client.stats());
    assert!(first.unwrap().packets_sent >= 10 && second.unwrap().packets_sent >= 10);
    assert!(soon("stats", at_server.stats()).await.unwrap().packets_received >= 10);
    client.close(0, "");
    soon("the end", client.closed()).await;
    client.stats().await.unwrap_err();
}

#[test]
fn handles_can_be_shared_between_threads() {
    fn is_shared<T: Send + Sync + 'static>() {}
    is_shared::<Connection>();
    is_shared::<asynchronous::Server>();
    is_shared::<drumfire::asynchronous::Client>();
    is_shared::<drumfire::asynchronous::Receipt>();
}
