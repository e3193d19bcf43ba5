//! Futures that are polled once and dropped. No message is lost or duplicated.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use drumfire::{ClientConfig, Message, Outcome, Reconnect, SendOptions, ServerKey, asynchronous};

use super::world::{CHANNEL, Pair, accept, config, connect, message, number_of, numbered, open_dev, soon};

/// Polls a future once and drops it.
pub(super) fn try_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[tokio::test]
async fn canceled_recvs_lose_and_duplicate_no_message() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let sending = tokio::spawn(async move {
        for number in 0..3_000 {
            client.send(Message::reliable_ordered(CHANNEL, numbered(number, 200))).await.unwrap();
        }
        client
    });
    soon("all messages", async {
        let mut wanted = 0;
        while wanted < 3_000 {
            // One `recv` is dropped while it waits, and another one continues to wait.
            let patient = at_server.recv();
            let mut patient = pin!(patient);
            for _ in 0..3 {
                if let Some(incoming) = try_once(at_server.recv()) {
                    assert_eq!(number_of(&incoming.unwrap().1), wanted);
                    wanted += 1;
                }
            }
            if wanted < 3_000 {
                assert_eq!(number_of(&patient.as_mut().await.unwrap().1), wanted);
                wanted += 1;
            }
        }
    })
    .await;
    let _client = sending.await.unwrap();
    assert_eq!(at_server.try_recv(), Ok(None));
}

#[tokio::test]
async fn a_canceled_recv_that_was_woken_wakes_the_next() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let mut first = Box::pin(at_server.recv());
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let ear = at_server.clone();
    let second = tokio::spawn(async move { message(&ear).await });
    // The second task runs until it waits behind the first one.
    tokio::task::yield_now().await;
    let receipt = client.send_with_receipt(Message::reliable_ordered(CHANNEL, "one")).await.unwrap();
    assert_eq!(soon("the receipt", receipt).await, Outcome::Acknowledged);
    drop(first);
    assert_eq!(soon("the message", second).await.unwrap(), "one");
}

#[tokio::test]
async fn a_canceled_send_has_sent_nothing() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let options = SendOptions::reliable_ordered();
    let (mut next, mut given_up) = (0, 0);
    let mut heard = 0;
    while given_up < 50 {
        // A send that completes in its first poll is sent. Otherwise the next attempt uses the same number.
        match try_once(client.send(Message::new(CHANNEL, numbered(next, 2_000), options))) {
            Some(sent) => {
                sent.unwrap();
                next += 1;
            }
            None => {
                given_up += 1;
                assert_eq!(number_of(&message(&at_server).await), heard);
                heard += 1;
            }
        }
    }
    soon("the last", client.send(Message::new(CHANNEL, numbered(next, 4), options))).await.unwrap();
    for number in heard..=next {
        assert_eq!(number_of(&message(&at_server).await), number);
    }
    assert_eq!(at_server.try_recv(), Ok(None));
}

#[tokio::test]
async fn a_canceled_send_passes_its_turn_on() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let options = SendOptions::reliable_ordered();
    let mut context = Context::from_waker(Waker::noop());
    let mut sent = 0;
    let first = loop {
        let mut next = Box::pin(client.send(Message::new(CHANNEL, numbered(sent, 2_000), options)));
        match next.as_mut().poll(&mut context) {
            Poll::Ready(taken) => taken.unwrap(),
            Poll::Pending => break next,
        }
        sent += 1;
    };
    let mut second = pin!(client.send(Message::new(CHANNEL, numbered(u32::MAX, 2_000), options)));
    assert!(second.as_mut().poll(&mut context).is_pending(), "the first task is woken first");
    drop(first);
    let hearing = async {
        for number in 0..sent {
            assert_eq!(number_of(&message(&at_server).await), number);
        }
        assert_eq!(number_of(&message(&at_server).await), u32::MAX);
    };
    let (taken, ()) = tokio::join!(second, hearing);
    taken.unwrap();
}

#[tokio::test]
async fn a_canceled_accept_takes_no_connection() {
    let server = asynchronous::Server::bind(config()).unwrap();
    let mut clients = Vec::new();
    for number in 0..10 {
        assert!(try_once(server.accept()).is_none(), "no client has connected");
        let client = connect(&server).await;
        client.send(Message::reliable_ordered(CHANNEL, numbered(number, 4))).await.unwrap();
        let connection = match try_once(server.accept()) {
            Some(connection) => connection.unwrap(),
            None => accept(&server).await,
        };
        assert_eq!(number_of(&message(&connection).await), number);
        clients.push((client, connection));
    }
}

#[tokio::test]
async fn a_canceled_request_does_not_affect_later_requests() {
    let Pair { server: _server, client, at_server: _at_server } = Pair::new(config()).await;
    for _ in 0..100 {
        // The worker may have replied before the first poll.
        let _ = try_once(client.stats());
        assert!(try_once(client.closed()).is_none());
    }
    soon("stats", client.stats()).await.unwrap();
    client.close(4, "");
    soon("the end", client.closed()).await;
}

#[tokio::test]
async fn a_canceled_connect_leaves_no_connection() {
    let server = asynchronous::Server::bind(config()).unwrap();
    // On a busy machine, the first poll can find a connection that is complete. Dropping it closes it too.
    drop(try_once(open_dev(server.local_addr())));

    let clients = asynchronous::Client::new(ClientConfig::default().connections(4)).unwrap();
    let key = ServerKey::dev().public();
    for _ in 0..3 {
        drop(try_once(clients.connect((server.local_addr(), key))));
    }
    let kept = soon("connect", clients.connect((server.local_addr(), key))).await.unwrap();
    kept.send(Message::reliable_ordered(CHANNEL, "kept")).await.unwrap();
    soon("the one that is kept", async {
        loop {
            let connection = accept(&server).await;
            match connection.recv().await {
                Ok((_, payload)) => {
                    assert_eq!(payload, "kept");
                    break;
                }
                // The connection was complete when the future was dropped.
                Err(closed) => drop(closed),
            }
        }
        while server.control().stats().connections() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_canceled_connect_frees_its_place_immediately() {
    // This socket never answers, so an attempt that is not canceled keeps the only place for 5 s.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let (to, key) = (silent.local_addr().unwrap(), ServerKey::dev().public());
    let server = asynchronous::Server::bind(config()).unwrap();
    for policy in [Reconnect::Never, Reconnect::Within(Duration::from_secs(60))] {
        let client = asynchronous::Client::new(ClientConfig::default().reconnect(policy)).unwrap();
        for _ in 0..20 {
            let connect = client.connect((to, key));
            // The attempt has begun when its first packet has arrived.
            let begun = async {
                silent.set_nonblocking(true).unwrap();
                while silent.recv(&mut [0; 1_500]).is_err() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                answer = connect => panic!("{:?}", answer.err()),
                () = soon("the first packet", begun) => {}
            }
            assert!(try_once(client.connect((to, key))).is_none(), "a canceled attempt frees its connection");
        }
        let connection = soon("connect", client.connect((server.local_addr(), key))).await.unwrap();
        let at_server = accept(&server).await;
        connection.send(Message::reliable_ordered(CHANNEL, numbered(7, 4))).await.unwrap();
        assert_eq!(number_of(&message(&at_server).await), 7);
    }
}
