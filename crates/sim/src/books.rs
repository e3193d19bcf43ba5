//! Whether every datagram is accounted for: sent by one end, dropped by name on the link, waiting, or taken in by
//! the other end and there under a name again.

use drumfire::WorkerStats;
use drumfire::testing::World;

/// Closes the books of the whole world.
pub(crate) fn check(world: &World) -> Result<(), String> {
    let server = world.server.stats();
    let server = server.workers.first().ok_or("the server has no worker")?;
    let (mut sent_down, mut delivered, mut taken) =
        (0, 0, server.received.datagrams + server.received.dropped_in_all());
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
    of_end("the server", server)?;
    let counts = world.counts();
    equal("what the server sent", server.sent.datagrams, sent_down + counts.unreachable)?;
    equal("what arrived", delivered + counts.injected, taken + counts.waiting + counts.inbox_full)
}

fn of_end(name: &str, stats: &WorkerStats) -> Result<(), String> {
    equal(&format!("{name}'s datagrams in no counter"), stats.unexplained(), 0)?;
    equal(&format!("{name}'s panics"), stats.panics, 0)?;
    equal(&format!("what {name} wrote"), stats.protocol.datagrams_sent, stats.sent.datagrams)?;
    equal(&format!("{name}'s lost sends"), stats.sent.lost.total(), 0)
}

fn equal(what: &str, one: u64, other: u64) -> Result<(), String> {
    if one == other { Ok(()) } else { Err(format!("the books do not close, {what}: {one} and {other}")) }
}
