//! The server of a run, in a process of its own: echoes what it hears, sends what it is told to, panics when a player says so,
//! in a call or so that its worker's thread falls, and answers lines on standard input with lines of JSON until that ends.
//!
//! `report` asks for its counters, `hush` stops what it says of its own, `forget` lets it forget how late its ticks were, `pin <worker>
//! <core>` keeps a worker on a core, before all else that runs there, `drain <milliseconds>` ends it without haste.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::panic::panic_any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::Args;
use drumfire::{
    Access, Arrival, ChannelId, CloseReason, Congestion, Context, Handler, Outcome, PeerId, PeerStats,
    PlayerId, ReceiptId, SendOptions, ServerConfig, ServerKey, Serving, TokenAccess, TokenKey, Workers,
    serve,
};
use drumfire_tools::clock::host_ns;
use drumfire_tools::host::{current_thread_id, pin_current_thread};
use serde_json::{Value, json};

use crate::ledger::{Ledger, MESSAGE_BYTES};
use crate::platform::{UdpOption, lack_option, open_sockets, refuse};
use crate::stop::{Stop, Tried};
use crate::system::{Precedence, put_first};
use crate::times::Times;

/// Echoed at most once.
pub(crate) const LOSSY: ChannelId = ChannelId(0);
/// Echoed exactly once and in order.
pub(crate) const ORDERED: ChannelId = ChannelId(1);
/// What the server says of its own, exactly once and in order.
pub(crate) const DOWN: ChannelId = ChannelId(2);
/// What comes here are calls that the system refuses this worker from then on: an error number, `all` or `open` for those with the
/// sockets alone that are open now, and their names.
pub(crate) const REFUSE: ChannelId = ChannelId(8);
/// What comes here is the call in which the application has a fault: `message`, that very one, `receipt`, when the sender has
/// acknowledged what it is sent for this, `tick`, the worker's next one, or `thread`, the same so that nothing of the worker catches
/// it.
pub(crate) const FAULT: ChannelId = ChannelId(9);

/// How often each worker is called without a cause: so often that one in a thousand is several in ten seconds, and not the one
/// time that the machine stood still.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// Ticks between two messages of its own: 10 ms.
const SAY_TICKS: u64 = 5;

/// Ticks between two looks at what waits for each player: a second.
const LOOK_TICKS: u64 = 500;

/// How the server is started.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServeFlags {
    /// Where.
    pub(crate) address: SocketAddr,
    /// With how many threads.
    #[arg(long)]
    pub(crate) workers: NonZeroU16,
    /// What it proves itself with.
    #[arg(long)]
    pub(crate) key: String,
    /// What its players' tokens are sealed with.
    #[arg(long)]
    pub(crate) token_key: String,
    /// Messages of its own for each player every 10 ms.
    #[arg(long, default_value_t = 0)]
    pub(crate) down: u32,
    /// Bytes per second for each player, whatever the path says; what it says when left out.
    #[arg(long)]
    pub(crate) fixed_rate: Option<u64>,
    /// Seconds until a silent connection ends, and one that acknowledges nothing; what is usual when left out.
    #[arg(long)]
    pub(crate) timeout_secs: Option<u64>,
    /// Bytes to ask for of each receive buffer; what is usual when left out.
    #[arg(long)]
    pub(crate) receive_buffer: Option<usize>,
    /// As if the kernel could not hand over trains of datagrams whole.
    #[arg(long)]
    pub(crate) no_gro: bool,
    /// As if the kernel could not cut trains of datagrams.
    #[arg(long)]
    pub(crate) no_gso: bool,
}

/// What the server did for one player, over its last connection.
#[derive(Clone, Debug)]
struct Account {
    down: Ledger,
    acknowledged: u64,
    lost: u64,
    worker: usize,
}

/// What all workers write down.
#[derive(Debug, Default)]
struct Book {
    players: BTreeMap<u128, Account>,
    peers: BTreeMap<PeerId, u128>,
    /// Echoes for which a peer had no room.
    refused: u64,
    /// Whether the system was made to refuse calls, or why not.
    refusal: Option<Result<(), String>>,
    /// How late ticks were, by worker.
    late: Vec<Times>,
    /// Where workers are to stay from now on.
    pins: Vec<Pin>,
    /// Bytes that waited for a peer or were not acknowledged, at most, by a look once a second.
    queue_most_bytes: usize,
    /// How long workers were away whose threads fell, one after the other.
    away: Vec<Duration>,
}

/// A worker that is to stay on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pin {
    worker: usize,
    core: usize,
}

/// What goes wrong in a tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A panic, as any code has it.
    Panic,
    /// One that the worker cannot catch.
    Fall,
}

/// What a panic carries that goes on wherever it is caught, so many times: who lets go of it panics anew. A call of a handler is
/// guarded twice, by what called it and by the worker's pass, and behind those is nothing of the worker, but its thread.
struct Falling(u32);

impl Falling {
    const THROUGH_THE_WORKER: Self = Self(2);
}

impl Drop for Falling {
    fn drop(&mut self) {
        if let Some(left) = self.0.checked_sub(1) {
            panic_any(Self(left));
        }
    }
}

/// The application of one worker.
struct Echo {
    book: Arc<Mutex<Book>>,
    is_ending: Arc<AtomicBool>,
    /// Who is there, on this worker.
    peers: Vec<PeerId>,
    down: u32,
    ticked_ns: Option<u64>,
    ticks: u64,
    /// What ticks are to do wrong.
    faults_due: Vec<Fault>,
    /// When its thread fell, and it did not come back since.
    fell_ns: Option<u64>,
    /// Those whose next receipt is to.
    faulty: Vec<PeerId>,
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    // The panics that players ask for happen while nobody writes.
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Echo {
    fn in_book<T>(&self, write: impl FnOnce(&mut Book) -> T) -> T {
        write(&mut locked(&self.book))
    }

    fn refuse(&self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let mut words = text.split_whitespace();
        let errno = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let sockets = if words.next() == Some("open") { open_sockets().map(Some) } else { Ok(None) };
        let calls: Vec<_> = words.collect();
        let outcome = sockets.and_then(|sockets| refuse(&calls, errno, sockets.as_deref()));
        self.in_book(|book| book.refusal = Some(outcome.map_err(|why| format!("{why:?}"))));
    }

    /// Does wrong where it is told to.
    fn fail(&mut self, context: &mut Context<'_>, peer: PeerId, call: &[u8]) {
        match call {
            b"tick" => self.faults_due.push(Fault::Panic),
            b"thread" => self.faults_due.push(Fault::Fall),
            b"receipt" => {
                self.faulty.push(peer);
                let options = SendOptions::reliable_ordered().with_receipt();
                // Where there is no room there is no receipt, and who waits for the fault says so.
                let _ = context.send(peer, FAULT, "receipt", options);
            }
            _ => panic!("a player asked for it"),
        }
    }

    fn say(&self, context: &mut Context<'_>, peer: PeerId) {
        self.in_book(|book| {
            let Some(account) = book.account(peer) else { return };
            let message = account.down.next(host_ns());
            let options = SendOptions::reliable_ordered().with_receipt();
            // What does not fit was not said.
            if context.send(peer, DOWN, message, options).is_ok() {
                account.down.on_said();
            }
        });
    }
}

impl Book {
    fn account(&mut self, peer: PeerId) -> Option<&mut Account> {
        self.players.get_mut(self.peers.get(&peer)?)
    }

    /// What this worker was told to do since it looked last.
    fn take_pin(&mut self, worker: usize) -> Option<Pin> {
        let at = self.pins.iter().position(|pin| pin.worker == worker)?;
        Some(self.pins.swap_remove(at))
    }

    fn note_late(&mut self, worker: usize, late: Duration) {
        if let Some(times) = self.late.get_mut(worker) {
            times.note(late);
        }
    }

    fn late_us(&self, percent: f64) -> Vec<u128> {
        self.late.iter().map(|times| times.percentile(percent).as_micros()).collect()
    }
}

impl Handler for Echo {
    type Note = ();

    fn on_connect(&mut self, context: &mut Context<'_>, peer: PeerId, arrival: &Arrival<'_>) {
        let Some(PlayerId(player)) = arrival.player else { return };
        self.in_book(|book| {
            let account =
                Account { down: Ledger::ordered(), acknowledged: 0, lost: 0, worker: context.worker() };
            // Who comes again begins anew.
            book.players.insert(player, account);
            book.peers.insert(peer, player);
        });
        self.peers.push(peer);
    }

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        let options = match channel {
            FAULT => return self.fail(context, peer, bytes),
            REFUSE => return self.refuse(bytes),
            ORDERED => SendOptions::reliable_ordered(),
            _ => SendOptions::unreliable(),
        };
        if context.send(peer, channel, bytes, options).is_err() {
            self.in_book(|book| book.refused += 1);
        }
    }

    fn on_receipt(&mut self, _: &mut Context<'_>, peer: PeerId, _: ReceiptId, outcome: Outcome) {
        let asked = self.faulty.iter().position(|one| *one == peer);
        if let (Outcome::Acknowledged, Some(at)) = (outcome, asked) {
            self.faulty.swap_remove(at);
            panic!("a player asked for it");
        }
        self.in_book(|book| {
            let Some(account) = book.account(peer) else { return };
            match outcome {
                Outcome::Acknowledged => account.acknowledged += 1,
                _ => account.lost += 1,
            }
        });
    }

    fn on_disconnect(&mut self, _: &mut Context<'_>, peer: PeerId, _: CloseReason, _: &[u8]) {
        self.peers.retain(|other| *other != peer);
    }

    fn on_stats(&mut self, _: &mut Context<'_>, _: PeerId, stats: &PeerStats) {
        self.in_book(|book| book.queue_most_bytes = book.queue_most_bytes.max(stats.send_memory_bytes));
    }

    fn tick_period(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        let now_ns = host_ns();
        if let Some(fell_ns) = self.fell_ns.take() {
            self.in_book(|book| book.away.push(Duration::from_nanos(now_ns - fell_ns)));
        }
        if let Some(before) = self.ticked_ns.replace(now_ns) {
            let late = Duration::from_nanos(now_ns - before).saturating_sub(TICK);
            self.in_book(|book| book.note_late(context.worker(), late));
        }
        if let Some(Pin { core, .. }) = self.in_book(|book| book.take_pin(context.worker())) {
            pin_current_thread(core).expect("a core that the run found to be allowed");
            // Where that may not be, the witness that comes before it may not either, and says so.
            let _ = current_thread_id().map(|thread| put_first(thread, Precedence::Worker));
        }
        match self.faults_due.pop() {
            Some(Fault::Panic) => panic!("a player asked for it"),
            Some(Fault::Fall) => {
                self.fell_ns = Some(now_ns);
                panic_any(Falling::THROUGH_THE_WORKER);
            }
            None => {}
        }
        if self.is_ending.load(Ordering::Acquire) {
            return;
        }
        self.ticks += 1;
        for peer in &self.peers {
            if self.down > 0 && self.ticks.is_multiple_of(LOOK_TICKS) {
                context.request_stats(*peer);
            }
            if self.ticks.is_multiple_of(SAY_TICKS) {
                (0..self.down).for_each(|_| self.say(context, *peer));
            }
        }
    }
}

/// Serves until standard input ends or a line says so.
///
/// # Errors
/// When the flags cannot be used or the address cannot be had.
pub(crate) fn run(flags: &ServeFlags) -> Result<(), Stop> {
    let key: ServerKey = flags.key.parse().tried("the key")?;
    let token_key: TokenKey = flags.token_key.parse().tried("the token key")?;
    let access = Access::Token(TokenAccess::new(token_key));
    let mut config = ServerConfig::new(flags.address, key, access)
        .server_id("chaos")
        .workers(Workers::Count(flags.workers.get()));
    if let Some(bytes_per_second) = flags.fixed_rate {
        config = config.congestion(Congestion::Fixed { bytes_per_second });
    }
    if let Some(timeout) = flags.timeout_secs.map(Duration::from_secs) {
        config = config.timeouts(timeout, timeout);
    }
    if let Some(bytes) = flags.receive_buffer {
        config = config.receive_buffer_bytes(bytes);
    }
    for (option, is_lacking) in [(UdpOption::Gro, flags.no_gro), (UdpOption::Segment, flags.no_gso)] {
        if is_lacking {
            // Before there is any other thread: it holds for those that come.
            lack_option(option)?;
        }
    }
    let late = (0..flags.workers.get()).map(|_| Times::new()).collect::<Result<Vec<_>, _>>()?;
    let book = Arc::new(Mutex::new(Book { late, ..Book::default() }));
    let is_ending = Arc::<AtomicBool>::default();
    let server = serve(config, |_| Echo {
        book: Arc::clone(&book),
        is_ending: Arc::clone(&is_ending),
        peers: Vec::new(),
        down: flags.down,
        ticked_ns: None,
        ticks: 0,
        faults_due: Vec::new(),
        fell_ns: None,
        faulty: Vec::new(),
    });
    let server = server.tried("the server")?;
    answer(&json!({ "address": server.local_addr().to_string() }))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.tried("standard input")?;
        if line == "hush" {
            is_ending.store(true, Ordering::Release);
        } else if line == "report" {
            answer(&report(&server, &book)?)?;
        } else if line == "forget" {
            locked(&book).late.iter_mut().for_each(Times::forget);
        } else if let Some(pin) = line.strip_prefix("pin ") {
            let (worker, core) = pin.split_once(' ').tried("a worker and a core")?;
            let (worker, core) = (worker.parse().tried("a worker")?, core.parse().tried("a core")?);
            locked(&book).pins.push(Pin { worker, core });
        } else if let Some(deadline) = line.strip_prefix("drain ") {
            let deadline = Duration::from_millis(deadline.parse().tried("a deadline")?);
            is_ending.store(true, Ordering::Release);
            return drain(server, deadline, &book);
        } else {
            return Err(Stop::failed("standard input", format!("`{line}` is no question")));
        }
    }
    Ok(())
}

fn drain(server: Serving<()>, deadline: Duration, book: &Mutex<Book>) -> Result<(), Stop> {
    let undelivered = server.shut_down(deadline);
    let bytes: Vec<usize> = undelivered.iter().map(|one| one.bytes).collect();
    answer(&json!({ "undelivered_bytes": bytes, "message_bytes": MESSAGE_BYTES, "players": players(book) }))
}

fn report(server: &Serving<()>, book: &Mutex<Book>) -> Result<Value, Stop> {
    let stats = serde_json::to_value(server.stats()).tried("counters")?;
    let (refused, late_us, refusal, queue_most_bytes, away) = {
        let book = locked(book);
        let Book { refused, refusal, queue_most_bytes, away, .. } = &*book;
        (*refused, book.late_us(99.9), refusal.clone(), *queue_most_bytes, away.clone())
    };
    Ok(json!({
        "stats": stats,
        "unexplained": server.stats().unexplained(),
        "refused": refused,
        "late_us": late_us,
        "refusal": refusal,
        "queue_most_bytes": queue_most_bytes,
        "away_us": away.iter().map(Duration::as_micros).collect::<Vec<_>>(),
        "granted": serde_json::to_value(server.granted()).tried("what was granted")?,
        "players": players(book),
    }))
}

/// By player: what was said to it, and what became of that.
fn players(book: &Mutex<Book>) -> Value {
    let book = locked(book);
    let account = |(player, account): (&u128, &Account)| {
        let Account { down, acknowledged, lost, worker } = account;
        (
            player.to_string(),
            json!({ "said": down.said, "acknowledged": acknowledged, "lost": lost, "worker": worker }),
        )
    };
    book.players.iter().map(account).collect::<serde_json::Map<_, _>>().into()
}

fn answer(value: &Value) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).tried("standard output")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_fall_goes_through_two_guards_and_ends_at_the_third() {
        let guards = AtomicUsize::new(0);
        let guarded = |inner: &dyn Fn()| {
            // What is caught is let go of, as guards do.
            let is_over = catch_unwind(AssertUnwindSafe(inner)).is_ok();
            guards.fetch_add(1, Ordering::Relaxed);
            is_over
        };
        let fall = || panic_any(Falling::THROUGH_THE_WORKER);
        let is_over = guarded(&|| _ = guarded(&|| _ = guarded(&fall)));
        assert!(!is_over, "it came to the last");
        assert_eq!(guards.into_inner(), 1, "and the others let it through");
    }
}
