//! Fairness in virtual time, to the message. Reliable messages to the others over a lossy path are sent again in time, and silent
//! connections are kept alive for longer than a connection lives without answers.
//!
//! The flood has more datagrams per tick than a pass takes from one connection. Neither system calls nor clocks take part.

use std::time::Duration;

use bytes::Bytes;
use drumfire_benches::memory::{Datagrams, Group, UNLIMITED, client_address, random, server_address};
use drumfire_benches::{Bench, Goal};
use drumfire_proto::{ChannelId, Config, DropReason, Event, Message, SendOptions};
use hdrhistogram::Histogram;

/// The connections: one that floods, those that receive messages, and silent ones.
const FLOODER: usize = 0;
const RECEIVERS: std::ops::Range<usize> = 1..81;
const CONNECTIONS: u32 = 101;

/// Longer than the silent timeout of a connection.
const VIRTUAL_MS: u64 = 35_000;

/// The last messages have this long to arrive.
const LAST_MS: u64 = 1_000;

/// The interval of messages to each receiver.
const SEND_EVERY_MS: u64 = 50;

/// Messages of the flood per tick. A pass takes fewer from one connection.
const FLOOD: usize = 70;

/// Datagrams of a thousand to the clients that are lost.
const LOST_PER_MILLE: u64 = 20;

/// The seed of the losses.
pub(crate) const SEED: u64 = 7;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let tick_ms = bench.extent().pick(10, 2, 2);
    for (name, flood) in [("nobody floods", 0), ("one floods", FLOOD)] {
        let (ages, [sent, ended, again]) = play(tick_ms, flood)?;
        let missing = sent.saturating_sub(ages.len());
        if ended > 0 || missing > 0 {
            return Err(format!(
                "{name}: {missing} reliable messages are missing, {ended} connections ended"
            ));
        }
        for (what, value, unit, goal) in [
            ("p99 of reliable messages at 2 % loss", ages.value_at_quantile(0.99), "ms", Goal::Shown),
            ("slowest", ages.max(), "ms", Goal::Shown),
            ("messages sent again", again, "", Goal::AtLeast(1.0)),
            ("connections that ended in 35 s", ended, "", Goal::AtMost(0.0)),
        ] {
            let name = format!("fair: virtual time, {name}: {what}");
            bench.results.figure(name, Some(value as f64), unit, goal, "");
        }
    }
    Ok(())
}

/// Returns the milliseconds that the messages took, and the numbers of messages sent, of connections that ended, and of messages sent
/// again.
fn play(tick_ms: u64, flood: usize) -> Result<(Histogram<u64>, [u64; 3]), String> {
    let config = Config::default().has_aes_gcm(true).congestion(UNLIMITED);
    let mut group = Group::connect(CONNECTIONS, &config)?;
    let mut ages = Histogram::<u64>::new_with_bounds(1, 60_000, 3).map_err(|error| error.to_string())?;
    let [mut up, mut down] = [Datagrams::default(), Datagrams::default()];
    let (mut seed, mut sent, mut ended) = (SEED, 0, 0);
    let bytes = Bytes::from_static(&[0x5a; 1_000]);
    for now_ms in (0..VIRTUAL_MS).step_by(usize::try_from(tick_ms).unwrap_or(1)) {
        group.pass(Duration::from_millis(tick_ms));
        let Group { server, client, links, now } = &mut group;
        for _ in 0..flood {
            let options = SendOptions::unreliable();
            let to = links[FLOODER].server;
            // A message without room is left out.
            let _ = client.send(*now, to, Message::new(ChannelId(0), bytes.clone(), options));
        }
        client.handle_timeout(*now);
        up.clear();
        up.take_all_from(client, *now);
        server.handle_datagrams(*now, up.inbound(client_address()));
        server.handle_timeout(*now);
        while let Some(event) = server.poll_event() {
            ended += u64::from(matches!(event, Event::Disconnected { .. }));
        }
        if now_ms % SEND_EVERY_MS == 0 && now_ms < VIRTUAL_MS - LAST_MS {
            for link in &links[RECEIVERS] {
                let bytes = Bytes::copy_from_slice(&now_ms.to_be_bytes());
                let options = SendOptions::reliable_ordered();
                let taken = server.send(*now, link.client, Message::new(ChannelId(1), bytes, options));
                taken.map_err(|error| format!("the server: {error}"))?;
                sent += 1;
            }
        }
        down.clear();
        down.take_all_from(server, *now);
        down.retain(|| random(&mut seed) % 1_000 >= LOST_PER_MILLE);
        client.handle_datagrams(*now, down.inbound(server_address()));
        while let Some(event) = client.poll_event() {
            match event {
                Event::Message { payload, .. } => {
                    let sent_ms = payload.first_chunk().map_or(0, |payload| u64::from_be_bytes(*payload));
                    ages.saturating_record(now_ms.saturating_sub(sent_ms));
                }
                Event::Disconnected { .. } => ended += 1,
                _ => {}
            }
        }
    }
    let stats = group.server.stats();
    if flood > 0 && stats.dropped(DropReason::PassShare) == 0 {
        return Err("the flood never had more datagrams than a pass takes".to_owned());
    }
    Ok((ages, [sent, ended, stats.messages_resent]))
}
