//! The clients of our server: many over a few sockets, each socket with a handler that speaks and hears for its clients.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drumfire::{
    Arrival, ChannelId, ClientConfig, CloseReason, ConnectError, Context, DropReason, Handler, PeerId,
    Playing, SendOptions, WorkerStats, play,
};
use drumfire_benches::Counts;
use drumfire_tools::clock;
use hdrhistogram::Histogram;

use crate::bots::{Bots, CONNECT_MAX};
use crate::ears::{Ears, Span, Tally, histogram};
use crate::plan::{Plan, ns};
use crate::schedule::{MESSAGE_MAX_BYTES, Schedule};
use crate::server::{CHANNEL, key};

/// Connections that share a socket: so few that its receive buffer holds what comes while the process is busy with the others.
const PER_SOCKET: u32 = 16;

/// Connections begun in a second: a server takes 2,000.
const RAMP_PER_SECOND: u64 = 1_600;

/// How often clients look whether they are to say something.
const LOOK: Duration = Duration::from_millis(1);

/// The clients of one socket.
#[derive(Debug)]
struct Side {
    ears: Ears,
    voice: Schedule,
    span: Option<Span>,
    connected: u32,
    failed: u32,
}

struct Mouth {
    side: Arc<Mutex<Side>>,
    options: SendOptions,
    peers: Vec<PeerId>,
    places: HashMap<PeerId, usize>,
    /// Whose message came last: what comes in one datagram is for one.
    last: Option<(PeerId, usize)>,
}

fn lock(side: &Mutex<Side>) -> MutexGuard<'_, Side> {
    side.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mouth {
    fn place(&mut self, peer: PeerId) -> Option<usize> {
        if let Some((_, place)) = self.last.filter(|(last, _)| *last == peer) {
            return Some(place);
        }
        let place = *self.places.get(&peer)?;
        self.last = Some((peer, place));
        Some(place)
    }
}

impl Handler for Mouth {
    type Note = ();

    fn on_connect(&mut self, _: &mut Context<'_>, peer: PeerId, _: &Arrival<'_>) {
        self.places.insert(peer, self.peers.len());
        self.peers.push(peer);
        lock(&self.side).connected += 1;
    }

    fn on_connect_failed(&mut self, _: &mut Context<'_>, _: PeerId, _: ConnectError) {
        lock(&self.side).failed += 1;
    }

    fn on_message(&mut self, _: &mut Context<'_>, peer: PeerId, _: ChannelId, message: &[u8]) {
        let place = self.place(peer);
        let mut side = lock(&self.side);
        let span = side.span.unwrap_or_default();
        match place {
            Some(place) => side.ears.hear(place, message, &span),
            None => side.ears.tally.strangers += 1,
        }
    }

    fn on_disconnect(&mut self, _: &mut Context<'_>, _: PeerId, _: CloseReason, _: &[u8]) {
        lock(&self.side).ears.tally.left += 1;
    }

    fn tick_period(&self) -> Option<Duration> {
        Some(LOOK)
    }

    fn on_tick(&mut self, context: &mut Context<'_>) {
        let mut side = lock(&self.side);
        let Some(span) = side.span else { return };
        let (now, mut memory) = (clock::host_ns(), [0; MESSAGE_MAX_BYTES]);
        while let Some(turn) = side.voice.next(now, span.start_ns, span.end_ns) {
            side.ears.tally.offered += 1;
            if turn.is_over {
                side.ears.tally.skipped += 1;
                continue;
            }
            let peer = self.peers.get(turn.place);
            let is_taken = peer.is_some_and(|peer| {
                context.send(*peer, CHANNEL, turn.write(&mut memory), self.options).is_ok()
            });
            if is_taken {
                side.voice.said(turn.place);
                side.ears.tally.said += 1;
            } else {
                side.ears.tally.refused += 1;
            }
        }
    }
}

/// All sockets.
pub(crate) struct Datagrams {
    sockets: Vec<(Playing<()>, Arc<Mutex<Side>>)>,
    /// The last of them has the client that stops reading.
    has_stalled: bool,
    span: Option<Span>,
    heard: u64,
}

impl Datagrams {
    /// Connects all.
    pub(crate) fn connect(plan: Plan, server: SocketAddr) -> Result<Self, String> {
        let mut bots = Self { sockets: Vec::new(), has_stalled: plan.has_stalled, span: None, heard: 0 };
        let mut first = 0;
        while first < plan.clients {
            let count = PER_SOCKET.min(plan.clients - first);
            bots.bind(plan, Schedule::new(plan, first, count), count, true)?;
            first += count;
        }
        if plan.has_stalled {
            bots.bind(plan, Schedule::new(plan, plan.clients, 0), 1, false)?;
        }
        bots.ramp(plan, server)?;
        Ok(bots)
    }

    fn bind(&mut self, plan: Plan, voice: Schedule, count: u32, is_measured: bool) -> Result<(), String> {
        let ears = Ears::new(plan, count, is_measured)?;
        let side = Arc::new(Mutex::new(Side { ears, voice, span: None, connected: 0, failed: 0 }));
        let mouth = Mouth {
            side: Arc::clone(&side),
            options: plan.arm.options(),
            peers: Vec::new(),
            places: HashMap::new(),
            last: None,
        };
        let socket = play(([127, 0, 0, 1], 0).into(), count, &ClientConfig::default(), mouth);
        self.sockets.push((socket.map_err(|error| format!("the clients' sockets: {error}"))?, side));
        Ok(())
    }

    fn ramp(&mut self, plan: Plan, server: SocketAddr) -> Result<(), String> {
        let (start, connections) = (clock::host_ns(), u64::from(plan.connections()));
        let (mut begun, key) = (0, key().public());
        loop {
            let elapsed = clock::host_ns() - start;
            let due = elapsed.saturating_mul(RAMP_PER_SECOND) / 1_000_000_000 + 1;
            while begun < due.min(connections) {
                // One socket after the other.
                let at = usize::try_from(begun / u64::from(PER_SOCKET)).unwrap_or(0);
                let at = if begun == u64::from(plan.clients) { self.sockets.len() - 1 } else { at };
                let begins = self.sockets[at].0.connect(server, key);
                begins.map_err(|error| format!("connection {begun}: {error}"))?;
                begun += 1;
            }
            let (mut connected, mut failed) = (0, 0);
            for (socket, side) in &mut self.sockets {
                socket.wait(Duration::ZERO);
                let side = lock(side);
                (connected, failed) = (connected + u64::from(side.connected), failed + side.failed);
            }
            if connected == connections {
                return Ok(());
            }
            if failed > 0 || elapsed > ns(CONNECT_MAX) {
                return Err(format!("{connected} of {connections} are connected, {failed} could not be"));
            }
        }
    }
}

impl Bots for Datagrams {
    fn work(&mut self, span: &Span, is_held: bool) -> Result<bool, String> {
        if self.span != Some(*span) {
            self.span = Some(*span);
            self.sockets.iter().for_each(|(_, side)| lock(side).span = Some(*span));
        }
        let working = self.sockets.len() - usize::from(self.has_stalled && is_held);
        for (socket, _) in self.sockets.iter_mut().take(working) {
            socket.wait(Duration::ZERO);
        }
        let heard = self.tally().heard;
        let before = std::mem::replace(&mut self.heard, heard);
        Ok(heard > before)
    }

    fn tally(&self) -> Tally {
        let tally = Tally::default();
        self.sockets.iter().fold(tally, |tally, (_, side)| tally.plus(&lock(side).ears.tally))
    }

    fn latency(&self) -> Result<Histogram<u64>, String> {
        let mut all = histogram()?;
        for (_, side) in &self.sockets {
            all.add(&lock(side).ears.latency).map_err(|error| error.to_string())?;
        }
        Ok(all)
    }

    fn slowest_mean_ns(&self) -> u64 {
        self.sockets.iter().map(|(_, side)| lock(side).ears.slowest_mean_ns()).max().unwrap_or(0)
    }

    fn carried(&self) -> Counts {
        let stats: Vec<WorkerStats> = self.sockets.iter().map(|(socket, _)| socket.stats()).collect();
        let sum = |of: fn(&WorkerStats) -> u64| stats.iter().map(of).sum::<u64>();
        let counts = [
            ("bots sent", sum(|w| w.sent.datagrams)),
            ("bots received", sum(|w| w.received.datagrams + w.received.dropped_in_all())),
            ("bots delivered", sum(|w| w.protocol.messages_delivered)),
            ("bots overflows", sum(|w| w.protocol.unreliable_overflows)),
            ("bots skipped", sum(|w| w.protocol.messages_skipped)),
            ("bots receive memory", sum(|w| w.protocol.dropped(DropReason::ReceiveMemory))),
            ("bots dropped", sum(|w| w.protocol.dropped_count())),
            ("bots unexplained", sum(WorkerStats::unexplained)),
            ("bots sealed", sum(|w| w.protocol.messages_sent - w.protocol.messages_resent)),
        ];
        counts.map(|(name, count)| (name.to_owned(), count)).into()
    }
}
