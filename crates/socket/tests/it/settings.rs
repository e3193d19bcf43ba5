//! Invalid settings are refused with the name of their field, at each bound.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use drumfire_socket::{
    ConfigError, Drain, Gro, GroupConfig, Receiver, ReceiverConfig, ReuseportGroup, SteeringFilter, Wait,
    Waiter,
};

use crate::fixtures::IS_NATIVE;

/// Returns the field with which the settings of a group are refused, or `None` if they are accepted.
fn refused_group(change: impl FnOnce(GroupConfig) -> GroupConfig) -> Option<&'static str> {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let error = ReuseportGroup::bind(&change(GroupConfig::new(address))).err()?;
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ConfigError>());
    Some(inner.expect("a config error").field())
}

/// Returns the field with which the settings of a receiver are refused, or `None` if they are accepted.
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
    assert_eq!(refused_group(|config| config.sockets(2)), (!IS_NATIVE).then_some("sockets"));
    assert_eq!(refused_group(|config| config.sockets(1_025)), Some("sockets"));
}

#[test]
fn a_filter_has_as_many_sockets_as_its_group() {
    for (sockets, is_valid) in [(5, false), (6, IS_NATIVE), (7, false)] {
        let filter = SteeringFilter::new(1, 28, 3, sockets).expect("a filter");
        let field = refused_group(|config| config.sockets(6).steering(filter));
        let expected = if IS_NATIVE { "steering" } else { "sockets" };
        assert_eq!(field, (!is_valid).then_some(expected), "{sockets} sockets steered");
    }
    let filter = SteeringFilter::new(1, 28, 3, 1).expect("a filter");
    let field = refused_group(|config| config.steering(filter));
    assert_eq!(field, (!IS_NATIVE).then_some("steering"));
}

#[test]
fn the_maximum_datagram_is_1_to_65507_bytes() {
    for (bytes, is_valid) in [(0, false), (1, true), (65_507, true), (65_508, false)] {
        let field = refused_receiver(|config| config.max_datagram_bytes(bytes));
        assert_eq!(field, (!is_valid).then_some("max_datagram_bytes"), "{bytes}");
    }
}

#[test]
fn a_batch_is_1_to_32_messages() {
    for (messages, is_valid) in [(0, false), (1, true), (32, true), (33, false)] {
        let field = refused_receiver(|config| config.max_batch(messages));
        assert_eq!(field, (!is_valid).then_some("max_batch"), "{messages}");
    }
}

#[test]
fn trains_need_a_drain_that_reports_the_segment_size() {
    assert_eq!(refused_receiver(|config| config.drain(Drain::Recv).gro(Gro::On)), Some("gro"));
    assert_eq!(refused_receiver(|config| config.drain(Drain::Recv).gro(Gro::Auto)), None);
    let field = refused_receiver(|config| config.gro(Gro::On).max_batch(1));
    assert_eq!(field, Some("gro"));
    let field = refused_receiver(|config| config.gro(Gro::On).max_batch(2));
    assert_eq!(field, (!IS_NATIVE).then_some("gro"));
}

#[test]
fn a_missing_feature_is_refused_and_never_replaced() {
    let field = refused_receiver(|config| config.drain(Drain::Recvmmsg));
    assert_eq!(field, (!IS_NATIVE).then_some("drain"));
    let gather = Waiter::new(Wait::Gather(Duration::from_micros(100)));
    assert_eq!(gather.err().map(|error| error.field()), (!IS_NATIVE).then_some("wait"));
    assert!(Waiter::new(Wait::best()).is_ok());
    assert!(Waiter::new(Wait::Spin).is_ok());
}
