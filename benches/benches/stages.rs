//! Single stages of a packet's path, in nanoseconds, measured with Criterion: `cargo bench --bench stages`. An argument selects the stages
//! whose names contain it.
//!
//! - Reading headers and frames. Nothing is opened.
//! - Sealing a packet for one connection whose key is expanded.
//! - A handshake at either end, and each refusal of a server.
//! - Splitting trains, following flows, and the steering function.
//!
//! `cargo bench -p drumfire-crypto --bench aead` measures the ciphers alone, and `cargo bench --bench counts` the path from a datagram to
//! its connection.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drumfire_benches::hellos::{Flaw, Refusals};
use drumfire_benches::memory::{
    SealedPeer, at_ms, client, client_address, pass_datagram, server, server_address, take_datagram,
};
use drumfire_proto::{Access, ClientConfig, Config, Endpoint, ServerIdentity, SingleWorker};
use drumfire_puppet::PacketSealer;
use drumfire_socket::{GroBatch, LocalAddress, SteeringFilter};
use drumfire_tools::datagram::{self, Header, RouteId};
use drumfire_tools::flows::FlowTable;
use drumfire_wire::{
    AckDelay, AckRange, ChannelId, ClientId, ConnectionId, ConnectionIdLength, Delivery, FrameWriter, Frames,
    Hello, HelloDraft, HelloFields, Message, MessageId, PacketNumber, PacketNumberLength, TransportHeader,
};

fn throughput(bytes: usize) -> Throughput {
    Throughput::ElementsAndBytes { elements: 1, bytes: bytes as u64 }
}

/// Measures a step on this number of bytes.
fn step<R>(criterion: &mut Criterion, group: &str, name: &str, bytes: usize, mut work: impl FnMut() -> R) {
    let mut group = criterion.benchmark_group(group);
    group.throughput(throughput(bytes));
    group.bench_function(name, |bencher| bencher.iter(&mut work));
    group.finish();
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
    step(criterion, "header", "of a packet to a server", packet.len(), || {
        TransportHeader::decode(black_box(&packet), ConnectionIdLength::Eight)
    });
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
    step(criterion, "handshake", "hello", hello.len(), || Hello::decode(black_box(&hello)).is_ok());
}

fn message(id: u64, payload: &[u8]) -> Message<'_> {
    let delivery = Delivery::ReliableOrdered { id: MessageId(id), after: id.checked_sub(1).map(MessageId) };
    Message { channel: ChannelId(3), delivery, payload }
}

/// Reads the frames of a packet that `write` writes.
fn read_frames(criterion: &mut Criterion, name: &str, write: impl FnOnce(&mut FrameWriter<&mut Vec<u8>>)) {
    let mut bytes = Vec::new();
    write(&mut FrameWriter::new(&mut bytes));
    step(criterion, "frames", name, bytes.len(), || {
        Frames::new(black_box(&bytes)).filter(Result::is_ok).count()
    });
}

fn frames(criterion: &mut Criterion) {
    read_frames(criterion, "one unreliable message of 64 B", |writer| {
        let message = Message { channel: ChannelId(3), delivery: Delivery::Unreliable, payload: &[1; 64] };
        writer.message(&message).expect("room");
    });
    read_frames(criterion, "an ack and ten reliable messages of 20 B", |writer| {
        let range = AckRange::new(PacketNumber(70), PacketNumber(900)).expect("a range");
        writer.ack(AckDelay::from_duration(Duration::ZERO), std::iter::once(range)).expect("room");
        for id in 500..510 {
            writer.message(&message(id, &[1; 20])).expect("room");
        }
    });
    read_frames(criterion, "an ack of 32 ranges", |writer| {
        let range = |at: u64| AckRange::new(PacketNumber(at * 9), PacketNumber(at * 9 + 5)).expect("a range");
        let ranges: Vec<AckRange> = (1..=32).rev().map(range).collect();
        writer.ack(AckDelay::from_duration(Duration::ZERO), ranges.into_iter()).expect("room");
    });
}

const DATAGRAM_BYTES: usize = 128;

fn seal(criterion: &mut Criterion) {
    for (suite, has_aes_gcm) in [("AES-128-GCM", true), ("ChaCha20-Poly1305", false)] {
        let config = Config::default().has_aes_gcm(has_aes_gcm);
        let sealer = &mut SealedPeer::of_server(config, None).expect("a connection").sealer;
        let mut group = criterion.benchmark_group(format!("header, frame and seal, {suite}"));
        for bytes in [64, 128, 512, 1_200] {
            let payload = vec![7; PacketSealer::payload_bytes(bytes).expect("room for a message")];
            let mut datagram = vec![0; bytes];
            group.throughput(throughput(bytes));
            group.bench_function(BenchmarkId::from_parameter(format!("{bytes} B")), |bencher| {
                bencher.iter(|| sealer.seal(black_box(&mut datagram), &payload).expect("numbers are left"));
            });
        }
        group.finish();
    }
}

fn new_server() -> (Endpoint<SingleWorker>, ServerIdentity) {
    server(Config::default(), Access::Open).expect("a server")
}

/// A client, and its first Hello.
fn first_hello(identity: &ServerIdentity) -> (Endpoint<SingleWorker>, Vec<u8>) {
    let mut client =
        client(Config::default().has_aes_gcm(true), ClientConfig::default(), 1).expect("a client");
    client.connect(at_ms(0), server_address(), identity, None).expect("room for a connection");
    let hello = take_datagram(&mut client, at_ms(0)).expect("a Hello");
    (client, hello)
}

/// A server, a client that has a cookie, and the client's Hello with the cookie.
fn before_welcome() -> (Endpoint<SingleWorker>, Endpoint<SingleWorker>, Vec<u8>) {
    let (mut server, identity) = new_server();
    let (mut client, mut hello) = first_hello(&identity);
    pass_datagram(&mut server, at_ms(0), client_address(), &mut hello);
    let mut retry = take_datagram(&mut server, at_ms(0)).expect("a Retry");
    pass_datagram(&mut client, at_ms(0), server_address(), &mut retry);
    let hello = take_datagram(&mut client, at_ms(0)).expect("a Hello with the cookie");
    (server, client, hello)
}

/// Receives the Hello, and takes the Welcome.
fn welcome(server: &mut Endpoint<SingleWorker>, hello: &mut [u8]) -> Vec<u8> {
    pass_datagram(server, at_ms(0), client_address(), hello);
    take_datagram(server, at_ms(0)).expect("a Welcome")
}

fn ends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("handshake");
    group.throughput(throughput(1_200));
    group.bench_function("client: write a Hello", |bencher| {
        let (_, identity) = new_server();
        bencher.iter(|| first_hello(black_box(&identity)));
    });
    group.bench_function("server: receive a Hello with a cookie, and send a Welcome", |bencher| {
        bencher.iter_batched(
            before_welcome,
            |(mut server, client, mut hello)| (welcome(&mut server, &mut hello), server, client),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("client: receive the Welcome, and send the first packet", |bencher| {
        let made = || {
            let (mut server, client, mut hello) = before_welcome();
            (client, welcome(&mut server, &mut hello))
        };
        bencher.iter_batched(
            made,
            |(mut client, mut welcome)| {
                pass_datagram(&mut client, at_ms(0), server_address(), &mut welcome);
                take_datagram(&mut client, at_ms(0)).expect("a packet");
                client
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// Each Hello fails at one step, and is passed to the server repeatedly.
fn refusals(criterion: &mut Criterion) {
    let flaws = [
        (Flaw::NoCookie, "without a cookie"),
        (Flaw::BadCookie, "with the cookie of another client"),
        (Flaw::BadToken, "with a valid cookie and an invalid token"),
        (Flaw::BadMac, "with a valid cookie, a valid token, and an invalid MAC"),
    ];
    for (flaw, name) in flaws {
        let mut refusals = Refusals::new(flaw).expect("a Hello");
        step(criterion, "a server refuses a Hello", name, 1_200, || {
            refusals.pass_hello();
            refusals.take_answers();
        });
    }
}

/// Datagrams of a train.
const DATAGRAMS: usize = 64;

fn flow_header(sequence: u64) -> Header {
    Header { id: RouteId([7; 8]), flow: 3, sequence, stamp: None }
}

/// A full train of one flow.
fn train() -> Vec<u8> {
    let mut bytes = vec![0; DATAGRAM_BYTES * DATAGRAMS];
    for (sequence, memory) in bytes.chunks_mut(DATAGRAM_BYTES).enumerate() {
        datagram::encode(memory, &flow_header(sequence as u64)).expect("the size holds a header");
    }
    bytes
}

fn trains(criterion: &mut Criterion) {
    let bytes = train();
    let from = ([127, 0, 0, 1], 9).into();
    let train = GroBatch { from, local: LocalAddress::ANY, bytes: &bytes, segment_bytes: DATAGRAM_BYTES };
    let mut group = criterion.benchmark_group("train of 64");
    group.throughput(Throughput::Elements(DATAGRAMS as u64));
    group.bench_function("split", |bencher| {
        bencher.iter(|| black_box(&train).segments().map(|segment| usize::from(segment[0])).sum::<usize>());
    });
    group.bench_function("split and read headers", |bencher| {
        bencher.iter(|| {
            black_box(&train).segments().filter(|segment| datagram::decode(segment).is_ok()).count()
        });
    });
    group.finish();
}

fn flows(criterion: &mut Criterion) {
    let ids: Arc<[RouteId]> = vec![RouteId([7; 8]); 1_024].into();
    let mut table = FlowTable::new(ids);
    let mut sequence = 0_u32;
    criterion.bench_function("follow one of 1,024 flows", |bencher| {
        bencher.iter(|| {
            sequence += 1;
            let flow = sequence.wrapping_mul(0x9E37_79B1) % 1_024;
            table.on_datagram(black_box(&Header { flow, ..flow_header(sequence.into()) }))
        });
    });
}

fn steering(criterion: &mut Criterion) {
    let filter = SteeringFilter::new(1, 28, 0x9E37_79B1, 6).expect("good settings");
    let payload = [0x08; DATAGRAM_BYTES];
    criterion.bench_function("steering model", |bencher| {
        bencher.iter(|| filter.socket_of(black_box(&payload)));
    });
}

criterion_group!(stages, headers, hellos, frames, seal, ends, refusals, trains, flows, steering);
criterion_main!(stages);
