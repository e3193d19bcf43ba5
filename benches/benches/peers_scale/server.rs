//! The servers: one that polls at a fixed rate, one with a handler on its workers, and the plain UDP server next to them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use drumfire::{
    ChannelId, Context, Event, Handler, Monitor, PeerId, SendOptions, Server, ServerConfig, Stats,
    SurveyOrder, Workers, serve,
};
use drumfire_benches::roles::{config, print_address};
use drumfire_benches::{EchoTally, Pace, Reply, print_counts, print_line, serve_plain};
use drumfire_tools::clock;

use crate::world::{CHANNELS, RELIABLE};

/// The role of [`tick`].
pub(crate) const TICK: &str = "tick-server";

/// The role of [`handler`].
pub(crate) const HANDLER: &str = "handler-server";

/// The role of [`plain`].
pub(crate) const PLAIN: &str = "plain-server";

/// Room for what all clients send while the server has no core.
const RECEIVE_BUFFER_BYTES: usize = 8 * 1_024 * 1_024;

/// The interval in which a server whose workers do everything checks whether it has to stop.
const LOOK_UP: Duration = Duration::from_millis(10);

/// Events of one poll after which there may be more that waited for room.
const MANY: usize = 512;

/// Makes answers and counts messages.
#[derive(Debug, Default)]
struct Answers {
    bytes: AtomicUsize,
    tally: EchoTally,
}

impl Answers {
    /// Takes the length of answers from lines of the standard input, and confirms each. Returns a flag that is set when the input ends.
    fn follow_input() -> (Arc<Self>, Arc<AtomicBool>) {
        let (answers, is_over) = (Arc::<Self>::default(), Arc::<AtomicBool>::default());
        let (of_thread, flag) = (Arc::clone(&answers), Arc::clone(&is_over));
        std::thread::spawn(move || {
            for line in io::stdin().lines().map_while(Result::ok) {
                of_thread.bytes.store(line.parse().unwrap_or(0), Ordering::Release);
                if print_line(&line).is_err() {
                    break;
                }
            }
            flag.store(true, Ordering::Release);
        });
        (answers, is_over)
    }

    /// Sends a message back, repeated up to the length of answers. Messages on further channels are a flood, and have no answer.
    fn on_message(
        &self,
        channel: ChannelId,
        message: &[u8],
        send: impl FnOnce(Vec<u8>, SendOptions) -> bool,
    ) {
        self.tally.on_received();
        if channel.0 < CHANNELS.into() {
            let bytes = self.bytes.load(Ordering::Relaxed);
            let is_reliable = channel == RELIABLE;
            let options =
                if is_reliable { SendOptions::reliable_ordered() } else { SendOptions::unreliable() };
            self.tally.on_answer(send(message.iter().copied().cycle().take(bytes).collect(), options));
        }
    }

    /// Ends the server and prints its counts. The drops in front of its sockets are read for the last time when these close.
    fn print<S>(&self, server: S, monitor: &Monitor) -> Result<(), String> {
        drop(server);
        // Without workers the survey has no reply to wait for: its counters are the last ones.
        let survey = monitor.survey(SurveyOrder::RoundTrip, 0).wait(Duration::ZERO);
        let mut stats = Stats::default();
        stats.workers = survey.workers.into_iter().map(|worker| worker.stats).collect();
        print_counts(&self.tally.counts(&stats)).map_err(|error| error.to_string())
    }
}

fn big_config(workers: &str, connections: &str) -> Result<ServerConfig, String> {
    Ok(config(workers, connections)?.receive_buffer_bytes(RECEIVE_BUFFER_BYTES))
}

fn interval(rate: &str) -> Result<Duration, String> {
    let rate: u32 = rate.parse().map_err(|_| "not a rate".to_owned())?;
    Duration::from_secs(1).checked_div(rate).ok_or_else(|| "not a rate".to_owned())
}

/// Runs a server on one thread that handles and sends all messages at a fixed rate: the service call of the report. The arguments
/// are the rate per second and the number of connections.
pub(crate) fn tick(args: &[&str]) -> Result<(), String> {
    let [rate, connections] = args else { return Err("not the arguments of a ticking server".to_owned()) };
    let (interval, config) = (interval(rate)?, big_config("1", connections)?.workers(Workers::Inline));
    let (answers, is_over) = Answers::follow_input();
    let mut server = Server::bind(config).map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    let mut next = clock::now();
    while !is_over.load(Ordering::Acquire) {
        while answer_all(&mut server, &answers) >= MANY {}
        server.flush();
        next += interval;
        let now = clock::now();
        clock::pause(next.saturating_duration_since(now));
        next = next.max(now);
    }
    let monitor = server.monitor();
    answers.print(server, &monitor)
}

/// Handles the pending events, and returns their number.
fn answer_all(server: &mut Server, answers: &Answers) -> usize {
    let mut count = 0;
    for event in server.poll() {
        count += 1;
        match event {
            Event::Message { peer, channel, bytes } => {
                let send = |answer, options| server.send(peer, channel, answer, options).is_ok();
                answers.on_message(channel, &bytes, send);
            }
            Event::Disconnected { .. } => answers.tally.on_left(),
            _ => {}
        }
    }
    count
}

/// Sends answers on the worker's thread.
struct AnswerHandler(Arc<Answers>);

impl Handler for AnswerHandler {
    type Note = ();

    fn on_message(&mut self, context: &mut Context<'_>, peer: PeerId, channel: ChannelId, bytes: &[u8]) {
        let send = |answer: Vec<u8>, options| context.send(peer, channel, &answer[..], options).is_ok();
        self.0.on_message(channel, bytes, send);
    }
}

/// Runs a server whose workers answer. The arguments are the numbers of workers and connections.
pub(crate) fn handler(args: &[&str]) -> Result<(), String> {
    let [workers, connections] = args else { return Err("not the arguments of a server".to_owned()) };
    let (answers, is_over) = Answers::follow_input();
    let server = serve(big_config(workers, connections)?, |_| AnswerHandler(Arc::clone(&answers)));
    let server = server.map_err(|error| error.to_string())?;
    print_address(server.local_addr())?;
    while !is_over.load(Ordering::Acquire) {
        clock::pause(LOOK_UP);
    }
    let monitor = server.monitor();
    answers.print(server, &monitor)
}

/// Runs a plain UDP server that polls at a fixed rate. The arguments are those of [`tick`].
pub(crate) fn plain(args: &[&str]) -> Result<(), String> {
    let [rate, _] = args else { return Err("not the arguments of a plain server".to_owned()) };
    serve_plain(Pace::Every(interval(rate)?), Reply::Asked, RECEIVE_BUFFER_BYTES)
}
