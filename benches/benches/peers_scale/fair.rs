//! Fairness: what others have of it when one peer floods.
//!
//! The flood comes from the load's own thread, a train between two looks, so that the one who measures is as busy in the arm
//! beside it, whose trains go to a socket that nobody reads. Two floods: what a connection's congestion controller lets out, and
//! one without any. Silent connections show that keep-alives are answered all the while; the reliable quarter of what the
//! others say shows that what a full socket dropped is sent again.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use drumfire::{ChannelId, ClientConfig, Clients, ClientsEvent, Congestion, PeerId, SendOptions};
use drumfire_benches::{
    Arm, DropWatch, Extent, Goal, Measured, Results, Spread, cell, close_books, count, counts_text,
    interleave, median_cell, micros, settle,
};
use drumfire_socket::{FlushEnd, SendBatch, SendMode, Sender, Socket};
use drumfire_tools::clock;
use drumfire_tools::table::{Align, TextTable};

use crate::Plan;
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
    /// Its buffer fills once, and then the kernel drops.
    _unread: UdpSocket,
}

struct Flooder {
    clients: Clients,
    peer: PeerId,
    /// Messages for which the connection had no room.
    refused: u64,
}

impl Sink {
    fn new() -> Result<Self, String> {
        let fail = |error: std::io::Error| format!("the sink: {error}");
        let unread = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(fail)?;
        let socket = Socket::connect(unread.local_addr().map_err(fail)?, None);
        Ok(Self {
            socket: socket.map_err(|error| format!("the sink: {error}"))?,
            sender: Sender::new(SendMode::Gso),
            batch: SendBatch::new(TRAIN, TRAIN * DATAGRAM_BYTES),
            sent: 0,
            _unread: unread,
        })
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
        let config = ClientConfig::default().congestion(congestion);
        let clients = Clients::bind(([127, 0, 0, 1], 0).into(), 1, &config);
        let mut clients = clients.map_err(|error| error.to_string())?;
        let peer = clients.connect(server, key().public()).map_err(|error| error.to_string())?;
        let deadline = clock::now() + PATIENCE;
        while clock::now() < deadline {
            clients.wait(Duration::from_millis(1));
            if clients.poll().any(|event| matches!(event, ClientsEvent::Connected { .. })) {
                return Ok(Self { clients, peer, refused: 0 });
            }
        }
        Err("the flooder was not connected".to_owned())
    }

    fn train(&mut self) -> Result<(), String> {
        // Nobody is asked to answer.
        let head = Head { ask: 0, place: 0, number: 0, due: 0 }.message();
        let mut message = vec![0x5a; FLOOD_BYTES];
        message[..head.len()].copy_from_slice(&head);
        let message = drumfire::Bytes::from(message);
        for _ in 0..TRAIN {
            match self.clients.send(self.peer, ChannelId(0), message.clone(), SendOptions::unreliable()) {
                Ok(_) => {}
                Err(drumfire::SendError::Full) => self.refused += 1,
                Err(error) => return Err(format!("the flooder: {error}")),
            }
        }
        self.clients.flush();
        let is_over = self.clients.poll().any(|event| matches!(event, ClientsEvent::Disconnected { .. }));
        if is_over { Err("the flooder was thrown out".to_owned()) } else { Ok(()) }
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
            Self::Connection(flooder) => flooder.clients.stats().sent.datagrams,
        }
    }

    /// A connection has its chores while others are measured.
    fn rest(&mut self) {
        if let Self::Connection(flooder) = self {
            flooder.clients.poll().for_each(drop);
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
    let dropped = DropWatch::begin();
    let (server, address) = Does::Handle(1).start(ROW.slots, Some(cores.server))?;
    let [mut players, mut silent] = [Players::bind(address, others)?, Players::bind(address, SILENT)?];
    for (players, count) in [(&mut players, others), (&mut silent, SILENT)] {
        connect(players, count)?;
    }
    let floods = [
        ("nobody floods", Flood::Nobody),
        ("trains to nobody", Flood::Sink(Box::new(Sink::new()?))),
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
        let (server, world, silent, floods) = (&server, &world, &silent, &floods);
        arms.push(Arm::new(*name, move || {
            let (players, drive) = &mut *world.borrow_mut();
            silent.borrow_mut().look(|_| {})?;
            floods.iter().for_each(|(_, flood)| flood.borrow_mut().rest());
            let before = flood.borrow().sent();
            let train = || flood.borrow_mut().train();
            let (report, beside) = round::run(ROW, server, drive, players, load, train)?;
            windows.borrow_mut().push(Window { beside, flood: flood.borrow().sent() - before });
            Ok(report)
        }));
    }
    // Whoever floods keeps the core busy that others wait for: no round is void for it.
    let measured = interleave(arms, warm_up, rounds, false)?;
    let windows = windows.map(RefCell::into_inner);
    println!("  {others} others, {PER_SECOND}/s each, {DOWN_BYTES} B back; {SILENT} silent connections");
    show(&measured, &windows, results)?;
    let answered = silent.borrow().carried().received;
    let sent = floods.iter().skip(2).map(|(_, flood)| flood.borrow().sent()).sum::<u64>();
    let sent = sent + world.borrow().0.carried().sent + silent.borrow().carried().sent;
    settle();
    let drops = dropped.count();
    let served = server.finish_counts()?;
    println!("  books     {}", close_books(sent, &served, drops)?);
    println!("  server    {}", counts_text(&served));
    let mut figure = |what: &str, value: u64, goal| {
        results.figure(format!("fair: {what}"), Some(value as f64), "", goal, "");
    };
    figure("messages that the server sent again", count(&served, "messages resent"), Goal::Shown);
    figure("datagrams that silent connections got", answered, Goal::Shown);
    let ended = world.borrow().0.crowd.ended() + silent.borrow().crowd.ended();
    figure("connections that ended", ended, Goal::AtMost(0.0));
    crate::turns::measure(extent, results)
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
        ]);
        let name = format!("fair: {}: Jain index of others' throughput", arm.name);
        let least = jain.map(|jain| jain.least);
        results.figure(name, least, "", Goal::AtLeast(JAIN_LEAST), "the least of all rounds");
    }
    println!("{}", table.render());
    let [nobody, sink, greedy, line] = measured else { return Ok(()) };
    for (flood, calm) in [(greedy, nobody), (greedy, sink), (line, sink)] {
        let ratio = p99(flood).zip(p99(calm)).map(|(flood, calm)| flood.median / calm.median);
        let name = format!("fair: others' p99, {} over {}", flood.name, calm.name);
        let is_goal = std::ptr::eq(flood, line);
        let goal = if is_goal { Goal::AtMost(P99_RATIO) } else { Goal::Shown };
        results.figure(name, ratio, "x", goal, &note(&[flood, calm]));
    }
    Ok(())
}
