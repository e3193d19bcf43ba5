//! What a handshake costs either end, and what it costs a server to say no at each step: `cargo bench --bench handshake`.
#![forbid(unsafe_code)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use drumfire_benches::hellos::{Flaw, Refusals, address, first_hello, hand, take, with_cookie};
use drumfire_benches::pair::{at_ms, server, server_address};

fn ends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("handshake");
    group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: 1_200 });
    group.bench_function("client: make a Hello", |bencher| {
        let (_, identity) = server();
        bencher.iter(|| first_hello(black_box(&identity)));
    });
    group.bench_function("server: take a Hello with a cookie, and answer with a Welcome", |bencher| {
        let made = || {
            let (mut server, identity) = server();
            let (_, hello) = with_cookie(&mut server, &identity);
            (server, hello)
        };
        bencher.iter_batched(
            made,
            |(mut server, mut hello)| {
                hand(&mut server, at_ms(0), address(), &mut hello);
                take(&mut server, at_ms(0)).expect("a Welcome");
                server
            },
            BatchSize::SmallInput,
        );
    });
    group.bench_function("client: take the Welcome, and answer with the first packet", |bencher| {
        let made = || {
            let (mut server, identity) = server();
            let (client, mut hello) = with_cookie(&mut server, &identity);
            hand(&mut server, at_ms(0), address(), &mut hello);
            (client, take(&mut server, at_ms(0)).expect("a Welcome"))
        };
        bencher.iter_batched(
            made,
            |(mut client, mut welcome)| {
                hand(&mut client, at_ms(0), server_address(), &mut welcome);
                take(&mut client, at_ms(0)).expect("a packet");
                client
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

/// Hellos that get no further than a certain step, each handed in again and again.
fn refusals(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a server refuses a Hello");
    group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: 1_200 });
    for flaw in Flaw::ALL {
        let mut refusals = Refusals::new(flaw);
        group.bench_function(flaw.name(), |bencher| {
            bencher.iter(|| {
                refusals.hand_in();
                refusals.take_answers();
            });
        });
    }
    group.finish();
}

criterion_group!(handshake, ends, refusals);
criterion_main!(handshake);
