//! Batches of newcomers, each of which is announced to all clients. No client may be dropped, and no announcement lost.

use std::collections::HashMap;
use std::time::Duration;

use drumfire::{ChannelId, Event, GroupId, Message, Server};
use drumfire_benches::roles::{config, end, print_address};
use drumfire_benches::{
    Bench, Child, Counts, Goal, Orders, Spread, close_server, count, counts_of, named_counts,
};
use drumfire_proto::{Event as CoreEvent, PeerId};
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
/// It prints its address and its counts: `left`, `owed` (copies of announcements), and for want of room `not announced` and `missed`.
pub(crate) fn announce(args: &[&str]) -> Result<Counts, String> {
    let [connections] = args else { return Err("not the arguments of an announcer".to_owned()) };
    let mut server = Server::bind(config("1", connections)?).map_err(|error| error.to_string())?;
    let orders = Orders::read();
    let (mut came, mut left, mut owed, mut not_announced, mut missed) = (0, 0, 0, 0, 0);
    print_address(server.local_addr())?;
    while !orders.are_over() {
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

/// The announcements that clients received.
#[derive(Debug, Default)]
struct Announcements {
    /// The last number by socket and connection.
    last: HashMap<(usize, PeerId), u64>,
    heard: u64,
    /// Messages that are not announcements, and announcements that came before.
    strangers: u64,
}

impl Announcements {
    /// Counts an event of a connection of this socket.
    fn on_event(&mut self, socket: usize, event: &CoreEvent<'_>) {
        let CoreEvent::Message { peer, payload, .. } = event else { return };
        let Ok(bytes) = <[u8; 8]>::try_from(*payload) else {
            self.strangers += 1;
            return;
        };
        let number = u64::from_be_bytes(bytes);
        self.heard += 1;
        let before = self.last.insert((socket, *peer), number);
        self.strangers += u64::from(before.is_some_and(|before| number <= before));
    }
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (clients, batch): (u32, u32) = bench.extent().pick((400, 200), (2_000, BATCH), (8_000, BATCH));
    let cores = bench.pin_load()?;
    let (server, to) = Child::server(ANNOUNCER, Some(cores.server), &[&clients.to_string()])?;
    let (mut crowd, mut announcements) = (bind(to, clients)?, Announcements::default());
    let (mut connected, mut failed, mut joined) = (0, 0, Vec::new());
    for _ in 0..clients / batch {
        let on_event = |socket, event: &CoreEvent<'_>| announcements.on_event(socket, event);
        let ramped = crowd.connect(batch.into(), AT_ONCE, on_event)?;
        joined.push(ramped.took.as_secs_f64() * 1e3);
        connected += ramped.connected;
        failed += ramped.failed_count();
        let (mut last, mut since) = (announcements.heard, clock::now());
        // The first connection receives all announcements, and the last one only its own.
        let expected = connected * (connected + 1) / 2;
        while announcements.heard < expected && clock::now().duration_since(since) < SILENCE {
            crowd.look(|socket, event| announcements.on_event(socket, event));
            if announcements.heard > last {
                (last, since) = (announcements.heard, clock::now());
            }
        }
    }
    let ended = crowd.ended();
    let served = close_server(server, &mut [&mut crowd])?;

    let [owed, missed, not_announced] = ["owed", "missed", "not announced"].map(|name| count(&served, name));
    let Announcements { heard, strangers, .. } = announcements;
    let lost = owed.saturating_sub(missed).saturating_sub(heard);
    let left = ended + count(&served, "left");
    let name = |what| format!("join: {clients} clients, each announced: {what}");
    let results = &mut bench.results;
    results.none_of(name("connects that failed"), failed);
    results.none_of(name("clients that were dropped"), left);
    results.none_of(name("announcements lost"), lost + missed);
    results.none_of(name("newcomers not announced"), not_announced);
    results.spread(name("until a batch was connected"), Spread::of(joined), "ms", Goal::Shown, "");
    match left + failed + lost + strangers {
        0 => Ok(()),
        _ => Err(format!(
            "{left} clients left, {failed} connects failed, {lost} announcements lost, {strangers} came out of order"
        )),
    }
}
