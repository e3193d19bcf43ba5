//! Blocks that connections share: a peer receives their messages as if each was sent alone.

use std::sync::Arc;
use std::time::Duration;

use drumfire_proto::{
    BlockOptions, ChannelId, ChannelOptions, ClientConfig, Endpoint, IfFull, Message, MessageBlock,
    Redundancy, Secret, SendError, SendOptions, WhenFull,
};

use crate::harness::{CLEAN, CLIENT, MEMORY_BYTES, SERVER, World, config};

/// The messages of each block that are sent.
const RANGE: std::ops::Range<usize> = 3..250;

/// A block of numbered messages. Every eighth one is longer than a message that is repeated for redundancy.
fn block(number: u64) -> Arc<MessageBlock> {
    let mut block = MessageBlock::new();
    for index in 0..256 {
        let length = if index % 8 == 7 { 150 } else { 20 };
        assert!(block.push(&[&(256 * number + index).to_be_bytes()[..], &vec![7; length]].concat()));
    }
    Arc::new(block)
}

/// Sends more than the memory has room for. Returns how many messages of each block were accepted, how many were dropped, and
/// the messages that arrived.
fn sent(
    is_shared: bool,
    channel_options: ChannelOptions,
    options: SendOptions,
) -> (Vec<usize>, u64, Vec<Vec<u8>>) {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    let channel = ChannelId(1);
    world.ends[CLIENT].set_channel_options(client, channel, channel_options);
    let mut accepted = Vec::new();
    for number in 0..(MEMORY_BYTES / RANGE.len() / 64 + 2) as u64 {
        let (now, block) = (world.now(), block(number));
        let end = &mut world.ends[CLIENT];
        accepted.push(if is_shared {
            end.send_block(now, client, &BlockOptions { channel, options }, &block, RANGE).unwrap()
        } else {
            let is_taken = |index: &usize| {
                let message = Message::new(channel, block.payload(*index).to_vec(), options);
                end.send_with(now, client, message, None, IfFull::Refuse).is_ok()
            };
            RANGE.take_while(is_taken).count()
        });
    }
    let dropped_count = world.ends[CLIENT].stats().messages_dropped;
    world.run(Duration::from_secs(5));
    let messages = world.messages(SERVER).into_iter().map(|(_, bytes)| bytes).collect();
    assert_eq!(world.ends[CLIENT].undelivered_bytes(client), 0);
    (accepted, dropped_count, messages)
}

#[test]
fn messages_of_blocks_arrive_as_if_each_was_sent_alone() {
    for when_full in [WhenFull::Block, WhenFull::DropNewest, WhenFull::DropOldest] {
        for redundancy in [Redundancy::None, Redundancy::One] {
            let of_channel = ChannelOptions::default().when_full(when_full).redundancy(redundancy);
            for options in [
                SendOptions::reliable_ordered(),
                SendOptions::unreliable(),
                SendOptions::reliable_sequenced(),
            ] {
                let shared = sent(true, of_channel, options);
                assert!(!shared.2.is_empty());
                assert!(
                    shared == sent(false, of_channel, options),
                    "{when_full:?} {redundancy:?} {options:?}"
                );
            }
        }
    }
}

#[test]
fn a_block_outlives_the_call_and_not_its_connection() {
    let mut world = World::new(1, CLEAN);
    let (client, _) = world.connected();
    let (now, block) = (world.now(), block(0));
    let of_channel = BlockOptions { channel: ChannelId(1), options: SendOptions::reliable_ordered() };
    let send = |world: &mut World| world.ends[CLIENT].send_block(now, client, &of_channel, &block, 0..20);
    assert_eq!(send(&mut world), Ok(20));
    assert_eq!(Arc::strong_count(&block), 2, "one segment");
    world.run(Duration::from_secs(1));
    assert_eq!((world.messages(SERVER).len(), Arc::strong_count(&block)), (20, 1), "all is acknowledged");
    assert_eq!(send(&mut world), Ok(20));
    let closed = drumfire_proto::Close {
        code: drumfire_proto::CloseCode::Application,
        application_code: 0,
        reason: b"",
    };
    let now = world.now();
    world.ends[CLIENT].close(now, client, &closed).unwrap();
    world.run(Duration::from_secs(20));
    assert_eq!((send(&mut world), Arc::strong_count(&block)), (Err(SendError::UnknownPeer), 1));
}

#[test]
fn messages_too_long_for_a_peer_not_yet_known_expire() {
    let mut world = World::with(1, CLEAN, config().message_max_bytes(1_024), ClientConfig::default());
    world.ends[CLIENT] =
        Endpoint::client(config(), ClientConfig::default(), Secret::new([9; 32])).expect("valid settings");
    let (now, client) = (world.now(), world.connect());
    let mut block = MessageBlock::new();
    for bytes in [1_100, 20, 1_025] {
        assert!(block.push(&vec![7; bytes]));
    }
    let of_channel = BlockOptions { channel: ChannelId(1), options: SendOptions::reliable_ordered() };
    assert_eq!(world.ends[CLIENT].send_block(now, client, &of_channel, &Arc::new(block), 0..3), Ok(3));
    world.run(Duration::from_secs(1));
    let lengths: Vec<usize> = world.messages(SERVER).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!((lengths, world.ends[CLIENT].stats().messages_expired), (vec![20], 2));
    assert!(world.peers(CLIENT).contains(&client), "the connection is open");
}
