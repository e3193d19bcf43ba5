//! Flow control: a task that does not receive blocks its own peer only.

use std::task::{Context, Poll, Waker};

use drumfire::stats::DropReason;
use drumfire::{
    ChannelId, ChannelOptions, ClientConfig, Message, Outcome, Priority, SendError, SendOptions, WhenFull,
    asynchronous,
};

use super::world::{CHANNEL, Pair, accept, config, connect, message, number_of, numbered, soon};

#[tokio::test]
async fn a_stalled_task_blocks_its_own_peer_and_loses_nothing() {
    const CLIENTS: u32 = 50;
    const MESSAGES: u32 = 400;
    let server = asynchronous::Server::bind(config()).unwrap();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = connect(&server).await;
        let at_server = accept(&server).await;
        clients.push((client, at_server));
    }
    // Each connection is sent 800 kB, much more than its memory.
    let mut senders = Vec::new();
    for (client, _) in &clients {
        let client = client.clone();
        senders.push(tokio::spawn(async move {
            for number in 0..MESSAGES {
                let message = numbered(number, 2_000);
                client.send(Message::reliable_ordered(CHANNEL, message)).await.unwrap();
            }
        }));
    }
    let (_, stalled) = clients.first().unwrap();
    for (_, at_server) in &clients[1..] {
        for number in 0..MESSAGES {
            assert_eq!(number_of(&message(at_server).await), number);
        }
    }
    for sender in senders.drain(1..) {
        soon("the others", sender).await.unwrap();
    }
    let waiting = senders.pop().unwrap();
    assert!(!waiting.is_finished(), "800 kB have no room in two memories of 256 KiB and half a third");
    for number in 0..MESSAGES {
        assert_eq!(number_of(&message(stalled).await), number);
    }
    soon("the stalled one's sender", waiting).await.unwrap();
    assert_eq!(
        server.control().stats().dropped(DropReason::ReceiveMemory),
        0,
        "reliable messages waited at their sender"
    );
}

#[tokio::test]
async fn unreliable_messages_beyond_the_memory_are_counted_as_missed() {
    let Pair { server, client, at_server } = Pair::new(config().memory_bytes(262_144, 32_768)).await;
    let mut sent = 0;
    while server.control().stats().workers[0].protocol.unreliable_overflows == 0 {
        let mut receipts = Vec::new();
        for _ in 0..20 {
            let message = numbered(sent, 1_000);
            let receipt = client.send_with_receipt(Message::unreliable(CHANNEL, message)).await;
            receipts.push(receipt.unwrap());
            sent += 1;
        }
        // After all receipts, no message is in flight.
        for receipt in receipts {
            soon("a receipt", receipt).await;
        }
    }
    // A reliable message still finds room, behind the messages that were kept.
    let bytes = b"that is all".as_slice();
    let last = client.send_with_receipt(Message::reliable_ordered(ChannelId(1), bytes)).await;
    assert_eq!(soon("the last one", last.unwrap()).await, Outcome::Acknowledged);
    let mut kept = 0;
    while message(&at_server).await != bytes {
        kept += 1;
    }
    assert!(kept < 32, "{kept} of {sent} messages of 1,064 bytes in 32 KiB");
    // After that, there is room again.
    client.send(Message::reliable_ordered(CHANNEL, "again")).await.unwrap();
    assert_eq!(message(&at_server).await, "again");
}

#[tokio::test]
async fn send_waits_until_there_is_room() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let options = SendOptions::reliable_ordered();
    let mut context = Context::from_waker(Waker::noop());
    let mut count = 0;
    let waiting = loop {
        let mut next = Box::pin(client.send(Message::new(CHANNEL, numbered(count, 1_000), options)));
        match next.as_mut().poll(&mut context) {
            Poll::Ready(taken) => taken.unwrap(),
            Poll::Pending => break next,
        }
        count += 1;
    };
    let out_of_turn = client.try_send(Message::new(CHANNEL, numbered(u32::MAX, 4), options));
    assert_eq!(out_of_turn, Err(SendError::Full), "a waiting task sends first");
    for number in 0..count {
        assert_eq!(number_of(&message(&at_server).await), number);
    }
    soon("room", waiting).await.unwrap();
    assert_eq!(number_of(&message(&at_server).await), count);
}

#[tokio::test]
async fn the_smallest_memory_carries_the_longest_message() {
    let small = ClientConfig::default().memory_bytes(4_096, 4_096);
    let Pair { server: _server, client, at_server } =
        Pair::with(config().memory_bytes(4_096, 4_096), &small).await;
    let sending = async {
        for number in 0..200 {
            let bytes = if number % 2 == 0 { 1_024 } else { 4 };
            client.send(Message::reliable_ordered(CHANNEL, numbered(number, bytes))).await.unwrap();
        }
    };
    let receiving = async {
        for number in 0..200 {
            assert_eq!(number_of(&message(&at_server).await), number);
        }
    };
    tokio::join!(sending, receiving);
    // The message takes three packets and more than half of the memory. It fits only if the whole memory is granted.
    let long = numbered(0, 3_500);
    loop {
        client.send(Message::unreliable(CHANNEL, long.clone())).await.unwrap();
        client.stats().await.unwrap();
        at_server.stats().await.unwrap();
        if let Some((_, payload)) = at_server.try_recv().unwrap() {
            assert_eq!(payload, long);
            break;
        }
    }
}

#[tokio::test]
async fn returning_memory_in_parts_never_blocks_the_longest_message() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let options = SendOptions::reliable_ordered();
    for round in 1..40 {
        // The whole burst arrives before any message is taken, so no later arrival can return memory.
        let mut receipts = Vec::new();
        for number in 0..round * 3 {
            receipts.push(
                client
                    .send_with_receipt(Message::new(CHANNEL, numbered(number, 1_000), options))
                    .await
                    .unwrap(),
            );
        }
        for receipt in receipts {
            soon("a receipt", receipt).await;
        }
        for number in 0..round * 3 {
            assert_eq!(number_of(&message(&at_server).await), number);
        }
        client.send(Message::new(CHANNEL, numbered(round, 65_536), options)).await.unwrap();
        assert_eq!(message(&at_server).await.len(), 65_536, "{round}");
    }
}

#[tokio::test]
async fn urgent_messages_overtake_waiting_bulk_messages() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let bulk = SendOptions::reliable_ordered().priority(Priority::Bulk);
    let mut context = Context::from_waker(Waker::noop());
    let mut count = 0;
    let waiting = loop {
        let mut next = Box::pin(client.send(Message::new(ChannelId(9), numbered(count, 1_000), bulk)));
        match next.as_mut().poll(&mut context) {
            Poll::Ready(taken) => taken.unwrap(),
            Poll::Pending => break next,
        }
        count += 1;
    };
    let urgent = SendOptions::reliable_ordered().priority(Priority::Urgent);
    assert_eq!(client.try_send(Message::new(ChannelId(1), numbered(u32::MAX, 4), urgent)), Ok(()));
    let out_of_turn = client.try_send(Message::new(ChannelId(9), numbered(u32::MAX, 4), bulk));
    assert_eq!(out_of_turn, Err(SendError::Full));
    let receiving = async { while number_of(&message(&at_server).await) != count {} };
    let (sent, ()) = tokio::join!(waiting, receiving);
    sent.unwrap();
}

#[tokio::test]
async fn a_channel_that_drops_messages_never_blocks_its_sender() {
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let voice = ChannelId(5);
    client.set_channel_options(voice, ChannelOptions::default().when_full(WhenFull::DropOldest));
    soon("sends without a receiver", async {
        for number in 0..3_000 {
            client.send(Message::reliable_ordered(voice, numbered(number, 1_000))).await.unwrap();
        }
    })
    .await;
    soon("the newest", async { while number_of(&message(&at_server).await) != 2_999 {} }).await;
}

#[tokio::test]
async fn a_task_that_always_finds_messages_yields_to_others() {
    // The messages fit into the memory of either end.
    const MESSAGES: u32 = 600;
    let Pair { server: _server, client, at_server } = Pair::new(config()).await;
    let mut receipts = Vec::new();
    for number in 0..MESSAGES {
        let options = SendOptions::reliable_ordered();
        receipts.push(
            client.send_with_receipt(Message::new(CHANNEL, numbered(number, 4), options)).await.unwrap(),
        );
    }
    // After all receipts, all messages have arrived.
    for receipt in receipts {
        soon("a receipt", receipt).await;
    }
    let turns = std::rc::Rc::new(std::cell::Cell::new(0_u32));
    let others = std::rc::Rc::clone(&turns);
    let local = tokio::task::LocalSet::new();
    local.spawn_local(async move {
        loop {
            others.set(others.get() + 1);
            tokio::task::yield_now().await;
        }
    });
    local
        .run_until(async {
            // The messages have arrived, so each `recv` completes without waiting.
            for _ in 0..MESSAGES {
                message(&at_server).await;
            }
        })
        .await;
    assert!(turns.get() >= 3, "the other task had only {} turns", turns.get());
}
