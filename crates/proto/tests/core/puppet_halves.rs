//! The halves of a puppet's connection, which tools and benches use: an endpoint accepts every packet that they seal.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::{Config, DropReason, Endpoint, Event, Inbound, Moment, Now, Secret, SingleWorker};
use drumfire_puppet::{Connector, PacketSealer, default_parameters};
use drumfire_wire::{AckRange, PacketNumber, SuiteOffer};

use crate::harness::{identity, server_config};

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 1);

fn take(server: &mut Endpoint<SingleWorker>, now: Now, bytes: &mut [u8]) {
    server.handle_datagrams(now, [Inbound { from: SocketAddr::from(CLIENT).into(), bytes }]);
}

/// Returns a server, and a client after its handshake with it. Each test has an ephemeral secret of its own, so that no two tests
/// seal packets under the same key.
fn connect(config: Config, ephemeral: [u8; 32]) -> (Endpoint<SingleWorker>, Connector) {
    let mut server =
        Endpoint::server(config, server_config(), SingleWorker::default(), Secret::new([4; 32])).unwrap();
    let key = identity().public_key;
    let mut client = Connector::new(&key, [9; 8], ephemeral, &default_parameters(), SuiteOffer::mandatory());
    assert_eq!(client.on_datagram(vec![0x8c; 1_200]), None, "a datagram of another sender");
    let (now, mut memory) = (Now::default(), [0; 1_200]);
    let mut sent = Vec::from_iter(client.resend());
    while let Some(mut datagram) = sent.pop() {
        take(&mut server, now, &mut datagram);
        while let Some(transmit) = server.poll_transmit(now, &mut memory) {
            sent.extend(client.on_datagram(memory[..transmit.bytes].to_vec()));
        }
    }
    assert_eq!(client.resend(), None, "the handshake is over");
    (server, client)
}

fn connected(ephemeral: [u8; 32]) -> (Endpoint<SingleWorker>, PacketSealer) {
    let (mut server, client) = connect(Config::default(), ephemeral);
    assert!(client.is_confirmed() && client.failure().is_none());
    let Some(Event::Connected { peer, .. }) = server.poll_event() else { panic!("no connection") };
    let stats = server.peer_stats(Now::default(), peer).unwrap();
    assert_eq!(stats.in_flight_bytes, 0, "the client acknowledges all packets");
    (server, client.into_sealer().unwrap())
}

#[test]
fn a_sealed_packet_has_the_requested_length() {
    let (mut server, mut sealer) = connected([1; 32]);
    for bytes in 32..=1_200 {
        let payload = vec![7; PacketSealer::payload_bytes(bytes).unwrap()];
        let mut datagram = vec![0; bytes];
        sealer.seal(&mut datagram, &payload).unwrap();
        // Each packet gets its own pass, because a pass accepts a limited number of packets per connection.
        let now = Now { monotonic: Moment::from_nanos(bytes as u64), ..Now::default() };
        take(&mut server, now, &mut datagram);
        let Some(Event::Message { payload: received, .. }) = server.poll_event() else { panic!("{bytes}") };
        assert_eq!(received, payload);
    }
}

#[test]
fn a_payload_of_a_wrong_length_is_not_sealed() {
    let (_, mut sealer) = connected([2; 32]);
    assert_eq!(PacketSealer::payload_bytes(31), None);
    assert_eq!(PacketSealer::payload_bytes(32), Some(0));
    assert_eq!(PacketSealer::payload_bytes(159), Some(127));
    assert_eq!(PacketSealer::payload_bytes(160), Some(127));
    assert_eq!(PacketSealer::payload_bytes(161), Some(128));
    assert!(sealer.seal(&mut [0; 100], &[0; 67]).is_none());
    assert!(sealer.seal(&mut [0; 100], &[0; 68]).is_some());
    assert!(sealer.seal(&mut [0; 100], &[0; 69]).is_none());
}

#[test]
fn a_sealed_ack_is_as_short_as_it_can_be() {
    let (mut server, mut sealer) = connected([3; 32]);
    let mut datagram = [0; 100];
    let first = PacketNumber(0);
    let ranges = AckRange::new(first, first).into_iter();
    let bytes = sealer.seal_ack(&mut datagram, Duration::ZERO, ranges).unwrap();
    assert!(bytes < 50, "{bytes}");
    let received = server.stats().packets_received;
    take(&mut server, Now::default(), &mut datagram[..bytes]);
    assert_eq!((server.stats().packets_received, server.stats().dropped_count()), (received + 1, 0));
}

#[test]
fn a_client_reports_why_it_was_refused() {
    let (server, client) = connect(Config::default().protocol_id(7), [4; 32]);
    assert_eq!(server.stats().dropped(DropReason::WrongProtocol), 1);
    assert!(client.failure().unwrap().contains("Protocol"), "{:?}", client.failure());
    assert!(client.into_sealer().is_none());
}
