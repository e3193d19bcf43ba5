//! Fairness: what others have of it when one peer floods.
//!
//! The flood comes from the load's own thread, a train between two looks, so that the one who measures is as busy in the arm
//! beside it, whose trains go to a socket that nobody reads. Two floods: what a connection's congestion controller lets out, and
//! one without any. Silent connections show that keep-alives are answered all the while; the reliable quarter of what the
//! others say shows that what a full socket dropped is sent again.
//!
//! The socket that nobody reads overflows all the while, and so the system's count of drops would excuse whatever is missing. No
//! books are held against it here: datagrams are held against what the kernel dropped in front of the server's and the clients'
//! own sockets, and messages against what it dropped in front of all but that one.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use drumfire::{ChannelId, ClientConfig, Congestion, PeerId, SendOptions};
use drumfire_benches::{
    Arm, Child, Crowd, DropWatch, Extent, Goal, Measured, Results, Spread, cell, count, interleave,
    median_cell, micros,
};
use drumfire_socket::{
    DropMeter, FlushEnd, GroupConfig, ReuseportGroup, SendBatch, SendMode, Sender, Socket,
};
use drumfire_tools::clock;
use drumfire_tools::report::Report;
use drumfire_tools::table::{Align, TextTable};

use crate::Plan;
use crate::books::{self, Closed};
use crate::drive::{Drive, Load};
use crate::ends::{Ends, Players};
use crate::message::Head;
use crate::round::{self, Beside, Row};
use crate::server::{Does, key};
use crate::show::note;

/// Of each of the others.
const PER_SECOND: u64 = 20;

/// Bytes of an answer.
const DOWN_BYTES: u16 = 64;

/// Connections that say nothing.
const SILENT: u32 = 16;

/// A message of the flood fills a datagram.
const FLOOD_BYTES: usize = 1_000;

/// Messages between two looks at the others' sockets.
const TRAIN: usize = 32;

/// Bytes of a flood's datagram that goes nowhere: header, message and tag.
const DATAGRAM_BYTES: usize = FLOOD_BYTES + 32;

/// No controller holds it back.
const LINE_RATE: Congestion = Congestion::Fixed { bytes_per_second: 1 << 36 };

/// A connection that is not made in this time will not be.
const PATIENCE: Duration = Duration::from_secs(10);

/// Others' p99 over that without a flood.
const P99_RATIO: f64 = 1.05;

const JAIN_LEAST: f64 = 0.99;

const ROW: Row = Row { who: "drumfire", slots: 1_024, has_one_thread: true };

/// Who floods whom.
enum Flood {
    Nobody,
    /// A socket that nobody reads.
    Sink(Box<Sink>),
    Connection(Box<Flooder>),
}

struct Sink {
    socket: Socket,
    sender: Sender,
    batch: SendBatch,
    sent: u64,
}

struct Flooder {
    crowd: Crowd,
    peer: PeerId,
    /// Messages for which the connection had no room.
    refused: u64,
}

/// What the kernel drops in front of all sockets but the one that nobody reads.
struct Elsewhere {
    all: DropWatch,
    /// Keeps that socket open. Its buffer fills once, and then the kernel drops.
    unread: RefCell<DropMeter>,
}

impl Elsewhere {
    fn begin(unread: DropMeter) -> Self {
        Self { all: DropWatch::begin(), unread: RefCell::new(unread) }
    }

    /// How many it dropped so far; none where it does not tell, so that nothing is excused.
    fn count(&self) -> u64 {
        let unread = self.unread.borrow_mut().read();
        unread.map_or(0, |queue| self.all.count().saturating_sub(queue.drops))
    }
}

impl Sink {
    /// A sink, and what meters the socket that nobody reads.
    fn new() -> Result<(Self, DropMeter), String> {
        let fail = |error: std::io::Error| format!("the sink: {error}");
        let group = ReuseportGroup::bind(&GroupConfig::new((Ipv4Addr::LOCALHOST, 0).into())).map_err(fail)?;
        let socket = Socket::connect(group.local_addr(), None).map_err(fail)?;
        let unread = group.into_sockets().pop().ok_or("the sink has no socket")?;
        let meter = unread.drop_meter().map_err(fail)?;
        let sender = Sender::new(SendMode::Gso);
        let batch = SendBatch::new(TRAIN, TRAIN * DATAGRAM_BYTES);
        Ok((Self { socket, sender, batch, sent: 0 }, meter))
    }

    fn train(&mut self) -> Result<(), String> {
        while self.batch.push(None, &[0x5a; DATAGRAM_BYTES]) {
            self.sent += 1;
        }
        match self.sender.flush(&mut self.socket, &mut self.batch, |_| {}) {
            FlushEnd::Sent => Ok(()),
            end => Err(format!("the sink takes no more: {end:?}")),
        }
    }
}

impl Flooder {
    fn connect(server: SocketAddr, congestion: Congestion) -> Result<Self, String> {
        let mut crowd = Crowd::bind_with(1, 1, &ClientConfig::default().congestion(congestion))?;
        let ramped = crowd.connect((server, key().public()), 1, 1, |_, _| {})?;
        let Some(&(_, peer)) = crowd.peers().first() else {
            return Err(format!("the flooder was not connected: {:?}", ramped.failed));
        };
        Ok(Self { crowd, peer, refused: 0 })
    }

    fn train(&mut self) -> Result<(), String> {
        // Nobody is asked to answer.
        let head = Head { ask: 0, place: 0, number: 0, due: 0 }.message();
        let mut message = vec![0x5a; FLOOD_BYTES];
        message[..head.len()].copy_from_slice(&head);
        let message = drumfire::Bytes::from(message);
        let Self { crowd, peer, refused } = self;
        let clients = crowd.socket(0).ok_or("the flooder has no socket")?;
        for _ in 0..TRAIN {
            match clients.send(*peer, ChannelId(0), message.clone(), SendOptions::unreliable()) {
                Ok(_) => {}
                Err(drumfire::SendError::Full) => *refused += 1,
                Err(error) => return Err(format!("the flooder: {error}")),
            }
        }
        clients.flush();
        crowd.look(|_, _| {});
        if crowd.ended() == 0 { Ok(()) } else { Err("the flooder was thrown out".to_owned()) }
    }
}

impl Flood {
    fn train(&mut self) -> Result<(), String> {
        match self {
            Self::Nobody => Ok(()),
            Self::Sink(sink) => sink.train(),
            Self::Connection(flooder) => flooder.train(),
        }
    }

    fn sent(&self) -> u64 {
        match self {
            Self::Nobody => 0,
            Self::Sink(sink) => sink.sent,
            Self::Connection(flooder) => flooder.crowd.carried().sent,
        }
    }

    /// A connection has its chores while others are measured.
    fn rest(&mut self) {
        if let Some(crowd) = self.crowd() {
            crowd.look(|_, _| {});
        }
    }

    /// Those whose datagrams the server takes.
    fn crowd(&mut self) -> Option<&mut Crowd> {
        match self {
            Self::Connection(flooder) => Some(&mut flooder.crowd),
            Self::Nobody | Self::Sink(_) => None,
        }
    }
}

/// One arm's windows beside their reports.
struct Window {
    beside: Beside,
    /// Datagrams of the flood, warm-up and settling included.
    flood: u64,
}

pub(crate) fn measure(plan: &Plan, results: &mut Results) -> Result<(), String> {
    let Plan { extent, cores, .. } = *plan;
    let (others, warm_up, rounds, counted) = match extent {
        Extent::Quick => (100, 0, 1, Duration::from_millis(300)),
        Extent::Default => (200, 1, 5, Duration::from_secs(1)),
        Extent::Full => (200, 1, 9, Duration::from_secs(3)),
    };
    let (server, address) = Does::Handle(1).start(ROW.slots, Some(cores.server))?;
    let [mut players, mut silent] = [Players::bind(address, others)?, Players::bind(address, SILENT)?];
    for (players, count) in [(&mut players, others), (&mut silent, SILENT)] {
        connect(players, count)?;
    }
    let (sink, unread) = Sink::new()?;
    let elsewhere = Elsewhere::begin(unread);
    let floods = [
        ("nobody floods", Flood::Nobody),
        ("trains to nobody", Flood::Sink(Box::new(sink))),
        ("floods as its controller lets it", connection(address, Congestion::default())?),
        ("floods at line rate", connection(address, LINE_RATE)?),
    ];
    let floods = floods.map(|(name, flood)| (name, RefCell::new(flood)));
    let world = RefCell::new((players, Drive::default()));
    let silent = RefCell::new(silent);
    let windows = [0; 4].map(|_| RefCell::new(Vec::new()));
    let load = Load { per_second: PER_SECOND, down_bytes: DOWN_BYTES, counted };
    let mut arms = Vec::new();
    for ((name, flood), windows) in floods.iter().zip(&windows) {
        let (server, world, silent, floods, elsewhere) = (&server, &world, &silent, &floods, &elsewhere);
        arms.push(Arm::new(*name, move || {
            let (players, drive) = &mut *world.borrow_mut();
            silent.borrow_mut().look(|_| {})?;
            floods.iter().for_each(|(_, flood)| flood.borrow_mut().rest());
            let before = flood.borrow().sent();
            let (train, drops) = (|| flood.borrow_mut().train(), || elsewhere.count());
            let (report, beside) = round::run_counting(ROW, server, drive, players, load, train, drops)?;
            windows.borrow_mut().push(Window { beside, flood: flood.borrow().sent() - before });
            Ok(report)
        }));
    }
    // Whoever floods keeps the core busy that others wait for: no round is void for it.
    let measured = interleave(arms, warm_up, rounds, false)?;
    let windows = windows.map(RefCell::into_inner);
    println!("  {others} others, {PER_SECOND}/s each, {DOWN_BYTES} B back; {SILENT} silent connections");
    show(&measured, &windows, results)?;
    let (mut players, _) = world.into_inner();
    let mut floods = floods.map(|(_, flood)| flood.into_inner());
    close(server, [&mut players, &mut silent.into_inner()], &mut floods, results)?;
    crate::turns::measure(extent, results)
}

/// Holds what all ends counted against each other.
fn close(
    server: Child,
    [others, silent]: [&mut Players; 2],
    floods: &mut [Flood],
    results: &mut Results,
) -> Result<(), String> {
    let answered = silent.carried().received;
    let ended = others.crowd.ended() + silent.crowd.ended();
    let crowds = [&mut others.crowd, &mut silent.crowd].into_iter();
    let mut crowds: Vec<&mut Crowd> = crowds.chain(floods.iter_mut().filter_map(Flood::crowd)).collect();
    let Closed { served, .. } = books::close(server, &mut crowds)?;
    let mut figure = |what: &str, value: u64, goal| {
        results.figure(format!("fair: {what}"), Some(value as f64), "", goal, "");
    };
    figure("messages that the server sent again", count(&served, "messages resent"), Goal::Shown);
    figure("datagrams that silent connections got", answered, Goal::Shown);
    figure("connections that ended", ended, Goal::AtMost(0.0));
    Ok(())
}

fn connection(server: SocketAddr, congestion: Congestion) -> Result<Flood, String> {
    Ok(Flood::Connection(Box::new(Flooder::connect(server, congestion)?)))
}

/// Connects so many.
pub(crate) fn connect(players: &mut Players, count: u32) -> Result<(), String> {
    let deadline = clock::now() + PATIENCE;
    for _ in 0..count {
        players.begin()?;
    }
    while players.ended_attempts() < u64::from(count) && clock::now() < deadline {
        players.flush()?;
        players.look(|_| {})?;
        clock::pause(Duration::from_micros(500));
    }
    let made = players.count();
    if made == count as usize {
        Ok(())
    } else {
        Err(format!("{made} of {count} connected: {:?}", players.failed))
    }
}

fn show(measured: &[Measured], windows: &[Vec<Window>], results: &mut Results) -> Result<(), String> {
    let mut table = TextTable::new(&[
        ("one peer", Align::Left),
        ("its datagrams/s", Align::Right),
        ("others' p50 us", Align::Right),
        ("p99 us", Align::Right),
        ("messages late by, us", Align::Right),
        ("Jain index", Align::Right),
        ("others' lost", Align::Right),
        ("server, % of a core", Align::Right),
        ("load, % of a core", Align::Right),
    ])
    .indented(2);
    let p99 = |arm: &Measured| arm.spread(|report| micros(report, |latency| latency.p99));
    for (arm, windows) in measured.iter().zip(windows) {
        for round in &arm.rounds {
            results.run(&format!("fair: {}", arm.name), round)?;
        }
        let counted = || windows.iter().rev().take(arm.rounds.len());
        let of = |value: &dyn Fn(&Window) -> f64| Spread::of(counted().map(value));
        let jain = Spread::of(counted().filter_map(|window| window.beside.tally.jain_index()));
        // The flood goes on for the warm-up too.
        let rate = |window: &Window| window.flood as f64 / (window.beside.tally.window.as_secs_f64() + 0.2);
        table.row([
            arm.name.clone(),
            median_cell(of(&rate), 0),
            median_cell(arm.spread(|report| micros(report, |latency| latency.p50)), 0),
            cell(p99(arm), 0),
            median_cell(of(&|window| window.beside.tally.delay.value_at_quantile(0.99) as f64 / 1e3), 0),
            median_cell(jain, 4),
            counted().map(|window| window.beside.tally.lost).sum::<u64>().to_string(),
            median_cell(of(&|window| window.beside.core_percent()), 1),
            median_cell(of(&|window| window.beside.load_percent()), 0),
        ]);
        let name = format!("fair: {}: Jain index of others' throughput", arm.name);
        let least = jain.map(|jain| jain.least);
        results.figure(name, least, "", Goal::AtLeast(JAIN_LEAST), "the least of all rounds");
    }
    println!("{}", table.render());
    let [nobody, sink, greedy, line] = measured else { return Ok(()) };
    let shown = Goal::Shown;
    let goals = [
        (greedy, nobody, shown),
        (greedy, sink, shown),
        (line, nobody, shown),
        (line, sink, Goal::AtMost(P99_RATIO)),
    ];
    for (flood, calm, goal) in goals {
        let name = format!("fair: others' p99, {} over {}", flood.name, calm.name);
        results.spread(name, p99_ratio(flood, calm), "x", goal, &note(&[flood, calm]));
    }
    Ok(())
}

/// Others' p99 in each round over that of the round beside it; `None` when some round has none.
fn p99_ratio(flood: &Measured, calm: &Measured) -> Option<Spread> {
    let p99 = |report: &Report| micros(report, |latency| latency.p99);
    let pairs = flood.rounds.iter().zip(&calm.rounds);
    let ratios: Option<Vec<f64>> = pairs.map(|(flood, calm)| Some(p99(flood)? / p99(calm)?)).collect();
    Spread::of(ratios?)
}
