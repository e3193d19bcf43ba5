//! Runs of messages from a client that writes its own frames: which messages are delivered, and which are charged.

use crate::harness::{CLIENT, MEMORY_BYTES, Random, SERVER, address};
use crate::puppet::Puppet;
use drumfire_proto::{CloseReason, Config, Event, EventBatch, Inbound, ProtocolError};
use drumfire_wire::{
    Bodies, ChannelId, Delivery, EncodeError, FrameWriter, Lengths, Message, MessageId, Run, SkipRun, varint,
};

type Writer<'a> = FrameWriter<&'a mut [u8]>;

/// Consecutive messages of one channel and one mode, as a client sends them the first time.
#[derive(Clone, Debug)]
struct Part {
    channel: u16,
    delivery: Delivery,
    payloads: Vec<Vec<u8>>,
}

impl Part {
    /// The delivery of the message at this place of the run.
    fn delivery_at(&self, at: usize) -> Delivery {
        let at = at as u64;
        match self.delivery {
            Delivery::ReliableOrdered { id, .. } if at > 0 => {
                let after = Some(MessageId(id.0 + at - 1));
                Delivery::ReliableOrdered { id: MessageId(id.0 + at), after }
            }
            Delivery::ReliableUnordered { id } => Delivery::ReliableUnordered { id: MessageId(id.0 + at) },
            delivery => delivery,
        }
    }

    /// The messages of this run from `from` up to `to`, as a run of their own.
    fn cut(&self, from: usize, to: usize) -> Self {
        Self { delivery: self.delivery_at(from), payloads: self.payloads[from..to].to_vec(), ..self.clone() }
    }

    fn write(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        let mut encoded = Vec::new();
        self.payloads.iter().for_each(|payload| Bodies::put(payload, &mut encoded));
        let (bodies, longest_bytes) = Bodies::parse(&encoded).unwrap();
        writer.run(&Run { channel: ChannelId(self.channel), delivery: self.delivery, bodies, longest_bytes })
    }

    fn write_singly(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        self.payloads.iter().enumerate().try_for_each(|(at, payload)| {
            let delivery = self.delivery_at(at);
            writer.message(&Message { channel: ChannelId(self.channel), delivery, payload })
        })
    }
}

fn ordered(id: u64, after: Option<u64>) -> Delivery {
    Delivery::ReliableOrdered { id: MessageId(id), after: after.map(MessageId) }
}

fn part(delivery: Delivery, payloads: &[&[u8]]) -> Part {
    let payloads = payloads.iter().map(|payload| payload.to_vec()).collect();
    Part { channel: 3, delivery, payloads }
}

fn skip_run(
    writer: &mut Writer<'_>,
    id: u64,
    after: Option<u64>,
    lengths: &[u32],
) -> Result<(), EncodeError> {
    let (mut bytes, count) = (Vec::new(), u16::try_from(lengths.len()).unwrap());
    lengths.iter().for_each(|length| varint::encode((*length).into(), &mut bytes).unwrap());
    let (id, after) = (MessageId(id), after.map(MessageId));
    writer.skip_run(&SkipRun { channel: ChannelId(3), id, after, lengths: Lengths { bytes: &bytes, count } })
}

/// Returns the runs of a client that sends in every mode on several channels, in the order of their ids.
fn traffic(random: &mut Random) -> Vec<Part> {
    let (mut next, mut last_of_channel, mut count) = (0, [None; 3], 0_u32);
    let mut parts = Vec::new();
    for _ in 0..60 {
        let channel = random.below(3) as usize;
        let length = 1 + random.below(12);
        let delivery = match random.below(6) {
            0 => Delivery::Unreliable,
            1 => Delivery::UnreliableSequenced,
            2 => Delivery::ReliableUnordered { id: MessageId(next) },
            _ => ordered(next, last_of_channel[channel]),
        };
        if delivery.id().is_some() {
            next += length;
        }
        if let Delivery::ReliableOrdered { .. } = delivery {
            last_of_channel[channel] = Some(next - 1);
        }
        let payloads = (0..length).map(|_| {
            count += 1;
            count.to_be_bytes()[..4 - random.below(3) as usize].to_vec()
        });
        parts.push(Part { channel: channel as u16, delivery, payloads: payloads.collect() });
    }
    parts
}

/// Returns the packets of a bad network and a client that repeats what is lost: reordered, repeated, and cut differently.
fn packets(random: &mut Random) -> Vec<Vec<Part>> {
    let parts = traffic(random);
    let mut packets: Vec<Vec<Part>> = parts.chunks(3).map(<[Part]>::to_vec).collect();
    let reliable: Vec<&Part> = parts.iter().filter(|part| part.delivery.id().is_some()).collect();
    for _ in 0..60 {
        let part = reliable[random.below(reliable.len() as u64) as usize];
        let (one, other) = (random.below(13) as usize, random.below(13) as usize);
        let to = one.max(other).min(part.payloads.len());
        let from = one.min(other).min(to - usize::from(to > 0));
        if from < to {
            packets.push(vec![part.cut(from, to)]);
        }
    }
    for last in (1..packets.len()).rev() {
        packets.swap(last, random.below(last as u64 + 1) as usize);
    }
    // Every packet arrives at last.
    packets.extend(reliable.iter().map(|part| vec![(*part).clone()]));
    packets
}

#[test]
fn runs_and_single_messages_give_the_same_deliveries() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let packets = packets(&mut random);
        let [runs, singles] = [Part::write, Part::write_singly].map(|write| {
            let mut puppet = Puppet::connected(seed);
            for packet in &packets {
                puppet.send_frames(|writer| packet.iter().try_for_each(|part| write(part, writer)));
            }
            let server = &puppet.world.ends[SERVER];
            let counts = [server.stats().messages_delivered, server.stats().sequenced_late];
            (
                puppet.ending(),
                counts,
                server.held_bytes(),
                puppet.world.messages(SERVER),
                puppet.take_packets().len(),
            )
        });
        assert_eq!(runs.0, None);
        assert!(runs.3.len() > 200, "{} messages", runs.3.len());
        assert_eq!(runs, singles, "seed {seed}");
    }
}

#[test]
fn a_run_that_overlaps_another_delivers_only_new_messages() {
    let mut puppet = Puppet::connected(1);
    puppet.send_frames(|writer| part(ordered(4, Some(3)), &[b"e", b"f"]).write(writer));
    puppet.send_frames(|writer| part(ordered(2, Some(1)), &[b"c", b"d", b"E"]).write(writer));
    assert_eq!(puppet.world.messages(SERVER), []);
    puppet.send_frames(|writer| part(ordered(0, None), &[b"a", b"b"]).write(writer));
    puppet.send_frames(|writer| {
        part(ordered(0, None), &[b"A", b"B", b"C", b"D", b"E", b"F", b"g"]).write(writer)
    });
    let expected: Vec<_> = b"abcdefg".iter().map(|byte| (3, vec![*byte])).collect();
    assert_eq!(puppet.world.messages(SERVER), expected);
    assert_eq!(puppet.world.ends[SERVER].stats().messages_delivered, 7);
    assert_eq!(puppet.world.ends[SERVER].held_bytes(), 0);
}

#[test]
fn a_skip_run_skips_messages_that_have_not_arrived() {
    let mut puppet = Puppet::connected(2);
    puppet.send_frames(|writer| part(ordered(1, Some(0)), &[b"b"]).write(writer));
    puppet.send_frames(|writer| part(ordered(5, Some(4)), &[b"f"]).write(writer));
    // Message 1 arrived, and waits. It is not given up any more.
    puppet.send_frames(|writer| skip_run(writer, 0, None, &[1, 1, 700, 0, 1 << 12]));
    assert_eq!(puppet.world.messages(SERVER), [(3, b"b".to_vec()), (3, b"f".to_vec())]);
    assert_eq!(puppet.world.ends[SERVER].stats().messages_skipped, 4);
    puppet.send_frames(|writer| skip_run(writer, 0, None, &[1, 1 << 24, 700, 0, 1]));
    puppet.send_frames(|writer| part(ordered(0, None), &[b"a", b"b", b"c"]).write(writer));
    assert_eq!(puppet.world.ends[SERVER].stats().messages_skipped, 4);
    assert_eq!((puppet.world.messages(SERVER).len(), puppet.ending()), (2, None));
}

#[test]
fn a_run_is_charged_for_each_message_that_is_new() {
    // Credit is half of 256 KiB. An empty message is charged 64 bytes.
    const CREDIT: u64 = 128 * 1_024 / 64;
    let run = |id: u64, count: u64| part(ordered(id, Some(0)), &vec![&b""[..]; count as usize]);
    for (more, ending) in [(0, None), (1, Some(CloseReason::Protocol(ProtocolError::CreditExceeded)))] {
        let mut puppet = Puppet::connected(3);
        for id in (1..CREDIT - 200).step_by(400) {
            puppet.send_frames(|writer| run(id, 400).write(writer));
        }
        let rest = CREDIT % 400;
        puppet.send_frames(|writer| run(CREDIT - rest + 1, rest).write(writer));
        assert_eq!((puppet.ending(), puppet.world.messages(SERVER).len()), (None, 0));
        // One more message in a run with others from before.
        puppet.send_frames(|writer| run(CREDIT - 9, 10 + more).write(writer));
        assert_eq!(puppet.ending(), ending);
    }
}

#[test]
fn a_run_with_one_overlong_message_is_refused_as_a_whole() {
    for (bytes, error) in [(1_024, None), (1_025, Some(ProtocolError::MessageTooLong))] {
        let mut puppet = Puppet::with(4, Config::default().message_max_bytes(1_024));
        let long = vec![7; bytes];
        puppet.send_frames(|writer| part(ordered(0, None), &[b"a", &long, b"b"]).write(writer));
        assert_eq!(puppet.ending(), error.map(CloseReason::Protocol));
        assert_eq!(puppet.world.messages(SERVER).len(), if error.is_some() { 0 } else { 3 });
    }
}

#[test]
fn unreliable_runs_without_room_are_dropped_and_counted() {
    let mut puppet = Puppet::connected(5);
    let payloads = vec![&b"xy"[..]; 300];
    for step in 0..40 {
        let mode = if step % 2 == 0 { Delivery::Unreliable } else { Delivery::UnreliableSequenced };
        let mut frames = [0; 1_100];
        let mut writer = FrameWriter::new(&mut frames[..]);
        part(mode, &payloads).write(&mut writer).unwrap();
        let bytes = writer.written_bytes();
        let mut datagram = puppet.datagram(&frames[..bytes]);
        puppet.deliver_counted(&mut datagram, |_, _| {});
    }
    let server = &puppet.world.ends[SERVER];
    let (dropped, delivered) = (server.stats().unreliable_overflows, server.stats().messages_delivered);
    assert_eq!((dropped + delivered, dropped % 300), (40 * 300, 0));
    assert!(dropped > 0 && delivered > 300 && server.held_bytes() <= MEMORY_BYTES, "{delivered}");
}

#[test]
fn a_run_is_taken_whole_or_message_by_message() {
    let mut puppet = Puppet::connected(6);
    let mut frames = [0; 1_100];
    let mut writer = FrameWriter::new(&mut frames[..]);
    part(ordered(0, None), &[b"a", b"", b"bcd"]).write(&mut writer).unwrap();
    part(ordered(3, Some(2)), &[b"e", b"fg"]).write(&mut writer).unwrap();
    let bytes = writer.written_bytes();
    let mut datagram = puppet.datagram(&frames[..bytes]);
    let (now, server) = (puppet.world.now(), &mut puppet.world.ends[SERVER]);
    server.handle_datagrams(now, [Inbound { from: address(CLIENT).into(), bytes: &mut datagram }]);
    let held = server.held_bytes();
    let mut batch = EventBatch::default();
    server.take_events(&mut batch);
    assert_eq!(server.held_bytes(), held, "the application has not taken them yet");
    let Some(Event::Message { peer, channel: ChannelId(3), payload: b"a" }) = batch.pop() else {
        panic!("no message")
    };
    server.release(peer, 1);
    // The rest of the first run is a run.
    for expected in [&[&b""[..], b"bcd"][..], &[b"e", b"fg"]] {
        let run = batch.pop_run().expect("a run");
        assert_eq!((run.peer, run.channel, usize::from(run.count())), (peer, ChannelId(3), expected.len()));
        assert_eq!(run.payload_bytes(), 3);
        assert!(run.payloads().eq(expected.iter().copied()));
        server.release_run(&run);
    }
    assert!(batch.pop_run().is_none() && batch.is_empty());
    assert_eq!((held, server.held_bytes()), (5 * 64 + 7, 0));
}
