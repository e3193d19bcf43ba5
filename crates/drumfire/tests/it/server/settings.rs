//! Every setting at its bounds, and the errors for addresses that cannot be bound.
//!
//! For each setting, the lowest and the highest value are accepted. The value below the lowest and the value above the highest are
//! refused with an error that names the field.

use std::net::SocketAddr;
use std::time::Duration;

use super::world::config;
use drumfire::admission::AdmissionConfig;
use drumfire::config::{Congestion, Cookie, Wait};
use drumfire::tokens::{TokenAccess, TokenKey, TokenMasterKey, TokenRequest};
use drumfire::{
    Access, Client, ClientConfig, ConnectError, ConnectOptions, ConnectToken, Error, PlayerId, Server,
    ServerConfig, ServerKey, ServerPublicKey, Workers,
};
use drumfire_socket::ReuseportGroup;

use crate::single::{connect, connect_dev};

/// A setting as a function of a number, with numbers that are accepted and refused.
struct Range<C> {
    field: &'static str,
    with: fn(u64) -> C,
    refused: &'static [u64],
    taken: &'static [u64],
}

const SECOND: u64 = 1_000_000_000;
/// The longest timeout in nanoseconds: the highest 32-bit number of milliseconds.
const TIMEOUT_MAX: u64 = 0xFFFF_FFFF * 1_000_000;
const MILLISECOND: u64 = 1_000_000;
const MEBI: u64 = 1 << 20;

/// Sizes of receive buffers that servers and clients refuse, and sizes that both accept.
const BUFFER_REFUSED: &[u64] = &[0, 4_095, (1 << 30) + 1, u32::MAX as u64 + 4_097];
const BUFFER_TAKEN: &[u64] = &[4_096, 4_097, (1 << 30) - 1, 1 << 30];

fn inline() -> ServerConfig {
    config(Workers::Inline)
}

fn bytes(number: u64) -> usize {
    usize::try_from(number).expect("a number of bytes")
}

fn with_keys(ids: impl IntoIterator<Item = u64>) -> ServerConfig {
    let master = TokenMasterKey::from_bytes([7; 32]);
    let key = |id| master.token_key(u32::try_from(id).expect("an id"), "a").expect("an id");
    let mut access = TokenAccess::new(key(1));
    access.keys = ids.into_iter().map(key).collect();
    let address = "127.0.0.1:0".parse().expect("an address");
    ServerConfig::new(address, ServerKey::from_bytes([9; 32]), Access::Token(access))
}

/// All fields of a server's settings that have bounds.
const SERVER: &[Range<ServerConfig>] = &[
    Range { field: "access", with: |n| with_keys(1..=n), refused: &[0, 9], taken: &[1, 2, 7, 8] },
    Range { field: "access", with: |n| with_keys([1, n]), refused: &[1], taken: &[2] },
    Range {
        field: "workers",
        with: |n| config(Workers::Inline).workers(Workers::Count(u16::try_from(n).expect("a count"))),
        refused: if ReuseportGroup::MAX_SOCKETS == 1 { &[0, 2, 1_025] } else { &[0, 1_025, 65_535] },
        taken: if ReuseportGroup::MAX_SOCKETS == 1 { &[1] } else { &[1, 2] },
    },
    Range {
        field: "wait",
        with: |n| inline().wait(Wait::Gather(Duration::from_nanos(n))),
        refused: &[0, 999, 10 * MILLISECOND + 1],
        // A platform without sleeps of microseconds does not support gathering.
        taken: match Wait::best() {
            Wait::Gather(_) => &[1_000, 1_001, 10 * MILLISECOND - 1, 10 * MILLISECOND],
            _ => &[],
        },
    },
    Range {
        field: "connections",
        with: |n| inline().connections(u32::try_from(n).expect("a count")),
        refused: &[0, 4_194_305],
        taken: &[1, 2, 4_194_304],
    },
    Range {
        field: "send_memory_bytes",
        with: |n| inline().memory_bytes(bytes(n), 8_192),
        refused: &[0, 4_095],
        taken: &[4_096, 4_097, 1 << 40],
    },
    Range {
        field: "receive_memory_bytes",
        with: |n| inline().memory_bytes(8_192, bytes(n)),
        refused: &[0, 4_095],
        taken: &[4_096, 4_097, 1 << 40],
    },
    Range {
        field: "message_max_bytes",
        with: |n| inline().message_max_bytes(bytes(n)),
        refused: &[0, 1_023, 262_145],
        taken: &[1_024, 1_025, 262_143, 262_144],
    },
    Range {
        field: "message_max_bytes",
        with: |n| inline().memory_bytes(bytes(128 * MEBI), bytes(128 * MEBI)).message_max_bytes(bytes(n)),
        refused: &[16 * MEBI + 1],
        taken: &[16 * MEBI - 1, 16 * MEBI],
    },
    Range {
        field: "in_flight_bytes",
        with: |n| inline().in_flight_bytes(bytes(n)),
        refused: &[0, 2_399],
        taken: &[2_400, 2_401, 1 << 40],
    },
    Range {
        field: "congestion",
        with: |n| inline().congestion(Congestion::Fixed { bytes_per_second: n }),
        refused: &[0, 1_199],
        taken: &[1_200, 1_201, u64::MAX],
    },
    Range {
        field: "idle_timeout",
        with: |n| inline().timeouts(Duration::from_nanos(n), Duration::from_secs(1)),
        refused: &[0, SECOND - 1, TIMEOUT_MAX + MILLISECOND],
        taken: &[SECOND, SECOND + 1, TIMEOUT_MAX - 1, TIMEOUT_MAX],
    },
    Range {
        field: "unacknowledged_timeout",
        with: |n| inline().timeouts(Duration::from_secs(1), Duration::from_nanos(n)),
        refused: &[0, SECOND - 1, TIMEOUT_MAX + MILLISECOND],
        taken: &[SECOND, SECOND + 1, TIMEOUT_MAX - 1, TIMEOUT_MAX],
    },
    Range {
        field: "admission.retry_after",
        with: |n| {
            let mut admission = AdmissionConfig::default();
            admission.retry_after = Duration::from_nanos(n);
            inline().admission(admission)
        },
        refused: &[0, SECOND - 1, 65_535 * SECOND + 1],
        taken: &[SECOND, SECOND + 1, 65_535 * SECOND - 1, 65_535 * SECOND],
    },
    Range {
        field: "receive_buffer_bytes",
        with: |n| inline().receive_buffer_bytes(bytes(n)),
        refused: BUFFER_REFUSED,
        taken: BUFFER_TAKEN,
    },
];

fn client() -> ClientConfig {
    ClientConfig::default()
}

/// All fields of a client's settings that have bounds.
const CLIENT: &[Range<ClientConfig>] = &[
    Range {
        field: "send_memory_bytes",
        with: |n| client().memory_bytes(bytes(n), 8_192),
        refused: &[0, 4_095],
        taken: &[4_096, 4_097, 1 << 40],
    },
    Range {
        field: "receive_memory_bytes",
        with: |n| client().memory_bytes(8_192, bytes(n)),
        refused: &[0, 4_095],
        taken: &[4_096, 4_097, 1 << 40],
    },
    Range {
        field: "message_max_bytes",
        with: |n| client().message_max_bytes(bytes(n)),
        refused: &[0, 1_023, 262_145],
        taken: &[1_024, 1_025, 262_143, 262_144],
    },
    Range {
        field: "in_flight_bytes",
        with: |n| client().in_flight_bytes(bytes(n)),
        refused: &[0, 2_399],
        taken: &[2_400, 2_401, 1 << 40],
    },
    Range {
        field: "congestion",
        with: |n| client().congestion(Congestion::Fixed { bytes_per_second: n }),
        refused: &[0, 1_199],
        taken: &[1_200, 1_201, u64::MAX],
    },
    Range {
        field: "idle_timeout",
        with: |n| client().timeouts(Duration::from_nanos(n), Duration::from_secs(1)),
        refused: &[0, SECOND - 1, TIMEOUT_MAX + MILLISECOND],
        taken: &[SECOND, SECOND + 1, TIMEOUT_MAX - 1, TIMEOUT_MAX],
    },
    Range {
        field: "unacknowledged_timeout",
        with: |n| client().timeouts(Duration::from_secs(1), Duration::from_nanos(n)),
        refused: &[0, SECOND - 1, TIMEOUT_MAX + MILLISECOND],
        taken: &[SECOND, SECOND + 1, TIMEOUT_MAX - 1, TIMEOUT_MAX],
    },
    Range {
        field: "receive_buffer_bytes",
        with: |n| client().receive_buffer_bytes(bytes(n)),
        refused: BUFFER_REFUSED,
        taken: BUFFER_TAKEN,
    },
];

/// Returns the field that an error names. Asserts that the text has a remedy after the name.
fn named<T>(result: Result<T, Error>) -> Option<&'static str> {
    match result {
        Ok(_) => None,
        Err(error @ Error::Setting { field, .. }) => {
            let text = error.to_string();
            assert!(text.starts_with(field) && text.len() > field.len() + 8, "{text}");
            Some(field)
        }
        Err(other) => panic!("names no field: {other}"),
    }
}

fn check<C, T>(ranges: &[Range<C>], make: impl Fn(C) -> Result<T, Error>) {
    for Range { field, with, refused, taken } in ranges {
        for number in *refused {
            assert_eq!(named(make(with(*number))), Some(*field), "{number}");
        }
        for number in *taken {
            assert_eq!(named(make(with(*number))), None, "{field} of {number}");
        }
    }
}

#[test]
fn server_settings_are_checked_at_their_bounds() {
    check(SERVER, Server::bind);
}

#[test]
fn client_settings_are_checked_at_their_bounds() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let (address, key) = (silent.local_addr().expect("bound"), ServerKey::dev().public());
    check(CLIENT, |config| connect((address, key), &config));
    check(CLIENT, |config| {
        Client::new(config.clone().connections(1).address("127.0.0.1:0".parse().expect("an address")))
    });
    let range =
        Range { field: "connections", with: |n| n, refused: &[0, 4_194_305], taken: &[1, 2, 4_194_304] };
    check(&[range], |count| {
        let count = u32::try_from(count).expect("a count");
        Client::new(client().connections(count).address("127.0.0.1:0".parse().expect("an address")))
    });
    let nobody = ServerPublicKey::from_bytes([0; 32]);
    let refused = connect((address, nobody), &client());
    assert!(matches!(refused, Err(Error::Connect(ConnectError::BadServerKey))), "{refused:?}");
    let nowhere = SocketAddr::new(address.ip(), 0);
    assert_eq!(named(connect((nowhere, key), &client())), Some("server"));
}

#[test]
fn settings_without_bounds_accept_all_values() {
    let long = "a name ".repeat(1_000);
    for (protocol_id, server_id) in [(0, ""), (1, "eu-1"), (u64::MAX - 1, "ü\0"), (u64::MAX, long.as_str())]
    {
        for cookie in [Cookie::Always, Cookie::UnderLoad] {
            let config = inline().protocol_id(protocol_id).server_id(server_id).cookie(cookie);
            assert_eq!(named(Server::bind(config)), None);
        }
    }
}

fn bind_to(address: &str) -> Error {
    let address = address.parse().expect("an address");
    let config = ServerConfig::new(address, ServerKey::from_bytes([9; 32]), Access::Open);
    Server::bind(config).expect_err("refused")
}

#[test]
fn unusable_connect_options_are_refused_and_named() {
    let key = ServerKey::from_bytes([9; 32]).public();
    let local = "127.0.0.1:0".parse().expect("an address");
    let mut clients = Client::new(client().connections(1).address(local)).expect("a socket");
    let mut text = |options: ConnectOptions| {
        let one = connect(options.clone(), &ClientConfig::default()).expect_err("refused").to_string();
        assert_eq!(clients.connect(options).expect_err("refused").to_string(), one);
        one
    };
    let at = |address: &str, key| ConnectOptions::new(address.parse().expect("an address"), key);
    for (options, problem) in [
        (at("127.0.0.1:9", key).hello(vec![0; 257]), "hello: must be at most 256 bytes"),
        (at("127.0.0.1:0", key), "server: has port 0"),
        (at("192.0.2.1:9", ServerKey::dev().public()), "server: 192.0.2.1:9 cannot be a development server"),
    ] {
        assert!(text(options).starts_with(problem), "{problem}");
    }
}

#[test]
fn a_port_that_is_in_use_is_refused_and_named() {
    for workers in [Workers::Inline, Workers::Count(2)] {
        let first = Server::bind(config(workers)).expect("a server");
        let address = first.local_addr();
        let again = bind_to(&address.to_string());
        assert!(matches!(again, Error::AddressInUse { address: taken } if taken == address), "{again:?}");
        let text = again.to_string();
        assert!(text.starts_with(&format!("address: another program has {address}")), "{text}");
        let client = Client::new(client().connections(1).address(address)).expect_err("refused");
        assert!(matches!(client, Error::AddressInUse { .. }), "{client:?}");
    }
}

#[test]
fn an_address_of_another_host_is_refused_and_named() {
    for address in ["192.0.2.1:0", "203.0.113.77:7777", "[2001:db8::1]:0"] {
        let error = bind_to(address);
        let wanted: SocketAddr = address.parse().expect("an address");
        // A host without IPv6 returns another error.
        let has_family = wanted.is_ipv4() || std::net::UdpSocket::bind("[::1]:0").is_ok();
        if has_family {
            assert!(matches!(error, Error::AddressNotLocal { address } if address == wanted), "{error:?}");
            let text = error.to_string();
            assert!(
                text.contains(&wanted.ip().to_string()) && text.contains("not an address of this host"),
                "{text}"
            );
        }
    }
    for address in ["224.0.0.1:0", "255.255.255.255:0", "[ff02::1]:0", "[::ffff:224.0.0.1]:0"] {
        assert!(matches!(bind_to(address), Error::Setting { field: "address", .. }), "{address}");
    }
}

#[test]
fn an_address_that_no_server_can_have_is_refused() {
    let public = ServerKey::dev().public();
    let config = ClientConfig::default();
    let mut many =
        Client::new(config.clone().connections(1).address("127.0.0.1:0".parse().expect("an address")))
            .expect("a socket");
    for address in ["0.0.0.0:7777", "[::]:7777", "[::ffff:0.0.0.0]:7777", "224.0.0.1:7777", "127.0.0.1:0"] {
        let server: SocketAddr = address.parse().expect("an address");
        assert_eq!(named(connect((server, public), &config)), Some("server"), "{address}");
        assert_eq!(named(many.connect((server, public))), Some("server"), "{address}");
    }
}

#[test]
fn connect_dev_refuses_an_address_of_another_host() {
    for address in ["203.0.113.9:7777", "[2001:db8::1]:7777"] {
        let error = connect_dev(address.parse().expect("an address")).expect_err(address);
        assert!(matches!(error, Error::DevelopmentServer { .. }), "{error}");
        assert!(error.to_string().contains(address), "{error}");
    }
    assert!(connect_dev("[::ffff:127.0.0.1]:7777".parse().expect("an address")).is_ok());
}

#[test]
fn the_development_key_is_refused_on_public_addresses() {
    let public = ServerConfig::new("0.0.0.0:0".parse().expect("an address"), ServerKey::dev(), Access::Open);
    assert!(matches!(Server::bind(public), Err(Error::DevelopmentKey)));
}

/// Returns damaged versions of a text, with one fault each.
fn damages(text: &str) -> Vec<String> {
    let label = text.rfind("_").map_or(0, |_| text.match_indices('_').nth(1).map_or(0, |(at, _)| at + 1));
    let (label, body) = text.split_at(label);
    let mut damaged = vec![
        String::new(),
        label.to_owned(),
        body.to_owned(),
        format!("{body}{label}"),
        format!("x{text}"),
        format!("{}{body}", label.to_uppercase()),
        format!("{text}A"),
        format!("{text}AAAA"),
        format!("{text}="),
        format!("{text}{text}"),
    ];
    for length in 1..text.len() {
        damaged.push(text[..length].to_owned());
    }
    for at in label.len()..text.len() {
        for bad in ['!', '+', '/', '=', ' ', '\n', '\0', 'ä'] {
            damaged.push(format!("{}{bad}{}", &text[..at], &text[at + 1..]));
        }
        damaged.push(format!("{}{}", &text[..at], &text[at + 1..]));
    }
    damaged
}

/// Asserts that no damaged text is accepted, and that the error contains no part of the text.
fn is_read_whole_or_not_at_all<T>(text: &str)
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    assert!(text.parse::<T>().is_ok());
    assert!(format!(" {text}\r\n").parse::<T>().is_ok(), "whitespace around the text is ignored");
    for damaged in damages(text) {
        // A change of the whitespace around the text is no damage.
        if damaged.trim() == text {
            continue;
        }
        let Err(error) = damaged.parse::<T>() else { panic!("was read: {damaged:?}") };
        let said = error.to_string();
        let body = text.rsplit('_').next().unwrap_or_default();
        assert!(said.contains("drumfire_"), "the error names the required label: {said}");
        assert!(!said.contains(&body[..body.len().min(8)]), "the error contains no part of a secret: {said}");
    }
}

#[test]
fn damaged_keys_and_tokens_are_refused() {
    let server = ServerKey::from_bytes([0x5C; 32]);
    let master = TokenMasterKey::from_bytes([0xA3; 32]);
    let token_key = master.token_key(1, "a").expect("an id");
    let address = "192.0.2.1:7777".parse().expect("an address");
    let token = TokenRequest::new(PlayerId(1), address, server.public()).issue(&token_key).expect("a token");
    is_read_whole_or_not_at_all::<ServerKey>(&server.to_text());
    is_read_whole_or_not_at_all::<ServerPublicKey>(&server.public().to_string());
    is_read_whole_or_not_at_all::<TokenMasterKey>(&master.to_text());
    is_read_whole_or_not_at_all::<TokenKey>(&token_key.to_text());
    is_read_whole_or_not_at_all::<ConnectToken>(&token.to_text());
}
