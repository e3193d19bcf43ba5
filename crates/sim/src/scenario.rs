//! Scenarios: everything that a seed decides before a run begins.

mod kinds;

use std::ops::Range;
use std::time::Duration;

use drumfire::conditioner::{Delay, LinkConfig, Loss, Random};
use drumfire::config::{Cookie, MESSAGE_MAX_BYTES};
use drumfire::testing::ClockConfig;
use drumfire::{Redundancy, ServerKey, WhenFull};

use crate::random::{between, fraction, index, millis, pick};
use crate::workers::WorkerPlan;

/// A whole run.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The clients: 1 to 16, in one scenario of sixteen up to 64, and 56 to 64 in an hour.
    pub clients: Vec<Plan>,
    /// The time between two turns of the applications: 8 to 50 ms, and a quarter of a second in an hour.
    pub tick: Duration,
    /// Ticks in which links are bad and messages are sent.
    pub chaos_ticks: u64,
    /// Ticks after which the silence and the stall repeat.
    pub period_ticks: u64,
    /// The ticks in which no application sends.
    pub silence: Range<u64>,
    /// The ticks in which the server's application takes no events.
    pub stall: Range<u64>,
    /// Whether clients come and go: each client is replaced some time after it has left.
    pub is_hour: bool,
    /// The server's messages to groups of clients, if it sends any.
    pub group: Option<GroupPlan>,
    /// The memory of each end of a connection for sending and for receiving. `None` for the default.
    pub memory_bytes: Option<usize>,
    /// Whether players need a token, with one session for each.
    pub has_tokens: bool,
    /// When the server asks for cookies.
    pub cookie: Cookie,
    /// The faults of the server's clocks.
    pub clock: Option<ClockFault>,
    /// The attacker's datagrams during the chaos.
    pub attack: Attack,
    /// Whether there is no attack, and links only lose and delay, so that every packet that arrives is new and opens.
    pub is_clean: bool,
    /// A client that exchanges addresses with the next one, once both are connected: the first tick, and the index of
    /// the client.
    pub swap: Option<(u64, usize)>,
    /// The faults of the server's workers. `None` for a server with one worker and no faults.
    pub workers: Option<WorkerPlan>,
}

/// An attacker's datagrams per tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attack {
    /// Invented datagrams, by an attacker that sees nothing.
    pub off_path: u32,
    /// Copied and modified datagrams of the ends, by an attacker that sees all of them.
    pub on_path: u32,
}

/// The plan of one client.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The link to the server during the chaos.
    pub up: LinkConfig,
    /// The link from the server during the chaos.
    pub down: LinkConfig,
    /// The number of channels, from 0 on.
    pub channels: u16,
    /// The largest message.
    pub message_max_bytes: usize,
    /// The probability that one more message is sent in a tick, in each direction.
    pub rate: f64,
    /// The fraction of reliable messages.
    pub reliable: f64,
    /// Ticks between two changes of the client's address. 0 for none.
    pub rebind_ticks: u64,
    /// Whether the client uses the token of the client before it. The server admits one of them.
    pub shares_token: bool,
    /// The faults of the client's clocks.
    pub clock: Option<ClockFault>,
    /// How often short reliable messages are repeated, on all channels.
    pub redundancy: Redundancy,
    /// The policy for messages without memory, on all channels and in both directions.
    pub when_full: WhenFull,
    /// Ticks in which the client's application takes no events.
    pub stall: Range<u64>,
    /// A time in which the path drops long datagrams, or all datagrams.
    pub outage: Option<Outage>,
    /// The end that breaks the rules once it is connected. Most clients have none, and clients with tokens never do, because puppets
    /// have no token.
    pub hostile: Option<Side>,
    /// The tick from which on the path drops everything for good. The client never sends a message.
    pub vanishes: Option<u64>,
    /// The end of the connection by an application. Most clients stay.
    pub closing: Option<Closing>,
}

/// A time in which a path drops all datagrams above a size. A path that is cut drops all datagrams. A path with a tunnel
/// that sends no ICMP message drops long ones.
#[derive(Clone, Debug)]
pub struct Outage {
    /// The ticks of the outage.
    pub ticks: Range<u64>,
    /// The longest datagram that passes. 1 for none.
    pub datagram_max_bytes: usize,
    /// The end whose datagrams are dropped. `None` for both.
    pub from: Option<Side>,
}

/// A fault of one end's clocks. In the calm the clocks are right again, except for jumps, which remain.
#[derive(Clone, Copy, Debug)]
pub struct ClockFault {
    /// The first tick.
    pub tick: u64,
    /// The number of ticks.
    pub ticks: u64,
    /// The fault.
    pub config: ClockConfig,
}

impl ClockFault {
    /// Returns whether connections may end because of the fault.
    pub(crate) fn ends_connections(&self) -> bool {
        self.config.step_nanos.unsigned_abs() > STEP_SURVIVED_NANOS.unsigned_abs()
    }
}

/// The longest jump of a clock that every connection survives: shorter than the time between a keep-alive and the timeout.
const STEP_SURVIVED_NANOS: i64 = 1_000_000_000;

/// The longest jump, except for those of a year.
const STEP_NANOS: i64 = 10_000_000_000;

/// The fraction of the usual messages that each of many clients sends.
const CROWDED_RATE: f64 = 0.2;

/// The longest messages, and the probability of one more in a tick.
const LONGEST_BYTES: usize = 65_536;
const LONGEST_RATE: f64 = 0.1;

/// The end of a connection by an application.
#[derive(Clone, Copy, Debug)]
pub struct Closing {
    /// The tick.
    pub tick: u64,
    /// The end that closes.
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

/// The number of groups.
pub(crate) const GROUPS: usize = 2;

/// Messages to groups during the chaos, and changes of the members.
#[derive(Clone, Copy, Debug)]
pub struct GroupPlan {
    /// The probability of a message to a group before each client's turn.
    pub rate: f64,
    /// The fraction of reliable messages.
    pub reliable: f64,
    /// The largest message.
    pub message_max_bytes: usize,
    /// The probability that a client joins or leaves a group in a tick.
    pub turnover: f64,
}

impl GroupPlan {
    /// Draws the groups of every second scenario.
    fn draw(seed: u64) -> Option<Self> {
        let mut random = Random::part(seed, 7);
        (random.below(2) == 0).then(|| Self {
            rate: fraction(&mut random, 0.2),
            reliable: random.fraction(),
            message_max_bytes: pick(&mut random, &[8, 64, 400, 3_000]),
            turnover: fraction(&mut random, 0.2),
        })
    }
}

impl Scenario {
    /// Returns the scenario of a seed.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut random = Random::part(seed, 1);
        let tick = Duration::from_millis(between(&mut random, 8, 50));
        let chaos_ticks = between(&mut random, 40, 120);
        let silent_from = random.below(chaos_ticks);
        let silence = silent_from..silent_from + random.below(chaos_ticks / 3);
        let stall = if random.below(4) == 0 {
            let from = random.below(chaos_ticks);
            from..from + random.below(chaos_ticks)
        } else {
            0..0
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
            // Copies of its packets must not keep the connection alive.
            attack.on_path = attack.on_path.max(1);
        }
        let cookie = if random.below(3) == 0 { Cookie::UnderLoad } else { Cookie::Always };
        let has_tokens = random.below(4) == 0;
        if has_tokens {
            clients.iter_mut().for_each(|plan| plan.hostile = None);
        }
        let clock = ClockFault::draw(&mut random, chaos_ticks).filter(|_| !is_clean);
        let swap = (random.below(8) == 0 && count > 1 && !is_clean)
            .then(|| (random.below(chaos_ticks), index(&mut random, clients.len() - 1)));
        Self {
            seed,
            clients,
            tick,
            chaos_ticks,
            period_ticks: chaos_ticks,
            silence,
            stall,
            group: GroupPlan::draw(seed),
            has_tokens,
            cookie,
            clock,
            attack,
            is_clean,
            swap,
            ..Self::default()
        }
    }

    /// Returns the number of planned faults of ends and applications, which includes hostile ends.
    pub(crate) fn faults(&self) -> u64 {
        let stalls = if self.stall.is_empty() { 0 } else { self.chaos_ticks.div_ceil(self.period_ticks) };
        self.clients.iter().map(Plan::faults).sum::<u64>() + u64::from(self.clock.is_some()) + stalls
    }
}

impl Attack {
    fn draw(random: &mut Random) -> Self {
        let mut some = || if random.below(2) == 0 { 0 } else { between(random, 0, 11) };
        Self { off_path: some(), on_path: some() }
    }
}

impl Plan {
    fn draw(random: &mut Random, chaos_ticks: u64) -> Self {
        let has_longest = random.below(32) == 0;
        let usual = [8, 64, 400, MESSAGE_MAX_BYTES, 12_000];
        let message_max_bytes = if has_longest { LONGEST_BYTES } else { pick(random, &usual) };
        let closing = (random.below(4) == 0)
            .then(|| Closing { tick: random.below(chaos_ticks), by: pick(random, &Side::BOTH) });
        let rebind_ticks = if random.below(3) == 0 { between(random, 10, 100) } else { 0 };
        let mut plan = Self {
            rebind_ticks,
            clock: ClockFault::draw(random, chaos_ticks),
            shares_token: random.below(5) == 0,
            redundancy: redundancy(random),
            when_full: WhenFull::Block,
            stall: 0..0,
            outage: Outage::draw(random, chaos_ticks),
            up: link(random),
            down: link(random),
            channels: between(random, 1, 4),
            message_max_bytes,
            rate: random.fraction() * if has_longest { LONGEST_RATE } else { 0.8 },
            reliable: random.fraction(),
            closing,
            hostile: Side::hostile(random),
            vanishes: (random.below(16) == 0).then(|| random.below(chaos_ticks)),
        };
        if plan.vanishes.is_some() {
            // With an unacknowledged message the connection would end sooner, for another reason.
            (plan.rate, plan.rebind_ticks, plan.closing, plan.hostile) = (0.0, 0, None, None);
            (plan.outage, plan.clock) = (None, None);
        }
        if plan.hostile.is_some() {
            // The world does not carry its datagrams.
            plan.outage = None;
        }
        plan
    }

    /// Returns the number of planned faults of this client.
    pub(crate) fn faults(&self) -> u64 {
        let planned = [
            self.clock.is_some(),
            self.outage.as_ref().is_some_and(|outage| !outage.ticks.is_empty()),
            self.hostile.is_some(),
            self.vanishes.is_some(),
            !self.stall.is_empty(),
        ];
        planned.map(u64::from).iter().sum()
    }

    /// Leaves the faults by which no packet arrives twice, changed, or very late.
    fn clean(&mut self, random: &mut Random) {
        (self.up, self.down) = (clean_link(random), clean_link(random));
        (self.clock, self.outage, self.hostile, self.vanishes) = (None, None, None, None);
    }
}

impl ClockFault {
    fn draw(random: &mut Random, chaos_ticks: u64) -> Option<Self> {
        let (tick, whole) = (random.below(chaos_ticks), chaos_ticks);
        let signed = |random: &mut Random, most: u64| {
            let size = i64::try_from(random.below(most + 1)).unwrap_or(0);
            if random.below(2) == 0 { size } else { -size }
        };
        let right = ClockConfig::default();
        let (ticks, config) = match random.below(12) {
            // A drift.
            0 => (whole, right.rate_ppm(between(random, 900_000, 1_100_000))),
            // A wrong wall clock.
            1 => (whole, right.wall_offset_seconds(signed(random, 3_600))),
            // A jump, in one of four cases longer than every connection survives.
            2 => {
                let most = if random.below(4) == 0 { STEP_NANOS } else { STEP_SURVIVED_NANOS };
                (whole, right.step_nanos(signed(random, most.unsigned_abs())))
            }
            // A stopped clock, as on a virtual machine that is moved.
            3 => (random.below(chaos_ticks / 3), right.rate_ppm(0)),
            _ => return None,
        };
        Some(Self { tick, ticks, config })
    }
}

impl Side {
    const BOTH: [Self; 2] = [Self::Client, Self::Server];

    fn hostile(random: &mut Random) -> Option<Self> {
        Self::BOTH.get(index(random, 16)).copied()
    }
}

impl Outage {
    fn draw(random: &mut Random, chaos_ticks: u64) -> Option<Self> {
        let begin = random.below(chaos_ticks);
        let end = begin + random.below(chaos_ticks / 3);
        let datagram_max_bytes = match random.below(8) {
            0 | 1 => 1,
            2 => between(random, 28, 1_199),
            _ => return None,
        };
        let from = pick(random, &[Some(Side::Client), Some(Side::Server), None, None]);
        Some(Self { ticks: begin..end, datagram_max_bytes, from })
    }
}

/// Returns the key of every simulated server.
pub(crate) fn server_key() -> ServerKey {
    ServerKey::from_bytes([9; 32])
}

/// Draws a link that loses packets, and reorders some by at most 50 ms.
fn clean_link(random: &mut Random) -> LinkConfig {
    LinkConfig::default()
        .loss(Loss::Random(fraction(random, 0.2)))
        .delay(Delay::Constant(millis(random, 100)))
        .reorder(fraction(random, 0.3), millis(random, 50))
}

fn redundancy(random: &mut Random) -> Redundancy {
    let some = [Redundancy::One, Redundancy::Two, Redundancy::Three];
    some.get(index(random, 8)).copied().unwrap_or(Redundancy::None)
}

/// The longest delay of a duplicate.
const COPIES_LATE_MS: u64 = 30_000;

/// How long the links are good at the end. In this time the last end notices that its peer is gone. A copy of the peer's last packet may
/// still be on its way, and extends the connection by another 30 s.
pub(crate) const CALM: Duration = Duration::from_millis(45_000 + COPIES_LATE_MS);

/// Draws a bad link: up to 40 % loss, 200 ms delay, 50 % duplicates, reordering, and corruption. Each of these
/// occurs in one link of eight: a delay of up to 500 ms, very late duplicates, reordering by up to two seconds, and a bottleneck.
fn link(random: &mut Random) -> LinkConfig {
    let loss = match random.below(3) {
        0 => Loss::Bursts { begin: 0.02, end: 0.2, inside: 0.8 * random.fraction(), outside: 0.02 },
        _ => Loss::Random(fraction(random, 0.4)),
    };
    let longest = if random.below(8) == 0 { 500 } else { 200 };
    let (mean, spread) = (millis(random, longest), millis(random, 40));
    let delay = match random.below(3) {
        0 => Delay::Constant(mean),
        1 => Delay::Uniform { min: mean.saturating_sub(spread), max: mean },
        _ => Delay::Normal { mean, deviation: spread / 4 },
    };
    // So late that a thousand packets of a busy connection are faster.
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
