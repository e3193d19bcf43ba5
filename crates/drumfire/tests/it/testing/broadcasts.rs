//! Broadcasts next to one `send` for each member: every member receives the same messages in the same order on each channel.
//!
//! Channels take turns by bytes, and a turn takes as many messages of a run as fit. So the order between channels may differ.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use drumfire::conditioner::Loss;
use drumfire::{
    Audience, Bytes, ChannelId, ChannelOptions, Event, GroupId, Message, Mode, PeerId, Priority, SendError,
    SendOptions, WhenFull,
};

const CLIENTS: usize = 5;

const GROUPS: u64 = 3;

/// The message memory of a connection in worlds in which it is full, in bytes.
const MEMORY_BYTES: usize = 32_768;

/// A channel that drops its oldest messages when the memory is full.
const DROPPING: ChannelId = ChannelId(2);

/// A step of a script. Clients are named by their index.
#[derive(Debug)]
enum Step {
    Broadcast {
        group: Option<u64>,
        except: Option<usize>,
        message: Message,
    },
    Send(usize, Message),
    Join(usize, u64),
    Leave(usize, u64),
    /// All earlier messages leave.
    Advance(Duration),
}

/// A reproducible source of numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }

    fn client(&mut self) -> usize {
        usize::try_from(self.below(CLIENTS as u64)).unwrap()
    }

    /// Draws a message whose payload begins with its number.
    fn message(&mut self, number: u32) -> Message {
        let mode = match self.below(12) {
            0 => Mode::ReliableSequenced,
            1 => Mode::ReliableLatest,
            2 => Mode::Unreliable,
            3 => Mode::UnreliableSequenced,
            4 => Mode::ReliableUnordered,
            _ => Mode::ReliableOrdered,
        };
        let length = match self.below(20) {
            0 => self.below(3_000).min(if mode == Mode::ReliableLatest { 1_000 } else { 3_000 }),
            1 => self.below(1_000),
            2 => 0,
            _ => self.below(60),
        };
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(payload.len() + usize::try_from(length).unwrap(), 7);
        let mut options = SendOptions::new(mode);
        options.key = self.below(3);
        if self.below(10) == 0 {
            options = options.priority(Priority::Low);
        }
        if self.below(10) == 0 {
            options = options.lifetime(Duration::from_secs(3));
        }
        // Neighbors often have the same channel and options, so that they share a block.
        let channel = ChannelId(u16::try_from(self.below(6).saturating_sub(3)).unwrap());
        Message::new(channel, payload, options)
    }
}

fn script(seed: u64, steps: u32) -> Vec<Step> {
    let mut random = Random(seed);
    let mut script: Vec<Step> = (0..CLIENTS).map(|client| Step::Join(client, 0)).collect();
    let mut last = random.message(0);
    for number in 1..=steps {
        let mut message = random.message(number);
        if random.below(3) > 0 {
            let Message { channel, options, .. } = last;
            let is_short = message.payload.len() <= 1_000 || options.mode != Mode::ReliableLatest;
            message = if is_short { Message::new(channel, message.payload, options) } else { message };
        }
        last = message.clone();
        script.push(match random.below(40) {
            0..4 => Step::Send(random.client(), message),
            4..6 => Step::Join(random.client(), random.below(GROUPS)),
            6 => Step::Leave(random.client(), random.below(GROUPS)),
            7 => Step::Advance(Duration::from_millis(random.below(100))),
            _ => Step::Broadcast {
                group: if random.below(8) == 0 { None } else { Some(random.below(20).saturating_sub(18)) },
                except: (random.below(4) == 0).then(|| random.client()),
                message,
            },
        });
    }
    script
}

/// Something about each client and channel.
type ByChannel<T> = BTreeMap<(usize, ChannelId), T>;

/// The messages that each client received, and the number of messages that it missed.
type Heard = (ByChannel<Vec<Bytes>>, ByChannel<u32>);

/// Returns a world with connected clients, and their ids at the server. With `is_full`, the links of client 0 lose everything, so
/// that its memory becomes full.
fn connected(workers: Workers, is_full: bool) -> (World, Vec<PeerId>) {
    let mut config = server_config().workers(workers);
    if is_full {
        config = config.memory_bytes(MEMORY_BYTES, MEMORY_BYTES).message_max_bytes(4_096);
    }
    let mut world = World::new(config, 1).unwrap();
    for client in 0..CLIENTS {
        // One client accepts only messages that are shorter than a packet.
        let most_bytes = if client == 1 && is_full { 1_024 } else { 4_096 };
        world.join(&ClientConfig::default().message_max_bytes(most_bytes)).unwrap();
    }
    world.advance(Duration::from_secs(1));
    let connected: Vec<Event> = world.server.polled().collect();
    let peer_at = |address| {
        connected.iter().find_map(|event| match event {
            Event::Connected { peer, info } if info.address == address => Some(*peer),
            _ => None,
        })
    };
    let peers: Vec<_> = (0..CLIENTS).map(|client| peer_at(world.client_address(client)).unwrap()).collect();
    for peer in &peers {
        let options = ChannelOptions::default().when_full(WhenFull::DropOldest);
        world.server.set_channel_options(*peer, DROPPING, options);
    }
    if is_full {
        set_loss(&mut world, 1.0);
    }
    (world, peers)
}

/// Runs a script with broadcasts, or with one message to each member. `is_full` ends with the script.
fn run(script: &[Step], workers: Workers, is_broadcast: bool, is_full: bool) -> Heard {
    let (mut world, peers) = connected(workers, is_full);
    let mut members = vec![BTreeSet::new(); CLIENTS];
    let (mut heard, mut missed) = (ByChannel::new(), ByChannel::new());
    for step in script {
        match step {
            Step::Broadcast { group, except, message } if is_broadcast => {
                let audience = group.map_or(Audience::ALL, |group| Audience::group(GroupId(group)));
                let audience = except.map_or(audience, |client| audience.except(peers[client]));
                world.server.broadcast(audience, message.clone()).unwrap();
            }
            Step::Broadcast { group, except, message } => {
                for client in 0..CLIENTS {
                    if group.is_some_and(|group| !members[client].contains(&group)) || *except == Some(client)
                    {
                        continue;
                    }
                    match world.server.send(peers[client], message.clone()) {
                        Ok(()) => {}
                        Err(SendError::Full | SendError::TooLarge { .. }) => {
                            *missed.entry((client, message.channel)).or_default() += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            Step::Send(client, message) => _ = world.server.send(peers[*client], message.clone()),
            Step::Join(client, group) => {
                assert!(world.server.join(peers[*client], GroupId(*group)));
                members[*client].insert(*group);
            }
            Step::Leave(client, group) => {
                world.server.leave(peers[*client], GroupId(*group));
                members[*client].remove(group);
            }
            Step::Advance(duration) => {
                world.server.flush();
                world.advance(*duration);
                take(&mut world, &peers, &mut heard, &mut missed);
            }
        }
    }
    world.server.flush();
    set_loss(&mut world, 0.0);
    for _ in 0..200 {
        world.advance(Duration::from_millis(50));
        take(&mut world, &peers, &mut heard, &mut missed);
    }
    (heard, missed)
}

fn set_loss(world: &mut World, rate: f64) {
    let link = LinkConfig::default().loss(Loss::Random(rate));
    world.set_uplink(0, &link).unwrap();
    world.set_downlink(0, &link).unwrap();
}

/// Takes the events of all clients, and the reports of missed messages.
fn take(world: &mut World, peers: &[PeerId], heard: &mut ByChannel<Vec<Bytes>>, missed: &mut ByChannel<u32>) {
    for (index, client) in world.clients.iter_mut().enumerate() {
        for event in client.polled() {
            if let Event::Message { channel, payload, .. } = event {
                heard.entry((index, channel)).or_default().push(payload);
            }
        }
    }
    for event in world.server.polled() {
        if let Event::Missed { peer, channel, count } = event {
            let client = peers.iter().position(|of| *of == peer).unwrap();
            *missed.entry((client, channel)).or_default() += count;
        }
    }
}

/// Makes all messages reliable and ordered, without a lifetime, on channels that drop none. Without acks, the memory that they take
/// then does not depend on how many packets have left.
fn to_ordered(script: &mut [Step]) {
    for step in script {
        if let Step::Broadcast { message, .. } | Step::Send(_, message) = step {
            message.options = SendOptions::reliable_ordered();
            message.channel = ChannelId(message.channel.0.min(DROPPING.0 - 1));
        }
    }
}

/// Compares what two runs received. Their messages are too long to print.
fn check(heard: &ByChannel<Vec<Bytes>>, expected: &ByChannel<Vec<Bytes>>, seed: u64) {
    let number = |message: Option<&Bytes>| message.map(|message| message[..4].to_vec());
    for (at, expected) in expected {
        let heard = heard.get(at).map_or(&[][..], |heard| heard);
        let count = heard.iter().zip(expected).take_while(|(heard, expected)| heard == expected).count();
        let [next, expected_next] = [heard.get(count), expected.get(count)].map(number);
        assert_eq!(next, expected_next, "seed {seed}, {at:?}: message {count} of {}", expected.len());
    }
    assert_eq!(heard.len(), expected.len(), "seed {seed}");
}

#[test]
fn members_hear_broadcasts_as_if_each_was_sent_to() {
    for (seed, workers) in (1..=12).zip([Workers::Inline, Workers::Count(1), Workers::Count(3)].repeat(4)) {
        let script = script(seed, 600);
        let (heard, missed) = run(&script, workers, true, false);
        let (expected, _) = run(&script, workers, false, false);
        check(&heard, &expected, seed);
        let counts: Vec<_> = heard.values().map(Vec::len).collect();
        assert!(counts.iter().sum::<usize>() > 100 * CLIENTS && missed.is_empty(), "seed {seed}: {counts:?}");
    }
}

#[test]
fn a_member_without_room_misses_the_messages_that_a_send_refuses() {
    let mut sums = [0; CLIENTS];
    for seed in 1..=8 {
        let mut script = script(seed, 600);
        to_ordered(&mut script);
        let (heard, missed) = run(&script, Workers::Inline, true, true);
        let expected = run(&script, Workers::Inline, false, true);
        assert!(heard.values().map(Vec::len).sum::<usize>() > 100 * CLIENTS, "seed {seed}");
        check(&heard, &expected.0, seed);
        assert_eq!(missed, expected.1, "seed {seed}");
        missed.iter().for_each(|((client, _), count)| sums[*client] += count);
    }
    // Client 0 has no room, and client 1 accepts no long messages.
    assert!(sums[0] > 100 && sums[1] > 10 && sums[2..] == [0; CLIENTS - 2], "{sums:?}");
}
