//! The processes that are measured: a server that answers, one that announces who comes, and the plain receiver beside them.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use drumfire::{
    Access, AdmissionConfig, ChannelId, Context, Event, Handler, Monitor, PeerId, SendOptions, Server,
    ServerConfig, ServerKey, Stats, SurveyOrder, Workers, serve,
};
use drumfire_benches::roles::Announcer;
use drumfire_benches::{
    Child, Counts, Pace, asked_bytes, counts_of, on_end_of_input, print_counts, print_line, serve_plain,
};
use drumfire_tools::{clock, host};

use crate::message::{CHANNELS, HEAD_BYTES};

/// The first argument of a server's process.
const MODE: &str = "--peers-scale-server";

/// Room for what all clients send while the server has no core.
const RECEIVE_BUFFER_BYTES: usize = 8 * 1_024 * 1_024;

/// How often a process whose threads do everything looks whether it is to end.
const LOOK_UP: Duration = Duration::from_millis(10);

/// How often newcomers are announced: what comes in between shares its datagrams.
const ANNOUNCED_EVERY: Duration = Duration::from_millis(250);

/// Events of one poll after which there may be more that waited for room.
const MANY: usize = 512;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// One thread looks so often in a second and answers: the reference's service call.
    Tick(u32),
    /// So many workers answer where a message comes in.
    Handle(u16),
    /// Tells all who are there of everybody who comes.
    Announce,
    /// The floor: plain datagrams, gathered so often in a second.
    Plain(u32),
}

impl Does {
    fn words(self) -> (&'static str, u32) {
        match self {
            Self::Tick(rate) => ("tick", rate),
            Self::Handle(workers) => ("handle", workers.into()),
            Self::Announce => ("announce", 1),
            Self::Plain(rate) => ("plain", rate),
        }
    }

    fn named(name: &str, number: u32) -> Option<Self> {
        match name {
            "tick" => Some(Self::Tick(number)),
            "handle" => Some(Self::Handle(u16::try_from(number).ok()?)),
            "announce" => Some(Self::Announce),
            "plain" => Some(Self::Plain(number)),
            _ => None,
        }
    }

    /// Starts it with room for so many connections, on this core or, for `None`, on all there are.
    pub(crate) fn start(self, slots: u32, core: Option<usize>) -> Result<(Child, SocketAddr), String> {
        let (name, number) = self.words();
        let core = core.map_or_else(|| "any".to_owned(), |core| core.to_string());
        let args = [MODE, name, &number.to_string(), &slots.to_string(), &core];
        let child = Child::start("the server", &args)?;
        let address = child.address()?;
        Ok((child, address))
    }
}

/// The server's key, which stands here for everybody to read.
pub(crate) fn key() -> ServerKey {
    ServerKey::from_bytes([0x9e; 32])
}

/// Of the mail's four channels one is reliable: most of what is said may be lost.
pub(crate) const fn options(channel: ChannelId) -> SendOptions {
    if channel.0 == CHANNELS - 1 { SendOptions::reliable_ordered() } else { SendOptions::unreliable() }
}

/// Runs a server's process, if the arguments ask for it.
pub(crate) fn main(args: &[OsString]) -> Option<Result<(), String>> {
    let args: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let [MODE, name, number, slots, core] = args.as_slice() else { return None };
    let does = Does::named(name, number.parse().ok()?)?;
    Some(run(does, slots.parse().ok()?, core.parse().ok()))
}

fn run(does: Does, slots: u32, core: Option<usize>) -> Result<(), String> {
    if let Some(core) = core {
        // Threads that are started later stay on the same core.
        host::pin_current_thread(core).map_err(|error| error.to_string())?;
    }
    if let Does::Plain(rate) = does {
        let pace = Pace::Every(Duration::from_secs(1) / rate.max(1));
        return serve_plain(pace, RECEIVE_BUFFER_BYTES).map_err(|error| error.to_string());
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_over);
    on_end_of_input(move || flag.store(true, Ordering::Release));
    let counts = match does {
        Does::Tick(rate) => tick(slots, Duration::from_secs(1) / rate.max(1), &is_over)?,
        Does::Handle(workers) => handle(slots, workers, &is_over)?,
        Does::Announce | Does::Plain(_) => announce(slots, &is_over)?,
    };
    print_counts(&counts).map_err(|error| error.to_string())
}

fn config(slots: u32, workers: Workers) -> ServerConfig {
    ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(workers)
        .connections(slots)
        // How busy a worker looks is a matter of who else has its core: here it takes all whom it has room for.
        .admission(AdmissionConfig::default().busy_max_percent(100))
        .receive_buffer_bytes(RECEIVE_BUFFER_BYTES)
}

fn tick(slots: u32, period: Duration, is_over: &AtomicBool) -> Result<Counts, String> {
    let mut server = Server::bind(config(slots, Workers::Inline)).map_err(|error| error.to_string())?;
    print_line(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    let tally = Tally::default();
    let (mut ticks, mut next) = (0_u64, clock::now());
    while !is_over.load(Ordering::Acquire) {
        ticks += 1;
        while answer_all(&mut server, &tally) >= MANY {}
        server.flush();
        next += period;
        let now = clock::now();
        clock::pause(next.saturating_duration_since(now));
        next = next.max(now);
    }
    let monitor = server.monitor();
    let mut counts = tally.counts(end(server, &monitor));
    counts.insert("ticks".to_owned(), ticks);
    Ok(counts)
}

/// Ends a server and answers what its workers counted until then: what the kernel dropped in front of its sockets is read for the
/// last time when they end.
fn end<S>(server: S, monitor: &Monitor) -> Counts {
    drop(server);
    // Nobody is there to answer any more, and nothing to wait for: the counts are as they were left.
    let survey = monitor.survey(SurveyOrder::RoundTrip, 0).wait(Duration::ZERO);
    let mut stats = Stats::default();
    stats.workers = survey.workers.into_iter().map(|worker| worker.stats).collect();
    counts_of(&stats)
}

/// Answers what came; answers how many events that were.
fn answer_all(server: &mut Server, tally: &Tally) -> usize {
    let mut count = 0;
    for event in server.poll() {
        count += 1;
        match event {
            Event::Message { peer, channel, bytes } => {
                let Some(answer) = tally.answer(&bytes) else { continue };
                tally.on_answered(server.send(peer, channel, answer, options(channel)).is_ok());
            }
            Event::Disconnected { .. } => Tally::add(&tally.left),
            _ => {}
        }
    }
    count
}

fn announce(slots: u32, is_over: &AtomicBool) -> Result<Counts, String> {
    let mut server = Server::bind(config(slots, Workers::Count(1))).map_err(|error| error.to_string())?;
    print_line(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    let mut announcer = Announcer::default();
    while !is_over.load(Ordering::Acquire) {
        clock::pause(ANNOUNCED_EVERY);
        announcer.announce(&mut server);
        server.flush();
    }
    let monitor = server.monitor();
    let mut counts = end(server, &monitor);
    counts.extend(announcer.counts());
    Ok(counts)
}

/// Answers on the worker.
struct Answers(Arc<Tally>);

impl Handler for Answers {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        let Some(answer) = self.0.answer(bytes) else { return };
        self.0.on_answered(context.send(peer, channel, &answer[..], options(channel)).is_ok());
    }
}

fn handle(slots: u32, workers: u16, is_over: &AtomicBool) -> Result<Counts, String> {
    let tally = Arc::<Tally>::default();
    let server = serve(config(slots, Workers::Count(workers)), |_| Answers(Arc::clone(&tally)));
    let server = server.map_err(|error| error.to_string())?;
    print_line(&server.local_addr().to_string()).map_err(|error| error.to_string())?;
    while !is_over.load(Ordering::Acquire) {
        clock::pause(LOOK_UP);
    }
    let monitor = server.monitor();
    let counts = end(server, &monitor);
    Ok(tally.counts(counts))
}

/// What came, and what became of it.
#[derive(Debug, Default)]
struct Tally {
    received: AtomicU64,
    /// Messages that ask for no answer.
    unanswered: AtomicU64,
    /// Answers that were not taken, for want of room.
    refused: AtomicU64,
    left: AtomicU64,
}

impl Tally {
    fn add(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The answer that a message asks for: as long as it says, and it begins as the message does.
    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        Self::add(&self.received);
        let Some(asked) = asked_bytes(bytes).filter(|asked| *asked > 0) else {
            Self::add(&self.unanswered);
            return None;
        };
        let mut answer = vec![0; asked];
        let head = HEAD_BYTES.min(asked).min(bytes.len());
        answer[..head].copy_from_slice(&bytes[..head]);
        Some(answer)
    }

    fn on_answered(&self, is_taken: bool) {
        if !is_taken {
            Self::add(&self.refused);
        }
    }

    fn counts(&self, mut counts: Counts) -> Counts {
        let own = [
            ("received", &self.received),
            ("unanswered", &self.unanswered),
            ("refused", &self.refused),
            ("left", &self.left),
        ];
        counts.extend(own.map(|(name, count)| (name.to_owned(), count.load(Ordering::Relaxed))));
        counts
    }
}
