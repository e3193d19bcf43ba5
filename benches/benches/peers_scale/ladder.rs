//! The load ladder: more and more clients, who come in batches while the others play, beside plain datagrams as long and as many.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use drumfire_benches::{Arm, Carried, Child, Cores, DropWatch, Extent, Goal, Results, count, interleave};
use drumfire_tools::clock;

use crate::Plan;
use crate::books::{self, Closed};
use crate::drive::{Drive, Load};
use crate::ends::{Ends, PlainEnds, Players};
use crate::round::{self, Beside, Row};
use crate::server::Does;
use crate::show;

/// Bytes of each answer.
pub(crate) const DOWN_BYTES: [u16; 3] = [64, 256, 1_024];

/// Clients; all but the last are a default run's.
const STEPS: [u32; 6] = [500, 1_000, 2_000, 4_000, 8_000, 16_000];

/// Of each client.
const PER_SECOND: u64 = 10;

/// How many come at once.
const BATCH: u32 = 500;

/// A batch that takes so long will not come to an end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often clients look at their sockets while others are measured.
const KEPT_ALIVE_EVERY: Duration = Duration::from_millis(100);

const TICK: Row = Row { who: "drumfire", slots: 0, has_one_thread: true };
const PLAIN: Row = Row { who: "plain", slots: 0, has_one_thread: true };

struct Rungs {
    steps: Vec<u32>,
    /// Service calls per second.
    rates: &'static [u32],
    warm_up: u32,
    rounds: u32,
    counted: Duration,
    may_void: bool,
}

impl Rungs {
    fn of(extent: Extent, most: Option<u32>) -> Self {
        let (all, rates): (&[u32], &[u32]) = match extent {
            Extent::Quick => (&STEPS[..1], &[1_000]),
            Extent::Default => (&STEPS[..5], &[1_000]),
            Extent::Full => (&STEPS, &[1_000, 100]),
        };
        let (warm_up, rounds, counted) = match extent {
            Extent::Quick => (0, 1, Duration::from_millis(300)),
            Extent::Default => (1, 5, Duration::from_millis(500)),
            Extent::Full => (1, 7, Duration::from_secs(2)),
        };
        let steps = match most {
            Some(most) => STEPS.into_iter().filter(|step| *step < most).chain([most]).collect(),
            None => all.to_vec(),
        };
        Self { steps, rates, warm_up, rounds, counted, may_void: extent != Extent::Quick }
    }
}

/// How a batch came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) took: Duration,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
}

/// Both sides of a ladder with so many service calls per second.
struct Ladder {
    rate: u32,
    slots: u32,
    server: Child,
    plain: Child,
    plain_address: std::net::SocketAddr,
    /// Datagrams that plain sockets sent and received, in all steps so far.
    plain_carried: Cell<(u64, u64)>,
    players: RefCell<Players>,
    drive: RefCell<Drive>,
}

pub(crate) fn measure(plan: &Plan, results: &mut Results) -> Result<(), String> {
    let Plan { extent, cores, clients } = *plan;
    let rungs = Rungs::of(extent, clients);
    let most = rungs.steps.last().copied().unwrap_or(BATCH);
    for &rate in rungs.rates {
        let dropped = DropWatch::begin();
        let ladder = Ladder::new(rate, most, cores)?;
        println!("  {most} slots, {rate} Hz, {PER_SECOND} messages/s of each client on 4 channels, 32 B up");
        for &clients in &rungs.steps {
            ladder.step(clients, &rungs, results)?;
        }
        ladder.beyond(if extent == Extent::Quick { BATCH / 10 } else { BATCH }, results)?;
        ladder.close(dropped, results)?;
    }
    Ok(())
}

impl Ladder {
    fn new(rate: u32, slots: u32, cores: Cores) -> Result<Self, String> {
        let (server, address) = Does::Tick(rate).start(slots, Some(cores.server))?;
        let (plain, plain_address) = Does::Plain(rate).start(slots, Some(cores.server))?;
        let players = RefCell::new(Players::bind(address, slots + BATCH)?);
        let (plain_carried, drive) = (Cell::default(), RefCell::default());
        Ok(Self { rate, slots, server, plain, plain_address, plain_carried, players, drive })
    }

    /// Lets clients come in batches until there are so many, then plays.
    fn step(&self, clients: u32, rungs: &Rungs, results: &mut Results) -> Result<(), String> {
        let mut batches = Vec::new();
        while self.players.borrow().count() < clients as usize {
            let missing = clients - u32::try_from(self.players.borrow().count()).unwrap_or(clients);
            let batch = self.batch(missing.min(BATCH))?;
            batches.push(batch);
            if batch.refused + batch.failed > 0 {
                break;
            }
        }
        show::batches(self.rate, clients, &batches, &self.players.borrow().failed, results);
        if self.players.borrow().count() < clients as usize {
            return Err(format!("{clients} clients: not all were connected"));
        }
        let rows = DOWN_BYTES.map(|_| RefCell::new(Vec::new()));
        let shapes = DOWN_BYTES.map(|_| RefCell::new(Carried::default()));
        let plain =
            RefCell::new((PlainEnds::connect(self.plain_address, clients as usize)?, Drive::default()));
        let mut arms = Vec::new();
        for ((down_bytes, rows), shape) in DOWN_BYTES.into_iter().zip(&rows).zip(&shapes) {
            let load = Load { per_second: PER_SECOND, down_bytes, counted: rungs.counted };
            arms.push(Arm::new(format!("{clients} clients, {down_bytes} B down"), move || {
                let (mut players, mut drive) = (self.players.borrow_mut(), self.drive.borrow_mut());
                let row = Row { slots: self.slots, ..TICK };
                let (report, beside) =
                    round::run(row, &self.server, &mut drive, &mut *players, load, || Ok(()))?;
                *shape.borrow_mut() = beside.tally.carried;
                rows.borrow_mut().push(beside);
                Ok(report)
            }));
            let plain = &plain;
            arms.push(Arm::new(format!("{clients} plain, {down_bytes} B down"), move || {
                let (ends, drive) = &mut *plain.borrow_mut();
                ends.shape(*shape.borrow());
                let mut looked = clock::now();
                let look = || self.keep_alive(&mut looked);
                Ok(round::run(PLAIN, &self.plain, drive, ends, load, look)?.0)
            }));
        }
        let measured = interleave(arms, rungs.warm_up, rungs.rounds, rungs.may_void)?;
        let (sent, received) = self.plain_carried.get();
        let carried = plain.into_inner().0.carried();
        self.plain_carried.set((sent + carried.sent, received + carried.received));
        let rows: Vec<Vec<Beside>> = rows.into_iter().map(RefCell::into_inner).collect();
        show::step((self.slots, self.rate, clients), &measured, &rows, results)
    }

    /// The clients' chores while they say nothing.
    fn keep_alive(&self, looked: &mut std::time::Instant) -> Result<(), String> {
        if clock::now().duration_since(*looked) < KEPT_ALIVE_EVERY {
            return Ok(());
        }
        *looked = clock::now();
        self.players.borrow_mut().look(|_| {})
    }

    /// So many come at once, while those who are there play.
    fn batch(&self, count: u32) -> Result<Batch, String> {
        let (mut players, mut drive) = (self.players.borrow_mut(), self.drive.borrow_mut());
        let (start, refused) = (clock::now(), players.refused);
        let failed = players.failed.values().sum::<u64>();
        let goal = players.ended_attempts() + u64::from(count);
        for _ in 0..count {
            players.begin()?;
        }
        let load = Load { per_second: PER_SECOND, down_bytes: DOWN_BYTES[0], counted: Duration::ZERO };
        let mut took = None;
        drive.play(&mut *players, load, |players| {
            let elapsed = clock::now().duration_since(start);
            if took.is_none() && players.ended_attempts() >= goal {
                took = Some(elapsed);
            }
            took.is_none() && elapsed < PATIENCE
        })?;
        let took = took.ok_or_else(|| {
            format!("{} of {count} attempts came to no end in {PATIENCE:?}", goal - players.ended_attempts())
        })?;
        let (refused, failed) = (players.refused - refused, players.failed.values().sum::<u64>() - failed);
        Ok(Batch { took, refused, failed })
    }

    /// A batch for which there is no room: each is told so, and of those who are there nobody is dropped.
    fn beyond(&self, count: u32, results: &mut Results) -> Result<(), String> {
        let batch = self.batch(count)?;
        println!(
            "  beyond the limit of {} clients {count} more came: {} were told within {:.0} ms that the server is full",
            self.slots,
            batch.refused,
            batch.took.as_secs_f64() * 1e3
        );
        let name =
            format!("{} Hz: told that the server is full, of {count} beyond {}", self.rate, self.slots);
        let goal = Goal::AtLeast(f64::from(count));
        results.figure(format!("ladder: {name}"), Some(batch.refused as f64), "", goal, "");
        if batch.refused == u64::from(count) {
            Ok(())
        } else {
            Err(format!("{count} beyond the limit: {} politely refused, {batch:?}", batch.refused))
        }
    }

    /// Holds what all ends counted against each other.
    fn close(self, dropped: DropWatch, results: &mut Results) -> Result<(), String> {
        let Self { rate, server, plain, plain_carried, players, .. } = self;
        let mut players = players.into_inner();
        let ended = players.crowd.ended();
        let Closed { served, kernel_drops } = books::close(server, &mut [&mut players.crowd])?;
        let drops = dropped.count().saturating_sub(kernel_drops);
        books::close_plain(plain, plain_carried.get(), drops)?;
        let left = count(&served, "left") + ended;
        let name = format!("ladder: {rate} Hz: clients that were dropped");
        results.figure(name, Some(left as f64), "", Goal::AtMost(0.0), "");
        if left == 0 { Ok(()) } else { Err(format!("{left} clients were dropped")) }
    }
}
