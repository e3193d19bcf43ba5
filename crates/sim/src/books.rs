//! Whether every datagram is accounted for: sent by one end, dropped by name on the link, waiting, or taken in by
//! the other end and there under a name again.

use drumfire::testing::{Fault, SocketCounts, World};
use drumfire::{DropReason, WorkerStats};

/// Datagrams that a worker keeps while its socket takes none, at most.
const KEPT_MAX: u64 = 128;

/// Closes the books of the whole world.
pub(crate) fn check(world: &World) -> Result<(), String> {
    let (mut sent_down, mut delivered, mut taken, mut sent) = (0, 0, 0, 0);
    for (at, client) in world.clients.iter().enumerate() {
        let stats = client.stats();
        let name = format!("client {at}");
        of_end(&name, &stats)?;
        let links = world.link_counts(at);
        for (link, (counts, flying)) in ["up", "down"].into_iter().zip(links) {
            let gone = counts.delivered + counts.lost + counts.queue_full + counts.too_large + flying;
            equal(&format!("{name}'s link {link}"), counts.pushed + counts.duplicated, gone)?;
        }
        let [(to_server, _), (to_client, _)] = links;
        equal(&format!("what {name} sent"), stats.sent.datagrams, to_server.pushed)?;
        sent_down += to_client.pushed;
        delivered += to_server.delivered + to_client.delivered;
        taken += stats.received.datagrams + stats.received.dropped_in_all();
    }
    for (at, stats) in world.server.stats().workers.iter().enumerate() {
        of_worker(&format!("worker {at}"), stats, &world.socket_counts(at))?;
        taken += stats.received.datagrams + stats.received.dropped_in_all();
        sent += stats.sent.datagrams;
    }
    let counts = world.counts();
    equal("what the server sent", sent, sent_down + counts.unreachable)?;
    equal("what arrived", delivered + counts.injected, taken + counts.waiting + counts.inbox_full)
}

/// Whether no end dropped a packet that only a fault can bring, in a world without such faults.
pub(crate) fn check_clean(world: &World) -> Result<(), String> {
    let mut ends = vec![("the server".to_owned(), world.server.stats().workers)];
    let clients = world.clients.iter().enumerate();
    ends.extend(clients.map(|(at, client)| (format!("client {at}"), vec![client.stats()])));
    for (name, workers) in ends {
        for reason in [DropReason::Forged, DropReason::Duplicate, DropReason::TooOld, DropReason::ForgedId] {
            let count = workers.iter().map(|worker| worker.protocol.dropped(reason)).sum::<u64>();
            equal(&format!("{name} dropped what is {} though nobody did that", reason.name()), count, 0)?;
        }
    }
    Ok(())
}

/// Of an end at which nothing goes wrong.
fn of_end(name: &str, stats: &WorkerStats) -> Result<(), String> {
    equal(&format!("{name}'s datagrams in no counter"), stats.unexplained(), 0)?;
    equal(&format!("{name}'s panics"), stats.panics, 0)?;
    equal(&format!("what {name} wrote"), stats.protocol.datagrams_sent, stats.sent.datagrams)?;
    equal(&format!("{name}'s lost sends"), stats.sent.lost.total(), 0)
}

/// Of a worker, whose socket may fail.
fn of_worker(name: &str, stats: &WorkerStats, counts: &SocketCounts) -> Result<(), String> {
    equal(&format!("moments at which {name} knew nothing of what had come"), counts.stranded, 0)?;
    for fault in Fault::ALL {
        let received = stats.received.faults.count(fault);
        // Beside those there are the ordinary ends of drains.
        if fault != Fault::WouldBlock {
            let injected = counts.receive_faults.count(fault);
            equal(&format!("{name}'s receive calls, {fault}"), received, injected)?;
        }
        let injected = counts.send_faults.count(fault);
        equal(&format!("{name}'s send calls, {fault}"), stats.sent.faults.count(fault), injected)?;
    }
    if stats.kernel_dropped > counts.overflowed {
        return Err(format!("{name} counts {} overflows of {}", stats.kernel_dropped, counts.overflowed));
    }
    // After a panic books need not close, and whoever began anew counts anew.
    if stats.panics > 0 {
        return Ok(());
    }
    equal(&format!("{name}'s datagrams in no counter"), stats.unexplained(), 0)?;
    let gone = stats.sent.datagrams + stats.sent.lost.total();
    let wrote = stats.protocol.datagrams_sent;
    if (gone..=gone + KEPT_MAX).contains(&wrote) {
        Ok(())
    } else {
        Err(format!("the books do not close, what {name} wrote: {wrote}, and {gone} gone"))
    }
}

/// Closes them once more when all is calm: nothing may be on its way any more.
pub(crate) fn close(world: &World) -> Result<(), String> {
    check(world)?;
    for (at, stats) in world.server.stats().workers.iter().enumerate() {
        let overflowed = world.socket_counts(at).overflowed;
        equal(&format!("worker {at}'s overflows"), stats.kernel_dropped, overflowed)?;
        if stats.panics == 0 {
            let gone = stats.sent.datagrams + stats.sent.lost.total();
            equal(&format!("what worker {at} wrote"), stats.protocol.datagrams_sent, gone)?;
        }
    }
    equal("what still waits in queues", world.counts().waiting, 0)
}

fn equal(what: &str, one: u64, other: u64) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("the books do not close, {what}: {one} and {other}")) }
}
