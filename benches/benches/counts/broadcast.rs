//! The send side of a broadcast: from the encoded messages to sealed packets.

use std::sync::Arc;
use std::time::Duration;

use drumfire_benches::memory::{Datagrams, Group, UNLIMITED, server_address, take_messages};
use drumfire_proto::{BlockOptions, ChannelId, Config, MessageBlock, SendOptions};

use crate::counted_part;

/// The members of the group.
const MEMBERS: u32 = 64;

/// The messages of one turn, and the bytes of each.
const MESSAGES: usize = 137;
const MESSAGE: [u8; 36] = [7; 36];

/// The messages that the members receive in one turn.
pub(crate) const DELIVERIES: u64 = MEMBERS as u64 * MESSAGES as u64;

/// The virtual time between two turns.
const TURN: Duration = Duration::from_millis(50);

/// Broadcasts messages to all members until each has received its share of `count`. Counts encoding, queueing, and sealing.
pub(crate) fn run(count: u64) {
    let mut group = Group::connect(MEMBERS, &Config::default().congestion(UNLIMITED)).expect("connections");
    let members: Vec<_> = group.links.iter().map(|link| link.client).collect();
    let options = BlockOptions { channel: ChannelId(0), options: SendOptions::reliable_ordered() };
    let (mut packets, mut delivered) = (Datagrams::default(), 0);
    for _ in 0..count / DELIVERIES {
        let (server, now) = (&mut group.server, group.now);
        counted_part(|| {
            let mut block = MessageBlock::new();
            assert!((0..MESSAGES).all(|_| block.push(&MESSAGE)), "the messages of a turn fit into a block");
            let block = Arc::new(block);
            for member in &members {
                let sent = server.send_block(now, *member, &options, &block, 0..MESSAGES);
                assert_eq!(sent, Ok(MESSAGES), "each member has room");
            }
            packets.take_all_from(server, now);
        });
        group.client.handle_datagrams(now, packets.inbound(server_address()));
        packets.clear();
        // All packets are acknowledged before the next turn.
        group.pass(TURN);
        group.client.handle_timeout(group.now);
        group.server.handle_timeout(group.now);
        group.settle();
        delivered += take_messages(&mut group.client);
        while group.server.poll_event().is_some() {}
        assert!(members.iter().all(|member| group.server.undelivered_bytes(*member) == 0));
    }
    assert_eq!(delivered, count);
}
