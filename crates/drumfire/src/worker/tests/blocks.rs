//! Broadcasts that are encoded once: their memory, and a panic between two receivers.

use bytes::Bytes;
use drumfire_proto::{ChannelId, ChannelOptions, Message, MessageBlock, WhenFull};

use super::Trap;
use super::world::World;
use crate::message::group::{Audience, GroupId};
use crate::worker::command::{Broadcast, Command};
use crate::worker::fan_out::block_pool::BlockPool;

const CHANNEL: ChannelId = ChannelId(0);

fn numbered(number: u16, bytes: usize) -> Bytes {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(bytes, 7);
    payload.into()
}

/// Returns broadcasts to all peers with these numbers.
fn broadcasts(numbers: std::ops::Range<u16>, bytes: usize) -> Vec<Command> {
    let broadcast = |number| {
        let message = Message::reliable_ordered(CHANNEL, numbered(number, bytes));
        Command::Broadcast(Broadcast { audience: Audience::ALL, message })
    };
    numbers.map(broadcast).collect()
}

#[test]
fn a_panic_at_one_member_changes_nothing_for_the_others() {
    let mut world = World::of_one(4);
    let (peers, group) = (world.connected(), GroupId(1));
    // The second member has room for half of the broadcasts, and then drops its oldest message.
    let options = ChannelOptions::default().when_full(WhenFull::DropOldest);
    let trap = Message::reliable_ordered(CHANNEL, Bytes::from_owner(Trap(vec![0; 60_000])));
    let mut commands: Vec<_> = peers.iter().map(|peer| Command::Join { peer: *peer, group }).collect();
    commands.push(Command::Options { peer: peers[1], channel: CHANNEL, options });
    commands.push(Command::Send { peer: peers[1], message: trap, receipt: None });
    commands.extend((0..15).map(|_| {
        let message = Message::reliable_ordered(CHANNEL, vec![0; 64_000]);
        Command::Send { peer: peers[1], message, receipt: None }
    }));
    commands.extend((0..40).map(|number| {
        let message = Message::reliable_ordered(CHANNEL, numbered(number, 1_000));
        // The third member is excluded from some of them.
        let audience = Audience::group(group);
        let audience = if number % 16 == 5 { audience.except(peers[2]) } else { audience };
        Command::Broadcast(Broadcast { audience, message })
    }));
    world.servers[0].command(commands);
    world.servers[0].work();
    assert_eq!((world.servers[0].stats().panics, world.failed_peers()), (1, vec![]));
    // These broadcasts must not join the others, which the first member has already.
    let late = (40..50).map(|number| {
        let message = Message::reliable_ordered(CHANNEL, numbered(number, 1_000));
        Command::Broadcast(Broadcast { audience: Audience::group(group), message })
    });
    world.servers[0].command(late.collect());
    let all: Vec<_> = (0..50).map(|number| numbered(number, 1_000)).collect();
    let not_excluded = (0..50).filter(|number| number % 16 != 5 || *number >= 40);
    let not_excluded: Vec<_> = not_excluded.map(|number| numbered(number, 1_000)).collect();
    world.run_until("the others have all", |world| {
        world.texts(0) == all && world.texts(2) == not_excluded && world.texts(3) == all
    });
    assert_eq!((world.failed_peers(), world.servers[0].stats().panics), (vec![peers[1]], 1));
}

#[test]
fn blocks_count_as_memory_until_no_connection_needs_them() {
    let mut world = World::of_one(3);
    let held = |world: &World| world.servers[0].worker.core.fan_out.blocks.held_bytes();
    let reported = |world: &World| world.servers[0].stats().message_memory_bytes;
    world.run_until("nothing is in flight", |world| reported(world) == 0);
    world.servers[0].wire.0.lock().unwrap().is_blocked = true;
    world.servers[0].command(broadcasts(0..400, 50));
    world.servers[0].work();
    let of_blocks = held(&world);
    assert!((400 * 51..=3 * MessageBlock::MEMORY_MAX_BYTES).contains(&of_blocks), "{of_blocks}");
    assert!(reported(&world) >= of_blocks + 3 * (400 * 114 - 1_024), "{}", reported(&world));
    world.servers[0].wire.0.lock().unwrap().is_blocked = false;
    world.run_until("all arrived", |world| (0..3).all(|client| world.texts(client).len() == 400));
    world.run_until("the memory is free", |world| held(world) == 0 && reported(world) == 0);
}

#[test]
fn without_memory_for_blocks_each_receiver_has_its_own_messages() {
    let mut world = World::of_one(2);
    // There is memory for one block, which is open until it is full.
    world.servers[0].worker.core.fan_out.blocks = BlockPool::new(MessageBlock::MEMORY_MAX_BYTES);
    world.servers[0].wire.0.lock().unwrap().is_blocked = true;
    let mut numbers = Vec::new();
    for round in 0..10 {
        let range = round * 40..(round + 1) * 40;
        numbers.extend(range.clone().map(|number| numbered(number, 500)));
        world.servers[0].command(broadcasts(range, 500));
        world.servers[0].work();
        let held = world.servers[0].worker.core.fan_out.blocks.held_bytes();
        assert!(held <= MessageBlock::MEMORY_MAX_BYTES, "{held}");
        world.servers[0].wire.0.lock().unwrap().is_blocked = false;
        world.run_until("all arrived", |world| (0..2).all(|client| world.texts(client) == numbers));
        world.servers[0].wire.0.lock().unwrap().is_blocked = true;
    }
}
