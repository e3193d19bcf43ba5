//! The cost of opening a packet, and of the steps of a server before it: read the header, check the id, find the connection, and
//! check the replay window. `cargo bench --bench crypto_open`.
//!
//! The cipher is measured alone. The steps before it are measured with copies of packets that were opened before: the server
//! drops them as duplicates. Goal for these steps: 40 ns, warm.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drumfire_benches::OpenAlone;
use drumfire_benches::pair::{Crowd, take_messages};
use drumfire_crypto::Suite;
use drumfire_proto::{DropReason, Inbound};
use drumfire_puppet::PacketSealer;
use drumfire_tools::clock;

const DATAGRAM_BYTES: usize = 128;
/// As many as a receive call takes.
const BATCH: usize = 32;

/// Returns `count` packets of the crowd's connections in turn.
fn packets(crowd: &mut Crowd, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let payload = vec![7; PacketSealer::payload_bytes(DATAGRAM_BYTES).expect("room for a message")];
    let connections = crowd.sealers.len();
    let packet = |number: usize| {
        let (from, sealer) = &mut crowd.sealers[number % connections];
        let mut datagram = vec![0; DATAGRAM_BYTES];
        sealer.seal(&mut datagram, &payload).expect("numbers are left");
        (*from, datagram)
    };
    (0..count).map(packet).collect()
}

/// Passes batches to the server, each at a time of its own. Returns the time that the server took.
fn receive_all(crowd: &mut Crowd, packets: &mut [(SocketAddr, Vec<u8>)]) -> Duration {
    let mut took = Duration::ZERO;
    for batch in packets.chunks_mut(BATCH) {
        crowd.now.monotonic = crowd.now.monotonic.after(Duration::from_micros(10));
        let batch = batch.iter_mut().map(|(from, bytes)| Inbound { from: (*from).into(), bytes });
        let start = clock::now();
        crowd.server.handle_datagrams(crowd.now, batch);
        took += start.elapsed();
        take_messages(&mut crowd.server);
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
    group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: BYTES as u64 });
    for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
        let mut cipher = OpenAlone::<BYTES>::new(suite);
        group.bench_function(BenchmarkId::from_parameter(format!("{suite:?}")), |bencher| {
            bencher.iter_custom(|count| {
                let mut took = Duration::ZERO;
                cipher.run(count, |open| {
                    let start = clock::now();
                    open();
                    took += start.elapsed();
                });
                took
            });
        });
    }
    group.finish();
}

fn find(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read, find and ask the replay window, 128 B");
    for connections in [1, 200] {
        let mut crowd = Crowd::connect(connections, true).expect("connections");
        // Of one connection no more than a window remembers that is still narrow, or copies are too old for an answer.
        let mut opened = packets(&mut crowd, BATCH * usize::from(connections).min(16));
        let copies = opened.clone();
        receive_all(&mut crowd, &mut opened);
        // Newer ones, so that no copy is of a connection's newest packet, which might tell of another path.
        let mut newer = packets(&mut crowd, usize::from(connections));
        receive_all(&mut crowd, &mut newer);
        let refused_before = crowd.server.stats().dropped(DropReason::Duplicate);
        let mut copies_count = 0;
        group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: 128 });
        group.bench_function(BenchmarkId::from_parameter(format!("{connections} connections")), |bencher| {
            bencher.iter_custom(|count| {
                let mut copies: Vec<_> =
                    copies.iter().cycle().take(usize::try_from(count).expect("few")).cloned().collect();
                copies_count += count;
                receive_all(&mut crowd, &mut copies)
            });
        });
        let refused = crowd.server.stats().dropped(DropReason::Duplicate) - refused_before;
        assert_eq!(refused, copies_count, "every copy ends under its name");
    }
    group.finish();
}

criterion_group!(crypto_open, open, find);
criterion_main!(crypto_open);
