//! The network interface of an address, and its error counters during a run.
//!
//! The interface is the one that has the address of this host. If two interfaces have it, none is named. The counters include datagrams of all programs, so they are not
//! part of the books of a run. Devices below a bond or a VLAN are not searched.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use nix::ifaddrs::getifaddrs;

use super::calls;
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

/// An interface during a run. Its counters are read at the begin and at the end.
#[derive(Clone, Debug)]
pub struct InterfaceWatch {
    name: Option<String>,
    then: BTreeMap<String, u64>,
}

impl InterfaceWatch {
    /// Begins with the interface over which `own`, an address of this host, hears from `peer`.
    pub fn begin(own: SocketAddr, peer: SocketAddr) -> Self {
        let is_there = |name: &String| fs::metadata(format!("{INTERFACES}/{name}")).is_ok();
        let name = name_of(own, peer).filter(is_there);
        let then = counts(name.as_deref());
        Self { name, then }
    }

    /// Returns the interface with the growth of its counters; `None` if the system shows neither.
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
    let listed = getifaddrs().ok()?.filter_map(|entry| {
        let listed = entry.address?;
        let v4 = listed.as_sockaddr_in().map(|listed| SocketAddr::V4((*listed).into()));
        let listed = v4.or_else(|| Some(SocketAddr::V6((*listed.as_sockaddr_in6()?).into())))?;
        Some((entry.interface_name, listed))
    });
    the_one(
        listed
            .filter(|(_, listed)| listed.ip() == address && is_in_scope(own, *listed))
            .map(|(name, _)| name),
    )
}

/// Returns whether an address may be that of the listed interface: a link-local address names its interface.
fn is_in_scope(own: SocketAddr, listed: SocketAddr) -> bool {
    match (own, listed) {
        (SocketAddr::V6(own), SocketAddr::V6(listed)) => {
            own.scope_id() == 0 || own.scope_id() == listed.scope_id()
        }
        _ => true,
    }
}

/// The only name among these; `None` if there is no name, or more than one.
fn the_one(mut names: impl Iterator<Item = String>) -> Option<String> {
    let name = names.next()?;
    names.all(|other| other == name).then_some(name)
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

    #[test]
    fn a_link_local_address_needs_its_scope() {
        let address = |text: &str| text.parse().unwrap();
        assert!(is_in_scope(address("[fe80::1%4]:1"), address("[fe80::1%4]:0")));
        assert!(!is_in_scope(address("[fe80::1%4]:1"), address("[fe80::1%10]:0")));
        assert!(is_in_scope(address("[fd00::1]:1"), address("[fd00::1]:0")));
        let names = |names: &[&str]| the_one(names.iter().map(|name| (*name).to_owned()));
        assert_eq!(names(&["eth0", "eth0"]).as_deref(), Some("eth0"));
        assert_eq!((names(&["eth0", "eth1"]), names(&[])), (None, None), "two have it, or none");
        // No host has this address, which is reserved for documentation (RFC 5737).
        assert_eq!(name_of(address("192.0.2.7:9000"), address("192.0.2.8:1")), None);
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
