//! The message rate while the number of worker threads changes.
//!
//! A server with four sockets echoes reliable messages, and its threads become four, two, and one in turn. The lowest tenth of a
//! second after a change is compared with the lowest one before it. Nothing is pinned. With fewer cores than threads, no figure here is
//! a throughput.

use std::time::Duration;

use drumfire::{Access, Control, SendOptions, ServerConfig, Workers};
use drumfire_benches::roles::{Echo, key, serve_by_polling};
use drumfire_benches::traffic::{Generator, Shape, Traffic};
use drumfire_benches::{
    Bench, Child, Counts, Crowd, EchoCounts, Goal, Joining, Spread, Window, close, close_server, count,
    print_json,
};
use drumfire_tools::clock;

/// The role of the server.
pub(crate) const SHARDS: &str = "shards-server";

const SOCKETS: u16 = 4;

/// The number of threads before the first change, and after each change.
const STAGES: [u16; 4] = [1, 4, 2, 1];

/// The time between two changes in which the traffic settles.
const PAUSE: Duration = Duration::from_millis(200);

/// Messages that come back are counted in windows of this length, ten before a change and ten after it.
const TENTH: Duration = Duration::from_millis(100);
const TENTHS: usize = 10;

/// The interval in which the server checks whether all shards moved.
const LOOK_UP: Duration = Duration::from_millis(1);

/// The time within which shards move.
const MOVED_WITHIN: Duration = Duration::from_secs(20);

/// Players per client socket. Connections use the sockets in turn, and so do their messages. Packets of two players of a socket are
/// therefore never in one train.
const PER_SOCKET: u32 = 10;

/// Messages per player and second.
const MESSAGES_PER_SECOND: u64 = 20;

const MESSAGE_BYTES: usize = 32;

/// Players connected per second.
const RAMP_PER_SECOND: u64 = 1_000;

/// A message that leaves later than this after its time makes a change void, because the players had no core.
const LATE_NS: u64 = 5_000_000;

/// Runs the server. Each line of its input is a number of threads. It prints the time until all shards moved, and finally its counts.
pub(crate) fn serve(_: &[&str]) -> Result<Counts, String> {
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), key(), Access::Open)
        .workers(Workers::Shards { sockets: SOCKETS, threads: STAGES[0] });
    let mut echo = Echo::new(SendOptions::reliable_ordered());
    echo.on_order = Some(on_order);
    serve_by_polling(config, &echo, None)
}

/// Moves the shards on a thread of its own, because the server goes on.
fn on_order(control: &Control, threads: String) {
    let control = control.clone();
    std::thread::spawn(move || {
        let moved = move_shards(&control, &threads).and_then(|moved| print_json(&moved));
        moved.unwrap_or_else(|line| eprintln!("error: {line}"));
    });
}

/// Changes the number of threads. Returns the nanoseconds until all shards moved.
fn move_shards(control: &Control, threads: &str) -> Result<u64, String> {
    let threads: u16 = threads.parse().map_err(|_| format!("{threads}: not a number of threads"))?;
    let start = clock::now();
    control.set_threads(threads).map_err(|error| error.to_string())?;
    loop {
        let shards = control.stats().threads;
        if shards.len() == usize::from(threads) && shards.iter().sum::<u16>() == SOCKETS {
            return Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        if start.elapsed() > MOVED_WITHIN {
            return Err(format!("shards did not move within {MOVED_WITHIN:?}"));
        }
        clock::pause(LOOK_UP);
    }
}

/// One change of the number of threads.
struct Change {
    /// The deepest dips of the tenths before and after the change below the mean rate before it, in percent.
    dips: [f64; 2],
    moved_ms: f64,
    /// Whether the players had no core.
    is_void: bool,
}

/// Measures a change to this number of threads. `all` sums up the messages without room and those that came twice.
fn change(
    server: &Child,
    players: &mut Generator<Crowd>,
    threads: u16,
    all: &mut EchoCounts,
) -> Result<Change, String> {
    let mut is_void = false;
    let mut run = |length| -> Result<f64, String> {
        players.run(Window::beginning_at(clock::host_ns(), length), |_| Ok(()))?;
        let counts = players.tally().finish();
        is_void |= length == TENTH && counts.delay.is_some_and(|delay| delay.max > LATE_NS);
        all.refused += counts.refused;
        all.strangers += counts.strangers;
        Ok(counts.echoed as f64)
    };
    run(PAUSE)?;
    let mut tenths = || (0..TENTHS).map(|_| run(TENTH)).collect::<Result<Vec<f64>, _>>();
    let before = tenths()?;
    server.send_line(&threads.to_string())?;
    let after = tenths()?;
    let moved_ms = server.read::<u64>()? as f64 / 1e6;
    let mean = before.iter().sum::<f64>() / before.len() as f64;
    let least = |tenths: Vec<f64>| tenths.into_iter().fold(f64::INFINITY, f64::min);
    let dips = [before, after].map(|tenths| (1.0 - least(tenths) / mean).max(0.0) * 100.0);
    Ok(Change { dips, moved_ms, is_void })
}

pub(crate) fn run(bench: &mut Bench) -> Result<(), String> {
    let (players, rounds) = bench.extent().pick((200, 1), (1_000, 5), (1_000, 20));
    let (server, to) = Child::server(SHARDS, None, &[])?;
    let joining = Joining { options: SendOptions::reliable_ordered(), ..Joining::new(to) };
    let mut crowd = Crowd::bind(joining, players / PER_SOCKET, players)?;
    crowd.connect(players.into(), RAMP_PER_SECOND, |_, _| {})?.check()?;
    let shape = Shape::Open { rate: MESSAGES_PER_SECOND };
    let traffic = Traffic { may_lose: false, ..Traffic::echo(shape, players as usize, MESSAGE_BYTES) };
    let mut generator = Generator::over(traffic, vec![crowd]);
    let mut arms = [const { Vec::new() }; STAGES.len() - 1];
    let mut all = EchoCounts::default();
    for _ in 0..rounds {
        for (arm, threads) in arms.iter_mut().zip(STAGES.into_iter().skip(1)) {
            arm.push(change(&server, &mut generator, threads, &mut all)?);
        }
    }
    let settled = generator.settle()?;
    let mut crowd = generator.into_clients().pop().ok_or("no crowd")?;
    // The server ends all connections when it ends.
    let ended = crowd.ended();
    let served = close_server(server, &mut [&mut crowd])?;
    close([
        ("messages without room", all.refused + count(&served, "refused"), 0..=0),
        ("messages that came twice", all.strangers.max(settled.strangers), 0..=0),
    ])?;
    for (arm, stages) in arms.iter().zip(STAGES.windows(2)) {
        let name = format!("{players} players, {} -> {} threads", stages[0], stages[1]);
        let valid = || arm.iter().filter(|change| !change.is_void);
        let before = Spread::of(valid().map(|change| change.dips[0])).map_or(0.0, |dip| dip.most);
        let after = Spread::of(valid().map(|change| change.dips[1])).map(|dip| dip.most);
        let void = arm.len() - valid().count();
        let note = format!("{before:.1} % in a second without a change; {void} of {} void", arm.len());
        bench.results.figure(format!("{name}: deepest dip of 100 ms"), after, "%", Goal::Shown, &note);
        let moved = Spread::of(arm.iter().map(|change| change.moved_ms));
        bench.results.spread(format!("{name}: until all moved"), moved, "ms", Goal::Shown, "");
    }
    let name = format!("{players} players while threads come and go");
    bench.results.none_of(format!("{name}: connections ended"), ended);
    bench.results.none_of(format!("{name}: messages lost"), settled.lost);
    match (ended, settled.lost) {
        (0, 0) => Ok(()),
        (ended, lost) => Err(format!("{ended} connections ended, {lost} messages were lost")),
    }
}
