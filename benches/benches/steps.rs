//! Single steps of the receive path, in nanoseconds: splitting trains, reading headers, following flows, and
//! the steering function. Criterion measures; `cargo bench --bench steps`.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drumfire_socket::{LocalAddress, SteeringFilter, Train};
use drumfire_tools::datagram::{self, Header, RouteId};
use drumfire_tools::flows::FlowTable;

const SIZE: usize = 128;
const DATAGRAMS: usize = 64;

fn header(sequence: u64) -> Header {
    Header { id: RouteId([7; 8]), flow: 3, sequence, stamp: None }
}

/// A full train of one flow.
fn train() -> Vec<u8> {
    let mut bytes = vec![0; SIZE * DATAGRAMS];
    for (sequence, memory) in bytes.chunks_mut(SIZE).enumerate() {
        datagram::encode(memory, &header(sequence as u64)).expect("the size holds a header");
    }
    bytes
}

fn trains(criterion: &mut Criterion) {
    let bytes = train();
    let from = ([127, 0, 0, 1], 9).into();
    let train = Train { from, local: LocalAddress::ANY, bytes: &bytes, segment_bytes: SIZE };
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
            table.on_datagram(black_box(&Header { flow, ..header(sequence.into()) }))
        });
    });
}

fn steering(criterion: &mut Criterion) {
    let filter = SteeringFilter::new(1, 28, 0x9E37_79B1, 6).expect("good settings");
    let payload = [0x08; SIZE];
    criterion.bench_function("steering model", |bencher| {
        bencher.iter(|| filter.socket_of(black_box(&payload)));
    });
}

criterion_group!(steps, trains, flows, steering);
criterion_main!(steps);
