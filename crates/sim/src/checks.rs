//! Checks of the whole world after each step: the books of datagrams, and the amplification limits.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use drumfire::conditioner::Random;
use drumfire::config::Cookie;
use drumfire::stats::{DropReason, WorkerStats};
use drumfire::testing::{Fault, SocketCounts, Traffic, World};

/// The maximum number of datagrams that a worker keeps while its socket accepts none.
const KEPT_MAX: u64 = 128;

/// Faults after which a worker continues with another descriptor.
const LOST_DESCRIPTOR: [Fault; 2] = [Fault::BadDescriptor, Fault::NotSocket];

/// The datagrams of all earlier clients at one index, which later clients have replaced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplacedClientCounts {
    pub(crate) sent: u64,
    /// The datagrams that they received, under all counters.
    pub(crate) taken: u64,
}

impl ReplacedClientCounts {
    /// Adds a client that has left.
    pub(crate) fn add(&mut self, stats: &WorkerStats) {
        self.sent += stats.sent.datagrams;
        self.taken += taken(stats);
    }
}

/// Checks that each datagram of the world is in exactly one counter: dropped by a link, waiting, or counted by an end.
/// `replaced` has an entry for each index of a client.
pub(crate) fn check_books(world: &World, replaced: &[ReplacedClientCounts]) -> Result<(), String> {
    let (mut sent_down, mut delivered, mut taken_in, mut sent) = (0, 0, 0, 0);
    for (at, client) in world.clients.iter().enumerate() {
        let (stats, replaced) = (client.stats(), replaced.get(at).copied().unwrap_or_default());
        check_client(at, &stats)?;
        let links = world.link_counts(at);
        for (link, (counts, in_flight)) in ["up", "down"].into_iter().zip(links) {
            let ends = counts.delivered + counts.lost + counts.queue_full + counts.too_large + in_flight;
            equal(|| format!("client {at}'s link {link}"), counts.pushed + counts.duplicated, ends)?;
        }
        let [(to_server, _), (to_client, _)] = links;
        equal(|| format!("client {at}'s sends"), stats.sent.datagrams + replaced.sent, to_server.pushed)?;
        sent_down += to_client.pushed;
        delivered += to_server.delivered + to_client.delivered;
        taken_in += taken(&stats) + replaced.taken;
    }
    for (at, stats) in world.server.control().stats().workers.iter().enumerate() {
        check_worker(at, stats, &world.socket_counts(at))?;
        taken_in += taken(stats);
        sent += stats.sent.datagrams;
    }
    let counts = world.counts();
    equal(|| "the server's sends".to_owned(), sent, sent_down + counts.unreachable)?;
    let ends = taken_in + counts.waiting + counts.inbox_full;
    equal(|| "arrivals".to_owned(), delivered + counts.injected, ends)
}

/// Checks the books at the end, when no datagram may be on its way.
pub(crate) fn check_final_books(world: &World, replaced: &[ReplacedClientCounts]) -> Result<(), String> {
    check_books(world, replaced)?;
    for (at, stats) in world.server.control().stats().workers.iter().enumerate() {
        let overflowed = world.socket_counts(at).overflowed;
        equal(|| format!("worker {at}'s overflows"), stats.kernel_dropped, overflowed)?;
        if stats.panics == 0 {
            let gone = stats.sent.datagrams + stats.sent.lost.total();
            equal(|| format!("worker {at}'s written datagrams"), stats.protocol.datagrams_sent, gone)?;
        }
    }
    equal(|| "datagrams in queues".to_owned(), world.counts().waiting, 0)
}

/// Checks that no end of a world without attacks dropped a packet for a reason that only an attack or a faulty link
/// causes.
pub(crate) fn check_clean(world: &World) -> Result<(), String> {
    let server = world.server.control().stats();
    let server = server.workers.iter().map(|stats| ("the server".to_owned(), stats.clone()));
    let clients = world.clients.iter().enumerate();
    let clients = clients.map(|(at, client)| (format!("client {at}"), client.stats()));
    for (name, stats) in server.chain(clients) {
        for reason in [DropReason::Forged, DropReason::Duplicate, DropReason::TooOld, DropReason::ForgedId] {
            let what = || format!("packets of {name} that are {} without a fault", reason.name());
            equal(what, stats.protocol.dropped(reason), 0)?;
        }
    }
    Ok(())
}

/// Returns the datagrams that an end took from its queue.
fn taken(stats: &WorkerStats) -> u64 {
    stats.received.datagrams + stats.received.dropped_total()
}

/// Checks a client, whose socket does not fail.
fn check_client(at: usize, stats: &WorkerStats) -> Result<(), String> {
    equal(|| format!("client {at}'s datagrams in no counter"), stats.unexplained(), 0)?;
    equal(|| format!("client {at}'s panics"), stats.panics, 0)?;
    let written = stats.protocol.datagrams_sent;
    equal(|| format!("client {at}'s written datagrams"), written, stats.sent.datagrams)?;
    equal(|| format!("client {at}'s lost sends"), stats.sent.lost.total(), 0)
}

/// Checks a worker, whose socket may fail.
fn check_worker(at: usize, stats: &WorkerStats, counts: &SocketCounts) -> Result<(), String> {
    equal(|| format!("worker {at}'s unnoticed arrivals"), counts.missed_wakeups, 0)?;
    let mut lost = 0;
    for fault in Fault::ALL {
        let injected = [counts.receive_faults.count(fault), counts.send_faults.count(fault)];
        // An empty queue ends each drain with `WouldBlock`, which is not injected.
        if fault != Fault::WouldBlock {
            let received = stats.received.faults.count(fault);
            equal(|| format!("worker {at}'s receive calls, {fault}"), received, injected[0])?;
        }
        let sent = stats.sent.faults.count(fault);
        equal(|| format!("worker {at}'s send calls, {fault}"), sent, injected[1])?;
        lost += if LOST_DESCRIPTOR.contains(&fault) { injected[0] + injected[1] } else { 0 };
    }
    equal(|| format!("worker {at}'s lost descriptors"), stats.sockets_reopened, lost)?;
    if stats.kernel_dropped > counts.overflowed {
        let (counted, overflowed) = (stats.kernel_dropped, counts.overflowed);
        return Err(format!("worker {at} counts {counted} overflows of {overflowed}"));
    }
    // A panic interrupts the counting, and a restarted worker counts from zero.
    if stats.panics > 0 {
        return Ok(());
    }
    equal(|| format!("worker {at}'s datagrams in no counter"), stats.unexplained(), 0)?;
    let gone = stats.sent.datagrams + stats.sent.lost.total();
    let written = stats.protocol.datagrams_sent;
    if (gone..=gone + KEPT_MAX).contains(&written) {
        Ok(())
    } else {
        Err(format!("the books do not close, worker {at}'s written datagrams: {written}, and {gone} gone"))
    }
}

/// Compares two counters. The name is made only for an error, because the books are checked all the time.
fn equal(what: impl FnOnce() -> String, one: u64, other: u64) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("the books do not close, {}: {one} and {other}", what())) }
}

/// The addresses that an attacker uses, by purpose. The server may send little to an address that has not proved that a client
/// receives there (PROTOCOL 5.3, "The server's part", PROTOCOL 14, "Reset", and PROTOCOL 11.4, "Paths").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressClass {
    /// Sources of Hellos. A Retry has at most a tenth of a Hello's bytes, and a Welcome, which a calm server may send, no more than
    /// a Hello.
    Hello,
    /// Sources of other invented datagrams. A Reset is shorter than the datagram that it answers.
    Junk,
    /// Sources of copied packets. A server that validates such a path sends at most three times the bytes that came from there.
    Copier,
}

impl AddressClass {
    const ALL: [Self; 3] = [Self::Hello, Self::Junk, Self::Copier];

    const fn network(self) -> [u8; 2] {
        match self {
            Self::Hello => [203, 0],
            Self::Junk => [198, 51],
            Self::Copier => [172, 16],
        }
    }

    /// Returns the class of an address, or `None` for a client's.
    pub(crate) fn of(address: SocketAddr) -> Option<Self> {
        let IpAddr::V4(ip) = address.ip() else { return None };
        let [first, second, ..] = ip.octets();
        Self::ALL.into_iter().find(|class| class.network() == [first, second])
    }

    /// Returns an address of this class.
    pub(crate) fn address(self, random: &mut Random) -> SocketAddr {
        address_in(self.network(), random.bits())
    }

    /// Returns the source of copies of a client's packets.
    pub(crate) fn copier(client: SocketAddr) -> SocketAddr {
        let IpAddr::V4(ip) = client.ip() else { return client };
        let [.., third, fourth] = ip.octets();
        address_in(Self::Copier.network(), u64::from(third) << 8 | u64::from(fourth))
    }

    /// Returns how many bytes may be sent for each received byte, in tenths.
    const fn limit_tenths(self, cookie: Cookie) -> u64 {
        match (self, cookie) {
            (Self::Hello, Cookie::Always) => 1,
            (Self::Hello, Cookie::UnderLoad) | (Self::Junk, _) => 10,
            (Self::Copier, _) => 30,
        }
    }
}

/// Checks how much the server sent to the attacker's addresses, except for those that have proved that they receive.
pub(crate) fn check_amplification(
    world: &World,
    cookie: Cookie,
    proved: &HashSet<SocketAddr>,
) -> Result<(), String> {
    for (address, Traffic { received_bytes, sent_bytes, .. }) in world.traffic() {
        if let Some(class) = AddressClass::of(address)
            && !proved.contains(&address)
            && sent_bytes * 10 > received_bytes * class.limit_tenths(cookie)
        {
            return Err(format!("{address} ({class:?}) got {sent_bytes} bytes for {received_bytes}"));
        }
    }
    Ok(())
}

/// Returns an address of a network.
fn address_in(network: [u8; 2], number: u64) -> SocketAddr {
    let [_, _, _, _, _, port, third, fourth] = number.to_be_bytes();
    let [first, second] = network;
    SocketAddr::from((Ipv4Addr::new(first, second, third, fourth), 1_024 + u16::from(port)))
}
