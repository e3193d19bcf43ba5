//! The cache lines that an echo needs when none of its connection is in the cache, as with very many connections.
//!
//! Callgrind simulates an instruction cache of 32 KiB, as processors have, and a data cache of 1 MiB, as a core's L2 cache. That holds
//! the lines of one batch, and by far not those of all connections. A line that is missing counts once per batch. Copies of payloads and
//! expanded keys are included.

use std::time::Duration;

use drumfire_benches::memory::{
    BATCH, Datagrams, Group, UNLIMITED, client_address, server_address, take_messages,
};
use drumfire_benches::{Bench, Extent, Goal};
use drumfire_proto::{ChannelId, Config, Endpoint, Event, Message, Now, PeerId, SingleWorker};

use crate::inline::{Direction, count_if};
use crate::valgrind;

const PAYLOAD: &[u8] = &[7; 1_024];

/// More than the simulated data cache holds.
const CONNECTIONS: u32 = 400;

/// Echoes of the shorter run. Each connection has several, because its first ones allocate.
const ECHOES: u64 = 2_000;

/// The time between two batches. A connection then has its next echo after more than the delay of an ack.
const BATCH_INTERVAL: Duration = Duration::from_millis(3);

/// The simulated caches: bytes, ways, and bytes of a line.
const CACHES: [&str; 3] = ["--cache-sim=yes", "--I1=32768,8,64", "--D1=1048576,16,64"];

/// The directions. Lines of code have no limit: the linker places functions, and the place decides which of them replace each other
/// in the instruction cache. Builds of nearly equal code differ by a factor of three.
pub(crate) const COLD: [(&str, Direction); 2] =
    [("cold message in", Direction::In), ("cold message out", Direction::Out)];

/// Counts the missing lines per message.
pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    for (name, _) in COLD {
        if !bench.wants(name) {
            continue;
        }
        let lines = if bench.extent() == Extent::Quick { None } else { Some(missing(name)?) };
        let note = if lines.is_none() { "not in a quick run" } else { "" };
        for (of, lines) in [("code", lines.map(|lines| lines.0)), ("data", lines.map(|lines| lines.1))] {
            bench.results.figure(format!("{name}, lines of {of}"), lines, "cache lines", Goal::Shown, note);
        }
    }
    Ok(())
}

/// Returns the lines of code and of data that are missing per message.
fn missing(name: &str) -> Result<(f64, f64), String> {
    let [once, twice] = [ECHOES, 2 * ECHOES].map(|number| valgrind(&CACHES, name, number));
    let each =
        once?.into_iter().zip(twice?).map(|(once, twice)| twice.saturating_sub(once) as f64 / ECHOES as f64);
    // Instructions, reads, and writes; then the same three as far as the first cache misses them.
    match each.collect::<Vec<_>>()[..] {
        [_, _, _, code, read, written, ..] => Ok((code, read + written)),
        _ => Err(format!("{name}: valgrind did not simulate caches")),
    }
}

/// Echoes `count` messages, one per connection in turn.
pub(crate) fn echo(direction: Direction, count: u64) {
    let config = Config::default().congestion(UNLIMITED);
    let Group { mut server, mut client, links, mut now } =
        Group::connect(CONNECTIONS, &config).expect("connections");
    let [mut packets, mut answers] = [Datagrams::default(), Datagrams::default()];
    let (mut sent, mut echoed) = (0, 0);
    for batch in links.chunks(BATCH).cycle() {
        if sent >= count {
            break;
        }
        sent += batch.len() as u64;
        send(&mut client, now, batch.iter().map(|link| link.server));
        packets.take_all_from(&mut client, now);
        let peers = count_if(direction == Direction::In, || {
            server.handle_datagrams(now, packets.inbound(client_address()));
            server.handle_timeout(now);
            senders(&mut server)
        });
        count_if(direction == Direction::Out, || {
            send(&mut server, now, peers.into_iter());
            answers.take_all_from(&mut server, now);
        });
        client.handle_datagrams(now, answers.inbound(server_address()));
        client.handle_timeout(now);
        echoed += take_messages(&mut client);
        packets.clear();
        answers.clear();
        now.monotonic = now.monotonic.after(BATCH_INTERVAL);
    }
    assert_eq!(sent, echoed);
}

fn send(from: &mut Endpoint<SingleWorker>, now: Now, peers: impl Iterator<Item = PeerId>) {
    for peer in peers {
        from.send(now, peer, Message::reliable_ordered(ChannelId(0), PAYLOAD)).expect("room for a message");
    }
}

/// Takes all events. Returns the senders of the messages.
fn senders(endpoint: &mut Endpoint<SingleWorker>) -> Vec<PeerId> {
    let mut peers = Vec::new();
    while let Some(event) = endpoint.poll_event() {
        if let Event::Message { peer, .. } = event {
            peers.push(peer);
        }
    }
    peers
}
