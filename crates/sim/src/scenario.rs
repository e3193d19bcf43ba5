//! What a seed stands for: how many clients, what their links do, what they send, and when they go.
//!
//! It decides nothing while a scenario runs.

mod group;
mod hour;
mod swarmed;

use std::ops::Range;
use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Loss, Random};
use drumfire::testing::ClockConfig;
use drumfire::{Cookie, MESSAGE_MAX_BYTES, Redundancy, WhenFull};

use crate::dice::{between, fraction, millis};
use crate::swarm::Swarm;
pub(crate) use group::GROUPS;
pub use group::GroupPlan;

/// A whole run, fixed before it begins.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Where everything random comes from.
    pub seed: u64,
    /// The clients, 1 to 16, in one scenario of sixteen up to 64; those of an hour 56 to 64.
    pub clients: Vec<Plan>,
    /// Time between two looks of the applications, 8 to 50 ms; in an hour a quarter of a second.
    pub tick: Duration,
    /// Ticks in which links are bad and messages are sent.
    pub chaos_ticks: u64,
    /// Ticks after which silence and stall come again.
    pub period_ticks: u64,
    /// The first tick in which nobody says anything, and the first in which everybody does again.
    pub silence: (u64, u64),
    /// The first tick in which the server's application takes no events, and the first in which it does again.
    pub stall: (u64, u64),
    /// Clients come and go: each place is taken again some time after its client has gone.
    pub is_hour: bool,
    /// What the server says to groups of clients, where there are any.
    pub group: Option<GroupPlan>,
    /// Bytes that each end of a connection has for sending and for receiving, where that is not the default.
    pub memory_bytes: Option<usize>,
    /// Whether players come in by token, one session for each.
    pub has_tokens: bool,
    /// When the server asks for cookies.
    pub cookie: Cookie,
    /// What is wrong with the server's clocks.
    pub clock: Option<WrongClock>,
    /// What an attacker does during the chaos.
    pub attack: Attack,
    /// Nobody attacks, and links only lose and delay: every packet that comes is new and opens.
    pub is_clean: bool,
    /// From which tick on a client and the next one get each other's addresses, once both are connected.
    pub swap: Option<(u64, usize)>,
    /// How long the links are good afterwards.
    pub calm: Duration,
    /// What is wrong with the server's workers; none where there is but one, at which nothing goes wrong.
    pub swarm: Option<Swarm>,
}

/// Datagrams of an attacker per tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attack {
    /// Invented by somebody who sees nothing.
    pub off_path: u32,
    /// Made of what the ends send, by somebody who sees it all.
    pub on_path: u32,
}

/// One client's part.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What its link to the server does during the chaos.
    pub up: LinkConfig,
    /// What its link from the server does during the chaos.
    pub down: LinkConfig,
    /// Channels it uses, from 0 on.
    pub channels: u16,
    /// Bytes of the largest message.
    pub message_max_bytes: usize,
    /// How likely a message is sent in one go, each way; after every message the dice are thrown again.
    pub rate: f64,
    /// Fraction of messages that are reliable.
    pub reliable: f64,
    /// Ticks between two changes of its address; 0 for none.
    pub rebind_ticks: u64,
    /// Whether it comes with the token of the client before it, where there are tokens: one of them gets in.
    pub shares_token: bool,
    /// What is wrong with its clocks.
    pub clock: Option<WrongClock>,
    /// How often short reliable messages ride again, on all channels.
    pub redundancy: Redundancy,
    /// What becomes of messages of all its channels, both ways, when there is no room for them.
    pub when_full: WhenFull,
    /// Ticks in which its application takes no events.
    pub deaf: Range<u64>,
    /// When little or nothing gets through.
    pub hole: Option<Hole>,
    /// The end that breaks the rules once it is connected. Most clients have none, and all clients with tokens: puppets have no token.
    pub hostile: Option<Side>,
    /// The tick from which on nothing goes through any more, either way and for good; it says nothing then or before.
    pub vanishes: Option<u64>,
    /// The tick in which it is closed, and by whom; most clients stay.
    pub closing: Option<Closing>,
}

/// A while in which a path swallows all datagrams but short ones: none at all where it is cut, long ones where it goes through a
/// tunnel that drops what does not fit and says nothing.
#[derive(Clone, Debug)]
pub struct Hole {
    /// In these ticks.
    pub ticks: Range<u64>,
    /// Bytes of the longest datagram that gets through; 1 for none.
    pub datagram_max_bytes: usize,
    /// Only what comes from this end is swallowed; without one, both ways.
    pub from: Option<Side>,
}

/// The clocks of one end go wrong, and are right again in the calm, save that what they showed before stays.
#[derive(Clone, Copy, Debug)]
pub struct WrongClock {
    /// From this tick on,
    pub tick: u64,
    /// for so many ticks,
    pub ticks: u64,
    /// like this.
    pub config: ClockConfig,
}

impl WrongClock {
    /// Whether connections may end of it: no end outlives a jump that is longer than what it waits for.
    pub(crate) fn ends_connections(&self) -> bool {
        self.config.step_nanos.unsigned_abs() > STEP_SURVIVED_NANOS.unsigned_abs()
    }
}

/// The longest jump of a clock that every connection outlives: less than what is between a keep-alive and the end.
const STEP_SURVIVED_NANOS: i64 = 1_000_000_000;

/// The longest jump, those of a year aside.
const STEP_NANOS: i64 = 10_000_000_000;

/// How much of their usual messages clients send where there are many.
const CROWDED_RATE: f64 = 0.2;

/// Bytes of the longest messages, and how likely one is sent.
const LONGEST_BYTES: u64 = 65_536;
const LONGEST_RATE: f64 = 0.1;

/// A connection's end on purpose.
#[derive(Clone, Copy, Debug)]
pub struct Closing {
    /// In this tick.
    pub tick: u64,
    /// Who closes.
    pub by: Side,
}

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

impl Scenario {
    /// The scenario of this seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::part(seed, 1);
        let tick = Duration::from_millis(between(&mut random, 8, 50));
        let chaos_ticks = between(&mut random, 40, 120);
        let silent_from = random.below(chaos_ticks);
        let silence = (silent_from, silent_from + random.below(chaos_ticks / 3));
        let stall = if random.below(4) == 0 {
            let from = random.below(chaos_ticks);
            (from, from + random.below(chaos_ticks))
        } else {
            (0, 0)
        };
        let is_crowded = random.below(16) == 0;
        let count = if is_crowded { between(&mut random, 17, 64) } else { between(&mut random, 1, 16) };
        let is_clean = random.below(8) == 0;
        let mut clients: Vec<_> = (0..count).map(|_| Plan::draw(&mut random, chaos_ticks)).collect();
        if is_crowded {
            clients.iter_mut().for_each(|plan| plan.rate *= CROWDED_RATE);
        }
        let mut attack = Attack::draw(&mut random);
        if is_clean {
            attack = Attack::default();
            clients.iter_mut().for_each(|plan| plan.clean(&mut random));
        } else if clients.iter().any(|plan| plan.vanishes.is_some()) {
            // Whoever copies what it said cannot keep it alive.
            attack.on_path = attack.on_path.max(1);
        }
        let cookie = if random.below(3) == 0 { Cookie::UnderLoad } else { Cookie::Always };
        let has_tokens = random.below(4) == 0;
        if has_tokens {
            clients.iter_mut().for_each(|plan| plan.hostile = None);
        }
        let clock = WrongClock::draw(&mut random, chaos_ticks).filter(|_| !is_clean);
        let swap = (random.below(8) == 0 && count > 1 && !is_clean)
            .then(|| (random.below(chaos_ticks), usize::try_from(random.below(count - 1)).unwrap_or(0)));
        Self {
            seed,
            clients,
            tick,
            chaos_ticks,
            period_ticks: chaos_ticks,
            silence,
            stall,
            is_hour: false,
            group: GroupPlan::draw(seed),
            memory_bytes: None,
            has_tokens,
            cookie,
            clock,
            attack,
            is_clean,
            calm: CALM,
            swap,
            swarm: None,
        }
    }

    /// Faults of ends and applications that are certain to come, ends that break the rules among them.
    pub(crate) fn faults(&self) -> u64 {
        let stalls =
            if self.stall.0 < self.stall.1 { self.chaos_ticks.div_ceil(self.period_ticks) } else { 0 };
        self.clients.iter().map(Plan::faults).sum::<u64>() + u64::from(self.clock.is_some()) + stalls
    }
}

impl Attack {
    fn draw(random: &mut Random) -> Self {
        let mut some = || if random.below(2) == 0 { 0 } else { u32::try_from(random.below(12)).unwrap_or(0) };
        Self { off_path: some(), on_path: some() }
    }
}

impl Plan {
    fn draw(random: &mut Random, chaos_ticks: u64) -> Self {
        let most = [8, 64, 400, MESSAGE_MAX_BYTES as u64, 12_000];
        let has_longest = random.below(32) == 0;
        let message_max_bytes =
            if has_longest { LONGEST_BYTES } else { most[usize::try_from(random.below(5)).unwrap_or(0)] };
        let closing = (random.below(4) == 0).then(|| Closing {
            tick: random.below(chaos_ticks),
            by: if random.below(2) == 0 { Side::Client } else { Side::Server },
        });
        let rebind_ticks = if random.below(3) == 0 { between(random, 10, 100) } else { 0 };
        let mut plan = Self {
            rebind_ticks,
            clock: WrongClock::draw(random, chaos_ticks),
            shares_token: random.below(5) == 0,
            redundancy: redundancy(random),
            when_full: WhenFull::Block,
            deaf: 0..0,
            hole: Hole::draw(random, chaos_ticks),
            up: link(random),
            down: link(random),
            channels: u16::try_from(between(random, 1, 4)).unwrap_or(1),
            message_max_bytes: usize::try_from(message_max_bytes).unwrap_or(8),
            rate: random.fraction() * if has_longest { LONGEST_RATE } else { 0.8 },
            reliable: random.fraction(),
            closing,
            hostile: Side::hostile(random),
            vanishes: (random.below(16) == 0).then(|| random.below(chaos_ticks)),
        };
        if plan.vanishes.is_some() {
            // With something under way it would be given up sooner, for another reason.
            (plan.rate, plan.rebind_ticks, plan.closing, plan.hostile) = (0.0, 0, None, None);
            (plan.hole, plan.clock) = (None, None);
        }
        if plan.hostile.is_some() {
            // Its links are not those of the world.
            plan.hole = None;
        }
        plan
    }

    /// Faults of this client that are certain to come.
    pub(crate) fn faults(&self) -> u64 {
        let is_there = [
            self.clock.is_some(),
            self.hole.as_ref().is_some_and(|hole| !hole.ticks.is_empty()),
            self.hostile.is_some(),
            self.vanishes.is_some(),
            !self.deaf.is_empty(),
        ];
        is_there.map(u64::from).iter().sum()
    }

    /// Leaves it the faults by which nothing comes twice, changed or very late.
    fn clean(&mut self, random: &mut Random) {
        (self.up, self.down) = (clean_link(random), clean_link(random));
        (self.clock, self.hole, self.hostile, self.vanishes) = (None, None, None, None);
    }
}

impl WrongClock {
    fn draw(random: &mut Random, chaos_ticks: u64) -> Option<Self> {
        let (tick, whole) = (random.below(chaos_ticks), chaos_ticks);
        let signed = |random: &mut Random, most: u64| {
            let size = i64::try_from(random.below(most + 1)).unwrap_or(0);
            if random.below(2) == 0 { size } else { -size }
        };
        let right = ClockConfig::default();
        let (ticks, config) = match random.below(12) {
            // Drifting all the time.
            0 => (whole, right.rate_ppm(u32::try_from(between(random, 900_000, 1_100_000)).unwrap_or(1))),
            // Set by somebody.
            1 => (whole, right.wall_offset_seconds(signed(random, 3_600))),
            // Back or forward at once, in one of four by more than every connection outlives.
            2 => {
                let most = if random.below(4) == 0 { STEP_NANOS } else { STEP_SURVIVED_NANOS };
                (whole, right.step_nanos(signed(random, most.unsigned_abs())))
            }
            // Not at all for a while, as on a machine that is moved.
            3 => (random.below(chaos_ticks / 3), right.rate_ppm(0)),
            _ => return None,
        };
        Some(Self { tick, ticks, config })
    }
}

impl Side {
    fn hostile(random: &mut Random) -> Option<Self> {
        match random.below(16) {
            0 => Some(Self::Client),
            1 => Some(Self::Server),
            _ => None,
        }
    }
}

impl Hole {
    fn draw(random: &mut Random, chaos_ticks: u64) -> Option<Self> {
        let begin = random.below(chaos_ticks);
        let end = begin + random.below(chaos_ticks / 3);
        let datagram_max_bytes = match random.below(8) {
            0 | 1 => 1,
            2 => usize::try_from(between(random, 28, 1_199)).unwrap_or(1),
            _ => return None,
        };
        let from = match random.below(4) {
            0 => Some(Side::Client),
            1 => Some(Side::Server),
            _ => None,
        };
        Some(Self { ticks: begin..end, datagram_max_bytes, from })
    }
}

/// A link that loses packets, and lets some overtake others by 50 ms at most.
fn clean_link(random: &mut Random) -> LinkConfig {
    LinkConfig::default()
        .loss(Loss::Even(fraction(random, 0.2)))
        .delay(Delay::Constant(millis(random, 100)))
        .reorder(fraction(random, 0.3), millis(random, 50))
}

fn redundancy(random: &mut Random) -> Redundancy {
    match random.below(8) {
        0 => Redundancy::One,
        1 => Redundancy::Two,
        2 => Redundancy::Three,
        _ => Redundancy::None,
    }
}

/// How late a copy may come.
const COPIES_LATE_MS: u64 = 30_000;

/// Until the last end that has lost its peer knows it: a copy of the peer's last packet may still be under way, and from when it
/// comes the connection lives for another 30 s.
const CALM: Duration = Duration::from_millis(45_000 + COPIES_LATE_MS);

/// A bad link: up to 40 % loss, 200 ms, now and then 500, 50 % duplicates, now and then half a minute late, with reordering, by up
/// to two seconds now and then, changed bytes, and here and there a bottleneck.
fn link(random: &mut Random) -> LinkConfig {
    let loss = match random.below(3) {
        0 => Loss::Bursts { begin: 0.02, end: 0.2, inside: 0.8 * random.fraction(), outside: 0.02 },
        _ => Loss::Even(fraction(random, 0.4)),
    };
    let longest = if random.below(8) == 0 { 500 } else { 200 };
    let (mean, spread) = (millis(random, longest), millis(random, 40));
    let delay = match random.below(3) {
        0 => Delay::Constant(mean),
        1 => Delay::Uniform { least: mean.saturating_sub(spread), most: mean },
        _ => Delay::Normal { mean, deviation: spread / 4 },
    };
    // So late that a thousand packets of a busy connection overtake it.
    let late = if random.below(8) == 0 { millis(random, 2_000) } else { millis(random, 100) };
    let copies_late = if random.below(8) == 0 { COPIES_LATE_MS } else { 1_000 };
    let config = LinkConfig::default()
        .loss(loss)
        .delay(delay)
        .duplicate(fraction(random, 0.5), millis(random, copies_late))
        .reorder(fraction(random, 0.2), late)
        .corrupt(fraction(random, 0.05));
    if random.below(8) == 0 { config.rate(between(random, 200_000, 1_000_000), 64_000) } else { config }
}
