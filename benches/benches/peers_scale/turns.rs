//! Whether everybody's turn comes when one peer floods, in virtual time and so to the message: reliable messages to the others
//! over a path that loses some are sent again in time, and connections that say nothing are kept alive, for longer than a
//! connection without an answer would be.
//!
//! The flood is more than a pass takes of one connection. No system call and no clock is part of it: what a full socket drops,
//! the other arms show.

use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::group::{Datagrams, Group, UNLIMITED, client_address, random};
use drumfire_benches::pair::server_address;
use drumfire_benches::{Extent, Goal, Results, count, counts_text};
use drumfire_proto::{ChannelId, Config, Event, SendOptions};
use hdrhistogram::Histogram;

/// The flooder, those who are spoken to, and those who are silent.
const FLOODER: usize = 0;
const SPOKEN_TO: std::ops::Range<usize> = 1..81;
const SILENT: std::ops::Range<usize> = 81..101;

/// Longer than a connection lives that hears nothing.
const VIRTUAL: Duration = Duration::from_secs(35);

/// A message to each of them in so long.
const SPOKEN_EVERY: Duration = Duration::from_millis(50);

/// Of the flood, in each tick: more than a pass takes of one connection.
const FLOOD: usize = 70;

/// Datagrams of a thousand to the clients that are lost.
const LOST_PER_MILLE: u64 = 20;

/// Where the draws begin that say which ones.
pub(crate) const SEED: u64 = 7;

/// What came of a run.
struct Outcome {
    /// From a message to its arrival, in milliseconds.
    ages: Histogram<u64>,
    counts: drumfire_benches::Counts,
}

pub(crate) fn measure(extent: Extent, results: &mut Results) -> Result<(), String> {
    let tick = Duration::from_millis(if extent == Extent::Quick { 10 } else { 2 });
    let names = ["nobody floods", "one floods"];
    for (name, is_flooded) in names.into_iter().zip([false, true]) {
        let Outcome { ages, counts } = run(tick, is_flooded)?;
        println!("  in virtual time, {name}: {}", counts_text(&counts));
        let mut figure = |what: &str, value: u64, unit, goal| {
            let name = format!("fair: virtual time, {name}: {what}");
            results.figure(name, Some(value as f64), unit, goal, "");
        };
        figure("p99 of reliable messages at 2 % loss", ages.value_at_quantile(0.99), "ms", Goal::Shown);
        figure("slowest", ages.max(), "ms", Goal::Shown);
        figure("messages sent again", count(&counts, "sent again"), "", Goal::AtLeast(1.0));
        figure("connections that ended in 35 s", count(&counts, "ended"), "", Goal::AtMost(0.0));
        let missing = count(&counts, "spoken").saturating_sub(ages.len());
        if count(&counts, "ended") > 0 || missing > 0 {
            return Err(format!("{name}: {missing} reliable messages are nowhere, {}", counts_text(&counts)));
        }
    }
    Ok(())
}

fn run(tick: Duration, is_flooded: bool) -> Result<Outcome, String> {
    let peers = u32::try_from(SILENT.end).map_err(|error| error.to_string())?;
    let config = Config::default().has_aes_gcm(true).congestion(UNLIMITED);
    let mut group = Group::connect(peers, &config)?;
    let ages = Histogram::new_with_bounds(1, 60_000, 3).map_err(|error| error.to_string())?;
    let [up, down] = [Datagrams::default(), Datagrams::default()];
    let mut world = World { ages, seed: SEED, up, down, ended: 0 };
    let ticks = VIRTUAL.as_millis() / tick.as_millis();
    let every = SPOKEN_EVERY.as_millis() / tick.as_millis();
    // The last messages have a second to arrive.
    let last = ticks - Duration::from_secs(1).as_millis() / tick.as_millis();
    let (mut spoken, mut flooded, mut no_room) = (0_u64, 0_u64, 0_u64);
    let flood = Bytes::from_static(&[0x5a; 1_000]);
    for now in 0..ticks {
        group.pass(tick);
        for _ in 0..if is_flooded { FLOOD } else { 0 } {
            let to = group.links[FLOODER].server;
            let options = SendOptions::unreliable();
            let sent = group.client.send(group.now, to, ChannelId(0), flood.clone(), options);
            *(if sent.is_ok() { &mut flooded } else { &mut no_room }) += 1;
        }
        world.carry_up(&mut group);
        if now % every == 0 && now < last {
            let milliseconds = u64::try_from(now * tick.as_millis()).unwrap_or(0);
            for link in &group.links[SPOKEN_TO] {
                let bytes = Bytes::copy_from_slice(&milliseconds.to_be_bytes());
                let options = SendOptions::reliable_ordered();
                let sent = group.server.send(group.now, link.client, ChannelId(1), bytes, options);
                sent.map_err(|error| format!("the server: {error}"))?;
                spoken += 1;
            }
        }
        world.carry_down(&mut group, u64::try_from(now * tick.as_millis()).unwrap_or(0));
    }
    let stats = group.server.stats();
    let dropped = stats.dropped(drumfire_proto::DropReason::PassShare);
    let counts = [
        ("spoken", spoken),
        ("sent again", stats.messages_resent),
        ("flooded", flooded),
        ("flood without room", no_room),
        ("beyond a pass", dropped),
        ("ended", world.ended),
    ];
    Ok(Outcome { ages: world.ages, counts: counts.map(|(name, count)| (name.to_owned(), count)).into() })
}

/// The way between both ends, and what came.
struct World {
    ages: Histogram<u64>,
    seed: u64,
    up: Datagrams,
    down: Datagrams,
    ended: u64,
}

impl World {
    fn carry_up(&mut self, group: &mut Group) {
        let Group { server, client, now, .. } = group;
        client.handle_timeout(*now);
        self.up.clear();
        self.up.take_all_from(client, *now);
        server.handle_datagrams(*now, self.up.inbound(client_address()));
        server.handle_timeout(*now);
        while let Some(event) = server.poll_event() {
            self.ended += u64::from(matches!(event, Event::Disconnected { .. }));
        }
    }

    fn carry_down(&mut self, group: &mut Group, milliseconds: u64) {
        let Group { server, client, now, .. } = group;
        let Self { ages, seed, down, ended, .. } = self;
        down.clear();
        down.take_all_from(server, *now);
        down.retain(|| random(seed) % 1_000 >= LOST_PER_MILLE);
        client.handle_datagrams(*now, down.inbound(server_address()));
        while let Some(event) = client.poll_event() {
            match event {
                Event::Message { bytes, .. } => {
                    let said = bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                    ages.saturating_record(milliseconds.saturating_sub(said));
                }
                Event::Disconnected { .. } => *ended += 1,
                _ => {}
            }
        }
    }
}
