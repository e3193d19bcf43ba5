//! The message rate while the number of worker threads changes.
//!
//! A server with four sockets echoes reliable messages, and its threads become four, two, and one in turn. The lowest tenth of a
//! second after a change is compared with the lowest one before it. The clients are a thread of the same process, so that windows and
//! changes share a clock. Nothing is pinned. With fewer cores than threads, no figure here is a throughput.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use drumfire::{
    Access, ChannelId, ClientsEvent, Event, SendError, SendOptions, Server, ServerConfig, ServerPublicKey,
    Workers,
};
use drumfire_benches::roles::key;
use drumfire_benches::{BUSY, Bench, Crowd, Goal, Spread};
use drumfire_tools::clock;
use drumfire_tools::table::{Align, TextTable};

const SOCKETS: u16 = 4;

/// The number of threads before the first change, and after each change.
const STAGES: [u16; 4] = [1, 4, 2, 1];

/// The time that is measured before a change, and after it.
const WINDOW: Duration = Duration::from_secs(1);

/// The time between two changes in which the traffic settles.
const PAUSE: Duration = Duration::from_millis(200);

/// The interval in which the server polls when nothing comes.
const LOOK_UP: Duration = Duration::from_millis(1);

/// The time within which shards move, and the last answers come.
const PATIENCE: Duration = Duration::from_secs(20);

/// Players per client socket. They send in turn, so that packets of two of them do not share a train.
const PER_SOCKET: u32 = 10;

/// Messages per player and second.
const MESSAGES_PER_SECOND: u32 = 20;

const MESSAGE_BYTES: usize = 32;

/// Players connected per second.
const RAMP_PER_SECOND: u64 = 1_000;

/// Messages that come back are counted in steps of this length.
const STEP: Duration = Duration::from_millis(10);

/// Steps in a tenth of a second.
const TENTH: usize = 10;

/// Tenths of a second in which a dip is searched.
const TENTHS: usize = 10;

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (players, rounds) = bench.extent().pick((200, 1), (1_000, 5), (1_000, 20));
    println!("  {players} players, {rounds} rounds");
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Shards { sockets: SOCKETS, threads: STAGES[0] });
    let server = Server::bind(config).map_err(|error| error.to_string())?;
    let (address, start, is_over) = (server.local_addr(), clock::now(), Arc::new(AtomicBool::new(false)));
    let mut echo = Echo { server, start, refused: 0 };
    let (outbox, inbox) = sync_channel(1);
    let flag = Arc::clone(&is_over);
    let thread = std::thread::spawn(move || {
        let players = Players::connect((address, key().public()), players, start)?;
        outbox.send(()).map_err(|error| error.to_string())?;
        players.play(&flag)
    });
    echo.serve_while("players connect", 3 * PATIENCE, |_| inbox.try_recv() == Err(TryRecvError::Empty))?;
    let before = echo.server.stats().forwarded();
    let changes = if thread.is_finished() { Ok(Vec::new()) } else { echo.changes(rounds) };
    is_over.store(true, Ordering::Release);
    echo.serve_while("the last answers come", 3 * PATIENCE, |_| !thread.is_finished())?;
    let tally = thread.join().map_err(|_| "the players' thread panicked")??;
    if echo.refused > 0 {
        return Err(format!("{} answers found no room: the machine is too busy", echo.refused));
    }
    let forwarded = echo.server.stats().forwarded() - before;
    show(players, &changes?, &tally, bench);
    println!(
        "  {players} players, {MESSAGES_PER_SECOND} messages per second each; {} sent, {} lost; {} connections ended; {forwarded} \
         packets forwarded; {} turns left out",
        tally.sent,
        tally.lost,
        tally.ended,
        tally.late.len()
    );
    if (tally.ended, tally.lost) == (0, 0) {
        Ok(())
    } else {
        Err(format!("{} connections ended, {} messages were lost", tally.ended, tally.lost))
    }
}

/// One change of the number of threads.
#[derive(Clone, Copy, Debug)]
struct Change {
    from: u16,
    to: u16,
    /// The time since the start.
    at: Duration,
    /// The time until the last shard has moved.
    moved: Duration,
}

/// A server that sends each message back.
struct Echo {
    server: Server,
    start: Instant,
    refused: u64,
}

impl Echo {
    fn changes(&mut self, rounds: usize) -> Result<Vec<Change>, String> {
        let mut changes = Vec::new();
        for _ in 0..rounds {
            for (from, to) in STAGES.into_iter().zip(STAGES.into_iter().skip(1)) {
                self.serve_for(PAUSE + WINDOW)?;
                let at = self.elapsed();
                self.server.set_threads(to).map_err(|error| error.to_string())?;
                self.serve_while("shards move", PATIENCE, |server| {
                    let driven = server.stats().threads;
                    driven.len() != usize::from(to) || driven.iter().sum::<u16>() != SOCKETS
                })?;
                let moved = self.elapsed() - at;
                self.serve_for(WINDOW.saturating_sub(moved))?;
                changes.push(Change { from, to, at, moved });
            }
        }
        Ok(changes)
    }

    fn elapsed(&self) -> Duration {
        clock::now().duration_since(self.start)
    }

    fn serve_for(&mut self, time: Duration) -> Result<(), String> {
        let until = clock::now() + time;
        self.serve_while("time passes", 2 * time, |_| clock::now() < until)
    }

    fn serve_while(
        &mut self,
        what: &str,
        patience: Duration,
        mut goes_on: impl FnMut(&Server) -> bool,
    ) -> Result<(), String> {
        let deadline = clock::now() + patience;
        while goes_on(&self.server) {
            if clock::now() > deadline {
                return Err(format!("not in {patience:?}: {what}"));
            }
            self.server.wait(LOOK_UP);
            for event in self.server.poll() {
                if let Event::Message { peer, channel, bytes } = event {
                    let sent = self.server.send(peer, channel, bytes, SendOptions::reliable_ordered());
                    self.refused += u64::from(sent.is_err());
                }
            }
            self.server.flush();
        }
        Ok(())
    }
}

/// The counts of the players.
#[derive(Debug, Default)]
struct Tally {
    sent: u64,
    received: u64,
    lost: u64,
    ended: u64,
    /// The steps in which turns were left out, because the players' thread had no core in time.
    late: Vec<usize>,
    /// Messages that came back, by step since the start.
    arrivals: Vec<u32>,
}

/// All players, on one thread. Each sends at fixed times.
struct Players {
    crowd: Crowd,
    start: Instant,
    tally: Tally,
}

impl Players {
    fn connect(to: (SocketAddr, ServerPublicKey), players: u32, start: Instant) -> Result<Self, String> {
        let mut crowd = Crowd::bind(players / PER_SOCKET, players)?;
        crowd.connect(to, players.into(), RAMP_PER_SECOND, |_, _| {})?.check()?;
        Ok(Self { crowd, start, tally: Tally::default() })
    }

    /// Sends until the flag is set, and returns when all messages came back.
    fn play(mut self, is_over: &AtomicBool) -> Result<Tally, String> {
        let mut turns = vec![Vec::new(); PER_SOCKET as usize];
        let mut of_socket = vec![0; self.crowd.sockets()];
        for (socket, peer) in self.crowd.peers() {
            turns[of_socket[*socket] % PER_SOCKET as usize].push((*socket, *peer));
            of_socket[*socket] += 1;
        }
        let turn = Duration::from_secs(1) / MESSAGES_PER_SECOND / PER_SOCKET;
        let mut next = clock::now();
        for peers in turns.iter().cycle() {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            self.send(peers)?;
            self.receive();
            next += turn;
            let now = clock::now();
            clock::pause(next.saturating_duration_since(now));
            // A thread that had no core leaves turns out, instead of sending a burst.
            while next + turn < now {
                next += turn;
                self.tally.late.push(self.step());
            }
        }
        let deadline = clock::now() + PATIENCE;
        while self.tally.received < self.tally.sent && clock::now() < deadline {
            self.receive();
            clock::pause(turn);
        }
        self.tally.lost = self.tally.sent - self.tally.received;
        self.tally.ended = self.crowd.ended();
        Ok(self.tally)
    }

    /// The present step.
    fn step(&self) -> usize {
        let step = clock::now().duration_since(self.start).as_nanos() / STEP.as_nanos();
        usize::try_from(step).unwrap_or(usize::MAX)
    }

    fn send(&mut self, peers: &[(usize, drumfire::PeerId)]) -> Result<(), String> {
        for (socket, peer) in peers {
            let Some(clients) = self.crowd.socket(*socket) else { continue };
            match clients.send(*peer, ChannelId(0), vec![7; MESSAGE_BYTES], SendOptions::reliable_ordered()) {
                Ok(_) => self.tally.sent += 1,
                // The end of the connection is counted as such.
                Err(SendError::UnknownPeer | SendError::Closed) => {}
                Err(error) => return Err(format!("{error}: the machine is too busy")),
            }
        }
        Ok(())
    }

    /// Counts what came back. Polling also sends what is queued.
    fn receive(&mut self) {
        let mut count = 0;
        self.crowd.look(|_, event| count += u32::from(matches!(event, ClientsEvent::Message { .. })));
        self.tally.received += u64::from(count);
        let at = self.step();
        let arrivals = &mut self.tally.arrivals;
        if arrivals.len() <= at {
            arrivals.resize(at + 1, 0);
        }
        arrivals[at] += count;
    }
}

/// Messages per second in each tenth of a second around one change.
struct Around {
    change: Change,
    before: Vec<f64>,
    after: Vec<f64>,
    /// Whether the players left turns out.
    is_void: bool,
}

impl Around {
    fn new(change: Change, tally: &Tally) -> Self {
        let at = usize::try_from(change.at.as_nanos() / STEP.as_nanos()).unwrap_or(usize::MAX);
        let tenths = |from: usize| -> Vec<f64> {
            let steps = tally.arrivals.get(from..).unwrap_or_default();
            let tenths = steps.chunks_exact(TENTH).take(TENTHS);
            tenths.map(|steps| f64::from(steps.iter().sum::<u32>()) * 10.0).collect()
        };
        let from = at.saturating_sub(TENTHS * TENTH);
        let window = from..at.saturating_add(TENTHS * TENTH);
        let is_void = tally.late.iter().any(|step| window.contains(step));
        Self { change, before: tenths(from), after: tenths(at), is_void }
    }

    fn rate(&self) -> f64 {
        self.before.iter().sum::<f64>() / self.before.len().max(1) as f64
    }

    /// Returns by how much the lowest of these tenths is below the rate before the change, in percent.
    fn dip(&self, tenths: &[f64]) -> f64 {
        let least = tenths.iter().copied().fold(f64::INFINITY, f64::min);
        (1.0 - least / self.rate()).max(0.0) * 100.0
    }

    fn line(&self) -> String {
        let list = |tenths: &[f64]| tenths.iter().map(|rate| format!("{rate:>6.0}")).collect::<String>();
        let Change { from, to, .. } = self.change;
        let before = &self.before[self.before.len().saturating_sub(TENTHS / 2)..];
        let void = if self.is_void { "  void" } else { "" };
        format!("  {from} -> {to}  {} |{}{void}", list(before), list(&self.after))
    }
}

fn show(players: u32, changes: &[Change], tally: &Tally, bench: &mut Bench) {
    let around: Vec<Around> = changes.iter().map(|change| Around::new(*change, tally)).collect();
    println!("\nmessages received per second, in tenths of a second, before a change | and after it");
    around.iter().for_each(|around| println!("{}", around.line()));
    let right = |heading| (heading, Align::Right);
    let mut table = TextTable::new(&[
        ("threads", Align::Left),
        right("messages/s before"),
        right("dip after, %: median"),
        right("deepest"),
        right("without a change: median"),
        right("deepest"),
        right("ms until all moved: median"),
        right("most"),
        right("void"),
    ])
    .indented(2);
    for (from, to) in STAGES.into_iter().zip(STAGES.into_iter().skip(1)) {
        let all = || around.iter().filter(|around| (around.change.from, around.change.to) == (from, to));
        let void = all().filter(|around| around.is_void).count();
        // Where all changes are void, they are shown and do not count.
        let is_void = void == all().count();
        let spread = |of: &dyn Fn(&Around) -> f64| {
            Spread::of(all().filter(|around| is_void || !around.is_void).map(of))
        };
        let (Some(rate), Some(after), Some(before), Some(moved)) = (
            spread(&Around::rate),
            spread(&|around| around.dip(&around.after)),
            spread(&|around| around.dip(&around.before)),
            spread(&|around| around.change.moved.as_secs_f64() * 1_000.0),
        ) else {
            continue;
        };
        let busy = if is_void { BUSY } else { "" };
        table.row([
            format!("{from} -> {to}"),
            format!("{:.0}", rate.median),
            format!("{:.1}", after.median),
            format!("{:.1}", after.most),
            format!("{:.1}", before.median),
            format!("{:.1}", before.most),
            format!("{:.2}", moved.median),
            format!("{:.2}", moved.most),
            format!("{void}{}", if is_void { " busy" } else { "" }),
        ]);
        let name = format!("{players} players, {from} -> {to} threads");
        let note = format!("{:.1} % in a second without a change", before.most);
        let note = if is_void { format!("{note}; {busy}") } else { note };
        let dip = format!("{name}: deepest dip of 100 ms");
        bench.results.figure(dip, Some(after.most), "%", Goal::Shown, &note);
        let name = format!("{name}: until all moved");
        bench.results.figure(name, Some(moved.median), "ms", Goal::Shown, busy);
    }
    println!("\n{}", table.render());
    let name = format!("{players} players while threads come and go");
    for (what, count) in [("connections ended", tally.ended), ("messages lost", tally.lost)] {
        bench.results.figure(format!("{name}: {what}"), Some(count as f64), "", Goal::AtMost(0.0), "");
    }
}
