//! Floods of hostile Hellos from one source with a proved address: each source has its allowance of key agreements
//! and of questions to the application. Honest clients from elsewhere connect normally.

use std::net::SocketAddr;
use std::time::Duration;

use drumfire_proto::limits::SOURCE_HANDSHAKES_PER_SECOND;
use drumfire_proto::{Config, Moment};
use drumfire_puppet::{DrawnHello, HelloFlood, Random};

use crate::coverage::Coverage;
use crate::seeds::{Invariant, is_checked, seeds};
use crate::violation::{Violation, caught, run_all};
use crate::world::{DELAY, SourceFilter, World, server_key};

/// The full number of seeds.
const SEEDS: u32 = 1_000;

/// How long a flood lasts.
const LASTS: Duration = Duration::from_secs(1);

/// Honest clients, each from its own source. Sources share the entries of one table, so one of them may happen to
/// share the flood's.
const HONEST: usize = 2;

/// One seed that runs.
struct Flood {
    world: World,
    hellos: HelloFlood,
    random: Random,
    source: SocketAddr,
    per_second: u32,
    begun_at: Moment,
    sent: u64,
    coverage: Coverage,
}

impl Flood {
    fn new(seed: u64) -> Self {
        let mut random = Random::of_seed(seed);
        let source = SocketAddr::from(([192, 0, 2, 9], 4_000));
        let refused = random.happens(40).then(|| source.ip());
        let world = World::new(seed, Config::default(), SourceFilter::refusing(refused));
        let hellos = HelloFlood::draw(Random::of_seed(random.bits()), server_key());
        let per_second = random.pick(&[100, 1_000, 3_000, 6_000]);
        let begun_at = world.now;
        Self { world, hellos, random, source, per_second, begun_at, sent: 0, coverage: Coverage::default() }
    }

    /// Sends a Hello, and another one in response to its Retry.
    fn step(&mut self) {
        let mut next = Some(self.hellos.next_hello());
        while let Some((kind, hello)) = next.take() {
            self.sent += 1;
            self.coverage.count(kind.name());
            self.world.deliver(self.source, hello);
            for (_, answer) in std::mem::take(&mut self.world.to_hostile) {
                next = self.hellos.on_answer(&answer).or(next);
            }
        }
        self.world.advance(Duration::from_secs(1) / self.per_second);
    }

    /// Checks the allowance that the source has used. `honest` other clients connected.
    fn check(&self, honest: u64) -> Result<(), String> {
        let elapsed = self.world.now.since(self.begun_at).as_millis();
        let per_second = u128::from(SOURCE_HANDSHAKES_PER_SECOND);
        let allowed = u64::try_from(per_second + per_second * elapsed / 1_000 + 1).expect("few");
        let stats = self.world.server.stats();
        if is_checked(Invariant::Handshakes) && stats.handshakes_computed > allowed + honest {
            let computed = stats.handshakes_computed;
            return Err(format!(
                "{computed} key agreements after {elapsed} ms, the source may have {allowed}"
            ));
        }
        if is_checked(Invariant::Handshakes) && self.world.question_count() > allowed {
            let question_count = self.world.question_count();
            return Err(format!(
                "the application was asked {question_count} times, the source may ask {allowed} times"
            ));
        }
        if stats.unexplained() != 0 {
            return Err("datagrams are in no counter".to_owned());
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), String> {
        let end = self.begun_at.after(LASTS);
        let joins_at = self.begun_at.after(Duration::from_millis(100 + self.random.below(800)));
        let mut joined_at = None;
        while self.world.now < end {
            if joined_at.is_none() && self.world.now >= joins_at {
                joined_at = Some(self.world.now);
                (0..HONEST).for_each(|_| _ = self.world.join());
            }
            self.step();
            self.check(self.world.honest.len() as u64)?;
        }
        let due = joined_at.expect("they joined").after(4 * DELAY);
        let in_time = self.world.honest.iter().filter(|honest| honest.connected_at == Some(due)).count();
        if is_checked(Invariant::Peer) && in_time + 1 < HONEST {
            return Err(format!("{in_time} of {HONEST} honest clients connected within two round trips"));
        }
        Ok(())
    }
}

fn run_seed(seed: u64, all: &mut Coverage) -> Result<(), Violation> {
    let mut flood = Flood::new(seed);
    let ended = caught(|| flood.run());
    flood.coverage.on_stats(flood.world.server.stats());
    all.merge(&flood.coverage);
    ended.map_err(|what| Violation {
        test: "hostile_hellos_stay_within_the_limits_of_their_source",
        seed,
        packet: flood.sent,
        what,
        frames: Vec::new(),
        plan: format!("{} Hellos a second, refused: {:?}", flood.per_second, flood.world.refused()),
    })
}

#[test]
fn hostile_hellos_stay_within_the_limits_of_their_source() {
    let seeds = seeds(SEEDS);
    let count = seeds.end - seeds.start;
    let coverage = run_all(seeds, run_seed);
    let missing = coverage.missing_counters(DrawnHello::NAMES);
    assert!(count < 50 || missing.is_empty(), "Hellos that never came prove nothing: {missing:?}");
}
