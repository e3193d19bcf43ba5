//! BenchEcho and BenchRate, the two loads of nbio's benchmark, over thousands of connections: drumfire with both suites, beside a
//! raw UDP echo and nbio itself in the same run.
//!
//! A handler answers in the loop that reads, as nbio's does, and what comes gathers for a millisecond, of the tens or hundreds that a
//! message of so many connections takes. The tick face, notified of each datagram, is there for flush at each tick and flush at once.
//!
//! The clients run in this process on a core of its own; the server's process alone is counted. Rounds are interleaved: in each,
//! every server is started once, all connect to it, and it carries all loads, of which those with both ways to flush follow each
//! other, in an order that changes from round to round. No round is dropped for warming up: each session warms up by itself,
//! before every window. A session takes so long that one the machine disturbed is repeated twice at most; figures of what stays
//! disturbed say so.

mod connecting;
mod fleet;
mod line;
mod meter;
mod nbio;
mod round;
mod session;
mod show;
mod websocket;

use std::time::Duration;

use drumfire_benches::{Cores, Extent, Options, Results};
use drumfire_tools::host;

use crate::peer::{Peer, Staffing};
use crate::server::Order;
use session::{Run, Session, session};

/// The names of both parts.
pub(crate) const PARTS: [&str; 2] = [Load::Echo.name(), Load::Rate.name()];

/// Descriptors for the connections of nbio's clients, what watches them, and everything else.
const OPEN_FILES: u64 = 16_384;

/// How often a round that the machine disturbed is repeated.
const REPEATS_MAX: u32 = 2;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Each connection has one message out all the time.
    Echo,
    /// Each connection has turns at fixed times.
    Rate,
}

impl Load {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Echo => "BenchEcho",
            Self::Rate => "BenchRate",
        }
    }
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The raw echo, or drumfire.
    Udp(Peer),
    /// nbio with WebSockets over TCP, not encrypted.
    Nbio,
}

impl Subject {
    const RAW: Self = Self::Udp(Peer::Raw);

    /// The floor, drumfire, and nbio.
    fn all() -> Vec<Self> {
        Peer::all_of_many().into_iter().map(Self::Udp).chain([Self::Nbio]).collect()
    }

    /// Whether it is the one of drumfire that is held against nbio: with the suite that both ends take by themselves.
    fn is_held_against_nbio(self) -> bool {
        matches!(self, Self::Udp(Peer::Drumfire(Staffing::Gathered, _, suite)) if suite == Peer::fast())
    }

    /// Whether its server is told when to flush.
    const fn is_flushed(self) -> bool {
        matches!(self, Self::Udp(Peer::Drumfire(Staffing::Inline, ..)))
    }

    pub(crate) fn name(self) -> String {
        match self {
            Self::Udp(peer) => peer.name(),
            Self::Nbio => format!("nbio {} non-blocking, not encrypted", drumfire_benches::nbio::version()),
        }
    }

    /// Whether a message of it may never arrive.
    pub(crate) const fn may_lose(self) -> bool {
        match self {
            Self::Udp(peer) => peer.may_lose(),
            Self::Nbio => false,
        }
    }

    /// Whether its server has one busy thread.
    pub(crate) const fn has_one_thread(self) -> bool {
        match self {
            Self::Udp(peer) => peer.has_one_thread(),
            Self::Nbio => false,
        }
    }
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) connections: usize,
    pub(crate) echoes: u64,
    /// Turns of each connection in a second.
    pub(crate) rate: u64,
    pub(crate) warm_up: Duration,
    pub(crate) counted: Duration,
    rounds: usize,
}

impl Sizes {
    fn of(extent: Extent, connections: Option<u32>) -> Self {
        let (some, echoes, millis, rounds) = match extent {
            Extent::Quick => (256, 8_192, 250, 1),
            Extent::Default => (10_000, 200_000, 2_000, 5),
            Extent::Full => (10_000, 2_000_000, 10_000, 5),
        };
        let connections = connections.map_or(some, |connections| connections as usize);
        let warm_up = Duration::from_millis(if matches!(extent, Extent::Quick) { 50 } else { 500 });
        Self { connections, echoes, rate: 200, warm_up, counted: Duration::from_millis(millis), rounds }
    }

    /// Echoes that do not count.
    pub(crate) const fn warm_up_echoes(&self) -> u64 {
        5 * self.connections as u64
    }

    fn words(&self) -> String {
        let Self { connections, echoes, rate, counted, rounds, .. } = *self;
        format!(
            "{connections} connections, {} B, {rounds} round(s); BenchEcho {echoes} echoes after {} that do not count; BenchRate {rate}/s \
             of each offered for {counted:?}",
            line::PAYLOAD_BYTES,
            self.warm_up_echoes(),
        )
    }
}

/// Measures the parts that are wanted.
///
/// # Errors
///
/// What failed, or whose books do not close.
pub(crate) fn bench(
    options: &Options,
    connections: Option<u32>,
    cores: Cores,
    results: &mut Results,
) -> Result<(), String> {
    let loads: Vec<Load> =
        [Load::Echo, Load::Rate].into_iter().filter(|load| options.wants(load.name())).collect();
    if loads.is_empty() {
        return Ok(());
    }
    // Where it is not allowed, connecting says so.
    let _ = host::raise_open_files(OPEN_FILES);
    let sizes = Sizes::of(options.extent, connections);
    println!("\nnbio's loads: {}", sizes.words());
    let program = nbio::program(options.extent);
    match &program {
        Ok(_) => println!("go        {}", drumfire_benches::nbio::go_version()?),
        Err(why) => println!("nbio      {why}"),
    }
    let (mut rounds, mut made) = (Vec::new(), Vec::new());
    let mut repeats = 0;
    for round in 0..sizes.rounds {
        for subject in Subject::all() {
            if subject == Subject::Nbio && program.is_err() {
                continue;
            }
            let runs = runs(&loads, subject, round);
            let may_repeat = options.extent != Extent::Quick;
            let (ran, more) = undisturbed(may_repeat, || {
                let program = program.as_deref().ok();
                session(cores, subject, sizes, &runs, program)
                    .map_err(|line| format!("{}: {line}", subject.name()))
            })?;
            repeats += more;
            rounds.extend(ran.rounds);
            made.push((subject, ran.connecting));
        }
    }
    if repeats > 0 {
        println!("void      {repeats} sessions that the machine disturbed were repeated");
    }
    let missing = program.as_ref().err().map_or("", String::as_str);
    println!("\n{}", connecting::report(&made, results));
    for load in &loads {
        println!("\n{}", show::tables(*load, &rounds, missing));
        show::columns(*load, &rounds, results);
    }
    // Those with goals stand last in the table.
    for load in &loads {
        show::figures(*load, &rounds, missing, results);
    }
    for round in &rounds {
        let name = format!("{}: {}", round.load.name(), show::row_name(round.subject, round.flush));
        results.run(&name, &round.report)?;
    }
    Ok(())
}

/// The runs of one session; what is compared follows each other, and takes turns in coming first.
fn runs(loads: &[Load], subject: Subject, round: usize) -> Vec<Run> {
    let both = [Order::FlushAtTick, Order::FlushNow];
    let flushes = match subject.is_flushed() {
        true if round % 2 == 1 => vec![both[1], both[0]],
        true => both.to_vec(),
        false => vec![Order::FlushAtTick],
    };
    loads.iter().flat_map(|load| flushes.iter().map(|flush| Run { load: *load, flush: *flush })).collect()
}

/// Repeats a session that the machine disturbed, a few times at most; answers how often too.
fn undisturbed(
    may_repeat: bool,
    mut session: impl FnMut() -> Result<Session, String>,
) -> Result<(Session, u32), String> {
    let mut repeats = 0;
    loop {
        let ran = session()?;
        let is_void = ran.rounds.iter().any(|round| round.report.is_void());
        if !is_void || !may_repeat || repeats == REPEATS_MAX {
            return Ok((ran, repeats));
        }
        repeats += 1;
    }
}
