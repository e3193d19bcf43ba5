//! The network interface of an address, and its error counters during a run.
//!
//! The interface is found by the address of this host: in `/proc/net/if_inet6`, or by the main routing table,
//! `/proc/net/route`. If two interfaces match, none is named. The counters include datagrams of all programs, so they are not
//! part of the books of a run. Devices below a bond or a VLAN are not searched.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::read;
use crate::report::Interface;

/// The folder with a folder for each interface.
const INTERFACES: &str = "/sys/class/net";

/// The interface on which a host talks to itself, whatever the address.
const LOOPBACK: &str = "lo";

/// Counters of an interface, as its folder `statistics` names them.
const OF_INTERFACE: [&str; 4] = ["rx_dropped", "rx_missed_errors", "rx_fifo_errors", "tx_dropped"];

/// Counters of UDP: the name here, and that of `/proc/net/snmp`.
const OF_UDP: [(&str, &str); 2] = [("udp_in_errors", "InErrors"), ("udp_rcvbuf_errors", "RcvbufErrors")];

/// The most queues that are counted.
const QUEUE_LIMIT: usize = 16_384;

/// Flags of a route (`RTF_UP`, `RTF_REJECT`): in use, and one that leads nowhere.
const UP: u32 = 0x1;
const REJECT: u32 = 0x200;

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
        (IpAddr::V4(address), _) => by_route(&read("/proc/net/route")?, address),
        (IpAddr::V6(address), SocketAddr::V6(own)) => {
            by_address(&read("/proc/net/if_inet6")?, address, own.scope_id())
        }
        (IpAddr::V6(_), SocketAddr::V4(_)) => None,
    }
}

/// A line of `/proc/net/route`; addresses are numbers as they lie in memory.
struct Route<'a> {
    name: &'a str,
    network: u32,
    mask: u32,
    metric: u32,
}

impl<'a> Route<'a> {
    /// Reads a line whose route is in use and leads somewhere.
    fn of(line: &'a str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let name = fields.next()?;
        let network = hex(fields.next()?)?;
        let flags = hex(fields.nth(1)?)?;
        let metric = fields.nth(2)?.parse().ok()?;
        let mask = hex(fields.next()?)?;
        (flags & (UP | REJECT) == UP).then_some(Self { name, network, mask, metric })
    }

    fn leads_to(&self, address: Ipv4Addr) -> bool {
        u32::from_ne_bytes(address.octets()) & self.mask == self.network
    }

    /// The kernel takes the longest network, and of several the one with the least metric.
    fn rank(&self) -> (u32, Reverse<u32>) {
        (self.mask.count_ones(), Reverse(self.metric))
    }
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

/// The interface of the route that the kernel would take to this address.
fn by_route(routes: &str, address: Ipv4Addr) -> Option<String> {
    let routes = routes.lines().filter_map(Route::of);
    let routes: Vec<Route<'_>> = routes.filter(|route| route.leads_to(address)).collect();
    let best = routes.iter().map(Route::rank).max()?;
    the_one(routes.iter().filter(|route| route.rank() == best).map(|route| route.name))
}

/// The interface with this address; `scope` is its number where the address alone does not tell, and else 0.
fn by_address(addresses: &str, address: Ipv6Addr, scope: u32) -> Option<String> {
    the_one(addresses.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let listed = Ipv6Addr::from(u128::from_str_radix(fields.next()?, 16).ok()?);
        let index = hex(fields.next()?)?;
        let name = fields.nth(3)?;
        (listed == address && (scope == 0 || scope == index)).then_some(name)
    }))
}

/// The name that all of them are; nothing where there are none, or two.
fn the_one<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<String> {
    let name = names.next()?;
    names.all(|other| other == name).then(|| name.to_owned())
}

/// The counters of the interface, where one is known, and of UDP, as they stand.
fn counts(name: Option<&str>) -> BTreeMap<String, u64> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for counter in OF_INTERFACE {
        let text = name.and_then(|name| read(&format!("{INTERFACES}/{name}/statistics/{counter}")));
        let count = text.and_then(|text| text.trim().parse::<u64>().ok());
        counts.extend(count.map(|count| (counter.to_owned(), count)));
    }
    let Some(snmp) = read("/proc/net/snmp") else { return counts };
    let snmp6 = read("/proc/net/snmp6").unwrap_or_default();
    for (name, counter) in OF_UDP {
        counts.extend(udp(&snmp, &snmp6, counter).map(|count| (name.to_owned(), count)));
    }
    counts
}

/// A counter of UDP over IPv4, whose names and values are two lines, with that over IPv6, where each has a line.
fn udp(snmp: &str, snmp6: &str, counter: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|name| name == counter)?;
    let over_v4: u64 = values.split_whitespace().nth(place)?.parse().ok()?;
    let over_v6: Option<u64> = snmp6.lines().find_map(|line| {
        let (name, value) = line.strip_prefix("Udp6")?.split_once(char::is_whitespace)?;
        if name == counter { value.trim().parse().ok() } else { None }
    });
    Some(over_v4.saturating_add(over_v6.unwrap_or(0)))
}

/// By how much each counter that is there both times grew; one that was set back did not.
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
    let names = queues.take(QUEUE_LIMIT).flatten();
    Some(queues_of(names.map(|queue| queue.file_name().to_string_lossy().into_owned())))
}

fn queues_of(names: impl Iterator<Item = String>) -> (u32, u32) {
    names.fold((0, 0), |(receive, send): (u32, u32), name| {
        let one = |prefix: &str| u32::from(name.starts_with(prefix));
        (receive.saturating_add(one("rx-")), send.saturating_add(one("tx-")))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]
mod tests {
    use super::*;

    const HEADING: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";

    const ADDRESSES: &str = "fd000000000000000000000000000002 04 40 00 82     eth0\n\
                             fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n\
                             fe8000000000000000fc00fffe000001 0a 40 20 80     eth1\n\
                             00000000000000000000000000000001 01 80 10 80       lo\n";

    const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 2 64\n\
                        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                        Udp: 271031761 509659 175690 267919385 175688 0\n\
                        UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
                        UdpLite: 1 2 3 4 5 6\n";

    const SNMP6: &str = "Ip6InReceives                   \t7\n\
                         Udp6InErrors                    \t4\n\
                         Udp6RcvbufErrors                \t3\n\
                         UdpLite6RcvbufErrors            \t9\n";

    /// A line of the routing table, with addresses as the kernel writes them.
    fn route(name: &str, network: [u8; 4], mask: [u8; 4], flags: u32, metric: u32) -> String {
        let [network, mask] = [network, mask].map(u32::from_ne_bytes);
        format!("{name}\t{network:08X}\t00000000\t{flags:04X}\t0\t0\t{metric}\t{mask:08X}\t0\t0\t0\n")
    }

    #[test]
    fn the_longest_network_leads_to_an_address_and_then_the_least_metric() {
        let table = [
            HEADING.to_owned(),
            route("eth0", [0, 0, 0, 0], [0, 0, 0, 0], 0x3, 100),
            route("eth1", [0, 0, 0, 0], [0, 0, 0, 0], 0x3, 200),
            route("eth1", [10, 1, 0, 0], [255, 255, 0, 0], 0x1, 200),
            route("eth2", [10, 1, 7, 0], [255, 255, 255, 0], 0x0, 0),
            route("*", [10, 1, 8, 0], [255, 255, 255, 0], 0x201, 0),
        ]
        .concat();
        let by_route = |address: [u8; 4]| by_route(&table, address.into());
        assert_eq!(by_route([10, 1, 2, 3]).as_deref(), Some("eth1"));
        assert_eq!(by_route([10, 2, 2, 3]).as_deref(), Some("eth0"));
        assert_eq!(by_route([10, 1, 7, 1]).as_deref(), Some("eth1"), "a route that is down leads nowhere");
        assert_eq!(by_route([10, 1, 8, 1]).as_deref(), Some("eth1"), "nor does one that rejects");
    }

    #[test]
    fn where_two_interfaces_could_be_meant_none_is_named() {
        let both = |metric| {
            [
                route("eth0", [10, 0, 0, 0], [255, 0, 0, 0], 0x1, 5),
                route("eth1", [10, 0, 0, 0], [255, 0, 0, 0], 0x1, metric),
            ]
            .concat()
        };
        let address = Ipv4Addr::new(10, 9, 8, 7);
        assert_eq!(by_route(&both(5), address), None);
        assert_eq!(by_route(&both(4), address).as_deref(), Some("eth1"));
        assert_eq!(by_route(HEADING, address), None);
        assert_eq!(by_route("eth0\t00000000\t00000000\t0003\t0\t0\tx\t00000000\n", address), None);
    }

    #[test]
    fn an_address_of_ipv6_names_its_interface_and_one_of_the_link_with_its_scope() {
        let by_address = |address: &str, scope| by_address(ADDRESSES, address.parse().unwrap(), scope);
        assert_eq!(by_address("fd00::2", 0).as_deref(), Some("eth0"));
        assert_eq!(by_address("fe80::fc:ff:fe00:1", 4).as_deref(), Some("eth0"));
        assert_eq!(by_address("fe80::fc:ff:fe00:1", 10).as_deref(), Some("eth1"));
        assert_eq!(by_address("fe80::fc:ff:fe00:1", 0), None, "both have it");
        assert_eq!(by_address("fd00::3", 0), None);
    }

    #[test]
    fn a_host_talks_to_itself_over_the_loopback() {
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
    fn counters_of_udp_are_found_by_their_names_and_both_families_are_added_up() {
        assert_eq!(udp(SNMP, SNMP6, "InErrors"), Some(175_694));
        assert_eq!(udp(SNMP, SNMP6, "RcvbufErrors"), Some(175_691));
        assert_eq!(udp(SNMP, "", "RcvbufErrors"), Some(175_688));
        assert_eq!(udp(SNMP, SNMP6, "MemErrors"), None);
        assert_eq!(udp("Udp: InErrors\n", "", "InErrors"), None);
    }

    #[test]
    fn what_grew_is_told_and_what_was_set_back_did_not() {
        let counts = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
            counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
        };
        let (then, now) =
            (counts(&[("a", 5), ("b", 9), ("gone", 1)]), counts(&[("a", 7), ("b", 3), ("new", 1)]));
        assert_eq!(grown(&then, &now), counts(&[("a", 2), ("b", 0)]));
    }

    #[test]
    fn queues_are_counted_by_their_direction() {
        let names = ["rx-0", "tx-0", "tx-1", "other"].map(str::to_owned);
        assert_eq!(queues_of(names.into_iter()), (1, 2));
    }

    #[test]
    fn the_loopback_is_looked_at_where_there_is_sys() {
        let own = "127.0.0.1:9000".parse().unwrap();
        let found = InterfaceWatch::begin(own, own).finish();
        if fs::metadata(format!("{INTERFACES}/{LOOPBACK}")).is_err() {
            return;
        }
        let found = found.unwrap();
        assert_eq!((found.name.as_deref(), found.driver.as_deref()), (Some(LOOPBACK), None));
        assert!(found.receive_queues.is_some_and(|count| count > 0));
        assert!(OF_INTERFACE.iter().all(|counter| found.counted.contains_key(*counter)), "{found:?}");
    }
}
