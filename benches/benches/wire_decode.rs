//! What it costs to read headers and frames: `cargo bench --bench wire_decode`. Nothing is opened.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, ClientId, ConnectionId, ConnectionIdLength, Delivery, FrameWriter, Frames,
    Hello, HelloDraft, HelloFields, Message, MessageId, PacketNumber, PacketNumberLength, TransportHeader,
};

fn throughput(bytes: usize) -> Throughput {
    Throughput::ElementsAndBytes { elements: 1, bytes: bytes as u64 }
}

fn headers(criterion: &mut Criterion) {
    let header = TransportHeader {
        key_phase: false,
        connection_id: Some(ConnectionId::from_bytes([7; 8])),
        number: PacketNumber(77_777).truncate(PacketNumberLength::Four),
    };
    let mut packet = Vec::new();
    header.encode(&mut packet).expect("room");
    packet.resize(128, 0);
    let mut group = criterion.benchmark_group("header");
    group.throughput(throughput(packet.len()));
    group.bench_function("of a packet to a server", |bencher| {
        bencher.iter(|| TransportHeader::decode(black_box(&packet), ConnectionIdLength::Eight));
    });
    group.finish();
}

fn hellos(criterion: &mut Criterion) {
    let fields = HelloFields {
        version: 1,
        protocol_id: 7,
        client_id: ClientId([3; 8]),
        server_key_id: 0,
        token_key_id: 0,
        suite_bits: 1,
    };
    let mut hello = Vec::new();
    HelloDraft::new(&fields, &[0; 512]).encode(&mut hello).expect("room");
    let mut group = criterion.benchmark_group("handshake");
    group.throughput(throughput(hello.len()));
    group.bench_function("hello", |bencher| bencher.iter(|| Hello::decode(black_box(&hello)).is_ok()));
    group.finish();
}

fn message(id: u64, payload: &[u8]) -> Message<'_> {
    let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: id.checked_sub(1).map(MessageId) };
    Message { channel: ChannelId(3), delivery, payload }
}

/// What stands in a packet: written by `write`, read to the end.
fn packet(criterion: &mut Criterion, name: &str, write: impl FnOnce(&mut FrameWriter<&mut Vec<u8>>)) {
    let mut bytes = Vec::new();
    write(&mut FrameWriter::new(&mut bytes));
    let mut group = criterion.benchmark_group("frames");
    group.throughput(throughput(bytes.len()));
    group.bench_function(name, |bencher| {
        bencher.iter(|| Frames::new(black_box(&bytes)).filter(Result::is_ok).count());
    });
    group.finish();
}

fn frames(criterion: &mut Criterion) {
    packet(criterion, "one unreliable message of 64 B", |writer| {
        let message = Message { channel: ChannelId(3), delivery: Delivery::Unreliable, payload: &[1; 64] };
        writer.message(&message).expect("room");
    });
    packet(criterion, "an ack and ten reliable messages of 20 B", |writer| {
        let range = AckRange::new(PacketNumber(70), PacketNumber(900)).expect("a range");
        writer.ack(AckDelay::from_duration(Duration::ZERO), std::iter::once(range)).expect("room");
        for id in 500..510 {
            writer.message(&message(id, &[1; 20])).expect("room");
        }
    });
    packet(criterion, "an ack of 32 ranges", |writer| {
        let range = |at: u64| AckRange::new(PacketNumber(at * 9), PacketNumber(at * 9 + 5)).expect("a range");
        let ranges: Vec<AckRange> = (1..=32).rev().map(range).collect();
        writer.ack(AckDelay::from_duration(Duration::ZERO), ranges.into_iter()).expect("room");
    });
}

criterion_group!(wire_decode, headers, hellos, frames);
criterion_main!(wire_decode);
