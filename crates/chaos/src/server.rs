//! The server of a run, in its own process: it echoes messages, sends its own, and fails on request. It reads commands
//! on standard input, one per line, and ends with standard input.
//!
//! | command | meaning | answer |
//! | --- | --- | --- |
//! | `report` | | the counters |
//! | `quiet` | stop sending own messages | |
//! | `reset-lateness` | forget how late ticks were | |
//! | `pin WORKER CORE` | keep a worker on a core, with real-time priority | |
//! | `drain MILLISECONDS` | shut down, with this deadline, and exit | what was delivered |
//!
//! Every answer is a line of JSON. At the start, the server writes its address.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::panic::panic_any;
use std::process;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use drumfire::{
    ChannelId, Context, Event, Handler, Message, Outcome, PeerId, PeerInfo, PlayerId, SendOptions,
    ServerConfig, handler,
};
use drumfire_tools::clock::host_ns;
use drumfire_tools::host::{current_thread_id, pin_current_thread};
use serde_json::{Map, Value, json};

use crate::error::{Error, ErrorContext};
use crate::host::{Priority, locked, set_priority};
use crate::platform::{fail_calls, hide_trains, open_sockets};
use crate::traffic::{MessageLog, Times};

/// Messages here are echoed unreliably.
pub(crate) const LOSSY: ChannelId = ChannelId(0);
/// Messages here are echoed reliably and in order.
pub(crate) const ORDERED: ChannelId = ChannelId(1);
/// The server's own messages, reliable and in order.
pub(crate) const DOWN: ChannelId = ChannelId(2);
/// A message here makes system calls of its worker fail. It is an error number, `all` or `open` for the sockets (`open`: those
/// that are open now), and the names of the calls.
pub(crate) const REFUSE: ChannelId = ChannelId(8);
/// A message here makes the application panic, depending on its text:
/// - `message`: in this call.
/// - `receipt`: when the sender acknowledges the message that it is sent for this.
/// - `tick`: in the worker's next tick.
/// - `thread`: the same, and the panic passes the worker's guards and ends its thread.
pub(crate) const FAULT: ChannelId = ChannelId(9);

/// The tick period of each worker. It is short so that the 99.9th percentile of ten seconds covers several late ticks, and not the
/// one time that the machine was busy.
const TICK: Duration = Duration::from_millis(2);

/// Ticks between two of the server's own messages: 10 ms.
const SEND_TICKS: u64 = 5;

/// The number of ticks between two samples of the send queues: a second.
const STATS_TICKS: u64 = 500;

/// The settings of the server.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerFlags {
    /// The settings of drumfire's server, as JSON.
    #[arg(value_parser = |text: &str| serde_json::from_str::<ServerConfig>(text))]
    config: ServerConfig,
    /// Own messages per player and 10 ms.
    #[arg(long, default_value_t = 0)]
    down: u32,
    /// Hide from the program that the kernel can segment and coalesce datagrams (`UDP_SEGMENT` and `UDP_GRO`).
    #[arg(long)]
    no_trains: bool,
}

/// The newest connection of one player.
#[derive(Clone, Debug)]
struct Account {
    down: MessageLog,
    acknowledged: u64,
    lost: u64,
    worker: usize,
}

/// The records of all workers.
#[derive(Debug, Default)]
struct Records {
    players: BTreeMap<u128, Account>,
    peers: BTreeMap<PeerId, u128>,
    /// Whether the server sends no messages of its own.
    is_quiet: bool,
    /// Echoes that a full send queue refused.
    refused: u64,
    /// Whether the filter of system calls was installed, or the reason why not.
    refusal: Option<Result<(), String>>,
    /// How late the ticks of each worker were.
    late: Vec<Times>,
    /// Orders to pin a worker to a core: worker and core.
    pins: Vec<(usize, usize)>,
    /// The maximum number of bytes that were queued or unacknowledged for one peer, sampled every second.
    queue_most_bytes: usize,
    /// The time between the end of each worker's thread and the worker's next tick.
    absences: Vec<Duration>,
}

/// A panic payload that panics again when it is dropped, as many times as the number says.
///
/// A handler's call is inside two guards: that of the call and that of the worker's pass. Each drops what it caught.
struct PersistentPanic(u32);

/// The number of a payload that both guards drop, so that it ends the thread.
const PASSES_GUARDS: u32 = 2;

impl Drop for PersistentPanic {
    fn drop(&mut self) {
        if let Some(left) = self.0.checked_sub(1) {
            panic_any(Self(left));
        }
    }
}

/// The application of one worker.
#[derive(Default)]
struct Echo {
    records: Arc<Mutex<Records>>,
    /// The connections of this worker.
    peers: Vec<PeerId>,
    down: u32,
    last_tick_ns: Option<u64>,
    ticks: u64,
    /// The numbers of the payloads with which ticks panic.
    tick_faults: Vec<u32>,
    /// When the worker's thread ended, until its next tick.
    ended_ns: Option<u64>,
    /// Peers whose next receipt panics.
    receipt_faults: Vec<PeerId>,
}

impl Echo {
    fn record<T>(&self, write: impl FnOnce(&mut Records) -> T) -> T {
        write(&mut locked(&self.records))
    }

    fn fail_calls(&self, request: &[u8]) {
        let text = String::from_utf8_lossy(request);
        let mut words = text.split_whitespace();
        let errno = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let only_open = (words.next() == Some("open")).then(|| open_sockets(process::id())).transpose();
        let calls: Vec<_> = words.collect();
        let outcome = only_open.and_then(|sockets| {
            let sockets = sockets.map(|sockets| sockets.into_keys().collect::<Vec<_>>());
            fail_calls(&calls, errno, sockets.as_deref())
        });
        self.record(|records| records.refusal = Some(outcome.map_err(|error| format!("{error:?}"))));
    }

    fn fault(&mut self, context: &mut Context<'_>, peer: PeerId, call: &[u8]) {
        match call {
            b"tick" => self.tick_faults.push(0),
            b"thread" => self.tick_faults.push(PASSES_GUARDS),
            b"receipt" => {
                self.receipt_faults.push(peer);
                // A full queue means no receipt and no fault, on which the run that waits for it times out.
                let _ = context.send_with_receipt(peer, Message::reliable_ordered(FAULT, "receipt"));
            }
            _ => panic!("a player requested this panic"),
        }
    }

    fn send_down(&self, context: &mut Context<'_>, peer: PeerId) {
        self.record(|records| {
            let Some(account) = records.account(peer) else { return };
            let message = account.down.next_message(host_ns());
            // A message that the queue refuses was not sent.
            let sent = context.send_with_receipt(peer, Message::reliable_ordered(DOWN, message));
            account.down.sent += u64::from(sent.is_ok());
        });
    }
}

impl Records {
    fn account(&mut self, peer: PeerId) -> Option<&mut Account> {
        self.players.get_mut(self.peers.get(&peer)?)
    }

    fn take_pin(&mut self, worker: usize) -> Option<usize> {
        let index = self.pins.iter().position(|(pinned, _)| *pinned == worker)?;
        Some(self.pins.swap_remove(index).1)
    }

    /// Returns, by player, how many messages were sent and what became of them.
    fn players(&self) -> Value {
        let account = |(player, account): (&u128, &Account)| {
            let Account { down, acknowledged, lost, worker } = account;
            (
                player.to_string(),
                json!({ "sent": down.sent, "acknowledged": acknowledged, "lost": lost, "worker": worker }),
            )
        };
        self.players.iter().map(account).collect::<Map<_, _>>().into()
    }
}

impl Echo {
    fn on_connect(&mut self, context: &Context<'_>, peer: PeerId, info: &PeerInfo) {
        let Some(PlayerId(player)) = info.player else { return };
        self.record(|records| {
            let down = MessageLog::ordered(&[]);
            let account = Account { down, acknowledged: 0, lost: 0, worker: context.worker() };
            records.players.insert(player, account);
            records.peers.insert(peer, player);
        });
        self.peers.push(peer);
    }

    fn on_receipt(&mut self, peer: PeerId, outcome: Outcome) {
        let fault = self.receipt_faults.iter().position(|faulty| *faulty == peer);
        if let (Outcome::Acknowledged, Some(index)) = (outcome, fault) {
            self.receipt_faults.swap_remove(index);
            panic!("a player requested this panic");
        }
        self.record(|records| {
            let Some(account) = records.account(peer) else { return };
            match outcome {
                Outcome::Acknowledged => account.acknowledged += 1,
                _ => account.lost += 1,
            }
        });
    }
}

impl Handler for Echo {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        let options = match channel {
            FAULT => return self.fault(context, peer, bytes),
            REFUSE => return self.fail_calls(bytes),
            ORDERED => SendOptions::reliable_ordered(),
            _ => SendOptions::unreliable(),
        };
        if context.send(peer, Message::new(channel, context.copy(bytes), options)).is_err() {
            self.record(|records| records.refused += 1);
        }
    }

    fn on_event(&mut self, context: &mut Context<'_>, event: Event) {
        match event {
            Event::Connected { peer, info } => self.on_connect(context, peer, &info),
            Event::Receipt { peer, outcome, .. } => self.on_receipt(peer, outcome),
            Event::Disconnected { peer, .. } => self.peers.retain(|other| *other != peer),
            Event::Stats { stats, .. } => self.record(|records| {
                records.queue_most_bytes = records.queue_most_bytes.max(stats.send_memory_bytes);
            }),
            _ => {}
        }
    }

    fn tick_period(&self) -> Option<Duration> {
        Some(TICK)
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        let (now_ns, worker) = (host_ns(), context.worker());
        let absence = self.ended_ns.take().map(|ended_ns| Duration::from_nanos(now_ns - ended_ns));
        let late = self.last_tick_ns.replace(now_ns).map(|last_ns| {
            let elapsed = Duration::from_nanos(now_ns - last_ns);
            elapsed.saturating_sub(TICK)
        });
        let (core, is_quiet) = self.record(|records| {
            records.absences.extend(absence);
            let workers = records.late.len().max(worker + 1);
            records.late.resize_with(workers, Times::default);
            late.inspect(|late| records.late[worker].record(*late));
            (records.take_pin(worker), records.is_quiet)
        });
        if let Some(core) = core {
            pin_current_thread(core).expect("a core that the run found to be allowed");
            // Where real-time priority is not permitted, the run has ended before, because it gives its players one.
            let _ = current_thread_id().map(|thread| set_priority(thread, Priority::Worker));
        }
        if let Some(left) = self.tick_faults.pop() {
            self.ended_ns = (left == PASSES_GUARDS).then_some(now_ns);
            panic_any(PersistentPanic(left));
        }
        if is_quiet {
            return;
        }
        self.ticks += 1;
        for peer in &self.peers {
            if self.down > 0 && self.ticks.is_multiple_of(STATS_TICKS) {
                context.request_stats(*peer);
            }
            if self.ticks.is_multiple_of(SEND_TICKS) {
                (0..self.down).for_each(|_| self.send_down(context, *peer));
            }
        }
    }
}

/// Serves until standard input ends or a command ends the server.
pub(crate) fn run(flags: ServerFlags) -> Result<(), Error> {
    let ServerFlags { config, down, no_trains } = flags;
    if no_trains {
        // A filter applies to threads that start later, so it comes before the workers.
        hide_trains()?;
    }
    let records = Arc::<Mutex<Records>>::default();
    let echo = |_| Echo { records: Arc::clone(&records), down, ..Echo::default() };
    let server = handler::Server::bind(config, echo).context("the server")?;
    answer(&json!({ "address": server.local_addr().to_string() }))?;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("standard input")?;
        match *line.split_whitespace().collect::<Vec<_>>() {
            ["quiet"] => locked(&records).is_quiet = true,
            ["report"] => answer(&report(&server, &locked(&records)))?,
            ["reset-lateness"] => locked(&records).late.iter_mut().for_each(Times::clear),
            ["pin", worker, core] => {
                let pin = (worker.parse().context("a worker")?, core.parse().context("a core")?);
                locked(&records).pins.push(pin);
            }
            ["drain", deadline] => {
                let deadline = Duration::from_millis(deadline.parse().context("a deadline")?);
                locked(&records).is_quiet = true;
                let undelivered = server.control().shut_down(deadline).wait(Duration::MAX);
                let undelivered = undelivered.context("the shutdown")?;
                let bytes: Vec<usize> = undelivered.iter().map(|queue| queue.bytes).collect();
                // The list is complete before the handlers receive the last receipts. The workers end when they have.
                drop(server);
                let players = locked(&records).players();
                return answer(&json!({ "undelivered_bytes": bytes, "players": players }));
            }
            _ => return Err(Error::failed("standard input", format!("`{line}` is not a command"))),
        }
    }
    Ok(())
}

fn report(server: &handler::Server<()>, records: &Records) -> Value {
    let stats = server.control().stats();
    let late = records.late.iter().map(|times| times.percentile(99.9).as_micros());
    json!({
        "unexplained": stats.unexplained(),
        "stats": stats,
        "refused": records.refused,
        "late_us": late.collect::<Vec<_>>(),
        "refusal": records.refusal,
        "queue_most_bytes": records.queue_most_bytes,
        "absences": records.absences.len(),
        "longest_absence_us": records.absences.iter().max().map_or(0, Duration::as_micros),
        "granted": stats.sockets,
        "players": records.players(),
    })
}

fn answer(value: &Value) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{value}").and_then(|()| out.flush()).context("standard output")
}
