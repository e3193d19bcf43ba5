//! What it costs a server to open a packet, and beside it what it does before: read the header, check the id, find the
//! connection and ask the replay window. `cargo bench --bench crypto_open`.
//!
//! The second is measured with copies of packets that were opened before: they go all that way, and end there under their
//! name. Goal: 40 ns for each, warm.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drumfire_benches::pair::Crowd;
use drumfire_proto::{DropReason, Inbound, PacketSealer};
use drumfire_tools::clock;

const DATAGRAM_BYTES: [usize; 4] = [64, 128, 512, 1_200];
/// As many as a receive call takes.
const BATCH: usize = 32;

/// `count` packets of this length, of the crowd's connections in turn.
fn packets(crowd: &mut Crowd, count: usize, bytes: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let payload = vec![7; PacketSealer::payload_bytes(bytes).expect("room for a message")];
    let connections = crowd.sealers.len();
    let packet = |number: usize| {
        let (from, sealer) = &mut crowd.sealers[number % connections];
        let mut datagram = vec![0; bytes];
        sealer.seal(&mut datagram, &payload).expect("numbers are left");
        (*from, datagram)
    };
    (0..count).map(packet).collect()
}

/// Hands batches to the server, each at a time of its own; answers how long that took.
fn open_all(crowd: &mut Crowd, packets: &mut [(SocketAddr, Vec<u8>)]) -> Duration {
    let mut took = Duration::ZERO;
    for batch in packets.chunks_mut(BATCH) {
        crowd.now.monotonic = crowd.now.monotonic.after(Duration::from_micros(10));
        let batch = batch.iter_mut().map(|(from, bytes)| Inbound { from: (*from).into(), bytes });
        let start = clock::now();
        crowd.server.open_datagrams(crowd.now, batch, |_| {});
        took += start.elapsed();
    }
    took
}

fn open(criterion: &mut Criterion) {
    for (suite, has_aes_gcm) in [("AES-128-GCM", true), ("ChaCha20-Poly1305", false)] {
        let mut crowd = Crowd::connect(1, has_aes_gcm).expect("a connection");
        let mut group = criterion.benchmark_group(format!("read, find and open, {suite}"));
        for bytes in DATAGRAM_BYTES {
            group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: bytes as u64 });
            group.bench_function(BenchmarkId::from_parameter(format!("{bytes} B")), |bencher| {
                bencher.iter_custom(|count| {
                    let mut packets = packets(&mut crowd, usize::try_from(count).expect("few"), bytes);
                    open_all(&mut crowd, &mut packets)
                });
            });
        }
        group.finish();
    }
}

fn find(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read, find and ask the replay window, 128 B");
    for connections in [1, 200] {
        let mut crowd = Crowd::connect(connections, true).expect("connections");
        // Of one connection no more than a window remembers that is still narrow, or copies are too old for an answer.
        let mut opened = packets(&mut crowd, BATCH * usize::from(connections).min(16), 128);
        let copies = opened.clone();
        open_all(&mut crowd, &mut opened);
        // Newer ones, so that no copy is of a connection's newest packet, which might tell of another path.
        let mut newer = packets(&mut crowd, usize::from(connections), 128);
        open_all(&mut crowd, &mut newer);
        let refused_before = crowd.server.stats().dropped(DropReason::Duplicate);
        let mut copies_count = 0;
        group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: 128 });
        group.bench_function(BenchmarkId::from_parameter(format!("{connections} connections")), |bencher| {
            bencher.iter_custom(|count| {
                let mut copies: Vec<_> =
                    copies.iter().cycle().take(usize::try_from(count).expect("few")).cloned().collect();
                copies_count += count;
                open_all(&mut crowd, &mut copies)
            });
        });
        let refused = crowd.server.stats().dropped(DropReason::Duplicate) - refused_before;
        assert_eq!(refused, copies_count, "every copy ends under its name");
    }
    group.finish();
}

criterion_group!(crypto_open, open, find);
criterion_main!(crypto_open);
