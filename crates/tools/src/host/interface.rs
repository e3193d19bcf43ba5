//! The network interface of an address, and its error counters during a run.
//!
//! The interface is found by the address of this host: in `/proc/net/if_inet6`, or by the main routing table,
//! `/proc/net/route`. If two interfaces match, none is named. The counters include datagrams of all programs, so they are not
//! part of the books of a run. Devices below a bond or a VLAN are not searched.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::calls::{self, Route};
use super::read;
use crate::report::Interface;

/// The folder with a folder for each interface.
const INTERFACES: &str = "/sys/class/net";

/// The interface over which a host reaches all of its own addresses.
const LOOPBACK: &str = "lo";

/// Counters of an interface, as its folder `statistics` names them.
const OF_INTERFACE: [&str; 4] = ["rx_dropped", "rx_missed_errors", "rx_fifo_errors", "tx_dropped"];

/// The names of the counters of UDP.
const OF_UDP: [&str; 2] = ["udp_in_errors", "udp_rcvbuf_errors"];

/// The most queues that are counted.
const QUEUE_LIMIT: usize = 16_384;

/// Flags of a route (`RTF_UP`, `RTF_REJECT`): in use, and one that leads nowhere.
const UP: u16 = 0x1;
const REJECT: u16 = 0x200;

/// An interface during a run. Its counters are read at the begin and at the end.
#[derive(Clone, Debug)]
pub struct InterfaceWatch {
    name: Option<String>,
    then: BTreeMap<String, u64>,
}

impl InterfaceWatch {
    /// Begins with the interface over which `own`, an address of this host, hears from `peer`.
    #[must_use]
    pub fn begin(own: SocketAddr, peer: SocketAddr) -> Self {
        let is_there = |name: &String| fs::metadata(format!("{INTERFACES}/{name}")).is_ok();
        let name = name_of(own, peer).filter(is_there);
        let then = counts(name.as_deref());
        Self { name, then }
    }

    /// Returns the interface with the growth of its counters; `None` if the system shows neither.
    #[must_use]
    pub fn finish(&self) -> Option<Interface> {
        let name = self.name.as_deref();
        let counted = grown(&self.then, &counts(name));
        if name.is_none() && counted.is_empty() {
            return None;
        }
        let queues = name.and_then(queues);
        Some(Interface {
            name: self.name.clone(),
            driver: name.and_then(driver),
            receive_queues: queues.map(|(receive, _)| receive),
            send_queues: queues.map(|(_, send)| send),
            counted,
        })
    }
}

fn name_of(own: SocketAddr, peer: SocketAddr) -> Option<String> {
    let address = own.ip().to_canonical();
    if address.is_loopback() || address == peer.ip().to_canonical() {
        return Some(LOOPBACK.to_owned());
    }
    match (address, own) {
        (IpAddr::V4(address), _) => by_route(&calls::routes(), address),
        (IpAddr::V6(address), SocketAddr::V6(own)) => {
            by_address(&read("/proc/net/if_inet6")?, address, own.scope_id())
        }
        (IpAddr::V6(_), SocketAddr::V4(_)) => None,
    }
}

impl Route {
    /// Returns whether the route is in use and leads to this address.
    fn leads_to(&self, address: Ipv4Addr) -> bool {
        self.flags & (UP | REJECT) == UP && address & self.mask == self.network
    }

    /// The kernel takes the longest network, and of several the one with the least metric.
    fn rank(&self) -> (u32, Reverse<u32>) {
        (self.mask.to_bits().count_ones(), Reverse(self.metric))
    }
}

/// The interface of the route that the kernel would take to this address.
fn by_route(routes: &[Route], address: Ipv4Addr) -> Option<String> {
    let routes: Vec<&Route> = routes.iter().filter(|route| route.leads_to(address)).collect();
    let best = routes.iter().map(|route| route.rank()).max()?;
    the_one(routes.iter().filter(|route| route.rank() == best).map(|route| route.name.as_str()))
}

/// The interface with this address. `scope` is the number of the interface of a link-local address, and 0 for others.
fn by_address(addresses: &str, address: Ipv6Addr, scope: u32) -> Option<String> {
    the_one(addresses.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let listed = Ipv6Addr::from(u128::from_str_radix(fields.next()?, 16).ok()?);
        let index = u32::from_str_radix(fields.next()?, 16).ok()?;
        let name = fields.nth(3)?;
        (listed == address && (scope == 0 || scope == index)).then_some(name)
    }))
}

/// The only name among these; `None` if there is no name, or more than one.
fn the_one<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<String> {
    let name = names.next()?;
    names.all(|other| other == name).then(|| name.to_owned())
}

/// The counters of the interface, if it is known, and of UDP.
fn counts(name: Option<&str>) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for counter in OF_INTERFACE {
        let text = name.and_then(|name| read(&format!("{INTERFACES}/{name}/statistics/{counter}")));
        let count = text.and_then(|text| text.trim().parse::<u64>().ok());
        counts.extend(count.map(|count| (counter.to_owned(), count)));
    }
    let udp = OF_UDP.into_iter().zip(calls::udp_errors().into_iter().flatten());
    counts.extend(udp.map(|(name, count)| (name.to_owned(), count)));
    counts
}

/// The growth of each counter that was read both times; 0 for a counter that was reset.
fn grown(then: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let both = then.iter().filter_map(|(name, then)| Some((name, then, now.get(name)?)));
    both.map(|(name, then, now)| (name.clone(), now.saturating_sub(*then))).collect()
}

/// The driver of the device behind an interface.
fn driver(name: &str) -> Option<String> {
    let driver = fs::read_link(format!("{INTERFACES}/{name}/device/driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// Receive and send queues of an interface.
fn queues(name: &str) -> Option<(u32, u32)> {
    let queues = fs::read_dir(format!("{INTERFACES}/{name}/queues")).ok()?;
    Some(queues.take(QUEUE_LIMIT).flatten().fold((0, 0), |(receive, send): (u32, u32), queue| {
        let name = queue.file_name();
        let is = |prefix: &[u8]| u32::from(name.as_encoded_bytes().starts_with(prefix));
        (receive.saturating_add(is(b"rx-")), send.saturating_add(is(b"tx-")))
    }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    const ADDRESSES: &str = "fd000000000000000000000000000002 04 40 00 82     eth0\n\
                             fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n\
                             fe8000000000000000fc00fffe000001 0a 40 20 80     eth1\n\
                             00000000000000000000000000000001 01 80 10 80       lo\n";

    fn route(name: &str, network: [u8; 4], mask: [u8; 4], flags: u16, metric: u32) -> Route {
        Route { name: name.to_owned(), network: network.into(), mask: mask.into(), metric, flags }
    }

    #[test]
    fn the_longest_network_and_the_least_metric_lead_to_an_address() {
        let routes = [
            route("eth0", [0, 0, 0, 0], [0, 0, 0, 0], 0x3, 100),
            route("eth1", [0, 0, 0, 0], [0, 0, 0, 0], 0x3, 200),
            route("eth1", [10, 1, 0, 0], [255, 255, 0, 0], 0x1, 200),
            route("eth2", [10, 1, 7, 0], [255, 255, 255, 0], 0x0, 0),
            route("*", [10, 1, 8, 0], [255, 255, 255, 0], 0x201, 0),
            route("eth3", [10, 3, 0, 0], [255, 255, 0, 0], 0x1, 5),
            route("eth4", [10, 3, 0, 0], [255, 255, 0, 0], 0x1, 5),
        ];
        let by_route = |address: [u8; 4]| by_route(&routes, address.into());
        assert_eq!(by_route([10, 1, 2, 3]).as_deref(), Some("eth1"));
        assert_eq!(by_route([10, 2, 2, 3]).as_deref(), Some("eth0"));
        assert_eq!(by_route([10, 1, 7, 1]).as_deref(), Some("eth1"), "a route that is down is not taken");
        assert_eq!(by_route([10, 1, 8, 1]).as_deref(), Some("eth1"), "nor one that rejects");
        assert_eq!(by_route([10, 3, 0, 1]), None, "two are equal");
    }

    #[test]
    fn a_link_local_address_needs_its_scope() {
        let by_address = |address: &str, scope| by_address(ADDRESSES, address.parse().unwrap(), scope);
        assert_eq!(by_address("fd00::2", 0).as_deref(), Some("eth0"));
        assert_eq!(by_address("fe80::fc:ff:fe00:1", 4).as_deref(), Some("eth0"));
        assert_eq!(by_address("fe80::fc:ff:fe00:1", 10).as_deref(), Some("eth1"));
        assert_eq!(by_address("fe80::fc:ff:fe00:1", 0), None, "both have it");
        assert_eq!(by_address("fd00::3", 0), None);
    }

    #[test]
    fn a_host_reaches_itself_over_the_loopback() {
        let name = |own: &str, peer: &str| name_of(own.parse().unwrap(), peer.parse().unwrap());
        for (own, peer) in [
            ("127.0.0.1:9000", "127.0.0.1:40000"),
            ("[::1]:9000", "[::1]:40000"),
            ("[::ffff:127.0.0.1]:9000", "127.0.0.1:40000"),
            ("192.0.2.7:9000", "[::ffff:192.0.2.7]:40000"),
        ] {
            assert_eq!(name(own, peer).as_deref(), Some(LOOPBACK), "{own} {peer}");
        }
    }

    #[test]
    fn a_counter_that_was_reset_did_not_grow() {
        let counts = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let then = counts(&[("a", 5), ("b", 9), ("gone", 1)]);
        let now = counts(&[("a", 7), ("b", 3), ("new", 1)]);
        assert_eq!(grown(&then, &now), counts(&[("a", 2), ("b", 0)]));
    }

    #[test]
    fn the_loopback_has_queues_and_counters() {
        let own = "127.0.0.1:9000".parse().unwrap();
        let found = InterfaceWatch::begin(own, own).finish();
        if fs::metadata(format!("{INTERFACES}/{LOOPBACK}")).is_err() {
            return;
        }
        let found = found.unwrap();
        assert_eq!((found.name.as_deref(), found.driver.as_deref()), (Some(LOOPBACK), None));
        assert!(found.receive_queues.is_some_and(|count| count > 0) && found.send_queues.is_some());
        let names = OF_INTERFACE.iter().chain(&OF_UDP);
        assert!(names.clone().all(|name| found.counted.contains_key(*name)), "{found:?}");
    }
}
