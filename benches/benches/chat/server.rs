//! The server's process: everybody is in one group, and what one says all hear.
//!
//! One worker is pinned to the first core; several run where the system puts them, and may come upon the clients' core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, Arrival, ChannelId, CloseReason, Context, GroupId, Handler, PeerId, SendOptions,
    ServerConfig, ServerKey, Serving, WorkerStats, Workers, serve,
};
use drumfire_benches::{Counts, counts_of, on_end_of_input, print_line};
use drumfire_tools::{clock, host};

use crate::plan::{Arm, Plan};
use crate::schedule::MESSAGE_MAX_BYTES;
use crate::tell::Teller;

const RECEIVE_BUFFER_BYTES: usize = 16 * 1_024 * 1_024;

/// The key of what the system gave of it, in bytes as the system counts.
pub(crate) const RECEIVE_BUFFER: &str = "receive buffer";

/// What is gathered leaves so often.
const GATHERED_FOR: Duration = Duration::from_millis(50);

/// Messages that are gathered at most; what comes beyond is dropped, and counted.
const GATHERED_MAX: usize = 65_536;

/// How often the server looks how much waits.
const LOOK_UP: Duration = Duration::from_millis(5);

pub(crate) const CHANNEL: ChannelId = ChannelId(0);

const EVERYBODY: GroupId = GroupId(1);

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0xc4; 32])
}

/// What all workers' handlers counted.
#[derive(Debug, Default)]
struct Tally {
    members: AtomicU64,
    left: AtomicU64,
    received: AtomicU64,
    broadcasts: AtomicU64,
    /// Members that there were for each broadcast, in all.
    owed: AtomicU64,
    /// Broadcasts for which a member had no room.
    missed: AtomicU64,
    /// Messages that were received and not broadcast, for want of room.
    not_broadcast: AtomicU64,
    /// Messages that were gathered and not broadcast yet, at most.
    gathered_most: AtomicU64,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

struct Room {
    tally: Arc<Tally>,
    options: SendOptions,
    /// What was heard and not broadcast, each by its length; nothing is gathered where it is broadcast at once.
    gathered: Option<(Vec<[u8; MESSAGE_MAX_BYTES]>, Vec<usize>)>,
}

impl Room {
    fn new(arm: Arm, tally: &Arc<Tally>) -> Self {
        let gathered = (arm != Arm::AtOnce).then(Default::default);
        Self { tally: Arc::clone(tally), options: arm.options(), gathered }
    }

    fn broadcast(tally: &Tally, options: SendOptions, context: &mut Context<'_>, message: &[u8]) {
        let members = read(&tally.members);
        if context.broadcast(EVERYBODY, CHANNEL, message, options).is_ok() {
            add(&tally.broadcasts, 1);
            add(&tally.owed, members);
        } else {
            add(&tally.not_broadcast, 1);
        }
    }
}

impl Handler for Room {
    type Note = ();

    fn on_connect(&mut self, context: &mut Context<'_>, peer: PeerId, _: &Arrival<'_>) {
        if context.join(EVERYBODY, peer).is_ok() {
            add(&self.tally.members, 1);
        }
    }

    fn on_message(&mut self, context: &mut Context<'_>, _: PeerId, _: ChannelId, message: &[u8]) {
        add(&self.tally.received, 1);
        let Some((memory, lengths)) = &mut self.gathered else {
            return Self::broadcast(&self.tally, self.options, context, message);
        };
        let mut bytes = [0; MESSAGE_MAX_BYTES];
        match bytes.get_mut(..message.len()) {
            Some(place) if lengths.len() < GATHERED_MAX => {
                place.copy_from_slice(message);
                memory.push(bytes);
                lengths.push(message.len());
                self.tally.gathered_most.fetch_max(lengths.len() as u64, Ordering::Relaxed);
            }
            _ => add(&self.tally.not_broadcast, 1),
        }
    }

    fn on_missed(&mut self, _: &mut Context<'_>, _: PeerId, _: ChannelId, count: u32) {
        add(&self.tally.missed, count.into());
    }

    fn on_disconnect(&mut self, _: &mut Context<'_>, _: PeerId, _: CloseReason, _: &[u8]) {
        self.tally.members.fetch_sub(1, Ordering::Relaxed);
        add(&self.tally.left, 1);
    }

    fn tick_period(&self) -> Option<Duration> {
        self.gathered.is_some().then_some(GATHERED_FOR)
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        let Some((memory, lengths)) = &mut self.gathered else { return };
        for (bytes, length) in memory.drain(..).zip(lengths.drain(..)) {
            Self::broadcast(&self.tally, self.options, context, &bytes[..length]);
        }
    }
}

/// Runs the server's process.
pub(crate) fn run(plan: Plan, workers: u16) -> Result<(), String> {
    if let (1, Some([core, _, ..])) = (workers, host::allowed_cores().as_deref()) {
        host::pin_current_thread(*core).map_err(|error| error.to_string())?;
    }
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Count(workers))
        .connections(plan.connections())
        // How busy a worker looks is a matter of who else has its core: here it takes all whom it has room for.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES);
    let tally = Arc::<Tally>::default();
    let server = serve(config, |_| Room::new(plan.arm, &tally)).map_err(|error| error.to_string())?;
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    on_end_of_input(move || flag.store(true, Ordering::Release));
    print_line(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    let (mut teller, mut waiting_most) = (Teller::apart(plan.interval), 0);
    while !is_over.load(Ordering::Acquire) {
        clock::pause(LOOK_UP);
        let waiting = waiting(&server, &tally);
        waiting_most = waiting.max(waiting_most);
        teller.look(|| counts(&server, &tally, waiting_most))?;
    }
    let mut all = counts(&server, &tally, waiting_most);
    all.extend(counts_of(&server.stats()));
    let granted = server.granted().first().map_or(0, |granted| granted.receive_buffer_bytes as u64);
    all.insert(RECEIVE_BUFFER.to_owned(), granted);
    teller.last(all)?;
    // Without a goodbye: the clients make their books next, and nobody is to have left.
    std::process::exit(0)
}

/// Messages that were taken for members and are in no packet, for each member, rounded up. What a pass that is under way has put
/// into packets is not known before it ends.
fn waiting(server: &Serving<()>, tally: &Tally) -> u64 {
    let sealed = sealed(server);
    let taken = read(&tally.owed).saturating_sub(read(&tally.missed));
    taken.saturating_sub(sealed).div_ceil(read(&tally.members).max(1))
}

/// Messages that were put into packets, each once.
fn sealed(server: &Serving<()>) -> u64 {
    let of = |worker: &WorkerStats| worker.protocol.messages_sent - worker.protocol.messages_resent;
    server.stats().workers.iter().map(of).sum()
}

fn counts(server: &Serving<()>, tally: &Tally, waiting_most: u64) -> Counts {
    let stats = server.stats();
    let sum = |of: fn(&WorkerStats) -> u64| stats.workers.iter().map(of).sum::<u64>();
    let counts = [
        ("members", read(&tally.members)),
        ("server left", read(&tally.left)),
        ("received", read(&tally.received)),
        ("broadcasts", read(&tally.broadcasts)),
        ("owed", read(&tally.owed)),
        ("missed", read(&tally.missed)),
        ("not broadcast", read(&tally.not_broadcast)),
        ("gathered most", read(&tally.gathered_most)),
        ("waiting most", waiting_most),
        ("sealed", sum(|w| w.protocol.messages_sent - w.protocol.messages_resent)),
        ("given up", sum(|w| w.protocol.messages_dropped + w.protocol.messages_expired)),
        ("written", sum(|w| w.protocol.datagrams_sent)),
        ("sent", sum(|w| w.sent.datagrams)),
        ("send calls", sum(|w| w.sent.calls)),
        ("receive calls", sum(|w| w.received.calls)),
        ("not sent", sum(|w| w.sent.lost.total())),
    ];
    counts.map(|(name, count)| (name.to_owned(), count)).into()
}
