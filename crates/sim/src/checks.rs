//! Checks of the whole world after each step: the books of datagrams, the amplification limits, and the memory.

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
        for (link, (counts, flying)) in ["up", "down"].into_iter().zip(links) {
            let ends = counts.delivered + counts.lost + counts.queue_full + counts.too_large + flying;
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
    let check = |name: &dyn Fn() -> String, stats: &WorkerStats| {
        for reason in [DropReason::Forged, DropReason::Duplicate, DropReason::TooOld, DropReason::ForgedId] {
            let what = || format!("packets of {} that are {} without a fault", name(), reason.name());
            equal(what, stats.protocol.dropped(reason), 0)?;
        }
        Ok::<(), String>(())
    };
    for stats in &world.server.control().stats().workers {
        check(&|| "the server".to_owned(), stats)?;
    }
    for (at, client) in world.clients.iter().enumerate() {
        check(&|| format!("client {at}"), &client.stats())?;
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

/// The send memory of a connection in bytes. It is less than the default, so that scenarios fill it.
pub(crate) const SEND_MEMORY_BYTES: usize = 256 * 1_024;

/// The receive memory of a connection in bytes. Credit begins with a quarter of it, and may double.
pub(crate) const RECEIVE_MEMORY_BYTES: usize = 512 * 1_024;

/// Returns the memory of each end of a connection, for sending and for receiving, from that of the scenario.
pub(crate) fn memories(bytes: Option<usize>) -> (usize, usize) {
    bytes.map_or((SEND_MEMORY_BYTES, RECEIVE_MEMORY_BYTES), |bytes| (bytes, bytes))
}

/// Memory that messages share on their way to an application: five pieces of 64 KiB.
const PIECES_BYTES: u64 = 5 * 64 * 1_024;

/// Late, duplicated, and queued datagrams on both links of a client.
const LINKS_BYTES: u64 = 512 * 1_024;

/// A worker's socket, its tables, an attacker's datagrams on their way, and the scenario's own records.
const TABLES_BYTES: u64 = 8 * 1_024 * 1_024;

/// The records of all clients and attackers' addresses of an hour.
const HOUR_BYTES: u64 = 64 * 1_024 * 1_024;

/// The properties of a scenario that decide the memory of its world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryPlan {
    pub(crate) clients: usize,
    /// The memory of each end of a connection, for sending and for receiving.
    pub(crate) memories: (usize, usize),
    pub(crate) workers: u16,
    /// Whether an application on another thread may fill the send memory before it learns that broadcasts have filled it.
    pub(crate) is_filled_twice: bool,
    pub(crate) is_hour: bool,
}

impl MemoryPlan {
    /// Returns the most memory that a world may hold.
    fn most_bytes(self) -> u64 {
        let (send, receive) = self.memories;
        // With a tenth for the tables of the connection.
        let end_bytes = (send + receive) as u64 * 11 / 10;
        let second_bytes = if self.is_filled_twice { send as u64 * 11 / 10 } else { 0 };
        let per_client = 2 * (end_bytes + PIECES_BYTES) + second_bytes + LINKS_BYTES;
        let hour_bytes = if self.is_hour { HOUR_BYTES } else { 0 };
        self.clients as u64 * per_client + TABLES_BYTES * u64::from(self.workers) + hour_bytes
    }
}

/// Checks the peak memory of a world. The sum shows that a limit was exceeded, but not which one. Tests of the core
/// count the memory of one connection.
pub(crate) fn check_memory(held_bytes: u64, plan: MemoryPlan) -> Result<(), String> {
    let (clients, most) = (plan.clients, plan.most_bytes());
    if held_bytes > most {
        return Err(format!("it held {held_bytes} bytes, and {clients} clients may hold {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_beyond_the_limit_is_an_error() {
        let memories = (SEND_MEMORY_BYTES, RECEIVE_MEMORY_BYTES);
        let plan = MemoryPlan { clients: 3, memories, workers: 1, is_filled_twice: false, is_hour: false };
        let most = plan.most_bytes();
        assert_eq!(check_memory(most, plan), Ok(()));
        assert!(check_memory(most + 1, plan).unwrap_err().contains("3 clients"));
        let tight = MemoryPlan { memories: (65_536, 65_536), ..plan };
        assert!(check_memory(most, tight).is_err(), "smaller memories hold less");
    }
}
