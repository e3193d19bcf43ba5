//! The forms of one address: IPv4 plain and mapped into IPv6, with and without scope and flow label. Cookies, source
//! limits, and the shell treat them as one.

use crate::handshake::hello_server::{HELLO_BYTES, HelloServer, hello};
use crate::harness::{CLEAN, CLIENT, SERVER, World, address, identity, server_config};
use drumfire_proto::{
    Claim, ClientConfig, Config, ConfirmDecision, DropReason, Endpoint, Event, HelloHash, Inbound, Moment,
    Now, Placement, PlacementDecision, Secret,
};
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::rc::Rc;
use std::time::Duration;

/// An address in its canonical form, and its other forms.
type Address = (&'static str, &'static [&'static str]);

/// Sources, as the limits see them, with addresses of each. Loopback is none.
const SOURCES: [(&str, &[Address]); 23] = [
    (
        "192.0.2.1",
        &[
            ("192.0.2.1:5000", &["[::ffff:192.0.2.1]:5000", "[::ffff:192.0.2.1%3]:5000"]),
            ("192.0.2.1:5001", &["[::ffff:c000:201]:5001"]),
            ("192.0.2.1:65535", &["[::ffff:192.0.2.1%65535]:65535"]),
        ],
    ),
    ("192.0.2.2", &[("192.0.2.2:5000", &["[::ffff:192.0.2.2]:5000"])]),
    ("192.0.3.1", &[("192.0.3.1:5000", &["[::ffff:192.0.3.1]:5000"])]),
    ("1.2.0.192", &[("1.2.0.192:5000", &["[::ffff:1.2.0.192]:5000"])]),
    ("10.0.0.1", &[("10.0.0.1:5000", &["[::ffff:10.0.0.1]:5000"])]),
    ("100.64.0.1", &[("100.64.0.1:5000", &["[::ffff:100.64.0.1]:5000"])]),
    ("169.254.1.1", &[("169.254.1.1:5000", &["[::ffff:169.254.1.1]:5000", "[::ffff:169.254.1.1%2]:5000"])]),
    ("255.255.255.254", &[("255.255.255.254:5000", &["[::ffff:255.255.255.254]:5000"])]),
    // Addresses that resemble IPv4 and are not: compatible, translated, and those of routers.
    (
        "::/64",
        &[
            ("[::192.0.2.1]:5000", &[]),
            ("[::fffe:192.0.2.1]:5000", &[]),
            ("[::ffff:0:192.0.2.1]:5000", &[]),
            ("[::2]:5000", &[]),
        ],
    ),
    ("64:ff9b::/64", &[("[64:ff9b::192.0.2.1]:5000", &[]), ("[64:ff9b::192.0.2.2]:5000", &[])]),
    ("2002:c000:201::/64", &[("[2002:c000:201::1]:5000", &[])]),
    ("0:0:0:1::/64", &[("[0:0:0:1:0:ffff:192.0.2.1]:5000", &[])]),
    (
        "2001:db8:1:2::/64",
        &[
            ("[2001:db8:1:2::1]:5000", &["[2001:db8:1:2::1%7]:5000"]),
            ("[2001:db8:1:2::1]:5001", &[]),
            ("[2001:db8:1:2::2]:5000", &[]),
            ("[2001:db8:1:2:8000::1]:5000", &[]),
            ("[2001:db8:1:2:ffff:ffff:ffff:ffff]:5000", &[]),
        ],
    ),
    ("2001:db8:1:3::/64", &[("[2001:db8:1:3::1]:5000", &[])]),
    ("2001:db8:1:82::/64", &[("[2001:db8:1:82::1]:5000", &[])]),
    ("2001:db8:1:8002::/64", &[("[2001:db8:1:8002::1]:5000", &[])]),
    ("2001:db8:2:1::/64", &[("[2001:db8:2:1::1]:5000", &[])]),
    ("a001:db8:1:2::/64", &[("[a001:db8:1:2::1]:5000", &[])]),
    (
        "fe80::/64",
        &[
            ("[fe80::1]:5000", &["[fe80::1%1]:5000", "[fe80::1%2]:5000"]),
            ("[fe80::2]:5000", &["[fe80::2%1]:5000"]),
        ],
    ),
    ("fe80:0:0:1::/64", &[("[fe80:0:0:1::1]:5000", &["[fe80:0:0:1::1%1]:5000"])]),
    ("fd00::/64", &[("[fd00::1]:5000", &[]), ("[fd00::ffff:c000:201]:5000", &[])]),
    ("fd00:0:0:1::/64", &[("[fd00:0:0:1::1]:5000", &[])]),
    (
        "",
        &[
            ("127.0.0.1:5000", &["[::ffff:127.0.0.1]:5000"]),
            ("127.255.255.254:5000", &["[::ffff:127.255.255.254]:5000"]),
            ("[::1]:5000", &["[::1%1]:5000"]),
        ],
    ),
];

struct Row {
    source: &'static str,
    canonical: SocketAddr,
    from: SocketAddr,
}

/// All forms of all addresses, with a flow label for IPv6.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (source, addresses) in SOURCES {
        for (canonical, others) in addresses {
            let canonical: SocketAddr = canonical.parse().unwrap();
            for from in [canonical].into_iter().chain(others.iter().map(|other| other.parse().unwrap())) {
                rows.push(Row { source, canonical, from });
            }
            if let IpAddr::V6(ip) = canonical.ip() {
                let from = SocketAddrV6::new(ip, canonical.port(), 0x000a_bcde, 0).into();
                rows.push(Row { source, canonical, from });
            }
        }
    }
    assert!(rows.len() > 60, "{}", rows.len());
    rows
}

#[test]
fn a_cookie_is_valid_for_all_forms_of_its_address_alone() {
    let (mut harness, rows) = (HelloServer::new(server_config()), rows());
    let mut hello = hello(harness.now, 1, None);
    // Its Hello is dropped after the check of the cookie.
    hello[HELLO_BYTES - 1] ^= 1;
    for own in &rows {
        harness.prove(own.from, &mut hello);
        for other in &rows {
            let is_good = harness.deliver(other.from, &hello).is_none();
            assert_eq!(is_good, own.canonical == other.canonical, "{} at {}", own.from, other.from);
        }
    }
}

#[test]
fn source_limits_apply_to_all_forms_of_an_address() {
    let rows = rows();
    let mut config = server_config();
    config.half_open_per_source = 1;
    let mut harness = HelloServer::new(config);
    let mut hello = hello(harness.now, 1, None);
    hello[HELLO_BYTES - 1] ^= 1;
    for own in &rows {
        assert!(harness.accepts_client(own.from), "{}", own.from);
        for other in &rows {
            harness.prove(other.from, &mut hello);
            let before = harness.computed_and(DropReason::SourceLimit).1;
            assert!(harness.deliver(other.from, &hello).is_none());
            let is_limited = harness.computed_and(DropReason::SourceLimit).1 > before;
            let is_same = !own.source.is_empty() && own.source == other.source;
            assert_eq!(is_limited, is_same, "{} and then {}", own.from, other.from);
        }
        harness.pass(Duration::from_secs(5));
        assert_eq!(harness.server.connection_count(), 0);
    }
}

/// Accepts every client, and records its address.
#[derive(Debug, Clone, Default)]
struct AddressRecorder(Rc<RefCell<Vec<SocketAddr>>>);

impl Placement for AddressRecorder {
    fn place(&mut self, _: Now, claim: &Claim<'_>) -> PlacementDecision {
        self.0.borrow_mut().push(claim.address);
        PlacementDecision::Local
    }

    fn take(&mut self, _: HelloHash) -> bool {
        false
    }

    fn confirm(&mut self, _: Now, _: HelloHash) -> ConfirmDecision {
        ConfirmDecision::Confirmed
    }

    fn release(&mut self, _: HelloHash) {}
}

#[test]
fn addresses_are_reported_canonically_and_answered_as_given() {
    let noted = AddressRecorder::default();
    let seed = |byte| Secret::new([byte; 32]);
    let mut server = Endpoint::server(Config::default(), server_config(), noted.clone(), seed(1)).unwrap();
    let mut now = Now { monotonic: Moment::from_nanos(1_000_000_000), wall: Duration::ZERO };
    for (number, row) in (2..).zip(rows()) {
        let mut client = Endpoint::client(Config::default(), ClientConfig::default(), seed(number)).unwrap();
        now.monotonic = now.monotonic.after(Duration::from_secs(6));
        client.connect(now, address(SERVER), &identity(), None).unwrap();
        let (mut memory, mut connected) = ([0; HELLO_BYTES], None);
        for _ in 0..3 {
            while let Some(transmit) = client.poll_transmit(now, &mut memory) {
                let bytes = &mut memory[..transmit.bytes];
                server.handle_datagrams(now, [Inbound { from: row.from.into(), bytes }]);
            }
            while let Some(transmit) = server.poll_transmit(now, &mut memory) {
                // A connection that ended long ago may still get a close.
                if transmit.to.peer == row.from {
                    let bytes = &mut memory[..transmit.bytes];
                    client.handle_datagrams(now, [Inbound { from: address(SERVER).into(), bytes }]);
                }
            }
            while let Some(event) = server.poll_event() {
                if let Event::Connected { peer, address, .. } = event {
                    connected = Some((peer, address));
                }
            }
        }
        let (peer, reported) = connected.expect("it is connected");
        assert_eq!(
            (reported, noted.0.borrow_mut().pop()),
            (row.canonical, Some(row.canonical)),
            "{}",
            row.from
        );
        assert_eq!(server.address(peer), Some(row.from), "where its packets go");
    }
}

#[test]
fn an_ipv4_client_on_an_ipv6_socket_connects_and_moves() {
    let mut world = World::new(1, CLEAN);
    world.client_address = "[::ffff:192.0.2.1]:5000".parse().unwrap();
    let (client, server) = world.connected();
    for (number, address) in ["[::ffff:192.0.2.1]:5001", "[::ffff:203.0.113.9]:5001"].into_iter().enumerate()
    {
        world.client_address = address.parse().unwrap();
        world.reliable(CLIENT, client, b"here I am").unwrap();
        world.run(Duration::from_millis(200));
        world.reliable(SERVER, server, b"there you are").unwrap();
        world.run(Duration::from_secs(2));
        assert_eq!([CLIENT, SERVER].map(|end| world.messages(end).len()), [number + 1; 2]);
        assert_eq!(world.ends[SERVER].address(server), Some(world.client_address));
    }
}
