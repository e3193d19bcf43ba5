//! A source that floods the server with Hellos that pass the cookie gets its share of the server's work and of the
//! application's time. Other sources get theirs.

use crate::handshake::hello_server::{Hello, HelloServer, MAC1, NOISE, by_token, hello, seal, source};
use crate::handshake::tokens::{NOW, issued, token};
use crate::harness::{identity, server_config};
use drumfire_crypto::Initiator;
use drumfire_proto::{
    Claim, ConfirmDecision, Cookie, DropReason, HelloHash, IssuedToken, Now, Placement, PlacementDecision,
    RefuseReason, Rejection, Secret, ServerConfig, Token,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Gives every Hello the same answer, and counts the questions.
#[derive(Clone, Debug)]
struct Scripted(Rc<RefCell<(PlacementDecision, u64)>>);

impl Placement for Scripted {
    fn place(&mut self, _: Now, _: &Claim<'_>) -> PlacementDecision {
        let (answer, asked) = &mut *self.0.borrow_mut();
        *asked += 1;
        *answer
    }

    fn take(&mut self, _: HelloHash) -> bool {
        false
    }

    fn confirm(&mut self, _: Now, _: HelloHash) -> ConfirmDecision {
        ConfirmDecision::Confirmed
    }

    fn release(&mut self, _: HelloHash) {}
}

type Corrupt = fn(&mut Hello, Option<&IssuedToken>);

fn nothing(_: &mut Hello, _: Option<&IssuedToken>) {}

/// A Noise message that does not open, under a valid MAC.
fn bad_noise(hello: &mut Hello, token: Option<&IssuedToken>) {
    hello[NOISE.start + 40] ^= 1;
    seal(hello, token);
}

/// A Noise message that opens, with parameters out of range.
fn bad_parameters(hello: &mut Hello, token: Option<&IssuedToken>) {
    let prologue = drumfire_wire::Hello::decode(hello).unwrap().prologue().concat();
    let psk = token.map_or(Secret::zeroed(), |token| token.psk.duplicate());
    let (public_key, payload) = (identity().public_key, [0xff; NOISE.end - NOISE.start - 48]);
    let ephemeral = Secret::new([3; 32]);
    Initiator::new(&public_key, &psk, &prologue, &payload, ephemeral, &mut hello[NOISE]).unwrap();
    seal(hello, token);
}

fn bad_mac1(hello: &mut Hello, _: Option<&IssuedToken>) {
    hello[MAC1.start] ^= 1;
}

fn wrong_protocol(hello: &mut Hello, token: Option<&IssuedToken>) {
    hello[3] ^= 1;
    seal(hello, token);
}

/// Sends the same Hello ten times as often as the source may. No work may be done more often than allowed, and
/// another source must get a Welcome in two round trips.
fn flood(
    config: ServerConfig,
    token: Option<&Token>,
    corrupt: Corrupt,
    answer: PlacementDecision,
    counted_as: DropReason,
) {
    let allowance = u64::from(config.source_handshakes_burst);
    let script = Scripted(Rc::new(RefCell::new((answer, 0))));
    let mut harness = HelloServer::with_placement(config, script.clone());
    let issued = token.map(issued);
    let mut flooding = hello(harness.now, 1, issued.as_ref());
    corrupt(&mut flooding, issued.as_ref());
    harness.prove(source(1), &mut flooding);
    for _ in 0..10 * allowance {
        harness.server.handle_datagrams(
            harness.now,
            [drumfire_proto::Inbound { from: source(1).into(), bytes: &mut flooding.clone() }],
        );
        let mut memory = [0; 1_200];
        while harness.server.poll_transmit(harness.now, &mut memory).is_some() {}
        while harness.server.poll_forward().is_some() {}
    }
    let stats = *harness.server.stats();
    assert_eq!(stats.unexplained(), 0);
    assert_eq!(stats.dropped(DropReason::SourceLimit), 9 * allowance, "{counted_as:?}");
    let done =
        if counted_as == DropReason::ForwardFull { stats.forwarded } else { stats.dropped(counted_as) };
    assert_eq!(done, allowance, "{counted_as:?}");
    let asked = script.0.borrow().1;
    assert!(stats.handshakes_computed <= allowance && asked <= allowance && stats.forwarded <= allowance);
    script.0.borrow_mut().0 = PlacementDecision::Local;
    let other = harness.proved(
        source(2),
        token.map(|_| crate::handshake::tokens::issued(&crate::handshake::tokens::token(77))).as_ref(),
    );
    assert!(harness.welcomes(source(2), &other), "{counted_as:?}: another source must connect");
}

fn declined() -> PlacementDecision {
    PlacementDecision::Rejected(Rejection {
        counted_as: DropReason::Declined,
        reason: RefuseReason::Full,
        retry_after: None,
        address: None,
    })
}

#[test]
fn a_burst_of_one_source_leaves_room_to_forward_others() {
    let script = Scripted(Rc::new(RefCell::new((PlacementDecision::Forward(0), 0))));
    let mut harness = HelloServer::with_placement(by_token(), script);
    let burst = by_token().source_handshakes_burst;
    let tokens = [1, 77].map(|number| issued(&token(number)));
    let mut flooding = hello(harness.now, 1, Some(&tokens[0]));
    harness.prove(source(1), &mut flooding);
    let other = harness.proved(source(2), Some(&tokens[1]));
    let flood = (0..burst).map(|_| (source(1), flooding));
    for (from, mut bytes) in flood.chain([(source(2), other)]) {
        let datagram = drumfire_proto::Inbound { from: from.into(), bytes: &mut bytes };
        harness.server.handle_datagrams(harness.now, [datagram]);
    }
    let stats = harness.server.stats();
    assert_eq!((stats.forwarded, stats.dropped(DropReason::ForwardFull)), (u64::from(burst) + 1, 0));
}

#[test]
fn a_source_gets_its_share_and_no_more_under_any_load() {
    let expired = Token {
        issued_at: NOW - Duration::from_secs(9),
        expires_at: NOW - Duration::from_secs(6),
        ..token(2)
    };
    let classes: [(Corrupt, PlacementDecision, DropReason); 10] = [
        (bad_noise, PlacementDecision::Local, DropReason::BadNoise),
        (bad_parameters, PlacementDecision::Local, DropReason::BadParameters),
        (bad_mac1, PlacementDecision::Local, DropReason::BadMac1),
        (wrong_protocol, PlacementDecision::Local, DropReason::WrongProtocol),
        (nothing, declined(), DropReason::Declined),
        (nothing, PlacementDecision::Full { retry_after: None }, DropReason::ServerFull),
        (nothing, PlacementDecision::Used, DropReason::TokenUsed),
        (nothing, PlacementDecision::Undecided, DropReason::HelloRepeated),
        // The Hello of a connection on another worker, which does not drop it here.
        (nothing, PlacementDecision::Forward(0), DropReason::ForwardFull),
        (bad_noise, declined(), DropReason::Declined),
    ];
    for (corrupt, answer, counted_as) in classes {
        flood(server_config(), None, corrupt, answer, counted_as);
        let mut config = by_token();
        config.source_handshakes_burst = 40;
        flood(config, Some(&token(1)), corrupt, answer, counted_as);
    }
    let mut config = by_token();
    config.source_handshakes_burst = 40;
    flood(config, Some(&expired), nothing, PlacementDecision::Local, DropReason::TokenExpired);
}

#[test]
fn a_source_that_stops_regains_attempts_at_its_rate() {
    let script = Scripted(Rc::new(RefCell::new((declined(), 0))));
    let mut harness = HelloServer::with_placement(server_config(), script.clone());
    let refused = harness.proved(source(1), None);
    for _ in 0..30 {
        harness.deliver(source(1), &refused);
    }
    assert_eq!(script.0.borrow().1, 20);
    // Once per round trip, as a client sends it: an attempt is refilled in 50 ms.
    for _ in 0..20 {
        harness.pass(Duration::from_millis(100));
        harness.deliver(source(1), &refused);
    }
    assert_eq!(script.0.borrow().1, 40);
}

#[test]
fn an_answered_hello_is_not_charged_again() {
    let mut harness = HelloServer::new(server_config());
    let good = harness.proved(source(1), None);
    assert!(harness.welcomes(source(1), &good));
    for _ in 0..100 {
        harness.deliver(source(1), &good);
    }
    assert_eq!(harness.computed_and(DropReason::HelloRepeated), (1, 96), "five Welcomes in all");
    // Nineteen attempts are left, and the half-open connections allow fifteen.
    assert!((0..15).all(|_| harness.accepts_client(source(1))) && !harness.accepts_client(source(1)));
}

/// Unproved addresses have no source: together they get what a server without load gives.
#[test]
fn the_application_is_asked_64_times_without_cookies() {
    let script = Scripted(Rc::new(RefCell::new((declined(), 0))));
    let mut harness = HelloServer::with_placement(server_config().cookie(Cookie::UnderLoad), script.clone());
    let hello = hello(harness.now, 1, None);
    for number in 0..1_000 {
        harness.deliver(source(number), &hello);
    }
    assert_eq!(script.0.borrow().1, 64);
    assert_eq!(harness.computed_and(DropReason::Declined), (0, 0), "they are asked for a cookie");
}
