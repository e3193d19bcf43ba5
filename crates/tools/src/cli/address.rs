//! Addresses on the command line: `127.0.0.1:9000`, `[::1]:9000`, `localhost:9000`.
//!
//! Syntax is checked first, a name is resolved after all flags have been read, and an address never goes to
//! the resolver. Nothing is bound or connected here.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use super::usage::UsageError;
use super::values::Bad;

/// Where a receiver binds, or what it shows to Prometheus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// As it was given, for messages.
    pub text: String,
    /// The address; port 0 asks for a free one.
    pub address: SocketAddr,
}

/// Where a sender sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As it was given, for messages.
    pub text: String,
    /// All addresses of the name, at least one, in the resolver's order.
    pub addresses: Vec<SocketAddr>,
}

/// A host and a port that look right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    text: String,
    literal: Option<SocketAddr>,
}

/// Looks names up.
pub(super) type Resolver<'a> = &'a dyn Fn(&str) -> io::Result<Vec<SocketAddr>>;

/// Looks `host:port` up as the system does.
///
/// # Errors
///
/// What the system's resolver says.
pub fn resolve_by_system(host_and_port: &str) -> io::Result<Vec<SocketAddr>> {
    host_and_port.to_socket_addrs().map(Iterator::collect)
}

impl BindAddress {
    /// The address that a sender on the same host reaches: the loopback when every address is bound.
    #[must_use]
    pub fn reachable(bound: SocketAddr) -> SocketAddr {
        let ip = match bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let mut reachable = bound;
        reachable.set_ip(ip);
        reachable
    }

    pub(super) fn resolve(
        flag: &str,
        endpoint: &Endpoint,
        resolver: Resolver<'_>,
    ) -> Result<Self, UsageError> {
        let addresses = endpoint.resolve(flag, resolver)?;
        let address = *addresses.first().ok_or_else(|| unresolvable(flag, &endpoint.text, "no address"))?;
        Ok(Self { text: endpoint.text.clone(), address })
    }
}

impl Target {
    pub(super) fn resolve(endpoint: &Endpoint, resolver: Resolver<'_>) -> Result<Self, UsageError> {
        let addresses = endpoint.resolve("--to", resolver)?;
        if addresses.is_empty() {
            return Err(unresolvable("--to", &endpoint.text, "no address"));
        }
        Ok(Self { text: endpoint.text.clone(), addresses })
    }
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self { text: address.to_string(), addresses: vec![address] }
    }
}

impl Endpoint {
    fn resolve(&self, flag: &str, resolver: Resolver<'_>) -> Result<Vec<SocketAddr>, UsageError> {
        match self.literal {
            Some(address) => Ok(vec![address]),
            None => resolver(&self.text).map_err(|error| unresolvable(flag, &self.text, &error.to_string())),
        }
    }
}

pub(super) fn bind(text: &str) -> Result<Endpoint, Bad> {
    endpoint("--bind", text)
}

pub(super) fn metrics(text: &str) -> Result<Endpoint, Bad> {
    endpoint("--metrics-address", text)
}

pub(super) fn to(text: &str) -> Result<Endpoint, Bad> {
    let endpoint = endpoint("--to", text)?;
    if text.ends_with(":0") {
        return Err(Bad::new("nobody listens on port 0", "give --to the port that `receiver` printed"));
    }
    if endpoint.literal.is_some_and(|address| address.ip().is_unspecified()) {
        return Err(Bad::new(
            "that address means every host and none",
            "give --to 127.0.0.1 and the port for this host",
        ));
    }
    Ok(endpoint)
}

fn endpoint(flag: &str, text: &str) -> Result<Endpoint, Bad> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(Endpoint { text: text.to_owned(), literal: Some(address) });
    }
    let give = |example: &str| format!("give {flag} {example}");
    if text.parse::<Ipv6Addr>().is_ok() || (!text.starts_with('[') && text.matches(':').count() > 1) {
        return Err(Bad::new("an IPv6 address stands in brackets before its port", give("[::1]:9000")));
    }
    if text.starts_with('[') {
        return Err(Bad::new("not an IPv6 address and a port", give("[::1]:9000")));
    }
    let Some((host, port)) = text.split_once(':') else {
        return Err(Bad::new("the port is missing", give("HOST:PORT, such as 127.0.0.1:9000")));
    };
    if host.is_empty() {
        return Err(Bad::new("the host is missing", give("HOST:PORT, such as 127.0.0.1:9000")));
    }
    if port.parse::<u16>().is_err() || !port.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(Bad::new(
            "the port is not a number from 0 to 65535",
            give("HOST:PORT, such as 127.0.0.1:9000"),
        ));
    }
    if host.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(Bad::new("that is no host", give("HOST:PORT, such as 127.0.0.1:9000")));
    }
    Ok(Endpoint { text: text.to_owned(), literal: None })
}

fn unresolvable(flag: &str, text: &str, why: &str) -> UsageError {
    UsageError::new(
        flag,
        format!("the name does not resolve ({why})"),
        format!("check its spelling, or give {flag} an address such as 127.0.0.1:9000"),
    )
    .with_value(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_resolver(_: &str) -> io::Result<Vec<SocketAddr>> {
        Err(io::Error::other("asked for an address"))
    }

    #[test]
    fn an_address_is_taken_without_asking_the_resolver() {
        for text in ["127.0.0.1:9000", "0.0.0.0:0", "[::1]:9000", "[::]:0", "[fe80::1%2]:9000"] {
            let bound = BindAddress::resolve("--bind", &bind(text).unwrap(), &no_resolver).unwrap();
            assert_eq!(bound, BindAddress { text: text.to_owned(), address: text.parse().unwrap() });
        }
    }

    #[test]
    fn a_name_keeps_all_its_addresses() {
        let both: Vec<SocketAddr> = vec!["[::1]:9000".parse().unwrap(), "127.0.0.1:9000".parse().unwrap()];
        let target = Target::resolve(&to("host:9000").unwrap(), &|_| Ok(both.clone())).unwrap();
        assert_eq!(target, Target { text: "host:9000".to_owned(), addresses: both });
        assert!(Target::resolve(&to("host:9000").unwrap(), &|_| Ok(Vec::new())).is_err());
        assert!(BindAddress::resolve("--bind", &bind("host:9000").unwrap(), &|_| Ok(Vec::new())).is_err());
    }

    #[test]
    fn a_sender_on_the_same_host_reaches_what_is_bound_to_every_address() {
        for (bound, expected) in [
            ("0.0.0.0:9", "127.0.0.1:9"),
            ("[::]:9", "[::1]:9"),
            ("127.0.0.2:9", "127.0.0.2:9"),
            ("[fe80::1%2]:9", "[fe80::1%2]:9"),
        ] {
            assert_eq!(BindAddress::reachable(bound.parse().unwrap()), expected.parse().unwrap());
        }
    }

    #[test]
    fn what_is_no_host_and_port_is_refused_with_an_example() {
        for text in [
            "",
            ":",
            ":9000",
            "9000",
            "127.0.0.1",
            "host",
            "host:",
            "host:x",
            "host:+1",
            "host:65536",
            "host:-1",
            "::1",
            "::1:9000",
            "[::1]",
            "[::1]:",
            "[::1]9000",
            "[host]:9000",
            "http://host:80",
            "a b:9000",
            "a/b:9000",
        ] {
            let bad = bind(text).unwrap_err();
            assert!(bad.way_out.starts_with("give --bind "), "{text}: {bad}");
        }
        assert!(bind("host:65535").is_ok());
    }

    #[test]
    fn nobody_sends_to_port_zero_or_to_no_address() {
        for text in ["127.0.0.1:0", "host:0", "[::1]:0", "0.0.0.0:9000", "[::]:9000"] {
            assert!(to(text).is_err(), "{text}");
        }
        for text in ["127.0.0.1:1", "host:10", "[::1]:9000"] {
            assert!(to(text).is_ok(), "{text}");
        }
    }
}
