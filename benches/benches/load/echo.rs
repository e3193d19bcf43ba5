//! As many clients as the server has room for, each with ten messages a second there and back, and one more.

use std::collections::HashMap;
use std::time::Duration;

use drumfire::{Clients, ClientsEvent, ConnectError, PeerId, RefuseReason, SendError, SendOptions};
use drumfire_benches::{
    Child, Crowd, DropWatch, Extent, Goal, Results, Spread, Used, Watch, close_books, count, counts_text,
};
use drumfire_tools::clock;

use crate::server::{CHANNEL, Does, key};

/// Of each client.
const MESSAGES_PER_SECOND: u64 = 10;

const MESSAGE_BYTES: usize = 64;

/// Connections begun in a second, for each worker: a server takes 2,000.
const RAMP_PER_SECOND: u64 = 1_600;

/// The load runs for so long before it is counted.
const WARM_UP: Duration = Duration::from_millis(500);

/// What is still out at the end has this long to come back.
const SETTLE: Duration = Duration::from_secs(2);

/// The one more hears why it may not come in within this time, or it failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of the messages.
#[derive(Default)]
struct Books {
    sent: u64,
    back: u64,
    /// For which a client's connection had no room.
    refused: u64,
    /// Turns that were left out, because this process had no core in time.
    skipped: u64,
    /// Messages that came and were not on their way.
    strangers: u64,
}

struct Players {
    crowd: Crowd,
    /// The next message of each, and how many of them are not back.
    out: Vec<(u64, u64)>,
    places: HashMap<(usize, PeerId), usize>,
    books: Books,
    turn: usize,
    /// Datagrams of the one for whom there was no room.
    sent_by_one_more: u64,
}

pub(crate) fn measure(
    extent: Extent,
    clients: u32,
    workers: u32,
    results: &mut Results,
) -> Result<(), String> {
    let (windows, window) = match extent {
        Extent::Quick => (1, Duration::from_secs(2)),
        Extent::Default => (5, Duration::from_secs(3)),
        Extent::Full => (5, Duration::from_secs(10)),
    };
    let dropped = DropWatch::begin();
    let server = Does::Echo.start(workers, clients)?;
    let address = server.address()?;
    let to = (address, key().public());
    let mut crowd = crate::crowd(clients)?;
    let per_second = RAMP_PER_SECOND * u64::from(workers);
    let ramped = crowd.connect(to, clients.into(), per_second, |_, _| {})?;
    crate::show_ramp(&ramped, results, "echo");
    let mut players = Players::new(crowd);
    players.play(WARM_UP)?;
    let mut used = Vec::new();
    for _ in 0..windows {
        let (watch, before) = (Watch::begin(server.id()), players.books.sent);
        players.play(window)?;
        let cpu = watch.used().ok_or("the server's clock cannot be read")?;
        used.push((cpu, players.books.sent - before));
    }
    if ramped.failed_count() == 0 {
        players.one_more(to, results)?;
    }
    players.settle();
    let drops = dropped.count();
    players.close(server, drops, results)?;
    show_cpu(&used, clients, results);
    crate::all_connected(&ramped)
}

/// Of each window: what the server used, and how many messages were sent to it.
fn show_cpu(used: &[(Used, u64)], clients: u32, results: &mut Results) {
    let offered = u64::from(clients) * MESSAGES_PER_SECOND;
    let sent = |(used, sent): &(Used, u64)| *sent as f64 / used.window.as_secs_f64();
    let note = |spread: Option<Spread>| {
        spread.map_or_else(String::new, |spread| format!("{:.1} to {:.1}", spread.least, spread.most))
    };
    let mut figure = |name: &str, unit, of: &dyn Fn(&(Used, u64)) -> f64| {
        let spread = Spread::of(used.iter().map(of));
        results.figure(format!("echo: {name}"), spread.map(|s| s.median), unit, Goal::Shown, &note(spread));
    };
    figure(&format!("messages there and back, of {offered} offered"), "/s", &sent);
    figure("server", "% of a core", &|(used, _)| used.core_share() * 100.0);
    figure("CPU per message", "ns", &|window| window.0.core_share() * 1e9 / sent(window));
}

impl Players {
    fn new(crowd: Crowd) -> Self {
        let places = crowd.peers().iter().enumerate().map(|(place, peer)| (*peer, place)).collect();
        let out = vec![(0, 0); crowd.peers().len()];
        Self { crowd, out, places, books: Books::default(), turn: 0, sent_by_one_more: 0 }
    }

    /// Lets each say something ten times a second, all evenly over time.
    fn play(&mut self, time: Duration) -> Result<(), String> {
        let rate = self.out.len() as u64 * MESSAGES_PER_SECOND;
        let (start, mut said) = (clock::now(), 0);
        loop {
            let elapsed = clock::now().duration_since(start);
            if elapsed >= time {
                return Ok(());
            }
            let due = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX).saturating_mul(rate) / 1_000_000;
            // Nobody says twice as much because nobody was there to say it.
            if due - said > self.out.len() as u64 {
                self.books.skipped += due - said;
                said = due;
            }
            while said < due {
                self.say()?;
                said += 1;
            }
            self.crowd.flush();
            self.listen();
            self.check()?;
        }
    }

    fn check(&self) -> Result<(), String> {
        let ended = self.crowd.ended();
        if ended == 0 { Ok(()) } else { Err(format!("{ended} connections ended")) }
    }

    /// The next one says something.
    fn say(&mut self) -> Result<(), String> {
        let place = self.turn;
        self.turn = (self.turn + 1) % self.out.len();
        let (socket, peer) = self.crowd.peers()[place];
        let clients: &mut Clients = self.crowd.socket(socket).ok_or("no such socket")?;
        let (next, waiting) = &mut self.out[place];
        let mut message = vec![0x6d; MESSAGE_BYTES];
        message[..8].copy_from_slice(&next.to_be_bytes());
        match clients.send(peer, CHANNEL, message, SendOptions::unreliable()) {
            Ok(_) => {
                (*next, *waiting) = (*next + 1, *waiting + 1);
                self.books.sent += 1;
            }
            Err(SendError::Full) => self.books.refused += 1,
            Err(error) => return Err(format!("a client: {error}")),
        }
        Ok(())
    }

    fn listen(&mut self) {
        let Self { crowd, out, places, books, .. } = self;
        crowd.look(|socket, event| {
            let ClientsEvent::Message { peer, bytes, .. } = event else { return };
            let waiting = places.get(&(socket, *peer)).map(|place| &mut out[*place]);
            let number = bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            match waiting.zip(number).filter(|((next, waiting), number)| number < next && *waiting > 0) {
                Some(((_, waiting), _)) => {
                    *waiting -= 1;
                    books.back += 1;
                }
                None => books.strangers += 1,
            }
        });
    }

    /// Waits for what is still out.
    fn settle(&mut self) {
        let deadline = clock::now() + SETTLE;
        while self.books.back < self.books.sent && clock::now() < deadline {
            self.crowd.flush();
            self.listen();
        }
    }

    /// Somebody comes for whom there is no room.
    fn one_more(
        &mut self,
        to: (std::net::SocketAddr, drumfire::ServerPublicKey),
        results: &mut Results,
    ) -> Result<(), String> {
        let mut another = Crowd::bind(1, 1)?;
        let clients = another.socket(0).ok_or("no such socket")?;
        let (start, deadline) = (clock::now(), clock::now() + PATIENCE);
        clients.connect(to.0, to.1).map_err(|error| error.to_string())?;
        let mut answer = None;
        while answer.is_none() && clock::now() < deadline {
            // The others play on meanwhile.
            self.play(Duration::from_millis(1))?;
            another.look(|_, event| answer = Some(event.clone()));
        }
        let took = clock::now().duration_since(start);
        self.sent_by_one_more = another.carried().sent;
        match answer {
            Some(ClientsEvent::ConnectFailed { error: ConnectError::Refused(refusal), .. })
                if refusal.reason == RefuseReason::Full =>
            {
                println!(
                    "one more  was told that the server is full after {:.0} ms, and to come back after {:?}",
                    took.as_secs_f64() * 1e3,
                    refusal.retry_after
                );
                let name = "echo: until one more was told that the server is full";
                results.figure(name, Some(took.as_secs_f64() * 1e3), "ms", Goal::Shown, "");
                Ok(())
            }
            other => Err(format!("one more client was not told that the server is full: {other:?}")),
        }
    }

    /// Holds what all ends counted against each other.
    fn close(self, server: Child, drops: u64, results: &mut Results) -> Result<(), String> {
        self.check()?;
        let Books { sent, back, refused, skipped, strangers } = self.books;
        let datagrams = self.crowd.carried().sent + self.sent_by_one_more;
        let served = server.finish_counts()?;
        let lost = sent.saturating_sub(back);
        let received = count(&served, "received");
        let no_room = count(&served, "refused") + count(&served, "undelivered");
        println!(
            "messages  sent {sent}, heard {received}, back {back}; no room at a client {refused}, no room at the server \
             {no_room}, on the way there {}, on the way back {}, turns left out {skipped}",
            sent.saturating_sub(received),
            received.saturating_sub(no_room).saturating_sub(back),
        );
        println!("books     {}", close_books(datagrams, &served, drops)?);
        println!("server    {}", counts_text(&served));
        if strangers > 0 || count(&served, "left") > 0 {
            let left = count(&served, "left");
            return Err(format!("{strangers} messages that were not on their way, {left} clients left"));
        }
        results.figure("echo: clients that were dropped", Some(0.0), "", Goal::AtMost(0.0), "");
        let share = lost as f64 / sent.max(1) as f64 * 100.0;
        results.figure("echo: unreliable messages lost", Some(share), "%", Goal::Shown, "");
        Ok(())
    }
}
