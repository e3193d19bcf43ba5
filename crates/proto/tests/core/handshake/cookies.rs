//! Cookies that are required only under load: the behavior of a server without load, and its limits.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{
    ClientConfig, Config, ConnectError, Cookie, DropReason, Endpoint, Moment, RefuseReason, Secret,
    SendOptions, ServerConfig, SingleWorker,
};

use crate::harness::{
    CLEAN, CLIENT, InFlightDatagram, REFUSE_KIND, Random, SERVER, Seen, World, address, server_config,
};

const HELLO: u8 = 0x89;
const RETRY: u8 = 0x8a;
const WELCOME: u8 = 0x8c;

fn server_under_load_only(config: Config, server: ServerConfig) -> Endpoint {
    let server = server.cookie(Cookie::UnderLoad);
    Endpoint::server(config, server, SingleWorker::default(), Secret::new([8; 32])).unwrap()
}

fn world(seed: u64) -> World {
    let mut world = World::with(seed, CLEAN, Config::default(), ClientConfig::many());
    world.ends[SERVER] = server_under_load_only(Config::default(), server_config());
    world
}

fn sent(world: &World, kind: u8) -> Vec<Vec<u8>> {
    world.sent.iter().filter(|(_, _, bytes)| bytes[0] == kind).map(|(_, _, bytes)| bytes.clone()).collect()
}

fn stray_kinds(world: &World) -> Vec<(SocketAddr, u8)> {
    world.stray.iter().map(|(to, bytes)| (*to, bytes[0])).collect()
}

/// Returns a Hello of a new client.
fn hello(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let seed = Secret::new(std::array::from_fn(|_| random.bits() as u8));
    let mut client = Endpoint::client(Config::default(), ClientConfig::default(), seed).unwrap();
    let now = drumfire_proto::Now { monotonic: Moment::from_nanos(1), wall: Duration::ZERO };
    client.connect(now, address(SERVER), &crate::harness::identity(), None).unwrap();
    let mut bytes = [0; 1_200];
    assert_eq!(client.poll_transmit(now, &mut bytes).unwrap().bytes, 1_200);
    bytes.to_vec()
}

fn victim(port: u16) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 5], port))
}

#[test]
fn without_load_the_first_hello_gets_a_welcome() {
    let mut world = world(1);
    let start = world.now;
    let client = world.connect();
    world.run(Duration::from_millis(500));
    assert_eq!(world.seen[CLIENT], [(start.after(Duration::from_millis(20)), client, Seen::Connected)]);
    assert_eq!((sent(&world, HELLO).len(), sent(&world, RETRY).len()), (1, 0));
    let peer = world.peers(SERVER)[0];
    assert_eq!(world.ends[SERVER].address(peer), Some(address(CLIENT)));
    world.send(SERVER, peer, 0, b"welcome", SendOptions::reliable_ordered()).unwrap();
    world.run(Duration::from_millis(500));
    assert_eq!(world.messages(CLIENT), [(0, b"welcome".to_vec())]);
}

#[test]
fn a_flood_of_hellos_gets_64_welcomes_and_then_retries() {
    let mut world = world(2);
    for number in 0..200 {
        world.deliver(SERVER, victim(1_000 + number), &hello(number.into()));
    }
    world.flush();
    let count = |world: &World, kind| stray_kinds(world).iter().filter(|(_, sent)| *sent == kind).count();
    assert_eq!((count(&world, WELCOME), count(&world, RETRY)), (64, 136));
    assert_eq!(world.ends[SERVER].stats().handshakes_computed, 64);
    // A player who connects during the flood proves the address, and is accepted.
    world.connected();
    assert_eq!(sent(&world, RETRY).len(), 1);
    world.run(Duration::from_secs(2));
    world.connected();
    assert_eq!(sent(&world, RETRY).len(), 1, "calm again");
}

#[test]
fn a_forged_source_address_uses_no_limit_of_its_owner() {
    let mut world = world(3);
    for number in 0..64 {
        world.deliver(SERVER, address(CLIENT), &hello(number));
    }
    world.flush();
    assert_eq!(world.ends[SERVER].stats().dropped(DropReason::SourceLimit), 0);
    world.connected();
}

#[test]
fn a_hello_under_another_address_must_prove_it() {
    let mut world = world(4);
    world.connect();
    world.run(Duration::from_millis(5));
    let first = sent(&world, HELLO)[0].clone();
    // The copy arrives first, from the address of a bystander.
    world.deliver(SERVER, victim(9), &first);
    world.run(Duration::from_secs(1));
    assert_eq!(stray_kinds(&world), [(victim(9), WELCOME)]);
    let peer = world.peers(SERVER)[0];
    assert_eq!(world.peers(CLIENT).len(), 1, "the owner proved its address, and got its Welcome");
    assert_eq!(sent(&world, RETRY).len(), 1);
    assert_eq!(world.ends[SERVER].address(peer), Some(address(CLIENT)));
    for _ in 0..20 {
        world.send(SERVER, peer, 0, &[1; 1_000], SendOptions::reliable_ordered()).unwrap();
    }
    world.run(Duration::from_secs(5));
    assert_eq!(stray_kinds(&world).len(), 1, "nothing more went to the bystander");
}

#[test]
fn a_confirming_packet_does_not_prove_a_bystanders_address() {
    let mut world = world(5);
    world.connect();
    world.run(Duration::from_millis(5));
    let first = sent(&world, HELLO)[0].clone();
    world.deliver(SERVER, victim(9), &first);
    // The client's packets claim the bystander's address as soon as there are any.
    for _ in 0..200 {
        world.flush();
        for datagram in world.in_flight.values_mut().filter(|datagram| datagram.to == SERVER) {
            if datagram.bytes[0] & 0x80 == 0 {
                datagram.from = victim(9);
            }
        }
        world.run(Duration::from_millis(1));
    }
    let peer = world.peers(SERVER)[0];
    assert_ne!(world.ends[SERVER].address(peer), Some(victim(9)));
    let to_victim: usize = world.stray.iter().map(|(_, bytes)| bytes.len()).sum();
    let from_victim: usize = 1_200 + sent(&world, 0x09).iter().map(Vec::len).sum::<usize>();
    assert!(to_victim <= 3 * from_victim, "{to_victim} for {from_victim}");
}

#[test]
fn without_load_no_unproved_address_is_refused() {
    let mut world = world(6);
    world.ends[SERVER] = server_under_load_only(Config::default().connections(1), server_config());
    world.connected();
    world.deliver(SERVER, victim(9), &hello(7));
    world.flush();
    assert_eq!(stray_kinds(&world), [(victim(9), RETRY)]);
    assert_eq!(world.ends[SERVER].stats().dropped(DropReason::ServerFull), 0, "asked for a proof instead");
    world.connect();
    world.run(Duration::from_secs(3));
    let Some((_, _, Seen::ConnectFailed(ConnectError::Refused(refusal)))) = world.last(CLIENT) else {
        panic!("{:?}", world.last(CLIENT));
    };
    assert_eq!(refusal.reason, RefuseReason::Full);
    assert!(!sent(&world, REFUSE_KIND).is_empty());
}

#[test]
fn a_repeated_hello_gets_its_welcome_again_five_times_at_most() {
    let mut world = world(7);
    let hello = hello(1);
    for _ in 0..9 {
        world.deliver(SERVER, victim(9), &hello);
        world.flush();
    }
    let kinds: Vec<u8> = stray_kinds(&world).into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, [[WELCOME; 5].as_slice(), &[RETRY; 4]].concat());
    assert_eq!(world.ends[SERVER].stats().handshakes_computed, 1);
    let (sent, received) = (world.stray.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), 9 * 1_200);
    assert!(sent <= received, "{sent} for {received}");
}

#[test]
fn forged_cookies_are_treated_like_no_cookie() {
    let mut world = world(8);
    let mut hello = hello(1);
    hello[540..572].fill(7);
    world.inject(world.now, InFlightDatagram { from: victim(9), to: SERVER, bytes: hello });
    world.run(Duration::from_millis(1));
    assert_eq!(stray_kinds(&world), [(victim(9), WELCOME)]);
}
