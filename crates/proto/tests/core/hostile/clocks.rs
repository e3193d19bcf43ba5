//! One end's clock goes wrong: back, ahead by a year, or not at all. Nothing panics, no connection ends sooner than
//! its own clock says, no key is used for longer, and no message or packet is lost.

use crate::harness::{CLEAN, CLIENT, Random, SERVER, Seen, World, address};
use drumfire_proto::{ClientConfig, CloseReason, Config, DropReason, Inbound, Message, Moment, Now};
use drumfire_tries::tries;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(10);
/// Ticks in which both ends send.
const TALK: u32 = 1_200;
const TALK_SECONDS: u64 = 12;
const YEAR: Duration = Duration::from_secs(31_557_600);

/// The fault of a clock. A clock that goes back violates the contract of `Moment`, and the core must tolerate it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ClockFault {
    Back(Duration),
    Ahead(Duration),
    Frozen(Duration),
}

impl ClockFault {
    fn draw(seed: u64, kind: u64, random: &mut Random) -> Self {
        match kind {
            // From a nanosecond to less than the ten seconds in which the other end times out, in each order of
            // magnitude.
            0 if seed == 0 => Self::Back(Duration::from_secs(9)),
            0 => Self::Back(Duration::from_nanos(1 + (random.below(9_000_000_000) >> random.below(34)))),
            1 => Self::Ahead(YEAR),
            2 => Self::Ahead(Duration::from_millis(random.below(5_000))),
            _ => Self::Frozen(Duration::from_millis(random.below(5_000))),
        }
    }

    /// The time that passes while the clock shows nothing new.
    fn uncounted(self) -> Duration {
        match self {
            Self::Back(time) | Self::Frozen(time) => time,
            Self::Ahead(_) => Duration::ZERO,
        }
    }
}

/// `DRUMFIRE_SEEDS=10000` runs more.
fn seeds() -> u64 {
    let requested = std::env::var("DRUMFIRE_SEEDS").ok().and_then(|text| text.parse().ok());
    requested.unwrap_or_else(|| tries(200).into())
}

/// The time that an end assumes.
struct Clock {
    shows: u64,
    frozen_for: Duration,
}

impl Clock {
    fn pass(&mut self) {
        if self.frozen_for >= TICK {
            self.frozen_for -= TICK;
        } else {
            self.shows += TICK.as_nanos() as u64;
        }
    }

    fn go(&mut self, fault: ClockFault) {
        match fault {
            ClockFault::Back(by) => self.shows = self.shows.saturating_sub(by.as_nanos() as u64),
            ClockFault::Ahead(by) => self.shows += by.as_nanos() as u64,
            ClockFault::Frozen(time) => self.frozen_for = time,
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: Moment::from_nanos(self.shows), wall: Duration::ZERO }
    }
}

/// Both ends send for twelve seconds and listen as long. After three seconds the clock of one goes wrong, and
/// datagrams arrive a tick later.
fn exchange_messages(seed: u64, fault: ClockFault, at: usize) -> World {
    let config = Config::default().rekey(64, Duration::from_secs(1));
    let mut world = World::with(seed, CLEAN, config, ClientConfig::default());
    let peers = <[_; 2]>::from(world.connected());
    world.run(Duration::from_secs(20));
    let mut clocks = [0, 1].map(|_| Clock { shows: world.now.as_nanos(), frozen_for: Duration::ZERO });
    let mut in_flight: [Vec<Vec<u8>>; 2] = Default::default();
    for tick in 0..2_400_u32 {
        if tick == 300 {
            clocks[at].go(fault);
        }
        for end in [CLIENT, SERVER] {
            let (now, core) = (clocks[end].now(), &mut world.ends[end]);
            let mut arrived = std::mem::take(&mut in_flight[end]);
            let from = address(1 - end).into();
            core.handle_datagrams(now, arrived.iter_mut().map(|bytes| Inbound { from, bytes }));
            core.handle_timeout(now);
            if tick < TALK && tick.is_multiple_of(5) {
                let bytes = bytes::Bytes::copy_from_slice(&tick.to_be_bytes());
                // An end that timed out by the jump accepts nothing.
                let _ = core.send(
                    now,
                    peers[end],
                    Message::reliable_ordered(drumfire_proto::ChannelId(0), bytes),
                );
            }
            let mut memory = [0; 1_200];
            while let Some(transmit) = core.poll_transmit(now, &mut memory) {
                in_flight[1 - end].push(memory[..transmit.bytes].to_vec());
            }
            clocks[end].pass();
        }
    }
    world.now = clocks[CLIENT].now().monotonic.max(clocks[SERVER].now().monotonic);
    world
}

fn ending(world: &World, end: usize) -> Option<CloseReason> {
    world.seen[end].iter().find_map(|(_, _, seen)| match seen {
        Seen::Disconnected(reason, _) => Some(*reason),
        _ => None,
    })
}

#[test]
fn a_wrong_clock_ends_no_connection_and_loses_nothing() {
    for seed in 0..seeds() {
        let mut random = Random(seed);
        for (kind, at) in (0..4).flat_map(|kind| [(kind, CLIENT), (kind, SERVER)]) {
            let fault = ClockFault::draw(seed, kind, &mut random);
            let mut world = exchange_messages(seed, fault, at);
            world.flush();
            let endings = [CLIENT, SERVER].map(|end| ending(&world, end));
            // By its own clock it may have received nothing for a year.
            if fault == ClockFault::Ahead(YEAR) && endings[at].is_some() {
                let is_due =
                    matches!(endings[at], Some(CloseReason::IdleTimeout | CloseReason::Unacknowledged));
                assert!(is_due, "seed {seed}: {endings:?}");
                continue;
            }
            assert_eq!(endings, [None; 2], "seed {seed}, {fault:?} at {at}");
            // A key lasts a second. An end that counts a time twice or not at all may use it for as much longer.
            let changes: u64 = world.ends.iter().map(|end| end.stats().key_changes).sum();
            let uncounted = fault.uncounted().as_secs() + 1;
            assert!(changes + uncounted >= TALK_SECONDS, "seed {seed}, {fault:?} at {at}: {changes} keys");
            for end in [CLIENT, SERVER] {
                let got = world.messages(end).into_iter().map(|(_, bytes)| bytes);
                let all = (0..TALK).step_by(5).map(|tick| tick.to_be_bytes().to_vec());
                let came = got.eq(all);
                assert!(came, "seed {seed}, {fault:?} at {at}: not all at {end}");
                let forged = world.ends[end].stats().dropped(DropReason::Forged);
                assert_eq!(forged, 0, "seed {seed}, {fault:?} at {at}");
            }
        }
    }
}
