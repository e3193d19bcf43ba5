//! Single steps of a packet's way, in nanoseconds: `cargo bench --bench stages`. Criterion measures, and a part of a name selects.
//!
//! - Reading headers and frames. Nothing is opened.
//! - Opening a packet, and the steps of a server before it: read the header, check the id, find the connection, and check the replay
//!   window. These are measured with copies of packets that were opened before, which the server drops as duplicates. The goal for
//!   these steps is 40 ns, warm.
//! - Sealing a packet for one connection whose key is expanded.
//! - A handshake at either end, and each refusal of a server.
//! - Splitting trains, following flows, and the steering function.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drumfire_benches::hellos::{Flaw, Refusals, first_hello, hello_with_cookie};
use drumfire_benches::memory::{
    BATCH, SealedPeers, at_ms, client_address, pass_datagram, server, server_address, take_datagram,
    take_messages,
};
use drumfire_benches::{Extent, OpenAlone, criterion_extent};
use drumfire_crypto::Suite;
use drumfire_proto::{Access, Alone, Config, DropReason, Endpoint, Inbound, ServerIdentity};
use drumfire_puppet::PacketSealer;
use drumfire_socket::{LocalAddress, SteeringFilter, Train};
use drumfire_tools::clock;
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

/// A server with this number of clients that only seal.
fn sealed(clients: u8, has_aes_gcm: bool) -> SealedPeers {
    let config = Config::default().has_aes_gcm(has_aes_gcm);
    SealedPeers::of_server(config, clients, None).expect("connections")
}

/// Seals `count` packets of the clients in turn.
fn packets(sealed: &mut SealedPeers, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let payload = vec![7; PacketSealer::payload_bytes(DATAGRAM_BYTES).expect("room for a message")];
    let clients = sealed.peers.len();
    let packet = |number: usize| {
        let client = &mut sealed.peers[number % clients];
        let mut datagram = vec![0; DATAGRAM_BYTES];
        client.sealer.seal(&mut datagram, &payload).expect("numbers are left");
        (client.address, datagram)
    };
    (0..count).map(packet).collect()
}

/// Passes batches to the server, each at a time of its own. Returns the time that the server took.
fn receive_all(sealed: &mut SealedPeers, packets: &mut [(SocketAddr, Vec<u8>)]) -> Duration {
    let mut took = Duration::ZERO;
    for batch in packets.chunks_mut(BATCH) {
        sealed.pass(Duration::from_micros(10));
        let batch = batch.iter_mut().map(|(from, bytes)| Inbound { from: (*from).into(), bytes });
        let start = clock::now();
        sealed.endpoint.handle_datagrams(sealed.now, batch);
        took += start.elapsed();
        take_messages(&mut sealed.endpoint);
    }
    took
}

fn open(criterion: &mut Criterion) {
    open_length::<64>(criterion);
    open_length::<128>(criterion);
    open_length::<512>(criterion);
    open_length::<1_200>(criterion);
}

fn open_length<const BYTES: usize>(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("open, {BYTES} B"));
    group.throughput(throughput(BYTES));
    for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
        let mut cipher = OpenAlone::<BYTES>::new(suite);
        group.bench_function(BenchmarkId::from_parameter(format!("{suite:?}")), |bencher| {
            bencher.iter_custom(|count| cipher.time(count));
        });
    }
    group.finish();
}

fn find(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read, find and ask the replay window, 128 B");
    for connections in [1, 200] {
        let mut sealed = sealed(connections, true);
        // The replay window of a new connection is narrow. It must remember all copies, or they are too old instead of duplicates.
        let mut opened = packets(&mut sealed, BATCH * usize::from(connections).min(16));
        let copies = opened.clone();
        receive_all(&mut sealed, &mut opened);
        // After newer packets, no copy is of a connection's newest packet, which could start a migration.
        let mut newer = packets(&mut sealed, usize::from(connections));
        receive_all(&mut sealed, &mut newer);
        let refused_before = sealed.endpoint.stats().dropped(DropReason::Duplicate);
        let mut copies_count = 0;
        group.throughput(throughput(128));
        group.bench_function(BenchmarkId::from_parameter(format!("{connections} connections")), |bencher| {
            bencher.iter_custom(|count| {
                let mut copies: Vec<_> =
                    copies.iter().cycle().take(usize::try_from(count).expect("few")).cloned().collect();
                copies_count += count;
                receive_all(&mut sealed, &mut copies)
            });
        });
        let refused = sealed.endpoint.stats().dropped(DropReason::Duplicate) - refused_before;
        assert_eq!(refused, copies_count, "every copy is counted as a duplicate");
    }
    group.finish();
}

fn seal(criterion: &mut Criterion) {
    for (suite, has_aes_gcm) in [("AES-128-GCM", true), ("ChaCha20-Poly1305", false)] {
        let sealer = &mut sealed(1, has_aes_gcm).peers[0].sealer;
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

fn new_server() -> (Endpoint<Alone>, ServerIdentity) {
    server(Config::default(), Access::Open).expect("a server")
}

/// A server, a client that has a cookie, and the client's Hello.
fn before_welcome() -> (Endpoint<Alone>, Endpoint<Alone>, Vec<u8>) {
    let (mut server, identity) = new_server();
    let (client, hello) = hello_with_cookie(&mut server, &identity).expect("a Hello");
    (server, client, hello)
}

/// Receives the Hello, and takes the Welcome.
fn welcome(server: &mut Endpoint<Alone>, hello: &mut [u8]) -> Vec<u8> {
    pass_datagram(server, at_ms(0), client_address(), hello);
    take_datagram(server, at_ms(0)).expect("a Welcome")
}

fn ends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("handshake");
    group.throughput(throughput(1_200));
    group.bench_function("client: make a Hello", |bencher| {
        let (_, identity) = new_server();
        bencher.iter(|| first_hello(black_box(&identity), None));
    });
    group.bench_function("server: take a Hello with a cookie, and answer with a Welcome", |bencher| {
        bencher.iter_batched(
            before_welcome,
            |(mut server, client, mut hello)| (welcome(&mut server, &mut hello), server, client),
            BatchSize::SmallInput,
        );
    });
    group.bench_function("client: take the Welcome, and answer with the first packet", |bencher| {
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
    for (flaw, name) in Flaw::ALL {
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
    let train = Train { from, local: LocalAddress::ANY, bytes: &bytes, segment_bytes: DATAGRAM_BYTES };
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
    let mut table = FlowTable::new(ids).expect("few flows");
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

/// Shortens a smoke run beyond what Criterion does for `--quick`.
fn configured() -> Criterion {
    let criterion = Criterion::default();
    if criterion_extent() == Extent::Quick {
        let millisecond = Duration::from_millis(1);
        criterion.without_plots().warm_up_time(millisecond).measurement_time(millisecond)
    } else {
        criterion
    }
}

criterion_group! {
    name = stages;
    config = configured();
    targets = headers, hellos, frames, open, find, seal, ends, refusals, trains, flows, steering
}
criterion_main!(stages);
