//! Batches of newcomers, each of which is announced to all clients. No client may be dropped, and no announcement lost.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use drumfire::{ChannelId, Event, GroupId, Message, Server};
use drumfire_benches::roles::{config, end, print_address};
use drumfire_benches::{
    Bench, Child, Counts, Goal, InputLines, Spread, arguments, close, close_server, count, counts_of,
    named_counts,
};
use drumfire_proto::Event as CoreEvent;
use drumfire_tools::clock;

use crate::world::{AT_ONCE, BATCH, bind};

/// The role of [`announce`].
pub(crate) const ANNOUNCER: &str = "announcer";

/// The interval of announcements. Newcomers within it share datagrams.
const ANNOUNCED_EVERY: Duration = Duration::from_millis(250);

/// The last announcement has come when none came for this long.
const SILENCE: Duration = Duration::from_secs(5);

const EVERYONE: GroupId = GroupId(1);

/// Runs a server that announces each newcomer to all connections. The argument is the number of connections.
///
/// It prints its address and its counts: `left`, `owed` (copies of announcements), and `not announced` and `missed`, which count
/// announcements without room.
pub(crate) fn announce(args: &str) -> Result<Counts, String> {
    let mut server = Server::bind(config(1, arguments(args)?)).map_err(|error| error.to_string())?;
    let input = InputLines::read();
    let (mut came, mut left, mut owed, mut not_announced, mut missed) = (0, 0, 0, 0, 0);
    print_address(server.local_addr())?;
    while !input.has_ended() {
        clock::pause(ANNOUNCED_EVERY);
        server.poll(Duration::ZERO);
        while let Some(event) = server.next_event() {
            match event {
                Event::Disconnected { .. } => left += 1,
                Event::Missed { count, .. } => missed += u64::from(count),
                Event::Connected { peer, .. } => {
                    came += 1_u64;
                    // A client that has left in the meantime has an event of its own.
                    if !server.join(peer, EVERYONE) {
                        continue;
                    }
                    let number = came.to_be_bytes().to_vec();
                    match server.broadcast(EVERYONE, Message::reliable_ordered(ChannelId(0), number)) {
                        Ok(()) => owed += came - left,
                        Err(_) => not_announced += 1,
                    }
                }
                _ => {}
            }
        }
        server.flush();
    }
    let control = server.control();
    let mut counts = counts_of(&end(server, &control));
    counts.extend(named_counts([
        ("left", left),
        ("owed", owed),
        ("not announced", not_announced),
        ("missed", missed),
    ]));
    Ok(counts)
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (clients, batch): (u32, u32) = bench.extent().pick((400, 200), (2_000, BATCH), (8_000, BATCH));
    let cores = bench.pin_load()?;
    let (server, to) = Child::server(ANNOUNCER, Some(cores.server), &clients)?;
    let mut pool = bind(to, clients)?;
    // The last number by socket and connection. Numbers rise.
    let (mut last, heard, mut unexpected, mut joined) = (HashMap::new(), Cell::new(0), 0, Vec::new());
    let mut on_event = |socket: usize, event: &CoreEvent<'_>| {
        let CoreEvent::Message { peer, payload, .. } = event else { return };
        let number = payload.first_chunk().map_or(0, |number| u64::from_be_bytes(*number));
        heard.set(heard.get() + 1);
        unexpected += u64::from(last.insert((socket, *peer), number).unwrap_or(0) >= number);
    };
    for connected in (0..=clients).step_by(batch as usize).skip(1).map(u64::from) {
        let outcomes = pool.connect(batch.into(), AT_ONCE, &mut on_event)?;
        joined.push(outcomes.took.as_secs_f64() * 1e3);
        outcomes.check()?;
        // The first connection receives all announcements, and the last one only its own.
        let (expected, mut since) = (connected * (connected + 1) / 2, clock::now());
        while heard.get() < expected && clock::now().duration_since(since) < SILENCE {
            if pool.poll(&mut on_event) {
                since = clock::now();
            }
        }
    }
    let ended = pool.ended();
    let served = close_server(server, &mut [&mut pool])?;

    let [owed, missed, not_announced] = ["owed", "missed", "not announced"].map(|name| count(&served, name));
    let lost = owed.saturating_sub(heard.get());
    let left = ended + count(&served, "left");
    let name = |what| format!("join: {clients} clients, each announced: {what}");
    let results = &mut bench.results;
    results.none_of(name("clients that were dropped"), left);
    results.none_of(name("announcements lost"), lost);
    results.none_of(name("newcomers not announced"), not_announced);
    results.spread(name("until a batch was connected"), Spread::of(joined), "ms", Goal::Shown, "");
    let late = lost.saturating_sub(missed);
    close([
        ("clients that left", left, 0..=0),
        ("announcements lost that had room", late, 0..=0),
        ("announcements out of order", unexpected, 0..=0),
    ])
}
