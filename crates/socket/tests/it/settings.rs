//! Settings that cannot be used are refused by the name of their field, at one beyond each bound.
//!
//! What the system refuses is the subject of the files that use it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{
    ConfigError, Drain, Gro, GroupConfig, Receiver, ReceiverConfig, ReuseportGroup, SteeringFilter, Wait,
    Waiter,
};

const HAS_BATCHES: bool = cfg!(all(target_os = "linux", not(feature = "portable")));

/// The field a group's setting is refused by, if it is.
fn refused_group(change: impl FnOnce(GroupConfig) -> GroupConfig) -> Option<&'static str> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let error = ReuseportGroup::bind(&change(GroupConfig::new(address))).err()?;
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ConfigError>());
    Some(inner.expect("a config error").field())
}

/// The field a receiver's setting is refused by, if it is.
fn refused_receiver(change: impl FnOnce(ReceiverConfig) -> ReceiverConfig) -> Option<&'static str> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let group = ReuseportGroup::bind(&GroupConfig::new(address)).expect("a group");
    let mut socket = group.into_sockets().remove(0);
    Receiver::new(&mut socket, &change(ReceiverConfig::default())).err().map(|error| error.field())
}

#[test]
fn a_group_has_1_to_1024_sockets() {
    assert_eq!(refused_group(|config| config.sockets(0)), Some("sockets"));
    assert_eq!(refused_group(|config| config.sockets(1)), None);
    assert_eq!(refused_group(|config| config.sockets(2)), (!HAS_BATCHES).then_some("sockets"));
    assert_eq!(refused_group(|config| config.sockets(1_025)), Some("sockets"));
}

#[test]
fn a_filter_steers_between_as_many_sockets_as_the_group_has() {
    for (sockets, is_taken) in [(5, false), (6, HAS_BATCHES), (7, false)] {
        let filter = SteeringFilter::new(1, 28, 3, sockets).expect("a filter");
        let field = refused_group(|config| config.sockets(6).steering(filter));
        let expected = if HAS_BATCHES { "steering" } else { "sockets" };
        assert_eq!(field, (!is_taken).then_some(expected), "{sockets} sockets steered");
    }
    let filter = SteeringFilter::new(1, 28, 3, 1).expect("a filter");
    let field = refused_group(|config| config.steering(filter));
    assert_eq!(field, (!HAS_BATCHES).then_some("steering"));
}

#[test]
fn the_longest_datagram_is_1_to_65507_bytes() {
    for (bytes, is_taken) in [(0, false), (1, true), (65_507, true), (65_508, false)] {
        let field = refused_receiver(|config| config.max_datagram_bytes(bytes));
        assert_eq!(field, (!is_taken).then_some("max_datagram_bytes"), "{bytes}");
    }
}

#[test]
fn a_batch_is_1_to_32_messages() {
    for (messages, is_taken) in [(0, false), (1, true), (32, true), (33, false)] {
        let field = refused_receiver(|config| config.max_batch(messages));
        assert_eq!(field, (!is_taken).then_some("max_batch"), "{messages}");
    }
}

#[test]
fn trains_need_a_drain_that_can_tell_how_they_are_cut() {
    assert_eq!(refused_receiver(|config| config.drain(Drain::Recv).gro(Gro::On)), Some("gro"));
    assert_eq!(refused_receiver(|config| config.drain(Drain::Recv).gro(Gro::Auto)), None);
    let field = refused_receiver(|config| config.gro(Gro::On).max_batch(1));
    assert_eq!(field, Some("gro"));
    let field = refused_receiver(|config| config.gro(Gro::On).max_batch(2));
    assert_eq!(field, (!HAS_BATCHES).then_some("gro"));
}

#[test]
fn what_the_platform_lacks_is_refused_and_never_replaced() {
    let field = refused_receiver(|config| config.drain(Drain::Recvmmsg));
    assert_eq!(field, (!HAS_BATCHES).then_some("drain"));
    let gather = Waiter::new(Wait::Gather(Duration::from_micros(100)));
    assert_eq!(gather.err().map(|error| error.field()), (!HAS_BATCHES).then_some("wait"));
    assert!(Waiter::new(Wait::best()).is_ok());
    assert!(Waiter::new(Wait::Spin).is_ok());
}
