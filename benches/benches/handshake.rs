//! What a handshake costs either end, and what it costs a server to say no at each step: `cargo bench --bench handshake`.
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::net::SocketAddr;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use drumfire_benches::pair::{at_ms, client, server, server_address};
use drumfire_proto::{Alone, Endpoint, Inbound, Now, ServerIdentity};

const RETRY: u8 = 0x8a;
/// Where a Hello has its cookie, its Noise message and its last byte.
const COOKIE_AT: usize = 540;
const NOISE_AT: usize = 572;
const LAST: usize = 1_199;

fn address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 50_000))
}

fn take(endpoint: &mut Endpoint<Alone>, now: Now) -> Option<Vec<u8>> {
    let mut memory = vec![0; 1_200];
    let transmit = endpoint.poll_transmit(now, &mut memory)?;
    memory.truncate(transmit.bytes);
    Some(memory)
}

fn hand(endpoint: &mut Endpoint<Alone>, now: Now, from: SocketAddr, bytes: &mut [u8]) {
    endpoint.handle_datagrams(now, [Inbound { from, bytes }]);
}

fn first_hello(identity: &ServerIdentity) -> (Endpoint<Alone>, Vec<u8>) {
    let mut client = client(1, true);
    client.connect(at_ms(0), server_address(), identity, None).expect("an attempt");
    let hello = take(&mut client, at_ms(0)).expect("a Hello");
    (client, hello)
}

/// A client that has its cookie, and its Hello with it.
fn with_cookie(server: &mut Endpoint<Alone>, identity: &ServerIdentity) -> (Endpoint<Alone>, Vec<u8>) {
    let (mut client, mut hello) = first_hello(identity);
    hand(server, at_ms(0), address(), &mut hello);
    let mut retry = take(server, at_ms(0)).expect("a Retry");
    assert_eq!(retry.first(), Some(&RETRY));
    hand(&mut client, at_ms(0), server_address(), &mut retry);
    let hello = take(&mut client, at_ms(0)).expect("a Hello with a cookie");
    (client, hello)
}

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
    let (mut server, identity) = server();
    let (_, genuine) = with_cookie(&mut server, &identity);
    let changed = |at: usize| {
        let mut hello = genuine.clone();
        hello[at] ^= 1;
        hello
    };
    let classes = [
        ("a byte short", genuine[..LAST].to_vec()),
        ("of another protocol id", changed(5)),
        ("with a cookie of somebody else's", changed(COOKIE_AT)),
        ("with a good cookie and another Noise message", changed(NOISE_AT + 40)),
        ("with a good cookie and a bad MAC", changed(LAST)),
    ];
    let mut group = criterion.benchmark_group("a server refuses a Hello");
    group.throughput(Throughput::ElementsAndBytes { elements: 1, bytes: 1_200 });
    for (class, hello) in classes {
        let mut milliseconds = 1;
        group.bench_function(class, |bencher| {
            bencher.iter_batched_ref(
                || hello.clone(),
                |hello| {
                    milliseconds += 1;
                    // The cookie is good for five seconds at least.
                    let now = at_ms(milliseconds % 4_000);
                    hand(&mut server, now, address(), hello);
                    while take(&mut server, now).is_some() {}
                },
                BatchSize::SmallInput,
            );
        });
        assert_eq!(server.stats().handshakes_computed, 0, "{class}");
    }
    group.finish();
}

criterion_group!(handshake, ends, refusals);
criterion_main!(handshake);
