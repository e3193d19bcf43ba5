//! Memory of channels that are no longer used, at both ends of a few connections, counted by the allocator.
//!
//! Two worlds carry the same messages at the same times, the first on one channel of each mode and the second on 1,024. All messages are
//! acknowledged. Then the connections are silent until they have given their working memory back. The memory of the second world above
//! that of the first belongs to its unused channels. The link's own memory is in both.

use allocation_counter::measure as counted;
use bytes::Bytes;
use drumfire_benches::{Bench, Goal};
use drumfire_proto::SendOptions;

use super::world::{Path, World, send};

const PEERS: u32 = 8;
const CHANNELS: u16 = 1_024;
const PATH: Path = Path { delay_ticks: 2, lost_per_mille: 0 };

/// Each mode, and the number of its messages that are sent before they are acknowledged. It is one where a newer message may replace
/// an older one.
const MODES: [(SendOptions, u16); 2] =
    [(SendOptions::reliable_ordered(), 8), (SendOptions::reliable_sequenced(), 1)];

/// Ticks for both ways and for the longest delay of an ack.
const SETTLE_TICKS: u32 = 40;

/// Ticks after which an idle connection has given its working memory back.
const IDLE_TICKS: u32 = 20_000;

pub(super) fn measure(bench: &mut Bench) -> Result<(), String> {
    let [one, many] = [held(1)?, held(CHANNELS)?];
    let unused = f64::from(PEERS) * MODES.len() as f64 * f64::from(CHANNELS - 1);
    println!(
        "  {PEERS} peers, both ends: {one} B more after 1 channel of each mode, {many} B after {CHANNELS}"
    );
    let name = format!("{PEERS} peers, {CHANNELS} channels drained: memory per unused channel, both ends");
    let each = (many - one) as f64 / unused;
    bench.results.figure(name, Some(each), "B", Goal::AtMost(0.0), "counted by the allocator");
    Ok(())
}

/// The bytes that both ends of all connections hold after this number of channels of each mode was used and drained.
fn held(channels: u16) -> Result<i64, String> {
    let mut world = World::new(PEERS, PATH)?;
    let mut used = Ok(());
    let info = counted(|| used = use_and_drain(&mut world, channels));
    used.map(|()| info.bytes_current)
}

fn use_and_drain(world: &mut World, channels: u16) -> Result<(), String> {
    for ((options, at_a_time), first) in MODES.into_iter().zip([0, channels]) {
        for message in 0..CHANNELS {
            let channel = first + message % channels;
            world.tick(
                |server, now, links| {
                    for link in links {
                        send(server, now, link, channel, Bytes::from_static(&[7; 16]), options);
                    }
                },
                |_, _| {},
            );
            world.sent += world.peers() as u64;
            if (message + 1).is_multiple_of(at_a_time) {
                be_silent(world, SETTLE_TICKS);
            }
        }
    }
    world.drain()?;
    be_silent(world, IDLE_TICKS);
    if world.delivered == world.sent {
        Ok(())
    } else {
        Err(format!("unused: {} of {} messages delivered", world.delivered, world.sent))
    }
}

fn be_silent(world: &mut World, ticks: u32) {
    for _ in 0..ticks {
        world.tick(|_, _, _| {}, |_, _| {});
    }
}
