//! Whether every datagram is accounted for: sent by one end, dropped by name on the link, waiting, or taken in by
//! the other end and there under a name again.
//!
//! Where clients come and go, what those did that have gone counts for their places.

use drumfire::testing::{Fault, SocketCounts, World};
use drumfire::{DropReason, WorkerStats};

/// Datagrams that a worker keeps while its socket takes none, at most.
const KEPT_MAX: u64 = 128;

/// Faults after which a worker goes on with another descriptor.
const LOST_DESCRIPTOR: [Fault; 2] = [Fault::BadDescriptor, Fault::NotSocket];

/// What the clients of one place did that have gone from there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gone {
    /// Datagrams that they sent,
    pub(crate) sent: u64,
    /// and took in, under whatever name.
    pub(crate) taken: u64,
}

impl Gone {
    /// One more has gone.
    pub(crate) fn add(&mut self, stats: &WorkerStats) {
        self.sent += stats.sent.datagrams;
        self.taken += taken(stats);
    }
}

/// Closes the books of the whole world; `gone` is by place.
pub(crate) fn check(world: &World, gone: &[Gone]) -> Result<(), String> {
    let (mut sent_down, mut delivered, mut taken_in, mut sent) = (0, 0, 0, 0);
    for (at, client) in world.clients.iter().enumerate() {
        let (stats, gone) = (client.stats(), gone.get(at).copied().unwrap_or_default());
        of_end(at, &stats)?;
        let links = world.link_counts(at);
        for (link, (counts, flying)) in ["up", "down"].into_iter().zip(links) {
            let ends = counts.delivered + counts.lost + counts.queue_full + counts.too_large + flying;
            equal(|| format!("client {at}'s link {link}"), counts.pushed + counts.duplicated, ends)?;
        }
        let [(to_server, _), (to_client, _)] = links;
        equal(|| format!("what client {at} sent"), stats.sent.datagrams + gone.sent, to_server.pushed)?;
        sent_down += to_client.pushed;
        delivered += to_server.delivered + to_client.delivered;
        taken_in += taken(&stats) + gone.taken;
    }
    for (at, stats) in world.server.stats().workers.iter().enumerate() {
        of_worker(at, stats, &world.socket_counts(at))?;
        taken_in += taken(stats);
        sent += stats.sent.datagrams;
    }
    let counts = world.counts();
    equal(|| "what the server sent".to_owned(), sent, sent_down + counts.unreachable)?;
    let ends = taken_in + counts.waiting + counts.inbox_full;
    equal(|| "what arrived".to_owned(), delivered + counts.injected, ends)
}

/// Whether no end dropped a packet that only a fault can bring, in a world without such faults.
pub(crate) fn check_clean(world: &World) -> Result<(), String> {
    let no_fault = |name: &dyn Fn() -> String, stats: &WorkerStats| {
        for reason in [DropReason::Forged, DropReason::Duplicate, DropReason::TooOld, DropReason::ForgedId] {
            let what = || format!("{} dropped what is {} though nobody did that", name(), reason.name());
            equal(what, stats.protocol.dropped(reason), 0)?;
        }
        Ok::<(), String>(())
    };
    for stats in &world.server.stats().workers {
        no_fault(&|| "the server".to_owned(), stats)?;
    }
    for (at, client) in world.clients.iter().enumerate() {
        no_fault(&|| format!("client {at}"), &client.stats())?;
    }
    Ok(())
}

/// Everything an end took from its queue.
fn taken(stats: &WorkerStats) -> u64 {
    stats.received.datagrams + stats.received.dropped_in_all()
}

/// Of a client's end, at which nothing goes wrong.
fn of_end(at: usize, stats: &WorkerStats) -> Result<(), String> {
    equal(|| format!("client {at}'s datagrams in no counter"), stats.unexplained(), 0)?;
    equal(|| format!("client {at}'s panics"), stats.panics, 0)?;
    equal(|| format!("what client {at} wrote"), stats.protocol.datagrams_sent, stats.sent.datagrams)?;
    equal(|| format!("client {at}'s lost sends"), stats.sent.lost.total(), 0)
}

/// Of a worker, whose socket may fail.
fn of_worker(at: usize, stats: &WorkerStats, counts: &SocketCounts) -> Result<(), String> {
    equal(|| format!("moments at which worker {at} knew nothing of what had come"), counts.stranded, 0)?;
    let mut lost = 0;
    for fault in Fault::ALL {
        let injected = [counts.receive_faults.count(fault), counts.send_faults.count(fault)];
        // Beside those there are the ordinary ends of drains.
        if fault != Fault::WouldBlock {
            let received = stats.received.faults.count(fault);
            equal(|| format!("worker {at}'s receive calls, {fault}"), received, injected[0])?;
        }
        let sent = stats.sent.faults.count(fault);
        equal(|| format!("worker {at}'s send calls, {fault}"), sent, injected[1])?;
        lost += if LOST_DESCRIPTOR.contains(&fault) { injected[0] + injected[1] } else { 0 };
    }
    equal(|| format!("worker {at}'s descriptors that were lost"), stats.sockets_reopened, lost)?;
    if stats.kernel_dropped > counts.overflowed {
        let (counted, overflowed) = (stats.kernel_dropped, counts.overflowed);
        return Err(format!("worker {at} counts {counted} overflows of {overflowed}"));
    }
    // After a panic books need not close, and whoever began anew counts anew.
    if stats.panics > 0 {
        return Ok(());
    }
    equal(|| format!("worker {at}'s datagrams in no counter"), stats.unexplained(), 0)?;
    let gone = stats.sent.datagrams + stats.sent.lost.total();
    let wrote = stats.protocol.datagrams_sent;
    if (gone..=gone + KEPT_MAX).contains(&wrote) {
        Ok(())
    } else {
        Err(format!("the books do not close, what worker {at} wrote: {wrote}, and {gone} gone"))
    }
}

/// Closes them once more when all is calm: nothing may be on its way any more.
pub(crate) fn close(world: &World, gone: &[Gone]) -> Result<(), String> {
    check(world, gone)?;
    for (at, stats) in world.server.stats().workers.iter().enumerate() {
        let overflowed = world.socket_counts(at).overflowed;
        equal(|| format!("worker {at}'s overflows"), stats.kernel_dropped, overflowed)?;
        if stats.panics == 0 {
            let gone = stats.sent.datagrams + stats.sent.lost.total();
            equal(|| format!("what worker {at} wrote"), stats.protocol.datagrams_sent, gone)?;
        }
    }
    equal(|| "what still waits in queues".to_owned(), world.counts().waiting, 0)
}

/// Words are found only where the books do not close: they are looked at all the time.
fn equal(what: impl FnOnce() -> String, one: u64, other: u64) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("the books do not close, {}: {one} and {other}", what())) }
}
