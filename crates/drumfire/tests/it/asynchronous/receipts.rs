//! Receipts: one outcome for each message, also if the connection ends.

use drumfire::{ChannelId, Message, Outcome, SendError, SendOptions};

use super::world::{CHANNEL, Pair, config, message, numbered, soon};

#[tokio::test]
async fn a_receipt_reports_that_a_message_arrived() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let mut receipts = Vec::new();
    for number in 0..100 {
        let options =
            if number % 2 == 0 { SendOptions::reliable_ordered() } else { SendOptions::reliable_unordered() };
        receipts.push(
            client.send_with_receipt(Message::new(CHANNEL, numbered(number, 100), options)).await.unwrap(),
        );
    }
    for receipt in receipts {
        assert_eq!(soon("a receipt", receipt).await, Outcome::Acknowledged);
    }
    for _ in 0..100 {
        message(&at_server).await;
    }
}

#[tokio::test]
async fn a_receipt_can_be_polled_repeatedly_and_dropped() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let options = SendOptions::reliable_ordered();
    drop(client.send_with_receipt(Message::new(CHANNEL, "unasked", options)).await.unwrap());
    let mut receipt = client.send_with_receipt(Message::new(CHANNEL, "asked", options)).await.unwrap();
    let outcome = soon("the receipt", async {
        loop {
            tokio::select! {
                biased;
                outcome = &mut receipt => break outcome,
                () = tokio::task::yield_now() => {}
            }
        }
    });
    assert_eq!(outcome.await, Outcome::Acknowledged);
    assert_eq!((message(&at_server).await, message(&at_server).await), ("unasked".into(), "asked".into()));
}

#[tokio::test]
async fn unacknowledged_messages_are_lost_at_the_end() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    // The server does not receive, so most of these messages are never sent.
    let mut receipts = Vec::new();
    loop {
        let message = Message::reliable_ordered(ChannelId(1), numbered(0, 2_000));
        tokio::select! {
            biased;
            sent = client.send_with_receipt(message) => receipts.push(sent.unwrap()),
            // The send memory is full.
            () = std::future::ready(()) => break,
        }
    }
    at_server.close(1, "enough");
    soon("the end", client.closed()).await;
    let mut lost = 0;
    for receipt in receipts {
        match soon("a receipt", receipt).await {
            Outcome::Acknowledged => {}
            Outcome::Lost => lost += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(lost > 0);
    let refused = client.send_with_receipt(Message::reliable_ordered(CHANNEL, "late")).await;
    assert_eq!(refused.err(), Some(SendError::Closed));
}
