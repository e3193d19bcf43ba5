//! The cost of sealing and opening one packet with each provider and suite of this build.
//!
//! One key is in the cache, or 100,000 connections take turns and their keys are kept expanded or expanded for each packet.
//! `docs/AEAD.md` explains the results.
//!
//! `cargo bench -p drumfire-crypto --bench aead` runs all of it, and `-- 'open/128'` a part.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use drumfire_crypto::TAG_BYTES;
#[cfg(feature = "accel")]
use drumfire_crypto::suite::Accelerated;
use drumfire_crypto::suite::{KEY_BYTES, NONCE_BYTES, PacketKey, Portable, Suite};

const BODY_BYTES: [usize; 6] = [32, 64, 128, 256, 512, 1_200];
const CONNECTION_COUNT: usize = 100_000;
/// The length of a transport header with an 8-byte id and a 4-byte packet number.
const AAD: [u8; 13] = [7; 13];
const NONCE: [u8; NONCE_BYTES] = [9; NONCE_BYTES];
const KEY: [u8; KEY_BYTES] = [3; KEY_BYTES];

#[derive(Clone, Copy)]
enum Direction {
    Seal,
    Open,
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(400))
        .sample_size(20)
        .configure_from_args();
    bench_provider::<Portable>(&mut criterion, "portable", Suite::ChaCha20Poly1305);
    #[cfg(feature = "accel")]
    for suite in Suite::ALL {
        bench_provider::<Accelerated>(&mut criterion, "accelerated", suite);
    }
    criterion.final_summary();
}

fn bench_provider<K: PacketKey>(criterion: &mut Criterion, provider: &str, suite: Suite) {
    let order = shuffled(CONNECTION_COUNT);
    let expand = || K::new(suite, &KEY).expect("the provider has the suite");
    let one = expand();
    let many: Vec<K> = order.iter().map(|_| expand()).collect();
    let raw = vec![KEY; CONNECTION_COUNT];
    for (direction, name) in [(Direction::Seal, "seal"), (Direction::Open, "open")] {
        for body_bytes in BODY_BYTES {
            let mut group = criterion.benchmark_group(format!("{provider}/{suite:?}/{name}/{body_bytes}"));
            let mut packet = Packet::new(&one, direction, body_bytes);
            let mut turn = order.iter().cycle();
            let mut next = || turn.next().copied().unwrap_or_default();
            group.bench_function(BenchmarkId::from_parameter("one key"), |bench| {
                bench.iter(|| packet.run(&one));
            });
            group.bench_function(BenchmarkId::from_parameter("100,000 kept"), |bench| {
                bench.iter(|| packet.run(&many[next()]));
            });
            group.bench_function(BenchmarkId::from_parameter("100,000 on the fly"), |bench| {
                bench.iter(|| {
                    let key = K::new(suite, black_box(&raw[next()])).expect("the provider has the suite");
                    packet.run(&key);
                });
            });
            group.finish();
        }
    }
}

/// One packet that is sealed or opened repeatedly. Each run includes a copy of its body.
struct Packet {
    direction: Direction,
    original: Vec<u8>,
    buf: Vec<u8>,
    tag: [u8; TAG_BYTES],
}

impl Packet {
    fn new<K: PacketKey>(key: &K, direction: Direction, body_bytes: usize) -> Self {
        let (mut original, mut tag) = (vec![5; body_bytes], [0; TAG_BYTES]);
        if matches!(direction, Direction::Open) {
            key.seal_in_place(NONCE, &AAD, &mut original, &mut tag).expect("a short body");
        }
        Self { direction, buf: original.clone(), original, tag }
    }

    fn run<K: PacketKey>(&mut self, key: &K) {
        self.buf.copy_from_slice(&self.original);
        let done = match self.direction {
            Direction::Seal => key.seal_in_place(NONCE, &AAD, &mut self.buf, &mut self.tag),
            Direction::Open => key.open_in_place(NONCE, &AAD, &mut self.buf, &self.tag),
        };
        done.expect("the packet fits its key");
        black_box(&mut self.buf);
    }
}

/// Returns the numbers below `count` in a deterministic order without locality.
fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = 88_172_645_463_325_252_u64;
    for at in (1..count).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, usize::try_from(random % (at as u64 + 1)).unwrap_or_default());
    }
    order
}
