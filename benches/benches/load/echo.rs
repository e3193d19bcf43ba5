//! As many clients as the server has room for, each with ten messages a second there and back, and one more.

use std::collections::HashMap;
use std::time::Duration;

use drumfire::{Clients, ClientsEvent, ConnectError, PeerId, RefuseReason, SendError, SendOptions};
use drumfire_benches::{
    Child, Counts, Crowd, DropWatch, Extent, Goal, Results, Spread, Used, Watch, close_books, count,
    counts_text,
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

/// How long clients play before somebody else has a turn.
const SLICE: Duration = Duration::from_millis(50);

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

pub(crate) struct Players {
    crowd: Crowd,
    /// The next message of each, and how many of them are not back.
    out: Vec<(u64, u64)>,
    places: HashMap<(usize, PeerId), usize>,
    books: Books,
    turn: usize,
    /// Messages of all of them in a second.
    per_second: u64,
    /// The one for whom there was no room: what comes to it afterwards is in the books too.
    one_more: Option<Crowd>,
}

pub(crate) fn measure(
    extent: Extent,
    clients: u32,
    (workers, core): (u32, Option<usize>),
    results: &mut Results,
) -> Result<(), String> {
    let (windows, window) = match extent {
        Extent::Quick => (1, Duration::from_secs(2)),
        Extent::Default => (5, Duration::from_secs(3)),
        Extent::Full => (5, Duration::from_secs(10)),
    };
    let dropped = DropWatch::begin();
    let server = Does::Echo.start(workers, clients, core)?;
    let address = server.address()?;
    let to = (address, key().public());
    let mut crowd = crate::crowd(clients)?;
    let per_second = RAMP_PER_SECOND * u64::from(workers);
    let ramped = crowd.connect(to, clients.into(), per_second, |_, _| {})?;
    crate::show_ramp(&ramped, results, "echo");
    let mut players = Players::new(crowd, u64::from(clients) * MESSAGES_PER_SECOND);
    let played = players.windows(&server, windows, window).and_then(|used| {
        if ramped.failed_count() == 0 {
            players.one_more(to, results)?;
        }
        players.settle();
        Ok(used)
    });
    // Before anything else is judged, since a bench that ends early has it too.
    let ended = players.crowd.ended();
    let name = "echo: clients that were dropped";
    results.figure(name, Some(ended as f64), "", Goal::AtMost(0.0), "as the clients saw it");
    let used = played?;
    players.close("echo", server, dropped.count(), results)?;
    show_cpu(&used, clients, results);
    crate::all_connected(&ramped)
}

/// Of one window.
pub(crate) struct Played {
    pub(crate) server: Used,
    pub(crate) here: Used,
    /// Messages that were sent to the server.
    sent: u64,
}

impl Played {
    fn per_second(&self) -> f64 {
        self.sent as f64 / self.server.window.as_secs_f64()
    }

    /// CPU of the server for each message, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> f64 {
        self.server.cpu_s() * 1e9 / self.sent.max(1) as f64
    }
}

fn show_cpu(used: &[Played], clients: u32, results: &mut Results) {
    let offered = u64::from(clients) * MESSAGES_PER_SECOND;
    let note = |spread: Option<Spread>| {
        spread.map_or_else(String::new, |spread| format!("{:.1} to {:.1}", spread.least, spread.most))
    };
    let mut figure = |name: &str, unit, of: &dyn Fn(&Played) -> f64| {
        let spread = Spread::of(used.iter().map(of));
        results.figure(format!("echo: {name}"), spread.map(|s| s.median), unit, Goal::Shown, &note(spread));
    };
    figure(&format!("messages there and back, of {offered} offered"), "/s", &Played::per_second);
    figure("server", "% of a core", &|played| played.server.core_share() * 100.0);
    figure("CPU per message", "ns", &Played::cpu_ns);
    let here: Vec<Used> = used.iter().map(|played| played.here).collect();
    crate::show_own_cpu(&here, results, "echo");
}

impl Players {
    pub(crate) fn new(crowd: Crowd, per_second: u64) -> Self {
        let places = crowd.peers().iter().enumerate().map(|(place, peer)| (*peer, place)).collect();
        let out = vec![(0, 0); crowd.peers().len()];
        Self { crowd, out, places, books: Books::default(), turn: 0, per_second, one_more: None }
    }

    /// Lets them play, first uncounted.
    fn windows(&mut self, server: &Child, count: u32, window: Duration) -> Result<Vec<Played>, String> {
        self.play(WARM_UP)?;
        (0..count).map(|_| self.window(server, window, || {})).collect()
    }

    /// Lets them play for so long, and looks at both processes at both ends; `beside` is called now and then.
    pub(crate) fn window(
        &mut self,
        server: &Child,
        window: Duration,
        mut beside: impl FnMut(),
    ) -> Result<Played, String> {
        let (watch, before) = ([server.id(), std::process::id()].map(Watch::begin), self.books.sent);
        let until = clock::now() + window;
        while clock::now() < until {
            self.play(SLICE)?;
            beside();
        }
        let [Some(server), Some(here)] = watch.map(|watch| watch.used()) else {
            return Err("the processes' clocks cannot be read".to_owned());
        };
        Ok(Played { server, here, sent: self.books.sent - before })
    }

    /// Lets them say something in turns, all evenly over time.
    pub(crate) fn play(&mut self, time: Duration) -> Result<(), String> {
        let rate = self.per_second;
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

    /// Takes in what came.
    pub(crate) fn listen(&mut self) {
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

    /// Datagrams that the clients sent so far.
    pub(crate) fn datagrams(&self) -> u64 {
        self.crowd.carried().sent + self.one_more.as_ref().map_or(0, |one_more| one_more.carried().sent)
    }

    /// Waits for what is still out.
    pub(crate) fn settle(&mut self) {
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
        self.one_more = Some(another);
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
    pub(crate) fn close(
        mut self,
        part: &str,
        server: Child,
        drops: u64,
        results: &mut Results,
    ) -> Result<Counts, String> {
        self.check()?;
        let Books { sent, back, refused, skipped, strangers } = self.books;
        let datagrams = self.datagrams();
        let mut crowds: Vec<&mut Crowd> = [&mut self.crowd].into_iter().chain(&mut self.one_more).collect();
        let served = crate::end(server, &mut crowds, datagrams, drops)?;
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
        let share = lost as f64 / sent.max(1) as f64 * 100.0;
        results.figure(format!("{part}: unreliable messages lost"), Some(share), "%", Goal::Shown, "");
        Ok(served)
    }
}
