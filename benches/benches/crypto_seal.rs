//! What it costs to seal a packet, for one connection whose key is expanded: `cargo bench --bench crypto_seal`.
#![forbid(unsafe_code)]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drumfire_benches::pair::Crowd;
use drumfire_puppet::PacketSealer;

const DATAGRAM_BYTES: [usize; 4] = [64, 128, 512, 1_200];

fn seal(criterion: &mut Criterion) {
    for (suite, has_aes_gcm) in [("AES-128-GCM", true), ("ChaCha20-Poly1305", false)] {
        let mut crowd = Crowd::connect(1, has_aes_gcm).expect("a connection");
        let (_, sealer) = crowd.sealers.first_mut().expect("a sealer");
        let mut group = criterion.benchmark_group(format!("header, frame and seal, {suite}"));
        for bytes in DATAGRAM_BYTES {
            let payload = vec![7; PacketSealer::payload_bytes(bytes).expect("room for a message")];
            let mut datagram = vec![0; bytes];
            group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: bytes as u64 });
            group.bench_function(BenchmarkId::from_parameter(format!("{bytes} B")), |bencher| {
                bencher.iter(|| sealer.seal(black_box(&mut datagram), &payload).expect("numbers are left"));
            });
        }
        group.finish();
    }
}

criterion_group!(crypto_seal, seal);
criterion_main!(crypto_seal);
