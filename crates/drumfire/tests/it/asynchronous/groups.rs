//! Messages to many: who is in a group hears them, and who does not keep up is told what it missed.

use drumfire::{AsyncServer, GROUPS_PER_PEER_MAX, GroupError, GroupId, Incoming, SendOptions, Workers};

use super::world::{CHANNEL, Pair, accept, config, connect, message, number_of, numbered, soon};

const RED: GroupId = GroupId(1);

#[tokio::test]
async fn members_hear_what_is_said_to_their_group_on_all_workers() {
    let server = AsyncServer::bind(config().workers(Workers::Auto)).unwrap();
    let mut players = Vec::new();
    for _ in 0..9 {
        let client = connect(&server).await;
        players.push((client, accept(&server).await));
    }
    let options = SendOptions::reliable_ordered();
    for (_, at_server) in players.iter().step_by(3) {
        server.join(RED, at_server).unwrap();
        server.join(RED, at_server).unwrap();
    }
    let (_, speaker) = players.first().unwrap();
    server.broadcast(RED, CHANNEL, "go", options).unwrap();
    server.broadcast_except(speaker.peer(), RED, CHANNEL, "behind you", options).unwrap();
    server.leave(RED, speaker);
    server.broadcast(RED, CHANNEL, "gone", options).unwrap();
    for (number, (client, at_server)) in players.iter().enumerate() {
        at_server.send(CHANNEL, "done", options).await.unwrap();
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
async fn a_peer_that_takes_nothing_misses_what_has_no_room_and_its_own_task_is_told() {
    let Pair { server, client, at_server } = Pair::new(config()).await;
    server.join(RED, &at_server).unwrap();
    let mut sent = 0;
    let missed = soon("one that is missed", async {
        loop {
            for _ in 0..100 {
                let message = numbered(sent, 1_000);
                if server.broadcast(RED, CHANNEL, message, SendOptions::reliable_ordered()).is_ok() {
                    sent += 1;
                }
            }
            match at_server.try_recv().unwrap() {
                Some(Incoming::Missed { channel, count }) => break (channel, count),
                Some(other) => panic!("{other:?}"),
                None => drop(at_server.stats().await),
            }
        }
    })
    .await;
    assert!(missed.0 == CHANNEL && missed.1 > 0);
    // What was not missed comes in order.
    let mut last = None;
    for _ in 0..100 {
        let number = number_of(&message(&client).await);
        assert!(last < Some(number));
        last = Some(number);
    }
}

#[tokio::test]
async fn only_connections_of_this_server_that_are_there_can_join_and_not_without_end() {
    let Pair { server, client, at_server } = Pair::new(config()).await;
    assert_eq!(server.join(RED, &client), Err(GroupError::UnknownPeer), "it is the client's end");
    for group in 0..GROUPS_PER_PEER_MAX as u64 {
        server.join(GroupId(group), &at_server).unwrap();
    }
    assert_eq!(server.join(GroupId(u64::MAX), &at_server), Err(GroupError::TooMany));
    client.close(0, "").unwrap();
    soon("the end", at_server.closed()).await;
    assert_eq!(server.join(RED, &at_server), Err(GroupError::UnknownPeer));
}
