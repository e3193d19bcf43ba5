//! What a game server says to Agones over the REST interface of its SDK, and what it hears.
//!
//! Deliberately no more of the interface than a server needs that plays one round: ready, health, allocate, shutdown, and
//! whether the server was allocated. Counters, lists and labels are other calls of the same kind.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

/// Set by Agones in every container of a game server: where its SDK listens on the loopback.
pub(super) const PORT_VARIABLE: &str = "AGONES_SDK_HTTP_PORT";
/// Below the `periodSeconds` of the manifest, so that one lost call is no illness.
pub(super) const HEALTH_EVERY: Duration = Duration::from_secs(2);

/// For one call; the SDK is in the same pod.
const CALL_TIME: Duration = Duration::from_secs(2);
/// Calls of `ready`, which may come before the SDK is there: half a minute of them.
const READY_TRIES: u32 = 60;
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Calls of `shutdown`: without it Agones would wait for a server that is gone.
const SHUTDOWN_TRIES: u32 = 5;

/// The SDK of one game server.
#[derive(Clone, Debug)]
pub(super) struct Sdk {
    agent: Agent,
    base: String,
    ready_tries: u32,
}

impl Sdk {
    /// That of the pod this process runs in; `None` outside of Agones.
    pub(super) fn of_this_pod() -> Result<Option<Self>, Box<dyn Error>> {
        let Ok(port) = std::env::var(PORT_VARIABLE) else { return Ok(None) };
        let port = port.parse().map_err(|_| format!("{PORT_VARIABLE}={port}: not a port from 1 to 65535"))?;
        Ok(Some(Self::at(port, READY_TRIES)))
    }

    /// The one at this port of the loopback, asked so often before it is given up.
    pub(super) fn at(port: u16, ready_tries: u32) -> Self {
        let config = Agent::config_builder().timeout_connect(Some(CALL_TIME)).proxy(None).build();
        Self { agent: config.into(), base: format!("http://127.0.0.1:{port}"), ready_tries }
    }

    fn post(&self, call: &str) -> Result<(), String> {
        let url = format!("{}{call}", self.base);
        let post = self.agent.post(&url).config().timeout_global(Some(CALL_TIME)).build();
        let answer = post.content_type("application/json").send("{}");
        answer.map(drop).map_err(|error| format!("no answer to POST {url} ({error})"))
    }

    /// The same until it is answered, some times.
    fn post_patiently(&self, call: &str, tries: u32) -> Result<(), String> {
        let mut answer = self.post(call);
        for _ in 1..tries {
            if answer.is_ok() {
                break;
            }
            nap();
            answer = self.post(call);
        }
        answer
    }

    /// Hears of every change until the SDK ends it; answers early when nobody wants to hear any more.
    fn watch(&self, mut hear: impl FnMut(&str) -> bool) -> Result<(), Box<dyn Error>> {
        let answer = self.agent.get(format!("{}/watch/gameserver", self.base)).call()?;
        for line in BufReader::new(answer.into_body().into_reader()).lines() {
            // One JSON document in each line.
            let change: Value = serde_json::from_str(&line?)?;
            if let Some(state) = change.pointer("/result/status/state").and_then(Value::as_str)
                && !hear(state)
            {
                break;
            }
        }
        Ok(())
    }
}

/// Two threads beside the game: one tells Agones that the server is well, the other hears what becomes of it.
pub(super) struct Keeper {
    sdk: Sdk,
    orders: Sender<()>,
    health: JoinHandle<()>,
    told: Arc<Told>,
}

/// What the game and the threads tell each other.
#[derive(Default)]
struct Told {
    /// Ticks of the game so far.
    ticks: AtomicU64,
    /// Agones gave the server to players.
    is_allocated: AtomicBool,
    is_over: AtomicBool,
}

impl Keeper {
    /// Says that the server is ready, and begins.
    ///
    /// # Errors
    /// One line, when nobody answers.
    pub(super) fn start(sdk: Sdk, health_every: Duration) -> Result<Self, Box<dyn Error>> {
        sdk.post_patiently("/ready", sdk.ready_tries)
            .map_err(|why| format!("Agones: {why}; is the SDK's sidecar there, or {PORT_VARIABLE} wrong?"))?;
        println!("Agones: ready");
        let (orders, ordered) = channel();
        let told = Arc::new(Told::default());
        let (of_health, of_watch) = (Arc::clone(&told), Arc::clone(&told));
        let (healthy, watched) = (sdk.clone(), sdk.clone());
        let health = std::thread::spawn(move || keep_well(&healthy, &of_health, &ordered, health_every));
        // It waits for the SDK's next word, and ends with the process.
        std::thread::spawn(move || listen(&watched, &of_watch));
        Ok(Self { sdk, orders, health, told })
    }

    /// The game goes on: without this Agones hears nothing, and takes the server for ill.
    pub(super) fn on_tick(&self) {
        self.told.ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether Agones gave the server to players, ours or those of a matchmaker.
    pub(super) fn is_allocated(&self) -> bool {
        self.told.is_allocated.load(Ordering::Acquire)
    }

    /// Players are here: Agones must not take the server away.
    pub(super) fn allocate(&self) {
        // It fails when the thread has panicked: then no health comes either.
        let _ = self.orders.send(());
    }

    /// The server is done and the pod may go.
    ///
    /// # Errors
    /// One line, when nobody answers.
    pub(super) fn shut_down(self) -> Result<(), Box<dyn Error>> {
        let Self { sdk, orders, health, told } = self;
        told.is_over.store(true, Ordering::Release);
        drop(orders);
        health.join().map_err(|_| "the thread for Agones panicked")?;
        sdk.post_patiently("/shutdown", SHUTDOWN_TRIES).map_err(|why| format!("Agones: {why}"))?;
        println!("Agones: shutdown");
        Ok(())
    }
}

/// Says that the server is well, as long as the game goes on; and that it is allocated, once it was told so.
fn keep_well(sdk: &Sdk, told: &Told, ordered: &Receiver<()>, every: Duration) {
    let (mut ticks, mut must_allocate, mut was_answered) = (0, false, true);
    loop {
        match ordered.recv_timeout(every) {
            Ok(()) => must_allocate = true,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let before = std::mem::replace(&mut ticks, told.ticks.load(Ordering::Relaxed));
        let answer = if must_allocate {
            sdk.post("/allocate").inspect(|()| must_allocate = false)
        } else if before == ticks {
            // A game that hangs is not well.
            continue;
        } else {
            sdk.post("/health")
        };
        // Players do not care for Agones: the game goes on, and one line tells of it.
        match &answer {
            Err(why) if was_answered => eprintln!("Agones: {why}; the game goes on"),
            Ok(()) if !was_answered => eprintln!("Agones: it answers again"),
            _ => {}
        }
        was_answered = answer.is_ok();
    }
}

/// Tells of each new state of the server, as Agones has it.
fn listen(sdk: &Sdk, told: &Told) {
    let mut latest = String::new();
    while !told.is_over.load(Ordering::Acquire) {
        // A stream that ends, or is not there, is asked for again: the health calls tell of an SDK that is away.
        let _ = sdk.watch(|state| {
            if state != latest {
                println!("Agones: this server is {state}");
                state.clone_into(&mut latest);
            }
            told.is_allocated.fetch_or(state == "Allocated", Ordering::AcqRel);
            !told.is_over.load(Ordering::Acquire)
        });
        nap();
    }
}

/// Before the next try.
fn nap() {
    std::thread::park_timeout(RETRY_PAUSE);
}
