//! Broadcasts: all members of a group receive them, and the task of a slow peer receives the number of missed messages.

use drumfire::config::GROUPS_PER_PEER_MAX;
use drumfire::{Audience, Event, GroupId, Message, SendOptions, Workers, asynchronous};

use super::cancel::try_once;
use super::world::{CHANNEL, Pair, accept, config, connect, message, number_of, numbered, soon};

const RED: GroupId = GroupId(1);

#[tokio::test]
async fn members_on_all_workers_receive_broadcasts_to_their_group() {
    let server = asynchronous::Server::bind(config().workers(Workers::Auto)).unwrap();
    let mut players = Vec::new();
    for _ in 0..9 {
        let client = connect(&server).await;
        players.push((client, accept(&server).await));
    }
    let options = SendOptions::reliable_ordered();
    for (_, at_server) in players.iter().step_by(3) {
        assert!(server.join(at_server, RED));
        assert!(server.join(at_server, RED));
    }
    let (_, speaker) = players.first().unwrap();
    server.broadcast(RED, Message::new(CHANNEL, "go", options)).unwrap();
    server
        .broadcast(Audience::group(RED).except(speaker.peer()), Message::new(CHANNEL, "behind you", options))
        .unwrap();
    server.leave(speaker, RED);
    server.broadcast(RED, Message::new(CHANNEL, "gone", options)).unwrap();
    for (number, (client, at_server)) in players.iter().enumerate() {
        at_server.send(Message::new(CHANNEL, "done", options)).await.unwrap();
        let mut heard = Vec::new();
        while heard.last().is_none_or(|last| last != "done") {
            heard.push(message(client).await);
        }
        let wanted: &[&str] = match (number, number % 3) {
            (0, _) => &["go", "done"],
            (_, 0) => &["go", "behind you", "gone", "done"],
            _ => &["done"],
        };
        assert_eq!(heard, wanted, "{number}");
    }
}

#[tokio::test]
async fn the_task_of_a_full_peer_receives_the_number_of_misses() {
    let Pair { server, client, at_server } = Pair::new(config()).await;
    assert!(server.join(&at_server, RED));
    let mut sent = 0;
    let missed = soon("one that is missed", async {
        loop {
            for _ in 0..100 {
                let message = numbered(sent, 1_000);
                if server.broadcast(RED, Message::reliable_ordered(CHANNEL, message)).is_ok() {
                    sent += 1;
                }
            }
            match try_once(at_server.next_event()).transpose().unwrap() {
                Some(Event::Missed { channel, count, .. }) => break (channel, count),
                Some(other) => panic!("{other:?}"),
                None => drop(at_server.stats().await),
            }
        }
    })
    .await;
    assert!(missed.0 == CHANNEL && missed.1 > 0);
    // All other messages arrive in order.
    let mut last = None;
    for _ in 0..100 {
        let number = number_of(&message(&client).await);
        assert!(last < Some(number));
        last = Some(number);
    }
}

#[tokio::test]
async fn only_open_connections_of_this_server_can_join_groups() {
    let Pair { server, client, at_server } = Pair::new(config()).await;
    assert!(!server.join(&client, RED), "the connection belongs to a client");
    for group in 0..GROUPS_PER_PEER_MAX as u64 {
        assert!(server.join(&at_server, GroupId(group)));
    }
    assert!(!server.join(&at_server, GroupId(u64::MAX)));
    client.close(0, "");
    soon("the end", at_server.closed()).await;
    assert!(!server.join(&at_server, RED));
}
