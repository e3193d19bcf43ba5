//! Ways for a peer that holds the keys to cost a server more than it should. The server's application reads
//! nothing. In every case the connection stays within its memory, as counted by the allocator, or is closed with a
//! reason.

use crate::counted::{BOTH_BYTES, BUSY_BYTES, RECEIVE_BYTES};
use crate::harness::{MEMORY_BYTES, Random, SERVER};
use crate::puppet::Puppet;
use drumfire_proto::{CloseReason, Config};
use drumfire_tries::tries;
use drumfire_wire::limits::MESSAGE_IDS_AHEAD;
use drumfire_wire::{
    AckDelay, AckRange, Bodies, ChannelId, Delivery, EncodeError, Fragment, FrameWriter, Lengths, Message,
    MessageId, PacketNumber, Run, Skip, SkipRun,
};
use std::time::Duration;

/// Packets of one seed.
const PACKETS: u64 = 600;

/// Seeds of each strategy. `STRATEGY_SEEDS=1000` runs more, in three minutes.
fn seeds() -> u64 {
    let requested = std::env::var("STRATEGY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    requested.unwrap_or_else(|| tries(500).into())
}

pub(crate) type Frames<'a> = FrameWriter<&'a mut [u8]>;
pub(crate) type Strategy = fn(&mut Frames<'_>, &mut Random, u64) -> Result<(), EncodeError>;

/// Fills a packet with what `write` writes, until it is full.
fn fill(
    writer: &mut Frames<'_>,
    mut write: impl FnMut(&mut Frames<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    loop {
        match write(writer) {
            Ok(()) => {}
            Err(EncodeError::NoRoom { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn fragment<'a>(id: u64, total_bytes: u32, offset_bytes: u32, payload: &'a [u8]) -> Fragment<'a> {
    let delivery = Delivery::ReliableUnordered { id: MessageId(id) };
    let message = Message { channel: ChannelId(1), delivery, payload };
    Fragment { message, number: 0, total_bytes, offset_bytes }
}

fn fragment_bombs(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| {
        let total = random.below(65_536) as u32 + 1;
        writer.fragment(&fragment(step + random.below(4), total, random.below(total.into()) as u32, &[1]))
    })
}

fn holes(writer: &mut Frames<'_>, random: &mut Random, _: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| writer.fragment(&fragment(0, 65_536, random.below(65_536) as u32, &[1])))
}

fn inconsistent_fragments(writer: &mut Frames<'_>, random: &mut Random, _: u64) -> Result<(), EncodeError> {
    writer.fragment(&fragment(
        random.below(2),
        9_000 + random.below(40) as u32 / 39,
        random.below(9) as u32 * 900,
        &[1; 900],
    ))
}

fn unreliable_bombs(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    let message =
        Message { channel: ChannelId(1), delivery: Delivery::UnreliableSequenced, payload: &[1; 9] };
    fill(writer, |writer| {
        let (number, offset_bytes) = (step.saturating_sub(random.below(20)), random.below(16_000) as u32);
        writer.fragment(&Fragment { message, number, total_bytes: 16_384, offset_bytes })
    })
}

fn sparse_ids(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| {
        let delivery = Delivery::ReliableOrdered {
            id: MessageId(1 + random.below(MESSAGE_IDS_AHEAD) + step / 590),
            after: Some(MessageId(0)),
        };
        writer.message(&Message { channel: ChannelId(random.below(9) as u16), delivery, payload: b"" })
    })
}

fn empty_messages(writer: &mut Frames<'_>, _: &mut Random, step: u64) -> Result<(), EncodeError> {
    let mut id = step * 250;
    fill(writer, |writer| {
        let delivery = Delivery::ReliableUnordered { id: MessageId(id) };
        id += 1;
        writer.message(&Message { channel: ChannelId(1), delivery, payload: b"" })
    })
}

fn ack_floods(writer: &mut Frames<'_>, random: &mut Random, _: u64) -> Result<(), EncodeError> {
    let range = AckRange::new(PacketNumber(0), PacketNumber(random.below(2))).unwrap();
    writer.ack(AckDelay::from_duration(Duration::ZERO), std::iter::once(range))
}

fn huge_acks(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    let top = if step < 100 { 0 } else { (1 << 62) - random.below(1_000) };
    let range = AckRange::new(PacketNumber(0), PacketNumber(top)).unwrap();
    writer.ack(AckDelay::from_duration(Duration::MAX), std::iter::once(range))
}

fn window_violations(writer: &mut Frames<'_>, _: &mut Random, step: u64) -> Result<(), EncodeError> {
    let delivery = Delivery::ReliableUnordered { id: MessageId(step) };
    writer.message(&Message { channel: ChannelId(1), delivery, payload: &[1; 1_000] })
}

fn channel_sprays(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| {
        let (channel, key) = (ChannelId(random.bits() as u16), random.bits());
        let delivery = match random.below(3) {
            0 => Delivery::UnreliableSequenced,
            1 => Delivery::ReliableLatest { key, version: step },
            _ => Delivery::Unreliable,
        };
        writer.message(&Message { channel, delivery, payload: b"x" })
    })
}

fn skips(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| {
        let id = MessageId(step * 3 + random.below(4_000));
        let bytes = if step > 500 { random.below(1 << 24) as u32 } else { 0 };
        writer.skip(&Skip { channel: ChannelId(1), id, after: id.0.checked_sub(1).map(MessageId), bytes })
    })
}

/// Messages of 1,000 bytes that wait for message 0, each after a fragment that gives its message a length of two
/// bytes.
fn whole_after_fragments(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    let message = |id| {
        let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: Some(MessageId(0)) };
        Message { channel: ChannelId(1), delivery, payload: &[1; 1_000] }
    };
    let fragment = |id| {
        let message = Message { payload: &[1], ..message(id) };
        Fragment { message, number: 0, total_bytes: 2, offset_bytes: 0 }
    };
    // The fragment comes in the previous packet, and mostly in the same one too.
    if random.below(4) > 0 {
        writer.fragment(&fragment(step + 1))?;
    }
    writer.message(&message(step + 1))?;
    writer.fragment(&fragment(step + 2))
}

/// Skips whose events are never merged.
fn skips_on_two_channels(writer: &mut Frames<'_>, _: &mut Random, step: u64) -> Result<(), EncodeError> {
    (step * 40..(step + 1) * 40).try_for_each(|id| {
        writer.skip(&Skip { channel: ChannelId((id % 2) as u16), id: MessageId(id), after: None, bytes: 0 })
    })
}

/// Writes a run of `count` messages of `bytes` bytes each, as many of them as fit.
fn write_run(
    writer: &mut Frames<'_>,
    delivery: Delivery,
    count: u64,
    bytes: usize,
) -> Result<(), EncodeError> {
    // The type, a channel of one byte, an id, a distance, and a number.
    let room = writer.remaining_bytes().saturating_sub(2 + 3 * 4);
    let count = count.min((room / (bytes + 1)) as u64);
    if count == 0 {
        return Err(EncodeError::NoRoom { needed_bytes: bytes });
    }
    let mut encoded = Vec::new();
    (0..count).for_each(|_| Bodies::put(&[1; 100][..bytes], &mut encoded));
    let (bodies, longest_bytes) = Bodies::parse(&encoded).map_err(|_| EncodeError::BadRun)?;
    writer.run(&Run { channel: ChannelId(1), delivery, bodies, longest_bytes })
}

/// Runs that wait for message 0, which never comes.
fn runs_that_wait(writer: &mut Frames<'_>, random: &mut Random, _: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| {
        let (id, after) = (MessageId(1 + random.below(15_000)), Some(MessageId(0)));
        let (count, bytes) = (1 + random.below(512), random.below(3) as usize);
        write_run(writer, Delivery::ReliableOrdered { id, after }, count, bytes)
    })
}

/// Messages that all wait for the first of them, which comes last.
fn messages_due_together(writer: &mut Frames<'_>, _: &mut Random, step: u64) -> Result<(), EncodeError> {
    let (round, packet) = (step / 50, step % 50);
    let first = round * (49 * 40 + 1);
    let ids = if packet == 49 { first..first + 1 } else { first + 1 + 40 * packet..first + 41 + 40 * packet };
    ids.into_iter().try_for_each(|id| writer.message(&waiting_for(first, id)))
}

/// An empty message that waits for message `first`, unless it is that message.
fn waiting_for(first: u64, id: u64) -> Message<'static> {
    let after = Some(MessageId(first)).filter(|after| after.0 < id);
    let delivery = Delivery::ReliableOrdered { id: MessageId(id), after };
    Message { channel: ChannelId(1), delivery, payload: b"" }
}

/// Runs that overlap those before them. Each waits for the message before it, and some of those never come.
fn runs_that_overlap(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| {
        let id = step / 2 + random.below(600);
        let (id, after) = (MessageId(id), id.checked_sub(1).map(MessageId));
        write_run(writer, Delivery::ReliableOrdered { id, after }, 1 + random.below(512), 0)
    })
}

/// Every second id of the window, and runs over all of it.
fn runs_between_ids(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    if step < 400 {
        return (step * 40..(step + 1) * 40).try_for_each(|at| {
            let delivery = Delivery::ReliableUnordered { id: MessageId(1 + 2 * (at % 8_192)) };
            writer.message(&Message { channel: ChannelId(1), delivery, payload: b"" })
        });
    }
    let (id, after) = (MessageId(1 + random.below(15_000)), Some(MessageId(0)));
    write_run(writer, Delivery::ReliableOrdered { id, after }, 512, 0)
}

/// Runs without ids, as many messages as a packet can have.
fn unreliable_runs(writer: &mut Frames<'_>, random: &mut Random, _: u64) -> Result<(), EncodeError> {
    let modes = [Delivery::Unreliable, Delivery::UnreliableSequenced];
    let delivery = modes[random.below(2) as usize];
    write_run(writer, delivery, 512, random.below(2) as usize)
}

/// Skip runs, of which many overlap those before them.
fn skip_runs(writer: &mut Frames<'_>, random: &mut Random, step: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| {
        let id = MessageId(step + random.below(12_000));
        let after = id.0.checked_sub(random.below(3)).filter(|after| *after < id.0).map(MessageId);
        let count = 1 + random.below(200) as u16;
        let lengths = Lengths { bytes: &[0; 200][..count.into()], count };
        writer.skip_run(&SkipRun { channel: ChannelId(random.below(2) as u16), id, after, lengths })
    })
}

fn ack_requests(writer: &mut Frames<'_>, random: &mut Random, _: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| if random.below(2) == 0 { writer.ping() } else { writer.ack_request() })
}

fn credits(writer: &mut Frames<'_>, random: &mut Random, _: u64) -> Result<(), EncodeError> {
    fill(writer, |writer| writer.credit(random.bits() >> random.below(64)))
}

/// All strategies.
pub(crate) const STRATEGIES: [(&str, Strategy); 21] = [
    ("fragment bombs", fragment_bombs),
    ("holes", holes),
    ("inconsistent fragments", inconsistent_fragments),
    ("unreliable bombs", unreliable_bombs),
    ("sparse ids", sparse_ids),
    ("empty messages", empty_messages),
    ("ack floods", ack_floods),
    ("huge acks", huge_acks),
    ("window violations", window_violations),
    ("channel sprays", channel_sprays),
    ("skips", skips),
    ("whole after fragments", whole_after_fragments),
    ("skips on two channels", skips_on_two_channels),
    ("runs that wait", runs_that_wait),
    ("messages due together", messages_due_together),
    ("runs that overlap", runs_that_overlap),
    ("runs between ids", runs_between_ids),
    ("unreliable runs", unreliable_runs),
    ("skip runs", skip_runs),
    ("ack requests", ack_requests),
    ("credits", credits),
];

/// Returns the maximum memory that the server held for this connection, and how it ended.
fn run(seed: u64, strategy: Strategy, does_send: bool) -> (i64, Option<CloseReason>) {
    let mut puppet = Puppet::connected(seed);
    let mut random = Random(seed);
    let (mut held, mut most) = (0, 0);
    let peer = puppet.world.peers(SERVER)[0];
    for step in 0..PACKETS {
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        strategy(&mut writer, &mut random, step).unwrap();
        let bytes = writer.written_bytes();
        let mut datagram = puppet.datagram(&frames[..bytes]);
        let payload = bytes::Bytes::from_static(&[7; 1_000]);
        held += puppet.deliver_counted(&mut datagram, |server, now| {
            if does_send {
                // A full or closed connection accepts nothing.
                let _ = server.send(
                    now,
                    peer,
                    drumfire_proto::Message::reliable_unordered(ChannelId(1), payload),
                );
            }
        });
        most = most.max(held);
    }
    puppet.world.run(Duration::ZERO);
    (most, puppet.ending())
}

#[test]
fn no_strategy_makes_a_connection_hold_more_than_allowed() {
    for (name, strategy) in STRATEGIES {
        for (does_send, limit) in [(false, RECEIVE_BYTES), (true, BOTH_BYTES)] {
            let (mut most, mut closed) = (0, 0);
            let seeds = seeds();
            for seed in 0..seeds {
                let (held, ending) = run(seed, strategy, does_send);
                most = most.max(held);
                closed += u64::from(ending.is_some());
                let is_named = ending.is_none_or(|reason| matches!(reason, CloseReason::Protocol(_)));
                assert!(is_named, "{name} of seed {seed}: {ending:?}");
            }
            println!(
                "{name}, the server sends: {does_send}: at most {most} B, {closed} of {seeds} closed by name"
            );
            assert!(most <= limit, "{name}, {does_send}: {most} of {limit} B");
        }
    }
}

#[test]
fn a_message_restarted_in_its_packet_is_charged() {
    let mut puppet = Puppet::connected(7);
    for _ in 0..400 {
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        for bytes in [1_000, 50] {
            let payload = &[1; 1_000][..bytes];
            let message = Message { channel: ChannelId(0), delivery: Delivery::Unreliable, payload };
            let fragment = Fragment { message, number: 1, total_bytes: 1_000, offset_bytes: 0 };
            writer.fragment(&fragment).unwrap();
        }
        let bytes = writer.written_bytes();
        let mut datagram = puppet.datagram(&frames[..bytes]);
        puppet.deliver_counted(&mut datagram, |_, _| {});
    }
    let server = &puppet.world.ends[SERVER];
    let (held, delivered) = (server.held_bytes(), server.stats().messages_delivered);
    assert!(held <= MEMORY_BYTES && delivered > 100, "{held} B of {delivered} messages");
    assert!(server.stats().unreliable_overflows > 0);
}

#[test]
fn messages_due_together_leave_no_memory_behind() {
    // With long messages, there is credit for as many empty messages as the window has ids.
    let mut puppet =
        Puppet::with(8, Config::default().memory_bytes(2 << 20, 2 << 20).message_max_bytes(512 * 1_024));
    let (mut held, mut most) = (0, 0);
    let ids: Vec<u64> = (1..16_384).chain([0]).collect();
    for ids in ids.chunks(40) {
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        ids.iter().for_each(|id| writer.message(&waiting_for(0, *id)).unwrap());
        let bytes = writer.written_bytes();
        let mut datagram = puppet.datagram(&frames[..bytes]);
        held += puppet.deliver_counted(&mut datagram, |server, _| while server.poll_event().is_some() {});
        most = most.max(held);
    }
    let server = &puppet.world.ends[SERVER];
    assert_eq!((server.stats().messages_delivered, server.held_bytes(), puppet.ending()), (16_384, 0, None));
    println!("{held} B of {most} B are left");
    // All connections share the queue for events, and the endpoint keeps it.
    let event_queue_bytes = 16_384 * 32;
    assert!(held <= event_queue_bytes + BUSY_BYTES + 8 * 1_024, "{held} B");
}
